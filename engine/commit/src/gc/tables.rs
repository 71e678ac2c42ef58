//! Files of tables that no reader can need: those of runs that ended early, and those that were
//! removed from a table longer ago than its retention.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Result};
use forebay_storage::{StorageClient, StorageLocation};

use crate::gc::StateEntry;
use crate::gc::collect::OUTPUT;
use crate::gc::list::{ListedObject, is_staged, list_files};
use crate::output::{ATTEMPT, Manifest, TABLE_DATA};

/// The files that the log of a table needs, relative to it; `None` where there is no table.
pub type TableReferences = fn(&StorageClient, &StorageLocation) -> Result<Option<BTreeSet<String>>>;

/// Directories of runs below a table that neither its log nor a manifest names, and temporary files
/// of unfinished commits to its log.
pub(crate) fn unreferenced_table_files(
    io: &StorageClient,
    table: &StorageLocation,
    needed: &BTreeSet<String>,
    manifest: Option<&Manifest>,
) -> Result<Vec<StateEntry>> {
    let mut retained: BTreeSet<String> = BTreeSet::new();
    if let Some(manifest) = manifest {
        retained.extend(manifest.previous.iter().cloned().map(String::from));
        let directories = manifest
            .shards
            .iter()
            .filter(|shard| !shard.files.is_empty())
            .map(|shard| shard.directory());
        retained.extend(
            directories
                .map(|directory| directory.map(String::from))
                .collect::<Result<Vec<_>>>()?,
        );
    }
    let directory_of = |path: &str| {
        path.match_indices('/')
            .nth(1)
            .map(|(end, _)| path[..end].to_owned())
    };
    retained.extend(needed.iter().filter_map(|path| directory_of(path)));
    let mut lost: BTreeMap<String, Vec<ListedObject>> = BTreeMap::new();
    for file in list_files(io, &table.join(TABLE_DATA))? {
        let name = file.path.split('/').next().unwrap_or_default();
        let id = name.split('.').next().unwrap_or_default();
        let directory = format!("{TABLE_DATA}/{name}");
        if (ContentId::parse(id).is_some() || name.starts_with(ATTEMPT))
            && !retained.contains(&directory)
        {
            lost.entry(directory).or_default().push(file);
        }
    }
    const LOG: &str = "_delta_log";
    if table.local.is_some() {
        for file in list_files(io, &table.join(LOG))?
            .into_iter()
            .filter(|file| is_staged(&file.path))
        {
            lost.entry(format!("{LOG}/{}", file.path))
                .or_default()
                .push(file);
        }
    }
    let entry = |(name, files): (String, Vec<ListedObject>)| {
        StateEntry::new(OUTPUT, &name, table.join(&name), files)
    };
    Ok(lost.into_iter().map(entry).collect())
}
