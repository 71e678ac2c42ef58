//! Codes for byte strings.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use forebay_model::{Fault, Result, codes};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::byte_order::sorted_bytes;

/// Bits of a code, with room for one more value.
pub(crate) const CODE_BITS: u32 = 31;

/// Distinct byte strings, numbered in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    table: HashTable<u32>,
    hashes: Vec<u64>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Interner {
    /// The code of a string, which is kept if it is new.
    pub(crate) fn code(&mut self, text: &[u8]) -> Result<u32> {
        let hash = xxh3_64(text);
        let hashes = &self.hashes;
        let ends = &self.ends;
        let bytes = &self.bytes;
        // Hashes are compared first: most different strings end there.
        let is_same = |&code: &u32| {
            hashes[code as usize] == hash && text == slice_of(ends, bytes, code as usize)
        };
        if let Some(&code) = self.table.find(hash, is_same) {
            return Ok(code);
        }
        // One code is left free: key fields store codes plus one, and 0 for null.
        if self.ends.len() >= (1 << CODE_BITS) - 2 {
            return Err(Fault::new(
                codes::LIMIT,
                "more than 2^31 distinct values in a key column",
            ));
        }
        let code = self.ends.len() as u32;
        self.table
            .insert_unique(hash, code, |&code| hashes[code as usize]);
        self.hashes.push(hash);
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        Ok(code)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, code: usize) -> &[u8] {
        slice_of(&self.ends, &self.bytes, code)
    }

    /// All strings by code; they are UTF-8.
    pub(crate) fn to_text_array(&self) -> Result<ArrayRef> {
        if i32::try_from(self.bytes.len()).is_err() {
            return Err(Fault::new(
                codes::LIMIT,
                "the keys of one state hold more than 2 GiB",
            ));
        }
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        for end in &self.ends {
            offsets.push(*end as i32);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let bytes = Buffer::from_slice_ref(&self.bytes);
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
        self.table.allocation_size()
            + 8 * self.hashes.capacity()
            + 8 * self.ends.capacity()
            + self.bytes.capacity()
    }

    pub(crate) fn clear(&mut self) {
        *self = Interner::default();
    }
}

fn slice_of<'a>(ends: &[usize], bytes: &'a [u8], code: usize) -> &'a [u8] {
    let start = if code == 0 { 0 } else { ends[code - 1] };
    &bytes[start..ends[code]]
}
