//! Columns from folders named `column=value`.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, DictionaryArray, Int32Array, Int64Array, StringArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use forebay_model::{Fault, Result, codes, type_label};

/// The value that stands for null, by Hive's convention.
pub(crate) const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Columns and values of a relative path, in path order.
pub(crate) fn partition_values(relative: &str) -> Vec<(String, String)> {
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

/// Undoes percent encoding; text that is not valid stays as it is.
fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map_or_else(|_| text.to_owned(), Into::into)
}

/// The columns that all files share, typed by all of their values.
pub(crate) fn partition_fields(files: &[(&str, &[(String, String)])]) -> Result<Vec<FieldRef>> {
    let Some(((first, expected), rest)) = files.split_first() else {
        return Ok(Vec::new());
    };
    let names = |partition: &[(String, String)]| {
        partition
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    let columns = names(expected);
    if let Some((_, name)) = columns
        .iter()
        .enumerate()
        .find(|(at, name)| columns[..*at].contains(name))
    {
        return Err(Fault::new(
            codes::DUPLICATE,
            format!("two folders of this file's path give a column `{name}`"),
        )
        .file(*first)
        .column(name)
        .hint("rename one of the folders, or set `partitions: none`"));
    }
    if let Some((path, odd)) = rest
        .iter()
        .find(|(_, partition)| names(partition) != columns)
    {
        let message = format!(
            "the folders of this file give the partition columns {:?}",
            names(odd)
        );
        return Err(Fault::new(codes::SCHEMA_DRIFT, message)
            .file(*path)
            .note(format!("those of {first} give {columns:?}"))
            .hint("keep one layout of folders below the path, or set `partitions: none`"));
    }
    let fields = columns.iter().enumerate().map(|(i, name)| {
        let values = || {
            files
                .iter()
                .filter_map(|(_, partition)| partition.get(i))
                .map(|(_, value)| value.as_str())
        };
        let known = || values().filter(|value| *value != NULL);
        let data_type = if known().next().is_none() {
            DataType::Utf8
        } else if known().all(is_canonical) {
            DataType::Int64
        } else if known().all(|value| parse_iso_date(value).is_some()) {
            DataType::Date32
        } else {
            DataType::Utf8
        };
        Arc::new(Field::new(
            name,
            data_type,
            values().any(|value| value == NULL),
        ))
    });
    Ok(fields.collect())
}

/// Whether a text is an integer as it would be written: `7`, but not `007` or `+7`, which are other values.
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

/// A partition value as an array of one row, in the column's type.
pub(crate) fn partition_scalar(value: &str, data_type: &DataType) -> Result<ArrayRef> {
    let wrong = || {
        Fault::new(
            codes::SCHEMA_DRIFT,
            format!(
                "the partition value `{value}` is not of type {}",
                type_label(data_type)
            ),
        )
    };
    if value == NULL {
        return Ok(new_null_array(data_type, 1));
    }
    let array: ArrayRef = match data_type {
        DataType::Utf8 => Arc::new(StringArray::from(vec![value])),
        DataType::Int64 => Arc::new(Int64Array::from(vec![
            value.parse::<i64>().map_err(|_| wrong())?,
        ])),
        DataType::Date32 => Arc::new(Date32Array::from(vec![
            parse_iso_date(value).ok_or_else(wrong)?,
        ])),
        other => cast(&StringArray::from(vec![value]), other).map_err(|_| wrong())?,
    };
    Ok(array)
}

/// One row, repeated: strings as a dictionary of one value that all batches share.
pub(crate) fn repeat_scalar(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    if one.data_type() == &DataType::Utf8 && one.is_valid(0) {
        let keys = Int32Array::from(vec![0; rows]);
        return Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(
            keys,
            one.clone(),
        )?));
    }
    if one.is_null(0) {
        return Ok(new_null_array(one.data_type(), rows));
    }
    Ok(match one.data_type() {
        DataType::Int64 => {
            use arrow::array::AsArray;
            let value = one.as_primitive::<arrow::datatypes::Int64Type>().value(0);
            Arc::new(Int64Array::from_value(value, rows))
        }
        _ => arrow::compute::take(one, &Int32Array::from(vec![0; rows]), None)?,
    })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn escapes_are_undone() {
        assert_eq!(
            partition_values("a=x%3Ay/b=%/c.parquet"),
            [("a".into(), "x:y".into()), ("b".into(), "%".into())]
        );
        assert_eq!(partition_values("c.parquet"), []);
    }
}
