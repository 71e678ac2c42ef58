//! Files of tables that no reader can need: those of runs that ended early, and those that were
//! removed from a table longer ago than its retention.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Result};
use forebay_storage::{StorageClient, StorageLocation};

use crate::gc::list::{ListedObject, is_staged, list_files};
use crate::gc::{OUTPUT, StateEntry};
use crate::output::{ATTEMPT, Manifest, TABLE_DATA};

/// The files that the log of a table needs, relative to it; `None` where there is no table.
pub type TableReferences = fn(&StorageClient, &StorageLocation) -> Result<Option<BTreeSet<String>>>;

/// Directory of the log of a table.
const LOG: &str = "_delta_log";

/// Directories of runs below a table that neither its log nor a manifest names, and temporary files
/// of unfinished commits to its log.
pub(crate) fn unreferenced_table_files(
    io: &StorageClient,
    table: &StorageLocation,
    needed: &BTreeSet<String>,
    manifest: Option<&Manifest>,
) -> Result<Vec<StateEntry>> {
    let retained = retained_directories(needed, manifest)?;
    let mut lost: BTreeMap<String, Vec<ListedObject>> = BTreeMap::new();
    for file in list_files(io, &table.join(TABLE_DATA))? {
        let name = file.path.split('/').next().unwrap_or_default();
        let directory = format!("{TABLE_DATA}/{name}");
        if is_run_directory(name) && !retained.contains(&directory) {
            lost.entry(directory).or_default().push(file);
        }
    }
    // Object stores have no temporary files: an upload that ends early leaves no object.
    if table.local.is_some() {
        for file in list_files(io, &table.join(LOG))? {
            if is_staged(&file.path) {
                let name = format!("{LOG}/{}", file.path);
                lost.entry(name).or_default().push(file);
            }
        }
    }
    let mut entries = Vec::with_capacity(lost.len());
    for (name, files) in lost {
        entries.push(StateEntry::new(OUTPUT, &name, table.join(&name), files));
    }
    Ok(entries)
}

/// Directories of runs that the log or the manifest of a table names, relative to the table.
fn retained_directories(
    needed: &BTreeSet<String>,
    manifest: Option<&Manifest>,
) -> Result<BTreeSet<String>> {
    let mut retained = BTreeSet::new();
    if let Some(manifest) = manifest {
        for directory in &manifest.previous {
            retained.insert(String::from(directory.clone()));
        }
        for shard in &manifest.shards {
            if !shard.files.is_empty() {
                retained.insert(String::from(shard.directory()?));
            }
        }
    }
    for path in needed {
        retained.extend(directory_in_table(path).map(str::to_owned));
    }
    Ok(retained)
}

/// The first two folders of a path; `None` if it has fewer.
fn directory_in_table(path: &str) -> Option<&str> {
    let (end, _) = path.match_indices('/').nth(1)?;
    Some(&path[..end])
}

/// True for the directory of a run: its name begins with an id or is that of an attempt.
fn is_run_directory(name: &str) -> bool {
    let id = name.split('.').next().unwrap_or_default();
    ContentId::parse(id).is_some() || name.starts_with(ATTEMPT)
}
