//! Division of work units into ranges, each of which one thread or worker executes in order.

use std::ops::Range;

use forebay_cluster::{ROUNDS, WindowInit, round_weight};
use forebay_model::{ContentId, Fault, Result};
use forebay_storage::failpoint::test_bytes;

use super::{OrderedScan, PendingUnits, ReadMode, SpanRef, SpanTimeline};
use crate::span_index::{SpanDependency, SpanIndex, WorkUnit};

/// The least stored bytes of a range: a smaller one is not worth its start.
const RANGE_BYTES_MIN: u64 = 4 << 20;

/// The least stored bytes of a range that needs only a halo of the rows before it.
const HALO_RANGE_BYTES_MIN: u64 = 256 << 10;

/// The cost of advancing over a halo, as a share of reading, computing and writing its rows: each series is new there,
/// but windows are not evaluated. Measured on nights with windows of 28 days.
const HALO_SHARE: f64 = 0.2;

/// The least ratio of the bytes of a worker's range to those of its halo, on average, where there are enough bytes: the
/// halos are then about a twentieth of the work.
const HALOS_PER_RANGE: u64 = 18;

/// The cost of advancing over rows, as a share of reading, computing and writing them. Measured on the windows
/// benchmark. It only balances ranges.
pub const ADVANCE_SHARE: f64 = 0.4;

/// The same among the threads of a process, which steal work from each other.
const ADVANCE_SHARE_HELPED: f64 = 0.1;

/// `RANGE_BYTES_MIN`, unless a test sets another value.
pub fn range_bytes_min() -> u64 {
    bytes_min(RANGE_BYTES_MIN)
}

/// A least number of bytes, unless a test sets another value: tests have little data.
pub fn bytes_min(usual: u64) -> u64 {
    test_bytes("FOREBAY_RANGE_BYTES").unwrap_or(usual).max(1)
}

/// Consecutive work units that one thread executes in order. Where windows remember everything, the spans between the
/// units are advanced over.
#[derive(Debug)]
pub struct RangePlan {
    /// Indexes into the pending work units.
    pub parts: Range<usize>,
    /// The first span of the first unit.
    pub from: usize,
    pub start: WindowInit,
    /// Whether the window state at the end holds everything that may matter to later rows, not only what matters to
    /// rows of this range.
    pub is_whole: bool,
}

impl RangePlan {
    /// The reads of the range, in order, as far as they are known before it begins.
    pub fn planned_reads(&self, tasks: &[SpanRef], todo: &[WorkUnit]) -> Vec<(SpanRef, ReadMode)> {
        let before = if let WindowInit::Halo(halo) = &self.start {
            halo.as_slice()
        } else {
            &[]
        };
        let before = before.iter().flat_map(|before| &tasks[before.clone()]);
        let mut readings: Vec<(SpanRef, ReadMode)> =
            before.map(|task| (*task, ReadMode::Remembered)).collect();
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

/// How work units become ranges.
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

    /// Divides work units into ranges of neighbours. `kept` returns the id and the bytes of the checkpoint before a
    /// span, if there is one.
    pub fn plan_ranges(
        &self,
        parts: &[WorkUnit],
        line: &SpanTimeline,
        cut: PartitionStrategy,
        kept: &dyn Fn(usize) -> Result<Option<(ContentId, u64)>>,
    ) -> Result<Vec<RangePlan>> {
        let (history, line_needs_all) = (&line.history, line.needs_all());
        let bytes: Vec<u64> = parts
            .iter()
            .map(|part| history.bytes(part.tasks.clone()))
            .collect();
        let total: u64 = bytes.iter().sum();
        let of = |ranges: usize, least: u64| {
            ranges
                .min((total / least) as usize)
                .clamp(1, parts.len().max(1))
        };
        let at_most = |ranges: usize| of(ranges, range_bytes_min());
        // The bytes of the largest halo, with a given number of ranges.
        let halo = |ranges: usize| {
            let at = |range: usize| range * parts.len() / ranges;
            (0..ranges)
                .filter_map(|range| history.halo_bytes(&parts[at(range)..at(range + 1)]))
                .max()
        };
        let has_halo = halo(1).is_some();
        let count = match cut {
            PartitionStrategy::Each => parts.len(),
            // Tests have little data and need ranges.
            PartitionStrategy::Evenly { rows, each, .. }
                if !has_halo || range_bytes_min() < HALO_RANGE_BYTES_MIN =>
            {
                at_most(rows * each)
            }
            // Each range reads its halo in addition; idle threads take over a part of the work.
            PartitionStrategy::Evenly { rows: threads, .. } => {
                let cost = |ranges: &usize| {
                    let own = if *ranges < threads {
                        self.computing
                    } else {
                        1.0
                    };
                    let before = HALO_SHARE * halo(*ranges).unwrap_or(0) as f64;
                    let longest = own * (before + total as f64 / *ranges as f64);
                    let mean = (before * *ranges as f64 + total as f64) / threads as f64;
                    longest.max(mean) as u64
                };
                (1..=of(threads, HALO_RANGE_BYTES_MIN))
                    .min_by_key(cost)
                    .unwrap_or(1)
            }
            PartitionStrategy::Falling { slots } => {
                // Halos cost more than workers that end at different times, and less than workers without work.
                let is_worth = |ranges: &usize| {
                    total / *ranges as u64 >= halo(*ranges).unwrap_or(0) * HALOS_PER_RANGE
                };
                let most = at_most(slots * ROUNDS);
                (slots..=most)
                    .rev()
                    .find(is_worth)
                    .unwrap_or(most.min(slots))
            }
        };
        let grouped = cut != PartitionStrategy::Each;
        let weight = |range: usize| match cut {
            PartitionStrategy::Falling { slots } => round_weight(range / slots.max(1)),
            // A lane begins once window state has advanced over the rows before it.
            PartitionStrategy::Evenly { rows, advance, .. } if !has_halo => {
                (1.0 - advance).powi(lane_of_range(range, count, rows) as i32)
            }
            _ => 1.0,
        };
        let weights: f64 = (0..count).map(weight).sum();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let (mut seen, mut goal) = (0, 0.0);
        for (index, part) in parts.iter().enumerate() {
            // The spans in between are advanced over in any case, unless there is a checkpoint behind them.
            let goes_on = || Ok::<_, Fault>(line_needs_all && kept(part.tasks.start)?.is_none());
            let follows =
                index > 0 && (parts[index - 1].tasks.end == part.tasks.start || goes_on()?);
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
            Ok(RangePlan {
                parts: range,
                from,
                start,
                is_whole,
            })
        };
        ranges.into_iter().map(range).collect()
    }

    /// How window state is restored before some spans: in the way that reads the fewest bytes.
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
