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
pub(crate) struct Recent {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    /// By the content of a file, and the place in it.
    parts: HashMap<(Id, u64), Bytes>,
    /// Whole objects, by what people call them.
    objects: HashMap<String, Versioned>,
}

impl Kept {
    fn has_room(&mut self, bytes: &Bytes, bytes_max: usize) -> bool {
        let room = self.bytes + bytes.len() <= bytes_max;
        self.bytes += if room { bytes.len() } else { 0 };
        room
    }
}

impl Io {
    /// The same for a run, which keeps so many bytes of what it reads.
    pub(crate) fn keeping(&self, bytes_max: usize) -> Io {
        Io { recent: Some(Arc::new(Recent { bytes_max, ..Recent::default() })), ..self.clone() }
    }

    /// So many bytes of a file of this content, if the run has read and kept just them.
    pub fn recent(&self, content: Id, start: u64, length: usize) -> Option<Bytes> {
        let kept = self.recent.as_ref()?.kept.lock().ok()?;
        kept.parts.get(&(content, start)).filter(|bytes| bytes.len() == length).cloned()
    }

    /// Keeps bytes of a file of this content for the rest of the run, if there is room.
    pub fn remember(&self, content: Id, start: u64, bytes: &Bytes) {
        let Some(recent) = &self.recent else { return };
        let Ok(mut kept) = recent.kept.lock() else { return };
        if !kept.parts.contains_key(&(content, start)) && kept.has_room(bytes, recent.bytes_max) {
            kept.parts.insert((content, start), bytes.clone());
        }
    }

    /// An object that the run has read whole and kept.
    pub(super) fn recent_object(&self, shown: &str) -> Option<Versioned> {
        self.recent.as_ref()?.kept.lock().ok()?.objects.get(shown).cloned()
    }

    /// Keeps a whole object for the rest of the run, instead of what it was before.
    pub(super) fn remember_object(&self, shown: &str, object: &Versioned) {
        let Some(recent) = &self.recent else { return };
        let Ok(mut kept) = recent.kept.lock() else { return };
        if let Some(before) = kept.objects.remove(shown) {
            kept.bytes -= before.bytes.len();
        }
        if object.etag.is_some() && kept.has_room(&object.bytes, recent.bytes_max) {
            kept.objects.insert(shown.to_owned(), object.clone());
        }
    }
}
