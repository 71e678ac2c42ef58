//! Boosting of classes: each round grows a tree for each class, and the sums of trees are scores whose softmax are
//! probabilities.

use forebay_model::Result;

use super::bin_blocks::BinBlocks;
use super::config::BoostingConfig;
use super::grow::{FeatureGain, GrownTree, TreeGrower};
use super::histogram::Derivatives;
use super::learn_rows::{FitRows, LearnRows};
use super::loss::class_derivatives;
use super::table::FeatureTable;
use super::tree::TreeEnsemble;
use crate::class_loss::{class_loss, log_shares, softmax};

/// State of boosting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassBoostingState {
    /// Trees of each class: one for each round.
    pub ensembles: Vec<TreeEnsemble>,
    /// The best number of rounds so far, and the loss on the validation rows after them.
    pub best: Option<(usize, f64)>,
    /// The mean loss on the rows that are learned from, of each round.
    pub losses: Vec<f64>,
    /// True if a round found no split, or patience ended.
    pub stopped: bool,
    /// Gains of the splits of each tree of each class.
    pub gains: Vec<Vec<Vec<FeatureGain>>>,
}

/// Boosts rows whose labels are ranks of classes, round by round.
pub struct ClassBooster<'a> {
    config: &'a BoostingConfig,
    learn: &'a dyn LearnRows,
    validation: Option<&'a FeatureTable>,
    classes: usize,
    /// A score for each class, row after row.
    scores: Vec<f64>,
    validation_scores: Vec<f64>,
    /// A probability for each class, row after row, at the start of a round.
    probabilities: Vec<f64>,
    derivatives: Vec<Derivatives>,
    grower: TreeGrower<'a>,
    pub state: ClassBoostingState,
}

impl<'a> ClassBooster<'a> {
    /// A booster of rows, of which `blocks` has those to learn from.
    pub fn new(
        config: &'a BoostingConfig,
        classes: usize,
        blocks: &'a dyn BinBlocks,
        rows: FitRows<'a>,
        threads: usize,
    ) -> ClassBooster<'a> {
        let learn = rows.learn;
        let validation = Some(rows.validate).filter(|rows| rows.rows() > 0);
        let priors = log_priors(learn, classes);
        let mut ensembles = Vec::with_capacity(classes);
        for base in &priors {
            ensembles.push(TreeEnsemble {
                base: *base,
                trees: Vec::new(),
            });
        }
        ClassBooster {
            config,
            learn,
            validation,
            classes,
            scores: priors.repeat(learn.rows()),
            validation_scores: priors.repeat(rows.validate.rows()),
            probabilities: Vec::new(),
            derivatives: Vec::new(),
            grower: TreeGrower::new(
                blocks,
                config.split_limits(),
                config.leaves as usize,
                threads,
            ),
            state: ClassBoostingState {
                ensembles,
                gains: vec![Vec::new(); classes],
                ..ClassBoostingState::default()
            },
        }
    }

    /// Continues from a state of the same rows, classes and configuration.
    pub fn resume(&mut self, state: ClassBoostingState) -> Result<()> {
        fill_scores(&state.ensembles, self.learn, &mut self.scores)?;
        if let Some(validation) = self.validation {
            fill_scores(&state.ensembles, validation, &mut self.validation_scores)?;
        }
        self.state = state;
        Ok(())
    }

    /// True if no round follows.
    pub fn is_done(&self) -> bool {
        self.state.stopped || self.state.losses.len() >= self.config.rounds as usize
    }

    /// Grows the next tree of each class, all from the probabilities before the round. A fault leaves the state as it is.
    pub fn round(&mut self) -> Result<()> {
        self.probabilities.clear();
        self.probabilities.extend_from_slice(&self.scores);
        for scores in self.probabilities.chunks_exact_mut(self.classes) {
            softmax(scores);
        }
        let mut grown = Vec::with_capacity(self.classes);
        for class in 0..self.classes {
            let mut derivatives = std::mem::take(&mut self.derivatives);
            self.fill_derivatives(class, &mut derivatives);
            let rate = self.config.learning_rate;
            grown.push(self.grower.grow(&derivatives, rate)?);
            self.derivatives = derivatives;
        }
        if grown.iter().all(|grown| grown.tree.nodes.is_empty()) {
            self.state.stopped = true;
            return Ok(());
        }
        for (class, grown) in grown.into_iter().enumerate() {
            self.add_tree(class, grown);
        }
        let learned = mean_loss(&self.scores, self.learn, self.classes);
        self.state.losses.push(learned);
        self.judge();
        Ok(())
    }

    /// Derivatives of the loss of each row by the score of a class.
    fn fill_derivatives(&self, class: usize, derivatives: &mut Vec<Derivatives>) {
        derivatives.clear();
        let rows = self.probabilities.chunks_exact(self.classes);
        for (row, (probabilities, label)) in rows.zip(self.learn.labels()).enumerate() {
            let is_label = *label as usize == class;
            let (first, second) = class_derivatives(probabilities[class], is_label, self.classes);
            let weight = f64::from(self.learn.weight(row));
            derivatives.push([(first * weight) as f32, (second * weight) as f32]);
        }
    }

    fn add_tree(&mut self, class: usize, grown: GrownTree) {
        let mut first = 0;
        for (leaf, rows) in grown.tree.leaves.iter().zip(&grown.leaf_rows) {
            let end = first + rows;
            for row in &grown.rows[first..end] {
                self.scores[*row as usize * self.classes + class] += f64::from(*leaf);
            }
            first = end;
        }
        if let Some(validation) = self.validation {
            for row in 0..validation.rows() {
                let value = grown.tree.predict(validation.row(row));
                self.validation_scores[row * self.classes + class] += f64::from(value);
            }
        }
        self.state.ensembles[class].trees.push(grown.tree);
        self.state.gains[class].push(grown.gains);
    }

    /// Records the round if it is the best one, and decides whether boosting stops.
    fn judge(&mut self) {
        let Some(rows) = self.validation else { return };
        let loss = mean_loss(&self.validation_scores, rows, self.classes);
        let rounds = self.state.losses.len();
        match self.state.best {
            Some((best_rounds, best)) if loss.is_nan() || loss >= best => {
                let patience = self.config.patience_rounds as usize;
                self.state.stopped |= rounds - best_rounds >= patience;
            }
            _ => self.state.best = Some((rounds, loss)),
        }
    }

    /// The trees of the best round; of the last one without validation rows.
    pub fn finish(mut self) -> ClassBoostingState {
        if let Some((rounds, _)) = self.state.best {
            for ensemble in &mut self.state.ensembles {
                ensemble.trees.truncate(rounds);
            }
            for gains in &mut self.state.gains {
                gains.truncate(rounds);
            }
        }
        self.state
    }
}

/// Logarithms of the shares of the classes by weight: the scores from which boosting starts.
pub fn log_priors(rows: &dyn LearnRows, classes: usize) -> Vec<f64> {
    let mut weights = vec![0.0; classes];
    let mut total = 0.0;
    for (row, label) in rows.labels().iter().enumerate() {
        let weight = f64::from(rows.weight(row));
        weights[*label as usize] += weight;
        total += weight;
    }
    log_shares(&weights, total)
}

/// Scores of the classes for a row.
pub fn fill_row_scores(
    ensembles: &[TreeEnsemble],
    rows: &FeatureTable,
    row: usize,
    scores: &mut [f64],
) {
    for (score, ensemble) in scores.iter_mut().zip(ensembles) {
        *score = ensemble.predict(rows.row(row));
    }
}

fn fill_scores(ensembles: &[TreeEnsemble], rows: &dyn LearnRows, scores: &mut [f64]) -> Result<()> {
    let classes = ensembles.len();
    rows.for_each_block(&mut |first, block| {
        let block_scores = &mut scores[first * classes..][..block.rows() * classes];
        for (row, scores) in block_scores.chunks_exact_mut(classes).enumerate() {
            fill_row_scores(ensembles, block, row, scores);
        }
        Ok(())
    })
}

fn mean_loss(scores: &[f64], rows: &dyn LearnRows, classes: usize) -> f64 {
    let mut lost = 0.0;
    let mut total = 0.0;
    let rows_of_scores = scores.chunks_exact(classes);
    for (row, (scores, label)) in rows_of_scores.zip(rows.labels()).enumerate() {
        let weight = f64::from(rows.weight(row));
        lost += weight * class_loss(scores, *label as usize);
        total += weight;
    }
    lost / total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boosting::matrix::BinnedMatrix;
    use crate::boosting::partitions::GroupRows;

    /// Rows of one number, each with its class.
    fn table(numbers: &[f32], labels: &[f32]) -> FeatureTable {
        FeatureTable {
            dense: numbers.to_vec(),
            labels: labels.to_vec(),
            ..FeatureTable::new(1, 0)
        }
    }

    fn config() -> BoostingConfig {
        BoostingConfig {
            rounds: 3,
            leaves: 2,
            min_leaf_rows: 1,
            learning_rate: 0.5,
            ..BoostingConfig::default()
        }
    }

    fn boosted(config: &BoostingConfig, rows: &GroupRows, classes: usize) -> ClassBoostingState {
        let matrix = BinnedMatrix::new(&rows.learn, 1);
        let mut booster = ClassBooster::new(config, classes, &matrix, rows.fit_rows(), 1);
        while !booster.is_done() {
            booster.round().unwrap();
        }
        booster.finish()
    }

    /// Numbers from 0 to 10 and their classes: up to 3, up to 7, and beyond.
    fn forty_rows() -> (Vec<f32>, Vec<f32>) {
        let mut numbers = Vec::new();
        let mut labels = Vec::new();
        for row in 0..40 {
            let number = (row * 7 % 11) as f32;
            numbers.push(number);
            labels.push((number / 4.0).floor());
        }
        (numbers, labels)
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    /// Six rows of three classes with shares 1/2, 1/3 and 1/6, one split for each class.
    #[test]
    fn the_first_round_is_that_of_a_hand_computation() {
        // Each row three times, as bins have three rows at least: leaves have the same values.
        let numbers = [0.0, 0.0, 0.0, 1.0, 1.0, 2.0].repeat(3);
        let learn = table(&numbers, &numbers);
        let rows = GroupRows {
            learn,
            validate: FeatureTable::new(1, 0),
        };
        let state = boosted(
            &BoostingConfig {
                rounds: 1,
                ..config()
            },
            &rows,
            3,
        );
        let shares = [1.0 / 2.0, 1.0 / 3.0, 1.0 / 6.0];
        // Class 0 splits 0 from 1 and 2; class 2 splits 2 from 0 and 1. Of class 1, the split at 0
        // (gains by 1 of 3 rows) is better than the one at 1 (by 2 of 5).
        let lefts: [&[f64]; 3] = [&[1.0; 3], &[0.0; 3], &[0.0; 5]];
        let rights: [&[f64]; 3] = [&[0.0; 3], &[1.0, 1.0, 0.0], &[1.0]];
        for (class, share) in shares.into_iter().enumerate() {
            let ensemble = &state.ensembles[class];
            assert!(is_near(ensemble.base, f64::ln(share)));
            let second = 1.5 * share * (1.0 - share);
            for (leaf, labels) in [lefts[class], rights[class]].into_iter().enumerate() {
                let rows = labels.len() as f64;
                let first = rows * share - labels.iter().sum::<f64>();
                let expected = -0.5 * first / (rows * second);
                let value = f64::from(ensemble.trees[0].leaves[leaf]);
                assert!(
                    is_near(value, expected),
                    "{class}, {leaf}: {value}, {expected}"
                );
            }
        }
    }

    #[test]
    fn classes_may_come_in_any_order() {
        let (numbers, labels) = forty_rows();
        let order = [2.0, 0.0, 1.0];
        let permuted: Vec<f32> = labels.iter().map(|label| order[*label as usize]).collect();
        let [one, other] = [labels, permuted].map(|labels| {
            let rows = GroupRows {
                validate: table(&numbers[..20], &labels[..20]),
                learn: table(&numbers, &labels),
            };
            boosted(&config(), &rows, 3)
        });
        for (class, rank) in order.into_iter().enumerate() {
            let one_ensemble = &one.ensembles[class];
            let other_ensemble = &other.ensembles[rank as usize];
            assert_eq!(one_ensemble.trees.len(), other_ensemble.trees.len());
            // Probabilities are sums in another order.
            assert!(is_near(one_ensemble.base, other_ensemble.base));
            for (tree, same) in one_ensemble.trees.iter().zip(&other_ensemble.trees) {
                assert_eq!(tree.nodes, same.nodes);
                for (leaf, same) in tree.leaves.iter().zip(&same.leaves) {
                    assert!((leaf - same).abs() < 1e-4, "{leaf}, {same}");
                }
            }
        }
        assert_eq!(one.best.map(|best| best.0), other.best.map(|best| best.0));
    }

    #[test]
    fn a_state_continues_with_the_same_bits() {
        let (numbers, labels) = forty_rows();
        let rows = GroupRows {
            learn: table(&numbers, &labels),
            validate: table(&numbers[..20], &labels[..20]),
        };
        let config = config();
        let matrix = BinnedMatrix::new(&rows.learn, 1);
        let mut first = ClassBooster::new(&config, 3, &matrix, rows.fit_rows(), 1);
        first.round().unwrap();
        let mut second = ClassBooster::new(&config, 3, &matrix, rows.fit_rows(), 1);
        second.resume(first.state.clone()).unwrap();
        while !second.is_done() {
            second.round().unwrap();
        }
        assert_eq!(second.finish(), boosted(&config, &rows, 3));
    }

    #[test]
    fn rows_that_no_split_tells_apart_have_no_trees() {
        let rows = GroupRows {
            learn: table(&[1.0; 4], &[0.0, 1.0, 1.0, 2.0]),
            validate: FeatureTable::new(1, 0),
        };
        let state = boosted(&config(), &rows, 3);
        assert!(state.stopped && state.losses.is_empty());
        assert!(
            state
                .ensembles
                .iter()
                .all(|ensemble| ensemble.trees.is_empty())
        );
    }
}
