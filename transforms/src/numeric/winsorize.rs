//! `winsorize`: bounds for numbers, learned from quantiles.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use forebay_analyze::QuantileRequest;
use forebay_model::{Finding, Result, RowChange};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, NumberExpr, PlanOp,
    Transform, ValueCount,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clip::{clip_column, clipped_type, count_moved};
use crate::shared::{ask_quantiles, bad_value, doubles, finding_at, output_field};

/// Values below a learned quantile become that quantile, and values above another one become that one.
///
/// In: columns of numbers. Out: the same types; decimals give `float64`. Bounds of integers are rounded outward to
/// whole numbers. Null stays null and NaN stays NaN; neither counts. Infinities count and are moved to the bounds,
/// unless a bound is infinite itself. Nothing seen: x unchanged. Values that are moved are counted as clipped.
/// Quantiles are interpolated linearly, as in numpy and pandas. With `fold`, the bounds lie beyond the quantiles, by so
/// many of their distances: `lower: 0.25, upper: 0.75, fold: 1.5` are the whiskers of a box plot. State: a sample of
/// about `7.3 / epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget. Follows feature_engine's
/// `Winsorizer` with quantiles and, with `fold`, with `"iqr"`.
///
/// ```yaml
/// - winsorize: { columns: [price], lower: 0.01, upper: 0.99 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn winsorize(columns), example = r#"winsorize(["price"]).lower(0.05).upper(0.95)"#)]
pub struct Winsorize {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The lower quantile, as a probability; 0 bounds by the least value that was seen.
    #[serde(default = "lower")]
    pub lower: f64,
    /// The upper quantile, as a probability; 1 bounds by the greatest value that was seen.
    #[serde(default = "upper")]
    pub upper: f64,
    /// The distance of the bounds from the quantiles, in distances of the quantiles from each other; none where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<f64>,
    /// The rank error, as a share of the rows; in the tails of the distribution it is smaller.
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
    0.05
}

fn upper() -> f64 {
    0.95
}

fn epsilon() -> f64 {
    0.01
}

impl ConfiguredTransform for Winsorize {
    const NAME: &'static str = "winsorize";
}

impl Transform for Winsorize {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(0.0 <= self.lower && self.lower < self.upper && self.upper <= 1.0) {
            return Err(bad_value(
                "`lower` and `upper` are probabilities, `lower` below `upper`",
            ));
        }
        let fold = self.fold.unwrap_or(0.0);
        if !(fold >= 0.0 && fold.is_finite()) {
            return Err(bad_value(format!("`fold` {fold} is not a distance")).field("fold"));
        }
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            let request = QuantileRequest::Probabilities(vec![self.lower, self.upper]);
            let request = ask_quantiles(field.name(), request, self.epsilon, self.exact)?;
            let out_type = clipped_type(field.data_type());
            let output = output_field(field, &self.suffix, out_type.clone());
            let map = MapOp::fitted([field.name()], [output], [request], move |findings| {
                lower_bounds(finding_at(findings, 0)?, fold, &out_type)
            });
            let moved = ValueCount::new(RowChange::Clipped, count_moved);
            ops.push(PlanOp::Map(map.counting(moved)));
        }
        Ok(ops)
    }
}

/// Clips to the two quantiles of a finding, or to bounds beyond them; leaves values as they are where nothing was seen.
fn lower_bounds(finding: &Finding, fold: f64, out_type: &DataType) -> Result<LoweredMap> {
    let quantiles = doubles(finding.column("value")?)?;
    let is_seen = quantiles.len() == 2 && quantiles.null_count() == 0;
    let mut min = f64::NEG_INFINITY;
    let mut max = f64::INFINITY;
    if is_seen {
        // Between both infinities lies no number: such a bound moves nothing.
        min = quantiles.value(0).max(f64::NEG_INFINITY);
        max = quantiles.value(1).min(f64::INFINITY);
        // Equal quantiles, which may be infinite, have no distance.
        if fold > 0.0 && min < max {
            let margin = fold * (max - min);
            min -= margin;
            max += margin;
        }
    }
    if out_type.is_integer() {
        min = min.floor();
        max = max.ceil();
    }
    let column_type = out_type.clone();
    let clipped =
        LoweredMap::unary(move |column: &ArrayRef| clip_column(column, &column_type, min, max));
    if out_type.is_integer() || !is_seen {
        return Ok(clipped);
    }
    Ok(clipped.portable_number(NumberExpr::Input.greatest(min).least(max)))
}
