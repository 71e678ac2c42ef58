//! Columns with a dictionary: the distinct values once, and a key for each row.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::bits::hybrid;

/// Bytes of a dictionary page at most, as in the general writer.
pub(super) const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// Rows of a page, as in the general writer.
const PAGE_ROWS: usize = 20_000;

/// The key of a null.
pub(super) const NULL: u32 = u32::MAX;

/// The rows of a column as keys of a dictionary.
pub(super) struct Keyed {
    pub keys: Vec<u32>,
    /// How many keys are [`NULL`].
    pub nulls: usize,
    /// How many values the dictionary has.
    pub values: u32,
    /// The values in Parquet's plain encoding.
    pub plain: Vec<u8>,
    pub statistics: Statistics,
}

/// A column of one row group.
pub(super) struct Pages {
    bytes: Bytes,
    closed: ColumnCloseResult,
}

impl Pages {
    /// Whether pages can be written with a compression.
    pub fn can(column: &ColumnDescPtr, compression: Compression) -> bool {
        matches!(compression, Compression::SNAPPY | Compression::UNCOMPRESSED) && column.max_rep_level() == 0
    }

    /// Their bytes.
    pub fn size(&self) -> u64 {
        self.closed.bytes_written
    }

    /// The pages, and what is told of them.
    pub fn parts(self) -> (Bytes, ColumnCloseResult) {
        (self.bytes, self.closed)
    }
}

impl Keyed {
    /// Encodes them.
    pub fn pages(self, column: ColumnDescPtr, compression: Compression) -> Result<Pages> {
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
            let (size, buf) = (self.plain.len(), compressed(self.plain, compression)?);
            let page =
                Page::DictionaryPage { buf, num_values: self.values, encoding: Encoding::PLAIN, is_sorted: false };
            let (_, length) = write(CompressedPage::new(page, size))?;
            first_page = length as i64;
            let width = key_bits(self.values);
            let (mut levels, mut present) = (Vec::new(), Vec::new());
            for (page, rows) in self.keys.chunks(PAGE_ROWS).enumerate() {
                let mut buf = Vec::with_capacity(rows.len() * usize::from(width) / 8 + 64);
                if column.max_def_level() > 0 {
                    levels.clear();
                    levels.extend(rows.iter().map(|key| u32::from(*key != NULL)));
                    buf.extend_from_slice(&[0; 4]);
                    hybrid(&levels, 1, &mut buf);
                    let length = (buf.len() - 4) as u32;
                    buf[..4].copy_from_slice(&length.to_le_bytes());
                }
                buf.push(width);
                if self.nulls == 0 {
                    hybrid(rows, width, &mut buf);
                } else {
                    present.clear();
                    present.extend(rows.iter().copied().filter(|key| *key != NULL));
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
        let rows = self.keys.len();
        let stats = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count: count as i32 };
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(compression)
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
            .set_num_values(rows as i64)
            .set_total_uncompressed_size(sizes.0 as i64)
            .set_total_compressed_size(sizes.1 as i64)
            .set_dictionary_page_offset(Some(0))
            .set_data_page_offset(first_page)
            .set_statistics(self.statistics)
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
        Ok(Pages { bytes: Bytes::from(sink.into_inner()?), closed })
    }
}

/// Bits of the keys of a dictionary with so many values.
pub(super) fn key_bits(values: u32) -> u8 {
    (u32::BITS - values.saturating_sub(1).leading_zeros()) as u8
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
