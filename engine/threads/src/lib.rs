//! Synchronization between threads. Every wait here ends when the awaited thread ends, however it ends: a panic becomes
//! a fault, a fault stops the others, and guards notify the waiting threads.
//!
//! With the feature `shuttle`, [`sync`] is that of a model checker, which runs this code in thousands of schedules
//! (`tests/model.rs`).

mod finishers;
mod hand_off;
mod helpers;
mod in_order;
mod side_by_side;
pub mod sync;
mod turns;

pub use finishers::{FlushFn, FlushPool, OnComplete};
pub use hand_off::HandOff;
pub use helpers::{OpenChunks, PieceExecutor, PieceFn, PrefetchReader, ReadTypes, WorkSharingPool};
pub use in_order::OrderedAppender;
pub use side_by_side::{join_thread, lock, parallel_map, poisoned_lock, run_on_all};
pub use turns::{CountingSemaphore, SemaphorePermit};
