//! Spans of months, days and ticks.

use serde::{Deserialize, Serialize};

/// Nanoseconds of a second.
pub(crate) const SECOND: i128 = 1_000_000_000;

/// Nanoseconds of a day of 24 hours.
pub const DAY_NANOSECONDS: i128 = 86_400 * SECOND;

/// The farthest that a number of days in a zone lies from that many times 24 hours: zones have skipped a whole day, and
/// clocks change by some hours.
const ZONE_SHIFT_MAX: i128 = 26 * 3_600 * SECOND;

/// Least days of 1 to 12 months that follow each other.
const MONTHS_DAYS_LEAST: [i128; 12] = [28, 59, 89, 120, 150, 181, 212, 242, 273, 303, 334, 365];

/// Most days of 1 to 12 months that follow each other.
const MONTHS_DAYS_MOST: [i128; 12] = [31, 62, 92, 123, 153, 184, 215, 245, 276, 306, 337, 366];

/// Months, days and ticks of a column, applied in this order in civil time.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CalendarSpan {
    /// Months.
    pub months: i64,
    /// Days.
    pub days: i64,
    /// Ticks, which are exact.
    pub ticks: i64,
}

impl CalendarSpan {
    /// A number of months.
    pub fn months(months: i64) -> CalendarSpan {
        CalendarSpan {
            months,
            ..CalendarSpan::default()
        }
    }

    /// A number of days.
    pub fn days(days: i64) -> CalendarSpan {
        CalendarSpan {
            days,
            ..CalendarSpan::default()
        }
    }

    /// A number of ticks.
    pub fn ticks(ticks: i64) -> CalendarSpan {
        CalendarSpan {
            ticks,
            ..CalendarSpan::default()
        }
    }

    /// True if it has months or days.
    pub fn is_calendar(self) -> bool {
        self.months != 0 || self.days != 0
    }

    /// The sum of both.
    pub fn plus(self, other: CalendarSpan) -> CalendarSpan {
        CalendarSpan {
            months: self.months.saturating_add(other.months),
            days: self.days.saturating_add(other.days),
            ticks: self.ticks.saturating_add(other.ticks),
        }
    }

    /// The span this many times.
    pub fn times(self, count: i64) -> CalendarSpan {
        CalendarSpan {
            months: self.months.saturating_mul(count),
            days: self.days.saturating_mul(count),
            ticks: self.ticks.saturating_mul(count),
        }
    }

    /// Most ticks that it lasts where days have 24 hours, in a column with this many nanoseconds per tick.
    pub fn most_ticks(self, tick: i128) -> i64 {
        let days = i128::from(self.days) * DAY_NANOSECONDS;
        let nanoseconds = month_nanoseconds(self.months, true) + days;
        let ticks = nanoseconds / tick.max(1) + i128::from(self.ticks);
        i64::try_from(ticks).unwrap_or(i64::MAX)
    }

    /// Least and most ticks that it lasts, in a column with this many nanoseconds per tick.
    pub fn tick_bounds(self, tick: i128) -> (i64, i64) {
        let shift = if self.is_calendar() && tick < DAY_NANOSECONDS {
            ZONE_SHIFT_MAX
        } else {
            0
        };
        let days = i128::from(self.days) * DAY_NANOSECONDS;
        let least = month_nanoseconds(self.months, false) + days - shift;
        let most = month_nanoseconds(self.months, true) + days + shift;
        let ticks = |nanoseconds: i128| {
            let ticks = nanoseconds.div_euclid(tick.max(1)) + i128::from(self.ticks);
            i64::try_from(ticks).unwrap_or(if ticks > 0 { i64::MAX } else { i64::MIN })
        };
        (ticks(least).max(0), ticks(most).max(0))
    }
}

/// Least or most nanoseconds of a number of months.
pub fn month_nanoseconds(months: i64, most: bool) -> i128 {
    let count = months.unsigned_abs();
    let years = i128::from(count / 12);
    let odd_months = (count % 12) as usize;
    let odd_days = |days: &[i128; 12]| {
        let last = odd_months.checked_sub(1);
        last.and_then(|last| days.get(last)).copied().unwrap_or(0)
    };
    // Of years that follow each other, at most every fourth is a leap year.
    let days = if most {
        years * 365 + (years + 3) / 4 + odd_days(&MONTHS_DAYS_MOST)
    } else {
        years * 365 + odd_days(&MONTHS_DAYS_LEAST)
    };
    days * DAY_NANOSECONDS * i128::from(months.signum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_have_bounds() {
        let day = DAY_NANOSECONDS;
        for (months, least, most) in [
            (0, 0, 0),
            (1, 28, 31),
            (3, 89, 92),
            (12, 365, 366),
            (13, 365 + 28, 366 + 31),
            (48, 1460, 1461),
        ] {
            assert_eq!(month_nanoseconds(months, false), least * day, "{months}");
            assert_eq!(month_nanoseconds(months, true), most * day, "{months}");
        }
        assert_eq!(CalendarSpan::months(1).tick_bounds(day), (28, 31));
        assert_eq!(CalendarSpan::ticks(7).tick_bounds(1), (7, 7));
    }
}
