//! Folds of rows by a hash of columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::{BindScope, MapOp, PlanOp};

use super::super::cross::hash_columns;
use crate::shared::bad_value;

/// The column of folds, which the step hides again.
pub(super) const FOLD: &str = "__fold";

/// The columns that divide rows into folds: those that are named, or the keys and the time of the source.
pub(super) fn fold_columns(
    scope: &BindScope<'_>,
    fold_by: Option<&[String]>,
    label: &String,
) -> Result<Vec<String>> {
    let columns: Vec<String> = match fold_by {
        Some(columns) => columns.to_vec(),
        None => {
            let keys = scope.series.keys.iter().flatten();
            keys.chain(&scope.series.time).cloned().collect()
        }
    };
    if columns.is_empty() {
        let message = "`target_encoding` needs columns that divide rows into folds";
        let hint = "set `fold_by` to columns that identify a row or a user, or declare `keys` and \
                    `time` at the source";
        return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
    }
    if columns.contains(label) {
        let message = "`fold_by` holds the label, which folds would reveal";
        return Err(bad_value(message).column(label));
    }
    for column in &columns {
        let field = scope.field(column)?;
        if field.data_type().is_nested() {
            let words = type_words(field.data_type());
            let message = format!("`{column}` is {words}, which cannot divide rows into folds");
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(column));
        }
    }
    Ok(columns)
}

/// Writes the fold of each row, by a hash of columns.
pub(super) fn fold_op(columns: &[String], folds: u32) -> PlanOp {
    let output = Field::new(FOLD, DataType::Int64, false);
    PlanOp::Map(MapOp::new(columns, [output], move |inputs, rows| {
        let mut outputs: Vec<ArrayRef> = Vec::new();
        for hashed in hash_columns(inputs, rows, u64::from(folds), 0)? {
            // Rows with a null among these columns share a fold.
            let hashed = hashed.as_primitive::<Int64Type>().iter();
            let values: Vec<i64> = hashed.map(Option::unwrap_or_default).collect();
            outputs.push(Arc::new(Int64Array::from(values)));
        }
        Ok(outputs)
    }))
}
