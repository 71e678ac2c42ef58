//! Bytes that a run has read, kept in memory for later reads of the same run: the passes of a nightly run
//! read mostly the same days. Entries are never evicted, and bytes beyond the limit are not cached: with
//! eviction they would be gone before they are read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay_model::ContentId;

use super::{StorageClient, VersionedObject};

/// What was read, as it is stored.
#[derive(Default)]
pub struct ReadCache {
    bytes_max: usize,
    kept: Mutex<ReadCacheState>,
}

#[derive(Default)]
struct ReadCacheState {
    bytes: usize,
    /// By the content of a file, and the place in it.
    parts: HashMap<(ContentId, u64), Arc<CachedRange>>,
    /// Whole objects, by the location shown to users.
    objects: HashMap<String, VersionedObject>,
}

/// A range of a file: its cached bytes, or a range that a thread is reading.
struct CachedRange {
    length: usize,
    read: Mutex<Option<Bytes>>,
}

impl ReadCacheState {
    fn has_room(&mut self, length: usize, bytes_max: usize) -> bool {
        let room = self.bytes + length <= bytes_max;
        self.bytes += if room { length } else { 0 };
        room
    }
}

impl ReadCache {
    /// Where a part of a file is kept, or will be; `None` where there is no room, or one of another length.
    fn find_or_insert(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
    ) -> Option<Arc<CachedRange>> {
        let mut kept = self.kept.lock().ok()?;
        if let Some(part) = kept.parts.get(&(content, start)) {
            return Some(part.clone()).filter(|part| part.length == length);
        }
        if !kept.has_room(length, self.bytes_max) {
            return None;
        }
        let part = Arc::new(CachedRange {
            length,
            read: Mutex::default(),
        });
        kept.parts.insert((content, start), part.clone());
        Some(part)
    }
}

impl StorageClient {
    /// The same for a run, which keeps so many bytes of what it reads.
    pub fn with_read_cache(&self, bytes_max: usize) -> StorageClient {
        StorageClient {
            recent: Some(Arc::new(ReadCache {
                bytes_max,
                ..ReadCache::default()
            })),
            ..self.clone()
        }
    }

    /// So many bytes of a file of this content, if the run has read and kept just them.
    pub fn cached_range(&self, content: ContentId, start: u64, length: usize) -> Option<Bytes> {
        let part = self
            .recent
            .as_ref()?
            .kept
            .lock()
            .ok()?
            .parts
            .get(&(content, start))?
            .clone();
        if part.length == length {
            part.read.lock().ok()?.clone()
        } else {
            None
        }
    }

    /// The same, read by `read` where it is not there: by one of those who ask for it at the same time.
    pub fn read_through_cache(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
        read: impl FnOnce() -> std::io::Result<Bytes>,
    ) -> std::io::Result<Bytes> {
        let part = self
            .recent
            .as_ref()
            .and_then(|recent| recent.find_or_insert(content, start, length));
        let Some(mut kept) = part.as_ref().and_then(|part| part.read.lock().ok()) else {
            return read();
        };
        if let Some(bytes) = &*kept {
            return Ok(bytes.clone());
        }
        let bytes = read()?;
        *kept = Some(bytes.clone());
        Ok(bytes)
    }

    /// Keeps so many bytes of a file of this content for the rest of the run, if there is room.
    pub fn cache_range(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
        bytes: impl FnOnce() -> Option<Bytes>,
    ) {
        let Some(recent) = &self.recent else { return };
        let part = recent.find_or_insert(content, start, length);
        let Some(mut kept) = part.as_ref().and_then(|part| part.read.lock().ok()) else {
            return;
        };
        if kept.is_none() {
            // A slice would hold all of the request that it came with.
            *kept = bytes().map(|bytes| Bytes::copy_from_slice(&bytes));
        }
    }

    /// An object that the run has read whole and kept.
    pub fn cached_object(&self, shown: &str) -> Option<VersionedObject> {
        self.recent
            .as_ref()?
            .kept
            .lock()
            .ok()?
            .objects
            .get(shown)
            .cloned()
    }

    /// Keeps a whole object for the rest of the run, instead of what it was before.
    pub fn cache_object(&self, shown: &str, object: &VersionedObject) {
        let Some(recent) = &self.recent else { return };
        let Ok(mut kept) = recent.kept.lock() else {
            return;
        };
        if let Some(before) = kept.objects.remove(shown) {
            kept.bytes -= before.bytes.len();
        }
        if object.version.e_tag.is_some() && kept.has_room(object.bytes.len(), recent.bytes_max) {
            kept.objects.insert(shown.to_owned(), object.clone());
        }
    }
}
