//! Dates that are moved by hours.
//!
//! Left to itself, the query engine moves a date by the whole days of an interval, and drops the hours.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};
use forebay_model::DAY_NANOSECONDS;

/// The words with which the error for such a date begins.
pub(crate) const DATE_HOURS: &str = "a date has no hours";

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

/// True for a literal of an interval with a part of a day.
fn has_hours(length: &Expr) -> bool {
    match length {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(length)), _) => {
            i128::from(length.nanoseconds) % DAY_NANOSECONDS != 0
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(length)), _) => {
            i128::from(length.milliseconds) * 1_000_000 % DAY_NANOSECONDS != 0
        }
        _ => false,
    }
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
}
