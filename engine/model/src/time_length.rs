//! Lengths of time: calendar lengths and exact ones.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use arrow::datatypes::DataType;
use serde::{Serialize, Serializer};

use crate::calendar_span::{CalendarSpan, DAY_NANOSECONDS, SECOND};
use crate::column_clock::ColumnClock;
use crate::column_ticks::tick_nanoseconds;
use crate::{Fault, Result, codes, type_words};

/// A whole number of units of time.
///
/// Days and longer units are of the calendar: a day ends at the same time of the next day, whatever the clock did
/// between, and a month at the same day of the next month or at its end. Hours and shorter units are exact. Business
/// days are no unit, since each country and company has its own: their numbers are a time of whole steps.
///
/// ```
/// use forebay_model::{CalendarUnit, ExactUnit, TimeLength};
///
/// assert_eq!("7d".parse(), Ok(TimeLength::Calendar { count: 7, unit: CalendarUnit::Day }));
/// assert_eq!("90min".parse(), Ok(TimeLength::Exact { count: 90, unit: ExactUnit::Minute }));
/// assert!("7 days".parse::<TimeLength>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeLength {
    /// Units of the calendar of a column's zone.
    Calendar {
        /// The number of units.
        count: u32,
        /// The unit.
        unit: CalendarUnit,
    },
    /// Units that always last equally long.
    Exact {
        /// The number of units.
        count: u32,
        /// The unit.
        unit: ExactUnit,
    },
}

/// A unit of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it.
pub enum CalendarUnit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
}

/// A unit that always lasts equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it.
pub enum ExactUnit {
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl CalendarUnit {
    const ALL: [(CalendarUnit, &str); 5] = [
        (CalendarUnit::Year, "y"),
        (CalendarUnit::Quarter, "q"),
        (CalendarUnit::Month, "mo"),
        (CalendarUnit::Week, "w"),
        (CalendarUnit::Day, "d"),
    ];

    fn word(self) -> &'static str {
        let entry = CalendarUnit::ALL.iter().find(|(unit, _)| *unit == self);
        entry.map_or("", |(_, word)| word)
    }

    /// One unit.
    fn span(self) -> CalendarSpan {
        match self {
            CalendarUnit::Year => CalendarSpan::months(12),
            CalendarUnit::Quarter => CalendarSpan::months(3),
            CalendarUnit::Month => CalendarSpan::months(1),
            CalendarUnit::Week => CalendarSpan::days(7),
            CalendarUnit::Day => CalendarSpan::days(1),
        }
    }
}

impl ExactUnit {
    const ALL: [(ExactUnit, &str, i128); 6] = [
        (ExactUnit::Hour, "h", 3_600 * SECOND),
        (ExactUnit::Minute, "m", 60 * SECOND),
        (ExactUnit::Second, "s", SECOND),
        (ExactUnit::Millisecond, "ms", 1_000_000),
        (ExactUnit::Microsecond, "us", 1_000),
        (ExactUnit::Nanosecond, "ns", 1),
    ];

    fn word(self) -> &'static str {
        let entry = ExactUnit::ALL.iter().find(|(unit, ..)| *unit == self);
        entry.map_or("", |(_, word, _)| word)
    }

    fn nanoseconds(self) -> i128 {
        let entry = ExactUnit::ALL.iter().find(|(unit, ..)| *unit == self);
        entry.map_or(0, |(.., nanoseconds)| *nanoseconds)
    }
}

/// Units of time as a hint of faults names them.
pub const LENGTH_HINT: &str = "write a whole number and a unit: 30m, 12h, 7d, 2w or 1mo";

/// Hint of faults for business days where days of the calendar are counted.
pub const CIVIL_BUSINESS_DAYS_HINT: &str = "business days are no unit here, where all days count: \
    write days or weeks, such as `7d` for five business days and a weekend";

/// Units that stand for business days, in lower case.
const BUSINESS_DAY_WORDS: [&str; 7] = [
    "b",
    "bd",
    "bday",
    "bdays",
    "business day",
    "business days",
    "businessdays",
];

/// The number of business days that a text counts; `None` for other texts.
fn business_days(text: &str) -> Option<u32> {
    let text = text.trim().to_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, word) = text.split_at(digits);
    let count: u32 = count.parse().ok()?;
    BUSINESS_DAY_WORDS.contains(&word.trim()).then_some(count)
}

/// The remedy for a text that counts business days where a step takes a length; `None` for other texts.
///
/// ```
/// use forebay_model::business_days_hint;
///
/// assert!(business_days_hint("5bd").is_some_and(|hint| hint.contains("`5t`")));
/// assert_eq!(business_days_hint("5d"), None);
/// ```
pub fn business_days_hint(text: &str) -> Option<String> {
    let count = business_days(text)?;
    Some(format!(
        "business days are no unit, since each calendar has its own: number them with \
         `calendar: {{ parts: [business_day_number] }}`, filter days without a number out, name \
         the number as `time`, and write `{count}t`"
    ))
}

/// The remedy for a text that is no length, where a step takes one.
pub fn length_hint(text: &str) -> String {
    business_days_hint(text).unwrap_or_else(|| LENGTH_HINT.to_owned())
}

/// The remedy for a text that is no length, where days of the calendar are counted.
pub fn civil_length_hint(text: &str) -> &'static str {
    match business_days(text) {
        Some(_) => CIVIL_BUSINESS_DAYS_HINT,
        None => LENGTH_HINT,
    }
}

impl FromStr for TimeLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, word) = text.split_at(digits);
        let word = if word == "min" { "m" } else { word };
        let wrong = || format!("`{text}` is not a length of time");
        let count: u32 = count.parse().map_err(|_| wrong())?;
        if let Some((unit, _)) = CalendarUnit::ALL
            .iter()
            .find(|(_, unit_word)| *unit_word == word)
        {
            return Ok(TimeLength::Calendar { count, unit: *unit });
        }
        if let Some((unit, ..)) = ExactUnit::ALL
            .iter()
            .find(|(_, unit_word, _)| *unit_word == word)
        {
            return Ok(TimeLength::Exact { count, unit: *unit });
        }
        Err(wrong())
    }
}

impl Display for TimeLength {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            TimeLength::Calendar { count, unit } => write!(f, "{count}{}", unit.word()),
            TimeLength::Exact { count, unit } => write!(f, "{count}{}", unit.word()),
        }
    }
}

impl TimeLength {
    /// Number of units.
    pub fn count(self) -> u32 {
        match self {
            TimeLength::Calendar { count, .. } | TimeLength::Exact { count, .. } => count,
        }
    }

    /// One unit.
    pub fn one(self) -> TimeLength {
        match self {
            TimeLength::Calendar { unit, .. } => TimeLength::Calendar { count: 1, unit },
            TimeLength::Exact { unit, .. } => TimeLength::Exact { count: 1, unit },
        }
    }

    /// True if it counts months, which differ in length also without a zone.
    pub fn has_months(self) -> bool {
        match self {
            TimeLength::Calendar { unit, .. } => unit.span().months > 0,
            TimeLength::Exact { .. } => false,
        }
    }

    /// True if it counts weeks.
    pub fn is_weeks(self) -> bool {
        matches!(
            self,
            TimeLength::Calendar {
                unit: CalendarUnit::Week,
                ..
            }
        )
    }

    /// Months and days of a length of the calendar.
    pub fn calendar_span(self) -> Option<CalendarSpan> {
        match self {
            TimeLength::Calendar { count, unit } => Some(unit.span().times(i64::from(count))),
            TimeLength::Exact { .. } => None,
        }
    }

    /// Nanoseconds with days of 24 hours; `None` for months.
    pub fn nominal_nanoseconds(self) -> Option<i128> {
        match self {
            TimeLength::Calendar { count, unit } => {
                let span = unit.span();
                let days = i128::from(count) * i128::from(span.days);
                (span.months == 0).then_some(days * DAY_NANOSECONDS)
            }
            TimeLength::Exact { count, unit } => Some(i128::from(count) * unit.nanoseconds()),
        }
    }

    /// Months of the calendar, and nanoseconds beside them with days of 24 hours.
    pub fn months_and_nanoseconds(self) -> (i64, i128) {
        match self {
            TimeLength::Calendar { count, unit } => {
                let months = i64::from(count) * unit.span().months;
                (months, self.nominal_nanoseconds().unwrap_or(0))
            }
            TimeLength::Exact { .. } => (0, self.nominal_nanoseconds().unwrap_or(0)),
        }
    }

    /// The length in a column of times: ticks where it lasts equally long everywhere in the column.
    pub fn distance(self, name: &str, data_type: &DataType) -> Result<TimeDistance> {
        let Some(clock) = ColumnClock::of(data_type)? else {
            return Err(integer_time_fault(self, name));
        };
        if let TimeLength::Calendar { count, unit } = self {
            let span = unit.span().times(i64::from(count));
            if span.months > 0 || !clock.has_even_days() {
                return Ok(TimeDistance::Calendar(span));
            }
        }
        let nanoseconds = self.nominal_nanoseconds().unwrap_or(0);
        let tick = tick_nanoseconds(data_type).unwrap_or(1);
        if nanoseconds % tick != 0 {
            return Err(self.finer_fault(name, data_type));
        }
        let ticks = i64::try_from(nanoseconds / tick).map_err(|_| {
            let message = format!("`{self}` is longer than `{name}` can tell");
            Fault::new(codes::BAD_VALUE, message)
        })?;
        Ok(TimeDistance::Ticks(ticks))
    }

    fn finer_fault(self, name: &str, data_type: &DataType) -> Fault {
        if *data_type == DataType::Date32 {
            let message =
                format!("`{self}` is not a whole number of days, and `{name}` holds dates");
            return Fault::new(codes::BAD_VALUE, message)
                .hint("use days or weeks, or a column of timestamps");
        }
        let message = format!(
            "`{self}` is finer than `{name}`, which is {}",
            type_words(data_type)
        );
        Fault::new(codes::BAD_VALUE, message)
    }
}

fn integer_time_fault(length: TimeLength, name: &str) -> Fault {
    let message = format!("`{length}` cannot be told from `{name}`, which is an integer");
    Fault::new(codes::BAD_VALUE, message)
        .hint("count its steps with the unit `t`, such as `7t`, or make it a date or timestamp")
}

/// A distance between two times of a column: ticks, or a span of its calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeDistance {
    /// Ticks of the column: days for dates, else its own unit.
    Ticks(i64),
    /// Months and days of the column's calendar.
    Calendar(CalendarSpan),
}

/// Ticks are stored as a number: ids of plans without calendars do not depend on them.
impl Serialize for TimeDistance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TimeDistance::Ticks(ticks) => serializer.serialize_i64(*ticks),
            TimeDistance::Calendar(span) => span.serialize(serializer),
        }
    }
}

impl From<i64> for TimeDistance {
    fn from(ticks: i64) -> Self {
        TimeDistance::Ticks(ticks)
    }
}

impl TimeDistance {
    /// The distance of a span.
    pub fn from_span(span: CalendarSpan) -> TimeDistance {
        if span.is_calendar() {
            TimeDistance::Calendar(span)
        } else {
            TimeDistance::Ticks(span.ticks)
        }
    }

    /// As a span.
    pub fn span(self) -> CalendarSpan {
        match self {
            TimeDistance::Ticks(ticks) => CalendarSpan::ticks(ticks),
            TimeDistance::Calendar(span) => span,
        }
    }

    /// True if it is longer than zero.
    pub fn is_positive(self) -> bool {
        let span = self.span();
        span > CalendarSpan::default()
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn lengths_are_calendar_or_exact() {
        for text in [
            "1y", "2q", "3mo", "4w", "5d", "6h", "7m", "8s", "9ms", "10us", "11ns",
        ] {
            let length: TimeLength = text.parse().unwrap();
            assert_eq!(length.to_string(), text);
            let is_calendar = matches!(length, TimeLength::Calendar { .. });
            assert_eq!(
                is_calendar,
                "yqmowd".contains(&text[1..]) && !text.ends_with('m'),
                "{text}"
            );
        }
        for text in [
            "",
            "d",
            "7",
            "7 d",
            "7D",
            "-7d",
            "1bd",
            "1.5d",
            "99999999999d",
        ] {
            assert!(text.parse::<TimeLength>().is_err(), "{text}");
        }
    }

    #[test]
    fn business_days_are_told_from_other_texts() {
        for text in ["5bd", "1b", "5B", "20 bdays", " 5 business days", "0bd"] {
            assert!(text.parse::<TimeLength>().is_err(), "{text}");
            assert!(business_days_hint(text).is_some(), "{text}");
            assert_eq!(civil_length_hint(text), CIVIL_BUSINESS_DAYS_HINT, "{text}");
        }
        for text in ["", "bd", "b", "5d", "5 days", "-5bd", "5bdd", "1.5bd"] {
            assert_eq!(business_days_hint(text), None, "{text}");
            assert_eq!(length_hint(text), LENGTH_HINT, "{text}");
            assert_eq!(civil_length_hint(text), LENGTH_HINT, "{text}");
        }
        assert!(length_hint("20bd").ends_with("write `20t`"));
    }

    #[test]
    fn days_are_ticks_where_all_days_are_equal() {
        let column = |zone: Option<&str>| {
            DataType::Timestamp(TimeUnit::Second, zone.map(|zone| zone.into()))
        };
        let distance = |text: &str, data_type: &DataType| {
            let length: TimeLength = text.parse().unwrap();
            length.distance("t", data_type).ok()
        };
        let days = TimeDistance::Ticks(2 * 86_400);
        for zone in [None, Some("UTC"), Some("+02:00"), Some("Etc/UTC")] {
            assert_eq!(distance("2d", &column(zone)), Some(days), "{zone:?}");
        }
        let berlin = column(Some("Europe/Berlin"));
        assert_eq!(
            distance("1w", &berlin),
            Some(TimeDistance::Calendar(CalendarSpan::days(7)))
        );
        assert_eq!(distance("48h", &berlin), Some(days));
        assert_eq!(
            distance("1q", &DataType::Date32),
            Some(TimeDistance::Calendar(CalendarSpan::months(3)))
        );
        assert_eq!(
            distance("2d", &DataType::Date32),
            Some(TimeDistance::Ticks(2))
        );
        assert!(distance("12h", &DataType::Date32).is_none());
        assert!(distance("1d", &DataType::Int64).is_none());
        assert!(distance("1d", &column(Some("Europe/Atlantis"))).is_none());
    }
}
