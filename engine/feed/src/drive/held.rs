//! Rows that were read and wait for their turn.

use std::sync::{Arc, Mutex, PoisonError};

use crate::slot::Columns;

/// Buffers that are used again: fresh memory costs a page fault every 4 KiB.
#[derive(Debug, Default)]
pub(super) struct Pool {
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// A buffer of so many bytes, which hold anything.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Records {
        let mut buffer = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.reserve_exact(bytes.saturating_sub(buffer.len()));
        buffer.resize(bytes, 0);
        Records { buffer, pool: self.clone() }
    }
}

/// Records one after another; the buffer goes back to the pool.
#[derive(Debug)]
pub(super) struct Records {
    pub buffer: Vec<u8>,
    pool: Arc<Pool>,
}

impl Drop for Records {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.pool.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// The rows of a part of a chunk.
#[derive(Debug)]
pub(super) enum Held {
    /// Packed.
    Records(Records),
    /// As they were read, with the part's row at which each begins.
    Columns(Vec<(u64, Columns)>),
}

impl Held {
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        match self {
            Held::Records(records) => records.buffer.is_empty(),
            Held::Columns(columns) => columns.iter().all(|(_, columns)| columns.rows == 0),
        }
    }
}
