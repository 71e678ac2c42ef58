//! Result of one expectation, before a run decides about it.

use forebay_plan::ExpectationOutcome;
use forebay_storage::DriftMeasures;

use super::last_run::RuleRecord;

/// Result of one expectation.
pub(super) struct JudgedExpectation {
    pub outcome: ExpectationOutcome,
    pub drift: Option<Box<DriftMeasures>>,
    /// Record that the next run compares with.
    pub record: RuleRecord,
}
