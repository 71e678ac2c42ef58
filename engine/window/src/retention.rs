//! Entries that a series retains, because functions read them for rows that follow.

use forebay_model::ColumnClock;

use crate::WordEncoding;
use crate::batch::BatchRow;
use crate::bounds::{ANCHOR_ENTRIES, StepPattern, WindowBound};

/// Entries that a column must retain for future rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryRetention {
    /// All entries after a bound.
    From(usize),
    /// The last entry between two bounds, and all after it.
    Latest(usize, usize),
    /// The entries that the cumulative statistics of a frontier have not consumed.
    Frontier(usize),
}

/// Values that can be filled in for missing periods of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillSupport {
    /// Zero, or the previous value.
    Zero,
    /// The previous value.
    Forward,
    /// No support: the value stays missing.
    Never,
}

/// An input, its encoding and its retention.
#[derive(Debug, Clone)]
pub(crate) struct InputRetention {
    pub keep: WordEncoding,
    pub fillable: FillSupport,
    pub needs: Vec<EntryRetention>,
}

/// Distances of bounds and frontiers from the rows of a batch.
pub(crate) struct BatchDistances<'a> {
    pub distances: &'a [Vec<u32>],
    /// Per frontier and row: the distances of the entries that the row consumes.
    pub spans: Vec<&'a [(u32, u32)]>,
}

impl BatchDistances<'_> {
    /// Number of entries before a row's own that must be retained.
    pub fn retained_entries(
        &self,
        needs: &[EntryRetention],
        edges: &[WindowBound],
        row: usize,
    ) -> usize {
        retained_entries(
            needs,
            |edge| with_anchor(edges[edge], self.distances[edge][row]),
            |frontier| self.spans[frontier][row].0,
        )
    }
}

/// The distance that a later row may need: its bound of the calendar may be before the entry that this row counts as its
/// bound.
fn with_anchor(edge: WindowBound, distance: u32) -> u32 {
    match edge {
        // The entry that counts as the bound, and those before it.
        WindowBound::Calendar { .. } => distance.saturating_add(1 + ANCHOR_ENTRIES as u32),
        WindowBound::Rows(_) | WindowBound::Ticks(_) => distance,
    }
}

/// Number of entries before a row's own that must be retained, given the distances of the bounds and of the first
/// unconsumed entries of the frontiers.
fn retained_entries(
    needs: &[EntryRetention],
    edge: impl Fn(usize) -> u32,
    frontier: impl Fn(usize) -> u32,
) -> usize {
    let needs = needs.iter().map(|need| match *need {
        EntryRetention::From(start) => edge(start),
        EntryRetention::Latest(start, end) => edge(start).min(edge(end).saturating_add(1)),
        EntryRetention::Frontier(index) => frontier(index),
    });
    needs.max().unwrap_or(0).saturating_sub(1) as usize
}

/// Number of entries to retain for a single row, without frontiers. `times` are the last times of
/// its series.
pub(crate) fn retained_entries_of_row(
    needs: &[EntryRetention],
    edges: &[WindowBound],
    clock: Option<&ColumnClock>,
    row: &BatchRow,
    times: &[u64],
) -> usize {
    let rows = std::slice::from_ref(row);
    let pace = StepPattern::of(rows);
    let distance = |edge: usize| {
        let mut distances = Vec::with_capacity(1);
        edges[edge].distances(rows, &pace, clock, |_| times, &mut distances);
        with_anchor(edges[edge], distances.first().copied().unwrap_or(0))
    };
    retained_entries(needs, distance, |_| 0)
}

/// Number of last entries of a series that a future row needs. `times` are the last of its `count` times.
pub(crate) fn retained_for_next_row(
    needs: &[EntryRetention],
    edges: &[WindowBound],
    clock: Option<&ColumnClock>,
    times: &[u64],
    count: u64,
    taken_of: impl Fn(usize) -> u64,
) -> u64 {
    let distance = |edge: usize| edges[edge].distance_of_next(clock, times, count);
    let needs = needs.iter().map(|need| match *need {
        EntryRetention::From(edge) => distance(edge),
        EntryRetention::Latest(start, end) => {
            // A bound at distance zero follows the future row itself.
            let last = if edges[end].is_own() {
                0
            } else {
                distance(end).saturating_add(1)
            };
            distance(start).min(last)
        }
        EntryRetention::Frontier(frontier) => count.saturating_sub(taken_of(frontier)),
    });
    needs.max().unwrap_or(0)
}

/// Estimated number of entries that a series with this step needs.
pub(crate) fn estimate_retained(
    needs: &[EntryRetention],
    edges: &[WindowBound],
    clock: Option<&ColumnClock>,
    step: i64,
) -> usize {
    let rows = |edge: usize| match edges[edge] {
        WindowBound::Rows(rows) => rows,
        WindowBound::Ticks(ticks) => ticks.max(0) as u64 / step.max(1) as u64,
        WindowBound::Calendar { span, older } => {
            let tick = clock.map_or(1, ColumnClock::tick);
            let ticks = span.tick_bounds(tick).1.saturating_add(older);
            ticks.max(0) as u64 / step.max(1) as u64
        }
    };
    let needs = needs.iter().map(|need| match *need {
        EntryRetention::From(edge) => rows(edge),
        EntryRetention::Latest(_, edge) => rows(edge).saturating_add(1),
        EntryRetention::Frontier(_) => 0,
    });
    needs.max().unwrap_or(0).min(1 << 30) as usize
}
