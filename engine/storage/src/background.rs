//! Work that is on its way beside what comes after it.

use std::thread::JoinHandle;

use forebay_model::{Fault, Result};
use forebay_threads::{for_current_span, poisoned_lock};

/// A background task on its own thread. Dropping the handle joins the thread: no task outlives its run.
pub struct BackgroundTask<T>(Option<JoinHandle<Result<T>>>);

impl<T: Send + 'static> BackgroundTask<T> {
    /// Begins it.
    pub fn spawn(work: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        BackgroundTask(Some(std::thread::spawn(for_current_span(work))))
    }
}

impl<T> BackgroundTask<T> {
    /// What it comes to.
    pub fn join(mut self) -> Result<T> {
        let thread = self.0.take().ok_or_else(poisoned_lock)?;
        thread
            .join()
            .unwrap_or_else(|panic| Err(Fault::panicked(panic.as_ref())))
    }
}

impl<T> Drop for BackgroundTask<T> {
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// Pieces of work that give nothing.
#[derive(Default)]
pub struct BackgroundTasks(Vec<BackgroundTask<()>>);

impl BackgroundTasks {
    /// Begins a piece.
    pub fn spawn(&mut self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        self.0.push(BackgroundTask::spawn(work));
    }

    /// Waits until all are done.
    pub fn join_all(self) -> Result<()> {
        self.0
            .into_iter()
            .map(BackgroundTask::join)
            .fold(Ok(()), Result::and)
    }
}
