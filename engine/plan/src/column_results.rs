//! Results of SQL over one column, for tests.

use std::slice;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use forebay_model::Result;

use crate::SqlCompiler;

/// The values of an expression over a column of a name.
pub(crate) fn values_over(expression: &str, name: &str, column: &ArrayRef) -> Result<ArrayRef> {
    let field = Field::new(name, column.data_type().clone(), true);
    let compiled = SqlCompiler::default().expression(expression, &Schema::new(vec![field]))?;
    let inputs: &[ArrayRef] = if compiled.reads.is_empty() {
        &[]
    } else {
        slice::from_ref(column)
    };
    let mut values = (compiled.kernel)(inputs, column.len())?;
    Ok(values.swap_remove(0))
}

/// The rows of a column of a name in which a condition is true.
pub(crate) fn rows_over(condition: &str, name: &str, column: &ArrayRef) -> Vec<usize> {
    let selected = values_over(condition, name, column).unwrap();
    let selected = selected.as_boolean();
    (0..column.len())
        .filter(|row| selected.is_valid(*row) && selected.value(*row))
        .collect()
}

/// Times, dates or numbers as whole numbers.
pub(crate) fn ticks_of(values: &ArrayRef) -> Vec<Option<i64>> {
    // Arrow casts these to 32 bits alone.
    let is_narrow = matches!(values.data_type(), DataType::Date32 | DataType::Time32(_));
    let whole = if is_narrow {
        cast(values, &DataType::Int32).unwrap()
    } else {
        values.clone()
    };
    let whole = cast(&whole, &DataType::Int64).unwrap();
    whole.as_primitive::<Int64Type>().iter().collect()
}
