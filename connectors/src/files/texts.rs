//! Columns of texts that are read as other types.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use forebay_model::{ConfigError, ConfigResult, ReadTexts, TextRules, shorten, type_label};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::fmt::strtime::{self, BrokenDownTime};
use jiff::tz::TimeZone;

/// The directives of a time of day.
const CLOCK_DIRECTIVES: &[u8] = b"HIklMSTfsNRrcXpP";

/// The directives that give an instant.
const ZONE_DIRECTIVES: &[u8] = b"zsQ";

/// The day that formats are tried with.
const TRIED_SECOND: i64 = 951_868_799;

/// A date or a time as a source says that it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeFormat {
    text: String,
    kind: TimeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeKind {
    Date,
    Local,
    Instant,
}

impl TimeFormat {
    /// Reads a format with the directives of `strftime`.
    pub(crate) fn parse(text: &str) -> Result<TimeFormat, String> {
        let directives = directives(text);
        let is_among = |of: &[u8]| directives.iter().any(|directive| of.contains(directive));
        let kind = if is_among(ZONE_DIRECTIVES) {
            TimeKind::Instant
        } else if is_among(CLOCK_DIRECTIVES) {
            TimeKind::Local
        } else {
            TimeKind::Date
        };
        let format = TimeFormat {
            text: text.to_owned(),
            kind,
        };
        let tried = Timestamp::from_second(TRIED_SECOND)
            .and_then(|at| BrokenDownTime::from(&at.to_zoned(TimeZone::UTC)).to_string(text))
            .map_err(|error| error.to_string())?;
        match format.ticks(&tried) {
            Some(_) => Ok(format),
            None => Err("it does not tell a day".to_owned()),
        }
    }

    /// The type of what is written so.
    pub(crate) fn data_type(&self) -> DataType {
        match self.kind {
            TimeKind::Date => DataType::Date32,
            TimeKind::Local => DataType::Timestamp(TimeUnit::Microsecond, None),
            TimeKind::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Days or microseconds since 1970; a text that is written in another way has none.
    fn ticks(&self, text: &str) -> Option<i64> {
        let parsed = strtime::parse(&self.text, text).ok()?;
        match self.kind {
            TimeKind::Date => {
                let day = parsed.to_date().ok()?.to_zoned(TimeZone::UTC).ok()?;
                Some(day.timestamp().as_second().div_euclid(86_400))
            }
            TimeKind::Local => {
                let time: DateTime = match parsed.to_datetime() {
                    Ok(time) => time,
                    // A day without a time of day begins at midnight.
                    Err(_) => Date::at(parsed.to_date().ok()?, 0, 0, 0, 0),
                };
                microseconds(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
            }
            TimeKind::Instant => microseconds(parsed.to_timestamp().ok()?),
        }
    }

    /// Texts as days or times.
    fn read(&self, texts: &StringArray) -> ReadTexts {
        let mut lost = Vec::new();
        let mut ticks: Vec<Option<i64>> = Vec::with_capacity(texts.len());
        for (row, text) in texts.iter().enumerate() {
            let read = text.and_then(|text| self.ticks(text));
            if text.is_some() && read.is_none() {
                lost.push(row);
            }
            ticks.push(read);
        }
        let values: ArrayRef = match self.kind {
            TimeKind::Date => {
                let days = ticks.into_iter().map(|day| i32::try_from(day?).ok());
                Arc::new(days.collect::<Date32Array>())
            }
            TimeKind::Local => Arc::new(TimestampMicrosecondArray::from(ticks)),
            TimeKind::Instant => {
                Arc::new(TimestampMicrosecondArray::from(ticks).with_timezone("UTC"))
            }
        };
        ReadTexts { values, lost }
    }
}

fn microseconds(at: Timestamp) -> Option<i64> {
    (at.subsec_nanosecond() % 1000 == 0).then(|| at.as_microsecond())
}

/// The letters behind percent signs, without flags.
fn directives(format: &str) -> Vec<u8> {
    let mut found = Vec::new();
    let mut letters = format.bytes();
    while let Some(byte) = letters.next() {
        if byte != b'%' {
            continue;
        }
        let is_flag = |byte: &u8| b"-_0^#:.".contains(byte) || byte.is_ascii_digit();
        found.extend(letters.by_ref().find(|byte| !is_flag(byte)));
    }
    found
}

/// The formats of a source's columns.
pub(crate) fn parse_formats(
    formats: &BTreeMap<String, String>,
) -> ConfigResult<BTreeMap<String, TimeFormat>> {
    let parse = |(column, text): (&String, &String)| match TimeFormat::parse(text) {
        Ok(format) => Ok((column.clone(), format)),
        Err(reason) => Err(ConfigError::at(
            format!("formats.{column}"),
            format!("`{text}` is not a format of dates or times: {reason}"),
        )),
    };
    formats.iter().map(parse).collect()
}

/// The way in which the texts of one column are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnTexts<'a> {
    pub(crate) rules: TextRules,
    pub(crate) format: Option<&'a TimeFormat>,
}

impl ColumnTexts<'_> {
    /// Texts as values of a type.
    pub(crate) fn read(&self, texts: &StringArray, of: &DataType) -> ReadTexts {
        match self.format.filter(|format| format.data_type() == *of) {
            Some(format) => format.read(texts),
            None => self.rules.read(texts, of),
        }
    }

    /// A sentence on a text that is no value of a type.
    pub(crate) fn problem(&self, text: &str, of: &DataType) -> String {
        match self.format.filter(|format| format.data_type() == *of) {
            Some(format) => format!(
                "`{}` is not {} that is written as `{}`",
                shorten(text),
                forebay_model::type_words(of),
                format.text
            ),
            None => self.rules.problem(text, of),
        }
    }
}

/// The words of a fault for a source that names a format for a column of another type.
pub(crate) fn format_type_problem(column: &str, format: &TimeFormat, of: &DataType) -> String {
    format!(
        "`{}` gives {}, and `{column}` is declared as {}",
        format.text,
        forebay_model::type_words(&format.data_type()),
        type_label(of)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{Date32Type, TimestampMicrosecondType};

    #[test]
    fn dates_and_times_are_read_as_their_format_says() {
        let days = TimeFormat::parse("%d.%m.%Y").unwrap();
        let read = days.read(&StringArray::from(vec![
            Some("31.12.1969"),
            None,
            Some("2024-01-01"),
            Some("29.02.2023"),
            Some("1.1.1970"),
            Some("01.01.1970x"),
        ]));
        let values = read.values.as_primitive::<Date32Type>();
        assert_eq!(read.lost, [2, 3, 5]);
        assert_eq!((values.value(0), values.value(4)), (-1, 0));
        let times = TimeFormat::parse("%m/%d/%Y %H:%M").unwrap();
        let read = times.read(&StringArray::from(vec![
            "01/02/1970 00:01",
            "13/01/1970 00:00",
        ]));
        assert_eq!(read.lost, [1]);
        assert_eq!(
            read.values
                .as_primitive::<TimestampMicrosecondType>()
                .value(0),
            86_460_000_000
        );
        let instants = TimeFormat::parse("%Y%m%dT%H%M%S%z").unwrap();
        let read = instants.read(&StringArray::from(vec!["19700101T020000+0200"]));
        assert_eq!(read.values.data_type(), &instants.data_type());
        assert_eq!(
            read.values
                .as_primitive::<TimestampMicrosecondType>()
                .value(0),
            0
        );
        for bad in ["", "%H:%M", "%d.%m.", "%J", "plain"] {
            assert!(TimeFormat::parse(bad).is_err(), "{bad}");
        }
    }
}
