//! Embeds a model in a program: rows are answered with windows over the rows before, on several threads, while new facts
//! come in.
//!
//! ```text
//! cargo run -p forebay --example serve_windows
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::util::display::array_value_to_string;
use forebay::prelude::*;
use forebay_generate::{DemandOptions, HistoryExtent, demand};
use serde_json::{Map, Value, json};

/// Generates demand in `dir`, runs a pipeline over it, and answers the rows of the next day.
pub fn run(dir: &Path) -> Result<Vec<Map<String, Value>>> {
    let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, dir.join("data"));
    options.series = 50;
    demand(&options, &mut |_| {})?;
    let pipeline = PipelineBuilder::new("served");
    let demand = pipeline
        .source(
            "demand",
            ParquetSource::at(dir.join("data").display().to_string()),
        )
        .time("date")
        .keys(["store_id", "item_id"]);
    let features = pipeline
        .step("features", &demand)
        .apply(select(["date", "store_id", "item_id", "qty"]))
        .apply(lag(["qty"]).by(["1d", "7d"]))
        .apply(
            rolling(["qty"])
                .compute([SeriesStatistic::Mean])
                .over(["28d"])
                .gap("1d"),
        );
    pipeline.serve(&features);
    let state = dir.join("state").display().to_string();
    let forebay = Forebay::new().with_options(SessionOptions::default().state(state));
    let pipeline = pipeline.build()?;
    let report = forebay.fit(&pipeline)?;

    // A service would begin here: the artifact is all that it needs, and its threads share the model.
    let artifact = forebay.artifact(report.artifact_path.as_deref().unwrap_or_default())?;
    let model = Arc::new(forebay.model(&artifact, None)?);
    let as_of = model.state().map(|state| state.as_of).unwrap_or_default();
    let tomorrow = next_day(&as_of)?;
    let history = forebay.collect(&pipeline, "demand")?;
    let last = history
        .last()
        .map(|batch| batch.slice(batch.num_rows() - 1, 1))
        .ok_or_else(|| Fault::internal("a history without rows"))?;
    let row = json!({
        "date": tomorrow,
        "store_id": text(&last, "store_id")?,
        "item_id": text(&last, "item_id")?,
    });
    let row = row.as_object().cloned().unwrap_or_default();
    let mut threads = Vec::new();
    for _ in 0..2 {
        let model = model.clone();
        let row = row.clone();
        threads.push(std::thread::spawn(move || model.apply_row(&row)));
    }
    let mut answers = Vec::new();
    for thread in threads {
        let answer = thread.join();
        answers.push(answer.map_err(|_| Fault::internal("a thread failed"))??);
    }

    // The day has come: its demand is a fact, and the lag of the day after.
    let columns = [
        ("date", tomorrow.as_str()),
        ("store_id", &text(&last, "store_id")?),
        ("item_id", &text(&last, "item_id")?),
        ("qty", "17"),
    ];
    let columns = columns.map(|(name, value)| {
        let column: ArrayRef = Arc::new(StringArray::from(vec![value]));
        (name, column)
    });
    model.append(&RecordBatch::try_from_iter(columns)?)?;
    let mut row = row;
    row.insert("date".to_owned(), Value::from(next_day(&tomorrow)?));
    answers.push(model.apply_row(&row)?);
    Ok(answers)
}

/// The value of a column in a batch's only row, as text.
fn text(row: &RecordBatch, name: &str) -> Result<String> {
    let column = row.column_by_name(name);
    let column = column.ok_or_else(|| Fault::internal(format!("no column {name}")))?;
    Ok(array_value_to_string(column, 0)?)
}

fn next_day(day: &str) -> Result<String> {
    let failed = |error| Fault::internal("no day").cause(error);
    let day: jiff::civil::Date = day.get(..10).unwrap_or_default().parse().map_err(failed)?;
    Ok(day.tomorrow().map_err(failed)?.to_string())
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-serve-windows-{}", std::process::id()));
    for answer in run(&dir)? {
        println!("{}", Value::from(answer));
    }
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
