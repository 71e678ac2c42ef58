//! Accumulator of the moments of one group: counts, range and exact sums.

use forebay_model::{Result, StateDecoder, StateEncoder};

use crate::exact_sum::{ExactSum, corrected_variance, deviation, variance};

/// Widest square in bits that `InlineSums` accepts, so that `INLINE_ADDS_MAX` of them fit 127 bits.
const INLINE_BITS_MAX: i32 = 100;
const INLINE_ADDS_MAX: u32 = 1 << 27;

/// Number of bits by which later values may reach below the first one.
const INLINE_BITS_BELOW: i32 = 16;

/// Exact sums without heap memory, for numbers of similar magnitude and few digits, such as `f32` and integers.
/// Values that do not fit are added to the exact sums directly.
#[derive(Debug, Clone, Copy, Default)]
struct InlineSums {
    sum: i128,
    squares: u128,
    bit: i32,
    adds: u32,
}

impl InlineSums {
    /// Adds `mantissa * 2^bit`; returns false if it does not fit.
    fn push(&mut self, mantissa: i64, bit: i32) -> bool {
        if mantissa == 0 {
            return true;
        }
        // Trailing zeros are moved into the exponent: short numbers then fit whatever their magnitude.
        let zeros = mantissa.trailing_zeros() as i32;
        let odd = mantissa >> zeros;
        let bit = bit + zeros;
        // The first number fixes the position of the binary point, with room for smaller ones.
        if self.adds == 0 {
            self.bit = bit - INLINE_BITS_BELOW;
        }
        let shift = bit - self.bit;
        let width = 64 - odd.unsigned_abs().leading_zeros() as i32 + shift;
        if shift < 0 || 2 * width > INLINE_BITS_MAX || self.adds == INLINE_ADDS_MAX {
            return false;
        }
        let value = i128::from(odd) << shift;
        self.sum += value;
        self.squares += value.unsigned_abs() * value.unsigned_abs();
        self.adds += 1;
        true
    }

    fn flush(&self, sum: &mut ExactSum, squares: &mut ExactSum) {
        sum.add_signed(self.bit, self.sum);
        squares.add_unsigned(2 * self.bit, self.squares);
    }
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
    pub(crate) sum: ExactSum,
    pub(crate) squares: ExactSum,
    /// The part of the sums that is not yet added to `sum` and `squares`.
    near: InlineSums,
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
            sum: ExactSum::default(),
            squares: ExactSum::default(),
            near: InlineSums::default(),
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
    pub fn push(&mut self, value: f64) {
        if value.is_finite() {
            let (mantissa, bit) = decompose(value);
            self.finite += 1;
            if !self.near.push(mantissa, bit) {
                self.sum.add_signed(bit, i128::from(mantissa));
                let size = u128::from(mantissa.unsigned_abs());
                self.squares.add_unsigned(2 * bit, size * size);
            }
            self.range(value + 0.0, value + 0.0);
        } else {
            self.push_special(value);
        }
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
        let (mantissa, bit) = decompose(value);
        self.sum.add_signed(bit, -i128::from(mantissa));
        // A square of two mantissas has at most 106 bits.
        let square = i128::from(mantissa) * i128::from(mantissa);
        self.squares.add_signed(2 * bit, -square);
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
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
        other.near.flush(&mut self.sum, &mut self.squares);
    }

    /// Adds the inline sums to the exact sums.
    pub(crate) fn flush(&mut self) {
        std::mem::take(&mut self.near).flush(&mut self.sum, &mut self.squares);
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
        match (self.plus_infinities > 0, self.minus_infinities > 0) {
            (false, false) => None,
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            (true, true) => Some(f64::NAN),
        }
    }

    /// The sum, rounded once; `None` if there were no values.
    pub fn total(&mut self) -> Option<f64> {
        self.flush();
        if self.count() == 0 {
            return None;
        }
        Some(self.infinite().unwrap_or_else(|| self.sum.to_f64()))
    }

    /// The mean, rounded once; `None` if there were no values.
    pub fn mean(&mut self) -> Option<f64> {
        self.flush();
        if self.count() == 0 {
            return None;
        }
        let finite = self.finite;
        Some(self.infinite().unwrap_or_else(|| self.sum.divided(finite)))
    }

    /// Sum, mean and population variance (ddof 0), each rounded once; `None` if there were no values.
    pub fn results(&mut self) -> [Option<f64>; 3] {
        self.flush();
        match self.infinite() {
            _ if self.count() == 0 => [None; 3],
            Some(infinite) => [Some(infinite), Some(infinite), Some(f64::NAN)],
            None => {
                let sum = self.sum.to_f64();
                let mean = self.sum.divided(self.finite);
                let variance = variance(self.finite, &self.sum, &self.squares);
                [Some(sum), Some(mean), Some(variance)]
            }
        }
    }

    /// The variance that divides by `n - ddof`; `None` if there are too few values.
    pub fn variance(&mut self, ddof: u32) -> Option<f64> {
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
    pub fn deviation(&mut self, ddof: u32) -> Option<f64> {
        let count = self.count();
        if count <= u64::from(ddof) {
            return None;
        }
        if self.infinities() > 0 {
            return Some(f64::NAN);
        }
        self.flush();
        let freedom = count - u64::from(ddof);
        Some(deviation(count, freedom, &self.sum, &self.squares))
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
        self.sum.heap_bytes() + self.squares.heap_bytes()
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
        let mut sum = self.sum.clone();
        let mut squares = self.squares.clone();
        self.near.flush(&mut sum, &mut squares);
        sum.encode(out)?;
        squares.encode(out)
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
            sum: ExactSum::decode(input)?,
            squares: ExactSum::decode(input)?,
            near: InlineSums::default(),
        })
    }
}
