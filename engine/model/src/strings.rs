//! Uniform access to string columns of any layout.

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, LargeStringArray, StringArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};

use crate::{Fault, Result, canonical_keys, codes};

/// The type of a column in specs, schemas and artifacts, independent of its memory layout: dictionaries become
/// their value type, all string layouts `Utf8`, all binary layouts `Binary`.
pub fn logical_type(physical: &DataType) -> DataType {
    match physical {
        DataType::Dictionary(_, value) => logical_type(value),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

/// Whether the type is a vector type whose width is not learned yet.
pub fn is_unsized_vector(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(_, 0))
}

/// Plain strings in one of Arrow's three layouts.
#[derive(Debug, Clone, Copy)]
pub enum TextRef<'a> {
    /// 32-bit offsets.
    Utf8(&'a StringArray),
    /// 64-bit offsets.
    Large(&'a LargeStringArray),
    /// String views.
    View(&'a StringViewArray),
}

impl<'a> TextRef<'a> {
    /// Wraps an array; `None` if it is not one of the three layouts.
    pub fn new(array: &'a dyn Array) -> Option<Self> {
        match array.data_type() {
            DataType::Utf8 => Some(TextRef::Utf8(array.as_string())),
            DataType::LargeUtf8 => Some(TextRef::Large(array.as_string())),
            DataType::Utf8View => Some(TextRef::View(array.as_string_view())),
            _ => None,
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            TextRef::Utf8(array) => array.len(),
            TextRef::Large(array) => array.len(),
            TextRef::View(array) => array.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value, or `None` for a null.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            TextRef::Utf8(array) => array.is_valid(row).then(|| array.value(row)),
            TextRef::Large(array) => array.is_valid(row).then(|| array.value(row)),
            TextRef::View(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }

    /// All values.
    pub fn iter(self) -> impl Iterator<Item = Option<&'a str>> {
        (0..self.len()).map(move |row| self.get(row))
    }
}

/// A column as strings: a dictionary, to be processed once per distinct value, or a plain array. Columns of other
/// types are cast first: integers, floats, booleans and dates become text. -0.0 becomes 0.0.
#[derive(Debug, Clone)]
pub enum StringColumn {
    /// Keys (null if the row is null) and values; a value may be null as well.
    Dictionary(Int32Array, ArrayRef),
    /// One of the three string layouts.
    Plain(ArrayRef),
}

impl StringColumn {
    /// Converts a column. Fails for nested types.
    pub fn of(column: &ArrayRef) -> Result<Self> {
        match column.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(StringColumn::Plain(column.clone())),
            DataType::Dictionary(key, value) if **key == DataType::Int32 && TextRef::is_text(value) => {
                let dictionary = column.as_dictionary::<Int32Type>();
                Ok(StringColumn::Dictionary(dictionary.keys().clone(), dictionary.values().clone()))
            }
            DataType::Dictionary(_, value) if TextRef::is_text(value) => {
                let narrow = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                StringColumn::of(&cast(column, &narrow)?)
            }
            other if other.is_nested() => {
                Err(Fault::new(codes::COLUMN_TYPE, format!("a column of type {other} cannot be read as text")))
            }
            _ => Ok(StringColumn::Plain(cast(&canonical_keys(column)?, &DataType::Utf8)?)),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            StringColumn::Dictionary(keys, _) => keys.len(),
            StringColumn::Plain(array) => array.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The distinct values of a dictionary, or all values of a plain column.
    pub fn values(&self) -> Result<TextRef<'_>> {
        let array = match self {
            StringColumn::Dictionary(_, values) => values,
            StringColumn::Plain(array) => array,
        };
        TextRef::new(array).ok_or_else(|| Fault::internal("strings of an unknown layout"))
    }

    /// Computes one value per distinct string and gathers the values by row. `of_value` receives each dictionary
    /// value (or each plain row) once; `None` stands for null.
    pub fn map<T: Copy>(&self, mut of_value: impl FnMut(Option<&str>) -> T) -> Result<Vec<T>> {
        let values = self.values()?;
        match self {
            StringColumn::Plain(_) => Ok(values.iter().map(of_value).collect()),
            StringColumn::Dictionary(keys, _) => {
                let of_null = of_value(None);
                let table: Vec<T> = values.iter().map(of_value).collect();
                Ok(keys
                    .iter()
                    .map(|key| key.and_then(|key| table.get(key as usize)).copied().unwrap_or(of_null))
                    .collect())
            }
        }
    }
}

impl TextRef<'_> {
    fn is_text(data_type: &DataType) -> bool {
        matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    }
}
