//! Order statistics of weighted values.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use forebay_model::{Finding, Result};

use crate::exact_sum::ExactSum;
use crate::moment_accumulator::decompose;
use crate::quantile_request::QuantileRequest;

/// Finds the requested values among values that are passed in ascending order, each with its weight.
///
/// Boundary `k` of `q` buckets is the first value with which more than `k / q` of the whole weight is passed; for equal
/// weights it is `sorted[floor(n * k / q)]`. The quantile of a probability is the first value with which at least this
/// share is passed: `inverted_cdf` of numpy. Shares are compared without rounding.
pub(crate) struct WeightedRanks<'r> {
    request: &'r QuantileRequest,
    total: ExactSum,
    /// The weight whose passing gives the next value.
    threshold: Option<ExactSum>,
    /// The threshold minus the weight that is passed.
    distance: ExactSum,
    /// Probabilities in ascending order.
    shares: Vec<f64>,
    values: Vec<f64>,
}

impl<'r> WeightedRanks<'r> {
    /// Ranks among values whose weights sum to `total`.
    pub(crate) fn new(request: &'r QuantileRequest, total: ExactSum) -> Self {
        let mut ranks = WeightedRanks {
            request,
            total,
            threshold: None,
            distance: ExactSum::default(),
            shares: sorted_shares(request),
            values: Vec::new(),
        };
        ranks.threshold = ranks.threshold_at(0);
        if let Some(threshold) = &ranks.threshold {
            ranks.distance.merge(threshold);
        }
        ranks
    }

    /// The requested values, in ascending order.
    pub(crate) fn into_values(self) -> Vec<f64> {
        self.values
    }

    /// Passes the next value. It may repeat the one before.
    pub(crate) fn pass(&mut self, value: f64, weight: &ExactSum) {
        match self.request {
            // Shares of `q` are compared in units of `1 / q`, which is no binary fraction.
            QuantileRequest::Buckets(buckets) => {
                self.distance
                    .subtract(&weight.times(u64::from(*buckets), 0));
            }
            QuantileRequest::Probabilities(_) => self.distance.subtract(weight),
        }
        // Several thresholds may lie within the weight of one value.
        while self.is_reached()
            && let Some(threshold) = self.threshold.take()
        {
            self.values.push(value);
            self.threshold = self.threshold_at(self.values.len());
            if let Some(next_threshold) = &self.threshold {
                self.distance.merge(next_threshold);
                self.distance.subtract(&threshold);
            }
        }
    }

    fn is_reached(&self) -> bool {
        match self.distance.sign() {
            Ordering::Less => true,
            Ordering::Equal => matches!(self.request, QuantileRequest::Probabilities(_)),
            Ordering::Greater => false,
        }
    }

    fn threshold_at(&self, index: usize) -> Option<ExactSum> {
        match self.request {
            QuantileRequest::Buckets(buckets) => {
                let k = index as u64 + 1;
                (k < u64::from(*buckets)).then(|| self.total.times(k, 0))
            }
            QuantileRequest::Probabilities(_) => {
                let (mantissa, bit) = decompose(*self.shares.get(index)?);
                Some(self.total.times(mantissa.unsigned_abs(), bit))
            }
        }
    }
}

/// The probabilities of a request in ascending order.
pub(crate) fn sorted_shares(request: &QuantileRequest) -> Vec<f64> {
    let mut shares = Vec::new();
    if let QuantileRequest::Probabilities(probabilities) = request {
        for probability in probabilities {
            shares.push(probability.clamp(0.0, 1.0));
        }
    }
    shares.sort_unstable_by(f64::total_cmp);
    shares
}

/// Number of values that a request needs.
pub(crate) fn value_count(request: &QuantileRequest) -> usize {
    match request {
        QuantileRequest::Buckets(buckets) => buckets.saturating_sub(1) as usize,
        QuantileRequest::Probabilities(probabilities) => probabilities.len(),
    }
}

/// The rank, from 0, of each requested value among `n` values of equal weight, in ascending order.
pub(crate) fn equal_ranks(request: &QuantileRequest, n: u64) -> Vec<u64> {
    if n == 0 {
        return Vec::new();
    }
    if let QuantileRequest::Buckets(buckets) = request {
        let buckets = u128::from(*buckets);
        return (1..buckets)
            .map(|k| (u128::from(n) * k / buckets) as u64)
            .collect();
    }
    let mut ranks = Vec::new();
    for share in sorted_shares(request) {
        ranks.push(reaching_rank(n, share).min(n - 1));
    }
    ranks
}

/// The least rank, from 0, up to which at least this share of `n` values lies.
fn reaching_rank(n: u64, share: f64) -> u64 {
    let (mantissa, bit) = decompose(share);
    // The product has at most 64 + 53 bits. A share of at most 1 has a negative power, or is 0.
    let product = u128::from(n) * u128::from(mantissa.unsigned_abs());
    let power = bit.unsigned_abs();
    let values = if power >= u128::BITS {
        u128::from(product > 0)
    } else {
        product.div_ceil(1 << power)
    };
    (values as u64).saturating_sub(1)
}

/// The finding of a request from its values in ascending order, of which there are none without rows.
pub(crate) fn weighted_finding(request: &QuantileRequest, values: &[f64]) -> Result<Finding> {
    let QuantileRequest::Probabilities(probabilities) = request else {
        let boundaries = Float64Array::from(values.to_vec());
        return Finding::of([("boundary", Arc::new(boundaries) as ArrayRef)]);
    };
    let shares = sorted_shares(request);
    let mut quantiles = Vec::with_capacity(probabilities.len());
    for probability in probabilities {
        quantiles.push(quantile_among(&shares, values, *probability));
    }
    let probabilities = Float64Array::from(probabilities.clone());
    Finding::of([
        ("probability", Arc::new(probabilities) as ArrayRef),
        ("value", Arc::new(Float64Array::from(quantiles))),
    ])
}

/// The value of a probability, from the values of all in ascending order.
pub(crate) fn quantile_among(shares: &[f64], values: &[f64], probability: f64) -> Option<f64> {
    let share = probability.clamp(0.0, 1.0);
    // Equal probabilities have equal quantiles.
    let index = shares.partition_point(|other| other.total_cmp(&share).is_lt());
    values.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weighted_column::exact_weight;

    fn found(request: &QuantileRequest, rows: &[(f64, f64)]) -> Vec<f64> {
        let mut total = ExactSum::default();
        for (_, weight) in rows {
            total.merge(&exact_weight(*weight));
        }
        let mut ranks = WeightedRanks::new(request, total);
        for (value, weight) in rows {
            ranks.pass(*value, &exact_weight(*weight));
        }
        ranks.into_values()
    }

    /// A share that falls between two values is that of the upper one for buckets, and of the lower one for numpy.
    #[test]
    fn ends_of_weights_belong_to_one_side() {
        let rows = [(1.0, 1.0), (2.0, 2.0), (3.0, 1.0)];
        let buckets = QuantileRequest::Buckets(4);
        assert_eq!(found(&buckets, &rows), [2.0, 2.0, 3.0]);
        let probabilities = QuantileRequest::Probabilities(vec![0.75, 0.0, 0.25, 1.0, 0.5]);
        assert_eq!(found(&probabilities, &rows), [1.0, 1.0, 2.0, 2.0, 3.0]);
        let finding = weighted_finding(&probabilities, &[1.0, 1.0, 2.0, 2.0, 3.0]).unwrap();
        assert_eq!(finding.numbers("value").unwrap(), [2.0, 1.0, 1.0, 3.0, 2.0]);
    }

    /// Ten weights of 0.1 sum to less than 1 in doubles, and to exactly ten times 0.1 here.
    #[test]
    fn shares_are_not_rounded() {
        let rows: Vec<(f64, f64)> = (0..10).map(|value| (f64::from(value), 0.1)).collect();
        let boundaries = found(&QuantileRequest::Buckets(10), &rows);
        assert_eq!(boundaries, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        // A weight that a double does not show beside the others decides.
        let uneven = [(1.0, 1e200), (2.0, 1e-200), (3.0, 1e200)];
        let middle = QuantileRequest::Probabilities(vec![0.5]);
        assert_eq!(found(&middle, &uneven), [2.0]);
    }

    #[test]
    fn ranks_of_equal_weights_are_those_of_weights() {
        for request in [
            QuantileRequest::Buckets(7),
            QuantileRequest::Buckets(1),
            QuantileRequest::Probabilities(vec![0.3, 0.0, 1.0, 1e-300, 0.5, 0.5, 2.0 / 3.0]),
        ] {
            for n in 1..40u32 {
                let rows: Vec<(f64, f64)> = (0..n).map(|value| (f64::from(value), 3.0)).collect();
                let mut expected = Vec::new();
                for rank in equal_ranks(&request, u64::from(n)) {
                    expected.push(rank as f64);
                }
                assert_eq!(found(&request, &rows), expected, "{request:?} of {n}");
                assert_eq!(expected.len(), value_count(&request));
            }
            assert!(equal_ranks(&request, 0).is_empty());
        }
    }
}
