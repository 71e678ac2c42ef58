//! The power transformation that makes a column most like a normal distribution.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use forebay_model::{Finding, Result};
use serde_json::{Value, json};

use crate::sampled_statistic::SampleStatistic;
use crate::series_fit::golden_section_minimum;

/// A family of power transformations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerFamily {
    /// For all numbers (Yeo and Johnson, 2000).
    YeoJohnson,
    /// For numbers above 0 (Box and Cox, 1964).
    BoxCox,
}

impl PowerFamily {
    /// Transforms a number. NaN beyond the range of the family.
    pub fn transform(self, x: f64, lambda: f64) -> f64 {
        match self {
            PowerFamily::BoxCox => power_of_logarithm(x.ln(), lambda),
            PowerFamily::YeoJohnson if x >= 0.0 => power_of_logarithm(x.ln_1p(), lambda),
            PowerFamily::YeoJohnson => -power_of_logarithm((-x).ln_1p(), 2.0 - lambda),
        }
    }

    /// The logarithm of the derivative of the transformation, divided by `lambda - 1`.
    fn logarithm(self, x: f64) -> f64 {
        match self {
            PowerFamily::BoxCox => x.ln(),
            PowerFamily::YeoJohnson => x.abs().ln_1p().copysign(x),
        }
    }

    fn name(self) -> &'static str {
        match self {
            PowerFamily::YeoJohnson => "yeo_johnson",
            PowerFamily::BoxCox => "box_cox",
        }
    }
}

/// `(e^(lambda * logarithm) - 1) / lambda`, accurate near 0.
fn power_of_logarithm(logarithm: f64, lambda: f64) -> f64 {
    if lambda == 0.0 {
        logarithm
    } else {
        (lambda * logarithm).exp_m1() / lambda
    }
}

/// The exponent of a power transformation with the greatest likelihood of a normal distribution, and the mean and
/// standard deviation of the transformed values.
///
/// `SampledStatistic` computes it from the sample of `SampledQuantiles`: all values up to about `7.3 / epsilon^2` rows.
/// Nulls, NaN and infinities do not count, for `BoxCox` neither do values of 0 or less. Exponents are from -10 to 10;
/// values that are all equal have the exponent 1.
///
/// The finding has one row: `lambda`, `mean`, `deviation` (Float64, ddof 0; null if there were no values).
#[derive(Debug, Clone, PartialEq)]
pub struct PowerFit {
    /// The transformations to choose from.
    pub family: PowerFamily,
    /// Largest rank error of the sample, as a share of the rows.
    pub epsilon: f64,
}

/// Greatest absolute exponent. Beyond it the transformed values of common data are no doubles.
const LAMBDA_MAX: i32 = 10;

impl PowerFit {
    /// The most likely exponent of values in a fixed order.
    fn likely_lambda(&self, values: &[f64]) -> f64 {
        let is_constant = values.first() == values.last();
        if is_constant {
            return 1.0;
        }
        let sum_of_logarithms: f64 = values.iter().map(|x| self.family.logarithm(*x)).sum();
        let cost = |lambda: f64| {
            let (_, variance) = self.mean_and_variance(values, lambda);
            let cost = values.len() as f64 / 2.0 * variance.ln();
            let cost = cost - (lambda - 1.0) * sum_of_logarithms;
            // A variance that is lost or beyond doubles is no optimum.
            if cost.is_finite() {
                cost
            } else {
                f64::INFINITY
            }
        };
        let mut best = 1.0;
        let mut best_cost = f64::INFINITY;
        for lambda in -LAMBDA_MAX..=LAMBDA_MAX {
            let lambda = f64::from(lambda);
            let cost = cost(lambda);
            if cost < best_cost {
                best = lambda;
                best_cost = cost;
            }
        }
        if best_cost.is_infinite() {
            return best;
        }
        golden_section_minimum(cost, [best - 1.0, best + 1.0])
    }

    fn mean_and_variance(&self, values: &[f64], lambda: f64) -> (f64, f64) {
        let count = values.len() as f64;
        let mut sum = 0.0;
        for x in values {
            sum += self.family.transform(*x, lambda);
        }
        let mean = sum / count;
        let mut squares = 0.0;
        for x in values {
            let distance = self.family.transform(*x, lambda) - mean;
            squares += distance * distance;
        }
        (mean, squares / count)
    }
}

impl SampleStatistic for PowerFit {
    fn kind(&self) -> &'static str {
        "power_fit"
    }

    fn config(&self) -> Value {
        json!({ "family": self.family.name(), "epsilon": self.epsilon })
    }

    fn epsilon(&self) -> f64 {
        self.epsilon
    }

    fn finding(&self, mut values: Vec<f64>) -> Result<Finding> {
        values.retain(|x| x.is_finite() && (self.family == PowerFamily::YeoJohnson || *x > 0.0));
        let mut row = [None; 3];
        if !values.is_empty() {
            let lambda = self.likely_lambda(&values);
            let (mean, variance) = self.mean_and_variance(&values, lambda);
            row = [lambda, mean, variance.sqrt()].map(Some);
        }
        let column = |number: Option<f64>| Arc::new(Float64Array::from(vec![number])) as ArrayRef;
        let [lambda, mean, deviation] = row.map(column);
        Finding::of([("lambda", lambda), ("mean", mean), ("deviation", deviation)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lambda(family: PowerFamily, values: &[f64]) -> f64 {
        let fit = PowerFit {
            family,
            epsilon: 0.01,
        };
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        fit.likely_lambda(&values)
    }

    /// Values of scikit-learn 1.9.1, `PowerTransformer(method).fit(values).lambdas_`.
    #[test]
    fn exponents_are_those_of_scikit_learn() {
        let skewed = [1.0, 2.0, 3.0, 4.0, 100.0];
        let signed = [-30.0, -2.0, -1.0, 0.0, 0.5, 4.0];
        let cases: [(PowerFamily, &[f64], f64); 4] = [
            (PowerFamily::YeoJohnson, &skewed, -0.717863619),
            (PowerFamily::YeoJohnson, &signed, 1.570474106),
            (PowerFamily::BoxCox, &skewed, -0.476292887),
            (
                PowerFamily::BoxCox,
                &[10.0, 11.0, 12.0, 13.0, 15.0],
                -0.936374701,
            ),
        ];
        for (family, values, expected) in cases {
            let error = (lambda(family, values) - expected).abs();
            assert!(error < 1e-5, "{family:?} {values:?}: {error}");
        }
        for family in [PowerFamily::BoxCox, PowerFamily::YeoJohnson] {
            assert_eq!(lambda(family, &[3.0, 3.0]), 1.0);
        }
    }
}
