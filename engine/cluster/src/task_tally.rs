//! The tasks of a worker, counted by how they ended.

use std::sync::{Mutex, PoisonError};

use forebay_model::Result;

use crate::protocol::TaskProgress;
use crate::task_control::TaskOutcome;

/// Counts the tasks of a worker process, for all coordinators.
#[derive(Debug, Default)]
pub struct TaskTally(Mutex<TaskCounts>);

/// What a worker has done. Rows and costs are those of ended tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TaskCounts {
    pub running: u64,
    pub done: u64,
    /// The worker leaves, and other workers get them.
    pub handed_back: u64,
    pub failed: u64,
    /// The coordinator no longer wants them.
    pub stopped: u64,
    pub rows: u64,
    pub bytes: u64,
    pub spilled_bytes: u64,
    pub cpu_seconds: f64,
}

impl TaskTally {
    /// The counts so far; `running` is for the worker to say.
    pub fn counts(&self) -> TaskCounts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many tasks are running.
    pub fn set_running(&self, running: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running = running as u64;
    }

    /// Counts a task that has ended.
    pub fn count(&self, ended: &Result<TaskOutcome>, progress: TaskProgress) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Ok(TaskOutcome::Done(_)) => counts.done += 1,
            Ok(TaskOutcome::HandedBack) => counts.handed_back += 1,
            Ok(TaskOutcome::Stopped) => counts.stopped += 1,
            Err(_) => counts.failed += 1,
        }
        counts.rows += progress.rows;
        counts.bytes += progress.bytes;
        counts.spilled_bytes += progress.spilled_bytes;
        counts.cpu_seconds += progress.cpu_seconds;
    }
}
