//! `normal_quantiles`: ranks as values of a normal distribution.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::DataType;
use forebay_analyze::QuantileRequest;
use forebay_model::{Fault, Finding, Result, lerp};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp, RowMark, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::normal::{normal_probability, normal_quantile};
use crate::shared::{
    ask_quantiles, bad_value, doubles, finding_at, float_type, map_doubles, mark_outside,
    output_field,
};

/// The rank of x among the data as a value of the standard normal distribution: the median gives 0, and about two
/// thirds of the values lie in [-1, 1], whatever their distribution was.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. The rank is interpolated
/// between `q` quantiles from the least to the greatest value; equal values have the middle of their ranks. What lies
/// at or beyond the least and the greatest value, or nearer to it than 1e-7, gives -5.1993 and 5.1993, the values of the
/// ranks 1e-7 and 1 - 1e-7: `standardize` columns of such small numbers before.
/// Null stays null and NaN stays NaN; neither counts, infinities do. Nothing seen: 0. State: a sample of about `7.3 /
/// epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget. Follows scikit-learn's
/// `QuantileTransformer` with `output_distribution="normal"`.
///
/// ```yaml
/// - normal_quantiles: { columns: [price], suffix: _normal }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn normal_quantiles(columns), example = r#"normal_quantiles(["price"]).q(100)"#)]
pub struct NormalQuantiles {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Number of quantiles, the least and the greatest value among them; 2 to 100,000.
    #[serde(default = "thousand")]
    pub q: u32,
    /// The rank error of the quantiles, as a share of the rows.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Takes the quantiles exactly; the state then grows with the distinct values.
    #[serde(default)]
    pub exact: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn thousand() -> u32 {
    1_000
}

fn epsilon() -> f64 {
    0.01
}

/// Values nearer than this to the least or the greatest count as these.
const NEAR: f64 = 1e-7;

/// Ranks nearer to 0 or 1 become this, since the values of 0 and 1 are infinite. scikit-learn's number.
const RANK_MIN: f64 = 1e-7 - f64::EPSILON;

impl ConfiguredTransform for NormalQuantiles {
    const NAME: &'static str = "normal_quantiles";
}

impl Transform for NormalQuantiles {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(2..=100_000).contains(&self.q) {
            let message = format!("`q` {} is not between 2 and 100000", self.q);
            return Err(bad_value(message));
        }
        let last = f64::from(self.q - 1);
        let probabilities: Vec<f64> = (0..self.q).map(|k| f64::from(k) / last).collect();
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            let request = QuantileRequest::Probabilities(probabilities.clone());
            let request = ask_quantiles(field.name(), request, self.epsilon, self.exact)?;
            let out_type = float_type(field.data_type());
            let output = output_field(field, &self.suffix, out_type.clone());
            let map = MapOp::fitted([field.name()], [output], [request], move |findings| {
                normal_ranks(finding_at(findings, 0)?, &out_type)
            });
            ops.push(PlanOp::Map(map.marking([RowMark::Ended])));
        }
        Ok(ops)
    }
}

/// A kernel that places values among the quantiles of a finding, and marks those beyond them.
fn normal_ranks(finding: &Finding, out_type: &DataType) -> Result<LoweredMap> {
    let learned = doubles(finding.column("value")?)?;
    let mut quantiles = Vec::new();
    if learned.null_count() == 0 {
        quantiles.extend_from_slice(learned.values());
    }
    let least = quantiles.first().copied().unwrap_or(f64::NEG_INFINITY);
    let greatest = quantiles.last().copied().unwrap_or(f64::INFINITY);
    let out_type = out_type.clone();
    let learned_quantiles = Arc::new(quantiles);
    let quantiles = learned_quantiles.clone();
    let transformed = LoweredMap::new(move |inputs, _| {
        let [column] = inputs else {
            return Err(Fault::internal("quantiles received other columns"));
        };
        let ranks = map_doubles(column, &out_type, |x| {
            if x.is_nan() {
                return x;
            }
            normal_quantile(rank_among(&quantiles, x).clamp(RANK_MIN, 1.0 - RANK_MIN))
        })?;
        let marks = mark_outside(column, [least, greatest])?;
        Ok(vec![ranks, marks])
    });
    Ok(transformed.way_back(move |z| value_at_rank(&learned_quantiles, normal_probability(z))))
}

/// The value at a rank among sorted quantiles, the inverse of [`rank_among`]; NaN if there are none.
fn value_at_rank(quantiles: &[f64], rank: f64) -> f64 {
    let Some(last) = quantiles.len().checked_sub(1) else {
        return f64::NAN;
    };
    if rank.is_nan() {
        return rank;
    }
    if rank <= NEAR {
        return quantiles[0];
    }
    if rank >= 1.0 - NEAR {
        return quantiles[last];
    }
    let position = rank * last as f64;
    let index = (position as usize).min(last);
    let share = position - index as f64;
    match quantiles.get(index + 1) {
        Some(next) => lerp(quantiles[index], *next, share),
        None => quantiles[last],
    }
}

/// The place of x among sorted quantiles from 0 to 1; of equal quantiles the middle one.
fn rank_among(quantiles: &[f64], x: f64) -> f64 {
    let Some(least) = quantiles.first() else {
        return 0.5;
    };
    let Some(greatest) = quantiles.last() else {
        return 0.5;
    };
    // Near the ends scikit-learn decides in this way as well, the lower end last.
    // Nothing is nearer to an infinity than that itself.
    let is_infinite = x.is_infinite();
    if x - NEAR < *least || (is_infinite && x == *least) {
        return 0.0;
    }
    if x + NEAR > *greatest || (is_infinite && x == *greatest) {
        return 1.0;
    }
    let below = quantiles.partition_point(|quantile| *quantile < x);
    let not_above = quantiles.partition_point(|quantile| *quantile <= x);
    let last = (quantiles.len() - 1) as f64;
    if below < not_above {
        // The first and the last of the equal ones.
        return (below + not_above - 1) as f64 / 2.0 / last;
    }
    let lower = quantiles[below - 1];
    let share = (x - lower) / (quantiles[below] - lower);
    let share = if share.is_finite() { share } else { 0.0 };
    ((below - 1) as f64 + share) / last
}
