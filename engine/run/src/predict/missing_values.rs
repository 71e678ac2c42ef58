//! Values that models take as missing.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::is_null;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use forebay_model::Result;

/// True for values that models take as missing: nulls and NaN.
pub(crate) fn missing_values(column: &ArrayRef) -> Result<BooleanArray> {
    Ok(match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            values
                .iter()
                .map(|value| Some(value.is_none_or(f64::is_nan)))
                .collect()
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            values
                .iter()
                .map(|value| Some(value.is_none_or(f32::is_nan)))
                .collect()
        }
        _ => is_null(column)?,
    })
}
