//! Numeric columns, computed in doubles and rounded once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int32Type, Int64Type};
use forebay_model::{Fault, Result};

/// The type of a column that has been scaled: doubles and decimals give doubles, all other
/// numbers `Float32`.
pub(crate) fn float_type(input: &DataType) -> DataType {
    match input {
        DataType::Float64 => DataType::Float64,
        other if other.is_decimal() => DataType::Float64,
        _ => DataType::Float32,
    }
}

/// The column as doubles; integers above 2^53 are rounded.
pub(crate) fn doubles(column: &ArrayRef) -> Result<Float64Array> {
    let column = if *column.data_type() == DataType::Float64 {
        column
    } else {
        &cast(column, &DataType::Float64)?
    };
    Ok(column.as_primitive().clone())
}

/// Applies a function to every value as a double and rounds to `Float32` or `Float64`.
/// Nulls stay null; the function sees them as any number.
pub(crate) fn map_doubles(
    column: &ArrayRef,
    out: &DataType,
    of_value: impl Fn(f64) -> f64,
) -> Result<ArrayRef> {
    fn each<T: ArrowPrimitiveType>(
        array: &PrimitiveArray<T>,
        out: &DataType,
        of_value: impl Fn(T::Native) -> f64,
    ) -> Result<ArrayRef> {
        Ok(match out {
            DataType::Float32 => {
                Arc::new(array.unary::<_, Float32Type>(|value| of_value(value) as f32))
            }
            DataType::Float64 => Arc::new(array.unary::<_, Float64Type>(of_value)),
            other => {
                return Err(Fault::internal(format!(
                    "numbers cannot be rounded to {other}"
                )));
            }
        })
    }
    match column.data_type() {
        DataType::Float64 => each::<Float64Type>(column.as_primitive(), out, of_value),
        DataType::Float32 => each::<Float32Type>(column.as_primitive(), out, |value| {
            of_value(f64::from(value))
        }),
        DataType::Int32 => each::<Int32Type>(column.as_primitive(), out, |value| {
            of_value(f64::from(value))
        }),
        DataType::Int64 => {
            each::<Int64Type>(column.as_primitive(), out, |value| of_value(value as f64))
        }
        _ => each::<Float64Type>(&doubles(column)?, out, of_value),
    }
}

/// Like [`map_doubles`], for functions that depend on the row as well.
pub(crate) fn map_doubles_with_row(
    column: &ArrayRef,
    out: &DataType,
    of_value: impl Fn(usize, f64) -> f64,
) -> Result<ArrayRef> {
    let values = doubles(column)?;
    let each = values
        .values()
        .iter()
        .enumerate()
        .map(|(row, value)| of_value(row, *value));
    let nulls = values.nulls().cloned();
    Ok(match out {
        DataType::Float32 => Arc::new(PrimitiveArray::<Float32Type>::new(
            each.map(|value| value as f32).collect(),
            nulls,
        )),
        DataType::Float64 => Arc::new(PrimitiveArray::<Float64Type>::new(each.collect(), nulls)),
        other => {
            return Err(Fault::internal(format!(
                "numbers cannot be rounded to {other}"
            )));
        }
    })
}

/// Doubles as `Float64` or rounded to `Float32`.
pub(crate) fn to_float_type(values: Float64Array, out: &DataType) -> ArrayRef {
    match out {
        DataType::Float32 => Arc::new(values.unary::<_, Float32Type>(|value| value as f32)),
        _ => Arc::new(values),
    }
}
