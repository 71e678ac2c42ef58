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
        let mut ranks = match self {
            _ if n == 0 => Vec::new(),
            QuantileRequest::Buckets(buckets) => (1..*buckets)
                .map(|k| boundary_rank(n, k, *buckets))
                .collect(),
            QuantileRequest::Probabilities(probabilities) => probabilities
                .iter()
                .flat_map(|&p| {
                    let (low, _) = position(n, p);
                    [low, (low + 1).min(n - 1)]
                })
                .collect(),
        };
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Computes the finding from the values at these ranks.
    pub(crate) fn finding(&self, n: u64, ranks: &[u64], values: &[f64]) -> Result<Finding> {
        let at = |rank: u64| {
            ranks
                .binary_search(&rank)
                .ok()
                .and_then(|i| values.get(i))
                .copied()
        };
        match self {
            QuantileRequest::Buckets(buckets) => {
                let last = if n == 0 { 0 } else { *buckets };
                let boundaries: Float64Array = (1..last)
                    .map(|k| at(boundary_rank(n, k, *buckets)))
                    .collect();
                Finding::of([("boundary", Arc::new(boundaries) as ArrayRef)])
            }
            QuantileRequest::Probabilities(probabilities) => {
                let value = |&p: &f64| {
                    let (low, t) = position(n, p);
                    Some(interpolate(
                        at(low)?,
                        at((low + 1).min(n.saturating_sub(1)))?,
                        t,
                    ))
                };
                let values: Float64Array = probabilities.iter().map(value).collect();
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
    let place = n.saturating_sub(1) as f64 * probability.clamp(0.0, 1.0);
    (
        (place.floor() as u64).min(n.saturating_sub(1)),
        place - place.floor(),
    )
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
