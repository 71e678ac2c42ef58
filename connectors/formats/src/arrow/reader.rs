//! Arrow files and streams as batches.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::MessageHeader;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use forebay_model::{Fault, NameIndex, Result, codes, has_shared_values, logical_type};
use forebay_storage::{MemoryShortage, ReadLease, ReadMemory, ReadReservation};

use crate::files::conform::conform;
use crate::files::input_file::InputFile;
use crate::files::nested_types::{find_type, is_union};
use crate::files::rows::{BatchIterator, FileBatch};
use crate::files::shared_values::{CopiedRows, LARGE_COPY_BYTES};
use crate::files::stream::stream_fault;
use crate::guard::catch_decode_panic;

use super::batch_stream::{BatchStream, MessageBody, StreamError};
use super::frames::{IpcMessage, IpcMessageReader};

/// A file's schema.
pub(super) fn schema(file: &InputFile) -> Result<SchemaRef> {
    let (schema, _) = open_messages(file)?;
    for field in schema.fields() {
        if find_type(field.data_type(), is_union).is_some() {
            let message = format!(
                "`{}` is a union: each of its values has one of several types, which is not read",
                field.name()
            );
            let fault = Fault::new(codes::UNSUPPORTED, message);
            return Err(fault.file(file.path.as_ref()).column(field.name()).hint(
                "write it as a struct with a field for each type, or leave it out of the file",
            ));
        }
    }
    Ok(schema)
}

/// The names of a file's columns, and its rows.
pub(super) fn rows(
    file: &InputFile,
    selected: &[FieldRef],
    batch_rows: usize,
) -> Result<(Vec<String>, BatchIterator)> {
    let (schema, frames) = open_messages(file)?;
    let mut names = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        names.push(field.name().clone());
    }
    let index = NameIndex::new(names.iter().map(String::as_str));
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut columns: Vec<usize> = Vec::new();
    for field in selected {
        if let Some(column) = index.get(field.name()) {
            fields.push(field.clone());
            columns.push(column);
        }
    }
    columns.sort_unstable();
    if columns.is_empty() && !names.is_empty() {
        // One column vouches for the number of rows.
        columns.push(0);
    }
    let batches = IpcBatchDecoder {
        frames,
        schema,
        dictionaries: HashMap::new(),
        columns,
        path: file.path.clone(),
        memory: file.memory.clone(),
        fields,
        batch_rows,
        batch_index: 0,
        next_row: 0,
        open: None,
        unconverted: None,
    };
    let batches = batches.map(|batch| batch.map(FileBatch::from));
    Ok((names, Box::new(batches)))
}

fn open_messages(file: &InputFile) -> Result<(SchemaRef, IpcMessageReader)> {
    catch_decode_panic(|| IpcMessageReader::open(file)).map_err(|error| {
        decode_fault(
            &file.path,
            error,
            "the file is neither an Arrow file nor an Arrow stream",
        )
    })
}

fn decode_fault(path: &str, error: ArrowError, message: impl Into<String>) -> Fault {
    match error {
        ArrowError::IoError(_, error) => stream_fault(path, error),
        other => Fault::new(codes::CORRUPT, message).file(path).cause(other),
    }
}

/// An error of bytes in memory: where packed buffers are damaged, the libraries that unpack them report input and output.
fn unpacking_error(error: ArrowError) -> ArrowError {
    match error {
        ArrowError::IoError(message, error) if error.kind() == ErrorKind::OutOfMemory => {
            ArrowError::MemoryError(message)
        }
        ArrowError::IoError(message, _) => ArrowError::IpcError(message),
        other => other,
    }
}

struct IpcBatchDecoder {
    frames: IpcMessageReader,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Columns to decode, in the file's order.
    columns: Vec<usize>,
    path: Arc<str>,
    memory: Arc<ReadMemory>,
    fields: Vec<FieldRef>,
    batch_rows: usize,
    batch_index: usize,
    /// The row of the file that comes next.
    next_row: u64,
    /// The batch that is being given out.
    open: Option<OpenBatch>,
    /// Rows that were decoded with those that were given out last.
    unconverted: Option<RecordBatch>,
}

/// A batch of a file, of which some rows are given out at a time.
enum OpenBatch {
    Decoded {
        rest: RecordBatch,
        /// Rows that are given out at a time.
        rows_max: usize,
        _leases: [Option<ReadLease>; 2],
    },
    Streamed(BatchStream),
}

impl IpcBatchDecoder {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let stored = match self.unconverted.take() {
                Some(stored) => Some(stored),
                None => self.next_rows()?,
            };
            if let Some(stored) = stored {
                return self.convert(stored).map(Some);
            }
            let opened = catch_decode_panic(|| Ok(self.open_batch()));
            let opened = opened.and_then(|opened| match opened {
                Ok(opened) => Ok(Ok(opened)),
                Err(StreamError::Decode(error)) => Err(error),
                Err(StreamError::Shortage(shortage)) => Ok(Err(shortage)),
            });
            self.open = match opened {
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(open)) => open,
                Ok(Err(shortage)) => return Err(self.shortage_fault(shortage, self.batch_index)),
                Err(error) => return Err(self.batch_fault(error)),
            };
            self.batch_index += 1;
        }
    }

    /// The next rows of the open batch.
    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        let rows = match &mut self.open {
            None => return Ok(None),
            Some(OpenBatch::Decoded {
                rest: batch_rows,
                rows_max,
                ..
            }) => {
                let rows = batch_rows.num_rows().min(*rows_max);
                let batch = batch_rows.slice(0, rows);
                *batch_rows = batch_rows.slice(rows, batch_rows.num_rows() - rows);
                Ok(Some(batch).filter(|_| rows > 0))
            }
            Some(OpenBatch::Streamed(stream)) => {
                let batch_rows = self.batch_rows;
                let memory = &self.memory;
                catch_decode_panic(|| Ok(stream.next(batch_rows, memory)))
                    .unwrap_or_else(|error| Err(StreamError::Decode(error)))
            }
        };
        // The batch was counted when it was opened.
        let fault = |error, reader: &Self| match error {
            StreamError::Decode(error) => decode_fault(
                &reader.path,
                error,
                format!("batch {} cannot be decoded", reader.batch_index - 1),
            ),
            StreamError::Shortage(shortage) => {
                reader.shortage_fault(shortage, reader.batch_index - 1)
            }
        };
        let rows = rows.map_err(|error| fault(error, self))?;
        if rows.is_none() {
            self.open = None;
        }
        Ok(rows)
    }

    fn batch_fault(&self, error: ArrowError) -> Fault {
        let message = format!("batch {} cannot be decoded", self.batch_index);
        decode_fault(&self.path, error, message)
    }

    fn shortage_fault(&self, shortage: MemoryShortage, batch_index: usize) -> Fault {
        let batch = format!("decoding batch {batch_index}");
        shortage
            .fault(&batch)
            .file(self.path.as_ref())
            .hint(format!(
                "write the file in smaller batches, or give {}",
                shortage.sufficient_option()
            ))
    }

    fn open_batch(&mut self) -> Result<Option<OpenBatch>, StreamError> {
        while let Some(mut frame) = self.frames.next(&self.memory)? {
            match frame.message()?.header_type() {
                MessageHeader::DictionaryBatch => {
                    let (body, reservation) = self.load_whole(&mut frame)?;
                    let message = frame.message()?;
                    if let Some(batch) = message.header_as_dictionary_batch() {
                        let dictionaries = &mut self.dictionaries;
                        read_dictionary(
                            &body,
                            batch,
                            &self.schema,
                            dictionaries,
                            &message.version(),
                        )
                        .map_err(unpacking_error)?;
                    }
                    drop(reservation);
                }
                MessageHeader::RecordBatch => return self.open_record_batch(frame).map(Some),
                _ => {}
            }
        }
        Ok(None)
    }

    fn open_record_batch(&mut self, mut frame: IpcMessage) -> Result<OpenBatch, StreamError> {
        let lease = match &frame.body {
            MessageBody::Memory(_) => self.memory.lease(frame.decompressed_bytes),
            MessageBody::File { .. } => None,
        };
        if lease.is_none() {
            let message = frame.message()?;
            let batch = message
                .header_as_record_batch()
                .ok_or_else(|| ArrowError::IpcError("a message has no batch".to_owned()))?;
            let stream = BatchStream::open(batch, &self.schema, &frame.body, &self.columns)?;
            if let Some(stream) = stream {
                return Ok(OpenBatch::Streamed(stream));
            }
        }
        let (body, reservation) = match &lease {
            Some(_) => (frame.load(&self.memory)?, None),
            None => {
                let (body, reservation) = self.load_whole(&mut frame)?;
                (body, Some(reservation))
            }
        };
        let message = frame.message()?;
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| ArrowError::IpcError("a message has no batch".to_owned()))?;
        let schema = self.schema.clone();
        let version = message.version();
        let decoder =
            RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &version)
                .map_err(unpacking_error)?;
        let decoded = decoder
            .with_projection(Some(&self.columns))
            .read_record_batch()
            .map_err(unpacking_error)?;
        drop(reservation);
        let decoded_bytes = frame.decompressed_bytes.max(body.len() as u64);
        let row_bytes = decoded_bytes / (decoded.num_rows() as u64).max(1);
        let fitting = self.memory.chunk_bytes() / row_bytes.max(1);
        Ok(OpenBatch::Decoded {
            rest: decoded,
            rows_max: (self.batch_rows as u64).min(fitting).max(1) as usize,
            _leases: [lease, frame.lease.take()],
        })
    }

    /// Loads a body that is decoded as a whole, and reserves memory for what its buffers become.
    fn load_whole(&self, frame: &mut IpcMessage) -> Result<(Buffer, ReadReservation), StreamError> {
        let is_in_file = matches!(frame.body, MessageBody::File { .. });
        let mut reservation = self.reserve_whole(frame)?;
        let body = frame.load(&self.memory)?;
        if is_in_file {
            // The body is resident now, and only it tells the sizes of its buffers.
            drop(reservation);
            reservation = self.reserve(frame.decompressed_bytes)?;
        }
        Ok((body, reservation))
    }

    fn reserve(&self, bytes: u64) -> Result<ReadReservation, StreamError> {
        self.memory
            .reserve(bytes, true)
            .map_err(StreamError::Shortage)
    }

    /// Reserves memory for a body that is decoded as a whole.
    fn reserve_whole(&self, frame: &IpcMessage) -> Result<ReadReservation, StreamError> {
        let bytes = match &frame.body {
            MessageBody::Memory(_) => frame.decompressed_bytes,
            MessageBody::File { .. } => frame.body.length(),
        };
        self.reserve(bytes)
    }

    /// The first of some rows in the dataset's types: few rows where a value of a dictionary is copied to each.
    fn convert(&mut self, stored: RecordBatch) -> Result<RecordBatch> {
        let shared = self.shared_columns(&stored);
        let copied = CopiedRows::first_of(&stored, &shared, self.memory.chunk_bytes());
        let head = stored.slice(0, copied.rows);
        if copied.rows < stored.num_rows() {
            let remaining = stored.num_rows() - copied.rows;
            self.unconverted = Some(stored.slice(copied.rows, remaining));
        }
        let reservation = if copied.bytes >= LARGE_COPY_BYTES {
            let reserved = self.memory.reserve(copied.bytes, true);
            Some(reserved.map_err(|shortage| self.shortage_fault(shortage, self.batch_index - 1))?)
        } else {
            None
        };
        let converted = self.to_dataset_types(&head)?;
        drop(reservation);
        self.next_row += head.num_rows() as u64;
        Ok(converted)
    }

    /// Columns of a batch whose shared values are copied to each row.
    fn shared_columns(&self, batch: &RecordBatch) -> Vec<usize> {
        let index = NameIndex::of_fields(batch.schema_ref().fields());
        let mut shared = Vec::new();
        for field in &self.fields {
            let Some(position) = index.get(field.name()) else {
                continue;
            };
            let stored = batch.column(position);
            if has_shared_values(stored.data_type()) && !is_read_as(stored, field.data_type()) {
                shared.push(position);
            }
        }
        shared
    }

    /// The columns in the dataset's types.
    fn to_dataset_types(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let index = NameIndex::of_fields(batch.schema_ref().fields());
        let columns = self.fields.iter().map(|field| {
            let position = index.get(field.name()).ok_or_else(|| {
                Fault::internal(format!("the reader left out the column `{}`", field.name()))
            })?;
            let stored = batch.column(position);
            if is_read_as(stored, field.data_type()) {
                Ok(stored.clone())
            } else {
                conform(stored, field, &self.path, self.next_row)
            }
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let named = self.fields.iter().zip(&columns);
        let fields: Fields = named
            .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            Arc::new(Schema::new(fields)),
            columns,
            &options,
        )?)
    }
}

/// True for columns that steps read as they are stored. Of dictionaries these are texts without null among their values:
/// others gain nothing.
fn is_read_as(stored: &ArrayRef, data_type: &DataType) -> bool {
    if logical_type(stored.data_type()) != *data_type {
        return false;
    }
    let keyed = stored.as_any_dictionary_opt();
    keyed.is_none_or(|keyed| *data_type == DataType::Utf8 && keyed.values().null_count() == 0)
}

impl Iterator for IpcBatchDecoder {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.next_batch().transpose()
    }
}
