//! `robust_scale`: by the median, and by quartiles or the median distance from it.

use arrow::array::Array;
use arrow::datatypes::{DataType, Field};
use forebay_analyze::QuantileRequest;
use forebay_contract::NumberExpr;
use forebay_model::{Finding, Result, scaled_distance};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::median_deviation::{deviation_name, deviation_op, first_quantile, normal_deviation};
use crate::shared::{
    ask_quantiles, bad_value, doubles, finding_at, float_type, map_doubles, output_field,
    output_name,
};
use crate::time::hide_helper_columns;

/// `(x - median) / (upper - lower)`, where lower and upper are quantiles, by default the quartiles.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. Null and
/// NaN stay and do not count; infinities count as values. Where upper equals lower, `x - median`.
/// Nothing seen: x unchanged. State: a sample of about `7.3 / epsilon^2` rows of 16 bytes, or the
/// distinct values, spilled beyond the budget. Follows scikit-learn's `RobustScaler`.
///
/// With `spread: mad`, the divisor is the median absolute deviation: the median of `|x - median|`, divided by 0.6745,
/// so that it is the standard deviation of a normal distribution. Where it is 0, `x - median`. The deviations are read
/// after the median is known, and have a state of their own. Follows scipy's `median_abs_deviation` with
/// `scale="normal"`.
///
/// ```yaml
/// - robust_scale: { columns: [price], suffix: _scaled }
/// - robust_scale: { columns: [price], spread: mad }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn robust_scale(columns), example = r#"robust_scale(["price"]).lower(0.1).upper(0.9)"#)]
pub struct RobustScale {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The number by which distances from the median are divided.
    #[serde(default, skip_serializing_if = "RobustSpread::is_quantiles")]
    pub spread: RobustSpread,
    /// The lower quantile, as a probability.
    #[serde(default = "lower")]
    pub lower: f64,
    /// The upper quantile, as a probability.
    #[serde(default = "upper")]
    pub upper: f64,
    /// The rank error, as a share of the rows.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Takes the quantiles exactly; the state then grows with the distinct values.
    #[serde(default)]
    pub exact: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn lower() -> f64 {
    0.25
}

fn upper() -> f64 {
    0.75
}

fn epsilon() -> f64 {
    0.01
}

/// The number by which distances from the median are divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RobustSpread {
    /// The distance of the quantiles `lower` and `upper`.
    #[default]
    Quantiles,
    /// The median absolute deviation, divided by 0.6745.
    Mad,
}

impl RobustSpread {
    fn is_quantiles(&self) -> bool {
        *self == RobustSpread::Quantiles
    }
}

impl ConfiguredTransform for RobustScale {
    const NAME: &'static str = "robust_scale";
}

impl Transform for RobustScale {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(0.0 <= self.lower && self.lower < self.upper && self.upper <= 1.0) {
            return Err(bad_value(
                "`lower` and `upper` are probabilities, `lower` below `upper`",
            ));
        }
        match self.spread {
            RobustSpread::Quantiles => self.bind_quantiles(scope),
            RobustSpread::Mad => self.bind_mad(scope),
        }
    }
}

impl RobustScale {
    fn bind_quantiles(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            let probabilities = vec![self.lower, 0.5, self.upper];
            let request = self.request(field.name(), probabilities)?;
            let out_type = float_type(field.data_type());
            let output = output_field(field, &self.suffix, out_type.clone());
            let map = MapOp::fitted([field.name()], [output], [request], move |findings| {
                Ok(quantile_scaler(finding_at(findings, 0)?)?.kernel(&out_type))
            });
            ops.push(PlanOp::Map(map));
        }
        Ok(ops)
    }

    fn bind_mad(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.lower != lower() || self.upper != upper() {
            let fault = bad_value("`lower` and `upper` are for `spread: quantiles`");
            return Err(fault.hint("leave out `spread`, or the two quantiles"));
        }
        let mut ops = Vec::new();
        let mut names = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            let median = self.request(field.name(), vec![0.5])?;
            ops.push(deviation_op(field, median));
            ops.push(PlanOp::Map(self.mad_map(field)?));
            names.push(output_name(field.name(), &self.suffix));
        }
        ops.push(hide_helper_columns(scope, names));
        Ok(ops)
    }

    fn request(&self, column: &str, probabilities: Vec<f64>) -> Result<AnalyzerRequest> {
        let request = QuantileRequest::Probabilities(probabilities);
        ask_quantiles(column, request, self.epsilon, self.exact)
    }

    /// Scales a column by the median of the column of its deviations.
    fn mad_map(&self, field: &Field) -> Result<MapOp> {
        let requests = [
            self.request(field.name(), vec![0.5])?,
            self.request(&deviation_name(field.name()), vec![0.5])?,
        ];
        let out_type = float_type(field.data_type());
        let output = output_field(field, &self.suffix, out_type.clone());
        Ok(MapOp::fitted(
            [field.name()],
            [output],
            requests,
            move |findings| {
                let median = first_quantile(finding_at(findings, 0)?)?.unwrap_or(0.0);
                let spread = normal_deviation(finding_at(findings, 1)?)?.unwrap_or(0.0);
                let scaler = RobustScaler {
                    median,
                    lower: 0.0,
                    upper: if spread > 0.0 { spread } else { 1.0 },
                };
                Ok(scaler.kernel(&out_type))
            },
        ))
    }
}

/// The scaler of three quantiles: `lower`, the median and `upper`.
fn quantile_scaler(finding: &Finding) -> Result<RobustScaler> {
    let quantiles = doubles(finding.column("value")?)?;
    if quantiles.len() != 3 || quantiles.null_count() > 0 {
        return Ok(RobustScaler {
            median: 0.0,
            lower: 0.0,
            upper: 1.0,
        });
    }
    let lower = quantiles.value(0);
    let upper = quantiles.value(2);
    let is_flat = upper == lower;
    Ok(RobustScaler {
        median: quantiles.value(1),
        lower: if is_flat { 0.0 } else { lower },
        upper: if is_flat { 1.0 } else { upper },
    })
}

/// `(x - median) / (upper - lower)`.
#[derive(Clone, Copy)]
struct RobustScaler {
    median: f64,
    lower: f64,
    upper: f64,
}

impl RobustScaler {
    fn kernel(self, out_type: &DataType) -> LoweredMap {
        let out_type = out_type.clone();
        let scaled = LoweredMap::unary(move |column| {
            map_doubles(column, &out_type, |x| {
                scaled_distance(x, self.median, self.lower, self.upper)
            })
        });
        let form = (NumberExpr::Input - self.median) / (self.upper - self.lower);
        scaled.portable_number(form)
    }
}
