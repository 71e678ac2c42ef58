//! `winsorize`: bounds for numbers, learned from quantiles or from a center and a spread.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field};
use forebay_analyze::{ColumnMoments, QuantileRequest};
use forebay_contract::NumberExpr;
use forebay_model::{Finding, Result, RowChange};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform, ValueCount,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clip::{clip_column, clipped_type, count_moved};
use super::median_deviation::{deviation_name, deviation_op, first_quantile, normal_deviation};
use crate::shared::{ask_quantiles, bad_value, doubles, finding_at, output_field, output_name};
use crate::time::hide_helper_columns;

/// Values below a learned quantile become that quantile, and values above another one become that one.
///
/// In: columns of numbers. Out: the same types; decimals give `float64`. Bounds of integers are rounded outward to
/// whole numbers. Null stays null and NaN stays NaN; neither counts. Infinities count and are moved to the bounds,
/// unless a bound is infinite itself. Nothing seen: x unchanged. Values that are moved are counted as clipped.
/// Quantiles are interpolated linearly, as in numpy and pandas. With `fold`, the bounds lie beyond the quantiles, by so
/// many of their distances: `lower: 0.25, upper: 0.75, fold: 1.5` are the whiskers of a box plot. State: a sample of
/// about `7.3 / epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget. Follows
/// feature_engine's `Winsorizer` with quantiles and, with `fold`, with `"iqr"`.
///
/// `around: mean` bounds by `fold` standard deviations (ddof 0) from the mean, 3 where left out, as feature_engine's
/// `"gaussian"` does; values with an infinity have no such bounds, and stay. `around: median` bounds by `fold` median
/// absolute deviations, divided by 0.6745, from the median, 3.29 where left out, as its `"mad"` does. A spread of 0
/// moves nothing.
///
/// ```yaml
/// - winsorize: { columns: [price], lower: 0.01, upper: 0.99 }
/// - winsorize: { columns: [qty], around: median }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn winsorize(columns), example = r#"winsorize(["price"]).lower(0.05).upper(0.95)"#)]
pub struct Winsorize {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The number from which the bounds are counted.
    #[serde(default, skip_serializing_if = "BoundCenter::is_quantiles")]
    pub around: BoundCenter,
    /// The lower quantile, as a probability; 0 bounds by the least value that was seen.
    #[serde(default = "lower")]
    pub lower: f64,
    /// The upper quantile, as a probability; 1 bounds by the greatest value that was seen.
    #[serde(default = "upper")]
    pub upper: f64,
    /// The distance of the bounds from the quantiles, in distances of the quantiles from each other; none where left
    /// out. From the mean or the median, it is in spreads.
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

/// The number from which the bounds of values are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoundCenter {
    /// The quantiles `lower` and `upper`.
    #[default]
    Quantiles,
    /// The mean; the spread is the standard deviation.
    Mean,
    /// The median; the spread is the median absolute deviation, divided by 0.6745.
    Median,
}

impl BoundCenter {
    fn is_quantiles(&self) -> bool {
        *self == BoundCenter::Quantiles
    }
}

/// Spreads between the mean and a bound, where `fold` is left out.
const DEVIATIONS: f64 = 3.0;

/// Spreads between the median and a bound, where `fold` is left out.
const MEDIAN_DEVIATIONS: f64 = 3.29;

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
        if !self.around.is_quantiles() && (self.lower != lower() || self.upper != upper()) {
            let fault = bad_value("`lower` and `upper` are for bounds of quantiles");
            return Err(fault.hint("leave out `around`, or the two quantiles"));
        }
        let mut ops = Vec::new();
        let mut names = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            if self.around == BoundCenter::Median {
                ops.push(deviation_op(field, self.ask(field.name(), vec![0.5])?));
            }
            ops.push(self.bounds_op(field)?);
            names.push(output_name(field.name(), &self.suffix));
        }
        if self.around == BoundCenter::Median {
            ops.push(hide_helper_columns(scope, names));
        }
        Ok(ops)
    }
}

impl Winsorize {
    fn ask(&self, column: &str, probabilities: Vec<f64>) -> Result<AnalyzerRequest> {
        let request = QuantileRequest::Probabilities(probabilities);
        ask_quantiles(column, request, self.epsilon, self.exact)
    }

    /// Requests for the numbers that bounds of a column are made of.
    fn requests(&self, column: &str) -> Result<Vec<AnalyzerRequest>> {
        Ok(match self.around {
            BoundCenter::Quantiles => vec![self.ask(column, vec![self.lower, self.upper])?],
            BoundCenter::Mean => vec![AnalyzerRequest::new(ColumnMoments, [column])],
            BoundCenter::Median => vec![
                self.ask(column, vec![0.5])?,
                self.ask(&deviation_name(column), vec![0.5])?,
            ],
        })
    }

    /// Clips a column to bounds that are learned.
    fn bounds_op(&self, field: &Field) -> Result<PlanOp> {
        let requests = self.requests(field.name())?;
        let out_type = clipped_type(field.data_type());
        let output = output_field(field, &self.suffix, out_type.clone());
        let around = self.around;
        let fold = self.fold;
        let map = MapOp::fitted([field.name()], [output], requests, move |findings| {
            let first = finding_at(findings, 0)?;
            let bounds = match around {
                BoundCenter::Quantiles => bounds_of_quantiles(first, fold.unwrap_or(0.0))?,
                BoundCenter::Mean => {
                    let spread = first.number("var")?.map(f64::sqrt);
                    let fold = fold.unwrap_or(DEVIATIONS);
                    bounds_around(first.number("mean")?, spread, fold)
                }
                BoundCenter::Median => {
                    let spread = normal_deviation(finding_at(findings, 1)?)?;
                    let fold = fold.unwrap_or(MEDIAN_DEVIATIONS);
                    bounds_around(first_quantile(first)?, spread, fold)
                }
            };
            Ok(clip_to(bounds, &out_type))
        });
        let moved = ValueCount::new(RowChange::Clipped, count_moved);
        Ok(PlanOp::Map(map.counting(moved)))
    }
}

/// The least and the greatest value that stay.
type Bounds = [f64; 2];

/// The two quantiles of a finding, or bounds beyond them; `None` where nothing was seen.
fn bounds_of_quantiles(finding: &Finding, fold: f64) -> Result<Option<Bounds>> {
    let quantiles = doubles(finding.column("value")?)?;
    if quantiles.len() != 2 || quantiles.null_count() > 0 {
        return Ok(None);
    }
    // Between both infinities lies no number: such a bound moves nothing.
    let mut min = quantiles.value(0).max(f64::NEG_INFINITY);
    let mut max = quantiles.value(1).min(f64::INFINITY);
    // Equal quantiles, which may be infinite, have no distance.
    if fold > 0.0 && min < max {
        let margin = fold * (max - min);
        min -= margin;
        max += margin;
    }
    Ok(Some([min, max]))
}

/// Bounds at a distance from a center; `None` where there is no spread.
fn bounds_around(center: Option<f64>, spread: Option<f64>, fold: f64) -> Option<Bounds> {
    let center = center.filter(|center| center.is_finite())?;
    let spread = spread.filter(|spread| spread.is_finite() && *spread > 0.0)?;
    Some([center - fold * spread, center + fold * spread])
}

/// Clips to bounds; leaves values as they are where there are none.
fn clip_to(bounds: Option<Bounds>, out_type: &DataType) -> LoweredMap {
    let [mut min, mut max] = bounds.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
    if out_type.is_integer() {
        min = min.floor();
        max = max.ceil();
    }
    let column_type = out_type.clone();
    let clipped =
        LoweredMap::unary(move |column: &ArrayRef| clip_column(column, &column_type, min, max));
    if out_type.is_integer() || bounds.is_none() {
        return clipped;
    }
    clipped.portable_number(NumberExpr::Input.greatest(min).least(max))
}
