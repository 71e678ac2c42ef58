//! A sink of one's own, as another crate would write it: tables in Markdown. `own_source` shows a source, `own_trainer` a
//! trainer.
//!
//! ```text
//! cargo run -p forebay --example own_sink
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay::model::{ConfigError, ConfigResult};
use forebay::prelude::*;
use forebay::run::{EncodedBatch, EncodedPiece, FileLayout, FileWriter, Sink};
use forebay_generate::{DemandOptions, HistoryExtent, demand};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tables in Markdown; null is an empty cell.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkdownSink {
    /// The folder or URL that the output goes to.
    pub path: String,
}

impl ConnectorConfig for MarkdownSink {
    const NAME: &'static str = "markdown";

    fn check(&self) -> ConfigResult<()> {
        if self.path.is_empty() {
            return Err(ConfigError::at("path", "the path is empty"));
        }
        Ok(())
    }
}

impl SinkFormat for MarkdownSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(self)
    }
}

impl Sink for MarkdownSink {
    fn path(&self) -> &str {
        &self.path
    }

    fn extension(&self) -> &'static str {
        "md"
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: Vec::new(),
            sort_by: Vec::new(),
            file_bytes_target: 1 << 20,
            group_rows_max: 10_000,
            is_plain: true,
        }
    }

    fn encode_piece(
        &self,
        _: &SchemaRef,
        batches: &[RecordBatch],
        _: usize,
    ) -> Result<EncodedPiece> {
        let options = FormatOptions::default();
        let mut text = String::new();
        for batch in batches {
            let mut columns = Vec::with_capacity(batch.num_columns());
            for column in batch.columns() {
                columns.push(ArrayFormatter::try_new(column.as_ref(), &options)?);
            }
            for row in 0..batch.num_rows() {
                let mut cells = Vec::with_capacity(columns.len());
                for column in &columns {
                    cells.push(column.value(row).try_to_string()?);
                }
                text.push_str(&table_row(&cells));
            }
        }
        let bytes = text.len() as u64;
        Ok(EncodedPiece {
            payload: Box::new(text),
            bytes,
        })
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        let mut file = MarkdownFile { out, bytes: 0 };
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        file.write(&table_row(&names))?;
        file.write(&table_row(&vec!["---".to_owned(); names.len()]))?;
        Ok(Box::new(file))
    }
}

/// A line of a table; bars inside a cell are escaped.
fn table_row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A file that is written.
struct MarkdownFile {
    out: Box<dyn Write + Send>,
    bytes: u64,
}

impl MarkdownFile {
    fn write(&mut self, text: &str) -> Result<()> {
        self.out
            .write_all(text.as_bytes())
            .map_err(|error| Fault::disk("a table cannot be written", error))?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

impl FileWriter for MarkdownFile {
    fn append(&mut self, part: EncodedBatch) -> Result<()> {
        for piece in part.pieces {
            let text = piece
                .payload
                .downcast::<String>()
                .map_err(|_| Fault::internal("rows of another sink"))?;
            self.write(&text)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.out
            .flush()
            .map_err(|error| Fault::disk("a table cannot be written", error))
    }
}

/// Everything that comes with Forebay, and the sink above.
pub fn forebay() -> Forebay {
    Forebay::new().with_sink::<MarkdownSink>()
}

/// The pipeline in YAML.
pub fn from_yaml(dir: &Path) -> Result<Pipeline> {
    let text = "version: 1
name: prices
sources:
  demand: { parquet: { path: DIR/data } }
steps:
  prices: { from: demand, do: [{ filter: \"qty > 0\" }, { select: [item_id, qty, price] }] }
sinks:
  table: { from: prices, markdown: { path: DIR/out } }
";
    let text = text.replace("DIR", &dir.display().to_string());
    let catalog = forebay();
    forebay::spec::parse(
        &text,
        "prices.yaml",
        &BTreeMap::new(),
        &catalog.spec_catalog(),
    )
}

/// An equal pipeline from the builder.
pub fn from_builder(dir: &Path) -> Result<Pipeline> {
    let at = |name: &str| dir.join(name).display().to_string();
    let pipeline = PipelineBuilder::new("prices");
    let demand = pipeline.source("demand", ParquetSource::at(at("data")));
    let prices = pipeline
        .step("prices", &demand)
        .apply(filter("qty > 0"))
        .apply(select(["item_id", "qty", "price"]));
    pipeline.sink("table", &prices, MarkdownSink { path: at("out") });
    pipeline.build()
}

/// Generates demand in `dir`, and runs both pipelines over it: the second run finds everything done.
pub fn run(dir: &Path) -> Result<(RunReport, RunReport)> {
    let mut options = DemandOptions::new(HistoryExtent::Days(3), 7, dir.join("data"));
    options.series = 20;
    demand(&options, &mut |_| {})?;
    let state = dir.join("state").display().to_string();
    let session = forebay()
        .with_options(SessionOptions::default().state(state))
        .session()?;
    let first = session.run(&from_yaml(dir)?)?;
    let second = session.run(&from_builder(dir)?)?;
    Ok((first, second))
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-own-sink-{}", std::process::id()));
    let (first, second) = run(&dir)?;
    println!(
        "{} rows in {}",
        first.outputs[0].rows, first.outputs[0].data
    );
    println!(
        "again from the builder, nothing new: {}",
        second.nothing_new
    );
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
