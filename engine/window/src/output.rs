//! Conversion of output words to Arrow columns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Float32Array,
    Float64Array, Int32Array, Int64Array, PrimitiveArray, make_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::Result;

use crate::batch::BatchRow;
use crate::special_words::{NO_BITS, UNDEFINED_DIFFERENCE, UNDEFINED_NUMBER};
use crate::value_store::ValueStore;
use crate::{WindowFunction, WindowOutput, WordEncoding};

/// [`UNDEFINED_NUMBER`] in single precision.
const UNDEFINED_SINGLE: u32 = 0x7fe0_0000;

/// A number in single precision.
#[inline(always)]
fn single(word: u64) -> f32 {
    if word == UNDEFINED_NUMBER {
        f32::from_bits(UNDEFINED_SINGLE)
    } else {
        f64::from_bits(word) as f32
    }
}

/// Number of nulls in a computed output column whose windows have enough values, but no result: such as the mean of
/// infinities of both signs, the share of a zero in a zero, or a difference of integers that 64 bits do not hold. The
/// values below these nulls mark them.
pub fn count_undefined(column: &ArrayRef) -> u64 {
    match column.data_type() {
        DataType::Float32 => count_marked_nulls(column.as_primitive::<Float32Type>(), |value| {
            value.to_bits() == UNDEFINED_SINGLE
        }),
        DataType::Float64 => count_marked_nulls(column.as_primitive::<Float64Type>(), |value| {
            value.to_bits() == UNDEFINED_NUMBER
        }),
        DataType::Int64 => count_marked_nulls(column.as_primitive::<Int64Type>(), |value| {
            value as u64 == UNDEFINED_DIFFERENCE
        }),
        _ => 0,
    }
}

fn count_marked_nulls<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    is_marked: impl Fn(T::Native) -> bool,
) -> u64 {
    let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return 0;
    };
    let values = column.values().iter().zip(nulls.iter());
    let marked = values.filter(|(value, is_valid)| !is_valid && is_marked(**value));
    marked.count() as u64
}

/// One output column of a push; rows may arrive in any order.
pub(crate) struct PushOutput {
    keep: WordEncoding,
    /// True if [`UNDEFINED_DIFFERENCE`] is no value.
    is_difference: bool,
    data_type: DataType,
    values: OutputValues,
}

enum OutputValues {
    Words(Vec<u64>),
    /// Single precision halves the bytes written.
    Singles(Vec<f32>),
}

impl PushOutput {
    pub fn new(keep: WordEncoding, function: &WindowOutput, rows: usize) -> Self {
        let values = match (keep, &function.data_type) {
            (WordEncoding::Number, DataType::Float32) => OutputValues::Singles(vec![0.0; rows]),
            _ => OutputValues::Words(vec![0; rows]),
        };
        PushOutput::of(keep, function, values)
    }

    fn of(keep: WordEncoding, function: &WindowOutput, values: OutputValues) -> Self {
        PushOutput {
            keep,
            is_difference: matches!(function.compute, WindowFunction::Diff { .. }),
            data_type: function.data_type.clone(),
            values,
        }
    }

    /// Writes words to the positions of their rows, or from a start position on if the rows are contiguous. Fillers
    /// have no output.
    pub fn put(&mut self, rows: OutputRows<'_>, words: &[u64]) {
        match &mut self.values {
            OutputValues::Words(values) => write_words(values, rows, words, |word| word),
            OutputValues::Singles(values) => write_words(values, rows, words, single),
        }
    }

    /// The finished column; values that its type cannot hold become null.
    pub fn column(self, store: &ValueStore) -> Result<ArrayRef> {
        match (self.values, self.keep) {
            (OutputValues::Singles(values), _) => {
                let nulls = nulls(&values, |value| !value.is_nan());
                Ok(Arc::new(Float32Array::new(values.into(), nulls)))
            }
            (OutputValues::Words(words), WordEncoding::Number) => from_number_words(
                words.into_iter().map(f64::from_bits).collect(),
                &self.data_type,
            ),
            (OutputValues::Words(words), WordEncoding::Bits) if self.is_difference => {
                from_difference_words(words, &self.data_type)
            }
            (OutputValues::Words(words), WordEncoding::Bits) => {
                from_bit_words(words, &self.data_type)
            }
            (OutputValues::Words(words), WordEncoding::Values) => {
                store.column(&words, &self.data_type)
            }
        }
    }
}

/// An output column that several partitions write concurrently, each at the positions of its own rows.
pub(crate) struct SharedOutput(Vec<AtomicU64>);

impl SharedOutput {
    pub fn new(rows: usize) -> Self {
        SharedOutput((0..rows).map(|_| AtomicU64::new(0)).collect())
    }

    /// Writes words at places; words without a valid place are dropped.
    pub fn put(&self, indices: &[u32], words: &[u64]) {
        for (&index, &word) in indices.iter().zip(words) {
            if let Some(word_of_row) = self.0.get(index as usize) {
                // The reader waits for all partitions first.
                word_of_row.store(word, Ordering::Relaxed);
            }
        }
    }

    /// The finished column, as for a single partition.
    pub fn column(
        self,
        keep: WordEncoding,
        function: &WindowOutput,
        store: &ValueStore,
    ) -> Result<ArrayRef> {
        let words: Vec<u64> = self.0.into_iter().map(AtomicU64::into_inner).collect();
        let values = match (keep, &function.data_type) {
            (WordEncoding::Number, DataType::Float32) => {
                OutputValues::Singles(words.into_iter().map(single).collect())
            }
            _ => OutputValues::Words(words),
        };
        PushOutput::of(keep, function, values).column(store)
    }
}

/// The rows of outputs.
#[derive(Clone, Copy)]
pub(crate) struct OutputRows<'r> {
    pub rows: &'r [BatchRow],
    /// The position of the first row, if the rows are contiguous.
    pub start: Option<usize>,
}

#[inline(always)]
fn write_words<T>(values: &mut [T], rows: OutputRows<'_>, words: &[u64], value: impl Fn(u64) -> T) {
    let OutputRows { rows, start } = rows;
    if let Some(first) = start {
        let values = values[first..].iter_mut().zip(words);
        values.for_each(|(slot, &word)| *slot = value(word));
        return;
    }
    for (row, &word) in rows.iter().zip(words) {
        if let Some(source) = row.source {
            values[source as usize] = value(word);
        }
    }
}

/// Position of the first row, if the rows are consecutive and none is a filler.
pub(crate) fn contiguous_start(rows: &[BatchRow]) -> Option<usize> {
    let first = rows.first()?.source? as usize;
    let follows = |(at, row): (usize, &BatchRow)| row.source == u32::try_from(first + at).ok();
    rows.iter().enumerate().all(follows).then_some(first)
}

fn from_number_words(values: Vec<f64>, data_type: &DataType) -> Result<ArrayRef> {
    let whole = |low: f64, high: f64| {
        let fits = |value: f64| value >= low && value <= high && value.trunc() == value;
        let nulls = nulls(&values, fits);
        Int64Array::new(values.iter().map(|&value| value as i64).collect(), nulls)
    };
    Ok(match data_type {
        DataType::Float64 => {
            let nulls = nulls(&values, |value| !value.is_nan());
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        DataType::Int64 => Arc::new(whole(
            -9_223_372_036_854_775_808.0,
            9_223_372_036_854_774_784.0,
        )),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
            // Casts saturate, and turn NaN into zero.
            let nulls = nulls(&values, |value| f64::from(value as i32) == value);
            let array = Int32Array::new(values.iter().map(|&value| value as i32).collect(), nulls);
            reinterpret(array, data_type)?
        }
        DataType::Boolean => {
            let nulls = nulls(&values, |value| value == 0.0 || value == 1.0);
            let flags = BooleanBuffer::collect_bool(values.len(), |row| values[row] == 1.0);
            Arc::new(BooleanArray::new(flags, nulls))
        }
        // Up to 32 bits; values out of range become null.
        other if other.is_integer() => cast(
            &whole(-9_007_199_254_740_992.0, 9_007_199_254_740_992.0),
            other,
        )?,
        other => {
            let nulls = nulls(&values, |value| !value.is_nan());
            cast(&Float64Array::new(values.into(), nulls), other)?
        }
    })
}

fn from_bit_words(words: Vec<u64>, data_type: &DataType) -> Result<ArrayRef> {
    let nulls = nulls(&words, |word| word != NO_BITS);
    from_integers(words, nulls, data_type)
}

fn from_difference_words(words: Vec<u64>, data_type: &DataType) -> Result<ArrayRef> {
    let nulls = nulls(&words, |word| {
        word != NO_BITS && word != UNDEFINED_DIFFERENCE
    });
    from_integers(words, nulls, data_type)
}

fn from_integers(
    words: Vec<u64>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let array = Int64Array::new(words.into_iter().map(|word| word as i64).collect(), nulls);
    match data_type {
        DataType::Int64 => Ok(Arc::new(array)),
        DataType::UInt64
        | DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Time64(_)
        | DataType::Duration(_) => reinterpret(array, data_type),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => narrow(array, data_type),
        other => Ok(cast(&array, other)?),
    }
}

/// Integers as a 32-bit type; values out of range become null.
fn narrow(array: Int64Array, data_type: &DataType) -> Result<ArrayRef> {
    let narrow: Int32Array = array.unary_opt(|value| i32::try_from(value).ok());
    reinterpret(narrow, data_type)
}

/// Reinterprets values as another type of the same width.
fn reinterpret(array: impl Array, data_type: &DataType) -> Result<ArrayRef> {
    let data: ArrayData = array
        .into_data()
        .into_builder()
        .data_type(data_type.clone())
        .build()?;
    Ok(make_array(data))
}

fn nulls<T: Copy>(values: &[T], valid: impl Fn(T) -> bool) -> Option<NullBuffer> {
    // Counting is far cheaper than building a bitmap, and most columns have no nulls.
    let is_full = values
        .iter()
        .map(|&value| usize::from(valid(value)))
        .sum::<usize>()
        == values.len();
    (!is_full).then(|| {
        NullBuffer::new(BooleanBuffer::collect_bool(values.len(), |row| {
            valid(values[row])
        }))
    })
}

/// A time formatted for messages.
pub(crate) fn format_time(ticks: i64, data_type: &DataType) -> String {
    let show = || -> Result<String> {
        let column = from_bit_words(vec![ticks as u64], data_type)?;
        Ok(ArrayFormatter::try_new(&column, &FormatOptions::default())?
            .value(0)
            .to_string())
    };
    show().unwrap_or_else(|_| ticks.to_string())
}
