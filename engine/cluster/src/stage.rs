//! Stages: tasks that workers run together, and what a caller that waits for them receives.

use std::time::Duration;

use arrow::buffer::Buffer;
use forebay_model::{Fault, Result, SeriesCounts, codes};
use forebay_plan::{OpId, WindowRowOrder};
use serde_json::Value;

use crate::protocol::{
    FeedSpec, RowsRequest, RunSpec, StageRef, TaskKind, TaskRequest, TrainRequest, TrainSpec,
    WorkerRequest,
};
use crate::scheduler::AttemptId;
use crate::shuffle_plan::ShufflePlan;

/// Settings that all tasks of a stage share.
#[derive(Debug, Clone)]
pub struct StageContext {
    pub job: RunSpec,
    pub work: StageRef,
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    pub shuffles: Vec<ShufflePlan>,
}

/// Task for a worker.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    /// Bytes, about.
    pub cost: u64,
    /// The task that has to be done before this one.
    pub after: Option<usize>,
    pub what: TaskKind,
}

/// The work that tasks belong to.
#[derive(Debug)]
pub enum StageSpec {
    Pass(Box<StageContext>),
    Feed(Box<FeedSpec>),
    Train(Box<TrainSpec>),
}

impl StageSpec {
    /// Request to a worker for one of the tasks.
    pub fn request(&self, kind: TaskKind, beat: Duration) -> Result<WorkerRequest> {
        let beat_ms = beat.as_millis() as u64;
        match (self, kind) {
            (StageSpec::Feed(spec), TaskKind::Read { dataset, block }) => {
                Ok(WorkerRequest::Rows(Box::new(RowsRequest {
                    job: spec.as_ref().clone(),
                    dataset,
                    block,
                    beat_ms,
                })))
            }
            (StageSpec::Feed(_), _) => Err(Fault::internal("the tasks of a feed read rows")),
            (StageSpec::Train(spec), TaskKind::Train { part }) => {
                Ok(WorkerRequest::Train(Box::new(TrainRequest {
                    job: spec.as_ref().clone(),
                    part,
                    beat_ms,
                })))
            }
            (StageSpec::Train(_), _) => Err(Fault::internal("the tasks of a training train")),
            (StageSpec::Pass(common), kind) => {
                let StageContext {
                    job: run_spec,
                    work,
                    row_orders,
                    shuffles,
                } = common.as_ref().clone();
                Ok(WorkerRequest::Task(Box::new(TaskRequest {
                    job: run_spec,
                    work,
                    row_orders,
                    shuffles,
                    what: kind,
                    beat_ms,
                })))
            }
        }
    }

    /// The pipeline, and the pass from 1, or 0 of a feed or a training.
    pub fn pipeline_and_pass(&self) -> (String, usize) {
        match self {
            StageSpec::Pass(common) => (common.job.pipeline.name.clone(), common.work.pass() + 1),
            StageSpec::Feed(spec) => (spec.pipeline.name.clone(), 0),
            StageSpec::Train(spec) => (spec.pipeline.clone(), 0),
        }
    }
}

/// Channel for the rows of tasks: the pieces of each attempt, in order.
pub type RowsSender = tokio::sync::mpsc::Sender<(AttemptId, Buffer)>;

/// Destination of the rows of an attempt.
pub struct AttemptRows {
    pub attempt: AttemptId,
    pub to: RowsSender,
}

/// Capacity of the channel of rows, in pieces.
pub const ROWS_AHEAD: usize = 2;

/// Events of tasks in progress.
pub enum TaskEvent {
    /// A part is committed; comes once for each.
    Part { first: usize, made: Value },
    /// A task is done.
    Done { task: usize, counts: SeriesCounts },
    /// Work moved on; counts are differences.
    Moved { rows: u64, bytes: u64, spilled: u64 },
}

/// Failure of the tasks of a stage.
pub struct StageFailure {
    pub fault: Fault,
    /// Window whose assumed row order was wrong.
    pub order_failure: Option<OpId>,
    /// The first task of a part that ends every worker.
    pub deadly: Option<usize>,
}

impl From<Fault> for StageFailure {
    fn from(fault: Fault) -> Self {
        StageFailure {
            fault,
            order_failure: None,
            deadly: None,
        }
    }
}

/// Updates for the caller that waits for tasks.
pub enum StageUpdate {
    Said(TaskEvent),
    Failed(StageFailure),
    AllDone,
}

/// Fault if no worker is reachable.
pub fn no_workers_fault(grace: Duration, refusal: Option<&str>) -> Fault {
    let fault = Fault::new(
        codes::NO_WORKERS,
        format!("no worker was there for {} s", grace.as_secs_f64()),
    );
    let fault = fault
        .hint("what is committed stays; start workers, and run the same command again to go on");
    match refusal {
        Some(refusal) => fault.note(refusal),
        None => fault,
    }
}
