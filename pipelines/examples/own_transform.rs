//! A transform of one's own, as another crate would write it: the ratio of two columns. `own_analyzer` shows one that
//! learns from the data.
//!
//! ```text
//! cargo run -p forebay --example own_transform
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::path::Path;
use std::sync::Arc;

use forebay::extend::arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use forebay::extend::arrow::compute::{cast, try_binary};
use forebay::extend::arrow::datatypes::{DataType, Field, Float64Type};
use forebay::extend::arrow::error::ArrowError;
use forebay::extend::schemars::JsonSchema;
use forebay::extend::serde::{Deserialize, Serialize};
use forebay::extend::{BindScope, MapOp, PlanOp, codes};
use forebay::prelude::*;
use forebay_generate::{DemandOptions, HistoryExtent, demand};

/// Divides one column by another.
///
/// Out: `float64`. Null where either is null; a denominator of 0 is a fault.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, Setters)]
// Derived code names its crates, which need not be dependencies then.
#[serde(crate = "forebay::extend::serde", deny_unknown_fields)]
#[schemars(crate = "forebay::extend::schemars")]
#[setters(fn ratio(numerator, denominator))]
pub struct Ratio {
    /// The column that is divided.
    pub numerator: String,
    /// The column that it is divided by.
    pub denominator: String,
    /// Name of the new column; `ratio` when left out.
    #[serde(default = "ratio_name")]
    pub name: String,
}

fn ratio_name() -> String {
    "ratio".to_owned()
}

impl ConfiguredTransform for Ratio {
    const NAME: &'static str = "ratio";
}

impl Transform for Ratio {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let columns =
            scope.numeric_columns(&[&self.numerator, &self.denominator].into_iter().collect())?;
        let reads: Vec<&String> = columns.iter().map(|field| field.name()).collect();
        let output = Field::new(&self.name, DataType::Float64, true);
        Ok(vec![PlanOp::Map(MapOp::new(
            reads,
            [output],
            |inputs, _| Ok(vec![divided(&inputs[0], &inputs[1])?]),
        ))])
    }
}

fn divided(numerator: &ArrayRef, denominator: &ArrayRef) -> Result<ArrayRef> {
    let doubles = |column: &ArrayRef| -> Result<Float64Array> {
        Ok(cast(column, &DataType::Float64)?
            .as_primitive::<Float64Type>()
            .clone())
    };
    let numerator = doubles(numerator)?;
    let denominator = doubles(denominator)?;
    let divide = |a: f64, b: f64| {
        if b == 0.0 {
            Err(ArrowError::DivideByZero)
        } else {
            Ok(a / b)
        }
    };
    let divided: Float64Array = try_binary(&numerator, &denominator, divide).map_err(|error| {
        Fault::new(codes::BAD_ROW, "a denominator is 0")
            .cause(error)
            .hint("`filter` such rows before this step")
    })?;
    Ok(Arc::new(divided))
}

/// Generates demand in `dir`, and gives the rows with the ratio.
pub fn run(dir: &Path) -> Result<Vec<RecordBatch>> {
    let mut options = DemandOptions::new(HistoryExtent::Days(10), 7, dir.join("data"));
    options.series = 20;
    demand(&options, &mut |_| {})?;
    let pipeline = PipelineBuilder::new("ratios");
    let demand = pipeline.source(
        "demand",
        ParquetSource::at(dir.join("data").display().to_string()),
    );
    let ratios = pipeline
        .step("ratios", &demand)
        .apply(filter("price > 0"))
        .apply(ratio("qty", "price").name("qty_by_price"))
        .apply(select(["qty", "price", "qty_by_price"]));
    let state = dir.join("state").display().to_string();
    let options = SessionOptions::default().state(state);
    Forebay::new()
        .with_options(options)
        .with_transform::<Ratio>()
        .collect(&pipeline.build()?, &ratios)
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-own-transform-{}", std::process::id()));
    let rows: usize = run(&dir)?.iter().map(RecordBatch::num_rows).sum();
    println!("{rows} rows with a ratio");
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
