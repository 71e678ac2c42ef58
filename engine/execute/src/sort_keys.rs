//! Keys of rows as numbers that compare as the rows do.
//!
//! A key has two forms. Columns of numbers, times and booleans are packed: each takes the bits that the range of its
//! values needs, and the number is the whole key. If a column has another type, or the ranges need more bits than a
//! number has, rows are encoded as bytes. The number is then the first bytes, and the bytes decide among equal numbers.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{ArrowNativeType, DataType, SchemaRef};
use arrow::row::{Row, RowConverter, Rows, SortField};
use forebay_model::Result;

use crate::row_position::ROW_BITS;

/// So many positions are sorted by comparisons: a pass over their numbers takes as long.
const FEW_POSITIONS: usize = 32;

/// An order of rows.
#[derive(Clone)]
pub struct SortSpec {
    pub schema: SchemaRef,
    columns: Arc<[(usize, SortOptions)]>,
}

impl SortSpec {
    /// The order by some columns, the most significant first.
    pub fn new(schema: SchemaRef, columns: &[(usize, SortOptions)]) -> SortSpec {
        SortSpec {
            schema,
            columns: columns.into(),
        }
    }

    /// The ranges of no rows. None if the type of a column has no codes.
    pub fn empty_ranges(&self) -> Option<KeyRanges> {
        let mut parts = Vec::new();
        for (column, options) in self.columns.iter() {
            let data_type = self.schema.field(*column).data_type();
            let whole = KeyPart {
                column: *column,
                options: *options,
                codes: codes_of(data_type)?,
                shift: 0,
                mask: u64::MAX,
            };
            if *data_type == DataType::UInt64 {
                // Positions of rows have gaps between spans. Spans and rows within a span have small ranges.
                parts.push(KeyPart {
                    shift: ROW_BITS,
                    ..whole
                });
                parts.push(KeyPart {
                    mask: (1 << ROW_BITS) - 1,
                    ..whole
                });
            } else {
                parts.push(whole);
            }
        }
        let parts = parts.into_iter().map(PartRange::empty).collect();
        Some(KeyRanges { parts })
    }

    /// The encoder of keys that are not packed.
    pub fn converter(&self) -> Result<RowConverter> {
        let field = |(column, options): &(usize, SortOptions)| {
            SortField::new_with_options(self.schema.field(*column).data_type().clone(), *options)
        };
        Ok(RowConverter::new(self.columns.iter().map(field).collect())?)
    }

    /// The encoded keys of a batch.
    pub fn encode(&self, converter: &RowConverter, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|(column, _)| batch.column(*column).clone())
            .collect();
        Ok(converter.convert_columns(&columns)?)
    }
}

/// Returns numbers that compare as the values of a column do. The number of a null has no meaning.
type CodesFn = fn(&dyn Array) -> Vec<u64>;

/// Some bits of the codes of a column.
#[derive(Clone, Copy)]
struct KeyPart {
    column: usize,
    options: SortOptions,
    codes: CodesFn,
    shift: u32,
    mask: u64,
}

/// The range of a part of a key in some rows.
#[derive(Clone, Copy)]
struct PartRange {
    part: KeyPart,
    least: u64,
    largest: u64,
    has_nulls: bool,
}

/// The ranges of the parts of the keys of some rows, the most significant first.
#[derive(Clone)]
pub struct KeyRanges {
    parts: Vec<PartRange>,
}

impl KeyPart {
    /// The codes of a column's rows, without the bits of other parts.
    fn codes(&self, column: &dyn Array) -> Vec<u64> {
        let mut codes = (self.codes)(column);
        if self.shift > 0 || self.mask != u64::MAX {
            for code in &mut codes {
                *code = (*code >> self.shift) & self.mask;
            }
        }
        codes
    }
}

impl PartRange {
    fn empty(part: KeyPart) -> PartRange {
        PartRange {
            part,
            least: u64::MAX,
            largest: 0,
            has_nulls: false,
        }
    }

    /// The range with the rows of a batch added.
    fn with(self, batch: &RecordBatch) -> PartRange {
        let column = batch.column(self.part.column);
        let mut range = self;
        let codes = self.part.codes(column);
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => {
                for code in codes {
                    range.least = range.least.min(code);
                    range.largest = range.largest.max(code);
                }
            }
            Some(nulls) => {
                range.has_nulls = true;
                for row in nulls.valid_indices() {
                    range.least = range.least.min(codes[row]);
                    range.largest = range.largest.max(codes[row]);
                }
            }
        }
        range
    }

    fn union(self, other: &PartRange) -> PartRange {
        PartRange {
            part: self.part,
            least: self.least.min(other.least),
            largest: self.largest.max(other.largest),
            has_nulls: self.has_nulls || other.has_nulls,
        }
    }

    /// The difference between the largest and the least code; zero without values.
    fn extent(&self) -> u64 {
        self.largest.saturating_sub(self.least)
    }

    /// The number of bits of a packed code.
    fn bits(&self) -> u32 {
        let largest = u128::from(self.extent()) + u128::from(self.has_nulls);
        u128::BITS - largest.leading_zeros()
    }

    /// Appends the packed codes of a batch's rows to keys of more significant parts.
    fn append_to(&self, keys: &mut [u128], batch: &RecordBatch) {
        let column = batch.column(self.part.column);
        let codes = self.part.codes(column);
        let bits = self.bits();
        let nulls_first = self.part.options.nulls_first;
        let first = u128::from(self.has_nulls && nulls_first);
        let descending = self.part.options.descending;
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => {
                for (key, code) in keys.iter_mut().zip(codes) {
                    *key = (*key << bits) | (self.offset(code, descending) + first);
                }
            }
            Some(nulls) => {
                let null = if nulls_first {
                    0
                } else {
                    u128::from(self.extent()) + 1
                };
                for ((key, code), is_valid) in keys.iter_mut().zip(codes).zip(nulls) {
                    let packed = if is_valid {
                        self.offset(code, descending) + first
                    } else {
                        null
                    };
                    *key = (*key << bits) | packed;
                }
            }
        }
    }

    /// The position of a code in the range.
    fn offset(&self, code: u64, descending: bool) -> u128 {
        u128::from(if descending {
            self.largest - code
        } else {
            code - self.least
        })
    }
}

impl KeyRanges {
    /// The ranges with the rows of a batch added.
    pub fn with(&self, batch: &RecordBatch) -> KeyRanges {
        let parts = self.parts.iter().map(|part| part.with(batch)).collect();
        KeyRanges { parts }
    }

    /// The ranges of the rows of both. The order of the rows is the same.
    pub fn union(&self, other: &KeyRanges) -> KeyRanges {
        let pairs = self.parts.iter().zip(&other.parts);
        KeyRanges {
            parts: pairs.map(|(part, other)| part.union(other)).collect(),
        }
    }

    /// True if a packed key has no more bits than a number.
    pub fn fit(&self) -> bool {
        self.parts.iter().map(PartRange::bits).sum::<u32>() <= u128::BITS
    }

    /// Adds the packed keys of a batch, whose rows are within the ranges.
    pub fn pack(&self, batch: &RecordBatch, keys: &mut Vec<u128>) {
        let first = keys.len();
        keys.resize(first + batch.num_rows(), 0);
        for part in &self.parts {
            part.append_to(&mut keys[first..], batch);
        }
    }
}

/// The codes of the values of a type; none if its values have no codes.
fn codes_of(data_type: &DataType) -> Option<CodesFn> {
    let codes: CodesFn = match data_type {
        DataType::Boolean => boolean_codes,
        DataType::UInt8 => unsigned_codes::<u8>,
        DataType::UInt16 => unsigned_codes::<u16>,
        DataType::UInt32 => unsigned_codes::<u32>,
        DataType::UInt64 => unsigned_codes::<u64>,
        DataType::Int8 => signed_codes::<i8>,
        DataType::Int16 => signed_codes::<i16>,
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => signed_codes::<i32>,
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(_, _)
        | DataType::Duration(_) => signed_codes::<i64>,
        DataType::Float16 => float_codes::<i16, { i16::MAX as i64 }>,
        DataType::Float32 => float_codes::<i32, { i32::MAX as i64 }>,
        DataType::Float64 => float_codes::<i64, { i64::MAX }>,
        _ => return None,
    };
    Some(codes)
}

fn boolean_codes(column: &dyn Array) -> Vec<u64> {
    column.as_boolean().values().iter().map(u64::from).collect()
}

fn unsigned_codes<T: ArrowNativeType + Into<u64>>(column: &dyn Array) -> Vec<u64> {
    number_codes(column, |value: T| value.into())
}

fn signed_codes<T: ArrowNativeType + Into<i64>>(column: &dyn Array) -> Vec<u64> {
    number_codes(column, |value: T| signed_code(value.into()))
}

/// Codes in the total order of floats, whose bits are read as signed numbers. `MAGNITUDE` has all bits but the sign.
fn float_codes<T: ArrowNativeType + Into<i64>, const MAGNITUDE: i64>(
    column: &dyn Array,
) -> Vec<u64> {
    number_codes(column, |value: T| {
        let bits: i64 = value.into();
        signed_code(bits ^ ((bits >> 63) & MAGNITUDE))
    })
}

fn signed_code(value: i64) -> u64 {
    value as u64 ^ (1 << 63)
}

/// The codes of values that are stored as `T`.
fn number_codes<T: ArrowNativeType>(column: &dyn Array, code: impl Fn(T) -> u64) -> Vec<u64> {
    let data = column.to_data();
    let values = &data.buffer::<T>(0)[..column.len()];
    values.iter().map(|value| code(*value)).collect()
}

/// Makes the keys of batches that are compared with each other.
pub enum KeyMaker {
    Packed(KeyRanges),
    Encoded(SortSpec, RowConverter),
}

/// The keys of a batch's rows.
pub struct BatchKeys {
    numbers: Vec<u128>,
    /// Encoded keys, of which the numbers are the first bytes.
    encoded: Option<Rows>,
}

/// The key of a row. Keys of one maker can be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey<'k> {
    number: u128,
    encoded: Option<Row<'k>>,
}

impl KeyMaker {
    /// Makes packed keys if there are ranges and they fit.
    pub fn new(order: &SortSpec, ranges: Option<KeyRanges>) -> Result<KeyMaker> {
        match ranges {
            Some(ranges) if ranges.fit() => Ok(KeyMaker::Packed(ranges)),
            _ => Ok(KeyMaker::Encoded(order.clone(), order.converter()?)),
        }
    }

    /// The keys of a batch, whose rows are within the ranges.
    pub fn keys(&self, batch: &RecordBatch) -> Result<BatchKeys> {
        let mut numbers = Vec::with_capacity(batch.num_rows());
        let encoded = match self {
            KeyMaker::Packed(ranges) => {
                ranges.pack(batch, &mut numbers);
                None
            }
            KeyMaker::Encoded(order, converter) => {
                let rows = order.encode(converter, batch)?;
                numbers.extend(rows.iter().map(|key| key_number(key, 0)));
                Some(rows)
            }
        };
        Ok(BatchKeys { numbers, encoded })
    }
}

impl BatchKeys {
    /// The key of a row.
    pub fn key(&self, row: usize) -> RowKey<'_> {
        RowKey {
            number: self.numbers[row],
            encoded: self.encoded.as_ref().map(|rows| rows.row(row)),
        }
    }

    /// The numbers of some rows.
    pub fn numbers(&self, rows: Range<usize>) -> &[u128] {
        &self.numbers[rows]
    }

    /// The end of those of some sorted rows whose keys are not above `bound`.
    pub fn end_of_rows(&self, rows: Range<usize>, bound: RowKey<'_>) -> usize {
        let Range {
            start: mut low,
            end: mut high,
        } = rows;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) <= bound {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The bytes of an encoded key from `skipped` on, as a number that compares as the keys do if they share the others.
pub fn key_number(key: Row<'_>, skipped: usize) -> u128 {
    let key = key.data().get(skipped..).unwrap_or_default();
    let mut first = [0; size_of::<u128>()];
    let length = key.len().min(first.len());
    first[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(first)
}

/// The number of leading bytes that all encoded keys share.
pub fn shared_bytes(encoded: &[Rows]) -> usize {
    let mut keys = encoded.iter().flatten();
    let Some(first) = keys.next() else {
        return 0;
    };
    let first = first.data();
    let mut shared = first.len();
    for key in keys {
        let bytes = first.iter().zip(key.data()).take(shared);
        shared = bytes.take_while(|(byte, other)| byte == other).count();
    }
    shared
}

/// Sorts positions of equal numbers, which come in order, by what the numbers leave open.
pub type SortEqualFn<'f> = &'f dyn Fn(&mut [u64]);

/// The positions of numbers in order; equal numbers stay in order of position unless `sort_equal` sorts them.
pub fn sorted_positions(numbers: &[u128], sort_equal: Option<SortEqualFn<'_>>) -> Vec<u64> {
    let mut positions: Vec<u64> = (0..numbers.len() as u64).collect();
    sort_by_number(&mut positions, numbers, sort_equal);
    positions
}

/// Sorts ascending positions by their numbers. Numbers of 64 bits are sorted in their place: a position below as many
/// leading bits as there is room for. Positions with equal leading bits are then sorted by the following ones.
fn sort_by_number(positions: &mut [u64], numbers: &[u128], sort_equal: Option<SortEqualFn<'_>>) {
    if positions.len() <= FEW_POSITIONS {
        sort_few(positions, numbers, sort_equal);
        return;
    }
    let mut least = u128::MAX;
    let mut largest = 0;
    for position in positions.iter() {
        let number = numbers[*position as usize];
        least = least.min(number);
        largest = largest.max(number);
    }
    if least == largest {
        if let Some(sort_equal) = sort_equal {
            sort_equal(positions);
        }
        return;
    }
    let position_bits = usize::BITS - numbers.len().leading_zeros();
    let number_bits = u128::BITS - (largest - least).leading_zeros();
    let dropped_bits = (number_bits + position_bits).saturating_sub(u64::BITS);
    for position in positions.iter_mut() {
        let leading = ((numbers[*position as usize] - least) >> dropped_bits) as u64;
        *position |= leading << position_bits;
    }
    positions.sort_unstable();
    let position_mask = (1_u64 << position_bits) - 1;
    if dropped_bits == 0 && sort_equal.is_none() {
        for position in positions {
            *position &= position_mask;
        }
        return;
    }
    let is_equal = |first: &u64, second: &u64| first >> position_bits == second >> position_bits;
    for group in positions.chunk_by_mut(is_equal) {
        for position in group.iter_mut() {
            *position &= position_mask;
        }
        if group.len() > 1 {
            sort_by_number(group, numbers, sort_equal);
        }
    }
}

/// Sorts ascending positions by comparisons of their numbers.
fn sort_few(positions: &mut [u64], numbers: &[u128], sort_equal: Option<SortEqualFn<'_>>) {
    let number_of = |position: &u64| numbers[*position as usize];
    positions.sort_unstable_by_key(|position| (number_of(position), *position));
    let Some(sort_equal) = sort_equal else {
        return;
    };
    let is_equal = |first: &u64, second: &u64| number_of(first) == number_of(second);
    for group in positions.chunk_by_mut(is_equal) {
        if group.len() > 1 {
            sort_equal(group);
        }
    }
}

/// Sorts positions by the encoded keys of their rows.
pub fn sort_by_encoded<'k>(positions: &mut [u64], key: impl Fn(u64) -> Row<'k>) {
    let mut keyed: Vec<(Row<'k>, u64)> = Vec::with_capacity(positions.len());
    for position in positions.iter() {
        keyed.push((key(*position), *position));
    }
    keyed.sort_unstable();
    for (sorted, (_, position)) in positions.iter_mut().zip(keyed) {
        *sorted = position;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use arrow::array::{Int32Array, Int64Array, UInt64Array};

    use super::*;

    #[test]
    fn positions_of_rows_take_the_bits_of_spans_and_of_rows() {
        let values = [i64::MIN, 0, i64::MAX];
        let days = [i32::MIN, 0, i32::MAX];
        let positions = [0, (1_u64 << ROW_BITS) + 9, (1000_u64 << ROW_BITS) + 511];
        let columns: [(&str, ArrayRef); 3] = [
            ("value", Arc::new(Int64Array::from_iter_values(values))),
            ("day", Arc::new(Int32Array::from_iter_values(days))),
            ("row", Arc::new(UInt64Array::from_iter_values(positions))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let by = [0, 1, 2].map(|column| (column, SortOptions::default()));
        let ranges = SortSpec::new(batch.schema(), &by).empty_ranges().unwrap();
        let ranges = ranges.with(&batch);
        assert!(ranges.fit());
        let mut keys = Vec::new();
        ranges.pack(&batch, &mut keys);
        let position_keys = [0, (1 << 9) + 9, (1000 << 9) + 511];
        for (key, position_key) in keys.iter().zip(position_keys) {
            assert_eq!(key & ((1 << 19) - 1), position_key);
        }
        assert!(keys.is_sorted());
    }

    #[test]
    fn positions_are_sorted_by_all_bits_of_a_key() {
        // Differences in the last bits only, behind more bits than the sorted numbers have room for.
        let key = |row: u128| ((row % 3) << 120) | ((row % 5) << 60) | (row * 7 % 11);
        let keys: Vec<u128> = (0..500).map(key).collect();
        let mut expected: Vec<u64> = (0..500).collect();
        expected.sort_by_key(|position| keys[*position as usize]);
        let equal_groups = Cell::new(0);
        let count_equal = |group: &mut [u64]| {
            assert!(group.is_sorted());
            equal_groups.set(equal_groups.get() + 1);
        };
        assert_eq!(sorted_positions(&keys, None), expected);
        assert_eq!(sorted_positions(&keys, Some(&count_equal)), expected);
        assert_eq!(equal_groups.get(), 3 * 5 * 11);
        assert!(sorted_positions(&[], Some(&count_equal)).is_empty());
    }
}
