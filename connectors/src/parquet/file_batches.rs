//! The rows of one file outside of any dataset.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{COALESCE_BYTES_DEFAULT, StorageClient};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::ParquetMetaData;

use super::chunks::build_reader;
use super::fetch::{CachedFile, PageSource, RowGroupReads, column_ranges};
use super::footer::{Footer, FooterCache, OpenedFile};
use crate::files::blob::FileHandle;

/// An open file.
pub(crate) struct FileBatches {
    io: StorageClient,
    path: String,
    blob: FileHandle,
    footer: Arc<Footer>,
}

impl FileBatches {
    /// Opens a file of known size.
    pub(crate) fn open(
        io: &StorageClient,
        footers: &FooterCache,
        path: &str,
        size: u64,
    ) -> Result<FileBatches> {
        let OpenedFile { blob, footer } = footers.open_logged(io, path, size)?;
        Ok(FileBatches {
            io: io.clone(),
            path: path.to_owned(),
            blob,
            footer,
        })
    }

    pub(crate) fn metadata(&self) -> Arc<ParquetMetaData> {
        self.footer.metadata.clone()
    }

    /// Its rows, in order; `mask` selects columns. One row group is in memory at a time.
    pub(crate) fn rows(
        self,
        layout: ArrowReaderMetadata,
        mask: Option<ProjectionMask>,
        batch_rows: usize,
    ) -> impl Iterator<Item = Result<RecordBatch>> + Send {
        let mask = mask.unwrap_or_else(ProjectionMask::all);
        let stored = self.footer.metadata.file_metadata().schema_descr();
        let leaves: Vec<usize> = (0..stored.num_columns())
            .filter(|leaf| mask.leaf_included(*leaf))
            .collect();
        let groups = self.footer.metadata.num_row_groups();
        let size = self.footer.stamp.size;
        let content = CachedFile {
            io: self.io.clone(),
            id: ContentId::of(self.path.as_bytes()),
        };
        let mut reads = match &self.blob {
            FileHandle::Remote(_, place, etag) => {
                let ranges =
                    |group: usize| column_ranges(self.footer.metadata.row_group(group), &leaves);
                let ranges = (0..groups).map(ranges);
                Some(RowGroupReads::start(
                    content,
                    place,
                    etag.as_deref(),
                    ranges,
                    COALESCE_BYTES_DEFAULT,
                ))
            }
            FileHandle::Local(_) => None,
        };
        let open = move |group: usize| -> Result<_> {
            let pages = match (&self.blob, &mut reads) {
                (FileHandle::Local(file), _) => PageSource::Local(file.clone(), size, None),
                (_, Some(reads)) => reads.next_group(size)?,
                (FileHandle::Remote(..), None) => {
                    return Err(Fault::internal("a remote file without reads"));
                }
            };
            let path = self.path.clone();
            let failed = move |error: arrow::error::ArrowError| {
                let fault =
                    Fault::new(codes::CORRUPT, "the row group cannot be decoded").file(&path);
                fault.row_group(group).cause(error)
            };
            let reader = build_reader(pages, layout.clone(), mask.clone(), group, None, batch_rows);
            Ok(reader
                .map_err(&failed)?
                .map(move |batch| batch.map_err(&failed)))
        };
        (0..groups).map(open).flat_map(
            |rows| -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
                match rows {
                    Ok(rows) => Box::new(rows),
                    Err(fault) => Box::new(std::iter::once(Err(fault))),
                }
            },
        )
    }
}
