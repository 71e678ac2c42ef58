//! Columns that predict for groups without a model of their own.

use forebay_feed::FeatureField;
use forebay_model::{Fault, Result, codes};
use serde::{Deserialize, Serialize};

use super::config::BoostedOutput;
use super::learn_rows::LearnRows;
use super::loss::weighted_quantile;
use super::table::{RowFeatures, number_index};

/// A column that predicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnFallback {
    /// Index of the column among the numbers of a row.
    pub number: usize,
    /// Offsets to its value: 0 for the point forecast, and a quantile of its errors for each
    /// quantile.
    pub offsets: Vec<f64>,
}

impl ColumnFallback {
    /// A column among the numbers, and its errors over some rows.
    pub(super) fn new(
        column: &str,
        dense: &[FeatureField],
        outputs: &[BoostedOutput],
        rows: &dyn LearnRows,
    ) -> Result<ColumnFallback> {
        let number = number_index(dense, column).ok_or_else(|| {
            let message =
                format!("`fallback` names `{column}`, which is no number that the model takes");
            Fault::new(codes::UNKNOWN_NAME, message)
                .column(column)
                .hint("name it under `dense`, too")
        })?;
        let mut errors = Vec::new();
        rows.for_each_block(&mut |_, block| {
            for row in 0..block.rows() {
                let error = block.labels[row] - block.row(row).dense[number];
                if error.is_finite() {
                    errors.push((error, block.weight(row)));
                }
            }
            Ok(())
        })?;
        let offset = |output: &BoostedOutput| match output.quantile {
            Some(quantile) => weighted_quantile(errors.clone(), quantile),
            None => 0.0,
        };
        Ok(ColumnFallback {
            number,
            offsets: outputs.iter().map(offset).collect(),
        })
    }

    /// The prediction of an output for a row; `None` where the column has no value.
    pub fn predict(&self, output: usize, row: RowFeatures<'_>) -> Option<f32> {
        let value = row
            .dense
            .get(self.number)
            .filter(|value| value.is_finite())?;
        Some((f64::from(*value) + self.offsets.get(output)?) as f32)
    }
}
