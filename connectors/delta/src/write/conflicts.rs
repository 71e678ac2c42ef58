//! Changes of a table by commits of earlier runs and of other writers.

use std::collections::BTreeMap;

use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use serde::Deserialize;

use crate::place::TablePlace;
use crate::snapshot::TableSnapshot;

use super::live_files::{FilePosition, ReplacedInterval};

/// An action of a commit, as far as it matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoggedAction {
    add: Option<ChangedFile>,
    remove: Option<ChangedFile>,
}

/// A file that a commit adds or removes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangedFile {
    #[serde(default = "yes")]
    data_change: bool,
    #[serde(default)]
    partition_values: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    stats: Option<String>,
}

fn yes() -> bool {
    true
}

/// The name of a commit.
pub(super) fn commit_name(version: u64) -> String {
    format!("{version:020}.json")
}

/// The first commit from a version on that changed rows of an interval, or any rows without one.
/// Commits that only move rows between files change none. `Ok(None)`: there is none. A commit up to
/// `until` that the log no longer has counts as a change.
pub(super) fn first_change(
    io: &StorageClient,
    table_place: &TablePlace,
    from: u64,
    until: Option<u64>,
    interval: Option<&ReplacedInterval>,
) -> Result<Option<u64>> {
    for version in from..=until.unwrap_or(u64::MAX) {
        let log = table_place.log().join(&commit_name(version));
        let Some(bytes) = io.get(&log)? else {
            return Ok(until.map(|_| version));
        };
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let action: LoggedAction = serde_json::from_slice(line).map_err(|error| {
                Fault::new(codes::CORRUPT, "a commit of the Delta table cannot be read")
                    .file(&log.shown)
                    .cause(error)
            })?;
            let files = [action.add, action.remove];
            if files
                .into_iter()
                .flatten()
                .any(|file| file.data_change && touches(&file, interval))
            {
                return Ok(Some(version));
            }
        }
    }
    Ok(None)
}

/// True if a table shows some rows already: they were committed, and no commit since has changed
/// any of them. Rows that were appended to a table stay in it.
pub(super) fn is_committed(
    io: &StorageClient,
    table_place: &TablePlace,
    table: &TableSnapshot,
    content: &str,
    appends: bool,
    interval: Option<&ReplacedInterval>,
) -> Result<bool> {
    let committed = table
        .snapshot
        .get_app_id_version(&app_id(content), &table.engine);
    let Some(committed) = committed.map_err(|error| table.fault(error))? else {
        return Ok(false);
    };
    if appends {
        return Ok(true);
    }
    let from = committed.unsigned_abs().saturating_add(1);
    Ok(first_change(io, table_place, from, Some(table.version()), interval)?.is_none())
}

/// Id of the rows of a run in the log, by which they are committed once.
pub(super) fn app_id(content: &str) -> String {
    format!("forebay-{content}")
}

fn touches(file: &ChangedFile, interval: Option<&ReplacedInterval>) -> bool {
    let Some(interval) = interval else {
        return true;
    };
    let partition = file.partition_values.clone().unwrap_or_default();
    interval.position(&partition, file.stats.as_deref()) != FilePosition::Outside
}
