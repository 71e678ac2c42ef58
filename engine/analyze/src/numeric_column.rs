//! Numeric columns of any layout.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt64Type};
use forebay_model::{AnalyzerInput, Fault, Result, codes, type_label};

/// Buffer size in rows for gathering the valid values of a column with nulls.
const GATHER_ROWS: usize = 4096;

/// Rows whose validity fits one word.
const WORD: usize = u64::BITS as usize;

/// A numeric column in the narrowest of four layouts that holds its values exactly.
pub(crate) enum NumericColumn {
    Float64(PrimitiveArray<Float64Type>),
    Float32(PrimitiveArray<Float32Type>),
    Int64(PrimitiveArray<Int64Type>),
    UInt64(PrimitiveArray<UInt64Type>),
}

impl NumericColumn {
    /// Converts a column. Booleans become 0 and 1, dates and times their number of units; decimals are rounded to
    /// doubles.
    pub(crate) fn of(column: &ArrayRef) -> Result<Self> {
        use DataType as T;
        // The narrowest layout that holds all values of the type exactly.
        let target = match column.data_type() {
            T::Float64 => return Ok(NumericColumn::Float64(column.as_primitive().clone())),
            T::Float32 => return Ok(NumericColumn::Float32(column.as_primitive().clone())),
            T::Int64 => return Ok(NumericColumn::Int64(column.as_primitive().clone())),
            T::UInt64 => return Ok(NumericColumn::UInt64(column.as_primitive().clone())),
            T::Float16 => T::Float32,
            T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::UInt8 | T::UInt16 | T::UInt32 => {
                T::Int64
            }
            T::Date64 | T::Timestamp(..) | T::Time64(_) | T::Duration(_) => T::Int64,
            T::Date32 | T::Time32(_) => return NumericColumn::of(&cast(column, &T::Int32)?),
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
                T::Float64
            }
            T::Null => T::Float64,
            T::Dictionary(_, value) => (**value).clone(),
            other => {
                let label = type_label(other);
                let message = format!("a column of type {label} does not hold numbers");
                return Err(Fault::new(codes::COLUMN_TYPE, message));
            }
        };
        NumericColumn::of(&cast(column, &target)?)
    }

    /// The column as doubles; integers above 2^53 are rounded.
    pub(crate) fn doubles(column: &ArrayRef) -> Result<Float64Array> {
        Ok(match NumericColumn::of(column)? {
            NumericColumn::Float64(array) => array,
            NumericColumn::Float32(array) => array.unary(f64::from),
            NumericColumn::Int64(array) => array.unary(|value| value as f64),
            NumericColumn::UInt64(array) => array.unary(|value| value as f64),
        })
    }
}

/// Passes the values that are not null to `take`, in slices.
pub(crate) fn valid_slices<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    mut take: impl FnMut(&[T::Native]),
) {
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return take(array.values());
    };
    let mut gathered = Vec::with_capacity(GATHER_ROWS.min(array.len()));
    let words = nulls.inner().bit_chunks();
    for (values, valid) in array.values().chunks(WORD).zip(words.iter_padded()) {
        if valid == u64::MAX {
            gathered.extend_from_slice(values);
        } else {
            // Branchless: every value is written, and `used` advances only for valid ones. Nulls come in no order,
            // so branches would be mispredicted.
            let mut word = [T::Native::default(); WORD];
            let mut used = 0;
            for (bit, &value) in values.iter().enumerate() {
                word[used % WORD] = value;
                used += (valid >> bit) as usize & 1;
            }
            gathered.extend_from_slice(&word[..used]);
        }
        if gathered.len() + WORD > GATHER_ROWS {
            take(&gathered);
            gathered.clear();
        }
    }
    take(&gathered);
}

/// The input column of an analyzer of a single column.
pub(crate) fn single_column<'a>(input: &AnalyzerInput<'a>) -> Result<&'a ArrayRef> {
    match input.columns {
        [column] => Ok(column),
        other => Err(Fault::internal(format!(
            "an analyzer of one column received {} columns",
            other.len()
        ))),
    }
}

/// The input columns of an analyzer of two columns.
pub(crate) fn two_columns<'a>(input: &AnalyzerInput<'a>) -> Result<[&'a ArrayRef; 2]> {
    match input.columns {
        [first, second] => Ok([first, second]),
        other => Err(Fault::internal(format!(
            "an analyzer of two columns received {} columns",
            other.len()
        ))),
    }
}

/// Bits that sort like the doubles (NaN excluded); -0.0 equals 0.0.
pub(crate) fn ordered_bits(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    // The bits of negative numbers are all inverted, since their magnitude sorts backwards; those of others get the
    // highest bit.
    let is_negative = ((bits as i64) >> 63) as u64;
    bits ^ (is_negative | 1 << 63)
}

/// The inverse of [`ordered_bits`].
pub(crate) fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(bits ^ ((((!bits as i64) >> 63) as u64) | 1 << 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_bits_sort_as_numbers() {
        let sorted = [
            f64::NEG_INFINITY,
            -1e300,
            -3.0,
            -5e-324,
            0.0,
            5e-324,
            1.0,
            1e15,
            f64::INFINITY,
        ];
        for pair in sorted.windows(2) {
            assert!(ordered_bits(pair[0]) < ordered_bits(pair[1]));
        }
        assert!(
            sorted
                .iter()
                .all(|&x| from_ordered_bits(ordered_bits(x)) == x)
        );
        assert_eq!(ordered_bits(-0.0), ordered_bits(0.0));
    }
}
