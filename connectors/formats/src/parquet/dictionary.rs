//! Columns with a dictionary: the distinct values once, and a key for each row.

use std::ops::Range;

use parquet::basic::Encoding;
use parquet::errors::Result;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

use super::bits::encode_rle_hybrid;
use super::pages::EncodableColumn;

/// Bytes of a dictionary page at most, as in the general writer.
pub(super) const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// The key of a null.
pub(super) const NULL: u32 = u32::MAX;

/// The rows of a column as keys of a dictionary.
pub(super) struct DictionaryColumn {
    pub keys: Vec<u32>,
    /// Number of keys that are [`NULL`].
    pub nulls: usize,
    /// Number of values of the dictionary.
    pub values: u32,
    /// The values in Parquet's plain encoding.
    pub plain: Vec<u8>,
    pub statistics: Statistics,
}

impl EncodableColumn for DictionaryColumn {
    const ENCODING: Encoding = Encoding::RLE_DICTIONARY;

    fn count(&self) -> usize {
        self.keys.len()
    }

    fn dictionary(&mut self) -> Option<(u32, Vec<u8>)> {
        Some((self.values, std::mem::take(&mut self.plain)))
    }

    fn levels(&self, rows: Range<usize>, levels: &mut Vec<u32>) {
        levels.extend(self.keys[rows].iter().map(|key| u32::from(*key != NULL)));
    }

    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) {
        let width = key_bits(self.values);
        let keys = &self.keys[rows];
        out.push(width);
        if self.nulls == 0 {
            encode_rle_hybrid(keys, width, out);
        } else {
            let present: Vec<u32> = keys.iter().copied().filter(|key| *key != NULL).collect();
            encode_rle_hybrid(&present, width, out);
        }
    }

    fn statistics(&self) -> Statistics {
        self.statistics.clone()
    }

    fn index(self) -> Result<Option<ColumnIndexMetaData>> {
        Ok(None)
    }
}

/// Bits of the keys of a dictionary with `values` values.
pub(super) fn key_bits(values: u32) -> u8 {
    (u32::BITS - values.saturating_sub(1).leading_zeros()) as u8
}
