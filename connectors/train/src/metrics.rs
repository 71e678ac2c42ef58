//! Quality measures of predictions. Sums are computed in the order of rows.

use std::collections::BTreeMap;

use forebay_contract::{BaselineReport, NaiveBaseline};

use super::class_metrics::ClassMetrics;
use super::config::LossFunction;
use super::model_input::ModelInput;

/// Bits of a result that its rank goes by: sign, exponent and eleven of the fraction. So no row's
/// result has to be kept, and the area under the curve is exact to five digits or so.
const RANK_BITS: u32 = 20;

/// Measures of a model on the validation rows.
#[derive(Debug)]
pub enum ModelMetrics {
    /// Of a model that predicts numbers.
    Numbers(PredictionMetrics),
    /// Of a model that predicts classes.
    Classes(ClassMetrics),
}

impl ModelMetrics {
    /// Adds rows and their results.
    pub fn add(&mut self, rows: &ModelInput<'_>, outputs: &[f32]) {
        match self {
            ModelMetrics::Numbers(metrics) => metrics.add(rows, outputs),
            ModelMetrics::Classes(metrics) => metrics.add(rows, outputs),
        }
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        match self {
            ModelMetrics::Numbers(metrics) => metrics.loss(),
            ModelMetrics::Classes(metrics) => metrics.loss(),
        }
    }

    /// False if all rows have classes that were not learned.
    pub fn has_rows(&self) -> bool {
        match self {
            ModelMetrics::Numbers(_) => true,
            ModelMetrics::Classes(metrics) => metrics.has_rows(),
        }
    }

    /// The losses of models without features; `mean` is the mean label of the rows that were learned from.
    pub fn baseline(&self, mean: f64) -> BaselineReport {
        match self {
            ModelMetrics::Numbers(metrics) => metrics.baseline(mean),
            ModelMetrics::Classes(metrics) => metrics.baseline(),
        }
    }

    /// All defined measures, by name.
    pub fn finish(&self) -> BTreeMap<String, f64> {
        match self {
            ModelMetrics::Numbers(metrics) => metrics.finish(),
            ModelMetrics::Classes(metrics) => metrics.finish(),
        }
    }

    /// Rows of classes that were not learned.
    pub fn unknown_rows(&self) -> u64 {
        match self {
            ModelMetrics::Numbers(_) => 0,
            ModelMetrics::Classes(metrics) => metrics.unknown_rows,
        }
    }
}

/// Sums over rows.
#[derive(Debug)]
pub struct PredictionMetrics {
    loss: LossFunction,
    weight: f64,
    lost: f64,
    square: f64,
    absolute: f64,
    labels: f64,
    /// Labels with their signs, and their squares.
    label: f64,
    label_square: f64,
    ranks: Option<RankSums>,
    /// Columns that predict by themselves, their places among the numbers of a row, and the losses of their values.
    naive: Vec<(String, usize)>,
    naive_lost: Vec<f64>,
}

/// Labels by the ranks of results, from which the area under the curve is computed: exact to five digits or so.
#[derive(Debug, Clone)]
pub struct RankSums {
    /// Weights of the rows with label 0 and of those with label 1, for each rank.
    counts: Vec<[f64; 2]>,
}

impl Default for RankSums {
    fn default() -> RankSums {
        RankSums {
            counts: vec![[0.0; 2]; 1 << RANK_BITS],
        }
    }
}

impl RankSums {
    /// Adds a row.
    pub fn add(&mut self, output: f32, label: f64, weight: f64) {
        if let Some(counts) = self.counts.get_mut(output_rank(output)) {
            // A label between counts as a bit of both.
            counts[0] += weight * (1.0 - label);
            counts[1] += weight * label;
        }
    }

    /// The share of pairs of a 1 and a 0 in which the 1 has the higher rank; equal ranks count half. Not finite where all
    /// labels are of one kind.
    pub fn area(&self) -> f64 {
        let mut below = 0.0;
        let mut right = 0.0;
        let mut ones = 0.0;
        for [zero, ones_here] in &self.counts {
            right += ones_here * (below + zero / 2.0);
            below += zero;
            ones += ones_here;
        }
        right / (below * ones)
    }
}

impl PredictionMetrics {
    pub fn new(loss: LossFunction, naive: Vec<(String, usize)>) -> PredictionMetrics {
        // Values of a label are no logarithms of odds.
        let naive = match loss {
            LossFunction::SquaredError => naive,
            LossFunction::Logistic | LossFunction::Softmax => Vec::new(),
        };
        PredictionMetrics {
            loss,
            weight: 0.0,
            lost: 0.0,
            square: 0.0,
            absolute: 0.0,
            labels: 0.0,
            label: 0.0,
            label_square: 0.0,
            ranks: (loss == LossFunction::Logistic).then(RankSums::default),
            naive_lost: vec![0.0; naive.len()],
            naive,
        }
    }

    /// Adds rows and their results.
    pub fn add(&mut self, rows: &ModelInput<'_>, outputs: &[f32]) {
        for (row, output) in outputs.iter().enumerate() {
            let label = rows.labels[row];
            let weight = f64::from(rows.weight(row));
            if weight == 0.0 {
                continue;
            }
            self.weight += weight;
            self.lost += weight * self.loss.value_and_slope(*output, label).0;
            let error = f64::from(self.loss.prediction(*output)) - f64::from(label);
            self.square += weight * error * error;
            self.absolute += weight * error.abs();
            self.labels += weight * f64::from(label).abs();
            self.label += weight * f64::from(label);
            self.label_square += weight * f64::from(label) * f64::from(label);
            if let Some(ranks) = &mut self.ranks {
                ranks.add(*output, f64::from(label), weight);
            }
            let width = rows.dense.len() / rows.rows.max(1);
            for ((_, index), lost) in self.naive.iter().zip(&mut self.naive_lost) {
                let value = rows.dense[row * width + index];
                *lost += weight * self.loss.value_and_slope(value, label).0;
            }
        }
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.lost / self.weight
    }

    /// The losses of the constant that predicts the mean label of the rows that were learned from, and of the best of the
    /// columns that predict by themselves.
    pub fn baseline(&self, mean: f64) -> BaselineReport {
        let constant = match self.loss {
            LossFunction::SquaredError => {
                (self.label_square - 2.0 * mean * self.label) / self.weight + mean * mean
            }
            LossFunction::Logistic => {
                let share = mean.clamp(1e-6, 1.0 - 1e-6);
                let rate = self.label / self.weight;
                -(rate * share.ln() + (1.0 - rate) * (1.0 - share).ln())
            }
            LossFunction::Softmax => 0.0,
        };
        let naive = self.naive.iter().zip(&self.naive_lost);
        let naive = naive.map(|((column, _), lost)| NaiveBaseline {
            column: column.clone(),
            loss: lost / self.weight,
        });
        BaselineReport {
            loss: self.loss(),
            constant,
            naive: naive.min_by(|a, b| a.loss.total_cmp(&b.loss)),
        }
    }

    /// All defined measures, by name.
    pub fn finish(&self) -> BTreeMap<String, f64> {
        let mut measures = vec![("loss", self.loss())];
        match self.loss {
            LossFunction::SquaredError => {
                measures.push(("rmse", (self.square / self.weight).sqrt()));
                measures.push(("mae", self.absolute / self.weight));
                measures.push(("wmape", self.absolute / self.labels));
            }
            LossFunction::Logistic => {
                measures.push(("log_loss", self.loss()));
                measures.extend(self.ranks.iter().map(|ranks| ("auc", ranks.area())));
            }
            // Classes have metrics of their own.
            LossFunction::Softmax => {}
        }
        // Measures without rows, or with labels of one kind only, are undefined.
        measures
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// Rank of a result among all: larger results have larger ranks.
fn output_rank(output: f32) -> usize {
    let bits = output.to_bits();
    let ordered = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    (ordered >> (32 - RANK_BITS)) as usize
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
        let mut metrics = PredictionMetrics::new(loss, Vec::new());
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
