//! Work that is on its way beside what comes after it.

use std::thread::JoinHandle;

use forebay_model::{Fault, Result};
use forebay_threads::poisoned;

/// A piece of work on a thread of its own. Whoever drops this waits for it: nothing goes on when its run has ended.
pub struct Soon<T>(Option<JoinHandle<Result<T>>>);

impl<T: Send + 'static> Soon<T> {
    /// Begins it.
    pub fn begin(work: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        Soon(Some(std::thread::spawn(work)))
    }
}

impl<T> Soon<T> {
    /// What it comes to.
    pub fn done(mut self) -> Result<T> {
        let thread = self.0.take().ok_or_else(poisoned)?;
        thread.join().unwrap_or_else(|panic| Err(Fault::panicked(panic.as_ref())))
    }
}

impl<T> Drop for Soon<T> {
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// Pieces of work that give nothing.
#[derive(Default)]
pub struct Later(Vec<Soon<()>>);

impl Later {
    /// Begins a piece.
    pub fn begin(&mut self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        self.0.push(Soon::begin(work));
    }

    /// Waits until all are done.
    pub fn done(self) -> Result<()> {
        self.0.into_iter().map(Soon::done).fold(Ok(()), Result::and)
    }
}
