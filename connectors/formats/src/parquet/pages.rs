//! The pages of a column of one row group.

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::bits::encode_rle_hybrid;
use super::checksums::{CHECKSUM_BYTES_MAX, GeneralPage, append_page};

/// Rows of a page, as in the general writer.
const PAGE_ROWS: usize = 20_000;

/// A column of one row group, ready to be encoded.
pub(super) trait EncodableColumn {
    /// Encoding of the values.
    const ENCODING: Encoding;

    fn count(&self) -> usize;

    /// Number of the dictionary's values, and the values in Parquet's plain encoding; `None`
    /// without a dictionary.
    fn dictionary(&mut self) -> Option<(u32, Vec<u8>)>;

    /// Appends 1 for each row with a value and 0 for each null.
    fn levels(&self, rows: Range<usize>, levels: &mut Vec<u32>);

    /// Appends the values of some rows, which come in order.
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>);

    fn statistics(&self) -> Statistics;

    /// Index of the pages, once all are encoded.
    fn index(self) -> Result<Option<ColumnIndexMetaData>>;
}

/// A column of one row group.
pub(super) struct EncodedPages {
    bytes: Bytes,
    closed: ColumnCloseResult,
}

impl EncodedPages {
    /// True if pages can be written with a compression.
    pub fn supports(column: &ColumnDescPtr, compression: Compression) -> bool {
        matches!(compression, Compression::SNAPPY | Compression::UNCOMPRESSED)
            && column.max_rep_level() == 0
    }

    /// Encodes rows.
    pub fn encode_rows<R: EncodableColumn>(
        mut rows: R,
        column: ColumnDescPtr,
        compression: Compression,
    ) -> Result<EncodedPages> {
        let mut bytes = Vec::new();
        let mut uncompressed_bytes = 0;
        let mut locations = Vec::new();
        let mut dictionary = None;
        let mut write = |page: CompressedPage| {
            let mut alone = TrackedWrite::new(Vec::with_capacity(page.data().len() + 64));
            let body = page.data().len();
            let written = SerializedPageWriter::new(&mut alone).write_page(page)?;
            let alone = alone.into_inner()?;
            let offset = bytes.len();
            let (header, body) = alone.split_at(alone.len() - body);
            append_page(header, body, &mut bytes)?;
            let length = bytes.len() - offset;
            uncompressed_bytes += written.uncompressed_size + length - alone.len();
            Ok::<_, ParquetError>((offset, length))
        };
        if let Some((num_values, plain)) = rows.dictionary() {
            let size = plain.len();
            let buf = compress_page(plain, compression)?;
            let page = Page::DictionaryPage {
                buf,
                num_values,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
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
                encode_rle_hybrid(&levels, 1, &mut buf);
                let length = (buf.len() - 4) as u32;
                buf[..4].copy_from_slice(&length.to_le_bytes());
            }
            rows.encode(page.clone(), &mut buf);
            let size = buf.len();
            let buf = compress_page(buf, compression)?;
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
        let count = rows.count();
        let stats = |page_type, encoding, count| PageEncodingStats {
            page_type,
            encoding,
            count: count as i32,
        };
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
            .set_total_uncompressed_size(uncompressed_bytes as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_dictionary_page_offset(dictionary.map(|_| 0))
            .set_data_page_offset(dictionary.unwrap_or(0))
            .set_statistics(rows.statistics())
            .set_page_encoding_stats(pages)
            .build()?;
        let offsets = OffsetIndexMetaData {
            page_locations: locations,
            unencoded_byte_array_data_bytes: None,
        };
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: count as u64,
            metadata,
            bloom_filter: None,
            column_index: rows.index()?,
            offset_index: Some(offsets),
        };
        Ok(EncodedPages {
            bytes: Bytes::from(bytes),
            closed,
        })
    }

    /// Pages of the general writer with their metadata: their positions without checksums, and the
    /// dictionary last.
    pub fn from_general(
        mut pages: Vec<GeneralPage>,
        mut closed: ColumnCloseResult,
    ) -> Result<EncodedPages> {
        if let Some(dictionary) = pages.iter().position(GeneralPage::is_dictionary) {
            pages[..=dictionary].rotate_right(1);
        }
        let page_bytes =
            |page: &GeneralPage| page.header.len() + page.body.len() + CHECKSUM_BYTES_MAX;
        let mut bytes = Vec::with_capacity(pages.iter().map(page_bytes).sum());
        let mut dictionary_bytes = 0;
        let mut plain_bytes = 0;
        let mut locations = Vec::new();
        for page in pages {
            let offset = bytes.len();
            append_page(&page.header, &page.body, &mut bytes)?;
            plain_bytes += page.header.len() + page.body.len();
            if page.is_dictionary() {
                dictionary_bytes = bytes.len()
            } else {
                locations.push((offset, bytes.len() - offset))
            }
        }
        for (page_location, (offset, length)) in closed
            .offset_index
            .iter_mut()
            .flat_map(|index| &mut index.page_locations)
            .zip(locations)
        {
            page_location.offset = offset as i64;
            page_location.compressed_page_size = length as i32;
        }
        let grown = (bytes.len() - plain_bytes) as i64;
        let uncompressed_bytes = closed.metadata.uncompressed_size() + grown;
        let metadata = closed.metadata.into_builder();
        closed.metadata = metadata
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed_bytes)
            .build()?;
        closed.bytes_written = bytes.len() as u64;
        let closed = closed.update_dictionary_location(dictionary_bytes)?;
        Ok(EncodedPages {
            bytes: Bytes::from(bytes),
            closed,
        })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.closed.bytes_written
    }

    /// The pages and their metadata.
    pub fn into_parts(self) -> (Bytes, ColumnCloseResult) {
        (self.bytes, self.closed)
    }
}

fn compress_page(bytes: Vec<u8>, compression: Compression) -> Result<Bytes> {
    match compression {
        Compression::SNAPPY => {
            let compressed = snap::raw::Encoder::new().compress_vec(&bytes);
            Ok(Bytes::from(compressed.map_err(|error| {
                ParquetError::External(Box::new(error))
            })?))
        }
        _ => Ok(Bytes::from(bytes)),
    }
}
