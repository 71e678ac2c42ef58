//! The drive loop: the passes of a program in order, each with what earlier ones and earlier runs
//! left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use forebay_cluster::{RunSpec, ShufflePlan, StageRef, TaskControl, TaskKind, TaskOutcome};
use forebay_commit::{
    Artifact, ArtifactFiles, DegradationReport, IntervalEntry, LearnedFinding, Manifest, OutputWriter, ReuseDecision,
    Shard, StateStore, id_texts, record_is_intact, shard_directory, visible_location,
};
use forebay_execute::{
    ClusterHandle, FusedCoverage, FusedLearnFn, IntervalFilter, LearnPass, LearnResult, MaterializePass, RunState,
    ShuffleReader, ShuffleStage, SortedOutputs, SortedPass, SourceInput, WritePass, WriteResult, WriteTarget,
};
use forebay_model::{
    ContentId, Dataset, Fault, FaultCode, Finding, IdBuilder, Interval, Pipeline, PipelineSink, Result, Span, codes,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, ColumnOrigin, ColumnScan, FutureSeries, GatherBy, GatherOp, LearnWork, NodeFlow, OpId,
    Pass, PassReuse, PassWork, PlanOp, Program, RowCounts, SharedSort, SinkWork, WindowRowOrder, choose_row_order,
    config_without_path, find_shared_sort, needed_ops, operation_id, origins, part_name, slice_for_columns,
};
use forebay_storage::{BackgroundTask, BackgroundTasks, Event, ScratchDir, Sink, StorageLocation, literal_path};
use forebay_threads::{lock, poisoned_lock};
use forebay_window::WindowReach;
use serde::Serialize;
use serde_json::{Value, json};

use crate::backfill::BackfillStage;
use crate::deadline::{ARTIFACT, DeadlineMonitor, PlanOption, pass_names};
use crate::leak_check::time_text;
use crate::report::{FutureReport, OutputColumn, OutputReport, PassReport};
use crate::session::Session;

/// The version that lineages name.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A run on its way.
pub(crate) struct RunExecutor<'a> {
    /// By writing passes.
    pub withins: BTreeMap<ContentId, (Interval, IntervalFilter)>,
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub store: StateStore,
    pub scratch: ScratchDir,
    pub program: Program,
    pub known: RunState,
    pub report: Vec<PassReport>,
    /// The rows of the future that passes made.
    pub future: Vec<FutureReport>,
    /// Who looks at the clock, and the ways that it is told of.
    pub keeper: Option<(&'a DeadlineMonitor, Vec<PlanOption>)>,
    /// Trainings that come after the passes.
    pub trainings: usize,
    /// What is done to be on time.
    pub ladder: Option<DegradationReport>,
    /// What workers have to know, where there are some.
    pub job: Option<RunSpec>,
    /// Whether this is a worker.
    pub on_worker: bool,
    /// The pass at hand, by its place in the program.
    pub at: usize,
    /// What writing passes to come have written already, beside a learning one.
    pub made: BTreeMap<ContentId, (SchemaRef, WriteResult)>,
    /// The artifact and its files, where they are put together beside what is left.
    pub assembled: Option<BackgroundTask<(Artifact, ArtifactFiles)>>,
    /// What is still on its way when the passes are done.
    pub later: BackgroundTasks,
}

/// An output that is written and recorded, and that readers do not see yet: a run publishes when nothing of it can
/// fail any more.
pub(crate) struct StagedOutput {
    work: SinkWork,
    out: StorageLocation,
    manifest: Manifest,
    stretch: Option<IntervalEntry>,
    /// Rows that its pass read.
    rows_in: u64,
    /// What faults say of its pass.
    label: String,
}

impl StagedOutput {
    /// Its sink, its place, and what it consists of.
    pub fn parts<'p>(&'p self, pipeline: &'p Pipeline) -> (&'p PipelineSink, &'p StorageLocation, &'p Manifest) {
        (&pipeline.sinks[self.work.sink], &self.out, &self.manifest)
    }
}

/// An artifact that is not committed yet.
pub(crate) struct UncommittedArtifact {
    pub artifact: Artifact,
    files: ArtifactFiles,
    /// As JSON.
    lineage: Vec<u8>,
}

/// For work that is always wanted.
static NEVER: AtomicBool = AtomicBool::new(false);

impl<'a> RunExecutor<'a> {
    /// A run over all rows, without a deadline.
    pub fn new(
        session: &'a Session,
        pipeline: &'a Pipeline,
        store: StateStore,
        scratch: ScratchDir,
        program: Program,
        known: RunState,
    ) -> Self {
        let (withins, report) = (BTreeMap::new(), Vec::new());
        RunExecutor {
            withins,
            session,
            pipeline,
            store,
            scratch,
            program,
            known,
            report,
            future: Vec::new(),
            keeper: None,
            trainings: 0,
            ladder: None,
            job: None,
            on_worker: false,
            at: 0,
            made: BTreeMap::new(),
            assembled: None,
            later: BackgroundTasks::default(),
        }
    }

    /// Another program over the same sources, of which other things are known: to be looked at, not to be run.
    pub fn dry_run_with<'b>(
        &'b self,
        pipeline: &'b Pipeline,
        program: Program,
        findings: BTreeMap<ContentId, Arc<Finding>>,
    ) -> RunExecutor<'b> {
        let known = RunState { sources: self.known.sources.clone(), findings, ..RunState::default() };
        RunExecutor::new(self.session, pipeline, self.store.clone(), self.scratch.clone(), program, known)
    }

    /// Runs all passes in order; gives the outputs, which are to be published.
    pub fn run_passes(&mut self) -> Result<Vec<StagedOutput>> {
        let done = self.run_each_pass().and_then(|staged| self.check_forecast_outputs(&staged).map(|()| staged));
        // What workers left for each other served this run alone.
        let shared = std::mem::take(&mut *lock(&self.known.shared)?);
        let mut left = self.known.exchanges.iter().map(|exchange| exchange.id).chain(shared);
        let dropped = left.try_for_each(|id| self.store.drop_shared(id));
        done.and_then(|outputs| dropped.map(|()| outputs))
    }

    fn run_each_pass(&mut self) -> Result<Vec<StagedOutput>> {
        let mut standing: BTreeMap<ContentId, (ReuseDecision, Option<Value>)> = BTreeMap::new();
        for pass in &self.program.passes {
            if let PassWork::Write(work) = &pass.work {
                let out = self.session.output(self.pipeline, work.sink)?;
                standing.insert(pass.id, self.pass_record_at(pass.id, &out)?);
            }
        }
        let gathers = self
            .program
            .needed_gathers(&|id| standing.get(&id).is_none_or(|(before, _)| *before != ReuseDecision::Reuse));
        let mut outputs = Vec::new();
        let total = self.program.passes.len() + self.trainings;
        let names = pass_names(&self.program, self.pipeline);
        let keeper = self.keeper.take().map(|(keeper, ways)| {
            let is_done = |pass: &Pass| match &pass.work {
                PassWork::Learn(work) => work.lanes.is_empty(),
                PassWork::Gather(op) => !gathers.contains(op),
                PassWork::Write(_) => standing.get(&pass.id).is_some_and(|(before, _)| *before == ReuseDecision::Reuse),
            };
            let passes = &self.program.passes;
            let done = passes.iter().zip(&names).filter(|(pass, _)| is_done(pass)).map(|(_, name)| name.as_str());
            keeper.plan(ways, done.chain(passes.iter().all(is_done).then_some(ARTIFACT)));
            keeper
        });
        // Runs side by side learn in order: each goes on from the states of the one before.
        self.session.wait_for_previous_run(BackfillStage::Learned)?;
        let learns = |pass: &Pass| !matches!(pass.work, PassWork::Write(_));
        let learned = self.program.passes.iter().rposition(learns).map_or(0, |last| last + 1);
        for (index, pass) in self.program.passes.clone().iter().enumerate() {
            self.session.interrupt.check()?;
            self.session.check_fence()?;
            self.session
                .turn
                .iter()
                .filter(|_| index == learned)
                .for_each(|turn| turn.advance_to(BackfillStage::Learned));
            self.at = index;
            let number = index + 1;
            let label = self.pass_label(&pass.work);
            let (bytes, work) = match &pass.work {
                PassWork::Learn(work) => {
                    let bytes = work.lanes.iter().map(|lane| lane.bytes).sum();
                    (Some(bytes).filter(|bytes| *bytes > 0), "learn")
                }
                PassWork::Gather(_) => (None, "gather"),
                PassWork::Write(work) => (self.scan_bytes(work), "write"),
            };
            let id = pass.id.to_string();
            self.session.watch.on_event(Event::PassStarted { number, total, label: label.clone(), id, bytes });
            keeper.iter().for_each(|keeper| keeper.begin(&names[index]));
            let mut report = PassReport {
                id: pass.id.to_string(),
                work,
                reused: false,
                rows_in: 0,
                rows_kept: 0,
                values_kept: 0,
                rows_filtered: 0,
                rows_expanded: 0,
                rows_out: 0,
            };
            let label = format!("{number} of {total} ({label})");
            let place = |fault: Fault| fault.pass(&label);
            match &pass.work {
                PassWork::Learn(work) if work.lanes.is_empty() => report.reused = true,
                PassWork::Learn(work) => {
                    let beside = self.fusable_write(index, &standing);
                    self.learn(work, index, beside)
                        .map(|answers| {
                            self.known.findings.extend(answers.findings);
                            report.count(answers.counts);
                            report.rows_kept = answers.rows_kept;
                            answers.kept
                        })
                        .and_then(|kept| self.assemble_early(index + 1).map(|()| kept))
                        .and_then(|kept| self.store.put_learn_record(pass.id, &kept))
                        .map_err(place)?
                }
                PassWork::Gather(op) if gathers.contains(op) => self
                    .materialize(*op, pass.id, &mut report)
                    .and_then(|()| self.count_future(*op).map(|future| self.future.extend(future)))
                    .map_err(place)?,
                PassWork::Gather(op) => {
                    self.count_future(*op).map(|future| self.future.extend(future)).map_err(place)?;
                    report.reused = true;
                }
                PassWork::Write(work) => {
                    let standing = standing.remove(&pass.id).unwrap_or((ReuseDecision::Work, None));
                    let staged = self.write(work, (index, pass.id), standing, &mut report).map_err(place)?;
                    outputs.push(StagedOutput { label, ..staged });
                }
            }
            self.session.watch.on_event(Event::PassDone {
                number,
                reused: report.reused,
                rows: report.rows_in,
                filtered: report.rows_filtered,
            });
            keeper.iter().for_each(|keeper| keeper.end(report.reused));
            self.report.push(report);
        }
        Ok(outputs)
    }

    /// Answers the questions of a pass. What `beside` has to write is written on the way, where that saves reading it
    /// twice.
    fn learn(&mut self, work: &LearnWork, number: usize, beside: Option<(ContentId, SinkWork)>) -> Result<LearnResult> {
        let mut windows = self.program.windows_of(work.lanes.iter().flat_map(|lane| &lane.scans));
        windows.extend(beside.iter().flat_map(|(_, work)| self.program.windows_of(&work.scans)));
        let (answers, made) = self.retry_with_fallback(&windows, |run| {
            let learner = run.learn_pass(&windows, run.cluster_for(number, &windows));
            let Some((id, sink_work)) = &beside else { return Ok((learner.run(&work.lanes, None)?, None)) };
            let sink = run.session.sink(run.pipeline, sink_work.sink)?;
            let out = run.session.output(run.pipeline, sink_work.sink)?;
            let write = run.write_pass(sink.as_ref(), &windows, None);
            let prepared = write.prepare(sink_work)?;
            let target = run.write_target(sink_work, *id, sink.as_ref(), &out)?;
            let is_whole = !run.withins.contains_key(id);
            let mut made = None;
            let sync = |shards: Vec<Shard>| match is_whole {
                true => Manifest::new(*id, &prepared.schema, shards)?.sync_names(&out),
                false => Ok(()),
            };
            let along: FusedLearnFn<'_> = &mut |lanes, answer| {
                made = write.write_and_learn(sink_work, &prepared, &target, (lanes, answer, &sync))?;
                if made.is_none() { answer(FusedCoverage::default()) } else { Ok(()) }
            };
            let answers = learner.run(&work.lanes, Some(along))?;
            Ok((answers, made.map(|made| (*id, (prepared.schema.clone(), made)))))
        })?;
        self.made.extend(made);
        Ok(answers)
    }

    /// The pass after a learning one that may be written beside it: the first that needs nothing of what is learned,
    /// and all of whose windows get their rows in order of time.
    fn fusable_write(
        &self,
        learning: usize,
        standing: &BTreeMap<ContentId, (ReuseDecision, Option<Value>)>,
    ) -> Option<(ContentId, SinkWork)> {
        if self.session.crew.is_some() || self.session.turn.is_some() {
            return None;
        }
        let bound = &self.program.bound;
        let is_known = |ask| self.known.findings.contains_key(&self.program.state_ids[ask]);
        let suits = |work: &SinkWork| {
            let is_source = |scan: &ColumnScan| matches!(bound.bases[scan.base], BaseDataset::Source(_));
            needed_ops(&work.scans).flat_map(|op| &bound.ops[op].asks).all(|ask| is_known(*ask))
                && work.scans.iter().all(is_source)
                && self
                    .program
                    .windows_of(&work.scans)
                    .into_iter()
                    .all(|op| self.row_order_of(op) == WindowRowOrder::Time)
        };
        self.program.passes[learning..].iter().find_map(|pass| match &pass.work {
            PassWork::Write(work) if standing.get(&pass.id)?.0 != ReuseDecision::Reuse && suits(work) => {
                Some((pass.id, work.clone()))
            }
            _ => None,
        })
    }

    fn pass_label(&self, work: &PassWork) -> String {
        match work {
            PassWork::Learn(work) => {
                let count = work.lanes.iter().map(|lane| lane.asks.len()).sum::<usize>() + work.known.len();
                format!("learn {count} statistics")
            }
            PassWork::Gather(op) => format!("gather {}", self.program.bound.ops[*op].label),
            PassWork::Write(work) => format!("write {}", self.pipeline.sinks[work.sink].name),
        }
    }

    fn scan_bytes(&self, work: &SinkWork) -> Option<u64> {
        let bytes =
            |scan: &forebay_plan::ColumnScan| Some(self.known.input(&self.program, scan.base).ok()?.dataset.bytes());
        work.scans.iter().map(bytes).sum()
    }

    /// Does work that runs through windows. Where rows turn out to come in another order than a
    /// window was told, or remember too much, it is done again after they were sorted.
    fn retry_with_fallback<T>(&mut self, windows: &BTreeSet<OpId>, work: impl Fn(&Self) -> Result<T>) -> Result<T> {
        loop {
            for op in windows {
                self.resolve_row_order(*op, windows)?;
            }
            let done = work(self);
            let fallen = self.known.fallen.lock().map_err(|_| poisoned_lock())?.take();
            match (done, fallen) {
                (Err(_), Some((op, code))) if self.known.way(op) != WindowRowOrder::Sorted => {
                    self.fall_back(op, windows, code)
                }
                (done, _) => return done,
            }
        }
    }

    /// What is known of a pass whose data lie below a place.
    fn pass_record_at(&self, pass: ContentId, out: &StorageLocation) -> Result<(ReuseDecision, Option<Value>)> {
        self.store.pass_record(pass, |record| record_is_intact(&self.session.io, out, record))
    }

    fn choose_row_order(&self, op: OpId) -> WindowRowOrder {
        let dataset = |base| self.known.input(&self.program, base).ok().map(|input| input.dataset.as_ref());
        choose_row_order(&self.program.bound, op, &dataset).way
    }

    /// The way that was chosen for a window, or would be.
    fn row_order_of(&self, op: OpId) -> WindowRowOrder {
        self.known.ways.get(&op).copied().unwrap_or_else(|| self.choose_row_order(op))
    }

    /// Chooses the way of a window, and sorts its rows where that is the way: once for all of
    /// `windows` that can share them.
    fn resolve_row_order(&mut self, op: OpId, windows: &BTreeSet<OpId>) -> Result<()> {
        let way = self.row_order_of(op);
        self.known.ways.insert(op, way);
        if way != WindowRowOrder::Sorted || self.known.sorted.contains_key(&op) {
            return Ok(());
        }
        let others = windows.iter().filter(|op| self.row_order_of(**op) == WindowRowOrder::Sorted).copied().collect();
        let together = find_shared_sort(&self.program.bound, op, &others);
        let upstream = upstream_windows(&self.program.bound, &together.windows);
        let (sorted, exchange) = self.retry_with_fallback(&upstream, |run| run.sort_windows(&together, &upstream))?;
        for (op, sorted) in together.windows.into_iter().zip(sorted) {
            self.known.ways.insert(op, WindowRowOrder::Sorted);
            self.known.sorted.insert(op, Arc::new(sorted));
        }
        self.known.exchanges.extend(exchange);
        Ok(())
    }

    /// Sorts the rows of windows and computes: workers do it among themselves, where there are some.
    fn sort_windows(
        &self,
        together: &SharedSort,
        upstream: &BTreeSet<OpId>,
    ) -> Result<(Vec<SortedOutputs>, Option<ShufflePlan>)> {
        let pass = self.sort_pass(&NEVER, false);
        let Some(crewed) = self.cluster_for(self.at, upstream) else {
            return Ok((pass.run(together)?.into_iter().map(SortedOutputs::Here).collect(), None));
        };
        let work = StageRef::Sort { pass: self.at, stand: together.stand };
        let exchange = crewed.executor(work, self.session.watch.as_ref()).shuffle(&pass, together)?;
        let all = ShuffleReader::open_all(&pass, &self.store, &exchange)?;
        Ok((all.into_iter().map(SortedOutputs::Away).collect(), Some(exchange)))
    }

    /// Opens the outputs of a shuffle, for the passes that read them.
    pub fn open_shuffle(&mut self, exchange: &ShufflePlan) -> Result<()> {
        let all = ShuffleReader::open_all(&self.sort_pass(&NEVER, false), &self.store, exchange)?;
        for (op, outputs) in exchange.windows.iter().zip(all) {
            self.known.sorted.insert(*op, Arc::new(SortedOutputs::Away(outputs)));
        }
        Ok(())
    }

    /// A worker's share of an exchange.
    pub fn run_shuffle_task(
        &self,
        exchange: &ShufflePlan,
        what: &TaskKind,
        errands: &dyn TaskControl,
    ) -> Result<TaskOutcome> {
        if errands.is_draining() {
            return Ok(TaskOutcome::HandedBack);
        }
        let pass = self.sort_pass(errands.cancel_flag(), true);
        let stage = ShuffleStage { plan: exchange, pass: &pass, store: &self.store };
        let gaps = match what {
            TaskKind::Divide { side, run } => stage.partition(*side, *run).map(|()| 0),
            TaskKind::Compute { part } => stage.reduce(*part),
            _ => Err(Fault::internal("rows that are not sorted")),
        };
        match errands.cancel_flag().load(Ordering::Relaxed) {
            true => Ok(TaskOutcome::Stopped),
            false => gaps.map(TaskOutcome::Done),
        }
    }

    fn sort_pass<'r>(&'r self, stop: &'r AtomicBool, keeps_rows: bool) -> SortedPass<'r> {
        SortedPass { gather: self.materialize_pass(), keeps_rows, stop }
    }

    /// The next way to try: fewer threads leave more memory to each, rows may come by key, and can
    /// always be sorted. Windows over the same series go together.
    fn fall_back(&mut self, fallen: OpId, windows: &BTreeSet<OpId>, code: FaultCode) {
        let ops = &self.program.bound.ops;
        let series = |op: OpId| match &ops[op].op {
            PlanOp::Window(window) => Some((&window.time, &window.keys, self.known.way(op))),
            _ => None,
        };
        let together = windows.iter().filter(|op| **op == fallen || series(**op) == series(fallen));
        let together: Vec<OpId> = together.copied().collect();
        let labels: BTreeSet<String> = together.iter().map(|op| format!("`{}`", ops[*op].label)).collect();
        let labels = labels.into_iter().collect::<Vec<_>>().join(", ");
        let warn = |what: &str| self.session.watch.on_event(Event::Warning { message: format!("{labels}: {what}") });
        if code == codes::OUT_OF_ORDER && self.known.way(fallen) == WindowRowOrder::Time {
            self.known.ways.extend(together.into_iter().map(|op| (op, WindowRowOrder::Key)));
            return;
        }
        if code == codes::MEMORY && self.threads(windows) > 1 {
            warn("series outgrow a thread's share of the memory, so one thread goes on with all of it");
            self.known.greedy.extend(together);
            return;
        }
        let why = if code == codes::OUT_OF_ORDER { "rows come in no order" } else { "series outgrow the memory" };
        warn(&format!("{why}, so they are sorted first"));
        self.known.ways.extend(together.into_iter().map(|op| (op, WindowRowOrder::Sorted)));
    }

    /// How many threads go through rows with these windows.
    fn threads(&self, windows: &BTreeSet<OpId>) -> usize {
        if self.known.greedy.is_disjoint(windows) { self.session.options.threads.max(1) } else { 1 }
    }

    /// What earlier runs left of a pass. What depends on statistics that are not known yet is not
    /// known either.
    pub fn inspect_pass(&mut self, pass: &Pass) -> Result<PassReuse> {
        let scans: Vec<&ColumnScan> = match &pass.work {
            PassWork::Learn(work) => work.lanes.iter().flat_map(|lane| &lane.scans).collect(),
            PassWork::Write(work) => work.scans.iter().collect(),
            PassWork::Gather(_) => {
                let (before, _) = self.pass_record_at(pass.id, &self.store.materialized_location(pass.id))?;
                return Ok(PassReuse { done: before == ReuseDecision::Reuse, ..PassReuse::default() });
            }
        };
        let windows = self.program.windows_of(scans);
        for op in &windows {
            self.known.ways.insert(*op, self.choose_row_order(*op));
        }
        match &pass.work {
            PassWork::Write(work) => {
                let sink = self.session.sink(self.pipeline, work.sink)?;
                let out = self.session.output(self.pipeline, work.sink)?;
                let (before, _) = self.pass_record_at(pass.id, &out)?;
                let is_bounded = |op: &OpId| match &self.program.bound.ops[*op].op {
                    PlanOp::Window(window) if self.known.way(*op) == WindowRowOrder::Time => {
                        window.plan.reach() != WindowReach::Unbounded
                    }
                    _ => true,
                };
                let beside = self.withins.contains_key(&pass.id).then(|| windows.iter().all(is_bounded));
                if before == ReuseDecision::Reuse {
                    return Ok(PassReuse { done: true, to_read: None, beside });
                }
                let write = self.write_pass(sink.as_ref(), &windows, None);
                let prepared = write.prepare(work);
                let to_read = prepared.and_then(|prepared| {
                    let target = self.write_target(work, pass.id, sink.as_ref(), &out)?;
                    write.spans_to_read(&work.scans, &prepared, &target)
                });
                Ok(PassReuse { done: false, to_read: to_read.ok(), beside })
            }
            PassWork::Learn(work) => {
                let to_read = self.learn_pass(&windows, None).to_read(&work.lanes).ok();
                Ok(PassReuse { to_read, ..PassReuse::default() })
            }
            PassWork::Gather(_) => Ok(PassReuse::default()),
        }
    }

    fn materialize_pass(&self) -> MaterializePass<'_> {
        let session = self.session;
        let threads = session.options.threads.max(1);
        // A worker's threads have a share each.
        let (memory, threads) =
            if self.on_worker { (session.memory().one_of(threads), 1) } else { (session.memory(), threads) };
        MaterializePass {
            io: &session.io,
            program: &self.program,
            known: &self.known,
            memory,
            threads,
            batch_rows: session.options.batch_rows,
            watch: session.watch.clone(),
            scratch: &self.scratch,
        }
    }

    /// The workers of a pass, if they can do it: not where rows were sorted here.
    fn cluster_for(&self, pass: usize, windows: &BTreeSet<OpId>) -> Option<ClusterHandle<'_>> {
        let is_here = |op| matches!(self.known.sorted.get(op).map(Arc::as_ref), Some(SortedOutputs::Here(_)));
        let here = windows.iter().any(is_here);
        let greedy = !self.known.greedy.is_disjoint(windows);
        let (crew, job) = (self.session.crew.as_deref()?, self.job.as_ref()?);
        (!here && !greedy).then_some(ClusterHandle { crew, job, pass, interrupt: &self.session.interrupt })
    }

    pub fn learn_pass<'r>(&'r self, windows: &BTreeSet<OpId>, crewed: Option<ClusterHandle<'r>>) -> LearnPass<'r> {
        let session = self.session;
        LearnPass {
            io: &session.io,
            pipeline: self.pipeline,
            program: &self.program,
            known: &self.known,
            store: &self.store,
            scratch: &self.scratch,
            memory: session.memory(),
            threads: self.threads(windows),
            batch_rows: session.options.batch_rows,
            watch: session.watch.as_ref(),
            crewed,
            on_worker: self.on_worker,
        }
    }

    pub fn write_pass<'w>(
        &'w self,
        sink: &'w dyn Sink,
        windows: &BTreeSet<OpId>,
        crewed: Option<ClusterHandle<'w>>,
    ) -> WritePass<'w> {
        let session = self.session;
        WritePass {
            io: &session.io,
            program: &self.program,
            known: &self.known,
            memory: session.memory(),
            threads: self.threads(windows),
            batch_rows: session.options.batch_rows,
            watch: session.watch.as_ref(),
            sink,
            crewed,
        }
    }

    pub fn write_target<'w>(
        &'w self,
        work: &SinkWork,
        pass: ContentId,
        sink: &'w dyn Sink,
        out: &'w StorageLocation,
    ) -> Result<WriteTarget<'w>> {
        // Only shards have names of their own; to name all that was learned can take a while.
        let in_shards = self.known.in_shards(&self.program, &work.scans)?;
        let shape = if in_shards { self.shard_operation_id(work)? } else { None }.unwrap_or(pass);
        let within = self.withins.get(&pass).map(|(_, within)| within.clone());
        let shards = within.as_ref().map_or(shape, |within| interval_pass_id(shape, within));
        let (io, store, scratch) = (&self.session.io, &self.store, &self.scratch);
        let shared = self.on_worker || out.local.is_none();
        let removed = Manifest::removed_directories(io, out)?;
        Ok(WriteTarget { io, sink, out, store, scratch, pass, shape, shards, within, shared, removed })
    }

    fn materialize(&mut self, op: OpId, id: ContentId, report: &mut PassReport) -> Result<()> {
        let session = self.session;
        let place = self.store.materialized_location(id);
        let check = |record: &Value| record_is_intact(&session.io, &place, record);
        let (before, record) = self.store.pass_record(id, check)?;
        let directory = shard_directory(id)?;
        let path = json!({ "path": place.join(&directory).shown });
        if before != ReuseDecision::Reuse {
            let sink = session.connectors.sink("parquet", &session.connectors.canonical("parquet", path.clone())?)?;
            let inputs = self.program.bound.gather_inputs.get(&op).into_iter().flatten();
            let bound = &self.program.bound;
            let needed = inputs
                .map(|(_, flow)| windows_behind(bound, flow, flow.schema.fields().iter().map(|field| field.name())));
            let windows: BTreeSet<OpId> = needed.flatten().collect();
            let (schema, files, rows) = self.retry_with_fallback(&windows, |run| {
                let gathering = run.materialize_pass().open(op)?;
                let schema = gathering.schema.clone();
                let (content, data) = ((schema.clone(), Vec::new()), (&place, directory.clone()));
                let mut files = OutputWriter::begin(&session.io, sink.as_ref(), content, data, &run.scratch)?;
                let mut waiting = Vec::new();
                let (mut rows, mut bytes) = (0, 0);
                let bytes_max = session.memory().output_bytes();
                let total = run.materialize_pass().run(gathering, &mut |batch| {
                    session.interrupt.check()?;
                    rows += batch.num_rows();
                    bytes += batch.get_array_memory_size();
                    waiting.push(batch);
                    if rows >= sink.layout().group_rows_max || bytes > bytes_max {
                        files.append("", sink.encode(&schema, &std::mem::take(&mut waiting))?, false)?;
                        (rows, bytes) = (0, 0);
                    }
                    Ok(())
                })?;
                if !waiting.is_empty() {
                    files.append("", sink.encode(&schema, &waiting)?, false)?;
                }
                Ok((schema, files.finish(true)?, total))
            })?;
            report.rows_out = rows;
            let shard = Shard { id: id.to_string(), files, ..Shard::default() };
            let manifest = Manifest::new(id, &schema, vec![shard])?;
            session.check_fence()?;
            self.store.put_pass_record(id, before, &json!({ "manifest": manifest }), check)?;
        } else {
            report.reused = true;
            report.rows_out = record.and_then(|record| record["manifest"]["rows"].as_u64()).unwrap_or(0);
        }
        self.open_materialized(op)
    }

    /// The series that a gather continues, if it makes rows of the future.
    fn count_future(&self, op: OpId) -> Result<Option<FutureReport>> {
        let (bound, own) = (&self.program.bound, &self.program.bound.ops[op]);
        let PlanOp::Gather(GatherOp { lower: GatherBy::Future(future), .. }) = &own.op else { return Ok(None) };
        let latest = own.asks.first().ok_or_else(|| Fault::internal("rows of the future of no series"))?;
        let finding = self.known.finding(&self.program, *latest)?;
        let FutureSeries { active, ended, known_until } = (future.count)(&finding)?;
        let base = bound.bases.iter().position(|base| matches!(base, BaseDataset::Gathered(known) if *known == op));
        let schema = base.map(|base| &bound.base_schemas[base]);
        let schema = schema.ok_or_else(|| Fault::internal("rows of the future without columns"))?;
        let time = schema.field_with_name(&future.time)?;
        let known_until = known_until.map(|tick| time_text(tick, time)).transpose()?;
        let (step, series) = (own.label.clone(), active);
        Ok(Some(FutureReport { step, series, steps: future.steps, ended, known_until }))
    }

    /// Opens an intermediate dataset that is committed.
    pub fn open_materialized(&mut self, op: OpId) -> Result<()> {
        let gathers = |pass: &&Pass| matches!(&pass.work, PassWork::Gather(known) if *known == op);
        let pass = self.program.passes.iter().find(gathers);
        let id = pass.ok_or_else(|| Fault::internal("a dataset that no pass gathers"))?.id;
        let session = self.session;
        let place = self.store.materialized_location(id);
        let path = json!({ "path": literal_path(&place.join(&shard_directory(id)?).shown) });
        let source = session.connectors.source("parquet", &path)?;
        let dataset = Arc::new(source.discover(&session.io, &materialized_watch(&self.program, op))?);
        self.program.bound.set_gathered_schema(op, &dataset.schema);
        self.known
            .gathered
            .insert(op, SourceInput { dataset, source: session.cancellable(source), in_time_order: false });
        Ok(())
    }

    fn write(
        &mut self,
        work: &SinkWork,
        (number, id): (usize, ContentId),
        (before, record): (ReuseDecision, Option<Value>),
        report: &mut PassReport,
    ) -> Result<StagedOutput> {
        let session = self.session;
        let sink = session.sink(self.pipeline, work.sink)?;
        let out = session.output(self.pipeline, work.sink)?;
        let manifest = match (before, record) {
            (ReuseDecision::Reuse, Some(record)) => {
                report.reused = true;
                Manifest::from_record(&record)?
            }
            _ => {
                let windows = self.program.windows_of(&work.scans);
                let (schema, made) = match self.made.remove(&id) {
                    Some(made) => {
                        session.watch.on_event(Event::PassReads { bytes: 0, of: self.scan_bytes(work).unwrap_or(0) });
                        made
                    }
                    None => self.retry_with_fallback(&windows, |run| {
                        let write = run.write_pass(sink.as_ref(), &windows, run.cluster_for(number, &windows));
                        let prepared = write.prepare(work)?;
                        let target = run.write_target(work, id, sink.as_ref(), &out)?;
                        if session.turn.is_some() && write.depends_on_all_before(&work.scans, &prepared)? {
                            session.wait_for_previous_run(BackfillStage::Done)?;
                        }
                        Ok((prepared.schema.clone(), write.run(&work.scans, &prepared, &target)?))
                    })?,
                };
                (report.rows_kept, report.values_kept) = (made.rows_kept, made.values_kept);
                let manifest = Manifest::new(id, &schema, made.shards)?;
                let carries = id_texts(&made.carry.into_iter().collect());
                let record = WriteRecord { out: &out.shown, manifest: &manifest, carries };
                session.check_fence()?;
                self.store
                    .put_pass_record(id, before, &record, |record| record_is_intact(&session.io, &out, record))?;
                manifest
            }
        };
        let sums = manifest.shards.iter().fold(RowCounts::default(), |mut sums, shard| {
            sums.add(shard.counts());
            sums
        });
        report.count(sums);
        if report.reused {
            report.rows_kept = report.rows_in;
        }
        report.rows_out = manifest.rows;
        let expected = sums.input as i64 - sums.filtered as i64 + sums.expanded;
        if work.part.is_none() && expected != manifest.rows as i64 {
            return Err(Fault::internal(format!("{expected} rows became {}", manifest.rows)));
        }
        // Rows of other parts count as filtered, so that in = out + filtered.
        report.rows_filtered += (expected - manifest.rows as i64).max(0) as u64;
        let manifest = Manifest { ladder: self.ladder.clone(), ..manifest };
        let stretch = self.withins.get(&id).map(|(interval, within)| IntervalEntry {
            from: interval.from.clone(),
            to: interval.to.clone(),
            first: within.first,
            last: within.last,
            pass: id.to_string(),
            shards: manifest.shards.len(),
        });
        Ok(StagedOutput { work: work.clone(), out, manifest, stretch, rows_in: sums.input, label: String::new() })
    }

    /// Refuses whole outputs without a row where there were rows, in what they are made of or in what readers see.
    /// An interval without rows is one: there are days without data. Of the sinks, the first `sinks` are the user's.
    pub fn check_rows(&self, staged: &[StagedOutput], sinks: usize) -> Result<()> {
        let mut faults = Vec::new();
        for StagedOutput { work, out, manifest, stretch, rows_in, label } in staged {
            if manifest.rows > 0 || stretch.is_some() || work.sink >= sinks || self.session.allow_empty {
                continue;
            }
            let shown = Manifest::read(&self.session.io, out)?.map_or(0, |visible| visible.rows);
            // What a gather leaves of the sources may be nothing.
            let bases = &self.program.bound.bases;
            let gathered = work.scans.iter().any(|scan| matches!(bases[scan.base], BaseDataset::Gathered(_)));
            let known = self.known.sources.values().filter(|_| gathered).filter_map(|input| input.dataset.rows());
            let had = match (*rows_in).max(known.sum()) {
                0 if shown == 0 => continue,
                0 => format!("readers see {shown} rows of it"),
                read => format!("{read} rows were read"),
            };
            let fault =
                Fault::new(codes::EMPTY, format!("the output would have no row, and {had}: it is not published"));
            let hint = "look at the filters, the split and the joins; where it may be empty, run with --allow-empty";
            let at = self.pipeline.sinks[work.sink].at.as_ref();
            faults.push(fault.file(&out.shown).pass(label).hint(hint).at(at));
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Shows the outputs to readers. Whether each can be published is looked at before the first one is.
    pub fn publish(&mut self, staged: Vec<StagedOutput>) -> Result<Vec<OutputReport>> {
        let session = self.session;
        for StagedOutput { out, manifest, stretch, label, .. } in &staged {
            manifest.check_interval(&session.io, out, stretch.as_ref()).map_err(|fault| fault.pass(label))?;
        }
        let mut outputs = Vec::new();
        for StagedOutput { work, out, manifest, stretch, label, .. } in staged {
            let (rows, files) = (manifest.rows, manifest.files().count());
            let bytes = manifest.files().map(|file| file.bytes).sum();
            let may = || session.check_fence();
            let published = manifest
                .publish(&session.io, &out, stretch.as_ref(), (&may, &mut self.later))
                .map_err(|fault| fault.pass(label))?;
            let columns = self.output_columns(&work, &published)?;
            let (sink, data) = (self.pipeline.sinks[work.sink].name.clone(), published.shown_at(&out));
            outputs.push(OutputReport { sink, path: visible_location(&out).shown, data, rows, files, bytes, columns });
        }
        Ok(outputs)
    }

    /// The columns of an output, and where they come from.
    fn output_columns(&self, work: &SinkWork, manifest: &Manifest) -> Result<Vec<OutputColumn>> {
        let bound = &self.program.bound;
        let flow = bound.flows.get(&self.pipeline.sinks[work.sink].from);
        let flow = flow.ok_or_else(|| Fault::internal("a sink without rows"))?;
        let column = |(name, data_type): &(String, String)| {
            let from = origins(bound, flow, name).into_iter();
            let from =
                from.map(|ColumnOrigin { source, column }| crate::report::OriginColumn { source, column }).collect();
            OutputColumn { name: name.clone(), data_type: data_type.clone(), from }
        };
        Ok(manifest.columns.iter().map(column).collect())
    }

    /// Names what a sink's pass does with the rows of each span, if the spans are all that matters.
    fn shard_operation_id(&self, work: &SinkWork) -> Result<Option<ContentId>> {
        let sink = &self.pipeline.sinks[work.sink];
        let mut id = IdBuilder::new("shards");
        id.text(&sink.format).json(&config_without_path(&sink.config)).json(&json!([work.columns, work.part]));
        let digest = |ask| self.known.digest(&self.program, ask);
        for scan in &work.scans {
            match operation_id(&self.program.bound, self.pipeline, scan, &digest)? {
                Some(shape) => id.id(shape),
                None => return Ok(None),
            };
        }
        Ok(Some(id.finish()))
    }

    /// Begins to put the artifact together where all is learned, and all passes from one on have written what they
    /// have to, so that the memory is there.
    fn assemble_early(&mut self, from: usize) -> Result<()> {
        if self.program.passes[from..].iter().all(|pass| self.made.contains_key(&pass.id)) {
            self.assembled = Some(BackgroundTask::spawn(self.artifact_builder()?));
        }
        Ok(())
    }

    /// Puts the artifact together.
    fn artifact_builder(&self) -> Result<impl FnOnce() -> Result<(Artifact, ArtifactFiles)> + Send + 'static> {
        let bound = &self.program.bound;
        let mut findings = Vec::new();
        for (index, ask) in bound.asks.iter().enumerate() {
            let finding = self.known.finding(&self.program, index)?;
            // What describes the rows of one run has a place among the findings, and no content.
            let finding = if ask.ask.per_run { Arc::new(Finding::new(finding.table().slice(0, 0))) } else { finding };
            findings.push(LearnedFinding {
                step: bound.ops[ask.op].label.clone(),
                analyzer: ask.ask.analyzer.kind().to_owned(),
                columns: ask.ask.inputs.clone(),
                part: ask.part.as_deref().map(|part| part_name(part).to_owned()),
                finding,
            });
        }
        let schemas = bound
            .bases
            .iter()
            .zip(&bound.base_schemas)
            .filter_map(|(base, schema)| match base {
                BaseDataset::Source(name) => Some((name.clone(), schema.clone())),
                BaseDataset::Gathered(_) => None,
            })
            .collect();
        let (pipeline, threads) = (self.pipeline.clone(), self.session.options.threads);
        Ok(move || Artifact::new(pipeline, schemas, findings, threads))
    }

    /// Begins to put the artifact together, where that was not done early.
    pub fn begin_artifact(&mut self) -> Result<()> {
        if self.assembled.is_none() {
            self.assembled = Some(BackgroundTask::spawn(self.artifact_builder()?));
        }
        Ok(())
    }

    /// The artifact and its files, with their lineage, in memory.
    pub fn finish_artifact(&mut self, datasets: &BTreeMap<String, Dataset>) -> Result<UncommittedArtifact> {
        self.begin_artifact()?;
        // A long history has a long lineage.
        let lineage = self.lineage(datasets)?;
        let assembled = self.assembled.take().ok_or_else(|| Fault::internal("an artifact that nothing assembles"))?;
        let (artifact, files) = assembled.join()?;
        Ok(UncommittedArtifact { artifact, files, lineage })
    }

    /// Commits the artifact.
    pub fn commit_artifact(&self, fitted: UncommittedArtifact) -> Result<(ContentId, StorageLocation)> {
        let UncommittedArtifact { artifact, files, lineage } = fitted;
        self.session.check_fence()?;
        let place = artifact.commit(files, &self.session.io, self.store.root(), lineage)?;
        self.session.record_fit(self.pipeline, artifact.id)?;
        Ok((artifact.id, place))
    }

    /// What the artifact comes from, as JSON.
    fn lineage(&self, datasets: &BTreeMap<String, Dataset>) -> Result<Vec<u8>> {
        let span = |span: &Span| {
            let fingerprint = span.fingerprint().to_string();
            json!({ "span": span.label(), "rows": span.rows(), "fingerprint": fingerprint })
        };
        let source = |dataset: &Dataset| {
            let spans: Vec<Value> = dataset.spans.iter().map(span).collect();
            let mut lineage = json!({ "fingerprint": dataset.fingerprint().to_string(), "spans": spans });
            if let Some(version) = dataset.version {
                lineage["version"] = version.into();
            }
            lineage
        };
        let mut lineage = json!({
            "forebay": VERSION,
            "run_id": self.session.options.run_id,
            "sources": datasets.iter().map(|(name, dataset)| (name, source(dataset))).collect::<BTreeMap<_, _>>(),
            "states": self.program.state_ids.iter().map(ContentId::to_string).collect::<Vec<_>>(),
            "ladder": self.ladder,
            "passes": self.program.passes.iter().map(|pass| pass.id.to_string()).collect::<Vec<_>>(),
        });
        if let Some(earlier) = self.session.earlier_id() {
            lineage["continues"] = json!(earlier.to_string());
        }
        serde_json::to_vec_pretty(&lineage).map_err(|error| Fault::internal("a lineage").cause(error))
    }
}

/// Names the part of something that lies in an interval.
pub(crate) fn interval_pass_id(of: ContentId, within: &IntervalFilter) -> ContentId {
    let mut id = IdBuilder::new("within");
    id.id(of).text(&within.column).bytes(&within.first.to_le_bytes()).bytes(&within.last.to_le_bytes());
    id.finish()
}

/// The windows whose outputs some columns of a flow need, upstream first. Others may need statistics of a later level.
fn windows_behind<'a>(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    columns: impl IntoIterator<Item = &'a String>,
) -> BTreeSet<OpId> {
    let columns: Vec<&str> = columns.into_iter().map(String::as_str).collect();
    let needed = flow.streams.iter().flat_map(|stream| {
        let (positions, _) = slice_for_columns(bound, stream, &columns);
        positions.into_iter().map(|position| stream.ops[position])
    });
    needed.filter(|op| bound.ops[*op].op.is_over_series()).collect()
}

/// The windows that others read, upstream first.
fn upstream_windows(bound: &BoundPipeline, windows: &[OpId]) -> BTreeSet<OpId> {
    let mut upstream = BTreeSet::new();
    for op in windows {
        let (here, there) = (bound.window_inputs.get(op), bound.join_inputs.get(op));
        match &bound.ops[*op].op {
            PlanOp::Window(window) => {
                upstream.extend(here.map(|flow| windows_behind(bound, flow, window.columns())).unwrap_or_default());
            }
            PlanOp::Join(join) => {
                upstream.extend(here.map(|flow| windows_behind(bound, flow, join.columns_here())).unwrap_or_default());
                upstream
                    .extend(there.map(|flow| windows_behind(bound, flow, join.columns_there())).unwrap_or_default());
            }
            _ => {}
        }
    }
    upstream
}

/// The columns of a gathered dataset whose extents tell in which order windows get its rows.
fn materialized_watch(program: &Program, op: OpId) -> Vec<String> {
    let bound = &program.bound;
    let over = |flow: &NodeFlow| {
        flow.streams.iter().any(|stream| matches!(bound.bases[stream.base], BaseDataset::Gathered(base) if base == op))
    };
    let windows = bound.window_inputs.iter().filter(|(_, flow)| over(flow));
    let mut columns = BTreeSet::new();
    for (window, _) in windows {
        if let PlanOp::Window(window) = &bound.ops[*window].op {
            columns.extend(window.keys.first().into_iter().chain([&window.time]).cloned());
        }
    }
    columns.into_iter().collect()
}

/// What is kept of a pass that writes.
#[derive(Serialize)]
struct WriteRecord<'a> {
    out: &'a str,
    manifest: &'a Manifest,
    carries: Vec<String>,
}
