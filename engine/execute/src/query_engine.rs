//! The settings and limits under which the query engine runs in a process, coordinator or worker, and the faults for its
//! errors.

use std::path::Path;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::TrackConsumersPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use forebay_model::{Fault, Result, WireFault, codes, find_io_error};
use forebay_storage::MemoryBudget;

use crate::query_memory::{QueryMemoryPool, memory_hint};

/// Rows per batch inside the query engine: fixed, so that results do not depend on options. Only joins and sorts of long
/// values run with fewer.
pub(crate) const ENGINE_BATCH_ROWS: usize = 8192;

/// Partitions share the engine's memory. A sort reserves one part in this many of its partition's share for merging.
const RESERVED_SHARE: usize = 32;

/// Settings for queries that are planned here.
pub fn query_config(memory: MemoryBudget, threads: usize) -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(threads.max(1));
    let options = config.options_mut();
    // Its hash join cannot spill. Queries of one process choose their joins themselves.
    options.optimizer.prefer_hash_join = false;
    options.sql_parser.enable_ident_normalization = false;
    stage_config(config, memory, threads)
}

/// Settings for a plan of which this process executes `partitions` partitions at a time, planned
/// here or on another machine.
pub fn stage_config(
    config: SessionConfig,
    memory: MemoryBudget,
    partitions: usize,
) -> SessionConfig {
    let mut config = config.with_batch_size(ENGINE_BATCH_ROWS);
    let options = config.options_mut();
    // Each partition's sort reserves memory for merging its spilled runs; the reservation must leave room to sort.
    let reserved = memory.engine_bytes() / (RESERVED_SHARE * partitions.max(1));
    options.execution.sort_spill_reservation_bytes =
        options.execution.sort_spill_reservation_bytes.min(reserved);
    config
}

/// The memory and the disk of queries.
pub fn query_runtime(memory: MemoryBudget, scratch: &Path) -> Result<Arc<RuntimeEnv>> {
    runtime_with(QueryMemoryPool::new(memory), scratch)
}

/// The memory and the disk of queries that are divided among processes.
pub fn stage_runtime(memory: MemoryBudget, scratch: &Path) -> Result<Arc<RuntimeEnv>> {
    runtime_with(QueryMemoryPool::of_stages(memory), scratch)
}

fn runtime_with(pool: QueryMemoryPool, scratch: &Path) -> Result<Arc<RuntimeEnv>> {
    let top = std::num::NonZeroUsize::MIN;
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![scratch.to_path_buf()]));
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, top)))
        .with_disk_manager_builder(disk)
        .build_arc()
        .map_err(|error| engine_fault(error, "query engine"))
}

/// A fault that came through the engine. Operators of a query do not know its step when they find no memory.
fn fault_of_step(fault: Fault, label: &str) -> Fault {
    if fault.code() == codes::MEMORY {
        fault.step(label)
    } else {
        fault
    }
}

/// The fault for an error of the engine; faults of this workspace are unwrapped.
pub fn engine_fault(error: DataFusionError, label: &str) -> Fault {
    fn ours(error: DataFusionError) -> Result<Fault, DataFusionError> {
        match error {
            DataFusionError::External(inner) => inner
                .downcast::<Fault>()
                .map(|fault| *fault)
                .map_err(DataFusionError::External),
            DataFusionError::Context(text, inner) => {
                ours(*inner).map_err(|inner| DataFusionError::Context(text, Box::new(inner)))
            }
            other => Err(other),
        }
    }
    let error = match ours(error) {
        Ok(fault) => return fault_of_step(fault, label),
        Err(error) => error,
    };
    // Several partitions may share the error of the one that failed; none owns it.
    let mut chain = std::iter::successors(
        Some(&error as &(dyn std::error::Error + 'static)),
        |error| error.source(),
    );
    if let Some(fault) = chain.find_map(|error| error.downcast_ref::<Fault>()) {
        return fault_of_step(WireFault::from(fault).into(), label);
    }
    if let Some(disk) = find_io_error(&error) {
        let disk = std::io::Error::new(disk.kind(), disk.to_string());
        return Fault::disk(format!("`{label}` cannot spill"), disk).step(label);
    }
    let exhausted_hint = match error.find_root() {
        DataFusionError::ResourcesExhausted(message) => Some(memory_hint(message)),
        _ => None,
    };
    let (code, message, hint) = match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => (
            codes::MEMORY,
            "does not fit into the memory limit even with spilling",
            "raise --memory",
        ),
        DataFusionError::ArrowError(error, _)
            if matches!(**error, ArrowError::ArithmeticOverflow(_)) =>
        {
            (
                codes::OVERFLOW,
                "cannot be computed",
                "compute with a wider type, such as `CAST(... AS DOUBLE)`",
            )
        }
        DataFusionError::ArrowError(error, _)
            if matches!(**error, ArrowError::OffsetOverflowError(_)) =>
        {
            (
                codes::MEMORY,
                "holds more than 2 GiB of one column at once",
                "select fewer or shorter texts",
            )
        }
        DataFusionError::ArrowError(..) => {
            (codes::BAD_ROW, "cannot be computed", "look at the cause")
        }
        // A function met a value for which it has no result.
        DataFusionError::Execution(_) => (
            codes::BAD_ROW,
            "cannot be computed",
            "filter such rows, or use `try_cast`, which gives null",
        ),
        _ => (
            codes::EXPRESSION,
            "cannot be run by the query engine",
            "look at the cause",
        ),
    };
    Fault::new(code, format!("`{label}` {message}"))
        .step(label)
        .cause(error)
        .hint(exhausted_hint.unwrap_or_else(|| hint.to_owned()))
}
