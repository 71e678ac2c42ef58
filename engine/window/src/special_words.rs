//! Words that stand for no value.

/// A missing value in the encoding [`WordEncoding::Bits`](crate::WordEncoding::Bits).
pub(crate) const NO_BITS: u64 = i64::MIN as u64;

/// A missing value in the encoding [`WordEncoding::Number`](crate::WordEncoding::Number). Every NaN is encoded as this one.
pub(crate) const NO_NUMBER: u64 = f64::NAN.to_bits();

/// A result of enough values that is not defined, such as the mean of infinities of both signs. It is null in the
/// output, as a missing value is, and is counted by [`crate::count_undefined`].
pub(crate) const UNDEFINED_NUMBER: u64 = 0x7ffc_0000_0000_0000;

/// A difference of integers that 64 bits do not hold. Null and counted, as [`UNDEFINED_NUMBER`] is. The difference
/// of this value is one of them: all values below -(2^63 - 2) are.
pub(crate) const UNDEFINED_DIFFERENCE: u64 = (i64::MIN + 1) as u64;

/// A result of enough values: NaN becomes [`UNDEFINED_NUMBER`].
#[inline(always)]
pub(crate) fn defined(value: f64) -> f64 {
    if value.is_nan() {
        f64::from_bits(UNDEFINED_NUMBER)
    } else {
        value
    }
}
