//! Builds a pipeline, checks it against its data, looks at some of its rows, and runs it.
//!
//! ```text
//! cargo run -p forebay --example run_pipeline
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::path::Path;

use forebay::prelude::*;
use forebay_generate::{DemandOptions, HistoryExtent, demand};

/// Windows over demand, scaled and encoded with what the training rows say.
pub fn pipeline(dir: &Path) -> Result<Pipeline> {
    let at = |name: &str| dir.join(name).display().to_string();
    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline
        .source("demand", ParquetSource::at(at("data")))
        .time("date")
        .keys(["store_id", "item_id"]);
    let features = pipeline
        .step("features", &demand)
        .fit_on("train")
        .apply(filter("qty IS NOT NULL").when(FilterScope::Learning))
        .apply(lag(["qty"]).by(["7d", "14d"]))
        .apply(
            rolling(["qty"])
                .compute([SeriesStatistic::Mean, SeriesStatistic::Std])
                .over(["7d"])
                .gap("1d"),
        )
        .apply(standardize(["price"]))
        .apply(
            vocabulary(["item_id", "store_id"])
                .min_count(5)
                .oov_buckets(1),
        );
    let weekly = pipeline.step("weekly", &demand).apply(
        aggregate()
            .by(["store_id"])
            .every("1w")
            .time("date")
            .compute([("qty", agg::sum("qty")), ("days", agg::count("*"))]),
    );
    pipeline.split(DataSplit::by_time(
        "date",
        ["train", "validation"],
        ["2016-05-15"],
    ));
    pipeline.sink("table", &features, ParquetSink::at(at("out/features")));
    pipeline.sink("weekly", &weekly, CsvSink::at(at("out/weekly")));
    pipeline.build()
}

/// Generates demand in `dir`, and runs the pipeline over it.
pub fn run(dir: &Path) -> Result<RunReport> {
    let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, dir.join("data"));
    options.series = 50;
    demand(&options, &mut |_| {})?;
    let state = dir.join("state").display().to_string();
    let forebay = Forebay::new().with_options(SessionOptions::default().state(state));

    let pipeline = pipeline(dir)?;
    for warning in forebay.check(&pipeline)? {
        println!("{warning}");
    }
    let preview = forebay.preview(&pipeline, &PreviewOptions::default().rows(3))?;
    for batch in &preview.batches {
        println!(
            "{} rows of {}, {} columns",
            batch.num_rows(),
            preview.step,
            batch.num_columns()
        );
    }
    // Batch by batch: the rows of a step need not fit into memory.
    let mut rows = 0;
    for batch in forebay.rows(&pipeline, "weekly")? {
        rows += batch?.num_rows();
    }
    println!("{rows} weeks of stores");
    forebay.run(&pipeline)
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-run-pipeline-{}", std::process::id()));
    let report = run(&dir)?;
    for output in &report.outputs {
        println!("{}: {} rows in {}", output.sink, output.rows, output.data);
    }
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
