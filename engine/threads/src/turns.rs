//! Turns: so many may do something at a time, the others wait.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Some turns, taken and given back.
pub struct Turns {
    count: usize,
    free: Mutex<usize>,
    moved: Condvar,
}

/// One of them, given back at its end.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// So many, but at least one.
    pub fn new(count: usize) -> Turns {
        let count = count.max(1);
        Turns { count, free: Mutex::new(count), moved: Condvar::new() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits for one.
    pub fn take(&self) -> Turn<'_> {
        let none = |free: &mut usize| *free == 0;
        let mut free = self.moved.wait_while(self.free(), none).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Turn(self)
    }

    /// A number is whole, even where a thread died while it held the lock.
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
