//! Reports on `expect` rules.

use forebay_plan::ViolatingValue;
use forebay_storage::{DriftMeasures, Event};
use serde::Serialize;

/// Result of an `expect` step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExpectationReport {
    /// The step.
    pub step: String,
    /// The rule, such as `not_null: qty`.
    pub rule: String,
    /// True if it judges the rows of the future, not the known ones.
    pub of_future: bool,
    /// True if the rule holds.
    pub holds: bool,
    /// Number of judged rows.
    pub rows: u64,
    /// Rows that violate it.
    pub violations: u64,
    /// Violating rows that were taken out: rows that violate several rules count for the first one.
    pub quarantined: u64,
    /// The most frequent values that violate it: at most ten.
    pub values: Vec<ViolatingValue>,
    /// The measured violation, for people; empty where the rule holds.
    pub found: String,
    /// The measures of a rule about a distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Box<DriftMeasures>>,
}

impl ExpectationReport {
    pub(super) fn event(&self) -> Event {
        let ExpectationReport {
            step,
            rule,
            holds,
            rows,
            violations,
            quarantined,
            found,
            drift,
            ..
        } = self.clone();
        Event::ExpectationJudged {
            step,
            rule,
            holds,
            rows,
            violations,
            quarantined,
            found,
            drift,
        }
    }
}
