//! Removal of directories that no manifest names any more.

use std::collections::BTreeSet;

use forebay_model::{Fault, RelativePath, Result};
use forebay_storage::failpoint::step;
use forebay_storage::{StorageClient, StorageLocation};

use super::manifest::{FORMAT, MANIFEST, Manifest};
use super::shard::DATA;
use crate::file_lock::FileLock;

/// Keys per request when objects are listed.
const LISTED_AT_ONCE: usize = 1000;

impl Manifest {
    /// Names more directories of a bucket as being removed in the visible manifest, so that no run takes them back. On
    /// local disks the lock does that. Returns false if a run published at the same time, or if the visible manifest
    /// needs one of them.
    pub fn announce_removal(
        io: &StorageClient,
        out: &StorageLocation,
        directories: BTreeSet<RelativePath>,
    ) -> Result<bool> {
        if out.local.is_some() || directories.is_empty() {
            return Ok(true);
        }
        let (Some(visible), version) = Manifest::read_versioned(io, out)? else {
            return Ok(true);
        };
        let needed = visible.directories()?;
        for directory in needed.iter().chain(&visible.previous) {
            if directories.contains(directory) {
                return Ok(false);
            }
        }
        let mut removed = directories;
        removed.extend(visible.removed.iter().cloned());
        let publication = visible.publication + 1;
        let named = Manifest {
            format: FORMAT,
            removed: removed.into_iter().collect(),
            publication,
            ..visible
        };
        io.put_if(&out.join(MANIFEST), named.to_bytes()?, version.as_ref())
    }

    /// The directories being removed that still hold files.
    pub(super) fn unemptied_directories(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
    ) -> Result<Vec<RelativePath>> {
        let mut with_files = Vec::new();
        // One listing of all data is cheaper than one per directory where many are removed at once.
        if self.removed.len() * LISTED_AT_ONCE <= self.files().count() + LISTED_AT_ONCE {
            for directory in &self.removed {
                if !io.list(&out.join(directory))?.is_empty() {
                    with_files.push(directory.clone());
                }
            }
            return Ok(with_files);
        }
        let data_folder = self.data.split('/').next().unwrap_or(DATA);
        let mut paths = BTreeSet::new();
        for object in &io.list(&out.join(data_folder))? {
            paths.insert(object.location.to_string());
        }
        for directory in &self.removed {
            let prefix = format!("{}/", out.join(directory).path);
            let first_path = paths.range(prefix.clone()..).next();
            if first_path.is_some_and(|path| path.starts_with(&prefix)) {
                with_files.push(directory.clone());
            }
        }
        Ok(with_files)
    }

    /// True if a directory of this manifest is among the removed ones.
    pub fn is_being_removed(&self, removed: &BTreeSet<RelativePath>) -> Result<bool> {
        if removed.is_empty() {
            return Ok(false);
        }
        for directory in &self.directories()? {
            if removed.contains(directory) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directories of an output that are being removed. Local outputs have none while they are not locked.
    pub fn removed_directories(
        io: &StorageClient,
        out: &StorageLocation,
    ) -> Result<BTreeSet<RelativePath>> {
        if out.local.is_some() {
            return Ok(BTreeSet::new());
        }
        match Manifest::read(io, out)? {
            Some(visible) => Ok(visible.removed.into_iter().collect()),
            None => Ok(BTreeSet::new()),
        }
    }
}

/// Keeps other processes on this machine from publishing until the lock is dropped. Buckets have no locks: there, the
/// manifest is replaced only if it is still the one that was read.
pub fn lock_output(io: &StorageClient, out: &StorageLocation) -> Result<Option<FileLock>> {
    let Some(local) = &out.local else {
        return Ok(None);
    };
    let subject = format!("the output `{}`", out.shown);
    let lock = FileLock::alone(io, &local.join("_lock"), &subject);
    lock.map(Some).map_err(|fault| fault.file(&out.shown))
}

/// Removes a directory of files.
pub fn remove_directory(io: &StorageClient, directory: &StorageLocation) -> Result<()> {
    step("remove", &directory.shown);
    let Some(local) = &directory.local else {
        for object in &io.list(directory)? {
            io.delete(&directory.at(&object.location))?;
        }
        return Ok(());
    };
    match std::fs::remove_dir_all(local) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::disk("old data cannot be removed", error))
        }
        _ => Ok(()),
    }
}
