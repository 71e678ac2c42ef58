//! Work that is on its way beside what comes after it.

use std::thread::JoinHandle;

use forebay_model::Result;

use crate::pass::poisoned;

/// Pieces of work, each on a thread of its own. Whoever drops this waits for them.
#[derive(Default)]
pub(crate) struct Later(Vec<JoinHandle<Result<()>>>);

impl Later {
    /// Begins a piece.
    pub fn begin(&mut self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        self.0.push(std::thread::spawn(work));
    }

    /// Waits until all are done.
    pub fn done(mut self) -> Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        let wait = |thread: JoinHandle<Result<()>>| thread.join().unwrap_or_else(|_| Err(poisoned()));
        self.0.drain(..).map(wait).fold(Ok(()), Result::and)
    }
}

/// Nothing goes on when its run has ended.
impl Drop for Later {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
