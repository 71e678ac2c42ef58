//! Rows in order: ranges of spans that run side by side, each with what windows remember from
//! the spans before it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay_model::{Chunk, Extent, Fault, Id, IdBuilder, Result, caught, codes};
use forebay_plan::{Budget, Carry, Chain, ChainWindow, Op, OpId, Program, Scan, Track, Way, base_column, span_extents};
use forebay_storage::{Chunks, Io, Memory, ScratchDir, Stored, failpoint::reading};
use forebay_threads::HandOff;
use forebay_window::{Reach, WindowPlan};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::away::Away;
use super::halos::Halos;
use super::helpers::{Reads, ReadsOf, Rows};
use super::history::{History, Part, Past};
use super::waiting::each_chunks;
use super::{Known, lock, poisoned, rows_at_once, rows_together, scan_request, side_by_side};
use crate::commit::Store;
use crate::workers::{ROUNDS, round_weight};

/// Stored bytes that a range should have at least: below, another range is not worth its start.
const RANGE_BYTES_MIN: u64 = 4 << 20;

/// The same where all that a range needs of the rows before it is a halo.
const HALO_RANGE_BYTES_MIN: u64 = 256 << 10;

/// What advancing over a halo costs, as a share of reading, computing and writing its rows: every series is new
/// there, but nobody looks at its entries. Measured on nights with windows of 28 days.
const HALO_SHARE: f64 = 0.2;

/// How many times as much as its halo a range of a worker reads on the average at least, where there are enough for
/// all of them: so halos are about a twentieth of the work.
const HALOS_PER_RANGE: u64 = 18;

/// The same, unless tests say otherwise.
pub(super) fn range_bytes_min() -> u64 {
    bytes_min(RANGE_BYTES_MIN)
}

/// So many bytes, unless tests say otherwise: they have little data.
pub(super) fn bytes_min(usual: u64) -> u64 {
    let given = std::env::var("FOREBAY_RANGE_BYTES").ok().and_then(|bytes| bytes.parse().ok());
    given.unwrap_or(usual).max(1)
}

/// What advancing over rows costs, as a share of reading, computing and writing them: measured on
/// the windows benchmark. Only balances ranges.
pub(super) const ADVANCE_SHARE: f64 = 0.4;

/// The same among threads of a process: divided more evenly, they remember less at a time, and those that write
/// help each other.
const ADVANCE_SHARE_HELPED: f64 = 0.1;

/// What to do about a broken file that an earlier run wrote.
const REMOVE_IT: &str = "it is a file of the output: remove it, and run again";

/// A span of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub scan: usize,
    pub span: usize,
}

/// Which columns of a task are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
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
pub(super) struct PartRange {
    /// Among the parts that are to be done.
    pub parts: Range<usize>,
    /// The first of its tasks.
    pub from: usize,
    pub start: Start,
    /// Whether windows remember at its end all that may matter to rows to come, not only what matters to its own.
    pub is_whole: bool,
}

/// A file that an earlier run wrote, read instead of the spans that it was made of.
pub(crate) struct Written {
    /// Which of the narrow ways its rows go.
    pub way: usize,
    pub stored: Arc<dyn Stored>,
    pub shown: String,
}

impl PartRange {
    /// What it reads, in order, as far as that can be told before. `of` tells which tasks of a part are opened, and
    /// which columns are read of them.
    pub fn readings(
        &self,
        tasks: &[Task],
        todo: &[Part],
        of: impl Fn(&Part) -> (Range<usize>, Columns),
    ) -> Vec<(Task, Columns)> {
        let before = if let Start::Halo(halo) = &self.start { halo.as_slice() } else { &[] };
        let before = before.iter().flat_map(|before| &tasks[before.clone()]);
        let mut readings: Vec<(Task, Columns)> = before.map(|task| (*task, Columns::Remembered)).collect();
        let mut at = self.from;
        for part in &todo[self.parts.clone()] {
            readings.extend(tasks[at..part.tasks.start].iter().map(|task| (*task, Columns::Remembered)));
            let (opened, columns) = of(part);
            readings.extend(tasks[opened].iter().map(|task| (*task, columns)));
            at = part.tasks.end;
        }
        readings
    }
}

/// Where a range gets what its windows remember.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Start {
    /// Nothing that lies before it matters.
    Fresh,
    /// These tasks before it hold all that decides what comes out of its rows.
    Halo(Vec<Range<usize>>),
    /// An earlier run kept it under this id.
    Kept(Id),
    /// Everything before it counts.
    Carried,
}

/// How parts become ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cut {
    /// A range for each part: rows need not come in order.
    Each,
    /// So many rows of so many ranges each, where each range of a row goes on from the one before. They end together
    /// if advancing over rows costs that share of all.
    Evenly { rows: usize, each: usize, advance: f64 },
    /// In rounds of `slots` ranges, each smaller than those of the round before: whoever has done the large
    /// ones helps with the small ones, so that all end together.
    Falling { slots: usize },
}

/// Called with what windows remember when the rows of a part are done, before the part is committed. At the end
/// of everything it is kept: whoever dies in between does the part again, and loses neither.
pub(crate) type Seal<'s> = &'s (dyn Fn(&Carry) -> Result<()> + Sync);

/// What windows remember, and where the next rows come from.
pub(crate) type Going<'g> = (&'g mut Carry, &'g dyn Reads);

/// What a thread does that has ranges, given what does them.
pub(super) type Around<'f> = &'f (dyn Fn(&dyn Fn() -> Result<()>) -> Result<()> + Sync);

/// Takes chunks of a scan that follow one another.
pub(super) type TakeChunks<'f> = &'f mut dyn FnMut(usize, &[Chunk], &mut Carry) -> Result<()>;

/// Who does ranges.
pub(super) struct Hands<'f, 'r> {
    pub ranges: &'f [PartRange],
    /// On so many threads.
    pub threads: usize,
    /// Gives the rows of each.
    pub reads: ReadsOf<'f, 'r>,
    /// What each thread does, given what does its ranges.
    pub around: Around<'f>,
    /// What ranges share.
    pub budget: Budget,
}

/// What parts come to.
pub(crate) struct Done<T> {
    /// By their first tasks.
    pub parts: BTreeMap<usize, T>,
    /// Steps that were not of the declared period.
    pub gaps: u64,
    /// Under which id is kept what windows remember at the end.
    pub carry: Option<Id>,
}

/// The tasks of a pass in order, named, and what of the tasks before each matters to it.
pub(crate) struct Line {
    pub tasks: Vec<Task>,
    pub history: History,
}

impl Line {
    /// Whether all tasks before one matter to it.
    pub fn needs_all(&self) -> bool {
        matches!(self.history.past, Past::Everything)
    }
}

/// The scans of a pass with their chains, seen as one sequence of rows.
pub(crate) struct Sequence<'a> {
    pub io: &'a Io,
    pub program: &'a Program,
    pub known: &'a Known,
    pub memory: Memory,
    pub batch_rows: usize,
    pub threads: usize,
    pub scans: &'a [Scan],
    pub chains: Vec<&'a Chain>,
    /// Ways through the only chain for parts of which some columns stay.
    pub narrow: Vec<Track>,
    /// Files that are read instead of spans.
    pub written: Vec<Written>,
    /// What a range does itself of the work with its rows, where idle threads take over the rest.
    pub computing: f64,
}

impl Sequence<'_> {
    /// All spans in order.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for (index, scan) in self.scans.iter().enumerate() {
            let spans = self.known.input(self.program, scan.base)?.dataset.spans.len();
            tasks.extend((0..spans).map(|span| Task { scan: index, span }));
        }
        Ok(tasks)
    }

    /// Whether what comes out of a row depends on the rows before it.
    pub fn is_ordered(&self) -> bool {
        self.chains.iter().any(|chain| chain.is_ordered())
    }

    /// The windows of which is kept what they remember; `None` where there are none, or where
    /// their rows do not all come in order of time.
    pub(super) fn kept_windows(&self) -> Option<BTreeMap<OpId, Arc<WindowPlan>>> {
        let mut kept = BTreeMap::new();
        for window in self.chains.iter().flat_map(|chain| chain.windows()) {
            match (&window.plan, window.way) {
                (Some(plan), Way::Time) => kept.insert(window.op, plan.clone()),
                _ => return None,
            };
        }
        (!kept.is_empty()).then_some(kept)
    }

    /// Does parts on several threads, each with what the windows remember before it; gives what
    /// they come to, by their first tasks. What the windows remember at the end is kept. `shape`
    /// names what is done with the rows of each span.
    pub fn each_part<T: Send + DeserializeOwned>(
        &self,
        line: &Line,
        shape: Id,
        (store, scratch): (&Store, &ScratchDir),
        todo: &[Part],
        (threads, away): (usize, Option<&Away<'_>>),
        work: impl Fn(&Part, &mut Carry, &AtomicBool, Seal<'_>) -> Result<Option<T>> + Sync,
    ) -> Result<Done<T>> {
        if let Some(away) = away
            && let Some(done) = self.on_workers(line, shape, store, todo, away)?
        {
            return Ok(done);
        }
        let ranges = self.ranges_here(line, (shape, store), todo, threads)?;
        let reads = |_| Box::new(self) as Box<dyn Reads>;
        let work =
            |part: &Part, (carry, _): Going<'_>, stop: &AtomicBool, seal: Seal<'_>| work(part, carry, stop, seal);
        let budget = Budget::new(self.memory.states_bytes());
        let hands = Hands { ranges: &ranges, threads, reads: &reads, around: &|ranges| ranges(), budget };
        self.on_threads(line, shape, (store, scratch), todo, hands, work)
    }

    /// The ranges in which threads of this process do parts.
    pub(super) fn ranges_here(
        &self,
        line: &Line,
        (shape, store): (Id, &Store),
        todo: &[Part],
        threads: usize,
    ) -> Result<Vec<PartRange>> {
        let cut = if self.is_ordered() {
            Cut::Evenly { rows: threads, each: 1, advance: ADVANCE_SHARE_HELPED }
        } else {
            Cut::Each
        };
        self.ranges(todo, line, cut, &self.kept(line, shape, store))
    }

    /// Like [`Sequence::each_part`], by threads of this process.
    pub(super) fn on_threads<'r, T: Send>(
        &self,
        line: &Line,
        shape: Id,
        (store, scratch): (&Store, &ScratchDir),
        todo: &[Part],
        Hands { ranges, threads, reads, around, budget }: Hands<'_, 'r>,
        work: impl Fn(&Part, Going<'_>, &AtomicBool, Seal<'_>) -> Result<Option<T>> + Sync,
    ) -> Result<Done<T>> {
        let Line { tasks, history, .. } = line;
        let windows = self.kept_windows();
        let stop = AtomicBool::new(false);
        let threads = threads.min(ranges.len()).max(1);
        let none = BTreeMap::new();
        let carried = ranges.iter().filter(|range| range.start == Start::Carried);
        let carries = Carries {
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
        let end = windows.as_ref().map(|windows| (windows, history.carry_id(shape, tasks.len())));
        let range = |number: usize, range: &PartRange| {
            let reads = &*reads(number);
            let Some(mut carry) = carries.at(number, reads)? else { return Ok(false) };
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
                let done = caught(|| range(number, next));
                if !matches!(done, Ok(true)) {
                    stop.store(true, Ordering::Relaxed);
                    carries.found.stop();
                }
                done?;
            }
            Ok(())
        };
        let done = side_by_side(threads, &|| around(&each));
        done.into_iter().collect::<Result<()>>()?;
        let (parts, gaps) = found.into_inner().map_err(|_| poisoned())?;
        let end = end.filter(|_| ranges.last().is_none_or(|range| range.is_whole));
        Ok(Done { parts, gaps, carry: end.map(|(_, id)| id) })
    }

    /// Tells what an earlier run remembered before a task, and its bytes.
    pub(super) fn kept<'k>(
        &self,
        line: &'k Line,
        shape: Id,
        store: &'k Store,
    ) -> impl Fn(usize) -> Result<Option<(Id, u64)>> + use<'k> {
        let has_windows = self.kept_windows().is_some();
        move |task| {
            let id = line.history.carry_id(shape, task);
            let bytes = if has_windows { store.carry_bytes(id)? } else { None };
            Ok(bytes.map(|bytes| (id, bytes)))
        }
    }

    /// All tasks, named.
    pub fn line(&self) -> Result<Line> {
        let tasks = self.tasks()?;
        let held = self.known.held(self.program, self.scans)?;
        let past = match self.is_ordered() {
            true => self.halos(&tasks)?.map_or(Past::Everything, Past::Halos),
            false => Past::Nothing,
        };
        // Rows may come before others that lie behind them.
        let windows = self.chains.iter().flat_map(|chain| chain.windows());
        let sorted: Vec<OpId> = windows.filter(|window| window.way == Way::Sorted).map(|window| window.op).collect();
        let sorted = (!sorted.is_empty()).then(|| {
            let mut id = IdBuilder::new("ways");
            sorted.iter().for_each(|op| {
                id.bytes(&op.to_le_bytes());
            });
            id.finish()
        });
        Ok(Line { history: History::new(held, past, sorted), tasks })
    }

    /// Distributes parts over threads or workers: ranges of neighbours. `kept` gives what an earlier run
    /// remembered before a task, and its bytes.
    pub(super) fn ranges(
        &self,
        parts: &[Part],
        line: &Line,
        cut: Cut,
        kept: &dyn Fn(usize) -> Result<Option<(Id, u64)>>,
    ) -> Result<Vec<PartRange>> {
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
            Cut::Each => parts.len(),
            // Tests have little data, and want ranges.
            Cut::Evenly { rows, each, .. } if !has_halo || range_bytes_min() < HALO_RANGE_BYTES_MIN => {
                at_most(rows * each)
            }
            // Each has its halo more to read; what they leave idle takes over a part of the work.
            Cut::Evenly { rows: threads, .. } => {
                let cost = |ranges: &usize| {
                    let own = if *ranges < threads { self.computing } else { 1.0 };
                    let before = HALO_SHARE * halo(*ranges).unwrap_or(0) as f64;
                    let longest = own * (before + total as f64 / *ranges as f64);
                    let mean = (before * *ranges as f64 + total as f64) / threads as f64;
                    longest.max(mean) as u64
                };
                (1..=of(threads, HALO_RANGE_BYTES_MIN)).min_by_key(cost).unwrap_or(1)
            }
            Cut::Falling { slots } => {
                // Halos cost more than workers that do not end together, and less than workers without work.
                let is_worth = |ranges: &usize| total / *ranges as u64 >= halo(*ranges).unwrap_or(0) * HALOS_PER_RANGE;
                let most = at_most(slots * ROUNDS);
                (slots..=most).rev().find(is_worth).unwrap_or(most.min(slots))
            }
        };
        let grouped = cut != Cut::Each;
        let weight = |range: usize| match cut {
            Cut::Falling { slots } => round_weight(range / slots.max(1)),
            // Each row begins when somebody has advanced over those before it.
            Cut::Evenly { rows, advance, .. } if !has_halo => (1.0 - advance).powi(row_of(range, count, rows) as i32),
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
            let start = self.start_of(tasks, history, kept)?;
            let is_whole = match &start {
                Start::Halo(halo) => history.holds_rest(halo, from),
                Start::Fresh | Start::Kept(_) | Start::Carried => true,
            };
            Ok(PartRange { parts: range, from, start, is_whole })
        };
        ranges.into_iter().map(range).collect()
    }

    /// Where windows get what they remember before some tasks: from whatever reads least.
    fn start_of(
        &self,
        tasks: Range<usize>,
        history: &History,
        kept: &dyn Fn(usize) -> Result<Option<(Id, u64)>>,
    ) -> Result<Start> {
        if tasks.start == 0 || matches!(history.past, Past::Nothing) {
            return Ok(Start::Fresh);
        }
        Ok(match (kept(tasks.start)?, history.halo(&tasks)) {
            (Some((_, bytes)), Some(halo)) if bytes > history.bytes_of(&halo) => Start::Halo(halo),
            (Some((id, _)), _) => Start::Kept(id),
            (None, Some(halo)) => Start::Halo(halo),
            (None, None) => Start::Carried,
        })
    }

    /// Where rows lie that decide others; `None` where that may be anywhere, or the spans do not tell.
    fn halos(&self, tasks: &[Task]) -> Result<Option<Halos>> {
        let mut reach = Reach::level();
        let mut column: Option<(String, Way)> = None;
        let ([scan], [chain]) = (self.scans, self.chains.as_slice()) else { return Ok(None) };
        let [stream] = scan.streams.as_slice() else { return Ok(None) };
        for ChainWindow { op, way, plan } in chain.windows() {
            let (Op::Window(window), Some(plan)) = (&self.program.bound.ops[*op].op, plan) else { continue };
            let by = match (way, plan.reach()) {
                (Way::Sorted, _) => continue,
                // Windows over windows reach as far as all of them together.
                (Way::Time, Reach::Unbounded) => return Ok(None),
                (Way::Time, own) => {
                    reach = reach.and(own);
                    &window.time
                }
                (Way::Key, _) => match window.keys.first() {
                    Some(key) => key,
                    None => return Ok(None),
                },
            };
            let position = stream.stream.ops.iter().position(|known| known == op).unwrap_or(0);
            let before = forebay_plan::Stream { base: scan.base, ops: stream.stream.ops[..position].to_vec() };
            let Some(base) = base_column(&self.program.bound, &before, by) else { return Ok(None) };
            if *column.get_or_insert((base.clone(), *way)) != (base, *way) {
                return Ok(None);
            }
        }
        let (Some((column, _)), Reach::Ticks(distances)) = (column, reach) else { return Ok(None) };
        let dataset = &self.known.input(self.program, scan.base)?.dataset;
        let Some(extents) = span_extents(dataset, &column) else { return Ok(None) };
        let extents: Vec<Extent> = tasks.iter().map(|task| extents[task.span].clone()).collect();
        // Where rows turn out to come key by key, nobody has asked yet whether their spans do.
        let follow = extents.windows(2).all(|pair| pair[0].max <= pair[1].min);
        Ok(follow.then(|| Halos::new(extents, distances)))
    }

    /// Puts the outputs of sorted windows beside the rows of a task.
    pub fn give_sorted(&self, task: Task, carry: &mut Carry) -> Result<()> {
        let stream = self.scans[task.scan].streams.first();
        let stream = &stream.ok_or_else(|| Fault::internal("a scan without a stream"))?.stream;
        let sorted = self.known.sorted_for(self.program, stream, self.chains[task.scan])?;
        sorted.iter().try_for_each(|sorted| sorted.give(task.span, carry))
    }

    /// What windows remember at a task, by a start that needs nobody else; `None` when the pass was
    /// stopped.
    pub(super) fn begin(
        &self,
        tasks: &[Task],
        (start, from): (&Start, usize),
        budget: &Budget,
        kept: ReadKept<'_>,
        (reads, stop): (&dyn Reads, &AtomicBool),
    ) -> Result<Option<Carry>> {
        let mut carry = Carry::new(budget);
        let all = 0..from;
        let before = match start {
            Start::Fresh => return Ok(Some(carry)),
            Start::Halo(halo) => halo.as_slice(),
            Start::Kept(id) => match kept(*id)? {
                Some(carry) => return Ok(Some(carry)),
                // It is broken: what it was made from is still there.
                None => std::slice::from_ref(&all),
            },
            Start::Carried => return Err(Fault::internal("a range that begins with what another one found out")),
        };
        for tasks in before.iter().map(|before| &tasks[before.clone()]) {
            if !self.advance_over(tasks, (&mut carry, reads), stop)? {
                return Ok(None);
            }
        }
        Ok(Some(carry))
    }

    /// Lets windows remember the rows of some tasks; false when the pass was stopped.
    pub(super) fn advance_over(&self, tasks: &[Task], (carry, reads): Going<'_>, stop: &AtomicBool) -> Result<bool> {
        self.each_chunks((tasks, Columns::Remembered), (carry, reads), stop, &mut |scan, chunks, carry| {
            let advanced = self.chains[scan].advance(chunks, carry);
            advanced.map_err(|fault| self.known.note_fallen(carry, fault))?;
            self.memory.check()
        })
    }

    /// Hands over the chunks of some tasks, with their scans, as many at once as go together; false when the pass was
    /// stopped.
    pub(super) fn each_chunks(
        &self,
        (tasks, columns): (&[Task], Columns),
        (carry, reads): Going<'_>,
        stop: &AtomicBool,
        take: TakeChunks<'_>,
    ) -> Result<bool> {
        for tasks in tasks.chunk_by(|task, next| task.scan == next.scan) {
            let scan = tasks[0].scan;
            let chain = self.chains[scan];
            let rows_max = rows_together(self.rows_at_once(chain), chain, self.memory, self.threads);
            let mut open = |task: &Task, carry: &mut Carry| {
                self.give_sorted(*task, carry)?;
                reads.chunks(*task, columns)
            };
            let mut take = |chunks: &[Chunk], carry: &mut Carry| take(scan, chunks, carry);
            if !each_chunks((tasks, rows_max), (carry, stop, self.memory), &mut open, &mut take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The way that rows of such columns go, if it is a narrow one.
    pub(super) fn track(&self, columns: Columns) -> Option<&Track> {
        match columns {
            Columns::Narrow(way) => self.narrow.get(way),
            Columns::Written(at) => self.written.get(at).and_then(|written| self.narrow.get(written.way)),
            Columns::All | Columns::Remembered => None,
        }
    }

    fn rows_at_once(&self, chain: &Chain) -> usize {
        rows_at_once(self.batch_rows, [chain].into_iter(), self.memory, self.threads)
    }

    /// The rows of a task.
    pub(super) fn open(&self, task: Task, columns: Columns) -> Result<Chunks> {
        let (scan, chain) = (&self.scans[task.scan], self.chains[task.scan]);
        let input = self.known.input(self.program, scan.base)?;
        let mut request = scan_request(self.program, scan, input, self.rows_at_once(chain), false);
        match (columns, self.track(columns)) {
            (_, Some(track)) => request.columns = track.columns().to_vec(),
            (Columns::Remembered, _) => request.columns = chain.advance_columns().to_vec(),
            _ => {}
        }
        let span = &input.dataset.spans[task.span];
        let written = if let Columns::Written(at) = columns { self.written.get(at) } else { None };
        let label = written.map_or_else(|| span.label(), |written| written.shown.clone());
        reading(&label);
        let chunks = match written {
            Some(written) => written.stored.rows(&request)?,
            None => input.source.open(self.io, span, &request)?,
        };
        let is_written = written.is_some();
        let placed = move |fault: Fault| match fault.code() {
            codes::CORRUPT if is_written => fault.file(&*label).hint(REMOVE_IT),
            _ => fault.file(&*label),
        };
        Ok(Box::new(chunks.map(move |chunk| chunk.map_err(&placed))))
    }
}

impl Reads for &Sequence<'_> {
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>> {
        Ok(self.open(task, columns)?)
    }
}

/// Reads what an earlier run remembered, by its id.
pub(super) type ReadKept<'a> = &'a (dyn Fn(Id) -> Result<Option<Carry>> + Sync);

/// What windows remember at the starts of ranges, handed from the thread that reads the rows before to those that
/// need it.
struct Carries<'a> {
    sequence: &'a Sequence<'a>,
    tasks: &'a [Task],
    ranges: &'a [PartRange],
    /// What all of them hold together.
    budget: &'a Budget,
    kept: ReadKept<'a>,
    stop: &'a AtomicBool,
    found: HandOff<Carry>,
}

impl Carries<'_> {
    /// What windows remember at the start of a range; `None` when the pass was stopped.
    fn at(&self, range: usize, reads: &dyn Reads) -> Result<Option<Carry>> {
        let PartRange { start, from, .. } = &self.ranges[range];
        if *start != Start::Carried {
            return self.sequence.begin(self.tasks, (start, *from), self.budget, self.kept, (reads, self.stop));
        }
        let advance = |mut carry: Carry, from: usize, to: usize| {
            let is_whole = self.sequence.advance_over(&self.tasks[from..to], (&mut carry, reads), self.stop)?;
            Ok(is_whole.then_some(carry))
        };
        self.found.at(*from, || self.first(), advance, Carry::fork)
    }

    /// What is known before the first range that begins with what another one found out: what an earlier run kept, or
    /// else nothing.
    fn first(&self) -> Result<(usize, Carry)> {
        let first = self.ranges.iter().position(|range| range.start == Start::Carried).unwrap_or(0);
        for known in self.ranges[..first].iter().rev() {
            let Start::Kept(id) = &known.start else { continue };
            if let Some(kept) = (self.kept)(*id)? {
                return Ok((known.from, kept));
            }
        }
        Ok((0, Carry::new(self.budget)))
    }
}

/// In which of so many rows a range lies.
pub(super) fn row_of(range: usize, ranges: usize, rows: usize) -> usize {
    range * rows.min(ranges) / ranges
}

/// What a user should know about gaps.
pub(crate) fn gaps_message(gaps: u64) -> String {
    format!("{gaps} steps from one row of a series to the next were not the declared period")
}
