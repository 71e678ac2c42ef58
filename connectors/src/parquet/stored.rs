//! Columns of a file that is there, taken over into another one as they are.

use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use forebay_run::{Io, Piece, Place, Stored};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use super::footer::read_metadata;
use super::pages::Pages;
use super::sink::{Chunk, Chunks, failed};
use crate::files::blob::{self, Blob, changed};
use crate::files::stamp::Stamp;
use crate::guard::guarded;

/// A file whose columns can be taken over.
pub(super) struct StoredFile {
    io: Io,
    path: String,
    stamp: Stamp,
    metadata: Arc<ParquetMetaData>,
}

impl StoredFile {
    pub(super) fn open(io: &Io, place: &Place) -> Result<Self> {
        let path = place.local.as_ref().map_or_else(|| place.shown.clone(), |local| local.display().to_string());
        let (blob, stamp) = blob::open(io, &path)?;
        let (metadata, _) = read_metadata(&blob, &path, &stamp)?;
        Ok(StoredFile { io: io.clone(), path, stamp, metadata })
    }

    /// The stored columns of a column.
    fn leaves(&self, column: usize) -> impl Iterator<Item = usize> {
        let schema = self.metadata.file_metadata().schema_descr();
        (0..schema.num_columns()).filter(move |leaf| schema.get_column_root_idx(*leaf) == column)
    }

    /// What the file says of its pages.
    fn page_index(&self, blob: &Blob) -> Result<ParquetMetaData> {
        let reading = Reading { blob, path: &self.path, size: self.stamp.size };
        let read = guarded::<_, ParquetError>(|| {
            let mut reader = ParquetMetaDataReader::new_with_metadata(self.metadata.as_ref().clone())
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

impl Stored for StoredFile {
    fn groups(&self) -> Vec<u64> {
        self.metadata.row_groups().iter().map(|group| group.num_rows() as u64).collect()
    }

    fn column_bytes(&self) -> Vec<u64> {
        let bytes = |leaf: usize| -> u64 {
            self.metadata.row_groups().iter().map(|group| group.column(leaf).byte_range().1).sum()
        };
        let columns = self.metadata.file_metadata().schema_descr().root_schema().get_fields().len();
        (0..columns).map(|column| self.leaves(column).map(bytes).sum()).collect()
    }

    fn pieces(&self, group: usize, columns: &[usize]) -> Result<Vec<Piece>> {
        let (blob, stamp) = blob::open(&self.io, &self.path)?;
        if stamp != self.stamp {
            return Err(changed(&self.path));
        }
        let metadata = self.page_index(&blob)?;
        let stored = metadata.row_group(group);
        let leaves: Vec<Vec<usize>> = columns.iter().map(|column| self.leaves(*column).collect()).collect();
        let range = |leaf: &usize| {
            let (start, length) = stored.column(*leaf).byte_range();
            start..start + length
        };
        let mut bytes = blob.read_all(&self.path, leaves.iter().flatten().map(range).collect())?.into_iter();
        let mut chunk = |leaf: usize| {
            let column_index = metadata.column_index().and_then(|index| index.get(group)?.get(leaf));
            let offset_index = metadata.offset_index().and_then(|index| index.get(group)?.get(leaf));
            let closed = ColumnCloseResult {
                bytes_written: stored.column(leaf).byte_range().1,
                rows_written: stored.num_rows() as u64,
                metadata: as_written(stored.column(leaf))?,
                bloom_filter: None,
                column_index: column_index.filter(|index| !matches!(index, ColumnIndexMetaData::NONE)).cloned(),
                offset_index: offset_index.cloned(),
            };
            let bytes = bytes.next().ok_or_else(|| Fault::internal("a column was not read"))?;
            Ok(Chunk::Pages(Box::new(Pages::stored(bytes, closed))))
        };
        let piece = |leaves: Vec<usize>| Ok(Chunks::piece(leaves.into_iter().map(&mut chunk).collect::<Result<_>>()?));
        leaves.into_iter().map(piece).collect()
    }
}

/// What a file tells of a column, as it was told when it was written. The general writer, which alone counts levels,
/// tells bounds in the old fields too, and readers do not say that they saw those.
fn as_written(column: &ColumnChunkMetaData) -> Result<ColumnChunkMetaData> {
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
    column.clone().into_builder().set_statistics(bounds).build().map_err(failed)
}

/// A file from which the decoder reads.
struct Reading<'a> {
    blob: &'a Blob,
    path: &'a str,
    size: u64,
}

impl Length for Reading<'_> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Reading<'_> {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Cursor<Bytes>> {
        self.get_bytes(start, self.size.saturating_sub(start) as usize).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let read = self.blob.read(self.path, start..start + length as u64);
        read.map_err(|fault| ParquetError::External(Box::new(fault)))
    }
}
