//! Exact sums of each group.
//!
//! A finite double is an integer of 53 bits times a power of two. All values whose power lies in one window of 32 powers
//! are added as integers of 128 bits; a group has such an integer for each window in use. Most columns use one or two
//! of them. Nothing is rounded before the end, so that the order of values does not matter.

use forebay_model::{Result, StateDecoder, StateEncoder};

use crate::exact_sum::{ExactSum, narrow_quotient, narrow_rounded};
use crate::moment_accumulator::decompose;

/// Powers of two per window: 64 bits moved by fewer than 32 leave room for 2^31 additions, 53 bits for 2^42.
const POWERS_LOG2: u32 = 5;

/// The power at which the windows of values begin, below the smallest double. Numbers from 2^-15 to 2^17 share one window.
const VALUES_FROM: i32 = -1123;

/// The power at which the windows of halves of products begin. Products of numbers around 1 share two windows.
const PRODUCTS_FROM: i32 = -2216;

/// Bits of one half of the product of two mantissas.
const HALF_BITS: u32 = 53;

/// Sums of groups by window.
#[derive(Debug)]
pub(super) struct WindowSums {
    lowest: i32,
    /// By window, then by group; empty until the window is used.
    windows: Vec<Vec<i128>>,
    groups: usize,
}

impl WindowSums {
    /// Sums of doubles.
    pub(super) fn of_values() -> Self {
        WindowSums {
            lowest: VALUES_FROM,
            windows: Vec::new(),
            groups: 0,
        }
    }

    /// Sums of products of two doubles.
    pub(super) fn of_products() -> Self {
        WindowSums {
            lowest: PRODUCTS_FROM,
            windows: Vec::new(),
            groups: 0,
        }
    }

    pub(super) fn resize(&mut self, groups: usize) {
        self.groups = groups;
        for window in &mut self.windows {
            // A window stays empty until it is used.
            if !window.is_empty() {
                window.resize(groups, 0);
            }
        }
    }

    /// Adds `value * 2^power`; the value has at most 64 bits and a sign.
    pub(super) fn add(&mut self, group: usize, value: i128, power: i32) {
        let above = (power - self.lowest) as u32;
        let window = (above >> POWERS_LOG2) as usize;
        let shift = above & ((1 << POWERS_LOG2) - 1);
        let sum = self
            .windows
            .get_mut(window)
            .and_then(|sums| sums.get_mut(group));
        match sum {
            Some(sum) => *sum += value << shift,
            None => self.open_window(window)[group] += value << shift,
        }
    }

    /// Adds a number of so many words times `2^power`; the lowest word is first, and the last one has the sign.
    pub(super) fn add_words(&mut self, group: usize, words: &[u64], last: i64, power: i32) {
        let mut power = power;
        for word in words {
            self.add_if_any(group, i128::from(*word), power);
            power += 64;
        }
        self.add_if_any(group, i128::from(last), power);
    }

    /// Adds a number other than 0, for which alone a window is opened.
    fn add_if_any(&mut self, group: usize, value: i128, power: i32) {
        if value != 0 {
            self.add(group, value, power);
        }
    }

    /// True if no number was added.
    pub(super) fn is_unused(&self) -> bool {
        self.windows.is_empty()
    }

    /// Adds a finite double.
    pub(super) fn add_value(&mut self, group: usize, value: f64) {
        if value != 0.0 {
            let (mantissa, power) = decompose(value);
            self.add(group, i128::from(mantissa), power);
        }
    }

    /// Adds the product of two finite doubles other than 0.
    pub(super) fn add_product(&mut self, group: usize, value: f64, by: f64) {
        // Odd mantissas are shorter: products of small integers need one half.
        let (value, power) = decompose_odd(value);
        let (by, by_power) = decompose_odd(by);
        self.add_halves(group, value * by, power + by_power);
    }

    /// Adds `product * 2^power`; the product is one of two mantissas.
    pub(super) fn add_halves(&mut self, group: usize, product: i128, power: i32) {
        self.add(group, product & ((1 << HALF_BITS) - 1), power);
        if product >> HALF_BITS != 0 {
            self.add(group, product >> HALF_BITS, power + HALF_BITS as i32);
        }
    }

    #[cold]
    fn open_window(&mut self, window: usize) -> &mut Vec<i128> {
        if window >= self.windows.len() {
            self.windows.resize(window + 1, Vec::new());
        }
        let opened = &mut self.windows[window];
        opened.resize(self.groups, 0);
        opened
    }

    /// The sum of a group.
    pub(super) fn exact(&self, group: u32) -> ExactSum {
        let mut sum = ExactSum::default();
        for (power, value) in self.parts(group) {
            sum.add_signed(power, value);
        }
        sum
    }

    fn parts(&self, group: u32) -> impl DoubleEndedIterator<Item = (i32, i128)> {
        let windows = self.windows.iter().enumerate();
        windows.filter_map(move |(index, window)| {
            let value = *window.get(group as usize)?;
            let power = self.lowest + ((index as i32) << POWERS_LOG2);
            (value != 0).then_some((power, value))
        })
    }

    /// The sum of a group as `value * 2^power`, where 128 bits hold it.
    fn narrow(&self, group: u32) -> Option<(i128, i32)> {
        let mut parts = self.parts(group).rev();
        let Some((mut power, mut sum)) = parts.next() else {
            return Some((0, 0));
        };
        for (lower, value) in parts {
            // The sum so far in units of the lower power.
            let factor = 1i128.checked_shl((power - lower) as u32)?;
            if factor <= 0 {
                return None;
            }
            sum = sum.checked_mul(factor)?;
            sum = sum.checked_add(value)?;
            power = lower;
        }
        Some((sum, power))
    }

    /// The sum of a group, rounded to the nearest double.
    pub(super) fn rounded(&self, group: u32) -> f64 {
        // 128 bits hold most sums: their conversion rounds once, and so does the exact sum.
        if let Some((sum, power)) = self.narrow(group)
            && let Some(rounded) = narrow_rounded(sum, power)
        {
            return rounded;
        }
        self.exact(group).to_f64()
    }

    /// The sum of a group divided by a number above 0, rounded once.
    pub(super) fn divided(&self, group: u32, count: u64) -> f64 {
        if let Some((sum, power)) = self.narrow(group)
            && let Some(quotient) = narrow_quotient(sum, count, power)
        {
            return quotient;
        }
        self.exact(group).divided(count)
    }

    /// Writes the sum of a group.
    pub(super) fn encode(&self, group: u32, out: &mut StateEncoder<'_>) -> Result<()> {
        self.exact(group).encode(out)
    }

    /// Adds a sum that `encode` has written.
    pub(super) fn add_encoded(&mut self, group: usize, input: &mut StateDecoder<'_>) -> Result<()> {
        let (negative, limbs, low) = ExactSum::decode(input)?.magnitude();
        for (index, limb) in limbs.into_iter().enumerate() {
            if limb == 0 {
                continue;
            }
            let value = i128::from(limb);
            let signed = if negative { -value } else { value };
            self.add(group, signed, 64 * (low + index as i32));
        }
        Ok(())
    }

    /// The quotient of the sums of a group, rounded once; `None` if the divisor is 0.
    pub(super) fn ratio(&self, group: u32, by: &WindowSums) -> Option<f64> {
        match self.narrow_ratio(group, by) {
            Some(ratio) => Some(ratio),
            None => self.exact(group).ratio(&by.exact(group)),
        }
    }

    /// The quotient of two sums of 128 bits; `None` if they, or the odd part of the divisor, do not fit.
    fn narrow_ratio(&self, group: u32, by: &WindowSums) -> Option<f64> {
        let (sum, power) = self.narrow(group)?;
        let (divisor, by_power) = by.narrow(group)?;
        // Zero bits at the end of the divisor are a power of two.
        let zeros = divisor.trailing_zeros();
        let odd_divisor = divisor.unsigned_abs().checked_shr(zeros)?;
        let count = u64::try_from(odd_divisor).ok()?;
        let ratio = narrow_quotient(sum, count, power - by_power - zeros as i32)?;
        if divisor < 0 && sum != 0 {
            Some(-ratio)
        } else {
            Some(ratio)
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.windows
            .iter()
            .map(|window| window.capacity() * size_of::<i128>())
            .sum()
    }
}

/// A finite double other than 0 as an odd number times a power of two.
fn decompose_odd(number: f64) -> (i128, i32) {
    let (mantissa, power) = decompose(number);
    let zeros = mantissa.trailing_zeros();
    (i128::from(mantissa >> zeros), power + zeros as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_roundings_have_the_bits_of_exact_sums() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            seed ^ seed >> 29
        };
        for case in 0..20_000 {
            let mut sums = WindowSums::of_values();
            sums.resize(1);
            let spread = [1, 20, 80, 2000][case % 4];
            let mut exact = ExactSum::default();
            for _ in 0..1 + random() % 5 {
                let exponent = 1023 + (random() % spread) as i64 - spread as i64 / 2;
                let bits = (random() & (1 << 63))
                    | (exponent.clamp(0, 2046) as u64) << 52
                    | random() >> 12;
                let (mantissa, power) = decompose(f64::from_bits(bits));
                sums.add(0, i128::from(mantissa), power);
                exact.add_signed(power, i128::from(mantissa));
            }
            let count = 1 + (random() >> (random() % 64));
            assert_eq!(
                sums.rounded(0).to_bits(),
                exact.to_f64().to_bits(),
                "case {case}"
            );
            assert_eq!(
                sums.divided(0, count).to_bits(),
                exact.divided(count).to_bits(),
                "case {case} / {count}"
            );
            let mut by = WindowSums::of_values();
            let mut exact_by = ExactSum::default();
            by.resize(1);
            for _ in 0..random() % 3 {
                let weight =
                    (random() >> (random() % 64)) as i64 as f64 / [1.0, 8.0, -0.1][case % 3];
                let (mantissa, power) = decompose(weight);
                by.add_value(0, weight);
                exact_by.add_signed(power, i128::from(mantissa));
            }
            let bits = |ratio: Option<f64>| ratio.map(f64::to_bits);
            assert_eq!(
                bits(sums.ratio(0, &by)),
                bits(exact.ratio(&exact_by)),
                "case {case}"
            );
            let mut bytes = Vec::new();
            sums.encode(0, &mut StateEncoder(&mut bytes)).unwrap();
            let mut back = WindowSums::of_values();
            back.resize(1);
            back.add_encoded(0, &mut StateDecoder(&mut bytes.as_slice()))
                .unwrap();
            assert_eq!(
                back.rounded(0).to_bits(),
                exact.to_f64().to_bits(),
                "case {case}"
            );
        }
    }
}
