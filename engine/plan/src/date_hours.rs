//! Dates that are moved by hours, and times that are moved by less than their unit.
//!
//! Left to itself, the query engine moves a date by the whole days of an interval, and drops the hours. Of a time it
//! drops the digits that its unit does not hold.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};
use forebay_model::{DAY_NANOSECONDS, tick_nanoseconds};

/// The words with which the error for such a date begins.
pub(crate) const DATE_HOURS: &str = "a date has no hours";

/// The words with which the error for such a time begins.
pub(crate) const TICK_PARTS: &str = "a time has no parts of its unit";

/// Refuses an expression that moves a time by a literal of an interval with digits that its unit does not hold.
pub(crate) fn refuse_tick_parts(
    expression: &Expr,
    schema: &DFSchema,
) -> Result<(), DataFusionError> {
    expression.apply(|part| {
        let Expr::BinaryExpr(moved) = part else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let is_refused = match moved.op {
            Operator::Plus => {
                is_time_beside_parts(&moved.left, &moved.right, schema)
                    || is_time_beside_parts(&moved.right, &moved.left, schema)
            }
            Operator::Minus => is_time_beside_parts(&moved.left, &moved.right, schema),
            _ => false,
        };
        if is_refused {
            return Err(DataFusionError::Plan(TICK_PARTS.to_owned()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn is_time_beside_parts(time: &Expr, length: &Expr, schema: &DFSchema) -> bool {
    let Some(nanoseconds) = interval_nanoseconds(length) else {
        return false;
    };
    match time.get_type(schema) {
        Ok(of @ DataType::Timestamp(..)) => {
            tick_nanoseconds(&of).is_some_and(|tick| nanoseconds % tick != 0)
        }
        _ => false,
    }
}

/// Nanoseconds of an interval of constants, besides its days and months: of a literal, of one behind a minus, and of sums
/// of them.
pub(crate) fn interval_nanoseconds(length: &Expr) -> Option<i128> {
    match length {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(length)), _) => {
            Some(i128::from(length.nanoseconds))
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(length)), _) => {
            Some(i128::from(length.milliseconds) * 1_000_000)
        }
        Expr::Negative(positive) => Some(-interval_nanoseconds(positive)?),
        Expr::BinaryExpr(sum) => {
            let first = interval_nanoseconds(&sum.left)?;
            let second = interval_nanoseconds(&sum.right)?;
            match sum.op {
                Operator::Plus => Some(first + second),
                Operator::Minus => Some(first - second),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Refuses an expression that moves a date by an interval that is not of whole days.
pub(crate) fn refuse_date_hours(
    expression: &Expr,
    schema: &DFSchema,
) -> Result<(), DataFusionError> {
    expression.apply(|part| {
        let Expr::BinaryExpr(moved) = part else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let is_refused = match moved.op {
            Operator::Plus => {
                is_date_beside_hours(&moved.left, &moved.right, schema)
                    || is_date_beside_hours(&moved.right, &moved.left, schema)
            }
            Operator::Minus => is_date_beside_hours(&moved.left, &moved.right, schema),
            _ => false,
        };
        if is_refused {
            return Err(DataFusionError::Plan(DATE_HOURS.to_owned()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn is_date_beside_hours(date: &Expr, length: &Expr, schema: &DFSchema) -> bool {
    has_hours(length)
        && matches!(
            date.get_type(schema),
            Ok(DataType::Date32 | DataType::Date64)
        )
}

/// True for an interval of constants with a part of a day.
fn has_hours(length: &Expr) -> bool {
    interval_nanoseconds(length).is_some_and(|nanoseconds| nanoseconds % DAY_NANOSECONDS != 0)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema, TimeUnit};
    use forebay_model::codes;

    use super::*;
    use crate::SqlCompiler;

    fn schema() -> Schema {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
        Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("t", time, true),
            Field::new("z", zoned, true),
        ])
    }

    #[test]
    fn dates_are_moved_by_whole_days_alone() {
        for expression in [
            "day + INTERVAL '36 hours'",
            "INTERVAL '36 hours' + day",
            "day - INTERVAL '90 minutes'",
            "day + INTERVAL '1 month 1 second'",
            "day + -INTERVAL '1 hour'",
            "day + (INTERVAL '1 day' + INTERVAL '1 hour')",
            "t > day + INTERVAL '6 hours'",
            "DATE '2024-01-31' + INTERVAL '1 hour' > t",
        ] {
            let compiled = SqlCompiler::default().expression(expression, &schema());
            let fault = compiled.err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{expression}");
            assert!(fault.message().contains("hours"), "{expression}: {fault}");
        }
        for expression in [
            "day + INTERVAL '1 day'",
            "day - INTERVAL '1 month'",
            "day + INTERVAL '24 hours'",
            "t + INTERVAL '36 hours'",
            "CAST(day AS TIMESTAMP) + INTERVAL '36 hours'",
            "z > day + INTERVAL '6 hours'",
        ] {
            let compiled = SqlCompiler::default().expression(expression, &schema());
            assert!(compiled.is_ok(), "{expression}: {:?}", compiled.err());
        }
    }

    #[test]
    fn times_are_moved_by_whole_ticks_alone() {
        for expression in [
            "t + INTERVAL '1 nanosecond'",
            "INTERVAL '1 day 500 nanoseconds' + t",
            "z - INTERVAL '1 nanosecond'",
            "t + -INTERVAL '1 nanosecond'",
            "t - (INTERVAL '1 day' - INTERVAL '1 nanosecond')",
            "z > t - INTERVAL '1 nanosecond'",
            "arrow_cast(t, 'Timestamp(Second, None)') + INTERVAL '500 milliseconds'",
        ] {
            let compiled = SqlCompiler::default().expression(expression, &schema());
            let fault = compiled.err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{expression}");
            assert!(fault.message().contains("unit"), "{expression}: {fault}");
        }
        for expression in [
            "t + INTERVAL '1 microsecond'",
            "z - INTERVAL '1500 microseconds'",
            "TIMESTAMP '2024-01-01' + INTERVAL '1 nanosecond'",
            "arrow_cast(t, 'Timestamp(Nanosecond, None)') + INTERVAL '1 nanosecond'",
        ] {
            let compiled = SqlCompiler::default().expression(expression, &schema());
            assert!(compiled.is_ok(), "{expression}: {:?}", compiled.err());
        }
    }
}
