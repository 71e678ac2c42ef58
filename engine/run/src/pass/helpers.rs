//! Sources of chunks for ranges: the dataset itself, or prefetched chunks.

use forebay_model::{Chunk, Result};
use forebay_storage::Chunks;
use forebay_threads::{Ahead, Reading};

use super::order::{Columns, Task};

/// Chunks of a span in row order.
pub(crate) type Rows<'r> = Box<dyn Iterator<Item = Result<Chunk>> + 'r>;

/// A source of chunks for a range.
pub(crate) trait Reads {
    /// The chunks of a span.
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>>;
}

/// Returns the chunk source of each range.
pub(super) type ReadsOf<'f, 'r> = &'f (dyn Fn(usize) -> Box<dyn Reads + 'r> + Sync);

/// Chunks of spans, prefetched by idle threads.
pub(super) enum Readings {}

impl Reading for Readings {
    type Task = (Task, Columns);
    type Chunk = Chunk;
    type Chunks = Chunks;

    fn bytes(chunk: &Chunk) -> usize {
        chunk.batch.get_array_memory_size()
    }
}

impl<T> Reads for Ahead<'_, '_, T, Readings> {
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>> {
        Ahead::chunks(self, (task, columns))
    }
}
