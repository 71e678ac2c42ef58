//! Looking at many files at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_model::{Fault, FileRange, Result, catch_panic};
use forebay_threads::run_on_all;

use super::blob::is_remote;

/// Maximum number of threads that inspect local files, and number of files for which a thread is
/// worth its start.
const LOCAL_THREADS: (usize, usize) = (16, 4);

/// Threads for objects: nearly all of the time is spent waiting for the store.
const REMOTE_THREADS: (usize, usize) = (64, 1);

/// An item that lies in some file.
pub(crate) trait InFile {
    /// Path or URL of the file.
    fn path(&self) -> &str;
}

impl InFile for &FileRange {
    fn path(&self) -> &str {
        &self.path
    }
}

/// Applies a function to each item on a few threads; results are in the order of the items. Faults
/// are reported together, up to a maximum number.
pub(crate) fn inspect_parallel<T: InFile + Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let is_remote = items.iter().any(|item| is_remote(item.path()));
    let (threads_max, per_thread) = if is_remote {
        REMOTE_THREADS
    } else {
        LOCAL_THREADS
    };
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
        Ok(())
    };
    let threads = threads_max.min(items.len().div_ceil(per_thread));
    // Each item has its own result.
    run_on_all(threads, &one_thread);
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
