//! Small files of a table become larger ones: a commit that changes no rows.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_model::{Fault, Result};
use forebay_run::OutputFile;
use forebay_storage::{ScratchDir, StorageClient};

use crate::delta::place::TablePlace;
use crate::delta::snapshot::{LoggedFile, TableSnapshot, VersionChoice};

use super::actions;
use super::added_files::added_files;
use super::config::DeltaSink;
use super::conflicts::commit_name;
use super::live_files::live_files;
use super::rewriting::{RewrittenFiles, are_whole, partition_folder, table_files};
use super::writable::check_writable;

/// How often other writers may take a version before compaction is left to the next run.
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
    let place = TablePlace::new(io, &config.path)?;
    let Some(table) = TableSnapshot::find(io, &place, VersionChoice::Latest)? else {
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
    let added = added_files(io, &place, &rewritten.columns, &table_files(&written))?;
    let replaced: BTreeMap<&String, &LoggedFile> = small
        .values()
        .flatten()
        .filter_map(|path| Some((path, live.get(path)?)))
        .collect();
    for _ in 0..ATTEMPTS_MAX {
        let Some(now) = TableSnapshot::find(io, &place, VersionChoice::Latest)? else {
            return Ok(());
        };
        let live = live_files(&now)?;
        let is_same = |(path, file): (&&String, &&LoggedFile)| {
            live.get(*path)
                .is_some_and(|now| now.deleted == file.deleted)
        };
        if !replaced.iter().all(is_same) {
            return Ok(());
        }
        if !are_whole(io, &place, &written)? {
            return Ok(());
        }
        let time = actions::now();
        let mut all = vec![actions::optimize_info(time)];
        all.extend(
            replaced
                .values()
                .map(|file| actions::remove(file, time, false)),
        );
        all.extend(
            added
                .iter()
                .zip(time..)
                .map(|(file, time)| actions::add(file, time, false)),
        );
        let log = place.log().join(&commit_name(now.version() + 1));
        if io.put_durable_if_absent(&log, Bytes::from(actions::commit_text(&all)))? {
            return Ok(());
        }
    }
    Ok(())
}

/// The partitions that have several small files. Files that the log names by URLs belong to other tables, too.
fn small_files(live: &BTreeMap<String, LoggedFile>, below: u64) -> SmallFiles {
    let mut small = SmallFiles::new();
    let is_own = |path: &str| !path.contains(':') && !path.starts_with('/');
    for (path, file) in live
        .iter()
        .filter(|(path, file)| file.bytes < below && is_own(path))
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
    let (mut folder, mut expected) = (String::new(), Some(0));
    for path in paths {
        for piece in files.pieces(path)? {
            folder = partition_folder(&piece);
            expected = expected.zip(piece.rows).map(|(all, rows)| all + rows);
            for rows in files.rows(piece)? {
                writer.push(&folder, rows?)?;
            }
        }
    }
    writer.flush(&folder, true)?;
    let written = writer.finish()?;
    let rows = written.iter().map(|file| file.rows).sum::<u64>();
    match expected.is_none_or(|expected| expected == rows) {
        true => Ok(written),
        false => Err(Fault::internal(format!("{expected:?} rows became {rows}"))),
    }
}
