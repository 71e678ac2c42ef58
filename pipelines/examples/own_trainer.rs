//! A trainer of one's own, as another crate would write it: a straight line through one column. `own_source` shows a
//! source, `own_sink` a sink.
//!
//! ```text
//! cargo run -p forebay --example own_trainer
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema};
use forebay::feed::{FeatureColumn, Feed, FeedOrder, PartRole, RemainderPolicy};
use forebay::model::{ConfigError, ConfigResult, codes};
use forebay::prelude::*;
use forebay::run::{
    EpochReport, ModelPredictor, Predictions, ReadModelFile, Trainer, TrainingContext,
    TrainingOutput, TrainingReport,
};
use forebay_generate::{DemandOptions, HistoryExtent, demand};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The file of a model.
const LINE_FILE: &str = "line.json";

/// Stands for a missing value of the column.
const MISSING: f64 = 0.0;

/// Fits a straight line to a column by least squares. A missing value counts as 0.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LineTrainer {
    /// The folder or URL that the model goes to.
    pub path: String,
    /// The column that is predicted.
    pub label: String,
    /// The column that it is predicted from, as a list of one.
    pub dense: Vec<String>,
}

impl ConnectorConfig for LineTrainer {
    const NAME: &'static str = "line";

    fn check(&self) -> ConfigResult<()> {
        if self.dense.len() != 1 {
            return Err(ConfigError::at("dense", "name exactly one column"));
        }
        Ok(())
    }
}

impl TrainerFormat for LineTrainer {
    fn predictor(files: ReadModelFile<'_>) -> Result<Option<Arc<dyn ModelPredictor>>> {
        let Some(bytes) = files(LINE_FILE)? else {
            return Ok(None);
        };
        let line: FittedLine = serde_json::from_slice(&bytes).map_err(|error| {
            Fault::new(codes::CORRUPT, "the line cannot be read")
                .file(LINE_FILE)
                .cause(error)
        })?;
        Ok(Some(Arc::new(line)))
    }
}

impl Trainer for LineTrainer {
    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn feed(&self) -> FeedConfig {
        let dense = self.dense.iter();
        FeedConfig {
            dense: Some(
                dense
                    .map(|column| FeatureColumn::from(column.as_str()))
                    .collect(),
            ),
            categorical: Some(Vec::new()),
            label: Some(FeatureColumn::from(self.label.as_str())),
            missing: Some(MISSING),
            order: FeedOrder::Sequential,
            last: Some(RemainderPolicy::Short),
            ..FeedConfig::default()
        }
    }

    fn validation(&self) -> Option<&str> {
        None
    }

    /// Everything that determines the line besides its rows: another version of this code is another model.
    fn identity(&self) -> Result<Value> {
        Ok(
            json!({ "trainer": "example.line", "version": 1, "dense": self.dense, "label": self.label }),
        )
    }

    fn train(&self, context: &TrainingContext<'_>) -> Result<TrainingOutput> {
        // Rows come in one order for any number of threads, so that the sums have the same bits.
        let mut sums = LineSums::default();
        for batch in Feed::start(context.rows.config(0)?)? {
            context.check()?;
            let batch = batch?;
            let values = batch.numbers::<f32>(PartRole::Dense);
            let labels = batch.numbers::<f32>(PartRole::Label);
            for (x, y) in values.iter().zip(labels).take(batch.rows()) {
                sums.add(f64::from(*x), f64::from(*y));
            }
        }
        let (intercept, slope) = sums.line();
        let line = FittedLine {
            intercept,
            slope,
            column: self.dense[0].clone(),
            label: self.label.clone(),
            training: origin_text(context, "training").unwrap_or_default(),
            horizon: origin_text(context, "horizon"),
        };
        let file = serde_json::to_vec(&line)
            .map_err(|error| Fault::internal("a line cannot be written").cause(error))?;
        let epoch = EpochReport {
            epoch: 0,
            step: 0,
            loss: sums.loss(intercept, slope),
            learning_rate: 0.0,
            rounds: None,
            validation: BTreeMap::new(),
        };
        Ok(TrainingOutput {
            files: vec![(LINE_FILE.to_owned(), file)],
            learned: TrainingReport {
                rows: context.rows.rows(),
                validation_rows: context.validation.map_or(0, |rows| rows.rows()),
                parameters: 2,
                epochs: vec![epoch],
                ..TrainingReport::default()
            },
            rows_learned: sums.rows as u64,
            rows_validated: context.validation.map_or(0, |rows| rows.rows()),
        })
    }
}

/// The origin of a model, as a run reports it.
fn origin_text(context: &TrainingContext<'_>, key: &str) -> Option<String> {
    context.origin[key].as_str().map(str::to_owned)
}

/// Sums over the rows.
#[derive(Debug, Default)]
struct LineSums {
    rows: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl LineSums {
    fn add(&mut self, x: f64, y: f64) {
        self.rows += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
        self.yy += y * y;
    }

    /// Intercept and slope of the least squares; a level line where all values are equal.
    fn line(&self) -> (f64, f64) {
        let spread = self.rows * self.xx - self.x * self.x;
        if self.rows == 0.0 {
            return (0.0, 0.0);
        }
        let slope = if spread > 0.0 {
            (self.rows * self.xy - self.x * self.y) / spread
        } else {
            0.0
        };
        ((self.y - slope * self.x) / self.rows, slope)
    }

    /// Mean of the squared errors.
    fn loss(&self, intercept: f64, slope: f64) -> f64 {
        if self.rows == 0.0 {
            return 0.0;
        }
        let squares = self.yy + slope * slope * self.xx + intercept * intercept * self.rows;
        let products = intercept * self.y + slope * self.xy - intercept * slope * self.x;
        ((squares - 2.0 * products) / self.rows).max(0.0)
    }
}

/// A model, as its file holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FittedLine {
    /// Prediction where the column is 0.
    pub intercept: f64,
    /// Increase of the prediction with each unit of the column.
    pub slope: f64,
    column: String,
    label: String,
    training: String,
    horizon: Option<String>,
}

impl ModelPredictor for FittedLine {
    fn id(&self) -> &str {
        &self.training
    }

    fn horizon(&self) -> Option<&str> {
        self.horizon.as_deref()
    }

    fn columns(&self) -> Vec<String> {
        vec![self.column.clone()]
    }

    fn filled_columns(&self) -> Vec<String> {
        vec![self.column.clone()]
    }

    fn check(&self, schema: &Schema) -> Result<()> {
        let Ok(field) = schema.field_with_name(&self.column) else {
            return Ok(());
        };
        if field.data_type().is_numeric() {
            return Ok(());
        }
        let message = format!("the line needs numbers, and `{}` has none", self.column);
        Err(Fault::new(codes::COLUMN_TYPE, message).column(&self.column))
    }

    fn label(&self) -> Option<&str> {
        Some(&self.label)
    }

    fn predict(&self, columns: &[ArrayRef], _: usize) -> Result<Predictions> {
        let values = cast(&columns[0], &DataType::Float64)?;
        let mut predicted = Vec::with_capacity(values.len());
        for value in values.as_primitive::<Float64Type>() {
            let value = value.unwrap_or(MISSING);
            predicted.push((self.intercept + self.slope * value) as f32);
        }
        Ok(Predictions::from(Float32Array::from(predicted)))
    }
}

/// Everything that comes with Forebay, and the trainer above.
pub fn forebay() -> Forebay {
    Forebay::new().with_trainer::<LineTrainer>()
}

/// The pipeline in YAML: the demand of a week, from the demand of the week before.
pub fn from_yaml(dir: &Path) -> Result<Pipeline> {
    let text = "version: 1
name: lines
sources:
  demand: { parquet: { path: DIR/data }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - filter: { sql: \"qty IS NOT NULL\", when: learning }
      - future_rows: { horizon: 7d, every: 1d }
      - lag: { columns: [qty], by: [7d] }
      - select: [date, store_id, item_id, qty, qty_lag_7d]
label: { column: qty, horizon: 7d }
sinks:
  table: { from: features, parquet: { path: DIR/table } }
  line: { from: features, line: { path: DIR/line, label: qty, dense: [qty_lag_7d] } }
  forecast: { from: features, predict: { path: DIR/forecast, model: line } }
";
    let text = text.replace("DIR", &dir.display().to_string());
    let catalog = forebay();
    forebay::spec::parse(
        &text,
        "lines.yaml",
        &BTreeMap::new(),
        &catalog.spec_catalog(),
    )
}

/// An equal pipeline from the builder.
pub fn from_builder(dir: &Path) -> Result<Pipeline> {
    let at = |name: &str| dir.join(name).display().to_string();
    let pipeline = PipelineBuilder::new("lines");
    let demand = pipeline
        .source("demand", ParquetSource::at(at("data")))
        .time("date")
        .keys(["store_id", "item_id"]);
    let features = pipeline
        .step("features", &demand)
        .apply(filter("qty IS NOT NULL").when(FilterScope::Learning))
        .apply(future_rows("7d", "1d"))
        .apply(lag(["qty"]).by(["7d"]))
        .apply(select(["date", "store_id", "item_id", "qty", "qty_lag_7d"]));
    pipeline.label("qty", "7d");
    pipeline.sink("table", &features, ParquetSink::at(at("table")));
    let line = pipeline.train(
        "line",
        &features,
        LineTrainer {
            path: at("line"),
            label: "qty".to_owned(),
            dense: vec!["qty_lag_7d".to_owned()],
        },
    );
    pipeline.predict(
        "forecast",
        &features,
        PredictConfig::new(&line, at("forecast")),
    );
    pipeline.build()
}

/// Generates demand in `dir`, and runs both pipelines over it. The second run takes the model of the first.
pub fn run(dir: &Path) -> Result<(RunReport, RunReport)> {
    let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, dir.join("data"));
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
    let dir = std::env::temp_dir().join(format!("forebay-own-trainer-{}", std::process::id()));
    let (first, second) = run(&dir)?;
    for epoch in &first.models[0].learned.epochs {
        println!("mean squared error {:.3}", epoch.loss);
    }
    println!("{} rows predicted", first.forecasts[0].rows);
    println!(
        "again from the builder, trained again: {}",
        !second.models[0].reused
    );
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
