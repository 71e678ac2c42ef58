//! Records of passes of earlier runs.

use forebay_commit::ReuseDecision;
use serde_json::Value;

/// The record of a pass in the state store, and whether its results can be used again.
pub(super) struct RecordedPass {
    pub decision: ReuseDecision,
    pub record: Option<Value>,
}

impl Default for RecordedPass {
    fn default() -> Self {
        RecordedPass {
            decision: ReuseDecision::Work,
            record: None,
        }
    }
}
