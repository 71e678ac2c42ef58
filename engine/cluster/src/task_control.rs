//! Reports and outcome of a task on a worker.

use std::sync::atomic::AtomicBool;

use forebay_model::{Result, SeriesCounts};
use serde_json::Value;

/// Outcome of a worker's task.
#[derive(Debug)]
pub enum TaskOutcome {
    /// Everything is committed. Holds the counts of the windows: gaps up to the last span, and
    /// duplicates of a shuffle.
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
    /// True if the worker is draining.
    fn is_draining(&self) -> bool;
    /// Reports a committed unit.
    fn report_unit(&self, first: usize, results: Value) -> Result<()>;
}
