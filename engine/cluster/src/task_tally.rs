//! The tasks of a worker, counted by how they ended.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use forebay_model::{Result, TraceContext};

use crate::protocol::TaskProgress;
use crate::task_control::TaskOutcome;

/// Counts the tasks of a worker process, for all coordinators.
#[derive(Debug, Default)]
pub struct TaskTally {
    counts: Mutex<TaskCounts>,
    listener: OnceLock<Arc<dyn TaskListener>>,
}

/// Receives tasks that have ended. Handling one must not block.
pub trait TaskListener: std::fmt::Debug + Send + Sync {
    fn task_ended(&self, task: &EndedTask<'_>);
}

/// A task of a worker that has ended.
#[derive(Debug)]
pub struct EndedTask<'t> {
    /// The coordinator's span of it, where the coordinator traces.
    pub trace: Option<TraceContext>,
    /// The worker's span of it, in that.
    pub span: Option<TraceContext>,
    /// Kind of the task, such as `parts` or `merge`.
    pub kind: &'static str,
    /// Time at which the worker received it.
    pub began: SystemTime,
    pub ended: &'t Result<TaskOutcome>,
    pub progress: TaskProgress,
}

/// Counts of a worker's tasks. Rows and costs are those of ended tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TaskCounts {
    pub running: u64,
    pub done: u64,
    /// The worker leaves, and other workers get them.
    pub handed_back: u64,
    pub failed: u64,
    /// Tasks that the coordinator has cancelled.
    pub stopped: u64,
    pub rows: u64,
    pub bytes: u64,
    pub spilled_bytes: u64,
    pub cpu_seconds: f64,
}

impl TaskTally {
    /// Reports the tasks that end from now on to `listener`. Only the first listener counts.
    pub fn listen(&self, listener: Arc<dyn TaskListener>) {
        let _ = self.listener.set(listener);
    }

    /// Reports a task that has ended.
    pub fn tell(&self, task: &EndedTask<'_>) {
        if let Some(listener) = self.listener.get() {
            listener.task_ended(task);
        }
    }

    /// Counts so far, without `running`, which the worker sets.
    pub fn counts(&self) -> TaskCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many tasks are running.
    pub fn set_running(&self, running: usize) {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .running = running as u64;
    }

    /// Counts a task that has ended.
    pub fn count(&self, ended: &Result<TaskOutcome>, progress: TaskProgress) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
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
