//! Records of sequences: each row with the rows before it in its series.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::{concat_batches, partition};
use forebay_model::{Fault, Result, codes};

use super::features::Features;
use super::layout::Layout;
use super::pack::{Columns, Found};

/// Makes records of the rows of whole blocks.
#[derive(Debug, Clone)]
pub(crate) struct SeriesPacker {
    /// Single steps.
    features: Features,
    layout: Layout,
    /// How many of them a record has.
    count: usize,
}

/// The rows of a block, and where each row's series begins.
pub(crate) struct Steps {
    columns: Option<Columns>,
    starts: Vec<u32>,
}

impl Steps {
    /// Rows of the block, its halo included.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// What was found in them.
    pub fn found(&self) -> Found {
        self.columns.as_ref().map_or_else(Found::default, |columns| columns.found)
    }
}

impl SeriesPacker {
    /// The packer, where the features ask for sequences.
    pub fn new(features: &Features) -> Result<Option<SeriesPacker>> {
        let Some(series) = &features.series else { return Ok(None) };
        let features = Features { series: None, ..features.clone() };
        let layout = Layout::with_mask(&features, 1, true)?;
        Ok(Some(SeriesPacker { count: series.steps as usize, features, layout }))
    }

    /// Packs all rows of a block, its halo included.
    pub fn steps(&self, batches: &[RecordBatch]) -> Result<Steps> {
        let Some(first) = batches.first() else { return Ok(Steps { columns: None, starts: Vec::new() }) };
        let block = concat_batches(first.schema_ref(), batches)?;
        if block.num_rows() > u32::MAX as usize {
            return Err(Fault::new(
                codes::LIMIT,
                format!("a block of {} rows is too long for series", block.num_rows()),
            ));
        }
        let columns = Columns::new(&self.features, &self.layout, &block, 0)?;
        let mut starts = Vec::with_capacity(columns.rows);
        let mut series = |rows: Range<usize>| starts.extend(std::iter::repeat_n(rows.start as u32, rows.len()));
        if columns.keys.is_empty() {
            series(0..columns.rows);
        } else {
            partition(&columns.keys)?.ranges().into_iter().for_each(series);
        }
        Ok(Steps { columns: Some(columns), starts })
    }

    /// Writes the record of one row: the steps up to it, after as many empty ones as are missing.
    pub fn record(&self, steps: &Steps, row: usize, layout: &Layout, record: &mut [u8]) {
        let Some(columns) = &steps.columns else { return };
        let first = (row + 1).saturating_sub(self.count).max(steps.starts[row] as usize);
        record.fill(0);
        for ((part, one), columns) in layout.parts.iter().zip(&self.layout.parts).zip(&columns.parts) {
            let Some(offset) = part.record_offset else { continue };
            let record = &mut record[offset..offset + part.row_bytes];
            let rows = if part.has_steps() { first..row + 1 } else { row..row + 1 };
            let empty = record.len() / one.row_bytes - rows.len();
            let mut column = 0;
            for values in columns {
                let bytes = values.width * one.data_type.bytes();
                let steps = record.chunks_exact_mut(one.row_bytes).skip(empty);
                let values = values.bytes[rows.start * bytes..].chunks_exact(bytes);
                steps.zip(values).for_each(|(step, value)| step[column..column + bytes].copy_from_slice(value));
                column += bytes;
            }
        }
    }
}
