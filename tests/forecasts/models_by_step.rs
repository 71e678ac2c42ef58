//! A model for each step of the horizon: each takes the columns that are known so far ahead.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, UInt32Type};
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: steps
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - filter: "qty IS NOT NULL"
      - future_rows: { horizon: HORIZON, every: 1d, carry: [category] }
      - lag: { columns: [qty], by: [LAGS] }
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: GAP }
split: { train: "date < DATE '2016-05-20'", validation: "date >= DATE '2016-05-20'" }
label: { column: qty, horizon: HORIZON, known: [category, department, price, promotion, event] }
sinks:
  trees:
    from: features
    train: { path: "${out}/trees", model: gbdt, rounds: 20, leaves: 8, min_leaf_rows: 5, TRAIN }
  forecast: { from: features, predict: { model: trees, path: "${out}/forecast", min: 0 } }
"#;

/// The spec for a horizon of so many days, with lags of days and a mean that ends some days before.
fn spec(horizon: u32, lags: &[u32], gap: u32, train: &str) -> String {
    let lags: Vec<String> = lags.iter().map(|lag| format!("{lag}d")).collect();
    let text = SPEC
        .replace("HORIZON", &format!("{horizon}d"))
        .replace("LAGS", &lags.join(", "));
    text.replace("GAP", &format!("{gap}d"))
        .replace("TRAIN", train)
}

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.days("history");
    shop
}

fn run(shop: &TestDirectory, args: &[&str], code: i32) -> Value {
    shop.forebay(
        &[
            &["run", "spec.yaml", "--json", "--signal-nothing-new"],
            args,
        ]
        .concat(),
    )
    .expect(code)
    .summary()
}

/// The forecasts for one step ahead, or for two, by series.
fn of_step(rows: &RecordBatch, step: u32) -> BTreeMap<(String, String), u32> {
    let texts = |name: &str| {
        let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
        column
            .as_string::<i32>()
            .iter()
            .map(|text| text.unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let steps = rows
        .column_by_name("step")
        .unwrap()
        .as_primitive::<UInt32Type>();
    let predicted = rows
        .column_by_name("prediction")
        .unwrap()
        .as_primitive::<Float32Type>();
    let keys = texts("store_id").into_iter().zip(texts("item_id"));
    let own = keys
        .enumerate()
        .filter(|(row, _)| steps.value(*row) == step);
    own.map(|(row, key)| (key, predicted.value(row).to_bits()))
        .collect()
}

#[test]
fn each_step_is_predicted_as_by_a_model_of_what_is_known_so_far_ahead() {
    let shop = shop();
    let all =
        "dense: [qty_lag_1d, qty_lag_2d, qty_lag_3d, qty_lag_7d, qty_mean_7d], strategy: per_step";
    shop.write("spec.yaml", &spec(4, &[1, 2, 3, 7], 2, all));
    let summary = run(&shop, &[], 0);
    // The fourth step has the lag of a week alone.
    assert_eq!(summary["models"][0]["step_models"], 4);
    let rows = shop.rows("out/forecast");
    let said = shop.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(
        said.contains("4 models for the steps of the horizon"),
        "{said}"
    );
    // The rows that it learns from know nothing of later rows.
    shop.forebay(&["check", "spec.yaml", "--perturb-future", "--cuts=1"])
        .expect(0);
    for step in 1..=4 {
        let lags: Vec<u32> = [1, 2, 3, 7]
            .into_iter()
            .filter(|lag| *lag >= step)
            .collect();
        let mut dense: Vec<String> = lags.iter().map(|lag| format!("qty_lag_{lag}d")).collect();
        let gap = if step <= 2 { 2 } else { step };
        dense.extend((step <= 2).then(|| "qty_mean_7d".to_owned()));
        shop.write(
            "spec.yaml",
            &spec(step, &lags, gap, &format!("dense: [{}]", dense.join(", "))),
        );
        run(&shop, &["--param=out=alone", "--state=alone-state"], 0);
        let alone = of_step(&shop.rows("alone/forecast"), step);
        assert!(alone.len() > 5);
        assert!(of_step(&rows, step) == alone, "step {step}");
    }
}

#[test]
fn groups_and_quantiles_have_models_of_their_own_for_each_step() {
    let shop = shop();
    let train = "dense: [qty_lag_1d, qty_lag_3d, qty_lag_7d, qty_mean_7d], categorical: [], by: [store_id], \
                 min_rows: 100, quantiles: [0.1, 0.9], strategy: per_step";
    shop.write("spec.yaml", &spec(3, &[1, 3, 7], 2, train));
    let first = run(&shop, &[], 0);
    let model = &first["models"][0];
    assert_eq!(model["step_models"], 3);
    assert!(model["groups"]["trained"].as_u64().unwrap() > 1, "{model}");
    let metrics = &model["epochs"][0]["validation"];
    assert!(
        metrics["wmape"].as_f64().unwrap() > 0.0 && metrics["pinball_q90"].as_f64().unwrap() > 0.0,
        "{model}"
    );
    let rows = shop.rows("out/forecast");
    assert!(rows.column_by_name("prediction_q90").is_some());
    // The steps of a series differ in more than their lags.
    assert_ne!(of_step(&rows, 1), of_step(&rows, 3));
    run(&shop, &[], 99);
    run(
        &shop,
        &["--threads=1", "--param=out=slow", "--state=slow-state"],
        0,
    );
    assert!(shop.rows("slow/forecast") == rows);
    let by_hand = [
        "predict",
        "out/trees",
        "--source",
        "history",
        "--output",
        "by_hand",
        "--min",
        "0",
    ];
    shop.forebay(&by_hand).expect(0);
    assert!(shop.rows("by_hand") == rows);
    // Rows of the past lie no step ahead.
    let said = shop
        .forebay(&[&by_hand[..], &["--split", "validation"]].concat())
        .expect(78)
        .stderr;
    assert!(said.contains("predicts rows of the future only"), "{said}");
    // What a night leaves as it was is not trained again, by step and group.
    let settings = shop
        .forebay(&[
            "run",
            "spec.yaml",
            "--json",
            "--param=out=again",
            "--state=again",
        ])
        .expect(0);
    assert_eq!(settings.summary()["models"][0]["id"], model["id"]);
}

#[test]
fn columns_that_no_step_may_know_are_refused() {
    let shop = shop();
    let check = |text: &str, words: &[&str]| {
        shop.write("spec.yaml", text);
        let said = shop.forebay(&["check", "spec.yaml"]).expect(78).stderr;
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "`{word}` is missing:\n{said}"));
    };
    let steps = "dense: [qty_lag_1d, qty_lag_3d], strategy: per_step";
    check(
        &spec(
            3,
            &[1, 3],
            1,
            "dense: [qty_lag_1d, qty_lag_3d, qty_mean_7d]",
        ),
        &["2 columns in sink `trees`", "predicted 3d ahead"],
    );
    let with_mean = steps.replace("qty_lag_3d]", "qty_lag_3d, qty_mean_7d]");
    check(
        &spec(3, &[1, 3], 0, &with_mean),
        &["`qty_mean_7d` in sink `trees`", "predicted one step ahead"],
    );
    let short = "dense: [qty_lag_1d], categorical: [], strategy: per_step";
    check(
        &spec(3, &[1, 3], 1, short),
        &["no feature is known 2 steps ahead"],
    );
    let grouped = "dense: [qty_lag_3d], by: [qty_lag_1d], strategy: per_step";
    check(
        &spec(3, &[1, 3], 1, grouped),
        &["`qty_lag_1d` is known for 1 of 3 steps"],
    );
    let alone = spec(3, &[1, 3], 1, steps);
    let begin = alone.find("  forecast:").unwrap();
    let end = alone.find("      - future_rows").unwrap();
    let line_end = end + alone[end..].find('\n').unwrap() + 1;
    let text = format!("{}{}", &alone[..end], &alone[line_end..begin]);
    check(&text, &["`features` has none", "future_rows"]);
    check(
        &spec(3, &[3], 3, steps).replace(
            "model: gbdt, rounds: 20, leaves: 8, min_leaf_rows: 5,",
            "model: mlp,",
        ),
        &["`train` has no field `strategy`"],
    );
}

/// Each series walks at random: yesterday tells most of today.
fn walks(shop: &TestDirectory, days: i32) {
    let mut dates = Vec::new();
    let mut items = Vec::new();
    let mut quantities = Vec::new();
    for item in 0..25u64 {
        let mut seed = item + 1;
        let mut value = 200.0;
        for day in 0..days {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            value += (seed >> 11) as f64 / (1u64 << 53) as f64 * 20.0 - 10.0;
            dates.push(16_900 + day);
            items.push(format!("item {item}"));
            quantities.push(value);
        }
    }
    let rows = RecordBatch::try_from_iter([
        ("date", Arc::new(Date32Array::from(dates)) as ArrayRef),
        ("item", Arc::new(StringArray::from(items))),
        ("qty", Arc::new(Float64Array::from(quantities))),
    ]);
    let rows = rows.unwrap();
    std::fs::create_dir_all(shop.path("walks")).unwrap();
    let file = std::fs::File::create(shop.path("walks/all.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_backtest_shows_it_beside_one_model_for_all_steps() {
    let shop = TestDirectory::new();
    walks(&shop, 120);
    shop.write(
        "spec.yaml",
        r#"
version: 1
name: walks
sources:
  walks: { parquet: { path: walks }, time: date, keys: [item] }
steps:
  far:
    from: walks
    do:
      - future_rows: { horizon: 4d, every: 1d }
      - lag: { columns: [qty], by: [4d, 7d] }
  near:
    from: far
    do:
      - lag: { columns: [qty], by: [1d, 2d, 3d] }
label: { column: qty, horizon: 4d }
sinks:
  direct: { from: far, train: { model: gbdt, rounds: 60, leaves: 8, dense: [qty_lag_4d, qty_lag_7d] } }
  steps: { from: near, train: { model: gbdt, rounds: 60, leaves: 8, strategy: per_step,
    dense: [qty_lag_1d, qty_lag_2d, qty_lag_3d, qty_lag_4d, qty_lag_7d] } }
  of_direct: { from: far, predict: { model: direct, path: out/direct } }
  of_steps: { from: near, predict: { model: steps, path: out/steps } }
"#,
    );
    let done = shop
        .forebay(&["backtest", "spec.yaml", "--folds=3", "--every=5d", "--json"])
        .expect(0)
        .summary();
    let forecasts = done["backtest"]["forecasts"].as_array().unwrap();
    let rmse = |sink: &str| -> Vec<f64> {
        let forecast = forecasts
            .iter()
            .find(|forecast| forecast["sink"] == sink)
            .unwrap();
        let steps = forecast["forecasters"][0]["steps"].as_array().unwrap();
        steps
            .iter()
            .map(|step| step["rmse"].as_f64().unwrap())
            .collect()
    };
    let direct = rmse("of_direct");
    let steps = rmse("of_steps");
    assert_eq!((direct.len(), steps.len()), (4, 4));
    // The error of a random walk grows with the square root of the steps: one step ahead it is half of that four ahead.
    assert!(steps[0] < 0.7 * direct[0], "{steps:?} {direct:?}");
    // For the last step both take the same columns.
    assert!(
        (steps[3] / direct[3] - 1.0).abs() < 1e-9,
        "{steps:?} {direct:?}"
    );
}
