//! Reach of windows: the past entries that determine an output.

use std::ops::RangeInclusive;

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
    /// No entries.
    pub fn none() -> WindowReach {
        WindowReach::Ticks(Vec::new())
    }

    /// Entries at the row's own time.
    pub fn same_time() -> WindowReach {
        WindowReach::Ticks(vec![0..=0])
    }

    /// Entries at distances in these ranges.
    fn from_ranges(distances: impl IntoIterator<Item = RangeInclusive<i64>>) -> WindowReach {
        let mut all: Vec<RangeInclusive<i64>> = distances.into_iter().collect();
        all.sort_unstable_by_key(|range| *range.start());
        let mut apart: Vec<RangeInclusive<i64>> = Vec::with_capacity(all.len());
        for range in all {
            match apart
                .last_mut()
                .filter(|last| *range.start() <= last.end().saturating_add(1))
            {
                Some(last) => *last = *last.start()..=*last.end().max(range.end()),
                None => apart.push(range),
            }
        }
        while apart.len() > RANGES_MAX {
            let hole = |at: &usize| apart[*at + 1].start() - apart[*at].end();
            let Some(at) = (0..apart.len() - 1).min_by_key(hole) else {
                break;
            };
            let further = apart.remove(at + 1);
            apart[at] = *apart[at].start()..=*further.end();
        }
        WindowReach::Ticks(apart)
    }

    /// The union of both.
    pub fn union(self, other: WindowReach) -> WindowReach {
        match (self, other) {
            (WindowReach::Ticks(one), WindowReach::Ticks(other)) if one == other => {
                WindowReach::Ticks(one)
            }
            (WindowReach::Ticks(one), WindowReach::Ticks(other)) => {
                WindowReach::from_ranges(one.into_iter().chain(other))
            }
            _ => WindowReach::Unbounded,
        }
    }

    /// The composition: the reach of a window over the output of another one.
    pub fn compose(self, other: WindowReach) -> WindowReach {
        let (one, other) = match (self, other) {
            (WindowReach::Ticks(one), WindowReach::Ticks(other)) if one.is_empty() => {
                return WindowReach::Ticks(other);
            }
            (WindowReach::Ticks(one), WindowReach::Ticks(other)) if other.is_empty() => {
                return WindowReach::Ticks(one);
            }
            (WindowReach::Ticks(one), WindowReach::Ticks(other)) => (one, other),
            _ => return WindowReach::Unbounded,
        };
        let sum = |a: &RangeInclusive<i64>, b: &RangeInclusive<i64>| {
            a.start().saturating_add(*b.start())..=a.end().saturating_add(*b.end())
        };
        WindowReach::from_ranges(
            one.iter()
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
                .distances()
                .map_or(WindowReach::Unbounded, |distances| {
                    WindowReach::from_ranges(distances.into_iter().chain([0..=0]))
                }),
            _ => WindowReach::Unbounded,
        }
    }
}

impl WindowFunction {
    /// Ranges of distances in ticks of the entries that determine the output; `None` if unbounded.
    fn distances(&self) -> Option<Vec<RangeInclusive<i64>>> {
        let ticks = |length: SeriesLength| match length {
            SeriesLength::Ticks(ticks) => Some(ticks),
            SeriesLength::Rows(0) => Some(0),
            SeriesLength::Rows(_) => None,
        };
        match *self {
            WindowFunction::Lag { by, as_of } => {
                let by = ticks(by)?;
                Some(vec![by..=by.checked_add(as_of.unwrap_or(0))?])
            }
            WindowFunction::Diff { by } | WindowFunction::PctChange { by } => {
                ticks(by).map(|by| vec![by..=by])
            }
            WindowFunction::Window {
                frame: SeriesFrame::Rolling { over, gap, closed },
                ..
            } => {
                let (over, gap) = (ticks(over)?, ticks(gap)?);
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
                Some(match over as usize <= RANGES_MAX {
                    true => (0..over as i64)
                        .map(|turn| gap + season * turn..=gap + season * turn)
                        .collect(),
                    false => vec![gap..=last],
                })
            }
            WindowFunction::Window { .. }
            | WindowFunction::Ewm { .. }
            | WindowFunction::SeasonalIndex { .. }
            | WindowFunction::LastValid { .. }
            | WindowFunction::LastValidTime { .. } => None,
        }
    }
}
