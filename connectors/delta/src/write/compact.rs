//! Small files of a table become larger ones: a commit that changes no rows.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_commit::OutputFile;
use forebay_model::{Fault, Result};
use forebay_storage::{ScratchDir, StorageClient};
use serde_json::Value;

use crate::place::{TablePlace, is_below_table};
use crate::snapshot::{LoggedFile, TableSnapshot, VersionChoice};

use super::actions::{self, AddedFile};
use super::added_files::added_files;
use super::config::DeltaSink;
use super::conflicts::commit_name;
use super::live_files::live_files;
use super::rewriting::{RewrittenFiles, are_whole, partition_folder, table_files};
use super::writable::check_writable;

/// Number of versions that other writers may take before compaction is left to the next run.
const ATTEMPTS_MAX: usize = 10;

/// Partition values, and the paths of the small files that have them.
type SmallFiles = BTreeMap<Vec<(String, Option<String>)>, BTreeSet<String>>;

/// Rewrites the files of the latest version that are smaller than a limit, those of each partition together. Another
/// program may change the table at the same time: then its files stay as they are.
pub(super) fn compact(
    io: &StorageClient,
    config: &DeltaSink,
    below: u64,
    scratch: &ScratchDir,
) -> Result<()> {
    let table_place = TablePlace::new(io, &config.path)?;
    let Some(table) = TableSnapshot::find(io, &table_place, VersionChoice::Latest)? else {
        return Ok(());
    };
    let live = live_files(&table)?;
    let small = small_files(&live, below);
    if small.is_empty() {
        return Ok(());
    }
    let files = small.values().flatten().cloned().collect();
    let rewritten = RewrittenFiles::open(io, config, table.version(), files, scratch)?;
    check_writable(&table, &rewritten.columns, config)?;
    let mut written = Vec::new();
    for paths in small.values() {
        written.extend(put_together(&rewritten, paths)?);
    }
    let added = added_files(io, &table_place, &rewritten.columns, &table_files(&written))?;
    let mut replaced: BTreeMap<&String, &LoggedFile> = BTreeMap::new();
    for path in small.values().flatten() {
        if let Some(file) = live.get(path) {
            replaced.insert(path, file);
        }
    }
    for _ in 0..ATTEMPTS_MAX {
        let Some(latest) = TableSnapshot::find(io, &table_place, VersionChoice::Latest)? else {
            return Ok(());
        };
        if !are_unchanged(&replaced, &live_files(&latest)?) {
            return Ok(());
        }
        if !are_whole(io, &table_place, &written)? {
            return Ok(());
        }
        let actions = replacing_actions(&replaced, &added);
        let log = table_place.log().join(&commit_name(latest.version() + 1));
        // Fails if another program wrote this version meanwhile. Its changes are then checked first.
        if io.put_durable_if_absent(&log, Bytes::from(actions::commit_text(&actions)))? {
            return Ok(());
        }
    }
    Ok(())
}

/// True if a version has all of these files, and no row of them was deleted since they were read.
fn are_unchanged(
    files: &BTreeMap<&String, &LoggedFile>,
    live: &BTreeMap<String, LoggedFile>,
) -> bool {
    files.iter().all(|(path, file)| {
        live.get(*path)
            .is_some_and(|live_file| live_file.deleted == file.deleted)
    })
}

/// Actions that put files in the place of others without a change of rows.
fn replacing_actions(replaced: &BTreeMap<&String, &LoggedFile>, added: &[AddedFile]) -> Vec<Value> {
    let time = actions::now();
    let mut all_actions = vec![actions::optimize_info(time)];
    for file in replaced.values() {
        all_actions.push(actions::remove(file, time, false));
    }
    // Modification times rise in row order.
    for (file, modified) in added.iter().zip(time..) {
        all_actions.push(actions::add(file, modified, false));
    }
    all_actions
}

/// The partitions that have several small files. Files outside of the table belong to another one, too.
fn small_files(live: &BTreeMap<String, LoggedFile>, below: u64) -> SmallFiles {
    let mut small = SmallFiles::new();
    for (path, file) in live
        .iter()
        .filter(|(_, file)| file.bytes < below && is_below_table(&file.path))
    {
        let partition = file
            .partition
            .iter()
            .map(|(column, value)| (column.clone(), value.clone()));
        small
            .entry(partition.collect())
            .or_default()
            .insert(path.clone());
    }
    small.retain(|_, paths| paths.len() > 1);
    small
}

/// Writes the rows of some files of one partition to new ones.
fn put_together(files: &RewrittenFiles<'_>, paths: &BTreeSet<String>) -> Result<Vec<OutputFile>> {
    let mut writer = files.writer(paths, "compacted", 1)?;
    let mut folder = String::new();
    let mut expected = Some(0);
    for path in paths {
        for piece in files.pieces(path)? {
            folder = partition_folder(&piece);
            expected = expected.zip(piece.rows).map(|(sum, rows)| sum + rows);
            for rows in files.rows(piece)? {
                writer.push(&folder, rows?)?;
            }
        }
    }
    writer.flush(&folder, true)?;
    let written = writer.finish()?;
    let rows = written.iter().map(|file| file.rows).sum::<u64>();
    if expected.is_none_or(|expected| expected == rows) {
        Ok(written)
    } else {
        Err(Fault::internal(format!("{expected:?} rows became {rows}")))
    }
}
