//! Texts of times that SQL reads by a format, such as `to_timestamp(text, '%d.%m.%Y %H:%M:%S')`.
//!
//! Left to itself, the query engine takes a second 60 for the first one of the next minute, and cuts digits off fractions:
//! behind the ninth, and those that the unit of the function does not hold. Such texts are refused. A day that is read from
//! a text with a time of day loses it, as the format says.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use chrono::format::{Parsed, StrftimeItems, parse};
use datafusion::common::DataFusionError;
use forebay_model::{logical_type, shorten, tick_nanoseconds, type_label};

const LEAP_SECOND: u32 = 60;

/// Digits of a fraction of a second that are read.
const FRACTION_DIGITS: usize = 9;

/// The end of a format behind which the query engine itself reads the name of a zone.
const ZONE_NAME: &str = " %Z";

/// Fails if a text has more than the first format that reads it gives a time of a type.
pub(crate) fn refuse_cut_by_formats(
    texts: &ArrayRef,
    formats: &[ArrayRef],
    of: &DataType,
) -> Result<(), DataFusionError> {
    if logical_type(texts.data_type()) != DataType::Utf8 {
        return Ok(());
    }
    let texts = cast(texts, &DataType::Utf8)?;
    let mut columns = Vec::with_capacity(formats.len());
    for format in formats {
        columns.push(cast(format, &DataType::Utf8)?);
    }
    let may_read_fractions = columns.iter().any(may_have_fractions);
    for (row, text) in texts.as_string::<i32>().iter().enumerate() {
        let Some(text) = text else {
            continue;
        };
        // Most texts need no second look.
        if !text.contains("60") && !may_read_fractions {
            continue;
        }
        let parsed = columns
            .iter()
            .filter_map(|column| format_at(column, row))
            .find_map(|format| parsed_by(text, format));
        if let Some(problem) = parsed.and_then(|parsed| cut_part(&parsed, text, of)) {
            return Err(DataFusionError::Execution(format!(
                "`{}` is not of type {}: {problem}",
                shorten(text),
                type_label(of)
            )));
        }
    }
    Ok(())
}

/// True if a format of a column may read fractions of seconds, behind a dot or not.
fn may_have_fractions(formats: &ArrayRef) -> bool {
    let mut formats = formats.as_string::<i32>().iter().flatten();
    formats.any(|format| format.contains(['f', '+']))
}

/// The format of a row. A constant is a column of one row.
fn format_at(column: &ArrayRef, row: usize) -> Option<&str> {
    let formats = column.as_string::<i32>();
    let row = if formats.len() == 1 { 0 } else { row };
    (row < formats.len() && formats.is_valid(row)).then(|| formats.value(row))
}

/// The parts of a text that a format reads; `None` where the text is not written in it.
fn parsed_by(text: &str, format: &str) -> Option<Parsed> {
    let mut clock_text = text;
    let mut clock_format = format;
    if let Some(before_zone) = format.trim_end().strip_suffix(ZONE_NAME) {
        clock_format = before_zone;
        clock_text = text.trim_end().rsplit_once(' ')?.0;
    }
    let mut parsed = Parsed::new();
    parse(&mut parsed, clock_text, StrftimeItems::new(clock_format)).ok()?;
    Some(parsed)
}

/// The part of a text that the query engine moves or cuts.
fn cut_part(parsed: &Parsed, text: &str, of: &DataType) -> Option<&'static str> {
    if parsed.second() == Some(LEAP_SECOND) {
        return Some("it has a second 60");
    }
    let nanosecond = parsed.nanosecond()?;
    // A day has no clock.
    if *of == DataType::Date32 {
        return None;
    }
    let tick = tick_nanoseconds(of).unwrap_or(1);
    let is_cut = i128::from(nanosecond) % tick != 0 || has_tenth_digit(text);
    is_cut.then_some("digits of it would be lost")
}

/// True if a fraction has other digits than zeros behind those that are read.
fn has_tenth_digit(text: &str) -> bool {
    text.split('.').skip(1).any(|fraction| {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit);
        digits.skip(FRACTION_DIGITS).any(|digit| digit != b'0')
    })
}

/// True if a format reads an offset from UTC, a zone or seconds since 1970, so that its times are instants.
pub(crate) fn reads_instants(format: &str) -> bool {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            continue;
        }
        // Flags, widths and colons stand before the letter of a directive.
        let directive =
            letters.find(|letter| !matches!(letter, '-' | '_' | '0'..='9' | '#' | '.' | ':'));
        if matches!(directive, Some('z' | 'Z' | 's' | '+')) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use forebay_model::codes;

    use super::*;
    use crate::column_results::{ticks_of, values_over};

    const DAY_SECONDS: i64 = 19_904 * 86_400;

    fn ticks(expression: &str, text: &str) -> forebay_model::Result<Option<i64>> {
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some(text), None]));
        let values = values_over(expression, "s", &column)?;
        Ok(ticks_of(&values)[0])
    }

    /// Calls of a text `s`, and texts of them that lose a part.
    const CUT: [(&str, &[&str]); 12] = [
        (
            "to_timestamp(s, '%d.%m.%Y %H:%M:%S')",
            &["30.06.2024 23:59:60", "30.06.2024 12:30:60"],
        ),
        (
            "to_timestamp(s, '%Y', '%d.%m.%Y %T')",
            &["30.06.2024 12:30:60"],
        ),
        ("to_timestamp(s, '%F %T %Z')", &["2024-06-30 12:30:60 UTC"]),
        (
            "to_timestamp(s, '%F %T%.f')",
            &["2024-06-30 12:30:59.1234567891"],
        ),
        (
            "to_timestamp_millis(s, '%F %T%.f')",
            &["2024-06-30 12:30:60", "1969-12-31 23:59:59.9995"],
        ),
        (
            "to_timestamp_seconds(s, '%F %T%.f')",
            &["1969-12-31 23:59:59.5"],
        ),
        (
            "to_timestamp_seconds(s, '%F %T,%3f')",
            &["1969-12-31 23:59:59,500"],
        ),
        (
            "to_timestamp_millis(s, '%Y%m%d %H%M%S%6f')",
            &["19691231 235959999500"],
        ),
        ("to_timestamp_seconds(s, '%+')", &["1969-12-31T23:59:59.5Z"]),
        ("to_unixtime(s, '%F %T')", &["2024-06-30 12:30:60"]),
        ("to_date(s, '%F %T')", &["2024-06-30 23:59:60"]),
        ("to_time(s, '%H:%M:%S')", &["12:30:60", "23:59:60"]),
    ];

    #[test]
    fn texts_in_formats_are_read_whole_or_not_at_all() {
        for (call, texts) in CUT {
            for text in texts {
                let fault = ticks(call, text).unwrap_err();
                assert_eq!(fault.code(), codes::BAD_ROW, "{call} of {text}");
                let constant = call.replacen("(s", &format!("('{text}'"), 1);
                assert!(ticks(&constant, text).is_err(), "{constant}");
            }
        }
    }

    #[test]
    fn texts_in_formats_that_lose_nothing_are_read() {
        let second = DAY_SECONDS + 43_200;
        for (call, text, expected) in [
            (
                "to_timestamp(s, '%d.%m.%Y %T')",
                "30.06.2024 12:00:00",
                second * 1_000_000_000,
            ),
            (
                "to_timestamp_millis(s, '%F %T%.f')",
                "2024-06-30 12:00:00.5",
                second * 1_000 + 500,
            ),
            (
                "to_timestamp_seconds(s, '%F %T%.f')",
                "2024-06-30 12:00:00.000",
                second,
            ),
            (
                "to_unixtime(s, '%d.%m.%y %H.%M.%S')",
                "30.06.24 12.00.00",
                second,
            ),
            (
                "to_timestamp_millis(s, '%F %T,%3f')",
                "2024-06-30 12:00:00,500",
                second * 1_000 + 500,
            ),
            ("to_date(s, '%F %T%.f')", "2024-06-30 12:00:00.5", 19_904),
            // A year has a day 60.
            ("to_date(s, '%Y-%j')", "2024-060", 19_782),
        ] {
            assert_eq!(
                ticks(call, text).unwrap(),
                Some(expected),
                "{call} of {text}"
            );
        }
    }

    #[test]
    fn formats_with_an_offset_read_instants() {
        for (format, is_instant) in [
            ("%FT%T%z", true),
            ("%F %T %:z", true),
            ("%F %T%#z", true),
            ("%F %T %Z", true),
            ("%s", true),
            ("%+", true),
            ("%F %T", false),
            ("%d.%m.%Y %-H:%M z", false),
            ("%%z", false),
            ("%S%.3f", false),
            ("100%", false),
        ] {
            assert_eq!(reads_instants(format), is_instant, "{format}");
        }
    }
}
