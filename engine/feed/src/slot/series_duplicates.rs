//! Rows of sequences that have the keys and the time of another row.

use arrow::array::{Array, ArrayRef};
use arrow::util::display::array_value_to_string;
use forebay_model::{DuplicateRows, Fault, Result, codes};

use super::cast::PackedColumns;
use super::features::SequenceOptions;

/// Examples that a fault names.
const EXAMPLES_MAX: usize = 3;

/// The rows of a block by series and time, of which some repeat the row before them.
pub(super) struct SeriesDuplicates<'a> {
    pub series: &'a SequenceOptions,
    pub columns: &'a [PackedColumns],
    /// The row at each position.
    pub order: &'a [u32],
    /// For each position, true if its row has the keys and the time of the row before. Empty where nothing is checked.
    pub repeats: &'a [bool],
}

impl SeriesDuplicates<'_> {
    /// Number of delivered rows that repeat a row before them; a fault if they are refused.
    pub fn count(&self, delivered: &[u32]) -> Result<u64> {
        if self.repeats.is_empty() {
            return Ok(0);
        }
        let mut repeated = Vec::new();
        for position in delivered {
            if self.repeats[*position as usize] {
                repeated.push(self.order[*position as usize]);
            }
        }
        if repeated.is_empty() || self.series.duplicates != DuplicateRows::Error {
            return Ok(repeated.len() as u64);
        }
        Err(self.fault(repeated))
    }

    /// The fault for rows that repeat others.
    fn fault(&self, mut repeated: Vec<u32>) -> Fault {
        repeated.sort_unstable();
        let examples: Vec<String> = repeated
            .iter()
            .take(EXAMPLES_MAX)
            .map(|row| self.describe(*row as usize))
            .collect();
        let message = format!(
            "{} rows of a block have the same keys and the same time as a row before them: {}",
            repeated.len(),
            examples.join("; ")
        );
        let hint = format!(
            "a key is missing where `keys: [{}]` does not tell the series apart: name all key \
             columns; `dedupe` copies of a row; or declare `duplicates: allow` (or `warn`) beside \
             `keys` of the source, and rows of one time are steps in the order in which they are \
             read",
            self.series.keys.join(", ")
        );
        let rows = repeated.into_iter().map(u64::from);
        Fault::new(codes::OUT_OF_ORDER, message)
            .rows(rows)
            .hint(hint)
    }

    /// The keys and the time of a row.
    fn describe(&self, row: usize) -> String {
        let mut first = 0;
        for columns in self.columns {
            if row < first + columns.rows {
                let names = self.series.keys.iter().chain(&self.series.time);
                let mut parts = Vec::new();
                for (name, column) in names.zip(&columns.others) {
                    parts.push(format!("{name} {}", value_text(column, row - first)));
                }
                return parts.join(", ");
            }
            first += columns.rows;
        }
        format!("row {row}")
    }
}

/// A key or a time as text.
fn value_text(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "null".to_owned();
    }
    array_value_to_string(column, row).unwrap_or_else(|_| "?".to_owned())
}
