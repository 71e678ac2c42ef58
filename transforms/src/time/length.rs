//! Lengths in a spec: a number of rows, or time.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use forebay_model::{Fault, Result, codes, type_words};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shared::bad_value;

/// Most rows of a length. A window keeps its rows in memory, so that a longer one is a mistake.
const LENGTH_ROWS_MAX: u64 = u32::MAX as u64;

/// A whole number is a number of rows (`7`). Text with a unit is a length of time: `2w`, `7d`,
/// `12h`, `90m`, `30s`, `500ms`, `us`, `ns`; `7t` is seven steps of a time column of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthSpec {
    /// Rows of the series.
    Rows(u64),
    /// A number of units.
    Time(u32, LengthUnit),
    /// A text that is no length: a fault once it is part of a step.
    Unreadable(&'static str),
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum LengthUnit {
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    /// One step of a time column of integers.
    Tick,
}

impl LengthUnit {
    const ALL: [(LengthUnit, &str, i128); 9] = [
        (LengthUnit::Week, "w", 7 * 86_400 * SECOND),
        (LengthUnit::Day, "d", 86_400 * SECOND),
        (LengthUnit::Hour, "h", 3_600 * SECOND),
        (LengthUnit::Minute, "m", 60 * SECOND),
        (LengthUnit::Second, "s", SECOND),
        (LengthUnit::Millisecond, "ms", 1_000_000),
        (LengthUnit::Microsecond, "us", 1_000),
        (LengthUnit::Nanosecond, "ns", 1),
        (LengthUnit::Tick, "t", 0),
    ];

    fn text_and_nanoseconds(self) -> (&'static str, i128) {
        let known = LengthUnit::ALL.iter().find(|(unit, ..)| *unit == self);
        known.map_or(("", 0), |(_, word, nanoseconds)| (*word, *nanoseconds))
    }
}

const SECOND: i128 = 1_000_000_000;

/// The event-time column of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeColumn {
    pub name: String,
    pub data_type: DataType,
}

impl TimeColumn {
    /// Nanoseconds per tick; `None` for integers.
    fn nanoseconds_per_tick(&self) -> Option<i128> {
        Some(match &self.data_type {
            DataType::Date32 => 86_400 * SECOND,
            DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
            DataType::Timestamp(TimeUnit::Second, _) => SECOND,
            DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
            _ => return None,
        })
    }

    /// A length in ticks of this column, as [`forebay_plan::MapOp::data_age`] wants it.
    pub fn behind(&self, ticks: i64) -> forebay_window::SeriesLength {
        let nanoseconds = i128::from(ticks) * self.nanoseconds_per_tick().unwrap_or(1);
        forebay_window::SeriesLength::Ticks(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
    }

    /// Whether a column of this type can be the event time.
    pub fn is_time_type(data_type: &DataType) -> bool {
        use DataType as T;
        matches!(
            data_type,
            T::Date32 | T::Date64 | T::Timestamp(..) | T::Int8 | T::Int16 | T::Int32 | T::Int64
        ) || matches!(data_type, T::UInt8 | T::UInt16 | T::UInt32)
    }
}

impl LengthSpec {
    /// In ticks of the time column; a fault where that is no whole number, and for rows.
    pub(crate) fn ticks(self, time: &TimeColumn) -> Result<i64> {
        self.in_ticks(time).and_then(|ticks| {
            i64::try_from(ticks)
                .map_err(|_| bad_value(format!("`{self}` is longer than `{}` can tell", time.name)))
        })
    }

    /// One unit of this length in ticks of the time column; may be less than one.
    pub(super) fn unit(self) -> LengthSpec {
        match self {
            LengthSpec::Rows(_) => LengthSpec::Rows(1),
            LengthSpec::Time(_, unit) => LengthSpec::Time(1, unit),
            LengthSpec::Unreadable(_) => self,
        }
    }

    fn in_ticks(self, time: &TimeColumn) -> Result<i128> {
        let name = &time.name;
        let LengthSpec::Time(count, unit) = self else {
            return Err(bad_value(format!(
                "`{self}` is a number of rows where a length of time is needed"
            ))
            .hint("write a whole number and a unit: 30m, 12h, 7d or 2w"));
        };
        let count = i128::from(count);
        let Some(tick) = time.nanoseconds_per_tick() else {
            return if unit == LengthUnit::Tick {
                Ok(count)
            } else {
                Err(integer_time_fault(self, name))
            };
        };
        if unit == LengthUnit::Tick {
            return Err(bad_value(format!(
                "`{self}` counts integers, and `{name}` is {}",
                type_words(&time.data_type)
            ))
            .hint("write a whole number and a unit: 30m, 12h, 7d or 2w"));
        }
        let nanoseconds = count * unit.text_and_nanoseconds().1;
        if nanoseconds % tick == 0 {
            return Ok(nanoseconds / tick);
        }
        Err(match time.data_type {
            DataType::Date32 => bad_value(format!(
                "`{self}` is not a whole number of days, and `{name}` holds dates"
            ))
            .hint("use days or weeks, or a column of timestamps"),
            _ => bad_value(format!(
                "`{self}` is finer than `{name}`, which is {}",
                type_words(&time.data_type)
            )),
        })
    }

    /// As the windows' plan has it.
    pub(super) fn of(self, time: &TimeColumn) -> Result<forebay_window::SeriesLength> {
        match self {
            LengthSpec::Rows(rows) if rows > LENGTH_ROWS_MAX => {
                let message = format!("`{self}` is more than {LENGTH_ROWS_MAX} rows");
                Err(bad_value(message)
                    .hint("write a smaller number, or a length of time such as 28d"))
            }
            LengthSpec::Rows(rows) => Ok(forebay_window::SeriesLength::Rows(rows)),
            LengthSpec::Time(..) | LengthSpec::Unreadable(_) => {
                Ok(forebay_window::SeriesLength::Ticks(self.ticks(time)?))
            }
        }
    }

    /// Whether it is nothing.
    pub(super) fn is_zero(self) -> bool {
        matches!(self, LengthSpec::Rows(0) | LengthSpec::Time(0, _))
    }

    /// Whether it counts rows.
    pub(super) fn is_rows(self) -> bool {
        matches!(self, LengthSpec::Rows(rows) if rows > 0)
    }
}

/// A column of event times in ticks.
pub(super) fn ticks_of(column: &ArrayRef) -> Result<Int64Array> {
    let column = if *column.data_type() == DataType::Date32 {
        &cast(column, &DataType::Int32)?
    } else {
        column
    };
    Ok(cast(column, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

fn integer_time_fault(length: LengthSpec, name: &str) -> Fault {
    Fault::new(
        codes::BAD_VALUE,
        format!("`{length}` cannot be told from `{name}`, which is an integer"),
    )
    .hint("count its steps with the unit `t`, such as `7t`, or make it a date or timestamp")
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
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, word) = text.split_at(digits);
        let word = if word == "min" { "m" } else { word };
        let unit = LengthUnit::ALL
            .iter()
            .find(|(_, known, _)| *known == word)
            .map(|(unit, ..)| *unit);
        match (count.parse(), unit) {
            (Ok(count), Some(unit)) => Ok(LengthSpec::Time(count, unit)),
            (Ok(rows), None) if word.is_empty() => Err(format!(
                "`{text}` has no unit; hint: write `{text}d` for days, or without quotes for rows",
                text = rows
            )),
            _ if text.starts_with('-') => Err(format!(
                "`{text}` would look ahead; hint: write a length back in time without its sign: {}",
                text.trim_start_matches('-')
            )),
            _ => {
                let hint = duration_hint(text);
                let hint = hint.unwrap_or_else(|| {
                    "write a number of rows (7), or a whole number and a unit (7d, 12h)".into()
                });
                Err(format!("`{text}` is not a length; hint: {hint}"))
            }
        }
    }
}

/// How a length in words or other units is written here: `7d` for `7 days`.
pub fn duration_hint(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.len()
        - text
            .trim_start_matches(|letter: char| letter.is_ascii_digit())
            .len();
    let (count, word) = (&text[..digits], text[digits..].trim());
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
        "mo" | "mon" | "month" => {
            let days = count.parse::<u64>().ok()?.checked_mul(30)?;
            return Some(format!(
                "months differ in length: write days, such as {days}d"
            ));
        }
        "y" | "yr" | "year" | "q" | "quarter" => {
            return Some(
                "years and quarters differ in length: write days, such as 365d".to_owned(),
            );
        }
        _ => return None,
    };
    Some(format!("write `{count}{unit}`"))
}

impl fmt::Display for LengthSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LengthSpec::Rows(rows) => write!(f, "{rows}"),
            LengthSpec::Time(count, unit) => write!(f, "{count}{}", unit.text_and_nanoseconds().0),
            LengthSpec::Unreadable(text) => f.write_str(text),
        }
    }
}

impl Serialize for LengthSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LengthSpec::Rows(rows) => serializer.serialize_u64(*rows),
            LengthSpec::Time(..) | LengthSpec::Unreadable(_) => serializer.collect_str(self),
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
            "pattern": "^[0-9]+(w|d|h|m|min|s|ms|us|ns|t)$",
            "description": "A number of rows (7), or a length of time: 2w, 7d, 12h, 90m, 30s, 500ms; \
                            `7t` is seven steps of a time column of integers.",
        })
    }
}
