//! Columns of a file that is there, taken over into another one as they are.

use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_model::{ContentId, Fault, Result, Span, codes};
use forebay_storage::{EncodedPiece, ScanRequest, StorageClient, StorageLocation, WrittenFile};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use super::chunks::ParquetScan;
use super::footer::{Footer, FooterCache};
use super::pages::EncodedPages;
use super::prune::RowGroupPruner;
use super::sink::{ColumnChunks, write_fault};
use crate::files::blob::{self, FileHandle, changed_fault};
use crate::guard::catch_decode_panic;

/// A file whose columns can be taken over.
pub(super) struct StoredFile {
    io: StorageClient,
    path: String,
    footers: Arc<FooterCache>,
    footer: Arc<Footer>,
}

impl StoredFile {
    pub(super) fn open(io: &StorageClient, place: &StorageLocation) -> Result<Self> {
        let path = place.local.as_ref().map_or_else(|| place.shown.clone(), |local| local.display().to_string());
        let footers: Arc<FooterCache> = Arc::default();
        let footer = footers.open(io, &path)?.footer;
        Ok(StoredFile { io: io.clone(), path, footers, footer })
    }

    /// The stored columns of a column.
    fn leaves(&self, column: usize) -> impl Iterator<Item = usize> {
        let schema = self.footer.metadata.file_metadata().schema_descr();
        (0..schema.num_columns()).filter(move |leaf| schema.get_column_root_idx(*leaf) == column)
    }

    /// Some ranges of bytes. Whose rows were read is there.
    fn read_ranges(&self, blob: &FileHandle, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let content = self.content_id();
        let recent =
            |range: &Range<u64>| self.io.cached_range(content, range.start, (range.end - range.start) as usize);
        let known: Vec<Option<Bytes>> = ranges.iter().map(recent).collect();
        let lacking = ranges.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(range, _)| range.clone());
        let mut read = blob.read_ranges(&self.path, lacking.collect())?.into_iter();
        let all = known.into_iter().map(|known| known.or_else(|| read.next()));
        all.collect::<Option<_>>().ok_or_else(|| Fault::internal("a column was not read"))
    }

    /// Names what the file holds.
    fn content_id(&self) -> ContentId {
        self.footer.stamp.fingerprint(&self.path, &[], Some(self.footer.digest))
    }

    /// What the file says of its pages.
    fn page_index(&self, blob: &FileHandle) -> Result<ParquetMetaData> {
        let reading = FileChunkReader { blob, path: &self.path, size: self.footer.stamp.size };
        let read = catch_decode_panic::<_, ParquetError>(|| {
            let mut reader = ParquetMetaDataReader::new_with_metadata(self.footer.metadata.as_ref().clone())
                .with_page_index_policy(PageIndexPolicy::Optional);
            reader.read_page_indexes(&reading)?;
            reader.finish()
        });
        let unclear = |error| {
            let fault = Fault::new(codes::CORRUPT, "the index of its pages cannot be understood").file(&self.path);
            fault.cause(error).hint("remove the output, and run again")
        };
        read.map_err(|error| match error {
            ParquetError::External(error) => match error.downcast::<Fault>() {
                Ok(fault) => *fault,
                Err(error) => unclear(ParquetError::External(error)),
            },
            error => unclear(error),
        })
    }
}

impl WrittenFile for StoredFile {
    fn groups(&self) -> Vec<u64> {
        self.footer.metadata.row_groups().iter().map(|group| group.num_rows() as u64).collect()
    }

    fn column_bytes(&self) -> Vec<u64> {
        let bytes = |leaf: usize| -> u64 {
            self.footer.metadata.row_groups().iter().map(|group| group.column(leaf).byte_range().1).sum()
        };
        let columns = self.footer.metadata.file_metadata().schema_descr().root_schema().get_fields().len();
        (0..columns).map(|column| self.leaves(column).map(bytes).sum()).collect()
    }

    fn rows(&self, request: &ScanRequest) -> Result<forebay_storage::ChunkIterator> {
        let piece = forebay_model::FileRange {
            path: self.path.clone(),
            relative: self.path.clone(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: Some(self.groups().iter().sum()),
            bytes: self.footer.stamp.size,
            partition: Vec::new(),
            extents: Vec::new(),
            fingerprint: self.content_id(),
        };
        let (span, pruner) = (Span { pieces: vec![piece] }, RowGroupPruner::new(&[], &request.schema));
        Ok(Box::new(ParquetScan::start(self.io.clone(), self.footers.clone(), span, request.clone(), pruner)))
    }

    fn pieces(&self, group: usize, columns: &[usize]) -> Result<Vec<EncodedPiece>> {
        let (blob, stamp) = blob::open_file(&self.io, &self.path)?;
        if !stamp.same_version(&self.footer.stamp) {
            return Err(changed_fault(&self.path));
        }
        let metadata = self.page_index(&blob)?;
        let stored = metadata.row_group(group);
        let leaves: Vec<Vec<usize>> = columns.iter().map(|column| self.leaves(*column).collect()).collect();
        let range = |leaf: &usize| {
            let (start, length) = stored.column(*leaf).byte_range();
            start..start + length
        };
        let ranges: Vec<Range<u64>> = leaves.iter().flatten().map(range).collect();
        let mut bytes = self.read_ranges(&blob, &ranges)?.into_iter();
        let mut chunk = |leaf: usize| {
            let column_index = metadata.column_index().and_then(|index| index.get(group)?.get(leaf));
            let offset_index = metadata.offset_index().and_then(|index| index.get(group)?.get(leaf));
            let closed = ColumnCloseResult {
                bytes_written: stored.column(leaf).byte_range().1,
                rows_written: stored.num_rows() as u64,
                metadata: restore_metadata(stored.column(leaf))?,
                bloom_filter: None,
                column_index: column_index.filter(|index| !matches!(index, ColumnIndexMetaData::NONE)).cloned(),
                offset_index: offset_index.cloned(),
            };
            let bytes = bytes.next().ok_or_else(|| Fault::internal("a column was not read"))?;
            catch_decode_panic(|| EncodedPages::from_stored(bytes, closed)).map_err(|error| {
                let column = stored.column(leaf).column_path().string();
                let fault = Fault::new(codes::CORRUPT, "the pages of a column cannot be understood").file(&self.path);
                fault.row_group(group).column(column).cause(error).hint("remove the output, and run again")
            })
        };
        let piece =
            |leaves: Vec<usize>| Ok(ColumnChunks::piece(leaves.into_iter().map(&mut chunk).collect::<Result<_>>()?));
        leaves.into_iter().map(piece).collect()
    }
}

/// What a file tells of a column, as it was told when it was written. The general writer, which alone counts levels,
/// tells bounds in the old fields too, and readers do not say that they saw those.
fn restore_metadata(column: &ColumnChunkMetaData) -> Result<ColumnChunkMetaData> {
    let is_general = column.definition_level_histogram().is_some();
    let Some(bounds) = column.statistics().filter(|_| is_general && column.column_descr().sort_order().is_signed())
    else {
        return Ok(column.clone());
    };
    let bounds = match bounds.clone() {
        Statistics::Int32(bounds) => Statistics::Int32(bounds.with_backwards_compatible_min_max(true)),
        Statistics::Int64(bounds) => Statistics::Int64(bounds.with_backwards_compatible_min_max(true)),
        Statistics::Float(bounds) => Statistics::Float(bounds.with_backwards_compatible_min_max(true)),
        Statistics::Double(bounds) => Statistics::Double(bounds.with_backwards_compatible_min_max(true)),
        Statistics::FixedLenByteArray(bounds) => {
            Statistics::FixedLenByteArray(bounds.with_backwards_compatible_min_max(true))
        }
        others => others,
    };
    column.clone().into_builder().set_statistics(bounds).build().map_err(write_fault)
}

/// A file from which the decoder reads.
pub(super) struct FileChunkReader<'a> {
    pub(super) blob: &'a FileHandle,
    pub(super) path: &'a str,
    pub(super) size: u64,
}

impl Length for FileChunkReader<'_> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for FileChunkReader<'_> {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Cursor<Bytes>> {
        self.get_bytes(start, self.size.saturating_sub(start) as usize).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond the end of the file")));
        }
        let read = self.blob.read(self.path, start..start + length as u64);
        read.map_err(|fault| ParquetError::External(Box::new(fault)))
    }
}
