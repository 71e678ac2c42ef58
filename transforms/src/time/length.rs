//! Lengths in a spec: a number of rows, or time.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use arrow::datatypes::DataType;
use forebay_model::{
    CalendarSpan, ColumnClock, DAY_NANOSECONDS, LENGTH_HINT, Result, TimeDistance, TimeLength,
    business_days_hint, tick_nanoseconds, type_words,
};
use forebay_window::SeriesLength;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shared::bad_value;

/// Most rows of a length. A window keeps its rows in memory, so that a longer one is a mistake.
const LENGTH_ROWS_MAX: u64 = u32::MAX as u64;

/// A whole number is a number of rows (`7`). Text with a unit is a length of time: of the calendar in the zone of the time
/// column (`1y`, `1q`, `1mo`, `2w`, `7d`), or exact (`12h`, `90m`, `30s`, `500ms`, `us`, `ns`). `7t` is seven steps of a
/// time column of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthSpec {
    /// Rows of the series.
    Rows(u64),
    /// A number of units.
    Time(TimeLength),
    /// Steps of a time column of integers.
    Steps(u32),
    /// A text that is no length: a fault once it is part of a step.
    Unreadable(&'static str),
}

/// The event-time column of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeColumn {
    pub name: String,
    pub data_type: DataType,
}

impl TimeColumn {
    /// Nanoseconds per tick; `None` for integers.
    fn nanoseconds_per_tick(&self) -> Option<i128> {
        tick_nanoseconds(&self.data_type)
    }

    /// A distance of this column, as [`forebay_plan::MapOp::data_age`] wants it: exact times in nanoseconds.
    pub fn behind(&self, distance: TimeDistance) -> SeriesLength {
        let span = distance.span();
        let nanoseconds = i128::from(span.ticks) * self.nanoseconds_per_tick().unwrap_or(1);
        let nanoseconds = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        TimeDistance::from_span(CalendarSpan {
            ticks: nanoseconds,
            ..span
        })
        .into()
    }

    /// Moves times back by a distance.
    pub fn steps_back(&self, distance: TimeDistance) -> Result<StepBack> {
        Ok(StepBack {
            clock: ColumnClock::of(&self.data_type)?,
            span: distance.span(),
        })
    }

    /// True if a column of this type can be the event time.
    pub fn is_time_type(data_type: &DataType) -> bool {
        use DataType as T;
        matches!(
            data_type,
            T::Date32 | T::Date64 | T::Timestamp(..) | T::Int8 | T::Int16 | T::Int32 | T::Int64
        ) || matches!(data_type, T::UInt8 | T::UInt16 | T::UInt32)
    }
}

/// A step back in time, by the calendar of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepBack {
    clock: Option<ColumnClock>,
    span: CalendarSpan,
}

impl StepBack {
    /// The time a step before another; the first that there is, beyond the calendar.
    pub fn before(&self, time: i64) -> i64 {
        let earlier = self.clock.and_then(|clock| clock.earlier(time, self.span));
        earlier.unwrap_or_else(|| {
            let tick = self.clock.map_or(1, |clock| clock.tick());
            time.saturating_sub(self.span.tick_bounds(tick).1)
        })
    }

    /// The time a step before another, which may stand for a time of day that the clock skips.
    pub fn before_at(&self, time: i64, time_of_day: Option<i64>) -> i64 {
        let span = self.span.times(-1);
        let earlier = self
            .clock
            .and_then(|clock| clock.continued(time, span, None, time_of_day));
        earlier.unwrap_or_else(|| self.before(time))
    }

    /// Both steps at once.
    pub fn and(self, other: StepBack) -> StepBack {
        StepBack {
            span: self.span.plus(other.span),
            ..self
        }
    }
}

impl LengthSpec {
    /// In ticks of the time column, with days of 24 hours; a fault where that is no whole number, for months, and for
    /// rows.
    pub(crate) fn ticks(self, time: &TimeColumn) -> Result<i64> {
        let too_long = || bad_value(format!("`{self}` is longer than `{}` can tell", time.name));
        match self.distance(time)? {
            TimeDistance::Ticks(ticks) => Ok(ticks),
            TimeDistance::Calendar(span) if span.months > 0 => Err(bad_value(format!(
                "`{self}` differs in length from month to month, and one length is needed here"
            ))
            .hint("write days, such as 30d")),
            TimeDistance::Calendar(span) => {
                let tick = time.nanoseconds_per_tick().unwrap_or(1);
                let ticks = i128::from(span.days) * DAY_NANOSECONDS / tick;
                i64::try_from(ticks).map_err(|_| too_long())
            }
        }
    }

    /// The distance in the time column; a fault where that is no whole number, and for rows.
    pub(crate) fn distance(self, time: &TimeColumn) -> Result<TimeDistance> {
        match self {
            LengthSpec::Time(length) => length.distance(&time.name, &time.data_type),
            LengthSpec::Steps(steps) if time.nanoseconds_per_tick().is_none() => {
                Ok(TimeDistance::Ticks(steps.into()))
            }
            LengthSpec::Steps(_) => Err(bad_value(format!(
                "`{self}` counts integers, and `{}` is {}",
                time.name,
                type_words(&time.data_type)
            ))
            .hint(LENGTH_HINT)),
            LengthSpec::Rows(_) | LengthSpec::Unreadable(_) => Err(bad_value(format!(
                "`{self}` is a number of rows where a length of time is needed"
            ))
            .hint(LENGTH_HINT)),
        }
    }

    /// Periods that it lasts, and whether that is a whole number; `None` where that differs from month to month.
    pub(crate) fn periods_of(
        self,
        every: LengthSpec,
        time: &TimeColumn,
    ) -> Result<Option<(i64, bool)>> {
        let length = self.distance(time)?.span();
        let period = every.distance(time)?.span();
        let parts = [
            (length.months, period.months),
            (length.days, period.days),
            (length.ticks, period.ticks),
        ];
        let differing: Vec<(i64, i64)> = parts.into_iter().filter(|part| *part != (0, 0)).collect();
        let (length, period) = match differing.as_slice() {
            [] => return Ok(Some((0, true))),
            [(length, period)] => (*length, *period),
            _ if length.months > 0 || period.months > 0 => return Ok(None),
            _ => (self.ticks(time)?, every.ticks(time)?),
        };
        let period = period.max(1);
        Ok(Some((length / period, length % period == 0)))
    }

    /// One unit of this length.
    pub(super) fn unit(self) -> LengthSpec {
        match self {
            LengthSpec::Rows(_) => LengthSpec::Rows(1),
            LengthSpec::Time(length) => LengthSpec::Time(length.one()),
            LengthSpec::Steps(_) => LengthSpec::Steps(1),
            LengthSpec::Unreadable(_) => self,
        }
    }

    /// As the windows' plan has it.
    pub(super) fn of(self, time: &TimeColumn) -> Result<SeriesLength> {
        match self {
            LengthSpec::Rows(rows) if rows > LENGTH_ROWS_MAX => {
                let message = format!("`{self}` is more than {LENGTH_ROWS_MAX} rows");
                Err(bad_value(message)
                    .hint("write a smaller number, or a length of time such as 28d"))
            }
            LengthSpec::Rows(rows) => Ok(SeriesLength::Rows(rows)),
            LengthSpec::Time(_) | LengthSpec::Steps(_) | LengthSpec::Unreadable(_) => {
                Ok(self.distance(time)?.into())
            }
        }
    }

    /// True for a length of nothing.
    pub(crate) fn is_zero(self) -> bool {
        match self {
            LengthSpec::Rows(rows) => rows == 0,
            LengthSpec::Time(length) => length.count() == 0,
            LengthSpec::Steps(steps) => steps == 0,
            LengthSpec::Unreadable(_) => false,
        }
    }

    /// True for a number of rows.
    pub(super) fn is_rows(self) -> bool {
        matches!(self, LengthSpec::Rows(rows) if rows > 0)
    }
}

impl From<u64> for LengthSpec {
    fn from(rows: u64) -> Self {
        LengthSpec::Rows(rows)
    }
}

/// `7d` as it stands in a spec. Texts that are not known at compile time are parsed: `text.parse()?`.
impl From<&'static str> for LengthSpec {
    fn from(text: &'static str) -> Self {
        text.parse().unwrap_or(LengthSpec::Unreadable(text))
    }
}

impl FromStr for LengthSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(length) = text.parse() {
            return Ok(LengthSpec::Time(length));
        }
        if let Some(Ok(steps)) = text.strip_suffix('t').map(str::parse) {
            return Ok(LengthSpec::Steps(steps));
        }
        match text.parse::<u32>() {
            Ok(rows) => Err(format!(
                "`{text}` has no unit; hint: write `{rows}d` for days, or without quotes for rows"
            )),
            _ if text.starts_with('-') => Err(format!(
                "`{text}` would look ahead; hint: write a length back in time without its sign: {}",
                text.trim_start_matches('-')
            )),
            _ => {
                let hint = business_days_hint(text).or_else(|| duration_hint(text));
                if hint == Some(format!("write `{text}`")) {
                    return Err(format!("`{text}` is longer than a length can be"));
                }
                let hint = hint.unwrap_or_else(|| {
                    "write a number of rows (7), or a whole number and a unit (7d, 12h)".into()
                });
                Err(format!("`{text}` is not a length; hint: {hint}"))
            }
        }
    }
}

/// The written form of a length in words or other units: `7d` for `7 days`.
pub fn duration_hint(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.len()
        - text
            .trim_start_matches(|letter: char| letter.is_ascii_digit())
            .len();
    let count = &text[..digits];
    let word = text[digits..].trim();
    if count.is_empty() || word.is_empty() {
        return None;
    }
    let word = word.trim_end_matches('s');
    let unit = match word {
        "d" | "day" => "d",
        "w" | "wk" | "week" => "w",
        "h" | "hr" | "hour" => "h",
        "m" | "min" | "minute" => "m",
        "" | "sec" | "second" => "s",
        "mo" | "mon" | "month" => "mo",
        "q" | "quarter" => "q",
        "y" | "yr" | "year" => "y",
        _ => return None,
    };
    Some(format!("write `{count}{unit}`"))
}

impl fmt::Display for LengthSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LengthSpec::Rows(rows) => write!(f, "{rows}"),
            LengthSpec::Time(length) => length.fmt(f),
            LengthSpec::Steps(steps) => write!(f, "{steps}t"),
            LengthSpec::Unreadable(text) => f.write_str(text),
        }
    }
}

impl Serialize for LengthSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LengthSpec::Rows(rows) => serializer.serialize_u64(*rows),
            LengthSpec::Time(_) | LengthSpec::Steps(_) | LengthSpec::Unreadable(_) => {
                serializer.collect_str(self)
            }
        }
    }
}

impl<'de> Deserialize<'de> for LengthSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LengthVisitor;

        impl Visitor<'_> for LengthVisitor {
            type Value = LengthSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of rows (7) or a length of time (7d)")
            }

            fn visit_u64<E: Error>(self, rows: u64) -> Result<LengthSpec, E> {
                Ok(LengthSpec::Rows(rows))
            }

            fn visit_i64<E: Error>(self, rows: i64) -> Result<LengthSpec, E> {
                u64::try_from(rows)
                    .map(LengthSpec::Rows)
                    .map_err(|_| E::custom(format!("`{rows}` would look ahead")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LengthSpec, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(LengthVisitor)
    }
}

impl JsonSchema for LengthSpec {
    fn schema_name() -> Cow<'static, str> {
        "Length".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": "^[0-9]+(y|q|mo|w|d|h|m|min|s|ms|us|ns|t)$",
            "description": "A number of rows (7), or a length of time: 1y, 1q, 1mo, 2w, 7d, 12h, \
                            90m, 30s, 500ms; `7t` is seven steps of a time column of integers.",
        })
    }
}
