//! The history of a series that a window function reads: the rows without which its output differs.

use forebay_model::tick_nanoseconds;

use crate::{GapHandling, PeriodFill, SeriesFrame, SeriesLength, WindowFunction, WindowPlan};

/// The earlier rows that a value depends on. The order is from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryReach {
    /// Rows that are at most this much earlier, in ticks of the time column.
    Ticks(i64),
    /// A number of earlier rows of the series, of any age.
    Rows(u64),
    /// All earlier rows of the series.
    Everything,
}

impl HistoryReach {
    /// No earlier rows.
    pub const NONE: HistoryReach = HistoryReach::Ticks(0);

    /// `tick` is the number of nanoseconds per tick.
    fn of(length: SeriesLength, tick: i128) -> HistoryReach {
        match length {
            SeriesLength::Rows(0) => HistoryReach::NONE,
            SeriesLength::Rows(rows) => HistoryReach::Rows(rows),
            SeriesLength::Ticks(ticks) => HistoryReach::Ticks(ticks),
            SeriesLength::Calendar(span) => HistoryReach::Ticks(span.tick_bounds(tick).1),
        }
    }

    /// The reach of a value that looks back by `self` at values that look back by `other`.
    pub fn then(self, other: HistoryReach) -> HistoryReach {
        use HistoryReach::{Everything, Rows, Ticks};
        match (self, other) {
            (Ticks(near), Ticks(far)) => near.checked_add(far).map_or(Everything, Ticks),
            (Rows(near), Rows(far)) => near.checked_add(far).map_or(Everything, Rows),
            (Ticks(_), other) => other,
            (this, Ticks(_)) => this,
            _ => Everything,
        }
    }
}

impl WindowPlan {
    /// The earlier rows that a function reads. Unlike [`WindowPlan::reach`], which bounds the rows that may change an
    /// output of any history, it is exact for series whose rows are one period apart.
    pub fn history_of(&self, function: &WindowFunction) -> HistoryReach {
        let tick = tick_nanoseconds(&self.time).unwrap_or(1);
        let reach = function.history(tick);
        match (self.gaps, reach) {
            // The value of a missing period is that of a row before it, however old that is.
            (
                GapHandling::Complete {
                    fill: PeriodFill::Zero | PeriodFill::Forward,
                    ..
                },
                reach,
            ) if reach > HistoryReach::NONE => HistoryReach::Everything,
            // Rows are whole periods apart.
            (
                GapHandling::Error { every } | GapHandling::Complete { every, .. },
                HistoryReach::Rows(rows),
            ) => i64::try_from(rows)
                .ok()
                .and_then(|rows| rows.checked_mul(every.span().tick_bounds(tick).1))
                .map_or(HistoryReach::Everything, HistoryReach::Ticks),
            (_, reach) => reach,
        }
    }
}

impl WindowFunction {
    fn history(&self, tick: i128) -> HistoryReach {
        let of = |length: SeriesLength| HistoryReach::of(length, tick);
        match *self {
            WindowFunction::Lag { as_of: None, by }
            | WindowFunction::Diff { by }
            | WindowFunction::PctChange { by } => of(by),
            WindowFunction::Lag {
                as_of: Some(older),
                by,
            } => of(by).then(of(older.into())),
            WindowFunction::Window {
                frame: SeriesFrame::Rolling { over, gap, closed },
                ..
            } => {
                let first = match over {
                    SeriesLength::Rows(rows) => of(SeriesLength::Rows(
                        rows.saturating_sub(u64::from(closed.has_last())),
                    )),
                    SeriesLength::Ticks(ticks) => {
                        HistoryReach::Ticks((ticks - i64::from(!closed.has_first())).max(0))
                    }
                    SeriesLength::Calendar(_) => of(over),
                };
                of(gap).then(first)
            }
            WindowFunction::Window {
                frame: SeriesFrame::Seasonal { season, over, gap },
                ..
            } => {
                let turns = over.saturating_sub(1);
                let seasons = match season {
                    SeriesLength::Rows(rows) => rows.checked_mul(turns).map(SeriesLength::Rows),
                    SeriesLength::Ticks(ticks) => i64::try_from(turns)
                        .ok()
                        .and_then(|turns| ticks.checked_mul(turns))
                        .map(SeriesLength::Ticks),
                    SeriesLength::Calendar(_) => {
                        let turns = i64::try_from(turns).ok();
                        turns.map(|turns| season.times(turns))
                    }
                };
                seasons.map_or(HistoryReach::Everything, |seasons| {
                    of(gap).then(of(seasons))
                })
            }
            WindowFunction::LastValid { limit } | WindowFunction::LastValidTime { limit } => limit
                .map_or(HistoryReach::Everything, |rows| {
                    of(SeriesLength::Rows(rows))
                }),
            WindowFunction::Window {
                frame: SeriesFrame::Expanding { .. },
                ..
            }
            | WindowFunction::Ewm { .. }
            | WindowFunction::SeasonalIndex { .. } => HistoryReach::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use forebay_model::{CalendarSpan, TimeDistance};

    use super::*;
    use crate::{ClosedEnds, DuplicateCheck, WindowStat};

    fn plan(gaps: GapHandling) -> WindowPlan {
        WindowPlan {
            time: DataType::Date32,
            keys: Vec::new(),
            inputs: Vec::new(),
            functions: Vec::new(),
            gaps,
            duplicates: DuplicateCheck::default(),
        }
    }

    fn rolling(over: SeriesLength, gap: SeriesLength, closed: ClosedEnds) -> WindowFunction {
        WindowFunction::Window {
            frame: SeriesFrame::Rolling { over, gap, closed },
            stat: WindowStat::Mean,
            min_periods: 1,
        }
    }

    #[test]
    fn functions_tell_how_far_back_they_read() {
        use HistoryReach::{Everything, Rows, Ticks};
        use SeriesLength::{Rows as ByRows, Ticks as ByTicks};
        let lag = |by, as_of| WindowFunction::Lag { by, as_of };
        let expanding = WindowFunction::Window {
            frame: SeriesFrame::Expanding { gap: ByTicks(1) },
            stat: WindowStat::Mean,
            min_periods: 1,
        };
        let seasonal = WindowFunction::Window {
            frame: SeriesFrame::Seasonal {
                season: ByTicks(7),
                over: 4,
                gap: ByTicks(7),
            },
            stat: WindowStat::Mean,
            min_periods: 1,
        };
        let cases = [
            (lag(ByTicks(7), None), Ticks(7)),
            (lag(ByTicks(7), Some(3.into())), Ticks(10)),
            (lag(ByTicks(7), Some(i64::MAX.into())), Everything),
            (
                lag(SeriesLength::Calendar(CalendarSpan::months(1)), None),
                Ticks(31),
            ),
            (lag(ByRows(7), None), Rows(7)),
            (
                rolling(ByTicks(28), ByTicks(1), ClosedEnds::Right),
                Ticks(28),
            ),
            (
                rolling(ByTicks(28), ByTicks(1), ClosedEnds::Both),
                Ticks(29),
            ),
            (
                rolling(ByTicks(1), SeriesLength::ZERO, ClosedEnds::Right),
                HistoryReach::NONE,
            ),
            (
                rolling(ByRows(28), SeriesLength::ZERO, ClosedEnds::Right),
                Rows(27),
            ),
            (rolling(ByRows(28), ByRows(1), ClosedEnds::Right), Rows(28)),
            (seasonal, Ticks(28)),
            (expanding, Everything),
            (WindowFunction::LastValid { limit: None }, Everything),
        ];
        for (function, expected) in cases {
            let found = plan(GapHandling::CountRows).history_of(&function);
            assert_eq!(found, expected, "{function:?}");
        }
    }

    #[test]
    fn periods_bound_rows_and_fillings_reach_everything() {
        let lag = WindowFunction::Lag {
            by: SeriesLength::Rows(7),
            as_of: None,
        };
        let every = TimeDistance::Ticks(2);
        let complete = |fill| GapHandling::Complete { every, fill };
        let cases = [
            (GapHandling::Error { every }, HistoryReach::Ticks(14)),
            (complete(PeriodFill::Null), HistoryReach::Ticks(14)),
            (complete(PeriodFill::Zero), HistoryReach::Everything),
            (GapHandling::Warn { every }, HistoryReach::Rows(7)),
        ];
        for (gaps, expected) in cases {
            assert_eq!(plan(gaps).history_of(&lag), expected, "{gaps:?}");
        }
    }
}
