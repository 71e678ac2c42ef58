//! Writing CSV.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, SchemaRef};
use forebay_model::{Fault, Result, codes, logical_type};
use forebay_storage::{EncodedBatch, EncodedPiece, FileLayout, FileWriter, Sink};

use super::config::CsvSink;

/// The configured sink.
#[derive(Debug)]
pub(super) struct CsvEncoder {
    config: CsvSink,
}

impl CsvEncoder {
    pub(super) fn new(config: CsvSink) -> Self {
        CsvEncoder { config }
    }
}

impl Sink for CsvEncoder {
    fn path(&self) -> &str {
        &self.config.path
    }

    fn extension(&self) -> &'static str {
        "csv"
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: self.config.partition_by.clone(),
            sort_by: Vec::new(),
            file_bytes_target: self.config.file_bytes_target,
            group_rows_max: self.config.group_rows_max,
        }
    }

    fn encode_piece(
        &self,
        _: &SchemaRef,
        batches: &[RecordBatch],
        _: usize,
    ) -> Result<EncodedPiece> {
        let mut writer = WriterBuilder::new().with_header(false).build(Vec::new());
        let unwritable = |error| Fault::internal("rows cannot be written as CSV").cause(error);
        for batch in batches {
            let plain =
                batch
                    .columns()
                    .iter()
                    .map(|column| match logical_type(column.data_type()) {
                        own if own == *column.data_type() => Ok(column.clone()),
                        own => cast(column, &own),
                    });
            let columns = plain.collect::<Result<Vec<_>, _>>()?;
            let fields = batch.schema_ref().fields().iter().zip(&columns);
            let fields = fields.map(|(field, column)| {
                field
                    .as_ref()
                    .clone()
                    .with_data_type(column.data_type().clone())
            });
            let schema = arrow::datatypes::Schema::new(fields.collect::<Vec<_>>());
            writer
                .write(&RecordBatch::try_new(schema.into(), columns)?)
                .map_err(unwritable)?;
        }
        let text: Vec<u8> = writer.into_inner();
        Ok(EncodedPiece {
            bytes: text.len() as u64,
            payload: Box::new(text),
        })
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        mut out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        if let Some(field) = schema
            .fields()
            .iter()
            .find(|field| is_unwritable(field.data_type()))
        {
            let message = format!(
                "`{}` is {}, which has no form in CSV",
                field.name(),
                field.data_type()
            );
            let fault = Fault::new(codes::COLUMN_TYPE, message).column(field.name());
            return Err(fault.hint("write Parquet, or leave the column out"));
        }
        let header = RecordBatch::new_empty(schema.clone());
        let mut writer = WriterBuilder::new().with_header(true).build(Vec::new());
        writer
            .write(&header)
            .map_err(|error| Fault::internal("a header cannot be written as CSV").cause(error))?;
        let header = writer.into_inner();
        out.write_all(&header).map_err(write_fault)?;
        Ok(Box::new(CsvFileWriter {
            out,
            bytes: header.len() as u64,
        }))
    }
}

fn is_unwritable(data_type: &DataType) -> bool {
    data_type.is_nested()
        || matches!(
            data_type,
            DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_)
        )
}

fn write_fault(error: std::io::Error) -> Fault {
    Fault::disk("the file cannot be written", error)
}

struct CsvFileWriter {
    out: Box<dyn Write + Send>,
    bytes: u64,
}

impl FileWriter for CsvFileWriter {
    fn append(&mut self, part: EncodedBatch) -> Result<()> {
        for piece in part.pieces {
            let text = piece.payload.downcast::<Vec<u8>>();
            let text =
                text.map_err(|_| Fault::internal("the rows were encoded by another sink"))?;
            self.out.write_all(&text).map_err(write_fault)?;
            self.bytes += text.len() as u64;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.out.flush().map_err(write_fault)
    }
}
