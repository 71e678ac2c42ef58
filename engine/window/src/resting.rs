//! Series that rest: of each, the bytes of what is remembered.

use hashbrown::HashTable;

/// Records lie in blocks of so many bytes; a longer one has a block of its own.
const BLOCK_BYTES: usize = 1 << 20;

/// Records begin at multiples of so many bytes.
const STEP_BYTES: usize = 4;

/// Before a record's bytes: the hash of the series' keys and the length.
const HEAD_BYTES: usize = 16 + size_of::<u32>();

/// Left records matter from so many bytes on.
const LEFT_BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// Series that rest, by the hash of their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resting {
    blocks: Vec<Vec<u8>>,
    /// Where records lie, in steps.
    places: HashTable<u32>,
    /// Bytes of records whose series are awake again.
    left: usize,
}

impl Resting {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// What is remembered of a series, if it rests.
    #[inline]
    pub fn find(&self, hash: u128) -> Option<&[u8]> {
        let place = self.places.find(hash as u64, |&place| self.hash(place) == hash)?;
        Some(self.bytes_at(*place))
    }

    /// Adds a series; `false` where it rests already, or where there is no place left.
    pub fn insert(&mut self, hash: u128, bytes: &[u8]) -> bool {
        let Ok(length) = u32::try_from(bytes.len()) else { return false };
        if self.find(hash).is_some() {
            return false;
        }
        let record = record_bytes(bytes.len());
        if self.blocks.last().is_none_or(|block| block.len() + record > BLOCK_BYTES) {
            self.blocks.push(Vec::with_capacity(record.max(BLOCK_BYTES)));
        }
        let (number, Some(block)) = (self.blocks.len() - 1, self.blocks.last_mut()) else { return false };
        let Ok(place) = u32::try_from((number * BLOCK_BYTES + block.len()) / STEP_BYTES) else { return false };
        let start = block.len();
        block.extend_from_slice(&hash.to_le_bytes());
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(bytes);
        block.resize(start + record, 0);
        let Resting { blocks, places, .. } = self;
        places.insert_unique(hash as u64, place, |&place| hash_at(blocks, place) as u64);
        true
    }

    /// Forgets a series that is awake again.
    pub fn remove(&mut self, hash: u128) {
        let Resting { blocks, places, .. } = self;
        let Ok(found) = places.find_entry(hash as u64, |&place| hash_at(blocks, place) == hash) else { return };
        let (place, _) = found.remove();
        self.left += record_bytes(self.bytes_at(place).len());
    }

    /// Gives back the memory of left records, once it is most of all.
    pub fn tidy(&mut self) {
        let held: usize = self.blocks.iter().map(Vec::len).sum();
        if self.places.is_empty() {
            *self = Resting::default();
        } else if self.left >= LEFT_BYTES_MIN && self.left * 2 > held {
            let mut kept = Resting::default();
            self.records().for_each(|(hash, place)| {
                kept.insert(hash, self.bytes_at(place));
            });
            *self = kept;
        }
    }

    /// The hashes of all series, and where their records lie.
    pub fn records(&self) -> impl Iterator<Item = (u128, u32)> {
        self.places.iter().map(|&place| (self.hash(place), place))
    }

    pub fn hash(&self, place: u32) -> u128 {
        hash_at(&self.blocks, place)
    }

    /// What is remembered of the series whose record lies at a place.
    pub fn bytes_at(&self, place: u32) -> &[u8] {
        let (block, at) = split(place);
        let record = &self.blocks[block][at + 16..];
        let (length, bytes) = record.split_at(size_of::<u32>());
        let length = length.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
        &bytes[..length]
    }

    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Vec::capacity).sum::<usize>() + self.places.allocation_size()
    }
}

fn record_bytes(length: usize) -> usize {
    (HEAD_BYTES + length).next_multiple_of(STEP_BYTES)
}

fn split(place: u32) -> (usize, usize) {
    let at = place as usize * STEP_BYTES;
    (at / BLOCK_BYTES, at % BLOCK_BYTES)
}

fn hash_at(blocks: &[Vec<u8>], place: u32) -> u128 {
    let (block, at) = split(place);
    blocks[block][at..].first_chunk().map_or(0, |hash| u128::from_le_bytes(*hash))
}
