//! An analyzer and a transform of one's own, as another crate would write them: the geometric mean
//! of a column, and a column as multiples of its geometric mean.
//!
//! `cargo run -p forebay --example own_analyzer` generates some demand, runs the pipeline from YAML and
//! from the builder, and prints what was learned.

#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use forebay::extend::arrow::array::{ArrayRef, AsArray, Float64Array, UInt64Array};
use forebay::extend::arrow::compute::cast;
use forebay::extend::arrow::datatypes::{DataType, Field, Float64Type};
use forebay::extend::schemars::JsonSchema;
use forebay::extend::serde::{Deserialize, Serialize};
use forebay::extend::serde_json::{Value, json};
use forebay::extend::{
    Analyzer, AnalyzerInput, AnalyzerRequest, BindScope, Finding, LoweredMap, MapOp, PlanOp,
    ScratchSpace, StateDecoder, StateEncoder, codes,
};
use forebay::prelude::*;
use forebay_generate::{DemandOptions, HistoryExtent, demand};

/// The geometric mean of a column of positive numbers; null and NaN do not count.
///
/// Sums of floating-point numbers depend on their order, sums of integers do not. So the logarithms
/// are summed as whole multiples of 2^-52: the result has the same bits however the data is cut.
#[derive(Debug, Clone, Copy, Default)]
pub struct GeometricMean;

/// Value of one unit of [`LogarithmSum::sum`].
const UNIT: f64 = 1.0 / (1u64 << 52) as f64;

/// State of [`GeometricMean`].
#[derive(Debug, Default)]
pub struct LogarithmSum {
    count: u64,
    sum: i128,
}

impl Analyzer for GeometricMean {
    type State = LogarithmSum;

    fn kind(&self) -> &'static str {
        "example.geometric_mean" // Prefixed, so that it never meets one of Forebay's own.
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<LogarithmSum> {
        Ok(LogarithmSum::default())
    }

    fn update(&self, state: &mut LogarithmSum, input: &AnalyzerInput<'_>) -> Result<()> {
        for value in doubles(&input.columns[0])?
            .iter()
            .flatten()
            .filter(|value| !value.is_nan())
        {
            if value <= 0.0 || value.is_infinite() {
                let fault = Fault::new(
                    codes::BAD_ROW,
                    format!("{value} has no place in a geometric mean"),
                );
                return Err(fault
                    .hint("keep values that are above 0 and finite: `filter` before this step"));
            }
            state.count += 1;
            state.sum += (value.ln() / UNIT) as i128;
        }
        Ok(())
    }

    fn merge(&self, state: &mut LogarithmSum, later: LogarithmSum) -> Result<()> {
        state.count += later.count;
        state.sum += later.sum;
        Ok(())
    }

    fn encode(&self, state: &mut LogarithmSum, out: &mut dyn Write) -> Result<()> {
        let mut out = StateEncoder(out);
        out.varint(state.count)?;
        out.raw(&state.sum.to_le_bytes())
    }

    fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<LogarithmSum> {
        let mut input = StateDecoder(input);
        let count = input.count()?;
        let mut sum_bytes = [0; 16];
        input.raw(&mut sum_bytes)?;
        let sum = i128::from_le_bytes(sum_bytes);
        // No logarithm of a double reaches 2^10. A larger sum is damage, and adding to it could overflow.
        if sum.unsigned_abs() > u128::from(count) << (52 + 10) {
            let message = "a state holds a sum that its values cannot have";
            return Err(Fault::new(codes::CORRUPT, message));
        }
        Ok(LogarithmSum { count, sum })
    }

    fn finish(&self, state: LogarithmSum) -> Result<Finding> {
        let mean = (state.count > 0).then(|| (state.sum as f64 * UNIT / state.count as f64).exp());
        Finding::of([
            (
                "count",
                Arc::new(UInt64Array::from(vec![state.count])) as ArrayRef,
            ),
            ("mean", Arc::new(Float64Array::from(vec![mean]))),
        ])
    }

    fn size_bytes(&self, _: &LogarithmSum) -> usize {
        size_of::<LogarithmSum>()
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        size_of::<LogarithmSum>()
    }
}

/// Columns of positive numbers as multiples of their geometric mean.
///
/// Out: `float64`. Null and NaN stay as they are. Nothing seen: x unchanged.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, Setters)]
// Derived code names its crates, which need not be dependencies then.
#[serde(crate = "forebay::extend::serde", deny_unknown_fields)]
#[schemars(crate = "forebay::extend::schemars")]
#[setters(fn typical(columns))]
pub struct TypicalScale {
    /// Columns of numbers.
    pub columns: ColumnSelector,
}

impl ConfiguredTransform for TypicalScale {
    const NAME: &'static str = "typical";
}

impl Transform for TypicalScale {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let output = Field::new(field.name(), DataType::Float64, field.is_nullable());
                let ask = AnalyzerRequest::new(GeometricMean, [field.name()]);
                PlanOp::Map(MapOp::fitted([field.name()], [output], [ask], |findings| {
                    let mean = findings[0].number("mean")?.unwrap_or(1.0);
                    Ok(LoweredMap::unary(move |column| {
                        Ok(Arc::new(
                            doubles(column)?.unary::<_, Float64Type>(|value| value / mean),
                        ))
                    }))
                }))
            });
        Ok(each.collect())
    }
}

fn doubles(column: &ArrayRef) -> Result<Float64Array> {
    Ok(cast(column, &DataType::Float64)?.as_primitive().clone())
}

/// Everything that comes with Forebay, and the transform above.
pub fn forebay() -> Forebay {
    Forebay::new().with_transform::<TypicalScale>()
}

/// The pipeline in YAML.
pub fn from_yaml(dir: &Path) -> Result<Pipeline> {
    let text = format!(
        "version: 1
name: typical
sources:
  demand:
    parquet: {{ path: {dir}/data }}
steps:
  features:
    from: demand
    do:
      - filter: \"price > 0\"
      - typical: {{ columns: [price] }}
sinks:
  table: {{ from: features, parquet: {{ path: {dir}/out }} }}
",
        dir = dir.display()
    );
    forebay::spec::parse(
        &text,
        "typical.yaml",
        &BTreeMap::new(),
        &forebay().spec_catalog(),
    )
}

/// Builds an equal pipeline with the builder.
pub fn from_builder(dir: &Path) -> Result<Pipeline> {
    let at = |name: &str| dir.join(name).display().to_string();
    let pipeline = PipelineBuilder::new("typical");
    let demand = pipeline.source("demand", ParquetSource::at(at("data")));
    let features = pipeline
        .step("features", &demand)
        .apply(filter("price > 0"))
        .apply(typical(["price"]));
    pipeline.sink("table", &features, ParquetSink::at(at("out")));
    pipeline.build()
}

/// Generates demand in `dir`, runs both pipelines over it, and gives their reports and the artifact.
pub fn run(dir: &Path) -> Result<(RunReport, RunReport, Artifact)> {
    let mut options = DemandOptions::new(HistoryExtent::Days(40), 7, dir.join("data"));
    options.series = 50;
    demand(&options, &mut |_| {})?;
    let state = dir.join("state").display().to_string();
    let options = SessionOptions::default()
        .threads(2)
        .memory_bytes(256 << 20)
        .state(state);
    let session = forebay().with_options(options).session()?;
    let first = session.run(&from_yaml(dir)?)?;
    // The same pipeline has the same ids: the second run finds everything done.
    let second = session.run(&from_builder(dir)?)?;
    let place = session
        .io()
        .resolve(first.artifact_path.as_deref().unwrap_or_default())?;
    let artifact = Artifact::load(session.io(), &place)?;
    Ok((first, second, artifact))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-own-analyzer-{}", std::process::id()));
    let (first, second, artifact) = run(&dir)?;
    for learned in &artifact.findings {
        let mean = learned.finding.number("mean")?.unwrap_or(f64::NAN);
        println!(
            "{} of {}: {mean}",
            learned.analyzer,
            learned.columns.join(", ")
        );
    }
    println!(
        "{} rows in {}",
        first.outputs[0].rows, first.outputs[0].data
    );
    println!(
        "again from the builder, nothing new: {}",
        second.nothing_new
    );
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
