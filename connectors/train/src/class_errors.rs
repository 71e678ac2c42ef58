//! Metrics of predicted classes.

use std::collections::BTreeMap;

use super::class_loss::class_loss;

/// Sums over rows from which metrics of classes are computed.
#[derive(Debug, Default)]
pub struct ClassErrors {
    /// Weights.
    pub weight: f64,
    /// Losses, times the weights.
    pub lost: f64,
    /// Weight of the rows whose most probable class is theirs.
    right: f64,
}

impl ClassErrors {
    /// Adds a row with the scores of all classes; its class is `label`.
    pub fn add(&mut self, scores: &[f64], label: usize, weight: f64) {
        self.weight += weight;
        self.lost += weight * class_loss(scores, label);
        // Of equal scores, the first is predicted.
        let is_best = |(class, score): (usize, &f64)| {
            if class < label {
                *score < scores[label]
            } else {
                *score <= scores[label]
            }
        };
        if scores.iter().enumerate().all(is_best) {
            self.right += weight;
        }
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.lost / self.weight
    }

    /// Metrics by name; none of no rows.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::new();
        if self.weight > 0.0 {
            metrics.insert("loss".to_owned(), self.loss());
            metrics.insert("log_loss".to_owned(), self.loss());
            metrics.insert("accuracy".to_owned(), self.right / self.weight);
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_scores_is_predicted() {
        let mut errors = ClassErrors::default();
        errors.add(&[1.0, 1.0, 0.0], 0, 1.0);
        errors.add(&[1.0, 1.0, 0.0], 1, 2.0);
        errors.add(&[0.0, 1.0, 3.0], 2, 1.0);
        let metrics = errors.metrics();
        assert_eq!(metrics["accuracy"], 0.5);
        assert_eq!(metrics["loss"], metrics["log_loss"]);
        assert!(ClassErrors::default().metrics().is_empty());
    }
}
