//! Encoding of columns as 64-bit words.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, TimeUnit, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use forebay_model::{Fault, Result, codes, type_label};

use crate::special_words::{NO_BITS, NO_NUMBER};
use crate::value_store::ValueStore;
use crate::{WindowInput, WordEncoding};

impl WordEncoding {
    /// The word of a missing value.
    pub(crate) fn missing(self) -> u64 {
        match self {
            WordEncoding::Number => NO_NUMBER,
            WordEncoding::Bits | WordEncoding::Values => NO_BITS,
        }
    }

    /// True if a word stands for a missing value.
    #[inline]
    pub(crate) fn is_missing(self, word: u64) -> bool {
        match self {
            WordEncoding::Number => f64::from_bits(word).is_nan(),
            WordEncoding::Bits | WordEncoding::Values => word == NO_BITS,
        }
    }

    /// The word by which equal values are recognized: -0.0 becomes 0.0.
    #[inline]
    pub(crate) fn normal_word(self, word: u64) -> u64 {
        match self {
            WordEncoding::Number => (f64::from_bits(word) + 0.0).to_bits(),
            WordEncoding::Bits | WordEncoding::Values => word,
        }
    }
}

impl WindowInput {
    /// Appends the encoded values of a column.
    pub(crate) fn words(
        &self,
        column: &ArrayRef,
        store: &mut ValueStore,
        words: &mut Vec<u64>,
    ) -> Result<()> {
        match self.keep {
            WordEncoding::Number => encode_numbers(column, words),
            WordEncoding::Bits => encode_bits(column, words),
            WordEncoding::Values => store.words(column, &self.data_type, words),
        }
    }
}

/// Appends the values as doubles, with NaN for missing ones.
pub(crate) fn encode_numbers(column: &ArrayRef, words: &mut Vec<u64>) -> Result<()> {
    match column.data_type() {
        DataType::Float64 => fill::<Float64Type>(column, words, |value| canonical(value).to_bits()),
        DataType::Float32 => {
            fill::<Float32Type>(column, words, |value| canonical(f64::from(value)).to_bits())
        }
        DataType::Int64 => fill::<Int64Type>(column, words, |value| (value as f64).to_bits()),
        DataType::UInt64 => fill::<UInt64Type>(column, words, |value| (value as f64).to_bits()),
        DataType::Int32 => fill::<Int32Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::Date32 => fill::<Date32Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::Time32(TimeUnit::Second) => {
            fill::<Time32SecondType>(column, words, |value| f64::from(value).to_bits());
        }
        DataType::Time32(_) => {
            fill::<Time32MillisecondType>(column, words, |value| f64::from(value).to_bits())
        }
        DataType::UInt32 => fill::<UInt32Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::Int16 => fill::<Int16Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::UInt16 => fill::<UInt16Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::Int8 => fill::<Int8Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::UInt8 => fill::<UInt8Type>(column, words, |value| f64::from(value).to_bits()),
        DataType::Boolean => {
            let flags: &BooleanArray = column.as_boolean();
            words.extend(
                flags
                    .iter()
                    .map(|flag| flag.map_or(NO_NUMBER, |flag| f64::from(u8::from(flag)).to_bits())),
            );
        }
        DataType::Float16 | DataType::Null => {
            return encode_numbers(&cast(column, &DataType::Float32)?, words);
        }
        DataType::Dictionary(_, value) => return encode_numbers(&cast(column, value)?, words),
        other if is_integer(other) => return encode_numbers(&integers(column)?, words),
        _ => return encode_numbers(&cast(column, &DataType::Float64)?, words),
    }
    Ok(())
}

fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn fill<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    words: &mut Vec<u64>,
    word: impl Fn(T::Native) -> u64,
) {
    let array: &PrimitiveArray<T> = column.as_primitive();
    let start = words.len();
    words.extend(array.values().iter().map(|&value| word(value)));
    overwrite_nulls(column, &mut words[start..], NO_NUMBER);
}

/// Overwrites the words of nulls.
fn overwrite_nulls(column: &dyn Array, words: &mut [u64], missing: u64) {
    let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return;
    };
    for (word, valid) in words.iter_mut().zip(nulls.iter()) {
        *word = if valid { *word } else { missing };
    }
}

fn encode_bits(column: &ArrayRef, words: &mut Vec<u64>) -> Result<()> {
    let array = integers(column)?;
    let array = array.as_primitive::<Int64Type>();
    // Two passes: the first is vectorized, and the value hardly ever occurs.
    if array.values().contains(&i64::MIN)
        && let Some(row) =
            (0..array.len()).find(|&row| array.is_valid(row) && array.value(row) == i64::MIN)
    {
        let value_text = if *column.data_type() == DataType::UInt64 {
            "9223372036854775808"
        } else {
            "-9223372036854775808"
        };
        let message = format!(
            "a window cannot store the value {value_text}, which represents a missing value"
        );
        let fault = Fault::new(codes::BAD_ROW, message).rows([row as u64]);
        return Err(fault
            .hint("filter such rows, or set the value to null with `derive`, before the windows"));
    }
    let start = words.len();
    words.extend(array.values().iter().map(|&value| value as u64));
    overwrite_nulls(array, &mut words[start..], NO_BITS);
    Ok(())
}

/// True if the type is represented by integers: numbers, dates, times, booleans.
pub(crate) fn is_integer(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_temporal() || *data_type == DataType::Boolean
}

/// The column as 64-bit integers: dates in days, times in their own unit, unsigned numbers by their bits.
pub(crate) fn integers(column: &ArrayRef) -> Result<ArrayRef> {
    let array: Int64Array = match column.data_type() {
        DataType::Int64 => return Ok(column.clone()),
        DataType::UInt64 => column
            .as_primitive::<UInt64Type>()
            .unary(|value| value as i64),
        DataType::Date32 => column.as_primitive::<Date32Type>().unary(i64::from),
        DataType::Dictionary(_, value) => return integers(&cast(column, value)?),
        other if is_integer(other) => return Ok(cast(column, &DataType::Int64)?),
        other => {
            let label = type_label(other);
            let message = format!("a column of type {label} cannot be encoded as 64-bit integers");
            return Err(Fault::new(codes::COLUMN_TYPE, message));
        }
    };
    Ok(Arc::new(array))
}

/// Appends the times in ticks. Fails for nulls and for unsigned times beyond 63 bits.
pub(crate) fn append_times(column: &ArrayRef, ticks: &mut Vec<i64>) -> Result<()> {
    if *column.data_type() == DataType::Date32 && column.null_count() == 0 {
        ticks.extend(
            column
                .as_primitive::<Date32Type>()
                .values()
                .iter()
                .map(|&day| i64::from(day)),
        );
        return Ok(());
    }
    let array = integers(column)?;
    let array = array.as_primitive::<Int64Type>();
    let null = (array.null_count() > 0)
        .then(|| (0..array.len()).find(|&row| array.is_null(row)))
        .flatten();
    if let Some(row) = null {
        let fault = Fault::new(codes::BAD_ROW, "the time of a row is null").rows([row as u64]);
        return Err(fault.hint("filter such rows before the windows"));
    }
    let unsigned = *column.data_type() == DataType::UInt64;
    if let Some(row) = array
        .values()
        .iter()
        .position(|&value| unsigned && value < 0)
    {
        return Err(Fault::new(codes::BAD_ROW, "the time of a row is too large").rows([row as u64]));
    }
    ticks.extend_from_slice(array.values());
    Ok(())
}
