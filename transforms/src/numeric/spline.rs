//! `spline`: a number as weights of smooth curves.

use arrow::array::ArrayRef;
use forebay_analyze::{ColumnMoments, QuantileRequest};
use forebay_model::{Fault, Finding, Result, codes, lerp};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::categorical::{vector_array, vector_field};
use crate::shared::{ask_quantiles, bad_value, doubles, finding_at, mark_outside, output_name};

/// The values of B-splines at x: `knots + degree - 1` numbers from 0 to 1 with the sum 1, of which `degree + 1` are not
/// 0. A linear model of them is a smooth curve of x.
///
/// In: columns of numbers. Out: a fixed-size list of `float32`. The knots lie between the least and the greatest value,
/// at equal distances or at quantiles, and continue beyond them at the outer distances. Values beyond the knots that
/// were learned have the numbers of the nearest one. Null and NaN give zeros; neither counts. An infinity leaves no
/// knots and is a fault when fitting, as are values whose distances no double holds (1e308, 1e-310). One distinct value,
/// or nothing seen: knots at the distance 1. State: 6 KiB, or a sample of about `7.3 / epsilon^2` rows of 16 bytes. Follows
/// scikit-learn's `SplineTransformer`.
///
/// ```yaml
/// - spline: { columns: [price], knots: 8, suffix: _curve }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn spline(columns),
    example = r#"spline(["temperature"]).knots(8).strategy(KnotStrategy::Quantile)"#
)]
pub struct SplineBasis {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Number of knots, the least and the greatest value among them; 2 to 1,000.
    #[serde(default = "five")]
    pub knots: u32,
    /// The degree of the curves between knots, 1 to 8.
    #[serde(default = "three")]
    pub degree: usize,
    /// The places of knots.
    #[serde(default)]
    pub strategy: KnotStrategy,
    /// The rank error of quantiles, as a share of the rows.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Takes the quantiles exactly; the state then grows with the distinct values.
    #[serde(default)]
    pub exact: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn five() -> u32 {
    5
}

fn three() -> usize {
    3
}

fn epsilon() -> f64 {
    0.01
}

/// The places of the knots of a spline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KnotStrategy {
    /// At equal distances between the minimum and the maximum.
    #[default]
    Uniform,
    /// At quantiles, interpolated linearly.
    Quantile,
}

/// Greatest degree.
const DEGREE_MAX: usize = 8;

impl ConfiguredTransform for SplineBasis {
    const NAME: &'static str = "spline";
}

impl Transform for SplineBasis {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(2..=1_000).contains(&self.knots) {
            let message = format!("`knots` {} is not between 2 and 1000", self.knots);
            return Err(bad_value(message).field("knots"));
        }
        if !(1..=DEGREE_MAX).contains(&self.degree) {
            let message = format!("`degree` {} is not between 1 and {DEGREE_MAX}", self.degree);
            return Err(bad_value(message).field("degree"));
        }
        let width = self.knots as usize + self.degree - 1;
        let mut ops = Vec::new();
        for field in scope.numeric_columns(&self.columns)? {
            let column = field.name().clone();
            let request = self.request(&column)?;
            let output = vector_field(&output_name(&column, &self.suffix), width)?;
            let config = self.clone();
            let map = MapOp::fitted([field.name()], [output], [request], move |findings| {
                let knots = config.knots_of(finding_at(findings, 0)?);
                let knots = knots.map_err(|fault| fault.column(&column))?;
                let basis = BasisFunctions::new(&knots, config.degree);
                basis
                    .check_distances()
                    .map_err(|fault| fault.column(&column))?;
                Ok(LoweredMap::new(move |inputs, _| {
                    let [column] = inputs else {
                        return Err(Fault::internal("splines received other columns"));
                    };
                    let marks = mark_outside(column, basis.range())?;
                    Ok(vec![basis.vectors(column)?, marks])
                }))
            });
            ops.push(PlanOp::Map(map.marking([RowMark::Ended])));
        }
        Ok(ops)
    }
}

impl SplineBasis {
    fn shares(&self) -> Vec<f64> {
        let last = f64::from(self.knots - 1);
        (0..self.knots).map(|knot| f64::from(knot) / last).collect()
    }

    fn request(&self, column: &str) -> Result<AnalyzerRequest> {
        match self.strategy {
            KnotStrategy::Uniform => Ok(AnalyzerRequest::new(ColumnMoments, [column])),
            KnotStrategy::Quantile => {
                let request = QuantileRequest::Probabilities(self.shares());
                ask_quantiles(column, request, self.epsilon, self.exact)
            }
        }
    }

    /// The knots of a finding in ascending order; the last one is above the first.
    fn knots_of(&self, finding: &Finding) -> Result<Vec<f64>> {
        let knots: Vec<f64> = match self.strategy {
            KnotStrategy::Uniform => {
                let min = finding.number("min")?.unwrap_or(0.0);
                let max = finding.number("max")?.unwrap_or(0.0);
                let shares = self.shares().into_iter();
                shares.map(|share| lerp(min, max, share)).collect()
            }
            KnotStrategy::Quantile => {
                let values = doubles(finding.column("value")?)?;
                values.iter().map(Option::unwrap_or_default).collect()
            }
        };
        if knots.iter().any(|knot| !knot.is_finite()) {
            let message = "the column has infinite values, between which there are no knots";
            return Err(
                Fault::new(codes::NOT_FINITE, message).hint("`clip` or `winsorize` it before")
            );
        }
        if knots.first() == knots.last() {
            let first = knots.first().copied().unwrap_or(0.0);
            // Large doubles lie further apart than 1.
            let distance = (2.0 * f64::EPSILON * first.abs()).max(1.0);
            let steps = (0..self.knots).map(f64::from);
            return Ok(steps.map(|step| first + step * distance).collect());
        }
        Ok(knots)
    }
}

/// The B-splines of some knots.
struct BasisFunctions {
    /// The knots, with as many before and behind them as the degree says.
    knots: Vec<f64>,
    degree: usize,
}

impl BasisFunctions {
    /// The functions of two knots or more, whose last one is above the first.
    fn new(knots: &[f64], degree: usize) -> BasisFunctions {
        let mut padded = Vec::with_capacity(knots.len() + 2 * degree);
        if let [first, second, ..] = knots {
            for step in (1..=degree).rev() {
                padded.push(first - step as f64 * (second - first));
            }
        }
        padded.extend_from_slice(knots);
        if let [.., previous, last] = knots {
            for step in 1..=degree {
                padded.push(last + step as f64 * (last - previous));
            }
        }
        BasisFunctions {
            knots: padded,
            degree,
        }
    }

    /// Refuses knots between which float64 cannot divide: their distances overflow, or have lost their digits.
    fn check_distances(&self) -> Result<()> {
        for pair in self.knots.windows(2) {
            let distance = pair[1] - pair[0];
            let is_usable = distance == 0.0 || distance.is_normal();
            if is_usable && pair.iter().all(|knot| knot.is_finite()) {
                continue;
            }
            let message = format!(
                "the knots {:e} and {:e} are too far from each other, or too near, for float64",
                pair[0], pair[1]
            );
            return Err(Fault::new(codes::NOT_FINITE, message)
                .hint("scale the column before, such as by `min_max`"));
        }
        Ok(())
    }

    /// Number of functions.
    fn width(&self) -> usize {
        self.knots.len() - self.degree - 1
    }

    /// The range of the values that were learned. Knots are rounded: the outer ones may lie inside of it.
    fn range(&self) -> [f64; 2] {
        let inner = &self.knots[self.degree..=self.width()];
        let first = inner[0];
        let last = inner[inner.len() - 1];
        let margin = 4.0 * f64::EPSILON * first.abs().max(last.abs());
        [first - margin, last + margin]
    }

    /// The values of all functions at each number.
    fn vectors(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let column = doubles(column)?;
        let width = self.width();
        admit_output(size_of::<f32>() * width * column.len())?;
        let mut vectors = vec![0.0_f32; column.len() * width];
        for (value, vector) in column.iter().zip(vectors.chunks_exact_mut(width)) {
            if let Some(x) = value.filter(|x| !x.is_nan()) {
                self.write(x, vector);
            }
        }
        vector_array(vectors, width, column.len())
    }

    /// Writes the values of the functions that are not 0 (Piegl and Tiller, "The NURBS Book", A2.2).
    fn write(&self, x: f64, vector: &mut [f32]) {
        let inner = &self.knots[self.degree..=self.width()];
        let first = inner[0];
        let last = inner[inner.len() - 1];
        let x = x.clamp(first, last);
        // The interval before a knot ends there; of equal knots the last one begins an interval.
        let knots_before = if x < last {
            inner.partition_point(|knot| *knot <= x)
        } else {
            inner.partition_point(|knot| *knot < last)
        };
        let interval = knots_before - 1;
        let span = self.degree + interval;
        let mut values = [0.0_f64; DEGREE_MAX + 1];
        values[0] = 1.0;
        for degree in 1..=self.degree {
            let mut carried = 0.0;
            for (index, value) in values.iter_mut().enumerate().take(degree) {
                let lower = self.knots[span + 1 + index - degree];
                let upper = self.knots[span + 1 + index];
                let share = *value / (upper - lower);
                *value = carried + (upper - x) * share;
                carried = (x - lower) * share;
            }
            values[degree] = carried;
        }
        for (slot, value) in vector[interval..].iter_mut().zip(&values[..=self.degree]) {
            *slot = *value as f32;
        }
    }
}
