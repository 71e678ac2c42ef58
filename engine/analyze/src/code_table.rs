//! A hash table of codes: the numbers of keys that lie elsewhere.

/// The bits of a slot that hold the upper half of a hash. The others hold a code plus one.
const TAG_BITS: u64 = u64::MAX << u32::BITS;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;

/// Keys that are looked up at once.
pub(crate) const LOOKUPS: usize = 128;

/// The code of no key.
pub(crate) const NO_CODE: u32 = u32::MAX;

/// Codes by the hashes of their keys; they are less than [`NO_CODE`].
///
/// A slot holds half of the hash beside the code, so that keys are compared only where these halves are equal, and a table
/// grows without a look at keys. Slots are in the order of hashes: growing reads and writes memory in its order.
#[derive(Debug, Default)]
pub(crate) struct CodeTable {
    /// A power of two, or none; 0 is a free slot.
    slots: Vec<u64>,
    codes: usize,
}

/// The outcome of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The slot of the key.
    Code(u32),
    /// The number of the slot that the key would have.
    Free(usize),
}

impl CodeTable {
    /// Writes the codes that keys may have, by the first slot of their hashes, or [`NO_CODE`]. Most keys need no other
    /// look into the table, and many looks at once wait for memory together.
    pub(crate) fn candidates(&self, hashes: &[u64], into: &mut [u32]) {
        if self.slots.is_empty() {
            into.fill(NO_CODE);
            return;
        }
        for (hash, candidate) in hashes.iter().zip(into) {
            let slot = self.slots[self.first_slot(*hash)];
            let is_alike = (slot ^ hash) & TAG_BITS == 0;
            // The code of a free slot wraps to that of no key.
            let code = (slot as u32).wrapping_sub(1);
            *candidate = if is_alike { code } else { NO_CODE };
        }
    }

    /// Makes room for one more code.
    pub(crate) fn reserve_one(&mut self) {
        if self.codes < self.slots.len() / 4 * 3 {
            return;
        }
        let slot_count = (2 * self.slots.len()).max(SLOTS_MIN);
        let full = std::mem::replace(&mut self.slots, vec![0; slot_count]);
        for slot in full {
            if slot != 0
                && let Slot::Free(free) = self.find(slot, |_| false)
            {
                self.slots[free] = slot;
            }
        }
    }

    /// The code of a key, for which `is_same` is true, or the slot for it. There must be room: see
    /// [`CodeTable::reserve_one`].
    pub(crate) fn find(&self, hash: u64, mut is_same: impl FnMut(u32) -> bool) -> Slot {
        let mut number = self.first_slot(hash);
        loop {
            let slot = self.slots[number];
            if slot == 0 {
                return Slot::Free(number);
            }
            let code = slot as u32 - 1;
            if (slot ^ hash) & TAG_BITS == 0 && is_same(code) {
                return Slot::Code(code);
            }
            number = (number + 1) & (self.slots.len() - 1);
        }
    }

    /// Writes a code to the free slot that the search for its key returned.
    pub(crate) fn insert(&mut self, free: usize, hash: u64, code: u32) {
        self.slots[free] = (hash & TAG_BITS) | u64::from(code + 1);
        self.codes += 1;
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    /// The slot at which a search begins: its number is the upper bits of the hash.
    fn first_slot(&self, hash: u64) -> usize {
        let shift = u64::BITS - self.slots.len().trailing_zeros();
        // Only what slots hold of a hash counts, or a table that grows would move codes elsewhere.
        ((hash & TAG_BITS) >> shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Keys have their codes whatever the hashes: all alike, alike in the upper or the lower half, or spread.
        #[test]
        fn keys_are_found_whatever_their_hashes(
            keys in prop::collection::vec(0..400u64, 0..900),
            hash_bits in prop::sample::select(vec![0_u64, 3 << 62, 7 << 32, 0xff, u64::MAX]),
        ) {
            let mut table = CodeTable::default();
            let mut codes: HashMap<u64, u32> = HashMap::new();
            let mut texts: Vec<u64> = Vec::new();
            for key in keys {
                let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) & hash_bits;
                let mut candidates = [0];
                table.candidates(&[hash], &mut candidates);
                if candidates[0] != NO_CODE {
                    prop_assert!((candidates[0] as usize) < texts.len());
                }
                table.reserve_one();
                let slot = table.find(hash, |code| texts[code as usize] == key);
                match codes.get(&key) {
                    Some(code) => prop_assert_eq!(slot, Slot::Code(*code)),
                    None => {
                        let Slot::Free(free) = slot else {
                            return Err(TestCaseError::fail("a new key has a code"));
                        };
                        let code = texts.len() as u32;
                        table.insert(free, hash, code);
                        texts.push(key);
                        codes.insert(key, code);
                    }
                }
            }
        }
    }

    #[test]
    fn a_candidate_is_the_code_of_the_first_slot() {
        let mut table = CodeTable::default();
        let mut candidates = [0; 3];
        table.candidates(&[0, 1, u64::MAX], &mut candidates);
        assert_eq!(candidates, [NO_CODE; 3]);
        for (code, hash) in [(0, 0), (1, u64::MAX)] {
            table.reserve_one();
            let Slot::Free(free) = table.find(hash, |_| false) else {
                unreachable!("no key is the same");
            };
            table.insert(free, hash, code);
        }
        // The lower half of a hash is not compared.
        table.candidates(&[1, u64::MAX, 1 << 62], &mut candidates);
        assert_eq!(candidates, [0, 1, NO_CODE]);
    }
}
