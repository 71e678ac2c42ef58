//! Rows to learn from while they are read: they are gathered in memory, or spilled where they do not fit.

use forebay_model::Result;

use super::learn_rows::LearnRows;
use super::partitions::RowShape;
use super::sample::take_sample;
use super::spilled_table::{SpilledTable, TableSpill};
use super::table::FeatureTable;
use super::training_files::TrainingFiles;

/// Rows that are being read.
pub enum RowGathering<'a> {
    Held(FeatureTable),
    Spilling(TableSpill<'a>),
}

/// Rows that are read.
pub enum GatheredRows<'a> {
    Held(FeatureTable),
    Spilled(SpilledTable<'a>),
}

impl<'a> RowGathering<'a> {
    /// Gathers `rows` rows; in files if there are some.
    pub fn new(
        shape: RowShape,
        rows: u64,
        files: Option<TrainingFiles<'a>>,
    ) -> Result<RowGathering<'a>> {
        Ok(match files {
            None => RowGathering::Held(FeatureTable::new(shape.numbers, shape.ids)),
            Some(files) => RowGathering::Spilling(TableSpill::new(shape, rows as usize, files)?),
        })
    }

    /// Appends evenly spaced rows, as [`take_sample`] does. Returns their number.
    pub fn take_sample(
        &mut self,
        rows: &FeatureTable,
        at: (u64, u64),
        sample_rows: Option<u64>,
    ) -> Result<u64> {
        match self {
            RowGathering::Held(table) => {
                let row_count = table.rows();
                take_sample(table, rows, at, sample_rows);
                Ok((table.rows() - row_count) as u64)
            }
            RowGathering::Spilling(spill) => {
                let mut sample = FeatureTable::new(rows.numbers, rows.ids);
                take_sample(&mut sample, rows, at, sample_rows);
                spill.append(&sample)?;
                Ok(sample.rows() as u64)
            }
        }
    }

    pub fn finish(self) -> Result<GatheredRows<'a>> {
        Ok(match self {
            RowGathering::Held(table) => GatheredRows::Held(table),
            RowGathering::Spilling(spill) => GatheredRows::Spilled(spill.finish()?),
        })
    }
}

impl<'a> GatheredRows<'a> {
    pub fn learn(&self) -> &dyn LearnRows {
        match self {
            GatheredRows::Held(table) => table,
            GatheredRows::Spilled(table) => table,
        }
    }

    pub fn labels_mut(&mut self) -> &mut [f32] {
        match self {
            GatheredRows::Held(table) => &mut table.labels,
            GatheredRows::Spilled(table) => table.labels_mut(),
        }
    }

    /// Writes the features of rows in memory to files.
    pub fn spill(self, shape: RowShape, files: TrainingFiles<'a>) -> Result<GatheredRows<'a>> {
        let table = match self {
            GatheredRows::Held(table) => table,
            spilled => return Ok(spilled),
        };
        let mut spill = TableSpill::new(shape, table.rows(), files)?;
        spill.append(&table)?;
        drop(table);
        Ok(GatheredRows::Spilled(spill.finish()?))
    }
}
