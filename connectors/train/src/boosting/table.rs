//! Rows in memory, row after row.

use forebay_feed::FeatureField;

/// Rows that trees are learned from or predict for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeatureTable {
    /// Numbers per row.
    pub numbers: usize,
    /// Categorical ids per row.
    pub ids: usize,
    /// The numbers, row after row; NaN where one is missing.
    pub dense: Vec<f32>,
    /// The ids, row after row; negative where one is missing.
    pub categories: Vec<i32>,
    /// Label of each row; empty if no training needs them.
    pub labels: Vec<f32>,
    /// Weight of each row; empty where all rows have the same weight.
    pub weights: Vec<f32>,
}

/// The features of one row: numbers first, then ids.
#[derive(Debug, Clone, Copy)]
pub struct RowFeatures<'a> {
    pub dense: &'a [f32],
    pub categories: &'a [i32],
}

/// Index of a column of single numbers among the numbers of a row, or of single ids among its ids.
pub fn number_index(dense: &[FeatureField], column: &str) -> Option<usize> {
    let mut number = 0;
    for field in dense {
        if field.column == column && field.width == 1 {
            return Some(number);
        }
        number += field.width as usize;
    }
    None
}

impl FeatureTable {
    pub fn new(numbers: usize, ids: usize) -> FeatureTable {
        FeatureTable {
            numbers,
            ids,
            ..FeatureTable::default()
        }
    }

    /// Features per row.
    pub fn features(&self) -> usize {
        self.numbers + self.ids
    }

    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    pub fn row(&self, row: usize) -> RowFeatures<'_> {
        RowFeatures {
            dense: &self.dense[row * self.numbers..(row + 1) * self.numbers],
            categories: &self.categories[row * self.ids..(row + 1) * self.ids],
        }
    }

    pub fn weight(&self, row: usize) -> f32 {
        self.weights.get(row).copied().unwrap_or(1.0)
    }

    /// Appends all rows of a table with the same columns.
    pub fn append(&mut self, other: &FeatureTable) {
        self.dense.extend_from_slice(&other.dense);
        self.categories.extend_from_slice(&other.categories);
        self.labels.extend_from_slice(&other.labels);
        self.weights.extend_from_slice(&other.weights);
    }

    /// Appends one row of a table with the same columns.
    pub fn push_row(&mut self, other: &FeatureTable, row: usize) {
        let features = other.row(row);
        self.dense.extend_from_slice(features.dense);
        self.categories.extend_from_slice(features.categories);
        self.labels.push(other.labels[row]);
        self.weights.extend(other.weights.get(row));
    }
}
