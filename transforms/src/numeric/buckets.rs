//! Cutting numbers at boundaries.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, Int32Array, PrimitiveArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int32Type};
use forebay_model::{Result, scaled_distance};

use crate::shared::doubles;

/// For each value the number of boundaries that are not above it; NaN goes last, null stays null.
pub(super) fn bucket_indices(column: &ArrayRef, boundaries: &[f64]) -> Result<ArrayRef> {
    fn each<T: ArrowPrimitiveType>(
        array: &PrimitiveArray<T>,
        boundaries: &[f64],
        value: impl Fn(T::Native) -> f64,
    ) -> ArrayRef {
        let last = boundaries.len() as i32;
        let bucket = |x: f64| {
            if x.is_nan() {
                last
            } else {
                boundaries.partition_point(|boundary| *boundary <= x) as i32
            }
        };
        let buckets: Int32Array = array.unary::<_, Int32Type>(|x| bucket(value(x)));
        Arc::new(buckets)
    }
    Ok(match column.data_type() {
        DataType::Float64 => each::<Float64Type>(column.as_primitive(), boundaries, |x| x),
        DataType::Float32 => each::<Float32Type>(column.as_primitive(), boundaries, f64::from),
        DataType::Int32 => each::<Int32Type>(column.as_primitive(), boundaries, f64::from),
        _ => each::<Float64Type>(&doubles(column)?, boundaries, |x| x),
    })
}

/// The place among the boundaries, from 0 below the first to 1 at or above the last, linear in
/// between; NaN is in the middle.
pub(super) fn interpolated_rank(boundaries: &[f64], x: f64) -> f64 {
    if x.is_nan() || boundaries.is_empty() {
        return 0.5;
    }
    let above = boundaries.partition_point(|boundary| *boundary <= x);
    match (above.checked_sub(1), boundaries.get(above)) {
        (None, _) => 0.0,
        (_, None) => 1.0,
        (Some(index), Some(next)) => {
            let lower = boundaries[index];
            let share = if lower.is_finite() && next.is_finite() {
                scaled_distance(x, lower, lower, *next)
            } else {
                0.0
            };
            (index as f64 + share) / (boundaries.len() - 1) as f64
        }
    }
}
