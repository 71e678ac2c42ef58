//! Accumulator of the moments of one group: counts, range and exact sums.

use forebay_model::{Result, StateDecoder, StateEncoder};

use crate::exact_sum::{ExactSum, corrected_variance, deviation, infinite_sum, variance};
use crate::near_sum::{ExponentWindow, NearProducts, NearSum};

/// Exact sums of values and of their squares.
#[derive(Debug, Clone, Default)]
pub(crate) struct MomentSums {
    pub(crate) sum: ExactSum,
    pub(crate) squares: ExactSum,
}

/// The sums of values whose exponents share a window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NearMoments {
    pub(crate) sum: NearSum,
    pub(crate) squares: NearProducts,
    pub(crate) window: ExponentWindow,
}

impl NearMoments {
    /// Adds a value if the window holds it.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: f64) -> bool {
        let bits = value.to_bits();
        let Some((size, shift)) = self.window.place(bits) else {
            return false;
        };
        self.sum.add_mantissa(signed_mantissa(size, bits), shift);
        self.squares.add(square(size), 2 * shift);
        true
    }

    /// Subtracts a value if the window holds it.
    fn remove(&mut self, value: f64) -> bool {
        let bits = value.to_bits();
        let Some((size, shift)) = self.window.place(bits) else {
            return false;
        };
        self.sum.add_mantissa(-signed_mantissa(size, bits), shift);
        self.squares.add(-square(size), 2 * shift);
        true
    }

    /// True if the sums must be moved before the next value.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.sum.is_full() || self.squares.is_full()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.sum.value() == 0 && self.squares.is_zero()
    }

    /// Adds the sums to exact ones.
    pub(crate) fn add_to(&self, sums: &mut MomentSums) {
        let bit = self.window.bit();
        sums.sum.add_signed(bit, self.sum.value());
        self.squares.add_to(2 * bit, &mut sums.squares);
    }
}

/// A mantissa with the sign of the double that has these bits.
#[inline(always)]
pub(crate) fn signed_mantissa(size: u64, bits: u64) -> i64 {
    // The sign is 0 or -1: this negates the mantissa without a branch.
    let sign = (bits as i64) >> 63;
    (size as i64 ^ sign) - sign
}

/// The square of a mantissa, of at most 106 bits.
#[inline(always)]
fn square(size: u64) -> i128 {
    (u128::from(size) * u128::from(size)) as i128
}

/// Counts, range, exact sum and exact sum of squares of a multiset of numbers.
#[derive(Debug, Clone)]
pub struct MomentAccumulator {
    pub(crate) finite: u64,
    pub(crate) nans: u64,
    pub(crate) plus_infinities: u64,
    pub(crate) minus_infinities: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    near: NearMoments,
    /// The part of the sums that is not in `near`. Most groups have none.
    far: Option<Box<MomentSums>>,
}

impl Default for MomentAccumulator {
    fn default() -> Self {
        MomentAccumulator {
            finite: 0,
            nans: 0,
            plus_infinities: 0,
            minus_infinities: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            near: NearMoments::default(),
            far: None,
        }
    }
}

/// A finite double as `mantissa * 2^bit`.
pub(crate) fn decompose(value: f64) -> (i64, i32) {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i32 & 0x7ff;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let mantissa = if exponent == 0 {
        fraction
    } else {
        fraction | 1 << 52
    };
    // Subnormal numbers have the exponent of the smallest normal ones. 1075 is the bias and the 52 bits of the fraction.
    let bit = exponent.max(1) - 1075;
    if value < 0.0 {
        (-mantissa, bit)
    } else {
        (mantissa, bit)
    }
}

impl MomentAccumulator {
    /// Accumulates one value.
    #[inline]
    pub fn push(&mut self, value: f64) {
        if !self.near.push(value) {
            return self.push_outside(value);
        }
        self.finite += 1;
        // Values of a window are neither NaN nor zero, whose sign would have to be removed.
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        if self.near.is_full() {
            self.flush();
        }
    }

    /// Accumulates a value outside of the window.
    #[cold]
    #[inline(never)]
    fn push_outside(&mut self, value: f64) {
        if !value.is_finite() {
            return self.push_special(value);
        }
        self.finite += 1;
        // Adding 0.0 turns -0.0 into 0.0.
        self.range(value + 0.0, value + 0.0);
        if value == 0.0 {
            return;
        }
        if let Some(window) = self.near.window.miss(value.to_bits()) {
            self.flush();
            self.near.window = window;
            self.near.push(value);
            return;
        }
        let (mantissa, bit) = decompose(value);
        let sums = self.far_mut();
        sums.sum.add_signed(bit, i128::from(mantissa));
        let size = mantissa.unsigned_abs();
        sums.squares.add_signed(2 * bit, square(size));
    }

    /// Removes a value that was accumulated. The extremes stay those of all values that there were.
    pub fn remove(&mut self, value: f64) {
        if value.is_nan() {
            self.nans = self.nans.saturating_sub(1);
            return;
        }
        if value.is_infinite() {
            let infinities = if value > 0.0 {
                &mut self.plus_infinities
            } else {
                &mut self.minus_infinities
            };
            *infinities = infinities.saturating_sub(1);
            return;
        }
        self.finite = self.finite.saturating_sub(1);
        if self.near.remove(value) {
            if self.near.is_full() {
                self.flush();
            }
            return;
        }
        if value == 0.0 {
            return;
        }
        let (mantissa, bit) = decompose(value);
        let sums = self.far_mut();
        sums.sum.add_signed(bit, -i128::from(mantissa));
        let size = mantissa.unsigned_abs();
        sums.squares.add_signed(2 * bit, -square(size));
    }

    /// Accumulates a NaN or an infinity.
    #[cold]
    pub(crate) fn push_special(&mut self, value: f64) {
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        self.plus_infinities += u64::from(value > 0.0);
        self.minus_infinities += u64::from(value < 0.0);
        self.range(value, value);
    }

    /// Extends the range.
    pub(crate) fn range(&mut self, min: f64, max: f64) {
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Merges another accumulator.
    pub fn merge(&mut self, other: &MomentAccumulator) {
        self.finite += other.finite;
        self.nans += other.nans;
        self.plus_infinities += other.plus_infinities;
        self.minus_infinities += other.minus_infinities;
        self.range(other.min, other.max);
        if let Some(later_sums) = &other.far {
            let sums = self.far_mut();
            sums.sum.merge(&later_sums.sum);
            sums.squares.merge(&later_sums.squares);
        }
        self.merge_near(&other.near);
    }

    fn merge_near(&mut self, later_near: &NearMoments) {
        if later_near.is_zero() {
            return;
        }
        if self.near.is_zero() {
            self.near = *later_near;
            return;
        }
        if !self.near.window.is_same(later_near.window) {
            later_near.add_to(self.far_mut());
            return;
        }
        self.near.sum.add(later_near.sum.value());
        self.near.squares.merge(later_near.squares);
        if self.near.is_full() {
            self.flush();
        }
    }

    /// Moves the sums of the window to the exact sums.
    #[cold]
    fn flush(&mut self) {
        if self.near.is_zero() {
            return;
        }
        let near = self.near;
        near.add_to(self.far_mut());
        self.near.sum = NearSum::default();
        self.near.squares = NearProducts::default();
    }

    /// Exact sums to which others may be added.
    pub(crate) fn far_mut(&mut self) -> &mut MomentSums {
        self.far.get_or_insert_default()
    }

    /// The exact sums.
    pub(crate) fn sums(&self) -> MomentSums {
        let mut sums = self.far.as_deref().cloned().unwrap_or_default();
        self.near.add_to(&mut sums);
        sums
    }

    /// Number of values that are neither null nor NaN.
    pub fn count(&self) -> u64 {
        self.finite + self.infinities()
    }

    pub(crate) fn infinities(&self) -> u64 {
        self.plus_infinities + self.minus_infinities
    }

    /// The IEEE sum if there are infinities; `None` otherwise.
    fn infinite(&self) -> Option<f64> {
        infinite_sum(self.plus_infinities, self.minus_infinities)
    }

    /// The sum, rounded once; `None` if there were no values.
    pub fn total(&self) -> Option<f64> {
        if self.count() == 0 {
            return None;
        }
        Some(self.infinite().unwrap_or_else(|| self.sums().sum.to_f64()))
    }

    /// The mean, rounded once; `None` if there were no values.
    pub fn mean(&self) -> Option<f64> {
        if self.count() == 0 {
            return None;
        }
        let infinite = self.infinite();
        Some(infinite.unwrap_or_else(|| self.sums().sum.divided(self.finite)))
    }

    /// Sum, mean and population variance (ddof 0), each rounded once; `None` if there were no values.
    pub fn results(&self) -> [Option<f64>; 3] {
        match self.infinite() {
            _ if self.count() == 0 => [None; 3],
            Some(infinite) => [Some(infinite), Some(infinite), Some(f64::NAN)],
            None => {
                let sums = self.sums();
                let sum = sums.sum.to_f64();
                let mean = sums.sum.divided(self.finite);
                let variance = variance(self.finite, &sums.sum, &sums.squares);
                [Some(sum), Some(mean), Some(variance)]
            }
        }
    }

    /// The variance that divides by `n - ddof`; `None` if there are too few values.
    pub fn variance(&self, ddof: u32) -> Option<f64> {
        let count = self.count();
        if count <= u64::from(ddof) {
            return None;
        }
        let freedom = count - u64::from(ddof);
        let [_, _, variance] = self.results();
        Some(corrected_variance(variance?, count, freedom))
    }

    /// The root of the variance that divides by `n - ddof`; `None` if there are too few values. It is a double also
    /// where the variance is beyond them.
    pub fn deviation(&self, ddof: u32) -> Option<f64> {
        let count = self.count();
        if count <= u64::from(ddof) {
            return None;
        }
        if self.infinities() > 0 {
            return Some(f64::NAN);
        }
        let freedom = count - u64::from(ddof);
        let sums = self.sums();
        Some(deviation(count, freedom, &sums.sum, &sums.squares))
    }

    /// The minimum; `None` if there were no values.
    pub fn min(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.min)
    }

    /// The maximum; `None` if there were no values.
    pub fn max(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.max)
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        let Some(sums) = &self.far else {
            return 0;
        };
        size_of::<MomentSums>() + sums.sum.heap_bytes() + sums.squares.heap_bytes()
    }

    /// Writes canonical bytes.
    pub fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        for count in [
            self.finite,
            self.nans,
            self.plus_infinities,
            self.minus_infinities,
        ] {
            out.varint(count)?;
        }
        out.f64(self.min)?;
        out.f64(self.max)?;
        let sums = self.sums();
        sums.sum.encode(out)?;
        sums.squares.encode(out)
    }

    /// Reads bytes written by `encode`.
    pub fn decode(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(MomentAccumulator {
            finite: input.count()?,
            nans: input.count()?,
            plus_infinities: input.count()?,
            minus_infinities: input.count()?,
            min: input.f64()?,
            max: input.f64()?,
            near: NearMoments::default(),
            far: Some(Box::new(MomentSums {
                sum: ExactSum::decode(input)?,
                squares: ExactSum::decode(input)?,
            })),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A value, the part that accumulates it, and true if it is removed again.
    pub(crate) type DrawnValue = (f64, usize, bool);

    /// Parts into which values are divided.
    pub(crate) const PARTS: usize = 4;

    fn numbers() -> BoxedStrategy<f64> {
        let specials = vec![
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            5e-324,
            -1e-310,
            f64::MIN_POSITIVE,
            f64::MAX,
            f64::MIN,
            1e308,
            -1e308,
        ];
        prop_oneof![
            4 => (-100_000..100_000i32).prop_map(|cents| f64::from(cents) / 100.0),
            4 => (-9..9i32).prop_map(f64::from),
            2 => (-1.0..1.0f64, -12..12i32).prop_map(|(size, power)| size * 10f64.powi(power)),
            1 => any::<u64>().prop_map(f64::from_bits),
            1 => prop::sample::select(specials),
        ]
        .boxed()
    }

    /// Values of one magnitude, of some, of all, and those at the ends of doubles.
    pub(crate) fn drawn_values() -> BoxedStrategy<Vec<DrawnValue>> {
        let number = prop_oneof![
            Just((-100.0..100.0f64).boxed()),
            Just(numbers()),
            Just(any::<u64>().prop_map(f64::from_bits).boxed()),
            Just((0..1u64 << 58).prop_map(f64::from_bits).boxed()),
            Just((f64::MAX / 4.0..f64::MAX).boxed()),
        ];
        number
            .prop_flat_map(|number| prop::collection::vec((number, 0..PARTS, any::<bool>()), 0..60))
            .boxed()
    }

    fn encoded(moment: &MomentAccumulator) -> Vec<u8> {
        let mut bytes = Vec::new();
        moment.encode(&mut StateEncoder(&mut bytes)).unwrap();
        bytes
    }

    /// The state of values without a window: each is added to the exact sums.
    fn expected_bytes(values: &[DrawnValue]) -> Vec<u8> {
        let mut expected = MomentAccumulator::default();
        for (value, _, is_removed) in values {
            if !value.is_finite() {
                expected.push_special(*value);
                if *is_removed {
                    expected.remove(*value);
                }
                continue;
            }
            // The range is that of all values that there were.
            expected.range(value + 0.0, value + 0.0);
            if *is_removed {
                continue;
            }
            expected.finite += 1;
            let (mantissa, bit) = decompose(*value);
            let sums = expected.far_mut();
            sums.sum.add_signed(bit, i128::from(mantissa));
            let size = u128::from(mantissa.unsigned_abs());
            sums.squares.add_unsigned(2 * bit, size * size);
        }
        encoded(&expected)
    }

    proptest! {
        /// States have the bytes of exact sums, for any division and order of merges, with values that come and go.
        #[test]
        fn states_are_those_of_exact_sums(
            values in drawn_values(),
            first_part in 0..PARTS,
            is_decoded in any::<bool>(),
        ) {
            let mut parts = vec![MomentAccumulator::default(); PARTS];
            for (value, part, _) in &values {
                parts[*part].push(*value);
            }
            for (value, part, is_removed) in &values {
                if *is_removed {
                    parts[*part].remove(*value);
                }
            }
            parts.rotate_left(first_part);
            let mut merged = MomentAccumulator::default();
            for part in &parts {
                if is_decoded {
                    let bytes = encoded(part);
                    let mut input = bytes.as_slice();
                    let back = MomentAccumulator::decode(&mut StateDecoder(&mut input)).unwrap();
                    merged.merge(&back);
                } else {
                    merged.merge(part);
                }
            }
            prop_assert_eq!(encoded(&merged), expected_bytes(&values));
        }
    }

    /// Values at the top of a window fill its words after 2^10 additions.
    #[test]
    fn full_windows_move_to_the_exact_sums() {
        let top = 131_071.999;
        for sign in [1.0, -1.0] {
            let mut values = vec![(1.0, 0, false)];
            values.extend(std::iter::repeat_n((sign * top, 0, false), 5000));
            let mut moment = MomentAccumulator::default();
            let mut halves = [MomentAccumulator::default(), MomentAccumulator::default()];
            for (row, (value, ..)) in values.iter().enumerate() {
                moment.push(*value);
                halves[row % 2].push(*value);
            }
            assert!(moment.heap_bytes() > 0);
            assert_eq!(encoded(&moment), expected_bytes(&values));
            let [mut first, second] = halves;
            first.merge(&second);
            assert_eq!(encoded(&first), expected_bytes(&values));
        }
    }

    #[test]
    fn values_of_similar_magnitude_need_no_heap_memory() {
        let mut moment = MomentAccumulator::default();
        for row in 0..10_000 {
            moment.push(f64::from(row % 1000 - 500) / 7.0);
        }
        assert_eq!(moment.heap_bytes(), 0);
        // A single outlier does not move the window, and many others do.
        moment.push(1e-200);
        let bytes = moment.heap_bytes();
        for row in 0..1000 {
            moment.push(f64::from(row) / 7.0);
        }
        assert_eq!(moment.heap_bytes(), bytes);
    }
}
