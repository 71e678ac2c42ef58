//! Everything that prints: faults, explanations, progress.

pub mod explain;
pub mod fault;
pub mod progress;
pub mod units;
