//! Writing Arrow files.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayData, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
};
use arrow::compute::cast;
use arrow::datatypes::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter as IpcWriter, IpcWriteOptions};
use forebay_contract::{EncodedBatch, EncodedPiece, FileLayout, FileWriter, Sink, SinkFormat};
use forebay_model::{Fault, PARQUET_TYPES, Result, codes, lasting_notes, logical_type};

use crate::files::nested_types::{find_type, is_union, plain_layout};
use crate::files::packed::ByteCountingWriter;

use super::config::{ArrowCompression, ArrowSink};

/// The configured sink.
#[derive(Debug)]
pub(super) struct ArrowEncoder {
    config: ArrowSink,
}

impl SinkFormat for ArrowSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(ArrowEncoder::new(self))
    }
}

impl ArrowEncoder {
    pub(super) fn new(config: ArrowSink) -> Self {
        ArrowEncoder { config }
    }
}

/// Plain types only: a file's dictionaries would depend on how rows were grouped on the way.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &FieldRef| {
        let mut notes = lasting_notes(field);
        notes.remove(PARQUET_TYPES);
        Field::new(
            field.name(),
            logical_type(&plain_layout(field.data_type())),
            field.is_nullable(),
        )
        .with_metadata(notes)
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(plain).collect::<Fields>(),
    ))
}

/// A column with zeros and empty texts in place of what lies below its nulls: that depends on how rows came, and may be
/// what a step took out.
fn without_hidden_values(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(make_array(without_hidden_data(&column.to_data())?))
}

fn without_hidden_data(data: &ArrayData) -> Result<ArrayData> {
    let is_nested = !data.child_data().is_empty();
    let Some(nulls) = data
        .nulls()
        .filter(|nulls| nulls.null_count() > 0 || is_nested)
    else {
        if !is_nested {
            return Ok(data.clone());
        }
        return copied(&with_plain_children(data)?, &[(0, data.len())]);
    };
    let valid: Vec<(usize, usize)> = nulls.valid_slices().collect();
    copied(&with_plain_children(data)?, &valid)
}

fn with_plain_children(data: &ArrayData) -> Result<ArrayData> {
    if data.child_data().is_empty() {
        return Ok(data.clone());
    }
    let children = data.child_data().iter().map(without_hidden_data);
    let children = children.collect::<Result<Vec<_>>>()?;
    Ok(data.clone().into_builder().child_data(children).build()?)
}

/// The rows of some ranges as they are, and nulls between them.
fn copied(data: &ArrayData, ranges: &[(usize, usize)]) -> Result<ArrayData> {
    let mut copy = MutableArrayData::new(vec![data], true, data.len());
    let mut row = 0;
    for (start, end) in ranges {
        copy.try_extend_nulls(start - row)?;
        copy.try_extend(0, *start, *end)?;
        row = *end;
    }
    copy.try_extend_nulls(data.len() - row)?;
    Ok(copy.freeze())
}

fn write_fault(error: ArrowError) -> Fault {
    match error {
        ArrowError::IoError(_, error) => Fault::disk("the file cannot be written", error),
        other => Fault::internal("rows cannot be written as Arrow").cause(other),
    }
}

impl Sink for ArrowEncoder {
    fn path(&self) -> &str {
        &self.config.path
    }

    fn extension(&self) -> &'static str {
        "arrow"
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: self.config.partition_by.clone(),
            sort_by: self.config.sort_by.clone(),
            file_bytes_target: self.config.file_bytes_target,
            group_rows_max: self.config.group_rows_max,
            is_plain: true,
        }
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        for field in schema.fields() {
            if find_type(field.data_type(), is_union).is_some() {
                let message = format!("`{}` is a union, which is not read back", field.name());
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .column(field.name())
                    .hint("write it as a struct with a field for each type, or leave it out"));
            }
        }
        Ok(())
    }

    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        _: usize,
    ) -> Result<EncodedPiece> {
        self.check_schema(schema)?;
        let schema = plain_schema(schema);
        let plain = |batch: &RecordBatch| {
            let columns = schema.fields().iter().zip(batch.columns());
            let columns = columns.map(|(field, column)| Ok(cast(column, field.data_type())?));
            Ok(RecordBatch::try_new(
                schema.clone(),
                columns.collect::<Result<Vec<_>>>()?,
            )?)
        };
        let plain = batches.iter().map(plain).collect::<Result<Vec<_>>>()?;
        // One batch per part: how rows arrived must not show in the file.
        let whole = arrow::compute::concat_batches(&schema, &plain)?;
        let columns = whole.columns().iter().map(without_hidden_values);
        let options = RecordBatchOptions::new().with_row_count(Some(whole.num_rows()));
        let whole = RecordBatch::try_new_with_options(
            schema,
            columns.collect::<Result<Vec<_>>>()?,
            &options,
        )?;
        Ok(EncodedPiece {
            bytes: whole.get_array_memory_size() as u64,
            payload: Box::new(whole),
        })
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        let compression = match self.config.compression {
            ArrowCompression::None => None,
            ArrowCompression::Lz4 => Some(CompressionType::LZ4_FRAME),
            ArrowCompression::Zstd => Some(CompressionType::ZSTD),
        };
        let options = IpcWriteOptions::default()
            .try_with_compression(compression)
            .map_err(write_fault)?;
        let bytes = Arc::new(AtomicU64::new(0));
        let out = ByteCountingWriter {
            out,
            bytes: bytes.clone(),
        };
        let writer = IpcWriter::try_new_with_options(out, &plain_schema(schema), options)
            .map_err(write_fault)?;
        Ok(Box::new(ArrowFileWriter { writer, bytes }))
    }
}

struct ArrowFileWriter {
    writer: IpcWriter<ByteCountingWriter>,
    bytes: Arc<AtomicU64>,
}

impl FileWriter for ArrowFileWriter {
    fn append(&mut self, part: EncodedBatch) -> Result<()> {
        for piece in part.pieces {
            let batch = piece.payload.downcast::<RecordBatch>();
            let batch =
                batch.map_err(|_| Fault::internal("the rows were encoded by another sink"))?;
            if batch.num_rows() > 0 {
                self.writer.write(&batch).map_err(write_fault)?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.writer
            .finish()
            .and_then(|()| self.writer.flush())
            .map_err(write_fault)
    }
}
