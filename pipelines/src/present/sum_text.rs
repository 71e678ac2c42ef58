//! Sums of an output's rows, and the values that changed.

use forebay_contract::OutputSum;
use forebay_model::{ChangeKind, LedgerEntry, ValueExample};

use super::units;

/// Sum of an output's rows, and the changes of values; empty if all rows are output unchanged.
pub(crate) fn sum_text(sum: &OutputSum) -> String {
    let mut text = String::new();
    let entries = sum.changes.entries();
    if entries
        .iter()
        .any(|entry| entry.change.kind() != ChangeKind::Values)
    {
        text += &format!("  {} in", units::rows(sum.rows_in));
        for entry in entries {
            let sign = match entry.change.kind() {
                ChangeKind::Added => '+',
                ChangeKind::Removed => '-',
                ChangeKind::Values => continue,
            };
            text += &format!(" {sign} {}", entry_text(entry));
        }
        text += &format!(" = {} out\n", units::grouped(sum.rows_out));
    }
    for explanation in entries
        .iter()
        .filter_map(|entry| entry.change.explanation())
    {
        text += &format!("  {explanation}\n");
    }
    text + &values_text(sum)
}

/// The changes of values of an output.
pub(super) fn values_text(sum: &OutputSum) -> String {
    let mut text = String::new();
    for entry in sum.changes.entries() {
        if entry.change.kind() == ChangeKind::Values {
            let column = entry.column.as_deref();
            let column = column.map_or_else(String::new, |column| format!("`{column}`: "));
            text += &format!("  {column}{}\n", entry_text(entry));
        }
    }
    text
}

/// The number of rows or values of an entry, the reason, and the step.
fn entry_text(entry: &LedgerEntry) -> String {
    let step = match entry.step.as_str() {
        "" => String::new(),
        step => format!(" ({step})"),
    };
    let count = units::grouped(entry.count);
    let examples = examples_text(&entry.examples);
    format!("{count} {}{step}{examples}", entry.change.words())
}

/// The first values of an entry, with their places.
fn examples_text(examples: &[ValueExample]) -> String {
    if examples.is_empty() {
        return String::new();
    }
    let example = |example: &ValueExample| {
        let ValueExample { file, row, value } = example;
        format!("`{}` in row {row} of {file}", value.escape_debug())
    };
    let examples: Vec<String> = examples.iter().map(example).collect();
    format!(", such as {}", examples.join(", "))
}
