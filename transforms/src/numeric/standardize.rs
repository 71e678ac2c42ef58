//! `standardize`: the z-score.

use forebay_contract::NumberExpr;
use forebay_model::{Fault, Result, codes};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{KeyedMoments, MomentScaler, bad_value, scale_by_moments};

/// The z-score, `(x - mean) / sqrt(var)`, over all values or for each key.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`, computed
/// in doubles and rounded once. State: about 6 KiB per column; with `by`, some 300 bytes per key,
/// spilled beyond the budget.
///
/// Null stays null and NaN stays NaN; neither counts. An infinity in the data makes the mean infinite and the result
/// NaN or infinite. Values whose squares no double holds (1e200) are a fault. Nothing seen: mean 0, variance 0. A key
/// that was not seen leaves x unchanged; null is a key of its own. Follows tf.Transform's `scale_to_z_score`,
/// scikit-learn with `zero_variance: zero`. With `spread: range`, the divisor is `max - min`, as in feature_engine's
/// `MeanNormalizationScaler`, which refuses columns whose values are all equal.
///
/// ```yaml
/// - standardize: { columns: [price], by: [category] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn standardize(columns), example = r#"standardize(["price"]).by(["category"])"#)]
pub struct Standardize {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Key columns: statistics are taken for each of their values.
    #[serde(default)]
    pub by: Vec<String>,
    /// The number by which distances from the mean are divided.
    #[serde(default, skip_serializing_if = "MeanSpread::is_deviation")]
    pub spread: MeanSpread,
    /// The variance divides by `n - ddof`; where that is not above 0 the variance counts as 0.
    #[serde(default)]
    pub ddof: u32,
    /// What comes out where the variance is 0.
    #[serde(default)]
    pub zero_variance: ZeroVariance,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// The number by which distances from the mean are divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeanSpread {
    /// The standard deviation.
    #[default]
    Deviation,
    /// The distance of the greatest value from the least.
    Range,
}

impl MeanSpread {
    fn is_deviation(&self) -> bool {
        *self == MeanSpread::Deviation
    }
}

/// What comes out where the variance is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroVariance {
    /// `x - mean`, as in tf.Transform.
    #[default]
    Centre,
    /// 0, as in Spark. NaN stays NaN.
    Zero,
}

impl ConfiguredTransform for Standardize {
    const NAME: &'static str = "standardize";
}

/// Subtract, divide, then multiply: a product with 0 or 1.
#[derive(Clone, Copy)]
struct ZScoreScaler {
    mean: f64,
    deviation: f64,
    factor: f64,
}

impl MomentScaler for ZScoreScaler {
    #[inline]
    fn scale(self, x: f64) -> f64 {
        (x - self.mean) / self.deviation * self.factor
    }

    fn portable(self) -> NumberExpr {
        (NumberExpr::Input - self.mean) / self.deviation * self.factor
    }
}

/// Refuses numbers whose squares no double holds: all of their scores would be 0, or their distances from the mean.
fn refuse_lost_variance(learned: &KeyedMoments, var: f64) -> Result<()> {
    let Some(min) = learned.min else {
        return Ok(());
    };
    let Some(max) = learned.max else {
        return Ok(());
    };
    let differ = min < max && min.is_finite() && max.is_finite();
    let is_lost = var.is_infinite() || learned.var == Some(0.0);
    if !differ || !is_lost {
        return Ok(());
    }
    let message = format!("the variance of values from {min:e} to {max:e} is beyond float64");
    Err(Fault::new(codes::OVERFLOW, message).hint("divide the column by its magnitude before"))
}

/// The standard deviation; 0 where there is none.
fn deviation_of(learned: &KeyedMoments, ddof: u64) -> Result<f64> {
    let freedom = learned.count.saturating_sub(ddof);
    let var = match learned.var {
        Some(var) if freedom > 0 && ddof > 0 => var * (learned.count as f64 / freedom as f64),
        Some(var) if freedom > 0 => var,
        _ => 0.0,
    };
    refuse_lost_variance(learned, var)?;
    Ok(var.sqrt())
}

/// The distance of the greatest value from the least; 0 where there are none.
fn range_of(learned: &KeyedMoments) -> Result<f64> {
    let min = learned.min.unwrap_or(0.0);
    let max = learned.max.unwrap_or(0.0);
    let range = max - min;
    if range.is_finite() || !(min.is_finite() && max.is_finite()) {
        return Ok(range);
    }
    let message = format!("the range of values from {min:e} to {max:e} is beyond float64");
    Err(Fault::new(codes::OVERFLOW, message).hint("divide the column by its magnitude before"))
}

impl Transform for Standardize {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.spread == MeanSpread::Range && self.ddof > 0 {
            let fault = bad_value("`ddof` is for the standard deviation").field("ddof");
            return Err(fault.hint("leave out `spread: range`, or `ddof`"));
        }
        let fields = scope.numeric_columns(&self.columns)?;
        let ddof = u64::from(self.ddof);
        let spread = self.spread;
        let zero_variance = self.zero_variance;
        let scaler = move |learned: &KeyedMoments| {
            let mean = learned.mean.unwrap_or(0.0);
            let deviation = match spread {
                MeanSpread::Deviation => deviation_of(learned, ddof)?,
                MeanSpread::Range => range_of(learned)?,
            };
            Ok(match (deviation == 0.0, zero_variance) {
                (false, _) => ZScoreScaler {
                    mean,
                    deviation,
                    factor: 1.0,
                },
                (true, ZeroVariance::Centre) => ZScoreScaler {
                    mean,
                    deviation: 1.0,
                    factor: 1.0,
                },
                (true, ZeroVariance::Zero) => ZScoreScaler {
                    mean,
                    deviation: 1.0,
                    factor: 0.0,
                },
            })
        };
        let unseen = ZScoreScaler {
            mean: 0.0,
            deviation: 1.0,
            factor: 1.0,
        };
        fields
            .into_iter()
            .map(|field| scale_by_moments(scope, field, &self.by, &self.suffix, scaler, unseen))
            .collect()
    }
}
