//! Values that are written as text: one strict grammar for each type.
//!
//! Types are chosen by it, files are read by it, and `cast` and the serving of rows follow it, so that no value is read
//! looser than the type of its column was chosen. A text that does not fit is named; nothing of it is cut off.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray, StringArray,
    StringBuilder, make_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Date32Type, Date64Type, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};

use crate::strings::type_label;

/// Whole numbers of this many digits are floats exactly.
const EXACT_DIGITS: usize = 15;

/// The first whole number that floats cannot tell from its neighbours.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

const SECONDS_PER_DAY: i64 = 86_400;

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// Characters of a value that messages show.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// The marks in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberMarks {
    /// Between whole and fraction.
    pub decimal: u8,
    /// Between groups of three digits, where there are such groups.
    pub thousands: Option<char>,
}

impl Default for NumberMarks {
    fn default() -> Self {
        NumberMarks {
            decimal: b'.',
            thousands: None,
        }
    }
}

/// The rules by which texts are read as values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextRules {
    /// True if types are found by what texts look like and not declared: then `007` is no number, numbers keep all
    /// digits before the point, and times with an offset are not mixed with others. In a column that is declared without
    /// a zone, a time with an offset is that instant in UTC.
    pub is_inferred: bool,
    /// The marks in numbers.
    pub marks: NumberMarks,
}

/// Texts as values of a type, and the rows whose texts are none: these are null.
#[derive(Debug)]
pub struct ReadTexts {
    /// The values.
    pub values: ArrayRef,
    /// Rows whose texts are no values of the type, in order.
    pub lost: Vec<usize>,
}

impl TextRules {
    /// The rules for columns whose type is declared.
    pub fn declared() -> TextRules {
        TextRules::default()
    }

    /// The rules for columns whose type is found by their texts.
    pub fn inferred() -> TextRules {
        TextRules {
            is_inferred: true,
            ..TextRules::default()
        }
    }

    /// True if all texts are values of a type.
    pub fn all_read(&self, texts: &StringArray, of: &DataType) -> bool {
        self.convert(texts, of, 1).lost.is_empty()
    }

    /// Texts as values of a type. Texts that are none become null, and their rows are told.
    pub fn read(&self, texts: &StringArray, of: &DataType) -> ReadTexts {
        self.convert(texts, of, usize::MAX)
    }

    /// Texts as values of a type, or the first row whose text is none.
    pub fn read_all(&self, texts: &StringArray, of: &DataType) -> Result<ArrayRef, usize> {
        let read = self.convert(texts, of, 1);
        match read.lost.first() {
            Some(row) => Err(*row),
            None => Ok(read.values),
        }
    }

    /// A sentence on a text that is no value of a type.
    pub fn problem(&self, text: &str, of: &DataType) -> String {
        // The conditions of `convert`, in an order that finds the most specific reason.
        let excerpt = shorten(text);
        let label = type_label(of);
        if of.is_integer() && self.is_inferred && is_padded(text) {
            return format!(
                "`{excerpt}` is not of type {label}: as a number it would lose its zeros"
            );
        }
        if of.is_floating() && (is_padded(text) || !float_is_exact(text)) {
            return format!("a float cannot hold `{excerpt}`");
        }
        if of.is_floating() && text.bytes().any(|byte| byte.is_ascii_digit()) {
            if text.parse::<f64>().is_ok_and(f64::is_infinite) {
                return format!("`{excerpt}` is beyond the range of {label}");
            }
            return format!("`{excerpt}` is not of type {label}");
        }
        if let (DataType::Timestamp(unit, zone), Some(time)) = (of, CivilTime::parse(text)) {
            if zone.is_none() && time.offset_seconds.is_some() && self.is_inferred {
                return format!(
                    "`{excerpt}` has an offset from UTC, and the column ({label}) has no time zone"
                );
            }
            if zone.is_some() && time.offset_seconds.is_none() && self.is_inferred {
                return format!(
                    "`{excerpt}` has no offset from UTC, as the column's other times do"
                );
            }
            if time.ticks(*unit).is_none() {
                return format!("`{excerpt}` does not fit {label}: digits of it would be lost");
            }
        }
        if let Some(scale) = decimal_scale(of)
            && is_decimal(text)
            && !holds_digits(text, scale)
        {
            return format!("`{excerpt}` does not fit {label}: digits of it would be lost");
        }
        if *of == DataType::Date32 && CivilTime::parse(text).is_some_and(|time| time.has_clock) {
            return format!("`{excerpt}` is not of type {label}: it has a time of day");
        }
        format!("`{excerpt}` is not of type {label}")
    }

    fn convert(&self, texts: &StringArray, of: &DataType, lost_max: usize) -> ReadTexts {
        match of {
            DataType::Int8 => self.integers::<Int8Type>(texts, lost_max),
            DataType::Int16 => self.integers::<Int16Type>(texts, lost_max),
            DataType::Int32 => self.integers::<Int32Type>(texts, lost_max),
            DataType::Int64 => self.integers::<Int64Type>(texts, lost_max),
            DataType::UInt8 => self.integers::<UInt8Type>(texts, lost_max),
            DataType::UInt16 => self.integers::<UInt16Type>(texts, lost_max),
            DataType::UInt32 => self.integers::<UInt32Type>(texts, lost_max),
            DataType::UInt64 => self.integers::<UInt64Type>(texts, lost_max),
            DataType::Float16 => {
                self.floats::<Float16Type>(texts, lost_max, |half| half.is_infinite())
            }
            DataType::Float32 => self.floats::<Float32Type>(texts, lost_max, f32::is_infinite),
            DataType::Float64 => self.floats::<Float64Type>(texts, lost_max, f64::is_infinite),
            DataType::Boolean => booleans(texts, lost_max),
            DataType::Date32 => primitives::<Date32Type>(texts, lost_max, parse_date),
            DataType::Date64 => self.dates_of_times(texts, lost_max),
            DataType::Timestamp(unit, zone) => {
                let zone = zone.as_deref();
                match unit {
                    TimeUnit::Second => self.times::<TimestampSecondType>(texts, lost_max, zone),
                    TimeUnit::Millisecond => {
                        self.times::<TimestampMillisecondType>(texts, lost_max, zone)
                    }
                    TimeUnit::Microsecond => {
                        self.times::<TimestampMicrosecondType>(texts, lost_max, zone)
                    }
                    TimeUnit::Nanosecond => {
                        self.times::<TimestampNanosecondType>(texts, lost_max, zone)
                    }
                }
            }
            DataType::Time32(TimeUnit::Second) => clocks::<Time32SecondType>(texts, lost_max, 1),
            DataType::Time32(TimeUnit::Millisecond) => {
                clocks::<Time32MillisecondType>(texts, lost_max, 1_000)
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                clocks::<Time64MicrosecondType>(texts, lost_max, 1_000_000)
            }
            DataType::Time64(TimeUnit::Nanosecond) => {
                clocks::<Time64NanosecondType>(texts, lost_max, NANOSECONDS_PER_SECOND)
            }
            // No text is taken for these unless their type is declared.
            other => match decimal_scale(other) {
                Some(scale) => self.decimals(texts, other, scale),
                None => cast_others(texts, other),
            },
        }
    }

    fn integers<T>(&self, texts: &StringArray, lost_max: usize) -> ReadTexts
    where
        T: ArrowPrimitiveType,
        T::Native: std::str::FromStr,
    {
        let is_plain = self.marks == NumberMarks::default();
        let mut buffer = String::new();
        primitives::<T>(texts, lost_max, |text| {
            if self.is_inferred && is_padded(text) {
                return None;
            }
            if is_plain {
                return text.parse().ok();
            }
            self.marks.plain(text, &mut buffer)?.parse().ok()
        })
    }

    fn floats<T>(
        &self,
        texts: &StringArray,
        lost_max: usize,
        is_infinite: fn(T::Native) -> bool,
    ) -> ReadTexts
    where
        T: ArrowPrimitiveType,
        T::Native: std::str::FromStr,
    {
        let is_plain = self.marks == NumberMarks::default();
        let mut buffer = String::new();
        primitives::<T>(texts, lost_max, |text| {
            let plain = if is_plain {
                text
            } else {
                self.marks.plain(text, &mut buffer)?
            };
            self.float(plain, is_infinite)
        })
    }

    /// The float that a text stands for. The decimal mark must be a point, and digits have no groups.
    pub fn float64(&self, plain: &str) -> Option<f64> {
        self.float(plain, f64::is_infinite)
    }

    fn float<F: std::str::FromStr + Copy>(
        &self,
        plain: &str,
        is_infinite: fn(F) -> bool,
    ) -> Option<F> {
        // An identifier that looks like a number must not lose digits; a declared type says that it is none.
        if self.is_inferred && (is_padded(plain) || !float_is_exact(plain)) {
            return None;
        }
        let value: F = plain.parse().ok()?;
        // Infinity is a word; a number that is beyond all floats is another value.
        if is_infinite(value) && plain.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(value)
    }

    fn decimals(&self, texts: &StringArray, of: &DataType, scale: i8) -> ReadTexts {
        // Arrow skips blanks, and rounds what the type does not hold.
        let mut plain = StringBuilder::new();
        for text in texts {
            let fits = text.is_some_and(|text| {
                let is_code = self.is_inferred && is_padded(text);
                !is_code && is_decimal(text) && holds_digits(text, scale)
            });
            let text = text.filter(|_| fits);
            // Arrow reads no decimals of a negative scale.
            plain.append_option(text.map(|text| stored_digits(text, scale)));
        }
        let whole = with_scale(of, scale.max(0));
        let ReadTexts { values, .. } = cast_others(&plain.finish(), &whole);
        let values = in_decimal_type(&values, of);
        let rows = 0..texts.len();
        let lost = rows.filter(|row| texts.is_valid(*row) && values.is_null(*row));
        let lost = lost.collect();
        ReadTexts { values, lost }
    }

    /// Dates in milliseconds, which have a time of day where a text has one.
    fn dates_of_times(&self, texts: &StringArray, lost_max: usize) -> ReadTexts {
        let read = self.times::<TimestampMillisecondType>(texts, lost_max, None);
        let times = read.values.as_primitive::<TimestampMillisecondType>();
        ReadTexts {
            values: Arc::new(times.reinterpret_cast::<Date64Type>()),
            lost: read.lost,
        }
    }

    fn times<T: ArrowTimestampType>(
        &self,
        texts: &StringArray,
        lost_max: usize,
        zone: Option<&str>,
    ) -> ReadTexts {
        let is_utc = zone.is_some_and(is_utc_name);
        let local_zone = zone.and_then(|zone| zone.parse::<Tz>().ok());
        let read = primitives::<T>(texts, lost_max, |text| {
            let time = CivilTime::parse(text)?;
            // Texts with and without an offset do not mix in a type that was inferred from texts.
            match (zone, time.offset_seconds) {
                (None, None) | (Some(_), Some(_)) => time.ticks(T::UNIT),
                (None, Some(_)) if self.is_inferred => None,
                (None, Some(_)) => time.ticks(T::UNIT),
                (Some(_), None) if self.is_inferred => None,
                (Some(_), None) if is_utc => time.ticks(T::UNIT),
                (Some(_), None) => {
                    // The offset of the zone at that time, by its rules of summer time.
                    let instant = string_to_datetime(&local_zone?, text).ok()?;
                    let moved = CivilTime {
                        offset_seconds: Some(time.seconds() - instant.timestamp()),
                        ..time
                    };
                    moved.ticks(T::UNIT)
                }
            }
        });
        let values = read.values.as_primitive::<T>().clone();
        ReadTexts {
            values: Arc::new(values.with_timezone_opt(zone.map(str::to_owned))),
            lost: read.lost,
        }
    }
}

impl NumberMarks {
    /// A number with other marks as it is written with a point and without groups.
    fn plain<'b>(&self, text: &'b str, buffer: &'b mut String) -> Option<&'b str> {
        if !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return Some(text);
        }
        let (number, exponent) = match text.find(['e', 'E']) {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let decimal = char::from(self.decimal);
        let (whole, fraction) = match number.split_once(decimal) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (number, None),
        };
        // The sign stays in front of the groups.
        let unsigned = whole.trim_start_matches(['-', '+']);
        buffer.clear();
        buffer.push_str(&whole[..whole.len() - unsigned.len()]);
        match self.thousands {
            Some(mark) if unsigned.contains(mark) => {
                // All groups have three digits, but for the first one, which may have fewer. With a zero before it or an
                // exponent behind it, the mark is a decimal one of other programs: `0.123` is not 123.
                let mut groups = unsigned.split(mark);
                let first = groups.next()?;
                let is_group = !first.is_empty() && first.len() <= 3 && is_digits(first);
                if !is_group || first.starts_with('0') || !exponent.is_empty() {
                    return None;
                }
                buffer.push_str(first);
                for group in groups {
                    if group.len() != 3 || !is_digits(group) {
                        return None;
                    }
                    buffer.push_str(group);
                }
            }
            _ if is_digits(unsigned) => buffer.push_str(unsigned),
            _ => return None,
        }
        if let Some(fraction) = fraction {
            if !is_digits(fraction) {
                return None;
            }
            buffer.push('.');
            buffer.push_str(fraction);
        }
        buffer.push_str(exponent);
        Some(buffer)
    }
}

/// True if a zone is UTC by one of the names that programs write.
pub fn is_utc_name(zone: &str) -> bool {
    const NAMES: [&str; 23] = [
        "UTC",
        "Z",
        "+00:00",
        "-00:00",
        "+0000",
        "+00",
        "Etc/UTC",
        "Etc/UCT",
        "UCT",
        "Etc/Zulu",
        "Zulu",
        "Etc/Universal",
        "Universal",
        "GMT",
        "GMT0",
        "GMT+0",
        "GMT-0",
        "Greenwich",
        "Etc/GMT",
        "Etc/GMT0",
        "Etc/GMT+0",
        "Etc/GMT-0",
        "Etc/Greenwich",
    ];
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(zone))
}

/// A date and a time of day as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CivilTime {
    /// Days since 1970.
    days: i32,
    second_of_day: i64,
    pub nanosecond: i64,
    has_clock: bool,
    pub offset_seconds: Option<i64>,
}

impl CivilTime {
    /// Reads ISO 8601: a date, and behind `T` or a blank hours, minutes, and often seconds with up to nine digits of a
    /// fraction; then, perhaps behind a blank, `Z`, `UTC` or an offset.
    pub fn parse(text: &str) -> Option<CivilTime> {
        let bytes = text.as_bytes();
        let days = parse_date(text.get(..10)?)?;
        let mut time = CivilTime {
            days,
            second_of_day: 0,
            nanosecond: 0,
            has_clock: false,
            offset_seconds: None,
        };
        if bytes.len() == 10 {
            return Some(time);
        }
        // Positions are fixed: `2016-04-24T12:30:00.5+02:00`.
        if !matches!(bytes[10], b'T' | b't' | b' ') {
            return None;
        }
        let clock = ClockTime::parse(&bytes[11..])?;
        time.has_clock = true;
        time.second_of_day = clock.second_of_day;
        time.nanosecond = clock.nanosecond;
        let at = 11 + clock.length;
        if at < bytes.len() {
            time.offset_seconds = Some(parse_offset(text.get(at..)?)?);
        }
        Some(time)
    }

    /// Seconds since 1970 on a clock at the place of the offset.
    pub fn seconds(&self) -> i64 {
        i64::from(self.days) * SECONDS_PER_DAY + self.second_of_day
    }

    /// The instant in a unit, where it has it exactly.
    fn ticks(&self, unit: TimeUnit) -> Option<i64> {
        let (per_second, nanoseconds) = match unit {
            TimeUnit::Second => (1, 1_000_000_000),
            TimeUnit::Millisecond => (1_000, 1_000_000),
            TimeUnit::Microsecond => (1_000_000, 1_000),
            TimeUnit::Nanosecond => (1_000_000_000, 1),
        };
        // A fraction that the unit cannot hold would be cut.
        if self.nanosecond % nanoseconds != 0 {
            return None;
        }
        let seconds = self.seconds() - self.offset_seconds.unwrap_or(0);
        let ticks = i128::from(seconds) * per_second + i128::from(self.nanosecond / nanoseconds);
        i64::try_from(ticks).ok()
    }
}

/// A time of day as it is written.
struct ClockTime {
    second_of_day: i64,
    nanosecond: i64,
    /// Bytes that it takes.
    length: usize,
}

impl ClockTime {
    /// Reads `12:30`, `12:30:59` or up to nine digits of a fraction behind that, at the begin of a text.
    fn parse(bytes: &[u8]) -> Option<ClockTime> {
        let hour = two_digits(bytes, 0).filter(|hour| *hour < 24)?;
        if *bytes.get(2)? != b':' {
            return None;
        }
        let minute = two_digits(bytes, 3).filter(|minute| *minute < 60)?;
        let mut clock = ClockTime {
            second_of_day: hour * 3600 + minute * 60,
            nanosecond: 0,
            length: 5,
        };
        if bytes.get(5) != Some(&b':') {
            return Some(clock);
        }
        clock.second_of_day += two_digits(bytes, 6).filter(|second| *second < 60)?;
        clock.length = 8;
        if bytes.get(8) == Some(&b'.') {
            let fraction = &bytes[9..];
            let digits = fraction
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            clock.nanosecond = nanoseconds(&fraction[..digits])?;
            clock.length = 9 + digits;
        }
        Some(clock)
    }
}

/// Times of day in a unit, where it has them exactly.
fn clocks<T>(texts: &StringArray, lost_max: usize, per_second: i64) -> ReadTexts
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let tick = NANOSECONDS_PER_SECOND / per_second;
    primitives::<T>(texts, lost_max, |text| {
        let clock = ClockTime::parse(text.as_bytes())?;
        if clock.length != text.len() || clock.nanosecond % tick != 0 {
            return None;
        }
        let ticks = clock.second_of_day * per_second + clock.nanosecond / tick;
        T::Native::try_from(ticks).ok()
    })
}

/// Digits behind the point of a decimal type.
fn decimal_scale(of: &DataType) -> Option<i8> {
    match of {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

/// True for digits, perhaps behind a sign, and perhaps with a point among them.
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let points = unsigned.bytes().filter(|byte| *byte == b'.').count();
    let digits = unsigned.bytes().filter(u8::is_ascii_digit).count();
    digits > 0 && points <= 1 && digits + points == unsigned.len()
}

/// True if a decimal with so many digits behind the point holds all digits of a number.
fn holds_digits(text: &str, scale: i8) -> bool {
    let whole = text.split('.').next().unwrap_or(text);
    let fraction = text.split('.').nth(1).unwrap_or("");
    let digits = usize::from(scale.unsigned_abs());
    if scale >= 0 {
        return fraction.bytes().skip(digits).all(|digit| digit == b'0');
    }
    let last_digits = whole.bytes().rev().take(digits);
    let is_rounded = last_digits
        .filter(u8::is_ascii_digit)
        .all(|digit| digit == b'0');
    is_rounded && fraction.bytes().all(|digit| digit == b'0')
}

/// The digits of a number that a decimal stores: of a negative scale, all but the last ones, which are zeros.
fn stored_digits(text: &str, scale: i8) -> Cow<'_, str> {
    if scale >= 0 {
        return Cow::Borrowed(text);
    }
    let whole = text.split('.').next().unwrap_or(text);
    let unsigned = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    let sign = &whole[..whole.len() - unsigned.len()];
    let length = unsigned.len();
    let stored = length.saturating_sub(usize::from(scale.unsigned_abs()));
    Cow::Owned(match &unsigned[..stored] {
        "" => "0".to_owned(),
        digits => format!("{sign}{digits}"),
    })
}

/// A decimal type with other digits behind the point. Other types stay as they are.
fn with_scale(of: &DataType, scale: i8) -> DataType {
    match of {
        DataType::Decimal32(precision, _) => DataType::Decimal32(*precision, scale),
        DataType::Decimal64(precision, _) => DataType::Decimal64(*precision, scale),
        DataType::Decimal128(precision, _) => DataType::Decimal128(*precision, scale),
        DataType::Decimal256(precision, _) => DataType::Decimal256(*precision, scale),
        other => other.clone(),
    }
}

/// Stored digits as decimals of a type of the same width.
fn in_decimal_type(values: &ArrayRef, of: &DataType) -> ArrayRef {
    if values.data_type() == of {
        return values.clone();
    }
    let data = values.to_data().into_builder().data_type(of.clone());
    match data.build() {
        Ok(data) => make_array(data),
        Err(_) => new_null_array(of, values.len()),
    }
}

/// Nanoseconds of the digits behind the point; none, or more than nine that count, are no fraction.
fn nanoseconds(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.iter().skip(9).any(|digit| *digit != b'0') {
        return None;
    }
    let mut nanoseconds = 0;
    for at in 0..9 {
        let digit = digits.get(at).map_or(0, |digit| digit - b'0');
        nanoseconds = nanoseconds * 10 + i64::from(digit);
    }
    Some(nanoseconds)
}

/// Seconds of `Z`, `UTC`, `+02:00`, `+0200` or `+02`.
fn parse_offset(text: &str) -> Option<i64> {
    let text = text.strip_prefix(' ').unwrap_or(text);
    if matches!(text, "Z" | "z" | "UTC") {
        return Some(0);
    }
    let bytes = text.as_bytes();
    let sign = match bytes.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = two_digits(bytes, 1).filter(|hours| *hours < 24)?;
    // The length tells the three forms apart.
    let minutes = match (bytes.len(), bytes.get(3)) {
        (3, _) => 0,
        (5, _) => two_digits(bytes, 3)?,
        (6, Some(b':')) => two_digits(bytes, 4)?,
        _ => return None,
    };
    (minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Days since 1970 of `YYYY-MM-DD`, and nothing else.
fn parse_date(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let year = two_digits(bytes, 0)? * 100 + two_digits(bytes, 2)?;
    let month = two_digits(bytes, 5)?;
    let day = two_digits(bytes, 8)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=month_days).contains(&day) {
        return None;
    }
    // Years that begin in March end with the day that only some have.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    // Days from civil dates by eras of 400 years, which all have 146,097 days.
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    i32::try_from(era * 146_097 + day_of_era - 719_468).ok()
}

fn two_digits(bytes: &[u8], at: usize) -> Option<i64> {
    let tens = bytes.get(at).filter(|byte| byte.is_ascii_digit())?;
    let ones = bytes.get(at + 1).filter(|byte| byte.is_ascii_digit())?;
    Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// True if a whole number is written with zeros before it: `007`.
fn is_padded(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.len() > 1 && digits.starts_with('0') && is_digits(digits)
}

/// True if a float holds the digits of a number before the point, so that two numbers cannot become one. Digits after
/// the point are rounded, and so is what is written with an exponent: such numbers are measured, and no identifiers.
fn float_is_exact(text: &str) -> bool {
    // Short texts hold few digits.
    if text.len() <= EXACT_DIGITS {
        return true;
    }
    let unsigned = text.trim_start_matches(['-', '+']);
    let whole = match unsigned.split_once('.') {
        Some((whole, _)) => whole,
        None => unsigned,
    };
    let whole = whole.trim_start_matches('0');
    let has_exponent = text.contains(['e', 'E']);
    let is_whole = whole.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() <= EXACT_DIGITS || !is_whole || has_exponent {
        return true;
    }
    let Ok(float) = whole.parse::<f64>() else {
        return false;
    };
    // Some programs write the shortest digits that lead back to a float, and fill up with zeros.
    format!("{float:.0}") == whole || format!("{float}") == whole
}

fn primitives<T: ArrowPrimitiveType>(
    texts: &StringArray,
    lost_max: usize,
    mut parse: impl FnMut(&str) -> Option<T::Native>,
) -> ReadTexts {
    let mut values = Vec::with_capacity(texts.len());
    let mut lost = Vec::new();
    for row in 0..texts.len() {
        if texts.is_null(row) {
            values.push(T::Native::default());
            continue;
        }
        match parse(texts.value(row)) {
            Some(value) => values.push(value),
            None => {
                values.push(T::Native::default());
                lost.push(row);
                // The caller needs no more failures: the other rows are not read.
                if lost.len() >= lost_max {
                    values.resize(texts.len(), T::Native::default());
                    break;
                }
            }
        }
    }
    let nulls = nulls_with(texts.nulls(), texts.len(), &lost);
    ReadTexts {
        values: Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)),
        lost,
    }
}

/// `true` and `false` in any case of letters, and no other words.
fn booleans(texts: &StringArray, lost_max: usize) -> ReadTexts {
    let mut lost = Vec::new();
    let mut values = vec![false; texts.len()];
    for (row, text) in texts.iter().enumerate() {
        let Some(text) = text else { continue };
        if text.eq_ignore_ascii_case("true") {
            values[row] = true;
        } else if !text.eq_ignore_ascii_case("false") {
            lost.push(row);
            if lost.len() >= lost_max {
                break;
            }
        }
    }
    let nulls = nulls_with(texts.nulls(), texts.len(), &lost);
    ReadTexts {
        values: Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
        lost,
    }
}

/// Types that no text is taken for unless it is declared: they are read as Arrow reads them.
fn cast_others(texts: &StringArray, of: &DataType) -> ReadTexts {
    let lenient = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    match cast_with_options(texts, of, &lenient) {
        Ok(values) => {
            // A text whose value is null could not be cast.
            let rows = 0..texts.len();
            let lost = rows.filter(|row| texts.is_valid(*row) && values.is_null(*row));
            let lost = lost.collect();
            ReadTexts { values, lost }
        }
        Err(_) => {
            let lost = (0..texts.len()).filter(|row| texts.is_valid(*row));
            ReadTexts {
                values: new_null_array(of, texts.len()),
                lost: lost.collect(),
            }
        }
    }
}

fn nulls_with(nulls: Option<&NullBuffer>, rows: usize, lost: &[usize]) -> Option<NullBuffer> {
    if lost.is_empty() {
        return nulls.cloned();
    }
    let mut valid = vec![true; rows];
    for row in lost {
        valid[*row] = false;
    }
    let others = NullBuffer::from(valid);
    NullBuffer::union(nulls, Some(&others))
}

/// Texts of whole numbers, without points and exponents: `5.0` is 5, as programs without nulls of integers write it.
pub fn plain_integers(texts: &StringArray) -> StringArray {
    // Most columns have no such text and are returned as they are.
    if texts.iter().flatten().all(is_plain_integer) {
        return texts.clone();
    }
    let mut integers = StringBuilder::new();
    for text in texts {
        let integer = text.and_then(|text| match text.parse::<f64>() {
            Ok(float) if !is_plain_integer(text) => whole_number(float),
            _ => None,
        });
        match (integer, text) {
            (Some(integer), _) => integers.append_value(integer.to_string()),
            (None, Some(text)) => integers.append_value(text),
            (None, None) => integers.append_null(),
        }
    }
    integers.finish()
}

fn is_plain_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// A double as an integer, if it is whole and exact.
fn whole_number(float: f64) -> Option<i64> {
    let is_whole = float.fract() == 0.0 && float.abs() < EXACT_INTEGER_MAX;
    is_whole.then_some(float as i64)
}

/// A value as messages show it.
pub fn shorten(value: &str) -> String {
    match value.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(unit: TimeUnit, zone: Option<&str>) -> DataType {
        DataType::Timestamp(unit, zone.map(Into::into))
    }

    fn is_read(rules: TextRules, text: &str, of: &DataType) -> bool {
        let texts = StringArray::from(vec![Some(text), None]);
        let read = rules.read(&texts, of);
        assert_eq!(read.values.data_type(), of);
        assert_eq!(read.values.is_null(0), !read.lost.is_empty(), "{text}");
        assert!(read.values.is_null(1));
        assert_eq!(rules.all_read(&texts, of), read.lost.is_empty(), "{text}");
        assert_eq!(rules.read_all(&texts, of).is_ok(), read.lost.is_empty());
        read.lost.is_empty()
    }

    /// Words, whether their column's type must be declared for them, and whether they are read at all.
    #[test]
    fn each_type_has_one_strict_grammar() {
        use DataType::*;
        let us = time(TimeUnit::Microsecond, None);
        let ns = time(TimeUnit::Nanosecond, None);
        let utc = time(TimeUnit::Microsecond, Some("UTC"));
        let east = time(TimeUnit::Microsecond, Some("+02:00"));
        const ALWAYS: (bool, bool) = (true, true);
        const DECLARED: (bool, bool) = (false, true);
        const NEVER: (bool, bool) = (false, false);
        let cases = [
            (Int64, "742", ALWAYS),
            (Int64, "-742", ALWAYS),
            (Int64, "0", ALWAYS),
            (Int64, "00742", DECLARED),
            (Int64, "-007", DECLARED),
            (Int64, "7.0", NEVER),
            (Int64, "1e3", NEVER),
            (Int64, " 7", NEVER),
            (Int64, "7 ", NEVER),
            (Int64, "1_000", NEVER),
            (Int64, "0x1F", NEVER),
            (Int64, "", NEVER),
            (Int64, "٤٥", NEVER),
            (Int64, "9223372036854775808", NEVER),
            (UInt64, "9223372036854775808", ALWAYS),
            (Int8, "128", NEVER),
            (Float64, "1.5", ALWAYS),
            (Float64, ".5", ALWAYS),
            (Float64, "5.", ALWAYS),
            (Float64, "-1E-3", ALWAYS),
            (Float64, "NaN", ALWAYS),
            (Float64, "-inf", ALWAYS),
            (Float64, "1e400", NEVER),
            (Float64, "-1e400", NEVER),
            (Float32, "1e39", NEVER),
            (Float16, "65504", ALWAYS),
            (Float16, "inf", ALWAYS),
            (Float16, "70000", NEVER),
            (Float16, "1e400", NEVER),
            (Float16, " 1", NEVER),
            (Float16, "007", DECLARED),
            (Float64, "007", DECLARED),
            (Float64, "9007199254740993", DECLARED),
            (Float64, "1,5", NEVER),
            (Float64, "1.5x", NEVER),
            (Float64, "e5", NEVER),
            (Boolean, "true", ALWAYS),
            (Boolean, "FALSE", ALWAYS),
            (Boolean, "t", NEVER),
            (Boolean, "yes", NEVER),
            (Boolean, "on", NEVER),
            (Boolean, "1", NEVER),
            (Date32, "2024-02-29", ALWAYS),
            (Date32, "0001-01-01", ALWAYS),
            (Date32, "9999-12-31", ALWAYS),
            (Date32, "2023-02-29", NEVER),
            (Date32, "2024-2-9", NEVER),
            (Date32, "2024-02-29T12:00:00", NEVER),
            (Date32, "20240229", NEVER),
            (Date64, "2024-02-29", ALWAYS),
            (Date64, "2024-02-29T12:30:59.123", ALWAYS),
            (Date64, "2024-02-29T12:30:59.1234", NEVER),
            (Date64, "2024-02-29T12:30:60", NEVER),
            (Date64, "2024-2-9", NEVER),
            (us.clone(), "2024-02-29", ALWAYS),
            (us.clone(), "2024-02-29 12:30", ALWAYS),
            (us.clone(), "2024-02-29T12:30:59.123456", ALWAYS),
            (us.clone(), "2024-02-29T12:30:59.123456000", ALWAYS),
            (us.clone(), "2024-02-29T12:30:59.1234567", NEVER),
            (us.clone(), "2024-02-29T24:00:00", NEVER),
            (us.clone(), "2024-02-29T12:30:60", NEVER),
            (us.clone(), "2024-02-29T12:30:59+02:00", DECLARED),
            (us.clone(), "2024-02-29T12:30:59Z", DECLARED),
            (us.clone(), "9999-12-31T23:59:59.999999", ALWAYS),
            (ns.clone(), "2024-02-29T12:30:59.123456789", ALWAYS),
            (ns.clone(), "2024-02-29T12:30:59.1234567891", NEVER),
            (ns.clone(), "9999-12-31", NEVER),
            (ns.clone(), "1677-01-01", NEVER),
            (utc.clone(), "2024-02-29T12:30:59Z", ALWAYS),
            (utc.clone(), "2024-02-29 12:30:59 UTC", ALWAYS),
            (utc.clone(), "2024-02-29T12:30:59+0200", ALWAYS),
            (utc.clone(), "2024-02-29T12:30:59 -02", ALWAYS),
            (utc.clone(), "2024-02-29T12:30:59+2", NEVER),
            (utc.clone(), "2024-02-29T12:30:59", DECLARED),
            (utc.clone(), "2024-02-29", DECLARED),
            (Decimal128(10, 2), "1.5", ALWAYS),
            (Decimal128(10, 2), "-1.500", ALWAYS),
            (Decimal128(10, 2), "+7", ALWAYS),
            (Decimal128(10, 2), ".5", ALWAYS),
            (Decimal128(10, 2), "007.50", ALWAYS),
            (Decimal128(10, 2), "007", DECLARED),
            (Decimal128(10, 2), "1.505", NEVER),
            (Decimal128(10, 2), " 1.5", NEVER),
            (Decimal128(10, 2), "1.5 ", NEVER),
            (Decimal128(10, 2), "1e2", NEVER),
            (Decimal128(10, 2), "1.2.3", NEVER),
            (Decimal128(10, 2), ".", NEVER),
            (Decimal128(10, 2), "-", NEVER),
            (Decimal128(10, 2), "", NEVER),
            (Decimal128(10, 2), "NaN", NEVER),
            (Decimal128(10, 2), "123456789.00", NEVER),
            (Decimal128(5, -2), "1234500", ALWAYS),
            (Decimal128(5, -2), "-100", ALWAYS),
            (Decimal128(5, -2), "12300.00", ALWAYS),
            (Decimal128(5, -2), "0", ALWAYS),
            (Decimal128(5, -2), "000", DECLARED),
            (Decimal128(5, -2), "1234567", NEVER),
            (Decimal128(5, -2), "50", NEVER),
            (Decimal128(5, -2), "123456700", NEVER),
            (Decimal256(60, 0), "1", ALWAYS),
            (Decimal256(60, 0), "1.5", NEVER),
            (Time64(TimeUnit::Nanosecond), "12:30", ALWAYS),
            (Time64(TimeUnit::Nanosecond), "12:30:59.123456789", ALWAYS),
            (Time64(TimeUnit::Nanosecond), "12:30:59.1234567891", NEVER),
            (Time64(TimeUnit::Microsecond), "12:30:59.1234567", NEVER),
            (Time64(TimeUnit::Nanosecond), "24:00", NEVER),
            (Time64(TimeUnit::Nanosecond), "12:30 PM", NEVER),
            (Time64(TimeUnit::Nanosecond), " 12:30", NEVER),
            (Time64(TimeUnit::Nanosecond), "1:30", NEVER),
            (Time32(TimeUnit::Second), "23:59:59", ALWAYS),
            (Time32(TimeUnit::Second), "12:30:59.5", NEVER),
            (Time32(TimeUnit::Millisecond), "12:30:59.5", ALWAYS),
            (east.clone(), "2024-07-01T12:00:00", DECLARED),
            (east.clone(), "2024-07-01T12:00:00-01:00", ALWAYS),
        ];
        for (of, text, expected) in cases {
            let found = (
                is_read(TextRules::inferred(), text, &of),
                is_read(TextRules::declared(), text, &of),
            );
            assert_eq!(found, expected, "{text} as {of}");
        }
    }

    #[test]
    fn times_are_the_instants_that_they_name() {
        let ticks = |text: &str, of: &DataType| {
            let texts = StringArray::from(vec![text]);
            let read = TextRules::declared().read_all(&texts, of).unwrap();
            arrow::compute::cast(&read, &DataType::Int64)
                .unwrap()
                .as_primitive::<Int64Type>()
                .value(0)
        };
        let utc = time(TimeUnit::Second, Some("UTC"));
        let east = time(TimeUnit::Second, Some("+01:00"));
        let plain = time(TimeUnit::Nanosecond, None);
        assert_eq!(ticks("1970-01-01T00:00:00+02:00", &utc), -7200);
        assert_eq!(ticks("1970-01-01T00:00:00-0130", &utc), 5400);
        assert_eq!(ticks("1970-01-01T00:00:00", &east), -3600);
        assert_eq!(ticks("1970-01-01T00:00:00Z", &east), 0);
        assert_eq!(ticks("1969-12-31T23:59:59.999999999", &plain), -1);
        assert_eq!(
            ticks("0001-01-01", &time(TimeUnit::Second, None)),
            -62_135_596_800
        );
        assert_eq!(
            ticks("9999-12-31T23:59:59", &time(TimeUnit::Second, None)),
            253_402_300_799
        );
    }

    #[test]
    fn decimals_of_a_negative_scale_have_the_digits_before_it() {
        let texts = StringArray::from(vec![
            Some("1234500"),
            None,
            Some("-100.0"),
            Some("0"),
            Some("+300"),
        ]);
        let of = DataType::Decimal128(5, -2);
        let read = TextRules::declared().read_all(&texts, &of).unwrap();
        assert_eq!(read.data_type(), &of);
        let stored = read.as_primitive::<arrow::datatypes::Decimal128Type>();
        let stored: Vec<Option<i128>> = stored.iter().collect();
        assert_eq!(stored, [Some(12_345), None, Some(-1), Some(0), Some(3)]);
    }

    #[test]
    fn dates_are_those_of_arrow() {
        use arrow::compute::kernels::cast_utils::Parser;
        for year in [
            0, 1, 4, 100, 400, 1582, 1899, 1900, 1970, 2000, 2023, 2024, 9999,
        ] {
            for month in 1..=12 {
                for day in [1, 28, 29, 30, 31] {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    assert_eq!(parse_date(&text), Date32Type::parse(&text), "{text}");
                }
            }
        }
    }

    #[test]
    fn numbers_have_the_marks_that_are_declared() {
        let rules = TextRules {
            is_inferred: true,
            marks: NumberMarks {
                decimal: b',',
                thousands: Some('.'),
            },
        };
        for (text, expected) in [
            ("1,5", Some(1.5)),
            ("-1.234.567,25", Some(-1_234_567.25)),
            ("1234567,25", Some(1_234_567.25)),
            ("0,25e2", Some(25.0)),
            ("1.23", None),
            ("1.2345", None),
            (".234", None),
            ("0.123", None),
            ("-0.123,5", None),
            ("01.234", None),
            ("1.234e3", None),
            ("10.000", Some(10_000.0)),
            ("0,123", Some(0.123)),
            ("1,5,0", None),
            ("1,", None),
        ] {
            let texts = StringArray::from(vec![text]);
            let read = rules.read_all(&texts, &DataType::Float64).ok();
            let read = read.map(|read| read.as_primitive::<Float64Type>().value(0));
            assert_eq!(read, expected, "{text}");
        }
        assert!(rules.all_read(&StringArray::from(vec!["1.234"]), &DataType::Int64));
        assert!(!rules.all_read(&StringArray::from(vec!["1,5"]), &DataType::Int64));
        // Excel and other programs in France put such a space there.
        let narrow_space = NumberMarks {
            decimal: b',',
            thousands: Some('\u{202f}'),
        };
        let rules = TextRules {
            is_inferred: true,
            marks: narrow_space,
        };
        let grouped = StringArray::from(vec!["-1\u{202f}234\u{202f}567"]);
        assert!(rules.all_read(&grouped, &DataType::Int64));
        assert!(!rules.all_read(&StringArray::from(vec!["1\u{202f}23"]), &DataType::Int64));
    }

    #[test]
    fn floats_hold_some_digits_and_not_others() {
        for exact in [
            "0",
            "-1.5",
            "9007199254740992",
            "9007199254740992.0",
            "1e300",
            "0.10000000000000000555",
            "NaN",
            "18446744073709551616",
            "123456789012345680000",
            "-000000000000000000001",
            "inf",
            "x",
        ] {
            assert!(float_is_exact(exact), "{exact}");
        }
        for lost in [
            "9007199254740993",
            "-9007199254740993",
            "9007199254740993.5",
            "12345678901234567890",
        ] {
            assert!(!float_is_exact(lost), "{lost}");
        }
    }

    #[test]
    fn whole_numbers_are_written_without_points() {
        let texts = StringArray::from(vec![
            Some("5.0"),
            None,
            Some("1e3"),
            Some("9007199254740993.0"),
            Some("1.5"),
        ]);
        let expected = StringArray::from(vec![
            Some("5"),
            None,
            Some("1000"),
            Some("9007199254740993.0"),
            Some("1.5"),
        ]);
        assert_eq!(plain_integers(&texts), expected);
    }

    #[test]
    fn problems_name_the_reason() {
        let check = |text: &str, of: DataType, words: &str| {
            let problem = TextRules::inferred().problem(text, &of);
            assert!(
                problem.contains(text) && problem.contains(words),
                "{problem}"
            );
        };
        check("00742", DataType::Int64, "lose its zeros");
        check("x", DataType::Int64, "not of type int64");
        check("9007199254740993", DataType::Float64, "a float cannot hold");
        check("1e400", DataType::Float64, "beyond the range");
        check(
            "2024-01-01T00:00:00Z",
            time(TimeUnit::Microsecond, None),
            "no time zone",
        );
        check(
            "2024-01-01T00:00:00",
            time(TimeUnit::Microsecond, Some("UTC")),
            "no offset",
        );
        check(
            "2024-01-01T00:00:00.123456789",
            time(TimeUnit::Microsecond, None),
            "digits",
        );
        check("2024-01-01T00:00:00", DataType::Date32, "time of day");
        check("1.005", DataType::Decimal128(10, 2), "digits");
    }
}
