//! Forward and backward passes through the layers, for a slice of a batch.

use super::class_loss::{class_loss, softmax};
use super::config::LossFunction;
use super::matrix::{Matrix, ProductSize, multiply};
use super::model_input::{ModelInput, SLICE_ROWS};
use super::network::{DenseLayer, ModelParameters, ModelShape};

/// The row of a table for an id: the first for those that training has not seen.
pub fn table_row(id: i32, rows: usize) -> usize {
    usize::try_from(id).map_or(0, |id| if id + 1 < rows { id + 1 } else { 0 })
}

/// Intermediate values of a slice; reused.
#[derive(Debug)]
pub struct SliceWorkspace {
    layers: Vec<DenseLayer>,
    /// Inputs of each layer, and the output of the last.
    values: Vec<Vec<f32>>,
    /// The derivatives by these.
    slopes: Vec<Vec<f32>>,
    /// The sum of the rows' gradients of all layers.
    pub gradient: Vec<f32>,
    /// The sum of the rows' losses, weighted.
    pub loss: f64,
    /// The sum of the rows' weights.
    pub weight: f64,
    /// A label that no probability can be.
    pub strange: Option<f32>,
}

impl SliceWorkspace {
    pub fn new(shape: &ModelShape) -> SliceWorkspace {
        let layers = shape.layers();
        let inputs = layers.iter().map(|layer| layer.inputs);
        let widths: Vec<usize> = inputs.chain([shape.outputs]).collect();
        let values: Vec<Vec<f32>> = widths
            .iter()
            .map(|width| vec![0.0; width * SLICE_ROWS])
            .collect();
        let gradient = vec![0.0; layers.last().map_or(0, |layer| layer.biases.end)];
        SliceWorkspace {
            layers,
            slopes: values.clone(),
            values,
            gradient,
            loss: 0.0,
            weight: 0.0,
            strange: None,
        }
    }

    /// Results of the last slice, row after row, before they become probabilities.
    pub fn outputs(&self, rows: usize) -> &[f32] {
        let width = self.output_width();
        self.values
            .last()
            .map_or(&[], |outputs| &outputs[..rows * width])
    }

    /// Results of a row.
    fn output_width(&self) -> usize {
        self.layers.last().map_or(1, |layer| layer.outputs)
    }

    /// Derivatives of one row with respect to its embedded values, or to its results if weights are
    /// added.
    pub fn embedded_slopes(&self, shape: &ModelShape, row: usize) -> &[f32] {
        if shape.added {
            let first = row * shape.outputs;
            return self
                .slopes
                .last()
                .map_or(&[], |slopes| &slopes[first..first + shape.outputs]);
        }
        let width = shape.input_width();
        let dense = shape.dense_width();
        self.slopes.first().map_or(&[], |slopes| {
            &slopes[row * width + dense..(row + 1) * width]
        })
    }

    /// Computes the outputs of the layers (forward pass).
    pub fn forward(
        &mut self,
        shape: &ModelShape,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
    ) {
        self.gather_inputs(shape, parameters, rows);
        for (number, layer) in self.layers.iter().enumerate() {
            let (inputs, outputs) = self.values.split_at_mut(number + 1);
            let input = &inputs[number];
            let output = &mut outputs[0][..rows.rows * layer.outputs];
            let biases = &parameters.layers[layer.biases.clone()];
            for row in output.chunks_exact_mut(layer.outputs) {
                row.copy_from_slice(biases);
            }
            if layer.inputs > 0 {
                let weights = &parameters.layers[layer.weights.clone()];
                let size = ProductSize {
                    m: rows.rows,
                    k: layer.inputs,
                    n: layer.outputs,
                };
                multiply(
                    size,
                    Matrix::rows(input),
                    Matrix::columns(weights),
                    1.0,
                    output,
                );
            }
            if number + 1 < self.layers.len() {
                for value in output.iter_mut() {
                    *value = value.max(0.0);
                }
            }
        }
        if shape.added {
            self.add_id_weights(shape, parameters, rows);
        }
    }

    fn gather_inputs(
        &mut self,
        shape: &ModelShape,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
    ) {
        let dense = shape.dense_width();
        let width = shape.input_width();
        let ids = shape.ids();
        let Some(input) = self.values.first_mut().filter(|_| width > 0) else {
            return;
        };
        for (row, input) in input.chunks_exact_mut(width).take(rows.rows).enumerate() {
            input[..dense].copy_from_slice(&rows.dense[row * dense..(row + 1) * dense]);
            if shape.added {
                continue;
            }
            let mut target = &mut input[dense..];
            let ids = &rows.ids[row * ids..(row + 1) * ids];
            for (number, embedding, id_range) in shape.embedding_columns() {
                for id in &ids[id_range] {
                    let from = table_row(*id, embedding.rows) * embedding.width;
                    let (to, remainder) = target.split_at_mut(embedding.width);
                    to.copy_from_slice(&parameters.tables[number][from..from + embedding.width]);
                    target = remainder;
                }
            }
        }
    }

    fn add_id_weights(
        &mut self,
        shape: &ModelShape,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
    ) {
        let ids = shape.ids();
        let Some(outputs) = self.values.last_mut().filter(|_| ids > 0) else {
            return;
        };
        let results = outputs.chunks_exact_mut(shape.outputs);
        for (results, ids) in results.zip(rows.ids.chunks_exact(ids)) {
            for (number, embedding, id_range) in shape.embedding_columns() {
                for id in &ids[id_range] {
                    let from = table_row(*id, embedding.rows) * shape.outputs;
                    let weights = &parameters.tables[number][from..from + shape.outputs];
                    for (result, weight) in results.iter_mut().zip(weights) {
                        *result += weight;
                    }
                }
            }
        }
    }

    /// Computes the derivatives (backward pass), after [`SliceWorkspace::forward`] of the same
    /// rows.
    pub fn backward(
        &mut self,
        parameters: &ModelParameters,
        rows: &ModelInput<'_>,
        loss: LossFunction,
    ) {
        self.compute_loss(rows, loss);
        for (number, layer) in self.layers.iter().enumerate().rev() {
            let (input_slopes, output_slopes) = self.slopes.split_at_mut(number + 1);
            let slopes = &output_slopes[0][..rows.rows * layer.outputs];
            let biases = &mut self.gradient[layer.biases.clone()];
            biases.fill(0.0);
            for row in slopes.chunks_exact(layer.outputs) {
                for (sum, slope) in biases.iter_mut().zip(row) {
                    *sum += slope;
                }
            }
            if layer.inputs == 0 {
                continue;
            }
            let input = &self.values[number];
            let to = &mut input_slopes[number][..rows.rows * layer.inputs];
            let size = ProductSize {
                m: layer.outputs,
                k: rows.rows,
                n: layer.inputs,
            };
            let gradient = &mut self.gradient[layer.weights.clone()];
            multiply(
                size,
                Matrix::columns(slopes),
                Matrix::rows(input),
                0.0,
                gradient,
            );
            let weights = &parameters.layers[layer.weights.clone()];
            let size = ProductSize {
                m: rows.rows,
                k: layer.outputs,
                n: layer.inputs,
            };
            multiply(size, Matrix::rows(slopes), Matrix::rows(weights), 0.0, to);
            if number > 0 {
                // What relu has cut off has no slope.
                for (slope, _) in to.iter_mut().zip(input).filter(|(_, value)| **value <= 0.0) {
                    *slope = 0.0;
                }
            }
        }
    }

    /// Losses, and their derivatives by the results.
    fn compute_loss(&mut self, rows: &ModelInput<'_>, loss: LossFunction) {
        self.loss = 0.0;
        self.weight = 0.0;
        self.strange = None;
        let width = self.output_width();
        let Some(outputs) = self.values.last() else {
            return;
        };
        let Some(slopes) = self.slopes.last_mut() else {
            return;
        };
        if loss == LossFunction::Softmax {
            let results = outputs.chunks_exact(width).take(rows.rows);
            let slopes = slopes.chunks_exact_mut(width);
            let mut scores = Vec::with_capacity(width);
            for (row, (results, slopes)) in results.zip(slopes).enumerate() {
                let weight = rows.weight(row);
                if weight == 0.0 {
                    slopes.fill(0.0);
                    continue;
                }
                scores.clear();
                scores.extend(results.iter().map(|result| f64::from(*result)));
                let label = rows.labels[row] as usize;
                self.loss += f64::from(weight) * class_loss(&scores, label);
                self.weight += f64::from(weight);
                softmax(&mut scores);
                for (class, (slope, probability)) in slopes.iter_mut().zip(&scores).enumerate() {
                    let target = if class == label { 1.0 } else { 0.0 };
                    *slope = weight * (probability - target) as f32;
                }
            }
            return;
        }
        for row in 0..rows.rows {
            let output = outputs[row];
            let label = rows.labels[row];
            let weight = rows.weight(row);
            if weight == 0.0 {
                slopes[row] = 0.0;
                continue;
            }
            if loss == LossFunction::Logistic && !(0.0..=1.0).contains(&label) {
                self.strange = Some(label);
            }
            let (lost, slope) = loss.value_and_slope(output, label);
            self.loss += f64::from(weight) * lost;
            self.weight += f64::from(weight);
            slopes[row] = weight * slope;
        }
    }
}

impl LossFunction {
    /// The loss of a result, and its derivative by that.
    pub fn value_and_slope(self, output: f32, label: f32) -> (f64, f32) {
        match self {
            LossFunction::SquaredError => {
                let error = output - label;
                (f64::from(error) * f64::from(error), 2.0 * error)
            }
            LossFunction::Logistic => {
                let output = f64::from(output);
                let target = f64::from(label);
                // The logarithm of 1 + e^x without overflow.
                let softplus = output.max(0.0) + (-output.abs()).exp().ln_1p();
                (
                    softplus - target * output,
                    self.prediction(output as f32) - label,
                )
            }
            // The probability of a single class is 1. Several are computed together.
            LossFunction::Softmax => (0.0, 0.0),
        }
    }

    /// Prediction for a result of the network: a probability for a loss of probabilities.
    pub fn prediction(self, output: f32) -> f32 {
        match self {
            LossFunction::SquaredError => output,
            LossFunction::Logistic => (1.0 / (1.0 + (-f64::from(output)).exp())) as f32,
            LossFunction::Softmax => 1.0,
        }
    }
}
