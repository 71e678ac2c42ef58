//! `knn_impute`: missing numbers from the rows that are most alike.

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use forebay_analyze::SampledRows;
use forebay_model::{Finding, Result, RowChange};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform, ValueCount, WrittenNulls, check_stop,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::impute::count_filled;
use crate::shared::{bad_value, doubles, finding_at, output_field, to_float_type};

/// Replaces nulls and NaN by the mean of the column in the `neighbors` rows that are nearest, of those that have a value
/// there.
///
/// In: columns of numbers, at most 256, which tell together how far rows are from each other. Out: a column for each;
/// floats stay floats, all other numbers give `float64`. The squared distance of two rows is the sum of the squared
/// differences in the columns in which both have a value, times the number of columns, divided by the number of these.
/// Rows without a common column are no neighbors; where there are none, the mean of the column is filled in. Of rows at
/// equal distance, the one with smaller values, column by column, counts. `standardize` columns of different units before.
/// Infinities stay and count as missing values. Nothing seen of a column: null and NaN stay.
///
/// Neighbors are rows of a sample, which is learned: all rows up to `sample_rows`, else so many by their row keys. Each
/// row with a missing value is compared with all of them. State: 32 bytes for each row of the sample and column. The
/// artifact holds the sample. Follows scikit-learn's `KNNImputer`, which takes all rows and drops columns without values.
///
/// ```yaml
/// - knn_impute: { columns: [price, qty], neighbors: 3 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn knn_impute(columns),
    example = r#"knn_impute(["price", "qty"]).neighbors(3)"#
)]
pub struct KnnImpute {
    /// Columns of numbers, of which the others tell how near two rows are.
    pub columns: ColumnSelector,
    /// Number of nearest rows.
    #[serde(default = "neighbors")]
    pub neighbors: usize,
    /// Weights of their values in the mean.
    #[serde(default)]
    pub weights: NeighborWeights,
    /// Most rows of the sample, at most 100,000.
    #[serde(default = "sample_rows")]
    pub sample_rows: usize,
    /// Writes `<column><suffix>` instead of replacing the columns.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// Weights of neighbors in a mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeighborWeights {
    /// All count alike.
    #[default]
    Uniform,
    /// The reciprocal of the distance; rows at no distance, if there are any, count alone.
    Distance,
}

fn neighbors() -> usize {
    5
}

fn sample_rows() -> usize {
    10_000
}

const COLUMNS_MAX: usize = 256;
const SAMPLE_ROWS_MAX: usize = 100_000;

impl ConfiguredTransform for KnnImpute {
    const NAME: &'static str = "knn_impute";
}

impl Transform for KnnImpute {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = scope.numeric_columns(&self.columns)?;
        self.check(fields.len())?;
        let names: Vec<&String> = fields.iter().map(|field| field.name()).collect();
        let mut outputs: Vec<Field> = Vec::new();
        for field in &fields {
            let out_type = match field.data_type() {
                DataType::Float16 | DataType::Float32 => DataType::Float32,
                _ => DataType::Float64,
            };
            outputs.push(output_field(field, &self.suffix, out_type));
        }
        let sample = SampledRows {
            columns: fields.len(),
            rows_max: self.sample_rows,
        };
        let request = AnalyzerRequest::new(sample, names.iter().copied());
        let out_types: Vec<DataType> = outputs
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let neighbors = self.neighbors;
        let weights = self.weights;
        let mut map = MapOp::fitted(names, outputs, [request], move |findings| {
            let sample = NeighborSample::of(finding_at(findings, 0)?)?;
            let out_types = out_types.clone();
            Ok(LoweredMap::new(move |inputs, rows| {
                let search = NeighborSearch {
                    sample: &sample,
                    neighbors,
                    weights,
                };
                search.fill(inputs, rows, &out_types)
            }))
        });
        for index in 0..fields.len() {
            map = map.counting(ValueCount {
                before: index,
                after: index,
                ..ValueCount::new(RowChange::Imputed, count_filled)
            });
        }
        Ok(vec![PlanOp::Map(map.written_nulls(WrittenNulls::Filled))])
    }
}

impl KnnImpute {
    fn check(&self, width: usize) -> Result<()> {
        if width > COLUMNS_MAX {
            let message = format!("`columns` are {width}, more than {COLUMNS_MAX}");
            return Err(bad_value(message).field("columns"));
        }
        if !(1..=SAMPLE_ROWS_MAX).contains(&self.sample_rows) {
            let rows = self.sample_rows;
            let message = format!("`sample_rows` {rows} is not between 1 and {SAMPLE_ROWS_MAX}");
            return Err(bad_value(message).field("sample_rows"));
        }
        if !(1..=self.sample_rows).contains(&self.neighbors) {
            let message = format!(
                "`neighbors` {} is not between 1 and {}, the rows of the sample",
                self.neighbors, self.sample_rows
            );
            return Err(bad_value(message).field("neighbors"));
        }
        Ok(())
    }
}

/// Rows among which neighbors are, by column; missing values are NaN.
struct NeighborSample {
    columns: Vec<Vec<f64>>,
    /// Means of the columns; NaN where nothing was seen.
    means: Vec<f64>,
    rows: usize,
}

impl NeighborSample {
    fn of(finding: &Finding) -> Result<NeighborSample> {
        let mut columns = Vec::new();
        let mut means = Vec::new();
        for index in 0..finding.table().num_columns() {
            let values = doubles(finding.column(&format!("value_{index}"))?)?;
            let column: Vec<f64> = values
                .iter()
                .map(|value| value.unwrap_or(f64::NAN))
                .collect();
            means.push(mean(values.iter().flatten()));
            columns.push(column);
        }
        Ok(NeighborSample {
            rows: finding.table().num_rows(),
            columns,
            means,
        })
    }
}

/// The mean of numbers; NaN if there are none.
fn mean(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = numbers.clone().count() as f64;
    numbers.sum::<f64>() / count
}

/// A row of the sample near a row to be filled.
#[derive(Debug, Clone, Copy)]
struct Neighbor {
    squared_distance: f64,
    index: usize,
}

struct NeighborSearch<'s> {
    sample: &'s NeighborSample,
    neighbors: usize,
    weights: NeighborWeights,
}

impl NeighborSearch<'_> {
    /// The columns with their missing values filled.
    fn fill(&self, inputs: &[ArrayRef], rows: usize, types: &[DataType]) -> Result<Vec<ArrayRef>> {
        let mut columns: Vec<Vec<f64>> = Vec::with_capacity(inputs.len());
        let mut nulls: Vec<Vec<bool>> = Vec::with_capacity(inputs.len());
        for input in inputs {
            let values = doubles(input)?;
            nulls.push((0..rows).map(|row| values.is_null(row)).collect());
            columns.push(
                values
                    .iter()
                    .map(|value| value.unwrap_or(f64::NAN))
                    .collect(),
            );
        }
        for row in 0..rows {
            let values: Vec<f64> = columns.iter().map(|column| column[row]).collect();
            if !values.iter().any(|value| value.is_nan()) {
                continue;
            }
            // A row costs as much as the whole sample has numbers.
            check_stop()?;
            let distances = self.squared_distances(&values);
            for (index, value) in values.iter().enumerate() {
                if value.is_nan() {
                    let filled = self.value(index, &distances);
                    columns[index][row] = filled;
                    nulls[index][row] &= filled.is_nan();
                }
            }
        }
        let mut outputs = Vec::with_capacity(columns.len());
        for (index, values) in columns.into_iter().enumerate() {
            let is_valid = nulls[index].iter().map(|is_null| !is_null);
            let validity: NullBuffer = is_valid.collect();
            let has_nulls = validity.null_count() > 0;
            let values = Float64Array::new(values.into(), has_nulls.then_some(validity));
            outputs.push(to_float_type(values, &types[index]));
        }
        Ok(outputs)
    }

    /// The squared distance of a row to each row of the sample, NaN without a common column.
    fn squared_distances(&self, values: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.sample.rows];
        let mut counts = vec![0.0; self.sample.rows];
        for (value, column) in values.iter().zip(&self.sample.columns) {
            if !value.is_finite() {
                continue;
            }
            for ((sum, count), other) in sums.iter_mut().zip(&mut counts).zip(column) {
                let difference = value - other;
                if !difference.is_nan() {
                    *sum += difference * difference;
                    *count += 1.0;
                }
            }
        }
        let width = values.len() as f64;
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = *sum * width / count;
        }
        sums
    }

    /// The value of a column that the nearest rows with a value there give.
    fn value(&self, index: usize, squared_distances: &[f64]) -> f64 {
        let column = &self.sample.columns[index];
        let mut nearest = Vec::new();
        for (index, (value, squared_distance)) in column.iter().zip(squared_distances).enumerate() {
            if !value.is_nan() && !squared_distance.is_nan() {
                nearest.push(Neighbor {
                    squared_distance: *squared_distance,
                    index,
                });
            }
        }
        if nearest.is_empty() {
            return self.sample.means[index];
        }
        if nearest.len() > self.neighbors {
            nearest.select_nth_unstable_by(self.neighbors - 1, Neighbor::order);
            nearest.truncate(self.neighbors);
        }
        // Sums depend on the order.
        nearest.sort_unstable_by(Neighbor::order);
        let values = nearest.iter().map(|neighbor| column[neighbor.index]);
        match self.weights {
            NeighborWeights::Uniform => mean(values),
            NeighborWeights::Distance if nearest[0].squared_distance == 0.0 => {
                let equal = nearest
                    .iter()
                    .filter(|neighbor| neighbor.squared_distance == 0.0);
                mean(equal.map(|neighbor| column[neighbor.index]))
            }
            NeighborWeights::Distance => {
                let weights = nearest.iter().map(Neighbor::weight);
                let total: f64 = weights.clone().sum();
                if total == 0.0 {
                    // The distances are beyond float64.
                    return mean(values);
                }
                weights
                    .zip(values)
                    .map(|(weight, value)| weight / total * value)
                    .sum()
            }
        }
    }
}

impl Neighbor {
    fn order(&self, other: &Neighbor) -> std::cmp::Ordering {
        let by_distance = self.squared_distance.total_cmp(&other.squared_distance);
        by_distance.then(self.index.cmp(&other.index))
    }

    fn weight(&self) -> f64 {
        1.0 / self.squared_distance.sqrt()
    }
}
