//! What a task on a worker reports, and how it ends.

use std::sync::atomic::AtomicBool;

use forebay_model::{Result, SeriesCounts};
use serde_json::Value;

/// How a worker's task ended.
#[derive(Debug)]
pub enum TaskOutcome {
    /// Everything is committed. Holds what windows counted: gaps up to the last span, and duplicates of a shuffle.
    Done(SeriesCounts),
    /// The worker is draining, and some units are not done.
    HandedBack,
    /// The coordinator cancelled the task.
    Stopped,
}

/// The control interface of a worker's task.
pub trait TaskControl: Sync {
    /// Set once the coordinator has cancelled the task.
    fn cancel_flag(&self) -> &AtomicBool;
    /// Whether the worker is draining.
    fn is_draining(&self) -> bool;
    /// Reports a committed unit.
    fn report_unit(&self, first: usize, made: Value) -> Result<()>;
}
