//! Batches of rows with their origin and row keys.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use xxhash_rust::xxh3::xxh3_64;

use crate::{UnfitValues, long_value_bytes};

/// Most bytes of values for which the dictionaries of a part of a chunk stand, unless it has one row.
const PART_VALUE_BYTES_MAX: usize = 16 << 20;

/// One 64-bit key per row, a function of the row's file (its path below the source's root) and
/// position alone. Samples chosen by these keys are the same for any batch size, span grouping,
/// order of files and thread count.
#[derive(Debug, Clone)]
pub struct RowKeys(Arc<[u64]>);

impl RowKeys {
    /// Hash seed of a file, from its path below the source's root.
    pub fn file_seed(relative_path: &str) -> u64 {
        xxh3_64(relative_path.as_bytes())
    }

    /// Keys of consecutive rows of a file, beginning at `first_row`.
    pub fn sequence(file_seed: u64, first_row: u64, rows: usize) -> Self {
        RowKeys(
            (0..rows as u64)
                .map(|i| splitmix64(file_seed.wrapping_add(first_row + i)))
                .collect(),
        )
    }

    /// The sum of the file's seed and the row's position in the file, for a key of [`RowKeys::sequence`]. Wraps around.
    pub fn position(key: u64) -> u64 {
        splitmix64_inverse(key)
    }

    /// The key of a position: the inverse of [`RowKeys::position`].
    pub fn of_position(position: u64) -> u64 {
        splitmix64(position)
    }

    /// Wraps given keys.
    pub fn from_keys(keys: impl IntoIterator<Item = u64>) -> Self {
        RowKeys(keys.into_iter().collect())
    }

    /// The keys.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// The keys of some consecutive rows.
    pub fn slice(&self, rows: Range<usize>) -> Self {
        RowKeys(Arc::from(&self.0[rows]))
    }

    /// The keys of the rows that a mask keeps.
    pub fn filter(&self, mask: &BooleanArray) -> Self {
        RowKeys(mask.values().set_indices().map(|row| self.0[row]).collect())
    }

    /// Keys of rows derived from these; `ordinal` distinguishes rows derived from the same row.
    pub fn expand(&self, picks: impl IntoIterator<Item = (usize, u64)>) -> Self {
        RowKeys(
            picks
                .into_iter()
                .map(|(row, ordinal)| {
                    if ordinal == 0 {
                        self.0[row]
                    } else {
                        splitmix64(self.0[row] ^ splitmix64(ordinal))
                    }
                })
                .collect(),
        )
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): a bijection whose output bits all depend on all input bits.
fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number that [`splitmix64`] maps to `x`.
fn splitmix64_inverse(x: u64) -> u64 {
    // The steps of `splitmix64` backwards: the factors are inverses modulo 2^64.
    let x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    let x = x ^ (x >> 30) ^ (x >> 60);
    x.wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

/// A batch with its origin and, if requested, its row keys.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The columns. Strings may be plain, views or dictionaries: see `StringColumn`.
    pub batch: RecordBatch,
    /// Present if the reader was asked for row keys.
    pub keys: Option<RowKeys>,
    /// The file, for faults.
    pub file: Arc<str>,
    /// Position in the file of the first row, for faults.
    pub first_row: u64,
    /// Rows that the source pruned since the previous chunk because they do not meet the scan's conditions. They
    /// count as read and filtered.
    pub skipped: u64,
    /// Values of its rows that the source read as null, since they are not of their column's type.
    pub unfit: Vec<UnfitValues>,
}

impl Chunk {
    /// A batch without a file.
    pub fn of(batch: RecordBatch) -> Self {
        Chunk {
            batch,
            keys: None,
            file: Arc::from("memory"),
            first_row: 0,
            skipped: 0,
            unfit: Vec::new(),
        }
    }

    /// A batch of a source, whose rows come with a request or from several files. Faults name the source.
    pub fn of_source(batch: RecordBatch, source: &str) -> Self {
        let mut chunk = Chunk::of(batch);
        if !source.is_empty() {
            chunk.file = Arc::from(format!("source {source}"));
        }
        chunk
    }

    /// The batch's schema.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    /// The chunk in parts whose dictionaries stand for few bytes of values each, or of one row. A step may write the values
    /// in place of the dictionary, and a column of one text of 10 MB stands for 80 GB in a batch. Parts share the values.
    pub fn divided(self) -> Vec<Chunk> {
        let rows = self.batch.num_rows();
        let columns = self.batch.columns().iter();
        let value_bytes: usize = columns.map(|column| long_value_bytes(column)).sum();
        if value_bytes <= PART_VALUE_BYTES_MAX || rows < 2 {
            return vec![self];
        }
        // Rows may differ in length, so that halves are divided again.
        let middle = rows / 2;
        let mut parts = self.part(0..middle).divided();
        parts.extend(self.part(middle..rows).divided());
        parts
    }

    /// Some consecutive rows. Those that the source left out count with the first one.
    fn part(&self, rows: Range<usize>) -> Chunk {
        let is_first = rows.start == 0;
        Chunk {
            batch: self.batch.slice(rows.start, rows.len()),
            keys: self.keys.as_ref().map(|keys| keys.slice(rows.clone())),
            file: self.file.clone(),
            first_row: self.first_row + rows.start as u64,
            skipped: if is_first { self.skipped } else { 0 },
            unfit: if is_first {
                self.unfit.clone()
            } else {
                Vec::new()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BinaryArray, DictionaryArray, Int64Array};
    use arrow::datatypes::{Int16Type, Int32Type};

    use super::*;

    fn chunk(rows: usize, text_bytes: usize) -> Chunk {
        let text = "x".repeat(text_bytes);
        let texts: DictionaryArray<Int32Type> = vec![text.as_str(); rows].into_iter().collect();
        let numbers: Int64Array = (0..rows as i64).collect();
        let columns: [(&str, ArrayRef); 2] = [("s", Arc::new(texts)), ("n", Arc::new(numbers))];
        Chunk {
            keys: Some(RowKeys::sequence(7, 100, rows)),
            first_row: 100,
            skipped: 5,
            ..Chunk::of(RecordBatch::try_from_iter(columns).unwrap())
        }
    }

    #[test]
    fn chunks_of_long_texts_are_divided() {
        let rows = 100;
        let whole = chunk(rows, 1 << 20);
        let parts = whole.clone().divided();
        // Halves of 100, of 50 and of 25 rows.
        assert_eq!(parts.len(), 8);
        let mut row = 0;
        for (number, part) in parts.iter().enumerate() {
            let part_rows = part.batch.num_rows();
            assert_eq!(part.first_row, 100 + row as u64);
            assert_eq!(part.skipped, if number == 0 { 5 } else { 0 });
            assert_eq!(part.batch, whole.batch.slice(row, part_rows));
            let keys = whole.keys.as_ref().unwrap().slice(row..row + part_rows);
            assert_eq!(part.keys.as_ref().unwrap().as_slice(), keys.as_slice());
            row += part_rows;
        }
        assert_eq!(row, rows);
        // A row is not divided, and neither are many rows of short texts.
        assert_eq!(chunk(1, 20 << 20).divided().len(), 1);
        assert_eq!(chunk(10_000, 100).divided().len(), 1);
    }

    #[test]
    fn chunks_of_long_values_of_any_type_are_divided() {
        let value = vec![7u8; 1 << 20];
        let values: ArrayRef = Arc::new(BinaryArray::from(vec![&value[..]]));
        let keys = vec![0i16; 100];
        let coded = DictionaryArray::<Int16Type>::new(keys.into(), values);
        let columns = [("b", Arc::new(coded) as ArrayRef)];
        let whole = Chunk::of(RecordBatch::try_from_iter(columns).unwrap());
        let parts = whole.divided();
        assert_eq!(parts.len(), 8);
        let rows: usize = parts.iter().map(|part| part.batch.num_rows()).sum();
        assert_eq!(rows, 100);
    }
}
