//! The files that the log of a table needs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::types::Int64Type;
use arrow::array::{Array, AsArray, RecordBatch};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::{DataType, StructField, StructType};
use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};

use super::place::{TablePlace, decode, full_path};
use super::snapshot::{TableSnapshot, VersionChoice};

/// How long files stay that were taken out of a table, if the table does not say otherwise: the default of the format.
const RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The paths of the files that a table needs, below it: those of its latest version, and those that were taken out of it
/// within its retention. `None` where there is no table.
pub fn table_references(
    io: &StorageClient,
    table: &StorageLocation,
) -> Result<Option<BTreeSet<String>>> {
    let place = TablePlace::new(io, &full_path(table.clone()))?;
    let Some(found) = TableSnapshot::find(io, &place, VersionChoice::Latest)? else {
        return Ok(None);
    };
    let mut needed = BTreeSet::new();
    found.for_each_file(|file| {
        needed.insert(decode(&file.path)?);
        Ok(())
    })?;
    let retention = found
        .snapshot
        .table_configuration()
        .table_properties()
        .deleted_file_retention_duration;
    let kept_since = SystemTime::now()
        .checked_sub(retention.unwrap_or(RETENTION_DEFAULT))
        .unwrap_or(UNIX_EPOCH);
    let kept_since = kept_since
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as i64;
    let parts = [
        StructField::nullable("path", DataType::STRING),
        StructField::nullable("deletionTimestamp", DataType::LONG),
    ];
    let failed = |error: delta_kernel::KernelError| found.fault(error);
    let remove = StructType::try_new(parts).map_err(failed)?;
    let schema = StructType::try_new([StructField::nullable("remove", remove)]).map_err(failed)?;
    for batch in found
        .snapshot
        .log_segment()
        .read_actions(&found.engine, Arc::new(schema))
        .map_err(failed)?
    {
        let actions = ArrowEngineData::try_from_engine_data(batch.map_err(failed)?.actions)
            .map_err(failed)?;
        let rows: RecordBatch = actions.into();
        let broken = || {
            Fault::new(codes::CORRUPT, "the log of the Delta table cannot be read")
                .file(&found.shown)
        };
        let removes = rows
            .column_by_name("remove")
            .and_then(|column| column.as_struct_opt())
            .ok_or_else(broken)?;
        let paths = removes
            .column_by_name("path")
            .and_then(|paths| paths.as_string_opt::<i32>())
            .ok_or_else(broken)?;
        let times = removes
            .column_by_name("deletionTimestamp")
            .and_then(|times| times.as_primitive_opt::<Int64Type>());
        let times = times.ok_or_else(broken)?;
        for row in (0..removes.len()).filter(|row| removes.is_valid(*row) && paths.is_valid(*row)) {
            if times.is_valid(row) && times.value(row) > kept_since {
                needed.insert(decode(paths.value(row))?);
            }
        }
    }
    Ok(Some(needed))
}
