//! Values of tensors in JSON.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray, StringArray,
};
use arrow::datatypes::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use serde_json::Value;

use super::error::ServeError;
use super::tensor::{OutputTensor, TensorType};

/// Reads the values of a tensor, flat or nested. Null is a missing value.
pub(super) fn read_json(
    name: &str,
    tensor_type: TensorType,
    values: usize,
    data: &Value,
) -> Result<ArrayRef, ServeError> {
    let mut flat = Vec::new();
    flatten(data, &mut flat);
    if flat.len() != values {
        return Err(ServeError::bad_request(format!(
            "input `{name}` has {} values, and its shape needs {values}",
            flat.len()
        )));
    }
    match tensor_type {
        TensorType::Bool => read_flags(name, &flat),
        TensorType::Bytes => read_texts(name, &flat),
        TensorType::UInt8 => read_integers::<UInt8Type, _>(name, tensor_type, &flat, Value::as_u64),
        TensorType::UInt16 => {
            read_integers::<UInt16Type, _>(name, tensor_type, &flat, Value::as_u64)
        }
        TensorType::UInt32 => {
            read_integers::<UInt32Type, _>(name, tensor_type, &flat, Value::as_u64)
        }
        TensorType::UInt64 => {
            read_integers::<UInt64Type, _>(name, tensor_type, &flat, Value::as_u64)
        }
        TensorType::Int8 => read_integers::<Int8Type, _>(name, tensor_type, &flat, Value::as_i64),
        TensorType::Int16 => read_integers::<Int16Type, _>(name, tensor_type, &flat, Value::as_i64),
        TensorType::Int32 => read_integers::<Int32Type, _>(name, tensor_type, &flat, Value::as_i64),
        TensorType::Int64 => read_integers::<Int64Type, _>(name, tensor_type, &flat, Value::as_i64),
        TensorType::Float16 => {
            read_floats::<Float16Type>(name, tensor_type, &flat, half::f16::from_f64)
        }
        TensorType::Float32 => {
            read_floats::<Float32Type>(name, tensor_type, &flat, |value| value as f32)
        }
        TensorType::Float64 => read_floats::<Float64Type>(name, tensor_type, &flat, |value| value),
    }
}

fn flatten<'a>(data: &'a Value, flat: &mut Vec<&'a Value>) {
    match data {
        Value::Array(items) => items.iter().for_each(|item| flatten(item, flat)),
        value => flat.push(value),
    }
}

fn wrong_value(name: &str, tensor_type: TensorType, value: &Value) -> ServeError {
    ServeError::bad_request(format!(
        "input `{name}` has the value {value}, which is no {}",
        tensor_type.name()
    ))
}

fn read_flags(name: &str, flat: &[&Value]) -> Result<ArrayRef, ServeError> {
    let flag = |value: &&Value| match value {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        other => Err(wrong_value(name, TensorType::Bool, other)),
    };
    let flags: Vec<Option<bool>> = flat.iter().map(flag).collect::<Result<_, _>>()?;
    Ok(Arc::new(BooleanArray::from(flags)))
}

fn read_texts(name: &str, flat: &[&Value]) -> Result<ArrayRef, ServeError> {
    let text = |value: &&'_ Value| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(wrong_value(name, TensorType::Bytes, other)),
    };
    let texts: Vec<Option<String>> = flat.iter().map(text).collect::<Result<_, _>>()?;
    Ok(Arc::new(StringArray::from(texts)))
}

/// Integers of a tensor; `wide` reads a JSON number in the widest type of the sign.
fn read_integers<T, W>(
    name: &str,
    tensor_type: TensorType,
    flat: &[&Value],
    wide: fn(&Value) -> Option<W>,
) -> Result<ArrayRef, ServeError>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<W>,
{
    let number = |value: &&Value| {
        if value.is_null() {
            return Ok(None);
        }
        let number = wide(value).and_then(|number| T::Native::try_from(number).ok());
        number
            .map(Some)
            .ok_or_else(|| wrong_value(name, tensor_type, value))
    };
    let numbers: Vec<Option<T::Native>> = flat.iter().map(number).collect::<Result<_, _>>()?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(numbers)))
}

/// Floats of a tensor. JSON has no infinity: a number that becomes one is beyond the type.
fn read_floats<T>(
    name: &str,
    tensor_type: TensorType,
    flat: &[&Value],
    narrow: fn(f64) -> T::Native,
) -> Result<ArrayRef, ServeError>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    let number = |value: &&Value| {
        if value.is_null() {
            return Ok(None);
        }
        let number = value.as_f64().map(narrow);
        let number = number.filter(|number| Into::<f64>::into(*number).is_finite());
        number
            .map(Some)
            .ok_or_else(|| wrong_value(name, tensor_type, value))
    };
    let numbers: Vec<Option<T::Native>> = flat.iter().map(number).collect::<Result<_, _>>()?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(numbers)))
}

/// The values of a tensor as a list of JSON. NaN and infinities are null, which JSON has no number for.
pub(super) struct TensorData<'a>(pub &'a OutputTensor);

impl Serialize for TensorData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tensor = self.0;
        let values = ValueList {
            tensor_type: tensor.tensor_type,
            values: &tensor.values,
        };
        values.serialize(serializer)
    }
}

/// The rows of a tensor as a list of JSON: values, or a list for each row of a column of lists.
pub(super) struct TensorRows<'a>(pub &'a OutputTensor);

impl Serialize for TensorRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tensor = self.0;
        let Some(width) = tensor.width() else {
            return TensorData(tensor).serialize(serializer);
        };
        let rows = tensor.rows();
        let mut list = serializer.serialize_seq(Some(rows))?;
        for row in 0..rows {
            list.serialize_element(&ValueList {
                tensor_type: tensor.tensor_type,
                values: &tensor.values.slice(row * width, width),
            })?;
        }
        list.end()
    }
}

/// Values of a tensor.
struct ValueList<'a> {
    tensor_type: TensorType,
    values: &'a ArrayRef,
}

impl Serialize for ValueList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = self.values;
        match self.tensor_type {
            TensorType::Bool => write_list(serializer, values.as_boolean().iter()),
            TensorType::Bytes => write_list(serializer, values.as_string::<i32>().iter()),
            TensorType::UInt8 => write_list(serializer, values.as_primitive::<UInt8Type>().iter()),
            TensorType::UInt16 => {
                write_list(serializer, values.as_primitive::<UInt16Type>().iter())
            }
            TensorType::UInt32 => {
                write_list(serializer, values.as_primitive::<UInt32Type>().iter())
            }
            TensorType::UInt64 => {
                write_list(serializer, values.as_primitive::<UInt64Type>().iter())
            }
            TensorType::Int8 => write_list(serializer, values.as_primitive::<Int8Type>().iter()),
            TensorType::Int16 => write_list(serializer, values.as_primitive::<Int16Type>().iter()),
            TensorType::Int32 => write_list(serializer, values.as_primitive::<Int32Type>().iter()),
            TensorType::Int64 => write_list(serializer, values.as_primitive::<Int64Type>().iter()),
            TensorType::Float16 => {
                let halves = values.as_primitive::<Float16Type>().iter();
                write_list(serializer, halves.map(|half| half.map(half::f16::to_f32)))
            }
            TensorType::Float32 => {
                write_list(serializer, values.as_primitive::<Float32Type>().iter())
            }
            TensorType::Float64 => {
                write_list(serializer, values.as_primitive::<Float64Type>().iter())
            }
        }
    }
}

fn write_list<S: Serializer, T: Serialize>(
    serializer: S,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(values.len()))?;
    for value in values {
        list.serialize_element(&value)?;
    }
    list.end()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, FixedSizeListArray, Float32Array, Int64Array};
    use arrow::datatypes::{DataType, Field};
    use serde_json::json;

    use super::super::tensor::{read_binary, with_null_rows};
    use super::*;

    fn written(column: ArrayRef) -> (OutputTensor, String) {
        let tensor = OutputTensor::new("x", &column).unwrap();
        let text = serde_json::to_string(&TensorData(&tensor)).unwrap();
        (tensor, text)
    }

    #[test]
    fn values_survive_both_forms() {
        let columns: Vec<(ArrayRef, &str)> = vec![
            (
                Arc::new(Float32Array::from(vec![Some(1.1), None, Some(-2.0)])),
                "[1.1,null,-2.0]",
            ),
            (
                Arc::new(Int64Array::from(vec![Some(i64::MAX), None, Some(0)])),
                "[9223372036854775807,null,0]",
            ),
            (
                Arc::new(StringArray::from(vec![Some("a"), None, Some("ü")])),
                r#"["a",null,"ü"]"#,
            ),
            (
                Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
                "[true,null,false]",
            ),
        ];
        for (column, text) in columns {
            let (tensor, encoded) = written(column.clone());
            assert_eq!(encoded, text);
            let data: Value = serde_json::from_str(&encoded).unwrap();
            let read = read_json("x", tensor.tensor_type, 3, &data).unwrap();
            assert_eq!(&read, &column);
            let bytes = tensor.to_binary();
            let read = read_binary("x", tensor.tensor_type, 3, &bytes).unwrap();
            match tensor.null_rows() {
                Some(rows) => {
                    assert_eq!(rows, "1");
                    assert_eq!(&with_null_rows("x", read, &rows).unwrap(), &column);
                }
                // NaN is what a float has for null.
                None => assert!(read.as_primitive::<Float32Type>().value(1).is_nan()),
            }
        }
    }

    #[test]
    fn rows_of_lists_are_lists() {
        let items = Float32Array::from(vec![Some(1.5), None, None, None]);
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let lists = FixedSizeListArray::try_new(item, 2, Arc::new(items), None).unwrap();
        let columns: Vec<(ArrayRef, &str, [bool; 2])> = vec![
            (Arc::new(lists), "[[1.5,null],[null,null]]", [false, true]),
            (
                Arc::new(Int64Array::from(vec![Some(3), None])),
                "[3,null]",
                [false, true],
            ),
        ];
        for (column, expected, nulls) in columns {
            let tensor = OutputTensor::new("x", &column).unwrap();
            let text = serde_json::to_string(&TensorRows(&tensor)).unwrap();
            assert_eq!(text, expected);
            assert_eq!(tensor.rows(), 2);
            assert_eq!([tensor.is_null_row(0), tensor.is_null_row(1)], nulls);
        }
    }

    #[test]
    fn nested_lists_are_flattened_and_counted() {
        let read = read_json("x", TensorType::Int32, 3, &json!([[1], [null], [3]])).unwrap();
        assert_eq!(read.null_count(), 1);
        let wrong = [
            (TensorType::Int32, json!([1, 2])),
            (TensorType::Int8, json!([1, 2, 300])),
            (TensorType::UInt8, json!([1, 2, -3])),
            (TensorType::Int32, json!([1, 2, 2.5])),
            (TensorType::Bytes, json!(["a", "b", 1])),
            (TensorType::Bool, json!([true, false, 1])),
            (TensorType::Float32, json!([1, 2, "3"])),
            (TensorType::Float32, json!([1, 2, 1e39])),
            (TensorType::Float16, json!([1, 2, 70_000])),
        ];
        for (tensor_type, data) in wrong {
            assert!(read_json("x", tensor_type, 3, &data).is_err(), "{data}");
        }
    }

    #[test]
    fn sizes_of_binary_tensors_are_checked() {
        assert!(read_binary("x", TensorType::Float32, 2, &[0; 7]).is_err());
        assert!(read_binary("x", TensorType::Bool, 2, &[0; 3]).is_err());
        assert!(read_binary("x", TensorType::Float64, usize::MAX, &[0; 8]).is_err());
        // The length of the second text lies beyond the end.
        assert!(read_binary("x", TensorType::Bytes, 2, &[1, 0, 0, 0, b'a', 9, 0, 0, 0]).is_err());
        assert!(read_binary("x", TensorType::Bytes, usize::MAX, &[1, 0, 0, 0, b'a']).is_err());
        // More than was announced.
        assert!(read_binary("x", TensorType::Bytes, 1, &[1, 0, 0, 0, b'a', 0]).is_err());
        assert!(read_binary("x", TensorType::Bytes, 1, &[1, 0, 0, 0, 0xff]).is_err());
    }
}
