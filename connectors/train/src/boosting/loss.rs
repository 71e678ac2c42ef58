//! Losses, and their first and second derivatives by the result of the trees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The loss that boosted trees minimise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoostingLoss {
    /// The square of the error: predicts the mean.
    #[default]
    SquaredError,
    /// The absolute error: predicts the median.
    AbsoluteError,
    /// The deviance of counts: predicts a mean from 0 on, as the exponential of the sum of trees.
    Poisson,
    /// The deviance of amounts of which many are 0 (`tweedie_power`): predicts a mean from 0 on.
    Tweedie,
    /// The pinball loss: predicts the quantile that `quantile` names.
    Quantile,
    /// The negative logarithm of the probability of labels between 0 and 1: predicts a probability.
    Logistic,
    /// The negative logarithm of the probability of the label's class: predicts the probability of each class, and the
    /// most probable one. Classes are texts, whole numbers or booleans.
    Softmax,
}

/// A loss of one number with its parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    SquaredError,
    AbsoluteError,
    Poisson,
    Tweedie(f64),
    Quantile(f64),
    Logistic,
}

/// Factor of Poisson's second derivative that keeps steps small: the exponential of 0.7.
const POISSON_DAMPING: f64 = 2.013_752_707_470_477;

impl Objective {
    /// The objective of a loss; `None` of `softmax`, which is a loss of a number for each class.
    pub fn new(loss: BoostingLoss, tweedie_power: f64, quantile: f64) -> Option<Objective> {
        match loss {
            BoostingLoss::SquaredError => Some(Objective::SquaredError),
            BoostingLoss::AbsoluteError => Some(Objective::AbsoluteError),
            BoostingLoss::Poisson => Some(Objective::Poisson),
            BoostingLoss::Tweedie => Some(Objective::Tweedie(tweedie_power)),
            BoostingLoss::Quantile => Some(Objective::Quantile(quantile)),
            BoostingLoss::Logistic => Some(Objective::Logistic),
            BoostingLoss::Softmax => None,
        }
    }

    /// Reason why a label cannot be learned.
    pub fn refuse(self, label: f32) -> Option<&'static str> {
        match self {
            Objective::Poisson | Objective::Tweedie(_) if label < 0.0 => {
                Some("is negative, and this loss is of counts")
            }
            Objective::Logistic if !(0.0..=1.0).contains(&label) => {
                Some("is not between 0 and 1, as probabilities are")
            }
            _ => None,
        }
    }

    /// Constant prediction from which boosting starts.
    pub fn base(self, labels: &[f32], weights: &[f32]) -> f64 {
        match self {
            Objective::AbsoluteError => weighted_quantile(pairs(labels, weights).collect(), 0.5),
            Objective::Quantile(quantile) => {
                weighted_quantile(pairs(labels, weights).collect(), quantile)
            }
            _ => {
                let (sum, weight) =
                    pairs(labels, weights).fold((0.0, 0.0), |(sum, total), (label, weight)| {
                        (
                            sum + f64::from(label) * f64::from(weight),
                            total + f64::from(weight),
                        )
                    });
                let mean = if weight > 0.0 { sum / weight } else { 0.0 };
                match self {
                    Objective::Poisson | Objective::Tweedie(_) => mean.max(1e-6).ln(),
                    Objective::Logistic => {
                        let share = mean.clamp(1e-6, 1.0 - 1e-6);
                        (share / (1.0 - share)).ln()
                    }
                    _ => mean,
                }
            }
        }
    }

    /// First and second derivative by the result.
    pub fn derivatives(self, output: f64, label: f32) -> (f64, f64) {
        let label = f64::from(label);
        match self {
            Objective::SquaredError => (output - label, 1.0),
            Objective::AbsoluteError => (sign(output - label), 1.0),
            Objective::Quantile(quantile) => (
                if label < output {
                    1.0 - quantile
                } else {
                    -quantile
                },
                1.0,
            ),
            Objective::Poisson => {
                let mean = output.exp();
                (mean - label, mean * POISSON_DAMPING)
            }
            Objective::Tweedie(power) => {
                let below = ((1.0 - power) * output).exp();
                let above = ((2.0 - power) * output).exp();
                (
                    above - label * below,
                    (2.0 - power) * above - (1.0 - power) * label * below,
                )
            }
            Objective::Logistic => {
                let share = 1.0 / (1.0 + (-output).exp());
                (share - label, share * (1.0 - share))
            }
        }
    }

    /// The loss of a result.
    pub fn value(self, output: f64, label: f32) -> f64 {
        let label = f64::from(label);
        let error = output - label;
        match self {
            Objective::SquaredError => error * error,
            Objective::AbsoluteError => error.abs(),
            Objective::Quantile(quantile) => {
                (if error > 0.0 {
                    1.0 - quantile
                } else {
                    -quantile
                }) * error
            }
            Objective::Poisson => output.exp() - label * output,
            Objective::Tweedie(power) => {
                ((2.0 - power) * output).exp() / (2.0 - power)
                    - label * ((1.0 - power) * output).exp() / (1.0 - power)
            }
            Objective::Logistic => output.max(0.0) + (-output.abs()).exp().ln_1p() - label * output,
        }
    }

    /// The prediction that a result means.
    pub fn prediction(self, output: f64) -> f32 {
        match self {
            Objective::Poisson | Objective::Tweedie(_) => output.exp() as f32,
            Objective::Logistic => (1.0 / (1.0 + (-output).exp())) as f32,
            _ => output as f32,
        }
    }

    /// The result that a prediction means.
    pub fn result(self, prediction: f32) -> f64 {
        let prediction = f64::from(prediction);
        match self {
            Objective::Poisson | Objective::Tweedie(_) => prediction.max(1e-6).ln(),
            Objective::Logistic => {
                let share = prediction.clamp(1e-6, 1.0 - 1e-6);
                (share / (1.0 - share)).ln()
            }
            _ => prediction,
        }
    }

    /// The quantile of the errors that a leaf takes in place of a Newton step, where the loss has corners.
    pub fn leaf_quantile(self) -> Option<f64> {
        match self {
            Objective::AbsoluteError => Some(0.5),
            Objective::Quantile(quantile) => Some(quantile),
            _ => None,
        }
    }
}

/// First and second derivative of the loss of a class by the score of a class with this probability. The second one is
/// that of the diagonal, times `K / (K - 1)` for `K` classes, as in Friedman's algorithm (Greedy Function Approximation,
/// 2001, section 4.6) and in LightGBM.
pub fn class_derivatives(probability: f64, is_label: bool, classes: usize) -> (f64, f64) {
    let factor = classes as f64 / (classes as f64 - 1.0);
    let label = if is_label { 1.0 } else { 0.0 };
    (
        probability - label,
        factor * probability * (1.0 - probability),
    )
}

fn sign(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value.signum() }
}

fn pairs<'a>(labels: &'a [f32], weights: &'a [f32]) -> impl Iterator<Item = (f32, f32)> + 'a {
    labels
        .iter()
        .enumerate()
        .map(|(row, label)| (*label, weights.get(row).copied().unwrap_or(1.0)))
}

/// The smallest value at which the weight of all values up to it reaches the share.
pub fn weighted_quantile(mut values: Vec<(f32, f32)>, share: f64) -> f64 {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let target = share
        * values
            .iter()
            .map(|(_, weight)| f64::from(*weight))
            .sum::<f64>();
    let mut reached = 0.0;
    for (value, weight) in &values {
        reached += f64::from(*weight);
        if reached >= target && *weight > 0.0 {
            return f64::from(*value);
        }
    }
    values.last().map_or(0.0, |(value, _)| f64::from(*value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class_loss::{class_loss, softmax};

    #[test]
    fn derivatives_are_those_of_the_loss() {
        let objectives = [
            (Objective::SquaredError, 2.0),
            (Objective::AbsoluteError, 1.0),
            (Objective::Quantile(0.9), 1.0),
            (Objective::Poisson, 1.0),
            (Objective::Tweedie(1.5), 1.0),
            (Objective::Logistic, 1.0),
        ];
        for (objective, factor) in objectives {
            for (output, label) in [(0.3, 0.0), (-1.2, 1.0), (0.9, 0.5), (1.5, 1.0)] {
                let step = 1e-6;
                let slope = (objective.value(output + step, label)
                    - objective.value(output - step, label))
                    / (2.0 * step);
                let (first, _) = objective.derivatives(output, label);
                assert!(
                    (slope - factor * first).abs() < 1e-6,
                    "{objective:?} at {output}, {label}: {slope}, {first}"
                );
            }
        }
    }

    #[test]
    fn probabilities_sum_to_one_and_derivatives_are_those_of_their_loss() {
        let scores = [0.5, -2.0, 1.25, 700.0, -700.0];
        for classes in 2..=scores.len() {
            let scores = &scores[..classes];
            let mut probabilities = scores.to_vec();
            softmax(&mut probabilities);
            assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            for class in 0..classes {
                let loss = class_loss(scores, class);
                assert!((loss.min(600.0) + probabilities[class].ln().max(-600.0)).abs() < 1e-9);
                for (by, share) in probabilities.iter().enumerate() {
                    let step = 1e-5;
                    let mut moved = [scores.to_vec(), scores.to_vec()];
                    moved[0][by] += step;
                    moved[1][by] -= step;
                    let [above, below] = moved.map(|scores| class_loss(&scores, class));
                    let (first, second) = class_derivatives(*share, by == class, classes);
                    let slope = (above - below) / (2.0 * step);
                    assert!((slope - first).abs() < 1e-6, "{slope}, {first}");
                    let factor = classes as f64 / (classes - 1) as f64;
                    assert_eq!(second, factor * share * (1.0 - share));
                }
            }
        }
    }

    #[test]
    fn quantiles_weigh() {
        let values = vec![(3.0, 1.0), (1.0, 2.0), (2.0, 1.0)];
        assert_eq!(
            [0.1, 0.5, 0.6, 1.0].map(|share| weighted_quantile(values.clone(), share)),
            [1.0, 1.0, 2.0, 3.0]
        );
        assert_eq!(weighted_quantile(vec![(5.0, 0.0), (7.0, 1.0)], 0.0), 7.0);
    }
}
