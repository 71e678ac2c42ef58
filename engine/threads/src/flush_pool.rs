//! A pool of threads that wait for disks and uploads, so that computing threads do not. In a pool of `rayon` they would
//! take the places of those.

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
    pub fn submit(&self, item: T) -> Result<()> {
        let send = lock(&self.send)?.clone();
        let Some(send) = send else {
            return (self.finish)(item);
        };
        match send.try_send(item) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(item) | TrySendError::Disconnected(item)) => (self.finish)(item),
        }
    }

    /// Runs `produce` while `threads` threads finish the submitted items; returns once the queue is empty. The calling
    /// thread then drains the queue, too, or runs the hooks of `on_complete` if there are any.
    pub fn run_scoped<R>(
        &self,
        threads: usize,
        produce: impl FnOnce() -> Result<R>,
        on_complete: Option<OnComplete<'_>>,
    ) -> Result<R>
    where
        T: Send,
    {
        let threads = threads.max(1);
        let all_submitted = AtomicBool::new(false);
        let running_threads = AtomicUsize::new(threads);
        // Only the last hook may run on threads of the pool.
        let last_hook = on_complete.as_ref().map(|hooks| hooks.last);
        let drain = || {
            self.drain_queue()?;
            let is_last = running_threads.fetch_sub(1, Ordering::AcqRel) == 1;
            match last_hook {
                // Where `produce` failed, items are missing, and the hook must not run.
                Some(last) if is_last && all_submitted.load(Ordering::Acquire) => last(),
                _ => Ok(()),
            }
        };
        thread::scope(|scope| {
            // Created before the threads: they wait until it is dropped, also when this scope panics.
            let close_guard = CloseGuard(self);
            let mut pool = Vec::with_capacity(threads);
            while pool.len() < threads {
                let Some(thread) = spawned(scope, || catch_panic(drain)) else {
                    break;
                };
                pool.push(thread);
            }
            // The system may start fewer threads than requested, or none.
            running_threads.store(pool.len().max(1), Ordering::Release);
            let produced = catch_panic(produce);
            // Stored before the queue is closed: the thread that finds the queue closed last reads it.
            all_submitted.store(produced.is_ok(), Ordering::Release);
            drop(close_guard);
            let mut outcome = Ok(());
            if produced.is_ok() {
                match &on_complete {
                    Some(hooks) => {
                        outcome = catch_panic(hooks.meanwhile);
                        // Without pool threads the calling thread is the last one.
                        if outcome.is_ok() && pool.is_empty() {
                            outcome = catch_panic(drain);
                        }
                    }
                    None => outcome = catch_panic(|| self.drain_queue()),
                }
            }
            // All threads are joined; the first failure is returned.
            for thread in pool {
                let joined = join_thread(thread);
                outcome = outcome.and(joined);
            }
            outcome.and(produced)
        })
    }

    /// Finishes items until the queue is closed and empty.
    fn drain_queue(&self) -> Result<()> {
        loop {
            // The lock is released before the item is finished.
            let received = lock(&self.receive)?.recv();
            match received {
                Ok(item) => (self.finish)(item)?,
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
        let went_well = if then {
            let meanwhile = AtomicUsize::new(0);
            let last = AtomicUsize::new(0);
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
        } else {
            finishers.run_scoped(threads, given, None).is_ok()
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
