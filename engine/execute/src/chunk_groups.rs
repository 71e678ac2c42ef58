//! Groups chunks that pass through a chain together.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_model::{Chunk, Result};
use forebay_plan::Carry;
use forebay_storage::MemoryBudget;

use crate::chunk_source::{ChunkIter, SpanRef};

/// Chunks between two checks of the process's memory.
const CHUNKS_PER_CHECK: usize = 8;

/// Opens a span, after its precomputed outputs were attached to the carry.
pub type OpenSpanFn<'f, 'r> = &'f mut dyn FnMut(&SpanRef, &mut Carry) -> Result<ChunkIter<'r>>;

/// Receives consecutive chunks.
pub type ChunkGroupFn<'f> = &'f mut dyn FnMut(&[Chunk], &mut Carry) -> Result<()>;

/// Spans whose chunks pass through a chain in groups of about `rows_max` rows, or of one chunk.
pub struct ChunkGroups<'a> {
    pub tasks: &'a [SpanRef],
    pub rows_max: usize,
    pub stop: &'a AtomicBool,
    pub memory: MemoryBudget,
}

impl ChunkGroups<'_> {
    /// Passes the groups to `take`; false if the pass was stopped.
    pub fn for_each(
        &self,
        carry: &mut Carry,
        open: OpenSpanFn<'_, '_>,
        take: ChunkGroupFn<'_>,
    ) -> Result<bool> {
        let mut waiting = Vec::new();
        let mut rows = 0;
        let mut chunk_number = 0;
        let mut take = |chunks: &[Chunk], carry: &mut Carry| {
            take(chunks, carry)?;
            chunk_number += 1;
            if chunk_number % CHUNKS_PER_CHECK == 1 {
                self.memory.check()
            } else {
                Ok(())
            }
        };
        let mut each = || {
            for task in self.tasks {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                for chunk in open(task, carry)? {
                    let parts = chunk?.divided();
                    let is_divided = parts.len() > 1;
                    for part in parts {
                        let part_rows = part.batch.num_rows();
                        rows += part_rows;
                        waiting.push(part);
                        // Another chunk of this size would exceed the limit. Parts are computed one after the other.
                        if is_divided || rows + part_rows > self.rows_max {
                            rows = 0;
                            take(&std::mem::take(&mut waiting), carry)?;
                        }
                    }
                }
            }
            Ok(true)
        };
        let read = each();
        // A fault in the pending chunks is reported before a fault of the read behind them.
        if !waiting.is_empty() && !matches!(read, Ok(false)) {
            take(&waiting, carry)?;
        }
        read
    }
}
