//! The policy of a step's refits: its text, and the check whether it is time.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use forebay_model::{
    CIVIL_BUSINESS_DAYS_HINT, DAY_NANOSECONDS, Fault, RefitPolicy, Result, TimeLength,
    business_days_hint, codes,
};
use jiff::Span;
use jiff::civil::DateTime;

use crate::deadline::parse_duration;

/// Separator of the conditions of a policy.
const OR: &str = " or ";

/// Prefix of the greatest drift.
const DRIFT: &str = "drift above ";

/// Reads `always` (`None`), `never`, `weekly`, a duration such as `7d`, `drift above 0.1`, or
/// `30d or drift above 0.1`.
pub fn parse_refit(text: &str) -> Result<Option<RefitPolicy>> {
    let policy_text = text.trim();
    if policy_text == "always" {
        return Ok(None);
    }
    let mut policy = RefitPolicy::default();
    if policy_text == "never" {
        return Ok(Some(policy));
    }
    for condition in policy_text.split(OR) {
        if !add_condition(&mut policy, condition.trim()) {
            return Err(policy_fault(text));
        }
    }
    Ok(Some(policy))
}

/// Adds a condition to a policy; false if it is no condition, or the policy has one of its kind.
fn add_condition(policy: &mut RefitPolicy, condition: &str) -> bool {
    if let Some(drift_text) = condition.strip_prefix(DRIFT) {
        let Ok(drift) = drift_text.trim().parse::<f64>() else {
            return false;
        };
        let is_first = policy.drift_above.replace(drift).is_none();
        return is_first && (0.0..=1.0).contains(&drift);
    }
    let length_text = if condition == "weekly" {
        "7d"
    } else {
        condition
    };
    let is_first = policy.after.replace(length_text.to_owned()).is_none();
    is_first && length_count(length_text).is_some_and(|count| count > 0)
}

/// A length of time as a count of ticks, nanoseconds or units of the calendar.
fn length_count(text: &str) -> Option<u64> {
    if let Ok(ticks) = text.parse() {
        return Some(ticks);
    }
    if let Some(duration) = parse_duration(text) {
        return Some(duration.as_nanos() as u64);
    }
    let length: TimeLength = text.parse().ok()?;
    Some(length.count().into())
}

fn policy_fault(text: &str) -> Fault {
    let message = format!("`{text}` does not say when a step learns anew");
    let fault = Fault::new(codes::BAD_VALUE, message);
    let mut conditions = text.split(OR).map(str::trim);
    if conditions.any(|condition| business_days_hint(condition).is_some()) {
        return fault.hint(CIVIL_BUSINESS_DAYS_HINT);
    }
    fault.hint(
        "write always, never, weekly, a duration such as 7d, `drift above 0.1`, or `30d or drift \
         above 0.1`",
    )
}

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
    fn policies_as_people_write_them() {
        for (text, expect) in [
            ("never", "never"),
            ("weekly", "7d"),
            ("36h", "36h"),
            ("drift above 0.1", "drift above 0.1"),
            (" 30d or drift above 0.25 ", "30d or drift above 0.25"),
            ("500", "500"),
            ("1mo", "1mo"),
            ("1q or drift above 0.1", "1q or drift above 0.1"),
        ] {
            assert_eq!(
                parse_refit(text).unwrap().unwrap().to_string(),
                expect,
                "{text}"
            );
        }
        assert_eq!(parse_refit("always").unwrap(), None);
        for text in [
            "",
            "sometimes",
            "0d",
            "drift",
            "drift above 2",
            "7d or 8d",
            "always or 7d",
            "7d and 8d",
            "-1",
        ] {
            assert!(parse_refit(text).is_err(), "{text}");
        }
    }

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
