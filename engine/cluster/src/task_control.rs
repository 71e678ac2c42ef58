//! What a task on a worker reports, and how it ends.

use std::sync::atomic::AtomicBool;

use forebay_model::Result;
use serde_json::Value;

/// How a worker's task ended.
#[derive(Debug)]
pub enum TaskOutcome {
    /// Everything is committed. Holds the number of steps that were not of the declared period, up to the last span.
    Done(u64),
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
