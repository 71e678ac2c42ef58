//! Report of the parts that a run left out in order to end before its deadline.

use serde::{Deserialize, Serialize};

/// Degradation of a run to be on time: stated in the summary, the manifests and the lineage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DegradationReport {
    /// Levels of degradation that were applied, in order.
    pub rungs: Vec<String>,
    /// Steps and sinks that were left out.
    pub skipped: Vec<String>,
    /// Artifact whose findings replace those that were not learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// The steps whose findings are taken from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<String>,
}
