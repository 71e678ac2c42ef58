//! The pages of a column of one row group.

use std::ops::Range;

use bytes::Bytes;
use bytes::buf::{Buf, Reader};
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::bits::hybrid;

/// Rows of a page, as in the general writer.
const PAGE_ROWS: usize = 20_000;

/// A column of one row group, ready to be encoded.
pub(super) trait Rows {
    /// How values are encoded.
    const ENCODING: Encoding;

    fn count(&self) -> usize;

    /// How many values the dictionary has, and these in Parquet's plain encoding, where there is one.
    fn dictionary(&mut self) -> Option<(u32, Vec<u8>)>;

    /// Of each of some rows: 1 where it has a value, 0 where it is null.
    fn levels(&self, rows: Range<usize>, levels: &mut Vec<u32>);

    /// Appends the values of some rows, which come in order.
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>);

    fn statistics(&self) -> Statistics;

    /// What is known of each page, once all are encoded.
    fn index(self) -> Result<Option<ColumnIndexMetaData>>;
}

/// A column of one row group.
pub(super) struct Pages {
    bytes: Bytes,
    closed: ColumnCloseResult,
    /// Where its first page lies in what `closed` tells of.
    start: u64,
}

/// The bytes of pages, seen from where they lay.
pub(super) struct Lying {
    bytes: Bytes,
    start: u64,
}

impl Length for Lying {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Lying {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>> {
        Ok(self.get_bytes(start, self.len().saturating_sub(start) as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let from = start.checked_sub(self.start).map(|from| from as usize);
        let range = from.map(|from| from..from + length).filter(|range| range.end <= self.bytes.len());
        let range = range.ok_or_else(|| ParquetError::EOF(format!("{length} bytes at {start} are no pages")))?;
        Ok(self.bytes.slice(range))
    }
}

impl Pages {
    /// Whether pages can be written with a compression.
    pub fn can(column: &ColumnDescPtr, compression: Compression) -> bool {
        matches!(compression, Compression::SNAPPY | Compression::UNCOMPRESSED) && column.max_rep_level() == 0
    }

    /// Encodes rows.
    pub fn of<R: Rows>(mut rows: R, column: ColumnDescPtr, compression: Compression) -> Result<Pages> {
        let mut sink = TrackedWrite::new(Vec::new());
        let mut sizes = (0, 0);
        let mut locations = Vec::new();
        let mut dictionary = None;
        {
            let mut writer = SerializedPageWriter::new(&mut sink);
            let mut write = |page: CompressedPage| {
                let written = writer.write_page(page)?;
                sizes.0 += written.uncompressed_size;
                sizes.1 += written.compressed_size;
                Ok::<_, ParquetError>((written.offset, written.compressed_size))
            };
            if let Some((num_values, plain)) = rows.dictionary() {
                let (size, buf) = (plain.len(), compressed(plain, compression)?);
                let page = Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, is_sorted: false };
                dictionary = Some(write(CompressedPage::new(page, size))?.1 as i64);
            }
            let mut levels = Vec::new();
            for start in (0..rows.count()).step_by(PAGE_ROWS) {
                let page = start..rows.count().min(start + PAGE_ROWS);
                let mut buf = Vec::with_capacity(2 * page.len() + 64);
                if column.max_def_level() > 0 {
                    levels.clear();
                    rows.levels(page.clone(), &mut levels);
                    buf.extend_from_slice(&[0; 4]);
                    hybrid(&levels, 1, &mut buf);
                    let length = (buf.len() - 4) as u32;
                    buf[..4].copy_from_slice(&length.to_le_bytes());
                }
                rows.encode(page.clone(), &mut buf);
                let (size, buf) = (buf.len(), compressed(buf, compression)?);
                let data = Page::DataPage {
                    buf,
                    num_values: page.len() as u32,
                    encoding: R::ENCODING,
                    def_level_encoding: Encoding::RLE,
                    rep_level_encoding: Encoding::RLE,
                    statistics: None,
                };
                let (offset, length) = write(CompressedPage::new(data, size))?;
                locations.push(PageLocation {
                    offset: offset as i64,
                    compressed_page_size: length as i32,
                    first_row_index: page.start as i64,
                });
            }
            writer.close()?;
        }
        let count = rows.count();
        let stats = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count: count as i32 };
        let mut encodings = vec![Encoding::RLE, R::ENCODING];
        // Readers that see this read keys.
        let mut pages = vec![stats(PageType::DATA_PAGE, R::ENCODING, locations.len())];
        if dictionary.is_some() {
            encodings.insert(0, Encoding::PLAIN);
            pages.insert(0, stats(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
        }
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(compression)
            .set_encodings(encodings)
            .set_num_values(count as i64)
            .set_total_uncompressed_size(sizes.0 as i64)
            .set_total_compressed_size(sizes.1 as i64)
            .set_dictionary_page_offset(dictionary.map(|_| 0))
            .set_data_page_offset(dictionary.unwrap_or(0))
            .set_statistics(rows.statistics())
            .set_page_encoding_stats(pages)
            .build()?;
        let offsets = OffsetIndexMetaData { page_locations: locations, unencoded_byte_array_data_bytes: None };
        let closed = ColumnCloseResult {
            bytes_written: sizes.1 as u64,
            rows_written: count as u64,
            metadata,
            bloom_filter: None,
            column_index: rows.index()?,
            offset_index: Some(offsets),
        };
        Ok(Pages { bytes: Bytes::from(sink.into_inner()?), closed, start: 0 })
    }

    /// Those of a column that is stored.
    pub fn stored(bytes: Bytes, closed: ColumnCloseResult) -> Pages {
        let start = closed.metadata.byte_range().0;
        Pages { bytes, closed, start }
    }

    /// Their bytes.
    pub fn size(&self) -> u64 {
        self.closed.bytes_written
    }

    /// The pages, and what is told of them.
    pub fn parts(self) -> (Lying, ColumnCloseResult) {
        (Lying { bytes: self.bytes, start: self.start }, self.closed)
    }
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
