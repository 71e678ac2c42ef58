//! Reports trainings of runs to another system.

use std::sync::Arc;

use forebay_model::{Fault, Pipeline, Result, TraceContext};
use forebay_storage::{Event, EventListener, StorageClient};

use crate::report::RunReport;

/// Reports the trainings of a session's runs to another system, such as MLflow. A failed report is
/// a warning: no run fails.
pub trait TrainingTracker: Send + Sync {
    /// A run begins. `None` where none of its trainings is tracked.
    fn begin(&self, run: &TrackedRun<'_>) -> Option<Arc<dyn TrackedTrainings>>;
}

/// A run with trainings that begins.
pub struct TrackedRun<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// The name that the user gave to the run.
    pub run_id: Option<&'a str>,
    /// The way out.
    pub io: &'a StorageClient,
    /// Listener that receives warnings.
    pub watch: &'a Arc<dyn EventListener>,
}

/// The trainings of a run that are tracked.
pub trait TrackedTrainings: Send + Sync {
    /// Handles an event. Called from many threads; must not block.
    fn on_event(&self, event: &Event);

    /// Called when the run has ended. Returns when everything is reported.
    fn end(&self, ended: Result<&RunReport, &Fault>);
}

/// Passes on the events of a run, and reports its trainings.
pub(crate) struct TrackedEvents {
    pub inner: Arc<dyn EventListener>,
    pub trainings: Arc<dyn TrackedTrainings>,
}

impl EventListener for TrackedEvents {
    fn on_event(&self, event: Event) {
        self.trainings.on_event(&event);
        self.inner.on_event(event);
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        self.inner.task_context(task)
    }
}
