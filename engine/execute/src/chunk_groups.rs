//! Groups chunks that pass through a chain together.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_model::{Chunk, Result, column_bytes};
use forebay_plan::Carry;
use forebay_storage::MemoryBudget;

use crate::chunk_source::{ChunkIter, SpanRef};

/// Chunks between two checks of the process's memory.
const CHUNKS_PER_CHECK: usize = 8;

/// Opens a span, after its precomputed outputs were attached to the carry.
pub type OpenSpanFn<'f, 'r> = &'f mut dyn FnMut(&SpanRef, &mut Carry) -> Result<ChunkIter<'r>>;

/// Receives consecutive chunks.
pub type ChunkGroupFn<'f> = &'f mut dyn FnMut(&[Chunk], &mut Carry) -> Result<()>;

/// Spans whose chunks pass through a chain in groups of about `rows_max` rows and `bytes_max` bytes, or of one chunk.
pub struct ChunkGroups<'a> {
    pub tasks: &'a [SpanRef],
    pub rows_max: usize,
    /// Rows that carry long texts fill the memory long before there are many of them.
    pub bytes_max: usize,
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
        let mut bytes = 0;
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
                        let part_bytes = chunk_bytes(&part);
                        rows += part_rows;
                        bytes += part_bytes;
                        waiting.push(part);
                        let is_full =
                            rows + part_rows > self.rows_max || bytes + part_bytes > self.bytes_max;
                        // Another chunk of this size would exceed the limit. Parts are computed one after the other.
                        if is_divided || is_full {
                            rows = 0;
                            bytes = 0;
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

/// Bytes of the columns of a chunk.
fn chunk_bytes(chunk: &Chunk) -> usize {
    let columns = chunk.batch.columns().iter();
    columns.map(|column| column_bytes(column)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringArray};

    use super::*;

    /// Rows of each group of chunks of five rows, with texts of `text_bytes`.
    fn group_rows(text_bytes: usize, bytes_max: usize) -> Vec<usize> {
        let tasks = [SpanRef { scan: 0, span: 0 }];
        let stop = AtomicBool::new(false);
        let groups = ChunkGroups {
            tasks: &tasks,
            rows_max: 20,
            bytes_max,
            stop: &stop,
            memory: MemoryBudget::new(1 << 40),
        };
        let mut sizes = Vec::new();
        let whole = groups.for_each(
            &mut Carry::default(),
            &mut |_, _| {
                let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(text_bytes); 5]));
                let batch = RecordBatch::try_from_iter([("s", texts)])?;
                Ok(Box::new((0..8).map(move |_| Ok(Chunk::of(batch.clone())))))
            },
            &mut |chunks, _| {
                sizes.push(chunks.iter().map(|chunk| chunk.batch.num_rows()).sum());
                Ok(())
            },
        );
        assert!(whole.unwrap());
        sizes
    }

    #[test]
    fn groups_are_bounded_by_rows_and_by_bytes() {
        assert_eq!(group_rows(10, 1 << 20), [20, 20]);
        // A chunk has some 5 kB.
        assert_eq!(group_rows(1_000, 11_000), [10, 10, 10, 10]);
        assert_eq!(group_rows(1_000, 100), [5; 8]);
    }
}
