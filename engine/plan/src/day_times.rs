//! Times of day of several units side by side.
//!
//! Left to itself, the query engine compares times of day of one unit alone. `TIME '12:30:00'` has nanoseconds, and
//! columns of files have seconds, milliseconds and microseconds, too.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use crate::exact_lengths::compares_lengths;

/// Gives times of day that are compared, or that are alternatives, the finest unit among them.
pub(crate) fn align_day_times(
    expression: Expr,
    schema: &DFSchema,
) -> Result<Expr, DataFusionError> {
    let done = expression.transform_up(|part| {
        if !compares_lengths(&part) {
            return Ok(Transformed::no(part));
        }
        match common_unit(&part, schema)? {
            Some(unit) => part.map_children(|child| Ok(in_unit(child, unit, schema))),
            None => Ok(Transformed::no(part)),
        }
    });
    done.map(|done| done.data)
}

/// The finest unit of the times of day among the parts of an expression. `None` if all have the same one.
fn common_unit(part: &Expr, schema: &DFSchema) -> Result<Option<TimeUnit>, DataFusionError> {
    let mut units = Vec::new();
    part.apply_children(|child| {
        if let Ok(DataType::Time32(unit) | DataType::Time64(unit)) = child.get_type(schema) {
            units.push(unit);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let finest = units.iter().copied().max();
    Ok(finest.filter(|finest| units.iter().any(|unit| unit != finest)))
}

fn in_unit(child: Expr, unit: TimeUnit, schema: &DFSchema) -> Transformed<Expr> {
    match child.get_type(schema) {
        Ok(DataType::Time32(coarse) | DataType::Time64(coarse)) if coarse != unit => {
            Transformed::yes(cast(child, day_time(unit)))
        }
        _ => Transformed::no(child),
    }
}

/// The type of times of day in a unit.
fn day_time(unit: TimeUnit) -> DataType {
    match unit {
        TimeUnit::Second | TimeUnit::Millisecond => DataType::Time32(unit),
        TimeUnit::Microsecond | TimeUnit::Nanosecond => DataType::Time64(unit),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Time32SecondArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::SqlCompiler;

    const UNITS: [TimeUnit; 4] = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];

    /// Rows of a condition over 08:00:00, 12:30:00 and 23:59:59 in two columns.
    fn rows(condition: &str, first: TimeUnit, second: TimeUnit) -> Vec<usize> {
        let seconds: ArrayRef = Arc::new(Time32SecondArray::from(vec![28_800, 45_000, 86_399]));
        let columns =
            [first, second].map(|unit| arrow::compute::cast(&seconds, &day_time(unit)).unwrap());
        let schema = Schema::new(vec![
            Field::new("t", day_time(first), true),
            Field::new("u", day_time(second), true),
        ]);
        let compiled = SqlCompiler::default()
            .condition(condition, &schema)
            .unwrap();
        let inputs: Vec<ArrayRef> = compiled
            .reads
            .iter()
            .map(|name| columns[schema.index_of(name).unwrap()].clone())
            .collect();
        let selected = (compiled.kernel)(&inputs, 3).unwrap();
        let selected = selected[0].as_boolean().clone();
        (0..3).filter(|row| selected.value(*row)).collect()
    }

    #[test]
    fn times_of_day_of_all_units_are_compared() {
        for first in UNITS {
            for (condition, expected) in [
                ("t < TIME '12:30:00'", vec![0]),
                ("t = TIME '12:30:00'", vec![1]),
                ("TIME '12:30:00' <= t", vec![1, 2]),
                ("t > TIME '12:29:59.999999999'", vec![1, 2]),
                ("t = TIME '12:30:00.000000001'", vec![]),
                ("t BETWEEN TIME '08:00:00' AND TIME '12:30:00'", vec![0, 1]),
                ("t IN (TIME '08:00:00', TIME '23:59:59')", vec![0, 2]),
                ("coalesce(t, TIME '00:00:00') = t", vec![0, 1, 2]),
                (
                    "CASE WHEN t > TIME '12:00:00' THEN t ELSE TIME '12:00:00' END \
                     = TIME '12:00:00'",
                    vec![0],
                ),
            ] {
                let selected = rows(condition, first, first);
                assert_eq!(selected, expected, "{condition} in {first:?}");
            }
            for second in UNITS {
                assert_eq!(rows("t = u", first, second), [0, 1, 2]);
                assert_eq!(rows("t < u", first, second), [0; 0]);
            }
        }
    }
}
