//! Arrow files and streams as batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::MessageHeader;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use forebay_model::{Fault, Result, codes, logical_type};

use crate::files::conform::conform;
use crate::files::rows::{BatchIterator, InputFile};
use crate::files::stream::stream_fault;
use crate::guard::catch_decode_panic;

use super::frames::IpcMessageReader;

/// A file's schema.
pub(super) fn schema(file: &InputFile) -> Result<SchemaRef> {
    open_messages(file).map(|(schema, _)| schema)
}

/// The names of a file's columns, and its rows.
pub(super) fn rows(
    file: &InputFile,
    wanted: &[FieldRef],
    batch_rows: usize,
) -> Result<(Vec<String>, BatchIterator)> {
    let (schema, frames) = open_messages(file)?;
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let position = |field: &FieldRef| names.iter().position(|name| name == field.name());
    let fields: Vec<FieldRef> = wanted
        .iter()
        .filter(|field| position(field).is_some())
        .cloned()
        .collect();
    let mut columns: Vec<usize> = fields.iter().filter_map(position).collect();
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
        fields,
        batch_rows,
        batch_index: 0,
        next_row: 0,
        rest: None,
    };
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

struct IpcBatchDecoder {
    frames: IpcMessageReader,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Columns to decode, in the file's order.
    columns: Vec<usize>,
    path: Arc<str>,
    fields: Vec<FieldRef>,
    batch_rows: usize,
    batch_index: usize,
    /// The row of the file that the next batch begins with.
    next_row: u64,
    /// A batch that was longer than wanted.
    rest: Option<RecordBatch>,
}

impl IpcBatchDecoder {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.rest.take().filter(|batch| batch.num_rows() > 0) {
                let rows = batch.num_rows().min(self.batch_rows);
                if rows < batch.num_rows() {
                    self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
                }
                return Ok(Some(batch.slice(0, rows)));
            }
            let decoded = catch_decode_panic(|| self.decode_batch());
            let decoded = decoded.map_err(|error| {
                decode_fault(
                    &self.path,
                    error,
                    format!("batch {} cannot be decoded", self.batch_index),
                )
            })?;
            let Some(batch) = decoded else {
                return Ok(None);
            };
            self.batch_index += 1;
            self.rest = Some(self.to_dataset_types(&batch)?);
            self.next_row += batch.num_rows() as u64;
        }
    }

    fn decode_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        while let Some(frame) = self.frames.next()? {
            let message = frame.message()?;
            match message.header_type() {
                MessageHeader::DictionaryBatch => {
                    if let Some(batch) = message.header_as_dictionary_batch() {
                        let known = &mut self.dictionaries;
                        read_dictionary(
                            &frame.body,
                            batch,
                            &self.schema,
                            known,
                            &message.version(),
                        )?;
                    }
                }
                MessageHeader::RecordBatch => {
                    let Some(batch) = message.header_as_record_batch() else {
                        continue;
                    };
                    let (schema, version) = (self.schema.clone(), message.version());
                    let decoder = RecordBatchDecoder::try_new(
                        &frame.body,
                        batch,
                        schema,
                        &self.dictionaries,
                        &version,
                    )?;
                    return decoder
                        .with_projection(Some(&self.columns))
                        .read_record_batch()
                        .map(Some);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The columns in the dataset's types.
    fn to_dataset_types(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.fields.iter().map(|field| {
            let stored = batch.column_by_name(field.name()).ok_or_else(|| {
                Fault::internal(format!("the reader left out the column `{}`", field.name()))
            })?;
            match logical_type(stored.data_type()) == *field.data_type() {
                true => Ok(stored.clone()),
                false => conform(stored, field, &self.path, self.next_row),
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

impl Iterator for IpcBatchDecoder {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.next_batch().transpose()
    }
}
