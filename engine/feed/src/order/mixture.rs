//! Weighted mixing of several datasets.
//!
//! A *cycle* has one turn for each unit of weight, in an order that is permuted per cycle. So the
//! shares are exact in every cycle, and the row of a turn is arithmetic: the dataset's place is
//! its turns in all cycles before, and its turn within this one. A dataset that ends begins its
//! next epoch.

use forebay_model::{Fault, Result, codes};
use serde::{Deserialize, Serialize};

use super::BlockDataset;

/// Datasets mixed at most: their shares must fit into a cursor.
pub const DATASETS_MAX: usize = 256;

/// Turns of a cycle at most: a batch may need that many rows of a dataset out of order.
const TURNS_MAX: u64 = 1 << 16;

/// Shares of datasets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetMixture {
    /// One weight for each dataset: `[3, 1]` takes three rows of the first for one of the second.
    pub weights: Vec<u32>,
    /// Rows of an epoch; without it, as many as deliver every row of every dataset at least once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_rows: Option<u64>,
}

impl DatasetMixture {
    /// The weights divided by their greatest common divisor.
    pub(super) fn shares(&self, datasets: &[BlockDataset]) -> Result<Vec<u64>> {
        if self.weights.len() != datasets.len() || datasets.len() > DATASETS_MAX {
            let message = format!(
                "{} weights for {} datasets, of at most {DATASETS_MAX}",
                self.weights.len(),
                datasets.len()
            );
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        if let Some(number) = self.weights.iter().position(|&weight| weight == 0) {
            let message = format!("dataset {number} has no weight");
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        if let Some(number) = datasets.iter().position(|dataset| dataset.rows() == 0) {
            let message = format!("dataset {number} has no rows to mix");
            return Err(Fault::new(codes::EMPTY, message));
        }
        let mut divisor = 0;
        for weight in &self.weights {
            divisor = common_divisor(divisor, u64::from(*weight));
        }
        let mut shares = Vec::with_capacity(self.weights.len());
        for weight in &self.weights {
            shares.push(u64::from(*weight) / divisor.max(1));
        }
        if shares.iter().sum::<u64>() > TURNS_MAX {
            let message = format!(
                "the weights {:?} need cycles of more than {TURNS_MAX} turns",
                self.weights
            );
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        Ok(shares)
    }

    /// Rows of an epoch: whole cycles.
    pub(super) fn rows(&self, datasets: &[BlockDataset], shares: &[u64]) -> u64 {
        let turns: u64 = shares.iter().sum();
        if let Some(rows) = self.epoch_rows {
            return rows.div_ceil(turns) * turns;
        }
        // As many cycles as the dataset needs that has the most rows for its share.
        let mut cycles = 0;
        for (dataset, share) in datasets.iter().zip(shares) {
            cycles = cycles.max(dataset.rows().div_ceil(*share));
        }
        cycles * turns
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
