//! The cluster that runs a pass, and the executor of a stage on its workers.

use forebay_cluster::{
    Cluster, RunSpec, StageContext, StageFailure, StageRef, TaskEvent, TaskSpec,
};
use forebay_commit::StateStore;
use forebay_model::Result;
use forebay_storage::{CancellationToken, Event, EventListener};

use crate::run_state::RunState;

/// Runs the work units of a pass on workers.
pub struct RemoteExecutor<'a> {
    pub cluster: &'a Cluster,
    pub run_spec: &'a RunSpec,
    pub work: StageRef,
    /// The share of the spans' stored bytes that is read.
    pub share: f64,
    pub watch: &'a dyn EventListener,
    pub interrupt: &'a CancellationToken,
}

impl RemoteExecutor<'_> {
    /// Context that workers need for all tasks of the stage.
    pub fn stage_context(&self, run_state: &RunState) -> StageContext {
        let row_orders = run_state
            .row_orders
            .iter()
            .map(|(op, row_order)| (*op, *row_order))
            .collect();
        StageContext {
            job: self.run_spec.clone(),
            work: self.work,
            row_orders,
            shuffles: run_state.shuffles.clone(),
        }
    }

    /// Runs tasks on workers and reports their progress. Records the window whose row order was wrong, if one failed.
    pub fn run_tasks(
        &self,
        common: &StageContext,
        tasks: Vec<TaskSpec>,
        run_state: &RunState,
        hear: &mut dyn FnMut(TaskEvent) -> Result<()>,
    ) -> Result<(), StageFailure> {
        let done = self
            .cluster
            .run_stage_tasks(common, tasks, self.interrupt, &mut |event| {
                if let TaskEvent::Moved {
                    rows,
                    bytes,
                    spilled,
                } = event
                {
                    self.watch.on_event(Event::Progress { rows, bytes });
                    if spilled > 0 {
                        self.watch.on_event(Event::Spilled { bytes: spilled });
                    }
                }
                hear(event)
            });
        done.inspect_err(|failure| {
            if let (Some(op), Ok(mut order_failure)) =
                (failure.order_failure, run_state.order_failure.lock())
            {
                order_failure.get_or_insert((op, failure.fault.code()));
            }
        })
    }
}

/// The cluster that runs a pass.
#[derive(Clone, Copy)]
pub struct ClusterHandle<'a> {
    pub cluster: &'a Cluster,
    pub run_spec: &'a RunSpec,
    /// The pass's position in the program.
    pub pass: usize,
    pub store: &'a StateStore,
    pub interrupt: &'a CancellationToken,
}

impl<'a> ClusterHandle<'a> {
    /// An executor for a stage of the pass.
    pub fn executor(self, work: StageRef, listener: &'a dyn EventListener) -> RemoteExecutor<'a> {
        RemoteExecutor {
            cluster: self.cluster,
            run_spec: self.run_spec,
            work,
            share: 1.0,
            watch: listener,
            interrupt: self.interrupt,
        }
    }
}
