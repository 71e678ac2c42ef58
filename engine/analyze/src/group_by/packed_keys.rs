//! Keys of a fixed number of words.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use forebay_model::{Fault, Result, codes};
use hashbrown::HashTable;

use super::key_field::KeyField;

/// The group of a row that has none yet.
const UNKNOWN: u32 = u32::MAX;

/// Batches that go without guesses after one in which few of them were right.
const BATCHES_WITHOUT_GUESSES: u32 = 31;

/// Keys by group, and the groups by key.
pub(super) struct PackedKeys<const W: usize> {
    pub(super) keys: Vec<[u64; W]>,
    table: HashTable<u32>,
    /// The group of the null key, if its words do not show it; they are those of a zero.
    pub(super) null_group: Option<u32>,
    /// The words of a batch; kept for their allocation.
    batch: Vec<[u64; W]>,
    /// Batches until guesses are tried again.
    without_guesses: u32,
}

impl<const W: usize> Default for PackedKeys<W> {
    fn default() -> Self {
        PackedKeys {
            keys: Vec::new(),
            table: HashTable::new(),
            null_group: None,
            batch: Vec::new(),
            without_guesses: 0,
        }
    }
}

fn hash_words<const W: usize>(words: &[u64; W]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let product = u128::from(hash ^ word) * 0xd6e8_feb8_6659_fd93;
        product as u64 ^ (product >> 64) as u64
    })
}

impl<const W: usize> PackedKeys<W> {
    /// Writes the group of each row to `into`.
    pub(super) fn find(
        &mut self,
        fields: &mut [KeyField],
        columns: &[ArrayRef],
        rows: usize,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        self.batch.clear();
        self.batch.resize(rows, [0; W]);
        for (field, column) in fields.iter_mut().zip(columns) {
            field.pack(column, &mut self.batch)?;
        }
        into.reserve(rows);
        // At most one field hides its null: a single key of 64 bits.
        let mut nulls = None;
        for (field, column) in fields.iter().zip(columns) {
            if field.hides_null() {
                nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
                break;
            }
        }
        let batch = std::mem::take(&mut self.batch);
        let outcome = self.find_words(&batch, nulls, into);
        self.batch = batch;
        outcome
    }

    /// Finds the group of each key. Data in the order of time repeats its keys in one order: the group after that of the
    /// preceding row is the best guess, and it needs no look into the table.
    fn find_words(
        &mut self,
        batch: &[[u64; W]],
        nulls: Option<&NullBuffer>,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        let guesses = self.without_guesses == 0;
        self.without_guesses = self.without_guesses.saturating_sub(1);
        let mut previous = 0;
        let mut right = 0;
        for (row, words) in batch.iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                let group = match self.null_group {
                    Some(group) => group,
                    None => self.insert(*words)?,
                };
                self.null_group = Some(group);
                into.push(group);
                continue;
            }
            if guesses {
                let mut candidates = [previous, previous + 1].into_iter();
                let guess = candidates.find(|group| self.keys.get(*group) == Some(words));
                // The words of the null group are those of a zero, which is another key.
                if let Some(group) = guess
                    && self.null_group != Some(group as u32)
                {
                    right += 1;
                    previous = group;
                    into.push(group as u32);
                    continue;
                }
            }
            let hash = hash_words(words);
            let keys = &self.keys;
            let is_same = |group: &u32| keys[*group as usize] == *words;
            let group = match self.table.find(hash, is_same) {
                Some(group) => *group,
                None => {
                    let group = self.insert(*words)?;
                    let keys = &self.keys;
                    self.table
                        .insert_unique(hash, group, |group| hash_words(&keys[*group as usize]));
                    group
                }
            };
            previous = group as usize;
            into.push(group);
        }
        if guesses && right < batch.len() / 4 {
            self.without_guesses = BATCHES_WITHOUT_GUESSES;
        }
        Ok(())
    }

    fn insert(&mut self, words: [u64; W]) -> Result<u32> {
        if self.keys.len() >= UNKNOWN as usize {
            return Err(Fault::new(codes::LIMIT, "more than 2^32 keys"));
        }
        let group = self.keys.len() as u32;
        self.keys.push(words);
        Ok(group)
    }

    /// Columns of some groups; `coded` are the coded values of the fields.
    pub(super) fn columns(
        &self,
        fields: &[KeyField],
        coded: &[Option<ArrayRef>],
        order: &[u32],
    ) -> Result<Vec<ArrayRef>> {
        let keys = order.iter().map(|group| self.keys[*group as usize]);
        let is_null = |row: usize| self.null_group == Some(order[row]);
        let mut columns = Vec::with_capacity(fields.len());
        for (field, coded) in fields.iter().zip(coded) {
            columns.push(field.unpack(keys.clone(), coded.as_ref(), is_null)?);
        }
        Ok(columns)
    }

    /// The groups in the order of their keys, nulls last; `None` if keys are too wide to sort as numbers.
    pub(super) fn sorted_order(&self, fields: &[KeyField]) -> Option<Vec<u32>> {
        let bits: u32 = fields.iter().map(KeyField::sort_bits).sum();
        match bits {
            0..=64 => Some(sorted(self.sort_keys(fields).map(|key| key as u64))),
            65..=128 => Some(sorted(self.sort_keys(fields))),
            _ => None,
        }
    }

    /// Keys as numbers that sort like them: the ranks of their fields side by side, each behind a bit for null.
    fn sort_keys(&self, fields: &[KeyField]) -> impl Iterator<Item = u128> {
        let ranks: Vec<_> = fields
            .iter()
            .map(|field| (field, field.sort_rank::<W>(), field.sort_bits()))
            .collect();
        self.keys.iter().enumerate().map(move |(group, words)| {
            let is_hidden = self.null_group == Some(group as u32);
            ranks.iter().fold(0, |key, (field, rank, bits)| {
                let is_null = is_hidden || field.is_null(words);
                key << bits
                    | u128::from(is_null) << (bits - 1)
                    | u128::from(if is_null { 0 } else { rank(words) })
            })
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let words = self.keys.capacity() + self.batch.capacity();
        words * size_of::<[u64; W]>() + self.table.allocation_size()
    }
}

/// Groups in the order of their keys.
fn sorted<K: Ord + Copy>(keys: impl Iterator<Item = K>) -> Vec<u32> {
    let mut order: Vec<(K, u32)> = keys.zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, group)| group).collect()
}
