//! Batches of rows with their origin and row keys.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use xxhash_rust::xxh3::xxh3_64;

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

    /// Wraps given keys.
    pub fn from_keys(keys: impl IntoIterator<Item = u64>) -> Self {
        RowKeys(keys.into_iter().collect())
    }

    /// The keys.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
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
        }
    }

    /// The batch's schema.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }
}
