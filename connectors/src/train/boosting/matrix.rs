//! The features of all rows as bins, column after column.

use super::bins::FeatureBins;
use super::table::FeatureTable;
use crate::train::parallel::for_each_parallel;

/// One feature of all rows.
#[derive(Debug, Clone)]
pub struct BinnedColumn {
    pub bins: FeatureBins,
    pub values: BinValues,
}

/// A bin per row.
#[derive(Debug, Clone)]
pub enum BinValues {
    /// Bins of features with at most 256 bins.
    Narrow(Vec<u8>),
    Wide(Vec<u16>),
}

/// The features of all rows.
#[derive(Debug, Clone)]
pub struct BinnedMatrix {
    pub columns: Vec<BinnedColumn>,
}

impl BinnedMatrix {
    pub fn new(table: &FeatureTable, threads: usize) -> BinnedMatrix {
        let mut columns: Vec<Option<BinnedColumn>> = vec![None; table.features()];
        for_each_parallel(threads, &mut columns, |feature, column| {
            *column = Some(bin_column(table, feature))
        });
        BinnedMatrix {
            columns: columns.into_iter().flatten().collect(),
        }
    }
}

impl BinValues {
    pub fn get(&self, row: usize) -> u16 {
        match self {
            BinValues::Narrow(values) => u16::from(values[row]),
            BinValues::Wide(values) => values[row],
        }
    }
}

fn bin_column(table: &FeatureTable, feature: usize) -> BinnedColumn {
    let values: Vec<u16>;
    let bins;
    if feature < table.numbers {
        let column = table.dense.iter().skip(feature).step_by(table.numbers);
        bins = FeatureBins::of_numbers(column.clone().copied());
        values = column.map(|value| bins.of_number(*value)).collect();
    } else {
        let ids = table.categories.iter();
        let column = ids.skip(feature - table.numbers).step_by(table.ids);
        bins = FeatureBins::of_categories(column.clone().copied());
        values = column.map(|id| bins.of_category(*id)).collect();
    }
    let values = if bins.count() <= 256 {
        BinValues::Narrow(values.into_iter().map(|bin| bin as u8).collect())
    } else {
        BinValues::Wide(values)
    };
    BinnedColumn { bins, values }
}
