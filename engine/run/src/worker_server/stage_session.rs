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
use forebay_model::{ContentId, Fault, Result, catch_panic, codes};
use forebay_plan::{
    AnalyzerLane, BaseDataset, BaseId, ColumnScan, OpId, OpStream, PassWork, WindowRowOrder,
    compile, needed_ops, ops_before_join,
};
use forebay_storage::ScratchDir;
use forebay_storage::failpoint::step;
use forebay_threads::{CountingSemaphore, for_current_span, with_span};
use rayon::ThreadPool;
use serde_json::Value;

use crate::executor::{GroupProgram, GroupStates, RunExecutor};
use crate::remote_run::{apply_findings, name_by_artifact};
use crate::session::Session;
use crate::worker_server::RunInputs;

/// How long a stage stays open without a task.
const IDLE: Duration = Duration::from_secs(60);

/// Identity of a stage session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StageKey {
    pub job: ContentId,
    /// Lanes of a pass share a stage session.
    pub work: StageRef,
    /// How rows reach each window.
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

    fn report_unit(&self, first: usize, made: Value) -> Result<()> {
        match self.out.send(WorkerMessage::Part { first, made }) {
            true => Ok(()),
            false => Err(Fault::new(
                codes::INTERRUPTED,
                "the coordinator no longer waits for this task",
            )),
        }
    }
}

impl QueuedTask {
    /// A task, and a receiver that disconnects when the task ends.
    pub fn new(
        work: StageRef,
        what: TaskKind,
        out: MessageSink,
        leaves: Arc<dyn Fn() -> bool + Send + Sync>,
        beat: Duration,
    ) -> (QueuedTask, Receiver<()>) {
        let (_ended, ends) = channel();
        (
            QueuedTask {
                work,
                what,
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

    /// Does it, and says so; says every now and then that it is alive.
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

/// What the tasks of a stage run on.
pub(super) struct StageThreads {
    /// One thread per slot of the worker.
    pub pool: Arc<ThreadPool>,
    /// Whether stored states are mapped, and so shared with the other processes of this machine.
    pub maps_states: bool,
}

impl StageSession {
    /// Opens a stage session on its own thread; tasks wait until it is set up.
    pub fn open(
        session: Session,
        job: RunSpec,
        key: &StageKey,
        threads: StageThreads,
        inputs: impl FnOnce(&Session, &RunSpec) -> Result<RunInputs> + Send + 'static,
    ) -> Result<StageSession> {
        let (to, orders) = channel();
        let open = Arc::new(AtomicBool::new(true));
        let (key, is_open) = (key.clone(), open.clone());
        let lives = std::thread::Builder::new()
            .name("forebay-stage".to_owned())
            .spawn(for_current_span(move || {
                let is_open = OpenFlag(is_open);
                // Waiting tasks are told if the stage cannot be set up, also where that panics.
                let furnished = catch_panic(|| {
                    let inputs = inputs(&session, &job)?;
                    run_stage(&session, &job, &key, &inputs, &threads, &orders)
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
            .map_err(|error| {
                Fault::new(codes::STORAGE, "a thread cannot be started").cause(error)
            })?;
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
    job: &RunSpec,
    key: &StageKey,
    inputs: &RunInputs,
    threads: &StageThreads,
    orders: &Receiver<QueuedTask>,
) -> Result<()> {
    let session = &session.carrying(job.continues, &job.held, &job.numbering)?;
    let _models = session.load_models(job)?;
    let scratch = ScratchDir::new(Some(&session.state()?), session.watch.clone())?;
    let mut run = compile_run(session, job, &key.row_orders, inputs, scratch)?;
    let pass = run
        .program
        .passes
        .get(key.work.pass())
        .cloned()
        .ok_or_else(|| other("another program"))?;
    let groups = match (&pass.work, key.work) {
        (PassWork::Gather(op), StageRef::Gather { .. }) => run.group_program(*op)?,
        _ => None,
    };
    let scans: Vec<ColumnScan> = match &pass.work {
        PassWork::Learn(work) => work
            .lanes
            .iter()
            .flat_map(|lane| lane.scans.clone())
            .collect(),
        PassWork::Write(work) => work.scans.clone(),
        PassWork::Gather(_) => groups.as_ref().map(GroupProgram::scans).unwrap_or_default(),
    };
    let sorts = match key.work {
        StageRef::Sort { .. } => key.shuffles.last(),
        _ => None,
    };
    let mut ops: BTreeSet<OpId> = needed_ops(&scans).collect();
    match sorts {
        None => load_dependencies(
            &mut run,
            ops.clone(),
            scans.iter().map(|scan| scan.base).collect(),
            threads.maps_states,
        )?,
        Some(shuffle) => {
            let streams = shuffle_input_streams(&run, shuffle);
            ops = streams
                .iter()
                .flat_map(|stream| stream.ops.iter().copied())
                .collect();
            load_dependencies(
                &mut run,
                ops.clone(),
                streams.iter().map(|stream| stream.base).collect(),
                threads.maps_states,
            )?;
        }
    }
    let sorted = key
        .shuffles
        .iter()
        .filter(|shuffle| Some(*shuffle) != sorts);
    sorted
        .clone()
        .try_for_each(|shuffle| run.open_shuffle(shuffle))?;
    ops.iter().try_for_each(|op| run.open_time_join(*op))?;
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
        (_, StageRef::Sort { .. }) => {
            let shuffle = sorts.ok_or_else(|| other("another program"))?;
            serve(&|_, what, control| run.run_shuffle_task(shuffle, what, control));
            Ok(())
        }
        (PassWork::Write(work), StageRef::Write { .. }) => {
            let sink = session.sink(&job.pipeline, work.sink)?;
            let out = session.output(&job.pipeline, work.sink)?;
            let write = run.write_pass(sink.as_ref(), &windows, None);
            let prepared = write.prepare(work)?;
            let target = run.write_target(work, pass.id, sink.as_ref(), &out)?;
            write.serve_tasks(&work.scans, &prepared, &target, |perform| {
                serve(&|_, what, control| perform(what, control));
            })
        }
        _ => Err(other("another program")),
    }
}

/// Compiles the program of a run, and makes sure that it reads what the coordinator reads.
pub(super) fn compile_run<'s>(
    session: &'s Session,
    job: &'s RunSpec,
    row_orders: &[(OpId, WindowRowOrder)],
    inputs: &RunInputs,
    scratch: ScratchDir,
) -> Result<RunExecutor<'s>> {
    let applied = session.applied_artifact(job)?;
    let mut prepared = session.prepare_with(&job.pipeline, &job.sinks, inputs.as_ref().clone())?;
    for (name, dataset) in &prepared.datasets {
        if job.sources.get(name) != Some(&dataset.fingerprint()) {
            return Err(other(&format!("other files of `{name}`")));
        }
    }
    let store = StateStore::new(session.io.clone(), session.state()?);
    if let Some(artifact) = &applied {
        name_by_artifact(&mut prepared.bound, artifact)?;
    }
    let mut state = prepared.state;
    state.row_orders = row_orders.iter().copied().collect();
    let mut is_known = |ask, _| Ok(job.known.contains(&ask));
    let mut program = compile(
        &job.pipeline,
        prepared.bound,
        &prepared.datasets,
        &job.sinks,
        job.learns,
        &mut is_known,
    )?;
    if let Some(artifact) = &applied {
        apply_findings(&mut program, &job.pipeline, artifact, &mut state.findings)?;
    }
    let intervals =
        session.restrict_to_interval(&job.pipeline, &mut program, job.interval.as_ref())?;
    let run = RunExecutor::new(session, &job.pipeline, store, scratch, program, state);
    Ok(RunExecutor {
        intervals,
        on_worker: true,
        ..run
    })
}

pub(super) fn other(what: &str) -> Fault {
    let fault = Fault::new(
        codes::SEES_OTHER_DATA,
        format!("the worker sees {what} than the coordinator"),
    );
    fault.hint("give all of them the same files, at the same paths, and the same version")
}

/// Runs tasks of the lanes of a learn pass.
fn serve_lanes(learn: &LearnPass<'_>, lanes: &[AnalyzerLane], serve: &dyn Fn(RunTaskFn<'_>)) {
    let turns = CountingSemaphore::new(learn.context.threads);
    let memory = learn.context.memory.states_bytes() / turns.count();
    let runs: Vec<OnceLock<LaneExecution<'_>>> = lanes.iter().map(|_| OnceLock::new()).collect();
    let partials: Vec<OnceLock<IncrementalLane<'_>>> =
        lanes.iter().map(|_| OnceLock::new()).collect();
    serve(&|work_of, what, control| {
        let strange = || other("another program");
        let lane = match work_of {
            StageRef::Learn { lane, .. } => lane,
            StageRef::Gather { .. } => 0,
            _ => return Err(strange()),
        };
        let about = lanes.get(lane).ok_or_else(strange)?;
        let run = get_or_init(&runs[lane], || learn.prepare(about, memory))?;
        let partials = get_or_init(&partials[lane], || {
            IncrementalLane::new(learn, run, &turns)?.ok_or_else(strange)
        })?;
        partials.run_task(what, control)
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

/// What rows go through before they are sorted.
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

/// Reads back what operations need that others have learned or gathered.
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
        let (state, analyzer) = (
            run.program.state_ids[*ask],
            bound.asks[*ask].ask.analyzer.as_ref(),
        );
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
