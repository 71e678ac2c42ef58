//! Division of work units into ranges, each of which one thread or worker executes in order.

use std::ops::Range;

use forebay_cluster::{ROUNDS, WindowInit, round_weight};
use forebay_model::{ContentId, Result};

use super::{OrderedScan, PendingUnits, SpanTimeline};
use crate::chunk_source::{ReadMode, SpanRef};
use crate::range_bytes::range_bytes_min;
use crate::span_index::{SpanDependency, SpanIndex, WorkUnit};

/// The least stored bytes of a range that needs only a halo of the rows before it.
const HALO_RANGE_BYTES_MIN: u64 = 256 << 10;

/// The cost of advancing over a halo, as a share of reading, computing and writing its rows: each
/// series is new there, but windows are not evaluated. Measured in daily runs with windows of 28
/// days.
const HALO_SHARE: f64 = 0.2;

/// The least ratio of the bytes of a worker's range to those of its halo, on average, where there are enough bytes: the
/// halos are then about a twentieth of the work.
const HALOS_PER_RANGE: u64 = 18;

/// The cost of advancing over rows, as a share of reading, computing and writing them. Measured on the windows
/// benchmark. It only balances ranges.
pub const ADVANCE_SHARE: f64 = 0.4;

/// Cost of advancing over a row as a share of executing it, among threads of a process, which steal
/// work from each other.
const ADVANCE_SHARE_HELPED: f64 = 0.1;

/// Consecutive work units that one thread executes in order. Where windows remember everything, the spans between the
/// units are advanced over.
#[derive(Debug)]
pub struct RangePlan {
    /// Indexes into the pending work units.
    pub parts: Range<usize>,
    /// The first span of the first unit.
    pub from: usize,
    pub start: WindowInit,
    /// True if the window state at the end holds everything that may matter to later rows, not only
    /// to rows of this range.
    pub is_whole: bool,
}

impl RangePlan {
    /// The reads of the range, in order, as far as they are known before it begins.
    pub fn planned_reads(&self, tasks: &[SpanRef], todo: &[WorkUnit]) -> Vec<(SpanRef, ReadMode)> {
        let halo = if let WindowInit::Halo(halo) = &self.start {
            halo.as_slice()
        } else {
            &[]
        };
        let halo_spans = halo.iter().flat_map(|range| &tasks[range.clone()]);
        let mut readings: Vec<(SpanRef, ReadMode)> = halo_spans
            .map(|task| (*task, ReadMode::Remembered))
            .collect();
        let mut at = self.from;
        for part in &todo[self.parts.clone()] {
            readings.extend(
                tasks[at..part.tasks.start]
                    .iter()
                    .map(|task| (*task, ReadMode::Remembered)),
            );
            readings.extend(
                tasks[part.tasks.clone()]
                    .iter()
                    .map(|task| (*task, ReadMode::All)),
            );
            at = part.tasks.end;
        }
        readings
    }
}

/// Division of work units into ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PartitionStrategy {
    /// One range for each unit: the order of rows does not matter.
    Each,
    /// `rows` lanes of `each` ranges, where each range of a lane continues the range before it. The lanes end together
    /// if advancing over rows costs a share of `advance` of executing them.
    Evenly {
        rows: usize,
        each: usize,
        advance: f64,
    },
    /// Rounds of `slots` ranges, each smaller than those of the round before: slots that finish large ranges take small
    /// ones, so that all end together.
    Falling { slots: usize },
}

/// Returns the id and the bytes of the checkpoint before a span, if there is one.
type FindCheckpointFn<'a> = &'a dyn Fn(usize) -> Result<Option<(ContentId, u64)>>;

/// Division of the pending units of a timeline into ranges of neighbours.
struct RangeDivision<'a> {
    parts: &'a [WorkUnit],
    line: &'a SpanTimeline,
    cut: PartitionStrategy,
    /// Slowdown of a pass whose ranges do not occupy all threads
    slowdown: f64,
    /// Stored bytes of each unit
    part_bytes: Vec<u64>,
    total_bytes: u64,
    has_halo: bool,
}

impl<'a> RangeDivision<'a> {
    fn new(
        parts: &'a [WorkUnit],
        line: &'a SpanTimeline,
        cut: PartitionStrategy,
        slowdown: f64,
    ) -> RangeDivision<'a> {
        let part_bytes: Vec<u64> = parts
            .iter()
            .map(|part| line.history.bytes(part.tasks.clone()))
            .collect();
        RangeDivision {
            parts,
            line,
            cut,
            slowdown,
            total_bytes: part_bytes.iter().sum(),
            part_bytes,
            has_halo: line.history.halo_bytes(parts).is_some(),
        }
    }

    /// Units of each range.
    fn divide(&self, checkpoint: FindCheckpointFn<'_>) -> Result<Vec<Range<usize>>> {
        let count = self.count();
        let weights: f64 = (0..count).map(|range| self.weight(range, count)).sum();
        let total = self.total_bytes as f64;
        let is_grouped = self.cut != PartitionStrategy::Each;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut bytes_before = 0;
        // Bytes up to which the current range takes units.
        let mut target = 0.0;
        for (index, bytes) in self.part_bytes.iter().enumerate() {
            let follows = self.follows(index, checkpoint)?;
            // A unit belongs to the range in which its middle lies.
            let middle = bytes_before as f64 + *bytes as f64 / 2.0;
            let is_full = !is_grouped || middle > target;
            bytes_before += bytes;
            match ranges.last_mut() {
                Some(range) if follows && !is_full => range.end = index + 1,
                _ => {
                    if is_full && target < total {
                        let range = ranges.len().min(count - 1);
                        target += self.weight(range, count) / weights * total;
                    }
                    ranges.push(index..index + 1);
                }
            }
        }
        Ok(ranges)
    }

    /// True if a unit can continue the range of the unit before it.
    fn follows(&self, index: usize, checkpoint: FindCheckpointFn<'_>) -> Result<bool> {
        let Some(previous) = index.checked_sub(1) else {
            return Ok(false);
        };
        let start = self.parts[index].tasks.start;
        if self.parts[previous].tasks.end == start {
            return Ok(true);
        }
        // The spans in between are advanced over in any case, unless there is a checkpoint behind
        // them.
        Ok(self.line.needs_all() && checkpoint(start)?.is_none())
    }

    fn count(&self) -> usize {
        match self.cut {
            PartitionStrategy::Each => self.parts.len(),
            // Tests have little data and need ranges.
            PartitionStrategy::Evenly { rows, each, .. }
                if !self.has_halo || range_bytes_min() < HALO_RANGE_BYTES_MIN =>
            {
                self.count_at_most(rows * each, range_bytes_min())
            }
            // Each range reads its halo in addition; idle threads take over a part of the work.
            PartitionStrategy::Evenly { rows: threads, .. } => {
                let most = self.count_at_most(threads, HALO_RANGE_BYTES_MIN);
                let cheapest = (1..=most).min_by_key(|count| self.cost(*count, threads));
                cheapest.unwrap_or(1)
            }
            // Halos cost more than workers that end at different times, and less than workers
            // without work.
            PartitionStrategy::Falling { slots } => {
                let most = self.count_at_most(slots * ROUNDS, range_bytes_min());
                let mut counts = (slots..=most).rev();
                let largest = counts.find(|count| self.is_worth_its_halos(*count));
                largest.unwrap_or(most.min(slots))
            }
        }
    }

    fn count_at_most(&self, count: usize, range_bytes: u64) -> usize {
        let by_bytes = (self.total_bytes / range_bytes) as usize;
        count.min(by_bytes).clamp(1, self.parts.len().max(1))
    }

    /// Cost of a pass over this many ranges, in bytes that are read, computed and written.
    fn cost(&self, count: usize, threads: usize) -> u64 {
        let slowdown = if count < threads { self.slowdown } else { 1.0 };
        let halo_cost = HALO_SHARE * self.halo_bytes_max(count) as f64;
        // The pass ends with its longest range, but not before all threads together have done the
        // work.
        let longest = slowdown * (halo_cost + self.total_bytes as f64 / count as f64);
        let mean = (halo_cost * count as f64 + self.total_bytes as f64) / threads as f64;
        longest.max(mean) as u64
    }

    fn is_worth_its_halos(&self, count: usize) -> bool {
        let range_bytes = self.total_bytes / count as u64;
        range_bytes >= self.halo_bytes_max(count) * HALOS_PER_RANGE
    }

    /// Bytes of the largest halo among this many ranges; 0 without halos.
    fn halo_bytes_max(&self, count: usize) -> u64 {
        let length = self.parts.len();
        let mut bytes_max = 0;
        for range in 0..count {
            let parts = &self.parts[range * length / count..(range + 1) * length / count];
            let halo_bytes = self.line.history.halo_bytes(parts);
            bytes_max = bytes_max.max(halo_bytes.unwrap_or(0));
        }
        bytes_max
    }

    /// Share of the work that a range gets, relative to that of the others.
    fn weight(&self, range: usize, count: usize) -> f64 {
        match self.cut {
            PartitionStrategy::Falling { slots } => round_weight(range / slots.max(1)),
            // A lane begins once window state has advanced over the rows before it.
            PartitionStrategy::Evenly { rows, advance, .. } if !self.has_halo => {
                (1.0 - advance).powi(lane_of_range(range, count, rows) as i32)
            }
            _ => 1.0,
        }
    }
}

impl OrderedScan<'_> {
    /// The ranges of the threads of this process.
    pub fn local_ranges(
        &self,
        pending: &PendingUnits<'_>,
        threads: usize,
    ) -> Result<Vec<RangePlan>> {
        let cut = if self.is_ordered() {
            PartitionStrategy::Evenly {
                rows: threads,
                each: 1,
                advance: ADVANCE_SHARE_HELPED,
            }
        } else {
            PartitionStrategy::Each
        };
        self.plan_ranges(
            pending.units,
            pending.line,
            cut,
            &self.find_checkpoint(pending),
        )
    }

    /// Divides work units into ranges of neighbours.
    pub fn plan_ranges(
        &self,
        parts: &[WorkUnit],
        line: &SpanTimeline,
        cut: PartitionStrategy,
        checkpoint: FindCheckpointFn<'_>,
    ) -> Result<Vec<RangePlan>> {
        let division = RangeDivision::new(parts, line, cut, self.computing);
        let mut ranges = Vec::new();
        for range in division.divide(checkpoint)? {
            ranges.push(self.range_plan(parts, range, &line.history, checkpoint)?);
        }
        Ok(ranges)
    }

    fn range_plan(
        &self,
        parts: &[WorkUnit],
        range: Range<usize>,
        history: &SpanIndex,
        checkpoint: FindCheckpointFn<'_>,
    ) -> Result<RangePlan> {
        let tasks = parts[range.start].tasks.start..parts[range.end - 1].tasks.end;
        let from = tasks.start;
        let start = self.window_init(tasks, history, checkpoint)?;
        // State after a halo with gaps lacks entries that later rows need: it is no checkpoint
        // (decisions/ranges-and-halos.md).
        let is_whole = match &start {
            WindowInit::Halo(halo) => history.covers_retention(halo, from),
            WindowInit::Fresh | WindowInit::Kept(_) | WindowInit::Carried => true,
        };
        Ok(RangePlan {
            parts: range,
            from,
            start,
            is_whole,
        })
    }

    /// Cheapest way to restore the window state before some spans, by bytes read.
    fn window_init(
        &self,
        tasks: Range<usize>,
        history: &SpanIndex,
        checkpoint: FindCheckpointFn<'_>,
    ) -> Result<WindowInit> {
        if tasks.start == 0 || matches!(history.past, SpanDependency::Nothing) {
            return Ok(WindowInit::Fresh);
        }
        // State of many series can be larger than the rows of the halo: the smaller one is read.
        Ok(match (checkpoint(tasks.start)?, history.halo_of(&tasks)) {
            (Some((_, bytes)), Some(halo)) if bytes > history.bytes_of(&halo) => {
                WindowInit::Halo(halo)
            }
            (Some((id, _)), _) => WindowInit::Kept(id),
            (None, Some(halo)) => WindowInit::Halo(halo),
            (None, None) => WindowInit::Carried,
        })
    }
}

/// The lane of a range, among `rows` lanes.
pub fn lane_of_range(range: usize, ranges: usize, rows: usize) -> usize {
    range * rows.min(ranges) / ranges
}
