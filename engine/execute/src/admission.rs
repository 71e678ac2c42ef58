//! Memory for what an operator makes of a batch.

use std::sync::Arc;

use forebay_model::Result;
use forebay_plan::{ADMITTED_BYTES_MIN, AdmitBytes};
use forebay_storage::MemoryBudget;

/// The check of the memory of a run, for what the steps make of its rows.
pub fn admission(memory: MemoryBudget) -> AdmitBytes {
    Arc::new(move |bytes| {
        if bytes < ADMITTED_BYTES_MIN {
            return Ok(());
        }
        admit(memory, bytes)
    })
}

fn admit(memory: MemoryBudget, bytes: usize) -> Result<()> {
    match memory.shortage(bytes as u64, 0) {
        None => Ok(()),
        Some(shortage) => Err(shortage
            .fault("what the step makes of a chunk")
            .hint("make the texts shorter, lower `--batch-rows`, or raise `--memory`")),
    }
}
