//! Expectations: what a step says about its rows, judged before anything is published.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_model::{Finding, Result};
use serde::Serialize;

/// What happens when an expectation does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectationPolicy {
    /// Nothing of the run is published.
    Fail,
    /// The summary and an event tell of it.
    Warn,
    /// Rows that violate it are taken out. Nothing of the run is published where they are too many.
    Quarantine,
}

/// What is expected of the rows of a step. The findings of its operation tell whether it holds.
#[derive(Clone)]
pub struct Expectation {
    /// As the spec has it, such as `not_null: qty`.
    pub name: String,
    /// What happens when it does not hold.
    pub policy: ExpectationPolicy,
    /// True if it judges the rows of the future, not the known ones.
    pub of_future: bool,
    /// How its operation's findings are judged.
    pub judge: ExpectationJudge,
}

/// How the findings of an expectation's operation are judged.
#[derive(Clone)]
pub enum ExpectationJudge {
    /// Rows that violate it: a count of all rows and of those without a violation, then the most frequent violations.
    Rows(JudgeFindings),
    /// All rows together.
    Whole(JudgeFindings),
    /// The profile of a column, compared with another.
    Drift(DriftRule),
}

/// What the distribution of a column is compared with. The findings are those of a `profile` step over the column.
#[derive(Debug, Clone, PartialEq)]
pub struct DriftRule {
    /// The column.
    pub field: Field,
    /// What it is compared with.
    pub against: DriftBaseline,
    /// Greatest Jensen-Shannon divergence, in bits: 0 to 1.
    pub js: f64,
    /// Greatest change of the share of rows without a value.
    pub missing: f64,
}

/// What the distribution of a column is compared with.
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
    /// From the word of a spec. Other words than those of runs name parts.
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

/// What findings are judged by.
#[derive(Debug, Clone, Copy, Default)]
pub struct JudgeContext {
    /// Now, or the end of the interval, in nanoseconds since 1970.
    pub now: i128,
    /// The rows that the expectation found in the last run, if there was one.
    pub last_rows: Option<u64>,
}

/// Whether an expectation holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectationOutcome {
    /// Whether it holds.
    pub holds: bool,
    /// Rows that were looked at.
    pub rows: u64,
    /// Rows that violate it; 0 where it is about all rows together.
    pub violations: u64,
    /// What was found, for people: `12 rows` where more are expected.
    pub found: String,
    /// The most frequent values that violate it.
    pub examples: Vec<ViolatingValue>,
}

/// A row that violates an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViolatingRow {
    /// The file.
    pub file: String,
    /// Its position in the file, counted from 0.
    pub row: u64,
    /// The value as text.
    pub value: String,
}

/// A value that violates an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViolatingValue {
    /// The value as text.
    pub value: String,
    /// Its rows.
    pub rows: u64,
}
