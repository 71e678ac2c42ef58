//! Metrics of a network that predicts classes.

use std::collections::BTreeMap;

use forebay_contract::BaselineReport;

use super::class_errors::ClassErrors;
use super::model_input::ModelInput;

/// Sums over the rows of learned classes.
#[derive(Debug)]
pub struct ClassMetrics {
    /// Logarithms of the shares of the classes among the rows that are learned from.
    log_shares: Vec<f64>,
    errors: ClassErrors,
    /// Sums for a model that predicts these shares.
    constant: ClassErrors,
    /// Scores of a row; reused.
    scores: Vec<f64>,
    /// Rows of classes that were not learned.
    pub unknown_rows: u64,
}

impl ClassMetrics {
    /// Metrics of no rows.
    pub fn new(log_shares: Vec<f64>) -> ClassMetrics {
        ClassMetrics {
            scores: Vec::with_capacity(log_shares.len()),
            log_shares,
            errors: ClassErrors::default(),
            constant: ClassErrors::default(),
            unknown_rows: 0,
        }
    }

    /// Adds rows and their results, one for each class.
    pub fn add(&mut self, rows: &ModelInput<'_>, outputs: &[f32]) {
        let classes = self.log_shares.len();
        for (row, results) in outputs.chunks_exact(classes).enumerate() {
            // Rows that do not count may hold anything.
            if rows.mask.get(row).is_some_and(|mask| *mask == 0) {
                continue;
            }
            let label = rows.labels[row] as usize;
            if label >= classes {
                self.unknown_rows += 1;
                continue;
            }
            let weight = f64::from(rows.weight(row));
            self.scores.clear();
            self.scores
                .extend(results.iter().map(|result| f64::from(*result)));
            self.errors.add(&self.scores, label, weight);
            self.constant.add(&self.log_shares, label, weight);
        }
    }

    /// True if a row of a learned class counts.
    pub fn has_rows(&self) -> bool {
        self.errors.weight > 0.0
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.errors.loss()
    }

    /// The loss beside that of a model that predicts the shares of the classes.
    pub fn baseline(&self) -> BaselineReport {
        BaselineReport {
            loss: self.loss(),
            constant: self.constant.loss(),
            naive: None,
        }
    }

    /// Metrics by name; none of no rows.
    pub fn finish(&self) -> BTreeMap<String, f64> {
        self.errors.metrics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_unknown_classes_and_rows_that_do_not_count_are_left_out() {
        let mut metrics = ClassMetrics::new(vec![0.25_f64.ln(), 0.75_f64.ln()]);
        assert!(!metrics.has_rows());
        let rows = ModelInput {
            rows: 4,
            dense: &[],
            ids: &[],
            labels: &[0.0, 1.0, 2.0, f32::NAN],
            weights: &[],
            mask: &[1, 1, 1, 0],
        };
        let results = [1.0, 0.0, 1.0, 0.0, 0.0, 5.0, 0.0, 0.0];
        metrics.add(&rows, &results);
        assert!(metrics.has_rows());
        assert_eq!(metrics.unknown_rows, 1);
        // The logarithms of 1 + e^-1 and of 1 + e: -ln softmax of the right and of the wrong class.
        let expected = (0.313_261_687_518_222_8 + 1.313_261_687_518_222_8) / 2.0;
        assert!((metrics.loss() - expected).abs() < 1e-12);
        assert_eq!(metrics.finish()["accuracy"], 0.5);
        let entropy = -(0.25_f64.ln() + 0.75_f64.ln()) / 2.0;
        assert!((metrics.baseline().constant - entropy).abs() < 1e-12);
    }
}
