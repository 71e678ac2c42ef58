//! What is wrong with a split, wherever it was written.

use forebay_model::{DataSplit, FaultCode, codes};
use jiff::civil::DateTime;

/// A problem of a split.
pub(crate) struct SplitProblem {
    /// Its code.
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
    let mut found = Vec::new();
    let mut report = |code, path: String, message, hint| {
        found.push(SplitProblem {
            code,
            path,
            message,
            hint,
        })
    };
    if ends.len() + 1 != parts.len() {
        let (count, wanted) = (parts.len(), parts.len().saturating_sub(1));
        let plural = if wanted == 1 { "" } else { "s" };
        let message = format!(
            "{count} parts need {wanted} end{plural} between them, not {}",
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
    for (index, text) in ends.iter().enumerate() {
        let place = format!("ends[{index}]");
        let Ok(end) = text.parse::<DateTime>() else {
            let message = format!("`{text}` is not a date or timestamp");
            report(
                codes::BAD_VALUE,
                place,
                message,
                "such as 2016-04-25 or 2016-04-25T06:00:00",
            );
            continue;
        };
        if last.is_some_and(|last| last >= end) {
            report(
                codes::BAD_VALUE,
                place,
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
            DURATION_HINT,
        );
    }
    found
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

/// How lengths of time are written.
pub(crate) const DURATION_HINT: &str = "write a whole number and a unit: 30m, 12h, 7d or 2w";

/// `30m`, `12h`, `7d`, `2w`.
pub(crate) fn is_duration_text(text: &str) -> bool {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    digits.parse::<u32>().is_ok()
        && ["w", "d", "h", "m", "min", "s"].contains(&&text[digits.len()..])
}
