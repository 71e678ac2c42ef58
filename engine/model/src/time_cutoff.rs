//! The time that divides past and future.

use arrow::datatypes::Field;

use crate::column_clock::ColumnClock;
use crate::column_ticks::tick_nanoseconds;
use crate::{Fault, Result, codes, type_words};

/// A time up to which rows are the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeCutoff {
    text: String,
    /// True if the time itself belongs to the future.
    before: bool,
}

impl TimeCutoff {
    /// Rows at the time belong to the past.
    pub fn after(text: impl Into<String>) -> TimeCutoff {
        TimeCutoff {
            text: text.into(),
            before: false,
        }
    }

    /// Rows at the time belong to the future.
    pub fn before(text: impl Into<String>) -> TimeCutoff {
        TimeCutoff {
            text: text.into(),
            before: true,
        }
    }

    /// The time as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The time in nanoseconds since 1970, where it is a date or a timestamp.
    pub fn nanoseconds(&self) -> Option<i64> {
        arrow::compute::kernels::cast_utils::string_to_timestamp_nanos(self.text.trim()).ok()
    }

    /// `at or before 2016-04-24`.
    pub fn past_text(&self) -> String {
        format!(
            "{} {}",
            if self.before {
                "before"
            } else {
                "at or before"
            },
            self.text
        )
    }

    /// `after 2016-04-24`.
    pub fn future_text(&self) -> String {
        format!(
            "{} {}",
            if self.before { "at or after" } else { "after" },
            self.text
        )
    }

    /// The last tick of the past in a column of times. Without an offset, the time is local to the column's zone.
    pub fn last_tick(&self, time: &Field) -> Result<i64> {
        let wrong = || {
            let message = format!(
                "`{}` is no time of `{}`, which is {}",
                self.text,
                time.name(),
                type_words(time.data_type())
            );
            Fault::new(codes::BAD_VALUE, message).hint(
                "write a date (2016-04-24), a timestamp (2016-04-24T12:00:00), or a whole number \
                 where times are numbers",
            )
        };
        let Some(tick) = tick_nanoseconds(time.data_type()) else {
            let number: i64 = self.text.trim().parse().map_err(|_| wrong())?;
            return Ok(if self.before {
                number.saturating_sub(1)
            } else {
                number
            });
        };
        let clock = ColumnClock::of(time.data_type())?;
        let read = clock.and_then(|clock| clock.read(&self.text));
        let nanoseconds = read
            .or_else(|| self.nanoseconds().map(i128::from))
            .ok_or_else(wrong)?;
        let floor = nanoseconds.div_euclid(tick);
        let whole = floor * tick == nanoseconds;
        let last = if self.before && whole {
            floor - 1
        } else {
            floor
        };
        i64::try_from(last).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, TimeUnit};

    use super::*;

    #[test]
    fn the_last_tick_of_the_past() {
        let check = |cut: TimeCutoff, data_type: DataType, expected: i64| {
            assert_eq!(
                cut.last_tick(&Field::new("day", data_type, false))
                    .unwrap_or(-1),
                expected,
                "{cut:?}"
            );
        };
        check(TimeCutoff::after("1970-01-11"), DataType::Date32, 10);
        check(TimeCutoff::before("1970-01-11"), DataType::Date32, 9);
        check(
            TimeCutoff::before("1970-01-11T06:00:00"),
            DataType::Date32,
            10,
        );
        check(
            TimeCutoff::after("1970-01-01T00:01:00"),
            DataType::Timestamp(TimeUnit::Second, None),
            60,
        );
        check(
            TimeCutoff::before("1970-01-01T00:01:00"),
            DataType::Timestamp(TimeUnit::Millisecond, None),
            59_999,
        );
        let berlin = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
        check(
            TimeCutoff::before("2024-04-01"),
            berlin.clone(),
            1_711_922_400 - 1,
        );
        check(
            TimeCutoff::before("2024-04-01T00:00:00Z"),
            berlin,
            1_711_929_600 - 1,
        );
        check(
            TimeCutoff::before("9999-12-31"),
            DataType::Timestamp(TimeUnit::Second, None),
            253_402_214_399,
        );
        check(
            TimeCutoff::before("9999-12-31"),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            -1,
        );
        check(TimeCutoff::after("7"), DataType::Int64, 7);
        check(TimeCutoff::before("7"), DataType::Int32, 6);
        check(TimeCutoff::after("soon"), DataType::Date32, -1);
    }
}
