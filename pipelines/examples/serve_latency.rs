//! Measures the latency of single rows in a process: one thread, no server.
//!
//! ```text
//! cargo run --release -p forebay --example serve_latency -- .forebay/artifacts/1c291ca3d5f0 rows.jsonl
//! ```
//!
//! A line of the file is a row of the source as JSON, or a list of one row. All rows are answered twice, and the second
//! answers are measured: the first ones decompress states.
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use forebay::model::codes;
use forebay::prelude::*;
use serde_json::{Value, json};

/// Reads each row of a file as a batch.
fn read_rows(path: &str, model: &ServingModel) -> Result<Vec<RecordBatch>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Fault::disk("the rows cannot be read", error).file(path))?;
    let fields = model.input().fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut decoder = arrow::json::ReaderBuilder::new(schema).build_decoder()?;
    let mut rows = Vec::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| {
            Fault::new(codes::BAD_ROW, "a line is no row of JSON")
                .file(path)
                .cause(error)
        })?;
        let row = row.get(0).unwrap_or(&row);
        decoder.serialize(&[row])?;
        rows.extend(decoder.flush()?);
    }
    Ok(rows)
}

/// The value below which this share of sorted values lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (share * last as f64) as usize;
    sorted.get(index).copied().unwrap_or_default()
}

fn main() -> Result<()> {
    let usage = || {
        Fault::new(
            codes::USAGE,
            "give an artifact's directory and a file of rows",
        )
    };
    let mut arguments = std::env::args().skip(1);
    let artifact = arguments.next().ok_or_else(usage)?;
    let path = arguments.next().ok_or_else(usage)?;
    let begin = Instant::now();
    let forebay = Forebay::new();
    let model = forebay.model(&forebay.artifact(&artifact)?, None)?;
    let ready = begin.elapsed();
    let rows = read_rows(&path, &model)?;
    for row in &rows {
        black_box(model.apply(row)?);
    }
    let mut seconds = Vec::with_capacity(rows.len());
    for row in &rows {
        let begin = Instant::now();
        black_box(model.apply(row)?);
        seconds.push(begin.elapsed().as_secs_f64());
    }
    let total: f64 = seconds.iter().sum();
    seconds.sort_by(f64::total_cmp);
    let figures = json!({
        "rows": rows.len(),
        "rate": rows.len() as f64 / total,
        "p50_ms": quantile(&seconds, 0.5) * 1000.0,
        "p99_ms": quantile(&seconds, 0.99) * 1000.0,
        "ready_seconds": ready.as_secs_f64(),
        "state_bytes": model.state().map_or(0, |state| state.bytes),
    });
    println!("{figures}");
    Ok(())
}
