//! `normalize`: rows of unit norm.

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{doubles, float_type, output_field, to_float_type};

/// Divides the columns of each row by their norm: `x_i / |x|`.
///
/// In: columns of numbers, which are one vector per row. Out: a column for each; doubles stay doubles, all other
/// numbers give `float32`, computed in doubles and rounded once. Null stays null and NaN stays NaN; neither counts
/// toward the norm. A row whose norm is 0, and one without any value, stays as it is. An infinity makes the finite
/// values of its row 0 and itself NaN. Learns nothing. Follows scikit-learn's `Normalizer`, which refuses missing
/// values.
///
/// ```yaml
/// - normalize: { columns: [qty, price], norm: l1, suffix: _share }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn normalize(columns),
    example = r#"normalize(["red", "green", "blue"]).norm(VectorNorm::L1)"#
)]
pub struct Normalize {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The length of a row.
    #[serde(default)]
    pub norm: VectorNorm,
    /// Writes `<column><suffix>` instead of replacing the columns.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// The length of a vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VectorNorm {
    /// The sum of the absolute values.
    L1,
    /// The root of the sum of the squares.
    #[default]
    L2,
    /// The greatest absolute value.
    Max,
}

impl ConfiguredTransform for Normalize {
    const NAME: &'static str = "normalize";
}

impl Transform for Normalize {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = scope.numeric_columns(&self.columns)?;
        let names: Vec<&String> = fields.iter().map(|field| field.name()).collect();
        let mut outputs: Vec<Field> = Vec::new();
        for field in &fields {
            let out_type = float_type(field.data_type());
            outputs.push(output_field(field, &self.suffix, out_type));
        }
        let out_types: Vec<DataType> = outputs
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let norm = self.norm;
        let map = MapOp::new(names, outputs, move |inputs, rows| {
            normalize_rows(inputs, rows, norm, &out_types)
        });
        Ok(vec![PlanOp::Map(map)])
    }
}

fn normalize_rows(
    inputs: &[ArrayRef],
    rows: usize,
    norm: VectorNorm,
    out_types: &[DataType],
) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::with_capacity(inputs.len());
    for input in inputs {
        columns.push(doubles(input)?);
    }
    let norms = norm.of_rows(&columns, rows);
    let mut outputs = Vec::with_capacity(columns.len());
    for (column, out_type) in columns.iter().zip(out_types) {
        let pairs = column.values().iter().zip(&norms);
        let values: Vec<f64> = pairs.map(|(value, length)| value / length).collect();
        let values = Float64Array::new(values.into(), column.nulls().cloned());
        outputs.push(to_float_type(values, out_type));
    }
    Ok(outputs)
}

impl VectorNorm {
    /// The norm of each row, 1 where it is 0. Column by column, so that the order of sums is that of the columns.
    fn of_rows(self, columns: &[Float64Array], rows: usize) -> Vec<f64> {
        let mut norms = vec![0.0_f64; rows];
        for column in columns {
            for (row, norm) in norms.iter_mut().enumerate() {
                let value = column.value(row).abs();
                if column.is_null(row) || value.is_nan() {
                    continue;
                }
                match self {
                    VectorNorm::L1 => *norm += value,
                    VectorNorm::L2 => *norm += value * value,
                    VectorNorm::Max => *norm = norm.max(value),
                }
            }
        }
        for norm in &mut norms {
            if self == VectorNorm::L2 {
                *norm = norm.sqrt();
            }
            if *norm == 0.0 {
                *norm = 1.0;
            }
        }
        norms
    }
}
