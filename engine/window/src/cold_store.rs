//! Cold store: the encoded state of evicted series.

use hashbrown::HashTable;

/// Block size in bytes; a longer record has a block of its own.
const BLOCK_BYTES: usize = 1 << 20;

/// Alignment of records in bytes.
const STEP_BYTES: usize = 4;

/// Record header: the hash of the series' keys and the length.
const HEAD_BYTES: usize = 16 + size_of::<u32>();

/// Fewest bytes of removed records that trigger compaction.
const REMOVED_BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// Encoded state of evicted series, by the hash of their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColdStore {
    blocks: Vec<Vec<u8>>,
    /// Record positions in units of the alignment.
    places: HashTable<u32>,
    /// Bytes of removed records.
    left: usize,
}

impl ColdStore {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The encoded state of a series, if it is evicted.
    #[inline]
    pub fn find(&self, hash: u128) -> Option<&[u8]> {
        let slot = self
            .places
            .find(hash as u64, |&slot| self.hash(slot) == hash)?;
        Some(self.bytes_at(*slot))
    }

    /// Adds a series; `false` if it is present already or the store is full.
    pub fn insert(&mut self, hash: u128, bytes: &[u8]) -> bool {
        let Ok(length) = u32::try_from(bytes.len()) else {
            return false;
        };
        if self.find(hash).is_some() {
            return false;
        }
        let record = record_bytes(bytes.len());
        if self
            .blocks
            .last()
            .is_none_or(|block| block.len() + record > BLOCK_BYTES)
        {
            self.blocks
                .push(Vec::with_capacity(record.max(BLOCK_BYTES)));
        }
        let number = self.blocks.len() - 1;
        let Some(block) = self.blocks.last_mut() else {
            return false;
        };
        let Ok(slot) = u32::try_from((number * BLOCK_BYTES + block.len()) / STEP_BYTES) else {
            return false;
        };
        let start = block.len();
        block.extend_from_slice(&hash.to_le_bytes());
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(bytes);
        block.resize(start + record, 0);
        let ColdStore {
            blocks,
            places: slots,
            ..
        } = self;
        slots.insert_unique(hash as u64, slot, |&slot| hash_at(blocks, slot) as u64);
        true
    }

    /// Removes a restored series.
    pub fn remove(&mut self, hash: u128) {
        let ColdStore {
            blocks,
            places: slots,
            ..
        } = self;
        let Ok(entry) = slots.find_entry(hash as u64, |&slot| hash_at(blocks, slot) == hash) else {
            return;
        };
        let (slot, _) = entry.remove();
        self.left += record_bytes(self.bytes_at(slot).len());
    }

    /// Compacts the blocks once removed records take more than half of them.
    pub fn compact(&mut self) {
        let stored_bytes: usize = self.blocks.iter().map(Vec::len).sum();
        if self.places.is_empty() {
            *self = ColdStore::default();
        } else if self.left >= REMOVED_BYTES_MIN && self.left * 2 > stored_bytes {
            let mut compacted = ColdStore::default();
            self.records().for_each(|(hash, slot)| {
                compacted.insert(hash, self.bytes_at(slot));
            });
            *self = compacted;
        }
    }

    /// Hash and record position of every series.
    pub fn records(&self) -> impl Iterator<Item = (u128, u32)> {
        self.places.iter().map(|&slot| (self.hash(slot), slot))
    }

    pub fn hash(&self, slot: u32) -> u128 {
        hash_at(&self.blocks, slot)
    }

    /// The encoded state at a record position.
    pub fn bytes_at(&self, slot: u32) -> &[u8] {
        let (block, at) = block_and_offset(slot);
        let record = &self.blocks[block][at + 16..];
        let (length, bytes) = record.split_at(size_of::<u32>());
        let length = length
            .iter()
            .rev()
            .fold(0, |length, &byte| length << 8 | usize::from(byte));
        &bytes[..length]
    }

    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Vec::capacity).sum::<usize>() + self.places.allocation_size()
    }
}

fn record_bytes(length: usize) -> usize {
    (HEAD_BYTES + length).next_multiple_of(STEP_BYTES)
}

fn block_and_offset(slot: u32) -> (usize, usize) {
    let at = slot as usize * STEP_BYTES;
    (at / BLOCK_BYTES, at % BLOCK_BYTES)
}

fn hash_at(blocks: &[Vec<u8>], slot: u32) -> u128 {
    let (block, at) = block_and_offset(slot);
    blocks[block][at..]
        .first_chunk()
        .map_or(0, |hash| u128::from_le_bytes(*hash))
}
