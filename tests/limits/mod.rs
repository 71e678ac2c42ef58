//! Limits of memory, threads and the system, and work that grows with the data alone.

mod many_columns;
pub mod memory;
mod panics;
mod threads_and_stacks;
