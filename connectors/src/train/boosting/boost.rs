//! Boosting: each tree corrects those before it.

use std::sync::Arc;

use super::grow::TreeGrower;
use super::histogram::Derivatives;
use super::loss::{Objective, weighted_quantile};
use super::matrix::BinnedMatrix;
use super::split::SplitLimits;
use super::table::FeatureTable;
use super::tree::TreeEnsemble;

/// How trees are boosted.
#[derive(Debug, Clone, Copy)]
pub struct BoostingOptions {
    pub objective: Objective,
    pub rounds: u32,
    pub learning_rate: f64,
    pub leaves: usize,
    pub limits: SplitLimits,
    /// Rounds without a better loss on the validation rows after which boosting stops.
    pub patience_rounds: u32,
}

/// How far boosting has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BoostingState {
    pub ensemble: TreeEnsemble,
    /// Trees of the best round so far, and its loss on the validation rows.
    pub best: Option<(usize, f64)>,
    /// The mean loss on the rows that are learned from, of each round.
    pub losses: Vec<f64>,
    /// Whether a round found nothing to split, or patience ended.
    pub stopped: bool,
}

/// Boosts rows, round by round.
pub struct Booster<'a> {
    options: BoostingOptions,
    labels: &'a [f32],
    weights: &'a [f32],
    validation: Option<&'a FeatureTable>,
    outputs: Vec<f64>,
    validation_outputs: Vec<f64>,
    derivatives: Vec<Derivatives>,
    grower: TreeGrower<'a>,
    pub state: BoostingState,
}

impl<'a> Booster<'a> {
    pub fn new(
        options: BoostingOptions,
        matrix: &'a BinnedMatrix,
        labels: &'a [f32],
        weights: &'a [f32],
        validation: Option<&'a FeatureTable>,
        threads: usize,
    ) -> Booster<'a> {
        let base = options.objective.base(labels, weights);
        let state = BoostingState {
            ensemble: TreeEnsemble {
                base,
                trees: Vec::new(),
            },
            ..BoostingState::default()
        };
        Booster {
            options,
            labels,
            weights,
            validation: validation.filter(|rows| rows.rows() > 0),
            outputs: vec![base; labels.len()],
            validation_outputs: validation.map_or(Vec::new(), |rows| vec![base; rows.rows()]),
            derivatives: Vec::new(),
            grower: TreeGrower::new(matrix, options.limits, options.leaves, threads),
            state,
        }
    }

    /// Lets trees take some of the features alone.
    pub fn take_only(&mut self, features: Arc<[bool]>) {
        self.grower.features = Some(features);
    }

    /// Goes on from a state of the same rows and options. `rows` are those that the matrix was made of.
    pub fn resume(&mut self, state: BoostingState, rows: &FeatureTable) {
        let results = |outputs: &mut [f64], rows: &FeatureTable| {
            let each = outputs.iter_mut().enumerate();
            each.for_each(|(row, output)| *output = state.ensemble.predict(rows.row(row)));
        };
        results(&mut self.outputs, rows);
        if let Some(validation) = self.validation {
            results(&mut self.validation_outputs, validation);
        }
        self.state = state;
    }

    pub fn is_done(&self) -> bool {
        self.state.stopped || self.state.ensemble.trees.len() >= self.options.rounds as usize
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights
            .get(row)
            .map_or(1.0, |weight| f64::from(*weight))
    }

    /// For losses with a corner, whose derivative has one size however small the error is: the error below which a row
    /// counts in proportion to its error when splits are chosen. It is the mean absolute error of the trees so far. Else
    /// rows that are predicted well, of random sign, hide few rows with large errors. Huber's loss (Friedman, Greedy
    /// Function Approximation, 2001, section 4.4) has the same form.
    fn near_error(&self) -> Option<f64> {
        self.options.objective.leaf_quantile()?;
        let errors = self.outputs.iter().zip(self.labels).enumerate();
        let (sum, weight) = errors.fold((0.0, 0.0), |(sum, total), (row, (output, label))| {
            let weight = self.weight(row);
            (
                sum + (output - f64::from(*label)).abs() * weight,
                total + weight,
            )
        });
        Some(sum / weight).filter(|near| *near > 0.0 && near.is_finite())
    }

    /// Grows the next tree.
    pub fn round(&mut self) {
        let objective = self.options.objective;
        let mut derivatives = std::mem::take(&mut self.derivatives);
        derivatives.clear();
        let near = self.near_error();
        derivatives.extend(self.outputs.iter().zip(self.labels).enumerate().map(
            |(row, (output, label))| {
                let (first, second) = objective.derivatives(*output, *label);
                let share = near.map_or(1.0, |near| {
                    ((output - f64::from(*label)).abs() / near).min(1.0)
                });
                [
                    (first * share * self.weight(row)) as f32,
                    (second * self.weight(row)) as f32,
                ]
            },
        ));
        let mut grown = self.grower.grow(&derivatives, self.options.learning_rate);
        self.derivatives = derivatives;
        let mut first = 0;
        for (leaf, rows) in grown.leaf_rows.iter().enumerate() {
            let rows = &grown.rows[first..first + rows];
            first += rows.len();
            if let Some(share) = objective.leaf_quantile() {
                let error = |row: &u32| {
                    (f64::from(self.labels[*row as usize]) - self.outputs[*row as usize]) as f32
                };
                let errors = rows
                    .iter()
                    .map(|row| (error(row), self.weight(*row as usize) as f32))
                    .collect();
                grown.tree.leaves[leaf] =
                    (weighted_quantile(errors, share) * self.options.learning_rate) as f32;
            }
            let value = f64::from(grown.tree.leaves[leaf]);
            rows.iter()
                .for_each(|row| self.outputs[*row as usize] += value);
        }
        let nothing_to_split = grown.tree.nodes.is_empty();
        if let Some(validation) = self.validation {
            for (row, output) in self.validation_outputs.iter_mut().enumerate() {
                *output += f64::from(grown.tree.predict(validation.row(row)));
            }
        }
        self.state.ensemble.trees.push(grown.tree);
        let learned = mean_loss(objective, &self.outputs, self.labels, |row| {
            self.weight(row)
        });
        self.state.losses.push(learned);
        self.state.stopped = nothing_to_split;
        self.judge();
    }

    /// Whether the last round was the best one, and whether to go on.
    fn judge(&mut self) {
        let Some(rows) = self.validation else { return };
        let loss = mean_loss(
            self.options.objective,
            &self.validation_outputs,
            &rows.labels,
            |row| f64::from(rows.weight(row)),
        );
        let trees = self.state.ensemble.trees.len();
        match self.state.best {
            Some((at, best)) if loss.is_nan() || loss >= best => {
                self.state.stopped |= trees - at >= self.options.patience_rounds as usize;
            }
            _ => self.state.best = Some((trees, loss)),
        }
    }

    /// The trees of the best round; of the last one without validation rows.
    pub fn finish(mut self) -> BoostingState {
        if let Some((trees, _)) = self.state.best {
            self.state.ensemble.trees.truncate(trees);
        }
        self.state
    }
}

fn mean_loss(
    objective: Objective,
    outputs: &[f64],
    labels: &[f32],
    weight: impl Fn(usize) -> f64,
) -> f64 {
    let (mut lost, mut total) = (0.0, 0.0);
    for (row, (output, label)) in outputs.iter().zip(labels).enumerate() {
        lost += weight(row) * objective.value(*output, *label);
        total += weight(row);
    }
    lost / total
}
