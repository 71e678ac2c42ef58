//! Intervals of days and months beside times with a zone: steps of the zone's calendar.
//!
//! Left to itself, the query engine fails where such a step leads to a civil time that the clock skips, or has twice.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use forebay_model::type_label;

use crate::framed_times::framed_window;
use crate::zone_clocks::{clock_of, has_calendar, moved_tick};

/// The name of the function that moves a time.
pub(crate) const MOVED_TIME_NAME: &str = "moved_time";

static MOVED_TIME: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(MovedTimeUdf {
        signature: Signature::any(2, Volatility::Immutable),
    })
});

/// The function that moves a time with a zone by an interval.
pub(crate) fn moved_time_function() -> &'static ScalarUDF {
    &MOVED_TIME
}

/// Replaces sums of times with a zone and intervals, and their differences, by steps of the calendar. Frames of windows
/// that reach over such steps are checked.
pub(crate) fn move_by_calendar(
    expression: Expr,
    schema: &DFSchema,
) -> Result<Expr, DataFusionError> {
    let done = expression.transform_up(|part| {
        let moved = match &part {
            Expr::BinaryExpr(sum) => moved_time(sum, schema),
            Expr::WindowFunction(call) => framed_window(call, schema),
            _ => None,
        };
        Ok(match moved {
            Some(moved) => Transformed::yes(moved),
            None => Transformed::no(part),
        })
    });
    done.map(|done| done.data)
}

fn moved_time(sum: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let left_type = sum.left.get_type(schema).ok()?;
    let right_type = sum.right.get_type(schema).ok()?;
    let left_part = sum.left.as_ref().clone();
    let right_part = sum.right.as_ref().clone();
    let arguments = match (sum.op, &left_type, &right_type) {
        (Operator::Plus, zoned, DataType::Interval(_)) if has_calendar(zoned) => {
            vec![left_part, right_part]
        }
        (Operator::Plus, DataType::Interval(_), zoned) if has_calendar(zoned) => {
            vec![right_part, left_part]
        }
        (Operator::Minus, zoned, DataType::Interval(_)) if has_calendar(zoned) => {
            vec![left_part, Expr::Negative(Box::new(right_part))]
        }
        _ => return None,
    };
    Some(MOVED_TIME.call(arguments))
}

/// `moved_time(time, interval)`: the time an interval later.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MovedTimeUdf {
    signature: Signature,
}

impl ScalarUDFImpl for MovedTimeUdf {
    fn name(&self) -> &str {
        MOVED_TIME_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        arguments.first().cloned().ok_or_else(no_time)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs,
    ) -> Result<FieldRef, DataFusionError> {
        let time = arguments.arg_fields.first().ok_or_else(no_time)?;
        let mut parts = arguments.arg_fields.iter();
        let is_nullable = parts.any(|part| part.is_nullable());
        let moved = time.as_ref().clone().with_nullable(is_nullable);
        Ok(Arc::new(moved.with_name(MOVED_TIME_NAME)))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let mut values = arguments.args.iter();
        let is_constant = values.all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [times, lengths] = columns.as_slice() else {
            return Err(no_time());
        };
        let moved = moved_times(times, lengths)?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&moved, 0)?)
        } else {
            ColumnarValue::Array(moved)
        })
    }
}

fn no_time() -> DataFusionError {
    DataFusionError::Internal("a move without a time and an interval".to_owned())
}

fn moved_times(times: &ArrayRef, lengths: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
    let data_type = times.data_type();
    let clock = clock_of(data_type)?;
    let ticks = cast(times, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    let lengths = cast(lengths, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let lengths = lengths.as_primitive::<IntervalMonthDayNanoType>();
    let mut moved = Vec::with_capacity(ticks.len());
    for row in 0..ticks.len() {
        if ticks.is_null(row) || lengths.is_null(row) {
            moved.push(None);
            continue;
        }
        let time = ticks.value(row);
        let moved_to = moved_tick(&clock, time, lengths.value(row)).ok_or_else(|| {
            let label = type_label(data_type);
            DataFusionError::Execution(format!(
                "Overflow: the time {time} (ticks of {label}) cannot be moved so far"
            ))
        })?;
        moved.push(Some(moved_to));
    }
    Ok(cast(&Int64Array::from(moved), data_type)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampMicrosecondArray;
    use arrow::datatypes::{Field, Schema};
    use forebay_model::ColumnClock;

    use super::*;
    use crate::SqlCompiler;

    /// The values of an expression over times of a zone, as local times.
    fn moved(zone: &str, times: &[&str], expression: &str) -> Vec<String> {
        let data_type = TimestampMicrosecondArray::from(Vec::<i64>::new())
            .with_timezone(zone)
            .data_type()
            .clone();
        let clock = ColumnClock::of(&data_type).unwrap().unwrap();
        let ticks = times
            .iter()
            .map(|text| (clock.read(text).unwrap() / 1_000) as i64);
        let column = TimestampMicrosecondArray::from_iter_values(ticks).with_timezone(zone);
        let schema = Schema::new(vec![Field::new("t", data_type.clone(), true)]);
        let compiled = SqlCompiler::default()
            .expression(expression, &schema)
            .unwrap();
        assert_eq!(compiled.field.data_type(), &data_type, "{expression}");
        let columns: Vec<ArrayRef> = vec![Arc::new(column)];
        let made = (compiled.kernel)(&columns, times.len()).unwrap();
        let ticks = cast(&made[0], &DataType::Int64).unwrap();
        let ticks = ticks.as_primitive::<Int64Type>().values().to_vec();
        let local = ticks.into_iter().map(|tick| clock.local(tick).unwrap());
        local
            .map(|local| local.format("%m-%d %H:%M").to_string())
            .collect()
    }

    #[test]
    fn intervals_move_by_the_calendar_where_the_clock_changes() {
        for (zone, times, expression, expected) in [
            (
                "Europe/Berlin",
                &[
                    "2024-03-30T02:30:00",
                    "2024-03-31T03:30:00",
                    "2024-10-26T02:30:00",
                ][..],
                "t + INTERVAL '1 day'",
                &["03-31 03:30", "04-01 03:30", "10-27 02:30"][..],
            ),
            (
                "Europe/Berlin",
                &["2024-04-01T02:30:00", "2024-10-28T02:30:00"],
                "t - INTERVAL '1 day'",
                &["03-31 03:30", "10-27 02:30"],
            ),
            (
                "Europe/Berlin",
                &["2024-02-29T02:30:00"],
                "INTERVAL '1 month 2 days 3 hours' + t",
                &["03-31 06:30"],
            ),
            (
                "Europe/Berlin",
                &["2024-03-30T12:00:00"],
                "t + INTERVAL '24 hours'",
                &["03-31 13:00"],
            ),
            (
                "America/Sao_Paulo",
                &["2018-11-03"],
                "t + INTERVAL '1 day'",
                &["11-04 01:00"],
            ),
            (
                "America/Havana",
                &["2024-11-02"],
                "t + INTERVAL '1 day'",
                &["11-03 00:00"],
            ),
            (
                "Pacific/Apia",
                &["2011-12-31"],
                "t - INTERVAL '1 day'",
                &["12-29 00:00"],
            ),
        ] {
            assert_eq!(
                moved(zone, times, expression),
                expected,
                "{zone} {expression}"
            );
        }
    }
}
