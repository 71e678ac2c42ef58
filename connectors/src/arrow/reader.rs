//! Arrow files and streams as batches.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow::compute::cast;
use arrow::datatypes::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use forebay_model::{Fault, Result, codes, logical_type};

use crate::files::blob::Blob;
use crate::files::rows::{Batches, OpenFile};
use crate::files::stream::{BUFFER_BYTES, broken};
use crate::guard::guarded;

/// What the file format begins with; the stream format does not.
const MAGIC: &[u8] = b"ARROW1";

type Reader = Box<dyn RecordBatchReader + Send>;

/// A file's schema.
pub(super) fn schema(file: &OpenFile) -> Result<SchemaRef> {
    open(file, None).map(|reader| reader.schema())
}

/// The names of a file's columns, and its rows.
pub(super) fn rows(file: &OpenFile, wanted: &[FieldRef], batch_rows: usize) -> Result<(Vec<String>, Batches)> {
    let whole = open(file, None)?;
    let names: Vec<String> = whole.schema().fields().iter().map(|field| field.name().clone()).collect();
    let there: Vec<(usize, FieldRef)> = wanted
        .iter()
        .filter_map(|field| names.iter().position(|name| name == field.name()).map(|at| (at, field.clone())))
        .collect();
    // Projections give columns in the file's order.
    let mut indices: Vec<usize> = there.iter().map(|(at, _)| *at).collect();
    indices.sort_unstable();
    let reader = if indices.len() == names.len() { whole } else { open(file, Some(indices))? };
    let batches = Sliced {
        reader,
        path: file.path.clone(),
        fields: there.into_iter().map(|(_, field)| field).collect(),
        batch_rows,
        batch_index: 0,
        cut: VecDeque::new(),
    };
    Ok((names, Box::new(batches)))
}

fn open(file: &OpenFile, columns: Option<Vec<usize>>) -> Result<Reader> {
    let length = file.size.min(MAGIC.len() as u64);
    let begins = file.blob.read(&file.path, 0..length)?;
    let reader: Result<Reader, ArrowError> = guarded(|| {
        if begins == MAGIC {
            let bytes = BufReader::with_capacity(
                64 << 10,
                Anywhere { blob: file.blob.clone(), file: file.path.clone(), size: file.size, at: 0 },
            );
            return Ok(Box::new(FileReader::try_new(bytes, columns)?) as Reader);
        }
        let bytes = BufReader::with_capacity(BUFFER_BYTES, file.blob.reader(file.size));
        Ok(Box::new(StreamReader::try_new(bytes, columns)?))
    });
    reader.map_err(|error| unreadable(&file.path, error, "the file is neither an Arrow file nor an Arrow stream"))
}

fn unreadable(path: &str, error: ArrowError, message: impl Into<String>) -> Fault {
    match error {
        ArrowError::IoError(_, error) => broken(path, error),
        other => Fault::new(codes::CORRUPT, message).file(path).cause(other),
    }
}

/// Batches, cut where they are longer than wanted.
struct Sliced {
    reader: Reader,
    path: Arc<str>,
    fields: Vec<FieldRef>,
    batch_rows: usize,
    batch_index: usize,
    cut: VecDeque<RecordBatch>,
}

impl Sliced {
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.cut.pop_front() {
                return Ok(Some(batch));
            }
            let read = guarded(|| self.reader.next().transpose());
            let read = read.map_err(|error| {
                unreadable(&self.path, error, format!("batch {} cannot be decoded", self.batch_index))
            })?;
            let Some(batch) = read else { return Ok(None) };
            self.batch_index += 1;
            let batch = self.shaped(&batch)?;
            for start in (0..batch.num_rows()).step_by(self.batch_rows) {
                self.cut.push_back(batch.slice(start, self.batch_rows.min(batch.num_rows() - start)));
            }
        }
    }

    /// The columns in the dataset's types.
    fn shaped(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.fields.iter().map(|field| {
            let stored = batch
                .column_by_name(field.name())
                .ok_or_else(|| Fault::internal(format!("the reader left out the column `{}`", field.name())))?;
            match logical_type(stored.data_type()) == *field.data_type() {
                true => Ok(stored.clone()),
                false => cast(stored, field.data_type())
                    .map_err(|error| Fault::from(error).file(self.path.as_ref()).column(field.name())),
            }
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let fields: Fields = self
            .fields
            .iter()
            .zip(&columns)
            .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
            .collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }
}

impl Iterator for Sliced {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.step().transpose()
    }
}

/// A file as something that can be read from any place.
struct Anywhere {
    blob: Blob,
    file: Arc<str>,
    size: u64,
    at: u64,
}

impl Read for Anywhere {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.at.saturating_add(buffer.len() as u64).min(self.size);
        if end <= self.at {
            return Ok(0);
        }
        let bytes = self.blob.read(&self.file, self.at..end).map_err(io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at = end;
        Ok(bytes.len())
    }
}

impl Seek for Anywhere {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
