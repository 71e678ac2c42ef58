//! Hot loops of exact sums. Values are accumulated per exponent in machine integers and added to the exact sums
//! once per exponent instead of once per value.

use crate::moment_accumulator::MomentAccumulator;

/// Number of exponents held at a time; data rarely spans more than a few dozen.
const BINS: usize = 64;

/// Most additions between flushes: squares of 53-bit mantissas are below 2^106, so 2^21 of them fit 128 bits.
const ADDS_MAX: usize = 1 << 21;

/// Values per block of `f32` and integers, so that narrow sums cannot overflow:
/// squares of 24-bit mantissas are below 2^48, and 2^14 of them below 2^62.
const BLOCK: usize = 1 << 14;

#[derive(Debug, Clone, Copy, Default)]
struct ExponentBin {
    sum: i128,
    squares: u128,
    exponent: u32,
}

/// Per-exponent sums of doubles, not yet added to the exact sums.
#[derive(Debug)]
pub(crate) struct ExponentBins {
    /// Two banks, for values at even and odd positions, shorten the chains of dependent additions.
    banks: Box<[[ExponentBin; BINS]; 2]>,
    adds: usize,
}

impl Default for ExponentBins {
    fn default() -> Self {
        ExponentBins {
            banks: Box::new([[ExponentBin::default(); BINS]; 2]),
            adds: 0,
        }
    }
}

impl ExponentBins {
    pub(crate) const BYTES: usize = size_of::<[[ExponentBin; BINS]; 2]>();

    /// Accumulates values.
    pub(crate) fn push(&mut self, values: &[f64], into: &mut MomentAccumulator) {
        for block in values.chunks(BLOCK) {
            if self.adds + block.len() > ADDS_MAX {
                self.flush(into);
            }
            self.adds += block.len();
            self.push_block(block, into);
        }
    }

    fn push_block(&mut self, block: &[f64], into: &mut MomentAccumulator) {
        let mut min = f64::INFINITY;
        let mut max = f64::NEG_INFINITY;
        let mut special = 0;
        let [even, odd] = &mut *self.banks;
        let mut add_value = |bank: &mut [ExponentBin; BINS], value: f64| {
            let bits = value.to_bits();
            let exponent = (bits >> 52) as u32 & 0x7ff;
            if exponent == 0x7ff {
                special += 1;
                into.push_special(value);
                return;
            }
            min = if value < min { value } else { min };
            max = if value > max { value } else { max };
            let mantissa = (bits & ((1 << 52) - 1)) | (u64::from(exponent != 0) << 52);
            // Subnormal numbers have the weight of the smallest normal ones. Exponents 64 apart share a bin: the one
            // that comes next pushes the other out.
            let exponent = exponent.max(1);
            let bin = &mut bank[exponent as usize % BINS];
            if bin.exponent != exponent {
                flush_bin(bin, into);
                bin.exponent = exponent;
            }
            let signed = if (bits as i64) < 0 {
                -(mantissa as i64)
            } else {
                mantissa as i64
            };
            bin.sum += i128::from(signed);
            bin.squares += u128::from(mantissa) * u128::from(mantissa);
        };
        let (pairs, last_value) = block.as_chunks::<2>();
        for &[first, second] in pairs {
            add_value(even, first);
            add_value(odd, second);
        }
        for &value in last_value {
            add_value(even, value);
        }
        into.finite += block.len() as u64 - special;
        // Adding 0.0 turns -0.0 into 0.0.
        into.range(min + 0.0, max + 0.0);
    }

    /// Adds everything to the exact sums.
    pub(crate) fn flush(&mut self, into: &mut MomentAccumulator) {
        self.adds = 0;
        for bin in self.banks.iter_mut().flatten() {
            flush_bin(bin, into);
        }
    }
}

fn flush_bin(bin: &mut ExponentBin, into: &mut MomentAccumulator) {
    let bit = bin.exponent as i32 - 1075;
    // Most bins are empty: they need no exact sums.
    if bin.squares != 0 {
        let sums = into.far_mut();
        sums.sum.add_signed(bit, bin.sum);
        sums.squares.add_unsigned(2 * bit, bin.squares);
    }
    bin.sum = 0;
    bin.squares = 0;
}

/// Accumulates `f32` values; the sums equal those of the same values as `f64`.
pub(crate) fn push_f32(values: &[f32], into: &mut MomentAccumulator) {
    for block in values.chunks(BLOCK) {
        if push_integral_block(block, into) {
            continue;
        }
        let mut banks = [[(0i64, 0u64); 256]; 2];
        let mut min = f32::INFINITY;
        let mut max = f32::NEG_INFINITY;
        let mut special = 0;
        let [even, odd] = &mut banks;
        let mut add_value = |bank: &mut [(i64, u64); 256], value: f32| {
            let bits = value.to_bits();
            let exponent = (bits >> 23) as u8;
            if exponent == 0xff {
                special += 1;
                into.push_special(f64::from(value));
                return;
            }
            min = if value < min { value } else { min };
            max = if value > max { value } else { max };
            let mantissa = u64::from((bits & ((1 << 23) - 1)) | (u32::from(exponent != 0) << 23));
            let sign = i64::from((bits as i32) >> 31);
            let bin = &mut bank[usize::from(exponent)];
            // The sign is 0 or -1: this negates the mantissa without a branch.
            bin.0 += (mantissa as i64 ^ sign) - sign;
            bin.1 += mantissa * mantissa;
        };
        let (pairs, last_value) = block.as_chunks::<2>();
        for &[first, second] in pairs {
            add_value(even, first);
            add_value(odd, second);
        }
        for &value in last_value {
            add_value(even, value);
        }
        into.finite += block.len() as u64 - special;
        into.range(f64::from(min) + 0.0, f64::from(max) + 0.0);
        let sums = into.far_mut();
        // Exponents 0 (subnormal) and 1 have one weight.
        for (exponent, (a, b)) in banks[0].iter().zip(&banks[1]).enumerate() {
            let bit = exponent.max(1) as i32 - 150;
            let sum = i128::from(a.0) + i128::from(b.0);
            sums.sum.add_signed(bit, sum);
            let squares = u128::from(a.1) + u128::from(b.1);
            sums.squares.add_unsigned(2 * bit, squares);
        }
    }
}

/// Accumulates a block of `f32` values if all are integers of at most 22 bits, as counts are: then there is a single
/// exponent. Otherwise returns false early and accumulates nothing.
fn push_integral_block(block: &[f32], into: &mut MomentAccumulator) -> bool {
    const PART: usize = 64;
    let mut sums = IntegerSums {
        min: i32::MAX,
        max: i32::MIN,
        sum: 0,
        squares: 0,
    };
    let (parts, last_part) = block.as_chunks::<PART>();
    for part in parts.iter().map(<[f32; PART]>::as_slice).chain([last_part]) {
        let Some(part) = integral_sums(part) else {
            return false;
        };
        sums.min = sums.min.min(part.min);
        sums.max = sums.max.max(part.max);
        sums.sum += part.sum;
        sums.squares += part.squares;
    }
    into.finite += block.len() as u64;
    into.range(f64::from(sums.min), f64::from(sums.max));
    let exact = into.far_mut();
    exact.sum.add_signed(0, i128::from(sums.sum));
    exact.squares.add_unsigned(0, u128::from(sums.squares));
    true
}

/// Range and sums of a few integers.
struct IntegerSums {
    min: i32,
    max: i32,
    sum: i64,
    squares: u64,
}

/// Sums up to a few hundred values if all are integers of at most 22 bits. The loop has no branches, so that it
/// vectorizes.
#[inline(always)]
fn integral_sums(values: &[f32]) -> Option<IntegerSums> {
    /// Adding this puts the integer into the lowest fraction bits; numbers of more bits change in the round trip.
    const SHIFT: f32 = 1.5 * (1 << 23) as f32;
    const SIZE_MAX: i32 = 1 << 22;
    let mut min = SIZE_MAX - 1;
    let mut max = -SIZE_MAX;
    let mut sum = 0i32;
    let mut squares = 0u64;
    let mut others = 0;
    for &value in values {
        let shifted = value + SHIFT;
        others |= u32::from(shifted - SHIFT != value);
        let number = shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32;
        min = min.min(number);
        max = max.max(number);
        sum = sum.wrapping_add(number);
        let size = u64::from(number.unsigned_abs());
        squares = squares.wrapping_add(size.wrapping_mul(size));
    }
    let fits = others == 0 && min >= -SIZE_MAX && max < SIZE_MAX;
    fits.then_some(IntegerSums {
        min,
        max,
        sum: i64::from(sum),
        squares,
    })
}

/// Accumulates integers. The range is that of the integers rounded to doubles.
pub(crate) fn push_integers<T: Copy + Ord + Into<i128>>(
    values: &[T],
    into: &mut MomentAccumulator,
) {
    for block in values.chunks(BLOCK) {
        let Some(&min) = block.iter().min() else {
            continue;
        };
        let Some(&max) = block.iter().max() else {
            continue;
        };
        let min: i128 = min.into();
        let max: i128 = max.into();
        // Squares below 2^48 fit 64 bits, and so do the sums of a block.
        let is_narrow = min > -(1 << 24) && max < 1 << 24;
        let mut sum = 0i128;
        // The sum of squares, and its overflow beyond 128 bits.
        let mut squares = (0u128, 0u64);
        if is_narrow {
            let mut s = 0i64;
            let mut q = 0u64;
            for &value in block {
                let value = value.into() as i64;
                s += value;
                q += (value * value) as u64;
            }
            sum = i128::from(s);
            squares.0 = u128::from(q);
        } else {
            for &value in block {
                let value: i128 = value.into();
                sum += value;
                let size = value.unsigned_abs() as u64;
                let square = u128::from(size) * u128::from(size);
                let (total, over) = squares.0.overflowing_add(square);
                squares = (total, squares.1 + u64::from(over));
            }
        }
        into.finite += block.len() as u64;
        into.range(min as f64, max as f64);
        let sums = into.far_mut();
        sums.sum.add_signed(0, sum);
        sums.squares.add_unsigned(0, squares.0);
        sums.squares.add_unsigned(128, u128::from(squares.1));
    }
}
