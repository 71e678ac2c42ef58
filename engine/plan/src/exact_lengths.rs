//! Intervals beside differences of times: both are exact lengths.
//!
//! Left to itself, the query engine compares the days of two intervals before their hours, and a difference of times has
//! no days there: 30 days are less than `INTERVAL '1 day'`. A difference that is cast to an interval has none, either.

use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable};

use crate::date_numbers::is_comparison;

/// Functions that return one of their arguments.
const CHOICES: [&str; 6] = ["coalesce", "greatest", "ifnull", "least", "nullif", "nvl"];

const NANOSECONDS_PER_DAY: i128 = 86_400_000_000_000;

/// Makes intervals exact lengths where they stand beside a difference of times; a day has 24 hours there. Months beside
/// one are refused. A difference that is cast to an interval, and compared, is compared as a difference.
pub(crate) fn measure_intervals(
    expression: Expr,
    schema: &DFSchema,
) -> Result<Expr, DataFusionError> {
    let done = expression.transform_up(|part| {
        let compared = if compares_lengths(&part) {
            part.map_children(|child| {
                Ok(match cast_difference(&child, schema) {
                    Some(difference) => Transformed::yes(difference),
                    None => Transformed::no(child),
                })
            })?
        } else {
            Transformed::no(part)
        };
        compared.transform_data(|part| match difference_unit(&part, schema)? {
            Some(unit) => part.map_children(|child| measure_child(child, unit, schema)),
            None => Ok(Transformed::no(part)),
        })
    });
    done.map(|done| done.data)
}

/// True for comparisons, and for alternatives that one may stand around.
pub(crate) fn compares_lengths(part: &Expr) -> bool {
    match part {
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        Expr::Between(_) | Expr::InList(_) | Expr::Case(_) => true,
        Expr::ScalarFunction(call) => CHOICES.contains(&call.func.name()),
        _ => false,
    }
}

/// The difference of times that is cast to an interval.
fn cast_difference(expression: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (inner, target) = match expression {
        Expr::Cast(cast) => (cast.expr.as_ref(), cast.field.data_type()),
        Expr::TryCast(cast) => (cast.expr.as_ref(), cast.field.data_type()),
        _ => return None,
    };
    let is_difference = matches!(inner.get_type(schema), Ok(DataType::Duration(_)));
    (is_difference && matches!(target, DataType::Interval(_))).then(|| inner.clone())
}

/// The unit of a difference of times among the parts of an expression.
fn difference_unit(part: &Expr, schema: &DFSchema) -> Result<Option<TimeUnit>, DataFusionError> {
    // A cast has one part, and says itself what becomes of it.
    if matches!(part, Expr::Cast(_) | Expr::TryCast(_) | Expr::Alias(_)) {
        return Ok(None);
    }
    let mut difference = None;
    part.apply_children(|child| {
        if let Ok(DataType::Duration(unit)) = child.get_type(schema) {
            difference = Some(unit);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(difference)
}

fn measure_child(
    child: Expr,
    unit: TimeUnit,
    schema: &DFSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    if !matches!(child.get_type(schema), Ok(DataType::Interval(_))) {
        return Ok(Transformed::no(child));
    }
    let Some(interval) = literal_interval(&child) else {
        return Err(DataFusionError::Plan(format!(
            "`{child}` is no constant length, and stands beside a difference of times"
        )));
    };
    let length = exact_length(interval, unit)?;
    Ok(Transformed::yes(Expr::Literal(length, None)))
}

/// An interval that is written as a literal, perhaps behind a minus.
fn literal_interval(expression: &Expr) -> Option<IntervalMonthDayNano> {
    match expression {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(interval), _) => *interval,
        Expr::Negative(positive) => {
            let interval = literal_interval(positive)?;
            Some(IntervalMonthDayNano::new(
                interval.months.checked_neg()?,
                interval.days.checked_neg()?,
                interval.nanoseconds.checked_neg()?,
            ))
        }
        _ => None,
    }
}

/// An interval as a length in a unit.
fn exact_length(
    interval: IntervalMonthDayNano,
    unit: TimeUnit,
) -> Result<ScalarValue, DataFusionError> {
    if interval.months != 0 {
        return Err(DataFusionError::Plan(
            "a difference of times is an exact length, and months are none: write days or hours"
                .to_owned(),
        ));
    }
    let tick: i128 = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let nanoseconds =
        i128::from(interval.days) * NANOSECONDS_PER_DAY + i128::from(interval.nanoseconds);
    let ticks = i64::try_from(nanoseconds / tick).ok();
    let Some(ticks) = ticks.filter(|_| nanoseconds % tick == 0) else {
        return Err(DataFusionError::Plan(format!(
            "an interval beside a difference of times in {} has digits that it does not hold",
            DataType::Duration(unit)
        )));
    };
    Ok(match unit {
        TimeUnit::Second => ScalarValue::DurationSecond(Some(ticks)),
        TimeUnit::Millisecond => ScalarValue::DurationMillisecond(Some(ticks)),
        TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(Some(ticks)),
        TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(Some(ticks)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
    use arrow::datatypes::{Field, Schema};

    use crate::SqlCompiler;

    /// Rows of a condition over pairs of times, of which the second lies some hours after the first.
    fn rows(condition: &str, zone: Option<&str>) -> Result<Vec<usize>, String> {
        let hours = [-24_i64, 0, 1, 23, 24, 25, 720];
        let first = TimestampMicrosecondArray::from(vec![1_711_753_200_000_000; hours.len()]);
        let second = hours.map(|hour| 1_711_753_200_000_000 + hour * 3_600_000_000);
        let second = TimestampMicrosecondArray::from(second.to_vec());
        let columns: [ArrayRef; 2] = [
            Arc::new(first.with_timezone_opt(zone)),
            Arc::new(second.with_timezone_opt(zone)),
        ];
        let schema = Schema::new(vec![
            Field::new("a", columns[0].data_type().clone(), true),
            Field::new("b", columns[1].data_type().clone(), true),
        ]);
        let compiled = SqlCompiler::default()
            .condition(condition, &schema)
            .map_err(|fault| format!("{fault:?}"))?;
        let inputs: Vec<ArrayRef> = compiled
            .reads
            .iter()
            .map(|name| columns[schema.index_of(name).unwrap()].clone())
            .collect();
        let selected = (compiled.kernel)(&inputs, hours.len()).unwrap();
        let selected = selected[0].as_boolean().clone();
        Ok((0..hours.len())
            .filter(|row| selected.value(*row))
            .collect())
    }

    #[test]
    fn differences_of_times_are_compared_with_intervals() {
        for zone in [None, Some("UTC"), Some("Europe/Berlin")] {
            for (condition, expected) in [
                ("b - a > INTERVAL '1 day'", vec![5, 6]),
                ("b - a >= INTERVAL '1 day'", vec![4, 5, 6]),
                ("b - a = INTERVAL '1 day'", vec![4]),
                ("b - a = INTERVAL '24 hours'", vec![4]),
                ("INTERVAL '1 day 1 hour' <= b - a", vec![5, 6]),
                ("b - a < INTERVAL '-23 hours'", vec![0]),
                ("b - a <= -INTERVAL '1 day'", vec![0]),
                ("a - b > INTERVAL '12 hours'", vec![0]),
                (
                    "b - a BETWEEN INTERVAL '1 hour' AND INTERVAL '1 day'",
                    vec![2, 3, 4],
                ),
                (
                    "b - a IN (INTERVAL '0 days', INTERVAL '30 days')",
                    vec![1, 6],
                ),
                (
                    "coalesce(b - a, INTERVAL '0 days') > INTERVAL '1 week'",
                    vec![6],
                ),
                ("(b - a) + INTERVAL '1 day' > INTERVAL '2 days'", vec![5, 6]),
                ("CAST(b - a AS INTERVAL) > INTERVAL '1 day'", vec![5, 6]),
                ("INTERVAL '1 day' < TRY_CAST(b - a AS INTERVAL)", vec![5, 6]),
                (
                    "coalesce(CAST(b - a AS INTERVAL), INTERVAL '0 days') > INTERVAL '1 week'",
                    vec![6],
                ),
                (
                    "CAST(b - a AS INTERVAL) <= b - a",
                    vec![0, 1, 2, 3, 4, 5, 6],
                ),
            ] {
                assert_eq!(
                    rows(condition, zone),
                    Ok(expected),
                    "{condition} in {zone:?}"
                );
            }
        }
    }

    #[test]
    fn lengths_that_are_not_exact_are_refused() {
        for (condition, reason) in [
            ("b - a > INTERVAL '1 month'", "months are none"),
            ("b - a > INTERVAL '1 year 2 days'", "months are none"),
        ] {
            let refused = rows(condition, None).unwrap_err();
            assert!(refused.contains(reason), "{condition}: {refused}");
        }
    }
}
