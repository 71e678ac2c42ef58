//! Formats that are read file by file, from front to back: what they share.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use forebay_model::{Chunk, Dataset, Fault, FileRange, Result, RowKeys, Span};
use forebay_storage::{ChunkIterator, ScanRequest, Source, StorageClient};

use super::blob::{self, FileHandle, READ_BYTES_FIRST};
use super::cut::cut_spans;
use super::extent;
use super::list::{ListedFile, list_files};
use super::origin::{self, FileColumnOrigin};
use super::stamp::FileStamp;
use super::survey::inspect_parallel;
use super::{PartitionPolicy, hive};

/// Batches of one file in row order; every wanted column that the file has is in them.
pub(crate) type BatchIterator = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// An open file.
pub(crate) struct InputFile {
    pub(crate) blob: FileHandle,
    pub(crate) path: Arc<str>,
    pub(crate) size: u64,
}

/// A configured format.
pub(crate) trait RowFormat: Debug + Send + Sync + 'static {
    /// Where its files are.
    fn paths(&self) -> Vec<&str>;

    /// How their names end.
    fn endings(&self) -> &'static [&'static str];

    /// Whether folders give columns.
    fn partitions(&self) -> PartitionPolicy;

    /// Something besides the files that changes what their rows are.
    fn fingerprint_salt(&self) -> Option<String> {
        None
    }

    /// The columns of all files.
    fn fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields>;

    /// The names of the file's columns, and its rows: those of `wanted` that the file has, with
    /// at most `batch_rows` per batch.
    fn open_rows(
        &self,
        file: &InputFile,
        wanted: &[FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)>;
}

/// A source that reads a [`RowFormat`].
#[derive(Debug)]
pub(crate) struct RowSource<F> {
    format: Arc<F>,
    versions: Arc<ListedVersions>,
}

/// The stamps and etags of listed objects by their paths: reads of an etag fail where another one is there, so that
/// nothing is asked of the store before they are read.
type ListedVersions = Mutex<HashMap<String, (FileStamp, String)>>;

impl<F: RowFormat> RowSource<F> {
    pub(crate) fn new(format: F) -> Self {
        RowSource { format: Arc::new(format), versions: Arc::default() }
    }
}

/// Opens a file that was listed a moment ago.
pub(crate) fn open(io: &StorageClient, file: &ListedFile) -> Result<InputFile> {
    let (blob, stamp) = match &file.etag {
        Some(etag) => (blob::open_version(io, &file.path, etag)?, file.stamp.clone()),
        None => blob::open_file(io, &file.path)?,
    };
    Ok(InputFile { blob, path: file.path.as_str().into(), size: stamp.size })
}

fn whole_file_piece(format: &impl RowFormat, file: ListedFile) -> FileRange {
    let partition = match format.partitions() {
        PartitionPolicy::Auto => hive::partition_values(&file.relative),
        PartitionPolicy::None => Vec::new(),
    };
    FileRange {
        fingerprint: file.stamp.fingerprint(&file.relative, &with_salt(format, &partition), None),
        bytes: file.stamp.size,
        path: file.path,
        relative: file.relative,
        row_groups: None,
        row_range: None,
        first_row: 0,
        rows: None,
        partition,
        extents: Vec::new(),
    }
}

fn with_salt(format: &impl RowFormat, partition: &[(String, String)]) -> Vec<(String, String)> {
    let salt = format.fingerprint_salt().map(|salt| (String::new(), salt));
    partition.iter().cloned().chain(salt).collect()
}

impl<F: RowFormat> Source for RowSource<F> {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        let files = list_files(io, &self.format.paths(), self.format.endings())?;
        // Some stores tell less of an object in listings than when asked for it alone, and spans
        // are opened one by one: the stamps must be of that kind.
        let files = inspect_parallel(&files, |file| match file.path.contains("://") && file.etag.is_none() {
            true => Ok(ListedFile { stamp: blob::open_file(io, &file.path)?.1, ..file.clone() }),
            false => Ok(file.clone()),
        })?;
        let fields = self.format.fields(io, &files)?;
        let version = |file: &ListedFile| Some((file.path.clone(), (file.stamp.clone(), file.etag.clone()?)));
        if let Ok(mut versions) = self.versions.lock() {
            *versions = files.iter().filter_map(version).collect();
        }
        let mut pieces: Vec<FileRange> =
            files.into_iter().map(|file| whole_file_piece(self.format.as_ref(), file)).collect();
        let places: Vec<_> = pieces.iter().map(|piece| (piece.path.as_str(), piece.partition.as_slice())).collect();
        let partitions = hive::partition_fields(&places)?;
        let in_files = fields.iter().filter(|field| !partitions.iter().any(|of| of.name() == field.name())).cloned();
        let schema: SchemaRef = Arc::new(Schema::new(in_files.chain(partitions.iter().cloned()).collect::<Vec<_>>()));
        for piece in &mut pieces {
            piece.extents = extent::folder_extents(piece, watch, &partitions);
        }
        let spans = cut_spans(pieces.into_iter().map(|piece| (piece, Vec::new())))?;
        Ok(Dataset { schema, spans, column_bytes: None, watched: watch.to_vec(), version: None })
    }

    fn open(&self, io: &StorageClient, span: &Span, request: &ScanRequest) -> Result<ChunkIterator> {
        Ok(Box::new(RowScan {
            format: self.format.clone(),
            versions: self.versions.clone(),
            io: io.clone(),
            request: request.clone(),
            pieces: span.pieces.clone().into(),
            open: None,
        }))
    }
}

struct RowScan<F> {
    format: Arc<F>,
    versions: Arc<ListedVersions>,
    io: StorageClient,
    request: ScanRequest,
    pieces: VecDeque<FileRange>,
    open: Option<RowPieceScan>,
}

struct RowPieceScan {
    blob: FileHandle,
    stamp: FileStamp,
    file: Arc<str>,
    seed: u64,
    next_row: u64,
    columns: Vec<(FieldRef, FileColumnOrigin)>,
    batches: BatchIterator,
}

impl<F: RowFormat> RowScan<F> {
    fn open_piece(&self, piece: FileRange) -> Result<RowPieceScan> {
        let partition = with_salt(self.format.as_ref(), &piece.partition);
        let is_it = |stamp: &FileStamp| stamp.fingerprint(&piece.relative, &partition, None) == piece.fingerprint;
        let listed = self.versions.lock().ok().and_then(|versions| versions.get(&piece.path).cloned());
        let (blob, stamp) = match listed.filter(|(stamp, _)| is_it(stamp)) {
            Some((stamp, etag)) => (blob::open_version(&self.io, &piece.path, &etag)?, stamp),
            None => blob::open_file(&self.io, &piece.path)?,
        };
        if !is_it(&stamp) {
            return Err(blob::changed_fault(&piece.path));
        }
        let file = InputFile { blob: blob.clone(), path: piece.path.as_str().into(), size: stamp.size };
        let possible = origin::resolve_columns(&piece, &self.request, |_| true)?;
        let wanted: Vec<FieldRef> = possible
            .iter()
            .filter(|(_, origin)| matches!(origin, FileColumnOrigin::File))
            .map(|(field, _)| field.clone())
            .collect();
        let (names, batches) = self.format.open_rows(&file, &wanted, self.request.batch_rows.max(1))?;
        let columns = origin::resolve_columns(&piece, &self.request, |name| names.iter().any(|known| known == name))?;
        Ok(RowPieceScan {
            blob,
            stamp,
            file: file.path,
            seed: RowKeys::file_seed(&piece.relative),
            next_row: 0,
            columns,
            batches,
        })
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        loop {
            if let Some(piece) = &mut self.open {
                if let Some(batch) = piece.batches.next() {
                    let batch = batch.map_err(|fault| piece.blob.explain_fault(&piece.file, &piece.stamp, fault))?;
                    return piece.chunk(batch, self.request.row_keys).map(Some);
                }
                // A small object came in one piece, and that cannot be half of two versions.
                if !matches!(piece.blob, FileHandle::Remote(..)) || piece.stamp.size > READ_BYTES_FIRST {
                    piece.blob.check_unchanged(&piece.file, &piece.stamp)?;
                }
                self.open = None;
            }
            match self.pieces.pop_front() {
                Some(piece) => self.open = Some(self.open_piece(piece)?),
                None => return Ok(None),
            }
        }
    }
}

impl RowPieceScan {
    fn chunk(&mut self, batch: RecordBatch, row_keys: bool) -> Result<Chunk> {
        let rows = batch.num_rows();
        let missing = |name: &str| Fault::internal(format!("the reader left out the column `{name}`"));
        let batch = origin::assemble_batch(&self.columns, rows, |_, field| {
            batch.column_by_name(field.name()).cloned().ok_or_else(|| missing(field.name()))
        })?;
        let first_row = self.next_row;
        self.next_row += rows as u64;
        let keys = row_keys.then(|| RowKeys::sequence(self.seed, first_row, rows));
        Ok(Chunk { batch, keys, file: self.file.clone(), first_row, skipped: 0 })
    }
}

impl<F: RowFormat> Iterator for RowScan<F> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Result<Chunk>> {
        let result = self.next_chunk();
        if result.is_err() {
            self.open = None;
            self.pieces.clear();
        }
        result.transpose()
    }
}
