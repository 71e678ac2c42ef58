//! Columns of strings with a dictionary. Where they come as dictionaries, each distinct string is
//! looked at once per dictionary, and rows are keys only: the general writer hashes every row. Other
//! layouts give the same bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::datatypes::{DataType, Int32Type};
use bytes::Bytes;
use hashbrown::HashMap;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// Bytes of a dictionary page at most, as in the general writer, which falls back to plain pages.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// Rows of a page, as in the general writer.
const PAGE_ROWS: usize = 20_000;

/// Bytes of a bound in statistics at most.
const BOUND_BYTES_MAX: usize = 64;

/// No word has this number; null has.
const NULL: u32 = u32::MAX;

/// A key whose word was not looked at yet.
const UNKNOWN: u32 = u32::MAX - 1;

/// A column of one row group.
pub(super) struct Words {
    bytes: Bytes,
    closed: ColumnCloseResult,
}

impl Words {
    /// Encodes the arrays of a column; `None` where they are no strings, or too many different ones
    /// for a dictionary.
    pub fn encode<'a>(
        arrays: impl Iterator<Item = &'a ArrayRef>,
        column: ColumnDescPtr,
        compression: Compression,
    ) -> Result<Option<Words>> {
        if !matches!(compression, Compression::SNAPPY | Compression::UNCOMPRESSED) || column.max_rep_level() > 0 {
            return Ok(None);
        }
        let mut numbered = Numbered::default();
        for array in arrays {
            if !numbered.add(array) {
                return Ok(None);
            }
        }
        pages(&numbered, column, compression).map(Some)
    }

    /// Bytes of its pages.
    pub fn bytes(&self) -> u64 {
        self.closed.bytes_written
    }

    /// The pages, and what is told of them.
    pub fn parts(self) -> (Bytes, ColumnCloseResult) {
        (self.bytes, self.closed)
    }
}

/// The distinct strings of a column, in order of appearance, and the number of each row's.
#[derive(Default)]
struct Numbered<'a> {
    words: Vec<&'a [u8]>,
    numbers: HashMap<&'a [u8], u32>,
    rows: Vec<u32>,
    nulls: usize,
    bytes: usize,
    /// The dictionary of the last array, and the numbers of its words.
    last: Option<(&'a ArrayRef, Vec<u32>)>,
}

impl<'a> Numbered<'a> {
    /// Takes an array in; false where it holds no strings, or too many different ones.
    fn add(&mut self, array: &'a ArrayRef) -> bool {
        match array.as_dictionary_opt::<Int32Type>() {
            Some(dictionary) => match words_of(dictionary.values()) {
                Some(word) => self.add_keys(dictionary.keys(), dictionary.values(), word),
                None => false,
            },
            None => match words_of(array) {
                Some(word) => (0..array.len()).all(|row| {
                    let number = if array.is_null(row) { Some(NULL) } else { self.number(word(row)) };
                    number.map(|number| self.push(number)).is_some()
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
        let known = self.last.take().filter(|(last, _)| Arc::ptr_eq(last, values));
        let mut numbers = known.map_or_else(|| vec![UNKNOWN; values.len()], |(_, numbers)| numbers);
        let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        self.rows.reserve(keys.len());
        for (row, key) in keys.values().iter().enumerate() {
            if is_null(row) {
                self.push(NULL);
                continue;
            }
            let known = &mut numbers[*key as usize];
            if *known == UNKNOWN {
                let number = if values.is_null(*key as usize) { Some(NULL) } else { self.number(word(*key as usize)) };
                let Some(number) = number else { return false };
                *known = number;
            }
            self.push(*known);
        }
        self.last = Some((values, numbers));
        true
    }

    #[inline]
    fn push(&mut self, number: u32) {
        self.nulls += usize::from(number == NULL);
        self.rows.push(number);
    }

    /// The number of a word; `None` where the dictionary is full.
    fn number(&mut self, word: &'a [u8]) -> Option<u32> {
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
        let (min, max) = (self.words.iter().min(), self.words.iter().max());
        let is_exact = |word: Option<&&[u8]>| word.is_some_and(|word| word.len() <= BOUND_BYTES_MAX);
        let (below, above) = (min.map(|min| beginning(min).to_vec()), max.and_then(|max| not_less(max)));
        let (min, max) = (is_exact(min), is_exact(max));
        let (below, above) = (below.map(ByteArray::from), above.map(ByteArray::from));
        let statistics = ValueStatistics::new(below, above, None, Some(self.nulls as u64), false);
        Statistics::ByteArray(statistics.with_min_is_exact(min).with_max_is_exact(max))
    }
}

/// What a string begins with, in whole characters.
fn beginning(word: &[u8]) -> &[u8] {
    let mut end = BOUND_BYTES_MAX.min(word.len());
    while end < word.len() && end > 0 && word[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &word[..end]
}

/// A short string that is not less than a string, if there is one.
fn not_less(word: &[u8]) -> Option<Vec<u8>> {
    let short = beginning(word);
    if short.len() == word.len() {
        return Some(word.to_vec());
    }
    let text = std::str::from_utf8(short).ok()?;
    // The last character that has a next one of the same length.
    text.char_indices().rev().find_map(|(at, last)| {
        let next = char::from_u32(last as u32 + 1).filter(|next| next.len_utf8() == last.len_utf8())?;
        Some(format!("{}{next}", &text[..at]).into_bytes())
    })
}

/// The strings of an array.
fn words_of<'a>(array: &'a ArrayRef) -> Option<Box<dyn Fn(usize) -> &'a [u8] + 'a>> {
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

fn pages(numbered: &Numbered<'_>, column: ColumnDescPtr, compression: Compression) -> Result<Words> {
    let mut sink = TrackedWrite::new(Vec::new());
    let mut sizes = (0, 0);
    let mut locations = Vec::new();
    let first_page;
    {
        let mut writer = SerializedPageWriter::new(&mut sink);
        let mut write = |page: CompressedPage| {
            let written = writer.write_page(page)?;
            sizes.0 += written.uncompressed_size;
            sizes.1 += written.compressed_size;
            Ok::<_, ParquetError>((written.offset, written.compressed_size))
        };
        let mut plain = Vec::with_capacity(numbered.bytes);
        for word in &numbered.words {
            plain.extend_from_slice(&(word.len() as u32).to_le_bytes());
            plain.extend_from_slice(word);
        }
        let count = numbered.words.len() as u32;
        let (size, buf) = (plain.len(), compressed(plain, compression)?);
        let page = Page::DictionaryPage { buf, num_values: count, encoding: Encoding::PLAIN, is_sorted: false };
        let (_, length) = write(CompressedPage::new(page, size))?;
        first_page = length as i64;
        let width = (u32::BITS - count.saturating_sub(1).leading_zeros()) as u8;
        let (mut levels, mut present) = (Vec::new(), Vec::new());
        for (page, rows) in numbered.rows.chunks(PAGE_ROWS).enumerate() {
            let mut buf = Vec::with_capacity(rows.len() * usize::from(width) / 8 + 64);
            if column.max_def_level() > 0 {
                levels.clear();
                levels.extend(rows.iter().map(|number| u32::from(*number != NULL)));
                buf.extend_from_slice(&[0; 4]);
                hybrid(&levels, 1, &mut buf);
                let length = (buf.len() - 4) as u32;
                buf[..4].copy_from_slice(&length.to_le_bytes());
            }
            buf.push(width);
            if numbered.nulls == 0 {
                hybrid(rows, width, &mut buf);
            } else {
                present.clear();
                present.extend(rows.iter().copied().filter(|number| *number != NULL));
                hybrid(&present, width, &mut buf);
            }
            let (size, buf) = (buf.len(), compressed(buf, compression)?);
            let data = Page::DataPage {
                buf,
                num_values: rows.len() as u32,
                encoding: Encoding::RLE_DICTIONARY,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            };
            let (offset, length) = write(CompressedPage::new(data, size))?;
            locations.push(PageLocation {
                offset: offset as i64,
                compressed_page_size: length as i32,
                first_row_index: (page * PAGE_ROWS) as i64,
            });
        }
        writer.close()?;
    }
    let rows = numbered.rows.len();
    let stats = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count: count as i32 };
    let metadata = ColumnChunkMetaData::builder(column)
        .set_compression(compression)
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_num_values(rows as i64)
        .set_total_uncompressed_size(sizes.0 as i64)
        .set_total_compressed_size(sizes.1 as i64)
        .set_dictionary_page_offset(Some(0))
        .set_data_page_offset(first_page)
        .set_statistics(numbered.statistics())
        .set_page_encoding_stats(vec![
            stats(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
            // Readers that see this read keys.
            stats(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, locations.len()),
        ])
        .build()?;
    let offsets = OffsetIndexMetaData { page_locations: locations, unencoded_byte_array_data_bytes: None };
    let closed = ColumnCloseResult {
        bytes_written: sizes.1 as u64,
        rows_written: rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: Some(offsets),
    };
    Ok(Words { bytes: Bytes::from(sink.into_inner()?), closed })
}

fn compressed(bytes: Vec<u8>, compression: Compression) -> Result<Bytes> {
    match compression {
        Compression::SNAPPY => {
            let compressed = snap::raw::Encoder::new().compress_vec(&bytes);
            Ok(Bytes::from(compressed.map_err(|error| ParquetError::External(Box::new(error)))?))
        }
        _ => Ok(Bytes::from(bytes)),
    }
}

/// Parquet's hybrid of runs and packed bits: numbers of so many bits that repeat often or not.
fn hybrid(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    // Where numbers begin that are not written yet, because they do not repeat.
    let mut from = 0;
    let mut at = 0;
    while at < numbers.len() {
        let run = numbers[at..].iter().take_while(|number| **number == numbers[at]).count();
        // Packed numbers come in groups of eight, which the run fills up.
        let fill = (at - from).next_multiple_of(8) - (at - from);
        if run >= fill + 8 {
            packed(&numbers[from..at + fill], width, out);
            varint((run - fill) << 1, out);
            out.extend_from_slice(&numbers[at].to_le_bytes()[..usize::from(width).div_ceil(8)]);
            from = at + run;
        }
        at += run;
    }
    packed(&numbers[from..], width, out);
}

/// Groups of eight numbers with their bits side by side, lowest first; zeros fill the last group.
fn packed(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    varint(numbers.len().div_ceil(8) << 1 | 1, out);
    let (mut bits, mut held) = (0u64, 0u32);
    let zeros = numbers.len().next_multiple_of(8) - numbers.len();
    for number in numbers.iter().copied().chain(std::iter::repeat_n(0, zeros)) {
        bits |= u64::from(number) << held;
        held += u32::from(width);
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, RecordBatch, StringArray};
    use arrow::datatypes::{Field, Schema};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::parquet::config::ParquetSink;
    use forebay_run::Sink;

    /// Writes columns of dictionaries and reads them as strings.
    fn round_trip(batches: &[Vec<Option<String>>]) -> Vec<Option<String>> {
        let arrays: Vec<RecordBatch> = batches
            .iter()
            .map(|rows| {
                let array: DictionaryArray<Int32Type> = rows.iter().map(Option::as_deref).collect();
                RecordBatch::try_from_iter_with_nullable([("word", Arc::new(array) as ArrayRef, true)]).unwrap()
            })
            .collect();
        let schema = Arc::new(Schema::new(vec![Field::new("word", DataType::Utf8, true)]));
        let sink = super::super::sink::Writer::new(ParquetSink::at("out"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = sink.begin(&schema, &[], Box::new(file.reopen().unwrap())).unwrap();
        out.append(sink.encode(&schema, &arrays).unwrap()).unwrap();
        out.finish().unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file.reopen().unwrap()).unwrap().build().unwrap();
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
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for (words, runs, nulls) in
            [(1, 1, 0), (1, 1, 3), (2, 9, 0), (3, 40, 5), (300, 1, 0), (300, 12, 2), (70_000, 1, 9)]
        {
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
            assert!(round_trip(&batches) == batches.concat(), "{words} words, runs of {runs}, nulls 1 in {nulls}");
        }
        assert_eq!(round_trip(&[vec![None; 100]]), vec![None; 100]);
    }
}
