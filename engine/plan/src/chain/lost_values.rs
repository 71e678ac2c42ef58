//! Values that an operation loses: numbers that are no longer finite, values that its code, or a `try_cast`, returns as
//! null, and results of windows that are not defined.
//!
//! The chain counts them for every operation, so that no transform has to.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use forebay_model::{RowChange, count_not_finite, not_finite_rows};
use forebay_window::{WindowOutput, count_undefined};

use crate::hidden_columns::is_hidden;
use crate::{MapOp, SeriesOp, WindowOp, WrittenNulls};

/// A written column whose lost values are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct LostValues {
    /// The reason in the ledger of rows.
    pub change: RowChange,
    /// Index among the columns that the operation writes.
    pub output: usize,
}

impl LostValues {
    /// The counts of an operation. Joins count the rows that find no other row.
    pub fn of_map(map: &MapOp) -> Vec<LostValues> {
        if map.finds_rows || map.met.is_some() {
            return Vec::new();
        }
        let mut counts = Vec::new();
        for (output, field) in map.writes.iter().enumerate() {
            if is_hidden(field.name()) {
                continue;
            }
            if matches!(field.data_type(), DataType::Float32 | DataType::Float64) {
                let change = RowChange::MadeNotFinite;
                counts.push(LostValues { change, output });
            }
            if map.code.is_some() || tries_casts(map) {
                let change = RowChange::Nulled;
                counts.push(LostValues { change, output });
            }
        }
        counts
    }

    /// The counts of a window: the infinities that it computes, and its results of enough values that are not defined.
    /// An infinity among the values of a window takes the results of finite ones with it: it counts, too.
    pub fn of_window(window: &WindowOp) -> Vec<LostValues> {
        let mut counts = Vec::new();
        let outputs = window.plan.functions.iter().zip(&window.writes);
        for (output, (function, field)) in outputs.enumerate() {
            if is_hidden(field.name()) {
                continue;
            }
            let input = window.plan.inputs.get(function.input);
            let input = input.map(|input| &input.data_type);
            // Computed numbers may leave the range of the type.
            if function.compute.computes_numbers() || is_narrowed(function, input) {
                for change in [RowChange::MadeNotFinite, RowChange::Nulled] {
                    counts.push(LostValues { change, output });
                }
            }
        }
        counts
    }

    /// The counts of a function of series: the numbers that it returns which are not finite.
    pub fn of_series(series: &SeriesOp) -> Vec<LostValues> {
        let mut counts = Vec::new();
        for (output, field) in series.writes.iter().enumerate() {
            if matches!(field.data_type(), DataType::Float32 | DataType::Float64) {
                let change = RowChange::MadeNotFinite;
                counts.push(LostValues { change, output });
            }
        }
        counts
    }

    /// The number of lost values in a chunk of the output of an operation over series.
    pub fn count_in_window(self, output: &ArrayRef) -> u64 {
        match self.change {
            RowChange::Nulled => count_undefined(output),
            _ => count_not_finite(output),
        }
    }

    /// The number of lost values of a chunk.
    pub fn count(self, inputs: &[ArrayRef], outputs: &[ArrayRef]) -> u64 {
        let Some(output) = outputs.get(self.output) else {
            return 0;
        };
        let rows = match self.change {
            RowChange::Nulled => made_null(inputs, output),
            _ => made_not_finite(inputs, output),
        };
        rows.map_or(0, |rows| rows.count_set_bits() as u64)
    }
}

/// True for an output in single precision of values that are not: those that are too large become infinite.
fn is_narrowed(function: &WindowOutput, input: Option<&DataType>) -> bool {
    function.data_type == DataType::Float32 && input != Some(&DataType::Float32)
}

/// True for an expression that is null only where a column is, or where a `try_cast` in it does not succeed.
fn tries_casts(map: &MapOp) -> bool {
    match &map.nulls {
        WrittenNulls::Computed(nulls) => nulls.tried.are_in_column,
        _ => false,
    }
}

/// The texts of the casts that count their nulls: those in functions, of whose nulls a column may have none.
pub(super) fn counted_casts(map: &MapOp) -> Option<String> {
    let WrittenNulls::Computed(nulls) = &map.nulls else {
        return None;
    };
    let tried = &nulls.tried;
    let count_themselves = !tried.are_in_column && !tried.texts.is_empty();
    count_themselves.then(|| tried.texts.join(", "))
}

/// Rows in which a column is null and no input is.
fn made_null(inputs: &[ArrayRef], output: &ArrayRef) -> Option<BooleanBuffer> {
    let nulls = output.logical_nulls()?;
    let mut rows = !nulls.inner();
    for input in inputs {
        if let Some(nulls) = input.logical_nulls() {
            rows = &rows & nulls.inner();
        }
    }
    Some(rows)
}

/// Rows in which a column is NaN or infinite, although an input is a number and all numbers are
/// finite.
fn made_not_finite(inputs: &[ArrayRef], output: &ArrayRef) -> Option<BooleanBuffer> {
    let mut rows = not_finite_rows(output)?;
    let mut with_number = BooleanBuffer::new_unset(output.len());
    for input in inputs {
        if !input.data_type().is_numeric() {
            continue;
        }
        if let Some(strange) = not_finite_rows(input) {
            rows = &rows & &!&strange;
        }
        with_number = match input.nulls() {
            Some(nulls) => &with_number | nulls.inner(),
            None => BooleanBuffer::new_set(output.len()),
        };
    }
    Some(&rows & &with_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};

    #[test]
    fn values_are_lost_where_all_inputs_have_some() {
        let x: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(1.0),
            Some(f64::NAN),
            None,
            Some(0.0),
        ]));
        let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), None]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
        let strange: ArrayRef = Arc::new(Float64Array::from(vec![f64::INFINITY; 4]));
        let nulls: ArrayRef = Arc::new(Float64Array::from(vec![None::<f64>; 4]));
        let finite: ArrayRef = Arc::new(Float64Array::from(vec![0.5; 4]));
        let cases: [(&[&ArrayRef], &ArrayRef, RowChange, u64); 8] = [
            (&[&x], &strange, RowChange::MadeNotFinite, 2),
            (&[&x, &n], &strange, RowChange::MadeNotFinite, 3),
            // A text is no number that could be lost.
            (&[&text], &strange, RowChange::MadeNotFinite, 0),
            (&[&x], &finite, RowChange::MadeNotFinite, 0),
            (&[&x], &nulls, RowChange::MadeNotFinite, 0),
            (&[&x], &nulls, RowChange::Nulled, 3),
            (&[&x, &n, &text], &nulls, RowChange::Nulled, 2),
            (&[&x], &finite, RowChange::Nulled, 0),
        ];
        for (inputs, output, change, expected) in cases {
            let inputs: Vec<ArrayRef> = inputs.iter().map(|input| (*input).clone()).collect();
            let lost = LostValues { change, output: 0 };
            let count = lost.count(&inputs, std::slice::from_ref(output));
            assert_eq!(count, expected, "{change:?} of {inputs:?}");
        }
    }
}
