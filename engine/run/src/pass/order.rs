//! Rows in order: ranges of spans that run side by side, each with what windows remember from
//! the spans before it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use forebay_model::{Extent, Fault, Point, Result, Span};
use forebay_plan::{Carry, Chain, Op, OpId, Program, Scan, Way, base_column, span_extents};
use forebay_window::Reach;

use super::{Known, lock, poisoned, scan_request};
use crate::Io;
use crate::memory::Memory;

/// Stored bytes that a range should have at least: below, another range is not worth its start.
const RANGE_BYTES_MIN: u64 = 4 << 20;

/// What advancing over rows costs, as a share of reading, computing and writing them: measured on
/// the windows benchmark. Only balances ranges.
const ADVANCE_SHARE: f64 = 0.1;

/// A span of a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub scan: usize,
    pub span: usize,
}

/// Consecutive tasks that one thread runs in order.
#[derive(Debug)]
pub(crate) struct TaskRange {
    pub tasks: Range<usize>,
    pub start: Start,
}

/// Where a range gets what its windows remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing lies before it.
    Fresh,
    /// These tasks before it hold everything within reach of its first rows.
    Halo(Range<usize>),
    /// Everything before it counts.
    Carried,
}

/// The scans of a pass with their chains, seen as one sequence of rows.
pub(crate) struct Sequence<'a> {
    pub io: &'a Io,
    pub program: &'a Program,
    pub known: &'a Known,
    pub memory: Memory,
    pub batch_rows: usize,
    pub scans: &'a [Scan],
    pub chains: &'a [Chain],
}

/// The windows that scans run through, upstream first.
pub(crate) fn windows_of<'a>(program: &Program, scans: impl IntoIterator<Item = &'a Scan>) -> BTreeSet<OpId> {
    let streams = scans.into_iter().flat_map(|scan| &scan.streams);
    let needed = streams.flat_map(|stream| stream.needed.iter().map(|position| stream.stream.ops[*position]));
    needed.filter(|op| program.bound.ops[*op].op.is_over_series()).collect()
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

    fn span(&self, task: Task) -> Result<&Span> {
        Ok(&self.known.input(self.program, self.scans[task.scan].base)?.dataset.spans[task.span])
    }

    /// Cuts the tasks into as many ranges as there are threads, if they are worth it.
    pub fn ranges(&self, tasks: &[Task], threads: usize) -> Result<Vec<TaskRange>> {
        let bytes = tasks.iter().map(|task| Ok(self.span(*task)?.bytes())).collect::<Result<Vec<u64>>>()?;
        let total: u64 = bytes.iter().sum();
        let count = threads.min((total / RANGE_BYTES_MIN) as usize).clamp(1, tasks.len().max(1));
        // The last thread finds out first what the windows of the others remember.
        let weight = |range: usize| if range + 1 == count { 1.0 - ADVANCE_SHARE } else { 1.0 };
        let weights: f64 = (0..count).map(weight).sum();
        let halos = self.halos(tasks)?;
        let mut ranges = Vec::new();
        let (mut from, mut seen, mut goal) = (0, 0u64, 0.0);
        for range in 0..count {
            goal += weight(range) / weights * total as f64;
            let mut to = from;
            while to < tasks.len() && (range + 1 == count || seen as f64 + bytes[to] as f64 / 2.0 <= goal) {
                seen += bytes[to];
                to += 1;
            }
            if to == from {
                continue;
            }
            let start = match halos.as_ref().map(|halo| halo(from)) {
                _ if from == 0 => Start::Fresh,
                Some(halo) => Start::Halo(halo..from),
                None => Start::Carried,
            };
            ranges.push(TaskRange { tasks: from..to, start });
            from = to;
        }
        Ok(ranges)
    }

    /// For a task, the first task whose rows may lie within reach of its rows; `None` where the
    /// past is unbounded, or the spans do not tell.
    fn halos(&self, tasks: &[Task]) -> Result<Option<impl Fn(usize) -> usize>> {
        let mut reach = 0i64;
        let mut column: Option<(String, Way)> = None;
        let ([scan], [chain]) = (self.scans, self.chains) else { return Ok(None) };
        let [stream] = scan.streams.as_slice() else { return Ok(None) };
        for (op, way) in chain.windows() {
            let Op::Window(window) = &self.program.bound.ops[*op].op else { continue };
            let by = match (way, window.plan.reach()) {
                (Way::Sorted, _) => continue,
                // Windows over windows reach as far as all of them together.
                (Way::Time, Reach::Ticks(ticks)) => {
                    reach = reach.saturating_add(ticks);
                    &window.time
                }
                (Way::Time, Reach::Unbounded) => return Ok(None),
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
        let Some((column, _)) = column else { return Ok(None) };
        let dataset = &self.known.input(self.program, scan.base)?.dataset;
        let Some(extents) = span_extents(dataset, &column) else { return Ok(None) };
        let extents: Vec<Extent> = tasks.iter().map(|task| extents[task.span].clone()).collect();
        Ok(Some(move |from: usize| {
            let Some(first) = extents.get(from) else { return from };
            let edge = match &first.min {
                Point::Int(min) => Point::Int(min.saturating_sub(reach)),
                text => text.clone(),
            };
            (0..from).rev().take_while(|task| extents[*task].max >= edge).last().unwrap_or(from)
        }))
    }

    /// Puts the outputs of sorted windows beside the rows of a task.
    pub fn give_sorted(&self, task: Task, carry: &mut Carry) -> Result<()> {
        let stream = self.scans[task.scan].streams.first();
        let stream = &stream.ok_or_else(|| Fault::internal("a scan without a stream"))?.stream;
        let sorted = self.known.sorted_for(self.program, stream, &self.chains[task.scan])?;
        sorted.iter().try_for_each(|sorted| sorted.give(task.span, carry))
    }

    /// Lets windows remember the rows of a task.
    pub fn advance(&self, task: Task, carry: &mut Carry) -> Result<()> {
        let (scan, chain) = (&self.scans[task.scan], &self.chains[task.scan]);
        let input = self.known.input(self.program, scan.base)?;
        let mut request = scan_request(self.program, scan, input, self.batch_rows, false);
        request.columns = chain.advance_columns().to_vec();
        self.give_sorted(task, carry)?;
        let span = &input.dataset.spans[task.span];
        for chunk in input.source.open(self.io, span, &request)? {
            let chunk = chunk.map_err(|fault| fault.file(span.label()))?;
            chain.advance(&chunk, carry).map_err(|fault| self.known.note_fallen(carry, fault))?;
        }
        self.memory.check()
    }
}

/// What windows remember at the starts of ranges, handed from the thread that finds out to those
/// that wait for it.
pub(crate) struct Carries<'a> {
    sequence: &'a Sequence<'a>,
    tasks: &'a [Task],
    ranges: &'a [TaskRange],
    /// Bounds each.
    bytes_max: usize,
    found: Mutex<Vec<Option<Carry>>>,
    moved: Condvar,
    stop: &'a AtomicBool,
}

impl<'a> Carries<'a> {
    pub fn new(sequence: &'a Sequence<'a>, tasks: &'a [Task], ranges: &'a [TaskRange], stop: &'a AtomicBool) -> Self {
        Carries {
            sequence,
            tasks,
            ranges,
            // Each range holds one, and the one that finds out another.
            bytes_max: sequence.memory.states_bytes() / (ranges.len() + usize::from(ranges.len() > 1)).max(1),
            found: Mutex::new(ranges.iter().map(|_| None).collect()),
            moved: Condvar::new(),
            stop,
        }
    }

    /// What windows remember at the start of a range; `None` when the pass was stopped.
    pub fn at(&self, range: usize) -> Result<Option<Carry>> {
        match &self.ranges[range].start {
            Start::Fresh => Ok(Some(Carry::new(Some(self.bytes_max)))),
            Start::Halo(halo) => {
                let mut carry = Carry::new(Some(self.bytes_max));
                self.tasks[halo.clone()].iter().try_for_each(|task| self.sequence.advance(*task, &mut carry))?;
                Ok(Some(carry))
            }
            Start::Carried => {
                let last = self.ranges.iter().rposition(|range| range.start == Start::Carried);
                if last == Some(range) {
                    return self.find(range);
                }
                let mut found = lock(&self.found)?;
                loop {
                    if let Some(carry) = found[range].take() {
                        return Ok(Some(carry));
                    }
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    found = self.moved.wait(found).map_err(|_| poisoned())?;
                }
            }
        }
    }

    /// Wakes all that wait, after `stop` was set.
    pub fn stopped(&self) {
        // Whoever is about to wait holds the lock.
        drop(self.found.lock());
        self.moved.notify_all();
    }

    /// Reads everything before a range once, and hands out copies on the way.
    fn find(&self, range: usize) -> Result<Option<Carry>> {
        let mut carry = Carry::new(Some(self.bytes_max));
        let end = self.ranges[range].tasks.start;
        for task in 0..end {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let waiting = |range: &TaskRange| range.tasks.start == task && range.start == Start::Carried;
            if let Some(waiting) = self.ranges.iter().position(waiting) {
                lock(&self.found)?[waiting] = Some(carry.fork());
                self.moved.notify_all();
            }
            self.sequence.advance(self.tasks[task], &mut carry)?;
        }
        Ok(Some(carry))
    }
}

/// What a user should know about gaps.
pub(crate) fn gaps_message(gaps: u64) -> String {
    format!("{gaps} steps from one row of a series to the next were not the declared period")
}
