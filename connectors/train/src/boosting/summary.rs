//! Summary of a training of boosted trees, for reports.

use std::collections::BTreeMap;

use forebay_contract::{GroupFallback, GroupTrainingReport};
use forebay_storage::EpochReport;

use super::column_fallback::ColumnFallback;
use super::config::{BoostedOutput, BoostingConfig};
use super::fallback::GroupFallbacks;
use super::fit::{FittedGroup, FittedModel};
use super::model::ErrorSums;
use crate::group_names::GroupName;
use crate::metrics::RankSums;

/// Points of the loss curve at most.
const CURVE_POINTS_MAX: usize = 200;

/// Maximum number of reasons in a report.
const REASONS_MAX: usize = 100;

/// Outcome of a group.
pub enum GroupOutcome {
    Fitted(FittedGroup),
    Fallback {
        reason: String,
        /// Name of the predicting model, in words.
        predicted_by: String,
        /// Errors of the models that predict for it, by output.
        errors: Vec<ErrorSums>,
    },
}

/// A group, the number of its rows of training, and its outcome.
pub struct GroupResult {
    pub name: GroupName,
    pub rows: u64,
    pub outcome: GroupOutcome,
}

/// All models of a training.
pub struct TrainingSummary {
    /// Models over all rows, then those of groups, then those of groups above them.
    pub models: Vec<FittedModel>,
    /// Number of models of groups above others.
    parents: usize,
    pub column: Option<ColumnFallback>,
    /// Errors on the rows of all groups, by output.
    errors: Vec<ErrorSums>,
    pub groups: Option<GroupTrainingReport>,
    /// Losses by round of the point forecast over all rows.
    pub curve: Vec<(u64, f64)>,
    /// Ranks of the validation rows, where the label is a probability.
    ranks: Option<RankSums>,
}

impl TrainingSummary {
    /// Summarises the models for groups without one of their own, and the results of groups if the
    /// training has some.
    pub fn new(
        fallbacks: GroupFallbacks,
        groups: Option<Vec<GroupResult>>,
        ranks: Option<RankSums>,
    ) -> TrainingSummary {
        let GroupFallbacks {
            over_all,
            parents,
            column,
            ..
        } = fallbacks;
        let curve = over_all
            .first()
            .map(|model| curve(&model.losses))
            .unwrap_or_default();
        let model_errors: Vec<ErrorSums> = over_all.iter().map(|model| model.card.errors).collect();
        let errors = if groups.is_some() {
            vec![ErrorSums::default(); model_errors.len()]
        } else {
            model_errors
        };
        let mut summary = TrainingSummary {
            models: over_all,
            parents: 0,
            column,
            errors,
            groups: None,
            curve,
            ranks,
        };
        let Some(groups) = groups else { return summary };
        let mut report = GroupTrainingReport {
            groups: groups.len() as u64,
            ..GroupTrainingReport::default()
        };
        for GroupResult {
            name,
            rows,
            outcome,
        } in groups
        {
            match outcome {
                GroupOutcome::Fallback {
                    reason,
                    predicted_by,
                    errors,
                } => {
                    summary.add_errors(errors);
                    report.fallbacks += 1;
                    if report.fallback_reasons.len() < REASONS_MAX {
                        report.fallback_reasons.push(GroupFallback {
                            group: name,
                            rows,
                            reason,
                            predicted_by,
                        });
                    }
                }
                GroupOutcome::Fitted(FittedGroup { models, reused }) => {
                    let count = if reused {
                        &mut report.reused
                    } else {
                        &mut report.trained
                    };
                    *count += 1;
                    summary.add_errors(models.iter().map(|model| model.card.errors).collect());
                    summary.models.extend(models);
                }
            }
        }
        report.parents = parents.len() as u64;
        let mut parents: Vec<_> = parents.into_iter().collect();
        parents.sort_by(|a, b| a.0.cmp(&b.0));
        let parents: Vec<FittedModel> =
            parents.into_iter().flat_map(|(_, models)| models).collect();
        summary.parents = parents.len();
        summary.models.extend(parents);
        summary.groups = Some(report);
        summary
    }

    fn add_errors(&mut self, errors: Vec<ErrorSums>) {
        for (sum, errors) in self.errors.iter_mut().zip(errors) {
            sum.merge(errors);
        }
    }

    /// Losses and metrics, in the form of one epoch.
    pub fn epoch(&self, config: &BoostingConfig, outputs: &[BoostedOutput]) -> EpochReport {
        // Of groups, the models over all rows count where there are no others.
        let counted = &self.models[..self.models.len() - self.parents];
        let skipped = if self.groups.is_some() && counted.len() > outputs.len() {
            outputs.len()
        } else {
            0
        };
        let points = counted
            .iter()
            .skip(skipped)
            .filter(|model| model.card.quantile.is_none());
        let (lost, rows) = points.fold((0.0, 0), |(lost, rows), model| {
            (
                lost + model.card.learned_loss * model.card.rows as f64,
                rows + model.card.rows,
            )
        });
        EpochReport {
            epoch: 0,
            step: self
                .models
                .iter()
                .map(|model| model.ensemble.trees.len() as u64)
                .sum(),
            loss: lost / rows.max(1) as f64,
            learning_rate: config.learning_rate,
            rounds: self
                .models
                .iter()
                .map(|model| model.ensemble.trees.len() as u64)
                .max(),
            validation: self.metrics(outputs),
        }
    }

    fn metrics(&self, outputs: &[BoostedOutput]) -> BTreeMap<String, f64> {
        // Each row counts once for each step that it could be predicted for.
        let mut sums: Vec<(Option<f64>, ErrorSums)> = Vec::new();
        for (output, errors) in outputs.iter().zip(&self.errors) {
            let errors = errors.times(
                output
                    .features
                    .as_ref()
                    .map_or(1, |features| features.steps),
            );
            match sums
                .iter_mut()
                .find(|(quantile, _)| *quantile == output.quantile)
            {
                Some((_, sum)) => sum.merge(errors),
                None => sums.push((output.quantile, errors)),
            }
        }
        let mut metrics = sums
            .first()
            .map(|(_, errors)| errors.metrics())
            .unwrap_or_default();
        if let Some(ranks) = &self.ranks {
            // Errors of probabilities against labels of 0 and 1 do not measure how well the labels
            // are separated.
            metrics.retain(|name, _| name == "loss");
            if let Some(loss) = metrics.get("loss").copied() {
                metrics.insert("log_loss".to_owned(), loss);
            }
            let area = ranks.area();
            if area.is_finite() {
                metrics.insert("auc".to_owned(), area);
            }
        }
        for (quantile, errors) in sums {
            let Some(quantile) = quantile else {
                continue;
            };
            let mean = errors.loss / errors.weight;
            if mean.is_finite() {
                // In percent; the rounding hides digits that binary numbers add.
                let percent = (quantile * 1e10).round() / 1e8;
                metrics.insert(format!("pinball_q{percent}"), mean);
            }
        }
        metrics
    }

    /// Numbers in all trees.
    pub fn parameters(&self) -> u64 {
        let trees = self.models.iter().flat_map(|model| &model.ensemble.trees);
        trees
            .map(|tree| (tree.nodes.len() + tree.leaves.len()) as u64)
            .sum()
    }
}

/// Losses by round: at most 200 points, the last one among them.
pub fn curve(losses: &[f64]) -> Vec<(u64, f64)> {
    let step = losses.len().div_ceil(CURVE_POINTS_MAX).max(1);
    let last = losses.len().saturating_sub(1);
    let is_shown = |round: &usize| (*round + 1).is_multiple_of(step) || *round == last;
    (0..losses.len())
        .filter(is_shown)
        .map(|round| (round as u64 + 1, losses[round]))
        .collect()
}
