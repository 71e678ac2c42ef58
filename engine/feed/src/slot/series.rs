//! Records of sequences: each row with the rows before it in its series.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::{concat_batches, partition};
use bytemuck::cast_slice_mut;
use forebay_model::{Fault, Result, codes};

use super::features::Features;
use super::layout::Layout;
use super::pack::{Columns, Scratch, TILE_ROWS};
use super::packer::Packer;

/// Makes records of the rows of whole blocks.
#[derive(Debug, Clone)]
pub(crate) struct SeriesPacker {
    /// Packs single steps.
    steps: Packer,
    /// How many of them a record has.
    count: usize,
}

/// The steps of a block, packed, and where each row's series begins.
pub(crate) struct Steps {
    records: Vec<u64>,
    starts: Vec<u32>,
}

impl Steps {
    /// Rows of the block, its halo included.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }
}

impl SeriesPacker {
    /// The packer, where the features ask for sequences.
    pub fn new(features: &Features) -> Result<Option<SeriesPacker>> {
        let Some(series) = &features.series else { return Ok(None) };
        let features = Features { series: None, ..features.clone() };
        let layout = Layout::with_mask(&features, 1, true)?;
        Ok(Some(SeriesPacker { count: series.steps as usize, steps: Packer { features, layout } }))
    }

    /// Packs all rows of a block, its halo included.
    pub fn steps(&self, batches: &[RecordBatch], scratch: &mut Scratch) -> Result<Steps> {
        let Some(first) = batches.first() else { return Ok(Steps { records: Vec::new(), starts: Vec::new() }) };
        let block = concat_batches(first.schema_ref(), batches)?;
        if block.num_rows() > u32::MAX as usize {
            return Err(Fault::new(
                codes::LIMIT,
                format!("a block of {} rows is too long for series", block.num_rows()),
            ));
        }
        let columns = Columns::new(&self.steps.features, &block, 0)?;
        let mut starts = Vec::with_capacity(columns.rows);
        let mut series = |rows: Range<usize>| starts.extend(std::iter::repeat_n(rows.start as u32, rows.len()));
        if columns.keys.is_empty() {
            series(0..columns.rows);
        } else {
            partition(&columns.keys)?.ranges().into_iter().for_each(series);
        }
        let words = self.steps.layout.record_bytes / size_of::<u64>();
        let mut records = vec![0; columns.rows * words];
        for (tile, records) in records.chunks_mut(TILE_ROWS * words).enumerate() {
            self.steps.tile(&columns, tile * TILE_ROWS, cast_slice_mut(records), scratch)?;
        }
        Ok(Steps { records, starts })
    }

    /// Writes the record of one row: the steps up to it, after as many empty ones as are missing.
    pub fn record(&self, steps: &Steps, row: usize, layout: &Layout, record: &mut [u8]) {
        let bytes: &[u8] = bytemuck::cast_slice(&steps.records);
        let step = |row: usize| &bytes[row * self.steps.layout.record_bytes..][..self.steps.layout.record_bytes];
        let first = (row + 1).saturating_sub(self.count).max(steps.starts[row] as usize);
        record.fill(0);
        for (part, one) in layout.parts.iter().zip(&self.steps.layout.parts) {
            let Some(offset) = part.record_offset else { continue };
            let to = &mut record[offset..offset + part.row_bytes];
            if part.has_steps() {
                let to = &mut to[(self.count - (row + 1 - first)) * one.row_bytes..];
                for (to, row) in to.chunks_exact_mut(one.row_bytes).zip(first..=row) {
                    to.copy_from_slice(one.of(step(row)));
                }
            } else {
                to.copy_from_slice(one.of(step(row)));
            }
        }
    }
}
