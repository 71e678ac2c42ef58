//! `date_parts`: the calendar as numbers.

use std::f64::consts::TAU;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float32Array};
use arrow::compute::{DatePart, date_part};
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type};
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calendar::refuse_lost_times;
use crate::shared::bad_value;

/// Parts of dates and timestamps, beside the column.
///
/// In: columns of dates or timestamps; those with a time zone count in its local time. Out, for
/// each part: `<column>_<part>`, `int32` (`boolean` for `is_weekend`); with `cyclic`,
/// `<column>_<part>_sin` and `_cos` instead, `float32`, for every part that comes round.
/// Null stays null; a time beyond the years of the calendar is a fault. Learns nothing. Parts of the time of day need timestamps.
///
/// ```yaml
/// - date_parts: { columns: [date], parts: [month, day_of_week] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn date_parts(columns),
    example = r#"date_parts(["date"]).parts([CalendarPart::Month, CalendarPart::DayOfWeek]).cyclic(true)"#
)]
pub struct DateParts {
    /// Columns of dates or timestamps.
    pub columns: ColumnSelector,
    /// Which parts.
    pub parts: Vec<CalendarPart>,
    /// Writes the sine and cosine of the part's place in its period instead of the number; `year`
    /// and `is_weekend` stay as they are.
    #[serde(default)]
    pub cyclic: bool,
}

/// A part of a date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarPart {
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

impl CalendarPart {
    fn name(self) -> &'static str {
        match self {
            CalendarPart::Year => "year",
            CalendarPart::Quarter => "quarter",
            CalendarPart::Month => "month",
            CalendarPart::Week => "week",
            CalendarPart::Day => "day",
            CalendarPart::DayOfWeek => "day_of_week",
            CalendarPart::DayOfYear => "day_of_year",
            CalendarPart::Hour => "hour",
            CalendarPart::Minute => "minute",
            CalendarPart::Second => "second",
            CalendarPart::IsWeekend => "is_weekend",
        }
    }

    fn arrow_part(self) -> DatePart {
        match self {
            CalendarPart::Year => DatePart::Year,
            CalendarPart::Quarter => DatePart::Quarter,
            CalendarPart::Month => DatePart::Month,
            CalendarPart::Week => DatePart::Week,
            CalendarPart::Day => DatePart::Day,
            CalendarPart::DayOfWeek | CalendarPart::IsWeekend => DatePart::DayOfWeekMonday0,
            CalendarPart::DayOfYear => DatePart::DayOfYear,
            CalendarPart::Hour => DatePart::Hour,
            CalendarPart::Minute => DatePart::Minute,
            CalendarPart::Second => DatePart::Second,
        }
    }

    /// The first value and how many there are, where the part comes round.
    fn cycle(self) -> Option<(i32, i32)> {
        match self {
            CalendarPart::Year | CalendarPart::IsWeekend => None,
            CalendarPart::Quarter => Some((1, 4)),
            CalendarPart::Month => Some((1, 12)),
            CalendarPart::Week => Some((1, 53)),
            CalendarPart::Day => Some((1, 31)),
            CalendarPart::DayOfWeek => Some((0, 7)),
            CalendarPart::DayOfYear => Some((1, 366)),
            CalendarPart::Hour => Some((0, 24)),
            CalendarPart::Minute | CalendarPart::Second => Some((0, 60)),
        }
    }
}

impl ConfiguredTransform for DateParts {
    const NAME: &'static str = "date_parts";
}

impl Transform for DateParts {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.parts.is_empty() {
            return Err(bad_value("`parts` is empty"));
        }
        let of_clock = self.parts.iter().any(|part| {
            matches!(
                part,
                CalendarPart::Hour | CalendarPart::Minute | CalendarPart::Second
            )
        });
        let (expected, dates) = if of_clock {
            ("a timestamp", false)
        } else {
            ("a date or timestamp", true)
        };
        let fields =
            scope.typed_columns(&self.columns, expected, |field| match field.data_type() {
                DataType::Timestamp(..) | DataType::Date64 => true,
                DataType::Date32 => dates,
                _ => false,
            })?;
        let mut ops = Vec::new();
        for field in fields {
            for part in &self.parts {
                let name = format!("{}_{}", field.name(), part.name());
                let write =
                    |name: String, data_type, of_part: fn(&ArrayRef, CalendarPart) -> ArrayRef| {
                        let part = *part;
                        let output = Field::new(name, data_type, field.is_nullable());
                        let input = field.name().clone();
                        PlanOp::Map(MapOp::new([field.name()], [output], move |inputs, _| {
                            let mut columns = Vec::with_capacity(inputs.len());
                            for column in inputs {
                                let value = date_part(column, part.arrow_part())?;
                                refuse_lost_times(column, &value)
                                    .map_err(|fault| fault.column(&input))?;
                                columns.push(of_part(&value, part));
                            }
                            Ok(columns)
                        }))
                    };
                match (part, part.cycle()) {
                    (CalendarPart::IsWeekend, _) => {
                        ops.push(write(name, DataType::Boolean, is_weekend))
                    }
                    (_, Some(_)) if self.cyclic => {
                        ops.push(write(
                            format!("{name}_sin"),
                            DataType::Float32,
                            |of, part| cyclic_encoding(of, part, f64::sin),
                        ));
                        ops.push(write(
                            format!("{name}_cos"),
                            DataType::Float32,
                            |of, part| cyclic_encoding(of, part, f64::cos),
                        ));
                    }
                    _ => ops.push(write(name, DataType::Int32, |of, _| of.clone())),
                }
            }
        }
        Ok(ops)
    }
}

fn is_weekend(day: &ArrayRef, _: CalendarPart) -> ArrayRef {
    Arc::new(BooleanArray::from_unary(
        day.as_primitive::<Int32Type>(),
        |day| day >= 5,
    ))
}

/// The sine or cosine of the place in the period.
fn cyclic_encoding(value: &ArrayRef, part: CalendarPart, of_angle: fn(f64) -> f64) -> ArrayRef {
    let (first, count) = part.cycle().unwrap_or((0, 1));
    let angle = |value: i32| TAU * f64::from(value - first) / f64::from(count);
    let out: Float32Array = value
        .as_primitive::<Int32Type>()
        .unary::<_, Float32Type>(|v| of_angle(angle(v)) as f32);
    Arc::new(out)
}
