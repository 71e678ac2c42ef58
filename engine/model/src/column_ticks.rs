//! Times as ticks of their column's type.

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::temporal_conversions::NANOSECONDS;

use crate::Result;

/// Nanoseconds per tick; `None` for whole numbers.
pub fn tick_nanoseconds(data_type: &DataType) -> Option<i128> {
    let second = i128::from(NANOSECONDS);
    Some(match data_type {
        DataType::Date32 => 86_400 * second,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => second / 1_000,
        DataType::Timestamp(TimeUnit::Second, _) => second,
        DataType::Timestamp(TimeUnit::Microsecond, _) => second / 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        _ => return None,
    })
}

/// A column of times in ticks.
pub fn ticks(column: &ArrayRef) -> Result<Int64Array> {
    // Arrow casts these to `Int32` only.
    let is_narrow = matches!(column.data_type(), DataType::Date32 | DataType::Time32(_));
    let column = if is_narrow {
        &cast(column, &DataType::Int32)?
    } else {
        column
    };
    Ok(cast(column, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}
