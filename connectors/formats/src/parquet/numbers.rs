//! Columns of floats that repeat: prices, means of a few small counts. Keys of a dictionary take a
//! fraction of their bytes, and of the time to compress them.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::dictionary::{DICTIONARY_BYTES_MAX, DictionaryColumn, NULL, key_bits};

/// Number of rows after which the choice of a dictionary is made, by the repetition of values.
const TRIAL_ROWS: usize = 8192;

/// Rows per value that make it worth to go on after the trial.
const TRIAL_REPEATS: usize = 2;

/// Maximum size of a dictionary and its keys, in percent of the bytes of plain values.
const PERCENT_MAX: usize = 75;

/// Slots of a table at first.
const FIRST_SLOTS: usize = 1 << 10;

/// Spreads bits over the upper ones: 2^64 divided by the golden ratio (Knuth, The Art of Computer
/// Programming 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The floats of a column as keys; `None` where they are no floats, or hardly repeat.
pub(super) fn encode_floats<'a>(
    arrays: impl Iterator<Item = &'a ArrayRef> + Clone,
) -> Option<DictionaryColumn> {
    match arrays.clone().next()?.data_type() {
        DataType::Float32 => FloatDictionary::<Float32Type>::from_arrays(arrays),
        DataType::Float64 => FloatDictionary::<Float64Type>::from_arrays(arrays),
        _ => None,
    }
}

/// A type of floats.
trait FloatBits: ArrowPrimitiveType {
    type Bits: Copy + Eq + Default + Into<u64>;

    fn bits(value: Self::Native) -> Self::Bits;

    /// The value; doubles hold singles exactly.
    fn to_f64(bits: Self::Bits) -> f64;

    /// The little-endian bytes of values.
    fn plain_bytes(values: &[Self::Bits]) -> Vec<u8>;

    fn statistics(bounds: [Option<f64>; 2], nulls: u64) -> Statistics;
}

impl FloatBits for Float32Type {
    type Bits = u32;

    fn bits(value: f32) -> u32 {
        value.to_bits()
    }

    fn to_f64(bits: u32) -> f64 {
        f32::from_bits(bits).into()
    }

    fn plain_bytes(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }

    fn statistics(bounds: [Option<f64>; 2], nulls: u64) -> Statistics {
        let [min, max] = bounds.map(|bound| bound.map(|bound| bound as f32));
        Statistics::Float(ValueStatistics::new(min, max, None, Some(nulls), false))
    }
}

impl FloatBits for Float64Type {
    type Bits = u64;

    fn bits(value: f64) -> u64 {
        value.to_bits()
    }

    fn to_f64(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    fn plain_bytes(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }

    fn statistics([min, max]: [Option<f64>; 2], nulls: u64) -> Statistics {
        Statistics::Double(ValueStatistics::new(min, max, None, Some(nulls), false))
    }
}

/// The least and the greatest of all values that are numbers.
fn min_max<F: FloatBits>(values: &[F::Bits]) -> [Option<f64>; 2] {
    let mut bounds: Option<(f64, f64)> = None;
    for bits in values {
        let value = F::to_f64(*bits);
        if value.is_nan() {
            continue;
        }
        bounds = Some(match bounds {
            Some((min, max)) => (min.min(value), max.max(value)),
            None => (value, value),
        });
    }
    let Some((min, max)) = bounds else {
        return [None, None];
    };
    // Of the two zeros, the one that bounds both.
    let min = if min == 0.0 { -0.0 } else { min };
    let max = if max == 0.0 { 0.0 } else { max };
    [Some(min), Some(max)]
}

/// The distinct values of a column by their bits, in order of appearance, and each row's.
struct FloatDictionary<F: FloatBits> {
    values: Vec<F::Bits>,
    keys: Vec<u32>,
    nulls: usize,
    /// Values and their keys by hash; [`NULL`] where there is none. At most half are taken.
    slots: Vec<(F::Bits, u32)>,
}

impl<F: FloatBits> FloatDictionary<F> {
    fn from_arrays<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> Option<DictionaryColumn> {
        let slots = vec![(F::Bits::default(), NULL); FIRST_SLOTS];
        let mut distinct = FloatDictionary::<F> {
            values: Vec::new(),
            keys: Vec::new(),
            nulls: 0,
            slots,
        };
        for array in arrays {
            let array = array.as_primitive_opt::<F>()?;
            // The trial ends at the same row, however the rows are cut into arrays.
            let trial = TRIAL_ROWS
                .saturating_sub(distinct.keys.len())
                .min(array.len());
            distinct.add_array(&array.slice(0, trial));
            if distinct.keys.len() == TRIAL_ROWS
                && distinct.values.len() * TRIAL_REPEATS > TRIAL_ROWS
            {
                return None;
            }
            distinct.add_array(&array.slice(trial, array.len() - trial));
            if distinct.values.len() * size_of::<F::Bits>() > DICTIONARY_BYTES_MAX {
                return None;
            }
        }
        let FloatDictionary {
            values,
            keys,
            nulls,
            ..
        } = distinct;
        let count = u32::try_from(values.len()).ok()?;
        let width = size_of::<F::Bits>();
        let rows = keys.len() - nulls;
        let bytes = values.len() * width + rows * usize::from(key_bits(count)) / 8;
        let statistics = F::statistics(min_max::<F>(&values), nulls as u64);
        (bytes * 100 <= rows * width * PERCENT_MAX).then(|| DictionaryColumn {
            keys,
            nulls,
            values: count,
            plain: F::plain_bytes(&values),
            statistics,
        })
    }

    fn add_array(&mut self, array: &PrimitiveArray<F>) {
        self.keys.reserve(array.len());
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => {
                for value in array.values() {
                    let key = self.key(F::bits(*value));
                    self.keys.push(key);
                }
            }
            Some(nulls) => {
                self.nulls += nulls.null_count();
                for (value, valid) in array.values().iter().zip(nulls) {
                    let key = if valid {
                        self.key(F::bits(*value))
                    } else {
                        NULL
                    };
                    self.keys.push(key);
                }
            }
        }
    }

    #[inline]
    fn key(&mut self, bits: F::Bits) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = self.home_slot(bits);
        loop {
            match self.slots[at & mask] {
                (_, NULL) => return self.insert(bits, at & mask),
                (other, key) if other == bits => return key,
                _ => at += 1,
            }
        }
    }

    /// The slot where a search begins.
    #[inline]
    fn home_slot(&self, bits: F::Bits) -> usize {
        (bits.into().wrapping_mul(SPREAD) >> (u64::BITS - self.slots.len().trailing_zeros()))
            as usize
    }

    #[cold]
    fn insert(&mut self, bits: F::Bits, at: usize) -> u32 {
        let key = self.values.len() as u32;
        self.values.push(bits);
        self.slots[at] = (bits, key);
        if self.values.len() * 2 > self.slots.len() {
            self.slots = vec![(F::Bits::default(), NULL); self.slots.len() * 2];
            let mask = self.slots.len() - 1;
            for (key, bits) in self.values.iter().enumerate() {
                let mut at = self.home_slot(*bits);
                while self.slots[at & mask].1 != NULL {
                    at += 1;
                }
                self.slots[at & mask] = (*bits, key as u32);
            }
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float32Array, Float64Array, RecordBatch};
    use arrow::compute::concat_batches;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::basic::Encoding;

    use super::*;
    use crate::parquet::config::ParquetCompression;
    use crate::parquet::sink::write_row_group;

    #[test]
    fn what_is_written_is_read() {
        let mut state = 11u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, -1.5];
        // How many different values, whether a dictionary pays, and one null in how many rows.
        for (values, pays, nulls) in [
            (1, true, 0),
            (6, true, 3),
            (900, true, 0),
            (900, true, 2),
            (3_000, true, 9),
            (1 << 30, false, 5),
        ] {
            let doubles: Float64Array = (0..40_000)
                .map(|_| {
                    let value = random(values);
                    let value = odd
                        .get(value as usize)
                        .copied()
                        .unwrap_or(value as f64 / 7.0);
                    (nulls == 0 || random(nulls) > 0).then_some(value)
                })
                .collect();
            let singles: Float32Array = doubles
                .iter()
                .map(|value| value.map(|value| value as f32))
                .collect();
            let columns = [
                ("double", Arc::new(doubles) as ArrayRef, true),
                ("single", Arc::new(singles), true),
            ];
            let whole = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let mut cut = Vec::new();
            let mut at = 0;
            while at < whole.num_rows() {
                let rows = (1 + random(9_000) as usize).min(whole.num_rows() - at);
                cut.push(whole.slice(at, rows));
                at += rows;
            }
            let written = |batches: &[RecordBatch]| {
                write_row_group(&whole.schema(), batches, ParquetCompression::Snappy)
            };
            let bytes = written(&cut);
            // The general writer's pages end where batches do.
            let same = bytes == written(std::slice::from_ref(&whole));
            assert!(
                same || !pays,
                "{values} values: other bytes in other batches"
            );
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
            for column in reader.metadata().row_group(0).columns() {
                assert_eq!(
                    column.encodings().any(|of| of == Encoding::RLE_DICTIONARY),
                    pays,
                    "{values} values"
                );
                let statistics = column.statistics().unwrap();
                assert_eq!(
                    statistics.null_count_opt(),
                    Some(whole.column(0).null_count() as u64),
                    "{values} values"
                );
            }
            let read: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
            let read = concat_batches(&read[0].schema(), &read).unwrap();
            let bits = |batch: &RecordBatch| {
                let doubles = batch
                    .column(0)
                    .as_primitive::<Float64Type>()
                    .iter()
                    .map(|value| value.map(f64::to_bits));
                let singles = batch
                    .column(1)
                    .as_primitive::<Float32Type>()
                    .iter()
                    .map(|value| value.map(f32::to_bits));
                (doubles.collect::<Vec<_>>(), singles.collect::<Vec<_>>())
            };
            assert!(bits(&read) == bits(&whole), "{values} values");
        }
    }

    #[test]
    fn bounds_are_those_of_numbers() {
        let keyed = |values: Vec<Option<f64>>| {
            let repeated = values
                .iter()
                .copied()
                .cycle()
                .take(values.len() * 9)
                .collect::<Float64Array>();
            encode_floats([&(Arc::new(repeated) as ArrayRef)].into_iter())
                .unwrap()
                .statistics
        };
        let bounds = |statistics: Statistics| match statistics {
            Statistics::Double(bounds) => (bounds.min_opt().copied(), bounds.max_opt().copied()),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            bounds(keyed(vec![Some(2.0), Some(f64::NAN), None, Some(-3.0)])),
            (Some(-3.0), Some(2.0))
        );
        assert_eq!(bounds(keyed(vec![Some(f64::NAN)])), (None, None));
        let (min, max) = bounds(keyed(vec![Some(0.0), Some(-0.0)]));
        assert_eq!(
            (min.map(f64::to_bits), max.map(f64::to_bits)),
            (Some((-0.0f64).to_bits()), Some(0))
        );
    }
}
