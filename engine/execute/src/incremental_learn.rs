//! Incremental learning from a history: the states of runs of spans are committed, so that unchanged runs are merged
//! and not read again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use forebay_cluster::{
    StageRef, StateSource, TaskControl, TaskKind, TaskOutcome, TaskSpec, bad_request,
};
use forebay_commit::{
    MERGES_MIN, SHARES, SHARES_AT_ONCE, merge_pairwise, shares_bytes_min, sources_per_merge,
};
use forebay_model::{
    AnalyzerInput, AnyAnalyzer, AnyState, ContentId, IdBuilder, Result, SeriesCounts, catch_panic,
};
use forebay_plan::{
    AnalyzerId, AnalyzerLane, Carry, ChainWindow, PassWork, RowCounts, WindowRowOrder, operation_id,
};
use forebay_storage::{Event, failpoint};
use forebay_threads::{CountingSemaphore, lock, parallel_map};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::divided_units::{DividedUnit, DividedUnits, PieceStates, WaitingPieces};
use crate::fused_learn::FusedCoverage;
use crate::learn_pass::{LaneExecution, LaneStates, LearnPass, LearnResult, fixed_bytes};
use crate::ordered_scan::{
    CheckpointHook, OrderedScan, PendingUnits, SpanRef, SpanTimeline, bytes_min, range_bytes_min,
};
use crate::read_ahead::ReadAhead;
use crate::remote::{RemoteExecutor, WorkerTask};
use crate::span_index::{SpanIndex, WorkUnit};
use crate::state_sources::{
    collect_kept, collect_lowest, collect_merged, collect_reads, collect_runs, count_sources,
    group_sources, tasks_of, with_merged_runs,
};

/// The least stored bytes of a run, on average, whose state may have as many groups as a short run has rows: writing,
/// reading and merging a group costs about as much as reading ten rows.
const LARGE_STATE_RUN_BYTES_MIN: u64 = 32 << 20;

/// The most bytes of groups, for each row of a run, that are kept: reading a group again costs about as much as reading
/// ten rows, and a group has about a hundred bytes.
const KEPT_BYTES_PER_ROW_MAX: u64 = 10;

/// The bytes of groups, for each row of a piece, beyond which few groups have several rows: such groups are merged from
/// the scratch space, since merging them in memory would hardly make them fewer.
const MERGED_BYTES_PER_ROW_MAX: u64 = 50;

/// Pieces of units for each thread: threads that end at different times wait for a piece at most.
const PIECES_PER_THREAD: usize = 4;

/// A lane whose states are committed by runs of spans.
pub struct IncrementalLane<'a> {
    learn: &'a LearnPass<'a>,
    run: &'a LaneExecution<'a>,
    /// As many permits as there is memory for the lane's states; each merging thread takes one.
    turns: &'a CountingSemaphore,
    /// For each analyzer, the id of the operations on the rows of a span.
    shapes: Vec<ContentId>,
    /// The span index of each analyzer. Other analyzers of the lane may reach further back, and may be finished already
    /// when a run resumes.
    seen: Vec<Arc<SpanIndex>>,
    is_history: bool,
}

/// Work units whose rows are learned.
struct UnitTasks<'a> {
    /// The spans of the whole history.
    tasks: &'a [SpanRef],
    /// How many units there are.
    parts: usize,
    /// Whether no unit has a committed state.
    all_missing: bool,
}

/// The runs of spans whose states some analyzers of the lane keep.
struct RunTree {
    /// Lowest level first.
    levels: Vec<Vec<Range<usize>>>,
    /// The places of the analyzers.
    analyzers: Vec<usize>,
}

/// The outcome of a work unit.
#[derive(Serialize, Deserialize)]
struct UnitOutcome {
    counts: RowCounts,
    how: RemoteDisposition,
}

/// How a worker left the results of some analyzers; the states of the others are committed whole.
#[derive(Default, Serialize, Deserialize)]
struct RemoteDisposition {
    /// Analyzers whose states were so large that they were stored in shares.
    divided: BTreeSet<usize>,
    /// The same, where there are too many units for that: runs of their states are merged first.
    large: BTreeSet<usize>,
    /// Analyzers whose findings the worker committed, because it had read all rows.
    answered: BTreeSet<usize>,
}

impl<'a> IncrementalLane<'a> {
    /// `None` for a lane that is no history, or whose rows do not depend on its own spans alone.
    pub fn new(
        learn: &'a LearnPass<'a>,
        run: &'a LaneExecution<'a>,
        turns: &'a CountingSemaphore,
    ) -> Result<Option<Self>> {
        let chains = || {
            run.scans
                .iter()
                .flat_map(|scan| &scan.chains)
                .map(|tapped| &tapped.chain)
        };
        let mut row_orders = chains()
            .flat_map(|chain| chain.windows())
            .map(|window| window.row_order);
        let is_history = learn.context.is_history(&run.lane.scans)?;
        let divides = match learn.cluster.is_some() || learn.on_worker {
            true => row_orders.all(|row_order| row_order != WindowRowOrder::Sorted),
            false => is_history && row_orders.all(|row_order| row_order == WindowRowOrder::Time),
        };
        if !divides {
            return Ok(None);
        }
        let mut shapes = Vec::new();
        for ask in &run.lane.asks {
            match analyzer_operation_id(learn, *ask)? {
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
            is_history,
        }))
    }

    /// The runs of spans that states are made of: those of statistics, then those of groups that are learned along.
    fn run_trees(&self, history: &SpanIndex) -> Vec<RunTree> {
        let all = 0..self.shapes.len();
        let (along, own): (Vec<usize>, Vec<usize>) =
            all.partition(|place| self.learn.is_along(self.run.lane.asks[*place]));
        let are_groups = self.learn.states.is_some();
        let mut trees = vec![RunTree {
            levels: self.levels(history, are_groups),
            analyzers: own,
        }];
        if !along.is_empty() {
            trees.push(RunTree {
                levels: self.levels(history, true),
                analyzers: along,
            });
        }
        trees
    }

    /// The levels of runs, lowest first. A dataset that is no history is divided for workers alone.
    fn levels(&self, history: &SpanIndex, of_groups: bool) -> Vec<Vec<Range<usize>>> {
        let (learn, lane) = (self.learn, self.run.lane);
        if !self.is_history {
            return vec![history.runs(learn.lane_bytes(lane), learn.need(lane).0 as u64)];
        }
        let mut levels = history.tree();
        if of_groups {
            let all = 0..history.len();
            let least = bytes_min(LARGE_STATE_RUN_BYTES_MIN);
            let is_long = |level: &Vec<Range<usize>>| {
                history.bytes(all.clone()) / level.len().max(1) as u64 >= least
            };
            match levels.iter().position(is_long) {
                Some(lowest) => drop(levels.drain(..lowest)),
                None => levels = vec![vec![all]],
            }
        }
        levels
    }

    /// The id of what the lane does with the rows of each span.
    fn lane_id(&self) -> ContentId {
        let mut lane = IdBuilder::new("lane");
        self.shapes.iter().for_each(|shape| {
            lane.id(*shape);
        });
        lane.finish()
    }

    /// Runs a task of a worker.
    pub fn run_task(&self, what: &TaskKind, control: &dyn TaskControl) -> Result<TaskOutcome> {
        let (sequence, name) = (self.ordered_scan(), self.lane_id());
        let line = sequence.timeline()?;
        if let TaskKind::Merge {
            question,
            share,
            pieces,
        } = what
        {
            return self.merge_share(*question, *share, pieces, line.tasks.len());
        }
        if let TaskKind::MergeRuns {
            source,
            without,
            divide,
        } = what
        {
            return self.merge_source(source, without, divide, line.tasks.len());
        }
        let parts = self
            .run_trees(&line.history)
            .first()
            .and_then(|tree| tree.levels.first())
            .map_or(1, Vec::len);
        let work =
            |part: &WorkUnit, carry: &mut Carry, stop: &AtomicBool, seal: CheckpointHook<'_>| {
                self.learn_unit(
                    &UnitTasks {
                        tasks: &line.tasks,
                        parts,
                        all_missing: true,
                    },
                    part,
                    carry,
                    seal,
                    stop,
                )
            };
        let task = WorkerTask {
            line: &line,
            operation: name,
            units_of: name,
            store: self.learn.store,
            scratch: self.learn.scratch,
            kind: what,
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

    /// Puts an analyzer's state over some spans of a history; [`IncrementalLane::commit_unit`] commits it.
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

    /// Commits the states of a unit: at once on a worker, whose coordinator is told next that they are there.
    pub fn commit_unit(&self, tasks: &Range<usize>) -> Result<()> {
        match self.learn.on_worker {
            true => self.learn.store.flush(),
            false => self.learn.store.note_read(self.unit_bytes(tasks)),
        }
    }

    /// Stored bytes that the lane reads of some spans.
    fn unit_bytes(&self, tasks: &Range<usize>) -> u64 {
        let Some(history) = self.seen.first() else {
            return 0;
        };
        let all = history.bytes(0..history.len()).max(1);
        let share = self.learn.lane_bytes(self.run.lane) as f64 / all as f64;
        (history.bytes(tasks.clone()) as f64 * share) as u64
    }

    /// How many spans have to be read, and of how many.
    pub fn spans_to_read(&self) -> Result<(usize, usize)> {
        let line = self.ordered_scan().timeline()?;
        let mut todo = Vec::new();
        for tree in self.run_trees(&line.history) {
            self.state_sources(&tree)?
                .iter()
                .for_each(|piece| collect_reads(piece, &mut todo));
        }
        let read: BTreeSet<usize> = todo.into_iter().flatten().collect();
        Ok((read.len(), line.tasks.len()))
    }

    /// Learns the lane. `along` holds what the pass has learned already.
    pub fn run(&self, answers: &Mutex<LearnResult>, along: &FusedCoverage) -> Result<()> {
        let sequence = self.ordered_scan();
        let line = sequence.timeline()?;
        // A committed state may turn out to be corrupt; it is then removed, and the next attempt reads the rows.
        while !self.try_learn(&sequence, &line, answers, along)? {}
        Ok(())
    }

    /// Returns false if a committed state cannot be read.
    fn try_learn(
        &self,
        sequence: &OrderedScan<'_>,
        line: &SpanTimeline,
        answers: &Mutex<LearnResult>,
        along: &FusedCoverage,
    ) -> Result<bool> {
        let SpanTimeline { tasks, history, .. } = line;
        let divides = self.divides_units(sequence);
        let mut trees = self.run_trees(history);
        trees.truncate(if divides { trees.len() } else { 1 });
        let sources = trees
            .iter()
            .map(|tree| self.state_sources(tree))
            .collect::<Result<Vec<_>>>()?;
        let mut divided = Vec::new();
        // States of groups that are too large to be kept.
        let unkept = WaitingPieces::default();
        let mut todo = Vec::new();
        let mut is_first = true;
        for (tree, pieces) in trees.iter().zip(&sources) {
            let mut missing = Vec::new();
            pieces
                .iter()
                .for_each(|piece| collect_reads(piece, &mut missing));
            is_first = missing.iter().map(Range::len).sum::<usize>() == tasks.len();
            if divides {
                let units = missing
                    .iter()
                    .map(|unit| self.divided_unit(tree, unit, is_first));
                divided.extend(units.collect::<Result<Vec<_>>>()?);
            }
            todo.extend(missing);
        }
        if divides {
            todo = self.divide_units(history, &divided);
        }
        let lane = self.lane_id();
        let all = history.bytes(0..tasks.len()).max(1);
        let share = self.learn.lane_bytes(self.run.lane) as f64 / all as f64;
        let part_bytes: u64 = todo.iter().map(|tasks| history.bytes(tasks.clone())).sum();
        let told = |bytes: u64| (bytes as f64 * share) as u64;
        self.learn.watch.on_event(Event::PassReads {
            bytes: told(part_bytes),
            of: told(all),
        });
        let part =
            |tasks: Range<usize>| WorkUnit::new(tasks.clone(), history.result_id(lane, tasks));
        let todo: Vec<WorkUnit> = todo.into_iter().map(part).collect();
        let stage = |pass: usize| {
            if self.learn.states.is_some() {
                return Some(StageRef::Gather { pass });
            }
            let PassWork::Learn(work) = &self.learn.context.program.passes.get(pass)?.work else {
                return None;
            };
            let lane = work
                .lanes
                .iter()
                .position(|lane| lane.asks == self.run.lane.asks)?;
            Some(StageRef::Learn { pass, lane })
        };
        let workers = self.learn.cluster.and_then(|cluster| {
            let work = stage(cluster.pass)?;
            Some(RemoteExecutor {
                share,
                ..cluster.executor(work, self.learn.watch)
            })
        });
        if workers.is_none() {
            self.run.plan_reads(
                self.learn,
                todo.iter()
                    .flat_map(|part| &tasks[part.tasks.clone()])
                    .copied(),
            )?;
        }
        let (store, scratch) = (self.learn.store, self.learn.scratch);
        let pending = PendingUnits {
            line,
            operation: lane,
            store,
            scratch,
            units: &todo,
        };
        let done = sequence.run_units(
            &pending,
            self.turns.count(),
            workers.as_ref(),
            |part, carry, stop, seal| {
                if divides {
                    let units = DividedUnits {
                        units: &divided,
                        unkept: &unkept,
                    };
                    return self.learn_piece(&units, &tasks[part.tasks.clone()], part, carry, stop);
                }
                let units = UnitTasks {
                    tasks,
                    parts: todo.len(),
                    all_missing: is_first,
                };
                self.learn_unit(&units, part, carry, seal, stop)
            },
        );
        self.run.end_reads()?;
        let done = done?;
        let mut left = RemoteDisposition::default();
        for made in done.parts.values() {
            let made: &UnitOutcome = made;
            left.divided.extend(&made.how.divided);
            left.large.extend(&made.how.large);
            left.answered.extend(&made.how.answered);
        }
        let Some((tree, mut pieces)) = trees.first().zip(sources.into_iter().next()) else {
            return Ok(true);
        };
        if let Some(workers) = &workers {
            // Workers have committed the states.
            self.learn.store.refresh()?;
            self.merge_on_workers(&pieces, &left.divided, workers)?;
            pieces = self.merge_runs_on_workers(pieces, &mut left, workers)?;
        }
        let unkept = unkept.into_sorted()?;
        let is_unkept = |run: &Range<usize>| unkept.iter().any(|states| states.overlaps(run));
        // The ids of the states of all runs are retained for later runs; a dataset that is no history has none.
        let runs = tree
            .levels
            .iter()
            .flatten()
            .filter(|run| self.is_history && !is_unkept(run));
        let named = runs.flat_map(|run| {
            tree.analyzers
                .iter()
                .map(|index| self.state_id(*index, run))
        });
        let named: Vec<ContentId> = named.collect();
        // Groups that were learned along are merged by their own pass.
        let is_whole = match unkept.is_empty() {
            true => self.merge_all(tree, &pieces, tasks.len(), &left, answers)?,
            false => self.merge_unkept(&pieces, unkept, answers)?,
        };
        if !is_whole {
            return Ok(false);
        }
        let read_here = todo.iter().flat_map(|part| part.tasks.clone());
        let read: BTreeSet<usize> = read_here.chain(along.tasks.iter().copied()).collect();
        let kept: u64 = (0..tasks.len())
            .filter(|task| !read.contains(task))
            .map(|task| history.rows(task..task + 1))
            .sum();
        // Rows that were read twice count once.
        let mut sum = if todo.is_empty() {
            along.counts
        } else {
            RowCounts::default()
        };
        done.parts
            .into_values()
            .for_each(|made| sum.add(made.counts));
        // Spans of a sample do not tell their rows: those count that were read.
        let read = history
            .known_rows(read)
            .unwrap_or_else(|| sum.input.max(along.counts.input));
        sum.input = kept + read;
        let mut answers = lock(answers)?;
        answers.record_counts(sum, kept);
        answers.kept.carries.extend(done.carry);
        answers.kept.partials.extend(named);
        Ok(true)
    }

    /// The sources of the state of all rows.
    fn state_sources(&self, tree: &RunTree) -> Result<Vec<StateSource>> {
        let top = tree.levels.last().into_iter().flatten();
        top.map(|run| self.state_source(tree, tree.levels.len() - 1, run))
            .collect()
    }

    /// For which analyzers a run of spans has to be read. A changed span changes the window outputs of the spans after
    /// it, and no other results of those spans.
    pub fn missing_states(&self, tasks: &Range<usize>, all: bool) -> Result<Vec<bool>> {
        if all {
            return Ok(vec![true; self.shapes.len()]);
        }
        Ok(self
            .committed_states(tasks)?
            .into_iter()
            .map(|kept| !kept)
            .collect())
    }

    /// For which analyzers the state of a run of spans is committed.
    fn committed_states(&self, tasks: &Range<usize>) -> Result<Vec<bool>> {
        self.learn.store.has_partials(self.state_ids(tasks))
    }

    fn is_committed(&self, tree: &RunTree, tasks: &Range<usize>) -> Result<bool> {
        let kept = self.committed_states(tasks)?;
        Ok(tree.analyzers.iter().all(|index| kept[*index]))
    }

    /// The source of the state of a run at a level of the tree.
    fn state_source(
        &self,
        tree: &RunTree,
        level: usize,
        run: &Range<usize>,
    ) -> Result<StateSource> {
        let kept = self.committed_states(run)?;
        if tree.analyzers.iter().all(|index| kept[*index]) {
            return Ok(StateSource::Kept(run.clone()));
        }
        let Some(below) = level.checked_sub(1) else {
            if !self.is_history {
                return Ok(StateSource::Read(run.clone()));
            }
            // The run may have been shorter in an earlier run.
            for end in (run.start + 1..run.end).rev() {
                if self.is_committed(tree, &(run.start..end))? {
                    // A killed run may have committed the rest.
                    let rest = end..run.end;
                    let rest = match self.is_committed(tree, &rest)? {
                        true => StateSource::Kept(rest),
                        false => StateSource::Read(rest),
                    };
                    return Ok(StateSource::Merged {
                        tasks: run.clone(),
                        kept,
                        of: vec![StateSource::Kept(run.start..end), rest],
                    });
                }
            }
            return Ok(StateSource::Read(run.clone()));
        };
        let runs = tree.levels[below]
            .iter()
            .filter(|part| run.start <= part.start && part.end <= run.end);
        let mut of = runs
            .map(|part| self.state_source(tree, below, part))
            .collect::<Result<Vec<_>>>()?;
        // A run with a single child has the child's id and state.
        Ok(if of.len() == 1 {
            of.remove(0)
        } else {
            StateSource::Merged {
                tasks: run.clone(),
                kept,
                of,
            }
        })
    }

    /// Whether threads of this process may read units in pieces. Units of groups are few and long. Their states fill a part
    /// of the memory that they get, so that those that wait for their neighbours have room.
    fn divides_units(&self, sequence: &OrderedScan<'_>) -> bool {
        let learn = self.learn;
        let has_groups =
            learn.states.is_some() || self.run.lane.asks.iter().any(|ask| learn.is_along(*ask));
        has_groups && learn.cluster.is_none() && !learn.on_worker && !sequence.is_ordered()
    }

    /// Pieces of units that overlap: each piece lies in a unit or out of it. There are as many as keep all threads busy to
    /// the end.
    fn divide_units(&self, history: &SpanIndex, units: &[DividedUnit]) -> Vec<Range<usize>> {
        let covered: BTreeSet<usize> = units.iter().flat_map(|unit| unit.tasks.clone()).collect();
        let ends: BTreeSet<usize> = units
            .iter()
            .flat_map(|unit| [unit.tasks.start, unit.tasks.end])
            .collect();
        let all: u64 = covered
            .iter()
            .map(|task| history.bytes(*task..task + 1))
            .sum();
        let target = (all / (self.turns.count() * PIECES_PER_THREAD) as u64).max(range_bytes_min());
        let mut pieces: Vec<Range<usize>> = Vec::new();
        for task in covered {
            let goes_on = |last: &&mut Range<usize>| {
                last.end == task && !ends.contains(&task) && history.bytes((*last).clone()) < target
            };
            match pieces.last_mut().filter(goes_on) {
                Some(last) => last.end = task + 1,
                None => pieces.push(task..task + 1),
            }
        }
        pieces
    }

    fn divided_unit(
        &self,
        tree: &RunTree,
        tasks: &Range<usize>,
        all_missing: bool,
    ) -> Result<DividedUnit> {
        let mut wanted = self.missing_states(tasks, all_missing)?;
        let others = wanted
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| !tree.analyzers.contains(index));
        others.for_each(|(_, wanted)| *wanted = false);
        Ok(DividedUnit {
            tasks: tasks.clone(),
            wanted,
            waiting: WaitingPieces::default(),
        })
    }

    /// Reads the rows of a piece of some units. The thread that makes a unit whole commits its states. `None` if the pass
    /// was stopped.
    fn learn_piece(
        &self,
        divided: &DividedUnits<'_>,
        spans: &[SpanRef],
        piece: &WorkUnit,
        carry: &mut Carry,
        stop: &AtomicBool,
    ) -> Result<Option<UnitOutcome>> {
        let units: Vec<&DividedUnit> = divided
            .units
            .iter()
            .filter(|unit| unit.holds(&piece.tasks))
            .collect();
        let wanted: Vec<bool> = (0..self.shapes.len())
            .map(|index| units.iter().any(|unit| unit.wanted[index]))
            .collect();
        let mut counts = RowCounts::default();
        let Some(states) = self.read_spans(spans, &wanted, &mut counts, carry, stop)? else {
            return Ok(None);
        };
        let mut states: BTreeMap<usize, AnyState> = states.into_iter().enumerate().collect();
        for unit in units {
            let own = unit
                .wanted
                .iter()
                .enumerate()
                .filter(|(_, wanted)| **wanted);
            let own = own
                .filter_map(|(index, _)| states.remove_entry(&index))
                .collect();
            let mut own = PieceStates {
                tasks: piece.tasks.clone(),
                states: own,
            };
            self.spill_large(&mut own)?;
            if let Some(unkept) = self.add_piece(unit, own)? {
                self.join_neighbours(divided.unkept, unkept)?;
            }
        }
        Ok(Some(UnitOutcome {
            counts,
            how: RemoteDisposition::default(),
        }))
    }

    /// Merges a piece with those that were read before, and commits the states of the unit if it is whole. Gives states that
    /// are too large for that.
    fn add_piece(&self, unit: &DividedUnit, own: PieceStates) -> Result<Option<PieceStates>> {
        self.join_neighbours(&unit.waiting, own)?;
        let Some(own) = unit.waiting.take(&unit.tasks)? else {
            return Ok(None);
        };
        if !self.are_kept(&own) {
            return Ok(Some(own));
        }
        for (index, mut state) in own.states {
            self.put_unit_state(index, &unit.tasks, &mut state)?;
        }
        self.commit_unit(&unit.tasks)?;
        Ok(None)
    }

    /// Merges a piece with those of its neighbours that wait.
    fn join_neighbours(&self, waiting: &WaitingPieces, mut own: PieceStates) -> Result<()> {
        while let Some([earlier, later]) = waiting.neighbour_of(own)? {
            own = self.merge_pieces(earlier, later)?;
            self.learn.context.memory.check()?;
        }
        Ok(())
    }

    /// Whether the states of a unit are committed. Groups are not if reading them again would take longer than reading
    /// the rows again; those of a read that others share are, since their own pass has no other way to get them.
    fn are_kept(&self, unit: &PieceStates) -> bool {
        self.learn.states.is_none()
            || unit.states.iter().all(|(index, state)| {
                self.bytes_per_row(*index, &unit.tasks, state) <= KEPT_BYTES_PER_ROW_MAX
            })
    }

    /// Moves groups to the scratch space that merging would hardly make fewer.
    fn spill_large(&self, piece: &mut PieceStates) -> Result<()> {
        for (index, state) in &mut piece.states {
            if self.bytes_per_row(*index, &piece.tasks, state) > MERGED_BYTES_PER_ROW_MAX {
                let spilled = self.analyzer(*index).spill(state);
                spilled.map_err(|fault| self.learn.place(fault, self.run.lane.asks[*index]))?;
            }
        }
        Ok(())
    }

    /// The bytes of an analyzer's state for each row of some spans, as far as it tells them.
    fn bytes_per_row(&self, index: usize, tasks: &Range<usize>, state: &AnyState) -> u64 {
        let bytes = self.analyzer(index).divisible_bytes(state).unwrap_or(0);
        bytes / self.seen[index].rows(tasks.clone()).max(1)
    }

    fn merge_pieces(
        &self,
        mut earlier: PieceStates,
        mut later: PieceStates,
    ) -> Result<PieceStates> {
        for (index, state) in &mut earlier.states {
            if let Some(later) = later.states.remove(index) {
                let merge = || self.analyzer(*index).merge(state, later);
                catch_panic(merge)
                    .map_err(|fault| self.learn.place(fault, self.run.lane.asks[*index]))?;
            }
        }
        Ok(PieceStates {
            tasks: earlier.tasks.start..later.tasks.end,
            states: earlier.states,
        })
    }

    /// The states of the wanted analyzers over the rows of some spans; `None` if the pass was stopped.
    fn read_spans(
        &self,
        spans: &[SpanRef],
        wanted: &[bool],
        counts: &mut RowCounts,
        carry: &mut Carry,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<AnyState>>> {
        let mut states = self.learn.zero(self.run)?;
        for spans in spans.chunk_by(|task, next| task.scan == next.scan) {
            let into = LaneStates {
                states: &mut states,
                wants: &|place| wanted[place],
                counts,
            };
            if !self.learn.spans(self.run, spans, carry, stop, into)? {
                return Ok(None);
            }
        }
        Ok(Some(states))
    }

    /// Reads the rows of a unit and commits its states; `None` if the pass was stopped.
    fn learn_unit(
        &self,
        units: &UnitTasks<'_>,
        part: &WorkUnit,
        carry: &mut Carry,
        seal: CheckpointHook<'_>,
        stop: &AtomicBool,
    ) -> Result<Option<UnitOutcome>> {
        let (learn, tasks) = (self.learn, units.tasks);
        let wanted = self.missing_states(&part.tasks, units.all_missing)?;
        let mut counts = RowCounts::default();
        let spans = &tasks[part.tasks.clone()];
        let Some(states) = self.read_spans(spans, &wanted, &mut counts, carry, stop)? else {
            return Ok(None);
        };
        seal(carry)?;
        let is_large = |bytes: u64| bytes.saturating_mul(units.parts as u64) >= shares_bytes_min();
        let is_all = !self.is_history && part.tasks.len() == tasks.len();
        let mut how = RemoteDisposition::default();
        let learned = self.state_ids(&part.tasks).enumerate().zip(states);
        for ((index, id), mut state) in learned.filter(|((index, _), _)| wanted[*index]) {
            let (analyzer, ask) = (self.analyzer(index), self.run.lane.asks[index]);
            if learn.on_worker && is_all {
                learn.find(ask, state, true)?;
                how.answered.insert(index);
                continue;
            }
            let is_large =
                learn.on_worker && analyzer.divisible_bytes(&state).is_some_and(is_large);
            // Shares of many units would be very many small files.
            if is_large && units.parts <= sources_per_merge() {
                let put = learn
                    .store
                    .put_partial_shares(id, analyzer, &mut state, learn.scratch);
                put.map_err(|fault| learn.place(fault, ask))?;
                how.divided.insert(index);
                continue;
            }
            if is_large {
                how.large.insert(index);
            }
            self.put_unit_state(index, &part.tasks, &mut state)?;
        }
        self.commit_unit(&part.tasks)?;
        Ok(Some(UnitOutcome { counts, how }))
    }

    fn analyzer(&self, index: usize) -> &'a dyn AnyAnalyzer {
        self.learn.context.program.bound.asks[self.run.lane.asks[index]]
            .ask
            .analyzer
            .as_ref()
    }

    /// Merges large states on workers, with a task for each share.
    fn merge_on_workers(
        &self,
        pieces: &[StateSource],
        divided: &BTreeSet<usize>,
        away: &RemoteExecutor<'_>,
    ) -> Result<()> {
        let learn = self.learn;
        let shares = divided
            .iter()
            .flat_map(|question| (0..SHARES).map(|share| (*question, share)));
        let tasks = shares.map(|(question, share)| TaskSpec {
            cost: 1,
            after: None,
            what: TaskKind::Merge {
                question,
                share,
                pieces: pieces.to_vec(),
            },
        });
        self.run_merges(tasks.collect(), away)?;
        for question in divided {
            let mut merged = Vec::new();
            pieces
                .iter()
                .for_each(|piece| collect_merged(piece, *question, &mut merged));
            merged.iter().try_for_each(|tasks| {
                learn
                    .store
                    .mark_shares_complete(self.state_id(*question, tasks), learn.scratch)
            })?;
        }
        Ok(())
    }

    fn run_merges(&self, tasks: Vec<TaskSpec>, away: &RemoteExecutor<'_>) -> Result<()> {
        let state = self.learn.context.state;
        let done = away.run_tasks(&away.stage_context(state), tasks, state, &mut |_| Ok(()));
        done.map_err(|failure| failure.fault)
    }

    /// Has workers merge runs of states that are large together: states that cannot be divided, and those of so many
    /// units that they were not. Gives the sources that are left for the coordinator.
    fn merge_runs_on_workers(
        &self,
        pieces: Vec<StateSource>,
        left: &mut RemoteDisposition,
        away: &RemoteExecutor<'_>,
    ) -> Result<Vec<StateSource>> {
        let without: BTreeSet<usize> = left.divided.union(&left.answered).copied().collect();
        let questions = (0..self.shapes.len()).filter(|index| !without.contains(index));
        let state_bytes: usize = questions
            .filter_map(|index| fixed_bytes(self.analyzer(index)))
            .sum();
        let sources: usize = pieces.iter().map(count_sources).sum();
        let are_large = (state_bytes as u64).saturating_mul(sources as u64) >= shares_bytes_min();
        if !(are_large && sources >= MERGES_MIN * sources_per_merge()) && left.large.is_empty() {
            return Ok(pieces);
        }
        let pieces = if self.is_history {
            pieces
        } else {
            group_sources(&pieces, self.shapes.len())
        };
        let mut runs = Vec::new();
        pieces
            .iter()
            .for_each(|piece| collect_runs(piece, &mut runs));
        if runs.is_empty() {
            return Ok(pieces);
        }
        let divide = std::mem::take(&mut left.large);
        let tasks = runs.iter().map(|source| TaskSpec {
            cost: count_sources(source) as u64,
            after: None,
            what: TaskKind::MergeRuns {
                source: (*source).clone(),
                without: without.clone(),
                divide: divide.clone(),
            },
        });
        self.run_merges(tasks.collect(), away)?;
        self.learn.store.refresh()?;
        let merged: Vec<Range<usize>> = runs.into_iter().map(tasks_of).collect();
        let pieces: Vec<StateSource> = pieces
            .into_iter()
            .map(|piece| with_merged_runs(piece, &merged))
            .collect();
        self.merge_on_workers(&pieces, &divide, away)?;
        left.divided.extend(divide);
        Ok(pieces)
    }

    /// Merges the states of a source's runs and commits the state of each run, on a worker. If a committed state is
    /// corrupt, that of the run is missing: the coordinator notices.
    fn merge_source(
        &self,
        source: &StateSource,
        without: &BTreeSet<usize>,
        divide: &BTreeSet<usize>,
        tasks: usize,
    ) -> Result<TaskOutcome> {
        if !source.is_within(tasks, self.shapes.len()) {
            return Err(bad_request());
        }
        failpoint::step("merge", "runs of states");
        self.learn.store.refresh()?;
        let mut kept = Vec::new();
        collect_kept(source, &mut kept);
        let questions: Vec<usize> = (0..self.shapes.len())
            .filter(|index| !without.contains(index))
            .collect();
        let ids = kept
            .iter()
            .flat_map(|tasks| questions.iter().map(|index| self.state_id(*index, tasks)));
        self.learn.store.fetch_partials(ids)?;
        for index in questions {
            match source {
                StateSource::Merged { tasks, kept, of }
                    if divide.contains(&index) && !kept[index] =>
                {
                    self.merge_into_shares(index, tasks, of)?;
                }
                source => drop(self.merge(index, std::slice::from_ref(source), None)?),
            }
        }
        self.learn.store.flush()?;
        Ok(TaskOutcome::Done(SeriesCounts::default()))
    }

    /// Merges a share of an analyzer's state over all spans, on a worker. If a committed state is corrupt, nothing is
    /// written: the coordinator notices.
    fn merge_share(
        &self,
        index: usize,
        share: usize,
        pieces: &[StateSource],
        tasks: usize,
    ) -> Result<TaskOutcome> {
        if index >= self.shapes.len()
            || !pieces
                .iter()
                .all(|piece| piece.is_within(tasks, self.shapes.len()))
        {
            return Err(bad_request());
        }
        let (learn, analyzer) = (self.learn, self.analyzer(index));
        if let Some(mut state) = self.merge(index, pieces, Some(share))? {
            let id = self.state_id(index, &(0..tasks));
            learn
                .store
                .put_shared(id, &share.to_string(), learn.scratch, &mut |out| {
                    analyzer.encode(&mut state, out)
                })?;
        }
        Ok(TaskOutcome::Done(SeriesCounts::default()))
    }

    /// The state of an analyzer that workers merged; `None` if a share is missing.
    fn load_merged_shares(&self, index: usize, tasks: usize) -> Result<Option<AnyState>> {
        let (learn, analyzer, scratch) =
            (self.learn, self.analyzer(index), &self.run.scratches[index]);
        let id = self.state_id(index, &(0..tasks));
        lock(&learn.context.state.shared)?.push(id);
        let read = |share: usize| {
            learn.store.get_shared(id, &share.to_string(), |input| {
                analyzer.decode_large(input, scratch)
            })
        };
        merge_pairwise(analyzer, (0..SHARES).map(read))
    }

    /// Merges the states of all sources, with a thread for each analyzer.
    fn merge_all(
        &self,
        tree: &RunTree,
        pieces: &[StateSource],
        tasks: usize,
        left: &RemoteDisposition,
        answers: &Mutex<LearnResult>,
    ) -> Result<bool> {
        let asks = &self.run.lane.asks;
        let mut kept = Vec::new();
        pieces
            .iter()
            .for_each(|piece| collect_kept(piece, &mut kept));
        let ids = kept.iter().flat_map(|tasks| {
            tree.analyzers
                .iter()
                .map(|index| self.state_id(*index, tasks))
        });
        self.learn.store.fetch_partials(ids)?;
        // States that may be large first, so that threads finish together.
        let mut order = tree.analyzers.clone();
        order.sort_by_key(|index| fixed_bytes(self.analyzer(*index)).is_some());
        let learns_groups = self.learn.states.is_some();
        let done = parallel_map(self.turns.count(), order.len(), &|place| {
            let index = order[place];
            // With workers, several lanes merge concurrently.
            let _turn = (!learns_groups).then(|| self.turns.acquire());
            if left.answered.contains(&index) {
                return self
                    .learn
                    .hear(asks[index], &self.run.scratches[index], answers)
                    .map(|()| true);
            }
            let state = match left.divided.contains(&index) {
                true => self.load_merged_shares(index, tasks),
                false if learns_groups => self.merge_beside(index, pieces),
                false => self.merge(index, pieces, None),
            };
            match state.map_err(|fault| self.learn.place(fault, asks[index]))? {
                Some(state) => self
                    .learn
                    .conclude(asks[index], state, !self.is_history, answers)
                    .map(|()| true),
                None => Ok(false),
            }
        })?;
        Ok(done.into_iter().all(|whole| whole))
    }

    /// Merges the states of a lane of groups, some of which were not committed; false if a committed one is corrupt.
    fn merge_unkept(
        &self,
        pieces: &[StateSource],
        unkept: Vec<PieceStates>,
        answers: &Mutex<LearnResult>,
    ) -> Result<bool> {
        let mut runs = Vec::new();
        pieces
            .iter()
            .for_each(|piece| collect_lowest(piece, &mut runs));
        runs.retain(|run| !unkept.iter().any(|states| states.overlaps(run)));
        self.learn
            .store
            .fetch_partials(runs.iter().flat_map(|run| self.state_ids(run)))?;
        let kept = runs.into_iter().map(|tasks| PieceStates {
            tasks,
            states: BTreeMap::new(),
        });
        let mut pieces: Vec<PieceStates> = kept.chain(unkept).collect();
        pieces.sort_by_key(|states| states.tasks.start);
        for (index, ask) in self.run.lane.asks.iter().enumerate() {
            let states = pieces
                .iter_mut()
                .map(|piece| match piece.states.remove(&index) {
                    Some(state) => Ok(Some(state)),
                    None => self.load(index, &StateSource::Kept(piece.tasks.clone()), None),
                });
            match merge_pairwise(self.analyzer(index), states)? {
                Some(state) => self
                    .learn
                    .conclude(*ask, state, !self.is_history, answers)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The state of the only analyzer of a lane over consecutive sources; threads merge neighbours side by side.
    fn merge_beside(&self, index: usize, pieces: &[StateSource]) -> Result<Option<AnyState>> {
        let parts = self.turns.count().min(pieces.len()).max(1);
        let start = |part: usize| part * pieces.len() / parts;
        let merged = parallel_map(parts, parts, &|part| {
            let _turn = self.turns.acquire();
            self.merge(index, &pieces[start(part)..start(part + 1)], None)
        })?;
        merge_pairwise(self.analyzer(index), merged.into_iter().map(Ok))
    }

    /// Merges the sources of a run of spans and commits the state.
    fn merge_run(
        &self,
        index: usize,
        tasks: &Range<usize>,
        pieces: &[StateSource],
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        let (learn, analyzer) = (self.learn, self.analyzer(index));
        let Some(mut state) = self.merge(index, pieces, share)? else {
            return Ok(None);
        };
        let id = self.state_id(index, tasks);
        match share {
            Some(share) => {
                learn
                    .store
                    .put_partial_share(id, share, analyzer, &mut state, learn.scratch)?
            }
            None => {
                learn
                    .store
                    .put_partial(id, analyzer, &mut state, learn.scratch, self.is_history)?
            }
        }
        Ok(Some(state))
    }

    /// Merges the sources of a run of spans and commits the state in shares.
    fn merge_into_shares(
        &self,
        index: usize,
        tasks: &Range<usize>,
        pieces: &[StateSource],
    ) -> Result<()> {
        let (learn, analyzer) = (self.learn, self.analyzer(index));
        let Some(mut state) = self.merge(index, pieces, None)? else {
            return Ok(());
        };
        learn.store.put_partial_shares(
            self.state_id(index, tasks),
            analyzer,
            &mut state,
            learn.scratch,
        )
    }

    /// The state of an analyzer over consecutive sources, or one share of it; `None` if one of them is corrupt.
    fn merge(
        &self,
        index: usize,
        pieces: &[StateSource],
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        let (analyzer, scratch) = (self.analyzer(index), &self.run.scratches[index]);
        let mut merged: Option<AnyState> = None;
        let is_stored = |piece: &StateSource| !matches!(piece, StateSource::Merged { .. });
        for group in pieces.chunk_by(|before, next| is_stored(before) && is_stored(next)) {
            // A share is small, so that the request that fetches it takes the time.
            for group in group.chunks(if share.is_some() { SHARES_AT_ONCE } else { 1 }) {
                let states = parallel_map(group.len(), group.len(), &|place| {
                    self.load(index, &group[place], share)
                })?;
                for state in states {
                    let Some(state) = state else { return Ok(None) };
                    match &mut merged {
                        None => merged = Some(state),
                        Some(merged) => analyzer.merge(merged, state)?,
                    }
                }
            }
        }
        match merged {
            Some(merged) => Ok(Some(merged)),
            None => analyzer.zero(scratch).map(Some),
        }
    }

    /// The state of an analyzer over a source, or one share of it; `None` if it is corrupt.
    fn load(
        &self,
        index: usize,
        piece: &StateSource,
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        let (learn, analyzer, scratch) =
            (self.learn, self.analyzer(index), &self.run.scratches[index]);
        let stored = |tasks| {
            let id = self.state_id(index, tasks);
            match share {
                Some(share) => learn.store.get_partial_share(id, share, analyzer, scratch),
                None => learn.store.get_partial(id, analyzer, scratch),
            }
        };
        match piece {
            StateSource::Kept(tasks) | StateSource::Read(tasks) => stored(tasks),
            StateSource::Merged { tasks, kept, of } => {
                let known = if kept[index] { stored(tasks)? } else { None };
                match known {
                    Some(state) => Ok(Some(state)),
                    None => self.merge_run(index, tasks, of, share),
                }
            }
        }
    }
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
    for ask in &run.lane.asks {
        let alone = AnalyzerLane {
            asks: vec![*ask],
            scans: learn.context.program.scans_for(*ask),
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
            match by_windows.iter().find(|(known, _)| *known == windows) {
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

/// The id of what an analyzer does with the rows of a span; `None` if other rows take part.
fn analyzer_operation_id(learn: &LearnPass<'_>, ask: AnalyzerId) -> Result<Option<ContentId>> {
    let bound = &learn.context.program.bound;
    let question = &bound.asks[ask];
    let analyzer = &question.ask.analyzer;
    let mut id = IdBuilder::new("partial");
    id.text(analyzer.kind()).json(&json!([
        analyzer.version(),
        analyzer.config(),
        question.ask.inputs,
        question.part
    ]));
    for scan in learn.context.program.scans_for(ask) {
        let row_order = |op| learn.context.state.row_order(op);
        match operation_id(bound, learn.pipeline, &scan, &row_order, &|ask| {
            learn.context.digest(ask)
        })? {
            Some(shape) => id.id(shape),
            None => return Ok(None),
        };
    }
    Ok(Some(id.finish()))
}
