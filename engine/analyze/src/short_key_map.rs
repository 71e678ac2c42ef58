//! Counts of short keys. A key and its count share sixteen bytes, so that a lookup touches one cache line.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{Fault, Result, ScratchSpace, codes};

use crate::spill_runs::{KeyOrder, RunReader, RunWriter, SpillRuns, write_shares};

/// Most bytes of a short key.
const SHORT_BYTES_MAX: usize = 11;

/// Keys looked up as a batch: enough for their cache misses to overlap.
const LOOKUP_BATCH_KEYS: usize = 64;

/// Slots visited in a row when a table is merged into another one.
const MERGE_BLOCK_SLOTS: usize = 64;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 1024;

/// A key as two numbers that sort like its bytes: the first eight bytes; then three bytes and the length plus one.
/// No key is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShortKey {
    pub head: u64,
    pub tail: u32,
}

impl ShortKey {
    /// Packs a key; `None` if it is too long.
    pub fn pack(key: &[u8]) -> Option<ShortKey> {
        let length = key.len();
        let (head, last_bytes) = match length {
            8..=SHORT_BYTES_MAX => {
                let head = u64::from_be_bytes(*key.first_chunk()?);
                // The last four bytes overlap the first eight.
                let last = u64::from(u32::from_be_bytes(*key.last_chunk()?));
                let shifted = last << (8 * (12 - length));
                (head, (shifted & 0xffff_ffff) as u32)
            }
            4..8 => {
                let first = u64::from(u32::from_be_bytes(*key.first_chunk()?)) << 32;
                let last = u64::from(u32::from_be_bytes(*key.last_chunk()?)) << (8 * (8 - length));
                (first | last, 0)
            }
            0..4 => {
                let mut head = 0;
                for byte in key.iter().rev() {
                    head = head >> 8 | u64::from(*byte) << 56;
                }
                (head, 0)
            }
            _ => return None,
        };
        // The length tells keys apart that differ in zero bytes at their end.
        let tail = last_bytes & 0xffff_ff00 | (length as u32 + 1);
        Some(ShortKey { head, tail })
    }

    fn unpack(self) -> ([u8; 12], usize) {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.head.to_be_bytes());
        bytes[8..].copy_from_slice(&(self.tail & 0xffff_ff00).to_be_bytes());
        (bytes, self.length())
    }

    fn length(self) -> usize {
        (self.tail & 0xff) as usize - 1
    }

    /// Folded multiplication: distributes keys well enough, and is fast.
    fn hash(self) -> u64 {
        let mixed = self.head ^ u64::from(self.tail).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let wide = u128::from(mixed) * 0x9e37_79b9_7f4a_7c15_u128;
        (wide >> 64) as u64 ^ wide as u64
    }

    /// First slot to probe. Multiplication maps hashes to any number of slots in their order, so that a table moves
    /// to a larger one from front to back.
    pub fn home(self, slots: usize) -> usize {
        ((u128::from(self.hash()) * slots as u128) >> 64) as usize
    }
}

/// A key and its count in sixteen bytes. A `ShortKey` as a field would add padding.
#[derive(Debug, Clone, Copy, Default)]
struct ShortKeySlot {
    head: u64,
    tail: u32,
    count: u32,
}

impl ShortKeySlot {
    fn new(ShortKey { head, tail }: ShortKey, count: u32) -> Self {
        ShortKeySlot { head, tail, count }
    }

    fn key(&self) -> ShortKey {
        ShortKey {
            head: self.head,
            tail: self.tail,
        }
    }

    fn is_free(&self) -> bool {
        self.tail == 0
    }
}

/// The slot of a key, or the free slot where it belongs. At least one slot has to be free.
fn probe_slot(slots: &[ShortKeySlot], key: ShortKey) -> usize {
    let mut at = key.home(slots.len());
    while !slots[at].is_free() && slots[at].key() != key {
        at = if at + 1 == slots.len() { 0 } else { at + 1 };
    }
    at
}

/// Exact counts of short keys. Spills beyond the scratch budget.
pub(crate) struct ShortKeyMap {
    scratch: Arc<dyn ScratchSpace>,
    /// Open addressing in hash order; while `sorted`, the used slots are sorted at the front.
    slots: Vec<ShortKeySlot>,
    used_count: usize,
    sorted: bool,
    /// Counts beyond 32 bits.
    overflow_counts: BTreeMap<ShortKey, u64>,
    /// Keys and counts for the next batch of lookups.
    pending: Vec<ShortKeySlot>,
    runs: SpillRuns<u64>,
    /// Part of the budget that other structures use.
    others_bytes: usize,
}

impl ShortKeyMap {
    pub(crate) fn new(scratch: &Arc<dyn ScratchSpace>) -> Self {
        ShortKeyMap {
            scratch: scratch.clone(),
            slots: Vec::new(),
            used_count: 0,
            sorted: false,
            overflow_counts: BTreeMap::new(),
            pending: Vec::with_capacity(LOOKUP_BATCH_KEYS),
            runs: SpillRuns::new(KeyOrder::Bytes),
            others_bytes: 0,
        }
    }

    /// Sets the part of the budget that other structures use.
    pub(crate) fn set_other_bytes(&mut self, bytes: usize) {
        self.others_bytes = bytes;
    }

    /// Adds to a key's count, now or with the next batch; `false` if the key is too long.
    pub(crate) fn add(&mut self, key: &[u8], count: u64) -> Result<bool> {
        let Some(key) = ShortKey::pack(key) else {
            return Ok(false);
        };
        self.enqueue(key, count)?;
        Ok(true)
    }

    fn enqueue(&mut self, key: ShortKey, count: u64) -> Result<()> {
        let Ok(count) = u32::try_from(count) else {
            self.make_room()?;
            self.slot(key);
            *self.overflow_counts.entry(key).or_default() += count;
            return Ok(());
        };
        if let Some(last) = self.pending.last_mut()
            && last.key() == key
            && let Some(sum) = last.count.checked_add(count)
        {
            last.count = sum;
            return Ok(());
        }
        self.pending.push(ShortKeySlot::new(key, count));
        if self.pending.len() >= LOOKUP_BATCH_KEYS {
            self.flush_pending()?;
        }
        Ok(())
    }

    /// Adds the pending counts to the table.
    fn flush_pending(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.make_room()?;
        // The reads of this loop are independent, so their cache misses overlap; the next loop finds the lines in
        // cache.
        let slots = self.slots.len();
        let mut touched = 0;
        for slot in &self.pending {
            touched ^= self.slots[slot.key().home(slots)].count;
        }
        black_box(touched);
        let mut pending = std::mem::take(&mut self.pending);
        for key in pending.drain(..) {
            let slot = self.slot(key.key());
            match slot.count.checked_add(key.count) {
                Some(sum) => slot.count = sum,
                None => *self.overflow_counts.entry(key.key()).or_default() += u64::from(key.count),
            }
        }
        self.pending = pending;
        Ok(())
    }

    /// Finds or inserts a key; the table must have room.
    fn slot(&mut self, key: ShortKey) -> &mut ShortKeySlot {
        let at = probe_slot(&self.slots, key);
        let slot = &mut self.slots[at];
        self.used_count += usize::from(slot.is_free());
        slot.head = key.head;
        slot.tail = key.tail;
        slot
    }

    /// Ensures room for all pending keys: the load factor is at most 4/5.
    fn make_room(&mut self) -> Result<()> {
        let has_room = |slots: usize| (self.used_count + LOOKUP_BATCH_KEYS) * 5 <= slots * 4;
        if has_room(self.slots.len()) && !self.sorted {
            return Ok(());
        }
        let mut slot_count = self.slots.len().next_power_of_two().max(SLOTS_MIN);
        while !has_room(slot_count) {
            slot_count *= 2;
        }
        // Both tables exist while the keys move.
        let moving = (self.slots.capacity() + slot_count) * size_of::<ShortKeySlot>();
        let fits = moving + self.others_bytes <= self.scratch.budget_bytes();
        if slot_count > SLOTS_MIN && self.used_count > 0 && !fits {
            return self.spill();
        }
        let new_slots = vec![ShortKeySlot::default(); slot_count];
        let old_slots = std::mem::replace(&mut self.slots, new_slots);
        self.used_count = 0;
        self.sorted = false;
        for old_slot in old_slots {
            if !old_slot.is_free() {
                self.slot(old_slot.key()).count = old_slot.count;
            }
        }
        Ok(())
    }

    /// Moves all keys to the front, sorted; afterwards the table cannot be searched.
    fn sort(&mut self) {
        if self.sorted {
            return;
        }
        let mut end = 0;
        for at in 0..self.slots.len() {
            if !self.slots[at].is_free() {
                self.slots.swap(end, at);
                end += 1;
            }
        }
        self.slots[..end].sort_unstable_by_key(ShortKeySlot::key);
        self.sorted = true;
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let used_slots = &self.slots[..self.used_count];
        let overflow_counts = &self.overflow_counts;
        self.runs.spill(&*self.scratch, |run| {
            for_each_slot(used_slots, overflow_counts, |key, count| {
                run.push(key, &count)
            })
        })?;
        self.slots.fill(ShortKeySlot::default());
        self.overflow_counts.clear();
        self.used_count = 0;
        self.sorted = false;
        Ok(())
    }

    /// Visits every key once, in byte order.
    pub(crate) fn for_each(
        &mut self,
        mut visit: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        self.flush_pending()?;
        if !self.runs.is_empty() {
            if self.used_count > 0 {
                self.spill()?;
            }
            // Frees the table for the visitor: the keys are now read from the runs.
            self.slots = Vec::new();
            return self.runs.for_each(|key, count| visit(key, *count));
        }
        self.sort();
        for_each_slot(&self.slots[..self.used_count], &self.overflow_counts, visit)
    }

    /// Number of keys in memory with at least this count, and their total bytes.
    pub(crate) fn count_frequent(&mut self, count_min: u64) -> Result<(usize, usize)> {
        self.flush_pending()?;
        let mut keys = 0;
        let mut bytes = 0;
        for slot in &self.slots {
            if !slot.is_free() && u64::from(slot.count) >= count_min {
                keys += 1;
                bytes += slot.key().length();
            }
        }
        Ok((keys, bytes))
    }

    /// Merges another map.
    pub(crate) fn merge(&mut self, mut later_map: ShortKeyMap) -> Result<()> {
        later_map.flush_pending()?;
        if later_map.used_count > self.used_count && self.runs.is_empty() {
            std::mem::swap(self, &mut later_map);
            std::mem::swap(&mut self.scratch, &mut later_map.scratch);
            later_map.flush_pending()?;
        }
        if self.sorted && later_map.sorted && self.runs.is_empty() && later_map.runs.is_empty() {
            // The merged table exists beside both others.
            let merged_count = self.used_count + later_map.used_count;
            let slot_count = merged_count + self.slots.capacity() + later_map.slots.capacity();
            let bytes = slot_count * size_of::<ShortKeySlot>();
            if bytes + self.others_bytes <= self.scratch.budget_bytes() {
                self.merge_sorted(later_map);
                return Ok(());
            }
        }
        let ShortKeyMap {
            slots,
            overflow_counts,
            runs,
            used_count,
            sorted,
            ..
        } = later_map;
        if sorted {
            for slot in &slots[..used_count] {
                self.enqueue(slot.key(), u64::from(slot.count))?;
            }
        } else {
            for slot in interleaved_slots(&slots) {
                if !slot.is_free() {
                    self.enqueue(slot.key(), u64::from(slot.count))?;
                }
            }
        }
        drop(slots);
        for (key, count) in overflow_counts {
            self.enqueue(key, count)?;
        }
        self.flush_pending()?;
        self.runs.adopt(runs, &*self.scratch)
    }

    /// Merges another map; both are sorted and stay so.
    fn merge_sorted(&mut self, later_map: ShortKeyMap) {
        let mut merged: Vec<ShortKeySlot> =
            Vec::with_capacity(self.used_count + later_map.used_count);
        let mut slots = self.slots[..self.used_count].iter().peekable();
        let mut later_slots = later_map.slots[..later_map.used_count].iter().peekable();
        loop {
            let slot = match (slots.peek(), later_slots.peek()) {
                (Some(a), Some(b)) if a.key() == b.key() => {
                    let mut slot = **a;
                    // A sum beyond 32 bits keeps the count of this map and carries the other one.
                    match a.count.checked_add(b.count) {
                        Some(sum) => slot.count = sum,
                        None => {
                            *self.overflow_counts.entry(a.key()).or_default() += u64::from(b.count)
                        }
                    }
                    slots.next();
                    later_slots.next();
                    slot
                }
                (Some(a), Some(b)) if b.key() < a.key() => {
                    later_slots.next().copied().unwrap_or_default()
                }
                (Some(_), _) => slots.next().copied().unwrap_or_default(),
                (None, Some(_)) => later_slots.next().copied().unwrap_or_default(),
                (None, None) => break,
            };
            merged.push(slot);
        }
        for (key, count) in later_map.overflow_counts {
            *self.overflow_counts.entry(key).or_default() += count;
        }
        self.used_count = merged.len();
        self.slots = merged;
    }

    /// Writes all keys and counts in order.
    pub(crate) fn encode(&mut self, out: &mut dyn Write) -> Result<()> {
        let mut run = RunWriter::new(out);
        self.for_each(|key, count| run.push(key, &count))?;
        run.finish()?;
        Ok(())
    }

    /// Writes the keys and counts of each share in order.
    pub(crate) fn encode_shares(&mut self, shares: &mut [&mut dyn Write]) -> Result<()> {
        write_shares(shares, |push| self.for_each(|key, count| push(key, &count)))
    }

    /// Approximate size of the output of `encode` in bytes.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        (self.used_count * size_of::<ShortKeySlot>()) as u64 + self.runs.bytes()
    }

    /// Reads bytes written by `encode`. The map stays sorted until something is added: most decoded maps are
    /// merged, written or ranked next.
    pub(crate) fn decode(input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<Self> {
        let mut keys = ShortKeyMap::new(scratch);
        let slots_max = (scratch.budget_bytes() / size_of::<ShortKeySlot>()).max(SLOTS_MIN);
        let mut run = RunReader::<_, u64>::new(input, KeyOrder::Bytes);
        while run.advance()? {
            let Some(key) = ShortKey::pack(run.key()) else {
                return Err(Fault::new(
                    codes::CORRUPT,
                    "a state has a short key that is too long",
                ));
            };
            if keys.slots.last().is_some_and(|last| last.key() >= key) {
                return Err(Fault::new(
                    codes::CORRUPT,
                    "a state has short keys that are not sorted",
                ));
            }
            // The vector doubles, and both copies exist while the keys move.
            if keys.slots.len() == keys.slots.capacity() && keys.slots.len() * 3 > slots_max {
                keys.used_count = keys.slots.len();
                keys.sorted = true;
                keys.spill()?;
                keys.slots.clear();
            }
            let count = match u32::try_from(run.value) {
                Ok(count) => count,
                Err(_) => {
                    keys.overflow_counts.insert(key, run.value);
                    0
                }
            };
            keys.slots.push(ShortKeySlot::new(key, count));
        }
        keys.used_count = keys.slots.len();
        keys.sorted = true;
        Ok(keys)
    }

    /// Bytes of memory held, by capacity.
    pub(crate) fn size_bytes(&self) -> usize {
        let slots = self.slots.capacity() + self.pending.capacity();
        slots * size_of::<ShortKeySlot>() + self.overflow_counts.len() * 48
    }
}

/// All slots in interleaved blocks. In hash order, keys would fill the front of another table completely while the
/// rest of it is empty, and lookups there would degrade to linear scans.
fn interleaved_slots(slots: &[ShortKeySlot]) -> impl Iterator<Item = &ShortKeySlot> {
    let blocks = slots.len() / MERGE_BLOCK_SLOTS;
    // The number of blocks is a power of two, so an odd step visits every block; the golden ratio distributes them.
    let step = (blocks as f64 * 0.618) as usize | 1;
    let block = move |number: usize| number.wrapping_mul(step) & blocks.wrapping_sub(1);
    (0..blocks)
        .flat_map(move |number| &slots[block(number) * MERGE_BLOCK_SLOTS..][..MERGE_BLOCK_SLOTS])
}

/// Visits sorted slots, adding the overflow counts.
fn for_each_slot(
    slots: &[ShortKeySlot],
    overflow_counts: &BTreeMap<ShortKey, u64>,
    mut visit: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    for slot in slots {
        let key = slot.key();
        let (bytes, length) = key.unpack();
        let overflow = if overflow_counts.is_empty() {
            0
        } else {
            overflow_counts.get(&key).copied().unwrap_or(0)
        };
        visit(&bytes[..length], u64::from(slot.count) + overflow)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_model::MemoryScratch;

    #[test]
    fn packed_keys_round_trip_and_sort_like_bytes() {
        let text = b"\0abcdefgh\xffz0123456789";
        let mut keys: Vec<&[u8]> = (0..text.len())
            .flat_map(|from| (from..=text.len()).map(move |to| &text[from..to]))
            .collect();
        keys.retain(|key| key.len() <= SHORT_BYTES_MAX);
        keys.extend([&b"a"[..], b"a\0", b"a\0\0", b"", b"\0"]);
        for key in &keys {
            let (bytes, length) = ShortKey::pack(key).unwrap().unpack();
            assert_eq!(&bytes[..length], *key);
        }
        for a in &keys {
            for b in &keys {
                assert_eq!(
                    ShortKey::pack(a).cmp(&ShortKey::pack(b)),
                    a.cmp(b),
                    "{a:?} {b:?}"
                );
            }
        }
        assert_eq!(ShortKey::pack(&[0; SHORT_BYTES_MAX + 1]), None);
    }

    #[test]
    fn tables_that_are_merged_keep_all_keys() {
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
        let counted = |range: std::ops::Range<u32>| {
            let mut keys = ShortKeyMap::new(&scratch);
            range.for_each(|key| assert!(keys.add(&key.to_le_bytes(), u64::from(key)).unwrap()));
            keys
        };
        for (first, second) in [
            (0..3000, 2000..6000),
            (0..6000, 5000..5001),
            (0..1, 0..9000),
            (0..0, 0..2),
        ] {
            let mut merged = counted(first.clone());
            merged.merge(counted(second.clone())).unwrap();
            // The same after encoding and decoding.
            let read_back = |mut keys: ShortKeyMap| {
                let mut bytes = Vec::new();
                keys.encode(&mut bytes).unwrap();
                ShortKeyMap::decode(&mut bytes.as_slice(), &scratch).unwrap()
            };
            let mut read = read_back(counted(first.clone()));
            read.merge(read_back(counted(second.clone()))).unwrap();
            let mut one = Vec::new();
            let mut other = Vec::new();
            read.encode(&mut one).unwrap();
            merged.encode(&mut other).unwrap();
            assert_eq!(one, other);
            read.merge(counted(0..10)).unwrap();
            merged.merge(read_back(counted(0..10))).unwrap();
            (one, other) = (Vec::new(), Vec::new());
            read.encode(&mut one).unwrap();
            merged.encode(&mut other).unwrap();
            assert_eq!(one, other);
            let mut found = BTreeMap::new();
            merged
                .for_each(|key, count| {
                    found.insert(u32::from_le_bytes(key.try_into().unwrap()), count);
                    Ok(())
                })
                .unwrap();
            let mut expected = BTreeMap::new();
            first
                .chain(second)
                .chain(0..10)
                .for_each(|key| *expected.entry(key).or_insert(0) += u64::from(key));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn counts_beyond_32_bits_are_kept() {
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
        let mut keys = ShortKeyMap::new(&scratch);
        for _ in 0..5 {
            keys.add(b"x", u64::from(u32::MAX)).unwrap();
            keys.add(b"y", 1).unwrap();
        }
        let mut found = Vec::new();
        keys.for_each(|key, count| {
            found.push((key.to_vec(), count));
            Ok(())
        })
        .unwrap();
        assert_eq!(
            found,
            [(b"x".to_vec(), 5 * u64::from(u32::MAX)), (b"y".to_vec(), 5)]
        );
    }
}
