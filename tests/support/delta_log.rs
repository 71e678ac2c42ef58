//! The log of a Delta table, read action by action as the format describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::{SortColumn, cast, lexsort_to_indices, take_record_batch};
use arrow::datatypes::DataType;
use serde_json::Value;

use crate::support::read_files;

/// The actions of a table's commits, in order.
pub fn commits(table: &Path) -> Vec<Vec<Value>> {
    let log = table.join("_delta_log");
    let names = std::fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // Checkpoints repeat what commits say; a killed writer leaves names with a number.
    let is_commit = |name: &String| name.ends_with(".json") && !name.contains('#');
    let mut names: Vec<String> = names.filter(is_commit).collect();
    names.sort();
    let read = |name: &String| {
        let text = std::fs::read_to_string(log.join(name)).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let numbers: Vec<String> = (0..names.len())
        .map(|version| format!("{version:020}.json"))
        .collect();
    assert_eq!(names, numbers, "versions follow each other");
    names.iter().map(read).collect()
}

/// The files of the latest version, by their paths as the log writes them.
pub fn live(table: &Path) -> BTreeMap<String, Value> {
    let mut files = BTreeMap::new();
    for action in commits(table).into_iter().flatten() {
        let path = |of: &Value| of["path"].as_str().unwrap().to_owned();
        if let Some(removed) = action.get("remove") {
            assert!(
                files.remove(&path(removed)).is_some(),
                "{removed} was not there"
            );
        }
        if let Some(added) = action.get("add") {
            assert!(
                files.insert(path(added), added.clone()).is_none(),
                "{added} was there"
            );
        }
    }
    files
}

pub fn actions(commit: &[Value], kind: &str) -> Vec<Value> {
    commit
        .iter()
        .filter_map(|action| action.get(kind).cloned())
        .collect()
}

pub fn statistics(file: &Value) -> Value {
    serde_json::from_str(file["stats"].as_str().unwrap()).unwrap()
}

/// Where the file of an action lies.
pub fn file_of(table: &Path, action: &Value) -> PathBuf {
    let path = action["path"].as_str().unwrap();
    table.join(
        percent_encoding::percent_decode_str(path)
            .decode_utf8()
            .unwrap()
            .as_ref(),
    )
}

/// The rows of the latest version, in an order of their own; `None` where there are none. Values of partitions are left
/// out, and no row may be deleted.
pub fn live_rows(table: &Path) -> Option<RecordBatch> {
    if !table.join("_delta_log").exists() {
        return None;
    }
    let files: Vec<PathBuf> = live(table)
        .values()
        .map(|file| file_of(table, file))
        .collect();
    (!files.is_empty()).then(|| sorted(&read_files(&files)))
}

/// Commits that say that they come from runs, by the names of the applications' transactions.
pub fn transactions(table: &Path) -> Vec<String> {
    let all = commits(table)
        .into_iter()
        .flat_map(|commit| actions(&commit, "txn"));
    all.map(|txn| txn["appId"].as_str().unwrap().to_owned())
        .collect()
}

/// Rows in an order of their own.
pub fn sorted(rows: &RecordBatch) -> RecordBatch {
    let plain = |column: &arrow::array::ArrayRef| match column.data_type() {
        DataType::Dictionary(..) => cast(column, &DataType::Utf8).unwrap(),
        _ => column.clone(),
    };
    let mut names: Vec<String> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    names.sort();
    let columns: Vec<_> = names
        .iter()
        .map(|name| (name, plain(&rows[name.as_str()])))
        .collect();
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, values)| (name, values, true)),
    );
    let rows = rows.unwrap();
    let keys: Vec<_> = rows
        .columns()
        .iter()
        .map(|values| SortColumn {
            values: values.clone(),
            options: None,
        })
        .collect();
    take_record_batch(&rows, &lexsort_to_indices(&keys, None).unwrap()).unwrap()
}
