//! Lengths of time that the policy of a refit measures in the data.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use forebay_model::{DAY_NANOSECONDS, TimeLength, parse_duration};
use jiff::Span;
use jiff::civil::DateTime;

/// A time of the data: a whole number where times are numbers, else a date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum DataTick {
    Number(i64),
    Nanoseconds(i64),
}

/// Reads a time of the data.
pub(super) fn data_tick(text: &str) -> Option<DataTick> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(DataTick::Number(number));
    }
    let nanoseconds = string_to_timestamp_nanos(text).ok()?;
    Some(DataTick::Nanoseconds(nanoseconds))
}

/// True if a length of time has passed; `None` where it does not measure such times. Days and longer lengths are of the
/// calendar: times are compared as they are written, in the zone of their column.
pub(super) fn has_passed(length_text: &str, since: &str, now: &str) -> Option<bool> {
    if let Ok(length @ TimeLength::Calendar { .. }) = length_text.parse() {
        let (months, nanoseconds) = length.months_and_nanoseconds();
        let days = i64::try_from(nanoseconds / DAY_NANOSECONDS).ok()?;
        let span = Span::new().try_months(months).ok()?.try_days(days).ok()?;
        let until = civil_time(since)?.checked_add(span).ok()?;
        return Some(until <= civil_time(now)?);
    }
    match (data_tick(since)?, data_tick(now)?) {
        (DataTick::Number(from), DataTick::Number(to)) => {
            let length: i128 = length_text.parse().ok()?;
            Some(i128::from(to) - i128::from(from) >= length)
        }
        (DataTick::Nanoseconds(from), DataTick::Nanoseconds(to)) => {
            let length = parse_duration(length_text)?.as_nanos() as i128;
            Some(i128::from(to) - i128::from(from) >= length)
        }
        _ => None,
    }
}

/// A written time without its offset.
fn civil_time(text: &str) -> Option<DateTime> {
    let text = text.trim();
    // A whole number is no year.
    if text.parse::<i64>().is_ok() {
        return None;
    }
    text.trim_end_matches(['Z', 'z']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_in_the_data() {
        for (after, since, now, expect) in [
            ("7d", "2024-03-01", "2024-03-07", Some(false)),
            ("7d", "2024-03-01", "2024-03-08", Some(true)),
            (
                "1h",
                "2024-03-01T10:00:00Z",
                "2024-03-01T11:00:00Z",
                Some(true),
            ),
            ("7d", "2024-03-08", "2024-03-01", Some(false)),
            // A week of local days, with an hour less.
            (
                "7d",
                "2024-03-25T00:00:00+01:00",
                "2024-04-01T00:00:00+02:00",
                Some(true),
            ),
            (
                "168h",
                "2024-03-25T00:00:00+01:00",
                "2024-04-01T00:00:00+02:00",
                Some(false),
            ),
            ("1mo", "2024-01-31", "2024-02-28", Some(false)),
            ("1mo", "2024-01-31", "2024-02-29", Some(true)),
            (
                "1q",
                "2024-01-31T00:00:00Z",
                "2024-04-30T00:00:00Z",
                Some(true),
            ),
            ("10", "5", "15", Some(true)),
            ("10", "5", "14", Some(false)),
            ("7d", "5", "15", None),
            ("10", "2024-03-01", "2024-03-08", None),
        ] {
            assert_eq!(
                has_passed(after, since, now),
                expect,
                "{after} since {since}, {now}"
            );
        }
    }
}
