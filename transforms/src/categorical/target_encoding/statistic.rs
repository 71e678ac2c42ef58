//! Numbers of the labels of a category.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::label_table::LabelMoments;
use super::smoothing::TargetSmoothing;

/// The number of a category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetStatistic {
    /// The mean of its labels, drawn toward the mean of all labels.
    #[default]
    Mean,
    /// The weight of evidence of boolean labels: the logarithm of its share of the true labels divided by its share of
    /// the false ones.
    Woe,
}

impl TargetStatistic {
    pub(super) fn is_mean(&self) -> bool {
        *self == TargetStatistic::Mean
    }

    /// The number of a category; `None` where there is no label at all.
    pub(super) fn of_labels(
        self,
        smoothing: TargetSmoothing,
        category: LabelMoments,
        total: LabelMoments,
    ) -> Option<f64> {
        match self {
            TargetStatistic::Mean => smoothing.encode(category, total),
            TargetStatistic::Woe => weight_of_evidence(smoothing.labels(), category, total),
        }
    }
}

/// `ln(((t + s) / (T + 2s)) / ((f + s) / (F + 2s)))`, where t and f are the category's true and false labels, T and F
/// are those of all; 0 for a category without labels.
fn weight_of_evidence(added: f64, category: LabelMoments, total: LabelMoments) -> Option<f64> {
    total.mean()?;
    if category.count == 0.0 {
        return Some(0.0);
    }
    let of_true = (category.sum + added) / (total.sum + 2.0 * added);
    let false_labels = category.count - category.sum;
    let of_false = (false_labels + added) / (total.count - total.sum + 2.0 * added);
    Some((of_true / of_false).ln())
}
