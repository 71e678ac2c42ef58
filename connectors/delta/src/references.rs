//! The files that the log of a table needs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::types::Int64Type;
use arrow::array::{Array, AsArray, RecordBatch};
use delta_kernel::KernelResult;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::{DataType, StructField, StructType};
use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};

use super::place::{TablePlace, decode, full_path};
use super::snapshot::{TableSnapshot, VersionChoice};

/// Time for which files stay that were taken out of a table, if the table does not configure it:
/// the default of the format.
const RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Paths of the files that a table needs, relative to it: those of its latest version, and those
/// that were removed from it within its retention. `None` where there is no table.
pub fn table_references(
    io: &StorageClient,
    table: &StorageLocation,
) -> Result<Option<BTreeSet<String>>> {
    let table_place = TablePlace::new(io, &full_path(table.clone()))?;
    let Some(table_snapshot) = TableSnapshot::find(io, &table_place, VersionChoice::Latest)? else {
        return Ok(None);
    };
    let mut needed = BTreeSet::new();
    table_snapshot.for_each_file(|file| {
        needed.insert(decode(&file.path)?);
        Ok(())
    })?;
    let retained_since = retained_since(&table_snapshot);
    let schema = remove_actions_schema().map_err(|error| table_snapshot.fault(error))?;
    let batches = table_snapshot
        .snapshot
        .log_segment()
        .read_actions(&table_snapshot.engine, Arc::new(schema))
        .map_err(|error| table_snapshot.fault(error))?;
    for batch in batches {
        let actions = batch
            .and_then(|batch| ArrowEngineData::try_from_engine_data(batch.actions))
            .map_err(|error| table_snapshot.fault(error))?;
        let rows: RecordBatch = actions.into();
        add_recently_removed(&rows, retained_since, &table_snapshot.shown, &mut needed)?;
    }
    Ok(Some(needed))
}

/// Milliseconds since 1970 from which on the files that were removed from a table are retained.
fn retained_since(table_snapshot: &TableSnapshot) -> i64 {
    let properties = table_snapshot
        .snapshot
        .table_configuration()
        .table_properties();
    let retention = properties
        .deleted_file_retention_duration
        .unwrap_or(RETENTION_DEFAULT);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.saturating_sub(retention).as_millis() as i64
}

/// The fields of `remove` actions that say which file was removed, and when.
fn remove_actions_schema() -> KernelResult<StructType> {
    let remove = StructType::try_new([
        StructField::nullable("path", DataType::STRING),
        StructField::nullable("deletionTimestamp", DataType::LONG),
    ])?;
    StructType::try_new([StructField::nullable("remove", remove)])
}

/// Adds the paths of those `remove` actions that are younger than a time.
fn add_recently_removed(
    actions: &RecordBatch,
    retained_since: i64,
    table_name: &str,
    needed: &mut BTreeSet<String>,
) -> Result<()> {
    let broken =
        || Fault::new(codes::CORRUPT, "the log of the Delta table cannot be read").file(table_name);
    let removes = actions
        .column_by_name("remove")
        .and_then(|column| column.as_struct_opt())
        .ok_or_else(broken)?;
    let paths = removes
        .column_by_name("path")
        .and_then(|paths| paths.as_string_opt::<i32>())
        .ok_or_else(broken)?;
    let times = removes
        .column_by_name("deletionTimestamp")
        .and_then(|times| times.as_primitive_opt::<Int64Type>())
        .ok_or_else(broken)?;
    for row in 0..removes.len() {
        // Other actions have a null here.
        if removes.is_null(row) || paths.is_null(row) || times.is_null(row) {
            continue;
        }
        if times.value(row) > retained_since {
            needed.insert(decode(paths.value(row))?);
        }
    }
    Ok(())
}
