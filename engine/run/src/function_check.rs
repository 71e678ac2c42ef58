//! The check that functions of one's own are row-wise: other sizes of batches give the same values.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_plan::StepChange;
use serde::Serialize;

use crate::preview_options::PreviewOptions;
use crate::session::Session;

/// Most rows of a batch, in place of those that the step says.
const BATCH_ROWS: [usize; 2] = [1, 7];

/// A step with a function whose values are the same in batches of any size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedFunction {
    /// The step, such as `features.python`.
    pub step: String,
    /// Rows that were compared.
    pub rows: usize,
}

/// A value that another size of batches changes.
struct BatchDifference {
    column: String,
    row: usize,
    /// The value in batches as the step says.
    value: String,
    other_value: String,
}

impl Session {
    /// Computes the first rows of each step with a function in batches of several sizes. Fails where a value, bit for
    /// bit, depends on the size. `sample_rows` are the rows of each source to compute from.
    pub fn check_functions(
        &self,
        pipeline: &Pipeline,
        sample_rows: u64,
    ) -> Result<Vec<CheckedFunction>> {
        let mut checked = Vec::new();
        for (position, node) in pipeline.nodes.iter().enumerate() {
            for (index, step) in node.steps.iter().enumerate() {
                if !self.registry.facts(step)?.calls_function {
                    continue;
                }
                // Later steps may hide the values.
                let mut head = pipeline.clone();
                head.nodes[position].steps.truncate(index + 1);
                let name = format!("{}.{}", node.name, step.kind);
                let rows = self.first_rows(&head, &node.name, sample_rows)?;
                for batch_rows in BATCH_ROWS {
                    let last_step = &mut head.nodes[position].steps[index];
                    self.registry
                        .change(last_step, &StepChange::BatchRows(batch_rows))?;
                    let other_rows = self.first_rows(&head, &node.name, sample_rows)?;
                    if let Some(difference) = first_difference(&rows, &other_rows) {
                        let fault = difference.fault(&name, batch_rows);
                        return Err(fault.step(name).at(step.at.as_ref()));
                    }
                }
                checked.push(CheckedFunction {
                    step: name,
                    rows: rows.num_rows(),
                });
            }
        }
        Ok(checked)
    }

    fn first_rows(&self, pipeline: &Pipeline, node: &str, sample_rows: u64) -> Result<RecordBatch> {
        let options = PreviewOptions {
            step: Some(node.to_owned()),
            rows: usize::MAX,
            sample_rows,
            ..PreviewOptions::default()
        };
        let preview = self.preview(pipeline, &options)?;
        let schema = match preview.batches.first() {
            Some(batch) => batch.schema(),
            None => Arc::new(Schema::empty()),
        };
        Ok(concat_batches(&schema, &preview.batches)?)
    }
}

/// The first value, column by column, that differs in its bits.
fn first_difference(rows: &RecordBatch, other_rows: &RecordBatch) -> Option<BatchDifference> {
    for (index, field) in rows.schema_ref().fields().iter().enumerate() {
        let column = rows.column(index);
        let other_column = other_rows.column_by_name(field.name())?;
        if column == other_column {
            continue;
        }
        let is_other = |row: &usize| {
            let is_in_both = *row < other_column.len();
            !is_in_both || column.slice(*row, 1) != other_column.slice(*row, 1)
        };
        // Without one, the other rows go on behind the last.
        let row = (0..column.len()).find(is_other).unwrap_or(column.len());
        return Some(BatchDifference {
            column: field.name().clone(),
            row,
            value: value_text(column, row),
            other_value: value_text(other_column, row),
        });
    }
    None
}

fn value_text(column: &dyn Array, row: usize) -> String {
    if row >= column.len() {
        return "no row".to_owned();
    }
    if column.is_null(row) {
        return "null".to_owned();
    }
    array_value_to_string(column, row).unwrap_or_default()
}

impl BatchDifference {
    fn fault(&self, step: &str, batch_rows: usize) -> Fault {
        let BatchDifference {
            column,
            row,
            value,
            other_value,
        } = self;
        let size = if batch_rows == 1 {
            "1 row".to_owned()
        } else {
            format!("{batch_rows} rows")
        };
        let message = format!(
            "`{step}` is not row-wise: in batches of {size}, `{column}` of row {row} is \
             {other_value}, else {value}"
        );
        Fault::new(codes::FUNCTION, message)
            .column(column.as_str())
            .hint(
                "compute each row from its own values, without random numbers and without what \
                 earlier batches left; learn statistics by a step before, such as `standardize`",
            )
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array};

    use super::*;

    fn rows(values: &[Option<f64>]) -> RecordBatch {
        let values: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("y", values, true)]).unwrap()
    }

    #[test]
    fn the_first_value_that_differs_is_named() {
        let nan = Some(f64::NAN);
        let expected = rows(&[Some(1.0), None, nan]);
        assert!(first_difference(&expected, &expected).is_none());
        for (values, row, value, other_value) in [
            (vec![Some(1.0), Some(2.0), nan], 1, "null", "2.0"),
            (vec![Some(1.0), None], 2, "NaN", "no row"),
            (vec![Some(1.0), None, nan, Some(4.0)], 3, "no row", "4.0"),
        ] {
            let difference = first_difference(&expected, &rows(&values)).unwrap();
            assert_eq!(difference.row, row);
            assert_eq!(difference.value, value);
            assert_eq!(difference.other_value, other_value);
        }
    }
}
