//! Keys of a fixed number of words.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use forebay_model::{Fault, Result, codes};

use super::key_field::{FieldCodes, KeyField, SortRank};
use crate::code_table::{CodeTable, LOOKUPS, NO_CODE, Slot};
use crate::segmented_list::SegmentedList;

/// Batches that go without guesses after one in which few of them were right.
const BATCHES_WITHOUT_GUESSES: u32 = 31;

/// Keys by group, and the groups by key.
pub(super) struct PackedKeys<const W: usize> {
    pub(super) keys: SegmentedList<[u64; W]>,
    table: CodeTable,
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
            keys: SegmentedList::default(),
            table: CodeTable::default(),
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

/// True if all words are equal, without a branch for each.
fn is_equal<const W: usize>(words: &[u64; W], others: &[u64; W]) -> bool {
    let pairs = words.iter().zip(others);
    pairs.fold(0_u64, |bits, (word, other)| bits | (word ^ other)) == 0
}

/// One field of keys and the function that ranks them by it.
struct RankedField<'f, const W: usize> {
    field: &'f KeyField,
    rank: SortRank<'f, W>,
    bits: u32,
}

/// Fields side by side that sort as one number.
struct SortPart<'f, const W: usize> {
    fields: Vec<RankedField<'f, W>>,
    bits: u32,
}

impl<'f, const W: usize> SortPart<'f, W> {
    /// All fields in as few parts as keep their order.
    fn all_of(fields: &'f [KeyField]) -> Vec<SortPart<'f, W>> {
        let mut parts = Vec::new();
        let mut part: SortPart<'f, W> = SortPart::default();
        for field in fields {
            let bits = field.sort_bits();
            if part.bits + bits > u128::BITS {
                parts.push(std::mem::take(&mut part));
            }
            part.bits += bits;
            part.fields.push(RankedField {
                field,
                rank: field.sort_rank::<W>(),
                bits,
            });
        }
        parts.push(part);
        parts
    }

    /// A number that sorts like the part of a key: the ranks of its fields side by side, each behind a bit for null.
    fn number(&self, words: &[u64; W], is_hidden_null: bool) -> u128 {
        self.fields.iter().fold(0, |number, ranked| {
            let is_null = is_hidden_null || ranked.field.is_null(words);
            let rank = if is_null { 0 } else { (ranked.rank)(words) };
            number << ranked.bits | u128::from(is_null) << (ranked.bits - 1) | u128::from(rank)
        })
    }
}

impl<const W: usize> Default for SortPart<'_, W> {
    fn default() -> Self {
        SortPart {
            fields: Vec::new(),
            bits: 0,
        }
    }
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
        let outcome = self.find_words(&batch, nulls, hash_words, into);
        self.batch = batch;
        outcome
    }

    /// Writes the groups that some groups of another table have here to `into`; `codes` are those here of its coded values.
    pub(super) fn find_groups_of(
        &mut self,
        other: &PackedKeys<W>,
        codes: &[FieldCodes],
        order: &[u32],
        into: &mut Vec<u32>,
    ) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        for group in order {
            let mut words = other.keys[*group as usize];
            for field_codes in codes {
                field_codes.replace(&mut words);
            }
            batch.push(words);
        }
        let nulls = other.null_group.map(|null_group| {
            let valid = BooleanBuffer::collect_bool(order.len(), |row| order[row] != null_group);
            NullBuffer::new(valid)
        });
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        into.reserve(order.len());
        let outcome = self.find_words(&batch, nulls.as_ref(), hash_words, into);
        self.batch = batch;
        outcome
    }

    /// Finds the group of each key. Data in the order of time repeats its keys in one order: the group after that of the
    /// preceding row is the best guess, and it needs no look into the table.
    fn find_words(
        &mut self,
        batch: &[[u64; W]],
        nulls: Option<&NullBuffer>,
        hash_of: impl Fn(&[u64; W]) -> u64,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        let guesses = self.without_guesses == 0;
        self.without_guesses = self.without_guesses.saturating_sub(1);
        if !guesses && nulls.is_none() {
            return self.look_up(batch, hash_of, into);
        }
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
                let guess = candidates.find(|group| {
                    let key = self.keys.get(*group);
                    key.is_some_and(|key| is_equal(key, words))
                });
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
            let group = self.find_or_insert(words, hash_of(words))?;
            previous = group as usize;
            into.push(group);
        }
        if guesses && right < batch.len() / 4 {
            self.without_guesses = BATCHES_WITHOUT_GUESSES;
        }
        Ok(())
    }

    /// Finds the group of each key, many at a time: the table is read for all of them before a key is compared, so that
    /// they wait for memory together.
    fn look_up(
        &mut self,
        batch: &[[u64; W]],
        hash_of: impl Fn(&[u64; W]) -> u64,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        let mut hashes = [0; LOOKUPS];
        let mut candidates = [NO_CODE; LOOKUPS];
        for block in batch.chunks(LOOKUPS) {
            for (hash, words) in hashes.iter_mut().zip(block) {
                *hash = hash_of(words);
            }
            self.table
                .candidates(&hashes[..block.len()], &mut candidates);
            for ((hash, candidate), words) in hashes.iter().zip(&candidates).zip(block) {
                let is_found =
                    *candidate != NO_CODE && is_equal(&self.keys[*candidate as usize], words);
                into.push(if is_found {
                    *candidate
                } else {
                    self.find_or_insert(words, *hash)?
                });
            }
        }
        Ok(())
    }

    /// The group of a key that is not null, which is kept if it is new.
    fn find_or_insert(&mut self, words: &[u64; W], hash: u64) -> Result<u32> {
        self.table.reserve_one();
        let keys = &self.keys;
        let is_same = |group: u32| is_equal(&keys[group as usize], words);
        match self.table.find(hash, is_same) {
            Slot::Code(group) => Ok(group),
            Slot::Free(free) => {
                let group = self.insert(*words)?;
                self.table.insert(free, hash, group);
                Ok(group)
            }
        }
    }

    fn insert(&mut self, words: [u64; W]) -> Result<u32> {
        let group = self.keys.len();
        if group >= NO_CODE as usize {
            return Err(Fault::new(codes::LIMIT, "more than 2^32 keys"));
        }
        self.keys.push(words);
        Ok(group as u32)
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

    /// The groups in the order of their keys, nulls last.
    pub(super) fn sorted_order(&self, fields: &[KeyField]) -> Vec<u32> {
        let parts = SortPart::<W>::all_of(fields);
        let Some((first, others)) = parts.split_first() else {
            return Vec::new();
        };
        let groups = 0..self.keys.len() as u32;
        if others.is_empty() && first.bits <= u64::BITS {
            return sorted(groups.map(|group| self.sort_number(first, group) as u64));
        }
        let numbers = groups.map(|group| self.sort_number(first, group));
        if others.is_empty() {
            return sorted(numbers);
        }
        // Keys that are wider than a number are compared part by part.
        let mut order: Vec<(u128, u32)> = numbers.zip(0..).collect();
        order.sort_unstable_by(|(number, group), (other_number, other_group)| {
            number
                .cmp(other_number)
                .then_with(|| self.compare_parts(others, *group, *other_group))
        });
        order.into_iter().map(|(_, group)| group).collect()
    }

    fn sort_number(&self, part: &SortPart<'_, W>, group: u32) -> u128 {
        let is_hidden_null = self.null_group == Some(group);
        part.number(&self.keys[group as usize], is_hidden_null)
    }

    fn compare_parts(&self, parts: &[SortPart<'_, W>], group: u32, other_group: u32) -> Ordering {
        for part in parts {
            let number = self.sort_number(part, group);
            let order = number.cmp(&self.sort_number(part, other_group));
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// Bytes of memory of the keys, which stay where they are while others are added.
    pub(super) fn segment_bytes(&self) -> usize {
        self.keys.bytes()
    }

    pub(super) fn bytes(&self) -> usize {
        let batch = self.batch.capacity() * size_of::<[u64; W]>();
        self.keys.bytes() + batch + self.table.bytes()
    }
}

/// Groups in the order of their keys.
fn sorted<K: Ord + Copy>(keys: impl Iterator<Item = K>) -> Vec<u32> {
    let mut order: Vec<(K, u32)> = keys.zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use arrow::datatypes::DataType;
    use forebay_model::GroupKey;
    use proptest::prelude::*;

    use super::*;

    /// Batches in which every eighth key is another than one of the first few.
    fn batches() -> impl Strategy<Value = Vec<Vec<[u64; 6]>>> {
        let key = (0..8u64, 0..40u64).prop_map(|(kind, number)| {
            let number = if kind == 0 { number } else { number % 5 };
            [number % 3, 0, number, 7, number << 60, number / 2]
        });
        prop::collection::vec(prop::collection::vec(key, 0..300), 0..5)
    }

    proptest! {
        /// Groups are numbered in the order in which keys come, with guesses and without, whatever the hashes.
        #[test]
        fn groups_number_keys_in_their_order(
            batches in batches(),
            hash_bits in prop::sample::select(vec![0_u64, 5 << 61, 0xffff, u64::MAX]),
            without_guesses in prop::sample::select(vec![0_u32, 1, 100]),
        ) {
            let mut keys = PackedKeys::<6> {
                without_guesses,
                ..PackedKeys::default()
            };
            let mut expected_groups: HashMap<[u64; 6], u32> = HashMap::new();
            for batch in &batches {
                let mut expected = Vec::new();
                for words in batch {
                    let group = expected_groups.len() as u32;
                    expected.push(*expected_groups.entry(*words).or_insert(group));
                }
                let mut groups = Vec::new();
                let hash_of = |words: &[u64; 6]| hash_words(words) & hash_bits;
                keys.find_words(batch, None, hash_of, &mut groups).unwrap();
                prop_assert_eq!(groups, expected);
            }
            prop_assert_eq!(keys.keys.len(), expected_groups.len());
        }

        /// Keys wider than one number sort by their fields in turn.
        #[test]
        fn wide_keys_sort_by_their_fields(
            rows in prop::collection::vec(prop::array::uniform6(0..3u64), 0..80),
        ) {
            let key = GroupKey {
                data_type: DataType::UInt64,
                bucket: None,
            };
            let group_keys: Vec<GroupKey> = std::iter::repeat_n(key, 6).collect();
            let (fields, _) = KeyField::layout(&group_keys).unwrap();
            let mut keys = PackedKeys::<7>::default();
            let mut expected = BTreeSet::new();
            let mut batch = Vec::new();
            for row in rows {
                let [a, b, c, d, e, f] = row;
                batch.push([a, b, c, d, e, f, 0]);
                expected.insert(row);
            }
            keys.find_words(&batch, None, hash_words, &mut Vec::new()).unwrap();
            let mut sorted = Vec::new();
            for group in keys.sorted_order(&fields) {
                let [a, b, c, d, e, f, _] = keys.keys[group as usize];
                sorted.push([a, b, c, d, e, f]);
            }
            let expected: Vec<[u64; 6]> = expected.into_iter().collect();
            prop_assert_eq!(sorted, expected);
        }
    }
}
