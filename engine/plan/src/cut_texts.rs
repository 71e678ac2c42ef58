//! Texts of dates and times of which the query engine drops a part.
//!
//! Left to itself, the query engine takes the day of `DATE '2024-01-01 12:00:00'`, cuts digits off seconds, toward 1970 in
//! `to_timestamp_seconds`, and makes the next minute of a second 60. At the end of a day that is no time of day. Such texts
//! are refused, in constants as in columns. Midnight behind a date says nothing that the date does not say.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DataFusionError;
use forebay_model::{TextRules, logical_type};

/// The words with which the error for such a constant begins.
pub(crate) const CUT_TEXT: &str = "a text of a time is cut: ";

/// Bytes of a date as ISO 8601 has it.
const DATE_LENGTH: usize = 10;

/// True for a text of which a date or a time of a type lacks a part.
pub(crate) fn is_cut(text: &str, of: &DataType) -> bool {
    let clock = match of {
        DataType::Time32(_) | DataType::Time64(_) => Some(text),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => clock_of(text),
        _ => None,
    };
    let Some(clock) = clock else {
        return false;
    };
    if *of == DataType::Date32 {
        return !is_midnight(clock);
    }
    has_second_60(clock) || has_finer_digits(clock, of)
}

/// A sentence on a text that is cut.
pub(crate) fn cut_problem(text: &str, of: &DataType) -> String {
    TextRules::declared().problem(text, of)
}

/// Fails if a text of a column, or a constant, is cut. Other columns than those of texts are none.
pub(crate) fn refuse_cut_texts(column: &ArrayRef, of: &DataType) -> Result<(), DataFusionError> {
    if logical_type(column.data_type()) != DataType::Utf8 {
        return Ok(());
    }
    let texts = cast(column, &DataType::Utf8)?;
    let mut texts = texts.as_string::<i32>().iter().flatten();
    match texts.find(|text| is_cut(text, of)) {
        Some(text) => Err(DataFusionError::Execution(cut_problem(text, of))),
        None => Ok(()),
    }
}

/// The text behind the date of a time, such as `12:30:00` of `2024-01-01 12:30:00`.
fn clock_of(text: &str) -> Option<&str> {
    let (date, clock) = text.split_at_checked(DATE_LENGTH)?;
    let is_date = date
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if !is_date {
        return None;
    }
    clock.strip_prefix(['T', 't', ' '])
}

/// True for a time of day without any hour, minute, second, fraction or offset.
fn is_midnight(clock: &str) -> bool {
    clock
        .bytes()
        .all(|byte| matches!(byte, b'0' | b':' | b'.' | b'+' | b'-' | b'Z' | b'z'))
}

fn has_second_60(clock: &str) -> bool {
    match clock.split(':').nth(2) {
        Some(second) => second.starts_with("60"),
        // Hours, minutes and seconds may stand side by side.
        None => {
            let digits = clock.bytes().take_while(u8::is_ascii_digit).count();
            digits == 6 && &clock[4..6] == "60"
        }
    }
}

/// True if a second has other digits than zeros behind those that a type holds.
fn has_finer_digits(clock: &str, of: &DataType) -> bool {
    let Some((_, fraction)) = clock.split_once('.') else {
        return false;
    };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    digits.skip(second_digits(of)).any(|digit| digit != b'0')
}

/// Digits of a fraction of a second that a type holds.
fn second_digits(of: &DataType) -> usize {
    let unit = match of {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => *unit,
        _ => TimeUnit::Millisecond,
    };
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use arrow::datatypes::{Field, Int64Type, Schema};
    use forebay_model::codes;

    use super::*;
    use crate::SqlCompiler;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("s", DataType::Utf8, true),
            Field::new("day", DataType::Date32, true),
        ])
    }

    /// The value of an expression over a text, as a number; null without one. `Err` names a fault of the expression, or of
    /// its evaluation.
    fn value(expression: &str, text: &str) -> forebay_model::Result<Option<i64>> {
        let compiled = SqlCompiler::default().expression(expression, &schema())?;
        let inputs: Vec<ArrayRef> = if compiled.reads.is_empty() {
            Vec::new()
        } else {
            vec![Arc::new(StringArray::from(vec![text]))]
        };
        let values = (compiled.kernel)(&inputs, 1)?.swap_remove(0);
        let values = match values.data_type() {
            DataType::Date32 | DataType::Time32(_) => cast(&values, &DataType::Int32)?,
            _ => values,
        };
        let numbers = cast(&values, &DataType::Int64)?;
        let number = numbers.as_primitive::<Int64Type>().iter().next();
        Ok(number.flatten())
    }

    /// Texts, and functions of them that would drop a part. Each is refused for a constant and for a column.
    const CUT: [(&str, &[&str]); 7] = [
        (
            "2024-01-01 12:00:00",
            &["to_date({})", "CAST({} AS DATE)", "{}::date"],
        ),
        ("2024-01-01T00:00:00.5", &["to_date({})", "to_unixtime({})"]),
        ("2024-01-01T23:00:00-05:00", &["to_date({})"]),
        (
            "1969-12-31 23:59:59.5",
            &[
                "to_timestamp_seconds({})",
                "to_unixtime({})",
                "CAST({} AS TIMESTAMP(0))",
            ],
        ),
        (
            "1969-12-31 23:59:59.9995",
            &["to_timestamp_millis({})", "CAST({} AS TIMESTAMP(3))"],
        ),
        (
            "2024-06-30 23:59:60",
            &[
                "to_timestamp({})",
                "to_timestamp_nanos({})",
                "to_timestamp_seconds({})",
                "CAST({} AS TIMESTAMP)",
            ],
        ),
        (
            "2024-06-30 23:59:59.1234567891",
            &["to_timestamp({})", "CAST({} AS TIMESTAMP)"],
        ),
    ];

    #[test]
    fn texts_of_times_are_read_whole_or_not_at_all() {
        for (text, expressions) in CUT {
            for expression in expressions {
                let constant = expression.replace("{}", &format!("'{text}'"));
                let column = expression.replace("{}", "s");
                assert!(value(&constant, text).is_err(), "{constant}");
                let fault = value(&column, text).unwrap_err();
                assert_eq!(fault.code(), codes::BAD_ROW, "{column} of {text}");
            }
        }
    }

    #[test]
    fn times_of_day_are_read_whole_or_not_at_all() {
        for text in ["23:59:60", "12:00:00.1234567891"] {
            for expression in ["TIME '{}'", "CAST('{}' AS TIME)", "to_time('{}')"] {
                let constant = expression.replace("{}", text);
                assert!(value(&constant, text).is_err(), "{constant}");
            }
            for column in ["to_time(s)", "CAST(s AS TIME)"] {
                assert!(value(column, text).is_err(), "{column} of {text}");
            }
        }
        assert!(value("to_time(s, '%H:%M:%S')", "23:59:60").is_err());
        let hour = 3_600_000_000_000;
        for expression in [
            "TIME '12:00:00.000000000'",
            "to_time('12:00')",
            "TIME '12:00 PM'",
        ] {
            assert_eq!(
                value(expression, "").unwrap(),
                Some(12 * hour),
                "{expression}"
            );
        }
    }

    /// Constants are named where the spec is checked, with the reason.
    #[test]
    fn faults_of_cut_constants_name_them() {
        for (expression, reason) in [
            ("DATE '2024-01-01 12:00:00'", "time of day"),
            ("day = DATE '2024-01-01T12:00:00'", "time of day"),
            ("day < '2024-01-01T12:00:00+02:00'", "time of day"),
            ("TIMESTAMP(0) '2024-01-01 12:00:00.9'", "digits"),
            ("TIMESTAMP '2024-06-30 23:59:60'", "is not of type"),
        ] {
            let compiled = SqlCompiler::default().expression(expression, &schema());
            let fault = compiled.err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{expression}");
            assert!(fault.message().contains(reason), "{expression}: {fault:?}");
            assert!(fault.hint_text().is_some(), "{expression}");
        }
        let tried = value("TRY_CAST('2024-01-01 12:00:00' AS DATE)", "");
        assert_eq!(tried.unwrap(), None);
    }

    #[test]
    fn texts_that_lose_nothing_are_read() {
        let day = 19_723;
        for expression in [
            "DATE '2024-01-01 00:00:00'",
            "to_date('2024-01-01T00:00:00.000Z')",
            "to_date(s)",
            "DATE '2024-1-1'",
            "to_date('2024-01-01 12:00', '%Y-%m-%d %H:%M')",
        ] {
            let text = "2024-01-01 00:00:00";
            assert_eq!(value(expression, text).unwrap(), Some(day), "{expression}");
        }
        let second = day * 86_400;
        for expression in [
            "to_timestamp_seconds('2024-01-01 00:00:00.000')",
            "to_unixtime(s)",
        ] {
            let text = "2024-01-01";
            assert_eq!(
                value(expression, text).unwrap(),
                Some(second),
                "{expression}"
            );
        }
        let nanosecond = second * 1_000_000_000 + 1;
        let finest = "to_timestamp('2024-01-01 00:00:00.0000000010')";
        assert_eq!(value(finest, "").unwrap(), Some(nanosecond));
    }
}
