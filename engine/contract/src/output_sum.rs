//! The sum of an output's rows.

use forebay_model::{ChangeKind, Result, RowLedger, RowSum};
use serde::Serialize;

/// The sum of an output's rows: `rows_in` + `rows_added` = `rows_out` + `rows_removed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OutputSum {
    /// Rows of the sources that were read for it. Rows that are looked up in another table are not among them.
    pub rows_in: u64,
    /// Rows that steps added.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows_added: u64,
    /// Rows that came out.
    pub rows_out: u64,
    /// Rows that steps removed.
    pub rows_removed: u64,
    /// The steps that removed and added rows, and that changed values, with their reasons.
    #[serde(skip_serializing_if = "RowLedger::is_empty")]
    pub changes: RowLedger,
}

impl OutputSum {
    /// The sum of rows that came out.
    pub fn new(sum: RowSum, rows_out: u64) -> OutputSum {
        OutputSum {
            rows_in: sum.rows_in,
            rows_added: sum.changes.total(ChangeKind::Added),
            rows_out,
            rows_removed: sum.changes.total(ChangeKind::Removed),
            changes: sum.changes,
        }
    }

    /// The sum of rows that went in and their changes.
    pub(crate) fn of_changes(rows_in: u64, changes: &RowLedger) -> Result<OutputSum> {
        let sum = RowSum {
            rows_in,
            changes: changes.clone(),
        };
        let rows_out = sum.rows_out()?;
        Ok(OutputSum::new(sum, rows_out))
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
