//! Elements of lists at a constant index, as `tags[1]`.
//!
//! The query engine copies them one by one, with calls for each field of each object. Here their positions are found
//! first, and each column is then copied at once.

use arrow::array::{Array, AsArray, Int32Array, Int32Builder, ListArray};
use arrow::compute::take;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::function_guard::FunctionGuard;

/// The functions by name, each with its faster form.
pub(crate) const LIST_ELEMENTS: [(&str, &dyn FunctionGuard); 1] =
    [("array_element", &ConstantIndex)];

/// Computes elements at a constant index. Other calls are those of the query engine.
struct ConstantIndex;

impl FunctionGuard for ConstantIndex {
    fn computed(
        &self,
        _name: &str,
        arguments: &ScalarFunctionArgs,
    ) -> Result<Option<ColumnarValue>, DataFusionError> {
        let [
            ColumnarValue::Array(column),
            ColumnarValue::Scalar(constant),
        ] = arguments.args.as_slice()
        else {
            return Ok(None);
        };
        let ScalarValue::Int64(Some(index)) = constant else {
            return Ok(None);
        };
        let Ok(index) = i32::try_from(*index) else {
            return Ok(None);
        };
        let Some(lists) = column.as_list_opt::<i32>() else {
            return Ok(None);
        };
        let positions = element_positions(lists, index);
        let elements = take(lists.values(), &positions, None)?;
        Ok(Some(ColumnarValue::Array(elements)))
    }
}

/// The position among all values of the element that each list has at an index: from 1, or from -1 backwards. Null where
/// there is none.
fn element_positions(lists: &ListArray, index: i32) -> Int32Array {
    let mut positions = Int32Builder::with_capacity(lists.len());
    for (row, bounds) in lists.offsets().windows(2).enumerate() {
        let len = bounds[1] - bounds[0];
        let offset = if index < 0 { index + len } else { index - 1 };
        if lists.is_valid(row) && (0..len).contains(&offset) {
            positions.append_value(bounds[0] + offset);
        } else {
            positions.append_null();
        }
    }
    positions.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray, StructArray};
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::{DataType, Field};
    use datafusion::config::ConfigOptions;
    use datafusion::functions_nested::extract::array_element_udf;

    use super::*;

    fn lists(values: ArrayRef) -> ArrayRef {
        let lengths = [2, 0, 3, 1, 2];
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls = NullBuffer::from(vec![true, true, true, false, true]);
        Arc::new(ListArray::new(item, offsets, values, Some(nulls)))
    }

    fn arguments(column: &ArrayRef, index: Option<i64>) -> ScalarFunctionArgs {
        let DataType::List(item) = column.data_type() else {
            panic!("a column of lists");
        };
        let constant = ScalarValue::Int64(index);
        ScalarFunctionArgs {
            args: vec![
                ColumnarValue::Array(column.clone()),
                ColumnarValue::Scalar(constant),
            ],
            arg_fields: vec![
                Arc::new(Field::new("lists", column.data_type().clone(), true)),
                Arc::new(Field::new("index", DataType::Int64, true)),
            ],
            number_rows: column.len(),
            return_field: item.clone(),
            config_options: Arc::new(ConfigOptions::default()),
        }
    }

    #[test]
    fn elements_are_those_of_the_query_engine() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(1),
            None,
            Some(3),
            Some(4),
            Some(5),
            Some(6),
            Some(7),
            None,
        ]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("a"),
            Some(""),
            None,
            Some("dd"),
            Some("e"),
            Some("f"),
            Some("ggg"),
            Some("h"),
        ]));
        let objects: ArrayRef = Arc::new(StructArray::new(
            vec![
                Field::new("number", DataType::Int64, true),
                Field::new("text", DataType::Utf8, true),
            ]
            .into(),
            vec![numbers.clone(), texts.clone()],
            Some(NullBuffer::from(vec![
                true, true, false, true, true, true, true, true,
            ])),
        ));
        for values in [numbers, texts, objects] {
            let whole = lists(values);
            for column in [whole.clone(), whole.slice(1, 3), whole.slice(2, 0)] {
                for index in [-4, -3, -2, -1, 0, 1, 2, 3, 4, i64::from(i32::MIN)] {
                    let computed = ConstantIndex.computed("", &arguments(&column, Some(index)));
                    let Ok(Some(ColumnarValue::Array(elements))) = computed else {
                        panic!("{computed:?} at {index}");
                    };
                    let engine = array_element_udf();
                    let expected = engine.invoke_with_args(arguments(&column, Some(index)));
                    let expected = expected.unwrap().into_array(column.len()).unwrap();
                    assert_eq!(&elements, &expected, "{column:?} at {index}");
                }
            }
        }
    }

    #[test]
    fn other_indexes_are_left_to_the_query_engine() {
        let column = lists(Arc::new(Int64Array::from_iter_values(0..8)));
        for index in [None, Some(i64::MAX), Some(i64::MIN)] {
            let computed = ConstantIndex.computed("", &arguments(&column, index));
            assert!(computed.unwrap().is_none(), "{index:?}");
        }
    }
}
