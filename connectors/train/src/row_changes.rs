//! Counts of the rows that a training reads: those that it learns from, and values that it fills or changes.

use forebay_feed::{BatchFeatures, LoadCounts, NonFinite};
use forebay_model::{RowChange, RowLedger};
use serde::{Deserialize, Serialize};

/// Rows of a training or of its validation, each counted once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsRead {
    /// Rows that count.
    pub rows: u64,
    /// Rows that were left out and values that were changed.
    pub changes: RowLedger,
}

impl RowsRead {
    /// Rows that count, and the changes of all rows that were read, by `step`.
    pub fn new(
        rows: u64,
        step: &str,
        features: &BatchFeatures,
        counts: &LoadCounts,
        non_finite: NonFinite,
    ) -> RowsRead {
        let mut changes = RowLedger::default();
        match non_finite {
            NonFinite::Fail => {}
            NonFinite::Skip => changes.record(step, RowChange::NotFinite, counts.values.skipped),
            NonFinite::Zero => changes.record(step, RowChange::Zeroed, counts.values.non_finite),
        }
        // A missing category is a category of its own: nothing is filled.
        let dense = features.dense.iter().zip(&counts.filled);
        for (field, count) in dense {
            let column = Some(field.column.as_str());
            changes.record_values(step, column, RowChange::Imputed, *count);
        }
        RowsRead { rows, changes }
    }
}

/// The step by which a ledger calls the validation of a training.
pub fn validation_step(sink: &str) -> String {
    format!("{sink}.validation")
}
