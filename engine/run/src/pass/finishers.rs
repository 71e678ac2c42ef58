//! Finishers: threads that wait for disks and uploads, so that those that compute need not.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use forebay_model::Result;

use super::lock;

/// Finishes something.
pub(super) type Finish<'f, T> = &'f (dyn Fn(T) -> Result<()> + Sync);

/// What is to be finished, and how.
pub(super) struct Finishers<'f, T> {
    finish: Finish<'f, T>,
    send: Mutex<Option<SyncSender<T>>>,
    receive: Mutex<Receiver<T>>,
}

impl<'f, T> Finishers<'f, T> {
    /// So many may wait.
    pub fn new(waiting_max: usize, finish: Finish<'f, T>) -> Self {
        let (send, receive) = sync_channel(waiting_max);
        Finishers { finish, send: Mutex::new(Some(send)), receive: Mutex::new(receive) }
    }

    /// Has something finished; where too much waits, by this thread.
    pub fn give(&self, unfinished: T) -> Result<()> {
        let send = lock(&self.send)?.clone();
        let Some(send) = send else { return (self.finish)(unfinished) };
        match send.try_send(unfinished) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(unfinished) | TrySendError::Disconnected(unfinished)) => (self.finish)(unfinished),
        }
    }

    /// Finishes what comes, until the end.
    pub fn run(&self) -> Result<()> {
        loop {
            let next = lock(&self.receive)?.recv();
            match next {
                Ok(unfinished) => (self.finish)(unfinished)?,
                Err(_) => return Ok(()),
            }
        }
    }

    /// Says that nothing more comes.
    pub fn end(&self) {
        if let Ok(mut send) = self.send.lock() {
            send.take();
        }
    }
}
