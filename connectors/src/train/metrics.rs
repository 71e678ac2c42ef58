//! How good predictions are. Sums are made in the order of rows.

use std::collections::BTreeMap;

use super::compute::ModelInput;
use super::config::LossFunction;

/// Bits of a result that its rank goes by: sign, exponent and eleven of the fraction. So no row's
/// result has to be kept, and the area under the curve is exact to five digits or so.
const RANK_BITS: u32 = 20;

/// Sums over rows.
#[derive(Debug)]
pub struct PredictionMetrics {
    loss: LossFunction,
    weight: f64,
    lost: f64,
    square: f64,
    absolute: f64,
    labels: f64,
    /// For each rank, the weight of rows with label 0 and of rows with label 1.
    ranks: Vec<[f64; 2]>,
}

impl PredictionMetrics {
    pub fn new(loss: LossFunction) -> PredictionMetrics {
        let ranks = if loss == LossFunction::Logistic {
            1 << RANK_BITS
        } else {
            0
        };
        PredictionMetrics {
            loss,
            weight: 0.0,
            lost: 0.0,
            square: 0.0,
            absolute: 0.0,
            labels: 0.0,
            ranks: vec![[0.0; 2]; ranks],
        }
    }

    /// Adds rows and their results.
    pub fn add(&mut self, rows: &ModelInput<'_>, outputs: &[f32]) {
        for (row, output) in outputs.iter().enumerate() {
            let (label, weight) = (rows.labels[row], f64::from(rows.weight(row)));
            if weight == 0.0 {
                continue;
            }
            self.weight += weight;
            self.lost += weight * self.loss.value_and_slope(*output, label).0;
            let error = f64::from(self.loss.prediction(*output)) - f64::from(label);
            self.square += weight * error * error;
            self.absolute += weight * error.abs();
            self.labels += weight * f64::from(label).abs();
            if let Some(counts) = self.ranks.get_mut(output_rank(*output)) {
                // A label between counts as a bit of both.
                counts[0] += weight * (1.0 - f64::from(label));
                counts[1] += weight * f64::from(label);
            }
        }
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.lost / self.weight
    }

    /// All that tells something, by name.
    pub fn finish(&self) -> BTreeMap<String, f64> {
        let mut found = vec![("loss", self.loss())];
        match self.loss {
            LossFunction::SquaredError => {
                found.push(("rmse", (self.square / self.weight).sqrt()));
                found.push(("mae", self.absolute / self.weight));
                found.push(("wmape", self.absolute / self.labels));
            }
            LossFunction::Logistic => {
                found.push(("log_loss", self.loss()));
                found.push(("auc", area_under_curve(&self.ranks)));
            }
        }
        // No rows, or labels of one kind only, tell nothing.
        found
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// Where a result lies among all: larger results have larger ranks.
fn output_rank(output: f32) -> usize {
    let bits = output.to_bits();
    let ordered = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    (ordered >> (32 - RANK_BITS)) as usize
}

/// The share of pairs of a 1 and a 0 in which the 1 has the higher rank; equal ranks count half.
fn area_under_curve(ranks: &[[f64; 2]]) -> f64 {
    let (mut below, mut right) = (0.0, 0.0);
    for [zeros, ones] in ranks {
        right += ones * (below + zeros / 2.0);
        below += zeros;
    }
    right / (below * ranks.iter().map(|[_, ones]| ones).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics_of(
        loss: LossFunction,
        outputs: &[f32],
        labels: &[f32],
        weights: &[f32],
    ) -> BTreeMap<String, f64> {
        let mut metrics = PredictionMetrics::new(loss);
        metrics.add(
            &ModelInput {
                rows: labels.len(),
                dense: &[],
                ids: &[],
                labels,
                weights,
                mask: &[],
            },
            outputs,
        );
        metrics.finish()
    }

    #[test]
    fn the_area_counts_pairs() {
        // Of the six pairs, four are right and one is even.
        let found = metrics_of(
            LossFunction::Logistic,
            &[-1.0, 0.5, 0.5, 2.0, 0.1],
            &[0.0, 0.0, 1.0, 1.0, 1.0],
            &[],
        );
        assert_eq!(found["auc"], (3.0 + 1.5) / 6.0);
        let found = metrics_of(LossFunction::Logistic, &[-1.0, 1.0], &[1.0, 1.0], &[]);
        assert!(
            !found.contains_key("auc"),
            "labels of one kind have no area"
        );
    }

    #[test]
    fn errors_are_weighted() {
        let found = metrics_of(
            LossFunction::SquaredError,
            &[1.0, 5.0],
            &[2.0, 2.0],
            &[3.0, 1.0],
        );
        assert_eq!(
            (found["mae"], found["wmape"], found["rmse"]),
            (1.5, 0.75, 3.0_f64.sqrt())
        );
    }
}
