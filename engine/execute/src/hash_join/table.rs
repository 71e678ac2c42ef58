//! Rows of the other side, found by their keys.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::row::Rows;
use forebay_model::{Fault, Result, take_batch};
use hashbrown::HashTable;

use crate::join_keys::{EncodedKeys, JoinKeys};

/// What a table holds for each row beside the row and its key.
pub const ENTRY_BYTES: usize = 48;

/// No further row of the key.
const END: u32 = u32::MAX;

/// Rows of the other side.
#[derive(Default)]
pub struct JoinTable {
    batches: Vec<RecordBatch>,
    /// The keys of each batch.
    keys: Vec<Rows>,
    /// The batch and the row of each entry.
    places: Vec<(u32, u32)>,
    /// The first entry of each key.
    first: HashTable<u32>,
    /// The last entry of the key, of each first entry.
    last: Vec<u32>,
    /// The next entry of the same key.
    next: Vec<u32>,
    /// Entries that a row met, if that is checked.
    met: Vec<AtomicBool>,
    bytes: usize,
}

/// What becomes of rows of the other side with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameKeys {
    /// A fault.
    Refused,
    /// All of them match.
    Kept,
    /// The first one matches.
    Dropped,
}

impl JoinTable {
    /// An empty table with room for the index of some rows.
    pub fn with_room(rows: usize) -> Self {
        JoinTable {
            places: Vec::with_capacity(rows),
            first: HashTable::with_capacity(rows),
            ..JoinTable::default()
        }
    }

    /// Bytes of the rows, their keys and the index.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the rows of a batch that have whole keys and for which `keep` returns true. `values` are their columns that
    /// the join brings.
    pub fn push(
        &mut self,
        keys: &JoinKeys,
        encoded: EncodedKeys,
        values: RecordBatch,
        same: SameKeys,
        keep: impl Fn(u64) -> bool,
        refuse: impl Fn(usize) -> Fault,
    ) -> Result<()> {
        let number = self.batches.len() as u32;
        let mut kept: Vec<u32> = Vec::new();
        let (known, places) = (&self.keys, &mut self.places);
        for row in (0..values.num_rows()).filter(|row| encoded.is_valid(*row)) {
            let (hash, key) = (encoded.hashes[row], encoded.rows.row(row));
            if !keep(hash) {
                continue;
            }
            let key_of = |(batch, at): (u32, u32)| match batch == number {
                true => encoded.rows.row(if at as usize == kept.len() {
                    row
                } else {
                    kept[at as usize] as usize
                }),
                false => known[batch as usize].row(at as usize),
            };
            let found = self
                .first
                .find(hash, |first| key_of(places[*first as usize]) == key)
                .copied();
            let entry = places.len() as u32;
            match (found, same) {
                (None, _) => {}
                (Some(_), SameKeys::Refused) => return Err(refuse(row)),
                (Some(_), SameKeys::Dropped) => continue,
                (Some(first), SameKeys::Kept) => {
                    let last = std::mem::replace(&mut self.last[first as usize], entry);
                    self.next[last as usize] = entry;
                }
            }
            places.push((number, kept.len() as u32));
            if same == SameKeys::Kept {
                self.next.push(END);
                self.last.push(entry);
            }
            if found.is_none() {
                let hash_of =
                    |entry: &u32| JoinKeys::hash(key_of(places[*entry as usize]).as_ref());
                self.first.insert_unique(hash, entry, hash_of);
            }
            kept.push(row as u32);
        }
        if kept.is_empty() {
            return Ok(());
        }
        let (values, rows) = match kept.len() == values.num_rows() {
            true => (values, encoded.rows),
            false => (
                take_batch(&values, &UInt32Array::from(kept.clone()))?,
                keys.copy_rows(&encoded.rows, &kept),
            ),
        };
        self.bytes += values.get_array_memory_size() + rows.size() + kept.len() * ENTRY_BYTES;
        self.batches.push(values);
        self.keys.push(rows);
        Ok(())
    }

    /// Prepares the check that no entry is met twice.
    pub fn check_met(&mut self) {
        self.met = self.places.iter().map(|_| AtomicBool::new(false)).collect();
    }

    /// The first entry of a key.
    pub fn find(&self, keys: &EncodedKeys, row: usize) -> Option<u32> {
        if !keys.is_valid(row) {
            return None;
        }
        let key = keys.rows.row(row);
        let key_of = |entry: u32| {
            let (batch, row) = self.places[entry as usize];
            self.keys[batch as usize].row(row as usize)
        };
        self.first
            .find(keys.hashes[row], |first| key_of(*first) == key)
            .copied()
    }

    /// The next entry of the same key.
    pub fn next(&self, entry: u32) -> Option<u32> {
        self.next
            .get(entry as usize)
            .copied()
            .filter(|next| *next != END)
    }

    /// Marks an entry as met; returns whether it was met before.
    pub fn meet(&self, entry: u32) -> bool {
        self.met
            .get(entry as usize)
            .is_some_and(|met| met.swap(true, Ordering::Relaxed))
    }

    /// The batch and the row of an entry.
    pub fn place(&self, entry: u32) -> (usize, usize) {
        let (batch, row) = self.places[entry as usize];
        (batch as usize, row as usize)
    }

    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }
}
