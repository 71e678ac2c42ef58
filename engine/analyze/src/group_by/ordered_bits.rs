//! Values as integers that sort like them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use forebay_model::{Result, ticks};

/// True if values of a logical type can be held as integers of 64 bits that sort like them.
pub(super) fn has_ordered_bits(data_type: &DataType) -> bool {
    use DataType as T;
    data_type.is_integer()
        || data_type.is_floating()
        || matches!(
            data_type,
            T::Boolean | T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_)
        )
        || matches!(data_type, T::Timestamp(..) | T::Duration(_))
}

/// True for types that Arrow casts to and from `Int32` only.
fn is_narrow_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Time32(_))
}

const SIGN: u64 = 1 << 63;

fn of_double(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

fn to_double(bits: i64) -> f64 {
    f64::from_bits((bits ^ ((bits >> 63) as u64 >> 1) as i64) as u64)
}

/// The integers of a column; nulls stay.
pub(super) fn to_ordered_bits(column: &ArrayRef) -> Result<Int64Array> {
    let data_type = column.data_type();
    if data_type.is_floating() {
        let doubles = cast(column, &DataType::Float64)?;
        let doubles = doubles.as_primitive::<Float64Type>();
        return Ok(doubles.unary::<_, Int64Type>(of_double));
    }
    if *data_type == DataType::UInt64 {
        let numbers = column.as_primitive::<UInt64Type>();
        return Ok(numbers.unary::<_, Int64Type>(|value| (value ^ SIGN) as i64));
    }
    if let Some(flags) = column.as_boolean_opt() {
        return Ok(flags.iter().map(|flag| flag.map(i64::from)).collect());
    }
    ticks(column)
}

/// The column of integers made by `to_ordered_bits`.
pub(super) fn from_ordered_bits(bits: &Int64Array, data_type: &DataType) -> Result<ArrayRef> {
    if data_type.is_floating() {
        let doubles: Float64Array = bits.unary(to_double);
        return Ok(cast(&doubles, data_type)?);
    }
    if *data_type == DataType::UInt64 {
        let numbers: UInt64Array = bits.unary(|value| value as u64 ^ SIGN);
        return Ok(Arc::new(numbers));
    }
    if *data_type == DataType::Boolean {
        let flags: BooleanArray = bits.iter().map(|bit| bit.map(|bit| bit == 1)).collect();
        return Ok(Arc::new(flags));
    }
    let bits: ArrayRef = Arc::new(bits.clone());
    let bits = if is_narrow_time(data_type) {
        cast(&bits, &DataType::Int32)?
    } else {
        bits
    };
    Ok(cast(&bits, data_type)?)
}
