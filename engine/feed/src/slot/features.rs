//! Parts of a batch and their columns.

use forebay_model::DuplicateRows;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of dense features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenseType {
    /// Four bytes.
    #[default]
    F32,
    /// Two bytes, eleven bits of precision.
    F16,
    /// Two bytes, the range of `f32`, eight bits of precision.
    Bf16,
}

/// The type of categorical features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoricalType {
    /// Four bytes.
    I32,
    /// Eight bytes: what embeddings of PyTorch ask for.
    #[default]
    I64,
}

/// Treatment of dense values, labels and weights that are not finite; they are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// A fault that names the rows.
    #[default]
    Fail,
    /// The value is zero, and the row has mask 0 and weight 0: shapes are fixed, and so is the
    /// number of batches.
    Skip,
    /// The value is zero.
    Zero,
}

/// One column of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureField {
    /// Its name.
    pub column: String,
    /// Values per row: more than one for columns of lists.
    #[serde(default = "one")]
    pub width: u32,
    /// Replaces a missing value; without it, a missing value is a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
}

fn one() -> u32 {
    1
}

fn is_false(value: &bool) -> bool {
    !value
}

impl FeatureField {
    /// A column of single values that are never missing.
    pub fn new(column: impl Into<String>) -> FeatureField {
        FeatureField {
            column: column.into(),
            width: 1,
            missing: None,
        }
    }

    /// Sets the replacement of missing values.
    pub fn missing(self, value: f64) -> FeatureField {
        FeatureField {
            missing: Some(value),
            ..self
        }
    }
}

/// Sequence batches: each row comes with the rows before it in its series.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceOptions {
    /// Most rows, the row itself included. Where there are fewer, the first steps have
    /// mask 0 and values 0.
    pub steps: u32,
    /// The columns that tell series apart.
    pub keys: Vec<String>,
    /// The column of times. Without it, the rows of each series come in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Longest time that steps may lie back, in ticks of the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<i64>,
    /// The column of booleans that tells which rows of a block are delivered; the others are what
    /// series had before. Without it, those after the block's halo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<String>,
    /// Treatment of rows with the same keys and the same time. It changes no batch, so it is no part of what is stored.
    #[serde(skip)]
    pub duplicates: DuplicateRows,
}

/// The columns of a batch and their types.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchFeatures {
    /// Dense features, side by side in row-major order.
    pub dense: Vec<FeatureField>,
    /// Their type.
    pub dense_type: DenseType,
    /// Categorical features, already ids.
    pub categorical: Vec<FeatureField>,
    /// Their type.
    pub categorical_type: CategoricalType,
    /// The label, `f32`.
    pub label: Option<FeatureField>,
    /// True if the label is read as it is, such as names of classes. Batches cannot be made of it.
    #[serde(skip_serializing_if = "is_false")]
    pub label_as_is: bool,
    /// The weight, `f32`.
    pub weight: Option<FeatureField>,
    /// Columns that are read with the others and are no part of batches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Batches of sequences.
    pub series: Option<SequenceOptions>,
    /// Treatment of values that are not finite.
    pub non_finite: NonFinite,
}

impl BatchFeatures {
    /// The columns that must be read, in this order: dense, categorical, label, weight, those beside them, keys,
    /// time, and which rows are delivered.
    pub fn columns(&self) -> Vec<String> {
        let features = self.dense.iter().chain(&self.categorical);
        let fields = features.chain(&self.label).chain(&self.weight);
        let mut columns: Vec<String> = fields.map(|field| field.column.clone()).collect();
        columns.extend(self.beside.iter().cloned());
        if let Some(series) = &self.series {
            columns.extend(series.keys.iter().cloned());
            columns.extend(series.time.clone());
            columns.extend(series.delivered.clone());
        }
        columns
    }

    /// Counts by feature, in the order of [`BatchFeatures::columns`], with the names of their columns; without zeros.
    pub fn named_counts(&self, counts: &[u64]) -> Vec<(String, u64)> {
        let mut named = Vec::new();
        for (column, count) in self.columns().into_iter().zip(counts) {
            if *count > 0 {
                named.push((column, *count));
            }
        }
        named
    }

    /// Steps of a row: one without series.
    pub fn steps(&self) -> usize {
        match &self.series {
            Some(series) => series.steps as usize,
            None => 1,
        }
    }
}

/// Values per row of several fields.
pub(super) fn total_width(fields: &[FeatureField]) -> usize {
    fields.iter().map(|field| field.width as usize).sum()
}
