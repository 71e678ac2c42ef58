//! The shape of a model, and its parameters.

use std::ops::Range;

use forebay_feed::FeatureField;
use serde::{Deserialize, Serialize};

use super::random::UniformGenerator;

/// First values of embeddings lie between this and its negative.
const EMBEDDING_SPREAD: f32 = 0.05;

/// Table with a row for each id of a column. The first row is for ids that did not occur in
/// training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingTable {
    /// The column.
    pub column: String,
    /// Ids per row of the data.
    pub ids: usize,
    /// Rows: one more than ids.
    pub rows: usize,
    /// Values per row.
    pub width: usize,
}

/// Inputs and layers of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelShape {
    /// Columns of numbers.
    pub dense: Vec<FeatureField>,
    /// Columns of ids.
    pub embeddings: Vec<EmbeddingTable>,
    /// Widths of hidden layers.
    pub hidden: Vec<usize>,
    /// True if ids have weights that are added to the result, instead of going through the layers.
    pub added: bool,
    /// Results: one, or one for each class.
    #[serde(default = "one_result", skip_serializing_if = "is_one_result")]
    pub outputs: usize,
}

fn one_result() -> usize {
    1
}

fn is_one_result(outputs: &usize) -> bool {
    *outputs == 1
}

/// A layer among the parameters: `[outputs, inputs]` weights, and a bias for each output.
#[derive(Debug, Clone)]
pub struct DenseLayer {
    pub inputs: usize,
    pub outputs: usize,
    pub weights: Range<usize>,
    pub biases: Range<usize>,
}

impl ModelShape {
    /// Numbers per row.
    pub fn dense_width(&self) -> usize {
        self.dense.iter().map(|field| field.width as usize).sum()
    }

    /// Ids per row.
    pub fn ids(&self) -> usize {
        self.embeddings.iter().map(|embedding| embedding.ids).sum()
    }

    /// Width of the first layer's input.
    pub fn input_width(&self) -> usize {
        let embedded = self
            .embeddings
            .iter()
            .map(|embedding| embedding.ids * embedding.width)
            .sum::<usize>();
        self.dense_width() + if self.added { 0 } else { embedded }
    }

    /// The layers; the outputs of the last one are the results.
    pub fn layers(&self) -> Vec<DenseLayer> {
        let mut inputs = self.input_width();
        let mut start = 0;
        let layer = |outputs: usize| {
            let weights = start..start + inputs * outputs;
            let biases = weights.end..weights.end + outputs;
            start = biases.end;
            DenseLayer {
                inputs: std::mem::replace(&mut inputs, outputs),
                outputs,
                weights,
                biases,
            }
        };
        let widths = self.hidden.iter().copied().chain([self.outputs]);
        widths.map(layer).collect()
    }

    /// Number of parameters; `None` if it overflows.
    pub fn parameter_count(&self) -> Option<usize> {
        let mut inputs = self.dense_width();
        let mut count = 0usize;
        for EmbeddingTable {
            ids, rows, width, ..
        } in &self.embeddings
        {
            count = count.checked_add(rows.checked_mul(*width)?)?;
            inputs = inputs.checked_add(if self.added {
                0
            } else {
                ids.checked_mul(*width)?
            })?;
        }
        self.embeddings
            .iter()
            .try_fold(0usize, |ids, embedding| ids.checked_add(embedding.ids))?;
        for outputs in self.hidden.iter().copied().chain([self.outputs]) {
            count = count.checked_add(inputs.checked_add(1)?.checked_mul(outputs)?)?;
            inputs = outputs;
        }
        Some(count)
    }

    /// Ids of a row for which the model has embeddings.
    pub fn embedding_columns(
        &self,
    ) -> impl Iterator<Item = (usize, &EmbeddingTable, Range<usize>)> {
        let mut start = 0;
        self.embeddings
            .iter()
            .enumerate()
            .map(move |(number, embedding)| {
                let ids = start..start + embedding.ids;
                start = ids.end;
                (number, embedding, ids)
            })
    }
}

/// The numbers that are learned.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelParameters {
    /// Parameters of all layers.
    pub layers: Vec<f32>,
    /// Parameters of each embedding.
    pub tables: Vec<Vec<f32>>,
}

impl ModelParameters {
    /// Parameters that are all zero.
    pub fn zeros(shape: &ModelShape) -> ModelParameters {
        let layers = shape.layers().last().map_or(0, |layer| layer.biases.end);
        let tables = shape
            .embeddings
            .iter()
            .map(|embedding| vec![0.0; embedding.rows * embedding.width]);
        ModelParameters {
            layers: vec![0.0; layers],
            tables: tables.collect(),
        }
    }

    /// Initial parameters: zero for a model without hidden layers, random for others. Ids that were
    /// not seen are zero, and stay there.
    pub fn initial(shape: &ModelShape, seed: u64) -> ModelParameters {
        let mut first = ModelParameters::zeros(shape);
        if shape.hidden.is_empty() {
            return first;
        }
        let mut uniform = UniformGenerator::new(seed);
        for layer in shape.layers() {
            let spread = 1.0 / (layer.inputs.max(1) as f32).sqrt();
            let layer_range = layer.weights.start..layer.biases.end;
            for value in first.layers[layer_range].iter_mut() {
                *value = uniform.next_value() * spread;
            }
        }
        for (table, embedding) in first.tables.iter_mut().zip(&shape.embeddings) {
            let seen = table.iter_mut().skip(embedding.width);
            for value in seen {
                *value = uniform.next_value() * EMBEDDING_SPREAD;
            }
        }
        first
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.layers.len() + self.tables.iter().map(Vec::len).sum::<usize>()
    }

    /// True if all parameters are finite.
    pub fn are_finite(&self) -> bool {
        self.layers
            .iter()
            .chain(self.tables.iter().flatten())
            .all(|value| value.is_finite())
    }
}
