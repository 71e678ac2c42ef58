//! Uniform access to string columns of any layout.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, LargeStringArray, StringArray,
    StringViewArray,
};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Int32Type, Int64Type, TimeUnit};

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

/// The name of a type wherever people read one, spelled as specs declare it: `string`, `int64`, `date`, `timestamp`,
/// `timestamp_ns`, `timestamp_utc`; types that specs cannot declare in the same style, such as `float32 x 8`,
/// `list of string` and `timestamp_ms in Europe/Berlin`.
pub fn type_label(data_type: &DataType) -> String {
    match logical_type(data_type) {
        DataType::Utf8 => "string".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            "timestamp_utc".to_owned()
        }
        DataType::Timestamp(unit, zone) => {
            let name = timestamp_label(unit);
            match zone {
                Some(zone) => format!("{name} in {zone}"),
                None => name.to_owned(),
            }
        }
        DataType::List(item) | DataType::LargeList(item) => {
            format!("list of {}", type_label(item.data_type()))
        }
        DataType::FixedSizeList(item, width) => {
            format!("{} x {width}", type_label(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{}: {}", field.name(), type_label(field.data_type())))
                .collect();
            format!("struct({})", fields.join(", "))
        }
        other => other.to_string().to_lowercase(),
    }
}

/// The name of a type that is stored as Arrow writes it: `string` of `Utf8`. Other texts stay as they are.
pub fn type_text_label(text: &str) -> String {
    text.parse::<DataType>()
        .map_or_else(|_| text.to_owned(), |data_type| type_label(&data_type))
}

/// The name of a time without a zone, with its unit, by which types may differ; microseconds have none.
fn timestamp_label(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "timestamp_s",
        TimeUnit::Millisecond => "timestamp_ms",
        TimeUnit::Microsecond => "timestamp",
        TimeUnit::Nanosecond => "timestamp_ns",
    }
}

/// The name of a type as a noun of a sentence: `a date`.
pub fn type_words(data_type: &DataType) -> String {
    let label = type_label(data_type);
    let nouns = ["string", "date", "timestamp", "boolean", "list", "struct"];
    let takes_article = nouns.iter().any(|noun| label.starts_with(noun));
    if takes_article {
        format!("a {label}")
    } else {
        label
    }
}

/// True for a vector type whose width is not learned yet.
pub fn is_unsized_vector(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(_, 0))
}

/// Rows for each value of the range of a column, from which on a dictionary is worth its making.
const ROWS_PER_VALUE: usize = 4;

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

    /// True without any value.
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

/// Booleans, and whole numbers, dates and times of a small range, as a dictionary of the values that rows have: each
/// becomes text once. `None` for others.
fn dictionary_of(column: &ArrayRef) -> Result<Option<StringColumn>> {
    use DataType as T;
    let data_type = column.data_type();
    let is_narrow_time = matches!(data_type, T::Date32 | T::Time32(_));
    let is_whole = matches!(
        data_type,
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32
    ) || matches!(data_type, T::Date64 | T::Time64(_) | T::Timestamp(..));
    if !is_whole && !is_narrow_time {
        return Ok(None);
    }
    // Arrow casts these to and from `Int32` only.
    let whole = if is_narrow_time {
        &cast(column, &T::Int32)?
    } else {
        column
    };
    let whole = cast(whole, &T::Int64)?;
    let whole = whole.as_primitive::<Int64Type>();
    // Without a valid row there is neither a least nor a greatest value.
    let Some(least) = min(whole) else {
        return Ok(None);
    };
    let Some(range) = max(whole).and_then(|greatest| greatest.checked_sub(least)) else {
        return Ok(None);
    };
    let Ok(range) = usize::try_from(range) else {
        return Ok(None);
    };
    if range >= column.len() / ROWS_PER_VALUE && *data_type != T::Boolean {
        return Ok(None);
    }
    // Codes are given in the order of rows; -1 marks values that no row has.
    let mut codes = vec![-1; range + 1];
    let mut values = Vec::new();
    let mut code_of = |value: i64| {
        let code: &mut i32 = &mut codes[(value - least) as usize];
        if *code < 0 {
            *code = values.len() as i32;
            values.push(value);
        }
        *code
    };
    // Rows without a value may hold any number below their null, which has no code.
    let keys = match whole.nulls() {
        None => whole.values().iter().map(|value| code_of(*value)).collect(),
        Some(_) => {
            let values = whole.iter();
            values.map(|value| value.map_or(0, &mut code_of)).collect()
        }
    };
    let values: ArrayRef = Arc::new(Int64Array::from(values));
    let values = if is_narrow_time {
        cast(&values, &T::Int32)?
    } else {
        values
    };
    let words = cast(&cast(&values, data_type)?, &T::Utf8)?;
    let keys = Int32Array::new(keys, whole.nulls().cloned());
    Ok(Some(StringColumn::Dictionary(keys, words)))
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
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Ok(StringColumn::Plain(column.clone()))
            }
            DataType::Dictionary(key, value)
                if **key == DataType::Int32 && TextRef::is_text(value) =>
            {
                let dictionary = column.as_dictionary::<Int32Type>();
                Ok(StringColumn::Dictionary(
                    dictionary.keys().clone(),
                    dictionary.values().clone(),
                ))
            }
            // Other widths of keys become the one that all users of the type handle.
            DataType::Dictionary(_, value) if TextRef::is_text(value) => {
                let narrow =
                    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                StringColumn::of(&cast(column, &narrow)?)
            }
            other if other.is_nested() => Err(Fault::new(
                codes::COLUMN_TYPE,
                format!(
                    "a column of type {} cannot be read as text",
                    type_label(other)
                ),
            )),
            _ => match dictionary_of(column)? {
                Some(dictionary) => Ok(dictionary),
                None => Ok(StringColumn::Plain(cast(
                    &canonical_keys(column)?,
                    &DataType::Utf8,
                )?)),
            },
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            StringColumn::Dictionary(keys, _) => keys.len(),
            StringColumn::Plain(array) => array.len(),
        }
    }

    /// True without any row.
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
                // Each value is mapped once, however many rows have it.
                let of_null = of_value(None);
                let table: Vec<T> = values.iter().map(of_value).collect();
                Ok(keys
                    .iter()
                    .map(|key| {
                        key.and_then(|key| table.get(key as usize))
                            .copied()
                            .unwrap_or(of_null)
                    })
                    .collect())
            }
        }
    }
}

impl TextRef<'_> {
    fn is_text(data_type: &DataType) -> bool {
        matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, Int8Array, TimestampMicrosecondArray, UInt32Array,
    };
    use arrow::datatypes::Field;

    use super::*;

    /// The texts of a column by row, and whether they come as a dictionary.
    fn texts(column: &ArrayRef) -> (Vec<Option<String>>, bool) {
        let found = StringColumn::of(column).unwrap();
        let values: Vec<Option<String>> = found
            .values()
            .unwrap()
            .iter()
            .map(|text| text.map(str::to_owned))
            .collect();
        match found {
            StringColumn::Plain(_) => (values, false),
            StringColumn::Dictionary(keys, _) => {
                assert!(
                    (0..values.len() as i32)
                        .all(|code| keys.iter().flatten().any(|key| key == code)),
                    "all are used"
                );
                (
                    keys.iter()
                        .map(|key| key.and_then(|key| values[key as usize].clone()))
                        .collect(),
                    true,
                )
            }
        }
    }

    #[test]
    fn values_of_a_small_range_become_text_once() {
        let gaps = |row: i64| (row % 7 != 3).then_some(row / 9 * 2 - 4);
        let rows = 0..100_i64;
        let narrow = |row: i64| gaps(row).map(|value| value as i32);
        let columns: [(ArrayRef, bool); 9] = [
            (
                Arc::new(BooleanArray::from_iter(
                    rows.clone().map(|row| gaps(row).map(|value| value > 3)),
                )),
                true,
            ),
            (Arc::new(BooleanArray::from(vec![Some(true), None])), true),
            (Arc::new(BooleanArray::from(vec![None::<bool>; 3])), false),
            (
                Arc::new(Int8Array::from_iter(
                    rows.clone().map(|row| narrow(row).map(|value| value as i8)),
                )),
                true,
            ),
            (
                Arc::new(Date32Array::from_iter(
                    rows.clone().map(|row| narrow(row).map(|day| 17_000 + day)),
                )),
                true,
            ),
            (
                Arc::new(TimestampMicrosecondArray::from_iter(
                    rows.clone().map(|row| gaps(row).map(|t| t + (1 << 50))),
                )),
                true,
            ),
            (
                Arc::new(UInt32Array::from_iter(
                    rows.clone()
                        .map(|row| narrow(row).map(|value| (value + 4) as u32)),
                )),
                true,
            ),
            (
                Arc::new(Int64Array::from_iter(
                    rows.clone().map(|row| gaps(row).map(|value| value * 1_000)),
                )),
                false,
            ),
            (
                Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 0, 0, 0])),
                false,
            ),
        ];
        for (column, is_dictionary) in columns {
            let plain = cast(&column, &DataType::Utf8).unwrap();
            let expected: Vec<Option<String>> = plain
                .as_string::<i32>()
                .iter()
                .map(|text| text.map(str::to_owned))
                .collect();
            assert_eq!(texts(&column), (expected, is_dictionary), "{column:?}");
        }
    }
    #[test]
    fn types_have_one_name_each() {
        let milliseconds = TimeUnit::Millisecond;
        let list = DataType::new_list(DataType::LargeUtf8, true);
        let fields = vec![
            Field::new("x", DataType::Int64, true),
            Field::new("day", DataType::Date32, true),
        ];
        let cases = [
            (DataType::Utf8View, "string", "a string"),
            (DataType::UInt8, "uint8", "uint8"),
            (DataType::Boolean, "boolean", "a boolean"),
            (list, "list of string", "a list of string"),
            (
                DataType::new_fixed_size_list(DataType::Float32, 8, true),
                "float32 x 8",
                "float32 x 8",
            ),
            (
                DataType::Struct(fields.into()),
                "struct(x: int64, day: date)",
                "a struct(x: int64, day: date)",
            ),
            (
                DataType::Timestamp(milliseconds, None),
                "timestamp_ms",
                "a timestamp_ms",
            ),
            (
                DataType::Timestamp(milliseconds, Some("Europe/Berlin".into())),
                "timestamp_ms in Europe/Berlin",
                "a timestamp_ms in Europe/Berlin",
            ),
        ];
        for (data_type, label, words) in cases {
            assert_eq!(type_label(&data_type), label);
            assert_eq!(type_words(&data_type), words);
        }
        let stored = [
            ("Utf8", "string"),
            ("Timestamp(ms)", "timestamp_ms"),
            ("Int32", "int32"),
            ("gone", "gone"),
        ];
        for (text, label) in stored {
            assert_eq!(type_text_label(text), label);
        }
    }
}
