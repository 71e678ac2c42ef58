//! A compiled stage of a pass on a worker: planned and opened once, and shared by its tasks. It closes
//! after 60 s without a task.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_cluster::{
    MessageSink, RunSpec, ShufflePlan, StageRef, TaskControl, TaskKind, TaskMeter, TaskOutcome,
    WorkerMessage, with_heartbeat,
};
use forebay_commit::StateStore;
use forebay_execute::{IncrementalLane, LaneExecution, LearnPass};
use forebay_model::{ContentId, Fault, Pipeline, PipelineSource, Result, catch_panic, codes};
use forebay_plan::{
    AnalyzerLane, BaseDataset, BaseId, ColumnScan, GatherBy, GatherOp, OpId, OpStream, PassWork,
    PlanOp, WindowRowOrder, compile, needed_ops, ops_before_join, slice_for_columns,
};
use forebay_storage::ScratchDir;
use forebay_storage::failpoint::step;
use forebay_threads::{CountingSemaphore, for_current_span, with_span};
use rayon::ThreadPool;
use serde_json::Value;

use crate::degradation::{name_replaced, replace_findings};
use crate::executor::{GroupProgram, GroupStates, RunExecutor};
use crate::remote_run::{apply_findings, name_by_artifact};
use crate::session::Session;
use crate::worker_server::run_inputs::RunInputs;

/// Time for which a stage stays open without a task.
const IDLE: Duration = Duration::from_secs(60);

/// Identity of a stage session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StageKey {
    pub job: ContentId,
    /// Lanes of a pass share a stage session.
    pub work: StageRef,
    /// Order in which rows reach each window.
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    pub shuffles: Vec<ShufflePlan>,
}

/// A handle to a stage session.
pub(super) struct StageSession {
    to: Sender<QueuedTask>,
    open: Arc<AtomicBool>,
    lives: JoinHandle<()>,
}

/// Runs a task in an open stage session.
type RunTaskFn<'a> =
    &'a (dyn Fn(StageRef, &TaskKind, &dyn TaskControl) -> Result<TaskOutcome> + Sync);

/// A task, and where its outcome is reported.
pub(super) struct QueuedTask {
    work: StageRef,
    what: TaskKind,
    heard: TaskReporter,
    /// Dropped at the end.
    _ended: Sender<()>,
}

/// Reports the events of a task to the coordinator.
struct TaskReporter {
    out: MessageSink,
    leaves: Arc<dyn Fn() -> bool + Send + Sync>,
    beat: Duration,
    meter: Arc<TaskMeter>,
}

impl TaskControl for TaskReporter {
    fn cancel_flag(&self) -> &AtomicBool {
        self.out.cancel_flag()
    }

    fn is_draining(&self) -> bool {
        (self.leaves)()
    }

    fn report_unit(&self, first: usize, result: Value) -> Result<()> {
        if self.out.send(WorkerMessage::Part {
            first,
            made: result,
        }) {
            Ok(())
        } else {
            Err(Fault::new(
                codes::INTERRUPTED,
                "the coordinator no longer waits for this task",
            ))
        }
    }
}

impl QueuedTask {
    /// A task, and a receiver that disconnects when the task ends.
    pub fn new(
        work: StageRef,
        kind: TaskKind,
        out: MessageSink,
        leaves: Arc<dyn Fn() -> bool + Send + Sync>,
        beat: Duration,
    ) -> (QueuedTask, Receiver<()>) {
        let (_ended, ends) = channel();
        (
            QueuedTask {
                work,
                what: kind,
                heard: TaskReporter {
                    out,
                    leaves,
                    beat,
                    meter: Arc::default(),
                },
                _ended,
            },
            ends,
        )
    }

    /// Performs the task and reports its end; sends heartbeats meanwhile.
    fn perform(
        &self,
        perform: impl FnOnce(StageRef, &TaskKind, &dyn TaskControl) -> Result<TaskOutcome>,
        order_failure: impl FnOnce() -> Option<OpId>,
    ) {
        let TaskReporter {
            out, meter, beat, ..
        } = &self.heard;
        let work = || {
            step("take", "a task");
            perform(self.work, &self.what, &self.heard)
        };
        let ended = with_span(out.span(), || with_heartbeat(out, *beat, meter, work));
        out.send_outcome(ended, meter.progress(), order_failure);
    }
}

/// Threads and settings of the tasks of a stage.
pub(super) struct StageThreads {
    /// One thread per slot of the worker.
    pub pool: Arc<ThreadPool>,
    /// True if stored states are mapped, and so shared with the other processes of this machine.
    pub maps_states: bool,
}

impl StageSession {
    /// Opens a stage session on its own thread; tasks wait until it is set up.
    pub fn open(
        session: Session,
        run_spec: RunSpec,
        key: &StageKey,
        threads: StageThreads,
        inputs: impl FnOnce(&Session, &RunSpec) -> Result<RunInputs> + Send + 'static,
    ) -> Result<StageSession> {
        let (to, orders) = channel();
        let open = Arc::new(AtomicBool::new(true));
        let key = key.clone();
        let is_open = open.clone();
        let lives = std::thread::Builder::new()
            .name("forebay-stage".to_owned())
            .spawn(for_current_span(move || {
                let is_open = OpenFlag(is_open);
                // Waiting tasks are informed if the stage cannot be set up, even by a panic.
                let furnished = catch_panic(|| {
                    let inputs = inputs(&session, &run_spec)?;
                    run_stage(&session, &run_spec, &key, &inputs, &threads, &orders)
                });
                drop(is_open);
                let fault = furnished.err().unwrap_or_else(|| {
                    Fault::new(
                        codes::INTERRUPTED,
                        "a worker's stage closed while a task was submitted",
                    )
                });
                // Tasks that were submitted after the stage session ended, or that could not be run.
                for order in orders.try_iter() {
                    order.heard.out.send(WorkerMessage::Failed {
                        fault: Box::new((&fault).into()),
                        order_failure: None,
                    });
                }
            }))
            .map_err(Fault::refused_thread)?;
        Ok(StageSession { to, open, lives })
    }

    /// Refuses further tasks, and waits until all tasks are done and temporary files are removed.
    pub fn close(self) {
        drop(self.to);
        let _ = self.lives.join();
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Queues a task. False where the stage session has closed.
    pub fn submit(&self, order: QueuedTask) -> bool {
        self.to.send(order).is_ok()
    }
}

/// Marks a stage session as open until it is dropped, also by a panic.
struct OpenFlag(Arc<AtomicBool>);

impl Drop for OpenFlag {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Sets up a stage session, and runs tasks until none came for a while or the session is closed.
fn run_stage(
    session: &Session,
    run_spec: &RunSpec,
    key: &StageKey,
    inputs: &RunInputs,
    threads: &StageThreads,
    orders: &Receiver<QueuedTask>,
) -> Result<()> {
    let session = &session.carrying(run_spec.continues, &run_spec.held, &run_spec.numbering)?;
    let _models = session.load_models(run_spec)?;
    let scratch = ScratchDir::new(Some(&session.state()?), session.watch.clone())?;
    let mut run = compile_run(session, run_spec, &key.row_orders, inputs, scratch)?;
    let pass = run
        .program
        .passes
        .get(key.work.pass())
        .cloned()
        .ok_or_else(|| other("another program"))?;
    // The shuffle that this stage computes is the last one; the earlier ones are finished, and
    // their outputs are read.
    let shuffle = match key.work {
        StageRef::Sort { .. } | StageRef::Dedupe { .. } => key.shuffles.last(),
        _ => None,
    };
    open_stage_inputs(&mut run, key, &pass.work, shuffle, threads)?;
    let groups = match (&pass.work, key.work) {
        (PassWork::Gather(op), StageRef::Gather { .. }) => run.group_program(*op)?,
        _ => None,
    };
    let scans = stage_scans(&pass.work, groups.as_ref());
    let windows = run.program.windows_of(&scans);
    let serve = |perform: RunTaskFn<'_>| {
        // Pooled threads: a new thread per task would begin with fresh memory, a page fault for every 4 KiB of it.
        threads.pool.in_place_scope(|scope| {
            while let Ok(order) = orders.recv_timeout(IDLE) {
                scope.spawn(|_| {
                    let order = order;
                    order.perform(perform, || {
                        run.state
                            .order_failure
                            .lock()
                            .ok()?
                            .take()
                            .map(|(op, _)| op)
                    });
                });
            }
        });
    };
    match (&pass.work, key.work) {
        (PassWork::Learn(work), StageRef::Learn { .. }) => {
            serve_lanes(&run.learn_pass(&windows, None), &work.lanes, &serve);
            Ok(())
        }
        (PassWork::Gather(_), StageRef::Gather { .. }) => {
            let groups = groups.ok_or_else(|| other("another program"))?;
            let states = GroupStates::default();
            serve_lanes(
                &groups.learn_pass(&run, &states, None),
                groups.lanes(),
                &serve,
            );
            Ok(())
        }
        (PassWork::Gather(op), StageRef::Dedupe { .. }) => {
            let shuffle = shuffle.filter(|shuffle| shuffle.stand == *op);
            let shuffle = shuffle.ok_or_else(|| other("another program"))?;
            serve(&|_, kind, control| run.run_dedupe_task(shuffle, kind, control));
            Ok(())
        }
        (_, StageRef::Sort { .. }) => {
            let shuffle = shuffle.ok_or_else(|| other("another program"))?;
            serve(&|_, kind, control| run.run_shuffle_task(shuffle, kind, control));
            Ok(())
        }
        (PassWork::Write(work), StageRef::Write { .. }) => {
            let sink = session.sink(&run_spec.pipeline, work.sink)?;
            let out = session.output(&run_spec.pipeline, work.sink)?;
            let write = run.write_pass(sink.as_ref(), &windows, None);
            let prepared = write.prepare(work)?;
            let target = run.write_target(work, pass.id, sink.as_ref(), &out)?;
            write.serve_tasks(&work.scans, &prepared, &target, |perform| {
                serve(&|_, kind, control| perform(kind, control));
            })
        }
        _ => Err(other("another program")),
    }
}

/// The columns that a stage reads.
fn stage_scans(work: &PassWork, groups: Option<&GroupProgram>) -> Vec<ColumnScan> {
    match work {
        PassWork::Learn(work) => work
            .lanes
            .iter()
            .flat_map(|lane| lane.scans.clone())
            .collect(),
        PassWork::Write(work) => work.scans.clone(),
        PassWork::Gather(_) => groups.map(GroupProgram::scans).unwrap_or_default(),
    }
}

/// Operations and datasets of the rows that a stage reads.
#[derive(Default)]
struct StageInputs {
    ops: BTreeSet<OpId>,
    bases: BTreeSet<BaseId>,
}

impl StageInputs {
    fn of_scans(scans: &[ColumnScan]) -> StageInputs {
        StageInputs {
            ops: needed_ops(scans).collect(),
            bases: scans.iter().map(|scan| scan.base).collect(),
        }
    }

    fn of_shuffle(run: &RunExecutor<'_>, shuffle: &ShufflePlan) -> StageInputs {
        let mut inputs = StageInputs::default();
        for stream in shuffle_input_streams(run, shuffle) {
            inputs.ops.extend(stream.ops.iter().copied());
            inputs.bases.insert(stream.base);
        }
        inputs
    }

    /// Inputs of a gather that reads spans: the groups of an aggregate, or a `dedupe`.
    fn of_gather(run: &RunExecutor<'_>, op: OpId) -> StageInputs {
        let bound = &run.program.bound;
        let mut inputs = StageInputs::default();
        let PlanOp::Gather(GatherOp { lower, .. }) = &bound.ops[op].op else {
            return inputs;
        };
        for (_, flow) in bound.gather_inputs.get(&op).into_iter().flatten() {
            let mut columns: Vec<&str> = Vec::new();
            if let GatherBy::GroupBy(group_by) = lower {
                for position in group_by.read_columns(&flow.schema) {
                    columns.push(flow.schema.field(position).name());
                }
            } else {
                columns.extend(
                    flow.schema
                        .fields()
                        .iter()
                        .map(|field| field.name().as_str()),
                );
            }
            for stream in &flow.streams {
                let (needed, _) = slice_for_columns(bound, stream, &columns);
                let ops = needed.iter().map(|position| stream.ops[*position]);
                inputs.ops.extend(ops);
                inputs.bases.insert(stream.base);
            }
        }
        inputs
    }
}

/// Opens what a stage reads beside its sources: findings, intermediate datasets, finished shuffles, and joins in order
/// of time. `computed_shuffle` is the one that the stage computes: a stage that sorts reads its
/// inputs.
fn open_stage_inputs(
    run: &mut RunExecutor<'_>,
    key: &StageKey,
    work: &PassWork,
    computed_shuffle: Option<&ShufflePlan>,
    threads: &StageThreads,
) -> Result<()> {
    let StageInputs { ops, bases } = match (key.work, computed_shuffle, work) {
        (StageRef::Sort { .. }, Some(shuffle), _) => StageInputs::of_shuffle(run, shuffle),
        (_, _, PassWork::Gather(op)) => StageInputs::of_gather(run, *op),
        _ => StageInputs::of_scans(&stage_scans(work, None)),
    };
    load_dependencies(run, ops.clone(), bases, threads.maps_states)?;
    for shuffle in &key.shuffles {
        if Some(shuffle) != computed_shuffle {
            run.open_shuffle(shuffle)?;
        }
    }
    for op in &ops {
        run.open_time_join(*op)?;
    }
    Ok(())
}

/// Compiles the program of a run, and checks that it reads the same data as the coordinator.
pub(super) fn compile_run<'s>(
    session: &'s Session,
    run_spec: &'s RunSpec,
    row_orders: &[(OpId, WindowRowOrder)],
    inputs: &RunInputs,
    scratch: ScratchDir,
) -> Result<RunExecutor<'s>> {
    let applied = session.applied_artifact(run_spec)?;
    let mut prepared =
        session.prepare_with(&run_spec.pipeline, &run_spec.sinks, inputs.as_ref().clone())?;
    for (name, dataset) in &prepared.datasets {
        if run_spec.sources.get(name) != Some(&dataset.fingerprint()) {
            return Err(other_files(&run_spec.pipeline, name));
        }
    }
    let store = StateStore::new(session.io.clone(), session.state()?);
    if let Some(artifact) = &applied {
        name_by_artifact(&mut prepared.bound, artifact)?;
    }
    let reused = run_spec.reuses.as_ref().map(|reused| &reused.analyzers);
    let answers = session.reused_answers(run_spec, &prepared.bound)?;
    let reused = reused.zip(answers);
    if let Some((analyzers, answers)) = &reused {
        name_replaced(&mut prepared.bound, analyzers, answers)?;
    }
    let mut state = prepared.state;
    state.row_orders = row_orders.iter().copied().collect();
    let mut is_known = |ask, _| Ok(run_spec.known.contains(&ask));
    let mut program = compile(
        &run_spec.pipeline,
        prepared.bound,
        &prepared.datasets,
        &run_spec.sinks,
        run_spec.learns,
        &mut is_known,
    )?;
    if let Some(artifact) = &applied {
        apply_findings(&mut program, artifact, &mut state.findings)?;
    }
    if let Some((analyzers, answers)) = &reused {
        replace_findings(&mut program, analyzers, answers, &mut state.findings)?;
    }
    let intervals = session.restrict_to_interval(
        &run_spec.pipeline,
        &mut program,
        run_spec.interval.as_ref(),
        run_spec.rows_from.as_deref(),
    )?;
    let run = RunExecutor::new(session, &run_spec.pipeline, store, scratch, program, state);
    Ok(RunExecutor {
        intervals,
        on_worker: true,
        ..run
    })
}

pub(super) fn other(difference: &str) -> Fault {
    let fault = Fault::new(
        codes::SEES_OTHER_DATA,
        format!("the worker sees {difference} than the coordinator"),
    );
    fault.hint("give all of them the same files, at the same paths, and the same version")
}

/// The fault of a worker that sees other files of a source than the coordinator.
pub(super) fn other_files(pipeline: &Pipeline, source: &str) -> Fault {
    let fault = other(&format!("other files of `{source}`"));
    match pipeline.source(source).and_then(PipelineSource::path) {
        Some(path) => fault.file(path),
        None => fault,
    }
}

/// Runs tasks of the lanes of a learn pass.
fn serve_lanes(learn: &LearnPass<'_>, lanes: &[AnalyzerLane], serve: &dyn Fn(RunTaskFn<'_>)) {
    let turns = CountingSemaphore::new(learn.context.threads);
    let memory = learn.context.memory.states_bytes() / turns.count();
    let runs: Vec<OnceLock<LaneExecution<'_>>> = lanes.iter().map(|_| OnceLock::new()).collect();
    let partials: Vec<OnceLock<IncrementalLane<'_>>> =
        lanes.iter().map(|_| OnceLock::new()).collect();
    serve(&|work_of, kind, control| {
        let other_program = || other("another program");
        let lane = match work_of {
            StageRef::Learn { lane, .. } => lane,
            StageRef::Gather { .. } => 0,
            _ => return Err(other_program()),
        };
        let about = lanes.get(lane).ok_or_else(other_program)?;
        let run = get_or_init(&runs[lane], || learn.prepare(about, memory))?;
        let partials = get_or_init(&partials[lane], || {
            IncrementalLane::new(learn, run, &turns)?.ok_or_else(other_program)
        })?;
        partials.run_task(kind, control)
    });
}

/// A value that its first use makes. Two threads may make it at the same time; both get the value that is kept.
fn get_or_init<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if cell.get().is_none() {
        // What another thread has put there meanwhile is the same.
        let _ = cell.set(make()?);
    }
    cell.get()
        .ok_or_else(|| Fault::internal("a cell that was filled is empty"))
}

/// Streams of operations on the rows before they are sorted.
fn shuffle_input_streams(run: &RunExecutor<'_>, shuffle: &ShufflePlan) -> Vec<OpStream> {
    let bound = &run.program.bound;
    let flows = [
        bound.window_inputs.get(&shuffle.stand),
        bound.join_inputs.get(&shuffle.stand),
    ];
    flows
        .into_iter()
        .flatten()
        .flat_map(|flow| flow.streams.clone())
        .collect()
}

/// Loads findings and datasets of other tasks that operations need.
pub(super) fn load_dependencies(
    run: &mut RunExecutor<'_>,
    ops: BTreeSet<OpId>,
    bases: BTreeSet<BaseId>,
    mapped: bool,
) -> Result<()> {
    let bound = &run.program.bound;
    let joined = ops
        .iter()
        .filter(|op| run.state.row_orders.get(op) == Some(&WindowRowOrder::Time));
    let joined: Vec<OpId> = joined.flat_map(|op| ops_before_join(bound, *op)).collect();
    let ops: BTreeSet<OpId> = ops.into_iter().chain(joined).collect();
    let share = run
        .scratch
        .scratch_with_budget(run.session.memory(), run.session.memory().states_bytes());
    for ask in ops.iter().flat_map(|op| &bound.ops[*op].asks) {
        let state = run.program.state_ids[*ask];
        let analyzer = bound.asks[*ask].ask.analyzer.as_ref();
        if bound.asks[*ask].held.is_some() || run.state.findings.contains_key(&state) {
            continue;
        }
        if let Some(finding) = run.store.shared_finding(state, mapped)? {
            run.state.findings.insert(state, Arc::new(finding));
        } else {
            run.store
                .load_finding(state, analyzer, &share, &mut run.state.findings)?;
        }
    }
    let gathered = bases
        .into_iter()
        .filter_map(|base| match &bound.bases[base] {
            BaseDataset::Gathered(op) => Some(*op),
            BaseDataset::Source(_) => None,
        });
    for op in gathered.collect::<BTreeSet<_>>() {
        run.open_materialized(op)?;
    }
    Ok(())
}
