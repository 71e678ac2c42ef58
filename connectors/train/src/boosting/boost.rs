//! Boosting: each tree corrects those before it.

use std::sync::Arc;

use forebay_model::Result;

use super::bin_blocks::BinBlocks;
use super::earlier_trees::EarlierTrees;
use super::grow::{FeatureGain, TreeGrower};
use super::histogram::Derivatives;
use super::learn_rows::LearnRows;
use super::loss::{Objective, weighted_quantile};
use super::split::SplitLimits;
use super::table::FeatureTable;
use super::tree::TreeEnsemble;

/// Options of boosting.
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

/// State of boosting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BoostingState {
    pub ensemble: TreeEnsemble,
    /// Trees of the best round so far, and its loss on the validation rows.
    pub best: Option<(usize, f64)>,
    /// The mean loss on the rows that are learned from, of each round.
    pub losses: Vec<f64>,
    /// True if a round found no split, or patience ended.
    pub stopped: bool,
    /// Gains of the splits of each tree.
    pub gains: Vec<Vec<FeatureGain>>,
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
        blocks: &'a dyn BinBlocks,
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
            grower: TreeGrower::new(blocks, options.limits, options.leaves, threads),
            state,
        }
    }

    /// Restricts trees to some of the features.
    pub fn take_only(&mut self, features: Arc<[bool]>) {
        self.grower.features = Some(features);
    }

    /// Continues from a state of the same rows and options. `rows` are those that the bins were
    /// made of.
    pub fn resume(&mut self, state: BoostingState, rows: &dyn LearnRows) -> Result<()> {
        predict_all(&state.ensemble, rows, &mut self.outputs)?;
        if let Some(validation) = self.validation {
            predict_all(&state.ensemble, validation, &mut self.validation_outputs)?;
        }
        self.state = state;
        Ok(())
    }

    /// Continues from the trees of an earlier model, which learned from other rows. Without a lower
    /// loss on the validation rows, no tree is added to them.
    pub fn continue_from(&mut self, earlier: EarlierTrees, rows: &dyn LearnRows) -> Result<()> {
        let EarlierTrees { ensemble, gains } = earlier;
        let trees = ensemble.trees.len();
        let mut gains_of_trees = vec![Vec::new(); trees];
        if let Some(first) = gains_of_trees.first_mut() {
            *first = gains;
        }
        let state = BoostingState {
            ensemble,
            gains: gains_of_trees,
            ..BoostingState::default()
        };
        self.resume(state, rows)?;
        let objective = self.options.objective;
        let learned = mean_loss(objective, &self.outputs, self.labels, |row| {
            self.weight(row)
        });
        self.state.losses = vec![learned; trees];
        self.judge();
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.state.stopped || self.state.ensemble.trees.len() >= self.options.rounds as usize
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights
            .get(row)
            .map_or(1.0, |weight| f64::from(*weight))
    }

    /// For losses with a corner, whose derivative has one size for any small error: the error below
    /// which a row counts in proportion to its error when splits are chosen. It is the mean
    /// absolute error of the trees so far. Else rows that are predicted well, of random sign, hide
    /// few rows with large errors. Huber's loss (Friedman, Greedy Function Approximation, 2001,
    /// section 4.4) has the same form.
    fn near_error(&self) -> Option<f64> {
        self.options.objective.leaf_quantile()?;
        let mut sum = 0.0;
        let mut total = 0.0;
        for (row, (output, label)) in self.outputs.iter().zip(self.labels).enumerate() {
            let weight = self.weight(row);
            sum += (output - f64::from(*label)).abs() * weight;
            total += weight;
        }
        Some(sum / total).filter(|near| *near > 0.0 && near.is_finite())
    }

    /// Grows the next tree. A fault leaves the state as it is.
    pub fn round(&mut self) -> Result<()> {
        let objective = self.options.objective;
        let mut derivatives = std::mem::take(&mut self.derivatives);
        self.fill_derivatives(&mut derivatives);
        let mut grown = self.grower.grow(&derivatives, self.options.learning_rate)?;
        self.derivatives = derivatives;
        let mut first = 0;
        for (leaf, rows) in grown.leaf_rows.iter().enumerate() {
            let rows = &grown.rows[first..first + rows];
            first += rows.len();
            if let Some(share) = objective.leaf_quantile() {
                let errors = rows.iter().map(|row| self.weighted_error(*row as usize));
                let quantile = weighted_quantile(errors.collect(), share);
                grown.tree.leaves[leaf] = (quantile * self.options.learning_rate) as f32;
            }
            let value = f64::from(grown.tree.leaves[leaf]);
            for row in rows {
                self.outputs[*row as usize] += value;
            }
        }
        let nothing_to_split = grown.tree.nodes.is_empty();
        if let Some(validation) = self.validation {
            for (row, output) in self.validation_outputs.iter_mut().enumerate() {
                *output += f64::from(grown.tree.predict(validation.row(row)));
            }
        }
        self.state.ensemble.trees.push(grown.tree);
        self.state.gains.push(grown.gains);
        let learned = mean_loss(objective, &self.outputs, self.labels, |row| {
            self.weight(row)
        });
        self.state.losses.push(learned);
        self.state.stopped = nothing_to_split;
        self.judge();
        Ok(())
    }

    /// Derivatives of the loss of each row by its result.
    fn fill_derivatives(&self, derivatives: &mut Vec<Derivatives>) {
        let objective = self.options.objective;
        let near = self.near_error();
        derivatives.clear();
        for (row, (output, label)) in self.outputs.iter().zip(self.labels).enumerate() {
            let (first, second) = objective.derivatives(*output, *label);
            let share = match near {
                Some(near) => ((output - f64::from(*label)).abs() / near).min(1.0),
                None => 1.0,
            };
            derivatives.push([
                (first * share * self.weight(row)) as f32,
                (second * self.weight(row)) as f32,
            ]);
        }
    }

    /// Error of a row and its weight.
    fn weighted_error(&self, row: usize) -> (f32, f32) {
        let error = f64::from(self.labels[row]) - self.outputs[row];
        (error as f32, self.weight(row) as f32)
    }

    /// Records the round if it is the best one, and decides whether boosting stops.
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
            self.state.gains.truncate(trees);
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
    let mut lost = 0.0;
    let mut total = 0.0;
    for (row, (output, label)) in outputs.iter().zip(labels).enumerate() {
        lost += weight(row) * objective.value(*output, *label);
        total += weight(row);
    }
    lost / total
}

/// Results of an ensemble for all rows.
fn predict_all(ensemble: &TreeEnsemble, rows: &dyn LearnRows, outputs: &mut [f64]) -> Result<()> {
    rows.for_each_block(&mut |first, block| {
        for (row, output) in outputs[first..][..block.rows()].iter_mut().enumerate() {
            *output = ensemble.predict(block.row(row));
        }
        Ok(())
    })
}
