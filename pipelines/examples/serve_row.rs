//! Serves single rows with what a run has learned, bit for bit as the run itself computes them.
//!
//! ```text
//! cargo run -p forebay --example serve_row
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::path::Path;

use forebay::prelude::*;
use forebay_generate::{DemandOptions, HistoryExtent, demand};
use serde_json::{Map, Value, json};

/// Generates demand in `dir`, learns from it, and serves a row.
pub fn run(dir: &Path) -> Result<Map<String, Value>> {
    let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, dir.join("data"));
    options.series = 50;
    demand(&options, &mut |_| {})?;
    let pipeline = PipelineBuilder::new("prices");
    let demand = pipeline.source(
        "demand",
        ParquetSource::at(dir.join("data").display().to_string()),
    );
    pipeline
        .step("features", &demand)
        .apply(select(["price", "category"]))
        .apply(standardize(["price"]))
        .apply(one_hot(["category"]).top_k(4));
    let state = dir.join("state").display().to_string();
    let forebay = Forebay::new().with_options(SessionOptions::default().state(state));
    let report = forebay.fit(&pipeline.build()?)?;

    // Another process would begin here: the artifact is all that it needs.
    let artifact = forebay.artifact(report.artifact_path.as_deref().unwrap_or_default())?;
    let model = forebay.model(&artifact, Some("features"))?;
    let row = json!({ "price": 4.5, "category": "FOODS" });
    model.apply_row(row.as_object().unwrap_or(&Map::new()))
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-serve-row-{}", std::process::id()));
    println!("{}", Value::from(run(&dir)?));
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
