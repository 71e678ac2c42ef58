//! Looking at many files at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_model::{Fault, Result, catch_panic};

/// Threads that look at files: most of their time is spent waiting for storage.
const THREADS_MAX: usize = 16;

/// Does something with each item on a few threads; results come in the items' order. All
/// faults are reported together, up to a point.
pub(crate) fn inspect_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<R>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let one_thread = || {
        while let Some((item, slot)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            items.get(i).zip(results.get(i))
        } {
            let result = catch_panic(|| work(item));
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS_MAX.min(items.len().div_ceil(4)) {
            scope.spawn(one_thread);
        }
        one_thread();
    });
    let mut done = Vec::with_capacity(items.len());
    let mut faults = Vec::new();
    for slot in results {
        match slot.into_inner().ok().flatten() {
            Some(Ok(result)) => done.push(result),
            Some(Err(fault)) => faults.push(fault),
            None => faults.push(Fault::internal("a thread that looked at files has failed")),
        }
    }
    match Fault::combine(faults) {
        Some(fault) => Err(fault),
        None => Ok(done),
    }
}
