//! Rows to learn from: in memory, or with their features on disk.

use forebay_model::Result;
use xxhash_rust::xxh3::Xxh3;

use super::bin_blocks::BinBlocks;
use super::matrix::BinnedMatrix;
use super::table::FeatureTable;

/// Takes blocks of rows, each with the number of its first row.
pub type TakeRows<'t> = dyn FnMut(usize, &FeatureTable) -> Result<()> + 't;

/// Rows to learn from. Labels and weights are in memory.
pub trait LearnRows: Sync {
    /// The label of each row.
    fn labels(&self) -> &[f32];

    /// The weight of each row; empty where all rows have the same weight.
    fn weights(&self) -> &[f32];

    /// Features per row.
    fn features(&self) -> usize;

    /// Reads all rows once, block after block in their order.
    fn for_each_block(&self, take: &mut TakeRows<'_>) -> Result<()>;

    /// Hashes all numbers, then all ids, labels and weights.
    fn digest(&self, hasher: &mut Xxh3) -> Result<()>;

    /// The features of all rows as bins.
    fn bin(&self, threads: usize) -> Result<Box<dyn BinBlocks + '_>>;

    fn rows(&self) -> usize {
        self.labels().len()
    }

    fn weight(&self, row: usize) -> f32 {
        self.weights().get(row).copied().unwrap_or(1.0)
    }
}

/// Rows of one model.
#[derive(Clone, Copy)]
pub struct FitRows<'a> {
    pub learn: &'a dyn LearnRows,
    pub validate: &'a FeatureTable,
}

impl LearnRows for FeatureTable {
    fn labels(&self) -> &[f32] {
        &self.labels
    }

    fn weights(&self) -> &[f32] {
        &self.weights
    }

    fn features(&self) -> usize {
        self.numbers + self.ids
    }

    fn for_each_block(&self, take: &mut TakeRows<'_>) -> Result<()> {
        take(0, self)
    }

    fn digest(&self, hasher: &mut Xxh3) -> Result<()> {
        hasher.update(bytemuck::cast_slice(&self.dense));
        hasher.update(bytemuck::cast_slice(&self.categories));
        hasher.update(bytemuck::cast_slice(&self.labels));
        hasher.update(bytemuck::cast_slice(&self.weights));
        Ok(())
    }

    fn bin(&self, threads: usize) -> Result<Box<dyn BinBlocks + '_>> {
        Ok(Box::new(BinnedMatrix::new(self, threads)))
    }
}
