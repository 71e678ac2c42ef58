//! A bounded-memory map from keys to mergeable values: a hash table that spills sorted runs.

use std::cmp::Ordering;
use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{Fault, Result, ScratchSpace, codes};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use xxhash_rust::xxh3::xxh3_64;

use crate::spill_runs::{
    HashedKey, KEY_BYTES_MAX, KeyOrder, RunReader, RunWriter, SpillRuns, SpillValue, write_shares,
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

/// Sorted maps are merged in order unless one is more than this many times as large as the other.
const SIMILAR_SIZE_FACTOR: usize = 8;

/// Values by key, with exact byte equality. Spills beyond the scratch budget.
pub(crate) struct SpillMap<V> {
    scratch: Arc<dyn ScratchSpace>,
    order: KeyOrder,
    /// Empty while `sorted`.
    index: HashTable<u32>,
    entries: Vec<SpillMapEntry<V>>,
    /// Whether the entries are sorted and not indexed. Most decoded maps are merged or written next, so the index
    /// is built on the first lookup.
    sorted: bool,
    arena: Vec<u8>,
    heap_bytes: usize,
    runs: SpillRuns<V>,
    spills: u64,
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
        }
    }

    /// Where it spills, and what memory is requested from.
    pub(crate) fn scratch(&self) -> Arc<dyn ScratchSpace> {
        self.scratch.clone()
    }

    /// Merges a value into a key's value.
    pub(crate) fn add(&mut self, key: &[u8], value: &V) -> Result<()> {
        self.add_hashed(xxh3_64(key), key, value)
    }

    /// Like `add`, with the key's hash.
    fn add_hashed(&mut self, hash: u64, key: &[u8], value: &V) -> Result<()> {
        let slot = self.slot_hashed(hash, key)?;
        self.update_slot(slot, |held| held.merge_value(value));
        Ok(())
    }

    /// The slot of a key, inserted if absent; valid until `spills` changes.
    pub(crate) fn slot(&mut self, key: &[u8]) -> Result<usize> {
        self.slot_hashed(xxh3_64(key), key)
    }

    fn slot_hashed(&mut self, hash: u64, key: &[u8]) -> Result<usize> {
        if self.sorted {
            self.reindex();
        }
        let (entries, arena) = (&self.entries, &self.arena);
        let same = |&slot: &u32| {
            let entry = &entries[slot as usize];
            entry.hash == hash && entry.key(arena) == key
        };
        if let Some(&slot) = self.index.find(hash, same) {
            return Ok(slot as usize);
        }
        self.insert(hash, key)
    }

    fn insert(&mut self, hash: u64, key: &[u8]) -> Result<usize> {
        self.make_room(key)?;
        let slot = self.entries.len();
        let entries = &self.entries;
        // The key is known to be absent: with `eq` always false the entry is vacant.
        match self
            .index
            .entry(hash, |_| false, |&slot| entries[slot as usize].hash)
        {
            Place::Vacant(place) => drop(place.insert(slot as u32)),
            Place::Occupied(_) => return Err(Fault::internal("an absent key was found")),
        }
        self.append(hash, key, V::default());
        Ok(slot)
    }

    /// Spills if another key does not fit the budget.
    fn make_room(&mut self, key: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Fault::new(
                codes::LIMIT,
                format!("a key of {} bytes is too long", key.len()),
            ));
        }
        if self.entries.is_empty() || self.has_room(key.len()) {
            Ok(())
        } else {
            self.spill()
        }
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

    /// Whether one more key fits the budget, including the reallocation of full buffers to twice their size.
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
        let before = value.heap_bytes();
        let result = change(value);
        self.heap_bytes = self.heap_bytes + value.heap_bytes() - before;
        result
    }

    /// Number of times that slots have become invalid, by spilling or sorting.
    pub(crate) fn spills(&self) -> u64 {
        self.spills
    }

    /// Spills if values have grown beyond the budget.
    pub(crate) fn spill_if_large(&mut self) -> Result<()> {
        if self.size_bytes() > self.scratch.budget_bytes() {
            self.spill()
        } else {
            Ok(())
        }
    }

    fn spill(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.sort();
        let (entries, arena) = (&self.entries, &self.arena);
        self.runs.spill(&*self.scratch, |run| {
            entries
                .iter()
                .try_for_each(|entry| run.push(entry.key(arena), &entry.value))
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
        let (arena, order) = (&self.arena, self.order);
        self.entries
            .sort_unstable_by(|a, b| order.compare(a.hashed_key(arena), b.hashed_key(arena)));
        self.index = HashTable::new();
        self.sorted = true;
        self.spills += 1;
    }

    /// Rebuilds the index.
    fn reindex(&mut self) {
        let entries = &self.entries;
        self.index
            .reserve(entries.len(), |&slot| entries[slot as usize].hash);
        for (slot, entry) in entries.iter().enumerate() {
            self.index
                .insert_unique(entry.hash, slot as u32, |&slot| entries[slot as usize].hash);
        }
        self.sorted = false;
    }

    /// Merges another map.
    pub(crate) fn merge(&mut self, mut later: SpillMap<V>) -> Result<()> {
        if later.entries.len() > self.entries.len() && self.runs.is_empty() {
            std::mem::swap(self, &mut later);
            std::mem::swap(&mut self.scratch, &mut later.scratch);
        }
        let are_alike =
            later.entries.len().saturating_mul(SIMILAR_SIZE_FACTOR) >= self.entries.len();
        if self.sorted && later.sorted && are_alike && self.runs.is_empty() && later.runs.is_empty()
        {
            let bytes = 2 * (self.size_bytes() + later.size_bytes());
            if bytes <= self.scratch.budget_bytes() {
                self.merge_sorted(later);
                return Ok(());
            }
        }
        let SpillMap {
            entries,
            arena,
            runs,
            index,
            ..
        } = later;
        drop(index);
        for entry in &entries {
            self.add_hashed(entry.hash, entry.key(&arena), &entry.value)?;
        }
        drop((entries, arena));
        self.runs.adopt(runs, &*self.scratch)?;
        self.spill_if_large()
    }

    /// Merges another map; both are sorted and stay so.
    fn merge_sorted(&mut self, later: SpillMap<V>) {
        let order = self.order;
        let (mine, others) = (std::mem::take(&mut self.arena), later.arena);
        let mut here = std::mem::take(&mut self.entries).into_iter().peekable();
        let mut there = later.entries.into_iter().peekable();
        self.entries.reserve(here.len().max(there.len()));
        self.arena.reserve(mine.len().max(others.len()));
        self.heap_bytes = 0;
        loop {
            let next = match (here.peek(), there.peek()) {
                (Some(a), Some(b)) => order.compare(a.hashed_key(&mine), b.hashed_key(&others)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let first = if next.is_le() { here.next() } else { None };
            let other = if next.is_ge() { there.next() } else { None };
            match (first, other) {
                (Some(mut own), other) => {
                    other
                        .iter()
                        .for_each(|other| own.value.merge_value(&other.value));
                    self.append(own.hash, own.key(&mine), std::mem::take(&mut own.value));
                }
                (None, Some(mut other)) => {
                    self.append(
                        other.hash,
                        other.key(&others),
                        std::mem::take(&mut other.value),
                    );
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
            (self.index, self.entries, self.arena) = (HashTable::new(), Vec::new(), Vec::new());
            return self.runs.for_each(visit);
        }
        self.sort();
        self.entries
            .iter()
            .try_for_each(|entry| visit(entry.key(&self.arena), &entry.value))
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
        let mut tally = SpillMap::new(scratch, order);
        let mut run = RunReader::<_, V>::new(input, order);
        tally.sorted = true;
        while run.advance()? {
            let (hash, key) = (run.hash(), run.key());
            let last = tally
                .entries
                .last()
                .map(|last| last.hashed_key(&tally.arena));
            // The input may be unsorted or contain duplicates.
            if !tally.sorted
                || last
                    .is_some_and(|last| order.compare(last, HashedKey { hash, bytes: key }).is_ge())
            {
                tally.add_hashed(hash, key, &run.value)?;
                continue;
            }
            tally.make_room(key)?;
            tally.sorted = true;
            tally.append(hash, key, run.value.clone());
        }
        tally.spill_if_large()?;
        Ok(tally)
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
