//! `g_and_h`: values as those of a normal distribution, by Tukey's g-and-h distribution.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Float64Type};
use forebay_analyze::QuantileRequest;
use forebay_model::{Fault, Finding, Result};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp, RowMark, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::normal::normal_quantile;
use crate::shared::{
    ask_quantiles, doubles, finding_at, float_type, map_doubles, mark_values, output_field,
};

/// The z of which x is `a + b * (exp(g * z) - 1) / g * exp(h * z^2 / 2)`: if x has Tukey's g-and-h distribution, z is
/// standard normal. `g` takes skewness away, and `h` heavy tails.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. The four numbers are learned
/// from the median and five pairs of quantiles, those of 1/4, 1/8, 1/16, 1/32 and 1/64 from either end. `a` is the
/// median, and `g` the middle one of what the pairs give; `b` and `h` come from a line through the distances of the
/// pairs, whose slope `h` is at least 0 (D. C. Hoaglin, *Summarizing shape numerically: the g-and-h distributions*,
/// 1985). Pairs of which one is infinite or equals the median do not count; without any, the result is `x - a`. With
/// `h = 0` the distribution has an end on one side: what lies beyond it gives 10 or -10. Null, NaN and infinities stay;
/// null and NaN do not count. Nothing seen: x unchanged.
///
/// State: a sample of about `7.3 / epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget.
/// Outliers beyond these quantiles do not move the result, other than with `power`.
///
/// ```yaml
/// - g_and_h: { columns: [price], suffix: _normal }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn g_and_h(columns), example = r#"g_and_h(["price"]).epsilon(0.002)"#)]
pub struct GAndH {
    /// Columns of numbers.
    pub columns: ColumnSelector,
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

fn epsilon() -> f64 {
    0.005
}

/// Distances of the quantiles from either end.
const TAILS: [f64; 5] = [1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0];

/// The greatest z on the side on which a distribution without `h` ends.
const END: f64 = 10.0;

/// A slope below this is rounding.
const SLOPE_MIN: f64 = 1e-9;

/// Share of z that counts as no step.
const NEAR: f64 = 4.0 * f64::EPSILON;

/// Most steps of the search for z. Each halves its interval at least, and most of them do far better.
const STEPS_MAX: usize = 200;

impl ConfiguredTransform for GAndH {
    const NAME: &'static str = "g_and_h";
}

impl Transform for GAndH {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            ops.push(PlanOp::Map(self.map(field)?));
        }
        Ok(ops)
    }
}

impl GAndH {
    fn map(&self, field: &Field) -> Result<MapOp> {
        let mut probabilities = TAILS.to_vec();
        probabilities.push(0.5);
        probabilities.extend(TAILS.iter().rev().map(|tail| 1.0 - tail));
        let request = QuantileRequest::Probabilities(probabilities);
        let request = ask_quantiles(field.name(), request, self.epsilon, self.exact)?;
        let out_type = float_type(field.data_type());
        let output = output_field(field, &self.suffix, out_type.clone());
        let map = MapOp::fitted([field.name()], [output], [request], move |findings| {
            let shape = learned_shape(finding_at(findings, 0)?)?;
            let out_type = out_type.clone();
            let transformed = LoweredMap::new(move |inputs, _| {
                let [column] = inputs else {
                    return Err(Fault::internal("a distribution received other columns"));
                };
                let normal = map_doubles(column, &out_type, |x| shape.normal_value(x))?;
                let marks = shape.mark_ends(&normal)?;
                Ok(vec![normal, marks])
            });
            Ok(transformed.way_back(move |z| shape.value(z)))
        });
        Ok(map.marking([RowMark::Ended]))
    }
}

/// The shape that the quantiles of a finding give.
fn learned_shape(finding: &Finding) -> Result<TukeyShape> {
    let quantiles = doubles(finding.column("value")?)?;
    let values: Vec<f64> = quantiles.iter().flatten().collect();
    if values.len() != 2 * TAILS.len() + 1 {
        return Ok(TukeyShape::default());
    }
    Ok(TukeyShape::of_quantiles(&values))
}

/// A g-and-h distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TukeyShape {
    /// The median.
    location: f64,
    /// The factor of distances from the median.
    scale: f64,
    g: f64,
    h: f64,
}

impl Default for TukeyShape {
    fn default() -> TukeyShape {
        TukeyShape {
            location: 0.0,
            scale: 1.0,
            g: 0.0,
            h: 0.0,
        }
    }
}

/// Two quantiles at the same distance from the ends.
struct QuantilePair {
    /// The quantile of the upper one in the standard normal distribution.
    z: f64,
    /// Distances from the median.
    below: f64,
    above: f64,
}

impl TukeyShape {
    /// The shape of a distribution with the quantiles of [`TAILS`], the median, and the others in ascending order.
    fn of_quantiles(quantiles: &[f64]) -> TukeyShape {
        let location = quantiles[TAILS.len()];
        let mut pairs = Vec::new();
        for (index, tail) in TAILS.iter().enumerate() {
            let pair = QuantilePair {
                z: normal_quantile(1.0 - tail),
                below: location - quantiles[index],
                above: quantiles[quantiles.len() - 1 - index] - location,
            };
            let is_usable = pair.below > 0.0 && pair.above > 0.0;
            if is_usable && pair.below.is_finite() && pair.above.is_finite() {
                pairs.push(pair);
            }
        }
        if pairs.is_empty() || !location.is_finite() {
            let location = if location.is_finite() { location } else { 0.0 };
            return TukeyShape {
                location,
                ..TukeyShape::default()
            };
        }
        let g = middle(pairs.iter().map(QuantilePair::skewness).collect());
        let line = Line::through(pairs.iter().map(|pair| pair.spread_point(g)));
        TukeyShape {
            location,
            scale: line.intercept.exp(),
            g,
            h: line.slope,
        }
    }

    /// Marks the z of values that lie beyond the end of the distribution.
    fn mark_ends(self, normal: &ArrayRef) -> Result<ArrayRef> {
        let has_end = self.h == 0.0 && self.g != 0.0;
        let end = -END * self.g.signum();
        let numbers: ArrayRef = Arc::new(doubles(normal)?);
        mark_values::<Float64Type>(&numbers, |z| has_end && z == end)
    }

    /// The z of a value.
    fn normal_value(self, x: f64) -> f64 {
        let distance = (x - self.location) / self.scale;
        if !distance.is_finite() || distance == 0.0 {
            return distance;
        }
        // The values below the median are those above it with the other sign of `g`.
        let g = self.g * distance.signum();
        let z = upper_z(distance.abs(), g, self.h);
        z * distance.signum()
    }

    /// The value of a z.
    fn value(self, z: f64) -> f64 {
        if z.is_infinite() {
            return z;
        }
        let mut skewed = z;
        if self.g != 0.0 {
            skewed = (self.g * z).exp_m1() / self.g;
        }
        self.location + self.scale * skewed * (self.h * z * z / 2.0).exp()
    }
}

impl QuantilePair {
    /// The `g` of a distribution with these quantiles.
    fn skewness(&self) -> f64 {
        (self.above / self.below).ln() / self.z
    }

    /// A point of the line whose slope is `h` and whose intercept is the logarithm of the scale.
    fn spread_point(&self, g: f64) -> [f64; 2] {
        let mut normal_spread = 2.0 * self.z;
        if g != 0.0 {
            normal_spread = 2.0 * (g * self.z).sinh() / g;
        }
        let spread = (self.above + self.below) / normal_spread;
        [self.z * self.z / 2.0, spread.ln()]
    }
}

/// A line that does not fall.
struct Line {
    intercept: f64,
    slope: f64,
}

impl Line {
    /// The line with the least squared distances from points.
    fn through(points: impl Iterator<Item = [f64; 2]> + Clone) -> Line {
        let count = points.clone().count() as f64;
        let mut x_mean = 0.0;
        let mut y_mean = 0.0;
        for [x, y] in points.clone() {
            x_mean += x / count;
            y_mean += y / count;
        }
        let mut products = 0.0;
        let mut squares = 0.0;
        for [x, y] in points {
            products += (x - x_mean) * (y - y_mean);
            squares += (x - x_mean) * (x - x_mean);
        }
        let mut slope = 0.0;
        if products > SLOPE_MIN * squares {
            slope = products / squares;
        }
        Line {
            intercept: y_mean - slope * x_mean,
            slope,
        }
    }
}

/// The middle one of some numbers; of two, the lower one.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let index = numbers.len().saturating_sub(1) / 2;
    numbers.get(index).copied().unwrap_or(0.0)
}

/// The z above 0 at which `(exp(g * z) - 1) / g * exp(h * z^2 / 2)` is this.
fn upper_z(value: f64, g: f64, h: f64) -> f64 {
    if h == 0.0 {
        return skewed_z(value, g);
    }
    let target = value.ln();
    let mut low = 0.0;
    let mut high = 1.0;
    if g * value > -1.0 {
        // Heavy tails make values greater, and so z smaller.
        high = skewed_z(value, g);
    }
    while log_value(high, g, h) < target {
        low = high;
        high *= 2.0;
    }
    let mut z = high;
    for _ in 0..STEPS_MAX {
        let difference = log_value(z, g, h) - target;
        if difference < 0.0 {
            low = z;
        } else {
            high = z;
        }
        // A step of the logarithm of z: the curve is nearly a line in it.
        let next = z * (-difference / (z * log_slope(z, g, h))).exp();
        let is_near = (next - z).abs() <= NEAR * z;
        z = next;
        if is_near {
            break;
        }
        if !(low < next && next < high) {
            z = f64::midpoint(low, high);
        }
    }
    z
}

/// The z above 0 at which `(exp(g * z) - 1) / g` is this.
fn skewed_z(value: f64, g: f64) -> f64 {
    if g == 0.0 {
        return value;
    }
    let product = g * value;
    if product <= -1.0 {
        return END;
    }
    let z = product.ln_1p() / g;
    if g < 0.0 { z.min(END) } else { z }
}

/// The logarithm of `(exp(g * z) - 1) / g * exp(h * z^2 / 2)`, for a z above 0.
fn log_value(z: f64, g: f64, h: f64) -> f64 {
    let product = g * z;
    let mut log_skewed = z.ln();
    if product > 1.0 {
        // The power itself may be too large.
        log_skewed = product + (-(-product).exp()).ln_1p() - g.ln();
    } else if product != 0.0 {
        log_skewed = (product.exp_m1() / g).ln();
    }
    log_skewed + h * z * z / 2.0
}

/// The slope of [`log_value`].
fn log_slope(z: f64, g: f64, h: f64) -> f64 {
    let product = g * z;
    let mut slope = 1.0 / z;
    if product != 0.0 {
        slope = -g / (-product).exp_m1();
    }
    slope + h * z
}
