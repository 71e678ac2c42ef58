//! Number of steps ahead for which columns are known.

use std::collections::BTreeMap;

/// Hidden column of rows of the future: how many steps they lie beyond the time up to which their series is known,
/// `UInt32`.
pub const HORIZON_STEP: &str = "__future_step";

/// The columns of a step with rows of the future, by how many steps ahead they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepColumns {
    /// Steps of the horizon.
    pub steps: u64,
    /// The last step for which each column is known; 0 where it is not even for the first.
    pub known: BTreeMap<String, u64>,
}
