//! Columns from folders named `column=value`.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use forebay_model::{Fault, Result, TextRules, codes, type_label};

/// The value that stands for null, by Hive's convention.
pub const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Columns and values of a relative path, in path order.
pub fn partition_values(relative: &str) -> Vec<(String, String)> {
    let Some((folders, _)) = relative.rsplit_once('/') else {
        return Vec::new();
    };
    folders
        .split('/')
        .filter_map(|folder| folder.split_once('='))
        .filter(|(column, _)| !column.is_empty())
        .map(|(column, value)| (unescape(column), unescape(value)))
        .collect()
}

/// Names of columns that files have, too: a folder's value stands for all rows of its files.
pub(crate) fn replaced_columns(in_files: &[FieldRef], partitions: &[FieldRef]) -> Vec<String> {
    let mut replaced = Vec::new();
    for field in in_files {
        if partitions.iter().any(|of| of.name() == field.name()) {
            replaced.push(field.name().clone());
        }
    }
    replaced
}

/// Undoes percent encoding; text that is not valid stays as it is.
fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map_or_else(|_| text.to_owned(), Into::into)
}

/// The columns that all files share, typed by all of their values.
pub(crate) fn partition_fields(files: &[(&str, &[(String, String)])]) -> Result<Vec<FieldRef>> {
    let Some(((first, expected), others)) = files.split_first() else {
        return Ok(Vec::new());
    };
    let columns = column_names(expected);
    for (at, name) in columns.iter().enumerate() {
        if columns[..at].contains(name) {
            let message = format!("two folders of this file's path give a column `{name}`");
            let fault = Fault::new(codes::DUPLICATE, message)
                .file(*first)
                .column(*name);
            return Err(fault.hint("rename one of the folders, or set `partitions: none`"));
        }
    }
    for (path, partition) in others {
        let names = column_names(partition);
        if names != columns {
            let message = format!("the folders of this file give the partition columns {names:?}");
            let fault = Fault::new(codes::SCHEMA_DRIFT, message)
                .file(*path)
                .note(format!("those of {first} give {columns:?}"));
            return Err(
                fault.hint("keep one layout of folders below the path, or set `partitions: none`")
            );
        }
    }
    let mut fields: Vec<FieldRef> = Vec::with_capacity(columns.len());
    for (index, name) in columns.into_iter().enumerate() {
        let mut values = Vec::with_capacity(files.len());
        let mut has_nulls = false;
        for (_, partition) in files {
            match partition[index].1.as_str() {
                NULL => has_nulls = true,
                value => values.push(value),
            }
        }
        fields.push(Arc::new(Field::new(
            name,
            type_of_values(&values),
            has_nulls,
        )));
    }
    Ok(fields)
}

fn column_names(partition: &[(String, String)]) -> Vec<&str> {
    partition.iter().map(|(name, _)| name.as_str()).collect()
}

/// The type of the names of folders: text if there are none.
fn type_of_values(values: &[&str]) -> DataType {
    if values.is_empty() {
        DataType::Utf8
    } else if values.iter().all(|value| is_canonical(value)) {
        DataType::Int64
    } else if values.iter().all(|value| parse_iso_date(value).is_some()) {
        DataType::Date32
    } else {
        DataType::Utf8
    }
}

/// True for the canonical text of an integer: `7`, but not `007` or `+7`, which are other values.
fn is_canonical(value: &str) -> bool {
    value
        .parse::<i64>()
        .is_ok_and(|integer| integer.to_string() == value)
}

/// Days since 1970 of an ISO date, and nothing else.
fn parse_iso_date(text: &str) -> Option<i32> {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(i, b)| {
            if i == 4 || i == 7 {
                b == b'-'
            } else {
                b.is_ascii_digit()
            }
        });
    shape
        .then(|| arrow::datatypes::Date32Type::parse_day(text))
        .flatten()
}

trait DateParser {
    fn parse_day(text: &str) -> Option<i32>;
}

impl DateParser for arrow::datatypes::Date32Type {
    fn parse_day(text: &str) -> Option<i32> {
        use arrow::compute::kernels::cast_utils::Parser;
        <arrow::datatypes::Date32Type as Parser>::parse(text)
    }
}

/// A partition value as an array of one row, in the column's type. The type may be declared, as the log of a Delta table
/// does: a value that is none of it is a fault, and nothing of it is cut off.
pub fn partition_scalar(value: &str, data_type: &DataType) -> Result<ArrayRef> {
    if value == NULL {
        return Ok(new_null_array(data_type, 1));
    }
    let texts = StringArray::from(vec![value]);
    if *data_type == DataType::Utf8 {
        return Ok(Arc::new(texts));
    }
    TextRules::declared()
        .read_all(&texts, data_type)
        .map_err(|_| {
            Fault::new(
                codes::SCHEMA_DRIFT,
                format!(
                    "the partition value `{value}` is not of type {}",
                    type_label(data_type)
                ),
            )
        })
}

/// Repeats one row: strings as a dictionary of one value that all batches share.
pub(crate) fn repeat_scalar(value: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    if value.data_type() == &DataType::Utf8 && value.is_valid(0) {
        let keys = Int32Array::from(vec![0; rows]);
        return Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(
            keys,
            value.clone(),
        )?));
    }
    if value.is_null(0) {
        return Ok(new_null_array(value.data_type(), rows));
    }
    Ok(match value.data_type() {
        DataType::Int64 => {
            use arrow::array::AsArray;
            let value = value.as_primitive::<arrow::datatypes::Int64Type>().value(0);
            Arc::new(Int64Array::from_value(value, rows))
        }
        _ => arrow::compute::take(value, &Int32Array::from(vec![0; rows]), None)?,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn values_are_typed_by_all_of_them() {
        let check = |values: &[&str], expected: DataType| {
            let partitions: Vec<_> = values
                .iter()
                .map(|value| vec![("k".to_owned(), (*value).to_owned())])
                .collect();
            let files: Vec<_> = partitions
                .iter()
                .map(|partition| ("f", partition.as_slice()))
                .collect();
            assert_eq!(
                partition_fields(&files).unwrap()[0].data_type(),
                &expected,
                "{values:?}"
            );
        };
        check(&["1", "-2", NULL], DataType::Int64);
        check(&["2013-01-31", "2013-02-01"], DataType::Date32);
        check(&["2013-01-31", "2013-02-30"], DataType::Utf8);
        check(&["1", "a"], DataType::Utf8);
        check(&["7", "007"], DataType::Utf8);
        check(&["01", "02", "12"], DataType::Utf8);
        check(&["1", "+2"], DataType::Utf8);
        check(&["-0"], DataType::Utf8);
        check(&["9223372036854775807", "0"], DataType::Int64);
        check(&["9223372036854775808", "0"], DataType::Utf8);
        check(&[NULL], DataType::Utf8);
    }

    /// Values of folders and of the logs of Delta tables.
    #[test]
    fn values_are_of_their_type_or_faults() {
        use arrow::util::display::array_value_to_string;
        let decimal = DataType::Decimal128(5, 2);
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let local = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (value, data_type, expected) in [
            ("5", DataType::Int32, Some("5")),
            ("5x", DataType::Int32, None),
            ("5.0", DataType::Int32, None),
            (" 5", DataType::Int32, None),
            ("99999999999", DataType::Int32, None),
            ("128", DataType::Int8, None),
            ("1e3", DataType::Int64, None),
            ("1.5", DataType::Float64, Some("1.5")),
            ("NaN", DataType::Float64, Some("NaN")),
            ("-Infinity", DataType::Float64, Some("-inf")),
            ("1e400", DataType::Float64, None),
            ("1,5", DataType::Float64, None),
            ("TRUE", DataType::Boolean, Some("true")),
            ("yes", DataType::Boolean, None),
            ("1", DataType::Boolean, None),
            ("9999-12-31", DataType::Date32, Some("9999-12-31")),
            ("2024-02-30", DataType::Date32, None),
            ("2024-01-01 10:00:00", DataType::Date32, None),
            ("-0.01", decimal.clone(), Some("-0.01")),
            ("1.5", decimal.clone(), Some("1.50")),
            ("1.505", decimal.clone(), None),
            ("1234.5", decimal.clone(), None),
            ("1e1", decimal, None),
            (
                "2024-01-01 10:00:00.5",
                local.clone(),
                Some("2024-01-01T10:00:00.500"),
            ),
            ("2024-01-01 24:00:00", local.clone(), None),
            ("1704067200000", local, None),
            (
                "2024-01-01T10:00:00+02:00",
                utc.clone(),
                Some("2024-01-01T08:00:00Z"),
            ),
            (
                "2024-01-01 10:00:00",
                utc.clone(),
                Some("2024-01-01T10:00:00Z"),
            ),
            ("2024-01-01 10:00:00.1234567", utc, None),
            ("ab", DataType::Binary, Some("6162")),
        ] {
            match partition_scalar(value, &data_type) {
                Ok(array) => {
                    let text = array_value_to_string(&array, 0).unwrap();
                    assert_eq!(Some(text.as_str()), expected, "{value} as {data_type}");
                    assert_eq!(array.data_type(), &data_type);
                }
                Err(fault) => {
                    assert_eq!(expected, None, "{value} as {data_type}: {fault:?}");
                    assert!(format!("{fault:?}").contains(value));
                }
            }
        }
        let null = partition_scalar(NULL, &DataType::Int32).unwrap();
        assert!(null.is_null(0));
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(
            partition_values("a=x%3Ay/b=%/c.parquet"),
            [("a".into(), "x:y".into()), ("b".into(), "%".into())]
        );
        assert_eq!(partition_values("c.parquet"), []);
    }
}
