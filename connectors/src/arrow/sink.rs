//! Writing Arrow files.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter as IpcWriter, IpcWriteOptions};
use forebay_model::{Fault, Result, logical_type};
use forebay_storage::{EncodedBatch, EncodedPiece, FileLayout, FileWriter, Sink};

use super::config::{ArrowCompression, ArrowSink};

/// The configured sink.
#[derive(Debug)]
pub(super) struct ArrowEncoder {
    config: ArrowSink,
}

impl ArrowEncoder {
    pub(super) fn new(config: ArrowSink) -> Self {
        ArrowEncoder { config }
    }
}

/// Plain types only: a file's dictionaries would depend on how rows were grouped on the way.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &FieldRef| {
        Field::new(
            field.name(),
            logical_type(field.data_type()),
            field.is_nullable(),
        )
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(plain).collect::<Fields>(),
    ))
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
        }
    }

    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        _: usize,
    ) -> Result<EncodedPiece> {
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

/// Counts what goes through.
struct ByteCountingWriter {
    out: Box<dyn Write + Send>,
    bytes: Arc<AtomicU64>,
}

impl Write for ByteCountingWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buffer)?;
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
