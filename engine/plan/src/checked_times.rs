//! Functions of SQL on times that are wrong, without a word, at the ends of their range.
//!
//! `date_trunc` wraps around within a day of the first time that a type holds. `date_bin` computes in nanoseconds, and
//! gives null for times that these do not hold, as `date_part` does for years beyond the calendar. All are refused
//! instead.
//!
//! `date_trunc` leads the hours of a day whose midnight there is twice, as each autumn in Havana, to both. All of them
//! belong to the first one.
//!
//! `to_unixtime` cuts the digits of seconds toward 1970, so that half a second before and half a second after are one.
//! A time lies in the second that began last, as casts have it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use forebay_model::{tick_nanoseconds, type_label};

use crate::guarded_functions::{FunctionGuard, argument_columns};
use crate::local_times::{clock_of, placed};

/// Nanoseconds of the longest unit by which `date_trunc` divides ticks.
const DAY_NANOSECONDS: i128 = 86_400 * 1_000_000_000;

/// Nanoseconds of the unit of `to_unixtime`.
const SECOND_NANOSECONDS: i128 = 1_000_000_000;

/// Units of `date_trunc` that begin at midnight.
const UNITS_OF_DAYS: [&str; 5] = ["day", "week", "month", "quarter", "year"];

/// The functions by name.
pub(crate) const CHECKED_TIMES: [(&str, &dyn FunctionGuard); 4] = [
    ("date_bin", &LostTimes),
    ("date_part", &LostTimes),
    ("date_trunc", &TruncatedTimes),
    ("to_unixtime", &WholeSeconds),
];

/// Refuses times within a day of the first one that their type holds, and gives each day one midnight.
struct TruncatedTimes;

impl FunctionGuard for TruncatedTimes {
    fn before(&self, name: &str, arguments: &ScalarFunctionArgs) -> Result<(), DataFusionError> {
        for column in argument_columns(arguments)? {
            if !is_timestamp(&column) {
                continue;
            }
            let tick = tick_nanoseconds(column.data_type()).unwrap_or(1);
            let day_ticks = i64::try_from(DAY_NANOSECONDS / tick).unwrap_or(1);
            let first_safe = i64::MIN + day_ticks;
            let ticks = cast(&column, &DataType::Int64)?;
            let mut ticks = ticks.as_primitive::<Int64Type>().iter().flatten();
            if let Some(time) = ticks.find(|time| *time < first_safe) {
                return Err(far_time(name, time, &column));
            }
        }
        Ok(())
    }

    fn corrected(
        &self,
        columns: &[ArrayRef],
        result: ColumnarValue,
    ) -> Result<ColumnarValue, DataFusionError> {
        let data_type = result.data_type();
        let is_zoned = matches!(data_type, DataType::Timestamp(_, Some(_)));
        if !is_zoned || !has_unit_of_days(columns)? || clock_of(&data_type)?.has_even_days() {
            return Ok(result);
        }
        Ok(match result {
            ColumnarValue::Array(times) => ColumnarValue::Array(placed(&times, &data_type)?),
            ColumnarValue::Scalar(time) => {
                let time = placed(&time.to_array()?, &data_type)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&time, 0)?)
            }
        })
    }

    fn checks_result(&self) -> bool {
        true
    }
}

/// True if the first argument of `date_trunc` is a unit that begins at midnight.
fn has_unit_of_days(columns: &[ArrayRef]) -> Result<bool, DataFusionError> {
    let Some(unit) = columns.first().filter(|unit| !unit.is_empty()) else {
        return Ok(false);
    };
    let unit = cast(unit, &DataType::Utf8)?;
    let unit = unit.as_string::<i32>().value(0).to_ascii_lowercase();
    Ok(UNITS_OF_DAYS.contains(&unit.as_str()))
}

/// Refuses results that are null where no time is.
struct LostTimes;

impl FunctionGuard for LostTimes {
    fn behind(
        &self,
        name: &str,
        columns: &[ArrayRef],
        result: &ArrayRef,
    ) -> Result<(), DataFusionError> {
        if result.null_count() == 0 {
            return Ok(());
        }
        for column in columns {
            let is_time = is_timestamp(column) || is_date(column);
            let is_per_row = is_time && column.len() == result.len();
            if !is_per_row {
                continue;
            }
            let lost = (0..result.len()).find(|row| result.is_null(*row) && column.is_valid(*row));
            if let Some(row) = lost {
                let day_or_tick = match column.data_type() {
                    DataType::Date32 => cast(column, &DataType::Int32)?,
                    _ => column.clone(),
                };
                let ticks = cast(&day_or_tick, &DataType::Int64)?;
                let time = ticks.as_primitive::<Int64Type>().value(row);
                return Err(far_time(name, time, column));
            }
        }
        Ok(())
    }

    fn checks_result(&self) -> bool {
        true
    }
}

/// Counts the seconds of times that began since 1970, before the function cuts digits.
struct WholeSeconds;

impl FunctionGuard for WholeSeconds {
    fn prepared(
        &self,
        mut arguments: ScalarFunctionArgs,
    ) -> Result<ScalarFunctionArgs, DataFusionError> {
        if let Some(time) = arguments.args.first_mut() {
            *time = match &*time {
                ColumnarValue::Array(times) => ColumnarValue::Array(whole_seconds(times)?),
                ColumnarValue::Scalar(constant) => {
                    let seconds = whole_seconds(&constant.to_array()?)?;
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&seconds, 0)?)
                }
            };
        }
        Ok(arguments)
    }
}

/// The seconds of times, as integers. Other columns stay as they are.
fn whole_seconds(times: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
    if !is_timestamp(times) {
        return Ok(times.clone());
    }
    let tick = tick_nanoseconds(times.data_type()).unwrap_or(1);
    let second_ticks = i64::try_from(SECOND_NANOSECONDS / tick).unwrap_or(1);
    let ticks = cast(times, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let seconds: Int64Array = ticks.unary(|time| time.div_euclid(second_ticks));
    Ok(Arc::new(seconds))
}

fn is_date(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Date32 | DataType::Date64)
}

fn is_timestamp(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Timestamp(..))
}

fn far_time(name: &str, time: i64, column: &ArrayRef) -> DataFusionError {
    let label = type_label(column.data_type());
    DataFusionError::Execution(format!(
        "`{name}` cannot compute with the time {time} (ticks of {label}): it is too far from \
         1970"
    ))
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampNanosecondArray;
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::SqlCompiler;

    /// Rows of a condition over a column of times.
    fn rows(condition: &str, times: &ArrayRef) -> Vec<usize> {
        let field = Field::new("t", times.data_type().clone(), true);
        let compiled = SqlCompiler::default()
            .condition(condition, &Schema::new(vec![field]))
            .unwrap();
        let selected = (compiled.kernel)(std::slice::from_ref(times), times.len()).unwrap();
        let selected = selected[0].as_boolean().clone();
        (0..times.len())
            .filter(|row| selected.is_valid(*row) && selected.value(*row))
            .collect()
    }

    /// Nanoseconds begin in September 1677 and end in April 2262: no other year begins and ends in them.
    #[test]
    fn years_are_compared_where_they_do_not_begin_or_end_in_the_unit() {
        let seconds = [-9_223_372_036, 0, 1_704_067_200, 9_223_372_036];
        let nanoseconds = seconds.map(|second: i64| second * 1_000_000_000);
        let plain = TimestampNanosecondArray::from(nanoseconds.to_vec());
        let zoned = plain.clone().with_timezone("Europe/Berlin");
        let columns: [ArrayRef; 2] = [Arc::new(plain), Arc::new(zoned)];
        for times in columns {
            for (condition, expected) in [
                ("date_part('year', t) <= 9999", vec![0, 1, 2, 3]),
                ("date_part('year', t) < 9999", vec![0, 1, 2, 3]),
                ("date_part('year', t) <> 9999", vec![0, 1, 2, 3]),
                ("9999 >= date_part('year', t)", vec![0, 1, 2, 3]),
                ("date_part('year', t) BETWEEN 1 AND 9999", vec![0, 1, 2, 3]),
                ("date_part('year', t) > 1", vec![0, 1, 2, 3]),
                ("date_part('year', t) = 1677", vec![0]),
                ("date_part('year', t) = 2262", vec![3]),
                ("date_part('year', t) <= 2262", vec![0, 1, 2, 3]),
                ("date_part('year', t) > 1677", vec![1, 2, 3]),
                ("date_part('year', t) IN (1677, 2024)", vec![0, 2]),
                ("date_part('year', t) NOT IN (1, 2024)", vec![0, 1, 3]),
                ("EXTRACT(YEAR FROM t) IS DISTINCT FROM 2262", vec![0, 1, 2]),
                ("date_part('year', t) = 9999", vec![]),
            ] {
                let label = type_label(times.data_type());
                assert_eq!(rows(condition, &times), expected, "{condition} of {label}");
            }
        }
    }
}
