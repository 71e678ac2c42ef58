//! The rows of one file outside of any dataset.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::TimeUnit;
use arrow::error::ArrowError;
use bytes::Bytes;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{COALESCE_BYTES_DEFAULT, StorageClient};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::ParquetMetaData;

use super::fetch::{CachedFile, PageSource, RowGroupReads, column_ranges};
use super::footer::{Footer, FooterCache, OpenedFile, load_footer};
use super::group_decoder::build_reader;
use super::page_gate::{GatedPages, PageGate};
use crate::files::blob::FileHandle;
use crate::files::stamp::FileStamp;
use crate::guard::catch_decode_panic;

/// An open file.
pub struct FileBatches {
    io: StorageClient,
    path: String,
    blob: FileHandle,
    footer: Arc<Footer>,
}

impl FileBatches {
    /// Opens a file of known size.
    pub fn open(
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

    /// Opens a file that came in a request.
    pub(crate) fn of_request(io: &StorageClient, path: &str, bytes: Bytes) -> Result<FileBatches> {
        let blob = FileHandle::Memory(bytes.clone());
        let stamp = FileStamp::in_memory(&bytes);
        let footer = load_footer(io, &blob, path, stamp, Some(bytes), TimeUnit::Microsecond)?;
        Ok(FileBatches {
            io: io.clone(),
            path: path.to_owned(),
            blob,
            footer: Arc::new(footer),
        })
    }

    /// The metadata of its footer.
    pub fn metadata(&self) -> Arc<ParquetMetaData> {
        self.footer.metadata.clone()
    }

    /// The rows of the file, in order; `mask` selects columns. One row group is in memory at a
    /// time.
    pub fn rows(
        self,
        layout: ArrowReaderMetadata,
        mask: Option<ProjectionMask>,
        batch_rows: usize,
    ) -> impl Iterator<Item = Result<RecordBatch>> + Send {
        let mask = mask.unwrap_or_else(ProjectionMask::all);
        let mut reads = self.begin_reads(&mask);
        let groups = 0..self.footer.metadata.num_row_groups();
        groups.flat_map(
            move |group| -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
                let layout = layout.clone();
                match self.group_rows(group, reads.as_mut(), layout, mask.clone(), batch_rows) {
                    Ok(rows) => Box::new(rows),
                    Err(fault) => Box::new(std::iter::once(Err(fault))),
                }
            },
        )
    }

    /// Begins to read the selected columns of all row groups of a remote file.
    fn begin_reads(&self, mask: &ProjectionMask) -> Option<RowGroupReads> {
        let FileHandle::Remote(_, location, etag) = &self.blob else {
            return None;
        };
        let metadata = &self.footer.metadata;
        let leaves = metadata.file_metadata().schema_descr().num_columns();
        let leaves: Vec<usize> = (0..leaves)
            .filter(|leaf| mask.leaf_included(*leaf))
            .collect();
        let content = CachedFile {
            io: self.io.clone(),
            id: ContentId::of(self.path.as_bytes()),
        };
        let groups = metadata.row_groups().iter();
        Some(RowGroupReads::start(
            content,
            location,
            etag.as_deref(),
            groups.map(|group| column_ranges(group, &leaves)),
            COALESCE_BYTES_DEFAULT,
        ))
    }

    fn group_rows(
        &self,
        group: usize,
        reads: Option<&mut RowGroupReads>,
        layout: ArrowReaderMetadata,
        mask: ProjectionMask,
        batch_rows: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let size = self.footer.stamp.size;
        let pages = match (&self.blob, reads) {
            (FileHandle::Local(file), _) => PageSource::Local(file.clone(), size, None),
            (FileHandle::Memory(bytes), _) => PageSource::of_file(bytes),
            (FileHandle::Remote(..), Some(reads)) => reads.next_group(size)?,
            (FileHandle::Remote(..), None) => {
                return Err(Fault::internal("a remote file without reads"));
            }
        };
        let gate = PageGate::new(
            self.io.read_memory().clone(),
            self.footer.metadata.row_group(group),
        );
        let pages = GatedPages::new(pages, gate.clone(), false);
        let path = self.path.clone();
        let failed = move |gate: &PageGate, error: ArrowError| {
            // A page that the gate refused is no broken one.
            let fault = match gate.take_refusal() {
                Some(refusal) => refusal.fault(),
                None => Fault::new(codes::CORRUPT, "the row group cannot be decoded").cause(error),
            };
            fault.file(&path).row_group(group)
        };
        let mut reader = build_reader(pages, layout, mask, group, None, batch_rows)
            .map_err(|error| failed(&gate, error))?;
        let next_batch = move || {
            let batch = catch_decode_panic(|| reader.next().transpose());
            gate.settle();
            batch.map_err(|error| failed(&gate, error)).transpose()
        };
        Ok(std::iter::from_fn(next_batch))
    }
}
