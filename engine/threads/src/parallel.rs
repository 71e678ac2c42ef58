//! The same function on several scoped threads.

use std::any::Any;

use forebay_model::{Fault, Result, catch_panic};

#[cfg(not(feature = "shuttle"))]
use crate::for_current_span;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread::{self, ScopedJoinHandle};
use crate::sync::{Mutex, MutexGuard};

/// The fault for a lock that a panicking thread held.
pub fn poisoned_lock() -> Fault {
    Fault::internal("another thread failed while it held a lock")
}

/// Locks a mutex; a poisoned lock is a fault.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| poisoned_lock())
}

/// Joins a thread; a panic becomes a fault.
pub fn join_thread<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    let panicked = |panic: Box<dyn Any + Send>| Err(Fault::panicked(panic.as_ref()));
    thread.join().unwrap_or_else(panicked)
}

/// Runs `work` on `threads` threads, the calling one included, and returns each result. A panic becomes a fault. `work`
/// must take items from a shared queue: if the system starts fewer threads, those do all of it.
pub fn run_on_all<T: Send>(
    threads: usize,
    work: &(dyn Fn() -> Result<T> + Sync),
) -> Vec<Result<T>> {
    let work = || catch_panic(work);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map_while(|_| spawned(scope, work)).collect();
        let own = work();
        std::iter::once(own)
            .chain(others.into_iter().map(join_thread))
            .collect()
    })
}

/// Spawns a scoped thread; `None` if the system refuses.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn spawned<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new()
        .spawn_scoped(scope, for_current_span(work))
        .ok()
}

#[cfg(feature = "shuttle")]
pub(crate) fn spawned<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    Some(scope.spawn(work))
}

/// Calls `work` for `0..count` on `threads` threads; returns the results in order, or the first fault.
pub fn parallel_map<T: Send>(
    threads: usize,
    count: usize,
    work: &(dyn Fn(usize) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(done);
            }
            // Items behind a failure are not needed.
            let result = catch_panic(|| work(index))
                .inspect_err(|_| next.store(count, Ordering::Relaxed))?;
            done.push((index, result));
        }
    };
    let done = run_on_all(threads.min(count), &some);
    let mut done: Vec<(usize, T)> = done
        .into_iter()
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    done.sort_unstable_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}
