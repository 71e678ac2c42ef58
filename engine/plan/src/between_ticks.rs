//! Times beside literals that lie between two of their ticks.
//!
//! Left to itself, the query engine cuts such a literal to the unit of the column: in a column of seconds,
//! `t < TIMESTAMP '2024-12-31 23:59:59.999'` leaves out the last second of the year, and `t = TIMESTAMP '... .999'`
//! holds for it. Here a comparison is one with the tick below. So is one with a constant that is computed, such as
//! `TIMESTAMP '2025-01-01' - INTERVAL '1 millisecond'`. A time of day beside a date lies between two days.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::{Case, Expr, ExprSchemable, Operator, binary_expr, lit};
use forebay_model::{ColumnClock, tick_nanoseconds};

use crate::constant_times::constant_time;
use crate::date_numbers::is_comparison;
use crate::time_literals::{literal_text, time_value};

/// Replaces comparisons of times with constants of finer units by comparisons with the tick below the constant. Those of
/// `CASE t WHEN ...` and of `nullif` get constants in the unit of the time, or none.
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
            Expr::Case(case) => matched_case(case, schema),
            Expr::ScalarFunction(call) if call.func.name() == "nullif" => null_beside(call, schema),
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
    let Some(below) = below else {
        return literal_membership(list, schema);
    };
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

/// Membership of a literal in a list of times, where it lies between two ticks of one of them: equality with one of
/// these.
fn literal_membership(list: &InList, schema: &DFSchema) -> Option<Expr> {
    let literal = &list.expr;
    let mut times = list.list.iter();
    if !times.any(|time| tick_below(literal, time, schema).is_some()) {
        return None;
    }
    let mut is_member = lit(false);
    for time in &list.list {
        let equal = comparison(literal, Operator::Eq, time, schema);
        let equal = equal
            .unwrap_or_else(|| binary_expr(literal.as_ref().clone(), Operator::Eq, time.clone()));
        is_member = is_member.or(equal);
    }
    Some(if list.negated {
        Expr::Not(Box::new(is_member))
    } else {
        is_member
    })
}

/// A `CASE` of a time whose literals have the time's unit: left to itself, the query engine computes in the finest unit,
/// which need not hold the time. A literal between two ticks is null, which no time matches.
fn matched_case(case: &Case, schema: &DFSchema) -> Option<Expr> {
    let time = case.expr.as_ref()?;
    let mut is_changed = false;
    let mut branches = Vec::with_capacity(case.when_then_expr.len());
    for (value, result) in &case.when_then_expr {
        let literal = match position_of(value, time, schema) {
            Some(position) => {
                is_changed = true;
                Box::new(Expr::Literal(position.equal_tick()?, None))
            }
            None => value.clone(),
        };
        branches.push((literal, result.clone()));
    }
    if !is_changed {
        return None;
    }
    let case = Case::new(Some(time.clone()), branches, case.else_expr.clone());
    Some(Expr::Case(case))
}

/// A `nullif` of a time and a literal, in the unit of the time. One with a literal between two ticks is the first of
/// both: they are never equal.
fn null_beside(call: &ScalarFunction, schema: &DFSchema) -> Option<Expr> {
    let [first, second] = call.args.as_slice() else {
        return None;
    };
    if let Some(position) = position_of(second, first, schema) {
        if position.is_between {
            return Some(first.clone());
        }
        let literal = Expr::Literal(position.equal_tick()?, None);
        return Some(call.func.call(vec![first.clone(), literal]));
    }
    let position = position_of(first, second, schema)?;
    let DataType::Timestamp(_, zone) = &position.data_type else {
        return None;
    };
    if position.is_between {
        let nanoseconds = i64::try_from(position.nanoseconds).ok()?;
        let literal = time_value(TimeUnit::Nanosecond, nanoseconds, zone.clone());
        return Some(Expr::Literal(literal, None));
    }
    let literal = Expr::Literal(position.tick_value()?, None);
    Some(call.func.call(vec![literal, second.clone()]))
}

/// The last tick of a time before a literal that lies between two of them, as a literal. `None` of other expressions.
fn tick_below(literal: &Expr, time: &Expr, schema: &DFSchema) -> Option<Expr> {
    let position = position_of(literal, time, schema)?;
    if !position.is_between {
        return None;
    }
    Some(Expr::Literal(position.tick_value()?, None))
}

/// The place of a literal among the ticks of a time.
struct LiteralPosition {
    /// The type of the time.
    data_type: DataType,
    /// The tick at the literal, or the last one before it.
    tick: i64,
    is_between: bool,
    nanoseconds: i128,
}

impl LiteralPosition {
    fn tick_value(&self) -> Option<ScalarValue> {
        match &self.data_type {
            DataType::Timestamp(unit, zone) => Some(time_value(*unit, self.tick, zone.clone())),
            _ => Some(ScalarValue::Date32(Some(i32::try_from(self.tick).ok()?))),
        }
    }

    /// The tick that is equal to the literal; null if none is.
    fn equal_tick(&self) -> Option<ScalarValue> {
        if self.is_between {
            return ScalarValue::try_new_null(&self.data_type).ok();
        }
        self.tick_value()
    }
}

/// The place of a literal, or of a constant that is computed, among the ticks of a time or the days of a date. `None` of
/// other expressions, and of times in nanoseconds: no literal has more digits.
fn position_of(literal: &Expr, time: &Expr, schema: &DFSchema) -> Option<LiteralPosition> {
    let data_type = time.get_type(schema).ok()?;
    match &data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => return None,
        DataType::Timestamp(..) | DataType::Date32 => {}
        _ => return None,
    }
    let tick = tick_nanoseconds(&data_type)?;
    let nanoseconds = literal_nanoseconds(literal, &data_type)?;
    Some(LiteralPosition {
        data_type,
        tick: i64::try_from(nanoseconds.div_euclid(tick)).ok()?,
        is_between: nanoseconds % tick != 0,
        nanoseconds,
    })
}

/// Nanoseconds since 1970 of a literal beside a time; of a local one beside a local time.
fn literal_nanoseconds(literal: &Expr, time: &DataType) -> Option<i128> {
    if let Expr::Literal(value, _) = literal
        && matches!(value.data_type(), DataType::Timestamp(..))
    {
        return value_nanoseconds(value, time);
    }
    let Some(text) = literal_text(literal) else {
        return value_nanoseconds(&constant_time(literal)?, time);
    };
    let is_local = matches!(time, DataType::Timestamp(_, None) | DataType::Date32);
    if !is_local || ColumnClock::has_offset(text) {
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

/// Nanoseconds since 1970 of a constant beside a time. `None` where one of both has a zone, and the other has none.
fn value_nanoseconds(value: &ScalarValue, time: &DataType) -> Option<i128> {
    let data_type = value.data_type();
    let DataType::Timestamp(_, zone) = &data_type else {
        return None;
    };
    let is_zoned = matches!(time, DataType::Timestamp(_, Some(_)));
    if zone.is_some() != is_zoned {
        return None;
    }
    let tick = tick_nanoseconds(&data_type)?;
    let ScalarValue::Int64(Some(ticks)) = value.cast_to(&DataType::Int64).ok()? else {
        return None;
    };
    Some(i128::from(ticks) * tick)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, Int64Array};
    use arrow::compute::cast;

    use super::*;
    use crate::column_results::rows_over;

    /// Rows of a condition over a null, and the seconds -1, 0 and 1 in a unit.
    fn rows(condition: &str, data_type: &DataType) -> Vec<usize> {
        let tick = tick_nanoseconds(data_type).unwrap();
        let second = i64::try_from(1_000_000_000 / tick).unwrap();
        let ticks = Int64Array::from(vec![None, Some(-second), Some(0), Some(second)]);
        let times: ArrayRef = cast(&ticks, data_type).unwrap();
        rows_over(condition, "t", &times)
    }

    /// Constants that are computed are as exact as those that are written.
    #[test]
    fn computed_constants_between_ticks_are_neither() {
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
                let epoch = format!("TIMESTAMP '1970-01-01 0{hour}:00:00'");
                for constant in [
                    format!("{epoch} + INTERVAL '1 nanosecond'"),
                    format!("INTERVAL '1 nanosecond' + {epoch}"),
                    format!("{epoch} - INTERVAL '1 day' + INTERVAL '1 day 1 nanosecond'"),
                ] {
                    for (condition, expected) in [
                        ("t < AFTER", vec![1, 2]),
                        ("t >= AFTER", vec![3]),
                        ("AFTER > t", vec![1, 2]),
                        ("t = AFTER", vec![]),
                        ("t <> AFTER", vec![1, 2, 3]),
                        ("t NOT IN (AFTER)", vec![1, 2, 3]),
                        ("AFTER IN (t)", vec![]),
                        ("AFTER NOT IN (t)", vec![1, 2, 3]),
                        ("t BETWEEN AFTER AND '2024-01-01'", vec![3]),
                        ("CASE t WHEN AFTER THEN true ELSE false END", vec![]),
                        ("nullif(t, AFTER) IS NULL", vec![0]),
                    ] {
                        let condition = condition.replace("AFTER", &format!("({constant})"));
                        let selected = rows(&condition, &data_type);
                        assert_eq!(selected, expected, "{condition} beside {data_type}");
                    }
                }
                let condition = format!("t > {epoch} - INTERVAL '1 nanosecond'");
                assert_eq!(
                    rows(&condition, &data_type),
                    [2, 3],
                    "{condition} beside {data_type}"
                );
            }
        }
    }

    /// Left to itself, the query engine cuts the time of day off a text beside a date.
    #[test]
    fn times_of_day_lie_between_days() {
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![
            Some(19_722),
            Some(19_723),
            Some(2_932_896),
            None,
        ]));
        for (condition, expected) in [
            ("d = NOON", vec![]),
            ("d <> NOON", vec![0, 1, 2]),
            ("d < NOON", vec![0, 1]),
            ("d >= NOON", vec![2]),
            ("NOON > d", vec![0, 1]),
            ("d IN (NOON, '2023-12-31')", vec![0]),
            ("d BETWEEN '2023-12-31' AND NOON", vec![0, 1]),
            ("d IS NOT DISTINCT FROM NOON", vec![]),
            ("CASE d WHEN NOON THEN true ELSE false END", vec![]),
            ("CASE d WHEN '2024-01-01' THEN true ELSE false END", vec![1]),
            ("nullif(d, NOON) IS NULL", vec![3]),
            ("nullif(d, DATE '2024-01-01') IS NULL", vec![1, 3]),
        ] {
            for noon in [
                "'2024-01-01 12:00:00'",
                "TIMESTAMP '2024-01-01 12:00:00'",
                "(TIMESTAMP '2024-01-01' + INTERVAL '12 hours')",
            ] {
                let condition = condition.replace("NOON", noon);
                let selected = rows_over(&condition, "d", &dates);
                assert_eq!(selected, expected, "{condition}");
            }
        }
    }

    /// The unit of a time holds times that the finer unit of a literal does not.
    #[test]
    fn times_of_all_years_are_matched_with_literals() {
        let day_seconds = 86_400;
        let seconds = [-719_162, 19_723, 2_932_896].map(|day: i64| day * day_seconds);
        for unit in [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
        ] {
            let data_type = DataType::Timestamp(unit, None);
            let tick = tick_nanoseconds(&data_type).unwrap();
            let second = i64::try_from(1_000_000_000 / tick).unwrap();
            let ticks = Int64Array::from(seconds.map(|time| time * second).to_vec());
            let times: ArrayRef = cast(&ticks, &data_type).unwrap();
            for (condition, expected) in [
                (
                    "CASE t WHEN TIMESTAMP '2024-01-01' THEN true ELSE false END",
                    vec![1],
                ),
                (
                    "CASE t WHEN '9999-12-31' THEN true WHEN DATE '2024-01-01' THEN true END",
                    vec![1, 2],
                ),
                ("nullif(t, TIMESTAMP '2024-01-01') IS NULL", vec![1]),
                ("nullif(t, '9999-12-31') IS NULL", vec![2]),
            ] {
                let selected = rows_over(condition, "t", &times);
                assert_eq!(selected, expected, "{condition} beside {data_type}");
            }
        }
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
                    ("CASE t WHEN AFTER THEN true ELSE false END", vec![]),
                    ("CASE t WHEN EPOCH THEN true ELSE false END", vec![2]),
                    (
                        "CASE t WHEN AFTER THEN false WHEN EPOCH THEN true END",
                        vec![2],
                    ),
                    ("nullif(t, AFTER) IS NULL", vec![0]),
                    ("nullif(t, EPOCH) IS NULL", vec![0, 2]),
                    ("nullif(AFTER, t) IS NULL", vec![]),
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
