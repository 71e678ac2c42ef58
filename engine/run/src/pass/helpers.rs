//! Where ranges get their rows: from the source, or from threads that have read some ahead.

use forebay_model::{Chunk, Result};
use forebay_threads::{Ahead, Reading};

use super::order::{Columns, Task};
use crate::Chunks;

/// Chunks of a task in row order.
pub(crate) type Rows<'r> = Box<dyn Iterator<Item = Result<Chunk>> + 'r>;

/// Where a range gets its rows.
pub(crate) trait Reads {
    /// The chunks of a task.
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>>;
}

/// Gives each range where it gets its rows.
pub(super) type ReadsOf<'f, 'r> = &'f (dyn Fn(usize) -> Box<dyn Reads + 'r> + Sync);

/// Chunks of tasks, read by threads that have no range.
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
