//! The examples run, and do what they say.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use forebay::analyze::laws::check_laws;
use forebay::model::codes;
use forebay::prelude::*;
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::support::{TestDirectory, read};

#[path = "../../pipelines/examples/own_analyzer.rs"]
#[allow(dead_code)]
mod example;
#[path = "../../pipelines/examples/feed_loop.rs"]
#[allow(dead_code)]
mod feed_loop;
#[path = "../../pipelines/examples/own_sink.rs"]
#[allow(dead_code)]
mod own_sink;
#[path = "../../pipelines/examples/own_source.rs"]
#[allow(dead_code)]
mod own_source;
#[path = "../../pipelines/examples/own_trainer.rs"]
#[allow(dead_code)]
mod own_trainer;
#[path = "../../pipelines/examples/own_transform.rs"]
#[allow(dead_code)]
mod own_transform;
#[path = "../../pipelines/examples/run_pipeline.rs"]
#[allow(dead_code)]
mod run_pipeline;
#[path = "../../pipelines/examples/serve_http.rs"]
#[allow(dead_code)]
mod serve_http;
#[path = "../../pipelines/examples/serve_row.rs"]
#[allow(dead_code)]
mod serve_row;
#[path = "../../pipelines/examples/serve_windows.rs"]
#[allow(dead_code)]
mod serve_windows;

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

/// All texts of a column, in the order of its rows.
fn texts(rows: &RecordBatch, name: &str) -> Vec<String> {
    let column = arrow::compute::cast(&rows[name], &DataType::Utf8).unwrap();
    let texts = column.as_string::<i32>().iter();
    texts
        .map(|text| text.unwrap_or("null").to_owned())
        .collect()
}

/// Numbers of a column with 0 in place of null, in the order of its rows.
fn filled_doubles(rows: &RecordBatch, name: &str) -> Vec<f64> {
    let column = arrow::compute::cast(&rows[name], &DataType::Float64).unwrap();
    let values = column.as_primitive::<Float64Type>().iter();
    values.map(Option::unwrap_or_default).collect()
}

#[test]
fn a_custom_source_is_read_by_specs_and_the_builder() {
    let shop = TestDirectory::new();
    let (first, second) = own_source::run(&shop.path("stations")).unwrap();
    assert!(!first.nothing_new && second.nothing_new, "{second:?}");
    let rows = shop.rows("stations/out");
    // The row without a temperature is left out.
    assert_eq!(texts(&rows, "station"), ["N1", "S7"]);
    assert_eq!(texts(&rows, "day"), ["2016-04-01", "2016-04-01"]);
    assert_eq!(texts(&rows, "celsius"), ["4.5", "17.0"]);
    std::fs::write(shop.path("stations/south.txt"), "S7  2016-04-01 \n").unwrap();
    let pipeline = own_source::from_yaml(&shop.path("stations")).unwrap();
    let options = SessionOptions::default().state(shop.at("state"));
    let forebay = own_source::forebay().with_options(options);
    let fault = forebay.collect(&pipeline, "measured").unwrap_err();
    assert_eq!(fault.code(), codes::BAD_ROW);
    let text = forebay::present::fault::plain(&fault, None);
    for words in ["south.txt", "celsius", "row 0"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn custom_kinds_have_the_same_faults() {
    let cases = [
        (
            "a: { fixd_width: { paths: [x], columns: [] } }",
            "did you mean `fixed_width`?",
        ),
        (
            "a: { fixed_width: { paths: [x], column: [] } }",
            "did you mean `columns`?",
        ),
        (
            "a: { fixed_width: { paths: [], columns: [] } }",
            "name at least one file",
        ),
    ];
    for (source, words) in cases {
        let forebay = own_source::forebay();
        let text = format!(
            "version: 1\nname: t\nsources:\n  {source}\nsteps:\n  b: {{ from: a, do: [{{ filter: \"x > 0\" }}] }}\n\
             sinks:\n  c: {{ from: b, parquet: {{ path: o }} }}\n"
        );
        let catalog = forebay.spec_catalog();
        let fault =
            forebay::spec::parse(&text, "t.yaml", &Default::default(), &catalog).unwrap_err();
        let text = forebay::present::fault::plain(&fault, None);
        assert!(text.contains(words), "{source}: {text}");
    }
    let pipeline = PipelineBuilder::new("t");
    pipeline.source("a", own_source::FixedWidthSource::new([], []));
    let fault = pipeline.build().unwrap_err();
    assert!(
        fault.message().contains("name at least one file"),
        "{fault}"
    );
}

#[test]
fn a_custom_sink_is_written_by_specs_and_the_builder() {
    let shop = TestDirectory::new();
    let (first, second) = own_sink::run(&shop.path("prices")).unwrap();
    assert!(!first.nothing_new && second.nothing_new, "{second:?}");
    let mut rows = 0;
    for file in std::fs::read_dir(shop.path("prices/out")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("| item_id | qty | price |"));
        assert_eq!(lines.next(), Some("| --- | --- | --- |"));
        for line in lines {
            assert_eq!(line.matches(" | ").count(), 2, "{line}");
            rows += 1;
        }
    }
    assert!(rows > 0);
    assert_eq!(first.outputs[0].rows, rows);
}

#[test]
fn a_custom_trainer_learns_and_its_model_predicts() {
    let shop = TestDirectory::new();
    let (first, second) = own_trainer::run(&shop.path("lines")).unwrap();
    assert!(!first.models[0].reused && second.models[0].reused);
    // The line by its definition.
    let table = shop.rows("lines/table");
    let x = filled_doubles(&table, "qty_lag_7d");
    let y = filled_doubles(&table, "qty");
    let rows = x.len() as f64;
    let mean_x = x.iter().sum::<f64>() / rows;
    let mean_y = y.iter().sum::<f64>() / rows;
    let mut products = 0.0;
    let mut squares = 0.0;
    for (x, y) in x.iter().zip(&y) {
        products += (x - mean_x) * (y - mean_y);
        squares += (x - mean_x) * (x - mean_x);
    }
    let slope = products / squares;
    let file = std::fs::read(shop.path("lines/line/line.json")).unwrap();
    let line: own_trainer::FittedLine = serde_json::from_slice(&file).unwrap();
    assert!((line.slope - slope).abs() < 1e-6, "{line:?}, not {slope}");
    let intercept = mean_y - slope * mean_x;
    assert!((line.intercept - intercept).abs() < 1e-6, "{line:?}");
    let forecast = shop.rows("lines/forecast");
    assert_eq!(first.forecasts[0].rows, forecast.num_rows() as u64);
    let predicted = forecast["prediction"].as_primitive::<Float32Type>();
    assert!(
        predicted
            .iter()
            .all(|value| value.is_some_and(f32::is_finite))
    );
    assert!(forecast.num_rows() > 0);
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

#[test]
fn rows_with_windows_are_served() {
    let shop = TestDirectory::new();
    let answers = serve_windows::run(&shop.path("windows")).unwrap();
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[2]["qty_lag_1d"], 17, "{answers:?}");
    assert!(answers[2]["qty_mean_28d"].is_number(), "{answers:?}");
}

/// Sends a body to a service. Returns status and text of the answer.
fn post(router: &axum::Router, path: &str, body: &serde_json::Value) -> (u16, String) {
    let request = http::Request::post(path);
    let request = request.body(axum::body::Body::from(body.to_string()));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let response = router.clone().oneshot(request.unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    })
}

#[test]
fn a_service_of_axum_answers_rows_and_takes_facts() {
    let shop = TestDirectory::new();
    shop.write("data.csv", "day,item,qty\n2024-01-01,a,3\n2024-01-02,a,5\n");
    shop.write(
        "spec.yaml",
        "version: 1\nname: shop\nsources:\n  sales:\n    \
         csv: { path: data.csv, columns: { day: date, item: string, qty: int64 } }\n    \
         time: day\n    keys: [item]\nsteps:\n  features:\n    from: sales\n    \
         do: [{ lag: { columns: [qty], by: [1d] } }]\nserving: { from: features }\n\
         sinks: { table: { from: features, parquet: { path: out } } }\n",
    );
    let run = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let artifact = shop.path(run.summary()["artifact_path"].as_str().unwrap());
    let forebay = forebay::Forebay::new();
    let artifact = forebay.artifact(&artifact.display().to_string()).unwrap();
    let router = serve_http::router(Arc::new(forebay.model(&artifact, None).unwrap()));
    let row = |day: &str, qty: i64| serde_json::json!({ "day": day, "item": "a", "qty": qty });
    let lag = |day: &str| {
        let (status, text) = post(&router, "/features", &row(day, 0));
        assert_eq!(status, 200, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        answer["qty_lag_1d"].clone()
    };
    assert_eq!(lag("2024-01-03"), 5);
    let appended = post(&router, "/facts", &row("2024-01-03", 8));
    assert_eq!(appended, (200, "{\"rows\":1}".to_owned()));
    assert_eq!(lag("2024-01-04"), 8);
    let (status, text) = post(&router, "/facts", &row("2024-01-03", 8));
    assert_eq!(status, 400);
    assert!(text.contains("FB0212"), "{text}");
}
