//! Formats that are read file by file, from front to back: what they share.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use forebay_model::{Chunk, Dataset, Fault, Piece, Result, RowKeys, Span};
use forebay_storage::{Chunks, Io, ScanRequest, Source};

use super::blob::{self, Blob, READ_BYTES_FIRST};
use super::cut::cut;
use super::extent;
use super::list::{Listed, list};
use super::origin::{self, Origin};
use super::stamp::Stamp;
use super::survey::survey;
use super::{Partitions, hive};

/// Batches of one file in row order; every wanted column that the file has is in them.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) blob: Blob,
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
    fn partitions(&self) -> Partitions;

    /// Something besides the files that changes what their rows are.
    fn salt(&self) -> Option<String> {
        None
    }

    /// The columns of all files.
    fn fields(&self, io: &Io, files: &[Listed]) -> Result<Fields>;

    /// The names of the file's columns, and its rows: those of `wanted` that the file has, with
    /// at most `batch_rows` per batch.
    fn rows(&self, file: &OpenFile, wanted: &[FieldRef], batch_rows: usize) -> Result<(Vec<String>, Batches)>;
}

/// A source that reads a [`RowFormat`].
#[derive(Debug)]
pub(crate) struct RowSource<F>(Arc<F>);

impl<F: RowFormat> RowSource<F> {
    pub(crate) fn new(format: F) -> Self {
        RowSource(Arc::new(format))
    }
}

/// Opens a file that was listed a moment ago.
pub(crate) fn open(io: &Io, path: &str) -> Result<OpenFile> {
    let (blob, stamp) = blob::open(io, path)?;
    Ok(OpenFile { blob, path: path.into(), size: stamp.size })
}

fn piece(format: &impl RowFormat, file: Listed) -> Piece {
    let partition = match format.partitions() {
        Partitions::Auto => hive::partition(&file.relative),
        Partitions::None => Vec::new(),
    };
    Piece {
        fingerprint: file.stamp.fingerprint(&file.relative, &salted(format, &partition), None),
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

fn salted(format: &impl RowFormat, partition: &[(String, String)]) -> Vec<(String, String)> {
    let salt = format.salt().map(|salt| (String::new(), salt));
    partition.iter().cloned().chain(salt).collect()
}

impl<F: RowFormat> Source for RowSource<F> {
    fn discover(&self, io: &Io, watch: &[String]) -> Result<Dataset> {
        let files = list(io, &self.0.paths(), self.0.endings())?;
        // Some stores tell less of an object in listings than when asked for it alone, and spans
        // are opened one by one: the stamps must be of that kind.
        let files = survey(&files, |file| match file.path.contains("://") {
            true => Ok(Listed { stamp: blob::open(io, &file.path)?.1, ..file.clone() }),
            false => Ok(file.clone()),
        })?;
        let fields = self.0.fields(io, &files)?;
        let mut pieces: Vec<Piece> = files.into_iter().map(|file| piece(self.0.as_ref(), file)).collect();
        let places: Vec<_> = pieces.iter().map(|piece| (piece.path.as_str(), piece.partition.as_slice())).collect();
        let partitions = hive::fields(&places)?;
        let in_files = fields.iter().filter(|field| !partitions.iter().any(|of| of.name() == field.name())).cloned();
        let schema: SchemaRef = Arc::new(Schema::new(in_files.chain(partitions.iter().cloned()).collect::<Vec<_>>()));
        for piece in &mut pieces {
            piece.extents = extent::of_folders(piece, watch, &partitions);
        }
        let spans = cut(pieces.into_iter().map(|piece| (piece, Vec::new())))?;
        Ok(Dataset { schema, spans, column_bytes: None, watched: watch.to_vec() })
    }

    fn open(&self, io: &Io, span: &Span, request: &ScanRequest) -> Result<Chunks> {
        Ok(Box::new(RowScan {
            format: self.0.clone(),
            io: io.clone(),
            request: request.clone(),
            pieces: span.pieces.clone().into(),
            open: None,
        }))
    }
}

struct RowScan<F> {
    format: Arc<F>,
    io: Io,
    request: ScanRequest,
    pieces: VecDeque<Piece>,
    open: Option<OpenPiece>,
}

struct OpenPiece {
    blob: Blob,
    stamp: Stamp,
    file: Arc<str>,
    seed: u64,
    next_row: u64,
    columns: Vec<(FieldRef, Origin)>,
    batches: Batches,
}

impl<F: RowFormat> RowScan<F> {
    fn open_piece(&self, piece: Piece) -> Result<OpenPiece> {
        let (blob, stamp) = blob::open(&self.io, &piece.path)?;
        let partition = salted(self.format.as_ref(), &piece.partition);
        if stamp.fingerprint(&piece.relative, &partition, None) != piece.fingerprint {
            return Err(blob::changed(&piece.path));
        }
        let file = OpenFile { blob: blob.clone(), path: piece.path.as_str().into(), size: stamp.size };
        let possible = origin::resolve(&piece, &self.request, |_| true)?;
        let wanted: Vec<FieldRef> = possible
            .iter()
            .filter(|(_, origin)| matches!(origin, Origin::File))
            .map(|(field, _)| field.clone())
            .collect();
        let (names, batches) = self.format.rows(&file, &wanted, self.request.batch_rows.max(1))?;
        let columns = origin::resolve(&piece, &self.request, |name| names.iter().any(|known| known == name))?;
        Ok(OpenPiece {
            blob,
            stamp,
            file: file.path,
            seed: RowKeys::file_seed(&piece.relative),
            next_row: 0,
            columns,
            batches,
        })
    }

    fn step(&mut self) -> Result<Option<Chunk>> {
        loop {
            if let Some(piece) = &mut self.open {
                if let Some(batch) = piece.batches.next() {
                    let batch = batch.map_err(|fault| piece.blob.explained(&piece.file, &piece.stamp, fault))?;
                    return piece.chunk(batch, self.request.row_keys).map(Some);
                }
                // A small object came in one piece, and that cannot be half of two versions.
                if !matches!(piece.blob, Blob::Remote(..)) || piece.stamp.size > READ_BYTES_FIRST {
                    piece.blob.unchanged(&piece.file, &piece.stamp)?;
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

impl OpenPiece {
    fn chunk(&mut self, batch: RecordBatch, row_keys: bool) -> Result<Chunk> {
        let rows = batch.num_rows();
        let missing = |name: &str| Fault::internal(format!("the reader left out the column `{name}`"));
        let batch = origin::assemble(&self.columns, rows, |_, field| {
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
        let result = self.step();
        if result.is_err() {
            self.open = None;
            self.pieces.clear();
        }
        result.transpose()
    }
}
