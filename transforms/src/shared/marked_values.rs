//! Marks of values that the ledger of rows counts: those that a step neither learned nor lists, say.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, BooleanBufferBuilder,
};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Float64Type;
use forebay_model::Result;

use super::lists::{element_field, large_lists};
use super::numbers::doubles;

/// Marks the numbers of a column, or of the elements of its lists, for which a test is true.
pub(crate) fn mark_values<T: ArrowPrimitiveType>(
    numbers: &ArrayRef,
    is_marked: impl Fn(T::Native) -> bool,
) -> Result<ArrayRef> {
    if element_field(numbers.data_type()).is_none() {
        let numbers = numbers.as_primitive::<T>();
        let rows = numbers.len();
        let marks = BooleanBuffer::collect_bool(rows, |row| is_marked(numbers.value(row)));
        return Ok(Arc::new(BooleanArray::new(marks, numbers.nulls().cloned())));
    }
    let lists = large_lists(numbers)?;
    let elements = lists.values().as_primitive::<T>();
    let mut marks = BooleanBufferBuilder::new(elements.len());
    for (row, ends) in lists.offsets().windows(2).enumerate() {
        if lists.is_null(row) {
            continue;
        }
        for element in ends[0] as usize..ends[1] as usize {
            marks.append(elements.is_valid(element) && is_marked(elements.value(element)));
        }
    }
    Ok(Arc::new(BooleanArray::new(marks.finish(), None)))
}

/// Marks the numbers of a column that lie outside of a range.
pub(crate) fn mark_outside(column: &ArrayRef, [least, greatest]: [f64; 2]) -> Result<ArrayRef> {
    let numbers: ArrayRef = Arc::new(doubles(column)?);
    mark_values::<Float64Type>(&numbers, |number| number < least || number > greatest)
}

/// Marks the values of a column that have no number.
pub(crate) fn mark_numberless(column: &ArrayRef, numbers: &dyn Array) -> ArrayRef {
    let has_number = valid_rows(numbers);
    let has_value = valid_rows(column.as_ref());
    Arc::new(BooleanArray::new(&has_value & &!&has_number, None))
}

/// The rows of a column that are not null.
fn valid_rows(column: &dyn Array) -> BooleanBuffer {
    match column.logical_nulls() {
        Some(nulls) => nulls.inner().clone(),
        None => BooleanBuffer::new_set(column.len()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn count(marks: &ArrayRef) -> usize {
        marks.as_boolean().true_count()
    }

    #[test]
    fn marked_values_and_elements_are_marked_once() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None, Some(9), Some(9)]));
        let marks = mark_values::<Int64Type>(&numbers, |number| number == 9).unwrap();
        assert_eq!(count(&marks), 2);
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(9), Some(1)]),
            None,
            Some(vec![Some(9), None, Some(9)]),
            Some(Vec::new()),
        ]));
        let marks = mark_values::<Int64Type>(&lists, |number| number == 9).unwrap();
        assert_eq!(count(&marks), 3);
        // Elements of other rows do not count.
        let marks = mark_values::<Int64Type>(&lists.slice(1, 2), |number| number == 9).unwrap();
        assert_eq!(count(&marks), 2);
    }

    #[test]
    fn nulls_have_no_number_and_are_not_unknown() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b")]));
        let numbers = Int64Array::from(vec![Some(0), None, None]);
        assert_eq!(count(&mark_numberless(&texts, &numbers)), 1);
    }
}
