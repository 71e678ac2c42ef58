//! Reach of windows: the past entries that determine an output.

use std::ops::RangeInclusive;

use forebay_model::{CalendarSpan, TimeDistance, tick_nanoseconds};

use crate::{GapHandling, SeriesFrame, SeriesLength, WindowFunction, WindowPlan};

/// Most ranges of a reach; beyond that, the closest ranges are joined.
const RANGES_MAX: usize = 16;

/// The entries that determine an output, besides the row itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowReach {
    /// Entries at distances before the row in these ranges of ticks, which ascend and do not touch. The reach of a
    /// window includes 0: other entries at the row's own time, and the row itself for windows over windows.
    Ticks(Vec<RangeInclusive<i64>>),
    /// Any entries.
    Unbounded,
}

impl WindowReach {
    /// Reach of no entries.
    pub fn none() -> WindowReach {
        WindowReach::Ticks(Vec::new())
    }

    /// Entries at the row's own time.
    pub fn same_time() -> WindowReach {
        WindowReach::Ticks(vec![0..=0])
    }

    /// Entries at distances in these ranges.
    fn from_ranges(distances: impl IntoIterator<Item = RangeInclusive<i64>>) -> WindowReach {
        let mut sorted_ranges: Vec<RangeInclusive<i64>> = distances.into_iter().collect();
        sorted_ranges.sort_unstable_by_key(|range| *range.start());
        let mut merged_ranges: Vec<RangeInclusive<i64>> = Vec::with_capacity(sorted_ranges.len());
        for range in sorted_ranges {
            match merged_ranges
                .last_mut()
                .filter(|last| *range.start() <= last.end().saturating_add(1))
            {
                Some(last) => *last = *last.start()..=*last.end().max(range.end()),
                None => merged_ranges.push(range),
            }
        }
        while merged_ranges.len() > RANGES_MAX {
            let hole = |at: &usize| merged_ranges[*at + 1].start() - merged_ranges[*at].end();
            let Some(at) = (0..merged_ranges.len() - 1).min_by_key(hole) else {
                break;
            };
            let further = merged_ranges.remove(at + 1);
            merged_ranges[at] = *merged_ranges[at].start()..=*further.end();
        }
        WindowReach::Ticks(merged_ranges)
    }

    /// The union of both.
    pub fn union(self, other: WindowReach) -> WindowReach {
        match (self, other) {
            (WindowReach::Ticks(ranges), WindowReach::Ticks(other)) if ranges == other => {
                WindowReach::Ticks(ranges)
            }
            (WindowReach::Ticks(ranges), WindowReach::Ticks(other)) => {
                WindowReach::from_ranges(ranges.into_iter().chain(other))
            }
            _ => WindowReach::Unbounded,
        }
    }

    /// The composition: the reach of a window over the output of another one.
    pub fn compose(self, other: WindowReach) -> WindowReach {
        let (ranges, other) = match (self, other) {
            (WindowReach::Ticks(ranges), WindowReach::Ticks(other)) if ranges.is_empty() => {
                return WindowReach::Ticks(other);
            }
            (WindowReach::Ticks(ranges), WindowReach::Ticks(other)) if other.is_empty() => {
                return WindowReach::Ticks(ranges);
            }
            (WindowReach::Ticks(ranges), WindowReach::Ticks(other)) => (ranges, other),
            _ => return WindowReach::Unbounded,
        };
        let sum = |a: &RangeInclusive<i64>, b: &RangeInclusive<i64>| {
            a.start().saturating_add(*b.start())..=a.end().saturating_add(*b.end())
        };
        WindowReach::from_ranges(
            ranges
                .iter()
                .flat_map(|a| other.iter().map(move |b| sum(a, b))),
        )
    }
}

impl WindowPlan {
    /// The reach of all outputs, which determines the halo. Row times are arbitrary, so functions that count rows
    /// have unbounded reach.
    pub fn reach(&self) -> WindowReach {
        self.functions
            .iter()
            .map(|function| self.reach_of(&function.compute))
            .fold(WindowReach::same_time(), WindowReach::union)
    }

    /// The reach of one function.
    pub fn reach_of(&self, compute: &WindowFunction) -> WindowReach {
        match self.gaps {
            GapHandling::CountRows => compute
                .distances(tick_nanoseconds(&self.time).unwrap_or(1))
                .map_or(WindowReach::Unbounded, |distances| {
                    WindowReach::from_ranges(distances.into_iter().chain([0..=0]))
                }),
            _ => WindowReach::Unbounded,
        }
    }
}

impl WindowFunction {
    /// Ranges of distances in ticks of the entries that determine the output; `None` if unbounded. `tick` is the number
    /// of nanoseconds per tick.
    fn distances(&self, tick: i128) -> Option<Vec<RangeInclusive<i64>>> {
        let ticks = |length: SeriesLength| match length {
            SeriesLength::Ticks(ticks) => Some(ticks),
            SeriesLength::Rows(0) => Some(0),
            SeriesLength::Rows(_) | SeriesLength::Calendar(_) => None,
        };
        if let Some(length) = self.calendar_reach() {
            // Whether a row counts as a bound depends on all rows since.
            return Some(vec![0..=length?.span()?.tick_bounds(tick).1]);
        }
        match *self {
            WindowFunction::Lag { by, as_of } => {
                let by = ticks(by)?;
                let tolerance = as_of.map_or(0, |tolerance| tolerance.span().ticks);
                Some(vec![by..=by.checked_add(tolerance)?])
            }
            WindowFunction::Diff { by } | WindowFunction::PctChange { by } => {
                ticks(by).map(|by| vec![by..=by])
            }
            WindowFunction::Window {
                frame: SeriesFrame::Rolling { over, gap, closed },
                ..
            } => {
                let over = ticks(over)?;
                let gap = ticks(gap)?;
                let last = gap.checked_add(over)? - i64::from(!closed.has_first());
                Some(vec![gap..=last.max(gap)])
            }
            WindowFunction::Window {
                frame:
                    SeriesFrame::Seasonal {
                        season: SeriesLength::Ticks(season),
                        over,
                        gap,
                    },
                ..
            } => {
                let gap = ticks(gap)?;
                let last = season
                    .checked_mul(i64::try_from(over).ok()?.checked_sub(1)?)?
                    .checked_add(gap)?;
                Some(if over as usize <= RANGES_MAX {
                    (0..over as i64)
                        .map(|season_index| {
                            gap + season * season_index..=gap + season * season_index
                        })
                        .collect()
                } else {
                    vec![gap..=last]
                })
            }
            WindowFunction::Window { .. }
            | WindowFunction::Ewm { .. }
            | WindowFunction::SeasonalIndex { .. }
            | WindowFunction::LastValid { .. }
            | WindowFunction::LastValidTime { .. } => None,
        }
    }

    /// The furthest bound of a function with a bound of the calendar: `Some(None)` where it counts rows as well. `None`
    /// for other functions, and for those that read all earlier entries.
    fn calendar_reach(&self) -> Option<Option<SeriesLength>> {
        let lengths: Vec<SeriesLength> = match *self {
            WindowFunction::Lag { by, as_of } => {
                let tolerance = as_of.unwrap_or(TimeDistance::Ticks(0));
                vec![by, tolerance.into()]
            }
            WindowFunction::Diff { by } | WindowFunction::PctChange { by } => vec![by],
            WindowFunction::Window {
                frame: SeriesFrame::Rolling { over, gap, .. },
                ..
            } => vec![over, gap],
            WindowFunction::Window {
                frame: SeriesFrame::Seasonal { season, over, gap },
                ..
            } => {
                let turns = over.saturating_sub(1) as i64;
                vec![season.times(turns), gap]
            }
            WindowFunction::Window { .. }
            | WindowFunction::Ewm { .. }
            | WindowFunction::SeasonalIndex { .. }
            | WindowFunction::LastValid { .. }
            | WindowFunction::LastValidTime { .. } => return None,
        };
        let is_calendar = |length: &SeriesLength| matches!(length, SeriesLength::Calendar(_));
        if !lengths.iter().any(is_calendar) {
            return None;
        }
        let spans: Option<Vec<_>> = lengths.into_iter().map(SeriesLength::span).collect();
        let sum = spans.map(|spans| {
            let total = spans
                .into_iter()
                .fold(Default::default(), CalendarSpan::plus);
            SeriesLength::Calendar(total)
        });
        Some(sum)
    }
}
