//! Configuration of hierarchies in a spec.

use forebay_series::reconcile::ReconcileMethod;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Levels of a hierarchy whose forecasts add up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileConfig {
    /// The columns of each level, some of those that tell series apart. Series that have the same values there add up to
    /// one of the level; `[]` is the sum of all.
    pub by: Vec<Vec<String>>,
    /// The method.
    #[serde(default)]
    pub method: ReconcileMethod,
}
