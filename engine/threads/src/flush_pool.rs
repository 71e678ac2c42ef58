//! A pool of threads that wait for disks and uploads, so that computing threads do not.

use forebay_model::{Result, catch_panic};

use crate::parallel::{join_thread, lock, spawned};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use crate::sync::{Mutex, thread};

/// Finishes one item, such as the flush of a file.
pub type FlushFn<'f, T> = &'f (dyn Fn(T) -> Result<()> + Sync);

/// Hooks that run once every item was submitted.
pub struct OnComplete<'t> {
    /// Runs on the submitting thread while the pool drains the queue.
    pub meanwhile: &'t dyn Fn() -> Result<()>,
    /// Runs on the thread that finishes the last item, if nothing failed.
    pub last: &'t (dyn Fn() -> Result<()> + Sync),
}

/// A bounded queue of items and the function that finishes each.
pub struct FlushPool<'f, T> {
    finish: FlushFn<'f, T>,
    send: Mutex<Option<SyncSender<T>>>,
    receive: Mutex<Receiver<T>>,
}

impl<'f, T> FlushPool<'f, T> {
    /// A queue of at most `waiting_max` items.
    pub fn new(waiting_max: usize, finish: FlushFn<'f, T>) -> Self {
        let (send, receive) = sync_channel(waiting_max);
        FlushPool {
            finish,
            send: Mutex::new(Some(send)),
            receive: Mutex::new(receive),
        }
    }

    /// Submits an item. If the queue is full, the calling thread finishes the item itself.
    pub fn submit(&self, unfinished: T) -> Result<()> {
        let send = lock(&self.send)?.clone();
        let Some(send) = send else {
            return (self.finish)(unfinished);
        };
        match send.try_send(unfinished) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(unfinished) | TrySendError::Disconnected(unfinished)) => {
                (self.finish)(unfinished)
            }
        }
    }

    /// Runs `give` while `threads` threads finish the submitted items; returns once the queue is empty. Afterwards the
    /// calling thread helps to drain the queue, or runs the hooks of `then` if they are given.
    pub fn run_scoped<R>(
        &self,
        threads: usize,
        give: impl FnOnce() -> Result<R>,
        then: Option<OnComplete<'_>>,
    ) -> Result<R>
    where
        T: Send,
    {
        let threads = threads.max(1);
        let (all_given, last) = (AtomicBool::new(false), then.as_ref().map(|then| then.last));
        let left = AtomicUsize::new(threads);
        let finish = || {
            self.drain_queue()?;
            let is_last =
                left.fetch_sub(1, Ordering::AcqRel) == 1 && all_given.load(Ordering::Acquire);
            last.filter(|_| is_last).map_or(Ok(()), |last| last())
        };
        thread::scope(|scope| {
            // Created before the threads: they wait until it is dropped, also when this scope panics.
            let ending = CloseGuard(self);
            let others: Vec<_> = (0..threads)
                .map_while(|_| spawned(scope, || catch_panic(finish)))
                .collect();
            // The system may start fewer threads than requested, or none.
            left.store(others.len().max(1), Ordering::Release);
            let given = catch_panic(give);
            all_given.store(given.is_ok(), Ordering::Release);
            drop(ending);
            let own = match (&given, &then) {
                (Err(_), _) => Ok(()),
                (Ok(_), Some(then)) => {
                    let meanwhile = catch_panic(then.meanwhile);
                    if others.is_empty() {
                        meanwhile.and_then(|()| catch_panic(finish))
                    } else {
                        meanwhile
                    }
                }
                (Ok(_), None) => catch_panic(|| self.drain_queue()),
            };
            let finished = others.into_iter().map(join_thread).fold(own, Result::and);
            finished.and(given)
        })
    }

    /// Finishes items until the queue is closed and empty.
    fn drain_queue(&self) -> Result<()> {
        loop {
            let next = lock(&self.receive)?.recv();
            match next {
                Ok(unfinished) => (self.finish)(unfinished)?,
                Err(_) => return Ok(()),
            }
        }
    }
}

/// Closes the queue when dropped, also on a panic or a fault.
struct CloseGuard<'b, 'f, T>(&'b FlushPool<'f, T>);

impl<T> Drop for CloseGuard<'_, '_, T> {
    fn drop(&mut self) {
        if let Ok(mut send) = self.0.send.lock() {
            send.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_model::Fault;

    use super::*;

    /// Submits 200 numbers; returns the finished numbers, and whether nothing failed.
    fn flush_numbers(
        (threads, waiting_max): (usize, usize),
        then: bool,
        fails: impl Fn(usize) -> bool + Sync,
    ) -> (BTreeSet<usize>, bool) {
        let done = Mutex::new(BTreeSet::new());
        let finish = |number: usize| {
            if fails(number) {
                return Err(Fault::internal("a number that cannot be finished"));
            }
            assert!(
                done.lock().unwrap().insert(number),
                "{number} was finished twice"
            );
            Ok(())
        };
        let finishers = FlushPool::new(waiting_max, &finish);
        let given = || {
            (0..200)
                .map(|number| finishers.submit(number))
                .fold(Ok(()), Result::and)
        };
        let went_well = match then {
            false => finishers.run_scoped(threads, given, None).is_ok(),
            true => {
                let (meanwhile, last) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let count = |of: &AtomicUsize| {
                    of.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                };
                let then = OnComplete {
                    meanwhile: &|| count(&meanwhile),
                    last: &|| {
                        assert_eq!(
                            done.lock().unwrap().len(),
                            200,
                            "something is not finished yet"
                        );
                        count(&last)
                    },
                };
                let went_well = finishers.run_scoped(threads, given, Some(then)).is_ok();
                assert_eq!(last.into_inner(), usize::from(went_well));
                assert!(!went_well || meanwhile.into_inner() == 1);
                went_well
            }
        };
        (done.into_inner().unwrap(), went_well)
    }

    #[test]
    fn every_item_is_flushed_once_and_a_failure_blocks_no_thread() {
        let sizes = [(1, 1), (1, 4), (3, 2), (2, 500), (0, 0)];
        for (sizes, then) in sizes
            .into_iter()
            .flat_map(|sizes| [(sizes, false), (sizes, true)])
        {
            assert_eq!(
                flush_numbers(sizes, then, |_| false),
                ((0..200).collect(), true)
            );
            // A thread ends at a number that fails; the submitting thread finishes the rest.
            let (done, went_well) = flush_numbers(sizes, then, |number| number <= sizes.0);
            assert!(!went_well && done.len() < 200 - sizes.0);
        }
    }
}
