//! Sources of chunks for ranges: the dataset itself, or prefetched chunks.

use forebay_contract::ChunkIterator;
use forebay_model::{Chunk, Result};
use forebay_threads::{PrefetchReader, ReadTypes};

/// A span of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanRef {
    pub scan: usize,
    pub span: usize,
}

/// The columns of a span that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// All columns that the chain needs.
    All,
    /// The columns that windows remember.
    Remembered,
}

/// Chunks of a span in row order.
pub type ChunkIter<'r> = Box<dyn Iterator<Item = Result<Chunk>> + 'r>;

/// A source of chunks for a range.
pub trait RangeReader {
    /// The chunks of a span.
    fn chunks(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIter<'_>>;
}

/// Returns the chunk source of each range.
pub type RangeReaderFn<'f, 'r> = &'f (dyn Fn(usize) -> Box<dyn RangeReader + 'r> + Sync);

/// Chunks of spans, prefetched by idle threads.
pub enum ChunkPrefetch {}

impl ReadTypes for ChunkPrefetch {
    type Task = (SpanRef, ReadMode);
    type Chunk = Chunk;
    type Chunks = ChunkIterator;

    fn bytes(chunk: &Chunk) -> usize {
        chunk.batch.get_array_memory_size()
    }
}

impl<T> RangeReader for PrefetchReader<'_, '_, T, ChunkPrefetch> {
    fn chunks(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIter<'_>> {
        PrefetchReader::chunks(self, (task, columns))
    }
}
