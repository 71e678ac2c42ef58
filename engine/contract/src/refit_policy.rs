//! The text of the policy of refits.

use forebay_model::{
    CIVIL_BUSINESS_DAYS_HINT, Fault, RefitPolicy, Result, TimeLength, business_days_hint, codes,
    parse_duration,
};

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
}
