//! Incremental learning from a history: the states of runs of spans are committed, so that unchanged runs are merged
//! and not read again.

mod divided_units;
mod merge_plan;
mod merges;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use forebay_cluster::{StageRef, TaskControl, TaskKind, TaskOutcome};
use forebay_model::{
    AnalyzerInput, AnyAnalyzer, AnyState, ContentId, IdBuilder, Result, catch_panic,
};
use forebay_plan::{
    AnalyzerId, AnalyzerLane, BaseDataset, Carry, ChainWindow, PassWork, RowCounts, WindowRowOrder,
    operation_id,
};
use forebay_storage::Event;
use forebay_threads::{CountingSemaphore, lock};
use serde_json::json;

use crate::cluster_handle::RemoteExecutor;
use crate::fused_coverage::FusedCoverage;
use crate::learn_pass::{LaneExecution, LearnPass, LearnResult};
use crate::ordered_scan::{CheckpointHook, OrderedScan, PendingUnits, SpanTimeline};
use crate::range_bytes::bytes_min;
use crate::read_ahead::ReadAhead;
use crate::remote::WorkerTask;
use crate::span_index::{SpanIndex, WorkUnit};
use divided_units::{DividedUnit, DividedUnits, PieceStates, WaitingPieces};
use merge_plan::{CommittedStates, MergePlan, RunTree};
use units::{RemoteDisposition, UnitOutcome, UnitTasks};

/// The least stored bytes of a run, on average, whose state may have as many groups as a short run has rows: writing,
/// reading and merging a group costs about as much as reading ten rows.
const LARGE_STATE_RUN_BYTES_MIN: u64 = 32 << 20;

/// A lane whose states are committed by runs of spans.
pub struct IncrementalLane<'a> {
    learn: &'a LearnPass<'a>,
    run: &'a LaneExecution<'a>,
    /// Permits for the memory of the lane's states; each merging thread takes one.
    turns: &'a CountingSemaphore,
    /// Id of the operations on the rows of a span, for each analyzer.
    shapes: Vec<ContentId>,
    /// The span index of each analyzer. Other analyzers of the lane may reach further back, and may be finished already
    /// when a run resumes.
    seen: Vec<Arc<SpanIndex>>,
    is_history: bool,
}

/// Reads of a lane, and the merges of the states that they learn with the committed ones.
struct LaneReads {
    /// Trees of statistics, then of groups that are learned in the same read
    trees: Vec<PlannedTree>,
    /// Units of groups, which threads read in pieces
    divided: Vec<DividedUnit>,
    /// Spans of each unit, or of each piece of the divided ones
    spans: Vec<Range<usize>>,
    /// True if no unit has a committed state
    all_missing: bool,
}

struct PlannedTree {
    tree: RunTree,
    plan: MergePlan,
}

impl CommittedStates for IncrementalLane<'_> {
    fn committed(&self, run: &Range<usize>) -> Result<Vec<bool>> {
        self.learn.store.has_partials(self.state_ids(run))
    }
}

impl<'a> IncrementalLane<'a> {
    /// `None` for a lane that is no history, whose rows depend on others than those of its spans and of the windows that
    /// workers have sorted, or whose states hold rows.
    pub fn new(
        learn: &'a LearnPass<'a>,
        run: &'a LaneExecution<'a>,
        turns: &'a CountingSemaphore,
    ) -> Result<Option<Self>> {
        let mut has_sorted = false;
        let mut is_in_time_order = true;
        for tapped in run.scans.iter().flat_map(|scan| &scan.chains) {
            for window in tapped.chain.windows() {
                has_sorted |= window.row_order == WindowRowOrder::Sorted;
                is_in_time_order &= window.row_order == WindowRowOrder::Time;
            }
        }
        let is_history = learn.context.is_history(&run.lane.scans)?;
        let divides = if learn.cluster.is_some() || learn.on_worker {
            // The ids of spans cover the sorted rows of one stream.
            !has_sorted || run.scans.iter().all(|scan| scan.chains.len() == 1)
        } else {
            is_history && is_in_time_order
        };
        if !divides {
            return Ok(None);
        }
        let mut shapes = Vec::new();
        for analyzer in &run.lane.asks {
            if !learn.analyzer(*analyzer).commits_parts() {
                return Ok(None);
            }
            match analyzer_operation_id(learn, *analyzer)? {
                Some(shape) => shapes.push(shape),
                None => return Ok(None),
            }
        }
        let seen = span_indexes(learn, run)?;
        Ok(Some(IncrementalLane {
            learn,
            run,
            turns,
            shapes,
            seen,
            // States of sorted rows depend on all rows: no later run finds them.
            is_history: is_history && !has_sorted,
        }))
    }

    /// Run trees (runs of spans that have a state each): those of statistics, then those of groups
    /// that are learned in the same read.
    fn run_trees(&self, history: &SpanIndex) -> Vec<RunTree> {
        let indices = 0..self.shapes.len();
        let (fused, separate): (Vec<usize>, Vec<usize>) =
            indices.partition(|index| self.learn.is_along(self.run.lane.asks[*index]));
        let are_groups = self.learn.states.is_some();
        let mut trees = vec![RunTree {
            levels: self.levels(history, are_groups),
            analyzers: separate,
        }];
        if !fused.is_empty() {
            trees.push(RunTree {
                levels: self.levels(history, true),
                analyzers: fused,
            });
        }
        trees
    }

    /// The levels of runs, lowest first. A dataset that is no history is divided for workers alone.
    fn levels(&self, history: &SpanIndex, of_groups: bool) -> Vec<Vec<Range<usize>>> {
        let learn = self.learn;
        let lane = self.run.lane;
        if !self.is_history {
            return vec![history.runs(learn.lane_bytes(lane), learn.need(lane).0 as u64)];
        }
        let mut levels = history.tree();
        if of_groups {
            let whole_history = 0..history.len();
            let least = bytes_min(LARGE_STATE_RUN_BYTES_MIN);
            let is_long = |level: &Vec<Range<usize>>| {
                history.bytes(whole_history.clone()) / level.len().max(1) as u64 >= least
            };
            match levels.iter().position(is_long) {
                Some(lowest) => drop(levels.drain(..lowest)),
                None => levels = vec![vec![whole_history]],
            }
        }
        levels
    }

    /// Id of the operation of the lane on the rows of each span.
    fn lane_id(&self) -> ContentId {
        let mut lane = IdBuilder::new("lane");
        self.shapes.iter().for_each(|shape| {
            lane.id(*shape);
        });
        lane.finish()
    }

    /// Runs a task of a worker.
    pub fn run_task(&self, kind: &TaskKind, control: &dyn TaskControl) -> Result<TaskOutcome> {
        let sequence = self.ordered_scan();
        let name = self.lane_id();
        let line = sequence.timeline()?;
        if let TaskKind::Merge {
            question: analyzer,
            share,
            pieces,
        } = kind
        {
            return self.run_merge_of_share(*analyzer, *share, pieces, line.tasks.len());
        }
        if let TaskKind::MergeRuns {
            source,
            without,
            divide,
        } = kind
        {
            return self.run_merge_of_runs(source, without, divide, line.tasks.len());
        }
        let parts = self
            .run_trees(&line.history)
            .first()
            .and_then(|tree| tree.levels.first())
            .map_or(1, Vec::len);
        let work = |part: &WorkUnit,
                    carry: &mut Carry,
                    stop: &AtomicBool,
                    checkpoint_hook: CheckpointHook<'_>| {
            self.learn_unit(
                &UnitTasks {
                    tasks: &line.tasks,
                    parts,
                    all_missing: true,
                },
                part,
                carry,
                checkpoint_hook,
                stop,
            )
        };
        let task = WorkerTask {
            line: &line,
            operation: name,
            units_of: name,
            store: self.learn.store,
            scratch: self.learn.scratch,
            kind,
            control,
            finish_threads: 0,
        };
        sequence.run_task(&task, work, &Ok)
    }

    fn ordered_scan(&self) -> OrderedScan<'a> {
        lane_scan(self.learn, self.run)
    }

    /// The id of an analyzer's state over some spans.
    fn state_id(&self, index: usize, tasks: &Range<usize>) -> ContentId {
        self.seen[index].result_id(self.shapes[index], tasks.clone())
    }

    /// The ids of all analyzers' states over some spans.
    fn state_ids(&self, tasks: &Range<usize>) -> impl Iterator<Item = ContentId> {
        (0..self.shapes.len()).map(move |index| self.state_id(index, tasks))
    }

    /// The lane's analyzers, in order.
    pub fn asks(&self) -> &'a [AnalyzerId] {
        &self.run.lane.asks
    }

    /// An analyzer's state over no rows.
    pub fn zero(&self, index: usize) -> Result<AnyState> {
        self.analyzer(index).zero(&self.run.scratches[index])
    }

    /// Updates an analyzer's state with some rows.
    pub fn update(
        &self,
        index: usize,
        state: &mut AnyState,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        let updated = catch_panic(|| self.analyzer(index).update(state, input));
        updated.map_err(|fault| self.learn.place(fault, self.run.lane.asks[index]))
    }

    /// Stores an analyzer's state over some spans of a history; [`IncrementalLane::commit_unit`]
    /// commits it.
    pub fn put_unit_state(
        &self,
        index: usize,
        tasks: &Range<usize>,
        state: &mut AnyState,
    ) -> Result<()> {
        let id = self.state_id(index, tasks);
        let learn = self.learn;
        let put = learn.store.put_partial(
            id,
            self.analyzer(index),
            state,
            learn.scratch,
            self.is_history,
        );
        put.map_err(|fault| self.learn.place(fault, self.run.lane.asks[index]))
    }

    /// Commits the states of a unit: at once on a worker, since the coordinator is notified next.
    pub fn commit_unit(&self, tasks: &Range<usize>) -> Result<()> {
        if self.learn.on_worker {
            self.learn.store.flush()
        } else {
            self.learn.store.note_read(self.unit_bytes(tasks))
        }
    }

    /// Stored bytes that the lane reads of some spans.
    fn unit_bytes(&self, tasks: &Range<usize>) -> u64 {
        let Some(history) = self.seen.first() else {
            return 0;
        };
        let share = self.byte_share(history);
        (history.bytes(tasks.clone()) as f64 * share) as u64
    }

    /// Share of the stored bytes of a history that the lane reads: lanes read disjoint columns of the same spans.
    fn byte_share(&self, history: &SpanIndex) -> f64 {
        let history_bytes = history.bytes(0..history.len()).max(1);
        self.learn.lane_bytes(self.run.lane) as f64 / history_bytes as f64
    }

    /// Number of spans that have to be read, and of all spans.
    pub fn spans_to_read(&self) -> Result<(usize, usize)> {
        let line = self.ordered_scan().timeline()?;
        let mut read: BTreeSet<usize> = BTreeSet::new();
        for tree in self.run_trees(&line.history) {
            let plan = MergePlan::new(&tree, self.is_history, self)?;
            read.extend(plan.reads().into_iter().flatten());
        }
        Ok((read.len(), line.tasks.len()))
    }

    /// Learns the lane. `fused` holds the states that a writing pass has learned already.
    pub fn run(&self, answers: &Mutex<LearnResult>, fused: &FusedCoverage) -> Result<()> {
        let sequence = self.ordered_scan();
        let line = sequence.timeline()?;
        // A committed state may turn out to be corrupt; it is then removed, and the next attempt reads the rows.
        while !self.try_learn(&sequence, &line, answers, fused)? {}
        Ok(())
    }

    /// Returns false if a committed state cannot be read.
    fn try_learn(
        &self,
        sequence: &OrderedScan<'_>,
        line: &SpanTimeline,
        answers: &Mutex<LearnResult>,
        fused: &FusedCoverage,
    ) -> Result<bool> {
        let SpanTimeline { tasks, history, .. } = line;
        let divides = self.divides_units(sequence);
        let LaneReads {
            trees,
            divided,
            spans,
            all_missing,
        } = self.plan_lane(history, divides)?;
        let share = self.byte_share(history);
        self.report_reads(history, &spans, share);
        let lane = self.lane_id();
        let units: Vec<WorkUnit> = spans
            .into_iter()
            .map(|spans| WorkUnit::new(spans.clone(), history.result_id(lane, spans)))
            .collect();
        let workers = self.executor(share);
        // Workers read the rows themselves; this process would prefetch them for nothing.
        if workers.is_none() {
            let spans = units.iter().flat_map(|unit| &tasks[unit.tasks.clone()]);
            self.run.plan_reads(self.learn, spans.copied())?;
        }
        let pending = PendingUnits {
            line,
            operation: lane,
            store: self.learn.store,
            scratch: self.learn.scratch,
            units: &units,
        };
        // States of groups that are too large to be kept.
        let unkept = WaitingPieces::default();
        let done = sequence.run_units(
            &pending,
            self.turns.count(),
            workers.as_ref(),
            |unit, carry, stop, checkpoint_hook| {
                if divides {
                    let units = DividedUnits {
                        units: &divided,
                        unkept: &unkept,
                    };
                    return self.learn_piece(&units, &tasks[unit.tasks.clone()], unit, carry, stop);
                }
                let unit_tasks = UnitTasks {
                    tasks,
                    parts: units.len(),
                    all_missing,
                };
                self.learn_unit(&unit_tasks, unit, carry, checkpoint_hook, stop)
            },
        );
        // Before the result is checked: prefetched spans are released after a failure, too.
        self.run.end_reads()?;
        let done = done?;
        let Some(PlannedTree { tree, mut plan }) = trees.into_iter().next() else {
            return Ok(true);
        };
        let mut disposition = RemoteDisposition::of_units(done.parts.values());
        if let Some(workers) = &workers {
            // Workers have committed the states.
            self.learn.store.refresh()?;
            // Runs that are merged of others are committed for later nights: workers merge those.
            if plan.is_of_rows_read() {
                disposition.leave_distinct_shares(plan.sources.len(), |index| {
                    self.run.scratches[index].budget_bytes()
                });
            }
            self.merge_shares_on_workers(&plan, &disposition.divided, workers)?;
            plan = self.merge_runs_on_workers(plan, &mut disposition, workers)?;
        }
        let unkept = unkept.into_sorted()?;
        let retained = self.retained_states(&tree, &unkept);
        // Groups that were learned along are merged by their own pass.
        let is_whole = if unkept.is_empty() {
            self.conclude_merged(&tree, &plan, tasks.len(), &disposition, answers)?
        } else {
            self.conclude_unkept(&plan, unkept, answers)?
        };
        // A corrupt state was removed: the caller tries again, and reads its rows.
        if !is_whole {
            return Ok(false);
        }
        let (counts, kept_rows) = count_rows(history, &units, done.parts, fused);
        let mut answers = lock(answers)?;
        answers.record_counts(counts, kept_rows);
        answers.kept.carries.extend(done.carry);
        answers.kept.partials.extend(retained);
        Ok(true)
    }

    /// Plans what is read of the lane, and what is merged of it.
    fn plan_lane(&self, history: &SpanIndex, divides: bool) -> Result<LaneReads> {
        let mut trees = self.run_trees(history);
        // Groups have runs of their own, longer ones. Without pieces, a read serves the runs of one
        // tree only: decisions/kept-groups.md.
        if !divides {
            trees.truncate(1);
        }
        let mut reads = LaneReads {
            trees: Vec::new(),
            divided: Vec::new(),
            spans: Vec::new(),
            all_missing: true,
        };
        for tree in trees {
            let plan = MergePlan::new(&tree, self.is_history, self)?;
            let missing = plan.reads();
            // If all spans are missing, lookups of single states are skipped.
            let missing_spans: usize = missing.iter().map(Range::len).sum();
            reads.all_missing = missing_spans == history.len();
            if divides {
                for unit in &missing {
                    let unit = self.divided_unit(&tree, unit, reads.all_missing)?;
                    reads.divided.push(unit);
                }
            }
            reads.spans.extend(missing);
            reads.trees.push(PlannedTree { tree, plan });
        }
        if divides {
            reads.spans = self.divide_units(history, &reads.divided);
        }
        Ok(reads)
    }

    fn report_reads(&self, history: &SpanIndex, spans: &[Range<usize>], share: f64) {
        let bytes: u64 = spans.iter().map(|spans| history.bytes(spans.clone())).sum();
        let history_bytes = history.bytes(0..history.len()).max(1);
        self.learn.watch.on_event(Event::PassReads {
            bytes: (bytes as f64 * share) as u64,
            of: (history_bytes as f64 * share) as u64,
        });
    }

    /// Runs the units of the lane on workers, if there are any.
    fn executor(&self, share: f64) -> Option<RemoteExecutor<'a>> {
        let cluster = self.learn.cluster?;
        let stage = self.stage(cluster.pass)?;
        Some(RemoteExecutor {
            share,
            ..cluster.executor(stage, self.learn.watch)
        })
    }

    fn stage(&self, pass: usize) -> Option<StageRef> {
        if self.learn.states.is_some() {
            return Some(StageRef::Gather { pass });
        }
        let PassWork::Learn(work) = &self.learn.context.program.passes.get(pass)?.work else {
            return None;
        };
        let mut lanes = work.lanes.iter();
        let lane = lanes.position(|lane| lane.asks == self.run.lane.asks)?;
        Some(StageRef::Learn { pass, lane })
    }

    /// Ids of the states of all runs, which are retained for later runs; a dataset that is no history has none. States
    /// of groups that take longer to read than their rows are not committed, so later runs must not expect them:
    /// decisions/kept-groups.md.
    fn retained_states(&self, tree: &RunTree, unkept: &[PieceStates]) -> Vec<ContentId> {
        let mut ids = Vec::new();
        if !self.is_history {
            return ids;
        }
        for run in tree.levels.iter().flatten() {
            if unkept.iter().any(|states| states.overlaps(run)) {
                continue;
            }
            ids.extend(
                tree.analyzers
                    .iter()
                    .map(|index| self.state_id(*index, run)),
            );
        }
        ids
    }

    /// For each analyzer, true if it needs to read a run of spans. A changed span changes the
    /// window outputs of the spans after it, and no other results of those spans.
    pub fn missing_states(&self, tasks: &Range<usize>, all_missing: bool) -> Result<Vec<bool>> {
        if all_missing {
            return Ok(vec![true; self.shapes.len()]);
        }
        let committed = self.committed(tasks)?;
        Ok(committed.into_iter().map(|is_kept| !is_kept).collect())
    }

    fn analyzer(&self, index: usize) -> &'a dyn AnyAnalyzer {
        self.learn.context.program.bound.asks[self.run.lane.asks[index]]
            .ask
            .analyzer
            .as_ref()
    }
}

/// Counts of the rows of a lane, and of those that were not read again. Rows that were read twice count once.
fn count_rows(
    history: &SpanIndex,
    units: &[WorkUnit],
    outcomes: BTreeMap<usize, UnitOutcome>,
    fused: &FusedCoverage,
) -> (RowCounts, u64) {
    let mut read: BTreeSet<usize> = fused.tasks.iter().copied().collect();
    read.extend(units.iter().flat_map(|unit| unit.tasks.clone()));
    let kept_spans = (0..history.len()).filter(|span| !read.contains(span));
    let kept_rows: u64 = kept_spans.map(|span| history.rows(span..span + 1)).sum();
    let mut counts = if units.is_empty() {
        fused.counts.clone()
    } else {
        RowCounts::default()
    };
    for outcome in outcomes.into_values() {
        counts.add(&outcome.counts);
    }
    // Spans of a sample do not record their rows, so the rows that were read count.
    let read_rows = history
        .known_rows(read)
        .unwrap_or_else(|| counts.input.max(fused.counts.input));
    counts.input = kept_rows + read_rows;
    (counts, kept_rows)
}

fn lane_scan<'a>(learn: &'a LearnPass<'a>, run: &'a LaneExecution<'a>) -> OrderedScan<'a> {
    OrderedScan {
        first_scan: 0,
        context: learn.context,
        scans: &run.lane.scans,
        chains: run
            .scans
            .iter()
            .flat_map(|scan| scan.chains.first())
            .map(|tapped| &tapped.chain)
            .collect(),
        computing: 1.0,
        ahead: ReadAhead::new(learn.context.threads),
    }
}

/// The span index of each analyzer of a lane.
fn span_indexes(learn: &LearnPass<'_>, run: &LaneExecution<'_>) -> Result<Vec<Arc<SpanIndex>>> {
    let bases = |lane: &AnalyzerLane| lane.scans.iter().map(|scan| scan.base).collect::<Vec<_>>();
    // Windows over the same series are merged into one, which has the id of the first and reaches as far as all of
    // them.
    let reach = |window: &ChainWindow| (window.op, window.plan.as_ref().map(|plan| plan.reach()));
    let mut by_windows: Vec<(Vec<_>, Arc<SpanIndex>)> = Vec::new();
    let mut seen = Vec::new();
    for analyzer in &run.lane.asks {
        let alone = AnalyzerLane {
            asks: vec![*analyzer],
            scans: learn.context.program.scans_for(*analyzer),
            ..run.lane.clone()
        };
        let lane = if bases(&alone) == bases(run.lane) {
            &alone
        } else {
            run.lane
        };
        let run = learn.prepare(lane, 0)?;
        let sequence = lane_scan(learn, &run);
        let windows = sequence
            .chains
            .iter()
            .zip(&lane.scans)
            .map(|(chain, scan)| {
                (
                    scan.streams.len(),
                    chain.windows().iter().map(reach).collect::<Vec<_>>(),
                )
            });
        let windows: Vec<_> = windows.collect();
        seen.push(
            match by_windows
                .iter()
                .find(|(indexed_windows, _)| *indexed_windows == windows)
            {
                Some((_, history)) => history.clone(),
                None => {
                    let history = Arc::new(sequence.timeline()?.history);
                    by_windows.push((windows, history.clone()));
                    history
                }
            },
        );
    }
    Ok(seen)
}

/// Id of the operation of an analyzer on the rows of a span; `None` if the result depends on other
/// rows, too.
fn analyzer_operation_id(
    learn: &LearnPass<'_>,
    analyzer_id: AnalyzerId,
) -> Result<Option<ContentId>> {
    let bound = &learn.context.program.bound;
    let bound_analyzer = &bound.asks[analyzer_id];
    let analyzer = &bound_analyzer.ask.analyzer;
    let mut id = IdBuilder::new("partial");
    id.text(analyzer.kind()).json(&json!([
        analyzer.version(),
        analyzer.config(),
        bound_analyzer.ask.inputs,
        bound_analyzer.part
    ]));
    for scan in learn.context.program.scans_for(analyzer_id) {
        let row_order = |op| learn.context.state.row_order(op);
        match operation_id(bound, learn.pipeline, &scan, &row_order, &|analyzer| {
            learn.context.digest(analyzer)
        })? {
            Some(shape) => id.id(shape),
            None => return Ok(None),
        };
        if let BaseDataset::Gathered(_) = bound.bases[scan.base] {
            // Files of a gather that are written again may divide the same rows otherwise.
            for span in &learn.context.input(scan.base)?.dataset.spans {
                id.json(&json!([span.rows(), span.bytes()]));
            }
        }
    }
    Ok(Some(id.finish()))
}
