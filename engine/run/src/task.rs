//! Runs session work on threads of its own, for `async` programs.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use forebay_model::{Fault, Pipeline, Result, catch_panic};
use forebay_storage::CancellationToken;
use futures::Stream;
use futures::channel::oneshot;
use tokio::sync::mpsc;

use crate::session::Session;

/// Batches that wait for the reader of a stream.
const BATCHES_AHEAD: usize = 2;

/// Work of a session on a thread of its own; await it for its result. Works in any `async` runtime.
/// Dropping it cancels the work: committed results stay.
pub struct Task<T> {
    result: oneshot::Receiver<Result<T>>,
    stop: StopOnDrop,
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let done = Pin::new(&mut self.result).poll(context);
        if done.is_ready() {
            self.stop.0 = None;
        }
        done.map(|done| {
            done.unwrap_or_else(|_| Err(Fault::internal("a thread ended without a result")))
        })
    }
}

/// The rows of a step as a stream of batches. Dropping it cancels the work.
pub struct RowStream {
    batches: mpsc::Receiver<Result<RecordBatch>>,
    stop: StopOnDrop,
}

impl Stream for RowStream {
    type Item = Result<RecordBatch>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        let batch = self.batches.poll_recv(context);
        if let Poll::Ready(None) = batch {
            self.stop.0 = None;
        }
        batch
    }
}

/// Cancels work when it is dropped, unless the work has ended.
struct StopOnDrop(Option<CancellationToken>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.flag().store(true, Ordering::Relaxed);
        }
    }
}

impl Session {
    /// Does some work on a thread of its own.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<Task<T>> {
        let (sender, result) = oneshot::channel();
        let stop = StopOnDrop(Some(self.interrupt.clone()));
        start_thread(move || {
            // Without a receiver, the caller has gone away.
            let _ = sender.send(catch_panic(|| work(&self)));
        })?;
        Ok(Task { result, stop })
    }

    /// The rows of a step or source as a stream; see [`Session::rows`].
    pub fn stream(self, pipeline: &Pipeline, step: &str) -> Result<RowStream> {
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let stop = StopOnDrop(Some(self.interrupt.clone()));
        let pipeline = pipeline.clone();
        let step = step.to_owned();
        start_thread(move || {
            let sent = catch_panic(|| {
                for batch in self.rows(&pipeline, &step)? {
                    if sender.blocking_send(batch).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            if let Err(fault) = sent {
                let _ = sender.blocking_send(Err(fault));
            }
        })?;
        Ok(RowStream { batches, stop })
    }
}

fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new()
        .name("forebay-task".to_owned())
        .spawn(work);
    started.map(drop).map_err(Fault::refused_thread)
}
