//! Batches on their way, and the identity of their rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use xxhash_rust::xxh3::xxh3_64;

/// One 64-bit key per row, a function of the row's file (its path below the source's root) and
/// position alone. Samples chosen by these keys are the same for any batch size, span grouping,
/// order of files and thread count.
#[derive(Debug, Clone)]
pub struct RowKeys(Arc<[u64]>);

impl RowKeys {
    /// The seed of a file: its path below the source's root.
    pub fn file_seed(relative_path: &str) -> u64 {
        xxh3_64(relative_path.as_bytes())
    }

    /// Keys of consecutive rows of a file, beginning at `first_row`.
    pub fn sequence(file_seed: u64, first_row: u64, rows: usize) -> Self {
        RowKeys((0..rows as u64).map(|i| mix(file_seed.wrapping_add(first_row + i))).collect())
    }

    /// Keys given one by one.
    pub fn from_keys(keys: impl IntoIterator<Item = u64>) -> Self {
        RowKeys(keys.into_iter().collect())
    }

    /// The keys.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// Keys of rows taken from these, `ordinal` telling apart rows that come from the same one.
    pub fn expand(&self, picks: impl IntoIterator<Item = (usize, u64)>) -> Self {
        RowKeys(
            picks
                .into_iter()
                .map(|(row, ordinal)| if ordinal == 0 { self.0[row] } else { mix(self.0[row] ^ mix(ordinal)) })
                .collect(),
        )
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): a bijection whose output bits all depend on all input bits.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A batch, where it comes from, and its row keys where somebody asked for them.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The columns. Strings may be plain, views or dictionaries: see [`crate::Strings`].
    pub batch: RecordBatch,
    /// Present when the reader was asked for them.
    pub keys: Option<RowKeys>,
    /// The file, for faults.
    pub file: Arc<str>,
    /// Position in the file of the first row, for faults.
    pub first_row: u64,
    /// Rows that the source left out since the chunk before: none of them meets the conditions of the scan.
    /// They count as read and filtered.
    pub skipped: u64,
}

impl Chunk {
    /// A batch that comes from memory.
    pub fn of(batch: RecordBatch) -> Self {
        Chunk { batch, keys: None, file: Arc::from("memory"), first_row: 0, skipped: 0 }
    }

    /// The batch's schema.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }
}
