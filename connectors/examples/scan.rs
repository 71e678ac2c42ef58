//! Reads all columns of some Parquet files with one thread and prints how fast that was:
//! `cargo run --release --example scan -- data/flights [column ...]`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use forebay_connectors::BuiltInConnectors;
use forebay_contract::{ConnectorRegistry, ScanRequest};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use serde_json::json;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or_else(|| Fault::new(codes::USAGE, "give a path"))?;
    let io = StorageClient::new()?;
    let format = if path.contains("csv") {
        "csv"
    } else if path.contains("json") {
        "json"
    } else {
        "parquet"
    };
    let source = BuiltInConnectors.source(format, &json!({"path": path}))?;
    let start = Instant::now();
    let dataset = source.discover(&io, &[])?;
    println!(
        "{} spans, {} bytes, found in {:.1?}",
        dataset.spans.len(),
        dataset.bytes(),
        start.elapsed()
    );
    let wanted: Vec<String> = arguments.collect();
    let all = dataset
        .schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let request = ScanRequest {
        columns: if wanted.is_empty() { all } else { wanted },
        schema: dataset.schema.clone(),
        pruning: Vec::new(),
        batch_rows: forebay_model::BATCH_ROWS_DEFAULT,
        row_keys: false,
    };
    for _ in 0..3 {
        let start = Instant::now();
        let mut rows = 0;
        let mut bytes = 0;
        for span in &dataset.spans {
            for chunk in source.open(&io, span, &request)? {
                let batch = chunk?.batch;
                rows += batch.num_rows();
                bytes += batch.num_columns() * batch.num_rows();
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let row_rate = rows as f64 / seconds / 1e6;
        let value_rate = bytes as f64 / seconds / 1e6;
        println!(
            "{rows} rows in {seconds:.2} s: {row_rate:.2} M rows/s, {value_rate:.0} M values/s on one core"
        );
    }
    Ok(())
}
