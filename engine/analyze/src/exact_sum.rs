//! A sum without rounding: a fixed-point binary number as wide as the added values need.
//!
//! After the long accumulator of Kulisch ("Computer Arithmetic and Validity", 2008), but only as wide as necessary.
//! Addition is therefore associative and commutative to the last bit.

use std::cmp::Ordering;

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

use crate::biguint;

/// Most 64-bit limbs of a sum: squares of doubles reach from 2^-2148 to 2^2048, and 2^64 of them may be added.
const LIMBS_MAX: usize = 72;

/// The limb that holds 2^-2176, below the square of the smallest double.
const LIMB_LOWEST: i32 = -34;

/// Bits by which values are moved where doubles do not hold their variance: the moved variance of any doubles is a
/// normal one.
const MOVED_BITS: i32 = 600;

/// Powers between which scaling a number of 128 bits by them is exact.
const POWERS_EXACT: std::ops::Range<i32> = -800..800;

/// An exact sum in two's complement limbs; the first limb weighs `2^(64 * low)`. The top limb holds only the sign,
/// so that an addition cannot overflow.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExactSum {
    low: i32,
    limbs: Vec<u64>,
}

impl ExactSum {
    /// Adds `value * 2^bit`.
    pub(crate) fn add_signed(&mut self, bit: i32, value: i128) {
        let sign = (value >> 127) as u64;
        self.add(bit, value as u128, sign);
    }

    /// Adds `value * 2^bit`.
    pub(crate) fn add_unsigned(&mut self, bit: i32, value: u128) {
        self.add(bit, value, 0);
    }

    fn add(&mut self, bit: i32, value: u128, sign: u64) {
        if value == 0 {
            return;
        }
        // The shifted value spans three limbs; the sign extends it beyond them.
        let limb = bit.div_euclid(64);
        let shift = bit.rem_euclid(64) as u32;
        let low = value << shift;
        let high = if shift == 0 {
            sign
        } else {
            (value >> (128 - shift)) as u64 | (sign << shift)
        };
        // A fourth limb holds the sign.
        self.cover(limb, limb + 4);
        let from = (limb - self.low) as usize;
        self.add_limbs(from, &[low as u64, (low >> 64) as u64, high], sign);
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &ExactSum) {
        if let Some(&sign) = other.limbs.last() {
            self.cover(other.low, other.low + other.limbs.len() as i32 + 1);
            let from = (other.low - self.low) as usize;
            self.add_limbs(from, &other.limbs, sign);
        }
    }

    /// Subtracts another sum.
    pub(crate) fn subtract(&mut self, other: &ExactSum) {
        let mut negated = other.clone();
        negate(&mut negated.limbs);
        self.merge(&negated);
    }

    /// The sum times `factor * 2^bit`. The sum must not be negative.
    pub(crate) fn times(&self, factor: u64, bit: i32) -> ExactSum {
        let mut product = ExactSum::default();
        for (index, limb) in self.limbs.iter().enumerate() {
            let limb_bit = 64 * (self.low + index as i32);
            product.add_unsigned(bit + limb_bit, u128::from(*limb) * u128::from(factor));
        }
        product
    }

    /// The order of the sum relative to 0.
    pub(crate) fn sign(&self) -> Ordering {
        if self.limbs.last() == Some(&u64::MAX) {
            return Ordering::Less;
        }
        if self.limbs.iter().all(|limb| *limb == 0) {
            return Ordering::Equal;
        }
        Ordering::Greater
    }

    /// Widens to the limbs `low..high`.
    fn cover(&mut self, low: i32, high: i32) {
        if self.limbs.is_empty() {
            self.low = low;
            self.limbs.reserve_exact((high - low) as usize);
        }
        if low < self.low {
            let missing = (self.low - low) as usize;
            self.limbs.splice(0..0, std::iter::repeat_n(0, missing));
            self.low = low;
        }
        // Two's complement: new high limbs repeat the sign.
        let length = (high - self.low) as usize;
        if self.limbs.len() < length {
            let sign = self.limbs.last().copied().unwrap_or(0);
            self.limbs.resize(length, sign);
        }
    }

    fn add_limbs(&mut self, from: usize, limbs: &[u64], sign: u64) {
        let mut carry = false;
        let mut step = |limb: &mut u64, addend: u64| {
            let (sum, over) = limb.overflowing_add(addend);
            let (sum, over_too) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = over | over_too;
            carry
        };
        let (near, far) = self.limbs[from..].split_at_mut(limbs.len());
        let mut last = false;
        for (limb, &addend) in near.iter_mut().zip(limbs) {
            last = step(limb, addend);
        }
        for limb in far {
            // Adding 0 without a carry, or -1 with one, changes no further limb.
            if last == (sign != 0) {
                break;
            }
            last = step(limb, sign);
        }
        // The top limb holds only the sign: where the sum reached it, one more limb is added.
        if let Some(&top) = self.limbs.last()
            && top != 0
            && top != u64::MAX
        {
            self.limbs.push(((top as i64) >> 63) as u64);
        }
    }

    /// The sign (true for negative), the absolute value without zero limbs at either end, and the weight of the first
    /// remaining limb, counted in limbs.
    pub(crate) fn magnitude(&self) -> (bool, Vec<u64>, i32) {
        let negative = self.limbs.last() == Some(&u64::MAX);
        let mut limbs = self.limbs.clone();
        if negative {
            negate(&mut limbs);
        }
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
        let zeros = limbs.iter().take_while(|&&limb| limb == 0).count();
        limbs.drain(..zeros);
        (negative, limbs, self.low + zeros as i32)
    }

    /// The sum, rounded to the nearest double.
    pub(crate) fn to_f64(&self) -> f64 {
        let (negative, limbs, low) = self.magnitude();
        let value = biguint::round_to_f64(&limbs, 64 * i64::from(low), false);
        signed(negative, value)
    }

    /// The sum divided by `n`, rounded to the nearest double.
    pub(crate) fn divided(&self, n: u64) -> f64 {
        let (negative, limbs, low) = self.magnitude();
        // Three more limbs: the quotient keeps at least two, more than the bits of a double.
        let mut limbs = biguint::shift_limbs(&limbs, 3);
        let remainder = biguint::divide(&mut limbs, n);
        let exponent = 64 * (i64::from(low) - 3);
        let value = biguint::round_to_f64(&limbs, exponent, remainder != 0);
        signed(negative, value)
    }

    /// The quotient of two sums, rounded to the nearest double; `None` if the divisor is 0.
    pub(crate) fn ratio(&self, by: &ExactSum) -> Option<f64> {
        let (negative, limbs, low) = self.magnitude();
        let (by_negative, divisor, by_low) = by.magnitude();
        if divisor.is_empty() {
            return None;
        }
        if limbs.is_empty() {
            return Some(0.0);
        }
        // Two limbs more than the divisor has make a quotient of more than 64 bits. The limbs below them are less than
        // one unit of it.
        let length = divisor.len() + 2;
        let mut low = i64::from(low);
        let mut top = limbs;
        let mut inexact = false;
        if top.len() > length {
            let below = top.len() - length;
            inexact = top.drain(..below).any(|limb| limb != 0);
            low += below as i64;
        } else {
            let missing = length - top.len();
            top = biguint::shift_limbs(&top, missing);
            low -= missing as i64;
        }
        let (quotient, remainder) = biguint::divide_long(&top, &divisor);
        inexact |= remainder.iter().any(|limb| *limb != 0);
        let value = biguint::round_to_f64(&quotient, 64 * (low - i64::from(by_low)), inexact);
        Some(signed(negative != by_negative, value))
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.limbs.capacity() * 8
    }

    /// Writes canonical bytes: equal sums have equal bytes.
    pub(crate) fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        let (negative, limbs, low) = self.magnitude();
        out.varint(limbs.len() as u64 * 2 + u64::from(negative))?;
        if !limbs.is_empty() {
            out.varint((low - LIMB_LOWEST) as u64)?;
            for limb in limbs {
                out.u64(limb)?;
            }
        }
        Ok(())
    }

    /// Reads bytes written by `encode`.
    pub(crate) fn decode(input: &mut StateDecoder<'_>) -> Result<Self> {
        // The lowest bit of the length is the sign.
        let head = input.length(LIMBS_MAX * 2 + 1)?;
        let length = head / 2;
        let negative = head % 2 == 1;
        if length == 0 {
            return Ok(ExactSum::default());
        }
        let low = input.length(LIMBS_MAX)? as i32 + LIMB_LOWEST;
        let mut limbs = Vec::with_capacity(length + 1);
        for _ in 0..length {
            limbs.push(input.u64()?);
        }
        // A zero limb at either end would give equal sums different bytes.
        if limbs.last() == Some(&0) || limbs.first() == Some(&0) {
            return Err(Fault::new(
                codes::CORRUPT,
                "a state holds a sum that is not canonical",
            ));
        }
        limbs.push(0);
        if negative {
            negate(&mut limbs);
        }
        Ok(ExactSum { low, limbs })
    }
}

/// Negates in two's complement.
fn negate(limbs: &mut [u64]) {
    let mut carry = true;
    for limb in limbs {
        (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
    }
}

/// Population variance `(n * squares - sum^2) / n^2`, rounded once to the nearest double.
pub(crate) fn variance(n: u64, sum: &ExactSum, squares: &ExactSum) -> f64 {
    moved_variance(n, sum, squares, 0)
}

/// The root of the variance that divides by `freedom`. It is a double also where its square, the variance, is none.
pub(crate) fn deviation(n: u64, freedom: u64, sum: &ExactSum, squares: &ExactSum) -> f64 {
    let variance = corrected_variance(variance(n, sum, squares), n, freedom);
    let bits = moved_bits(variance);
    if bits == 0 {
        return variance.sqrt();
    }
    let moved = corrected_variance(moved_variance(n, sum, squares, bits), n, freedom);
    moved.sqrt() * 2f64.powi(-bits)
}

/// The variance that divides by `freedom`. Without a correction nothing is multiplied: the population variance is
/// rounded once.
pub(crate) fn corrected_variance(variance: f64, n: u64, freedom: u64) -> f64 {
    if n == freedom {
        return variance;
    }
    variance * (n as f64 / freedom as f64)
}

/// The correlation of `n` pairs; `None` where one of the columns has equal values only.
pub(crate) fn correlation(
    n: u64,
    sums: [&ExactSum; 2],
    squares: [&ExactSum; 2],
    products: &ExactSum,
) -> Option<f64> {
    let x_bits = moved_bits(variance(n, sums[0], squares[0]));
    let y_bits = moved_bits(variance(n, sums[1], squares[1]));
    let x_variance = moved_variance(n, sums[0], squares[0], x_bits);
    let y_variance = moved_variance(n, sums[1], squares[1], y_bits);
    if x_variance == 0.0 || y_variance == 0.0 {
        return None;
    }
    let covariance = moved_covariance(n, sums, products, x_bits + y_bits);
    // One root each: the product of two variances may leave the doubles.
    let ratio = covariance / x_variance.sqrt() / y_variance.sqrt();
    Some(ratio.clamp(-1.0, 1.0)).filter(|ratio| ratio.is_finite())
}

/// The slope of the line of least squares through `n` pairs; `None` where all x are equal.
pub(crate) fn slope(
    n: u64,
    sums: [&ExactSum; 2],
    squares: [&ExactSum; 2],
    products: &ExactSum,
) -> Option<f64> {
    let x_bits = moved_bits(variance(n, sums[0], squares[0]));
    let y_bits = moved_bits(variance(n, sums[1], squares[1]));
    let x_variance = moved_variance(n, sums[0], squares[0], x_bits);
    if x_variance == 0.0 {
        return None;
    }
    let covariance = moved_covariance(n, sums, products, x_bits + y_bits);
    // In two steps: the power of two itself may leave the doubles.
    let half = 2f64.powi((x_bits - y_bits) / 2);
    Some(covariance / x_variance * half * half)
}

/// The IEEE sum of values with these numbers of infinities; `None` if there are none.
pub(crate) fn infinite_sum(plus_infinities: u64, minus_infinities: u64) -> Option<f64> {
    match (plus_infinities > 0, minus_infinities > 0) {
        (false, false) => None,
        (true, false) => Some(f64::INFINITY),
        (false, true) => Some(f64::NEG_INFINITY),
        (true, true) => Some(f64::NAN),
    }
}

/// The population covariance of `n` pairs, rounded once.
pub(crate) fn covariance(n: u64, sums: [&ExactSum; 2], products: &ExactSum) -> f64 {
    moved_covariance(n, sums, products, 0)
}

/// Bits by which values are moved so that doubles hold their variance: none where it is a normal double.
fn moved_bits(variance: f64) -> i32 {
    if variance.is_infinite() {
        return -MOVED_BITS;
    }
    if variance < f64::MIN_POSITIVE {
        return MOVED_BITS;
    }
    0
}

/// The population variance of the values times `2^bits`, rounded once.
fn moved_variance(n: u64, sum: &ExactSum, squares: &ExactSum, bits: i32) -> f64 {
    let (_, s, s_low) = sum.magnitude();
    let (_, q, q_low) = squares.magnitude();
    if q.is_empty() {
        return 0.0;
    }
    // A sum of zero has no weight of its own.
    let s_low = if s.is_empty() { q_low } else { 2 * s_low };
    let low = s_low.min(q_low);
    // Four more limbs: two for the bits that two divisions by n remove, two for precision.
    let extra = 4;
    let scaled_squares = biguint::multiply(&q, &[n]);
    let squared_sum = biguint::multiply(&s, &s);
    let mut spread = biguint::shift_limbs(&scaled_squares, (q_low - low) as usize + extra);
    let square = biguint::shift_limbs(&squared_sum, (s_low - low) as usize + extra);
    spread.resize(spread.len().max(square.len()), 0);
    biguint::subtract(&mut spread, &square);
    let remainder = biguint::divide(&mut spread, n) | biguint::divide(&mut spread, n);
    let exponent = 64 * (i64::from(low) - extra as i64) + 2 * i64::from(bits);
    biguint::round_to_f64(&spread, exponent, remainder != 0)
}

/// The population covariance of `n` pairs: `(n * P - X * Y) / n^2`, where `P` is the sum of products and `X` and `Y` are
/// the sums, times `2^bits` and rounded once.
fn moved_covariance(n: u64, sums: [&ExactSum; 2], products: &ExactSum, bits: i32) -> f64 {
    let (p_negative, p, p_low) = products.magnitude();
    let [(x_negative, x, x_low), (y_negative, y, y_low)] = sums.map(ExactSum::magnitude);
    let negative = x_negative != y_negative;
    let is_zero = [p.is_empty(), x.is_empty() || y.is_empty()];
    let (p_low, s_low) = match is_zero {
        [true, true] => return 0.0,
        [true, false] => (x_low + y_low, x_low + y_low),
        [false, true] => (p_low, p_low),
        [false, false] => (p_low, x_low + y_low),
    };
    let low = p_low.min(s_low);
    // As for the variance.
    let extra = 4;
    let scaled_products = biguint::multiply(&p, &[n]);
    let multiplied_sums = biguint::multiply(&x, &y);
    let mut of_products = biguint::shift_limbs(&scaled_products, (p_low - low) as usize + extra);
    let mut of_sums = biguint::shift_limbs(&multiplied_sums, (s_low - low) as usize + extra);
    // `n * P - X * Y` from absolute values: terms of different signs add up, others are subtracted.
    let (is_negative, mut spread) = if p_negative != negative {
        biguint::add(&mut of_products, &of_sums);
        (if is_zero[0] { !negative } else { p_negative }, of_products)
    } else if biguint::is_less(&of_products, &of_sums) {
        biguint::subtract(&mut of_sums, &of_products);
        (!negative, of_sums)
    } else {
        of_products.resize(of_products.len().max(of_sums.len()), 0);
        biguint::subtract(&mut of_products, &of_sums);
        (p_negative, of_products)
    };
    let remainder = biguint::divide(&mut spread, n) | biguint::divide(&mut spread, n);
    let exponent = 64 * (i64::from(low) - extra as i64) + i64::from(bits);
    let value = biguint::round_to_f64(&spread, exponent, remainder != 0);
    signed(is_negative, value)
}

/// `sum * 2^power`, rounded once; `None` where only an exact sum does that.
pub(crate) fn narrow_rounded(sum: i128, power: i32) -> Option<f64> {
    scaled(sum as f64, power)
}

/// `value * 2^power`, if that is exact.
fn scaled(value: f64, power: i32) -> Option<f64> {
    POWERS_EXACT
        .contains(&power)
        .then(|| value * 2f64.powi(power))
}

/// `sum * 2^power / count`, rounded once; `None` where only an exact sum does that. The count is above 0.
pub(crate) fn narrow_quotient(sum: i128, count: u64, power: i32) -> Option<f64> {
    if sum == 0 {
        return Some(0.0);
    }
    let size = sum.unsigned_abs();
    let zeros = size.leading_zeros();
    let size = size << zeros;
    let count = u128::from(count);
    // The quotient has at least 64 bits, so that its lowest bit can stand for the rest.
    let quotient = (size / count) | u128::from(!size.is_multiple_of(count));
    let mean = scaled(quotient as f64, power - zeros as i32)?;
    Some(if sum < 0 { -mean } else { mean })
}

fn signed(negative: bool, value: f64) -> f64 {
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covariances_have_signs_and_are_exact() {
        let add = |sum: &mut ExactSum, value: i64| sum.add_signed(0, i128::from(value));
        let of = |pairs: &[(i64, i64)]| {
            let mut x = ExactSum::default();
            let mut y = ExactSum::default();
            let mut products = ExactSum::default();
            for (a, b) in pairs {
                add(&mut x, *a);
                add(&mut y, *b);
                products.add_signed(0, i128::from(*a) * i128::from(*b));
            }
            moved_covariance(pairs.len() as u64, [&x, &y], &products, 0)
        };
        let naive = |pairs: &[(i64, i64)]| {
            let n = pairs.len() as i128;
            let sum = |of: &dyn Fn(&(i64, i64)) -> i128| pairs.iter().map(of).sum::<i128>();
            let spread = n * sum(&|(a, b)| i128::from(*a) * i128::from(*b))
                - sum(&|(a, _)| i128::from(*a)) * sum(&|(_, b)| i128::from(*b));
            spread as f64 / (n * n) as f64
        };
        let cases: [&[(i64, i64)]; 8] = [
            &[(1, 2), (2, 4), (4, 8)],
            &[(1, -2), (2, -4), (4, -8)],
            &[(-1, 5), (1, 5)],
            &[(1, -1), (-1, 1)],
            &[(1, 1), (-1, -1), (3, 3)],
            &[(1, 0), (0, 1)],
            &[(-5, 3), (-6, 3), (-9, 1)],
            &[(7, 7)],
        ];
        for pairs in cases {
            assert_eq!(of(pairs), naive(pairs), "{pairs:?}");
        }
        let far = 1 << 40;
        assert_eq!(of(&[(far, far), (far + 1, far + 1)]), 0.25);
    }

    #[test]
    fn ratios_are_rounded_once() {
        let sum = |parts: &[(i32, i128)]| {
            let mut sum = ExactSum::default();
            parts
                .iter()
                .for_each(|(bit, value)| sum.add_signed(*bit, *value));
            sum
        };
        // Numbers of 53 bits are divided by the hardware with one rounding.
        let mut seed = 7u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            seed >> 11
        };
        for case in 0..20_000 {
            let a = random() >> (case % 53);
            let b = random() >> (case % 31) | 1;
            let bit = (random() % 300) as i32 - 150;
            let by_bit = (random() % 300) as i32 - 150;
            let negative = if case % 2 == 0 { 1 } else { -1 };
            let found =
                sum(&[(bit, negative * i128::from(a))]).ratio(&sum(&[(by_bit, i128::from(b))]));
            let expected = negative as f64 * (a as f64 / b as f64) * 2f64.powi(bit - by_bit);
            assert_eq!(
                found.map(f64::to_bits),
                Some((expected + 0.0).to_bits()),
                "{a} / {b}"
            );
        }
        // The rest decides a tie, however far below it lies.
        let wide = sum(&[(0, (1 << 53) + 1), (-1000, 1)]);
        assert_eq!(wide.ratio(&sum(&[(0, 1)])), Some(9007199254740994.0));
        assert_eq!(
            sum(&[(0, (1 << 53) + 1)]).ratio(&sum(&[(0, 1)])),
            Some(9007199254740992.0)
        );
        assert_eq!(wide.ratio(&wide), Some(1.0));
        assert_eq!(wide.ratio(&ExactSum::default()), None);
    }

    #[test]
    fn multiples_are_subtracted_exactly() {
        let mut sum = ExactSum::default();
        sum.add_signed(-1074, 3);
        sum.add_signed(900, 5);
        let mut distance = sum.times(7 << 53, -53);
        for step in 0..7 {
            assert_eq!(distance.sign(), Ordering::Greater, "{step}");
            distance.subtract(&sum);
        }
        assert_eq!(distance.sign(), Ordering::Equal);
        distance.subtract(&sum);
        assert_eq!(distance.sign(), Ordering::Less);
        assert_eq!(distance.to_f64(), -sum.to_f64());
        assert_eq!(ExactSum::default().times(3, 0).sign(), Ordering::Equal);
        assert_eq!(sum.times(0, 0).sign(), Ordering::Equal);
        assert_eq!(
            sum.times(u64::MAX, 0).to_f64(),
            sum.to_f64() * 2f64.powi(64)
        );
    }

    #[test]
    fn signs_carries_and_windows() {
        let mut sum = ExactSum::default();
        sum.add_signed(0, -1);
        assert_eq!(sum.to_f64(), -1.0);
        sum.add_signed(1000, 1);
        sum.add_signed(-1074, -5);
        sum.add_signed(1000, -1);
        sum.add_signed(-1074, 5);
        assert_eq!(sum.to_f64(), -1.0);
        sum.add_signed(0, 1);
        assert_eq!(sum.to_f64(), 0.0);
        for _ in 0..10 {
            sum.add_unsigned(-2148, u128::MAX);
            sum.add_signed(63, i128::MIN);
        }
        assert_eq!(sum.to_f64(), -10.0 * 2f64.powi(190));
        let mut bytes = Vec::new();
        sum.encode(&mut StateEncoder(&mut bytes)).unwrap();
        let back = ExactSum::decode(&mut StateDecoder(&mut bytes.as_slice())).unwrap();
        assert_eq!(back.magnitude(), sum.magnitude());
        sum.merge(&back);
        assert_eq!(sum.to_f64(), -20.0 * 2f64.powi(190));
    }
}
