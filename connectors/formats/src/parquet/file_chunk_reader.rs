//! A file from which Parquet's decoder reads.

use std::io::Cursor;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::files::blob::FileHandle;

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
        self.get_bytes(start, self.size.saturating_sub(start) as usize)
            .map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start
            .checked_add(length as u64)
            .is_none_or(|end| end > self.size)
        {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} lie beyond the end of the file"
            )));
        }
        let read = self.blob.read(self.path, start..start + length as u64);
        read.map_err(|fault| ParquetError::External(Box::new(fault)))
    }
}
