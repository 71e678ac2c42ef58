//! Slots of the rows of a batch: keys that recur are looked up once.

use forebay_model::Result;

use crate::batch_codes::CodedColumn;
use crate::group_keys::KeyColumn;
use crate::spill_map::SpillMap;
use crate::spill_runs::{SpillValue, check_key};

/// Lines of the cache from rows to slots; a batch rarely has more recurring keys.
const CACHE_LINES: usize = 4096;

/// Most codes of keys, for each row of a batch: a table of them takes 16 bytes a row.
const CODES_PER_ROW_MAX: usize = 4;

/// The slot of a code that has not been looked up.
const NO_SLOT: u32 = u32::MAX;

/// Slots that were looked up for a batch.
enum BatchSlots {
    /// The code of each row's key, and the slot of each code.
    Coded { codes: Vec<u32>, slots: Vec<u32> },
    /// A direct-mapped cache from the hash of a key to a row and its slot.
    Hashed(Vec<Option<(u32, u32)>>),
}

/// The slots of a batch's rows in a map. Keys of dictionaries and of integers of a small range are found by their codes,
/// others in a cache.
pub(crate) struct SlotCache<'a> {
    columns: &'a [KeyColumn],
    slots: BatchSlots,
    /// Spills of the map when the slots were found.
    spills: u64,
    /// The last encoded key.
    key: Vec<u8>,
}

/// The code of each row's key, and the number of codes; `None` if codes need a search, or if they are many more than rows.
fn key_codes(columns: &[KeyColumn], rows: usize) -> Option<(Vec<u32>, usize)> {
    let mut coded = Vec::with_capacity(columns.len());
    let mut count = 1usize;
    for column in columns {
        let column = CodedColumn::of(column)?;
        // One more code stands for null.
        count = count.checked_mul(column.values() + 1)?;
        coded.push(column);
    }
    if count > rows.saturating_mul(CODES_PER_ROW_MAX) || u32::try_from(count).is_err() {
        return None;
    }
    let mut codes = vec![0u32; rows];
    for column in coded {
        let width = column.values() as u32 + 1;
        let values = column.codes(column.nulls());
        for (code, value) in codes.iter_mut().zip(values) {
            *code = *code * width + value;
        }
    }
    Some((codes, count))
}

impl<'a> SlotCache<'a> {
    /// A cache for a batch of so many rows with these keys.
    pub(crate) fn of(columns: &'a [KeyColumn], rows: usize) -> Self {
        let slots = match key_codes(columns, rows) {
            Some((codes, count)) => BatchSlots::Coded {
                codes,
                slots: vec![NO_SLOT; count],
            },
            None => BatchSlots::Hashed(vec![None; CACHE_LINES]),
        };
        SlotCache {
            columns,
            slots,
            spills: 0,
            key: Vec::new(),
        }
    }

    /// The slot of a row's key, inserted if absent; valid until the map spills.
    pub(crate) fn slot<V: SpillValue>(
        &mut self,
        row: usize,
        map: &mut SpillMap<V>,
    ) -> Result<usize> {
        // A spill empties the map: all slots of the cache are void.
        if self.spills != map.spills() {
            self.clear();
            self.spills = map.spills();
        }
        let line = self.line(row);
        if let Some(slot) = self.cached(line, row) {
            map.follow(slot);
            return Ok(slot);
        }
        self.key.clear();
        for column in self.columns {
            column.write(row, &mut self.key);
        }
        check_key(self.key.len())?;
        let slot = map.slot(&self.key)?;
        // Looking the slot up may itself have spilled.
        if self.spills == map.spills() {
            match &mut self.slots {
                BatchSlots::Coded { slots, .. } => slots[line] = slot as u32,
                BatchSlots::Hashed(lines) => lines[line] = Some((row as u32, slot as u32)),
            }
        }
        Ok(slot)
    }

    fn clear(&mut self) {
        match &mut self.slots {
            BatchSlots::Coded { slots, .. } => slots.fill(NO_SLOT),
            BatchSlots::Hashed(lines) => lines.fill(None),
        }
    }

    /// The line in which a row's slot is kept.
    fn line(&self, row: usize) -> usize {
        if let BatchSlots::Coded { codes, .. } = &self.slots {
            return codes[row] as usize;
        }
        let mut hash = 0u64;
        for column in self.columns {
            let mixed = hash.rotate_left(29) ^ column.hash(row);
            hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        (hash >> 52) as usize % CACHE_LINES
    }

    /// The slot in a line, if it is that of the row's key.
    fn cached(&self, line: usize, row: usize) -> Option<usize> {
        match &self.slots {
            BatchSlots::Coded { slots, .. } => {
                let slot = slots[line];
                (slot != NO_SLOT).then_some(slot as usize)
            }
            BatchSlots::Hashed(lines) => {
                let (cached_row, slot) = lines[line]?;
                self.columns
                    .iter()
                    .all(|column| column.rows_equal(cached_row as usize, row))
                    .then_some(slot as usize)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray};
    use arrow::datatypes::Int32Type;
    use forebay_model::{MemoryScratch, ScratchSpace, logical_type};
    use proptest::prelude::*;

    use super::*;
    use crate::spill_runs::KeyOrder;

    type Row = (Option<i64>, Option<u8>);

    fn key_columns(columns: &[ArrayRef]) -> Vec<KeyColumn> {
        columns
            .iter()
            .map(|column| KeyColumn::of(column, &logical_type(column.data_type())).unwrap())
            .collect()
    }

    /// A number and a text for each row, the text plain or in a dictionary.
    fn columns_of(rows: &[Row], is_dictionary: bool) -> Vec<KeyColumn> {
        let numbers: Int64Array = rows.iter().map(|(number, _)| *number).collect();
        let texts: Vec<Option<String>> = rows
            .iter()
            .map(|(_, text)| text.map(|text| format!("item {text}")))
            .collect();
        let texts = texts.iter().map(Option::as_deref);
        let texts: ArrayRef = if is_dictionary {
            Arc::new(texts.collect::<DictionaryArray<Int32Type>>())
        } else {
            Arc::new(texts.collect::<StringArray>())
        };
        key_columns(&[Arc::new(numbers), texts])
    }

    fn counted(map: &mut SpillMap<u64>) -> BTreeMap<Vec<u8>, u64> {
        let mut counts = BTreeMap::new();
        map.for_each(|key, count| {
            assert!(counts.insert(key.to_vec(), *count).is_none());
            Ok(())
        })
        .unwrap();
        counts
    }

    #[test]
    fn keys_of_dictionaries_and_small_numbers_have_codes() {
        let rows: Vec<Row> = (0..60)
            .map(|row| (Some(row % 4 - 2), Some(row as u8 % 3)))
            .collect();
        let (codes, count) = key_codes(&columns_of(&rows, true), rows.len()).unwrap();
        // Four numbers and three texts, each with one more for null.
        assert_eq!(count, 20);
        for (a, b) in (0..60usize).flat_map(|a| (0..60usize).map(move |b| (a, b))) {
            assert_eq!(codes[a] == codes[b], rows[a] == rows[b], "rows {a} and {b}");
        }
        assert!(key_codes(&columns_of(&rows, false), rows.len()).is_none());
        let wide: Vec<Row> = (0..60).map(|row| (Some(row), Some(row as u8))).collect();
        assert!(key_codes(&columns_of(&wide, true), wide.len()).is_none());
        // Without keys all rows are one group.
        assert_eq!(key_codes(&[], 3), Some((vec![0; 3], 1)));
    }

    #[test]
    fn values_that_a_dictionary_holds_twice_are_one_key() {
        let values = Arc::new(StringArray::from(vec![Some("a"), None, Some("a")]));
        let keys = Int32Array::from(vec![Some(0), Some(1), Some(2), None]);
        let column: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
        let columns = key_columns(&[column]);
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
        let mut map = SpillMap::<u64>::new(&scratch, KeyOrder::Bytes);
        let mut cache = SlotCache::of(&columns, 4);
        assert!(matches!(cache.slots, BatchSlots::Coded { .. }));
        for row in 0..4 {
            let slot = cache.slot(row, &mut map).unwrap();
            map.update_slot(slot, |count| *count += 1);
        }
        let counts: Vec<u64> = counted(&mut map).into_values().collect();
        assert_eq!(counts, [2, 2]);
    }

    proptest! {
        /// Slots are those of a lookup of each row's key, for any order of keys, batches and spills.
        #[test]
        fn slots_are_those_of_keys(
            batches in prop::collection::vec(
                prop::collection::vec(
                    (prop::option::of(-3..9i64), prop::option::of(0..5u8)),
                    0..80,
                ),
                0..6,
            ),
            repeats in 1..4usize,
            is_dictionary in any::<bool>(),
            budget_bytes in prop::sample::select(vec![500usize, 2000, 64 << 20]),
        ) {
            let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes });
            let mut map = SpillMap::<u64>::new(&scratch, KeyOrder::Bytes);
            let mut expected = BTreeMap::new();
            // Data in the order of time repeats its keys in one order.
            for rows in std::iter::repeat_n(&batches, repeats).flatten() {
                let columns = columns_of(rows, is_dictionary);
                let mut cache = SlotCache::of(&columns, rows.len());
                for row in 0..rows.len() {
                    let slot = cache.slot(row, &mut map).unwrap();
                    map.update_slot(slot, |count| *count += 1);
                    let mut key = Vec::new();
                    columns.iter().for_each(|column| column.write(row, &mut key));
                    *expected.entry(key).or_insert(0u64) += 1;
                }
                map.spill_if_large().unwrap();
            }
            prop_assert_eq!(counted(&mut map), expected);
        }
    }
}
