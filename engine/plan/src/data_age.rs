//! Ages of data, and traces that say where an age comes from.
//!
//! An age is a length of time and a number of rows before the row that has the data. Ages are combined as values are: a
//! value that is computed of two columns is as young as the younger one.

use arrow::datatypes::DataType;
use forebay_model::{
    CalendarSpan, ColumnClock, DAY_NANOSECONDS, month_nanoseconds, tick_nanoseconds,
};
use forebay_window::{GapHandling, SeriesLength};

use crate::WindowOp;
use crate::time_shift::{TimeShift, nanoseconds_per_tick};

/// Age of a column: how far before its row its data ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataAge {
    /// Known in advance: keys, the calendar, constants, columns listed as known.
    Ahead,
    /// Ends this much before the row, in time and in rows. What is less than 0 ends after the row.
    Behind { time: AgeTime, rows: i64 },
    /// Ends any time after the row.
    After,
}

/// The most by which changes of a zone's clock make a span of the calendar longer or shorter. Zones that moved to the other
/// side of the date line are left aside: every length of 48 hours would be shorter than a day.
const CLOCK_CHANGE_MAX: i128 = 3 * DAY_NANOSECONDS / 24;

/// A length of time of an age: months and days of the calendar, and nanoseconds beside them (or ticks of an integer time
/// column). Months differ in length, and so do days where clocks change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AgeTime {
    pub months: i64,
    pub days: i64,
    pub nanoseconds: i128,
    /// True in a zone whose clocks change.
    pub has_clock_changes: bool,
}

impl AgeTime {
    pub fn nanoseconds(nanoseconds: i128) -> AgeTime {
        AgeTime {
            nanoseconds,
            ..AgeTime::default()
        }
    }

    /// A span of a column with this many nanoseconds per tick.
    pub fn of_span(span: CalendarSpan, tick: i128) -> AgeTime {
        AgeTime {
            months: span.months,
            days: span.days,
            nanoseconds: i128::from(span.ticks) * tick,
            has_clock_changes: false,
        }
    }

    /// A length of a column of times.
    fn of_length(span: CalendarSpan, time: &DataType) -> AgeTime {
        let length = AgeTime::of_span(span, nanoseconds_per_tick(time));
        if has_clock_changes(time) {
            return AgeTime {
                has_clock_changes: true,
                ..length
            };
        }
        // Whole days without clock changes are days of the calendar: those of a horizon are like them.
        let is_whole_days =
            tick_nanoseconds(time).is_some() && length.nanoseconds % DAY_NANOSECONDS == 0;
        match i64::try_from(length.nanoseconds / DAY_NANOSECONDS) {
            Ok(days) if is_whole_days => AgeTime {
                days: length.days.saturating_add(days),
                nanoseconds: 0,
                ..length
            },
            _ => length,
        }
    }

    pub fn plus(self, other: AgeTime) -> AgeTime {
        AgeTime {
            months: self.months.saturating_add(other.months),
            days: self.days.saturating_add(other.days),
            nanoseconds: self.nanoseconds + other.nanoseconds,
            has_clock_changes: self.has_clock_changes || other.has_clock_changes,
        }
    }

    pub fn minus(self, other: AgeTime) -> AgeTime {
        self.plus(other.times(-1))
    }

    pub fn times(self, count: i128) -> AgeTime {
        let times = |units: i64| i64::try_from(i128::from(units) * count).unwrap_or(i64::MAX);
        AgeTime {
            months: times(self.months),
            days: times(self.days),
            nanoseconds: self.nanoseconds * count,
            has_clock_changes: self.has_clock_changes,
        }
    }

    /// One of so many equal parts. Days that cannot be divided are parts of 24 hours.
    pub fn divided(self, parts: u64) -> AgeTime {
        let count = parts as i64;
        let undivided_days = i128::from(self.days % count) * DAY_NANOSECONDS;
        AgeTime {
            months: self.months / count,
            days: self.days / count,
            nanoseconds: (self.nanoseconds + undivided_days) / i128::from(parts),
            has_clock_changes: self.has_clock_changes,
        }
    }

    /// Months and days that last shortest, or longest.
    fn calendar_bound(self, most: bool) -> i128 {
        let months = month_nanoseconds(self.months, (self.months > 0) == most);
        let days = i128::from(self.days) * DAY_NANOSECONDS;
        let is_calendar = self.months != 0 || self.days != 0;
        let change = if self.has_clock_changes && is_calendar {
            CLOCK_CHANGE_MAX
        } else {
            0
        };
        months + days + if most { change } else { -change }
    }

    /// The least that it lasts.
    pub fn least(self) -> i128 {
        self.calendar_bound(false) + self.nanoseconds
    }

    /// The most that it lasts.
    pub fn most(self) -> i128 {
        self.calendar_bound(true) + self.nanoseconds
    }

    /// True if it lasts at least as long as another one, wherever both begin.
    pub fn is_at_least(self, other: AgeTime) -> bool {
        self.minus(other).least() >= 0
    }

    /// The shorter of both; of lengths that the calendar makes longer or shorter, the least that either lasts.
    fn shorter(self, other: AgeTime) -> AgeTime {
        if self.is_at_least(other) {
            other
        } else if other.is_at_least(self) {
            self
        } else {
            AgeTime::nanoseconds(self.least().min(other.least()))
        }
    }
}

/// True if a column of times is in a zone whose clocks change.
pub(crate) fn has_clock_changes(time: &DataType) -> bool {
    let clock = ColumnClock::of(time).ok().flatten();
    clock.is_some_and(|clock| !clock.has_even_days())
}

/// Number of rows that stands for no proof: rows may have any distance.
const ROWS_UNPROVED: i64 = -(1 << 40);

/// The data of the row itself.
pub(crate) const NOW: DataAge = DataAge::Behind {
    time: AgeTime {
        months: 0,
        days: 0,
        nanoseconds: 0,
        has_clock_changes: false,
    },
    rows: 0,
};

impl DataAge {
    /// True if the data ends after the row.
    pub fn is_later(self) -> bool {
        match self {
            DataAge::Ahead => false,
            DataAge::Behind { time, .. } => time.least() < 0,
            DataAge::After => true,
        }
    }

    /// The younger of both.
    pub fn or_younger(self, other: DataAge) -> DataAge {
        match (self, other) {
            (DataAge::After, _) | (_, DataAge::After) => DataAge::After,
            (DataAge::Ahead, age) | (age, DataAge::Ahead) => age,
            (DataAge::Behind { time: a, rows: x }, DataAge::Behind { time: b, rows: y }) => {
                DataAge::Behind {
                    time: a.shorter(b),
                    rows: x.min(y),
                }
            }
        }
    }

    /// The age of the values of rows that lie a length before.
    pub fn lagged(self, by: SeriesLength, window: Option<&WindowOp>) -> DataAge {
        let DataAge::Behind { time, rows } = self else {
            return self;
        };
        let length = |span: CalendarSpan| match window {
            Some(window) => AgeTime::of_length(span, &window.plan.time),
            None => AgeTime::of_span(span, 1),
        };
        // Rows convert to time only if no period is missing.
        let every = match window.map(|window| window.plan.gaps) {
            Some(GapHandling::Error { every } | GapHandling::Complete { every, .. }) => {
                length(every.span())
            }
            _ => AgeTime::default(),
        };
        match by {
            SeriesLength::Rows(by) => DataAge::Behind {
                time: time.plus(every.times(i128::from(by))),
                rows: rows.saturating_add(i64::try_from(by).unwrap_or(i64::MAX)),
            },
            SeriesLength::Ticks(by) => DataAge::Behind {
                time: time.plus(length(CalendarSpan::ticks(by))),
                rows,
            },
            SeriesLength::Calendar(by) => DataAge::Behind {
                time: time.plus(length(by)),
                rows,
            },
        }
    }

    /// Seen from a row that lies `ahead` before the row that has the data.
    pub fn moved(self, shift: i128) -> DataAge {
        match self {
            DataAge::Behind { time, rows } => DataAge::Behind {
                time: time.minus(AgeTime::nanoseconds(shift)),
                rows: if shift == 0 { rows } else { ROWS_UNPROVED },
            },
            other => other,
        }
    }

    /// Age of rows that aggregate several others: their number proves nothing about the rows
    /// before.
    pub fn of_group(self) -> DataAge {
        match self {
            DataAge::Ahead => NOW,
            DataAge::Behind { time, rows } => DataAge::Behind {
                time,
                rows: rows.min(0),
            },
            DataAge::After => DataAge::After,
        }
    }
}

/// Dependence of a column on the time of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeLink {
    /// No dependence on the time.
    None,
    /// The time of the row, moved by a distance within these bounds.
    Moved(TimeShift),
    /// Another dependence on the time.
    Unproved,
}

impl TimeLink {
    pub fn shift(self) -> Option<TimeShift> {
        match self {
            TimeLink::Moved(shift) => Some(shift),
            TimeLink::None | TimeLink::Unproved => None,
        }
    }

    pub fn moved(self, by: TimeShift) -> TimeLink {
        match self {
            TimeLink::Moved(shift) => TimeLink::Moved(shift.then(by)),
            other => other,
        }
    }
}

/// Age of a column, with its provenance.
#[derive(Debug, Clone)]
pub(crate) struct AgeTrace {
    pub ends: DataAge,
    /// Dependence on the row's time: a lookup by it may return data of that time.
    pub time: TimeLink,
    /// True if its data are rows that have a time. Tables without one hold constant data.
    pub dated: bool,
    /// True if the selection of rows depends on later rows.
    pub chosen_late: bool,
    /// Path from the column back to the origin of its data.
    pub path: Vec<String>,
}

impl AgeTrace {
    pub fn ahead() -> AgeTrace {
        AgeTrace::of(DataAge::Ahead)
    }

    pub fn of(ends: DataAge) -> AgeTrace {
        AgeTrace {
            ends,
            time: TimeLink::None,
            dated: false,
            chosen_late: false,
            path: Vec::new(),
        }
    }

    fn merged(self, other: AgeTrace, time: TimeLink) -> AgeTrace {
        let ends = self.ends.or_younger(other.ends);
        let path = if ends == self.ends || self.ends == DataAge::After {
            self.path
        } else {
            other.path
        };
        AgeTrace {
            ends,
            time,
            dated: self.dated || other.dated,
            chosen_late: self.chosen_late || other.chosen_late,
            path,
        }
    }

    /// Computed of both.
    pub fn younger(self, other: AgeTrace) -> AgeTrace {
        let time = if self.time == TimeLink::None && other.time == TimeLink::None {
            TimeLink::None
        } else {
            TimeLink::Unproved
        };
        self.merged(other, time)
    }

    /// Trace of rows of which some have one trace and some the other.
    pub fn either(self, other: AgeTrace) -> AgeTrace {
        let time = match (self.time, other.time) {
            (TimeLink::None, TimeLink::None) => TimeLink::None,
            (TimeLink::Moved(a), TimeLink::Moved(b)) => TimeLink::Moved(a.or(b)),
            _ => TimeLink::Unproved,
        };
        self.merged(other, time)
    }

    /// Trace of a column that equals one of several columns.
    pub fn of_all(traces: impl IntoIterator<Item = AgeTrace>) -> AgeTrace {
        let mut traces = traces.into_iter();
        let Some(first) = traces.next() else {
            return AgeTrace::ahead();
        };
        let time = match first.time {
            TimeLink::None => TimeLink::None,
            _ => TimeLink::Unproved,
        };
        traces.fold(AgeTrace { time, ..first }, AgeTrace::younger)
    }

    /// Trace of a column of several streams.
    pub fn of_streams(traces: impl IntoIterator<Item = AgeTrace>) -> AgeTrace {
        let traces = traces.into_iter();
        traces
            .reduce(AgeTrace::either)
            .unwrap_or_else(AgeTrace::ahead)
    }

    /// Computed over rows of any time.
    pub fn of_any_time(mut self) -> AgeTrace {
        if self.dated {
            self.ends = DataAge::After;
        } else {
            self.ends = self.ends.of_group();
        }
        self.time = TimeLink::None;
        self
    }

    /// Adds a step to the path.
    pub fn through_step(mut self, column: &str, step: &str) -> AgeTrace {
        self.path.insert(0, format!("`{column}` ({step})"));
        self
    }
}

/// The way in which rows of this step meet rows of another.
pub(crate) struct MetTimes {
    /// Each key of this side, with the key of the other side.
    pub keys: Vec<(AgeTrace, AgeTrace)>,
    /// Reach of the data of a row of this side beyond its time, and of a row of the other side.
    pub extents: (i128, i128),
}

impl MetTimes {
    /// The age of data there, as seen from the rows here.
    pub fn age(&self, row_trace: AgeTrace) -> AgeTrace {
        let own_trace = AgeTrace::of_all(self.keys.iter().map(|(column, _)| column.clone()));
        let is_timed = own_trace.time != TimeLink::None;
        let of_keys = AgeTrace {
            time: TimeLink::None,
            dated: false,
            ..own_trace
        };
        let AgeTrace {
            ends, dated, path, ..
        } = row_trace.clone();
        let age = if !dated {
            // A join by time may give a row the newest row of another table.
            if is_timed { NOW } else { DataAge::Ahead }
        } else if row_trace.chosen_late {
            DataAge::After
        } else {
            match self.farthest_ahead() {
                // The matched row depends on the row's time, independently of the values of its
                // columns.
                Some(shift) if ends == DataAge::Ahead => NOW.moved(shift.max(0)),
                Some(shift) => {
                    let (own_extent, other_extent) = self.extents;
                    ends.moved(shift + other_extent - own_extent).of_group()
                }
                None if ends == DataAge::Ahead && is_timed => NOW,
                None if ends == DataAge::Ahead => DataAge::Ahead,
                None => DataAge::After,
            }
        };
        let brought = AgeTrace {
            path,
            dated,
            ..AgeTrace::of(age)
        };
        brought.younger(of_keys)
    }

    /// Distance from the time of a row of this side to that of its match, where a key binds both.
    pub fn distance(&self) -> Option<TimeShift> {
        let of_pair = |(own_trace, other_trace): &(AgeTrace, AgeTrace)| {
            let back = other_trace.time.shift()?.reversed();
            Some(own_trace.time.shift()?.then(back))
        };
        let distances = self.keys.iter().filter_map(of_pair);
        distances.min_by_key(|distance| distance.most)
    }

    /// Maximum distance by which the time of the match lies after that of the row; `None` if it is
    /// unbounded.
    fn farthest_ahead(&self) -> Option<i128> {
        self.distance().map(|distance| distance.most)
    }
}
