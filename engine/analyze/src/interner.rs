//! Codes for byte strings.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use forebay_model::{Fault, Result, codes};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

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
        let (hashes, ends, bytes) = (&self.hashes, &self.ends, &self.bytes);
        let same = |&code: &u32| {
            hashes[code as usize] == hash && text == slice_of(ends, bytes, code as usize)
        };
        if let Some(&code) = self.table.find(hash, same) {
            return Ok(code);
        }
        let code = u32::try_from(self.ends.len())
            .ok()
            .filter(|code| *code < (1 << CODE_BITS) - 2);
        let code = code.ok_or_else(|| {
            Fault::new(
                codes::LIMIT,
                "more than 2^31 distinct values in a key column",
            )
        })?;
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
        let offsets: Vec<i32> = std::iter::once(0)
            .chain(self.ends.iter().map(|end| *end as i32))
            .collect();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok(Arc::new(StringArray::try_new(
            offsets,
            Buffer::from_slice_ref(&self.bytes),
            None,
        )?))
    }

    /// The place of each code's string among all strings in the order of their bytes.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_unstable_by(|a, b| self.get(*a as usize).cmp(self.get(*b as usize)));
        let mut ranks = vec![0; order.len()];
        order
            .into_iter()
            .zip(0..)
            .for_each(|(code, rank)| ranks[code as usize] = rank);
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
    let start = code.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start..ends[code]]
}
