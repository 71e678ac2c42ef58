//! The features of all rows as bins in memory, column after column.

use forebay_model::Result;

use super::bin_blocks::{BinBlock, BinBlocks, BinValues, TakeBins};
use super::bins::FeatureBins;
use super::table::FeatureTable;
use crate::parallel::for_each_parallel;

/// The features of all rows.
#[derive(Debug, Clone)]
pub struct BinnedMatrix {
    rows: usize,
    bins: Vec<FeatureBins>,
    columns: Vec<BinValues>,
}

impl BinnedMatrix {
    pub fn new(table: &FeatureTable, threads: usize) -> BinnedMatrix {
        let mut binned: Vec<Option<(FeatureBins, BinValues)>> = vec![None; table.features()];
        for_each_parallel(threads, &mut binned, |feature, column| {
            let bins = feature_bins(table, feature);
            let values = BinValues::of_table(&bins, table, feature);
            *column = Some((bins, values));
        });
        let (bins, columns) = binned.into_iter().flatten().unzip();
        BinnedMatrix {
            rows: table.rows(),
            bins,
            columns,
        }
    }
}

impl BinBlocks for BinnedMatrix {
    fn bins(&self) -> &[FeatureBins] {
        &self.bins
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn shares_reads(&self) -> bool {
        false
    }

    /// Reads all rows as one block.
    fn read(&self, take: &mut TakeBins<'_>) -> Result<()> {
        take(BinBlock {
            first: 0,
            rows: self.rows,
            columns: &self.columns,
        })
    }
}

fn feature_bins(table: &FeatureTable, feature: usize) -> FeatureBins {
    if feature < table.numbers {
        let column = table.dense.iter().skip(feature).step_by(table.numbers);
        FeatureBins::of_numbers(column.copied())
    } else {
        let ids = table.categories.iter();
        let column = ids.skip(feature - table.numbers).step_by(table.ids);
        FeatureBins::of_categories(column.copied())
    }
}
