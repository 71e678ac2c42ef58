//! Rows of the other side, found by their keys.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::row::Rows;
use forebay_model::{Fault, Result, take_batch};
use hashbrown::HashTable;

use crate::join_keys::{EncodedKeys, JoinKeys};

/// Bytes of a table for each row in addition to the row and its key.
pub const ENTRY_BYTES: usize = 48;

/// Marks the last row of a key.
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

/// Treatment of rows of the other side with equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameKeys {
    /// A fault.
    Refused,
    /// All rows match.
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
        same_keys: SameKeys,
        keep: impl Fn(u64) -> bool,
        refuse: impl Fn(usize) -> Fault,
    ) -> Result<()> {
        let number = self.batches.len() as u32;
        let mut kept_rows: Vec<u32> = Vec::new();
        let stored_keys = &self.keys;
        let positions = &mut self.places;
        for row in (0..values.num_rows()).filter(|row| encoded.is_valid(*row)) {
            let hash = encoded.hashes[row];
            let key = encoded.rows.row(row);
            if !keep(hash) {
                continue;
            }
            let key_of = |(batch, at): (u32, u32)| {
                if batch == number {
                    encoded.rows.row(if at as usize == kept_rows.len() {
                        row
                    } else {
                        kept_rows[at as usize] as usize
                    })
                } else {
                    stored_keys[batch as usize].row(at as usize)
                }
            };
            let first_entry = self
                .first
                .find(hash, |first| key_of(positions[*first as usize]) == key)
                .copied();
            let entry = positions.len() as u32;
            match (first_entry, same_keys) {
                (None, _) => {}
                (Some(_), SameKeys::Refused) => return Err(refuse(row)),
                (Some(_), SameKeys::Dropped) => continue,
                (Some(first), SameKeys::Kept) => {
                    let last = std::mem::replace(&mut self.last[first as usize], entry);
                    self.next[last as usize] = entry;
                }
            }
            positions.push((number, kept_rows.len() as u32));
            if same_keys == SameKeys::Kept {
                self.next.push(END);
                self.last.push(entry);
            }
            if first_entry.is_none() {
                let hash_of =
                    |entry: &u32| JoinKeys::hash(key_of(positions[*entry as usize]).as_ref());
                self.first.insert_unique(hash, entry, hash_of);
            }
            kept_rows.push(row as u32);
        }
        if kept_rows.is_empty() {
            return Ok(());
        }
        let (values, rows) = if kept_rows.len() == values.num_rows() {
            (values, encoded.rows)
        } else {
            (
                take_batch(&values, &UInt32Array::from(kept_rows.clone()))?,
                keys.copy_rows(&encoded.rows, &kept_rows),
            )
        };
        self.bytes += values.get_array_memory_size() + rows.size() + kept_rows.len() * ENTRY_BYTES;
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
