//! A bounded-memory map from keys to mergeable values: a hash table that spills sorted runs.

use std::cmp::Ordering;
use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{Fault, Result, ScratchSpace};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use xxhash_rust::xxh3::xxh3_64;

use crate::spill_runs::{
    HashedKey, KeyOrder, RunReader, RunWriter, SpillRuns, SpillValue, check_key, write_shares,
};

/// An entry of the table; the key's bytes are in the arena.
#[derive(Debug)]
pub(crate) struct SpillMapEntry<V> {
    hash: u64,
    offset: usize,
    length: u32,
    pub(crate) value: V,
}

impl<V> SpillMapEntry<V> {
    pub(crate) fn key<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.offset..self.offset + self.length as usize]
    }

    fn hashed_key<'a>(&self, arena: &'a [u8]) -> HashedKey<'a> {
        HashedKey {
            hash: self.hash,
            bytes: self.key(arena),
        }
    }
}

/// Approximate index bytes per entry: four and a control byte, at half load.
const INDEX_BYTES: usize = 11;

/// Guesses of slots that are judged together.
const GUESSES_JUDGED: u32 = 1024;

/// Lookups without a guess after guesses of which few were right.
const LOOKUPS_WITHOUT_GUESSES: u32 = 31 * GUESSES_JUDGED;

/// Sorted maps are merged in order unless one is more than this many times as large as the other.
const SIMILAR_SIZE_FACTOR: usize = 8;

/// Guesses of the slot of the next key. Data in the order of time repeats its keys in one order: the slot behind that of
/// the preceding key is the best guess, and it needs neither a hash nor a look into the index.
#[derive(Debug, Default)]
struct SlotGuesses {
    /// The slot of the preceding key.
    previous: usize,
    tried: u32,
    right: u32,
    /// Lookups until guesses are tried again.
    lookups_without: u32,
}

impl SlotGuesses {
    /// Counts a guess. Guesses pause where few of them are right.
    fn count(&mut self, is_right: bool) {
        self.tried += 1;
        self.right += u32::from(is_right);
        if self.tried < GUESSES_JUDGED {
            return;
        }
        if self.right < GUESSES_JUDGED / 4 {
            self.lookups_without = LOOKUPS_WITHOUT_GUESSES;
        }
        self.tried = 0;
        self.right = 0;
    }
}

/// Values by key, with exact byte equality. Spills beyond the scratch budget.
pub(crate) struct SpillMap<V> {
    scratch: Arc<dyn ScratchSpace>,
    order: KeyOrder,
    /// Empty while `sorted`.
    index: HashTable<u32>,
    entries: Vec<SpillMapEntry<V>>,
    /// True while the entries are sorted and not indexed. Most decoded maps are merged or written next, so the index
    /// is built on the first lookup.
    sorted: bool,
    arena: Vec<u8>,
    heap_bytes: usize,
    runs: SpillRuns<V>,
    spills: u64,
    guesses: SlotGuesses,
}

impl<V: SpillValue> SpillMap<V> {
    pub(crate) fn new(scratch: &Arc<dyn ScratchSpace>, order: KeyOrder) -> Self {
        SpillMap {
            scratch: scratch.clone(),
            order,
            index: HashTable::new(),
            entries: Vec::new(),
            sorted: false,
            arena: Vec::new(),
            heap_bytes: 0,
            runs: SpillRuns::new(order),
            spills: 0,
            guesses: SlotGuesses::default(),
        }
    }

    /// The space for spilled runs, which also admits memory.
    pub(crate) fn scratch(&self) -> Arc<dyn ScratchSpace> {
        self.scratch.clone()
    }

    /// Merges a value into a key's value.
    pub(crate) fn add(&mut self, key: &[u8], value: &V) -> Result<()> {
        self.add_hashed(xxh3_64(key), key, value)
    }

    /// Merges a value into the value of a key with this hash.
    fn add_hashed(&mut self, hash: u64, key: &[u8], value: &V) -> Result<()> {
        let slot = match self.guessed_slot(key) {
            Some(slot) => slot,
            None => self.slot_hashed(hash, key)?,
        };
        self.follow(slot);
        self.update_slot(slot, |merged| merged.merge_value(value));
        Ok(())
    }

    /// The slot of a key, inserted if absent; valid until `spills` changes.
    pub(crate) fn slot(&mut self, key: &[u8]) -> Result<usize> {
        let slot = match self.guessed_slot(key) {
            Some(slot) => slot,
            None => self.slot_hashed(xxh3_64(key), key)?,
        };
        self.follow(slot);
        Ok(slot)
    }

    /// Guesses the next slot as the one behind this one.
    pub(crate) fn follow(&mut self, slot: usize) {
        self.guesses.previous = slot;
    }

    /// The slot that is guessed for a key, if it is the right one.
    fn guessed_slot(&mut self, key: &[u8]) -> Option<usize> {
        if self.guesses.lookups_without > 0 {
            self.guesses.lookups_without -= 1;
            return None;
        }
        let previous = self.guesses.previous;
        // Keys are distinct: one that is equal is the right one.
        let slot = [previous + 1, previous].into_iter().find(|slot| {
            let entry = self.entries.get(*slot);
            entry.is_some_and(|entry| entry.key(&self.arena) == key)
        });
        self.guesses.count(slot.is_some());
        slot
    }

    fn slot_hashed(&mut self, hash: u64, key: &[u8]) -> Result<usize> {
        if self.sorted {
            self.reindex();
        }
        let entries = &self.entries;
        let arena = &self.arena;
        let is_same = |&slot: &u32| {
            let entry = &entries[slot as usize];
            entry.hash == hash && entry.key(arena) == key
        };
        if let Some(&slot) = self.index.find(hash, is_same) {
            return Ok(slot as usize);
        }
        self.insert(hash, key)
    }

    fn insert(&mut self, hash: u64, key: &[u8]) -> Result<usize> {
        self.make_room(key)?;
        let slot = self.entries.len();
        let entries = &self.entries;
        // The key is known to be absent: with `eq` always false the entry is vacant.
        let rehash = |&slot: &u32| entries[slot as usize].hash;
        match self.index.entry(hash, |_| false, rehash) {
            Place::Vacant(entry) => drop(entry.insert(slot as u32)),
            Place::Occupied(_) => return Err(Fault::internal("an absent key was found")),
        }
        self.append(hash, key, V::default());
        Ok(slot)
    }

    /// Spills if another key does not fit the budget.
    fn make_room(&mut self, key: &[u8]) -> Result<()> {
        check_key(key.len())?;
        // An empty table takes a key beyond its budget: spilling would free nothing.
        if !self.entries.is_empty() && !self.has_room(key.len()) {
            self.spill()?;
        }
        Ok(())
    }

    fn append(&mut self, hash: u64, key: &[u8], value: V) {
        self.heap_bytes += value.heap_bytes();
        self.entries.push(SpillMapEntry {
            hash,
            offset: self.arena.len(),
            length: key.len() as u32,
            value,
        });
        self.arena.extend_from_slice(key);
    }

    /// True if one more key fits the budget, including the reallocation of full buffers to twice their size.
    fn has_room(&self, key_bytes: usize) -> bool {
        let mut bytes = self.size_bytes();
        if self.entries.len() == self.entries.capacity() {
            bytes += 2 * self.entries.capacity() * size_of::<SpillMapEntry<V>>();
        }
        if self.arena.len() + key_bytes > self.arena.capacity() {
            bytes += (2 * self.arena.capacity()).max(key_bytes);
        }
        if !self.sorted && self.index.len() == self.index.capacity() {
            bytes += 2 * self.index.allocation_size();
        }
        bytes <= self.scratch.budget_bytes() && self.entries.len() < u32::MAX as usize
    }

    /// Updates the value in a slot.
    pub(crate) fn update_slot<T>(&mut self, slot: usize, change: impl FnOnce(&mut V) -> T) -> T {
        let value = &mut self.entries[slot].value;
        let bytes_before = value.heap_bytes();
        let result = change(value);
        self.heap_bytes = self.heap_bytes + value.heap_bytes() - bytes_before;
        result
    }

    /// Number of times that slots have become invalid, by spilling or sorting.
    pub(crate) fn spills(&self) -> u64 {
        self.spills
    }

    /// Spills if values have grown beyond the budget.
    pub(crate) fn spill_if_large(&mut self) -> Result<()> {
        if self.size_bytes() > self.scratch.budget_bytes() {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.sort();
        let entries = &self.entries;
        let arena = &self.arena;
        self.runs.spill(&*self.scratch, |run| {
            for entry in entries {
                run.push(entry.key(arena), &entry.value)?;
            }
            Ok(())
        })?;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.sorted = false;
        self.arena.clear();
        self.heap_bytes = 0;
        self.spills += 1;
    }

    /// Sorts the entries; this invalidates slots.
    fn sort(&mut self) {
        if self.sorted {
            return;
        }
        let arena = &self.arena;
        let order = self.order;
        self.entries
            .sort_unstable_by(|a, b| order.compare(a.hashed_key(arena), b.hashed_key(arena)));
        self.index = HashTable::new();
        self.sorted = true;
        self.spills += 1;
    }

    /// Rebuilds the index.
    fn reindex(&mut self) {
        let entries = &self.entries;
        let rehash = |&slot: &u32| entries[slot as usize].hash;
        self.index.reserve(entries.len(), rehash);
        for (slot, entry) in entries.iter().enumerate() {
            self.index.insert_unique(entry.hash, slot as u32, rehash);
        }
        self.sorted = false;
    }

    /// Merges another map.
    pub(crate) fn merge(&mut self, mut later_map: SpillMap<V>) -> Result<()> {
        // The smaller map is merged into the larger one.
        if later_map.entries.len() > self.entries.len() && self.runs.is_empty() {
            std::mem::swap(self, &mut later_map);
            std::mem::swap(&mut self.scratch, &mut later_map.scratch);
        }
        let are_alike =
            later_map.entries.len().saturating_mul(SIMILAR_SIZE_FACTOR) >= self.entries.len();
        let are_sorted = self.sorted && later_map.sorted;
        let are_in_memory = self.runs.is_empty() && later_map.runs.is_empty();
        if are_sorted && are_alike && are_in_memory {
            // The merged copy exists beside both maps.
            let bytes = 2 * (self.size_bytes() + later_map.size_bytes());
            if bytes <= self.scratch.budget_bytes() {
                self.merge_sorted(later_map);
                return Ok(());
            }
        }
        let SpillMap {
            entries,
            arena,
            runs,
            index,
            ..
        } = later_map;
        // Freed early: only the entries are needed, and this map grows meanwhile.
        drop(index);
        for entry in &entries {
            self.add_hashed(entry.hash, entry.key(&arena), &entry.value)?;
        }
        drop((entries, arena));
        self.runs.adopt(runs, &*self.scratch)?;
        self.spill_if_large()
    }

    /// Merges another map; both are sorted and stay so.
    fn merge_sorted(&mut self, later_map: SpillMap<V>) {
        let order = self.order;
        let arena = std::mem::take(&mut self.arena);
        let later_arena = later_map.arena;
        let mut entries = std::mem::take(&mut self.entries).into_iter().peekable();
        let mut later_entries = later_map.entries.into_iter().peekable();
        self.entries.reserve(entries.len().max(later_entries.len()));
        self.arena.reserve(arena.len().max(later_arena.len()));
        self.heap_bytes = 0;
        loop {
            let next = match (entries.peek(), later_entries.peek()) {
                (Some(a), Some(b)) => {
                    order.compare(a.hashed_key(&arena), b.hashed_key(&later_arena))
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            // Equal keys take an entry of both maps.
            let entry = if next.is_le() { entries.next() } else { None };
            let later_entry = if next.is_ge() {
                later_entries.next()
            } else {
                None
            };
            match (entry, later_entry) {
                (Some(mut entry), later_entry) => {
                    if let Some(later_entry) = later_entry {
                        entry.value.merge_value(&later_entry.value);
                    }
                    let value = std::mem::take(&mut entry.value);
                    self.append(entry.hash, entry.key(&arena), value);
                }
                (None, Some(mut entry)) => {
                    let value = std::mem::take(&mut entry.value);
                    self.append(entry.hash, entry.key(&later_arena), value);
                }
                (None, None) => {}
            }
        }
    }

    /// Visits every key once, in order.
    pub(crate) fn for_each(
        &mut self,
        mut visit: impl FnMut(&[u8], &V) -> Result<()>,
    ) -> Result<()> {
        if !self.runs.is_empty() {
            self.spill()?;
            // Frees the table for the visitor: the keys are now read from the runs.
            self.index = HashTable::new();
            self.entries = Vec::new();
            self.arena = Vec::new();
            return self.runs.for_each(visit);
        }
        self.sort();
        for entry in &self.entries {
            visit(entry.key(&self.arena), &entry.value)?;
        }
        Ok(())
    }

    /// Writes all keys and values in order.
    pub(crate) fn encode(&mut self, out: &mut dyn Write) -> Result<()> {
        let mut run = RunWriter::new(out);
        self.for_each(|key, value| run.push(key, value))?;
        run.finish()?;
        Ok(())
    }

    /// Writes the keys and values of each share in order.
    pub(crate) fn encode_shares(&mut self, shares: &mut [&mut dyn Write]) -> Result<()> {
        write_shares(shares, |push| self.for_each(|key, value| push(key, value)))
    }

    /// Approximate size of the output of `encode` in bytes.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        (self.arena.len() + self.heap_bytes + self.entries.len() * size_of::<V>()) as u64
            + self.runs.bytes()
    }

    /// Reads bytes written by `encode`.
    pub(crate) fn decode(
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
        order: KeyOrder,
    ) -> Result<Self> {
        let mut map = SpillMap::new(scratch, order);
        let mut run = RunReader::<_, V>::new(input, order);
        map.sorted = true;
        while run.advance()? {
            let hash = run.hash();
            let key = run.key();
            let ascends = map.entries.last().is_none_or(|last| {
                let hashed_key = HashedKey { hash, bytes: key };
                order
                    .compare(last.hashed_key(&map.arena), hashed_key)
                    .is_lt()
            });
            // The input may be unsorted or contain duplicates.
            if !map.sorted || !ascends {
                map.add_hashed(hash, key, &run.value)?;
                continue;
            }
            map.make_room(key)?;
            // Making room may have spilled all entries: an empty map is sorted.
            map.sorted = true;
            map.append(hash, key, run.value.clone());
        }
        map.spill_if_large()?;
        Ok(map)
    }

    /// The scratch budget in bytes.
    pub(crate) fn budget_bytes(&self) -> usize {
        self.scratch.budget_bytes()
    }

    /// Bytes of memory held, by capacity.
    pub(crate) fn size_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<SpillMapEntry<V>>()
            + self.arena.capacity()
            + self.index_bytes()
            + self.heap_bytes
    }

    /// Bytes of the index, now or after the next lookup builds it.
    fn index_bytes(&self) -> usize {
        if self.sorted {
            self.entries.len() * INDEX_BYTES
        } else {
            self.index.allocation_size()
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_model::MemoryScratch;

    use super::*;

    fn map() -> SpillMap<u64> {
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
        SpillMap::new(&scratch, KeyOrder::Bytes)
    }

    #[test]
    fn keys_that_repeat_in_one_order_are_guessed() {
        let mut map = map();
        let keys: Vec<[u8; 4]> = (0..5000u32).map(u32::to_le_bytes).collect();
        for key in &keys {
            map.slot(key).unwrap();
        }
        // New keys are no right guesses: they pause first.
        map.guesses = SlotGuesses::default();
        map.follow(keys.len() - 1);
        assert_eq!(map.guessed_slot(&keys[0]), None);
        assert_eq!(map.slot(&keys[0]).unwrap(), 0);
        for (slot, key) in keys.iter().enumerate().skip(1) {
            assert_eq!(map.guessed_slot(key), Some(slot));
            map.follow(slot);
        }
        // A key behind itself is guessed, too.
        assert_eq!(map.guessed_slot(&keys[4999]), Some(4999));
    }

    #[test]
    fn guesses_pause_where_few_are_right() {
        let mut map = map();
        for step in 0..2 * u64::from(GUESSES_JUDGED) {
            // Numbers far apart, in no order that repeats.
            let key = step.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            map.slot(&key).unwrap();
        }
        let guesses = &map.guesses;
        assert_eq!(
            guesses.lookups_without,
            LOOKUPS_WITHOUT_GUESSES - GUESSES_JUDGED
        );
    }
}
