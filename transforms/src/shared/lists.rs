//! Lists, element by element.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use forebay_model::{Result, StringColumn};

/// True if a column can be read as text, or each of its elements can.
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

/// The texts of each row of a column: one, or those of its list.
pub(crate) struct RowTexts {
    texts: StringColumn,
    lists: Option<LargeListArray>,
}

impl RowTexts {
    /// Reads any values that are not nested as text, or lists of them.
    pub(crate) fn of(column: &ArrayRef) -> Result<RowTexts> {
        if element_field(column.data_type()).is_none() {
            let texts = StringColumn::of(column)?;
            return Ok(RowTexts { texts, lists: None });
        }
        let lists = large_lists(column)?;
        let texts = StringColumn::of(lists.values())?;
        Ok(RowTexts {
            texts,
            lists: Some(lists),
        })
    }

    /// The positions of a row's texts; none for a null list.
    pub(crate) fn of_row(&self, row: usize) -> Range<usize> {
        let Some(lists) = &self.lists else {
            return row..row + 1;
        };
        if lists.is_null(row) {
            return 0..0;
        }
        let offsets = lists.value_offsets();
        offsets[row] as usize..offsets[row + 1] as usize
    }

    /// The text at a position; `None` for a null.
    pub(crate) fn text(&self, position: usize) -> Result<Option<&str>> {
        let values = self.texts.values()?;
        Ok(match &self.texts {
            StringColumn::Plain(_) => values.get(position),
            StringColumn::Dictionary(keys, _) if keys.is_valid(position) => {
                values.get(keys.value(position) as usize)
            }
            StringColumn::Dictionary(..) => None,
        })
    }
}

/// Lists of any layout as one.
pub(crate) fn large_lists(column: &ArrayRef) -> Result<LargeListArray> {
    let element = element_field(column.data_type()).map(|element| element.data_type().clone());
    let item = Field::new_list_field(element.unwrap_or(DataType::Utf8), true);
    let lists = cast(column, &DataType::LargeList(Arc::new(item)))?;
    Ok(lists.as_list::<i64>().clone())
}
