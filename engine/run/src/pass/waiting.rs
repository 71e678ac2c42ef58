//! Chunks that go through a chain together.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_model::{Chunk, Result};
use forebay_plan::Carry;
use forebay_storage::Memory;

use super::CHUNKS_PER_CHECK;
use super::helpers::Rows;
use super::order::Task;

/// Opens a task, after what is given beside its rows was put into what goes along with them.
pub(super) type Open<'f, 'r> = &'f mut dyn FnMut(&Task, &mut Carry) -> Result<Rows<'r>>;

/// Takes chunks that follow one another.
pub(super) type Take<'f> = &'f mut dyn FnMut(&[Chunk], &mut Carry) -> Result<()>;

/// Hands over the chunks of some tasks, each time about so many rows at most, or one chunk; false when the pass was
/// stopped.
pub(super) fn each_chunks(
    (tasks, rows_max): (&[Task], usize),
    (carry, stop, memory): (&mut Carry, &AtomicBool, Memory),
    open: Open<'_, '_>,
    take: Take<'_>,
) -> Result<bool> {
    let (mut waiting, mut rows, mut turn) = (Vec::new(), 0, 0);
    let mut take = |chunks: &[Chunk], carry: &mut Carry| {
        take(chunks, carry)?;
        turn += 1;
        if turn % CHUNKS_PER_CHECK == 1 { memory.check() } else { Ok(()) }
    };
    let mut each = || {
        for task in tasks {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            for chunk in open(task, carry)? {
                let chunk = chunk?;
                let own = chunk.batch.num_rows();
                rows += own;
                waiting.push(chunk);
                // Another one like it would be too much.
                if rows + own > rows_max {
                    rows = 0;
                    take(&std::mem::take(&mut waiting), carry)?;
                }
            }
        }
        Ok(true)
    };
    let read = each();
    // What is wrong with them comes before what is wrong with those behind them.
    if !waiting.is_empty() && !matches!(read, Ok(false)) {
        take(&waiting, carry)?;
    }
    read
}
