//! Rows to learn from whose features lie in files of the run, row after row.

use std::io::Read;
use std::sync::Arc;

use bytemuck::Pod;
use forebay_model::{Fault, Result, SpillFile, SpillWriter};
use xxhash_rust::xxh3::Xxh3;

use super::bin_blocks::BinBlocks;
use super::disk_bins::{BinnedRows, DiskBins};
use super::learn_rows::{LearnRows, TakeRows};
use super::partitions::RowShape;
use super::table::FeatureTable;
use super::training_files::TrainingFiles;

/// Bytes of a number or an id.
const VALUE_BYTES: usize = 4;

/// Bytes that are hashed at a time.
const DIGEST_BYTES: usize = 1 << 16;

/// Rows whose features are being written.
pub struct TableSpill<'a> {
    files: TrainingFiles<'a>,
    shape: RowShape,
    dense: Box<dyn SpillWriter>,
    categories: Box<dyn SpillWriter>,
    labels: Vec<f32>,
    weights: Vec<f32>,
}

/// Rows whose features are on disk. The files are removed when it is dropped.
pub struct SpilledTable<'a> {
    files: TrainingFiles<'a>,
    shape: RowShape,
    dense: Arc<dyn SpillFile>,
    categories: Arc<dyn SpillFile>,
    labels: Vec<f32>,
    weights: Vec<f32>,
}

impl<'a> TableSpill<'a> {
    /// A spill of `rows` rows.
    pub fn new(shape: RowShape, rows: usize, files: TrainingFiles<'a>) -> Result<TableSpill<'a>> {
        let dense = files.scratch.create()?;
        let categories = files.scratch.create()?;
        let weights = if shape.weighted { rows } else { 0 };
        Ok(TableSpill {
            files,
            shape,
            dense,
            categories,
            labels: Vec::with_capacity(rows),
            weights: Vec::with_capacity(weights),
        })
    }

    /// Appends all rows of a table.
    pub fn append(&mut self, table: &FeatureTable) -> Result<()> {
        write_values(self.dense.as_mut(), &table.dense)?;
        write_values(self.categories.as_mut(), &table.categories)?;
        self.labels.extend_from_slice(&table.labels);
        self.weights.extend_from_slice(&table.weights);
        Ok(())
    }

    pub fn finish(self) -> Result<SpilledTable<'a>> {
        Ok(SpilledTable {
            files: self.files,
            shape: self.shape,
            dense: self.dense.finish()?,
            categories: self.categories.finish()?,
            labels: self.labels,
            weights: self.weights,
        })
    }
}

impl SpilledTable<'_> {
    pub fn labels_mut(&mut self) -> &mut [f32] {
        &mut self.labels
    }

    /// Rows of a block.
    fn block_rows(&self) -> usize {
        let row_bytes = VALUE_BYTES * self.features();
        let rows = self.files.block_bytes as usize / row_bytes.max(1);
        rows.clamp(1, self.labels.len().max(1))
    }
}

impl LearnRows for SpilledTable<'_> {
    fn labels(&self) -> &[f32] {
        &self.labels
    }

    fn weights(&self) -> &[f32] {
        &self.weights
    }

    fn features(&self) -> usize {
        self.shape.numbers + self.shape.ids
    }

    fn for_each_block(&self, take: &mut TakeRows<'_>) -> Result<()> {
        let mut dense = self.dense.read()?;
        let mut categories = self.categories.read()?;
        let mut block = FeatureTable::new(self.shape.numbers, self.shape.ids);
        let block_rows = self.block_rows();
        let row_count = self.labels.len();
        for first in (0..row_count).step_by(block_rows) {
            self.files.stop.check()?;
            let end = (first + block_rows).min(row_count);
            let rows = end - first;
            read_values(dense.as_mut(), &mut block.dense, rows * block.numbers)?;
            read_values(categories.as_mut(), &mut block.categories, rows * block.ids)?;
            block.labels.clear();
            block.labels.extend_from_slice(&self.labels[first..end]);
            block.weights.clear();
            let weights = self.weights.get(first..end).unwrap_or_default();
            block.weights.extend_from_slice(weights);
            take(first, &block)?;
        }
        Ok(())
    }

    fn digest(&self, hasher: &mut Xxh3) -> Result<()> {
        let mut buffer = vec![0; DIGEST_BYTES];
        for file in [&self.dense, &self.categories] {
            let mut input = file.read()?;
            loop {
                self.files.stop.check()?;
                let bytes = input.read(&mut buffer).map_err(unreadable)?;
                if bytes == 0 {
                    break;
                }
                hasher.update(&buffer[..bytes]);
            }
        }
        hasher.update(bytemuck::cast_slice(&self.labels));
        hasher.update(bytemuck::cast_slice(&self.weights));
        Ok(())
    }

    fn bin(&self, threads: usize) -> Result<Box<dyn BinBlocks + '_>> {
        let rows = BinnedRows {
            table: self,
            numbers: self.shape.numbers,
            ids: self.shape.ids,
            block_rows: self.block_rows(),
        };
        Ok(Box::new(DiskBins::new(rows, self.files.clone(), threads)?))
    }
}

fn write_values<T: Pod>(file: &mut dyn SpillWriter, values: &[T]) -> Result<()> {
    let written = file.write_all(bytemuck::cast_slice(values));
    written.map_err(|error| Fault::disk("rows to learn from cannot be written", error))
}

fn read_values<T: Pod>(file: &mut dyn Read, values: &mut Vec<T>, count: usize) -> Result<()> {
    values.resize(count, T::zeroed());
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(values.as_mut_slice());
    file.read_exact(bytes).map_err(unreadable)
}

fn unreadable(error: std::io::Error) -> Fault {
    Fault::disk("rows to learn from cannot be read", error)
}
