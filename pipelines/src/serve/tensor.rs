//! Tensors of the Open Inference Protocol as Arrow columns, and back.
//!
//! A column is a tensor of shape `[rows]`, a column of lists of one length a tensor `[rows, length]`. Types without a tensor type
//! (dates, times, decimals, lists of several lengths) are texts (`BYTES`). The binary forms of integers, booleans and texts
//! have no null: the parameter `null_rows` of the tensor lists the rows, divided by commas.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, FixedSizeListArray,
    PrimitiveArray, StringArray,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::logical_type;

use super::error::ServeError;

/// Bytes of the length before each text in the binary form.
const LENGTH_BYTES: usize = 4;

/// Name of the parameter that lists rows without a value.
pub(super) const NULL_ROWS: &str = "null_rows";

/// Types of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TensorType {
    Bool,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Int8,
    Int16,
    Int32,
    Int64,
    Float16,
    Float32,
    Float64,
    Bytes,
}

/// All types with their names.
const NAMES: [(TensorType, &str); 13] = [
    (TensorType::Bool, "BOOL"),
    (TensorType::UInt8, "UINT8"),
    (TensorType::UInt16, "UINT16"),
    (TensorType::UInt32, "UINT32"),
    (TensorType::UInt64, "UINT64"),
    (TensorType::Int8, "INT8"),
    (TensorType::Int16, "INT16"),
    (TensorType::Int32, "INT32"),
    (TensorType::Int64, "INT64"),
    (TensorType::Float16, "FP16"),
    (TensorType::Float32, "FP32"),
    (TensorType::Float64, "FP64"),
    (TensorType::Bytes, "BYTES"),
];

impl TensorType {
    /// The type with a name, such as `FP32`.
    pub fn parse(name: &str) -> Result<TensorType, ServeError> {
        let entry = NAMES.iter().find(|(_, text)| *text == name);
        entry.map(|(tensor_type, _)| *tensor_type).ok_or_else(|| {
            ServeError::bad_request(format!("there is no tensor type `{name}`; FP64 is one"))
        })
    }

    pub fn name(self) -> &'static str {
        let entry = NAMES.iter().find(|(tensor_type, _)| *tensor_type == self);
        entry.map_or("", |(_, name)| name)
    }

    /// The type of tensors of a column; that of its items for lists of one length.
    pub fn of_column(data_type: &DataType) -> TensorType {
        match logical_type(data_type) {
            DataType::Boolean => TensorType::Bool,
            DataType::UInt8 => TensorType::UInt8,
            DataType::UInt16 => TensorType::UInt16,
            DataType::UInt32 => TensorType::UInt32,
            DataType::UInt64 => TensorType::UInt64,
            DataType::Int8 => TensorType::Int8,
            DataType::Int16 => TensorType::Int16,
            DataType::Int32 => TensorType::Int32,
            DataType::Int64 => TensorType::Int64,
            DataType::Float16 => TensorType::Float16,
            DataType::Float32 => TensorType::Float32,
            DataType::Float64 => TensorType::Float64,
            DataType::FixedSizeList(item, _) => TensorType::of_column(item.data_type()),
            _ => TensorType::Bytes,
        }
    }

    /// Type of the array that holds such a tensor.
    fn array_type(self) -> DataType {
        match self {
            TensorType::Bool => DataType::Boolean,
            TensorType::UInt8 => DataType::UInt8,
            TensorType::UInt16 => DataType::UInt16,
            TensorType::UInt32 => DataType::UInt32,
            TensorType::UInt64 => DataType::UInt64,
            TensorType::Int8 => DataType::Int8,
            TensorType::Int16 => DataType::Int16,
            TensorType::Int32 => DataType::Int32,
            TensorType::Int64 => DataType::Int64,
            TensorType::Float16 => DataType::Float16,
            TensorType::Float32 => DataType::Float32,
            TensorType::Float64 => DataType::Float64,
            TensorType::Bytes => DataType::Utf8,
        }
    }

    /// True if a value of this type can say that it is missing.
    fn has_nan(self) -> bool {
        matches!(
            self,
            TensorType::Float16 | TensorType::Float32 | TensorType::Float64
        )
    }
}

/// Shape of a tensor of a column in metadata: rows, and the length of lists.
pub(super) fn column_shape(data_type: &DataType) -> Vec<i64> {
    match data_type {
        DataType::FixedSizeList(_, length) => vec![-1, i64::from(*length)],
        _ => vec![-1],
    }
}

/// Rows and values a row of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TensorShape {
    pub rows: usize,
    pub width: usize,
}

impl TensorShape {
    /// Reads a shape: `[rows]`, `[rows, 1]` or `[rows, length]`.
    pub fn read(name: &str, shape: &[i64]) -> Result<TensorShape, ServeError> {
        let sizes: Option<Vec<usize>> = shape
            .iter()
            .map(|size| usize::try_from(*size).ok())
            .collect();
        let wrong = || {
            ServeError::bad_request(format!(
                "input `{name}` has the shape {shape:?}; a column has [rows], or [rows, length] \
             for lists"
            ))
        };
        match sizes.as_deref() {
            Some([rows]) => Ok(TensorShape {
                rows: *rows,
                width: 1,
            }),
            Some([rows, width]) if *width > 0 => Ok(TensorShape {
                rows: *rows,
                width: *width,
            }),
            _ => Err(wrong()),
        }
    }

    /// Number of values.
    pub fn values(self, name: &str) -> Result<usize, ServeError> {
        self.rows.checked_mul(self.width).ok_or_else(|| {
            ServeError::bad_request(format!("input `{name}` has a shape that is too large"))
        })
    }

    /// Column of flat values.
    pub fn column(self, values: ArrayRef) -> Result<ArrayRef, ServeError> {
        if self.width == 1 {
            return Ok(values);
        }
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        let length = i32::try_from(self.width)
            .map_err(|_| ServeError::bad_request("a tensor is too wide"))?;
        let lists = FixedSizeListArray::try_new(item, length, values, None)
            .map_err(|error| ServeError::bad_request(error.to_string()))?;
        Ok(Arc::new(lists))
    }
}

/// Reads the little-endian values of a tensor.
pub(super) fn read_binary(
    name: &str,
    tensor_type: TensorType,
    values: usize,
    bytes: &[u8],
) -> Result<ArrayRef, ServeError> {
    match tensor_type {
        TensorType::Bool => {
            check_size(name, bytes, Some(values))?;
            let flags: BooleanArray = bytes.iter().map(|byte| Some(*byte != 0)).collect();
            Ok(Arc::new(flags))
        }
        TensorType::Bytes => read_texts(name, values, bytes),
        TensorType::UInt8 => read_numbers::<UInt8Type>(name, values, bytes),
        TensorType::UInt16 => read_numbers::<UInt16Type>(name, values, bytes),
        TensorType::UInt32 => read_numbers::<UInt32Type>(name, values, bytes),
        TensorType::UInt64 => read_numbers::<UInt64Type>(name, values, bytes),
        TensorType::Int8 => read_numbers::<Int8Type>(name, values, bytes),
        TensorType::Int16 => read_numbers::<Int16Type>(name, values, bytes),
        TensorType::Int32 => read_numbers::<Int32Type>(name, values, bytes),
        TensorType::Int64 => read_numbers::<Int64Type>(name, values, bytes),
        TensorType::Float16 => read_numbers::<Float16Type>(name, values, bytes),
        TensorType::Float32 => read_numbers::<Float32Type>(name, values, bytes),
        TensorType::Float64 => read_numbers::<Float64Type>(name, values, bytes),
    }
}

fn check_size(name: &str, bytes: &[u8], expected: Option<usize>) -> Result<(), ServeError> {
    if expected == Some(bytes.len()) {
        return Ok(());
    }
    let expected = expected.map_or("more than can be counted".to_owned(), |size| {
        size.to_string()
    });
    Err(ServeError::bad_request(format!(
        "input `{name}` has {} bytes, and its shape and type need {expected}",
        bytes.len()
    )))
}

fn read_numbers<T: ArrowPrimitiveType>(
    name: &str,
    values: usize,
    bytes: &[u8],
) -> Result<ArrayRef, ServeError> {
    check_size(name, bytes, values.checked_mul(size_of::<T::Native>()))?;
    // A copy, which also aligns the values. Supported machines are little-endian, as the format is.
    let buffer = ScalarBuffer::<T::Native>::from(Buffer::from(bytes));
    Ok(Arc::new(PrimitiveArray::<T>::new(buffer, None)))
}

/// Texts with a length of four bytes before each.
fn read_texts(name: &str, values: usize, mut bytes: &[u8]) -> Result<ArrayRef, ServeError> {
    let short = || {
        ServeError::bad_request(format!(
            "input `{name}` ends before its {values} texts; each has four bytes of length before it"
        ))
    };
    if values > bytes.len() / LENGTH_BYTES {
        return Err(short());
    }
    let mut texts = Vec::with_capacity(values);
    for _ in 0..values {
        let (length, behind) = bytes
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or_else(short)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (text, next) = behind.split_at_checked(length).ok_or_else(short)?;
        texts.push(text);
        bytes = next;
    }
    check_size(name, bytes, Some(0))?;
    let texts = BinaryArray::from_iter_values(texts);
    texts_of_bytes(name, texts)
}

/// Texts of bytes, which have to be UTF-8.
pub(super) fn texts_of_bytes(name: &str, bytes: BinaryArray) -> Result<ArrayRef, ServeError> {
    let texts = StringArray::try_from_binary(bytes).map_err(|_| {
        ServeError::bad_request(format!("input `{name}` has a text that is no UTF-8"))
    })?;
    Ok(Arc::new(texts))
}

/// Sets rows to null that the parameter `null_rows` lists.
pub(super) fn with_null_rows(
    name: &str,
    column: ArrayRef,
    null_rows: &str,
) -> Result<ArrayRef, ServeError> {
    let mut is_valid = vec![true; column.len()];
    for row in null_rows.split(',').filter(|row| !row.trim().is_empty()) {
        let number = row.trim().parse::<usize>().ok();
        let flag = number.and_then(|number| is_valid.get_mut(number));
        let flag = flag.ok_or_else(|| {
            ServeError::bad_request(format!(
                "`{NULL_ROWS}` of input `{name}` lists `{row}`, which is no row"
            ))
        })?;
        *flag = false;
    }
    let nulls = NullBuffer::union(column.nulls(), Some(&NullBuffer::from(is_valid)));
    let data = column.to_data().into_builder().nulls(nulls).build();
    data.map(arrow::array::make_array)
        .map_err(|error| ServeError::bad_request(error.to_string()))
}

/// Refusal of a parameter `null_rows` that is a number or a flag.
pub(super) fn null_rows_are_no_text(name: &str) -> ServeError {
    ServeError::bad_request(format!(
        "`{NULL_ROWS}` of input `{name}` is no text; list the rows, such as \"0,7\""
    ))
}

/// A column of an answer as a tensor.
pub(super) struct OutputTensor {
    pub name: String,
    pub tensor_type: TensorType,
    pub shape: Vec<i64>,
    /// Flat values, in the array of the type.
    pub values: ArrayRef,
}

impl OutputTensor {
    pub fn new(name: &str, column: &ArrayRef) -> Result<OutputTensor, ServeError> {
        let unusable = |error: arrow::error::ArrowError| {
            ServeError::internal(format!("column `{name}` is no tensor: {error}"))
        };
        let tensor_type = TensorType::of_column(column.data_type());
        let rows = column.len() as i64;
        let (shape, flat) = match column.as_fixed_size_list_opt() {
            Some(lists) => {
                let length = i64::from(lists.value_length());
                (vec![rows, length], flat_items(lists)?)
            }
            None => (vec![rows], column.clone()),
        };
        let values = if logical_type(flat.data_type()) == tensor_type.array_type() {
            cast(&flat, &tensor_type.array_type()).map_err(unusable)?
        } else {
            shown_values(&flat).map_err(unusable)?
        };
        Ok(OutputTensor {
            name: name.to_owned(),
            tensor_type,
            shape,
            values,
        })
    }

    /// Number of rows of the column.
    pub fn rows(&self) -> usize {
        match self.width() {
            Some(width) => self.values.len() / width,
            None => self.values.len(),
        }
    }

    /// Length of the lists of a column of lists; `None` for other columns, and for lists without items.
    pub fn width(&self) -> Option<usize> {
        let [_, width] = self.shape[..] else {
            return None;
        };
        usize::try_from(width).ok().filter(|width| *width > 0)
    }

    /// True if a row has no value: a list has none where all its items are missing.
    pub fn is_null_row(&self, row: usize) -> bool {
        let width = self.width().unwrap_or(1);
        let mut items = row * width..(row + 1) * width;
        items.all(|item| self.values.is_null(item))
    }

    /// The rows without a value, divided by commas, where the binary form cannot show them.
    pub fn null_rows(&self) -> Option<String> {
        if self.tensor_type.has_nan() || self.values.null_count() == 0 {
            return None;
        }
        let rows = (0..self.values.len()).filter(|row| self.values.is_null(*row));
        let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
        Some(rows.join(","))
    }

    /// The values in little-endian form; null is NaN, zero or an empty text.
    pub fn to_binary(&self) -> Vec<u8> {
        let values = &self.values;
        match self.tensor_type {
            TensorType::Bool => {
                let flags = values.as_boolean().iter();
                flags.map(|flag| u8::from(flag == Some(true))).collect()
            }
            TensorType::Bytes => binary_texts(values.as_string::<i32>()),
            TensorType::UInt8 => binary_numbers::<UInt8Type>(values, 0),
            TensorType::UInt16 => binary_numbers::<UInt16Type>(values, 0),
            TensorType::UInt32 => binary_numbers::<UInt32Type>(values, 0),
            TensorType::UInt64 => binary_numbers::<UInt64Type>(values, 0),
            TensorType::Int8 => binary_numbers::<Int8Type>(values, 0),
            TensorType::Int16 => binary_numbers::<Int16Type>(values, 0),
            TensorType::Int32 => binary_numbers::<Int32Type>(values, 0),
            TensorType::Int64 => binary_numbers::<Int64Type>(values, 0),
            TensorType::Float16 => binary_numbers::<Float16Type>(values, half::f16::NAN),
            TensorType::Float32 => binary_numbers::<Float32Type>(values, f32::NAN),
            TensorType::Float64 => binary_numbers::<Float64Type>(values, f64::NAN),
        }
    }
}

/// Items of lists of one length; those of a missing list are null.
pub(super) fn flat_items(lists: &FixedSizeListArray) -> Result<ArrayRef, ServeError> {
    let length = lists.value_length() as usize;
    let items = lists
        .values()
        .slice(lists.value_offset(0) as usize, lists.len() * length);
    if lists.null_count() == 0 {
        return Ok(items);
    }
    let is_valid =
        (0..items.len()).map(|item| items.is_valid(item) && lists.is_valid(item / length));
    let nulls: NullBuffer = is_valid.collect::<Vec<bool>>().into();
    let data = items.to_data().into_builder().nulls(Some(nulls)).build();
    data.map(arrow::array::make_array)
        .map_err(|error| ServeError::internal(error.to_string()))
}

/// Values as texts, such as dates.
fn shown_values(column: &ArrayRef) -> Result<ArrayRef, arrow::error::ArrowError> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let text = |row: usize| {
        if column.is_null(row) {
            return Ok(None);
        }
        formatter.value(row).try_to_string().map(Some)
    };
    let texts = (0..column.len()).map(text);
    let texts: Vec<Option<String>> = texts.collect::<Result<_, _>>()?;
    Ok(Arc::new(StringArray::from(texts)))
}

fn binary_texts(texts: &StringArray) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(texts.value_data().len() + LENGTH_BYTES * texts.len());
    for text in texts.iter() {
        let text = text.unwrap_or_default();
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn binary_numbers<T: ArrowPrimitiveType>(values: &ArrayRef, missing: T::Native) -> Vec<u8> {
    let values = values.as_primitive::<T>();
    if values.null_count() == 0 {
        return values.values().inner().as_slice().to_vec();
    }
    let filled: ScalarBuffer<T::Native> = values
        .iter()
        .map(|value| value.unwrap_or(missing))
        .collect::<Vec<_>>()
        .into();
    filled.inner().as_slice().to_vec()
}
