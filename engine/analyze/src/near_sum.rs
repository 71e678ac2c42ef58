//! Exact sums in a few machine words, of values whose exponents share a window.
//!
//! Adding such a value is a multiplication by a power of two and an addition with carries: the words are a part of the
//! long accumulator in `exact_sum.rs`. Values outside of the window are added to that one.

use crate::exact_sum::ExactSum;

/// Exponents of a window. A mantissa moved to the top of it has 116 bits, which leaves room for 2^10 additions.
const EXPONENTS: u32 = 64;

/// Exponents of a window below that of the value for which it opens, and up to `ALIGNED` fewer.
const EXPONENTS_BELOW: u32 = 36;

/// Windows begin at multiples of this exponent: those of partial sums of the same values are mostly the same.
const ALIGNED: u32 = 16;

/// The lowest exponent of the uppermost window: infinities and NaN are in none.
const LOWEST_MAX: u32 = 0x7ff - EXPONENTS;

/// The lowest exponent of a window that has not opened: no double reaches it.
const UNOPENED: u32 = 1 << 12;

/// Values outside of a window after which it moves to the next one. Single outliers do not move it.
const MISSES_MAX: u32 = 8;

/// Bits of the fraction of a double.
const FRACTION_BITS: u32 = 52;

/// Bias of exponents, and the bits of the fraction: the mantissa is an integer.
const INTEGER_BIAS: i32 = 1075;

/// Size from which a sum's highest word is moved to the exact sum, long before it overflows.
const FULL: i64 = 1 << 62;

/// A range of the exponents of normal doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExponentWindow {
    lowest: u32,
    misses: u32,
}

impl Default for ExponentWindow {
    fn default() -> Self {
        ExponentWindow {
            lowest: UNOPENED,
            // The first value opens it.
            misses: MISSES_MAX - 1,
        }
    }
}

impl ExponentWindow {
    /// The mantissa of a double with these bits, without its sign, and the number of bits by which it is moved; `None` if
    /// the window does not hold it. Zeros, subnormal numbers, infinities and NaN are in no window.
    #[inline(always)]
    pub(crate) fn place(self, bits: u64) -> Option<(u64, u32)> {
        let exponent = (bits >> FRACTION_BITS) as u32 & 0x7ff;
        let shift = exponent.wrapping_sub(self.lowest);
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        (shift < EXPONENTS).then_some((fraction | 1 << FRACTION_BITS, shift))
    }

    /// Weight of the lowest bit of a sum, as a power of two.
    pub(crate) fn bit(self) -> i32 {
        self.lowest as i32 - INTEGER_BIAS
    }

    /// Counts a finite value outside of the window. The next window, if the sums of this one are to be moved away and
    /// their place is the next one's; `None` if the value is added elsewhere.
    pub(crate) fn miss(&mut self, bits: u64) -> Option<ExponentWindow> {
        let exponent = (bits >> FRACTION_BITS) as u32 & 0x7ff;
        if exponent == 0 {
            // Subnormal numbers have a mantissa of another form.
            return None;
        }
        self.misses += 1;
        if self.misses < MISSES_MAX {
            return None;
        }
        let lowest = exponent.saturating_sub(EXPONENTS_BELOW) / ALIGNED * ALIGNED;
        Some(ExponentWindow {
            // Subnormal numbers have the exponent 0.
            lowest: lowest.clamp(1, LOWEST_MAX),
            misses: 0,
        })
    }

    /// A number for each window, for [`ExponentWindow::of_code`].
    pub(crate) fn code(self) -> u32 {
        self.lowest
    }

    /// The window of a number; `None` if it has none.
    pub(crate) fn of_code(code: u64) -> Option<Self> {
        if code == u64::from(UNOPENED) {
            return Some(ExponentWindow::default());
        }
        let lowest = u32::try_from(code).ok()?;
        (1..=LOWEST_MAX)
            .contains(&lowest)
            .then_some(ExponentWindow { lowest, misses: 0 })
    }

    /// True if sums of both windows have the same weight.
    pub(crate) fn is_same(self, other: ExponentWindow) -> bool {
        self.lowest == other.lowest
    }
}

/// The sum of values of a window. Two words rather than an `i128`, which would align to 16 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NearSum {
    low: u64,
    high: i64,
}

impl NearSum {
    /// A sum; `None` if additions to it could overflow.
    pub(crate) fn of(sum: i128) -> Option<Self> {
        let near = NearSum {
            low: sum as u64,
            high: (sum >> 64) as i64,
        };
        (!near.is_full()).then_some(near)
    }

    /// The sum, in units of the lowest bit of its window.
    #[inline(always)]
    pub(crate) fn value(self) -> i128 {
        (i128::from(self.high) << 64) | i128::from(self.low)
    }

    /// Adds an integer of 53 bits, moved by fewer than 64. The sum must not be full.
    #[inline(always)]
    pub(crate) fn add_mantissa(&mut self, mantissa: i64, shift: u32) {
        self.add(i128::from(mantissa) * i128::from(1u64 << shift));
    }

    /// Adds a sum that is not full, or a smaller number, to one that is not full.
    #[inline(always)]
    pub(crate) fn add(&mut self, addend: i128) {
        let sum = self.value().wrapping_add(addend);
        self.low = sum as u64;
        self.high = (sum >> 64) as i64;
    }

    /// True if the sum must be moved before the next addition.
    #[inline(always)]
    pub(crate) fn is_full(self) -> bool {
        self.high.wrapping_add(FULL) < 0
    }
}

/// The sum of products of values of a window, in two's complement; the lowest word is first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NearProducts([u64; 4]);

impl NearProducts {
    /// Adds an integer of 107 bits with its sign, moved by fewer than 128. The sum must not be full.
    #[inline(always)]
    pub(crate) fn add(&mut self, product: i128, shift: u32) {
        // The product moved by fewer than 64 bits has three words. Their sign extends into the fourth.
        let factor = 1u64 << (shift % 64);
        let low = u128::from(product as u64) * u128::from(factor);
        let high = (product >> 64) * i128::from(factor) + (low >> 64) as i128;
        let words = [low as u64, high as u64, (high >> 64) as u64];
        let [first, second, third, fourth] = &mut self.0;
        if shift < 64 {
            let sign = (high >> 127) as u64;
            let mut carry = false;
            (*first, carry) = first.carrying_add(words[0], carry);
            (*second, carry) = second.carrying_add(words[1], carry);
            (*third, carry) = third.carrying_add(words[2], carry);
            (*fourth, _) = fourth.carrying_add(sign, carry);
        } else {
            let mut carry = false;
            (*second, carry) = second.carrying_add(words[0], carry);
            (*third, carry) = third.carrying_add(words[1], carry);
            (*fourth, _) = fourth.carrying_add(words[2], carry);
        }
    }

    /// Adds another sum; neither is full.
    pub(crate) fn merge(&mut self, other: NearProducts) {
        let mut carry = false;
        for (word, addend) in self.0.iter_mut().zip(other.0) {
            (*word, carry) = word.carrying_add(addend, carry);
        }
    }

    /// True if the sum must be moved before the next addition.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        (self.0[3] as i64).wrapping_add(FULL) < 0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; 4]
    }

    /// The words of the sum, the lowest first. The last one has the sign.
    pub(crate) fn words(&self) -> ([u64; 3], i64) {
        let [first, second, third, fourth] = self.0;
        ([first, second, third], fourth as i64)
    }

    /// Adds `products * 2^bit` to an exact sum.
    pub(crate) fn add_to(&self, bit: i32, sum: &mut ExactSum) {
        let [first, second, third, fourth] = self.0.map(u128::from);
        sum.add_unsigned(bit, first | second << 64);
        // The higher half has the sign.
        sum.add_signed(bit + 128, (third | fourth << 64) as i128);
    }
}
