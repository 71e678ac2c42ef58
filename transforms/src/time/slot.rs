//! The slots of a period: the days of a week, the weeks of a year.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{DatePart, cast, date_part};
use arrow::datatypes::{DataType, Field, Int64Type, UInt64Type};
use forebay_model::{Fault, Result, StringColumn, codes, type_words};
use forebay_plan::{BindScope, MapOp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::length::TimeColumn;

/// What comes round, and into which slots it is divided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeasonalPeriod {
    /// Monday to Sunday.
    DayOfWeek,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 366.
    DayOfYear,
    /// ISO 8601 weeks, 1 to 53.
    WeekOfYear,
    /// January to December.
    Month,
    /// The hours of the day; needs timestamps.
    Hour,
    /// The quarters of the year.
    Quarter,
    /// A SQL expression that gives the slot, an integer, string, boolean or date.
    Expression(#[schemars(extend("format" = "sql"))] String),
}

impl SeasonalPeriod {
    /// The word in names.
    pub(super) fn column_infix(&self) -> &'static str {
        match self {
            SeasonalPeriod::DayOfWeek => "day_of_week",
            SeasonalPeriod::DayOfMonth => "day_of_month",
            SeasonalPeriod::DayOfYear => "day_of_year",
            SeasonalPeriod::WeekOfYear => "week_of_year",
            SeasonalPeriod::Month => "month",
            SeasonalPeriod::Hour => "hour",
            SeasonalPeriod::Quarter => "quarter",
            SeasonalPeriod::Expression(_) => "seasonal",
        }
    }

    /// Writes the slot of each row as an integer.
    pub(super) fn slot_map(
        &self,
        scope: &BindScope<'_>,
        time: &TimeColumn,
        name: &str,
    ) -> Result<MapOp> {
        let output = Field::new(name, DataType::Int64, true);
        let part = match self {
            SeasonalPeriod::DayOfWeek => DatePart::DayOfWeekMonday0,
            SeasonalPeriod::DayOfMonth => DatePart::Day,
            SeasonalPeriod::DayOfYear => DatePart::DayOfYear,
            SeasonalPeriod::WeekOfYear => DatePart::Week,
            SeasonalPeriod::Month => DatePart::Month,
            SeasonalPeriod::Hour => DatePart::Hour,
            SeasonalPeriod::Quarter => DatePart::Quarter,
            SeasonalPeriod::Expression(text) => {
                let expression = scope.expression(text)?;
                let data_type = expression.field.data_type();
                if !(data_type.is_string() || is_integer_like(data_type)) {
                    let message = format!(
                        "`{text}` is {}, not an integer, string, boolean or date",
                        type_words(data_type)
                    );
                    return Err(Fault::new(codes::EXPRESSION, message)
                        .hint("round or cast it inside the expression"));
                }
                let kernel = expression.kernel;
                return Ok(MapOp::new(
                    expression.reads,
                    [output],
                    move |inputs, rows| kernel(inputs, rows)?.iter().map(slot_integers).collect(),
                ));
            }
        };
        let expected = match (&time.data_type, part) {
            (DataType::Timestamp(..) | DataType::Date64, _) => None,
            (DataType::Date32, DatePart::Hour) => Some("a timestamp"),
            (DataType::Date32, _) => None,
            _ => Some("a date or timestamp"),
        };
        if let Some(expected) = expected {
            let message = format!(
                "`{}` is {}, not {expected}",
                time.name,
                type_words(&time.data_type)
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(&time.name)
                .hint("give the slot as `period: { expression: ... }`"));
        }
        Ok(MapOp::new([&time.name], [output], move |inputs, _| {
            inputs
                .iter()
                .map(|column| slot_integers(&date_part(column, part)?))
                .collect()
        }))
    }
}

fn is_integer_like(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Date32 | DataType::Date64
        )
}

/// Integers as they are, text by a hash of 64 bits.
fn slot_integers(column: &ArrayRef) -> Result<ArrayRef> {
    if !column.data_type().is_string() && !matches!(column.data_type(), DataType::Dictionary(..)) {
        let column = if *column.data_type() == DataType::Date32 {
            &cast(column, &DataType::Int32)?
        } else {
            column
        };
        // Slots are told apart and nothing else, so that unsigned ones may go by their bits.
        if let Some(column) = column.as_primitive_opt::<UInt64Type>() {
            return Ok(Arc::new(column.unary::<_, Int64Type>(|slot| slot as i64)));
        }
        return Ok(cast(column, &DataType::Int64)?);
    }
    // The least integer stands for a missing one.
    let hash = |text: &str| (xxh3_64(text.as_bytes()) as i64).max(i64::MIN + 1);
    let slots: Int64Array = StringColumn::of(column)?
        .map(|text| text.map(hash))?
        .into_iter()
        .collect();
    Ok(Arc::new(slots))
}
