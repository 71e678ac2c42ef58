//! The one scale of numbers and labels within a training that minimises a squared error.
//!
//! AdamW moves each parameter by about the learning rate per step, however large its gradient is.
//! So the trainer standardises numbers and labels before its steps, and converts the parameters
//! back before they are validated or written: the learning rate and the decay of weights mean the
//! same for labels and numbers of any unit.

use forebay_feed::{FeatureField, FeedBatch, PartRole};
use forebay_model::Result;
use serde::{Deserialize, Serialize};

use super::model_input::ModelInput;
use super::network::{DenseLayer, ModelParameters, ModelShape};

/// Rows of a sample from which scales are taken.
pub const SAMPLE_ROWS: u64 = 65_536;

/// Smallest deviation of a column as a share of its mean: below lie the roundings of single
/// precision.
const DEVIATION_SHARE_MIN: f64 = 1e-6;

/// Mean and deviation of a column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnScale {
    mean: f64,
    deviation: f64,
}

impl ColumnScale {
    fn standardize(self, value: &mut f32) {
        *value = ((f64::from(*value) - self.mean) / self.deviation) as f32;
    }
}

/// Scales of the numbers of a row and of its label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputScale {
    dense: Vec<ColumnScale>,
    label: ColumnScale,
}

impl InputScale {
    /// Square of the deviation of labels: a squared error of standardised labels, times this, is
    /// one of the labels.
    pub fn loss_unit(&self) -> f64 {
        self.label.deviation * self.label.deviation
    }

    /// Standardises the numbers and labels of a batch in its slot.
    pub fn standardize_batch(&self, batch: &mut FeedBatch) -> Result<()> {
        let rows = batch.rows();
        let width = self.dense.len();
        if width > 0 {
            let dense = batch.numbers_mut::<f32>(PartRole::Dense)?;
            for row in dense.chunks_exact_mut(width).take(rows) {
                for (value, column) in row.iter_mut().zip(&self.dense) {
                    column.standardize(value);
                }
            }
        }
        let labels = batch.numbers_mut::<f32>(PartRole::Label)?;
        for label in labels.iter_mut().take(rows) {
            self.label.standardize(label);
        }
        Ok(())
    }

    /// Converts parameters for the data to those for standardised numbers and labels.
    pub fn standardize_parameters(&self, shape: &ModelShape, parameters: &mut ModelParameters) {
        let layers = shape.layers();
        if let Some(first) = layers.first() {
            for (bias, weights) in unit_parameters(first, parameters) {
                let mut at_mean = f64::from(*bias);
                for (weight, column) in weights.iter_mut().zip(&self.dense) {
                    at_mean += f64::from(*weight) * column.mean;
                    *weight = (f64::from(*weight) * column.deviation) as f32;
                }
                *bias = at_mean as f32;
            }
        }
        if let Some(last) = layers.last() {
            let values = &mut parameters.layers[last.weights.start..last.biases.end];
            if let Some(bias) = values.last_mut() {
                *bias = (f64::from(*bias) - self.label.mean) as f32;
            }
            scale_all(values, 1.0 / self.label.deviation);
        }
        if shape.added {
            for table in &mut parameters.tables {
                scale_all(table, 1.0 / self.label.deviation);
            }
        }
    }

    /// Parameters for the data, from those for standardised numbers and labels: the first layer takes the scales of
    /// numbers, and the last one that of labels.
    pub fn data_parameters(
        &self,
        shape: &ModelShape,
        standardized: &ModelParameters,
    ) -> ModelParameters {
        let mut parameters = standardized.clone();
        let layers = shape.layers();
        if let Some(last) = layers.last() {
            let values = &mut parameters.layers[last.weights.start..last.biases.end];
            scale_all(values, self.label.deviation);
            if let Some(bias) = values.last_mut() {
                *bias = (f64::from(*bias) + self.label.mean) as f32;
            }
        }
        if let Some(first) = layers.first() {
            for (bias, weights) in unit_parameters(first, &mut parameters) {
                let mut at_zero = f64::from(*bias);
                for (weight, column) in weights.iter_mut().zip(&self.dense) {
                    *weight = (f64::from(*weight) / column.deviation) as f32;
                    // The bias makes up for the rounding of the weight, too.
                    at_zero -= f64::from(*weight) * column.mean;
                }
                *bias = at_zero as f32;
            }
        }
        if shape.added {
            for table in &mut parameters.tables {
                scale_all(table, self.label.deviation);
            }
        }
        parameters
    }
}

/// The bias of each output of a layer, with its weights: those of numbers come first.
fn unit_parameters<'p>(
    layer: &DenseLayer,
    parameters: &'p mut ModelParameters,
) -> impl Iterator<Item = (&'p mut f32, &'p mut [f32])> {
    let values = &mut parameters.layers[layer.weights.start..layer.biases.end];
    let (weights, biases) = values.split_at_mut(layer.weights.len());
    biases
        .iter_mut()
        .zip(weights.chunks_exact_mut(layer.inputs.max(1)))
}

fn scale_all(values: &mut [f32], factor: f64) {
    for value in values {
        *value = (f64::from(*value) * factor) as f32;
    }
}

/// Weighted mean and sum of squared deviations of a column (Welford's recurrence, in the form of
/// West, 1979).
#[derive(Debug, Clone, Copy, Default)]
struct ColumnMoments {
    weight: f64,
    mean: f64,
    squares: f64,
}

impl ColumnMoments {
    fn add(&mut self, value: f32, weight: f64) {
        let value = f64::from(value);
        let difference = value - self.mean;
        self.weight += weight;
        self.mean += difference * weight / self.weight;
        self.squares += weight * difference * (value - self.mean);
    }

    /// The scale; a constant keeps its unit.
    fn scale(self) -> ColumnScale {
        let deviation = (self.squares / self.weight).sqrt();
        ColumnScale {
            mean: self.mean,
            deviation: if deviation > self.mean.abs() * DEVIATION_SHARE_MIN {
                deviation
            } else {
                1.0
            },
        }
    }
}

/// Collects the scales of a sample.
#[derive(Debug)]
pub struct ScaleSample {
    dense: Vec<ColumnMoments>,
    label: ColumnMoments,
    /// Rows of the sample that count.
    pub rows: u64,
}

impl ScaleSample {
    /// An empty sample of rows with `width` numbers.
    pub fn new(width: usize) -> ScaleSample {
        ScaleSample {
            dense: vec![ColumnMoments::default(); width],
            label: ColumnMoments::default(),
            rows: 0,
        }
    }

    /// Adds the rows of a batch that count.
    pub fn add(&mut self, rows: &ModelInput<'_>) {
        let width = self.dense.len();
        for (row, label) in rows.labels.iter().enumerate() {
            let weight = f64::from(rows.weight(row));
            // Rows that do not count may hold anything.
            if weight <= 0.0 {
                continue;
            }
            self.rows += 1;
            self.label.add(*label, weight);
            let values = &rows.dense[row * width..(row + 1) * width];
            for (moments, value) in self.dense.iter_mut().zip(values) {
                moments.add(*value, weight);
            }
        }
    }

    /// Features whose numbers are the same in all rows of the sample.
    pub fn constant_columns(&self, features: &[FeatureField]) -> Vec<String> {
        let mut constants = Vec::new();
        // A single row tells nothing.
        if self.rows < 2 {
            return constants;
        }
        let mut start = 0;
        for feature in features {
            let end = start + feature.width as usize;
            let numbers = self.dense.get(start..end).unwrap_or_default();
            if numbers.iter().all(|moments| moments.squares == 0.0) {
                constants.push(feature.column.clone());
            }
            start = end;
        }
        constants
    }

    /// The scales.
    pub fn finish(self) -> InputScale {
        InputScale {
            dense: self.dense.into_iter().map(ColumnMoments::scale).collect(),
            label: self.label.scale(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::compute::SliceWorkspace;
    use crate::network::EmbeddingTable;

    fn scale_of(dense: &[f32], labels: &[f32], weights: &[f32]) -> InputScale {
        let mut sample = ScaleSample::new(dense.len() / labels.len());
        sample.add(&ModelInput {
            rows: labels.len(),
            dense,
            ids: &[],
            labels,
            weights,
            mask: &[],
        });
        sample.finish()
    }

    #[test]
    fn features_of_one_value_are_constant() {
        let field = |column: &str, width| FeatureField {
            column: column.to_owned(),
            width,
            missing: None,
        };
        let features = [field("one", 1), field("pair", 2), field("changing", 1)];
        let mut sample = ScaleSample::new(4);
        for row in 0..3 {
            sample.add(&ModelInput {
                rows: 1,
                dense: &[7.1, 0.0, 1.0, row as f32],
                ids: &[],
                labels: &[1.0],
                weights: &[],
                mask: &[],
            });
            let expected: &[&str] = if row == 0 { &[] } else { &["one", "pair"] };
            assert_eq!(sample.constant_columns(&features), expected, "row {row}");
        }
    }

    #[test]
    fn scales_are_weighted_means_and_deviations() {
        let cases: [(&[f32], &[f32], f64, f64); 4] = [
            (&[1.0, 3.0], &[], 2.0, 1.0),
            // The second row counts three times, the third not at all.
            (&[0.0, 4.0, 1e30], &[1.0, 3.0, 0.0], 3.0, 3.0_f64.sqrt()),
            (&[1e6, 1e6 + 2.0], &[], 1e6 + 1.0, 1.0),
            // A constant keeps its unit.
            (&[7.0, 7.0], &[], 7.0, 1.0),
        ];
        for (values, weights, mean, deviation) in cases {
            let scale = scale_of(values, values, weights);
            for column in [scale.dense[0], scale.label] {
                assert!((column.mean - mean).abs() <= 1e-9 * mean, "{column:?}");
                assert!((column.deviation - deviation).abs() <= 1e-9, "{column:?}");
            }
        }
    }

    fn shape_of(hidden: &[usize], added: bool) -> ModelShape {
        ModelShape {
            dense: vec![FeatureField::new("x"), FeatureField::new("y")],
            embeddings: vec![EmbeddingTable {
                column: "a".to_owned(),
                ids: 1,
                rows: 4,
                width: if added { 1 } else { 3 },
            }],
            hidden: hidden.to_vec(),
            added,
            outputs: 1,
        }
    }

    fn outputs_of(
        shape: &ModelShape,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
    ) -> Vec<f32> {
        let mut workspace = SliceWorkspace::new(shape);
        workspace.forward(shape, parameters, rows);
        workspace.outputs(rows.rows).to_vec()
    }

    #[test]
    fn parameters_predict_the_data_and_its_scales() {
        let dense = [1e3, 0.001, 3e3, 0.002, 2e3, 0.006];
        let labels = [100.0, 500.0, 900.0];
        let scale = scale_of(&dense, &labels, &[]);
        let mut standardized = dense;
        for row in standardized.chunks_exact_mut(2) {
            for (value, column) in row.iter_mut().zip(&scale.dense) {
                column.standardize(value);
            }
        }
        let rows = ModelInput {
            rows: 3,
            dense: &dense,
            ids: &[0, 2, -1],
            labels: &labels,
            weights: &[],
            mask: &[],
        };
        let standardized_rows = ModelInput {
            dense: &standardized,
            ..rows
        };
        for shape in [
            shape_of(&[], true),
            shape_of(&[], false),
            shape_of(&[5, 4], false),
        ] {
            let mut parameters = ModelParameters::zeros(&shape);
            let values = parameters.layers.iter_mut();
            for (number, value) in values
                .chain(parameters.tables.iter_mut().flatten())
                .enumerate()
            {
                *value = ((number * 7919 % 100) as f32 - 40.0) / 50.0;
            }
            let of_data = scale.data_parameters(&shape, &parameters);
            let predicted = outputs_of(&shape, &of_data, &rows);
            let mut expected = outputs_of(&shape, &parameters, &standardized_rows);
            for value in &mut expected {
                let deviation = scale.label.deviation;
                *value = (f64::from(*value) * deviation + scale.label.mean) as f32;
            }
            for (value, expected) in predicted.iter().zip(&expected) {
                assert!(
                    (value - expected).abs() <= 1e-4 * expected.abs().max(500.0),
                    "{shape:?}: {predicted:?}, not {expected:?}"
                );
            }
            let mut again = of_data.clone();
            scale.standardize_parameters(&shape, &mut again);
            let pairs = again.layers.iter().zip(&parameters.layers);
            let of_tables = again.tables.iter().flatten();
            let of_tables = of_tables.zip(parameters.tables.iter().flatten());
            for (value, expected) in pairs.chain(of_tables) {
                assert!((value - expected).abs() <= 1e-4, "{shape:?}: {value}");
            }
        }
    }
}
