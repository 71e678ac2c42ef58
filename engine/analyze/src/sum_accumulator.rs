//! Accumulator of the exact sum of one group.

use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes};

use crate::exact_sum::{ExactSum, infinite_sum, narrow_quotient, narrow_rounded};
use crate::moment_accumulator::{decompose, signed_mantissa};
use crate::near_sum::{ExponentWindow, NearSum};

/// The part of a sum that few groups have.
#[derive(Debug, Clone, Default)]
struct RareSums {
    sum: ExactSum,
    plus_infinities: u64,
    minus_infinities: u64,
}

/// Number and exact sum of a multiset of numbers, without NaN: 40 bytes for a group of numbers of similar magnitude.
#[derive(Debug, Clone, Default)]
pub struct SumAccumulator {
    count: u64,
    near: NearSum,
    window: ExponentWindow,
    rare: Option<Box<RareSums>>,
}

impl SumAccumulator {
    /// Accumulates one value.
    #[inline]
    pub fn push(&mut self, value: f64) {
        let bits = value.to_bits();
        let Some((size, shift)) = self.window.place(bits) else {
            return self.push_outside(value);
        };
        self.count += 1;
        self.near.add_mantissa(signed_mantissa(size, bits), shift);
        if self.near.is_full() {
            self.flush();
        }
    }

    /// Accumulates a value outside of the window.
    #[cold]
    #[inline(never)]
    fn push_outside(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        self.count += 1;
        if value == 0.0 {
            return;
        }
        if value.is_infinite() {
            *self.infinities(value) += 1;
            return;
        }
        if let Some(window) = self.window.miss(value.to_bits()) {
            self.flush();
            self.window = window;
        }
        self.add_finite(value);
    }

    /// Removes a value that was accumulated.
    pub fn remove(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        self.count = self.count.saturating_sub(1);
        if value.is_infinite() {
            let infinities = self.infinities(value);
            *infinities = infinities.saturating_sub(1);
            return;
        }
        self.add_finite(-value);
    }

    /// Adds a finite value to the sums without counting it.
    fn add_finite(&mut self, value: f64) {
        let bits = value.to_bits();
        let Some((size, shift)) = self.window.place(bits) else {
            if value != 0.0 {
                let (mantissa, bit) = decompose(value);
                self.rare_mut().sum.add_signed(bit, i128::from(mantissa));
            }
            return;
        };
        self.near.add_mantissa(signed_mantissa(size, bits), shift);
        if self.near.is_full() {
            self.flush();
        }
    }

    /// Moves the sum of the window to the exact sum.
    #[cold]
    fn flush(&mut self) {
        let near = std::mem::take(&mut self.near).value();
        if near != 0 {
            let bit = self.window.bit();
            self.rare_mut().sum.add_signed(bit, near);
        }
    }

    fn rare_mut(&mut self) -> &mut RareSums {
        self.rare.get_or_insert_default()
    }

    /// The number of infinities of the sign of a value.
    fn infinities(&mut self, value: f64) -> &mut u64 {
        let rare = self.rare_mut();
        if value > 0.0 {
            &mut rare.plus_infinities
        } else {
            &mut rare.minus_infinities
        }
    }

    /// Merges another accumulator.
    pub fn merge(&mut self, other: &SumAccumulator) {
        self.count += other.count;
        if let Some(later_rare) = &other.rare {
            let rare = self.rare_mut();
            rare.sum.merge(&later_rare.sum);
            rare.plus_infinities += later_rare.plus_infinities;
            rare.minus_infinities += later_rare.minus_infinities;
        }
        let addend = other.near.value();
        if addend == 0 {
            return;
        }
        if self.near.value() == 0 {
            self.near = other.near;
            self.window = other.window;
            return;
        }
        if !self.window.is_same(other.window) {
            let bit = other.window.bit();
            self.rare_mut().sum.add_signed(bit, addend);
            return;
        }
        self.near.add(addend);
        if self.near.is_full() {
            self.flush();
        }
    }

    /// Number of values that are not NaN.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The IEEE sum if there are infinities; `None` otherwise.
    fn infinite(&self) -> Option<f64> {
        let rare = self.rare.as_ref()?;
        infinite_sum(rare.plus_infinities, rare.minus_infinities)
    }

    /// The exact sum of the finite values.
    fn exact(&self) -> ExactSum {
        let mut sum = ExactSum::default();
        if let Some(rare) = &self.rare {
            sum.merge(&rare.sum);
        }
        sum.add_signed(self.window.bit(), self.near.value());
        sum
    }

    /// The sum, rounded once; `None` if there were no values.
    pub fn total(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        if self.rare.is_none()
            && let Some(sum) = narrow_rounded(self.near.value(), self.window.bit())
        {
            return Some(sum);
        }
        Some(self.infinite().unwrap_or_else(|| self.exact().to_f64()))
    }

    /// The mean, rounded once; `None` if there were no values.
    pub fn mean(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        if self.rare.is_none()
            && let Some(mean) = narrow_quotient(self.near.value(), self.count, self.window.bit())
        {
            return Some(mean);
        }
        let infinite = self.infinite();
        Some(infinite.unwrap_or_else(|| self.exact().divided(self.count)))
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.rare
            .as_ref()
            .map_or(0, |rare| size_of::<RareSums>() + rare.sum.heap_bytes())
    }

    /// Writes the sum as it is held: equal sums may have other bytes. States that are kept are those of
    /// [`crate::MomentAccumulator`].
    pub fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.count)?;
        out.varint(u64::from(self.window.code()))?;
        let near = self.near.value();
        out.u64(near as u64)?;
        out.u64((near >> 64) as u64)?;
        let Some(rare) = &self.rare else {
            return out.varint(0);
        };
        out.varint(1)?;
        rare.sum.encode(out)?;
        out.varint(rare.plus_infinities)?;
        out.varint(rare.minus_infinities)
    }

    /// Reads bytes written by `encode`.
    pub fn decode(input: &mut StateDecoder<'_>) -> Result<Self> {
        let count = input.count()?;
        let window = ExponentWindow::of_code(input.varint()?).ok_or_else(damaged_sum)?;
        let low = input.u64()?;
        let high = input.u64()?;
        let sum = u128::from(high) << 64 | u128::from(low);
        let near = NearSum::of(sum as i128).ok_or_else(damaged_sum)?;
        let has_rare = input.length(1)? == 1;
        let mut sums = SumAccumulator {
            count,
            near,
            window,
            rare: None,
        };
        if has_rare {
            sums.rare = Some(Box::new(RareSums {
                sum: ExactSum::decode(input)?,
                plus_infinities: input.count()?,
                minus_infinities: input.count()?,
            }));
        }
        Ok(sums)
    }
}

fn damaged_sum() -> Fault {
    Fault::new(
        codes::CORRUPT,
        "a state holds a sum that no values have made",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::moment_accumulator::MomentAccumulator;
    use crate::moment_accumulator::tests::{PARTS, drawn_values};

    fn encoded(sum: &SumAccumulator) -> Vec<u8> {
        let mut bytes = Vec::new();
        sum.encode(&mut StateEncoder(&mut bytes)).unwrap();
        bytes
    }

    fn decoded(bytes: &[u8]) -> Result<SumAccumulator> {
        let mut input = bytes;
        SumAccumulator::decode(&mut StateDecoder(&mut input))
    }

    /// The bits of a number; all NaN are equal.
    fn bits(number: Option<f64>) -> Option<u64> {
        number.map(|number| {
            if number.is_nan() {
                f64::NAN.to_bits()
            } else {
                number.to_bits()
            }
        })
    }

    proptest! {
        /// Sums and means have the bits of those of moments, for any division and order of merges.
        #[test]
        fn sums_are_those_of_moments(
            values in drawn_values(),
            first_part in 0..PARTS,
            is_decoded in any::<bool>(),
        ) {
            let mut moment = MomentAccumulator::default();
            let mut parts = vec![SumAccumulator::default(); PARTS];
            for (value, part, _) in &values {
                moment.push(*value);
                parts[*part].push(*value);
            }
            for (value, part, is_removed) in &values {
                if *is_removed {
                    moment.remove(*value);
                    parts[*part].remove(*value);
                }
            }
            parts.rotate_left(first_part);
            let mut merged = SumAccumulator::default();
            for part in &parts {
                if is_decoded {
                    merged.merge(&decoded(&encoded(part)).unwrap());
                } else {
                    merged.merge(part);
                }
            }
            prop_assert_eq!(merged.count(), moment.count());
            prop_assert_eq!(bits(merged.total()), bits(moment.total()));
            prop_assert_eq!(bits(merged.mean()), bits(moment.mean()));
        }
    }

    #[test]
    fn groups_of_similar_numbers_take_forty_bytes() {
        let mut sum = SumAccumulator::default();
        for row in 0..10_000 {
            sum.push(f64::from(row % 1000) / 100.0);
        }
        assert_eq!(size_of::<SumAccumulator>() + sum.heap_bytes(), 40);
        assert_eq!(sum.total(), Some(49_950.0));
    }

    /// Values at the top of a window fill its words after 2^10 additions.
    #[test]
    fn full_windows_move_to_the_exact_sum() {
        let mut sum = SumAccumulator::default();
        sum.push(-1.0);
        for _ in 0..5000 {
            sum.push(-131_071.5);
        }
        assert!(sum.heap_bytes() > 0);
        assert_eq!(sum.total(), Some(-1.0 - 5000.0 * 131_071.5));
        let later_sum = sum.clone();
        sum.merge(&later_sum);
        assert_eq!(sum.mean(), Some((-1.0 - 5000.0 * 131_071.5) / 5001.0));
    }

    #[test]
    fn damaged_states_are_faults() {
        let mut sum = SumAccumulator::default();
        sum.push(1.5);
        let bytes = encoded(&sum);
        assert_eq!(decoded(&bytes).unwrap().total(), Some(1.5));
        let mut foreign_window = bytes.clone();
        // The window is a number of two bytes behind the count.
        foreign_window[2] = 0x7f;
        let mut full_sum = bytes.clone();
        let highest = bytes.len() - 2;
        full_sum[highest] = 0x40;
        for damaged in [&foreign_window[..], &full_sum[..], &bytes[..4]] {
            let fault = decoded(damaged).unwrap_err();
            assert_eq!(fault.code(), codes::CORRUPT);
        }
    }
}
