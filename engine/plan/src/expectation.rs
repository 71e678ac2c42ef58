//! Expectations: what a step says about its rows, judged before anything is published.

use std::fmt;
use std::sync::Arc;

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
    /// Judges the findings of the operation, in the order of its requests.
    pub judge: JudgeExpectation,
}

impl fmt::Debug for Expectation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Expectation({})", self.name)
    }
}

/// Judges findings at a time: now, or the end of the interval, in nanoseconds since 1970.
pub type JudgeExpectation = Arc<dyn Fn(&[Arc<Finding>], i128) -> Result<ExpectationOutcome> + Send + Sync>;

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

/// A value that violates an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViolatingValue {
    /// The value as text.
    pub value: String,
    /// Its rows.
    pub rows: u64,
}
