//! The order in which rows reach windows: by time, by keys, or sorted. A window whose rows turn out
//! to come in another order falls back to the next one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_cluster::{ShufflePlan, StageRef, TaskControl, TaskKind, TaskOutcome};
use forebay_execute::{
    ShuffleReader, ShuffleStage, SortedOutputs, SortedPass, TimeJoin, TimeJoinSetup,
};
use forebay_model::{ContentId, Fault, FaultCode, Result, SeriesCounts, codes};
use forebay_plan::{
    BoundPipeline, NodeFlow, OpId, PlanOp, SharedSort, WindowRowOrder, choose_row_order,
    find_shared_sort, slice_for_columns,
};
use forebay_storage::Event;
use forebay_threads::poisoned_lock;

use super::RunExecutor;

/// The cancel flag of sorts that only the run's own cancellation stops.
static NEVER: AtomicBool = AtomicBool::new(false);

/// The outputs of windows over sorted rows.
struct SortedWindows {
    /// Outputs of each window, in the order of the windows.
    outputs: Vec<Arc<dyn SortedOutputs>>,
    /// The shuffle that made them, where workers did.
    shuffle: Option<ShufflePlan>,
}

impl RunExecutor<'_> {
    /// Runs work that reads rows through `windows`. When the rows of a window come in another order than was chosen
    /// for it, or its state outgrows the memory, the window falls back to another row order and the work runs again.
    pub(super) fn retry_with_fallback<T>(
        &mut self,
        windows: &BTreeSet<OpId>,
        work: impl Fn(&Self) -> Result<T>,
    ) -> Result<T> {
        loop {
            for op in windows {
                self.resolve_row_order(*op, windows)?;
            }
            let done = work(self);
            let order_failure = self
                .state
                .order_failure
                .lock()
                .map_err(|_| poisoned_lock())?
                .take();
            match (done, order_failure) {
                (Err(_), Some((op, code)))
                    if self.state.row_order(op) != WindowRowOrder::Sorted =>
                {
                    self.fall_back(op, windows, code)
                }
                (done, _) => return done,
            }
        }
    }

    pub(super) fn choose_row_order(&self, op: OpId) -> WindowRowOrder {
        let dataset = |base| {
            self.state
                .input(&self.program, base)
                .ok()
                .map(|input| input.dataset.as_ref())
        };
        choose_row_order(&self.program.bound, op, &dataset).row_order
    }

    /// The row order that was chosen for a window, or would be.
    pub(super) fn row_order_of(&self, op: OpId) -> WindowRowOrder {
        self.state
            .row_orders
            .get(&op)
            .copied()
            .unwrap_or_else(|| self.choose_row_order(op))
    }

    /// Chooses the row order of a window and sorts its rows where they have to be sorted: once for all of `windows`
    /// that can share the sort.
    fn resolve_row_order(&mut self, op: OpId, windows: &BTreeSet<OpId>) -> Result<()> {
        let row_order = self.row_order_of(op);
        self.state.row_orders.insert(op, row_order);
        if row_order != WindowRowOrder::Sorted {
            return self.open_time_join(op);
        }
        if self.state.sorted.contains_key(&op) {
            return Ok(());
        }
        let others = windows
            .iter()
            .filter(|op| self.row_order_of(**op) == WindowRowOrder::Sorted)
            .copied()
            .collect();
        let shared = find_shared_sort(&self.program.bound, op, &others);
        let upstream = upstream_windows(&self.program.bound, &shared.windows);
        let sorted =
            self.retry_with_fallback(&upstream, |run| run.sort_windows(&shared, &upstream))?;
        for (op, outputs) in shared.windows.into_iter().zip(sorted.outputs) {
            self.state.row_orders.insert(op, WindowRowOrder::Sorted);
            self.state.sorted.insert(op, outputs);
        }
        self.state.shuffles.extend(sorted.shuffle);
        Ok(())
    }

    /// Opens an as-of join whose sides come in order of time.
    pub fn open_time_join(&mut self, op: OpId) -> Result<()> {
        let is_join = matches!(self.program.bound.ops[op].op, PlanOp::Join(_));
        let in_time_order = self.state.row_orders.get(&op) == Some(&WindowRowOrder::Time);
        if is_join && in_time_order && !self.state.sorted.contains_key(&op) {
            let gather = self.materialize_pass();
            let pipeline = self.pipeline;
            let store = &self.store;
            let join = TimeJoin::open(&TimeJoinSetup {
                gather,
                pipeline,
                store,
                op,
            })?;
            self.state.sorted.insert(op, join);
        }
        Ok(())
    }

    /// The states that as-of joins in order of time keep for the next run.
    pub(super) fn kept_join_states(&self, windows: &BTreeSet<OpId>) -> Result<BTreeSet<ContentId>> {
        let mut state_ids = BTreeSet::new();
        for op in windows {
            if let Some(outputs) = self.state.sorted.get(op) {
                state_ids.extend(outputs.kept_state()?);
            }
        }
        Ok(state_ids)
    }

    /// Sorts the rows of windows and evaluates the windows: on workers by a shuffle, else in this process.
    fn sort_windows(
        &self,
        shared: &SharedSort,
        upstream: &BTreeSet<OpId>,
    ) -> Result<SortedWindows> {
        let pass = self.sort_pass(&NEVER, false);
        let Some(cluster) = self.cluster_for(self.pass_index, upstream) else {
            let mut outputs: Vec<Arc<dyn SortedOutputs>> = Vec::new();
            for file in pass.run(shared)? {
                outputs.push(Arc::new(file));
            }
            return Ok(SortedWindows {
                outputs,
                shuffle: None,
            });
        };
        let stage = StageRef::Sort {
            pass: self.pass_index,
            stand: shared.stand,
        };
        let shuffle = cluster
            .executor(stage, self.session.watch.as_ref())
            .shuffle(&pass, shared)?;
        let readers = ShuffleReader::open_all(&pass, &self.store, &shuffle)?;
        let mut outputs: Vec<Arc<dyn SortedOutputs>> = Vec::new();
        for reader in readers {
            outputs.push(Arc::new(reader));
        }
        Ok(SortedWindows {
            outputs,
            shuffle: Some(shuffle),
        })
    }

    /// Opens the outputs of a shuffle, for the passes that read them.
    pub fn open_shuffle(&mut self, shuffle: &ShufflePlan) -> Result<()> {
        let readers =
            ShuffleReader::open_all(&self.sort_pass(&NEVER, false), &self.store, shuffle)?;
        for (op, outputs) in shuffle.windows.iter().zip(readers) {
            self.state.sorted.insert(*op, Arc::new(outputs));
        }
        Ok(())
    }

    /// Runs one task of a shuffle, on a worker.
    pub fn run_shuffle_task(
        &self,
        shuffle: &ShufflePlan,
        task: &TaskKind,
        control: &dyn TaskControl,
    ) -> Result<TaskOutcome> {
        if control.is_draining() {
            return Ok(TaskOutcome::HandedBack);
        }
        let pass = self.sort_pass(control.cancel_flag(), true);
        let stage = ShuffleStage {
            plan: shuffle,
            pass: &pass,
            store: &self.store,
        };
        let counts = match task {
            TaskKind::Divide { side, run } => {
                let partitioned = stage.partition(*side, *run);
                partitioned.map(|()| SeriesCounts::default())
            }
            TaskKind::Compute { part } => stage.reduce(*part),
            _ => Err(Fault::internal(
                "a task of a shuffle that neither divides nor computes",
            )),
        };
        if control.cancel_flag().load(Ordering::Relaxed) {
            Ok(TaskOutcome::Stopped)
        } else {
            counts.map(TaskOutcome::Done)
        }
    }

    fn sort_pass<'r>(&'r self, stop: &'r AtomicBool, keeps_rows: bool) -> SortedPass<'r> {
        SortedPass {
            gather: self.materialize_pass(),
            keeps_rows,
            stop,
        }
    }

    /// Chooses the next attempt after the failure of a window. With one thread, windows have all of
    /// the memory; rows may come in order of keys; and rows can always be sorted. Windows over the
    /// same series change at the same time.
    fn fall_back(&mut self, failed: OpId, windows: &BTreeSet<OpId>, code: FaultCode) {
        let ops = &self.program.bound.ops;
        if matches!(ops[failed].op, PlanOp::Join(_)) {
            let is_unordered = code == codes::OUT_OF_ORDER;
            let why = if is_unordered {
                "rows come in no order"
            } else {
                "the last rows of keys outgrow the memory"
            };
            let message = format!("`{}`: {why}, so they are sorted first", ops[failed].label);
            self.session.watch.on_event(Event::Warning { message });
            self.state.sorted.remove(&failed);
            self.state
                .out_of_order
                .extend(is_unordered.then_some(failed));
            self.state.row_orders.insert(failed, WindowRowOrder::Sorted);
            return;
        }
        let series = |op: OpId| match &ops[op].op {
            PlanOp::Window(window) => Some((&window.time, &window.keys, self.state.row_order(op))),
            _ => None,
        };
        let affected = windows
            .iter()
            .filter(|op| **op == failed || series(**op) == series(failed));
        let affected: Vec<OpId> = affected.copied().collect();
        let labels: BTreeSet<String> = affected
            .iter()
            .map(|op| format!("`{}`", ops[*op].label))
            .collect();
        let labels = labels.into_iter().collect::<Vec<_>>().join(", ");
        let warn = |consequence: &str| {
            self.session.watch.on_event(Event::Warning {
                message: format!("{labels}: {consequence}"),
            })
        };
        if code == codes::OUT_OF_ORDER && self.state.row_order(failed) == WindowRowOrder::Time {
            self.state
                .row_orders
                .extend(affected.into_iter().map(|op| (op, WindowRowOrder::Key)));
            return;
        }
        if code == codes::MEMORY && self.threads(windows) > 1 {
            warn(
                "series outgrow a thread's share of the memory, \
                 so one thread goes on with all of it",
            );
            self.state.single_threaded.extend(affected);
            return;
        }
        let why = if code == codes::OUT_OF_ORDER {
            "rows come in no order"
        } else {
            "series outgrow the memory"
        };
        warn(&format!("{why}, so they are sorted first"));
        self.state
            .row_orders
            .extend(affected.into_iter().map(|op| (op, WindowRowOrder::Sorted)));
    }
}

/// The windows whose outputs other windows read, upstream first.
fn upstream_windows(bound: &BoundPipeline, windows: &[OpId]) -> BTreeSet<OpId> {
    let mut upstream = BTreeSet::new();
    for op in windows {
        let input = bound.window_inputs.get(op);
        let other_side = bound.join_inputs.get(op);
        match &bound.ops[*op].op {
            PlanOp::Window(window) => {
                upstream.extend(
                    input
                        .map(|flow| windows_behind(bound, flow, window.columns()))
                        .unwrap_or_default(),
                );
            }
            PlanOp::Series(series) => {
                upstream.extend(
                    input
                        .map(|flow| windows_behind(bound, flow, series.columns()))
                        .unwrap_or_default(),
                );
            }
            PlanOp::Join(join) => {
                upstream.extend(
                    input
                        .map(|flow| windows_behind(bound, flow, join.columns_here()))
                        .unwrap_or_default(),
                );
                upstream.extend(
                    other_side
                        .map(|flow| windows_behind(bound, flow, join.columns_there()))
                        .unwrap_or_default(),
                );
            }
            _ => {}
        }
    }
    upstream
}

/// The windows whose outputs some columns of a flow need, upstream first. Windows of other columns may need statistics
/// of a later level.
pub(super) fn windows_behind<'a>(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    columns: impl IntoIterator<Item = &'a String>,
) -> BTreeSet<OpId> {
    let columns: Vec<&str> = columns.into_iter().map(String::as_str).collect();
    let needed = flow.streams.iter().flat_map(|stream| {
        let (positions, _) = slice_for_columns(bound, stream, &columns);
        positions.into_iter().map(|position| stream.ops[position])
    });
    needed
        .filter(|op| bound.ops[*op].op.is_over_series())
        .collect()
}
