//! Codes for byte strings.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use forebay_model::{Fault, Result, codes};
use xxhash_rust::xxh3::xxh3_64;

use crate::byte_order::sorted_bytes;
use crate::code_table::{CodeTable, LOOKUPS, NO_CODE, Slot};
use crate::segmented_list::SegmentedList;

/// Bits of a code, with room for one more value.
pub(crate) const CODE_BITS: u32 = 31;

/// Bytes of the length in front of a string.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Bytes of a segment of strings, but for strings that are longer.
const SEGMENT_BYTES: usize = 1 << 20;

/// Distinct byte strings, numbered in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    table: CodeTable,
    /// For each code, the segment of its string in the upper half, and where it begins there in the lower.
    starts: SegmentedList<u64>,
    /// Strings, each behind its length. Each lies in one segment, and no segment is copied but the first while it grows.
    segments: Vec<Vec<u8>>,
    /// Bytes of all strings without their lengths.
    text_bytes: usize,
}

impl Interner {
    /// The code of a string, which is kept if it is new.
    pub(crate) fn code(&mut self, text: &[u8]) -> Result<u32> {
        self.code_of_hash(xxh3_64(text), text)
    }

    /// Appends the codes of `count` strings; `text` returns the bytes of one by its number.
    pub(crate) fn push_codes<'t>(
        &mut self,
        count: usize,
        text: impl Fn(usize) -> &'t [u8],
        codes: &mut Vec<u32>,
    ) -> Result<()> {
        codes.reserve(count);
        let mut hashes = [0; LOOKUPS];
        let mut candidates = [NO_CODE; LOOKUPS];
        // The table is read for many strings at once, so that they wait for memory together.
        for start in (0..count).step_by(LOOKUPS) {
            let numbers = start..count.min(start + LOOKUPS);
            for (hash, number) in hashes.iter_mut().zip(numbers.clone()) {
                *hash = xxh3_64(text(number));
            }
            self.table
                .candidates(&hashes[..numbers.len()], &mut candidates);
            for ((hash, candidate), number) in hashes.iter().zip(&candidates).zip(numbers) {
                let text = text(number);
                let code = if *candidate != NO_CODE && self.get(*candidate as usize) == text {
                    *candidate
                } else {
                    self.code_of_hash(*hash, text)?
                };
                codes.push(code);
            }
        }
        Ok(())
    }

    fn code_of_hash(&mut self, hash: u64, text: &[u8]) -> Result<u32> {
        self.table.reserve_one();
        let is_same = |code: u32| self.get(code as usize) == text;
        let free = match self.table.find(hash, is_same) {
            Slot::Code(code) => return Ok(code),
            Slot::Free(free) => free,
        };
        // One code is left free: key fields store codes plus one, and 0 for null.
        if self.len() >= (1 << CODE_BITS) - 2 {
            return Err(Fault::new(
                codes::LIMIT,
                "more than 2^31 distinct values in a key column",
            ));
        }
        let code = self.len() as u32;
        self.push(text)?;
        self.table.insert(free, hash, code);
        Ok(code)
    }

    /// Appends a string.
    fn push(&mut self, text: &[u8]) -> Result<()> {
        let length = u32::try_from(text.len()).map_err(|_| {
            Fault::new(codes::LIMIT, "a value in a key column has 4 GiB or more")
                .hint("shorten the keys, such as with `hash_bucket`")
        })?;
        let bytes = LENGTH_BYTES + text.len();
        match self.segments.last() {
            Some(segment) if segment.len() + bytes <= SEGMENT_BYTES => {}
            // Few strings take little memory.
            None => self.segments.push(Vec::with_capacity(bytes)),
            Some(_) => {
                let segment = Vec::with_capacity(bytes.max(SEGMENT_BYTES));
                self.segments.push(segment);
            }
        }
        let number = self.segments.len() - 1;
        let segment = &mut self.segments[number];
        self.starts
            .push((number as u64) << u32::BITS | segment.len() as u64);
        segment.extend_from_slice(&length.to_le_bytes());
        segment.extend_from_slice(text);
        self.text_bytes += text.len();
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn get(&self, code: usize) -> &[u8] {
        let start = self.starts[code];
        let segment = &self.segments[(start >> u32::BITS) as usize];
        let (length, bytes) = segment[start as u32 as usize..].split_at(LENGTH_BYTES);
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
        &bytes[..length as usize]
    }

    /// True if one array can hold all strings.
    pub(crate) fn fits_array(&self) -> bool {
        i32::try_from(self.text_bytes).is_ok()
    }

    /// All strings by code; they are UTF-8.
    pub(crate) fn to_text_array(&self) -> Result<ArrayRef> {
        if !self.fits_array() {
            return Err(Fault::new(
                codes::LIMIT,
                "the keys of one state hold more than 2 GiB",
            ));
        }
        let mut offsets = Vec::with_capacity(self.len() + 1);
        offsets.push(0);
        let mut bytes = Vec::with_capacity(self.text_bytes);
        for code in 0..self.len() {
            bytes.extend_from_slice(self.get(code));
            offsets.push(bytes.len() as i32);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let bytes = Buffer::from_vec(bytes);
        let texts = StringArray::try_new(offsets, bytes, None)?;
        Ok(Arc::new(texts))
    }

    /// The rank of each code's string among all strings in the order of their bytes.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let order = sorted_bytes(self.len(), |code| self.get(code));
        let mut ranks = vec![0; order.len()];
        for (rank, code) in order.into_iter().enumerate() {
            ranks[code as usize] = rank as u32;
        }
        ranks
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.segment_bytes()
    }

    /// Bytes of [`Interner::bytes`] that stay where they are while others are added.
    pub(crate) fn segment_bytes(&self) -> usize {
        let segments = self.segments.iter().map(Vec::capacity);
        self.starts.bytes() + segments.sum::<usize>()
    }

    pub(crate) fn clear(&mut self) {
        *self = Interner::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::AsArray;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Strings are numbered in the order in which they come, alone or many at once, and also if all have one hash.
        #[test]
        fn codes_number_strings_in_their_order(
            texts in prop::collection::vec(prop::collection::vec(0..4u8, 0..5), 0..700),
            batch in 1..400usize,
        ) {
            let mut expected_codes: BTreeMap<&[u8], u32> = BTreeMap::new();
            let mut expected = Vec::new();
            for text in &texts {
                let code = expected_codes.len() as u32;
                expected.push(*expected_codes.entry(text.as_slice()).or_insert(code));
            }
            let mut single = Interner::default();
            let mut colliding = Interner::default();
            for (text, code) in texts.iter().zip(&expected) {
                prop_assert_eq!(single.code(text).unwrap(), *code);
                prop_assert_eq!(colliding.code_of_hash(7, text).unwrap(), *code);
                prop_assert_eq!(colliding.get(*code as usize), text.as_slice());
            }
            let mut batched = Interner::default();
            let mut codes = Vec::new();
            for batch in texts.chunks(batch) {
                let text = |number: usize| batch[number].as_slice();
                batched.push_codes(batch.len(), text, &mut codes).unwrap();
            }
            prop_assert_eq!(codes, expected);
            prop_assert_eq!(batched.len(), expected_codes.len());
        }
    }

    #[test]
    fn strings_of_any_length_lie_in_segments() {
        let mut interner = Interner::default();
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for length in [0, 5, SEGMENT_BYTES / 3, SEGMENT_BYTES - LENGTH_BYTES] {
            for byte in 0..4 {
                texts.push([vec![byte; length], vec![byte + 1]].concat());
            }
        }
        texts.push(Vec::new());
        texts.push(vec![7; 3 * SEGMENT_BYTES]);
        texts.push(vec![b'x']);
        for repeat in 0..2 {
            for (code, text) in texts.iter().enumerate() {
                assert_eq!(interner.code(text).unwrap(), code as u32, "{repeat}");
            }
        }
        let mut text_bytes = 0;
        for (code, text) in texts.iter().enumerate() {
            assert!(interner.get(code) == text.as_slice(), "{code}");
            text_bytes += text.len();
        }
        assert!(interner.segment_bytes() >= text_bytes);
        assert!(interner.segment_bytes() <= interner.bytes());
        let array = interner.to_text_array().unwrap();
        let array = array.as_string::<i32>();
        for (code, text) in texts.iter().enumerate() {
            assert!(array.value(code).as_bytes() == text.as_slice(), "{code}");
        }
    }
}
