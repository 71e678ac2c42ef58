//! The traits of connectors: sources yield the chunks of spans, sinks encode and write them.

use std::fmt::Debug;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Expr;
use forebay_model::{BATCH_ROWS_DEFAULT, Chunk, Dataset, Result, Span};
use forebay_storage::{MetadataCache, StorageClient};

use crate::table_log::TableLog;

/// A path as sources read it, without any wildcard: characters that would be some stand in brackets.
pub fn literal_path(path: &str) -> String {
    let mut literal = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '*' | '?' | '[' => literal.extend(['[', c, ']']),
            other => literal.push(other),
        }
    }
    literal
}

/// Path in a file system of a pattern without wildcards; `None` if it has one.
pub fn plain_path(path: &str) -> Option<String> {
    let mut plain = String::with_capacity(path.len());
    let mut remaining = path;
    while let Some(c) = remaining.chars().next() {
        let (c, length) = match remaining.as_bytes() {
            [b'[', escaped @ (b'*' | b'?' | b'['), b']', ..] => (char::from(*escaped), 3),
            [b'*' | b'?', ..] => return None,
            _ => (c, c.len_utf8()),
        };
        plain.push(c);
        remaining = &remaining[length..];
    }
    Some(plain)
}

/// Columns, conditions and form of the rows to read from a span.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Columns, in the order in which chunks must hold them. May be empty: then only the number
    /// of rows counts.
    pub columns: Vec<String>,
    /// The dataset's schema (logical types).
    pub schema: SchemaRef,
    /// Conditions that all rows that matter satisfy: rows that cannot satisfy them may be left
    /// out, others may be given all the same. Column names are the dataset's.
    pub pruning: Vec<Expr>,
    /// Rows per chunk at most.
    pub batch_rows: usize,
    /// True if chunks must carry row keys.
    pub row_keys: bool,
}

impl ScanRequest {
    /// Some columns of all rows.
    pub fn of_columns(columns: Vec<String>, schema: &SchemaRef) -> ScanRequest {
        let pruning = Vec::new();
        let batch_rows = BATCH_ROWS_DEFAULT;
        let row_keys = false;
        ScanRequest {
            columns,
            schema: schema.clone(),
            pruning,
            batch_rows,
            row_keys,
        }
    }

    /// Request for all columns of all rows.
    pub fn of_all_columns(schema: &SchemaRef) -> ScanRequest {
        ScanRequest::of_columns(
            schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect(),
            schema,
        )
    }
}

/// Pieces of few rows, for readers that take rows in random order.
#[derive(Debug, Clone, Copy)]
pub struct RowRuns<'a> {
    /// Rows of a piece at most.
    pub rows_max: u64,
    /// The columns that will be read.
    pub columns: &'a [String],
}

/// Chunks of one span in row order.
pub type ChunkIterator = Box<dyn Iterator<Item = Result<Chunk>> + Send>;

/// A format's reader, configured. Calls block; the run calls them from its own threads.
pub trait Source: Debug + Send + Sync {
    /// Finds the files, compares all their schemas, and cuts them into spans. Reads no data, only
    /// metadata (and, for formats without metadata, a sample when no schema was declared). The
    /// dataset has the extents of `watched_columns`, where metadata or folders record them;
    /// columns that it does not have are ignored.
    fn discover(&self, io: &StorageClient, watched_columns: &[String]) -> Result<Dataset>;

    /// Like `discover`, but reads only files that have changed since `notes` were made, and notes
    /// its results. For formats in which inspecting a file costs something.
    fn discover_with_cache(
        &self,
        io: &StorageClient,
        watched_columns: &[String],
        notes: &MetadataCache,
    ) -> Result<Dataset> {
        let _ = notes;
        self.discover(io, watched_columns)
    }

    /// Reads a span. A column may come in any layout of its logical type, and as nulls where the
    /// file does not have it and the policy allows that. Faults name the file and, where known,
    /// row group, column and rows.
    fn open(&self, io: &StorageClient, span: &Span, request: &ScanRequest)
    -> Result<ChunkIterator>;

    /// Files, folders and patterns that it reads, as its configuration names them: no output may lie
    /// there.
    fn paths(&self) -> Vec<String> {
        Vec::new()
    }

    /// Cuts spans into the smallest ones that can be read apart without reading anything twice, in
    /// order. Formats that know such pieces (row groups) say so. With `runs`, larger pieces are divided further where
    /// a reader can skip to a row: their pages may be read more than once.
    fn split_spans(
        &self,
        io: &StorageClient,
        spans: &[Span],
        runs: Option<RowRuns>,
    ) -> Result<Vec<Span>> {
        let _ = (io, runs);
        let pieces = spans.iter().flat_map(|span| &span.pieces);
        Ok(pieces
            .map(|piece| Span {
                pieces: vec![piece.clone()],
            })
            .collect())
    }
}

/// A source that gives the rows of another one in another way. What it does not change is that of the inner source.
pub trait SourceWrapper: Debug + Send + Sync {
    /// The source whose rows it gives.
    fn inner(&self) -> &dyn Source;

    /// The dataset of its rows, from that of the inner source.
    fn wrap_dataset(&self, dataset: Dataset) -> Result<Dataset> {
        Ok(dataset)
    }

    /// Reads a span; see [`Source::open`].
    fn open_span(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator>;
}

impl<W: SourceWrapper> Source for W {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        self.wrap_dataset(self.inner().discover(io, watch)?)
    }

    fn discover_with_cache(
        &self,
        io: &StorageClient,
        watch: &[String],
        notes: &MetadataCache,
    ) -> Result<Dataset> {
        self.wrap_dataset(self.inner().discover_with_cache(io, watch, notes)?)
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        self.open_span(io, span, request)
    }

    fn paths(&self) -> Vec<String> {
        self.inner().paths()
    }

    fn split_spans(
        &self,
        io: &StorageClient,
        spans: &[Span],
        runs: Option<RowRuns>,
    ) -> Result<Vec<Span>> {
        self.inner().split_spans(io, spans, runs)
    }
}

/// A format's writer, configured. The run commits; the sink only knows bytes.
pub trait Sink: Debug + Send + Sync {
    /// The directory or URL that the output goes to.
    fn path(&self) -> &str;

    /// File name ending, such as `parquet`.
    fn extension(&self) -> &'static str;

    /// Distribution of rows over files.
    fn layout(&self) -> FileLayout;

    /// The log of the table that the output is, where it is one.
    fn table(&self) -> Option<&dyn TableLog> {
        None
    }

    /// Refuses columns that the format cannot hold, before any row is computed.
    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        let _ = schema;
        Ok(())
    }

    /// Into how many pieces rows are encoded, such as columns.
    fn pieces(&self, schema: &SchemaRef) -> usize {
        let _ = schema;
        1
    }

    /// Encodes a piece of some batches apart from any file, so that threads can encode at the same time.
    /// Columns have the types of the schema, strings also as dictionaries. All batches of one call become
    /// neighbours in one file.
    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        piece: usize,
    ) -> Result<EncodedPiece>;

    /// Encodes all pieces of some batches.
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<EncodedBatch> {
        let pieces =
            (0..self.pieces(schema)).map(|piece| self.encode_piece(schema, batches, piece));
        Ok(EncodedBatch {
            pieces: pieces.collect::<Result<_>>()?,
            rows: total_rows(batches),
        })
    }

    /// Begins a file that takes encoded parts in order. Equal parts give equal files: nothing in a file names a run, a
    /// time or an id.
    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn std::io::Write + Send>,
    ) -> Result<Box<dyn FileWriter>>;
}

/// Distribution of rows over files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Hive partition columns; they are left out of the files.
    pub partition_by: Vec<String>,
    /// Columns by which rows are sorted inside a file.
    pub sort_by: Vec<String>,
    /// A file is closed when it has reached this size.
    pub file_bytes_target: u64,
    /// Rows that are encoded together (a row group) at most.
    pub group_rows_max: usize,
    /// True if texts are encoded one by one, also those that come as a dictionary.
    pub is_plain: bool,
}

/// A piece of some rows, encoded.
pub struct EncodedPiece {
    /// Encoded rows in a form of the sink's own.
    pub payload: Box<dyn std::any::Any + Send>,
    /// Encoded bytes.
    pub bytes: u64,
}

/// Encoded rows that will be written to a file.
pub struct EncodedBatch {
    /// All pieces of the row groups, in order.
    pub pieces: Vec<EncodedPiece>,
    /// Rows.
    pub rows: u64,
}

impl EncodedBatch {
    /// Encoded bytes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// Total number of rows of some batches.
pub fn total_rows(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

/// A file that takes encoded parts in order.
pub trait FileWriter: Send {
    /// Adds a part.
    fn append(&mut self, part: EncodedBatch) -> Result<()>;

    /// Bytes so far.
    fn bytes(&self) -> u64;

    /// Ends the file: everything has been given to the writer below when this returns.
    fn finish(self: Box<Self>) -> Result<()>;
}
