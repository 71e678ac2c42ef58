//! `robust_scale`: by median and quartiles.

use forebay_analyze::QuantileRequest as Wanted;
use forebay_model::{Result, scaled_distance};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, NumberExpr, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{
    ask_quantiles, bad_value, doubles, finding_at, float_type, map_doubles, output_field,
};

/// `(x - median) / (upper - lower)`, where lower and upper are quantiles, by default the quartiles.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. Null and
/// NaN stay and do not count; infinities count as values. Where upper equals lower, `x - median`.
/// Nothing seen: x unchanged. State: a sample of about `7.3 / epsilon^2` rows of 16 bytes, or the
/// distinct values, spilled beyond the budget. Follows scikit-learn's `RobustScaler`.
///
/// ```yaml
/// - robust_scale: { columns: [price], suffix: _scaled }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn robust_scale(columns), example = r#"robust_scale(["price"]).lower(0.1).upper(0.9)"#)]
pub struct RobustScale {
    /// Columns of numbers.
    pub columns: ColumnSelector,
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
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let request = Wanted::Probabilities(vec![self.lower, 0.5, self.upper]);
                let ask = ask_quantiles(field.name(), request, self.epsilon, self.exact)?;
                let out = float_type(field.data_type());
                let output = output_field(field, &self.suffix, out.clone());
                Ok(PlanOp::Map(MapOp::fitted(
                    [field.name()],
                    [output],
                    [ask],
                    move |findings| {
                        let values: Vec<Option<f64>> =
                            doubles(finding_at(findings, 0)?.column("value")?)?
                                .iter()
                                .collect();
                        let (median, lower, upper) = match values[..] {
                            [Some(lower), Some(median), Some(upper)] if upper == lower => {
                                (median, 0.0, 1.0)
                            }
                            [Some(lower), Some(median), Some(upper)] => (median, lower, upper),
                            _ => (0.0, 0.0, 1.0),
                        };
                        let out = out.clone();
                        let scaled = LoweredMap::unary(move |column| {
                            map_doubles(column, &out, |x| scaled_distance(x, median, lower, upper))
                        });
                        let form = (NumberExpr::Input - median) / (upper - lower);
                        Ok(scaled.portable_number(form))
                    },
                )))
            });
        each.collect()
    }
}
