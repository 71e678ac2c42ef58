//! Predictions of a model.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array};

use crate::model_classes::ModelClasses;

/// Predictions of a model for some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// The point forecast; of a model of classes, the probability of the most probable one.
    pub point: Float32Array,
    /// Predictions of each quantile of the model, in their order. They may cross.
    pub quantiles: Vec<Float32Array>,
    /// Probabilities of each class of the model, in their order.
    pub probabilities: Vec<Float32Array>,
}

impl Predictions {
    /// Columns as `predict` writes them for a model of classes: the most probable class, then the
    /// probability of each.
    pub fn into_class_columns(self, classes: &ModelClasses) -> Vec<ArrayRef> {
        let mut columns = vec![classes.most_probable(&self.probabilities)];
        for probability in self.probabilities {
            columns.push(Arc::new(probability));
        }
        columns
    }
}

impl From<Float32Array> for Predictions {
    fn from(point: Float32Array) -> Self {
        Predictions {
            point,
            quantiles: Vec::new(),
            probabilities: Vec::new(),
        }
    }
}
