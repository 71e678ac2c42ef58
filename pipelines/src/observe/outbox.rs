//! Queue that a thread empties, for messages that must not delay a run.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use forebay_model::Result;
use forebay_storage::{Event, EventListener};
use forebay_threads::start_thread;

/// Messages that wait at most. Further ones are dropped: a service that is slow must not fill the memory.
const WAITING_MAX: usize = 16_384;

/// Messages that are handed over at once at most.
const BATCH_MAX: usize = 512;

/// Queue of messages. Messages from before its start wait.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    to: Mutex<Option<SyncSender<T>>>,
    from: Mutex<Option<Receiver<T>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<T: Send + 'static> Outbox<T> {
    pub fn new() -> Outbox<T> {
        let (to, from) = sync_channel(WAITING_MAX);
        Outbox {
            to: Mutex::new(Some(to)),
            from: Mutex::new(Some(from)),
            thread: Mutex::default(),
        }
    }

    /// Queues a message; false where it is dropped.
    pub fn send(&self, message: T) -> bool {
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.as_ref().is_some_and(|to| to.try_send(message).is_ok())
    }

    /// Starts a thread that handles messages in their order, several at once. Its first fault becomes a warning, and
    /// then messages are dropped.
    pub fn start(
        &self,
        watch: &Arc<dyn EventListener>,
        mut handle: impl FnMut(Vec<T>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let Some(from) = take(&self.from) else {
            return Ok(());
        };
        let watch = watch.clone();
        let run = move || {
            let mut failed = false;
            while let Ok(first) = from.recv() {
                let batch: Vec<T> = std::iter::once(first)
                    .chain(from.try_iter().take(BATCH_MAX - 1))
                    .collect();
                if failed {
                    continue;
                }
                if let Err(fault) = handle(batch) {
                    failed = true;
                    watch.on_event(Event::Warning {
                        message: fault.message().to_owned(),
                    });
                }
            }
        };
        let thread = start_thread("forebay-tell", run)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Waits until all messages are handled; further ones are dropped.
    pub fn close(&self) {
        drop(take(&self.to));
        if let Some(thread) = take(&self.thread) {
            let _ = thread.join();
        }
    }
}
