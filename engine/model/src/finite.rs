//! Numbers of a column that are NaN or infinite.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Float32Type, Float64Type};

/// Number of NaN and infinities of a column in single or double precision; 0 for other types.
pub fn count_not_finite(column: &ArrayRef) -> u64 {
    not_finite_rows(column).map_or(0, |rows| rows.count_set_bits() as u64)
}

/// Rows with a NaN or an infinity in single or double precision; `None` where there are none.
pub fn not_finite_rows(column: &ArrayRef) -> Option<BooleanBuffer> {
    match column.data_type() {
        DataType::Float32 => rows_of_values(column.as_primitive::<Float32Type>(), f32::is_finite),
        DataType::Float64 => rows_of_values(column.as_primitive::<Float64Type>(), f64::is_finite),
        _ => None,
    }
}

fn rows_of_values<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    is_finite: impl Fn(T::Native) -> bool,
) -> Option<BooleanBuffer> {
    let values = column.values();
    // Without a branch, so that the compiler looks at several values at once.
    let are_finite = values
        .iter()
        .fold(true, |are_finite, value| are_finite & is_finite(*value));
    if are_finite {
        return None;
    }
    let rows = BooleanBuffer::collect_bool(values.len(), |row| !is_finite(values[row]));
    // The place of a null may hold any number.
    let rows = match column.nulls() {
        Some(nulls) => &rows & nulls.inner(),
        None => rows,
    };
    (rows.count_set_bits() > 0).then_some(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float32Array, Float64Array, Int64Array};
    use arrow::buffer::{NullBuffer, ScalarBuffer};

    use super::*;

    #[test]
    fn nan_and_infinities_count_and_nulls_do_not() {
        let below_null = Float64Array::new(
            ScalarBuffer::from(vec![f64::NAN, 1.0, f64::INFINITY]),
            Some(NullBuffer::from(vec![false, true, true])),
        );
        let cases: [(ArrayRef, u64); 5] = [
            (Arc::new(below_null), 1),
            (
                Arc::new(Float64Array::from(vec![f64::NAN, f64::NEG_INFINITY, 0.0])),
                2,
            ),
            (Arc::new(Float32Array::from(vec![f32::MAX, f32::NAN])), 1),
            (Arc::new(Float64Array::from(vec![Some(1.0), None])), 0),
            (Arc::new(Int64Array::from(vec![1, 2])), 0),
        ];
        for (column, expected) in cases {
            assert_eq!(count_not_finite(&column), expected, "{column:?}");
        }
    }
}
