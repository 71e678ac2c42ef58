//! Order: which row a position delivers, as a function of seed, epoch and position alone.
//!
//! A *sequence* is endless: position `p` of epoch `e` is its place `e * epoch_rows + p`. Rank,
//! world size, threads and prefetch determine which places a process delivers, never which row has a place.

mod dataset;
mod epoch;
mod interleave;
mod mixture;
mod permutation;
mod seed;
mod sequence;
mod shuffle_chunk;
mod shuffle_quality;

use forebay_model::{Fault, Result, codes};
use serde::{Deserialize, Serialize};

pub use dataset::{BlockDataset, DatasetBlock};
pub use epoch::EpochOrder;
pub use mixture::DatasetMixture;
pub use permutation::KeyedPermutation;
pub(crate) use seed::splitmix64;
pub use sequence::{RowId, RowSequence};
pub use shuffle_chunk::{ChunkPart, PlacedRun, ShuffleChunk, SliceOrder};
pub use shuffle_quality::{QualityMeter, ShuffleQuality};

/// Rows of a run: rows that follow each other and stay together until the rows of a slice are shuffled.
/// Moved together they cost less, and sixteen values of four bytes are a line of the cache. Longer ones
/// would shuffle less: near each other, rows of one run are delivered more often than by chance.
pub(crate) const RUN_ROWS: u64 = 16;

/// The order of rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleOrder {
    /// Chooses among the shuffles.
    pub seed: u64,
    /// The order of each dataset.
    pub mode: OrderMode,
    /// The shares of several datasets; a single one needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<DatasetMixture>,
}

/// The order of the rows of one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OrderMode {
    /// As the blocks lie, the same in every epoch.
    Sequential,
    /// Blocks in order of their times, which must not overlap; the same in every epoch.
    Time,
    /// Blocks permuted, and rows shuffled through a window; another order in every epoch.
    Shuffled {
        /// Rows that the window holds: part of the order, and thus equal on all machines.
        window_rows: u64,
    },
}

impl SampleOrder {
    /// Rows shuffled through a window of `window_rows`.
    pub fn shuffled(seed: u64, window_rows: u64) -> Self {
        SampleOrder {
            seed,
            mode: OrderMode::Shuffled { window_rows },
            mix: None,
        }
    }

    /// Rows as they lie.
    pub fn sequential() -> Self {
        SampleOrder {
            seed: 0,
            mode: OrderMode::Sequential,
            mix: None,
        }
    }

    /// Rows in order of time.
    pub fn by_time() -> Self {
        SampleOrder {
            seed: 0,
            mode: OrderMode::Time,
            mix: None,
        }
    }

    /// The sequence of these datasets; a fault where they cannot be ordered so.
    pub fn bind(&self, datasets: Vec<BlockDataset>) -> Result<RowSequence> {
        let shares = match &self.mix {
            Some(mix) => mix.shares(&datasets)?,
            None if datasets.len() == 1 => vec![1],
            None => {
                let message = format!("{} datasets have no shares", datasets.len());
                let fault = Fault::new(codes::BAD_VALUE, message);
                return Err(fault.hint("give `mix` with one weight for each dataset"));
            }
        };
        if let OrderMode::Shuffled { window_rows: 0 } = self.mode {
            let fault = Fault::new(codes::BAD_VALUE, "a window of no rows cannot shuffle");
            return Err(fault.hint("raise `window_rows`, or order the rows as `sequential`"));
        }
        RowSequence::new(self.clone(), datasets, shares)
    }
}
