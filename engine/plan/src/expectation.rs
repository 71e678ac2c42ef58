//! Expectations: conditions of a step on its rows, judged before anything is published.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_model::{Finding, Result};
use serde::Serialize;

/// Prefix of the hidden columns that hold what a rule about values or keys looks at.
pub const VIOLATION_PREFIX: &str = "__expect_";

/// Reaction to an expectation that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectationPolicy {
    /// The run publishes nothing.
    Fail,
    /// The summary and an event report it.
    Warn,
    /// Violating rows are taken out. If there are too many of them, the run publishes nothing.
    Quarantine,
}

/// Expectation about the rows of a step. The findings of its operation decide whether it holds.
#[derive(Clone)]
pub struct Expectation {
    /// Name in the spec, such as `not_null: qty`.
    pub name: String,
    /// Reaction if it does not hold.
    pub policy: ExpectationPolicy,
    /// True if it judges the rows of the future, not the known ones.
    pub of_future: bool,
    /// True if rows that are scored pass it, since it is about values that only labels need.
    pub passes_scored: bool,
    /// Judgement of its operation's findings.
    pub judge: ExpectationJudge,
}

/// Judgement of the findings of an expectation's operation.
#[derive(Clone)]
pub enum ExpectationJudge {
    /// Rows that violate it: a count of all rows and of those without a violation, then the most frequent violations.
    Rows(JudgeFindings),
    /// A condition on all rows together.
    Whole(JudgeFindings),
    /// The profile of a column, compared with another.
    Drift(DriftRule),
}

/// Comparison of the distribution of a column with a baseline. The findings are those of a
/// `profile` step over the column.
#[derive(Debug, Clone, PartialEq)]
pub struct DriftRule {
    /// The column.
    pub field: Field,
    /// Baseline of the comparison.
    pub against: DriftBaseline,
    /// Greatest Jensen-Shannon divergence, in bits: 0 to 1.
    pub js: f64,
    /// Greatest change of the share of rows without a value.
    pub missing: f64,
}

/// Baseline of a comparison of distributions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriftBaseline {
    /// The rows of a part of the split: the second half of the findings.
    Part(String),
    /// The rows of the last run.
    LastRun,
    /// The rows of the runs of the seven days before the day of this run.
    TrailingWeek,
}

impl DriftBaseline {
    /// Parses the word of a spec. Words other than those of runs name parts.
    pub fn parse(text: &str) -> DriftBaseline {
        match text {
            "last_run" => DriftBaseline::LastRun,
            "trailing_week" => DriftBaseline::TrailingWeek,
            part => DriftBaseline::Part(part.to_owned()),
        }
    }
}

impl fmt::Display for DriftBaseline {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            DriftBaseline::Part(part) => part,
            DriftBaseline::LastRun => "last_run",
            DriftBaseline::TrailingWeek => "trailing_week",
        })
    }
}

impl fmt::Debug for Expectation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Expectation({})", self.name)
    }
}

/// Judges findings, in the order of the operation's requests.
pub type JudgeFindings =
    Arc<dyn Fn(&[Arc<Finding>], &JudgeContext) -> Result<ExpectationOutcome> + Send + Sync>;

/// Values that findings are judged by, besides the findings.
#[derive(Debug, Clone, Copy, Default)]
pub struct JudgeContext {
    /// Now, or the end of the interval, in nanoseconds since 1970.
    pub now: i128,
    /// The rows that the expectation found in the last run, if there was one.
    pub last_rows: Option<u64>,
}

/// Outcome of an expectation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectationOutcome {
    /// True if it holds.
    pub holds: bool,
    /// Number of checked rows.
    pub rows: u64,
    /// Number of rows that violate it; 0 if the condition is on all rows together.
    pub violations: u64,
    /// Measured value, for people: `12 rows` where more are expected.
    pub found: String,
    /// The most frequent values that violate it.
    pub examples: Vec<ViolatingValue>,
}

/// A row that violates an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViolatingRow {
    /// The file.
    pub file: String,
    /// Position of the row in the file, counted from 0.
    pub row: u64,
    /// The value as text.
    pub value: String,
}

/// A value that violates an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViolatingValue {
    /// The value as text.
    pub value: String,
    /// Number of rows with the value.
    pub rows: u64,
}
