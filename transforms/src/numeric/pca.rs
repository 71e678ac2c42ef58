//! `pca`: the directions in which columns vary most.

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use forebay_analyze::ColumnCovariance;
use forebay_model::{Fault, Finding, Result, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::eigen::{EigenPair, eigen_pairs};
use crate::shared::{bad_value, doubles, finding_at, float_type, to_float_type};

/// Principal components: `components` new columns, the coordinates of a row along the directions in which the columns
/// vary most.
///
/// In: columns of numbers, at most 256. Out: `<name>_1`, `<name>_2`, ... in the order of their variances, `float64` if
/// a column is, else `float32`; the columns stay. A direction is an eigenvector of the covariance matrix, whose entry
/// with the greatest absolute value is positive. `standardize` columns of different units before. With `center: false`
/// the directions are those of the products of the values as they are, as a truncated singular value decomposition has
/// them.
///
/// A row with a null gives null, one with NaN or an infinity NaN or an infinity; none of them counts. Nothing seen: the
/// first columns as they are. A covariance that no double holds is a fault. The covariances are exact sums of one pass.
/// State: at most 600 bytes for each pair of columns. Follows scikit-learn's `PCA` and `TruncatedSVD`, and tf.Transform's
/// `pca`, whose signs may differ.
///
/// ```yaml
/// - pca: { columns: [price, qty], components: 1 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn pca(columns, components),
    example = r#"pca(["red", "green", "blue"], 2).whiten(true)"#
)]
pub struct PrincipalComponents {
    /// Columns of numbers, which are one vector per row.
    pub columns: ColumnSelector,
    /// Number of new columns, at most that of the columns.
    pub components: usize,
    /// The begin of the names of the new columns.
    #[serde(default = "name")]
    pub name: String,
    /// Subtracts the means.
    #[serde(default = "yes")]
    pub center: bool,
    /// Divides each component by its standard deviation (ddof 1), unless that is 0 to rounding.
    #[serde(default)]
    pub whiten: bool,
}

fn name() -> String {
    "pca".to_owned()
}

fn yes() -> bool {
    true
}

/// Most columns. The time to find the directions grows with their cube: 256 take about a second.
const COLUMNS_MAX: usize = 256;

impl ConfiguredTransform for PrincipalComponents {
    const NAME: &'static str = "pca";
}

impl Transform for PrincipalComponents {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = scope.numeric_columns(&self.columns)?;
        let width = fields.len();
        if width > COLUMNS_MAX {
            let message = format!("`columns` are {width}, more than {COLUMNS_MAX}");
            return Err(bad_value(message).field("columns"));
        }
        if !(1..=width).contains(&self.components) {
            let components = self.components;
            let message = format!("`components` {components} is not between 1 and {width}");
            let fault = bad_value(message).field("components");
            return Err(fault.hint("there are at most as many components as columns"));
        }
        if self.whiten && !self.center {
            let fault = bad_value("`whiten` needs components around 0").field("whiten");
            return Err(fault.hint("leave out `center: false`"));
        }
        let is_double = |field: &&Field| float_type(field.data_type()) == DataType::Float64;
        let out_type = if fields.iter().any(is_double) {
            DataType::Float64
        } else {
            DataType::Float32
        };
        let is_nullable = fields.iter().any(|field| field.is_nullable());
        let outputs = (1..=self.components).map(|number| {
            Field::new(
                format!("{}_{number}", self.name),
                out_type.clone(),
                is_nullable,
            )
        });
        let outputs: Vec<Field> = outputs.collect();
        let names: Vec<&String> = fields.iter().map(|field| field.name()).collect();
        let covariance = ColumnCovariance { columns: width };
        let request = AnalyzerRequest::new(covariance, names.iter().copied());
        let config = self.clone();
        let map = MapOp::fitted(names, outputs, [request], move |findings| {
            let projection = config.projection(finding_at(findings, 0)?)?;
            let out_type = out_type.clone();
            Ok(LoweredMap::new(move |inputs, rows| {
                projection.apply(inputs, rows, &out_type)
            }))
        });
        Ok(vec![PlanOp::Map(map)])
    }
}

impl PrincipalComponents {
    /// The directions of a finding.
    fn projection(&self, finding: &Finding) -> Result<Projection> {
        let means = doubles(finding.column("mean")?)?;
        let width = means.len();
        let mut means: Vec<f64> = means.iter().map(Option::unwrap_or_default).collect();
        let mut matrix = Vec::with_capacity(width);
        for index in 0..width {
            let column = doubles(finding.column(&format!("covariance_{index}"))?)?;
            let mut row: Vec<f64> = column.iter().map(Option::unwrap_or_default).collect();
            if !self.center {
                for (entry, mean) in row.iter_mut().zip(&means) {
                    *entry += mean * means[index];
                }
            }
            if row.iter().any(|entry| !entry.is_finite()) {
                return Err(lost_covariance());
            }
            matrix.push(row);
        }
        if !self.center {
            means.fill(0.0);
        }
        let rows = finding.number("count")?.unwrap_or(0.0);
        let pairs = eigen_pairs(matrix);
        // What is below this is the rounding of the greatest one.
        let greatest = pairs.first().map_or(0.0, |pair| pair.value);
        let variance_min = greatest * f64::EPSILON * width as f64;
        let mut directions = Vec::with_capacity(self.components);
        for EigenPair { value, mut vector } in pairs.into_iter().take(self.components) {
            if self.whiten && rows > 1.0 && value > variance_min {
                let deviation = (value * (rows / (rows - 1.0))).sqrt();
                vector.iter_mut().for_each(|entry| *entry /= deviation);
            }
            directions.push(vector);
        }
        Ok(Projection { means, directions })
    }
}

fn lost_covariance() -> Fault {
    let message = "the covariances of the columns of `pca` are beyond float64";
    Fault::new(codes::OVERFLOW, message).hint("divide the columns by their magnitude before")
}

/// Coordinates of rows along directions.
struct Projection {
    means: Vec<f64>,
    directions: Vec<Vec<f64>>,
}

impl Projection {
    fn apply(
        &self,
        inputs: &[ArrayRef],
        rows: usize,
        out_type: &DataType,
    ) -> Result<Vec<ArrayRef>> {
        let mut columns = Vec::with_capacity(inputs.len());
        let mut nulls = None;
        for input in inputs {
            let column = doubles(input)?;
            nulls = NullBuffer::union(nulls.as_ref(), column.nulls());
            columns.push(column);
        }
        let mut outputs = Vec::with_capacity(self.directions.len());
        for direction in &self.directions {
            let mut coordinates = vec![0.0; rows];
            for ((column, mean), weight) in columns.iter().zip(&self.means).zip(direction) {
                for (coordinate, value) in coordinates.iter_mut().zip(column.values()) {
                    *coordinate += (value - mean) * weight;
                }
            }
            let coordinates = Float64Array::new(coordinates.into(), nulls.clone());
            outputs.push(to_float_type(coordinates, out_type));
        }
        Ok(outputs)
    }
}
