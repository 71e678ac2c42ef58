//! Bins on disk, for rows that do not fit into memory: blocks of rows, column after column within each.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use forebay_model::{Fault, Result, SpillFile};
use forebay_threads::start_scoped;
use hashbrown::HashMap;

use super::bin_blocks::{BinBlock, BinBlocks, BinValues, TakeBins};
use super::bins::{FeatureBins, sampled_row_step};
use super::learn_rows::LearnRows;
use super::training_files::TrainingFiles;
use crate::parallel::for_each_parallel;

/// Blocks that are held at once: one is measured while the next is read.
const BLOCKS_HELD: usize = 2;

/// Bytes of a row that bins may be made of at once. Trees hold as much for each row once they grow
/// (`memory.rs`).
const SAMPLE_ROW_BYTES: usize = 32;

/// Rows of which bins are made.
#[derive(Clone, Copy)]
pub struct BinnedRows<'r> {
    pub table: &'r dyn LearnRows,
    pub numbers: usize,
    pub ids: usize,
    /// Rows of each of the table's blocks but the last.
    pub block_rows: usize,
}

/// Bins of all rows in a file of the run.
pub struct DiskBins<'a> {
    bins: Vec<FeatureBins>,
    rows: usize,
    block_rows: usize,
    file: Arc<dyn SpillFile>,
    files: TrainingFiles<'a>,
}

/// Values of a numeric column at evenly spaced rows.
struct NumberSample {
    values: Vec<f32>,
    bins: Option<FeatureBins>,
}

impl<'a> DiskBins<'a> {
    /// Reads the rows a few times, and writes their bins.
    pub fn new(
        rows: BinnedRows<'_>,
        files: TrainingFiles<'a>,
        threads: usize,
    ) -> Result<DiskBins<'a>> {
        let mut bins = number_bins(rows, threads)?;
        for id in 0..rows.ids {
            bins.push(category_bins(rows, id)?);
        }
        let mut columns = empty_columns(&bins);
        let mut writer = files.scratch.create()?;
        rows.table.for_each_block(&mut |_, block| {
            for_each_parallel(threads, &mut columns, |feature, values| {
                values.fill(&bins[feature], block, feature);
            });
            for values in &columns {
                let written = writer.write_all(values.bytes());
                written.map_err(|error| Fault::disk("bins cannot be written", error))?;
            }
            Ok(())
        })?;
        Ok(DiskBins {
            bins,
            rows: rows.table.rows(),
            block_rows: rows.block_rows,
            file: writer.finish()?,
            files,
        })
    }

    /// Rows of the block that begins with a row.
    fn rows_from(&self, first: usize) -> usize {
        self.block_rows.min(self.rows - first)
    }

    /// Reads all blocks into columns that come back from those who have used them.
    fn read_ahead(
        &self,
        used_columns: Receiver<Vec<BinValues>>,
        blocks: SyncSender<Result<Vec<BinValues>>>,
    ) {
        let mut input = match self.file.read() {
            Ok(input) => input,
            Err(fault) => {
                // Fails if no block is waited for any more.
                let _ = blocks.send(Err(fault));
                return;
            }
        };
        for first in (0..self.rows).step_by(self.block_rows) {
            let Ok(mut columns) = used_columns.recv() else {
                return;
            };
            let rows = self.rows_from(first);
            let mut read = Ok(());
            for values in &mut columns {
                read = read.and_then(|()| input.read_exact(values.bytes_mut(rows)));
            }
            let block = read.map_err(|error| Fault::disk("bins cannot be read", error));
            if blocks.send(block.map(|()| columns)).is_err() {
                return;
            }
        }
    }
}

impl BinBlocks for DiskBins<'_> {
    fn bins(&self) -> &[FeatureBins] {
        &self.bins
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn shares_reads(&self) -> bool {
        true
    }

    /// Reads block after block, the next one while one is taken. Asks between blocks whether to stop.
    fn read(&self, take: &mut TakeBins<'_>) -> Result<()> {
        std::thread::scope(|scope| {
            let (used_sender, used_columns) = channel();
            let (block_sender, blocks) = sync_channel(BLOCKS_HELD);
            for _ in 0..BLOCKS_HELD {
                // The receiver is there.
                let _ = used_sender.send(empty_columns(&self.bins));
            }
            start_scoped(scope, move || self.read_ahead(used_columns, block_sender))?;
            for first in (0..self.rows).step_by(self.block_rows) {
                self.files.stop.check()?;
                let block = blocks.recv();
                let columns = block.map_err(|_| Fault::internal("a read of bins that ended"))??;
                take(BinBlock {
                    first,
                    rows: self.rows_from(first),
                    columns: &columns,
                })?;
                // Fails once all blocks are read.
                let _ = used_sender.send(columns);
            }
            Ok(())
        })
    }
}

/// Columns without values.
fn empty_columns(bins: &[FeatureBins]) -> Vec<BinValues> {
    bins.iter().map(BinValues::new).collect()
}

/// Bins of all columns of numbers, from the same rows as those of a table in memory.
fn number_bins(rows: BinnedRows<'_>, threads: usize) -> Result<Vec<FeatureBins>> {
    let row_count = rows.table.rows();
    let step = sampled_row_step(row_count);
    let sampled_rows = row_count.div_ceil(step);
    let sample_bytes = size_of::<f32>() * sampled_rows;
    let columns_at_once = (SAMPLE_ROW_BYTES * row_count / sample_bytes.max(1)).max(1);
    let mut bins = Vec::with_capacity(rows.numbers + rows.ids);
    for first in (0..rows.numbers).step_by(columns_at_once) {
        let end = (first + columns_at_once).min(rows.numbers);
        let mut samples = Vec::with_capacity(end - first);
        for _ in first..end {
            samples.push(NumberSample {
                values: Vec::with_capacity(sampled_rows),
                bins: None,
            });
        }
        rows.table.for_each_block(&mut |first_row, block| {
            let first_sampled = first_row.next_multiple_of(step);
            for row in (first_sampled..first_row + block.rows()).step_by(step) {
                let numbers = &block.row(row - first_row).dense[first..end];
                for (sample, value) in samples.iter_mut().zip(numbers) {
                    sample.values.push(*value);
                }
            }
            Ok(())
        })?;
        for_each_parallel(threads, &mut samples, |_, sample| {
            let values = std::mem::take(&mut sample.values);
            sample.bins = Some(FeatureBins::of_numbers(values.into_iter()));
        });
        bins.extend(samples.into_iter().filter_map(|sample| sample.bins));
    }
    Ok(bins)
}

/// Bins of one column of ids.
fn category_bins(rows: BinnedRows<'_>, id: usize) -> Result<FeatureBins> {
    let mut counts: HashMap<i32, u32> = HashMap::new();
    rows.table.for_each_block(&mut |_, block| {
        for id in block.categories.iter().skip(id).step_by(block.ids) {
            if *id >= 0 {
                *counts.entry(*id).or_default() += 1;
            }
        }
        Ok(())
    })?;
    let counts = counts.into_iter().map(|(id, count)| (count, id));
    Ok(FeatureBins::of_category_counts(counts.collect()))
}
