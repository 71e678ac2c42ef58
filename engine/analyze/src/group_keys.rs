//! Group keys: several columns encoded as one byte string that sorts like the tuple.
//!
//! Per column: 0 for null, else 1 and the value. Integers are big-endian with the sign bit flipped. Text ends with
//! a zero byte; a zero byte inside is followed by 255.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, Int64Builder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use forebay_model::{Fault, Result, StringColumn, TextRef, codes, logical_type};
use xxhash_rust::xxh3::xxh3_64;

/// True for types whose keys are encoded as 64-bit integers; all others are encoded as text.
fn is_integer(logical: &DataType) -> bool {
    use DataType as T;
    matches!(
        logical,
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32
    ) || matches!(
        logical,
        T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_) | T::Timestamp(..) | T::Duration(_)
    )
}

/// True for types that Arrow casts to and from `Int32` only.
fn is_narrow_time(logical: &DataType) -> bool {
    matches!(logical, DataType::Date32 | DataType::Time32(_))
}

/// One key column of a batch.
pub(crate) enum KeyColumn {
    Integers(Int64Array),
    Text(StringColumn),
}

impl KeyColumn {
    /// Converts a column of this logical type.
    pub(crate) fn of(column: &ArrayRef, logical: &DataType) -> Result<Self> {
        if !is_integer(logical) {
            return Ok(KeyColumn::Text(StringColumn::of(column)?));
        }
        let column = if is_narrow_time(logical) {
            &cast(column, &DataType::Int32)?
        } else {
            column
        };
        let integers = cast(column, &DataType::Int64)?;
        let integers = integers.as_primitive::<Int64Type>().clone();
        Ok(KeyColumn::Integers(integers))
    }

    /// A cheap hash of a row's value for a cache: equal values of one batch may have different hashes.
    pub(crate) fn hash(&self, row: usize) -> u64 {
        match self {
            KeyColumn::Integers(array) => array.value(row) as u64,
            KeyColumn::Text(StringColumn::Dictionary(keys, _)) => keys.value(row) as u64,
            KeyColumn::Text(StringColumn::Plain(array)) => TextRef::new(array)
                .and_then(|text| text.get(row))
                .map_or(0, |text| xxh3_64(text.as_bytes())),
        }
    }

    /// True if two rows certainly have the same value.
    pub(crate) fn rows_equal(&self, a: usize, b: usize) -> bool {
        match self {
            KeyColumn::Integers(array) => {
                array.is_valid(a) == array.is_valid(b)
                    && (array.is_null(a) || array.value(a) == array.value(b))
            }
            KeyColumn::Text(StringColumn::Dictionary(keys, _)) => {
                keys.is_valid(a) == keys.is_valid(b)
                    && (keys.is_null(a) || keys.value(a) == keys.value(b))
            }
            KeyColumn::Text(StringColumn::Plain(array)) => {
                TextRef::new(array).is_some_and(|text| text.get(a) == text.get(b))
            }
        }
    }

    /// Appends the encoded value of a row to the key.
    pub(crate) fn write(&self, row: usize, key: &mut Vec<u8>) {
        let text = match self {
            KeyColumn::Integers(array) if array.is_null(row) => return key.push(0),
            KeyColumn::Integers(array) => {
                key.push(1);
                // A flipped sign bit sorts negative numbers first.
                let sortable = (array.value(row) as u64) ^ (1 << 63);
                return key.extend_from_slice(&sortable.to_be_bytes());
            }
            KeyColumn::Text(StringColumn::Plain(array)) => {
                TextRef::new(array).and_then(|text| text.get(row))
            }
            KeyColumn::Text(StringColumn::Dictionary(keys, values)) => {
                if keys.is_null(row) {
                    return key.push(0);
                }
                let index = keys.value(row) as usize;
                TextRef::new(values).and_then(|texts| texts.get(index))
            }
        };
        let Some(text) = text else { return key.push(0) };
        key.push(1);
        // A zero byte ends the text, so that a prefix sorts first; zero bytes within it are escaped.
        for (i, part) in text.as_bytes().split(|&byte| byte == 0).enumerate() {
            if i > 0 {
                key.extend_from_slice(&[0, 255]);
            }
            key.extend_from_slice(part);
        }
        key.push(0);
    }
}

enum KeyColumnBuilder {
    Integers(Int64Builder),
    Text(StringBuilder),
}

/// Builds the key columns of a finding from encoded keys.
pub(crate) struct KeyTable {
    columns: Vec<(KeyColumnBuilder, DataType)>,
}

impl KeyTable {
    pub(crate) fn new(types: &[DataType]) -> Self {
        let mut columns = Vec::with_capacity(types.len());
        for logical in types {
            let builder = if is_integer(logical) {
                KeyColumnBuilder::Integers(Int64Builder::new())
            } else {
                KeyColumnBuilder::Text(StringBuilder::new())
            };
            columns.push((builder, logical.clone()));
        }
        KeyTable { columns }
    }

    /// Decodes and appends one key.
    pub(crate) fn push(&mut self, mut key: &[u8]) -> Result<()> {
        for (values, _) in &mut self.columns {
            let (tag, tail) = key.split_first().ok_or_else(corrupt)?;
            key = tail;
            match values {
                KeyColumnBuilder::Integers(values) if *tag == 0 => values.append_null(),
                KeyColumnBuilder::Text(values) if *tag == 0 => values.append_null(),
                KeyColumnBuilder::Integers(values) => {
                    let (head, tail) = key.split_first_chunk().ok_or_else(corrupt)?;
                    values.append_value((u64::from_be_bytes(*head) ^ (1 << 63)) as i64);
                    key = tail;
                }
                KeyColumnBuilder::Text(values) => {
                    let (text, tail) = unescape(key)?;
                    values.append_value(text);
                    key = tail;
                }
            }
        }
        Ok(())
    }

    /// The finished columns, cast to their logical types.
    pub(crate) fn finish(self) -> Result<Vec<ArrayRef>> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for (builder, logical) in self.columns {
            let column: ArrayRef = match builder {
                KeyColumnBuilder::Text(mut texts) => Arc::new(texts.finish()),
                KeyColumnBuilder::Integers(mut integers) => {
                    let mut integers: ArrayRef = Arc::new(integers.finish());
                    if is_narrow_time(&logical) {
                        integers = cast(&integers, &DataType::Int32)?;
                    }
                    cast(&integers, &logical)?
                }
            };
            columns.push(column);
        }
        Ok(columns)
    }
}

/// The first value of a key, of this type, and the others; each as it is encoded.
pub(crate) fn split_key<'a>(key: &'a [u8], first: &DataType) -> Result<(&'a [u8], &'a [u8])> {
    let length = match key.split_first() {
        None => return Err(corrupt()),
        Some((0, _)) => 1,
        Some(_) if is_integer(&logical_type(first)) => 1 + size_of::<u64>(),
        Some((_, text)) => 2 + text_length(text).ok_or_else(corrupt)?,
    };
    key.split_at_checked(length).ok_or_else(corrupt)
}

/// Bytes before the zero byte that ends an encoded text. A zero byte that 255 follows is part of the text.
fn text_length(text: &[u8]) -> Option<usize> {
    (0..text.len()).find(|index| text[*index] == 0 && text.get(index + 1) != Some(&255))
}

/// Decodes the text at the start of a key; also returns the bytes behind it.
fn unescape(key: &[u8]) -> Result<(String, &[u8])> {
    let mut text = Vec::new();
    let mut tail = key;
    loop {
        let zero = tail
            .iter()
            .position(|&byte| byte == 0)
            .ok_or_else(corrupt)?;
        text.extend_from_slice(&tail[..zero]);
        tail = &tail[zero + 1..];
        match tail.strip_prefix(&[255]) {
            Some(after_escape) => {
                text.push(0);
                tail = after_escape;
            }
            None => {
                let text = String::from_utf8(text).map_err(|_| corrupt())?;
                return Ok((text, tail));
            }
        }
    }
}

fn corrupt() -> Fault {
    Fault::new(
        codes::CORRUPT,
        "a state holds a group key that cannot be read",
    )
}
