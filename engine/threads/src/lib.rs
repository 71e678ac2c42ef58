//! Synchronization between threads. Every wait here ends when the awaited thread ends, however it ends: a panic becomes
//! a fault, a fault stops the others, and guards notify the waiting threads.
//!
//! With the feature `shuttle`, [`sync`] is that of a model checker, which runs this code in thousands of schedules
//! (`tests/model.rs`).

mod flush_pool;
mod hand_off;
mod ordered_appender;
mod parallel;
mod quiet;
mod semaphore;
mod span_scope;
mod start;
pub mod sync;
mod work_sharing;

pub use flush_pool::{FlushFn, FlushPool, OnComplete};
pub use hand_off::HandOff;
pub use ordered_appender::OrderedAppender;
pub use parallel::{join_thread, lock, parallel_map, poisoned_lock, run_on_all};
pub use quiet::with_quiet_panics;
pub use semaphore::{CountingSemaphore, SemaphorePermit};
pub use span_scope::{current_span, for_current_span, with_span};
pub use start::{start_scoped, start_thread};
pub use work_sharing::{
    OpenChunks, PieceExecutor, PieceFn, PrefetchReader, ReadTypes, WorkSharingPool,
};
