//! The files of a table: Parquet in the types of tables.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use forebay_contract::{EncodedPiece, FileLayout, FileWriter, Sink, SinkFormat, TableLog};
use forebay_formats::ParquetEncoder;
use forebay_model::Result;

use super::config::DeltaSink;
use super::log::DeltaLog;
use super::table_types::{table_schema, to_table_type};

/// The configured sink.
#[derive(Debug)]
struct DeltaEncoder {
    files: ParquetEncoder,
    log: DeltaLog,
    path: String,
}

impl SinkFormat for DeltaSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(DeltaEncoder::new(self))
    }
}

impl DeltaEncoder {
    fn new(config: DeltaSink) -> Self {
        let files = ParquetEncoder::new(config.files());
        DeltaEncoder {
            files,
            path: config.path.clone(),
            log: DeltaLog::new(config),
        }
    }
}

impl Sink for DeltaEncoder {
    fn path(&self) -> &str {
        &self.path
    }

    fn extension(&self) -> &'static str {
        self.files.extension()
    }

    fn layout(&self) -> FileLayout {
        self.files.layout()
    }

    fn table(&self) -> Option<&dyn TableLog> {
        Some(&self.log)
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        self.files.check_schema(&table_schema(schema)?)
    }

    fn pieces(&self, schema: &SchemaRef) -> usize {
        self.files.pieces(schema)
    }

    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        piece: usize,
    ) -> Result<EncodedPiece> {
        let Some(field) = schema.fields().get(piece) else {
            return self.files.encode_piece(schema, batches, piece);
        };
        let stored = table_schema(&schema.project(&[piece])?)?;
        let cast = |batch: &RecordBatch| {
            let values = to_table_type(batch.column(piece), stored.field(0).data_type());
            let values = values.map_err(|fault| fault.column(field.name()))?;
            let fields = vec![
                stored
                    .field(0)
                    .clone()
                    .with_data_type(values.data_type().clone()),
            ];
            Ok(RecordBatch::try_new(
                Arc::new(Schema::new(fields)),
                vec![values],
            )?)
        };
        let batches = batches.iter().map(cast).collect::<Result<Vec<_>>>()?;
        self.files.encode_piece(&stored, &batches, 0)
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        self.files.open_writer(&table_schema(schema)?, out)
    }
}
