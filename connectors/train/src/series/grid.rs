//! Equal steps of time between the values of a series.

use std::str::FromStr;

use arrow::datatypes::DataType;
use forebay_model::{
    CalendarSpan, ColumnClock, Fault, Result, TimeLength, business_days_hint, codes,
    tick_nanoseconds, type_words,
};

/// A length of a spec: of time (`1d`, `1mo`), or of ticks of a column of whole numbers (`7t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepLength {
    /// Ticks of the column.
    Ticks(i64),
    /// A length of time.
    Time(TimeLength),
}

impl FromStr for StepLength {
    type Err = String;

    fn from_str(text: &str) -> Result<StepLength, String> {
        let Some(count) = text.strip_suffix('t') else {
            let length: Result<TimeLength, String> = text.parse();
            let length = length.map_err(|message| match business_days_hint(text) {
                Some(hint) => format!("{message}; hint: {hint}"),
                None => message,
            })?;
            return Ok(StepLength::Time(length));
        };
        match count.parse::<u32>() {
            Ok(count) => Ok(StepLength::Ticks(i64::from(count))),
            Err(_) => Err(format!("`{text}` is not a length of time")),
        }
    }
}

impl StepLength {
    /// True if it is longer than zero.
    pub fn is_positive(self) -> bool {
        match self {
            StepLength::Ticks(ticks) => ticks > 0,
            StepLength::Time(length) => length.count() > 0,
        }
    }

    /// Number of steps that make up the length, where it is a whole one. Days have 24 hours.
    pub fn steps_of(self, step: StepLength) -> Option<i128> {
        match (self, step) {
            (StepLength::Ticks(length), StepLength::Ticks(step)) => {
                whole_quotient(i128::from(length), i128::from(step))
            }
            (StepLength::Time(length), StepLength::Time(step)) => {
                let (months, nanoseconds) = length.months_and_nanoseconds();
                let (step_months, step_nanoseconds) = step.months_and_nanoseconds();
                if months > 0 {
                    whole_quotient(i128::from(months), i128::from(step_months))
                } else {
                    whole_quotient(nanoseconds, step_nanoseconds)
                }
            }
            _ => None,
        }
    }
}

fn whole_quotient(length: i128, step: i128) -> Option<i128> {
    (step > 0 && length % step == 0).then(|| length / step)
}

/// Steps of a column of times.
#[derive(Debug, Clone, Copy)]
pub struct StepGrid {
    clock: Option<ColumnClock>,
    span: CalendarSpan,
}

impl StepGrid {
    /// The grid of a column.
    pub fn new(length: StepLength, column: &str, data_type: &DataType) -> Result<StepGrid> {
        if !data_type.is_integer() && tick_nanoseconds(data_type).is_none() {
            let message = format!("`{column}` is {}, which is no time", type_words(data_type));
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(column)
                .hint("name a column of dates, timestamps or whole numbers under `time`"));
        }
        let span = match length {
            StepLength::Ticks(ticks) => CalendarSpan::ticks(ticks),
            StepLength::Time(length) => length.distance(column, data_type)?.span(),
        };
        Ok(StepGrid {
            clock: ColumnClock::of(data_type)?,
            span,
        })
    }

    /// Number of steps from a time to one that is not earlier, where it is a whole one.
    pub fn steps(&self, from: i64, to: i64) -> Option<u64> {
        if self.span.is_calendar() {
            let steps = self.clock?.steps(from, to, self.span)?;
            return u64::try_from(steps).ok();
        }
        let distance = i128::from(to) - i128::from(from);
        let steps = whole_quotient(distance, i128::from(self.span.ticks))?;
        u64::try_from(steps).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_steps(length: &str, step: &str, expected: Option<i128>) {
        let length: StepLength = length.parse().unwrap();
        assert_eq!(length.steps_of(step.parse().unwrap()), expected);
    }

    #[test]
    fn seasons_have_whole_steps() {
        assert_steps("7d", "1d", Some(7));
        assert_steps("1w", "1d", Some(7));
        assert_steps("1d", "1h", Some(24));
        assert_steps("1y", "1mo", Some(12));
        assert_steps("1y", "1q", Some(4));
        assert_steps("12t", "1t", Some(12));
        assert_steps("1y", "1w", None);
        assert_steps("7d", "1mo", None);
        assert_steps("10d", "1w", None);
        assert_steps("7t", "1d", None);
        assert!("1.5d".parse::<StepLength>().is_err());
        assert!("-1t".parse::<StepLength>().is_err());
    }

    #[test]
    fn steps_of_months_keep_their_end() {
        let month: StepLength = "1mo".parse().unwrap();
        let grid = StepGrid::new(month, "date", &DataType::Date32).unwrap();
        // 2024-01-31, 2024-02-29, 2024-03-31 and the day after that.
        assert_eq!(grid.steps(19_753, 19_782), Some(1));
        assert_eq!(grid.steps(19_753, 19_813), Some(2));
        assert_eq!(grid.steps(19_782, 19_813), Some(1));
        assert_eq!(grid.steps(19_753, 19_814), None);
        let day: StepLength = "1d".parse().unwrap();
        let grid = StepGrid::new(day, "date", &DataType::Date32).unwrap();
        assert_eq!(grid.steps(5, 9), Some(4));
        assert_eq!(grid.steps(9, 5), None);
        assert!(StepGrid::new(day, "name", &DataType::Utf8).is_err());
        assert!(StepGrid::new(day, "number", &DataType::Int64).is_err());
    }
}
