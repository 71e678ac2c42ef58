//! Requests for order statistics of a column.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use forebay_model::{Finding, Result, lerp};
use serde_json::{Value, json};

/// Bucket boundaries or quantiles.
#[derive(Debug, Clone, PartialEq)]
pub enum QuantileRequest {
    /// `q - 1` boundaries that divide the values into `q` buckets of about equal size. Boundary `k` is
    /// `sorted[floor(n * k / q)]`, with ranks from 0. The finding has one column `boundary` (Float64); it is empty
    /// if there were no values.
    Buckets(u32),
    /// A quantile per probability in [0, 1], interpolated linearly between the two nearest values as numpy does by
    /// default. The finding has the columns `probability` and `value` (Float64, null if there were no values).
    Probabilities(Vec<f64>),
}

impl QuantileRequest {
    pub(crate) fn config(&self) -> Value {
        match self {
            QuantileRequest::Buckets(buckets) => json!({ "buckets": buckets }),
            QuantileRequest::Probabilities(probabilities) => {
                json!({ "probabilities": probabilities })
            }
        }
    }

    /// Ranks, from 0, whose values the request needs among `n` values: sorted and distinct.
    pub(crate) fn ranks(&self, n: u64) -> Vec<u64> {
        if n == 0 {
            return Vec::new();
        }
        let mut ranks = Vec::new();
        match self {
            QuantileRequest::Buckets(buckets) => {
                for k in 1..*buckets {
                    ranks.push(boundary_rank(n, k, *buckets));
                }
            }
            QuantileRequest::Probabilities(probabilities) => {
                for probability in probabilities {
                    let (low, _) = position(n, *probability);
                    ranks.push(low);
                    ranks.push((low + 1).min(n - 1));
                }
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Computes the finding from the values at these ranks.
    pub(crate) fn finding(&self, n: u64, ranks: &[u64], values: &[f64]) -> Result<Finding> {
        // Ranks that were not asked for have no value; without any row there are none at all.
        let value_at = |rank: u64| {
            let index = ranks.binary_search(&rank).ok()?;
            values.get(index).copied()
        };
        match self {
            QuantileRequest::Buckets(buckets) => {
                let last = if n == 0 { 0 } else { *buckets };
                let boundaries: Float64Array = (1..last)
                    .map(|k| value_at(boundary_rank(n, k, *buckets)))
                    .collect();
                Finding::of([("boundary", Arc::new(boundaries) as ArrayRef)])
            }
            QuantileRequest::Probabilities(probabilities) => {
                let quantile = |&probability: &f64| {
                    let (low, fraction) = position(n, probability);
                    let high = (low + 1).min(n.saturating_sub(1));
                    Some(interpolate(value_at(low)?, value_at(high)?, fraction))
                };
                let values: Float64Array = probabilities.iter().map(quantile).collect();
                let probabilities = Float64Array::from(probabilities.clone());
                Finding::of([
                    ("probability", Arc::new(probabilities) as ArrayRef),
                    ("value", Arc::new(values)),
                ])
            }
        }
    }
}

fn boundary_rank(n: u64, k: u32, buckets: u32) -> u64 {
    (u128::from(n) * u128::from(k) / u128::from(buckets.max(1))) as u64
}

/// The rank below a probability's position, and the fractional distance from it.
fn position(n: u64, probability: f64) -> (u64, f64) {
    let last = n.saturating_sub(1);
    let position = last as f64 * probability.clamp(0.0, 1.0);
    let below = position.floor();
    // Above 2^53 the product may be rounded beyond the last rank.
    ((below as u64).min(last), position - below)
}

/// numpy's `_lerp`: exact at both ends and monotone. [`lerp`] where the difference overflows or an end is infinite.
fn interpolate(a: f64, b: f64, t: f64) -> f64 {
    if a == b || t == 0.0 {
        a
    } else if (b - a).is_infinite() {
        lerp(a, b, t)
    } else if t < 0.5 {
        a + (b - a) * t
    } else {
        b - (b - a) * (1.0 - t)
    }
}
