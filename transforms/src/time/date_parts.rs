//! `date_parts`: the calendar as numbers.

use std::f64::consts::TAU;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float32Array};
use arrow::compute::{DatePart, date_part};
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type};
use forebay_model::Result;
use forebay_plan::{Columns, Configured, Map, Op, Scope, Transform};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

/// Parts of dates and timestamps, beside the column.
///
/// In: columns of dates or timestamps; those with a time zone count in its local time. Out, for
/// each part: `<column>_<part>`, `int32` (`boolean` for `is_weekend`); with `cyclic`,
/// `<column>_<part>_sin` and `_cos` instead, `float32`, for every part that comes round.
/// Null stays null. Learns nothing. Parts of the time of day need timestamps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DateParts {
    /// Columns of dates or timestamps.
    pub columns: Columns,
    /// Which parts.
    pub parts: Vec<Part>,
    /// Writes the sine and cosine of the part's place in its period instead of the number; `year`
    /// and `is_weekend` stay as they are.
    #[serde(default)]
    pub cyclic: bool,
}

/// A part of a date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The calendar year.
    Year,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// The ISO 8601 week, 1 to 53: week 1 holds the year's first Thursday.
    Week,
    /// The day of the month, 1 to 31.
    Day,
    /// 0 is Monday, 6 is Sunday.
    DayOfWeek,
    /// 1 to 366.
    DayOfYear,
    /// 0 to 23.
    Hour,
    /// 0 to 59.
    Minute,
    /// 0 to 59.
    Second,
    /// Whether it is Saturday or Sunday.
    IsWeekend,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Year => "year",
            Part::Quarter => "quarter",
            Part::Month => "month",
            Part::Week => "week",
            Part::Day => "day",
            Part::DayOfWeek => "day_of_week",
            Part::DayOfYear => "day_of_year",
            Part::Hour => "hour",
            Part::Minute => "minute",
            Part::Second => "second",
            Part::IsWeekend => "is_weekend",
        }
    }

    fn of_arrow(self) -> DatePart {
        match self {
            Part::Year => DatePart::Year,
            Part::Quarter => DatePart::Quarter,
            Part::Month => DatePart::Month,
            Part::Week => DatePart::Week,
            Part::Day => DatePart::Day,
            Part::DayOfWeek | Part::IsWeekend => DatePart::DayOfWeekMonday0,
            Part::DayOfYear => DatePart::DayOfYear,
            Part::Hour => DatePart::Hour,
            Part::Minute => DatePart::Minute,
            Part::Second => DatePart::Second,
        }
    }

    /// The first value and how many there are, where the part comes round.
    fn period(self) -> Option<(i32, i32)> {
        match self {
            Part::Year | Part::IsWeekend => None,
            Part::Quarter => Some((1, 4)),
            Part::Month => Some((1, 12)),
            Part::Week => Some((1, 53)),
            Part::Day => Some((1, 31)),
            Part::DayOfWeek => Some((0, 7)),
            Part::DayOfYear => Some((1, 366)),
            Part::Hour => Some((0, 24)),
            Part::Minute | Part::Second => Some((0, 60)),
        }
    }
}

impl Configured for DateParts {
    const NAME: &'static str = "date_parts";
}

impl Transform for DateParts {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        if self.parts.is_empty() {
            return Err(bad_value("`parts` is empty"));
        }
        let of_clock = self.parts.iter().any(|part| matches!(part, Part::Hour | Part::Minute | Part::Second));
        let (wanted, dates) = if of_clock { ("a timestamp", false) } else { ("a date or timestamp", true) };
        let fields = scope.typed_columns(&self.columns, wanted, |field| match field.data_type() {
            DataType::Timestamp(..) | DataType::Date64 => true,
            DataType::Date32 => dates,
            _ => false,
        })?;
        let mut ops = Vec::new();
        for field in fields {
            for part in &self.parts {
                let name = format!("{}_{}", field.name(), part.name());
                let write = |name: String, data_type, of_part: fn(&ArrayRef, Part) -> ArrayRef| {
                    let part = *part;
                    let output = Field::new(name, data_type, field.is_nullable());
                    Op::Map(Map::new([field.name()], [output], move |inputs, _| {
                        inputs.iter().map(|column| Ok(of_part(&date_part(column, part.of_arrow())?, part))).collect()
                    }))
                };
                match (part, part.period()) {
                    (Part::IsWeekend, _) => ops.push(write(name, DataType::Boolean, is_weekend)),
                    (_, Some(_)) if self.cyclic => {
                        ops.push(write(format!("{name}_sin"), DataType::Float32, |of, part| round(of, part, f64::sin)));
                        ops.push(write(format!("{name}_cos"), DataType::Float32, |of, part| round(of, part, f64::cos)));
                    }
                    _ => ops.push(write(name, DataType::Int32, |of, _| of.clone())),
                }
            }
        }
        Ok(ops)
    }
}

fn is_weekend(day: &ArrayRef, _: Part) -> ArrayRef {
    Arc::new(BooleanArray::from_unary(day.as_primitive::<Int32Type>(), |day| day >= 5))
}

/// The sine or cosine of the place in the period.
fn round(value: &ArrayRef, part: Part, of_angle: fn(f64) -> f64) -> ArrayRef {
    let (first, count) = part.period().unwrap_or((0, 1));
    let angle = |value: i32| TAU * f64::from(value - first) / f64::from(count);
    let out: Float32Array = value.as_primitive::<Int32Type>().unary::<_, Float32Type>(|v| of_angle(angle(v)) as f32);
    Arc::new(out)
}
