//! Moments of pairs of numbers.

use forebay_model::{Result, StateDecoder, StateEncoder};

use crate::compact_sum::CompactSum;
use crate::exact_sum::{ExactSum, corrected_variance, correlation, covariance, slope};
use crate::moment_accumulator::{MomentAccumulator, decompose};

/// Moments of pairs `(x, y)`: those of each number, and the exact sum of their products. Pairs with a NaN are ignored.
#[derive(Debug, Clone, Default)]
pub struct PairMoments {
    x: MomentAccumulator,
    y: MomentAccumulator,
    products: CompactSum,
}

impl PairMoments {
    /// Accumulates a pair.
    pub fn push(&mut self, x: f64, y: f64) {
        if !x.is_nan() && !y.is_nan() {
            self.x.push(x);
            self.y.push(y);
            self.add_product(x, y, 1);
        }
    }

    /// Removes a pair that was accumulated.
    pub fn remove(&mut self, x: f64, y: f64) {
        if !x.is_nan() && !y.is_nan() {
            self.x.remove(x);
            self.y.remove(y);
            self.add_product(x, y, -1);
        }
    }

    fn add_product(&mut self, x: f64, y: f64, sign: i128) {
        if x.is_finite() && y.is_finite() {
            let (x, x_bit) = decompose(x);
            let (y, y_bit) = decompose(y);
            let product = i128::from(x) * i128::from(y);
            self.products.add(x_bit + y_bit, sign * product);
        }
    }

    /// Merges another accumulator.
    pub fn merge(&mut self, other: &PairMoments) {
        self.x.merge(&other.x);
        self.y.merge(&other.y);
        self.products.merge(&other.products);
    }

    /// Number of pairs.
    pub fn count(&self) -> u64 {
        self.x.count()
    }

    /// The mean of x; `None` without pairs.
    pub fn x_mean(&self) -> Option<f64> {
        self.x.mean()
    }

    /// The mean of y; `None` without pairs.
    pub fn y_mean(&self) -> Option<f64> {
        self.y.mean()
    }

    /// The sum of squared distances of x from its mean; `None` without pairs.
    pub fn x_spread(&self) -> Option<f64> {
        spread(&self.x)
    }

    /// The sum of squared distances of y from its mean; `None` without pairs.
    pub fn y_spread(&self) -> Option<f64> {
        spread(&self.y)
    }

    /// The sum of products of the distances of x and y from their means; `None` without pairs.
    pub fn joint_spread(&self) -> Option<f64> {
        let pairs = self.count();
        Some(self.covariance(0)? * pairs as f64)
    }

    /// The covariance that divides by `n - ddof`; `None` if there are too few pairs, NaN beside infinities.
    pub fn covariance(&self, ddof: u32) -> Option<f64> {
        let count = self.count();
        if count <= u64::from(ddof) {
            return None;
        }
        if self.has_infinities() {
            return Some(f64::NAN);
        }
        let freedom = count - u64::from(ddof);
        let x = self.x.sums();
        let y = self.y.sums();
        let population = covariance(count, [&x.sum, &y.sum], &self.products.exact());
        Some(corrected_variance(population, count, freedom))
    }

    /// Pearson's correlation; `None` for less than two pairs and where all x or all y are equal, NaN beside infinities.
    pub fn correlation(&self) -> Option<f64> {
        self.of_line(correlation)
    }

    /// The change of y for each unit of x, on the line of least squares; `None` for less than two pairs and where all x
    /// are equal, NaN beside infinities.
    pub fn slope(&self) -> Option<f64> {
        self.of_line(slope)
    }

    /// The y of the line of least squares where x is 0; `None` where there is no slope.
    pub fn intercept(&self) -> Option<f64> {
        let slope = self.slope()?;
        Some(self.y_mean()? - slope * self.x_mean()?)
    }

    fn of_line(
        &self,
        statistic: fn(u64, [&ExactSum; 2], [&ExactSum; 2], &ExactSum) -> Option<f64>,
    ) -> Option<f64> {
        let count = self.count();
        if count < 2 {
            return None;
        }
        if self.has_infinities() {
            return Some(f64::NAN);
        }
        let x = self.x.sums();
        let y = self.y.sums();
        let sums = [&x.sum, &y.sum];
        let squares = [&x.squares, &y.squares];
        statistic(count, sums, squares, &self.products.exact())
    }

    fn has_infinities(&self) -> bool {
        self.x.infinities() + self.y.infinities() > 0
    }

    /// Bytes of heap memory: at most five sums of 650 bytes; none where the exponents of values are near each other.
    pub fn heap_bytes(&self) -> usize {
        self.x.heap_bytes() + self.y.heap_bytes() + self.products.heap_bytes()
    }

    /// Writes canonical bytes.
    pub fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.x.encode(out)?;
        self.y.encode(out)?;
        self.products.encode(out)
    }

    /// Reads bytes written by `encode`.
    pub fn decode(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(PairMoments {
            x: MomentAccumulator::decode(input)?,
            y: MomentAccumulator::decode(input)?,
            products: CompactSum::decode(input)?,
        })
    }
}

fn spread(moment: &MomentAccumulator) -> Option<f64> {
    let values = moment.count();
    Some(moment.variance(0)? * values as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::moment_accumulator::tests::{PARTS, drawn_values};

    fn pairs(scale_x: f64, scale_y: f64) -> PairMoments {
        let mut moments = PairMoments::default();
        for (x, y) in [(1.0, 3.0), (2.0, 5.0), (4.0, 9.0), (f64::NAN, 7.0)] {
            moments.push(x * scale_x, y * scale_y);
        }
        moments
    }

    /// Lines are those of scaled pairs, also if squares are no doubles.
    #[test]
    fn lines_of_huge_and_of_tiny_pairs_are_those_of_others() {
        for (x, y) in [
            (1.0, 1.0),
            (1e200, 1e200),
            (1e-200, 1e-200),
            (1e-200, 1.0),
            (1.0, 1e200),
            (1e100, 1e-100),
            (1e150, 1e-100),
        ] {
            let moments = pairs(x, y);
            let expected = [1.0, 2.0 * (y / x), y];
            let values = [
                moments.correlation().unwrap(),
                moments.slope().unwrap(),
                moments.intercept().unwrap(),
            ];
            for (value, expected) in values.into_iter().zip(expected) {
                let error = (value / expected - 1.0).abs();
                assert!(error < 1e-13, "{x} {y}: {value} is not {expected}");
            }
        }
        let moments = pairs(1e200, 1e-200);
        let covariance = moments.covariance(0).unwrap();
        assert!((covariance - 28.0 / 9.0).abs() < 1e-13, "{covariance}");
        assert_eq!(pairs(1e200, 1e200).covariance(1), Some(f64::INFINITY));
    }

    proptest! {
        /// States have the bytes of exact sums, for any division of the pairs.
        #[test]
        fn states_are_those_of_exact_sums(values in drawn_values()) {
            let mut parts = vec![PairMoments::default(); PARTS];
            let mut x = MomentAccumulator::default();
            let mut y = MomentAccumulator::default();
            let mut products = ExactSum::default();
            for pair in values.windows(2) {
                let (x_value, part, is_removed) = pair[0];
                let (y_value, ..) = pair[1];
                parts[part].push(x_value, y_value);
                if is_removed {
                    parts[part].remove(x_value, y_value);
                }
                if x_value.is_nan() || y_value.is_nan() {
                    continue;
                }
                x.push(x_value);
                y.push(y_value);
                if is_removed {
                    x.remove(x_value);
                    y.remove(y_value);
                } else if x_value.is_finite() && y_value.is_finite() {
                    let (x_mantissa, x_bit) = decompose(x_value);
                    let (y_mantissa, y_bit) = decompose(y_value);
                    let product = i128::from(x_mantissa) * i128::from(y_mantissa);
                    products.add_signed(x_bit + y_bit, product);
                }
            }
            let mut merged = PairMoments::default();
            for part in &parts {
                merged.merge(part);
            }
            let mut bytes = Vec::new();
            merged.encode(&mut StateEncoder(&mut bytes)).unwrap();
            let mut expected = Vec::new();
            let mut out = StateEncoder(&mut expected);
            x.encode(&mut out).unwrap();
            y.encode(&mut out).unwrap();
            products.encode(&mut out).unwrap();
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn pairs_that_are_removed_leave_nothing() {
        let mut moments = PairMoments::default();
        moments.push(1e300, -1e300);
        moments.push(f64::INFINITY, 1.0);
        assert!(moments.slope().unwrap().is_nan());
        for (x, y) in [(1.0, 2.0), (2.0, 4.0), (3.0, 7.0)] {
            moments.push(x, y);
        }
        moments.remove(1e300, -1e300);
        moments.remove(f64::INFINITY, 1.0);
        moments.remove(f64::NAN, 1.0);
        assert_eq!(moments.count(), 3);
        assert!((moments.slope().unwrap() - 2.5).abs() < 1e-15);
        assert_eq!(moments.x_mean(), Some(2.0));
        assert_eq!(moments.x_spread(), Some(2.0));
        assert_eq!(moments.joint_spread(), Some(5.0));
    }

    #[test]
    fn too_few_and_equal_values_have_no_line() {
        let mut moments = PairMoments::default();
        assert_eq!(moments.covariance(0), None);
        moments.push(1.0, 2.0);
        assert_eq!(moments.covariance(0), Some(0.0));
        assert_eq!(moments.covariance(1), None);
        assert_eq!(moments.slope(), None);
        moments.push(1.0, 3.0);
        assert_eq!(moments.slope(), None);
        assert_eq!(moments.correlation(), None);
        let mut flat = PairMoments::default();
        flat.push(1.0, 2.0);
        flat.push(2.0, 2.0);
        assert_eq!(flat.slope(), Some(0.0));
        assert_eq!(flat.intercept(), Some(2.0));
        assert_eq!(flat.correlation(), None);
    }
}
