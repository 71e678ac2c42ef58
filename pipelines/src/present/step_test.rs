//! The outcomes of tests of steps, as text.

use std::fmt::Write;

use arrow::array::RecordBatch;
use forebay_model::Result;

use super::rows;
use crate::step_test::{StepTest, TestOutcome};

/// Maximum number of a step's rows that are shown with the differences.
const ROWS_SHOWN_MAX: usize = 10;

/// A line for a test that passed; else its differences and the rows of the step.
pub(crate) fn text(test: &StepTest, outcome: &TestOutcome) -> Result<String> {
    if outcome.differences.is_empty() {
        return Ok(format!("ok    {}\n", test.name));
    }
    let mut text = format!("FAIL  {} (step `{}`)\n", test.name, test.step);
    for difference in outcome.differences.iter() {
        let _ = writeln!(text, "      {difference}");
    }
    let batches = first_rows(&outcome.rows);
    if batches.iter().any(|batch| batch.num_rows() > 0) {
        text += "      rows of the step:\n";
        for line in rows::table(&batches)?.lines() {
            let _ = writeln!(text, "        {line}");
        }
    }
    Ok(text)
}

/// `3 tests, 1 failed`.
pub(crate) fn summary(tests: usize, failed: usize) -> String {
    let failed = if failed == 0 {
        "all passed".to_owned()
    } else {
        format!("{failed} failed")
    };
    format!(
        "{tests} {}, {failed}\n",
        if tests == 1 { "test" } else { "tests" }
    )
}

fn first_rows(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let mut rows_left = ROWS_SHOWN_MAX;
    let first = batches.iter().map(|batch| {
        let batch = batch.slice(0, batch.num_rows().min(rows_left));
        rows_left -= batch.num_rows();
        batch
    });
    first.filter(|batch| batch.num_rows() > 0).collect()
}
