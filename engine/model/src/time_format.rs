//! Formats of dates and times that are not written as in ISO 8601: one strict grammar for files and for served rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use jiff::civil::{Date, DateTime};
use jiff::fmt::strtime::{self, BrokenDownTime, Meridiem};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::strings::type_words;
use crate::text_values::{ReadTexts, shorten};
use crate::{BoundValue, ColumnExtent};

/// The directives of a time of day.
const CLOCK_DIRECTIVES: &[u8] = b"HIklMSTfsNRrcXpP";

/// The directives that are padded with a blank, as others are with the flag `_`.
const PADDED_DIRECTIVES: &[u8] = b"ekl";

/// The most padded directives whose blanks are tried one by one.
const PADDED_MAX: usize = 6;

/// The directives of hours on a clock of 24.
const HOUR_DIRECTIVES: &[u8] = b"HkTR";

/// The directives that may stand in a format several times.
const REPEATED_DIRECTIVES: &[u8] = b"%nt";

/// The directives that give an instant.
const ZONE_DIRECTIVES: &[u8] = b"zsQ";

/// The directives that are written in digits alone.
const DIGIT_DIRECTIVES: &[u8] = b"YCyGgmdejHIklMSUWVuwfN";

/// The directives of fractions, whose digits have no fixed number.
const FRACTION_DIRECTIVES: &[u8] = b"fN";

/// The directives of a time from the longest unit to the shortest.
const DESCENDING_DIRECTIVES: &[u8] = b"YmdHMS";

/// The directives that may follow those: none of them tells another day.
const TRAILING_DIRECTIVES: &[u8] = b"HIklMSTRrpPfNzQ";

/// Directives that stand for several descending ones.
const COMPOSED_DIRECTIVES: [(&str, &str); 3] =
    [("%F", "%Y-%m-%d"), ("%T", "%H:%M:%S"), ("%R", "%H:%M")];

/// A second that clocks do not have in most minutes, as it is written.
const LEAP_SECOND: &str = "60";

/// Digits of a year.
const YEAR_DIGITS: usize = 4;

/// The farthest that a written local time lies from its instant: offsets have fewer hours.
const OFFSET_HOURS_MAX: i64 = 26;

const MICROSECONDS_PER_HOUR: i64 = 3_600_000_000;

/// The second that formats are tried with.
const TRIED_SECOND: i64 = 951_868_799;

const SECONDS_PER_DAY: i64 = 86_400;

const MICROSECONDS_PER_SECOND: i64 = 1_000_000;

const NANOSECONDS_PER_MICROSECOND: i128 = 1_000;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Format of a date or a time, with the directives of `strftime`.
///
/// A text is read whole or not at all. Numbers with a delimiter behind them may lack zeros before them, as the day of
/// `1.1.1970` does in `%d.%m.%Y`; a year (`%Y`) always has four digits. Where two directives stand side by side, as in
/// `%Y%m%d`, all numbers have all of their digits. Years before 0 are refused, and so are a second 60 and `13:00 AM`.
/// Blanks stand in a text where they stand in the format, as many of them; `%e`, `%k`, `%l` and the flag `_` allow one
/// before a number.
///
/// ```
/// use forebay_model::TimeFormat;
///
/// let format = TimeFormat::parse("%Y%m%d").unwrap();
/// assert_eq!(format.data_type(), arrow::datatypes::DataType::Date32);
/// assert!(TimeFormat::parse("%H:%M").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeFormat {
    text: String,
    kind: TimeKind,
    directives: Vec<Directive>,
    /// The blanks that texts may have, as [`blank_shape`] writes them; empty if any are taken.
    shapes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeKind {
    Date,
    Local,
    Instant,
}

/// A directive of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Directive {
    letter: u8,
    has_flags: bool,
    /// Place of its percent sign in the format.
    begin: usize,
    /// Place behind its letter.
    end: usize,
}

impl Directive {
    /// Number of digits that it always has, if it has such a number.
    fn width(&self) -> Option<usize> {
        match self.letter {
            _ if self.has_flags => None,
            b'Y' | b'G' => Some(4),
            b'j' => Some(3),
            b'C' | b'y' | b'g' | b'm' | b'd' | b'H' | b'I' | b'M' | b'S' => Some(2),
            _ => None,
        }
    }

    fn is_of_digits(&self) -> bool {
        DIGIT_DIRECTIVES.contains(&self.letter)
    }
}

impl TimeFormat {
    /// Reads a format. The error is the reason for which it is none.
    pub fn parse(text: &str) -> Result<TimeFormat, String> {
        let directives = directives(text);
        if let Some(letter) = repeated_letter(&directives) {
            // One of the values would be lost.
            return Err(format!("it has `%{}` twice", char::from(letter)));
        }
        let is_among = |letters: &[u8]| {
            directives
                .iter()
                .any(|directive| letters.contains(&directive.letter))
        };
        let kind = if is_among(ZONE_DIRECTIVES) {
            TimeKind::Instant
        } else if is_among(CLOCK_DIRECTIVES) {
            TimeKind::Local
        } else {
            TimeKind::Date
        };
        let mut format = TimeFormat {
            text: text.to_owned(),
            kind,
            directives,
            shapes: Vec::new(),
        };
        format.shapes = format.blank_shapes();
        let tried = Timestamp::from_second(TRIED_SECOND)
            .and_then(|at| BrokenDownTime::from(&at.to_zoned(TimeZone::UTC)).to_string(text))
            .map_err(|error| error.to_string())?;
        match format.ticks(&tried) {
            Some(_) => Ok(format),
            None => Err("it does not tell a day".to_owned()),
        }
    }

    /// The format as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Type of the values of this format: days, microseconds, or microseconds in UTC where the format has an offset.
    pub fn data_type(&self) -> DataType {
        match self.kind {
            TimeKind::Date => DataType::Date32,
            TimeKind::Local => DataType::Timestamp(TimeUnit::Microsecond, None),
            TimeKind::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// True if a column of a type can hold values of this format: texts and whole numbers can.
    pub fn takes(&self, of: &DataType) -> bool {
        match of {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => *scale == 0,
            DataType::Dictionary(_, values) => self.takes(values),
            other => other.is_integer(),
        }
    }

    /// The texts of a column that [`TimeFormat::takes`]. Zeros that a whole number lacks before its first digit are
    /// added where the format has a fixed number of digits and does not begin with the year.
    pub fn texts_of(&self, column: &ArrayRef) -> Result<StringArray, arrow::error::ArrowError> {
        let texts = cast(column, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let is_number = !matches!(
            column.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..)
        );
        if !is_number || self.digits().is_none() {
            return Ok(texts.clone());
        }
        let padded = texts
            .iter()
            .map(|text| text.map(|text| self.text_of_number(text)));
        Ok(padded.collect())
    }

    /// The digits of a whole number as a text of this format, with the zeros that the number lacks.
    pub fn text_of_number(&self, number: &str) -> String {
        match self.digits() {
            Some(digits) => format!("{number:0>digits$}"),
            None => number.to_owned(),
        }
    }

    /// Texts as days or times. Texts that are written in another way become null, and their rows are named.
    pub fn read(&self, texts: &StringArray) -> ReadTexts {
        let mut lost = Vec::new();
        let mut ticks: Vec<Option<i64>> = Vec::with_capacity(texts.len());
        // Many rows have one day: each text is read once.
        let mut cache: HashMap<&str, Option<i64>> = HashMap::new();
        for (row, text) in texts.iter().enumerate() {
            let Some(text) = text else {
                ticks.push(None);
                continue;
            };
            let tick = *cache.entry(text).or_insert_with(|| self.ticks(text));
            if tick.is_none() {
                lost.push(row);
            }
            ticks.push(tick);
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

    /// A sentence on a text that is not written in this format.
    pub fn problem(&self, text: &str) -> String {
        format!(
            "`{}` is not {} that is written as `{}`",
            shorten(text),
            type_words(&self.data_type()),
            self.text
        )
    }

    /// Extent of the days or times of a column from that of its texts or whole numbers; `None` where the order of those
    /// is not that of time. Where numbers may lack zeros, the bounds are wider than those of the texts.
    pub fn extent(&self, written: &ColumnExtent) -> Option<ColumnExtent> {
        let min = written_text(&written.min);
        let max = written_text(&written.max);
        let (min, max) = if self.is_ordered() {
            (self.ticks(&min)?, self.ticks(&max)?)
        } else {
            self.delimited_bounds(&min, &max)?
        };
        Some(ColumnExtent {
            min: BoundValue::Int(min),
            max: BoundValue::Int(max),
            nulls: written.nulls,
        })
    }

    /// The first and the last tick of all texts of this format that lie between two of them in the order of bytes.
    ///
    /// Such texts share the beginning of both, and so the values that it holds. Of the first value that differs, two
    /// digits each bound it from above, and from below where the first digit is one: `1` lies between `03` and `11`.
    fn delimited_bounds(&self, min: &str, max: &str) -> Option<(i64, i64)> {
        let first = self.ticks(min)?;
        let last = self.ticks(max)?;
        if min == max {
            return Some((first, last));
        }
        let text = composed_text(&self.text)?;
        let fields = descending_fields(&text)?;
        let shared = shared_bytes(min, max);
        let mut low = [0, 1, 1, 0, 0, 0];
        let mut high = low;
        let mut depth = 0;
        let mut at = 0;
        for (level, literal) in fields.iter().enumerate() {
            let begin = at + literal.len();
            if begin > shared || min.get(at..begin) != Some(*literal) {
                break;
            }
            let min_digits = digits_at(min, begin);
            let max_digits = digits_at(max, begin);
            let width = if level == 0 { YEAR_DIGITS } else { 2 };
            let is_whole = min_digits.len() == width || begin + min_digits.len() < shared;
            let is_shared = min_digits == max_digits && begin + min_digits.len() <= shared;
            if is_shared && is_whole {
                low[level] = min_digits.parse().ok()?;
                high[level] = low[level];
                depth = level + 1;
                at = begin + min_digits.len();
                continue;
            }
            if min_digits.len() == width && max_digits.len() == width {
                high[level] = max_digits.parse().ok()?;
                if level == 0 || min_digits.as_bytes()[0] == max_digits.as_bytes()[0] {
                    low[level] = min_digits.parse().ok()?;
                }
                return self.ticks_between(low, high, level + 1);
            }
            break;
        }
        if depth == 0 {
            return None;
        }
        self.ticks_between(low, high, depth)
    }

    /// The first tick of a time and the last of another, of which so many values are known.
    fn ticks_between(&self, low: [i16; 6], high: [i16; 6], depth: usize) -> Option<(i64, i64)> {
        let unit = match depth {
            1 => Span::new().years(1),
            2 => Span::new().months(1),
            3 => Span::new().days(1),
            4 => Span::new().hours(1),
            5 => Span::new().minutes(1),
            _ => Span::new().seconds(1),
        };
        let first = civil_microseconds(civil_time(low)?)?;
        let end = civil_microseconds(civil_time(high)?.checked_add(unit).ok()?)?;
        match self.kind {
            TimeKind::Date => {
                let day = |microsecond: i64| {
                    microsecond.div_euclid(SECONDS_PER_DAY * MICROSECONDS_PER_SECOND)
                };
                Some((day(first), day(end - 1)))
            }
            TimeKind::Local => Some((first, end - 1)),
            TimeKind::Instant => {
                let shift = OFFSET_HOURS_MAX * MICROSECONDS_PER_HOUR;
                Some((first - shift, end + shift))
            }
        }
    }

    /// Days or microseconds since 1970; a text that is written in another way has none.
    fn ticks(&self, text: &str) -> Option<i64> {
        let parsed = strtime::parse(&self.text, text).ok()?;
        // A whole number below zero is no date of a year before the first.
        let is_before_all_years = parsed.year().is_some_and(|year| year < 0);
        let is_whole = self.has_whole_year(text) && self.has_all_digits(text, &parsed);
        if is_before_all_years || !is_whole || !self.has_blanks_of_format(text) {
            return None;
        }
        if self.has_leap_second(text) || !self.has_hour_of_its_half(text, &parsed) {
            return None;
        }
        match self.kind {
            TimeKind::Date => {
                let seconds = parsed.to_date().ok()?.duration_since(EPOCH.date());
                Some(seconds.as_secs().div_euclid(SECONDS_PER_DAY))
            }
            TimeKind::Local => {
                let time: DateTime = match parsed.to_datetime() {
                    Ok(time) => time,
                    // A day without a time of day begins at midnight.
                    Err(_) => Date::at(parsed.to_date().ok()?, 0, 0, 0, 0),
                };
                civil_microseconds(time)
            }
            TimeKind::Instant => match parsed.to_timestamp() {
                Ok(at) => microseconds(at),
                Err(_) => far_microseconds(&parsed),
            },
        }
    }

    /// False where a text has blanks that the format does not have, or lacks some of them: the parser skips any.
    fn has_blanks_of_format(&self, text: &str) -> bool {
        let written = blank_shape(text);
        self.shapes.is_empty() || self.shapes.contains(&written)
    }

    /// The shapes of texts of this format: each padded number may have its blank or not. None where these are too many.
    fn blank_shapes(&self) -> Vec<String> {
        let mut padded = Vec::new();
        for (index, directive) in self.directives.iter().enumerate() {
            if self.is_padded(directive) {
                padded.push(index);
            }
        }
        let mut shapes = Vec::new();
        if padded.len() > PADDED_MAX {
            return shapes;
        }
        for chosen in 0..1_usize << padded.len() {
            let mut with_blank = padded.clone();
            let mut bits = chosen;
            with_blank.retain(|_| {
                let is_chosen = bits & 1 == 1;
                bits >>= 1;
                is_chosen
            });
            shapes.push(blank_shape(&self.text_with_blanks(&with_blank)));
        }
        shapes
    }

    fn is_padded(&self, directive: &Directive) -> bool {
        let flags = &self.text[directive.begin..directive.end];
        PADDED_DIRECTIVES.contains(&directive.letter) || flags.contains('_')
    }

    /// The format with a digit for each directive, behind a blank for some of them.
    fn text_with_blanks(&self, with_blank: &[usize]) -> String {
        let mut text = String::new();
        let mut end = 0;
        for (index, directive) in self.directives.iter().enumerate() {
            text.push_str(&self.text[end..directive.begin]);
            if with_blank.contains(&index) {
                text.push(' ');
            }
            text.push(match directive.letter {
                b'n' => '\n',
                b't' => '\t',
                _ => '0',
            });
            end = directive.end;
        }
        text.push_str(&self.text[end..]);
        text
    }

    /// True for a text with a second 60, which the parser takes for the second before it.
    fn has_leap_second(&self, text: &str) -> bool {
        // Most texts need no second look.
        if !text.contains(LEAP_SECOND) {
            return false;
        }
        let is_second = |directive: &&Directive| matches!(directive.letter, b'S' | b'T');
        let Some(second) = self.directives.iter().find(is_second) else {
            return false;
        };
        let mut format_before = self.text[..second.begin].to_owned();
        if second.letter == b'T' {
            format_before.push_str("%H:%M:");
        }
        let prefix = BrokenDownTime::parse_prefix(&format_before, text);
        prefix.is_ok_and(|(_, at)| digits_at(text, at).starts_with(LEAP_SECOND))
    }

    /// False where an hour of 24 contradicts the half of its day: the parser takes `13:00 AM` for 01:00.
    fn has_hour_of_its_half(&self, text: &str, parsed: &BrokenDownTime) -> bool {
        let Some(half) = parsed.meridiem() else {
            return true;
        };
        let is_hour = |directive: &&Directive| HOUR_DIRECTIVES.contains(&directive.letter);
        let Some(directive) = self.directives.iter().find(is_hour) else {
            return true;
        };
        let prefix = BrokenDownTime::parse_prefix(&self.text[..directive.begin], text);
        let Some(behind) = prefix.ok().and_then(|(_, at)| text.get(at..)) else {
            return false;
        };
        let digits = digits_at(behind.trim_start(), 0);
        let hour = digits.get(..2).unwrap_or(digits).parse::<u8>();
        hour.is_ok_and(|hour| match half {
            Meridiem::AM => hour <= 12,
            Meridiem::PM => hour > 0,
        })
    }

    /// False where a year has fewer than four digits, or a sign: `24` is no year of the first century.
    fn has_whole_year(&self, text: &str) -> bool {
        let mut years = self.directives.iter().filter(|directive| {
            matches!(directive.letter, b'Y' | b'F' | b'G') && !directive.has_flags
        });
        years.all(|year| {
            self.year_bytes(year, text)
                .is_none_or(|bytes| bytes == YEAR_DIGITS)
        })
    }

    /// Number of bytes with which a text has the year of a directive.
    fn year_bytes(&self, year: &Directive, text: &str) -> Option<usize> {
        let directive = if year.letter == b'G' { "%G" } else { "%Y" };
        let (_, begin) = BrokenDownTime::parse_prefix(&self.text[..year.begin], text).ok()?;
        let behind = text.get(begin..)?;
        let (_, length) = BrokenDownTime::parse_prefix(directive, behind).ok()?;
        Some(length)
    }

    /// False where directives of digits stand side by side and one of them lacks a digit: then the digits of the text
    /// can be divided in several ways.
    fn has_all_digits(&self, text: &str, parsed: &BrokenDownTime) -> bool {
        if !self.is_packed() {
            return true;
        }
        let fraction = self
            .directives
            .iter()
            .find(|directive| FRACTION_DIRECTIVES.contains(&directive.letter));
        let end = fraction.map_or(self.text.len(), |directive| directive.begin);
        let Ok(whole) = parsed.to_string(&self.text[..end]) else {
            return false;
        };
        match text.get(..whole.len()) {
            Some(begin) if fraction.is_some() => begin.eq_ignore_ascii_case(&whole),
            Some(_) => text.eq_ignore_ascii_case(&whole),
            None => false,
        }
    }

    /// True if two directives of digits stand side by side.
    fn is_packed(&self) -> bool {
        self.directives.windows(2).any(|pair| {
            pair[0].end == pair[1].begin && pair[0].is_of_digits() && pair[1].is_of_digits()
        })
    }

    /// Number of digits of a whole number in this format, where zeros before it may be missing.
    fn digits(&self) -> Option<usize> {
        if self
            .directives
            .first()
            .is_none_or(|first| first.letter == b'Y')
        {
            return None;
        }
        let mut digits = 0;
        let mut end = 0;
        for directive in &self.directives {
            if directive.begin != end {
                return None;
            }
            digits += directive.width()?;
            end = directive.end;
        }
        (end == self.text.len()).then_some(digits)
    }

    /// True if texts and whole numbers of this format have the order of time: all digits are there, from the year on.
    fn is_ordered(&self) -> bool {
        let descends = self
            .directives
            .iter()
            .zip(DESCENDING_DIRECTIVES)
            .all(|(directive, letter)| directive.letter == *letter && !directive.has_flags);
        descends && self.directives.len() <= DESCENDING_DIRECTIVES.len() && self.is_packed()
    }
}

/// The blanks of a text between stretches of other characters, each of which is one `x`.
fn blank_shape(text: &str) -> String {
    let mut shape = String::new();
    for character in text.chars() {
        if character.is_ascii_whitespace() {
            shape.push(character);
        } else if !shape.ends_with('x') {
            shape.push('x');
        }
    }
    shape
}

fn written_text(bound: &BoundValue) -> String {
    match bound {
        BoundValue::Int(number) => number.to_string(),
        BoundValue::Text(text) => text.clone(),
    }
}

/// A format with each directive that stands for several written out; `None` where it has a percent sign of its own.
fn composed_text(format: &str) -> Option<String> {
    if format.contains("%%") {
        return None;
    }
    let mut text = format.to_owned();
    for (composed, parts) in COMPOSED_DIRECTIVES {
        text = text.replace(composed, parts);
    }
    Some(text)
}

/// The texts before the directives of a format from the year down; `None` where it does not begin with the year, or
/// other directives tell the day, too.
fn descending_fields(format: &str) -> Option<Vec<&str>> {
    let format_directives = directives(format);
    let descending = format_directives
        .iter()
        .zip(DESCENDING_DIRECTIVES)
        .take_while(|(directive, letter)| directive.letter == **letter && !directive.has_flags)
        .count();
    let mut trailing = format_directives[descending..].iter();
    if descending == 0 || trailing.any(|directive| !TRAILING_DIRECTIVES.contains(&directive.letter))
    {
        return None;
    }
    let mut end = 0;
    let mut fields = Vec::with_capacity(descending);
    for directive in &format_directives[..descending] {
        fields.push(&format[end..directive.begin]);
        end = directive.end;
    }
    Some(fields)
}

/// Number of bytes with which two texts begin alike.
fn shared_bytes(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// The digits of a text from a byte on.
fn digits_at(text: &str, begin: usize) -> &str {
    let tail = text.get(begin..).unwrap_or_default();
    let length = tail.bytes().take_while(u8::is_ascii_digit).count();
    &tail[..length]
}

/// A time by its year, month, day, hour, minute and second.
fn civil_time(values: [i16; 6]) -> Option<DateTime> {
    let [year, smaller @ ..] = values;
    let mut parts = [0; 5];
    for (part, value) in parts.iter_mut().zip(smaller) {
        *part = i8::try_from(value).ok()?;
    }
    let [month, day, hour, minute, second] = parts;
    // A leap second is the one before it.
    DateTime::new(year, month, day, hour, minute, second.min(59), 0).ok()
}

fn civil_microseconds(time: DateTime) -> Option<i64> {
    let nanoseconds = time.duration_since(EPOCH).as_nanos();
    if nanoseconds % NANOSECONDS_PER_MICROSECOND != 0 {
        return None;
    }
    i64::try_from(nanoseconds / NANOSECONDS_PER_MICROSECOND).ok()
}

/// An instant near the ends of the calendar, which the parser's type of instants lacks.
fn far_microseconds(parsed: &BrokenDownTime) -> Option<i64> {
    if parsed.iana_time_zone().is_some() {
        return None;
    }
    let offset = i64::from(parsed.offset()?.seconds());
    let local = civil_microseconds(parsed.to_datetime().ok()?)?;
    local.checked_sub(offset * MICROSECONDS_PER_SECOND)
}

fn microseconds(at: Timestamp) -> Option<i64> {
    (at.subsec_nanosecond() % 1000 == 0).then(|| at.as_microsecond())
}

/// The letter of a directive that a format has twice.
fn repeated_letter(directives: &[Directive]) -> Option<u8> {
    let mut letters = Vec::with_capacity(directives.len());
    for directive in directives {
        if letters.contains(&directive.letter) {
            return Some(directive.letter);
        }
        if !REPEATED_DIRECTIVES.contains(&directive.letter) {
            letters.push(directive.letter);
        }
    }
    None
}

/// The directives of a format, in order.
fn directives(format: &str) -> Vec<Directive> {
    let bytes = format.as_bytes();
    let is_flag = |byte: u8| b"-_0^#:.".contains(&byte) || byte.is_ascii_digit();
    let mut directives = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            at += 1;
            continue;
        }
        let begin = at;
        at += 1;
        while bytes.get(at).is_some_and(|byte| is_flag(*byte)) {
            at += 1;
        }
        let Some(letter) = bytes.get(at) else { break };
        directives.push(Directive {
            letter: *letter,
            has_flags: at > begin + 1,
            begin,
            end: at + 1,
        });
        at += 1;
    }
    directives
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array, Int64Array};
    use arrow::datatypes::{Date32Type, TimestampMicrosecondType};

    use super::*;

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
        assert_eq!(values.value(0), -1);
        assert_eq!(values.value(4), 0);
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
        for bad in ["", "%H:%M", "%d.%m.", "%J", "plain", "%Y-%m-%d %Y"] {
            assert!(TimeFormat::parse(bad).is_err(), "{bad}");
        }
    }

    /// Formats, texts, and their days or microseconds.
    #[test]
    fn digits_side_by_side_are_never_divided_in_another_way() {
        const DAY: i64 = SECONDS_PER_DAY * 1_000_000;
        for (format, text, expected) in [
            ("%Y%m%d", "19700102", Some(1)),
            ("%Y%m%d", "1970012", None),
            ("%Y%m%d", "197012", None),
            ("%Y%m%d", "1970111", None),
            ("%Y%m%d", "700102", None),
            ("%Y%m%d", "19701301", None),
            ("%Y%m%d", "19700102 ", None),
            ("%Y%m%d", " 19700102", None),
            ("%Y%m%d", "+19700102", None),
            ("%Y%m%d", "1970-01-02", None),
            ("%Y%m%d", "197001021", None),
            ("%d%m%Y", "1011970", None),
            ("%d%m%Y", "02011970", Some(1)),
            ("%d%b%Y", "02JAN1970", Some(1)),
            ("%d%b%Y", "2Jan1970", Some(1)),
            ("%Y%j", "1970002", Some(1)),
            ("%Y%j", "19702", None),
            ("%y%m%d", "700102", Some(1)),
            ("%Y%m%d%H%M%S", "19700102000001", Some(DAY + 1_000_000)),
            ("%Y%m%d%H%M%S", "1970010200001", None),
            ("%Y%m%d%H%M%S%f", "19700102000001250", Some(DAY + 1_250_000)),
            ("%Y%m%d%H%M%S%f", "19700102000001000000001", None),
            ("%Y%m%d %H:%M", "19700102 00:01", Some(DAY + 60_000_000)),
            ("%Y%m%d %H:%M", "19700102 0:01", None),
            ("%d.%m.%Y", "02.01.1970", Some(1)),
            ("%d.%m.%Y", "02.01.70", None),
            ("%Y/%m/%d", "1970/1/2", Some(1)),
            ("%Y-%m-%d", "70-01-02", None),
            ("%F", "970-01-02", None),
            ("%F", "1970-01-02", Some(1)),
            ("%d.%m.%y", "02.01.70", Some(1)),
            ("%d.%m.%Y", " 2.01.1970", None),
            ("%d.%m.%Y", "02. 1.1970", None),
            ("%d.%m.%Y", "02.01. 1970", None),
            ("%d.%m.%Y", "\t02.01.1970", None),
            ("%d.%m.%Y", "02.01.+1970", None),
            ("%F", "+1970-01-02", None),
            ("%d.%m.%y", "02.01. 70", None),
            ("%y-%j", "70- 02", None),
            ("%d.%m.%Y %H:%M", "02.01.1970 00:01", Some(DAY + 60_000_000)),
            ("%d.%m.%Y %H:%M", "02.01.1970  00:01", None),
            ("%d.%m.%Y %H:%M", "02.01.197000:01", None),
            ("%d.%m.%Y %H:%M", "02.01.1970 00: 1", None),
            ("%d.%m.%Y %H:%M", "02.01.1970\t00:01", None),
            (
                "%d.%m.%Y%n%H:%M",
                "02.01.1970\n00:01",
                Some(DAY + 60_000_000),
            ),
            ("%F %T", "1970-01-02 00:00:60", None),
            ("%F %H:%M:%S", "1970-01-02 00:00:60", None),
            ("%% %F %T", "% 1970-01-02 00:00:60", None),
            ("%% %F %T", "% 1970-01-02 00:00:59", Some(DAY + 59_000_000)),
            ("%F %T", "1960-01-02 00:00:59", Some(-315_532_741_000_000)),
            ("%F %H:%M:%S", "1970-01-02 00:00:59", Some(DAY + 59_000_000)),
            ("%I:%M %p %F", "12:01 AM 1970-01-02", Some(DAY + 60_000_000)),
            ("%I:%M %p %F", "12:01AM 1970-01-02", None),
            ("%F %H:%M %p", "1970-01-02 13:00 AM", None),
            ("%F %R %p", "1970-01-02 23:00 am", None),
            ("%F %H:%M %p", "1970-01-02 00:01 PM", None),
            ("%F %H:%M %p", "1970-01-02 00:01 AM", Some(DAY + 60_000_000)),
            (
                "%p %F %k:%M",
                "PM 1970-01-02 13:00",
                Some(DAY + 13 * DAY / 24),
            ),
            (
                "%F %H:%M %p",
                "1970-01-02 01:00 PM",
                Some(DAY + 13 * DAY / 24),
            ),
            ("%d.%m.%Y", "31.12.9999", Some(2_932_896)),
            ("%d.%m.%Y", "01.01.0001", Some(-719_162)),
            (
                "%F %T",
                "9999-12-31 23:59:59",
                Some(253_402_300_799_000_000),
            ),
            (
                "%F %T%z",
                "9999-12-31 23:59:59+0000",
                Some(253_402_300_799_000_000),
            ),
            (
                "%F %T%z",
                "9999-12-31 23:59:59-0100",
                Some(253_402_304_399_000_000),
            ),
            ("%e.%m.%Y", " 2.01.1970", Some(1)),
            ("%e.%m.%Y", "2.01.1970", Some(1)),
            ("%e.%m.%Y", "  2.01.1970", None),
            ("%_d/%_m/%Y", " 2/1/1970", Some(1)),
            (
                "%e %b %Y %k:%M",
                " 2 Jan 1970  0:01",
                Some(DAY + 60_000_000),
            ),
            ("%e %b %Y %k:%M", "2 Jan 1970  0:01", Some(DAY + 60_000_000)),
            ("%e %b %Y %k:%M", "2 Jan 1970 0:01", Some(DAY + 60_000_000)),
            ("%e %b %Y %k:%M", "2 Jan1970 0:01", None),
            ("%s", " 86400", None),
            ("%s", "86400", Some(DAY)),
            ("%s", "-1", Some(-1_000_000)),
            ("%s", "86400.5", None),
        ] {
            let format = TimeFormat::parse(format).unwrap();
            assert_eq!(format.ticks(text), expected, "{format:?} {text:?}");
        }
    }

    #[test]
    fn whole_numbers_are_read_as_texts_with_their_zeros() {
        let check = |format: &str, column: ArrayRef, expected: &[Option<i32>]| {
            let format = TimeFormat::parse(format).unwrap();
            assert!(format.takes(column.data_type()));
            let read = format.read(&format.texts_of(&column).unwrap());
            let days: Vec<Option<i32>> = read.values.as_primitive::<Date32Type>().iter().collect();
            assert_eq!(days, expected, "{format:?}");
        };
        let numbers = Int32Array::from(vec![
            Some(19_700_102),
            None,
            Some(700_102),
            Some(-19_700_102),
        ]);
        check("%Y%m%d", Arc::new(numbers), &[Some(1), None, None, None]);
        let numbers = Int64Array::from(vec![2_011_970, 31_121_969, 132_011_970]);
        check("%d%m%Y", Arc::new(numbers), &[Some(1), Some(-1), None]);
        let decimals = Decimal128Array::from(vec![19_700_103])
            .with_precision_and_scale(8, 0)
            .unwrap();
        check("%Y%m%d", Arc::new(decimals), &[Some(2)]);
        let format = TimeFormat::parse("%Y%m%d").unwrap();
        for other in [
            DataType::Float64,
            DataType::Decimal128(9, 1),
            DataType::Date32,
            DataType::Boolean,
        ] {
            assert!(!format.takes(&other), "{other}");
        }
    }

    #[test]
    fn extents_follow_only_where_texts_have_the_order_of_time() {
        let text = |text: &str| BoundValue::Text(text.to_owned());
        let extent = |min: BoundValue, max: BoundValue| ColumnExtent {
            min,
            max,
            nulls: true,
        };
        let days = Some(extent(BoundValue::Int(0), BoundValue::Int(31)));
        for (format, written, expected) in [
            (
                "%Y%m%d",
                extent(BoundValue::Int(19_700_101), BoundValue::Int(19_700_201)),
                days.clone(),
            ),
            ("%Y%m%d", extent(text("19700101"), text("19700201")), days),
            ("%Y%m%d", extent(text("19700101"), text("1970020")), None),
            ("%d%m%Y", extent(text("01011970"), text("31121969")), None),
            ("%Y%d%m", extent(text("19700101"), text("19700201")), None),
        ] {
            let format = TimeFormat::parse(format).unwrap();
            assert_eq!(format.extent(&written), expected, "{format:?}");
        }
    }

    /// Formats, two texts, and the first and last day of all texts between them, or hour for times.
    #[test]
    fn bounds_hold_all_texts_between_two_of_them() {
        const HOUR: i64 = MICROSECONDS_PER_HOUR;
        for (format, min, max, expected) in [
            ("%Y-%m-%d", "1970-01-02", "1970-01-02", Some((1, 1))),
            ("%F", "1970-01-12", "1970-01-19", Some((11, 18))),
            ("%Y-%m-%d", "1970-01-02", "1970-01-19", Some((0, 18))),
            ("%Y/%m/%d", "1970/01/2", "1970/01/9", Some((0, 30))),
            ("%Y/%m/%d", "1970/1/2", "1970/1/2", Some((1, 1))),
            ("%Y/%m/%d", "1970/1/2", "1970/1/25", Some((0, 30))),
            ("%Y-%m-%d", "1970-02-10", "1970-03-05", Some((31, 89))),
            ("%Y-%m-%d", "1970-02-10", "1970-11-05", Some((0, 333))),
            ("%Y-%m-%d", "1969-12-31", "1970-02-01", Some((-365, 364))),
            ("%d-%m-%Y", "01-01-1970", "02-01-1970", None),
            ("%Y-%m-%d", "1970-01-02", "word", None),
            ("%Y-%m-%d %j", "1970-01-02 002", "1970-01-03 003", None),
            ("%d-%m-%Y", "02-01-1970", "02-01-1970", Some((1, 1))),
            (
                "%Y-%m-%d %H:%M",
                "1970-01-01 10:00",
                "1970-01-01 12:30",
                Some((10 * HOUR, 13 * HOUR - 1)),
            ),
            (
                "%Y-%m-%dT%H:%M:%S%z",
                "1970-01-02T00:00:00+0000",
                "1970-01-02T03:00:00+0000",
                Some((-2 * HOUR, 54 * HOUR)),
            ),
        ] {
            let format = TimeFormat::parse(format).unwrap();
            assert_eq!(
                format.delimited_bounds(min, max),
                expected,
                "{format:?} {min}"
            );
        }
    }

    /// Every way to write the days of some years, sorted by bytes: the bounds of any stretch hold all of its days.
    #[test]
    fn no_day_lies_outside_the_bounds_of_its_stretch() {
        for literal in ["-", "/", ".", ":", "T"] {
            let format = TimeFormat::parse(&format!("%Y{literal}%m{literal}%d")).unwrap();
            let mut texts = Vec::new();
            for day in 0..800 {
                let date = Date::constant(1969, 11, 20)
                    .checked_add(Span::new().days(day))
                    .unwrap();
                for directives in ["%Y*%m*%d", "%Y*%-m*%-d", "%Y*%m*%-d"] {
                    texts.push(date.strftime(&directives.replace('*', literal)).to_string());
                }
            }
            texts.sort();
            texts.dedup();
            let ticks: Vec<i64> = texts
                .iter()
                .map(|text| format.ticks(text).unwrap())
                .collect();
            for length in [1, 2, 3, 10, 31, 90, 400] {
                for begin in (0..texts.len() - length).step_by(7) {
                    let end = begin + length;
                    let bounds = format.delimited_bounds(&texts[begin], &texts[end]);
                    let (first, last) = bounds.unwrap();
                    let stretch = &ticks[begin..=end];
                    assert!(
                        stretch.iter().all(|tick| (first..=last).contains(tick)),
                        "{} to {}",
                        texts[begin],
                        texts[end]
                    );
                }
            }
        }
    }
}
