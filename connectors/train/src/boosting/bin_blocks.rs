//! Bins of all rows, block after block: trees grow the same way over bins in memory and over bins on disk.

use forebay_model::Result;

use super::bins::FeatureBins;
use super::table::FeatureTable;

/// The bins of consecutive rows.
#[derive(Clone, Copy)]
pub struct BinBlock<'b> {
    /// Number of the first row among all rows.
    pub first: usize,
    pub rows: usize,
    /// For each feature, a bin for each row of the block.
    pub columns: &'b [BinValues],
}

/// Takes blocks of bins in the order of rows.
pub type TakeBins<'t> = dyn FnMut(BinBlock<'_>) -> Result<()> + 't;

/// The bins of all rows.
pub trait BinBlocks: Sync {
    /// The bins of each feature.
    fn bins(&self) -> &[FeatureBins];

    fn rows(&self) -> usize;

    /// True if a read costs more than to divide leaves that may turn out not to be split: all leaves of a level are then
    /// divided in one read.
    fn shares_reads(&self) -> bool;

    /// Reads all rows once, in their order.
    fn read(&self, take: &mut TakeBins<'_>) -> Result<()>;
}

/// A bin per row.
#[derive(Debug, Clone)]
pub enum BinValues {
    /// Bins of features with at most 256 bins.
    Narrow(Vec<u8>),
    Wide(Vec<u16>),
}

impl BinValues {
    /// No values yet, wide enough for these bins.
    pub fn new(bins: &FeatureBins) -> BinValues {
        if bins.count() <= 256 {
            BinValues::Narrow(Vec::new())
        } else {
            BinValues::Wide(Vec::new())
        }
    }

    /// The bins of a feature for all rows of a table.
    pub fn of_table(bins: &FeatureBins, table: &FeatureTable, feature: usize) -> BinValues {
        let mut values = BinValues::new(bins);
        values.fill(bins, table, feature);
        values
    }

    /// Replaces all values by the bins of a table's rows.
    pub fn fill(&mut self, bins: &FeatureBins, table: &FeatureTable, feature: usize) {
        match self {
            BinValues::Narrow(values) => fill_bins(values, bins, table, feature, |bin| bin as u8),
            BinValues::Wide(values) => fill_bins(values, bins, table, feature, |bin| bin),
        }
    }

    pub fn get(&self, row: usize) -> u16 {
        match self {
            BinValues::Narrow(values) => u16::from(values[row]),
            BinValues::Wide(values) => values[row],
        }
    }

    /// The values as they lie in memory.
    pub fn bytes(&self) -> &[u8] {
        match self {
            BinValues::Narrow(values) => values,
            BinValues::Wide(values) => bytemuck::cast_slice(values),
        }
    }

    /// Room for the values of so many rows, as they lie in memory.
    pub fn bytes_mut(&mut self, rows: usize) -> &mut [u8] {
        match self {
            BinValues::Narrow(values) => {
                values.resize(rows, 0);
                values
            }
            BinValues::Wide(values) => {
                values.resize(rows, 0);
                bytemuck::cast_slice_mut(values)
            }
        }
    }
}

fn fill_bins<T>(
    values: &mut Vec<T>,
    bins: &FeatureBins,
    table: &FeatureTable,
    feature: usize,
    to_value: impl Fn(u16) -> T,
) {
    values.clear();
    if feature < table.numbers {
        let column = table.dense.iter().skip(feature).step_by(table.numbers);
        values.extend(column.map(|value| to_value(bins.of_number(*value))));
    } else {
        let ids = table.categories.iter();
        let column = ids.skip(feature - table.numbers).step_by(table.ids);
        values.extend(column.map(|id| to_value(bins.of_category(*id))));
    }
}
