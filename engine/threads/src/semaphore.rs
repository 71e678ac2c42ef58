//! A counting semaphore. `rayon` limits the threads of a pool, and no part of the work on them.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// A fixed number of permits.
pub struct CountingSemaphore {
    count: usize,
    free: Mutex<usize>,
    moved: Condvar,
}

/// One permit, returned when dropped.
pub struct SemaphorePermit<'a>(&'a CountingSemaphore);

impl CountingSemaphore {
    /// `count` permits, but at least one.
    pub fn new(count: usize) -> CountingSemaphore {
        let count = count.max(1);
        CountingSemaphore {
            count,
            free: Mutex::new(count),
            moved: Condvar::new(),
        }
    }

    /// The number of permits.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits for a permit.
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        let mut free = self
            .moved
            .wait_while(self.lock_free(), |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        SemaphorePermit(self)
    }

    /// Ignores poisoning: a counter cannot be half-changed.
    fn lock_free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        *self.0.lock_free() += 1;
        self.0.moved.notify_one();
    }
}
