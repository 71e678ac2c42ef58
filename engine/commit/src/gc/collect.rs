//! Removal of unused cache entries: by age, then by size, oldest first. Entries in use are never removed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, SystemTime};

use forebay_model::{ContentId, Fault, RelativePath, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::Serialize;

use crate::gc::list::{ListedObject, is_staged, list_files};
use crate::gc::tables::unreferenced_table_files;
use crate::gc::{
    KindUsage, OUTPUT, PackFile, RUNS, StateDirectory, StateEntry, TEMPORARY, usage_by_kind,
};
use crate::lease::StateLease;
use crate::output::{ATTEMPT, DATA, Manifest, lock_output, remove_directory};
use crate::state_store::{PackedKind, RewrittenPack};

/// Time after which untouched temporary data counts as abandoned by its run.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Size below which packs are merged where there are more than `SMALL_PACKS_MAX` of them: runs read
/// the directory of each.
const SMALL_PACK_BYTES: u64 = 1 << 20;
const SMALL_PACKS_MAX: usize = 32;

/// Retention policy of a collection.
#[derive(Debug, Clone, Copy)]
pub struct RetentionPolicy {
    /// Maximum age of entries to keep.
    pub older_than: Option<Duration>,
    /// Maximum bytes to keep.
    pub bytes_max: Option<u64>,
    /// The present.
    pub now: SystemTime,
    /// Only report the entries that would be removed.
    pub dry_run: bool,
}

/// Entries that a collection removed and kept.
#[derive(Debug, Serialize)]
pub struct CollectionReport {
    /// True if the collection only reported, and removed nothing.
    pub dry_run: bool,
    /// Removed entries, by kind.
    pub removed: Vec<KindUsage>,
    /// Kept entries, by kind.
    pub kept: Vec<KindUsage>,
    /// Bytes of entries that stayed because they are in use.
    pub bytes_in_use: u64,
}

impl RetentionPolicy {
    fn is_older(&self, entry: &StateEntry, limit: Duration) -> bool {
        let age = self.now.duration_since(entry.written).unwrap_or_default();
        age > limit
    }

    /// True for a file of a run that did not come to its end.
    fn is_abandoned(&self, entry: &StateEntry) -> bool {
        self.is_older(entry, self.older_than.unwrap_or(ABANDONED_AFTER))
    }

    /// True if a collection removes an entry of a state directory of this size.
    fn removes(&self, entry: &StateEntry, is_in_use: bool, bytes_in_store: u64) -> bool {
        if entry.staged || entry.kind == TEMPORARY {
            return self.is_abandoned(entry);
        }
        let is_recent_run = entry.kind == RUNS && !self.is_older(entry, ABANDONED_AFTER);
        if is_in_use || is_recent_run {
            return false;
        }
        let too_much = self.bytes_max.is_some_and(|max| bytes_in_store > max);
        let too_old = self
            .older_than
            .is_some_and(|limit| self.is_older(entry, limit));
        too_much || too_old
    }
}

impl StateDirectory {
    /// Removes entries that are too old, and the oldest ones beyond the size limit.
    pub fn collect(&self, retention: &RetentionPolicy) -> Result<CollectionReport> {
        let _lease = if retention.dry_run {
            None
        } else {
            Some(StateLease::of_collection(&self.io, self.store.root())?)
        };
        let mut entries = self.entries()?;
        let mut roots = self.roots(&entries)?;
        // What such a file names may be in use.
        if let Some(fault) = Fault::combine(std::mem::take(&mut roots.unreadable)) {
            return Err(fault.note("nothing was removed"));
        }
        let mut lost_data = Vec::new();
        for (out, manifest) in &roots.outputs {
            lost_data.extend(self.collect_output(out, manifest.as_ref(), retention)?);
        }
        // Oldest first: a limit in bytes removes those.
        entries.sort_by_key(|entry| entry.written);
        let mut bytes_in_store: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut removed = Vec::new();
        let mut retained = Vec::new();
        for entry in entries {
            let is_in_use = roots.is_in_use(&entry);
            if retention.removes(&entry, is_in_use, bytes_in_store) {
                bytes_in_store -= entry.bytes;
                removed.push(entry);
            } else {
                retained.push(entry);
            }
        }
        if !retention.dry_run {
            for entry in removed.iter().filter(|entry| entry.pack.is_none()) {
                self.remove(entry)?;
            }
            self.rewrite_packs(&removed, &retained)?;
        }
        removed.extend(lost_data);
        let bytes_in_use = retained
            .iter()
            .filter(|entry| roots.is_in_use(entry))
            .map(|entry| entry.bytes)
            .sum();
        Ok(CollectionReport {
            dry_run: retention.dry_run,
            removed: usage_by_kind(&removed),
            kept: usage_by_kind(&retained),
            bytes_in_use,
        })
    }

    /// Removes the files of an output that nothing names and that are old enough; returns them.
    fn collect_output(
        &self,
        out: &StorageLocation,
        manifest: Option<&Manifest>,
        retention: &RetentionPolicy,
    ) -> Result<Vec<StateEntry>> {
        // Runs with another state directory may write here, too: they find out whether their files are there.
        let is_there = out.local.as_ref().is_some_and(|local| local.exists());
        let lock = if is_there && !retention.dry_run {
            lock_output(&self.io, out)?
        } else {
            None
        };
        // Read again under the lock: a run may have published since the roots were collected.
        let visible = if lock.is_some() {
            Manifest::read(&self.io, out)?
        } else {
            manifest.cloned()
        };
        let mut lost = unreferenced_files(&self.io, out, visible.as_ref())?;
        if let Some(needed) = self.needed_table_files(out, visible.as_ref())? {
            lost.extend(unreferenced_table_files(
                &self.io,
                out,
                &needed,
                visible.as_ref(),
            )?);
        }
        lost.retain(|entry| retention.is_abandoned(entry));
        if retention.dry_run {
            return Ok(lost);
        }
        let directories = lost
            .iter()
            .map(|entry| RelativePath::new(&*entry.name))
            .collect::<Result<_>>()?;
        // A bucket has no lock: the manifest names the directories first, so that no run publishes
        // them again (decisions/publishing.md).
        if !Manifest::announce_removal(&self.io, out, directories)? {
            // A run published just now; the next collection looks again.
            return Ok(Vec::new());
        }
        for entry in &lost {
            self.remove(entry)?;
        }
        Ok(lost)
    }

    /// The files that the log of a table needs; `None` for an output that is no table.
    fn needed_table_files(
        &self,
        out: &StorageLocation,
        visible: Option<&Manifest>,
    ) -> Result<Option<BTreeSet<String>>> {
        // In a bucket, the manifest keeps runs from committing what is removed.
        if visible.is_none() && out.local.is_none() {
            return Ok(None);
        }
        let Some(tables) = self.tables else {
            return Ok(None);
        };
        let needed = tables(&self.io, out)?;
        // Without a log and without a manifest, no run has committed to this output.
        let is_unwritten = needed.is_none() && visible.is_none();
        Ok(needed.or_else(|| is_unwritten.then(BTreeSet::new)))
    }

    /// Removes states from packs, and merges small packs if there are many.
    fn rewrite_packs(&self, removed: &[StateEntry], retained: &[StateEntry]) -> Result<()> {
        let mut by_pack: BTreeMap<&PackFile, HashSet<ContentId>> = BTreeMap::new();
        for entry in removed {
            if let (Some(pack), Some(id)) = (&entry.pack, entry.id()) {
                by_pack.entry(pack).or_default().insert(id);
            }
        }
        for kind in [PackedKind::State, PackedKind::Partial] {
            let is_small = |pack: &&PackFile| pack.kind == kind && pack.bytes < SMALL_PACK_BYTES;
            let small: BTreeSet<&PackFile> = retained
                .iter()
                .filter_map(|entry| entry.pack.as_ref())
                .filter(is_small)
                .collect();
            if small.len() > SMALL_PACKS_MAX {
                small.into_iter().for_each(|pack| {
                    by_pack.entry(pack).or_default();
                });
            }
            let packs =
                by_pack
                    .iter()
                    .filter(|(pack, _)| pack.kind == kind)
                    .map(|(pack, removed)| RewrittenPack {
                        name: pack.name.clone(),
                        bytes: pack.bytes,
                        written: pack.written,
                        removed: removed.clone(),
                    });
            let packs: Vec<RewrittenPack> = packs.collect();
            if !packs.is_empty() {
                self.store.rewrite_packs(kind, &packs)?;
            }
        }
        Ok(())
    }

    fn remove(&self, entry: &StateEntry) -> Result<()> {
        match &entry.place.local {
            Some(local) if !local.is_dir() => match std::fs::remove_file(local) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Fault::disk("old data cannot be removed", error)
                        .file(local.display().to_string()))
                }
                _ => Ok(()),
            },
            Some(_) => remove_directory(&self.io, &entry.place),
            // An object, or those below it.
            None => entry.files.iter().try_for_each(|file| {
                let parts = file.path.split_once('/').map_or("", |(_, below)| below);
                self.io.delete(&entry.place.join(parts))
            }),
        }
    }
}

/// Files of an output that no manifest names.
fn unreferenced_files(
    io: &StorageClient,
    out: &StorageLocation,
    manifest: Option<&Manifest>,
) -> Result<Vec<StateEntry>> {
    let mut named: BTreeSet<String> = BTreeSet::new();
    if let Some(manifest) = manifest {
        let directories = manifest
            .directories()?
            .into_iter()
            .chain(manifest.previous.clone());
        named.extend(directories.map(String::from));
    }
    let mut lost: BTreeMap<String, Vec<ListedObject>> = BTreeMap::new();
    for file in list_files(io, &out.join(DATA))? {
        let name = file.path.split('/').next().unwrap_or_default();
        let id = name.split('.').next().unwrap_or_default();
        let ours = ContentId::parse(id).is_some() || name.starts_with(ATTEMPT);
        let path = format!("{DATA}/{name}");
        if ours && !named.contains(&path) {
            lost.entry(path).or_default().push(file);
        }
    }
    let neighbours = out
        .local
        .iter()
        .flat_map(std::fs::read_dir)
        .flatten()
        .flatten();
    for file in neighbours
        .filter_map(|file| Some((file.file_name().into_string().ok()?, file.metadata().ok()?)))
    {
        let is_attempt = file.1.is_dir() && file.0.starts_with(ATTEMPT);
        if is_attempt || (is_staged(&file.0) && file.0.starts_with("_manifest.json#")) {
            let written = file.1.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            lost.insert(
                file.0.clone(),
                vec![ListedObject {
                    path: file.0,
                    bytes: file.1.len(),
                    written,
                }],
            );
        }
    }
    let entry = |(name, files): (String, Vec<ListedObject>)| {
        StateEntry::new(OUTPUT, &name, out.join(&name), files)
    };
    Ok(lost.into_iter().map(entry).collect())
}
