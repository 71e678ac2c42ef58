//! Buffers of rows between reading and delivery.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::slot::{PackedColumns, SeriesSteps};

/// Buffers that are used again: fresh memory costs a page fault every 4 KiB.
#[derive(Debug, Default)]
pub(super) struct TilePool {
    buffers: Mutex<Vec<Vec<u64>>>,
}

impl TilePool {
    /// A buffer of so many bytes (whole words) with unspecified content.
    pub fn take(self: &Arc<Self>, bytes: usize) -> TileBuffer {
        let words = bytes / size_of::<u64>();
        let mut buffer = Vec::new();
        if words > 0 {
            let mut buffers = self.lock_buffers();
            buffer = buffers.pop().unwrap_or_default();
        }
        // The capacity becomes exactly what is needed: it counts as memory of the feed.
        buffer.reserve_exact(words.saturating_sub(buffer.len()));
        buffer.resize(words, 0);
        TileBuffer {
            buffer,
            pool: self.clone(),
        }
    }
}

impl TilePool {
    /// Ignores poisoning: a list of buffers cannot be half-changed.
    fn lock_buffers(&self) -> MutexGuard<'_, Vec<Vec<u64>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The bytes of a tile, to write it.
    #[inline]
    pub fn tile_mut(&mut self, bytes: Range<usize>) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.buffer)[bytes]
    }
}

impl Drop for TileBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.capacity() > 0 {
            self.pool.lock_buffers().push(buffer);
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
    /// True without any row.
    pub fn is_empty(&self) -> bool {
        match self {
            PartRows::Tiles(tiles) => tiles.buffer.is_empty(),
            PartRows::Columns(columns) => columns.iter().all(|(_, columns)| columns.rows == 0),
            PartRows::Series(_, rows) => *rows == 0,
        }
    }
}
