//! Rows of a table that are written again, to other files.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay_commit::{OutputFile, OutputWriter, table_shard_directory};
use forebay_contract::{ScanRequest, Sink, SinkFormat, Source, TableFile};
use forebay_model::{
    Dataset, Fault, FileRange, IdBuilder, Result, Span, encode_path_part, plain_batch,
};
use forebay_storage::{ScratchDir, StorageClient};

use crate::config::DeltaSource;
use crate::place::TablePlace;
use crate::source::DeltaReader;

use super::config::DeltaSink;
use super::schema::WrittenColumns;

/// Bytes of rows that all writers of a rewrite hold together until they are encoded.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// Files of one version of a table whose rows are written again.
pub(super) struct RewrittenFiles<'a> {
    io: &'a StorageClient,
    config: &'a DeltaSink,
    scratch: &'a ScratchDir,
    source: DeltaReader,
    dataset: Dataset,
    sink: Arc<dyn Sink>,
    /// The columns of the table.
    pub(super) columns: WrittenColumns,
}

impl<'a> RewrittenFiles<'a> {
    /// Opens some files of a version by their paths below the table.
    pub(super) fn open(
        io: &'a StorageClient,
        config: &'a DeltaSink,
        version: u64,
        files: BTreeSet<String>,
        scratch: &'a ScratchDir,
    ) -> Result<Self> {
        let source = DeltaReader::of_files(
            DeltaSource::at(config.path.as_str()).version(version),
            files,
        );
        let dataset = source.discover(io, &[])?;
        let columns = WrittenColumns::new(&dataset.schema, &config.partition_by)?;
        Ok(RewrittenFiles {
            io,
            config,
            scratch,
            source,
            dataset,
            sink: config.clone().sink(),
            columns,
        })
    }

    /// The pieces of a file, in row order.
    pub(super) fn pieces(&self, file: &str) -> Result<Vec<FileRange>> {
        let pieces = self.dataset.spans.iter().flat_map(|span| &span.pieces);
        let pieces: Vec<FileRange> = pieces
            .filter(|piece| piece.relative == file)
            .cloned()
            .collect();
        if pieces.is_empty() {
            Err(Fault::internal(format!(
                "`{file}`, a file of a table that its source does not find"
            )))
        } else {
            Ok(pieces)
        }
    }

    /// The rows of a piece, with the columns that files of the table have.
    pub(super) fn rows(
        &self,
        piece: FileRange,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let schema: SchemaRef = Arc::new(self.columns.file_schema());
        let names = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let request = ScanRequest::of_columns(names, &self.dataset.schema);
        let chunks = self.source.open(
            self.io,
            &Span {
                pieces: vec![piece],
            },
            &request,
        )?;
        Ok(chunks.map(move |chunk| plain_batch(&schema, &chunk?.batch)))
    }

    /// Begins to write rows of some files, as one of `writers` concurrent writers. `label`
    /// distinguishes writers of the same files.
    pub(super) fn writer<'s>(
        &'s self,
        files: &BTreeSet<String>,
        label: &str,
        writers: usize,
    ) -> Result<RowsWriter<'s>> {
        let mut id = IdBuilder::new(label);
        for file in files.iter() {
            id.text(file);
        }
        let schema: SchemaRef = Arc::new(self.columns.file_schema());
        let out = TablePlace::new(self.io, &self.config.path)?.root;
        let directory = table_shard_directory(id.finish())?;
        let files = OutputWriter::begin(
            self.io,
            self.sink.as_ref(),
            schema.clone(),
            &out,
            directory,
            self.scratch,
        )?;
        let rows_max = self.config.group_rows_max;
        let bytes_max = GROUP_BYTES_MAX / writers;
        Ok(RowsWriter {
            files,
            sink: self.sink.as_ref(),
            schema,
            rows_max,
            bytes_max,
            waiting: Vec::new(),
            rows: 0,
            bytes: 0,
        })
    }
}

/// The folder of a piece's partition values.
pub(super) fn partition_folder(piece: &FileRange) -> String {
    let folder = |(column, value): &(String, String)| {
        format!("{}={}", encode_path_part(column), encode_path_part(value))
    };
    piece
        .partition
        .iter()
        .map(folder)
        .collect::<Vec<_>>()
        .join("/")
}

/// Files in the form of a commit.
pub(super) fn table_files(files: &[OutputFile]) -> Vec<TableFile<'_>> {
    files
        .iter()
        .map(|file| TableFile {
            path: &file.path,
            rows: file.rows,
            bytes: file.bytes,
        })
        .collect()
}

/// True if files that are about to be committed still exist: a collection by another state
/// directory does not know them until then.
pub(super) fn are_whole(
    io: &StorageClient,
    table_place: &TablePlace,
    files: &[OutputFile],
) -> Result<bool> {
    let sizes = io.sizes(
        files
            .iter()
            .map(|file| table_place.root.join(&file.path))
            .collect(),
    )?;
    Ok(sizes.len() == files.len()
        && sizes
            .iter()
            .zip(files)
            .all(|(size, file)| *size == Some(file.bytes)))
}

/// Writes rows to files of a table, a row group at a time.
pub(super) struct RowsWriter<'a> {
    files: OutputWriter<'a>,
    sink: &'a dyn Sink,
    schema: SchemaRef,
    rows_max: usize,
    bytes_max: usize,
    waiting: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl RowsWriter<'_> {
    /// Adds rows to the file of a partition. Those of other partitions must be flushed.
    pub(super) fn push(&mut self, folder: &str, rows: RecordBatch) -> Result<()> {
        // Some rows always wait, so that the end of a file finds some to end it with.
        if self.rows >= self.rows_max || self.bytes >= self.bytes_max {
            self.flush(folder, false)?;
        }
        self.rows += rows.num_rows();
        self.bytes += rows.get_array_memory_size();
        self.waiting.push(rows);
        Ok(())
    }

    /// Encodes the rows that wait.
    pub(super) fn flush(&mut self, folder: &str, ends_file: bool) -> Result<()> {
        if !self.waiting.is_empty() {
            let encoded = self
                .sink
                .encode(&self.schema, &std::mem::take(&mut self.waiting))?;
            self.files.append(folder, encoded, ends_file)?;
            (self.rows, self.bytes) = (0, 0);
        }
        Ok(())
    }

    /// Ends all files.
    pub(super) fn finish(self) -> Result<Vec<OutputFile>> {
        self.files.finish(false)
    }
}
