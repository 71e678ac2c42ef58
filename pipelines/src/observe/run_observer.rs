//! The contract of observers of runs.

use std::sync::Arc;

use forebay_model::{Fault, Interval, Pipeline, Result, TraceContext};
use forebay_run::{RunReport, Session};
use forebay_storage::{Event, EventListener};

/// Inputs of an observer before a run begins.
pub(crate) struct ObservedSession<'a> {
    pub session: &'a Session,
    /// Listener for its own failure.
    pub watch: &'a Arc<dyn EventListener>,
    pub run_id: Option<&'a str>,
}

/// Observer of runs. Events come from many threads; handling them must not block.
pub(crate) trait RunObserver: Send + Sync {
    /// Begins the observation: the session exists, and requests can be sent.
    fn begin(&self, observed: &ObservedSession<'_>) -> Result<()>;

    /// A run of a pipeline begins.
    fn run_begins(&self, _pipeline: &Pipeline, _interval: Option<&Interval>) {}

    /// Handles an event.
    fn on_event(&self, _event: &Event) {}

    /// The span of a task that has started.
    fn task_context(&self, _task: u64) -> Option<TraceContext> {
        None
    }

    /// The run that has begun ended.
    fn run_ends(&self, _ended: Result<&RunReport, &Fault>) {}

    /// Sends waiting data at the end of the command.
    fn finish(&self) {}
}
