//! Exact sums of products, without heap memory where their exponents are near each other.

use forebay_model::{Result, StateDecoder, StateEncoder};

use crate::exact_sum::ExactSum;
use crate::near_sum::NearProducts;

/// Powers of two of a window.
const POWERS: u32 = 128;

/// Powers of a window below that of the product for which it opens, and up to `ALIGNED` more.
const POWERS_BELOW: i32 = 64;

/// Windows begin at multiples of this power: those of partial sums of the same products are mostly the same.
const ALIGNED: i32 = 32;

/// Products outside of a window after which it moves to the next one. Single outliers do not move it.
const MISSES_MAX: u32 = 8;

/// Exact sum of products of two doubles, or of doubles.
#[derive(Debug, Clone)]
pub(crate) struct CompactSum {
    near: NearProducts,
    /// Weight of the lowest bit of `near`, as a power of two.
    bit: i32,
    misses: u32,
    far: Option<Box<ExactSum>>,
}

impl Default for CompactSum {
    fn default() -> Self {
        CompactSum {
            near: NearProducts::default(),
            bit: 0,
            // The first product outside of the window of 1 moves it.
            misses: MISSES_MAX - 1,
            far: None,
        }
    }
}

impl CompactSum {
    /// Adds `product * 2^bit`; the product has at most 107 bits and a sign.
    #[inline]
    pub(crate) fn add(&mut self, bit: i32, product: i128) {
        let shift = bit.wrapping_sub(self.bit) as u32;
        if shift >= POWERS {
            return self.add_outside(bit, product);
        }
        self.near.add(product, shift);
        if self.near.is_full() {
            self.flush();
        }
    }

    /// Adds a product outside of the window.
    #[cold]
    #[inline(never)]
    fn add_outside(&mut self, bit: i32, product: i128) {
        if product == 0 {
            return;
        }
        self.misses += 1;
        if self.misses < MISSES_MAX {
            self.far.get_or_insert_default().add_signed(bit, product);
            return;
        }
        self.flush();
        self.misses = 0;
        self.bit = (bit - POWERS_BELOW).div_euclid(ALIGNED) * ALIGNED;
        self.near.add(product, (bit - self.bit) as u32);
    }

    /// Moves the words of the window to the exact sum.
    #[cold]
    fn flush(&mut self) {
        let near = std::mem::take(&mut self.near);
        if !near.is_zero() {
            near.add_to(self.bit, self.far.get_or_insert_default());
        }
    }

    /// Merges another sum.
    pub(crate) fn merge(&mut self, other: &CompactSum) {
        if let Some(far) = &other.far {
            self.far.get_or_insert_default().merge(far);
        }
        if other.near.is_zero() {
            return;
        }
        if self.bit != other.bit {
            other
                .near
                .add_to(other.bit, self.far.get_or_insert_default());
            return;
        }
        self.near.merge(other.near);
        if self.near.is_full() {
            self.flush();
        }
    }

    /// The exact sum.
    pub(crate) fn exact(&self) -> ExactSum {
        let mut sum = self.far.as_deref().cloned().unwrap_or_default();
        self.near.add_to(self.bit, &mut sum);
        sum
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.far
            .as_ref()
            .map_or(0, |far| size_of::<ExactSum>() + far.heap_bytes())
    }

    /// Writes canonical bytes: those of the exact sum.
    pub(crate) fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.exact().encode(out)
    }

    /// Reads bytes written by `encode`.
    pub(crate) fn decode(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(CompactSum {
            far: Some(Box::new(ExactSum::decode(input)?)),
            ..CompactSum::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(sum: &ExactSum) -> Vec<u8> {
        let mut bytes = Vec::new();
        sum.encode(&mut StateEncoder(&mut bytes)).unwrap();
        bytes
    }

    proptest! {
        /// Sums are those of exact sums, for any division and order of merges.
        #[test]
        fn sums_are_exact(
            products in prop_oneof![
                prop::collection::vec((-40..40i32, any::<i128>(), 0..3usize), 0..50),
                prop::collection::vec((-2148..1942i32, any::<i128>(), 0..3usize), 0..50),
            ],
            first_part in 0..3usize,
        ) {
            let mut expected = ExactSum::default();
            let mut parts = vec![CompactSum::default(); 3];
            for (bit, number, part) in &products {
                // 107 bits and a sign.
                let product = number >> 20;
                expected.add_signed(*bit, product);
                parts[*part].add(*bit, product);
            }
            parts.rotate_left(first_part);
            let mut merged = CompactSum::default();
            for part in &parts {
                merged.merge(part);
            }
            prop_assert_eq!(encoded(&merged.exact()), encoded(&expected));
            let bytes = encoded(&expected);
            let mut input = bytes.as_slice();
            let back = CompactSum::decode(&mut StateDecoder(&mut input)).unwrap();
            prop_assert_eq!(encoded(&back.exact()), bytes);
        }
    }

    /// Products at the top of a window fill its words after 2^21 additions.
    #[test]
    fn full_windows_move_to_the_exact_sum() {
        const ROUNDS: i128 = 3;
        for product in [(1i128 << 106) - 1, 1 - (1i128 << 106)] {
            let mut sum = CompactSum::default();
            let mut expected = ExactSum::default();
            for _ in 0..ROUNDS {
                for _ in 0..1 << 20 {
                    sum.add(127, product);
                }
                expected.add_signed(127, product << 20);
            }
            assert!(sum.heap_bytes() > 0);
            assert_eq!(encoded(&sum.exact()), encoded(&expected));
        }
    }
}
