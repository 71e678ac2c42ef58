//! Calls of one function on several scoped threads.
//!
//! The calls read storage, wait for permits and append in order, and some sites make more of them at once than there
//! are processors: in a pool of `rayon`, calls that wait would hold the threads that compute
//! (decisions/waiting-threads.md).

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
    match thread.join() {
        Ok(result) => result,
        Err(panic) => Err(Fault::panicked(panic.as_ref())),
    }
}

/// Runs `work` on `threads` threads, the calling one included, and returns each result. A panic becomes a fault. `work`
/// must take items from a shared queue: if the system starts fewer threads, those do all of it.
pub fn run_on_all<T: Send>(
    threads: usize,
    work: &(dyn Fn() -> Result<T> + Sync),
) -> Vec<Result<T>> {
    let work = || catch_panic(work);
    thread::scope(|scope| {
        let mut spawned_threads = Vec::new();
        for _ in 1..threads {
            let Some(thread) = spawned(scope, work) else {
                break;
            };
            spawned_threads.push(thread);
        }
        let mut results = vec![work()];
        results.extend(spawned_threads.into_iter().map(join_thread));
        results
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
    let next_index = AtomicUsize::new(0);
    let by_thread = run_on_all(threads.min(count), &|| {
        map_remaining(&next_index, count, work)
    });
    let mut numbered = Vec::with_capacity(count);
    for results in by_thread {
        numbered.extend(results?);
    }
    numbered.sort_unstable_by_key(|(index, _)| *index);
    Ok(numbered.into_iter().map(|(_, result)| result).collect())
}

/// Calls `work` for the indices that no other thread has taken; returns each result with its index.
fn map_remaining<T>(
    next_index: &AtomicUsize,
    count: usize,
    work: &(dyn Fn(usize) -> Result<T> + Sync),
) -> Result<Vec<(usize, T)>> {
    let mut numbered = Vec::new();
    loop {
        let index = next_index.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return Ok(numbered);
        }
        match catch_panic(|| work(index)) {
            Ok(result) => numbered.push((index, result)),
            Err(fault) => {
                // Items behind a failure are not needed.
                next_index.store(count, Ordering::Relaxed);
                return Err(fault);
            }
        }
    }
}
