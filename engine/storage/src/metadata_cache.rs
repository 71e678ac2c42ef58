//! What a source found out about its files, kept from run to run.

use std::sync::Mutex;

use forebay_model::{Id, IdBuilder, Result, Source};

/// Bytes of one source's notes at most; a source with more is looked at anew each time. A million
/// files have fewer.
pub const NOTES_BYTES_MAX: usize = 512 << 20;

/// What a source noted when it was discovered before, and what it notes now. Its own business but
/// for two things: it must not rely on notes where a file may have changed since, and notes that it
/// cannot read are no notes.
pub struct Notes {
    before: Box<ReadNotes>,
    now: Mutex<Option<Vec<u8>>>,
}

/// Reads what was noted before.
type ReadNotes = dyn Fn() -> Result<Option<Vec<u8>>> + Send + Sync;

impl Default for Notes {
    /// Nothing was noted.
    fn default() -> Self {
        Notes::new(|| Ok(None))
    }
}

impl Notes {
    /// Notes over what was noted before.
    pub fn new(before: impl Fn() -> Result<Option<Vec<u8>>> + Send + Sync + 'static) -> Notes {
        Notes { before: Box::new(before), now: Mutex::default() }
    }

    /// Reads what was noted before, if anything was.
    pub fn before(&self) -> Result<Option<Vec<u8>>> {
        (self.before)()
    }

    /// Replaces what was noted before.
    pub fn keep(&self, notes: Vec<u8>) {
        if let Ok(mut now) = self.now.lock()
            && notes.len() <= NOTES_BYTES_MAX
        {
            *now = Some(notes);
        }
    }

    /// What was noted now, if anything was.
    pub fn into_kept(self) -> Option<Vec<u8>> {
        self.now.into_inner().ok().flatten()
    }
}

/// Names the notes of a source that watches some columns.
pub fn notes_id(source: &Source, watch: &[String]) -> Id {
    let mut id = IdBuilder::new("notes");
    id.text(&source.format).json(&source.config);
    watch.iter().for_each(|column| {
        id.text(column);
    });
    id.finish()
}
