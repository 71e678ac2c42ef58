//! Rows in order: ranges of spans that run side by side, each with what windows remember from
//! the spans before it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay_cluster::{ROUNDS, WindowInit, round_weight};
use forebay_commit::StateStore;
use forebay_model::{Chunk, ColumnExtent, ContentId, Fault, IdBuilder, Result, catch_panic, codes};
use forebay_plan::{
    Carry, ChainPath, ChainWindow, ColumnScan, OpChain, OpId, PlanOp, Program, WindowBudget, WindowRowOrder,
    base_column, span_extents,
};
use forebay_storage::failpoint::reading;
use forebay_storage::{ChunkIterator, MemoryBudget, ScanRequest, ScratchDir, StorageClient, WrittenFile};
use forebay_threads::{HandOff, lock, poisoned_lock, run_on_all};
use forebay_window::{WindowPlan, WindowReach};
use serde::de::DeserializeOwned;

use crate::chunk_groups::for_each_group;
use crate::chunk_source::{ChunkIter, RangeReader, RangeReaderFn};
use crate::halo::HaloIndex;
use crate::read_ahead::{PlannedSpan, ReadAhead};
use crate::remote::RemoteExecutor;
use crate::run_state::{RunState, chunk_rows_max, group_rows_max, scan_request};
use crate::span_index::{SpanDependency, SpanIndex, WorkUnit};

/// Stored bytes that a range should have at least: below, another range is not worth its start.
const RANGE_BYTES_MIN: u64 = 4 << 20;

/// The same where all that a range needs of the rows before it is a halo.
const HALO_RANGE_BYTES_MIN: u64 = 256 << 10;

/// What advancing over a halo costs, as a share of reading, computing and writing its rows: every series is new
/// there, but windows are not evaluated. Measured on nights with windows of 28 days.
const HALO_SHARE: f64 = 0.2;

/// How many times as much as its halo a range of a worker reads on the average at least, where there are enough for
/// all of them: so halos are about a twentieth of the work.
const HALOS_PER_RANGE: u64 = 18;

/// The same, unless tests say otherwise.
pub fn range_bytes_min() -> u64 {
    bytes_min(RANGE_BYTES_MIN)
}

/// So many bytes, unless tests say otherwise: they have little data.
pub fn bytes_min(usual: u64) -> u64 {
    let given = std::env::var("FOREBAY_RANGE_BYTES").ok().and_then(|bytes| bytes.parse().ok());
    given.unwrap_or(usual).max(1)
}

/// What advancing over rows costs, as a share of reading, computing and writing them: measured on
/// the windows benchmark. Only balances ranges.
pub const ADVANCE_SHARE: f64 = 0.4;

/// The same among threads of a process: divided more evenly, they remember less at a time, and those that write
/// help each other.
const ADVANCE_SHARE_HELPED: f64 = 0.1;

/// What to do about a broken file that an earlier run wrote.
const REMOVE_IT: &str = "it is a file of the output: remove it, and run again";

/// A span of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanRef {
    pub scan: usize,
    pub span: usize,
}

/// Which columns of a task are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// All that its rows need.
    All,
    /// What one of the narrow ways needs.
    Narrow(usize),
    /// The same of a whole part, from one of the written files.
    Written(usize),
    /// What windows remember.
    Remembered,
}

/// Parts that one thread does in order. Where windows remember everything, tasks between them that are done already
/// are advanced over.
#[derive(Debug)]
pub struct RangePlan {
    /// Among the parts that are to be done.
    pub parts: Range<usize>,
    /// The first of its tasks.
    pub from: usize,
    pub start: WindowInit,
    /// Whether windows remember at its end all that may matter to rows to come, not only what matters to its own.
    pub is_whole: bool,
}

/// A file that an earlier run wrote, read instead of the spans that it was made of.
pub struct PriorFile {
    /// Which of the narrow ways its rows go.
    pub way: usize,
    pub stored: Arc<dyn WrittenFile>,
    pub shown: String,
}

impl RangePlan {
    /// What it reads, in order, as far as that can be told before. `of` tells which tasks of a part are opened, and
    /// which columns are read of them.
    pub fn planned_reads(
        &self,
        tasks: &[SpanRef],
        todo: &[WorkUnit],
        of: impl Fn(&WorkUnit) -> (Range<usize>, ReadMode),
    ) -> Vec<(SpanRef, ReadMode)> {
        let before = if let WindowInit::Halo(halo) = &self.start { halo.as_slice() } else { &[] };
        let before = before.iter().flat_map(|before| &tasks[before.clone()]);
        let mut readings: Vec<(SpanRef, ReadMode)> = before.map(|task| (*task, ReadMode::Remembered)).collect();
        let mut at = self.from;
        for part in &todo[self.parts.clone()] {
            readings.extend(tasks[at..part.tasks.start].iter().map(|task| (*task, ReadMode::Remembered)));
            let (opened, columns) = of(part);
            readings.extend(tasks[opened].iter().map(|task| (*task, columns)));
            at = part.tasks.end;
        }
        readings
    }
}

/// How parts become ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PartitionStrategy {
    /// A range for each part: rows need not come in order.
    Each,
    /// So many rows of so many ranges each, where each range of a row goes on from the one before. They end together
    /// if advancing over rows costs that share of all.
    Evenly { rows: usize, each: usize, advance: f64 },
    /// In rounds of `slots` ranges, each smaller than those of the round before: threads that finish
    /// their large ranges take the small ones, so that all end together.
    Falling { slots: usize },
}

/// Checkpoint hook, called with the window state before the unit commits: a crash in between repeats the unit and
/// never loses the state.
pub type CheckpointHook<'s> = &'s (dyn Fn(&Carry) -> Result<()> + Sync);

/// What windows remember, and where the next rows come from.
pub type ScanCursor<'g> = (&'g mut Carry, &'g dyn RangeReader);

/// What a thread does that has ranges, given what does them.
pub type RangeLoopHook<'f> = &'f (dyn Fn(&dyn Fn() -> Result<()>) -> Result<()> + Sync);

/// Takes chunks of a scan that follow one another.
pub type ScanChunksFn<'f> = &'f mut dyn FnMut(usize, &[Chunk], &mut Carry) -> Result<()>;

/// Who does ranges.
pub struct RangeExecution<'f, 'r> {
    pub ranges: &'f [RangePlan],
    /// On so many threads.
    pub threads: usize,
    /// Gives the rows of each.
    pub reads: RangeReaderFn<'f, 'r>,
    /// What each thread does, given what does its ranges.
    pub around: RangeLoopHook<'f>,
    /// What ranges share.
    pub budget: WindowBudget,
}

/// What parts come to.
pub struct UnitResults<T> {
    /// By their first tasks.
    pub parts: BTreeMap<usize, T>,
    /// Steps that were not of the declared period.
    pub gaps: u64,
    /// Under which id is kept what windows remember at the end.
    pub carry: Option<ContentId>,
}

/// The tasks of a pass in order, named, and what of the tasks before each matters to it.
pub struct SpanTimeline {
    pub tasks: Vec<SpanRef>,
    pub history: SpanIndex,
}

impl SpanTimeline {
    /// Whether all tasks before one matter to it.
    pub fn needs_all(&self) -> bool {
        matches!(self.history.past, SpanDependency::Everything)
    }
}

/// The scans of a pass with their chains, seen as one sequence of rows.
pub struct OrderedScan<'a> {
    pub io: &'a StorageClient,
    pub program: &'a Program,
    pub known: &'a RunState,
    pub memory: MemoryBudget,
    pub batch_rows: usize,
    pub threads: usize,
    pub scans: &'a [ColumnScan],
    /// The first scan whose rows count. Those before it only warm up window state.
    pub first_scan: usize,
    pub chains: Vec<&'a OpChain>,
    /// Ways through the only chain for parts of which some columns stay.
    pub narrow: Vec<ChainPath>,
    /// Files that are read instead of spans.
    pub written: Vec<PriorFile>,
    /// What a range does itself of the work with its rows, where idle threads take over the rest.
    pub computing: f64,
    /// The spans that are read next.
    pub ahead: ReadAhead<(SpanRef, ReadMode)>,
}

impl OrderedScan<'_> {
    /// All spans in order.
    pub fn span_refs(&self) -> Result<Vec<SpanRef>> {
        let mut tasks = Vec::new();
        for (index, scan) in self.scans.iter().enumerate() {
            let spans = self.known.input(self.program, scan.base)?.dataset.spans.len();
            tasks.extend((0..spans).map(|span| SpanRef { scan: index, span }));
        }
        Ok(tasks)
    }

    /// Whether what comes out of a row depends on the rows before it.
    pub fn is_ordered(&self) -> bool {
        self.chains.iter().any(|chain| chain.is_ordered())
    }

    /// The windows of which is kept what they remember; `None` where there are none, or where
    /// their rows do not all come in order of time.
    pub fn checkpointed_windows(&self) -> Option<BTreeMap<OpId, Arc<WindowPlan>>> {
        let mut kept = BTreeMap::new();
        for window in self.chains.iter().flat_map(|chain| chain.windows()) {
            match (&window.plan, window.way) {
                (Some(plan), WindowRowOrder::Time) => kept.insert(window.op, plan.clone()),
                _ => return None,
            };
        }
        (!kept.is_empty()).then_some(kept)
    }

    /// Does parts on several threads, each with what the windows remember before it; gives what
    /// they come to, by their first tasks. What the windows remember at the end is kept. `shape`
    /// names what is done with the rows of each span.
    pub fn run_units<T: Send + DeserializeOwned>(
        &self,
        line: &SpanTimeline,
        shape: ContentId,
        (store, scratch): (&StateStore, &ScratchDir),
        todo: &[WorkUnit],
        (threads, away): (usize, Option<&RemoteExecutor<'_>>),
        work: impl Fn(&WorkUnit, &mut Carry, &AtomicBool, CheckpointHook<'_>) -> Result<Option<T>> + Sync,
    ) -> Result<UnitResults<T>> {
        if let Some(away) = away
            && let Some(done) = self.run_on_workers(line, shape, store, todo, away)?
        {
            return Ok(done);
        }
        let ranges = self.local_ranges(line, (shape, store), todo, threads)?;
        let reads = |_| Box::new(self) as Box<dyn RangeReader>;
        let work = |part: &WorkUnit, (carry, _): ScanCursor<'_>, stop: &AtomicBool, seal: CheckpointHook<'_>| {
            work(part, carry, stop, seal)
        };
        let budget = WindowBudget::new(self.memory.states_bytes());
        let hands = RangeExecution { ranges: &ranges, threads, reads: &reads, around: &|ranges| ranges(), budget };
        self.run_on_threads(line, shape, (store, scratch), todo, hands, work)
    }

    /// The ranges in which threads of this process do parts.
    pub fn local_ranges(
        &self,
        line: &SpanTimeline,
        (shape, store): (ContentId, &StateStore),
        todo: &[WorkUnit],
        threads: usize,
    ) -> Result<Vec<RangePlan>> {
        let cut = if self.is_ordered() {
            PartitionStrategy::Evenly { rows: threads, each: 1, advance: ADVANCE_SHARE_HELPED }
        } else {
            PartitionStrategy::Each
        };
        self.plan_ranges(todo, line, cut, &self.find_checkpoint(line, shape, store))
    }

    /// Like [`OrderedScan::run_units`], by threads of this process.
    pub fn run_on_threads<'r, T: Send>(
        &self,
        line: &SpanTimeline,
        shape: ContentId,
        (store, scratch): (&StateStore, &ScratchDir),
        todo: &[WorkUnit],
        RangeExecution { ranges, threads, reads, around, budget }: RangeExecution<'_, 'r>,
        work: impl Fn(&WorkUnit, ScanCursor<'_>, &AtomicBool, CheckpointHook<'_>) -> Result<Option<T>> + Sync,
    ) -> Result<UnitResults<T>> {
        let SpanTimeline { tasks, history, .. } = line;
        let windows = self.checkpointed_windows();
        let stop = AtomicBool::new(false);
        let threads = threads.min(ranges.len()).max(1);
        let none = BTreeMap::new();
        let carried = ranges.iter().filter(|range| range.start == WindowInit::Carried);
        let carries = CarryRelay {
            sequence: self,
            tasks,
            ranges,
            kept: &|id| {
                let windows = windows.as_ref().unwrap_or(&none);
                store.get_carry(id, |input| Carry::decode(windows, &budget, input))
            },
            budget: &budget,
            stop: &stop,
            found: HandOff::new(carried.map(|range| range.from)),
        };
        let next = AtomicUsize::new(0);
        let found: Mutex<(BTreeMap<usize, T>, u64)> = Mutex::default();
        // No row comes after those of the future.
        let end = windows.as_ref().filter(|_| self.first_scan == 0);
        let end = end.map(|windows| (windows, history.carry_id(shape, tasks.len())));
        let range = |number: usize, range: &RangePlan| {
            let reads = &*reads(number);
            let Some(mut carry) = carries.carry_at(number, reads)? else { return Ok(false) };
            let mut at = range.from;
            for part in &todo[range.parts.clone()] {
                if !self.advance_over(&tasks[at..part.tasks.start], (&mut carry, reads), &stop)? {
                    return Ok(false);
                }
                let seal = |carry: &Carry| match end {
                    Some((windows, id)) if part.tasks.end == tasks.len() && range.is_whole => {
                        store.put_carry(id, scratch, &mut |out| carry.encode(windows, out))
                    }
                    _ => Ok(()),
                };
                let Some(done) = work(part, (&mut carry, reads), &stop, &seal)? else { return Ok(false) };
                lock(&found)?.0.insert(part.tasks.start, done);
                at = part.tasks.end;
            }
            if range.parts.end == todo.len() && todo.last().is_some_and(|part| part.tasks.end == tasks.len()) {
                lock(&found)?.1 = carry.gaps();
            }
            Ok(true)
        };
        let each = || {
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(next) = ranges.get(number) else { break };
                let done = catch_panic(|| range(number, next));
                if !matches!(done, Ok(true)) {
                    stop.store(true, Ordering::Relaxed);
                    carries.found.stop();
                }
                done?;
            }
            Ok(())
        };
        let done = run_on_all(threads, &|| around(&each));
        done.into_iter().collect::<Result<()>>()?;
        let (parts, gaps) = found.into_inner().map_err(|_| poisoned_lock())?;
        let end = end.filter(|_| ranges.last().is_none_or(|range| range.is_whole));
        Ok(UnitResults { parts, gaps, carry: end.map(|(_, id)| id) })
    }

    /// Tells what an earlier run remembered before a task, and its bytes.
    pub fn find_checkpoint<'k>(
        &self,
        line: &'k SpanTimeline,
        shape: ContentId,
        store: &'k StateStore,
    ) -> impl Fn(usize) -> Result<Option<(ContentId, u64)>> + use<'k> {
        let has_windows = self.checkpointed_windows().is_some();
        move |task| {
            let id = line.history.carry_id(shape, task);
            let bytes = if has_windows { store.carry_bytes(id)? } else { None };
            Ok(bytes.map(|bytes| (id, bytes)))
        }
    }

    /// All tasks, named.
    pub fn timeline(&self) -> Result<SpanTimeline> {
        let tasks = self.span_refs()?;
        let held = self.known.held(self.program, self.scans)?;
        let past = match self.is_ordered() {
            true => self.halo_index(&tasks)?.map_or(SpanDependency::Everything, SpanDependency::Halos),
            false => SpanDependency::Nothing,
        };
        // Rows may come before others that lie behind them.
        let windows = self.chains.iter().flat_map(|chain| chain.windows());
        let sorted: Vec<OpId> =
            windows.filter(|window| window.way == WindowRowOrder::Sorted).map(|window| window.op).collect();
        let sorted = (!sorted.is_empty()).then(|| {
            let mut id = IdBuilder::new("ways");
            sorted.iter().for_each(|op| {
                id.bytes(&op.to_le_bytes());
            });
            id.finish()
        });
        Ok(SpanTimeline { history: SpanIndex::new(held, past, sorted), tasks })
    }

    /// Distributes parts over threads or workers: ranges of neighbours. `kept` gives what an earlier run
    /// remembered before a task, and its bytes.
    pub fn plan_ranges(
        &self,
        parts: &[WorkUnit],
        line: &SpanTimeline,
        cut: PartitionStrategy,
        kept: &dyn Fn(usize) -> Result<Option<(ContentId, u64)>>,
    ) -> Result<Vec<RangePlan>> {
        let (history, line_needs_all) = (&line.history, line.needs_all());
        let bytes: Vec<u64> = parts.iter().map(|part| history.bytes(part.tasks.clone())).collect();
        let total: u64 = bytes.iter().sum();
        let of = |ranges: usize, least: u64| ranges.min((total / least) as usize).clamp(1, parts.len().max(1));
        let at_most = |ranges: usize| of(ranges, range_bytes_min());
        // What the ranges read of the rows before them, the most of each, if there are so many.
        let halo = |ranges: usize| {
            let at = |range: usize| range * parts.len() / ranges;
            (0..ranges).filter_map(|range| history.halo_bytes(&parts[at(range)..at(range + 1)])).max()
        };
        let has_halo = halo(1).is_some();
        let count = match cut {
            PartitionStrategy::Each => parts.len(),
            // Tests have little data, and want ranges.
            PartitionStrategy::Evenly { rows, each, .. } if !has_halo || range_bytes_min() < HALO_RANGE_BYTES_MIN => {
                at_most(rows * each)
            }
            // Each has its halo more to read; what they leave idle takes over a part of the work.
            PartitionStrategy::Evenly { rows: threads, .. } => {
                let cost = |ranges: &usize| {
                    let own = if *ranges < threads { self.computing } else { 1.0 };
                    let before = HALO_SHARE * halo(*ranges).unwrap_or(0) as f64;
                    let longest = own * (before + total as f64 / *ranges as f64);
                    let mean = (before * *ranges as f64 + total as f64) / threads as f64;
                    longest.max(mean) as u64
                };
                (1..=of(threads, HALO_RANGE_BYTES_MIN)).min_by_key(cost).unwrap_or(1)
            }
            PartitionStrategy::Falling { slots } => {
                // Halos cost more than workers that do not end together, and less than workers without work.
                let is_worth = |ranges: &usize| total / *ranges as u64 >= halo(*ranges).unwrap_or(0) * HALOS_PER_RANGE;
                let most = at_most(slots * ROUNDS);
                (slots..=most).rev().find(is_worth).unwrap_or(most.min(slots))
            }
        };
        let grouped = cut != PartitionStrategy::Each;
        let weight = |range: usize| match cut {
            PartitionStrategy::Falling { slots } => round_weight(range / slots.max(1)),
            // Each row of ranges begins once window state has advanced over the rows before it.
            PartitionStrategy::Evenly { rows, advance, .. } if !has_halo => {
                (1.0 - advance).powi(lane_of_range(range, count, rows) as i32)
            }
            _ => 1.0,
        };
        let weights: f64 = (0..count).map(weight).sum();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let (mut seen, mut goal) = (0, 0.0);
        for (index, part) in parts.iter().enumerate() {
            // What lies in between has to be advanced over in any case, unless an earlier run kept what comes of it.
            let goes_on = || Ok::<_, Fault>(line_needs_all && kept(part.tasks.start)?.is_none());
            let follows = index > 0 && (parts[index - 1].tasks.end == part.tasks.start || goes_on()?);
            let full = !grouped || seen as f64 + bytes[index] as f64 / 2.0 > goal;
            seen += bytes[index];
            match ranges.last_mut() {
                Some(range) if follows && !full => range.end = index + 1,
                _ => {
                    if full && goal < total as f64 {
                        goal += weight(ranges.len().min(count - 1)) / weights * total as f64;
                    }
                    ranges.push(index..index + 1);
                }
            }
        }
        let range = |range: Range<usize>| {
            let tasks = parts[range.start].tasks.start..parts[range.end - 1].tasks.end;
            let from = tasks.start;
            let start = self.window_init(tasks, history, kept)?;
            let is_whole = match &start {
                WindowInit::Halo(halo) => history.covers_retention(halo, from),
                WindowInit::Fresh | WindowInit::Kept(_) | WindowInit::Carried => true,
            };
            Ok(RangePlan { parts: range, from, start, is_whole })
        };
        ranges.into_iter().map(range).collect()
    }

    /// Where windows get what they remember before some tasks: from whatever reads least.
    fn window_init(
        &self,
        tasks: Range<usize>,
        history: &SpanIndex,
        kept: &dyn Fn(usize) -> Result<Option<(ContentId, u64)>>,
    ) -> Result<WindowInit> {
        if tasks.start == 0 || matches!(history.past, SpanDependency::Nothing) {
            return Ok(WindowInit::Fresh);
        }
        Ok(match (kept(tasks.start)?, history.halo_of(&tasks)) {
            (Some((_, bytes)), Some(halo)) if bytes > history.bytes_of(&halo) => WindowInit::Halo(halo),
            (Some((id, _)), _) => WindowInit::Kept(id),
            (None, Some(halo)) => WindowInit::Halo(halo),
            (None, None) => WindowInit::Carried,
        })
    }

    /// Where rows lie that decide others; `None` where that may be anywhere, or the spans do not tell.
    fn halo_index(&self, tasks: &[SpanRef]) -> Result<Option<HaloIndex>> {
        // Rows of the future go on from those of the history, through the same windows.
        if self.scans.len() > 1 && self.first_scan == 0 {
            return Ok(None);
        }
        let mut column: Option<(String, WindowRowOrder)> = None;
        let mut reaches = Vec::new();
        for (scan, chain) in self.scans.iter().zip(&self.chains) {
            match self.scan_reach((scan, chain), &mut column)? {
                Some(reach) => reaches.push(reach),
                None => return Ok(None),
            }
        }
        let same = reaches.windows(2).all(|pair| pair[0] == pair[1]);
        let Some(reach) = reaches.pop().filter(|_| same) else { return Ok(None) };
        let (Some((column, _)), WindowReach::Ticks(distances)) = (column, reach) else { return Ok(None) };
        let mut extents: Vec<ColumnExtent> = Vec::with_capacity(tasks.len());
        for scan in self.scans {
            let dataset = &self.known.input(self.program, scan.base)?.dataset;
            let Some(own) = span_extents(dataset, &column) else { return Ok(None) };
            extents.extend(own);
        }
        // Where rows turn out to come key by key, the order of their spans has not been checked yet.
        let follow = extents.windows(2).all(|pair| pair[0].max <= pair[1].min);
        Ok(follow.then(|| HaloIndex::new(extents, distances)))
    }

    /// How far the windows of a scan reach together, and the column that measures it, which is the same for all scans;
    /// `None` where they reach everything, or the column does not tell.
    fn scan_reach(
        &self,
        (scan, chain): (&ColumnScan, &OpChain),
        column: &mut Option<(String, WindowRowOrder)>,
    ) -> Result<Option<WindowReach>> {
        let mut reach = WindowReach::same_time();
        let [stream] = scan.streams.as_slice() else { return Ok(None) };
        for ChainWindow { op, way, plan } in chain.windows() {
            let (PlanOp::Window(window), Some(plan)) = (&self.program.bound.ops[*op].op, plan) else { continue };
            let by = match (way, plan.reach()) {
                (WindowRowOrder::Sorted, _) => continue,
                // Windows over windows reach as far as all of them together.
                (WindowRowOrder::Time, WindowReach::Unbounded) => return Ok(None),
                (WindowRowOrder::Time, own) => {
                    reach = reach.compose(own);
                    &window.time
                }
                (WindowRowOrder::Key, _) => match window.keys.first() {
                    Some(key) => key,
                    None => return Ok(None),
                },
            };
            let position = stream.stream.ops.iter().position(|known| known == op).unwrap_or(0);
            let before = forebay_plan::OpStream { base: scan.base, ops: stream.stream.ops[..position].to_vec() };
            let Some(base) = base_column(&self.program.bound, &before, by) else { return Ok(None) };
            if *column.get_or_insert((base.clone(), *way)) != (base, *way) {
                return Ok(None);
            }
        }
        Ok(Some(reach))
    }

    /// Puts the outputs of sorted windows beside the rows of a task.
    pub fn attach_sorted(&self, task: SpanRef, carry: &mut Carry) -> Result<()> {
        let stream = self.scans[task.scan].streams.first();
        let stream = &stream.ok_or_else(|| Fault::internal("a scan without a stream"))?.stream;
        let sorted = self.known.sorted_for(self.program, stream, self.chains[task.scan])?;
        sorted.iter().try_for_each(|sorted| sorted.attach(task.span, carry))
    }

    /// Window state at the start of a task, computed without the results of other ranges; `None` when the pass was
    /// stopped.
    pub fn init_windows(
        &self,
        tasks: &[SpanRef],
        (start, from): (&WindowInit, usize),
        budget: &WindowBudget,
        kept: LoadCarryFn<'_>,
        (reads, stop): (&dyn RangeReader, &AtomicBool),
    ) -> Result<Option<Carry>> {
        let mut carry = Carry::new(budget);
        let all = 0..from;
        let before = match start {
            WindowInit::Fresh => return Ok(Some(carry)),
            WindowInit::Halo(halo) => halo.as_slice(),
            WindowInit::Kept(id) => match kept(*id)? {
                Some(carry) => return Ok(Some(carry)),
                // It is broken: what it was made from is still there.
                None => std::slice::from_ref(&all),
            },
            WindowInit::Carried => return Err(Fault::internal("a range that begins with what another one found out")),
        };
        for tasks in before.iter().map(|before| &tasks[before.clone()]) {
            if !self.advance_over(tasks, (&mut carry, reads), stop)? {
                return Ok(None);
            }
        }
        Ok(Some(carry))
    }

    /// Lets windows remember the rows of some tasks; false when the pass was stopped.
    pub fn advance_over(&self, tasks: &[SpanRef], (carry, reads): ScanCursor<'_>, stop: &AtomicBool) -> Result<bool> {
        self.for_each_chunk_group((tasks, ReadMode::Remembered), (carry, reads), stop, &mut |scan, chunks, carry| {
            let advanced = self.chains[scan].advance(chunks, carry);
            advanced.map_err(|fault| self.known.note_fallen(carry, fault))?;
            self.memory.check()
        })
    }

    /// Hands over the chunks of some tasks, with their scans, as many at once as go together; false when the pass was
    /// stopped.
    pub fn for_each_chunk_group(
        &self,
        (tasks, columns): (&[SpanRef], ReadMode),
        (carry, reads): ScanCursor<'_>,
        stop: &AtomicBool,
        take: ScanChunksFn<'_>,
    ) -> Result<bool> {
        for tasks in tasks.chunk_by(|task, next| task.scan == next.scan) {
            let scan = tasks[0].scan;
            let chain = self.chains[scan];
            let rows_max = group_rows_max(self.chunk_rows_max(chain), chain, self.memory, self.threads);
            let mut open = |task: &SpanRef, carry: &mut Carry| {
                self.attach_sorted(*task, carry)?;
                reads.chunks(*task, columns)
            };
            let mut take = |chunks: &[Chunk], carry: &mut Carry| take(scan, chunks, carry);
            if !for_each_group((tasks, rows_max), (carry, stop, self.memory), &mut open, &mut take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The way that rows of such columns go, if it is a narrow one.
    pub fn column_path(&self, columns: ReadMode) -> Option<&ChainPath> {
        match columns {
            ReadMode::Narrow(way) => self.narrow.get(way),
            ReadMode::Written(at) => self.written.get(at).and_then(|written| self.narrow.get(written.way)),
            ReadMode::All | ReadMode::Remembered => None,
        }
    }

    fn chunk_rows_max(&self, chain: &OpChain) -> usize {
        chunk_rows_max(self.batch_rows, [chain].into_iter(), self.memory, self.threads)
    }

    /// What is read of a task, unless that is a written file.
    fn planned_span(&self, task: SpanRef, columns: ReadMode) -> Result<Option<PlannedSpan>> {
        if matches!(columns, ReadMode::Written(_)) {
            return Ok(None);
        }
        let request = Arc::new(self.span_request(task, columns)?);
        let input = self.known.input(self.program, self.scans[task.scan].base)?.clone();
        Ok(Some(PlannedSpan { input, span: task.span, request }))
    }

    /// Announces tasks that are read in this order.
    pub fn plan_reads(&self, reads: impl Iterator<Item = (SpanRef, ReadMode)>) -> Result<()> {
        for (task, columns) in reads {
            self.ahead.plan(self.planned_span(task, columns)?.map(|span| ((task, columns), span)))?;
        }
        Ok(())
    }

    fn span_request(&self, task: SpanRef, columns: ReadMode) -> Result<ScanRequest> {
        let (scan, chain) = (&self.scans[task.scan], self.chains[task.scan]);
        let input = self.known.input(self.program, scan.base)?;
        let mut request = scan_request(self.program, scan, input, self.chunk_rows_max(chain), false);
        match (columns, self.column_path(columns)) {
            (_, Some(track)) => request.columns = track.columns().to_vec(),
            (ReadMode::Remembered, _) => request.columns = chain.advance_columns().to_vec(),
            _ => {}
        }
        Ok(request)
    }

    /// The rows of a task.
    pub fn open_span(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIterator> {
        let input = self.known.input(self.program, self.scans[task.scan].base)?;
        let span = &input.dataset.spans[task.span];
        let written = if let ReadMode::Written(at) = columns { self.written.get(at) } else { None };
        let label = written.map_or_else(|| span.label(), |written| written.shown.clone());
        reading(&label);
        let chunks = match written {
            Some(written) => written.stored.rows(&self.span_request(task, columns)?)?,
            None => {
                let open = || input.source.open(self.io, span, &self.span_request(task, columns)?);
                self.ahead.take(self.io, (task, columns), open)?
            }
        };
        let is_written = written.is_some();
        let placed = move |fault: Fault| match fault.code() {
            codes::CORRUPT if is_written => fault.file(&*label).hint(REMOVE_IT),
            _ => fault.file(&*label),
        };
        Ok(Box::new(chunks.map(move |chunk| chunk.map_err(&placed))))
    }
}

impl RangeReader for &OrderedScan<'_> {
    fn chunks(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIter<'_>> {
        Ok(self.open_span(task, columns)?)
    }
}

/// Reads what an earlier run remembered, by its id.
pub type LoadCarryFn<'a> = &'a (dyn Fn(ContentId) -> Result<Option<Carry>> + Sync);

/// What windows remember at the starts of ranges, handed from the thread that reads the rows before to those that
/// need it.
struct CarryRelay<'a> {
    sequence: &'a OrderedScan<'a>,
    tasks: &'a [SpanRef],
    ranges: &'a [RangePlan],
    /// What all of them hold together.
    budget: &'a WindowBudget,
    kept: LoadCarryFn<'a>,
    stop: &'a AtomicBool,
    found: HandOff<Carry>,
}

impl CarryRelay<'_> {
    /// What windows remember at the start of a range; `None` when the pass was stopped.
    fn carry_at(&self, range: usize, reads: &dyn RangeReader) -> Result<Option<Carry>> {
        let RangePlan { start, from, .. } = &self.ranges[range];
        if *start != WindowInit::Carried {
            return self.sequence.init_windows(self.tasks, (start, *from), self.budget, self.kept, (reads, self.stop));
        }
        let advance = |mut carry: Carry, from: usize, to: usize| {
            let is_whole = self.sequence.advance_over(&self.tasks[from..to], (&mut carry, reads), self.stop)?;
            Ok(is_whole.then_some(carry))
        };
        self.found.state_at(*from, || self.first_carry(), advance, Carry::fork)
    }

    /// What is known before the first range that begins with what another one found out: what an earlier run kept, or
    /// else nothing.
    fn first_carry(&self) -> Result<(usize, Carry)> {
        let first = self.ranges.iter().position(|range| range.start == WindowInit::Carried).unwrap_or(0);
        for known in self.ranges[..first].iter().rev() {
            let WindowInit::Kept(id) = &known.start else { continue };
            if let Some(kept) = (self.kept)(*id)? {
                return Ok((known.from, kept));
            }
        }
        Ok((0, Carry::new(self.budget)))
    }
}

/// In which of so many rows a range lies.
pub fn lane_of_range(range: usize, ranges: usize, rows: usize) -> usize {
    range * rows.min(ranges) / ranges
}

/// What a user should know about gaps.
pub fn gaps_message(gaps: u64) -> String {
    format!("{gaps} steps from one row of a series to the next were not the declared period")
}
