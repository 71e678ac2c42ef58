//! Columns of served rows in the types of the fit.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use forebay_model::{Fault, Result, TextRules, TimeFormat, codes, logical_type};

use crate::fit_types::fit_values;

/// The column as its logical type: no value is changed, but that floats may lose digits. Texts and whole numbers of a
/// column with a format are read by it, as those of the source are; other texts by the rules.
pub(super) fn fit_type(
    column: &ArrayRef,
    field: &Field,
    format: Option<&TimeFormat>,
    rules: TextRules,
) -> Result<ArrayRef> {
    if logical_type(column.data_type()) == logical_type(field.data_type()) {
        return Ok(column.clone());
    }
    match format.filter(|format| format.takes(column.data_type())) {
        Some(format) => read_formatted(column, field, format),
        None => fit_values(column, field, rules),
    }
}

/// Texts or whole numbers as dates or times of a column's format.
fn read_formatted(column: &ArrayRef, field: &Field, format: &TimeFormat) -> Result<ArrayRef> {
    let texts = format.texts_of(column)?;
    let read = format.read(&texts);
    match read.lost.first() {
        None => Ok(read.values),
        Some(row) => {
            let message = format!("`{}`: {}", field.name(), format.problem(texts.value(*row)));
            Err(Fault::new(codes::COLUMN_TYPE, message).column(field.name()))
        }
    }
}
