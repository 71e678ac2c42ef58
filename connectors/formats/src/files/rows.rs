//! Common parts of formats that are read file by file, from front to back.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use forebay_contract::{ChunkIterator, ScanRequest, Source};
use forebay_model::{
    Chunk, Dataset, Fault, FileRange, NameIndex, Result, RowKeys, SPAN_BYTES_TARGET, Span,
    UnfitValues,
};
use forebay_storage::StorageClient;

use super::blob::{self, FileHandle, READ_BYTES_FIRST};
use super::cut::cut_spans;
use super::extent;
use super::input_file::InputFile;
use super::list::{FileListing, FileMarks, ListedFile, list_files};
use super::origin::{self, FileColumnOrigin};
use super::records::{self, RecordIndexes, RecordSyntax};
use super::stamp::FileStamp;
use super::survey::inspect_parallel;
use super::{PartitionPolicy, hive, stream};

/// Batches of one file in row order; every wanted column that the file has is in them.
pub(crate) type BatchIterator = Box<dyn Iterator<Item = Result<FileBatch>> + Send>;

/// Some rows of a file.
pub(crate) struct FileBatch {
    pub(crate) rows: RecordBatch,
    /// Values that were read as null, since they are not of their column's type.
    pub(crate) unfit: Vec<UnfitValues>,
}

impl From<RecordBatch> for FileBatch {
    fn from(rows: RecordBatch) -> Self {
        FileBatch {
            rows,
            unfit: Vec::new(),
        }
    }
}

/// Bytes of a value besides its text, as a part of the copies that are made of records: its ends, its bit of validity, and
/// the number that it may be. The fields of wide rows may be shorter.
pub(crate) const FIELD_BYTES: usize = 5;

/// A configured format.
pub(crate) trait RowFormat: Debug + Send + Sync + 'static {
    /// Paths of its files.
    fn paths(&self) -> Vec<&str>;

    /// The marks by which they are recognised in folders.
    fn marks(&self) -> FileMarks;

    /// Use of folders as columns.
    fn partitions(&self) -> PartitionPolicy;

    /// Syntax of records in a text format, whose large files are divided; `None` for others.
    fn syntax(&self) -> Option<RecordSyntax> {
        None
    }

    /// True if a large file of records may be divided.
    fn may_divide(&self, _file: &InputFile) -> Result<bool> {
        Ok(true)
    }

    /// Records at the beginning of each file that are no rows.
    fn header_records(&self) -> u64 {
        0
    }

    /// Property of the format, besides the files, that the rows depend on.
    fn fingerprint_salt(&self) -> Option<String> {
        None
    }

    /// The columns of all files.
    fn fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields>;

    /// The names of the file's columns, and its rows with those columns of `requested` that the file
    /// has, with at most `batch_rows` per batch. `schema` is that of the dataset.
    fn open_rows(
        &self,
        file: &InputFile,
        schema: &SchemaRef,
        requested: &[FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)>;
}

/// A source that reads a [`RowFormat`].
#[derive(Debug)]
pub(crate) struct RowSource<F> {
    format: Arc<F>,
    versions: Arc<ListedVersions>,
    records: Arc<RecordIndexes>,
}

/// The stamps and etags of listed objects by their paths: reads of an etag fail if the object has
/// another one, so that no request is needed before they are read.
type ListedVersions = Mutex<HashMap<String, (FileStamp, String)>>;

impl<F: RowFormat> RowSource<F> {
    pub(crate) fn new(format: F) -> Self {
        Self::with_span_bytes(format, SPAN_BYTES_TARGET)
    }

    /// A source whose files are divided into ranges of `span_bytes` bytes.
    fn with_span_bytes(format: F, span_bytes: u64) -> Self {
        let records = Arc::new(RecordIndexes::new(span_bytes));
        RowSource {
            format: Arc::new(format),
            versions: Arc::default(),
            records,
        }
    }

    /// The ranges of bytes that a large file may be divided into; none for a small one, and none for a packed one.
    fn ranges_of(&self, io: &StorageClient, file: &ListedFile) -> Result<Vec<(u64, u64)>> {
        if self.format.syntax().is_none() || !records::is_divisible(&file.path) {
            return Ok(Vec::new());
        }
        let ranges = self.records.byte_ranges(file.stamp.size);
        if ranges.is_empty() {
            return Ok(ranges);
        }
        // The name of a packed file may not say so.
        let opened = open(io, file)?;
        let is_packed = stream::is_packed(&opened.blob, &opened.path, opened.size)?;
        if is_packed || !self.format.may_divide(&opened)? {
            return Ok(Vec::new());
        }
        Ok(ranges)
    }

    /// The ranges of bytes of a large file, or all of it.
    fn divide(piece: FileRange, ranges: Vec<(u64, u64)>) -> Vec<FileRange> {
        if ranges.is_empty() {
            return vec![piece];
        }
        let part = |(from, to)| FileRange {
            byte_range: Some((from, to)),
            bytes: to - from,
            ..piece.clone()
        };
        ranges.into_iter().map(part).collect()
    }
}

/// Opens a file that was listed a moment ago.
pub(crate) fn open(io: &StorageClient, file: &ListedFile) -> Result<InputFile> {
    let (blob, stamp) = match &file.etag {
        Some(etag) => (
            blob::open_version(io, &file.path, etag)?,
            file.stamp.clone(),
        ),
        None => blob::open_file(io, &file.path)?,
    };
    Ok(InputFile {
        blob,
        path: file.path.as_str().into(),
        size: stamp.size,
        part: None,
        memory: io.read_memory().clone(),
    })
}

fn whole_file_piece(format: &impl RowFormat, file: ListedFile) -> FileRange {
    let partition = match format.partitions() {
        PartitionPolicy::Auto => hive::partition_values(&file.relative),
        PartitionPolicy::None => Vec::new(),
    };
    FileRange {
        fingerprint: file
            .stamp
            .fingerprint(&file.relative, &with_salt(format, &partition), None),
        bytes: file.stamp.size,
        path: file.path,
        relative: file.relative,
        row_groups: None,
        row_range: None,
        byte_range: None,
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
        let FileListing { files, left_out } =
            list_files(io, &self.format.paths(), &self.format.marks())?;
        // Some stores give fewer facts about an object in listings than in requests for it alone,
        // and spans are opened one by one: the stamps must be of that kind.
        let files = inspect_parallel(&files, |file| {
            if file.path.contains("://") && file.etag.is_none() {
                Ok(ListedFile {
                    stamp: blob::open_file(io, &file.path)?.1,
                    ..file.clone()
                })
            } else {
                Ok(file.clone())
            }
        })?;
        let fields = self.format.fields(io, &files)?;
        let ranges = inspect_parallel(&files, |file| self.ranges_of(io, file))?;
        let version =
            |file: &ListedFile| Some((file.path.clone(), (file.stamp.clone(), file.etag.clone()?)));
        if let Ok(mut versions) = self.versions.lock() {
            *versions = files.iter().filter_map(version).collect();
        }
        let mut pieces: Vec<FileRange> = files
            .into_iter()
            .map(|file| whole_file_piece(self.format.as_ref(), file))
            .collect();
        let folders: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.path.as_str(), piece.partition.as_slice()))
            .collect();
        let partitions = hive::partition_fields(&folders)?;
        let replaced = hive::replaced_columns(&fields, &partitions);
        let in_files = fields
            .iter()
            .filter(|field| !partitions.iter().any(|of| of.name() == field.name()))
            .cloned();
        let schema: SchemaRef = Arc::new(Schema::new(
            in_files
                .chain(partitions.iter().cloned())
                .collect::<Vec<_>>(),
        ));
        for piece in &mut pieces {
            piece.extents = extent::folder_extents(piece, watch, &partitions);
        }
        let pieces = pieces
            .into_iter()
            .zip(ranges)
            .flat_map(|(piece, ranges)| Self::divide(piece, ranges));
        let spans = cut_spans(pieces.map(|piece| (piece, Vec::new())))?;
        Ok(Dataset {
            schema,
            spans,
            column_bytes: None,
            null_counts: Vec::new(),
            watched: watch.to_vec(),
            version: None,
            left_out: left_out.with_columns(replaced),
            files: Vec::new(),
        })
    }

    fn paths(&self) -> Vec<String> {
        let paths = self.format.paths().into_iter();
        paths.map(str::to_owned).collect()
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        Ok(Box::new(RowScan {
            format: self.format.clone(),
            versions: self.versions.clone(),
            records: self.records.clone(),
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
    records: Arc<RecordIndexes>,
    io: StorageClient,
    request: ScanRequest,
    pieces: VecDeque<FileRange>,
    open: Option<RowPieceScan>,
}

struct RowPieceScan {
    blob: FileHandle,
    stamp: FileStamp,
    file: Arc<str>,
    /// Its path below the source's root.
    relative: String,
    seed: u64,
    next_row: u64,
    columns: Vec<(FieldRef, FileColumnOrigin)>,
    batches: BatchIterator,
}

impl<F: RowFormat> RowScan<F> {
    fn open_piece(&self, piece: FileRange) -> Result<RowPieceScan> {
        let partition = with_salt(self.format.as_ref(), &piece.partition);
        let is_it = |stamp: &FileStamp| {
            stamp.fingerprint(&piece.relative, &partition, None) == piece.fingerprint
        };
        let listed = self
            .versions
            .lock()
            .ok()
            .and_then(|versions| versions.get(&piece.path).cloned());
        let (blob, stamp) = match listed.filter(|(stamp, _)| is_it(stamp)) {
            Some((stamp, etag)) => (blob::open_version(&self.io, &piece.path, &etag)?, stamp),
            None => blob::open_file(&self.io, &piece.path)?,
        };
        if !is_it(&stamp) {
            return Err(blob::changed_fault(&piece.path));
        }
        let mut file = InputFile {
            blob: blob.clone(),
            path: piece.path.as_str().into(),
            size: stamp.size,
            part: None,
            memory: self.io.read_memory().clone(),
        };
        if let (Some((from, to)), Some(syntax)) = (piece.byte_range, self.format.syntax()) {
            let part = self.records.part(&piece, from..to, &file, syntax);
            file.part = Some(part.map_err(|fault| blob.explain_fault(&file.path, &stamp, fault))?);
        }
        let next_row = file.first_row(self.format.header_records());
        let possible = origin::resolve_columns(&piece, &self.request, |_| true)?;
        let requested: Vec<FieldRef> = possible
            .iter()
            .filter(|(_, origin)| matches!(origin, FileColumnOrigin::File))
            .map(|(field, _)| field.clone())
            .collect();
        let (names, batches) = self.format.open_rows(
            &file,
            &self.request.schema,
            &requested,
            self.request.batch_rows.max(1),
        )?;
        let names = NameIndex::new(names.iter().map(String::as_str));
        let columns = origin::resolve_columns(&piece, &self.request, |name| names.contains(name))?;
        Ok(RowPieceScan {
            blob,
            stamp,
            file: file.path,
            seed: RowKeys::file_seed(&piece.relative),
            relative: piece.relative,
            next_row,
            columns,
            batches,
        })
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        loop {
            if let Some(piece) = &mut self.open {
                if let Some(batch) = piece.batches.next() {
                    let batch = batch.map_err(|fault| {
                        piece.blob.explain_fault(&piece.file, &piece.stamp, fault)
                    })?;
                    return piece.chunk(batch, self.request.row_keys).map(Some);
                }
                // A small object came in one piece, and that cannot be half of two versions.
                if !matches!(piece.blob, FileHandle::Remote(..))
                    || piece.stamp.size > READ_BYTES_FIRST
                {
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
    fn chunk(&mut self, read: FileBatch, row_keys: bool) -> Result<Chunk> {
        let FileBatch {
            rows: batch,
            mut unfit,
        } = read;
        // Counts are kept with results, which do not depend on where files lie.
        for example in unfit.iter_mut().flat_map(|values| &mut values.examples) {
            example.file.clone_from(&self.relative);
        }
        let rows = batch.num_rows();
        let missing =
            |name: &str| Fault::internal(format!("the reader left out the column `{name}`"));
        let index = NameIndex::of_fields(batch.schema_ref().fields());
        let batch = origin::assemble_batch(&self.columns, rows, |_, field| {
            index
                .get(field.name())
                .map(|position| batch.column(position).clone())
                .ok_or_else(|| missing(field.name()))
        })?;
        let first_row = self.next_row;
        self.next_row += rows as u64;
        let keys = row_keys.then(|| RowKeys::sequence(self.seed, first_row, rows));
        Ok(Chunk {
            batch,
            keys,
            file: self.file.clone(),
            first_row,
            skipped: 0,
            unfit,
        })
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

#[cfg(test)]
mod tests {
    use forebay_model::codes;

    use super::*;
    use crate::{CsvSource, JsonSource};

    /// The rows of all spans one after the other, each with its place in the file and its key; or the fault that ends
    /// them.
    fn read<F: RowFormat>(source: &RowSource<F>) -> (usize, Result<(RecordBatch, Vec<u64>)>) {
        let io = StorageClient::new().unwrap();
        let dataset = source.discover(&io, &[]).unwrap();
        let request = ScanRequest {
            row_keys: true,
            batch_rows: 7,
            ..ScanRequest::of_all_columns(&dataset.schema)
        };
        let mut batches = Vec::new();
        let mut keys = Vec::new();
        let mut next_row = 0;
        // The spans before are read after the ones behind them.
        let mut spans: Vec<_> = dataset.spans.iter().enumerate().rev().collect();
        let mut read = Vec::new();
        for (at, span) in spans.drain(..) {
            match source
                .open(&io, span, &request)
                .unwrap()
                .collect::<Result<Vec<Chunk>>>()
            {
                Ok(chunks) => read.push((at, chunks)),
                Err(fault) => return (dataset.spans.len(), Err(fault)),
            }
        }
        read.sort_by_key(|(at, _)| *at);
        for chunk in read.into_iter().flat_map(|(_, chunks)| chunks) {
            assert_eq!(chunk.first_row, next_row);
            next_row += chunk.batch.num_rows() as u64;
            keys.extend(chunk.keys.unwrap().as_slice());
            batches.push(chunk.batch);
        }
        let schema = batches[0].schema();
        (
            dataset.spans.len(),
            Ok((
                arrow::compute::concat_batches(&schema, &batches).unwrap(),
                keys,
            )),
        )
    }

    /// Text with line ends of all kinds, and some of them in quotes.
    fn csv_text(rows: usize) -> String {
        let mut text = "\u{feff}number,\"a word\",more\r\n".to_owned();
        for row in 0..rows {
            text += &match row % 6 {
                0 => format!("{row},plain,\r\n"),
                1 => format!("{row},\"two\nlines\",\"a \"\"quote\"\"\"\n\n"),
                2 => format!("{row},\"\r\n,\",xyz\r"),
                3 => format!("{row},,\"\"\n"),
                4 => format!("{row},\u{feff}mark,\"{}\"\n", "long\n".repeat(row % 40)),
                _ => format!("\"{row}\",\"\"\"\n\"\"\",end\n"),
            };
        }
        text
    }

    #[test]
    fn divided_files_have_the_same_rows_keys_and_faults() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let csv = |path: &str| CsvSource {
            nulls: Some(vec!["NULL".to_owned()]),
            infer_rows: 100,
            ..CsvSource::at(path)
        };
        let json = |path: &str| JsonSource {
            infer_rows: 100,
            ..JsonSource::at(path)
        };
        let text = csv_text(900);
        let plain = path("plain.csv", &text);
        let headless = CsvSource {
            header: false,
            ..csv(&plain)
        };
        let lines: String = (0..900)
            .map(|row| match row % 3 {
                0 => format!("{{\"a\": {row}, \"b\": \"\\n\"}}\n"),
                1 => format!("  \n\n{{\"a\": {row}}}\r\n"),
                _ => format!("\u{feff}{{\"a\": {row}}}\n")
                    .trim_start_matches('\u{feff}')
                    .to_owned(),
            })
            .collect();
        let lines = path("lines.jsonl", &lines);
        for span_bytes in [1, 13, 100, 1000, 5000] {
            let whole = read(&RowSource::new(csv(&plain))).1.unwrap();
            assert_eq!(whole.0.num_rows(), 900);
            let (spans, divided) = read(&RowSource::with_span_bytes(csv(&plain), span_bytes));
            assert!(
                spans as u64 >= text.len() as u64 / span_bytes,
                "{spans} spans"
            );
            assert!(
                divided.unwrap() == whole,
                "CSV in spans of {span_bytes} bytes"
            );
            let whole = read(&RowSource::new(headless.clone())).1.unwrap();
            assert_eq!(whole.0.num_rows(), 901);
            let (_, divided) = read(&RowSource::with_span_bytes(headless.clone(), span_bytes));
            assert!(
                divided.unwrap() == whole,
                "CSV without a header in spans of {span_bytes} bytes"
            );
            let whole = read(&RowSource::new(json(&lines))).1.unwrap();
            assert_eq!(whole.0.num_rows(), 900);
            let (_, divided) = read(&RowSource::with_span_bytes(json(&lines), span_bytes));
            assert!(
                divided.unwrap() == whole,
                "JSON in spans of {span_bytes} bytes"
            );
        }
        let same_fault = |whole: Result<(RecordBatch, Vec<u64>)>,
                          divided: Result<(RecordBatch, Vec<u64>)>| {
            let whole = whole.unwrap_err();
            let divided = divided.unwrap_err();
            assert_eq!(whole.code(), codes::BAD_ROW);
            assert_eq!(
                (whole.site().rows.as_slice(), whole.message()),
                (divided.site().rows.as_slice(), divided.message())
            );
            assert_eq!(
                (&whole.site().file, &whole.site().column),
                (&divided.site().file, &divided.site().column)
            );
        };
        for (row, bad) in [(704, "no number"), (703, "1,2,3,4"), (898, "\"open")] {
            let bad = text.replacen(&format!("\n{row},"), &format!("\n{bad},"), 1);
            assert_ne!(bad, text);
            let bad = path("bad.csv", &bad);
            let divided = read(&RowSource::with_span_bytes(csv(&bad), 700)).1;
            same_fault(read(&RowSource::new(csv(&bad))).1, divided);
        }
        let bad =
            std::fs::read_to_string(&lines)
                .unwrap()
                .replacen("{\"a\": 703}", "{\"a\": 703", 1);
        let bad = path("bad.jsonl", &bad);
        same_fault(
            read(&RowSource::new(json(&bad))).1,
            read(&RowSource::with_span_bytes(json(&bad), 700)).1,
        );
    }

    /// A file of one column is read whole: its blank lines are rows.
    #[test]
    fn files_of_one_column_are_not_divided() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, format!("a\r\n{}", "1\r\n\r\n".repeat(300))).unwrap();
        let source = CsvSource::at(path.display().to_string());
        let divided = RowSource::with_span_bytes(source.clone(), 100);
        let (spans, rows) = read(&divided);
        assert_eq!((spans, rows.unwrap().0.num_rows()), (1, 600));
        let skipped = source.dialect(crate::CsvDialect::Pandas);
        let (spans, rows) = read(&RowSource::with_span_bytes(skipped, 100));
        assert!(spans > 1);
        assert_eq!(rows.unwrap().0.num_rows(), 300);
    }

    /// Files whose first bytes are those of gzip or zstd are unpacked under any name, and never divided.
    #[test]
    fn packed_files_are_recognised_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let text = csv_text(900);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        let source = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            CsvSource {
                nulls: Some(vec!["NULL".to_owned()]),
                infer_rows: 100,
                ..CsvSource::at(path.display().to_string())
            }
        };
        let plain = read(&RowSource::new(source("plain.csv", text.as_bytes())))
            .1
            .unwrap();
        for (name, bytes) in [("a.csv", gzip.finish().unwrap()), ("b.csv", zstd)] {
            let (spans, rows) = read(&RowSource::with_span_bytes(source(name, &bytes), 100));
            assert_eq!(spans, 1, "{name}");
            assert!(rows.unwrap().0 == plain.0, "{name}");
        }
    }
}
