//! Problems of a split, from a spec or a builder.

use forebay_model::{
    DataSplit, FaultCode, LENGTH_HINT, TimeLength, civil_length_hint, codes, last_length,
};
use jiff::civil::DateTime;

/// A problem of a split.
pub(crate) struct SplitProblem {
    /// Code of the fault.
    pub code: FaultCode,
    /// The place inside the split, such as `ends[1]`.
    pub path: String,
    pub message: String,
    pub hint: &'static str,
}

/// All problems of a split, in the order of its fields.
pub(crate) fn split_problems(split: &DataSplit) -> Vec<SplitProblem> {
    match split {
        DataSplit::Expressions(_) => Vec::new(),
        DataSplit::Time {
            parts,
            ends,
            embargo,
            ..
        } => time_problems(parts, ends, embargo.as_deref()),
        DataSplit::Hash { .. } => share_problem(split.shares_total().unwrap_or_default())
            .into_iter()
            .collect(),
    }
}

fn time_problems(parts: &[String], ends: &[String], embargo: Option<&str>) -> Vec<SplitProblem> {
    let mut problems = Vec::new();
    let mut report = |code, path: String, message, hint| {
        problems.push(SplitProblem {
            code,
            path,
            message,
            hint,
        })
    };
    if ends.len() + 1 != parts.len() {
        let count = parts.len();
        let end_count = parts.len().saturating_sub(1);
        let plural = if end_count == 1 { "" } else { "s" };
        let message = format!(
            "{count} parts need {end_count} end{plural} between them, not {}",
            ends.len()
        );
        report(
            codes::BAD_VALUE,
            "ends".into(),
            message,
            "the last part has no end",
        );
    }
    for (index, part) in parts
        .iter()
        .enumerate()
        .filter(|(index, part)| parts[..*index].contains(part))
    {
        report(
            codes::DUPLICATE,
            format!("parts[{index}]"),
            format!("two parts are called `{part}`"),
            "",
        );
    }
    let mut last: Option<DateTime> = None;
    let mut shortest: Option<TimeLength> = None;
    for (index, text) in ends.iter().enumerate() {
        let end_path = format!("ends[{index}]");
        if let Some(length) = last_length(text) {
            match length {
                Err(message) => {
                    let hint = civil_length_hint(text.trim().trim_start_matches("last"));
                    report(codes::BAD_VALUE, end_path, message, hint);
                }
                Ok(length) if length.count() == 0 => {
                    let message = format!("the part after `{text}` would have no rows");
                    report(
                        codes::BAD_VALUE,
                        end_path,
                        message,
                        "write a length above 0",
                    );
                }
                Ok(length) => {
                    if shortest.is_some_and(|shortest| is_no_shorter(length, shortest)) {
                        let message = format!("`{text}` does not come after the end before it");
                        report(codes::BAD_VALUE, end_path, message, "");
                    }
                    shortest = Some(length);
                }
            }
            continue;
        }
        let Ok(end) = text.parse::<DateTime>() else {
            let message = format!("`{text}` is not a date or timestamp");
            report(
                codes::BAD_VALUE,
                end_path,
                message,
                "such as 2016-04-25, 2016-04-25T06:00:00 or last 28d",
            );
            continue;
        };
        if last.is_some_and(|last| last >= end) {
            report(
                codes::BAD_VALUE,
                end_path,
                format!("`{text}` does not come after the end before it"),
                "",
            );
        }
        last = Some(end);
    }
    if let Some(text) = embargo.filter(|text| !is_duration_text(text)) {
        report(
            codes::BAD_VALUE,
            "embargo".into(),
            format!("`{text}` is not a length of time"),
            civil_length_hint(text),
        );
    }
    problems
}

/// True if a length is at least as long as another one, wherever both are counted from.
fn is_no_shorter(length: TimeLength, other: TimeLength) -> bool {
    let (months, nanoseconds) = length.months_and_nanoseconds();
    let (other_months, other_nanoseconds) = other.months_and_nanoseconds();
    months >= other_months && nanoseconds >= other_nanoseconds
}

fn share_problem(total: f64) -> Option<SplitProblem> {
    let message = format!(
        "the shares sum to {}, not to 1",
        (total * 1e6).round() / 1e6
    );
    let problem = SplitProblem {
        code: codes::BAD_VALUE,
        path: "parts".to_owned(),
        message,
        hint: "",
    };
    ((total - 1.0).abs() > 1e-6).then_some(problem)
}

/// The remedy for a text that is no length of days of the calendar.
pub(crate) fn civil_duration_hint(text: &str) -> String {
    let hint = civil_length_hint(text);
    match forebay_transforms::duration_hint(text) {
        Some(notation) if hint == LENGTH_HINT => notation,
        _ => hint.to_owned(),
    }
}

/// `30m`, `12h`, `7d`, `2w`, `1mo`.
pub(crate) fn is_duration_text(text: &str) -> bool {
    text.parse::<TimeLength>().is_ok()
}
