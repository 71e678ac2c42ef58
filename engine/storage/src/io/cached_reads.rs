//! Reads of a client through the cache of its run.

use std::sync::Arc;

use bytes::Bytes;
use forebay_model::ContentId;

use super::StorageClient;
use super::read_cache::ReadCache;

impl StorageClient {
    /// A client for a run, with a cache of at most `bytes_max` bytes.
    pub fn with_read_cache(&self, bytes_max: usize) -> StorageClient {
        StorageClient {
            recent: Some(Arc::new(ReadCache::new(bytes_max))),
            ..self.clone()
        }
    }

    /// The bytes of a part of a file of this content, if the run has read and kept exactly them.
    pub fn cached_range(&self, content: ContentId, start: u64, length: usize) -> Option<Bytes> {
        self.recent.as_ref()?.range(content, start, length)
    }

    /// The bytes of a part of a file, read by `read` if they are not cached: only one of concurrent
    /// callers reads.
    pub fn read_through_cache(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
        read: impl FnOnce() -> std::io::Result<Bytes>,
    ) -> std::io::Result<Bytes> {
        match &self.recent {
            Some(cache) => cache.read_range(content, start, length, read),
            None => read(),
        }
    }

    /// Keeps a part of a file of this content for the rest of the run, if there is room.
    pub fn cache_range(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
        bytes: impl FnOnce() -> Option<Bytes>,
    ) {
        if let Some(cache) = &self.recent {
            cache.insert_range(content, start, length, bytes);
        }
    }
}
