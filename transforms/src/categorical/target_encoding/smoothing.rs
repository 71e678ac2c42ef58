//! The mean of a category's labels, drawn toward the mean of all labels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::label_table::LabelMoments;
use crate::time::AutoWord;

/// The weight of the mean of all labels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number of labels, or `auto`")]
pub enum TargetSmoothing {
    /// So many labels.
    Number(f64),
    /// The variance within the category divided by that of all labels.
    Auto(AutoWord),
}

impl Default for TargetSmoothing {
    fn default() -> Self {
        TargetSmoothing::Auto(AutoWord::Auto)
    }
}

impl TargetSmoothing {
    /// Number of labels of each class that a weight of evidence adds.
    pub(super) fn labels(self) -> f64 {
        match self {
            TargetSmoothing::Number(labels) => labels,
            TargetSmoothing::Auto(_) => 1.0,
        }
    }

    /// The encoding of a category; `None` where there is no label at all.
    pub(super) fn encode(self, category: LabelMoments, total: LabelMoments) -> Option<f64> {
        let mean = total.mean()?;
        let Some(own_mean) = category.mean() else {
            return Some(mean);
        };
        match self {
            TargetSmoothing::Number(weight) => {
                let labels = category.count + weight;
                Some((category.sum + weight * mean) / labels)
            }
            TargetSmoothing::Auto(_) => {
                let between = total.squares / total.count * category.count;
                let within = category.squares / category.count;
                let share = between / (between + within);
                // Labels that are all equal have no share; their means are equal as well.
                let share = if share.is_nan() { 0.0 } else { share };
                Some(share * own_mean + (1.0 - share) * mean)
            }
        }
    }
}
