//! Samples of rows: evenly spaced ones of all.

use super::partitions::GroupRows;
use super::table::FeatureTable;

/// Appends evenly spaced rows so that a sample of all rows has `sample_rows` rows. `at` is the
/// number of the first row, and the number of all rows.
pub fn take_sample(
    sample: &mut FeatureTable,
    rows: &FeatureTable,
    at: (u64, u64),
    sample_rows: Option<u64>,
) {
    let (first, rows_total) = at;
    let Some(sample_rows) = sample_rows.filter(|sample_rows| *sample_rows < rows_total) else {
        return sample.append(rows);
    };
    let reached = |row: u64| u128::from(row) * u128::from(sample_rows) / u128::from(rows_total);
    for row in 0..rows.rows() {
        let number = first + row as u64;
        if reached(number + 1) > reached(number) {
            sample.push_row(rows, row);
        }
    }
}

/// The sample of a group's rows, where it has more.
pub fn sample_group(rows: &GroupRows, sample_rows: Option<u64>) -> Option<GroupRows> {
    let rows_max = sample_rows? as usize;
    if rows.learn.rows().max(rows.validate.rows()) <= rows_max {
        return None;
    }
    let sample = |table: &FeatureTable| {
        let mut sample = FeatureTable::new(table.numbers, table.ids);
        take_sample(&mut sample, table, (0, table.rows() as u64), sample_rows);
        sample
    };
    Some(GroupRows {
        learn: sample(&rows.learn),
        validate: sample(&rows.validate),
    })
}
