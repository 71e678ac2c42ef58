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
        let (head, rest) = match length {
            8..=SHORT_BYTES_MAX => {
                let head = u64::from_be_bytes(*key.first_chunk()?);
                // The last four bytes overlap the first eight.
                let last = u32::from_be_bytes(*key.last_chunk()?);
                (
                    head,
                    (u64::from(last) << (8 * (12 - length)) & 0xffff_ffff) as u32,
                )
            }
            4..8 => {
                let first = u64::from(u32::from_be_bytes(*key.first_chunk()?)) << 32;
                let last = u64::from(u32::from_be_bytes(*key.last_chunk()?)) << (8 * (8 - length));
                (first | last, 0)
            }
            0..4 => (
                key.iter()
                    .rev()
                    .fold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
                0,
            ),
            _ => return None,
        };
        Some(ShortKey {
            head,
            tail: rest & 0xffff_ff00 | (length as u32 + 1),
        })
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
    used: usize,
    sorted: bool,
    /// Counts beyond 32 bits.
    carried: BTreeMap<ShortKey, u64>,
    /// Keys and counts waiting for the next batch of lookups.
    waiting: Vec<ShortKeySlot>,
    runs: SpillRuns<u64>,
    /// Part of the budget that other structures use.
    others_bytes: usize,
}

impl ShortKeyMap {
    pub(crate) fn new(scratch: &Arc<dyn ScratchSpace>) -> Self {
        ShortKeyMap {
            scratch: scratch.clone(),
            slots: Vec::new(),
            used: 0,
            sorted: false,
            carried: BTreeMap::new(),
            waiting: Vec::with_capacity(LOOKUP_BATCH_KEYS),
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
            *self.carried.entry(key).or_default() += count;
            return Ok(());
        };
        if let Some(last) = self.waiting.last_mut()
            && last.key() == key
            && let Some(sum) = last.count.checked_add(count)
        {
            last.count = sum;
            return Ok(());
        }
        self.waiting.push(ShortKeySlot::new(key, count));
        if self.waiting.len() < LOOKUP_BATCH_KEYS {
            Ok(())
        } else {
            self.flush_pending()
        }
    }

    /// Adds the pending counts to the table.
    fn flush_pending(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.make_room()?;
        // The reads of this loop are independent, so their cache misses overlap; the next loop finds the lines in
        // cache.
        let slots = self.slots.len();
        let touched = self
            .waiting
            .iter()
            .fold(0, |sum, key| sum ^ self.slots[key.key().home(slots)].count);
        black_box(touched);
        let mut waiting = std::mem::take(&mut self.waiting);
        for key in waiting.drain(..) {
            let slot = self.slot(key.key());
            match slot.count.checked_add(key.count) {
                Some(sum) => slot.count = sum,
                None => *self.carried.entry(key.key()).or_default() += u64::from(key.count),
            }
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Finds or inserts a key; the table must have room.
    fn slot(&mut self, key: ShortKey) -> &mut ShortKeySlot {
        let at = probe_slot(&self.slots, key);
        let slot = &mut self.slots[at];
        self.used += usize::from(slot.is_free());
        (slot.head, slot.tail) = (key.head, key.tail);
        slot
    }

    /// Ensures room for all pending keys: the load factor is at most 4/5.
    fn make_room(&mut self) -> Result<()> {
        let enough = |slots: usize| (self.used + LOOKUP_BATCH_KEYS) * 5 <= slots * 4;
        if enough(self.slots.len()) && !self.sorted {
            return Ok(());
        }
        let mut wanted = self.slots.len().next_power_of_two().max(SLOTS_MIN);
        while !enough(wanted) {
            wanted *= 2;
        }
        // Both tables exist while the keys move.
        let moving = (self.slots.capacity() + wanted) * size_of::<ShortKeySlot>();
        if wanted > SLOTS_MIN
            && self.used > 0
            && moving + self.others_bytes > self.scratch.budget_bytes()
        {
            return self.spill();
        }
        let old = std::mem::replace(&mut self.slots, vec![ShortKeySlot::default(); wanted]);
        self.used = 0;
        self.sorted = false;
        for old in old.into_iter().filter(|slot| !slot.is_free()) {
            self.slot(old.key()).count = old.count;
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
        let (used, carried) = (&self.slots[..self.used], &self.carried);
        self.runs.spill(&*self.scratch, |run| {
            for_each_slot(used, carried, |key, count| run.push(key, &count))
        })?;
        self.slots.fill(ShortKeySlot::default());
        self.carried.clear();
        self.used = 0;
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
            if self.used > 0 {
                self.spill()?;
            }
            // Frees the table for the visitor: the keys are now read from the runs.
            self.slots = Vec::new();
            return self.runs.for_each(|key, count| visit(key, *count));
        }
        self.sort();
        for_each_slot(&self.slots[..self.used], &self.carried, visit)
    }

    /// Number of keys in memory with at least this count, and their total bytes.
    pub(crate) fn count_frequent(&mut self, count_min: u64) -> Result<(usize, usize)> {
        self.flush_pending()?;
        let counted = self
            .slots
            .iter()
            .filter(|slot| !slot.is_free() && u64::from(slot.count) >= count_min);
        Ok(counted.fold((0, 0), |(keys, bytes), slot| {
            (keys + 1, bytes + slot.key().length())
        }))
    }

    /// Merges another map.
    pub(crate) fn merge(&mut self, mut later: ShortKeyMap) -> Result<()> {
        later.flush_pending()?;
        if later.used > self.used && self.runs.is_empty() {
            std::mem::swap(self, &mut later);
            std::mem::swap(&mut self.scratch, &mut later.scratch);
            later.flush_pending()?;
        }
        if self.sorted && later.sorted && self.runs.is_empty() && later.runs.is_empty() {
            let most = self.used + later.used;
            let bytes =
                (most + self.slots.capacity() + later.slots.capacity()) * size_of::<ShortKeySlot>();
            if bytes + self.others_bytes <= self.scratch.budget_bytes() {
                self.merge_sorted(later);
                return Ok(());
            }
        }
        let ShortKeyMap {
            slots,
            carried,
            runs,
            used,
            sorted,
            ..
        } = later;
        let (in_order, in_slots) = if sorted {
            (&slots[..used], &[][..])
        } else {
            (&[][..], &slots[..])
        };
        for slot in in_order
            .iter()
            .chain(interleaved_slots(in_slots))
            .filter(|slot| !slot.is_free())
        {
            self.enqueue(slot.key(), u64::from(slot.count))?;
        }
        drop(slots);
        for (key, count) in carried {
            self.enqueue(key, count)?;
        }
        self.flush_pending()?;
        self.runs.adopt(runs, &*self.scratch)
    }

    /// Merges another map; both are sorted and stay so.
    fn merge_sorted(&mut self, later: ShortKeyMap) {
        let mut merged: Vec<ShortKeySlot> = Vec::with_capacity(self.used + later.used);
        let (mut here, mut there) = (
            self.slots[..self.used].iter().peekable(),
            later.slots[..later.used].iter().peekable(),
        );
        loop {
            let slot = match (here.peek(), there.peek()) {
                (Some(a), Some(b)) if a.key() == b.key() => {
                    let mut slot = **a;
                    match a.count.checked_add(b.count) {
                        Some(sum) => slot.count = sum,
                        None => *self.carried.entry(a.key()).or_default() += u64::from(b.count),
                    }
                    here.next();
                    there.next();
                    slot
                }
                (Some(a), Some(b)) if b.key() < a.key() => {
                    there.next().copied().unwrap_or_default()
                }
                (Some(_), _) => here.next().copied().unwrap_or_default(),
                (None, Some(_)) => there.next().copied().unwrap_or_default(),
                (None, None) => break,
            };
            merged.push(slot);
        }
        for (key, count) in later.carried {
            *self.carried.entry(key).or_default() += count;
        }
        (self.used, self.slots) = (merged.len(), merged);
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
        (self.used * size_of::<ShortKeySlot>()) as u64 + self.runs.bytes()
    }

    /// Reads bytes written by `encode`. The map stays sorted until something is added: most decoded maps are
    /// merged, written or ranked next.
    pub(crate) fn decode(input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<Self> {
        let broken = |what: &str| Fault::new(codes::CORRUPT, what);
        let mut keys = ShortKeyMap::new(scratch);
        let slots_max = (scratch.budget_bytes() / size_of::<ShortKeySlot>()).max(SLOTS_MIN);
        let mut run = RunReader::<_, u64>::new(input, KeyOrder::Bytes);
        while run.advance()? {
            let key = ShortKey::pack(run.key())
                .ok_or_else(|| broken("a state has a short key that is too long"))?;
            if keys.slots.last().is_some_and(|last| last.key() >= key) {
                return Err(broken("a state has short keys that are not sorted"));
            }
            // The vector doubles, and both copies exist while the keys move.
            if keys.slots.len() == keys.slots.capacity() && keys.slots.len() * 3 > slots_max {
                (keys.used, keys.sorted) = (keys.slots.len(), true);
                keys.spill()?;
                keys.slots.clear();
            }
            let count = u32::try_from(run.value).unwrap_or_else(|_| {
                keys.carried.insert(key, run.value);
                0
            });
            keys.slots.push(ShortKeySlot::new(key, count));
        }
        (keys.used, keys.sorted) = (keys.slots.len(), true);
        Ok(keys)
    }

    /// Bytes of memory held, by capacity.
    pub(crate) fn size_bytes(&self) -> usize {
        (self.slots.capacity() + self.waiting.capacity()) * size_of::<ShortKeySlot>()
            + self.carried.len() * 48
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
    carried: &BTreeMap<ShortKey, u64>,
    mut visit: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    for slot in slots {
        let key = slot.key();
        let (bytes, length) = key.unpack();
        let more = if carried.is_empty() {
            0
        } else {
            carried.get(&key).copied().unwrap_or(0)
        };
        visit(&bytes[..length], u64::from(slot.count) + more)?;
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
            let (mut one, mut other) = (Vec::new(), Vec::new());
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
