//! The pages of a row group for the decoder: decompressed, and checked before they are decoded.

use std::sync::Arc;

use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::page_counts::{LevelsOfPages, has_fitting_lengths, values_max_of};
use super::page_gate::GatedPages;
use super::zstd_pages::decompress_zstd;

/// One row group of a file, as the decoder sees it.
pub(super) struct CheckedRowGroup {
    pub(super) pages: GatedPages,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) group: usize,
}

impl CheckedRowGroup {
    fn group_metadata(&self) -> &RowGroupMetaData {
        self.metadata.row_group(self.group)
    }

    fn open_column(&self, column: usize) -> Result<CheckedPages> {
        let group = self.group_metadata();
        let chunk = group.column(column);
        let locations = self
            .metadata
            .offset_index()
            .and_then(|index| index.get(self.group))
            .and_then(|columns| columns.get(column))
            .map(|index| index.page_locations.clone());
        let pages = Arc::new(self.pages.of_column());
        let rows = group.num_rows() as usize;
        let is_zstd = matches!(chunk.compression(), Compression::ZSTD(_));
        let reader = if is_zstd {
            // The library makes a context to compress and one to decompress for each column chunk, which cost more than
            // the pages of a small file. To it, these pages are not compressed.
            let stored = chunk
                .clone()
                .into_builder()
                .set_compression(Compression::UNCOMPRESSED)
                .build()?;
            SerializedPageReader::new(pages.clone(), &stored, rows, locations)?
        } else {
            SerializedPageReader::new(pages.clone(), chunk, rows, locations)?
        };
        let described = chunk.column_descr();
        Ok(CheckedPages {
            reader,
            pages,
            is_zstd,
            levels: LevelsOfPages::of(described),
            values_max: (described.max_rep_level() == 0).then_some(rows as u64),
            column: described.name().to_owned(),
        })
    }
}

impl RowGroups for CheckedRowGroup {
    fn num_rows(&self) -> usize {
        self.group_metadata().num_rows() as usize
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let pages = self.open_column(column)?;
        Ok(Box::new(SinglePageReader(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.group_metadata()))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of the only row group.
struct SinglePageReader(Option<CheckedPages>);

impl Iterator for SinglePageReader {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let pages = self.0.take()?;
        Some(Ok(Box::new(pages)))
    }
}

impl PageIterator for SinglePageReader {}

/// Pages of a column chunk.
struct CheckedPages {
    reader: SerializedPageReader<GatedPages>,
    pages: Arc<GatedPages>,
    /// True if the reader gives pages as they are stored, compressed by Zstandard.
    is_zstd: bool,
    levels: LevelsOfPages,
    /// Most values of a data page, where each row has one.
    values_max: Option<u64>,
    column: String,
}

impl CheckedPages {
    /// Decompresses the values of a page.
    fn decompress(&self, page: &mut Page) -> Result<()> {
        let uncompressed_bytes = self.pages.uncompressed_bytes().ok_or_else(|| {
            ParquetError::General(format!("a page of column `{}` has no header", self.column))
        })?;
        match page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = decompress_zstd(buf, 0, uncompressed_bytes)?;
            }
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed: true,
                ..
            } => {
                let levels_bytes = (*def_levels_byte_len + *rep_levels_byte_len) as usize;
                *buf = decompress_zstd(buf, levels_bytes, uncompressed_bytes)?;
            }
            Page::DataPageV2 { .. } => {}
        }
        Ok(())
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.reader.get_next_page()? else {
            return Ok(None);
        };
        if self.is_zstd {
            self.decompress(&mut page)?;
        }
        // The decoder reserves memory by these numbers.
        let values = u64::from(page.num_values());
        let values_max = values_max_of(&page, self.values_max);
        if let Some(values_max) = values_max.filter(|values_max| values > *values_max) {
            return Err(ParquetError::General(format!(
                "a page of column `{}` has {values} values, and there is room for {values_max}",
                self.column
            )));
        }
        if !has_fitting_lengths(&page, self.levels) {
            return Err(ParquetError::General(format!(
                "a page of column `{}` has more texts than values, or ends before its texts",
                self.column
            )));
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.reader.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.reader.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.reader.at_record_boundary()
    }
}
