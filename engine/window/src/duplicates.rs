//! Rows of a series with equal times: the fault where they are refused.

use arrow::array::Array;
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, codes};
use hashbrown::HashMap;

use crate::WindowPlan;
use crate::input_rows::InputRows;
use crate::output::format_time;

/// Examples that a fault names.
const EXAMPLES_MAX: usize = 3;

/// The rows of a push, with the hash of the keys and the time of each.
pub(crate) struct PushedRows<'a> {
    pub batches: &'a [InputRows<'a>],
    pub hashes: &'a [u128],
    pub times: &'a [i64],
}

impl PushedRows<'_> {
    /// The fault for a push in which `duplicates` rows have the keys and the time of an earlier one. `first` is the first
    /// such row.
    pub fn duplicate_fault(&self, plan: &WindowPlan, first: usize, duplicates: u64) -> Fault {
        // Rows by keys and time, in the order of their first row.
        let mut groups: HashMap<(u128, i64), (usize, u64)> = HashMap::new();
        for (row, key) in self.hashes.iter().zip(self.times).enumerate() {
            let key = (*key.0, *key.1);
            groups.entry(key).or_insert((row, 0)).1 += 1;
        }
        // The row that it repeats may have come with an earlier push.
        let first_key = (self.hashes[first], self.times[first]);
        if let Some(group) = groups.get_mut(&first_key)
            && group.0 == first
        {
            group.1 += 1;
        }
        let mut repeated: Vec<(usize, u64)> = groups.into_values().collect();
        repeated.retain(|(_, rows)| *rows > 1);
        repeated.sort_unstable();
        let examples: Vec<String> = repeated
            .iter()
            .take(EXAMPLES_MAX)
            .map(|(row, rows)| format!("{rows} rows of {}", self.describe(plan, *row)))
            .collect();
        let names: Vec<&str> = plan.duplicates.keys.iter().map(String::as_str).collect();
        let message = format!(
            "{duplicates} rows so far have the same keys and the same time as a row before them: \
             {}",
            examples.join("; ")
        );
        let hint = format!(
            "a key is missing where `keys: [{}]` does not tell the series apart: name all key \
             columns; `dedupe` copies of a row; or declare `duplicates: allow` (or `warn`) \
             beside `keys`, and rows of one time count in the order in which they are read",
            names.join(", ")
        );
        Fault::new(codes::OUT_OF_ORDER, message)
            .rows([first as u64])
            .hint(hint)
    }

    /// The keys and the time of a row.
    fn describe(&self, plan: &WindowPlan, row: usize) -> String {
        let time = format_time(self.times[row], &plan.time);
        let time_name = &plan.duplicates.time;
        let mut first = 0;
        for batch in self.batches {
            if row < first + batch.rows {
                let columns = plan.duplicates.keys.iter().zip(batch.keys);
                let mut parts: Vec<String> = columns
                    .map(|(name, column)| format!("{name} {}", value_text(column, row - first)))
                    .collect();
                parts.push(format!("{time_name} {time}"));
                return parts.join(", ");
            }
            first += batch.rows;
        }
        format!("{time_name} {time}")
    }
}

/// A key as text.
fn value_text(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "null".to_owned();
    }
    array_value_to_string(column, row).unwrap_or_else(|_| "?".to_owned())
}
