//! Columns of strings with a dictionary. Where they come as dictionaries, each distinct string is
//! processed once per dictionary, and rows are keys only: the general writer hashes every row.
//! Other layouts give the same bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::datatypes::{DataType, Int32Type};
use hashbrown::HashMap;
use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::dictionary::{DICTIONARY_BYTES_MAX, DictionaryColumn, NULL};

/// Bytes of a bound in statistics at most.
const BOUND_BYTES_MAX: usize = 64;

/// Key of a string that is not processed yet.
const UNKNOWN: u32 = u32::MAX - 1;

/// The strings of a column as keys; `None` where they are no strings, or too many different ones.
pub(super) fn encode_strings<'a>(
    arrays: impl Iterator<Item = &'a ArrayRef>,
) -> Option<DictionaryColumn> {
    let mut numbered = StringDictionary::default();
    for array in arrays {
        if !numbered.add_array(array) {
            return None;
        }
    }
    let mut plain = Vec::with_capacity(numbered.bytes);
    for word in &numbered.words {
        plain.extend_from_slice(&(word.len() as u32).to_le_bytes());
        plain.extend_from_slice(word);
    }
    let statistics = numbered.statistics();
    let values = numbered.words.len() as u32;
    Some(DictionaryColumn {
        keys: numbered.rows,
        nulls: numbered.nulls,
        values,
        plain,
        statistics,
    })
}

/// The distinct strings of a column, in order of appearance, and the number of each row's.
#[derive(Default)]
struct StringDictionary<'a> {
    words: Vec<&'a [u8]>,
    numbers: HashMap<&'a [u8], u32>,
    rows: Vec<u32>,
    nulls: usize,
    bytes: usize,
    /// The dictionary of the last array, and the numbers of its words.
    last: Option<(&'a ArrayRef, Vec<u32>)>,
}

impl<'a> StringDictionary<'a> {
    /// Adds an array; returns false if it holds no strings, or too many different ones.
    fn add_array(&mut self, array: &'a ArrayRef) -> bool {
        match array.as_dictionary_opt::<Int32Type>() {
            Some(dictionary) => match string_accessor(dictionary.values()) {
                Some(word) => self.add_keys(dictionary.keys(), dictionary.values(), word),
                None => false,
            },
            None => match string_accessor(array) {
                Some(word) => (0..array.len()).all(|row| {
                    let number = if array.is_null(row) {
                        Some(NULL)
                    } else {
                        self.number_of(word(row))
                    };
                    number.map(|number| self.push_row(number)).is_some()
                }),
                None => false,
            },
        }
    }

    fn add_keys(
        &mut self,
        keys: &'a Int32Array,
        values: &'a ArrayRef,
        word: Box<dyn Fn(usize) -> &'a [u8] + 'a>,
    ) -> bool {
        let cached = self
            .last
            .take()
            .filter(|(last, _)| Arc::ptr_eq(last, values));
        let mut numbers =
            cached.map_or_else(|| vec![UNKNOWN; values.len()], |(_, numbers)| numbers);
        let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        self.rows.reserve(keys.len());
        for (row, key) in keys.values().iter().enumerate() {
            if is_null(row) {
                self.push_row(NULL);
                continue;
            }
            let word_number = &mut numbers[*key as usize];
            if *word_number == UNKNOWN {
                let number = if values.is_null(*key as usize) {
                    Some(NULL)
                } else {
                    self.number_of(word(*key as usize))
                };
                let Some(number) = number else { return false };
                *word_number = number;
            }
            self.push_row(*word_number);
        }
        self.last = Some((values, numbers));
        true
    }

    #[inline]
    fn push_row(&mut self, number: u32) {
        self.nulls += usize::from(number == NULL);
        self.rows.push(number);
    }

    /// The number of a word; `None` where the dictionary is full.
    fn number_of(&mut self, word: &'a [u8]) -> Option<u32> {
        let next = self.words.len() as u32;
        let number = *self.numbers.entry(word).or_insert(next);
        if number == next {
            self.words.push(word);
            self.bytes += 4 + word.len();
        }
        (self.bytes <= DICTIONARY_BYTES_MAX).then_some(number)
    }

    /// The least and the greatest string; of long ones, beginnings that bound them.
    fn statistics(&self) -> Statistics {
        let min = self.words.iter().min();
        let max = self.words.iter().max();
        let is_exact =
            |word: Option<&&[u8]>| word.is_some_and(|word| word.len() <= BOUND_BYTES_MAX);
        let below = min.map(|min| lower_bound(min).to_vec());
        let above = max.and_then(|max| upper_bound(max));
        let min = is_exact(min);
        let max = is_exact(max);
        let below = below.map(ByteArray::from);
        let above = above.map(ByteArray::from);
        let statistics = ValueStatistics::new(below, above, None, Some(self.nulls as u64), false);
        Statistics::ByteArray(statistics.with_min_is_exact(min).with_max_is_exact(max))
    }
}

/// Prefix of a string in whole characters, as a lower bound.
fn lower_bound(word: &[u8]) -> &[u8] {
    let mut end = BOUND_BYTES_MAX.min(word.len());
    while end < word.len() && end > 0 && word[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &word[..end]
}

/// A short string that is not less than a string, if there is one.
fn upper_bound(word: &[u8]) -> Option<Vec<u8>> {
    let short = lower_bound(word);
    if short.len() == word.len() {
        return Some(word.to_vec());
    }
    let text = std::str::from_utf8(short).ok()?;
    // The last character that has a next one of the same length.
    text.char_indices().rev().find_map(|(at, last)| {
        let next =
            char::from_u32(last as u32 + 1).filter(|next| next.len_utf8() == last.len_utf8())?;
        Some(format!("{}{next}", &text[..at]).into_bytes())
    })
}

/// The strings of an array.
fn string_accessor<'a>(array: &'a ArrayRef) -> Option<Box<dyn Fn(usize) -> &'a [u8] + 'a>> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Box::new(move |at| array.value(at).as_bytes())
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            Box::new(move |at| array.value(at).as_bytes())
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            Box::new(move |at| array.value(at).as_bytes())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, RecordBatch, StringArray};
    use arrow::datatypes::{Field, Schema};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::parquet::config::ParquetCompression;
    use crate::parquet::sink::write_row_group;

    /// Writes columns of dictionaries and reads them as strings.
    fn round_trip(batches: &[Vec<Option<String>>]) -> Vec<Option<String>> {
        let arrays: Vec<RecordBatch> = batches
            .iter()
            .map(|rows| {
                let array: DictionaryArray<Int32Type> = rows.iter().map(Option::as_deref).collect();
                RecordBatch::try_from_iter_with_nullable([(
                    "word",
                    Arc::new(array) as ArrayRef,
                    true,
                )])
                .unwrap()
            })
            .collect();
        let schema = Arc::new(Schema::new(vec![Field::new("word", DataType::Utf8, true)]));
        let bytes = write_row_group(&schema, &arrays, ParquetCompression::Snappy);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)
            .unwrap()
            .build()
            .unwrap();
        let mut read = Vec::new();
        for batch in reader {
            let column = batch.unwrap().column(0).clone();
            let column = arrow::compute::cast(&column, &DataType::Utf8).unwrap();
            let column: &StringArray = column.as_string();
            read.extend(column.iter().map(|word| word.map(str::to_owned)));
        }
        read
    }

    #[test]
    fn what_is_written_is_read() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for (words, runs, nulls) in [
            (1, 1, 0),
            (1, 1, 3),
            (2, 9, 0),
            (3, 40, 5),
            (300, 1, 0),
            (300, 12, 2),
            (70_000, 1, 9),
        ] {
            let mut batches = Vec::new();
            for rows in [0, 1, 7, 8192, 30_000] {
                let mut batch: Vec<Option<String>> = Vec::new();
                while batch.len() < rows {
                    let null = nulls > 0 && random(nulls) == 0;
                    let word = (!null).then(|| format!("word {}", random(words)));
                    let run = 1 + random(runs) as usize;
                    batch.extend(std::iter::repeat_n(word, run.min(rows - batch.len())));
                }
                batches.push(batch);
            }
            assert!(
                round_trip(&batches) == batches.concat(),
                "{words} words, runs of {runs}, nulls 1 in {nulls}"
            );
        }
        assert_eq!(round_trip(&[vec![None; 100]]), vec![None; 100]);
    }
}
