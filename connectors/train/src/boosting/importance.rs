//! Importance of columns: the loss that splits by them took away, and the loss that comes back when their values are
//! shuffled among the validation rows (Breiman, Random Forests, 2001, section 10).

use forebay_contract::ColumnImportance;
use forebay_feed::BatchFeatures;
use forebay_model::Result;
use forebay_threads::parallel_map;

use super::loss::Objective;
use super::table::{FeatureTable, RowFeatures};
use super::tree::TreeEnsemble;
use crate::class_loss::class_loss;
use crate::random::UniformGenerator;

/// Validation rows with shuffled values, of all columns and models together: about a second of work.
const SHUFFLED_ROWS_MAX: usize = 400_000;

/// Validation rows for one column and model.
const COLUMN_ROWS_MAX: usize = 20_000;

/// The features of a column: more than one for a column of lists.
struct FeatureColumn {
    name: String,
    /// Number of its first feature: numbers first, then ids.
    first: usize,
    width: usize,
}

/// Importance of each column by the gains of the features of each model, the greatest gain first.
pub fn column_gains(features: &BatchFeatures, gains_of_models: &[&[f64]]) -> Vec<ColumnImportance> {
    let mut importance = Vec::new();
    let mut total = 0.0;
    for column in feature_columns(features) {
        let mut gain = 0.0;
        for gains in gains_of_models {
            let of_column = gains.iter().skip(column.first).take(column.width);
            gain += of_column.sum::<f64>();
        }
        total += gain;
        importance.push(ColumnImportance {
            column: column.name,
            gain,
            shuffled: None,
        });
    }
    if total > 0.0 {
        for column in &mut importance {
            column.gain /= total;
        }
    }
    // Columns of equal gain stay in their order.
    importance.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    importance
}

/// The columns that some of these models split by; all of them where models of an earlier version say nothing of their
/// splits.
pub fn split_columns(features: &BatchFeatures, gains_of_models: &[&[f64]]) -> Vec<String> {
    let is_unrecorded = gains_of_models.iter().all(|gains| gains.is_empty());
    let mut columns = Vec::new();
    for column in feature_columns(features) {
        let mut gains = gains_of_models
            .iter()
            .flat_map(|gains| gains.iter().skip(column.first).take(column.width));
        if is_unrecorded || gains.any(|gain| *gain > 0.0) {
            columns.push(column.name);
        }
    }
    columns
}

/// Trees over all rows.
pub enum MeasuredTrees<'a> {
    /// One ensemble for each group of steps, each with a loss of its own.
    Points(Vec<(Objective, &'a TreeEnsemble)>),
    /// One ensemble for each class, with one loss.
    Classes(Vec<&'a TreeEnsemble>),
}

/// Trees over all rows, and the rows on which their columns are shuffled.
pub struct ShuffledColumns<'a> {
    pub trees: MeasuredTrees<'a>,
    pub validation: &'a FeatureTable,
}

/// Losses of some rows, and their weights.
#[derive(Default)]
struct LossSum {
    lost: f64,
    weight: f64,
}

impl MeasuredTrees<'_> {
    /// Number of ensembles.
    fn count(&self) -> usize {
        match self {
            MeasuredTrees::Points(points) => points.len(),
            MeasuredTrees::Classes(classes) => classes.len(),
        }
    }

    /// Adds the losses of a row.
    fn add_row(&self, features: RowFeatures<'_>, label: f32, weight: f64, sum: &mut LossSum) {
        match self {
            MeasuredTrees::Points(points) => {
                for (objective, ensemble) in points {
                    let output = ensemble.predict(features);
                    sum.lost += weight * objective.value(output, label);
                    sum.weight += weight;
                }
            }
            MeasuredTrees::Classes(classes) => {
                let scores: Vec<f64> = classes
                    .iter()
                    .map(|ensemble| ensemble.predict(features))
                    .collect();
                sum.lost += weight * class_loss(&scores, label as usize);
                sum.weight += weight;
            }
        }
    }
}

impl ShuffledColumns<'_> {
    /// Sets for each column that some tree splits by how much larger the loss is with its values shuffled, as a share of
    /// the loss.
    pub fn measure(
        &self,
        features: &BatchFeatures,
        importance: &mut [ColumnImportance],
        threads: usize,
    ) -> Result<()> {
        let columns = feature_columns(features);
        let mut measured = Vec::new();
        for (index, column) in importance.iter().enumerate() {
            if column.gain > 0.0
                && let Some(features) = columns
                    .iter()
                    .find(|features| features.name == column.column)
            {
                measured.push((index, features));
            }
        }
        let rows = self.sampled_rows(measured.len() * self.trees.count());
        if rows.is_empty() || measured.is_empty() {
            return Ok(());
        }
        let base = self.loss(&rows, None);
        let losses = parallel_map(threads.max(1), measured.len(), &|number| {
            let (index, column) = measured[number];
            let order = shuffled(&rows, index as u64);
            Ok(self.loss(&rows, Some((column, &order))))
        })?;
        for ((index, _), loss) in measured.iter().zip(losses) {
            let increase = loss / base - 1.0;
            importance[*index].shuffled = Some(increase).filter(|share| share.is_finite());
        }
        Ok(())
    }

    /// Validation rows at equal distances, few enough for all columns and models.
    fn sampled_rows(&self, measurements: usize) -> Vec<usize> {
        let row_count = self.validation.rows();
        let sample = (SHUFFLED_ROWS_MAX / measurements.max(1)).min(COLUMN_ROWS_MAX);
        let sample = sample.min(row_count);
        (0..sample).map(|at| at * row_count / sample).collect()
    }

    /// Mean loss on some rows; with a column and an order, each row has the column's values of the row that the order
    /// puts in its place.
    fn loss(&self, rows: &[usize], shuffled_column: Option<(&FeatureColumn, &[usize])>) -> f64 {
        let mut numbers = vec![0.0; self.validation.numbers];
        let mut ids = vec![0; self.validation.ids];
        let mut sum = LossSum::default();
        for (at, row) in rows.iter().enumerate() {
            let features = self.validation.row(*row);
            numbers.copy_from_slice(features.dense);
            ids.copy_from_slice(features.categories);
            if let Some((column, order)) = shuffled_column {
                let other = self.validation.row(order[at]);
                column.copy(other, &mut numbers, &mut ids);
            }
            let features = RowFeatures {
                dense: &numbers,
                categories: &ids,
            };
            let label = self.validation.labels[*row];
            let weight = f64::from(self.validation.weight(*row));
            self.trees.add_row(features, label, weight, &mut sum);
        }
        sum.lost / sum.weight
    }
}

impl FeatureColumn {
    /// Takes the column's values of another row.
    fn copy(&self, other: RowFeatures<'_>, numbers: &mut [f32], ids: &mut [i32]) {
        for feature in self.first..self.first + self.width {
            if feature < numbers.len() {
                numbers[feature] = other.dense[feature];
            } else {
                let id = feature - numbers.len();
                ids[id] = other.categories[id];
            }
        }
    }
}

/// The columns in the order of their features.
fn feature_columns(features: &BatchFeatures) -> Vec<FeatureColumn> {
    let mut columns = Vec::new();
    let mut first = 0;
    for field in features.dense.iter().chain(&features.categorical) {
        let width = field.width as usize;
        columns.push(FeatureColumn {
            name: field.column.clone(),
            first,
            width,
        });
        first += width;
    }
    columns
}

/// The rows in an order that follows from a seed (Fisher and Yates).
fn shuffled(rows: &[usize], seed: u64) -> Vec<usize> {
    let mut order = rows.to_vec();
    let mut generator = UniformGenerator::new(seed);
    for last in (1..order.len()).rev() {
        let share = f64::from(generator.next_value()) * 0.5 + 0.5;
        let other = (share * (last + 1) as f64) as usize;
        order.swap(last, other.min(last));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boosting::tree::{RegressionTree, SplitNode, SplitRule};

    fn features() -> BatchFeatures {
        serde_json::from_value(serde_json::json!({
            "dense": [{ "column": "price" }, { "column": "vector", "width": 2 }],
            "dense_type": "f32",
            "categorical": [{ "column": "item" }],
            "categorical_type": "i32",
        }))
        .unwrap()
    }

    const GAINS: [f64; 4] = [3.0, 0.5, 0.5, 0.0];

    /// Trees that tell the sign of `price`, and split by nothing else.
    fn sign_of_price() -> TreeEnsemble {
        let tree = RegressionTree {
            nodes: vec![SplitNode {
                feature: 0,
                rule: SplitRule::Threshold(0.0),
                missing_left: false,
                left: !0,
                right: !1,
            }],
            leaves: vec![-1.0, 1.0],
            ..RegressionTree::default()
        };
        TreeEnsemble {
            base: 0.0,
            trees: vec![tree],
        }
    }

    #[test]
    fn columns_are_split_by_where_they_gain() {
        let none = [0.0; 4];
        let item = [0.0, 0.0, 0.0, 2.0];
        assert_eq!(split_columns(&features(), &[&GAINS]), ["price", "vector"]);
        let of_both = split_columns(&features(), &[&GAINS, &[], &item]);
        assert_eq!(of_both, ["price", "vector", "item"]);
        assert!(split_columns(&features(), &[&none]).is_empty());
        let unrecorded = split_columns(&features(), &[&[]]);
        assert_eq!(unrecorded, ["price", "vector", "item"]);
    }

    #[test]
    fn gains_are_shares_by_column() {
        let importance = column_gains(&features(), &[&GAINS]);
        let shares: Vec<(&str, f64)> = importance
            .iter()
            .map(|column| (column.column.as_str(), column.gain))
            .collect();
        assert_eq!(shares, [("price", 0.75), ("vector", 0.25), ("item", 0.0)]);
    }

    /// Of squares of errors: a shuffled sign is wrong by 2 in half of the rows.
    #[test]
    fn shuffled_columns_cost_what_they_tell() {
        let mut rows = FeatureTable::new(3, 1);
        let mut generator = UniformGenerator::new(7);
        for _ in 0..4000 {
            let price = generator.next_value();
            rows.dense.extend([price, generator.next_value(), 0.0]);
            rows.categories.push(1);
            // The model is off by 1 everywhere.
            rows.labels.push(price.signum() + 1.0);
        }
        let trees = sign_of_price();
        let mut importance = column_gains(&features(), &[&GAINS]);
        let shuffled = ShuffledColumns {
            trees: MeasuredTrees::Points(vec![(Objective::SquaredError, &trees)]),
            validation: &rows,
        };
        shuffled.measure(&features(), &mut importance, 2).unwrap();
        // The squared error 1 becomes 1, 1, 1 or 9 with equal odds: 3 in the mean.
        let price = importance[0].shuffled.unwrap();
        assert!((price - 2.0).abs() < 0.3, "{price}");
        assert_eq!(importance[1].shuffled, Some(0.0));
        assert_eq!(importance[2].shuffled, None);
    }
}
