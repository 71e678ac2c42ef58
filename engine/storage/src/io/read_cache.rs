//! Bytes that a run has read, kept in memory for later reads of the same run: the passes of a daily run
//! read mostly the same days. Entries are never evicted, and bytes beyond the limit are not cached: with
//! eviction they would be gone before they are read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay_model::ContentId;

use super::versioned_object::VersionedObject;

/// Cache of stored bytes that were read.
pub struct ReadCache {
    bytes_max: usize,
    kept: Mutex<ReadCacheState>,
}

#[derive(Default)]
struct ReadCacheState {
    bytes: usize,
    /// Parts by the content of a file, and the offset in it.
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
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            bytes_max,
            kept: Mutex::default(),
        }
    }

    /// Entry for a part of a file, existing or new; `None` if there is no room, or if a part of
    /// another length is cached.
    fn find_or_insert(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
    ) -> Option<Arc<CachedRange>> {
        let mut cache = self.kept.lock().ok()?;
        if let Some(part) = cache.parts.get(&(content, start)) {
            return Some(part.clone()).filter(|part| part.length == length);
        }
        if !cache.has_room(length, self.bytes_max) {
            return None;
        }
        let part = Arc::new(CachedRange {
            length,
            read: Mutex::default(),
        });
        cache.parts.insert((content, start), part.clone());
        Some(part)
    }

    /// The bytes of a part of a file of this content, if exactly them are cached.
    pub fn range(&self, content: ContentId, start: u64, length: usize) -> Option<Bytes> {
        let cache = self.kept.lock().ok()?;
        let part = cache.parts.get(&(content, start))?.clone();
        // Another thread may be reading the part: the cache is free meanwhile.
        drop(cache);
        if part.length == length {
            part.read.lock().ok()?.clone()
        } else {
            None
        }
    }

    /// The bytes of a part of a file, read by `read` if they are not cached: only one of concurrent
    /// callers reads.
    pub fn read_range(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
        read: impl FnOnce() -> std::io::Result<Bytes>,
    ) -> std::io::Result<Bytes> {
        let part = self.find_or_insert(content, start, length);
        let Some(mut cached_bytes) = part.as_ref().and_then(|part| part.read.lock().ok()) else {
            return read();
        };
        if let Some(bytes) = &*cached_bytes {
            return Ok(bytes.clone());
        }
        let bytes = read()?;
        *cached_bytes = Some(bytes.clone());
        Ok(bytes)
    }

    /// Keeps a part of a file of this content, if there is room.
    pub fn insert_range(
        &self,
        content: ContentId,
        start: u64,
        length: usize,
        bytes: impl FnOnce() -> Option<Bytes>,
    ) {
        let part = self.find_or_insert(content, start, length);
        let Some(mut cached_bytes) = part.as_ref().and_then(|part| part.read.lock().ok()) else {
            return;
        };
        if cached_bytes.is_none() {
            // A slice would hold all of the request that it came with.
            *cached_bytes = bytes().map(|bytes| Bytes::copy_from_slice(&bytes));
        }
    }

    /// An object that was read as a whole.
    pub fn object(&self, location_text: &str) -> Option<VersionedObject> {
        let cache = self.kept.lock().ok()?;
        cache.objects.get(location_text).cloned()
    }

    /// Keeps a whole object, and replaces its earlier version.
    pub fn insert_object(&self, location_text: &str, object: &VersionedObject) {
        let Ok(mut cache) = self.kept.lock() else {
            return;
        };
        if let Some(replaced) = cache.objects.remove(location_text) {
            cache.bytes -= replaced.bytes.len();
        }
        if object.version.e_tag.is_some() && cache.has_room(object.bytes.len(), self.bytes_max) {
            cache
                .objects
                .insert(location_text.to_owned(), object.clone());
        }
    }
}
