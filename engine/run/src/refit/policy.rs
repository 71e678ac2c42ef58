//! When a step learns anew: what people write, and whether it is time.

use forebay_model::{Fault, RefitPolicy, Result, codes};

use crate::deadline::parse_duration;

/// What separates the conditions of a policy.
const OR: &str = " or ";

/// What stands before the greatest drift.
const DRIFT: &str = "drift above ";

/// Reads `always` (`None`), `never`, `weekly`, a duration such as `7d`, `drift above 0.1`, or
/// `30d or drift above 0.1`.
pub fn parse_refit(text: &str) -> Result<Option<RefitPolicy>> {
    let wrong = || {
        let fault = Fault::new(
            codes::BAD_VALUE,
            format!("`{text}` does not say when a step learns anew"),
        );
        fault.hint("write always, never, weekly, a duration such as 7d, `drift above 0.1`, or `30d or drift above 0.1`")
    };
    match text.trim() {
        "always" => return Ok(None),
        "never" => return Ok(Some(RefitPolicy::default())),
        _ => {}
    }
    let mut policy = RefitPolicy::default();
    for condition in text.trim().split(OR).map(str::trim) {
        if let Some(drift) = condition.strip_prefix(DRIFT) {
            let drift: f64 = drift.trim().parse().map_err(|_| wrong())?;
            if !(0.0..=1.0).contains(&drift) || policy.drift_above.replace(drift).is_some() {
                return Err(wrong());
            }
            continue;
        }
        let after = if condition == "weekly" {
            "7d"
        } else {
            condition
        };
        let length = after
            .parse::<u64>()
            .ok()
            .or_else(|| Some(parse_duration(after)?.as_nanos() as u64));
        if length.is_none_or(|length| length == 0)
            || policy.after.replace(after.to_owned()).is_some()
        {
            return Err(wrong());
        }
    }
    Ok(Some(policy))
}

/// A time of the data, as it is written: whole numbers where times are numbers, else dates and timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum DataTick {
    Number(i64),
    Nanoseconds(i64),
}

/// Reads a time of the data.
pub(super) fn data_tick(text: &str) -> Option<DataTick> {
    let number = text.trim().parse().ok().map(DataTick::Number);
    let time = || arrow::compute::kernels::cast_utils::string_to_timestamp_nanos(text.trim()).ok();
    number.or_else(|| time().map(DataTick::Nanoseconds))
}

/// Whether a length of time has passed; `None` where it does not measure such times.
pub(super) fn has_passed(after: &str, since: &str, now: &str) -> Option<bool> {
    let (from, to, length) = match (data_tick(since)?, data_tick(now)?) {
        (DataTick::Number(from), DataTick::Number(to)) => (from, to, after.parse::<i128>().ok()?),
        (DataTick::Nanoseconds(from), DataTick::Nanoseconds(to)) => {
            (from, to, parse_duration(after)?.as_nanos() as i128)
        }
        _ => return None,
    };
    Some(i128::from(to) - i128::from(from) >= length)
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
