//! The examples run, and do what they say.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::Float64Type;
use forebay::analyze::laws::check_laws;

use crate::support::{TestDirectory, read};

#[path = "../pipelines/examples/own_analyzer.rs"]
#[allow(dead_code)]
mod example;
#[path = "../pipelines/examples/feed_loop.rs"]
#[allow(dead_code)]
mod feed_loop;
#[path = "../pipelines/examples/own_transform.rs"]
#[allow(dead_code)]
mod own_transform;
#[path = "../pipelines/examples/run_pipeline.rs"]
#[allow(dead_code)]
mod run_pipeline;
#[path = "../pipelines/examples/serve_row.rs"]
#[allow(dead_code)]
mod serve_row;

use example::GeometricMean;

fn batch(values: Vec<Option<f64>>) -> RecordBatch {
    RecordBatch::try_from_iter([("x", Arc::new(Float64Array::from(values)) as ArrayRef)]).unwrap()
}

#[test]
fn a_custom_analyzer_keeps_the_laws() {
    let value = |row: u32| (!row.is_multiple_of(7)).then(|| f64::from(row * row % 991 + 1) / 8.0);
    for seed in 0..5 {
        check_laws(
            &GeometricMean,
            &[batch((0..3000).map(value).collect())],
            seed,
        )
        .unwrap();
    }
    check_laws(&GeometricMean, &[batch(vec![None; 3])], 0).unwrap();
    check_laws(&GeometricMean, &[batch(Vec::new())], 0).unwrap();
}

#[test]
fn a_custom_transform_runs_like_any_other() {
    let shop = TestDirectory::new();
    let (first, second, artifact) = example::run(&shop.path("typical")).unwrap();
    assert!(!first.nothing_new);
    assert!(second.nothing_new, "{first:?}\n{second:?}");
    assert_eq!(first.artifact, second.artifact);
    // The geometric mean by its definition.
    let input = read(&shop.path("typical/data"));
    let prices: Vec<f64> = input["price"]
        .as_primitive::<Float64Type>()
        .iter()
        .flatten()
        .filter(|x| *x > 0.0)
        .collect();
    let expected = (prices.iter().map(|price| price.ln()).sum::<f64>() / prices.len() as f64).exp();
    let finding = &artifact.findings[0].finding;
    let mean = finding.number("mean").unwrap().unwrap();
    assert!(
        (mean / expected - 1.0).abs() < 1e-12,
        "{mean}, not {expected}"
    );
    assert_eq!(
        finding.number("count").unwrap().unwrap(),
        prices.len() as f64
    );
    let output = shop.rows("typical/out")["price"]
        .as_primitive::<Float64Type>()
        .clone();
    assert_eq!(output.len(), prices.len());
    assert!(
        output
            .iter()
            .zip(&prices)
            .all(|(scaled, price)| scaled == Some(price / mean))
    );
}

#[test]
fn a_custom_transform_has_the_same_faults() {
    let forebay = example::forebay();
    let text = "version: 1\nname: t\nsources:\n  a:\n    parquet: { path: a }\nsteps:\n  b:\n    from: a\n    do:\n      \
                - typicl: { columns: [x] }\n      - typical: { column: [x] }\nsinks:\n  c: { from: b, parquet: { path: o } }\n";
    let fault = forebay::spec::parse(text, "t.yaml", &Default::default(), &forebay.spec_catalog())
        .unwrap_err();
    let text = forebay::present::fault::plain(&fault, None);
    assert!(
        text.contains("did you mean `typical`?") && text.contains("did you mean `columns`?"),
        "{text}"
    );
}

#[test]
fn a_pipeline_is_built_checked_and_run() {
    let shop = TestDirectory::new();
    let report = run_pipeline::run(&shop.path("demand")).unwrap();
    assert_eq!(
        report
            .outputs
            .iter()
            .map(|output| output.sink.as_str())
            .collect::<Vec<_>>(),
        ["table", "weekly"]
    );
    assert!(report.outputs.iter().all(|output| output.rows > 0));
}

#[test]
fn a_feed_trains_a_line() {
    let shop = TestDirectory::new();
    let losses = feed_loop::run(&shop.path("clicks")).unwrap();
    assert!(
        losses.len() == 3 && losses.windows(2).all(|pair| pair[1] < pair[0]),
        "{losses:?}"
    );
}

#[test]
fn a_transform_divides_columns() {
    let shop = TestDirectory::new();
    let batches = own_transform::run(&shop.path("ratios")).unwrap();
    let mut rows = 0;
    for batch in &batches {
        let doubles = |name: &str| {
            arrow::compute::cast(&batch[name], &arrow::datatypes::DataType::Float64).unwrap()
        };
        let [qty, price, ratio] = ["qty", "price", "qty_by_price"].map(doubles);
        let values = |column: &ArrayRef| {
            column
                .as_primitive::<Float64Type>()
                .iter()
                .collect::<Vec<_>>()
        };
        for ((qty, price), ratio) in values(&qty)
            .into_iter()
            .zip(values(&price))
            .zip(values(&ratio))
        {
            assert_eq!(ratio, qty.zip(price).map(|(qty, price)| qty / price));
            rows += 1;
        }
    }
    assert!(rows > 0);
}

#[test]
fn a_row_is_served() {
    let shop = TestDirectory::new();
    let row = serve_row::run(&shop.path("prices")).unwrap();
    assert_eq!(
        row["category"],
        serde_json::json!([1.0, 0.0, 0.0]),
        "{row:?}"
    );
    assert!(row["price"].is_number(), "{row:?}");
}
