//! Removal of unused cache entries: by age, then by size, oldest first. Entries in use are never removed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, SystemTime};

use forebay_model::{ContentId, Fault, RelativePath, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::Serialize;

use crate::gc::list::{ListedObject, is_staged, list_files};
use crate::gc::tables::unreferenced_table_files;
use crate::gc::{KindUsage, PackFile, RUNS, StateDirectory, StateEntry, TEMPORARY, usage_by_kind};
use crate::lease::StateLease;
use crate::output::{ATTEMPT, DATA, Manifest, lock_output, remove_directory};
use crate::state_store::{PackedKind, RewrittenPack};

/// What a run has not touched for so long has lost its run.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Packs of fewer bytes are put together where there are more than so many: runs read the directory of each.
const SMALL_PACK_BYTES: u64 = 1 << 20;
const SMALL_PACKS_MAX: usize = 32;

/// What kinds outputs have.
pub(crate) const OUTPUT: &str = "outputs";

/// What should stay.
#[derive(Debug, Clone, Copy)]
pub struct RetentionPolicy {
    /// Only what was written within this time.
    pub older_than: Option<Duration>,
    /// As much as fits into so many bytes.
    pub bytes_max: Option<u64>,
    /// The present.
    pub now: SystemTime,
    /// Only say what would go.
    pub dry_run: bool,
}

/// What went, and what stayed.
#[derive(Debug, Serialize)]
pub struct CollectionReport {
    /// Whether it was only looked at.
    pub dry_run: bool,
    /// What went, by kind.
    pub removed: Vec<KindUsage>,
    /// What stayed, by kind.
    pub kept: Vec<KindUsage>,
    /// Bytes of what stayed because it is in use.
    pub bytes_in_use: u64,
}

impl StateDirectory {
    /// Removes what is too old or too much.
    pub fn collect(&self, retention: &RetentionPolicy) -> Result<CollectionReport> {
        let _lease = match retention.dry_run {
            true => None,
            false => Some(StateLease::of_collection(&self.io, self.store.root())?),
        };
        let mut entries = self.entries()?;
        let mut roots = self.roots(&entries)?;
        // What such a file names may be in use.
        if let Some(fault) = Fault::combine(std::mem::take(&mut roots.unreadable)) {
            return Err(fault.note("nothing was removed"));
        }
        let is_older = |entry: &StateEntry, than: Option<Duration>| {
            let age = retention
                .now
                .duration_since(entry.written)
                .unwrap_or_default();
            than.is_some_and(|than| age > than)
        };
        let abandoned = Some(retention.older_than.unwrap_or(ABANDONED_AFTER));
        let (mut removed, mut lost_data) = (Vec::new(), Vec::new());
        for (out, manifest) in &roots.outputs {
            // Runs with another state directory may write here, too: they find out whether their files are there.
            let is_there = out.local.as_ref().is_some_and(|local| local.exists());
            let _lock = if is_there && !retention.dry_run {
                lock_output(&self.io, out)?
            } else {
                None
            };
            let visible = if _lock.is_some() {
                Manifest::read(&self.io, out)?
            } else {
                manifest.clone()
            };
            let mut lost = unreferenced_files(&self.io, out, visible.as_ref())?;
            // In a bucket, the manifest keeps runs from committing what is removed.
            let tables = self
                .tables
                .filter(|_| visible.is_some() || out.local.is_some());
            let needed = tables.map_or(Ok(None), |tables| tables(&self.io, out))?;
            // Where there is neither a log nor a manifest, no run has committed anything yet.
            let needed =
                needed.or_else(|| (tables.is_some() && visible.is_none()).then(BTreeSet::new));
            if let Some(needed) = needed {
                lost.extend(unreferenced_table_files(
                    &self.io,
                    out,
                    &needed,
                    visible.as_ref(),
                )?);
            }
            let lost: Vec<StateEntry> = lost
                .into_iter()
                .filter(|entry| is_older(entry, abandoned))
                .collect();
            if !retention.dry_run {
                let directories = lost
                    .iter()
                    .map(|entry| RelativePath::new(&*entry.name))
                    .collect::<Result<_>>()?;
                if !Manifest::announce_removal(&self.io, out, directories)? {
                    // A run published just now; the next collection looks again.
                    continue;
                }
                lost.iter().try_for_each(|entry| self.remove(entry))?;
            }
            lost_data.extend(lost);
        }
        entries.sort_by_key(|entry| entry.written);
        let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut kept = Vec::new();
        for entry in entries {
            let goes = match entry.staged || entry.kind == TEMPORARY {
                true => is_older(&entry, abandoned),
                false => {
                    let too_much = retention.bytes_max.is_some_and(|max| left > max);
                    let is_needed = roots.is_in_use(&entry)
                        || (entry.kind == RUNS && !is_older(&entry, Some(ABANDONED_AFTER)));
                    !is_needed && (too_much || is_older(&entry, retention.older_than))
                }
            };
            if goes {
                left -= entry.bytes;
                removed.push(entry);
            } else {
                kept.push(entry);
            }
        }
        if !retention.dry_run {
            removed
                .iter()
                .filter(|entry| entry.pack.is_none())
                .try_for_each(|entry| self.remove(entry))?;
            self.rewrite_packs(&removed, &kept)?;
        }
        removed.extend(lost_data);
        let bytes_in_use = kept
            .iter()
            .filter(|entry| roots.is_in_use(entry))
            .map(|entry| entry.bytes)
            .sum();
        Ok(CollectionReport {
            dry_run: retention.dry_run,
            removed: usage_by_kind(&removed),
            kept: usage_by_kind(&kept),
            bytes_in_use,
        })
    }

    /// Removes states from packs, and puts small packs together where they are many.
    fn rewrite_packs(&self, removed: &[StateEntry], kept: &[StateEntry]) -> Result<()> {
        let mut by_pack: BTreeMap<&PackFile, HashSet<ContentId>> = BTreeMap::new();
        for entry in removed {
            if let (Some(pack), Some(id)) = (&entry.pack, entry.id()) {
                by_pack.entry(pack).or_default().insert(id);
            }
        }
        for kind in [PackedKind::State, PackedKind::Partial] {
            let is_small = |pack: &&PackFile| pack.kind == kind && pack.bytes < SMALL_PACK_BYTES;
            let small: BTreeSet<&PackFile> = kept
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

/// What lies in an output and no manifest names.
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
        let place = format!("{DATA}/{name}");
        if ours && !named.contains(&place) {
            lost.entry(place).or_default().push(file);
        }
    }
    let beside = out
        .local
        .iter()
        .flat_map(std::fs::read_dir)
        .flatten()
        .flatten();
    for file in beside
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
