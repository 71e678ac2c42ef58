//! A counting semaphore.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// A fixed number of permits.
pub struct Turns {
    count: usize,
    free: Mutex<usize>,
    moved: Condvar,
}

/// One permit, returned when dropped.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// `count` permits, but at least one.
    pub fn new(count: usize) -> Turns {
        let count = count.max(1);
        Turns { count, free: Mutex::new(count), moved: Condvar::new() }
    }

    /// The number of permits.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits for a permit.
    pub fn take(&self) -> Turn<'_> {
        let none = |free: &mut usize| *free == 0;
        let mut free = self.moved.wait_while(self.free(), none).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Turn(self)
    }

    /// Ignores poisoning: a counter cannot be half-changed.
    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.moved.notify_one();
    }
}
