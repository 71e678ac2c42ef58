//! Values as formats of text write them: only in forms that sources read back equal.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use forebay_model::{
    Fault, RECORD_BYTES_MAX, Result, TextRules, codes, logical_type, type_label, type_words,
};

/// True if a type, which is no nested one, has a form in texts.
pub(crate) fn has_text_form(data_type: &DataType) -> bool {
    let data_type = logical_type(data_type);
    is_plain(&data_type)
        || matches!(
            data_type,
            DataType::Null
                | DataType::Float16
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
                | DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
        )
}

/// True for types all of whose values writers of text write so that they are read back equal.
fn is_plain(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Utf8 | DataType::Float32 | DataType::Float64
        )
}

/// The fault for a column of a type that a format of text does not hold.
pub(crate) fn no_form_fault(column: &str, data_type: &DataType, format: &str) -> Fault {
    let message = format!(
        "`{column}` is {}, which has no form in {format}",
        type_words(data_type)
    );
    Fault::new(codes::COLUMN_TYPE, message)
        .column(column)
        .hint("write Parquet, or leave the column out")
}

/// A column in a type that writers of text write exactly: numbers, booleans and texts as they are, dates, times and
/// decimals as texts. A value that the rules for texts do not read back equal, such as a date of the year 10000, is a
/// fault.
pub(crate) fn readable_column(column: &ArrayRef) -> Result<ArrayRef> {
    let data_type = logical_type(column.data_type());
    let column = if data_type == *column.data_type() {
        column.clone()
    } else {
        cast(column, &data_type)?
    };
    if is_plain(&data_type) || data_type == DataType::Null {
        return Ok(column);
    }
    if data_type == DataType::Float16 {
        // Single precision tells each of its values, too.
        return Ok(cast(&column, &DataType::Float32)?);
    }
    let texts = to_texts(&column)?;
    let Some(changed) = first_changed(&column, &texts)? else {
        return Ok(Arc::new(texts));
    };
    let Some(instants) = in_utc(&column) else {
        return Err(unreadable_fault(&column, changed));
    };
    // Clocks of old times differ from UTC by seconds, which no offset tells.
    let texts = with_instants(&column, &texts, &to_texts(&instants)?)?;
    match first_changed(&column, &texts)? {
        None => Ok(Arc::new(texts)),
        Some(changed) => Err(unreadable_fault(&column, changed)),
    }
}

/// Values as texts; those that have none are null.
fn to_texts(column: &ArrayRef) -> Result<StringArray> {
    let lenient = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let texts = match cast_with_options(column, &DataType::Utf8, &lenient) {
        Ok(texts) => texts,
        // A time beyond the calendar or the day fails, also where a null is asked for.
        Err(_) => texts_by_row(column),
    };
    let texts = texts.as_string::<i32>();
    if !has_negative_scale(column.data_type()) {
        return Ok(texts.clone());
    }
    // Zero has the zeros that the type does not store, too.
    let written = texts.iter().map(|text| text.map(without_zeros));
    Ok(written.collect())
}

/// Values as texts, one after the other; those that have none are null.
fn texts_by_row(column: &ArrayRef) -> ArrayRef {
    let mut texts = StringBuilder::new();
    for row in 0..column.len() {
        match cast(&column.slice(row, 1), &DataType::Utf8) {
            Ok(text) if text.is_valid(0) => texts.append_value(text.as_string::<i32>().value(0)),
            _ => texts.append_null(),
        }
    }
    Arc::new(texts.finish())
}

fn has_negative_scale(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale < 0,
        _ => false,
    }
}

fn without_zeros(text: &str) -> &str {
    if text.bytes().all(|digit| digit == b'0') {
        "0"
    } else {
        text
    }
}

/// Rows whose texts are not read back as their values.
fn changed_rows(column: &ArrayRef, texts: &StringArray) -> Result<Vec<usize>> {
    let read = TextRules::declared().read(texts, column.data_type());
    let equal = not_distinct(column, &read.values)?;
    Ok((0..column.len()).filter(|row| !equal.value(*row)).collect())
}

fn first_changed(column: &ArrayRef, texts: &StringArray) -> Result<Option<usize>> {
    Ok(changed_rows(column, texts)?.first().copied())
}

/// Times of a zone as those of UTC; `None` for columns of other types.
fn in_utc(column: &ArrayRef) -> Option<ArrayRef> {
    let DataType::Timestamp(unit, Some(_)) = column.data_type() else {
        return None;
    };
    Some(match unit {
        TimeUnit::Second => {
            let times = column.as_primitive::<TimestampSecondType>().clone();
            Arc::new(times.with_timezone("UTC"))
        }
        TimeUnit::Millisecond => {
            let times = column.as_primitive::<TimestampMillisecondType>().clone();
            Arc::new(times.with_timezone("UTC"))
        }
        TimeUnit::Microsecond => {
            let times = column.as_primitive::<TimestampMicrosecondType>().clone();
            Arc::new(times.with_timezone("UTC"))
        }
        TimeUnit::Nanosecond => {
            let times = column.as_primitive::<TimestampNanosecondType>().clone();
            Arc::new(times.with_timezone("UTC"))
        }
    })
}

/// Texts, with those of UTC where the others do not tell their instants.
fn with_instants(
    column: &ArrayRef,
    texts: &StringArray,
    instants: &StringArray,
) -> Result<StringArray> {
    let changed = changed_rows(column, texts)?;
    let mut changed = changed.iter().peekable();
    let text = |row: usize| {
        let source = match changed.next_if(|changed| **changed == row) {
            Some(_) => instants,
            None => texts,
        };
        source.is_valid(row).then(|| source.value(row))
    };
    Ok((0..column.len()).map(text).collect())
}

fn unreadable_fault(column: &ArrayRef, row: usize) -> Fault {
    let label = type_label(column.data_type());
    let number = match column.data_type() {
        DataType::Date32 | DataType::Time32(_) => cast(&column.slice(row, 1), &DataType::Int32),
        _ => cast(&column.slice(row, 1), &DataType::Int64),
    };
    let value = number
        .and_then(|number| cast(&number, &DataType::Utf8))
        .ok()
        .filter(|text| text.is_valid(0))
        .map(|text| format!(" ({})", text.as_string::<i32>().value(0)));
    let message = format!(
        "a value of type {label}{} has no text that is read back equal",
        value.unwrap_or_default()
    );
    Fault::new(codes::BAD_ROW, message).hint(
        "texts hold the years 0 to 9999 and times of one day; write Parquet, or filter such rows \
             out",
    )
}

/// The fault for a record that sources refuse for its length.
pub(crate) fn record_too_long_fault(bytes: usize) -> Fault {
    let message =
        format!("a record has {bytes} bytes of text, and sources read at most {RECORD_BYTES_MAX}");
    Fault::new(codes::BAD_ROW, message).hint("write Parquet, or leave the longest columns out")
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Time32SecondArray, Time64MicrosecondArray, TimestampSecondArray,
    };

    use super::*;

    /// Values that are no time of a day or lie beyond the calendar are named, and others beside them are written.
    #[test]
    fn times_without_a_text_are_named() {
        let day = 86_400_000_000;
        let columns: [(ArrayRef, &str); 5] = [
            (
                Arc::new(Time64MicrosecondArray::from(vec![Some(0), None, Some(day)])),
                "(86400000000)",
            ),
            (Arc::new(Time64MicrosecondArray::from(vec![-1])), "(-1)"),
            (
                Arc::new(Time32SecondArray::from(vec![86_399, 86_400])),
                "(86400)",
            ),
            (
                Arc::new(Date32Array::from(vec![0, i32::MAX])),
                "(2147483647)",
            ),
            (
                Arc::new(TimestampSecondArray::from(vec![i64::MIN])),
                "(-9223372036854775808)",
            ),
        ];
        for (column, number) in columns {
            let fault = readable_column(&column).unwrap_err();
            assert_eq!(fault.code(), codes::BAD_ROW);
            let message = fault.message();
            assert!(message.contains(number), "{message}");
            assert!(message.contains("no text"), "{message}");
        }
        let last = Time32SecondArray::from(vec![Some(86_399), None]);
        let texts = readable_column(&(Arc::new(last) as ArrayRef)).unwrap();
        assert_eq!(texts.as_string::<i32>().value(0), "23:59:59");
        assert!(texts.is_null(1));
    }
}
