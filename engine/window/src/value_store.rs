//! Values of any type as 64-bit words: a word is the hash of a value, and each value is stored once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    AnyDictionaryArray, Array, ArrayRef, AsArray, DictionaryArray, Int32Array, UInt64Array,
    new_null_array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Int32Type};
use arrow::row::{RowConverter, SortField};
use forebay_model::{Fault, Result, StateDecoder, StateEncoder, codes, decode_rows};
use xxhash_rust::xxh3::xxh3_64;

use crate::special_words::NO_BITS;

/// Set in each word. Neither the first nor the last byte of a word is then zero, so that states hold all of its bytes one
/// after the other, and no word is that of a missing value.
const WORD_BITS: u64 = 0x0100_0000_0000_0001;

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// Bytes that an entry takes besides its value.
const ENTRY_BYTES: usize = 48;

/// Bytes of values up to which values that no series holds any more are kept.
const UNUSED_BYTES_MAX: usize = 16 << 20;

/// Bytes of a batch of texts beyond which the texts come in a dictionary: many rows may have the same long text.
const PLAIN_BYTES_MAX: usize = 16 << 20;

/// Most bytes of one value in a state.
pub(crate) const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// Values by their words.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueStore {
    values: HashMap<u64, Box<[u8]>>,
    bytes: usize,
    /// Bytes of the longest value.
    longest: usize,
    /// Bytes that values may take before those that no series holds are dropped.
    limit: usize,
}

fn converter(data_type: &DataType) -> Result<RowConverter> {
    Ok(RowConverter::new(vec![SortField::new(data_type.clone())])?)
}

impl ValueStore {
    /// Appends the words of a column's values, and stores the values.
    pub fn words(
        &mut self,
        column: &ArrayRef,
        data_type: &DataType,
        words: &mut Vec<u64>,
    ) -> Result<()> {
        if let Some(keyed) = column.as_any_dictionary_opt() {
            return self.words_of_dictionary(keyed, data_type, words);
        }
        let plain = if column.data_type() == data_type {
            column.clone()
        } else {
            cast(column, data_type)?
        };
        let nulls = plain.logical_nulls();
        let rows = converter(data_type)?.convert_columns(&[plain])?;
        for (row, value) in rows.iter().enumerate() {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            let word = if is_null {
                NO_BITS
            } else {
                self.insert(value.as_ref())?
            };
            words.push(word);
        }
        Ok(())
    }

    /// The words of a dictionary's rows. Only the values that rows have are stored, each once: a text may be long and
    /// stand in every row.
    fn words_of_dictionary(
        &mut self,
        keyed: &dyn AnyDictionaryArray,
        data_type: &DataType,
        words: &mut Vec<u64>,
    ) -> Result<()> {
        if keyed.values().is_empty() {
            // All rows are null.
            words.resize(words.len() + keyed.len(), NO_BITS);
            return Ok(());
        }
        let keys = keyed.normalized_keys();
        let nulls = keyed.logical_nulls();
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let mut used: Vec<usize> = (0..keys.len()).filter(|row| !is_null(*row)).collect();
        for row in &mut used {
            *row = keys[*row];
        }
        used.sort_unstable();
        used.dedup();
        let positions: UInt64Array = used.iter().map(|key| Some(*key as u64)).collect();
        let values = take(keyed.values(), &positions, None)?;
        let mut words_of_values = Vec::with_capacity(used.len());
        self.words(&values, data_type, &mut words_of_values)?;
        for (row, key) in keys.iter().enumerate() {
            let position = if is_null(row) {
                None
            } else {
                used.binary_search(key).ok()
            };
            let word = position.map_or(NO_BITS, |position| words_of_values[position]);
            words.push(word);
        }
        Ok(())
    }

    /// Stores a value; returns its word.
    pub fn insert(&mut self, value: &[u8]) -> Result<u64> {
        let word = xxh3_64(value) | WORD_BITS;
        match self.values.get(&word) {
            Some(stored) if **stored == *value => {}
            Some(_) => {
                let message = "two values of a column over series have the same hash";
                return Err(Fault::new(codes::LIMIT, message));
            }
            None => {
                self.bytes += value.len() + ENTRY_BYTES;
                self.longest = self.longest.max(value.len());
                self.values.insert(word, value.into());
            }
        }
        Ok(word)
    }

    /// The values of some words as a column. Words of missing values are null.
    pub fn column(&self, words: &[u64], data_type: &DataType) -> Result<ArrayRef> {
        if *data_type == DataType::Utf8 && self.are_long(words) {
            return self.dictionary(words);
        }
        self.plain_column(words, data_type)
    }

    /// True if the values of some words are too many bytes for a plain column.
    fn are_long(&self, words: &[u64]) -> bool {
        // The longest value tells of most columns that they are short, without a search for each word.
        if words.len().saturating_mul(self.longest) <= PLAIN_BYTES_MAX {
            return false;
        }
        let values = words.iter().filter_map(|word| self.values.get(word));
        let bytes: usize = values.map(|value| value.len()).sum();
        bytes > PLAIN_BYTES_MAX
    }

    /// The texts of some words as a dictionary, which holds each text once.
    fn dictionary(&self, words: &[u64]) -> Result<ArrayRef> {
        let mut used: Vec<u64> = words.to_vec();
        used.sort_unstable();
        used.dedup();
        used.retain(|word| self.values.contains_key(word));
        let texts = self.plain_column(&used, &DataType::Utf8)?;
        let mut keys = Vec::with_capacity(words.len());
        for word in words {
            let position = used.binary_search(word).ok();
            keys.push(position.and_then(|position| i32::try_from(position).ok()));
        }
        let keyed = DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), texts)?;
        Ok(Arc::new(keyed))
    }

    fn plain_column(&self, words: &[u64], data_type: &DataType) -> Result<ArrayRef> {
        let converter = converter(data_type)?;
        let missing = converter.convert_columns(&[new_null_array(data_type, 1)])?;
        let missing = missing.row(0).data();
        let rows = words.iter().map(|word| match self.values.get(word) {
            Some(value) => value.as_ref(),
            None => missing,
        });
        let columns = decode_rows(&converter, rows)?;
        let mut columns = columns.into_iter();
        columns
            .next()
            .ok_or_else(|| Fault::internal("a column was lost"))
    }

    /// True if values that no series holds any more should be dropped.
    pub fn is_full(&self) -> bool {
        self.bytes > self.limit.max(UNUSED_BYTES_MAX)
    }

    /// Drops the values without a mark.
    pub fn retain(&mut self, marks: &HashSet<u64>) {
        self.values.retain(|word, _| marks.contains(word));
        self.values.shrink_to_fit();
        let value_bytes = self.values.values().map(|value| value.len() + ENTRY_BYTES);
        self.bytes = value_bytes.sum();
        let lengths = self.values.values().map(|value| value.len());
        self.longest = lengths.max().unwrap_or(0);
        self.limit = self.bytes * 2;
    }

    /// Marks the values whose words are among the bytes of a series.
    pub fn mark(&self, series: &[u8], marks: &mut HashSet<u64>) {
        if self.values.is_empty() {
            return;
        }
        for bytes in series.windows(WORD_BYTES) {
            let word = bytes
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
            if word & WORD_BITS == WORD_BITS && self.values.contains_key(&word) {
                marks.insert(word);
            }
        }
    }

    /// Encodes the values with a mark.
    pub fn encode(&self, marks: HashSet<u64>, out: &mut StateEncoder<'_>) -> Result<()> {
        let mut marks: Vec<u64> = marks.into_iter().collect();
        marks.sort_unstable();
        out.varint(marks.len() as u64)?;
        for word in marks {
            out.bytes(self.values.get(&word).map_or(&[], |value| &**value))?;
        }
        Ok(())
    }

    /// Decodes the values of a state.
    pub fn decode(input: &mut StateDecoder<'_>) -> Result<ValueStore> {
        let mut store = ValueStore::default();
        let count = input.length(u32::MAX as usize)?;
        let mut value = Vec::new();
        for _ in 0..count {
            input.bytes_into(&mut value, VALUE_BYTES_MAX)?;
            store.insert(&value)?;
        }
        Ok(store)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, ListArray, StringArray};
    use arrow::datatypes::UInt8Type;

    use super::*;

    #[test]
    fn values_of_any_type_come_back() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("")]));
        let words: DictionaryArray<UInt8Type> = ["x", "y", "x"].into_iter().collect();
        let decimals = Decimal128Array::from(vec![Some(i128::MIN / 2), None, Some(-1)]);
        let decimals = decimals.with_precision_and_scale(38, 9).unwrap();
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let columns: [(ArrayRef, DataType); 4] = [
            (texts, DataType::Utf8),
            (Arc::new(words), DataType::Utf8),
            (Arc::new(decimals), DataType::Decimal128(38, 9)),
            (Arc::new(lists.clone()), lists.data_type().clone()),
        ];
        let mut store = ValueStore::default();
        for (column, data_type) in columns {
            let mut words = Vec::new();
            store.words(&column, &data_type, &mut words).unwrap();
            let expected = cast(&column, &data_type).unwrap();
            assert_eq!(&store.column(&words, &data_type).unwrap(), &expected);
        }
    }

    #[test]
    fn a_long_text_of_many_rows_is_held_once() {
        let long = "x".repeat(1 << 20);
        let mut texts = vec![Some(long.as_str()); 100];
        texts.extend([None, Some("y"), None, Some("")]);
        let column: DictionaryArray<Int32Type> = texts.iter().copied().collect();
        let column: ArrayRef = Arc::new(column);
        let mut store = ValueStore::default();
        let mut words = Vec::new();
        store.words(&column, &DataType::Utf8, &mut words).unwrap();
        assert!(store.bytes() < 3 << 20, "{} bytes", store.bytes());
        let stored_column = store.column(&words, &DataType::Utf8).unwrap();
        let keyed = stored_column.as_dictionary::<Int32Type>();
        assert_eq!(keyed.values().len(), 3);
        let stored_texts = keyed.downcast_dict::<StringArray>().unwrap();
        assert!(stored_texts.into_iter().eq(texts));
        // Short texts stay plain beside a long one, and once no row has it any more.
        let column: ArrayRef = Arc::new(StringArray::from(vec!["y"; 100]));
        let mut short_words = Vec::new();
        store
            .words(&column, &DataType::Utf8, &mut short_words)
            .unwrap();
        let short_column = store.column(&short_words, &DataType::Utf8).unwrap();
        assert_eq!(&short_column, &column);
        store.retain(&short_words.iter().copied().collect());
        assert!(store.longest < 100, "{} bytes", store.longest);
        let short_column = store.column(&short_words, &DataType::Utf8).unwrap();
        assert_eq!(&short_column, &column);
    }

    /// States hold values in this form. Where it changes, so does the version of states.
    #[test]
    fn values_are_stored_in_a_form_that_stays() {
        let mut store = ValueStore::default();
        let column: ArrayRef = Arc::new(StringArray::from(vec!["ab"]));
        store
            .words(&column, &DataType::Utf8, &mut Vec::new())
            .unwrap();
        let stored: Vec<&[u8]> = store.values.values().map(|value| &**value).collect();
        assert_eq!(stored, [[2, b'a', b'b', 0, 0, 0, 0, 0, 0, 2]]);
    }
}
