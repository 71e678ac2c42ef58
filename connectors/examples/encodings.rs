//! Measures the cost of each encoding of numbers, column by column, in bytes and in time. The
//! choice in `formats/src/parquet/sink.rs` rests on this table: `cargo run --release -p forebay-connectors
//! --example encodings -- data/clicks [rows]`.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema};
use bytes::Bytes;
use forebay_connectors::BuiltInConnectors;
use forebay_contract::{ConnectorRegistry, ScanRequest};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde_json::json;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or_else(|| Fault::new(codes::USAGE, "give a path"))?;
    let rows: usize = arguments
        .next()
        .and_then(|rows| rows.parse().ok())
        .unwrap_or(500_000);
    let io = StorageClient::new()?;
    let source = BuiltInConnectors.source("parquet", &json!({"path": path}))?;
    let dataset = source.discover(&io, &[])?;
    println!(
        "{:<24}{:<12}{:<22}{:>10}{:>12}{:>12}",
        "column", "type", "encoding", "bytes/row", "write M/s", "read M/s"
    );
    for field in dataset.schema.fields() {
        let encodings: &[Option<Encoding>] = match field.data_type() {
            of if of.is_integer() || matches!(of, DataType::Date32 | DataType::Timestamp(..)) => &[
                None,
                Some(Encoding::PLAIN),
                Some(Encoding::DELTA_BINARY_PACKED),
                Some(Encoding::BYTE_STREAM_SPLIT),
            ],
            of if of.is_floating() => &[
                None,
                Some(Encoding::PLAIN),
                Some(Encoding::BYTE_STREAM_SPLIT),
            ],
            _ => continue,
        };
        let request = ScanRequest {
            columns: vec![field.name().clone()],
            schema: dataset.schema.clone(),
            pruning: Vec::new(),
            batch_rows: forebay_model::BATCH_ROWS_DEFAULT,
            row_keys: false,
        };
        let mut batches = Vec::new();
        let mut left = rows;
        'spans: for span in &dataset.spans {
            for chunk in source.open(&io, span, &request)? {
                let batch = chunk?.batch;
                let batch = batch.slice(0, batch.num_rows().min(left));
                left -= batch.num_rows();
                batches.push(batch);
                if left == 0 {
                    break 'spans;
                }
            }
        }
        let Some(first) = batches.first() else {
            continue;
        };
        let whole = concat_batches(&Arc::new(Schema::clone(&first.schema())), &batches)?;
        for encoding in encodings {
            let (bytes, write, read) = measure(&whole, *encoding)
                .map_err(|error| Fault::internal("an encoding does not work").cause(error))?;
            let name = encoding.map_or("dictionary".to_owned(), |encoding| {
                encoding.to_string().to_lowercase()
            });
            let count = whole.num_rows() as f64;
            println!(
                "{:<24}{:<12}{name:<22}{:>10.2}{:>12.1}{:>12.1}",
                field.name(),
                field.data_type().to_string(),
                bytes as f64 / count,
                count / write / 1e6,
                count / read / 1e6
            );
        }
    }
    Ok(())
}

/// Bytes, and the best of three times for writing and reading.
fn measure(
    batch: &RecordBatch,
    encoding: Option<Encoding>,
) -> std::result::Result<(usize, f64, f64), ParquetError> {
    let mut size = 0;
    let mut write = f64::MAX;
    let mut read = f64::MAX;
    for _ in 0..3 {
        let builder = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let properties = match encoding {
            Some(encoding) => builder
                .set_dictionary_enabled(false)
                .set_encoding(encoding)
                .build(),
            None => builder.build(),
        };
        let start = Instant::now();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
        writer.write(batch)?;
        let bytes = Bytes::from(writer.into_inner()?);
        write = write.min(start.elapsed().as_secs_f64());
        size = bytes.len();
        let start = Instant::now();
        for batch in ParquetRecordBatchReaderBuilder::try_new(bytes)?
            .with_batch_size(8192)
            .build()?
        {
            batch?;
        }
        read = read.min(start.elapsed().as_secs_f64());
    }
    Ok((size, write, read))
}
