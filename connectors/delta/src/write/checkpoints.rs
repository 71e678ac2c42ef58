//! Checkpoints of a log: readers begin with the latest one, not with the first commit.

use std::num::NonZero;

use forebay_model::{Result, codes};
use forebay_storage::{ScratchDir, StorageClient};

use crate::engine::TableEngine;
use crate::place::TablePlace;
use crate::snapshot::{TableSnapshot, VersionChoice};

/// Commits between two checkpoints, if `delta.checkpointInterval` of the table does not say otherwise: the default of
/// the format.
const INTERVAL_DEFAULT: u64 = 10;

/// Writes a checkpoint of the latest version, if the table's interval of commits has passed since
/// the last one. A run that ended before it wrote one leaves it to the next run.
pub(super) fn write_due_checkpoint(
    io: &StorageClient,
    path: &str,
    scratch: &ScratchDir,
) -> Result<()> {
    let table_place = TablePlace::new(io, path)?;
    let Some(table) = TableSnapshot::find(io, &table_place, VersionChoice::Latest)? else {
        return Ok(());
    };
    let interval = table
        .snapshot
        .table_properties()
        .checkpoint_interval
        .map_or(INTERVAL_DEFAULT, NonZero::get);
    let latest = table.snapshot.log_segment().checkpoint_version.unwrap_or(0);
    if table.version().saturating_sub(latest) < interval {
        return Ok(());
    }
    let engine = TableEngine::for_checkpoints(io, &table_place, scratch);
    match table
        .snapshot
        .checkpoint(&engine, None)
        .map_err(|error| table.fault(error))
    {
        // A feature whose checkpoints the kernel does not write: those of other programs serve.
        Err(fault) if fault.code() == codes::UNSUPPORTED => Ok(()),
        written => written.map(drop),
    }
}
