//! Columns of whole numbers and times, packed as differences from row to row: Parquet's DELTA_BINARY_PACKED
//! (<https://parquet.apache.org/docs/file-format/data-pages/encodings/>, after Lemire and Boytsov, Decoding billions
//! of integers per second through vectorization, 2015).

use std::ops::Range;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType, Int32Type, Int64Type};
use parquet::basic::{BoundaryOrder, Encoding, Type};
use parquet::errors::Result;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::bits::{encode_varint, pack_bits};
use super::pages::EncodableColumn;

/// Parts of a block, each of which has a width of its own.
const PARTS: usize = 4;

/// A number as Parquet stores it.
pub(super) trait DeltaInteger: ArrowNativeType + Ord {
    const TYPE: Type;

    /// Numbers of a part of a block: as many as it has bits, as in the general writer.
    const PART: usize;

    fn wide(self) -> i64;

    /// Difference from `other`; it may wrap around.
    fn minus(self, other: Self) -> Self;

    /// Bits of the number, as an unsigned number.
    fn bits(self) -> u64;

    fn bytes(self) -> Vec<u8>;

    fn statistics(bounds: Option<(Self, Self)>, nulls: u64) -> Statistics;
}

impl DeltaInteger for i32 {
    const TYPE: Type = Type::INT32;
    const PART: usize = 32;

    fn wide(self) -> i64 {
        self.into()
    }

    fn minus(self, other: i32) -> i32 {
        self.wrapping_sub(other)
    }

    fn bits(self) -> u64 {
        u64::from(self as u32)
    }

    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }

    fn statistics(bounds: Option<(i32, i32)>, nulls: u64) -> Statistics {
        let (min, max) = bounds.unzip();
        Statistics::Int32(ValueStatistics::new(min, max, None, Some(nulls), false))
    }
}

impl DeltaInteger for i64 {
    const TYPE: Type = Type::INT64;
    const PART: usize = 64;

    fn wide(self) -> i64 {
        self
    }

    fn minus(self, other: i64) -> i64 {
        self.wrapping_sub(other)
    }

    fn bits(self) -> u64 {
        self as u64
    }

    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }

    fn statistics(bounds: Option<(i64, i64)>, nulls: u64) -> Statistics {
        let (min, max) = bounds.unzip();
        Statistics::Int64(ValueStatistics::new(min, max, None, Some(nulls), false))
    }
}

/// The rows of a column as numbers.
pub(super) struct DeltaColumn<W> {
    /// Values that are not null.
    values: Vec<W>,
    /// 1 for each row with a value and 0 for each null; `None` without nulls.
    levels: Option<Vec<u32>>,
    /// Values that are encoded.
    taken: usize,
    /// The least and the greatest value of each page, and its nulls.
    pages: Vec<(Option<(W, W)>, usize)>,
}

/// A column of whole numbers of either width.
pub(super) enum AnyDeltaColumn {
    Narrow(DeltaColumn<i32>),
    Wide(DeltaColumn<i64>),
}

/// Numbers of a column; `None` if the order of its type is not that of signed numbers.
pub(super) fn delta_column<'a>(
    arrays: impl Iterator<Item = &'a ArrayRef> + Clone,
) -> Option<AnyDeltaColumn> {
    let physical = match arrays.clone().next()?.data_type() {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Date32
        | DataType::Time32(_) => DataType::Int32,
        DataType::Int64 | DataType::Time64(_) | DataType::Timestamp(..) => DataType::Int64,
        _ => return None,
    };
    // Most have that layout already.
    let arrays = arrays
        .map(|array| cast(array, &physical).ok())
        .collect::<Option<Vec<_>>>()?;
    Some(match physical {
        DataType::Int32 => AnyDeltaColumn::Narrow(DeltaColumn::from_arrays::<Int32Type>(&arrays)?),
        _ => AnyDeltaColumn::Wide(DeltaColumn::from_arrays::<Int64Type>(&arrays)?),
    })
}

impl<W: DeltaInteger> DeltaColumn<W> {
    fn from_arrays<T: ArrowPrimitiveType<Native = W>>(arrays: &[ArrayRef]) -> Option<Self> {
        let rows = arrays.iter().map(|array| array.len()).sum();
        let has_nulls = arrays.iter().any(|array| array.null_count() > 0);
        let mut levels: Option<Vec<u32>> = has_nulls.then(|| Vec::with_capacity(rows));
        let mut values = Vec::with_capacity(rows);
        for array in arrays {
            let array = array.as_primitive_opt::<T>()?;
            match array.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => {
                    values.extend_from_slice(array.values());
                    if let Some(levels) = &mut levels {
                        levels.resize(levels.len() + array.len(), 1);
                    }
                }
                Some(nulls) => {
                    for (value, is_valid) in array.values().iter().zip(nulls) {
                        if is_valid {
                            values.push(*value);
                        }
                    }
                    if let Some(levels) = &mut levels {
                        levels.extend(nulls.iter().map(u32::from));
                    }
                }
            }
        }
        Some(DeltaColumn {
            values,
            levels,
            taken: 0,
            pages: Vec::new(),
        })
    }
}

impl<W: DeltaInteger> EncodableColumn for DeltaColumn<W> {
    const ENCODING: Encoding = Encoding::DELTA_BINARY_PACKED;

    fn count(&self) -> usize {
        self.levels.as_ref().map_or(self.values.len(), Vec::len)
    }

    fn dictionary(&mut self) -> Option<(u32, Vec<u8>)> {
        None
    }

    fn levels(&self, rows: Range<usize>, levels: &mut Vec<u32>) {
        match &self.levels {
            Some(level_values) => levels.extend_from_slice(&level_values[rows]),
            None => levels.resize(rows.len(), 1),
        }
    }

    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) {
        let levels = self.levels.as_ref().map(|levels| &levels[rows.clone()]);
        let present = levels.map_or(rows.len(), |levels| levels.iter().sum::<u32>() as usize);
        let values = &self.values[self.taken..self.taken + present];
        self.taken += present;
        self.pages.push((min_max(values), rows.len() - present));
        encode(values, out);
    }

    fn statistics(&self) -> Statistics {
        W::statistics(
            min_max(&self.values),
            (self.count() - self.values.len()) as u64,
        )
    }

    fn index(self) -> Result<Option<ColumnIndexMetaData>> {
        let mut index = ColumnIndexBuilder::new(W::TYPE);
        let mut is_ascending = true;
        let mut is_descending = true;
        let mut previous: Option<(W, W)> = None;
        for (bounds, nulls) in self.pages {
            let Some((min, max)) = bounds else {
                // A page without any value has no place in the order.
                index.append(true, Vec::new(), Vec::new(), nulls as i64);
                continue;
            };
            index.append(false, min.bytes(), max.bytes(), nulls as i64);
            if let Some((min_before, max_before)) = previous {
                is_ascending &= min_before <= min && max_before <= max;
                is_descending &= min_before >= min && max_before >= max;
            }
            previous = Some((min, max));
        }
        let order = if is_ascending {
            BoundaryOrder::ASCENDING
        } else if is_descending {
            BoundaryOrder::DESCENDING
        } else {
            BoundaryOrder::UNORDERED
        };
        index.set_boundary_order(order);
        index.build().map(Some)
    }
}

/// The least and the greatest.
fn min_max<W: DeltaInteger>(values: &[W]) -> Option<(W, W)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(min, max), value| {
        (min.min(*value), max.max(*value))
    }))
}

/// A header, and blocks of differences: of each the least one, and how much the others are more.
fn encode<W: DeltaInteger>(values: &[W], out: &mut Vec<u8>) {
    let block = W::PART * PARTS;
    for number in [block, PARTS, values.len()] {
        encode_varint(number as u64, out);
    }
    encode_varint(
        zigzag(values.first().copied().unwrap_or_default().wide()),
        out,
    );
    let mut deltas: Vec<W> = Vec::with_capacity(block);
    let mut differences: Vec<u64> = Vec::with_capacity(W::PART);
    for pairs in (0..values.len().saturating_sub(1)).step_by(block) {
        let end = values.len().min(pairs + block + 1);
        deltas.clear();
        deltas.extend(
            values[pairs..end]
                .windows(2)
                .map(|pair| pair[1].minus(pair[0])),
        );
        let least = deltas.iter().copied().min().unwrap_or_default();
        encode_varint(zigzag(least.wide()), out);
        let widths = out.len();
        out.resize(widths + PARTS, 0);
        for (part, deltas) in deltas.chunks(W::PART).enumerate() {
            differences.clear();
            differences.extend(deltas.iter().map(|delta| delta.minus(least).bits()));
            let width = (u64::BITS
                - differences
                    .iter()
                    .fold(0, |bits, difference| bits | difference)
                    .leading_zeros()) as u8;
            // The last part is filled up.
            differences.resize(W::PART, 0);
            out[widths + part] = width;
            pack_bits(&differences, width, out);
        }
    }
}

/// Small numbers of both signs as small numbers.
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, TimestampMicrosecondArray,
        UInt32Array,
    };
    use arrow::compute::concat_batches;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::reader::FileReader;
    use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};

    use super::*;
    use crate::parquet::config::ParquetCompression;
    use crate::parquet::sink::write_row_group;

    /// Numbers below `2^bits`, of both signs; some are as large as can be.
    fn random_numbers(rows: usize, bits: u32, nulls: u64) -> Int64Array {
        let mut state = 7u64 + u64::from(bits);
        let mut random = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 11
        };
        let number = |_| {
            let number = if bits == 0 {
                5
            } else {
                (random() as i64) >> (53 - bits.min(53))
            };
            let number = match random() % 1000 {
                0 if bits >= 31 => i64::from(i32::MIN),
                1 if bits >= 31 => i64::from(i32::MAX),
                0 if bits == 53 => i64::MIN,
                2 if bits == 53 => i64::MAX,
                even if even % 2 == 0 => -number,
                _ => number,
            };
            (nulls == 0 || random() % nulls > 0).then_some(number)
        };
        (0..rows).map(number).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        for rows in [0, 1, 2, 32, 33, 128, 129, 257, 20_001, 45_000] {
            for (bits, nulls) in [
                (0, 0),
                (0, 2),
                (1, 0),
                (6, 7),
                (12, 1),
                (24, 0),
                (25, 0),
                (31, 3),
                (53, 0),
                (53, 5),
            ] {
                let wide = random_numbers(rows, bits, nulls);
                let narrow = |bits: u32| random_numbers(rows, bits.min(31), nulls);
                let to = |array: &Int64Array, of: DataType| cast(array, &of).unwrap();
                let columns: Vec<(&str, ArrayRef, bool)> = vec![
                    (
                        "tiny",
                        to(&random_numbers(rows, bits.min(7), nulls), DataType::Int8),
                        true,
                    ),
                    (
                        "small",
                        to(&random_numbers(rows, bits.min(15), nulls), DataType::Int16),
                        true,
                    ),
                    ("int", to(&narrow(bits), DataType::Int32), true),
                    ("date", to(&narrow(bits), DataType::Int32), true),
                    (
                        "time",
                        Arc::new(wide.iter().collect::<TimestampMicrosecondArray>()),
                        true,
                    ),
                    ("long", Arc::new(wide), true),
                    ("plain", Arc::new(random_numbers(rows, bits, 0)), false),
                ];
                let mut whole = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
                let dates = cast(whole.column(3), &DataType::Date32).unwrap();
                let mut all: Vec<(String, ArrayRef, bool)> = Vec::new();
                for (field, column) in whole.schema().fields().iter().zip(whole.columns()) {
                    let column = if field.name() == "date" {
                        dates.clone()
                    } else {
                        column.clone()
                    };
                    all.push((field.name().clone(), column, field.is_nullable()));
                }
                whole = RecordBatch::try_from_iter_with_nullable(all).unwrap();
                let schema = whole.schema();
                let half = rows / 3;
                let cut = [whole.slice(0, half), whole.slice(half, rows - half)];
                let bytes = write_row_group(&schema, &cut, ParquetCompression::Snappy);
                assert_eq!(
                    bytes,
                    write_row_group(
                        &schema,
                        std::slice::from_ref(&whole),
                        ParquetCompression::Snappy
                    ),
                    "in other batches"
                );
                let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone())
                    .unwrap()
                    .build()
                    .unwrap();
                let read: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
                let read = concat_batches(&whole.schema(), &read).unwrap();
                assert_eq!(read, whole, "{rows} rows of {bits} bits, a null in {nulls}");
                if rows > 0 {
                    assert_same_metadata(
                        &bytes,
                        &write_row_group(
                            &schema,
                            std::slice::from_ref(&whole),
                            ParquetCompression::Lz4,
                        ),
                    );
                }
            }
        }
    }

    /// Compares the metadata of the columns and pages of two files; the general writer wrote the
    /// second one.
    fn assert_same_metadata(own: &bytes::Bytes, other: &bytes::Bytes) {
        let options = || ReadOptionsBuilder::new().with_page_index().build();
        let open = |bytes: &bytes::Bytes| {
            SerializedFileReader::new_with_options(bytes.clone(), options()).unwrap()
        };
        let own = open(own);
        let other = open(other);
        let own = own.metadata();
        let other = other.metadata();
        for (at, (own_column, other_column)) in own
            .row_group(0)
            .columns()
            .iter()
            .zip(other.row_group(0).columns())
            .enumerate()
        {
            assert!(
                own_column
                    .encodings()
                    .any(|of| of == Encoding::DELTA_BINARY_PACKED),
                "column {at}"
            );
            let own_stats = own_column.statistics().unwrap();
            let other_stats = other_column.statistics().unwrap();
            assert_eq!(
                own_stats.min_bytes_opt(),
                other_stats.min_bytes_opt(),
                "column {at}"
            );
            assert_eq!(
                own_stats.max_bytes_opt(),
                other_stats.max_bytes_opt(),
                "column {at}"
            );
            assert_eq!(
                own_stats.null_count_opt(),
                other_stats.null_count_opt(),
                "column {at}"
            );
            assert_eq!(own_column.num_values(), other_column.num_values());
            let index = &own.column_index().unwrap()[0][at];
            let offsets = own.offset_index().unwrap()[0][at].page_locations();
            assert_eq!(index.num_pages() as usize, offsets.len());
            let nulls: i64 = (0..offsets.len())
                .filter_map(|page| index.null_count(page))
                .sum();
            assert_eq!(nulls as u64, own_stats.null_count_opt().unwrap());
        }
    }

    #[test]
    fn others_are_for_the_general_writer() {
        let arrays: [(ArrayRef, bool); 4] = [
            (Arc::new(UInt32Array::from(vec![1, u32::MAX])), false),
            (Arc::new(Int8Array::from(vec![1, -1])), true),
            (Arc::new(Int16Array::from(vec![1, -1])), true),
            (Arc::new(Int32Array::from(vec![1, -1])), true),
        ];
        for (array, is_one) in arrays {
            assert_eq!(
                delta_column([&array].into_iter()).is_some(),
                is_one,
                "{}",
                array.data_type()
            );
        }
    }
}
