//! Small states are stored together: they are collected in a temporary file, and written as one
//! pack when that is full, when enough rows were read for them, and at the end of a pass. Readers
//! find them by an index of all packs.
//!
//! ```text
//! states/<id>                a large state
//! states/<hash>.pack         many small states; see `pack_file.rs`
//! ```
//! A state counts as committed once its pack is in place. Packs are never changed. A pack whose states are broken is
//! replaced by one of the others and the new ones.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use forebay_model::{ContentId, Fault, Result};
use forebay_storage::{IgnoreEvents, ScratchDir, StorageLocation};
use forebay_threads::{lock, parallel_map};
use tempfile::NamedTempFile;

use super::frame::{FrameHeader, FrameReader, write_failed};
use super::pack_file::{
    PACK_SUFFIX, PackDirectory, PackEntry, PackWriter, TAIL_BYTES, pack_name, read_directory,
};
use super::pack_index::{PackCopy, PackFile, PackIndex, PackSpool, PackedKind, PackedPlace};
use super::{StateStore, if_exists};

/// Bytes of a state from which on it has a file of its own.
pub const PACKED_STATE_BYTES_MAX: usize = 1 << 20;

/// Bytes of states after which a pack is written: one request uploads it, and one reads it.
const PACK_BYTES: u64 = 14 << 20;

/// Stored bytes that are read after which the states of their rows are committed: at most so many
/// are read again after a crash.
const READ_BYTES_UNCOMMITTED_MAX: u64 = 256 << 20;

/// Requests for packs at the same time, and bytes of packs that are fetched at the same time.
const REQUESTS_MAX: usize = 16;
const FETCHED_BYTES_MAX: u64 = 16 << 20;

/// A frame that goes into a pack where it is small, and has a file of its own otherwise.
pub(super) struct SmallFrame<'a> {
    pub kind: PackedKind,
    pub id: ContentId,
    pub header: &'a FrameHeader,
    pub scratch: &'a ScratchDir,
    /// True if it survives a power failure once [`StateStore::sync`] has returned.
    pub durable: bool,
}

impl StateStore {
    /// The index of a kind, which is read on first use.
    fn pack_index(&self, kind: PackedKind) -> Result<MutexGuard<'_, PackIndex>> {
        let mut index = lock(self.packs.of(kind))?;
        if !index.is_loaded {
            self.load_packs(kind, &mut index)?;
        }
        Ok(index)
    }

    /// Looks for states that other processes have committed.
    pub fn refresh(&self) -> Result<()> {
        [PackedKind::State, PackedKind::Partial]
            .into_iter()
            .try_for_each(|kind| self.refresh_kind(kind))
    }

    pub(super) fn refresh_kind(&self, kind: PackedKind) -> Result<()> {
        let mut index = lock(self.packs.of(kind))?;
        self.load_packs(kind, &mut index)
    }

    fn load_packs(&self, kind: PackedKind, index: &mut PackIndex) -> Result<()> {
        let mut listed: BTreeMap<String, u64> = BTreeMap::new();
        let location = self.root.join(kind.directory());
        match &location.local {
            Some(local) => {
                let failed = |error| {
                    Fault::disk("a state directory cannot be listed", error).file(&location.shown)
                };
                for file in if_exists(std::fs::read_dir(local))?.into_iter().flatten() {
                    let file = file.map_err(failed)?;
                    let name = file.file_name().to_string_lossy().into_owned();
                    if name.ends_with(PACK_SUFFIX)
                        && let Ok(meta) = file.metadata()
                    {
                        listed.insert(name, meta.len());
                    }
                }
            }
            None => {
                for object in self.io.list(&location)? {
                    let name = object.location.filename().unwrap_or_default();
                    match ContentId::parse(name) {
                        Some(id) => drop(index.large.insert(id)),
                        None if name.ends_with(PACK_SUFFIX) => {
                            listed.insert(name.to_owned(), object.size);
                        }
                        None => {}
                    }
                }
            }
        }
        index.remove(|file| listed.get(&file.name) != Some(&file.bytes));
        let known_names: HashSet<&str> =
            index.files.iter().map(|file| file.name.as_str()).collect();
        let new = listed
            .into_iter()
            .filter(|(name, _)| !known_names.contains(name.as_str()));
        let new: Vec<Arc<PackFile>> = new
            .map(|(name, bytes)| Arc::new(self.pack_file(kind, name, bytes)))
            .collect();
        let threads = if self.root.local.is_some() {
            1
        } else {
            REQUESTS_MAX
        };
        let directories = parallel_map(threads.min(new.len().max(1)), new.len(), &|at| {
            self.directory_of(&new[at])
        })?;
        for (file, entries) in new.iter().zip(directories) {
            // One that is broken holds nothing.
            entries
                .into_iter()
                .for_each(|entries| index.insert(file, entries));
        }
        index.is_loaded = true;
        Ok(())
    }

    fn pack_file(&self, kind: PackedKind, name: String, bytes: u64) -> PackFile {
        let location = self.root.join(&format!("{}/{name}", kind.directory()));
        PackFile {
            name,
            place: location,
            bytes,
            copy: Mutex::default(),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Entries of a pack; `None` if it is gone or broken.
    fn directory_of(&self, file: &PackFile) -> Result<Option<Vec<PackEntry>>> {
        let mut tail_bytes = TAIL_BYTES;
        loop {
            let range = file.bytes.saturating_sub(tail_bytes)..file.bytes;
            let Some(tail) = self.read_stored(&file.place, range)? else {
                return Ok(None);
            };
            match read_directory(&tail, file.bytes) {
                PackDirectory::Whole(entries) => return Ok(Some(entries)),
                PackDirectory::Longer(bytes) if bytes > tail_bytes => tail_bytes = bytes,
                PackDirectory::Longer(_) | PackDirectory::Broken => return Ok(None),
            }
        }
    }

    fn read_stored(
        &self,
        location: &StorageLocation,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Bytes>> {
        match &location.local {
            Some(path) => read_range(path, range),
            None if range.is_empty() => Ok(None),
            None => Ok(self
                .io
                .get_unversioned(location, range)?
                .map(|(_, bytes)| bytes)),
        }
    }

    /// Some bytes of a pack; `None` where it is gone. A remote pack is read whole, once.
    fn read_packed(&self, file: &PackFile, entry: &PackEntry) -> Result<Option<Bytes>> {
        let range = entry.offset..entry.offset + u64::from(entry.bytes);
        if let Some(path) = &file.place.local {
            return read_range(path, range);
        }
        let mut copy = lock(&file.copy)?;
        if copy.is_none() {
            let Some(bytes) = self.read_stored(&file.place, 0..file.bytes)? else {
                return Ok(None);
            };
            *copy = Some(self.copy_pack(&bytes)?);
        }
        match &*copy {
            Some(copy) => read_range(&copy.path, range),
            None => Ok(None),
        }
    }

    fn copy_pack(&self, bytes: &[u8]) -> Result<PackCopy> {
        let mut copies = lock(&self.packs.copies)?;
        let dir = match &*copies {
            Some(dir) => dir.clone(),
            None => copies
                .insert(ScratchDir::new(Some(&self.root), Arc::new(IgnoreEvents))?)
                .clone(),
        };
        let mut file = dir.file()?;
        file.write_all(bytes)
            .map_err(|error| dir.fault("a state cannot be copied", error))?;
        Ok(PackCopy {
            path: file.into_temp_path(),
            _dir: dir,
        })
    }

    /// Fetches the packs of some states, several at a time.
    pub(super) fn fetch_packs(
        &self,
        kind: PackedKind,
        ids: impl Iterator<Item = ContentId>,
    ) -> Result<()> {
        if self.root.local.is_some() {
            return Ok(());
        }
        let mut by_name: BTreeMap<String, PackedPlace> = BTreeMap::new();
        {
            let index = self.pack_index(kind)?;
            for packed in ids.filter_map(|id| index.entries.get(&id)) {
                if !by_name.contains_key(&packed.file.name) && lock(&packed.file.copy)?.is_none() {
                    by_name.insert(packed.file.name.clone(), packed.clone());
                }
            }
        }
        let missing: Vec<PackedPlace> = by_name.into_values().collect();
        let mut remaining = &missing[..];
        while !remaining.is_empty() {
            let mut bytes = 0;
            let fitting = remaining.iter().take(REQUESTS_MAX).take_while(|packed| {
                bytes += packed.file.bytes;
                bytes <= FETCHED_BYTES_MAX
            });
            let (now, following) = remaining.split_at(fitting.count().max(1));
            parallel_map(now.len(), now.len(), &|at| {
                self.read_packed(&now[at].file, &now[at].entry)
            })?;
            remaining = following;
        }
        Ok(())
    }

    /// For each id, true if its state is committed, or about to be.
    pub(super) fn are_packed(&self, kind: PackedKind, ids: &[ContentId]) -> Result<Vec<bool>> {
        let index = self.pack_index(kind)?;
        let is_known = |id: &ContentId| {
            let is_spooled = index
                .spool
                .as_ref()
                .is_some_and(|spool| spool.entries.contains_key(id));
            is_spooled || index.entries.contains_key(id) || index.large.contains(id)
        };
        Ok(ids.iter().map(is_known).collect())
    }

    /// True if a state may have a file of its own.
    pub(super) fn may_be_large(&self, kind: PackedKind, id: ContentId) -> Result<bool> {
        Ok(self.root.local.is_some() || self.pack_index(kind)?.large.contains(&id))
    }

    pub(super) fn record_large(&self, kind: PackedKind, id: ContentId) -> Result<()> {
        lock(self.packs.of(kind))?.large.insert(id);
        Ok(())
    }

    pub(super) fn forget_large(&self, kind: PackedKind, id: ContentId) -> Result<()> {
        lock(self.packs.of(kind))?.large.remove(&id);
        Ok(())
    }

    /// The frame of a state that no file of its own holds.
    pub(super) fn packed_frame(&self, kind: PackedKind, id: ContentId) -> Result<Option<Bytes>> {
        // A pack that is gone was replaced by another.
        for _ in 0..2 {
            let packed = {
                let index = self.pack_index(kind)?;
                if let Some(spool) = &index.spool
                    && let Some(entry) = spool.entries.get(&id)
                {
                    return read_range(
                        spool.file.path(),
                        entry.offset..entry.offset + u64::from(entry.bytes),
                    );
                }
                let Some(packed) = index.entries.get(&id) else {
                    return Ok(None);
                };
                packed.clone()
            };
            if let Some(bytes) = self.read_packed(&packed.file, &packed.entry)? {
                return Ok(Some(bytes));
            }
            self.refresh_kind(kind)?;
        }
        Ok(None)
    }

    /// Forgets a state that cannot be read.
    pub(super) fn forget_packed(&self, kind: PackedKind, id: ContentId) -> Result<()> {
        let mut index = lock(self.packs.of(kind))?;
        if let Some(spool) = &mut index.spool {
            spool.entries.remove(&id);
        }
        index
            .entries
            .get(&id)
            .iter()
            .for_each(|packed| packed.file.is_broken.store(true, Ordering::Relaxed));
        index.forget(id);
        Ok(())
    }

    /// Adds a state to the next pack.
    pub(super) fn put_packed(&self, new: &SmallFrame<'_>, frame: &[u8]) -> Result<()> {
        let kind = new.kind;
        let id = new.id;
        let mut index = self.pack_index(kind)?;
        if index.entries.contains_key(&id) {
            return Ok(());
        }
        let is_full = {
            let spool = match index.spool.take() {
                Some(spool) => spool,
                None => PackSpool {
                    file: new.scratch.file()?,
                    scratch: new.scratch.clone(),
                    entries: BTreeMap::new(),
                    bytes: 0,
                    durable: false,
                },
            };
            let spool = index.spool.insert(spool);
            spool
                .file
                .write_all(frame)
                .map_err(|error| new.scratch.fault("a state cannot be written", error))?;
            let entry = PackEntry {
                id,
                offset: spool.bytes,
                bytes: frame.len() as u32,
                written: 0,
            };
            spool.entries.insert(id, entry);
            spool.bytes += frame.len() as u64;
            spool.durable |= new.durable;
            spool.bytes >= PACK_BYTES
        };
        if is_full {
            self.write_pack(kind, &mut index)
        } else {
            Ok(())
        }
    }

    /// Adds to the stored bytes that were read for uncommitted states. Commits the states once a
    /// crash would repeat too much.
    pub fn note_read(&self, bytes: u64) -> Result<()> {
        let bytes_before = self
            .packs
            .read_uncommitted
            .fetch_add(bytes, Ordering::Relaxed);
        if bytes_before + bytes < READ_BYTES_UNCOMMITTED_MAX {
            Ok(())
        } else {
            self.flush()
        }
    }

    /// Commits all states that were put.
    pub fn flush(&self) -> Result<()> {
        self.packs.read_uncommitted.store(0, Ordering::Relaxed);
        // States of all rows are merged of those of parts.
        for kind in [PackedKind::Partial, PackedKind::State] {
            let mut index = lock(self.packs.of(kind))?;
            self.write_pack(kind, &mut index)?;
        }
        Ok(())
    }

    fn write_pack(&self, kind: PackedKind, index: &mut PackIndex) -> Result<()> {
        let Some(spool) = index.spool.take().filter(|spool| !spool.entries.is_empty()) else {
            return Ok(());
        };
        let broken: Vec<Arc<PackFile>> = index
            .files
            .iter()
            .filter(|file| file.is_broken.load(Ordering::Relaxed))
            .cloned()
            .collect();
        let mut frames: BTreeMap<ContentId, Option<PackedPlace>> =
            spool.entries.keys().map(|id| (*id, None)).collect();
        for (id, packed) in &index.entries {
            if packed.file.is_broken.load(Ordering::Relaxed) {
                frames.entry(*id).or_insert_with(|| Some(packed.clone()));
            }
        }
        let mut file = spool.scratch.file()?;
        let mut pack = PackWriter::new(file.as_file_mut());
        for (id, packed) in &frames {
            let frame = match (packed, spool.entries.get(id)) {
                (Some(packed), _) => {
                    self.read_packed(&packed.file, &packed.entry)?
                        .filter(|frame| {
                            FrameReader::of_bytes(frame.clone())
                                .check(&id.to_string())
                                .is_none()
                        })
                }
                (None, Some(entry)) => read_range(
                    spool.file.path(),
                    entry.offset..entry.offset + u64::from(entry.bytes),
                )?,
                (None, None) => None,
            };
            let written = packed.as_ref().map_or(0, |packed| packed.entry.written);
            frame.map_or(Ok(()), |frame| pack.append(*id, &frame, written))?;
        }
        let entries = pack.finish()?;
        let pack = self.place_pack(kind, file, &entries, &spool.scratch, spool.durable)?;
        index.remove(|file| file.is_broken.load(Ordering::Relaxed) || file.name == pack.name);
        let name = pack.name.clone();
        index.insert(&Arc::new(pack), entries);
        broken
            .iter()
            .filter(|file| file.name != name)
            .try_for_each(|file| self.io.delete(&file.place))
    }

    /// Moves a pack to its final location.
    fn place_pack(
        &self,
        kind: PackedKind,
        file: NamedTempFile,
        entries: &[PackEntry],
        scratch: &ScratchDir,
        durable: bool,
    ) -> Result<PackFile> {
        let bytes = file.as_file().metadata().map_err(write_failed)?.len();
        let pack = self.pack_file(
            kind,
            pack_name(entries.iter().map(|entry| &entry.id)),
            bytes,
        );
        match pack.place.local {
            Some(_) => self.persist_file(&pack.place, file, durable)?,
            None => {
                self.io.upload_file(&pack.place, file.path())?;
                *lock(&pack.copy)? = Some(PackCopy {
                    path: file.into_temp_path(),
                    _dir: scratch.clone(),
                });
            }
        }
        Ok(pack)
    }

    /// Entries of a pack; `None` if it is not whole.
    pub fn packed_entries(
        &self,
        kind: PackedKind,
        name: &str,
        bytes: u64,
    ) -> Result<Option<Vec<PackEntry>>> {
        self.directory_of(&self.pack_file(kind, name.to_owned(), bytes))
    }

    /// Checks a pack, and returns its defect, if any.
    pub fn check_pack(
        &self,
        kind: PackedKind,
        name: &str,
        bytes: u64,
    ) -> Result<Option<&'static str>> {
        let file = self.pack_file(kind, name.to_owned(), bytes);
        let Some(entries) = self.directory_of(&file)? else {
            return Ok(Some("its directory cannot be read"));
        };
        if pack_name(entries.iter().map(|entry| &entry.id)) != name {
            return Ok(Some("it holds other states than its name tells"));
        }
        for entry in &entries {
            let Some(frame) = self.read_packed(&file, entry)? else {
                return Ok(Some("it is missing"));
            };
            if let Some(why) = FrameReader::of_bytes(frame).check(&entry.id.to_string()) {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Replaces packs by packs of the states that stay. The caller has exclusive use of the state
    /// directory.
    pub fn rewrite_packs(&self, kind: PackedKind, packs: &[RewrittenPack]) -> Result<()> {
        let scratch = ScratchDir::new(Some(&self.root), Arc::new(IgnoreEvents))?;
        let mut retained: BTreeMap<ContentId, (usize, PackEntry)> = BTreeMap::new();
        let files: Vec<PackFile> = packs
            .iter()
            .map(|pack| self.pack_file(kind, pack.name.clone(), pack.bytes))
            .collect();
        for (at, pack) in packs.iter().enumerate() {
            let stays = |entry: &&PackEntry| !pack.removed.contains(&entry.id);
            for entry in self
                .directory_of(&files[at])?
                .iter()
                .flatten()
                .filter(stays)
            {
                let written = if entry.written == 0 {
                    pack.written
                } else {
                    entry.written
                };
                retained.insert(entry.id, (at, PackEntry { written, ..*entry }));
            }
        }
        let mut names: HashSet<String> = HashSet::new();
        let mut remaining = retained.into_iter().peekable();
        while remaining.peek().is_some() {
            let mut file = scratch.file()?;
            let mut pack = PackWriter::new(file.as_file_mut());
            let mut bytes = 0;
            while bytes < PACK_BYTES
                && let Some((id, (at, entry))) = remaining.next()
            {
                let frame = self.read_packed(&files[at], &entry)?;
                frame.map_or(Ok(()), |frame| pack.append(id, &frame, entry.written))?;
                bytes += u64::from(entry.bytes);
            }
            let entries = pack.finish()?;
            names.insert(self.place_pack(kind, file, &entries, &scratch, true)?.name);
        }
        let old = files.iter().filter(|file| !names.contains(&file.name));
        old.into_iter()
            .try_for_each(|file| self.io.delete(&file.place))
    }
}

/// A pack that is replaced.
pub struct RewrittenPack {
    pub name: String,
    pub bytes: u64,
    /// Time of writing, in seconds since 1970.
    pub written: u32,
    /// States that are removed.
    pub removed: HashSet<ContentId>,
}

/// Some bytes of a file; `None` where it is gone or shorter.
fn read_range(path: &Path, range: std::ops::Range<u64>) -> Result<Option<Bytes>> {
    let Some(mut file) = if_exists(File::open(path))? else {
        return Ok(None);
    };
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let read = file
        .seek(SeekFrom::Start(range.start))
        .and_then(|_| file.read_exact(&mut bytes));
    match read {
        Ok(()) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => {
            Err(Fault::disk("a state cannot be read", error).file(path.display().to_string()))
        }
    }
}
