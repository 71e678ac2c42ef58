//! Times beside literals that lie between two of their ticks.
//!
//! Left to itself, the query engine cuts such a literal to the unit of the column: in a column of seconds,
//! `t < TIMESTAMP '2024-12-31 23:59:59.999'` leaves out the last second of the year, and `t = TIMESTAMP '... .999'`
//! holds for it. Here a comparison is one with the tick below.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, lit};
use forebay_model::{ColumnClock, tick_nanoseconds};

use crate::date_numbers::is_comparison;
use crate::time_literals::{literal_text, time_value};

/// Replaces comparisons of times with literals of finer units by comparisons with the tick below the literal.
pub(crate) fn compare_with_ticks(
    expression: Expr,
    schema: &DFSchema,
) -> Result<Expr, DataFusionError> {
    let done = expression.transform_up(|part| {
        let exact = match &part {
            Expr::BinaryExpr(compared) if is_comparison(compared.op) => {
                comparison(&compared.left, compared.op, &compared.right, schema)
            }
            Expr::Between(between) => range(between, schema),
            Expr::InList(list) => membership(list, schema),
            _ => None,
        };
        Ok(match exact {
            Some(exact) => Transformed::yes(exact),
            None => Transformed::no(part),
        })
    });
    done.map(|done| done.data)
}

/// A comparison with a literal between two ticks; `None` for other comparisons.
fn comparison(first: &Expr, operator: Operator, second: &Expr, schema: &DFSchema) -> Option<Expr> {
    if let Some(below) = tick_below(second, first, schema) {
        return beside_tick(first, operator, below);
    }
    let below = tick_below(first, second, schema)?;
    beside_tick(second, operator.swap()?, below)
}

/// The comparison of a time with a literal that follows a tick, and is none. Equality is false, or null beside null.
fn beside_tick(time: &Expr, operator: Operator, below: Expr) -> Option<Expr> {
    let at_most = binary_expr(time.clone(), Operator::LtEq, below.clone());
    let beyond = binary_expr(time.clone(), Operator::Gt, below);
    Some(match operator {
        Operator::Lt | Operator::LtEq => at_most,
        Operator::Gt | Operator::GtEq => beyond,
        Operator::Eq => at_most.and(beyond),
        Operator::NotEq => at_most.or(beyond),
        Operator::IsDistinctFrom => lit(true),
        Operator::IsNotDistinctFrom => lit(false),
        _ => return None,
    })
}

fn range(between: &Between, schema: &DFSchema) -> Option<Expr> {
    let time = &between.expr;
    let low = comparison(time, Operator::GtEq, &between.low, schema);
    let high = comparison(time, Operator::LtEq, &between.high, schema);
    if low.is_none() && high.is_none() {
        return None;
    }
    let from_low = low.unwrap_or_else(|| {
        binary_expr(
            time.as_ref().clone(),
            Operator::GtEq,
            between.low.as_ref().clone(),
        )
    });
    let to_high = high.unwrap_or_else(|| {
        binary_expr(
            time.as_ref().clone(),
            Operator::LtEq,
            between.high.as_ref().clone(),
        )
    });
    let within = from_low.and(to_high);
    Some(if between.negated {
        Expr::Not(Box::new(within))
    } else {
        within
    })
}

/// Membership in a list, of which no literal between two ticks is equal to a time.
fn membership(list: &InList, schema: &DFSchema) -> Option<Expr> {
    let mut below = None;
    let mut values = Vec::new();
    for value in &list.list {
        match tick_below(value, &list.expr, schema) {
            Some(tick) => below = Some(tick),
            None => values.push(value.clone()),
        }
    }
    let below = below?;
    if values.is_empty() {
        let operator = if list.negated {
            Operator::NotEq
        } else {
            Operator::Eq
        };
        return beside_tick(&list.expr, operator, below);
    }
    let list = InList::new(list.expr.clone(), values, list.negated);
    Some(Expr::InList(list))
}

/// The last tick of a time before a literal that lies between two of them, as a literal. `None` of other expressions.
fn tick_below(literal: &Expr, time: &Expr, schema: &DFSchema) -> Option<Expr> {
    let data_type = time.get_type(schema).ok()?;
    let DataType::Timestamp(unit, zone) = &data_type else {
        return None;
    };
    // No literal has more digits.
    if *unit == TimeUnit::Nanosecond {
        return None;
    }
    let tick = tick_nanoseconds(&data_type)?;
    let nanoseconds = literal_nanoseconds(literal, &data_type)?;
    if nanoseconds % tick == 0 {
        return None;
    }
    let below = i64::try_from(nanoseconds.div_euclid(tick)).ok()?;
    let below = time_value(*unit, below, zone.clone());
    Some(Expr::Literal(below, None))
}

/// Nanoseconds since 1970 of a literal beside a time; of a local one beside a local time.
fn literal_nanoseconds(literal: &Expr, time: &DataType) -> Option<i128> {
    if let Expr::Literal(value, _) = literal
        && let DataType::Timestamp(_, zone) = value.data_type()
    {
        let is_zoned = matches!(time, DataType::Timestamp(_, Some(_)));
        if zone.is_some() != is_zoned {
            return None;
        }
        let tick = tick_nanoseconds(&value.data_type())?;
        let ScalarValue::Int64(Some(ticks)) = value.cast_to(&DataType::Int64).ok()? else {
            return None;
        };
        return Some(i128::from(ticks) * tick);
    }
    let text = literal_text(literal)?;
    if !matches!(time, DataType::Timestamp(_, None)) || ColumnClock::has_offset(text) {
        return None;
    }
    let clock = ColumnClock::of(time).ok().flatten()?;
    let nanoseconds = clock.read(text)?;
    match literal {
        // `DATE '...'` is a day, and `TIMESTAMP(0) '...'` a second.
        Expr::Cast(cast) => {
            let tick = tick_nanoseconds(cast.field.data_type())?;
            (nanoseconds % tick == 0).then_some(nanoseconds)
        }
        _ => Some(nanoseconds),
    }
}

#[cfg(test)]
mod tests {

    use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::SqlCompiler;

    /// Rows of a condition over a null, and the seconds -1, 0 and 1 in a unit.
    fn rows(condition: &str, data_type: &DataType) -> Vec<usize> {
        let tick = tick_nanoseconds(data_type).unwrap();
        let second = i64::try_from(1_000_000_000 / tick).unwrap();
        let ticks = Int64Array::from(vec![None, Some(-second), Some(0), Some(second)]);
        let times: ArrayRef = cast(&ticks, data_type).unwrap();
        let schema = Schema::new(vec![Field::new("t", data_type.clone(), true)]);
        let compiled = SqlCompiler::default()
            .condition(condition, &schema)
            .unwrap();
        let inputs = if compiled.reads.is_empty() {
            Vec::new()
        } else {
            vec![times]
        };
        let selected = (compiled.kernel)(&inputs, 4).unwrap();
        let selected = selected[0].as_boolean().clone();
        (0..4)
            .filter(|row| selected.is_valid(*row) && selected.value(*row))
            .collect()
    }

    #[test]
    fn literals_between_ticks_are_neither() {
        for unit in [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ] {
            for zone in [None, Some("UTC"), Some("Europe/London")] {
                let data_type = DataType::Timestamp(unit, zone.map(Into::into));
                // In London, the clock of 1970 was an hour ahead.
                let hour = if zone == Some("Europe/London") { 1 } else { 0 };
                for (condition, expected) in [
                    ("t < AFTER", vec![1, 2]),
                    ("t <= AFTER", vec![1, 2]),
                    ("t > AFTER", vec![3]),
                    ("t >= AFTER", vec![3]),
                    ("AFTER > t", vec![1, 2]),
                    ("AFTER <= t", vec![3]),
                    ("t = AFTER", vec![]),
                    ("NOT (t = AFTER)", vec![1, 2, 3]),
                    ("t <> AFTER", vec![1, 2, 3]),
                    ("t IS DISTINCT FROM AFTER", vec![0, 1, 2, 3]),
                    ("t IS NOT DISTINCT FROM AFTER", vec![]),
                    ("t BETWEEN AFTER AND '2024-01-01'", vec![3]),
                    ("t NOT BETWEEN AFTER AND '2024-01-01'", vec![1, 2]),
                    ("t IN (AFTER)", vec![]),
                    ("t NOT IN (AFTER)", vec![1, 2, 3]),
                    ("t IN (AFTER, EPOCH)", vec![2]),
                    ("t NOT IN (EPOCH, AFTER)", vec![1, 3]),
                ] {
                    for quoted in ["TIMESTAMP ", ""] {
                        let after = format!("{quoted}'1970-01-01 0{hour}:00:00.000000001'");
                        let epoch = format!("{quoted}'1970-01-01 0{hour}:00:00'");
                        let condition = condition.replace("AFTER", &after);
                        let condition = condition.replace("EPOCH", &epoch);
                        assert_eq!(
                            rows(&condition, &data_type),
                            expected,
                            "{condition} beside {data_type}"
                        );
                    }
                }
                let before = format!("TIMESTAMP '1970-01-01 0{hour}:00:00' ");
                let exact = rows(&format!("t < {before}"), &data_type);
                assert_eq!(exact, [1], "{data_type}");
            }
        }
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let last = "t <= TIMESTAMP '1969-12-31 23:59:59.5'";
        assert_eq!(rows(last, &seconds), [1]);
        let last = "t >= TIMESTAMP '1969-12-31 23:59:59.5'";
        assert_eq!(rows(last, &seconds), [2, 3]);
    }
}
