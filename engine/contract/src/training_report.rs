//! Course and result of a training.

use std::collections::BTreeMap;

use forebay_model::{Result, RowLedger};
use forebay_storage::EpochReport;
use serde::{Deserialize, Serialize};

use crate::output_sum::OutputSum;

/// Course and result of a training: the same for the same model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingReport {
    /// Rows of an epoch.
    pub rows: u64,
    /// Rows that the training left out, and values that it filled or changed, each counted once. It learns from the
    /// other rows of an epoch.
    #[serde(default, skip_serializing_if = "RowLedger::is_empty")]
    pub changes: RowLedger,
    /// Rows that it was validated on.
    pub validation_rows: u64,
    /// Rows that the validation left out, and values that it filled or changed.
    #[serde(default, skip_serializing_if = "RowLedger::is_empty")]
    pub validation_changes: RowLedger,
    /// Numbers that were learned.
    pub parameters: u64,
    /// Report of each epoch.
    pub epochs: Vec<EpochReport>,
    /// The epoch whose model it is, from 0.
    pub best_epoch: u64,
    /// Rows of a batch; 0 of a training without batches.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch_rows: u64,
    /// Losses of forecasts without a model on the validation rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineReport>,
    /// The mean loss of some steps, and the last of them: at most 200 points.
    pub curve: Vec<(u64, f64)>,
    /// Start of the training, where it could continue an earlier model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TrainingStartReport>,
    /// Number of models for the steps of the horizon: steps with the same columns share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_models: Option<u64>,
    /// The models of groups, if the training has one for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupTrainingReport>,
    /// Importance of the columns of boosted trees, the greatest gain first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub importance: Vec<ColumnImportance>,
}

/// Importance of a column for a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnImportance {
    /// Its name.
    pub column: String,
    /// Share of the loss that all splits took away which splits by this column did.
    pub gain: f64,
    /// Increase of the loss, as a share of it, when the column's values are shuffled among the validation rows. None of
    /// a column that no tree splits by, of models by group, and without validation rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffled: Option<f64>,
}

impl TrainingReport {
    /// The sum of the rows of an epoch: the rows that come out are those that it learns from.
    pub fn row_sum(&self) -> Result<OutputSum> {
        OutputSum::of_changes(self.rows, &self.changes)
    }

    /// The sum of the rows that it was validated on.
    pub fn validation_sum(&self) -> Result<OutputSum> {
        OutputSum::of_changes(self.validation_rows, &self.validation_changes)
    }
}

/// The mean losses of a model and of forecasts without one on the same rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineReport {
    /// Loss of the model.
    pub loss: f64,
    /// Loss of the constant that fits the training rows best.
    pub constant: f64,
    /// Loss of the best column that holds values of the label at earlier times, where there is one
    /// among the features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naive: Option<NaiveBaseline>,
}

/// A column that is used as a forecast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NaiveBaseline {
    /// The column.
    pub column: String,
    /// Mean loss of the column.
    pub loss: f64,
}

/// Ratio of a model's loss to that of a baseline from which the model counts as no better.
const BETTER_SHARE: f64 = 0.99;

impl BaselineReport {
    /// The least loss of a forecast without a model.
    pub fn least(&self) -> f64 {
        let naive = self.naive.as_ref();
        naive.map_or(self.constant, |naive| naive.loss.min(self.constant))
    }

    /// Baselines that the model does not beat, in words; `None` if it beats all.
    pub fn no_better_than(&self) -> Option<String> {
        let is_beaten = |loss: f64| loss.is_finite() && self.loss > BETTER_SHARE * loss;
        let naive = self.naive.as_ref().filter(|naive| is_beaten(naive.loss));
        let of = |baseline: &str, loss: f64| {
            // A smaller loss would contradict the words alone.
            let margin = if self.loss < loss {
                " by at least 1 %"
            } else {
                ""
            };
            format!(
                "no better than {baseline}{margin}: loss {:.5} against {loss:.5} on the validation \
                 rows",
                self.loss
            )
        };
        match naive {
            _ if is_beaten(self.constant) => Some(of("a constant", self.constant)),
            Some(naive) => Some(of(
                &format!("the naive forecast `{}`", naive.column),
                naive.loss,
            )),
            None => None,
        }
    }
}

/// Start of a training.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingStartReport {
    /// The training that it continued; `None` if it began without an earlier model.
    pub from: Option<String>,
    /// Reason why it began without an earlier model.
    pub reason: Option<String>,
    /// Rows that the earlier training did not have.
    pub new_rows: u64,
    /// Rows of the earlier training that were learned from again.
    pub replayed_rows: u64,
    /// Number of all rows.
    pub all_rows: u64,
}

/// The models of groups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupTrainingReport {
    /// Groups with rows to learn from.
    pub groups: u64,
    /// Models that this run trained.
    pub trained: u64,
    /// Models that stand from an earlier run: neither their rows nor their configuration has changed.
    pub reused: u64,
    /// Models of groups above others, which predict for groups that have no model of their own.
    #[serde(default)]
    pub parents: u64,
    /// Groups that have no model of their own.
    pub fallbacks: u64,
    /// Some of these, with the reason: at most 100.
    pub fallback_reasons: Vec<GroupFallback>,
    /// Numbers of models by the form that was selected for them: error, trend and season of exponential smoothing, such
    /// as `M,Ad,N`, or the variant of the theta method.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forms: BTreeMap<String, u64>,
    /// Learned weights of an ensemble, by method.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
}

/// A group without a model of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupFallback {
    /// The values that name it.
    pub group: Vec<Option<String>>,
    /// Training rows of the group.
    pub rows: u64,
    /// Reason why the group has no model.
    pub reason: String,
    /// Model that predicts for the group.
    #[serde(default)]
    pub predicted_by: String,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_hardly_better_is_not_called_worse() {
        let words = |loss: f64| {
            let baseline = BaselineReport {
                loss,
                constant: 9.0,
                naive: Some(NaiveBaseline {
                    column: "lag".to_owned(),
                    loss: 5.0,
                }),
            };
            baseline.no_better_than()
        };
        let hardly = "no better than the naive forecast `lag` by at least 1 %: loss 4.99000 \
                      against 5.00000 on the validation rows";
        assert_eq!(words(4.99).as_deref(), Some(hardly));
        let worse = "no better than the naive forecast `lag`: loss 5.10000 against 5.00000 on the \
                     validation rows";
        assert_eq!(words(5.1).as_deref(), Some(worse));
        assert_eq!(words(4.9), None);
    }
}
