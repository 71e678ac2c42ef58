//! Bytes that a run has read, kept in memory for whoever reads them again in the same run: the passes of a
//! night read much the same days. What comes first stays, as far as there is room: what does not fit would
//! be gone before it is read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay_model::Id;

use super::{Io, Versioned};

/// What was read, as it is stored.
#[derive(Default)]
pub struct Recent {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    /// By the content of a file, and the place in it.
    parts: HashMap<(Id, u64), Arc<Part>>,
    /// Whole objects, by what people call them.
    objects: HashMap<String, Versioned>,
}

/// So many bytes of a file, or those that somebody is reading.
struct Part {
    length: usize,
    read: Mutex<Option<Bytes>>,
}

impl Kept {
    fn has_room(&mut self, length: usize, bytes_max: usize) -> bool {
        let room = self.bytes + length <= bytes_max;
        self.bytes += if room { length } else { 0 };
        room
    }
}

impl Recent {
    /// Where a part of a file is kept, or will be; `None` where there is no room, or one of another length.
    fn part(&self, content: Id, start: u64, length: usize) -> Option<Arc<Part>> {
        let mut kept = self.kept.lock().ok()?;
        if let Some(part) = kept.parts.get(&(content, start)) {
            return Some(part.clone()).filter(|part| part.length == length);
        }
        if !kept.has_room(length, self.bytes_max) {
            return None;
        }
        let part = Arc::new(Part { length, read: Mutex::default() });
        kept.parts.insert((content, start), part.clone());
        Some(part)
    }
}

impl Io {
    /// The same for a run, which keeps so many bytes of what it reads.
    pub fn keeping(&self, bytes_max: usize) -> Io {
        Io { recent: Some(Arc::new(Recent { bytes_max, ..Recent::default() })), ..self.clone() }
    }

    /// So many bytes of a file of this content, if the run has read and kept just them.
    pub fn recent(&self, content: Id, start: u64, length: usize) -> Option<Bytes> {
        let part = self.recent.as_ref()?.kept.lock().ok()?.parts.get(&(content, start))?.clone();
        if part.length == length { part.read.lock().ok()?.clone() } else { None }
    }

    /// The same, read by `read` where it is not there: by one of those who ask for it at the same time.
    pub fn recently(
        &self,
        content: Id,
        start: u64,
        length: usize,
        read: impl FnOnce() -> std::io::Result<Bytes>,
    ) -> std::io::Result<Bytes> {
        let part = self.recent.as_ref().and_then(|recent| recent.part(content, start, length));
        let Some(mut kept) = part.as_ref().and_then(|part| part.read.lock().ok()) else { return read() };
        if let Some(bytes) = &*kept {
            return Ok(bytes.clone());
        }
        let bytes = read()?;
        *kept = Some(bytes.clone());
        Ok(bytes)
    }

    /// Keeps bytes of a file of this content for the rest of the run, if there is room.
    pub fn remember(&self, content: Id, start: u64, bytes: &Bytes) {
        let Some(recent) = &self.recent else { return };
        let part = recent.part(content, start, bytes.len());
        if let Some(mut kept) = part.as_ref().and_then(|part| part.read.lock().ok()) {
            kept.get_or_insert_with(|| bytes.clone());
        }
    }

    /// An object that the run has read whole and kept.
    pub fn recent_object(&self, shown: &str) -> Option<Versioned> {
        self.recent.as_ref()?.kept.lock().ok()?.objects.get(shown).cloned()
    }

    /// Keeps a whole object for the rest of the run, instead of what it was before.
    pub fn remember_object(&self, shown: &str, object: &Versioned) {
        let Some(recent) = &self.recent else { return };
        let Ok(mut kept) = recent.kept.lock() else { return };
        if let Some(before) = kept.objects.remove(shown) {
            kept.bytes -= before.bytes.len();
        }
        if object.etag.is_some() && kept.has_room(object.bytes.len(), recent.bytes_max) {
            kept.objects.insert(shown.to_owned(), object.clone());
        }
    }
}
