//! Trees to which a training adds others.

use super::grow::FeatureGain;
use super::tree::TreeEnsemble;

/// The trees of an output, to which a training adds others.
#[derive(Debug, Clone)]
pub struct EarlierTrees {
    pub ensemble: TreeEnsemble,
    /// Gains of its splits by feature.
    pub gains: Vec<FeatureGain>,
}
