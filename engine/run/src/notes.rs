//! What a source found out about its files, kept from run to run.

use std::sync::Mutex;
use std::thread::JoinHandle;

use forebay_model::{Id, IdBuilder, Result, Source};

use crate::commit::Store;
use crate::pass::poisoned;
use crate::scratch::ScratchDir;

/// Bytes of one source's notes at most; a source with more is looked at anew each time. A million
/// files have fewer.
pub(crate) const NOTES_BYTES_MAX: usize = 512 << 20;

/// What a source noted when it was discovered before, and what it notes now. Its own business but
/// for two things: it must not rely on notes where a file may have changed since, and notes that it
/// cannot read are no notes.
#[derive(Debug, Default)]
pub struct Notes {
    before: Option<Vec<u8>>,
    now: Mutex<Option<Vec<u8>>>,
}

impl Notes {
    pub(crate) fn new(before: Option<Vec<u8>>) -> Notes {
        Notes { before, now: Mutex::default() }
    }

    /// What was noted before.
    pub fn before(&self) -> Option<&[u8]> {
        self.before.as_deref()
    }

    /// Replaces what was noted before.
    pub fn keep(&self, notes: Vec<u8>) {
        if let Ok(mut now) = self.now.lock()
            && notes.len() <= NOTES_BYTES_MAX
        {
            *now = Some(notes);
        }
    }

    pub(crate) fn into_kept(self) -> Option<Vec<u8>> {
        self.now.into_inner().ok().flatten()
    }
}

/// Notes on their way into the store, beside what else is done.
pub(crate) struct Noting {
    scratch: ScratchDir,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Noting {
    /// Nothing is on its way yet.
    pub fn new(scratch: &ScratchDir) -> Noting {
        Noting { scratch: scratch.clone(), threads: Vec::new() }
    }

    /// Puts what a source noted.
    pub fn put(&mut self, store: &Store, id: Id, notes: Vec<u8>) {
        let (store, scratch) = (store.clone(), self.scratch.clone());
        self.threads.push(std::thread::spawn(move || store.put_notes(id, &notes, &scratch)));
    }

    /// Waits until all of them are there.
    pub fn done(mut self) -> Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        let wait = |thread: JoinHandle<Result<()>>| thread.join().unwrap_or_else(|_| Err(poisoned()));
        self.threads.drain(..).map(wait).fold(Ok(()), Result::and)
    }
}

/// Nobody writes into the store whose run has ended.
impl Drop for Noting {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

/// Names the notes of a source that watches some columns.
pub(crate) fn notes_id(source: &Source, watch: &[String]) -> Id {
    let mut id = IdBuilder::new("notes");
    id.text(&source.format).json(&source.config);
    watch.iter().for_each(|column| {
        id.text(column);
    });
    id.finish()
}
