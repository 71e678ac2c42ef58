//! Background tasks: work on threads of their own, concurrent with later work.

use std::thread::JoinHandle;

use forebay_model::{Fault, Result};
use forebay_threads::{poisoned_lock, start_thread};

/// A background task on its own thread. Dropping the handle joins the thread: no task outlives its run.
pub struct BackgroundTask<T>(Option<Result<JoinHandle<Result<T>>>>);

impl<T: Send + 'static> BackgroundTask<T> {
    /// Begins it. If the system refuses the thread, `join` returns the fault.
    pub fn spawn(work: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        BackgroundTask(Some(start_thread("forebay-background", work)))
    }
}

impl<T> BackgroundTask<T> {
    /// Waits for the task and returns its result.
    pub fn join(mut self) -> Result<T> {
        let thread = self.0.take().ok_or_else(poisoned_lock)??;
        thread
            .join()
            .unwrap_or_else(|panic| Err(Fault::panicked(panic.as_ref())))
    }
}

impl<T> Drop for BackgroundTask<T> {
    fn drop(&mut self) {
        if let Some(Ok(thread)) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Background tasks without results.
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
