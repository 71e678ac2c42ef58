//! `power`: a power transformation toward a normal distribution.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use forebay_analyze::{ColumnMoments, PowerFamily, PowerFit, SampledStatistic};
use forebay_contract::NumberExpr;
use forebay_model::{Fault, Finding, Result, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    bad_value, doubles, finding_at, float_type, keyed_moments, map_doubles, output_field,
};

/// A power of x that makes the column most like a normal distribution, with mean 0 and variance 1.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. `yeo_johnson` takes all
/// numbers: `((1 + x)^l - 1) / l` from 0 on, `-((1 - x)^(2 - l) - 1) / (2 - l)` below. `box_cox` takes numbers above 0:
/// `(x^l - 1) / l`. The exponent l, from -10 to 10, is the one with the greatest likelihood; it, the mean and the
/// variance (ddof 0) are those of a sample, which is all rows up to about `7.3 / epsilon^2`.
///
/// Null stays null and NaN stays NaN; neither counts, and neither do infinities. For `box_cox`, a value of 0 or less is
/// a fault where it is learned from, and gives -inf or NaN elsewhere, which is counted. Values that are all equal have the exponent 1 and
/// give 0. Nothing seen: the exponent 1, and neither centred nor scaled. Powers that no double holds are a fault.
/// State: a sample of rows of 16 bytes. Follows scikit-learn's `PowerTransformer`.
///
/// ```yaml
/// - power: { columns: [price], suffix: _normal }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn power(columns), example = r#"power(["price"]).method(PowerMethod::BoxCox)"#)]
pub struct PowerTransform {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The transformation.
    #[serde(default)]
    pub method: PowerMethod,
    /// Subtracts the mean of the transformed values and divides by their standard deviation.
    #[serde(default = "yes")]
    pub standardize: bool,
    /// The rank error of the sample, as a share of the rows.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn yes() -> bool {
    true
}

fn epsilon() -> f64 {
    0.01
}

/// A family of power transformations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PowerMethod {
    /// For all numbers.
    #[default]
    YeoJohnson,
    /// For numbers above 0.
    BoxCox,
}

impl PowerMethod {
    fn family(self) -> PowerFamily {
        match self {
            PowerMethod::YeoJohnson => PowerFamily::YeoJohnson,
            PowerMethod::BoxCox => PowerFamily::BoxCox,
        }
    }
}

impl ConfiguredTransform for PowerTransform {
    const NAME: &'static str = "power";
}

impl Transform for PowerTransform {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            return Err(bad_value(format!(
                "`epsilon` {} is not between 0 and 1",
                self.epsilon
            )));
        }
        let family = self.method.family();
        let standardize = self.standardize;
        let fit = SampledStatistic(PowerFit {
            family,
            epsilon: self.epsilon,
        });
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            let requests = [
                AnalyzerRequest::new(fit.clone(), [field.name()]),
                AnalyzerRequest::new(ColumnMoments, [field.name()]),
            ];
            let out_type = float_type(field.data_type());
            let output = output_field(field, &self.suffix, out_type.clone());
            let column = field.name().clone();
            let map = MapOp::fitted([field.name()], [output], requests, move |findings| {
                if family == PowerFamily::BoxCox {
                    refuse_not_positive(finding_at(findings, 1)?, &column)?;
                }
                let fitted = FittedPower::of(finding_at(findings, 0)?, family, standardize);
                let fitted = fitted.map_err(|fault| fault.column(&column))?;
                Ok(fitted.kernel(&out_type))
            });
            ops.push(PlanOp::Map(map));
        }
        Ok(ops)
    }
}

/// A transformation with its exponent.
#[derive(Clone, Copy)]
struct FittedPower {
    family: PowerFamily,
    lambda: f64,
    mean: f64,
    deviation: f64,
}

impl FittedPower {
    fn of(finding: &Finding, family: PowerFamily, standardize: bool) -> Result<FittedPower> {
        let number = |name: &str| -> Result<Option<f64>> {
            let column = doubles(finding.column(name)?)?;
            Ok(column.iter().next().flatten())
        };
        let lambda = number("lambda")?.unwrap_or(1.0);
        let mean = number("mean")?.unwrap_or(0.0);
        let deviation = number("deviation")?.unwrap_or(1.0);
        if !(mean.is_finite() && deviation.is_finite()) {
            let message =
                format!("powers of the column with the exponent {lambda} are beyond float64");
            let hint = "divide the column by its magnitude before, or `winsorize` it";
            return Err(Fault::new(codes::OVERFLOW, message).hint(hint));
        }
        let is_scaled = standardize && deviation > 0.0;
        Ok(FittedPower {
            family,
            lambda,
            mean: if standardize { mean } else { 0.0 },
            deviation: if is_scaled { deviation } else { 1.0 },
        })
    }

    fn kernel(self, out_type: &DataType) -> LoweredMap {
        let out_type = out_type.clone();
        let power = match self.family {
            PowerFamily::BoxCox => NumberExpr::Input.box_cox(self.lambda),
            PowerFamily::YeoJohnson => NumberExpr::Input.yeo_johnson(self.lambda),
        };
        let form = (power - self.mean) / self.deviation;
        let transformed = LoweredMap::unary(move |column: &ArrayRef| {
            map_doubles(column, &out_type, |x| {
                (self.family.transform(x, self.lambda) - self.mean) / self.deviation
            })
        });
        transformed.portable_number(form)
    }
}

/// Refuses a column with values of 0 or less, which have no logarithm.
fn refuse_not_positive(moments: &Finding, column: &str) -> Result<()> {
    let moments = keyed_moments(moments)?;
    let least = moments.first().and_then(|moments| moments.min);
    match least {
        Some(least) if least <= 0.0 => {
            let message = format!("`{column}` holds {least}, and `box_cox` takes numbers above 0");
            Err(Fault::new(codes::OVERFLOW, message)
                .column(column)
                .hint("use `method: yeo_johnson`, or filter such rows"))
        }
        _ => Ok(()),
    }
}
