//! Lists, element by element.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, ListArray};
use arrow::datatypes::{DataType, Field};
use forebay_model::Result;

/// Whether a column can be read as text, or each of its elements can.
pub(crate) fn is_text_or_list(field: &Field) -> bool {
    match element_field(field.data_type()) {
        Some(element) => !element.data_type().is_nested(),
        None => !field.data_type().is_nested(),
    }
}

/// The field of a list's elements.
pub(crate) fn element_field(data_type: &DataType) -> Option<&Field> {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => Some(element),
        _ => None,
    }
}

/// Applies a function to a column, or to the elements of its lists, whose shape stays.
pub(crate) fn each_element(
    column: &ArrayRef,
    of_values: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let item =
        |values: &ArrayRef| Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let nulls = column.nulls().cloned();
    Ok(match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let values = of_values(list.values())?;
            Arc::new(ListArray::try_new(
                item(&values),
                list.offsets().clone(),
                values,
                nulls,
            )?)
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let values = of_values(list.values())?;
            Arc::new(LargeListArray::try_new(
                item(&values),
                list.offsets().clone(),
                values,
                nulls,
            )?)
        }
        DataType::FixedSizeList(_, width) => {
            let values = of_values(column.as_fixed_size_list().values())?;
            Arc::new(FixedSizeListArray::try_new_with_length(
                item(&values),
                *width,
                values,
                nulls,
                column.len(),
            )?)
        }
        _ => of_values(column)?,
    })
}
