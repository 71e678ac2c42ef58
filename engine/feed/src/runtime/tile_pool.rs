//! Rows that were read and wait for their turn.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::slot::{PackedColumns, SeriesSteps};

/// Buffers that are used again: fresh memory costs a page fault every 4 KiB.
#[derive(Debug, Default)]
pub(super) struct TilePool {
    buffers: Mutex<Vec<Vec<u64>>>,
}

impl TilePool {
    /// A buffer of so many bytes (whole words), which hold anything.
    pub fn take(self: &Arc<Self>, bytes: usize) -> TileBuffer {
        let words = bytes / size_of::<u64>();
        let used = || {
            self.buffers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()
        };
        let buffer = match (words > 0).then(used).flatten() {
            Some(mut buffer) => {
                buffer.reserve_exact(words.saturating_sub(buffer.len()));
                buffer.resize(words, 0);
                buffer
            }
            None => vec![0; words],
        };
        TileBuffer {
            buffer,
            pool: self.clone(),
        }
    }
}

/// Tiles one after another; the buffer goes back to the pool.
#[derive(Debug)]
pub(super) struct TileBuffer {
    buffer: Vec<u64>,
    pool: Arc<TilePool>,
}

impl TileBuffer {
    /// The bytes of a tile.
    #[inline]
    pub fn tile(&self, bytes: Range<usize>) -> &[u8] {
        &bytemuck::cast_slice(&self.buffer)[bytes]
    }

    /// To write it.
    #[inline]
    pub fn tile_mut(&mut self, bytes: Range<usize>) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.buffer)[bytes]
    }
}

impl Drop for TileBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.capacity() > 0 {
            self.pool
                .buffers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(buffer);
        }
    }
}

/// The rows of a part of a chunk.
#[derive(Debug)]
pub(super) enum PartRows {
    /// Run after run.
    Tiles(TileBuffer),
    /// As they were read, with the part's row at which each begins.
    Columns(Vec<(u64, PackedColumns)>),
    /// So many rows of a unit's series; all parts of the unit share its blocks.
    Series(Arc<Vec<(u32, SeriesSteps)>>, u64),
}

impl PartRows {
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        match self {
            PartRows::Tiles(tiles) => tiles.buffer.is_empty(),
            PartRows::Columns(columns) => columns.iter().all(|(_, columns)| columns.rows == 0),
            PartRows::Series(_, rows) => *rows == 0,
        }
    }
}
