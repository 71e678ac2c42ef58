//! Locks, atomics, channels and threads: the standard library's, or those of the model checker.

#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread,
};

#[cfg(feature = "shuttle")]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread,
};
