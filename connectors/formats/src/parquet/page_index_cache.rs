//! The page indexes that were read last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_model::{ContentId, Result};
use forebay_threads::lock;
use parquet::file::metadata::ParquetMetaData;

/// Bytes of indexes to keep per source.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The requested columns of one row group with the positions of their pages: metadata as of a file
/// with nothing else. `None` if the index is not sound.
pub(super) type IndexedRowGroup = Option<Arc<ParquetMetaData>>;

/// The file, the row group and the stored columns of an index.
pub(super) type IndexKey = (ContentId, usize, Vec<usize>);

/// An index, once it was read. The lock is held while it is read, so that it is read once.
type IndexSlot = Arc<Mutex<Option<IndexedRowGroup>>>;

/// The last few page indexes.
#[derive(Debug, Default)]
pub(super) struct PageIndexCache {
    kept: Mutex<KeptIndexes>,
}

#[derive(Debug, Default)]
struct KeptIndexes {
    slots: HashMap<IndexKey, IndexSlot>,
    bytes: usize,
}

impl PageIndexCache {
    /// Returns an index from memory, or reads it with `read`. Parts of a row group that are opened
    /// at the same time read its index once. After a fault, the next reader reads it again.
    pub(super) fn find_or_read(
        &self,
        key: IndexKey,
        read: impl FnOnce() -> Result<IndexedRowGroup>,
    ) -> Result<IndexedRowGroup> {
        let slot = lock(&self.kept)?
            .slots
            .entry(key.clone())
            .or_default()
            .clone();
        let mut index = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = &*index {
            return Ok(index.clone());
        }
        let read_index = read()?;
        *index = Some(read_index.clone());
        let mut cache = lock(&self.kept)?;
        cache.bytes += read_index.as_ref().map_or(0, |index| index.memory_size());
        if cache.bytes > KEPT_BYTES_MAX {
            *cache = KeptIndexes::default();
        }
        // An older index may have given up its place in the meantime.
        cache.slots.entry(key).or_insert_with(|| slot.clone());
        Ok(read_index)
    }
}
