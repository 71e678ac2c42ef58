//! Forecasts of one step from another: predictions of a step are values of the label for the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Float32Type};
use forebay::TrainedModel;
use forebay_storage::StorageClient;
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{WorkerProcess, workers_option};

const FIRST_DAY: i32 = 16_900;
const DAYS: i32 = 60;
const ITEMS: u64 = 12;
const STEPS: i32 = 5;

const SPEC: &str = r#"
version: 1
name: walks
params:
  out: { type: path, default: out }
  data: { type: path, default: walks }
sources:
  walks: { parquet: { path: "${data}" }, time: date, keys: [item] }
steps:
  far:
    from: walks
    do:
BEFORE
      - future_rows: { horizon: 5d, every: 1d }
      - lag: { columns: [qty], by: [5d, 7d] }
  near:
    from: far
    do:
      - lag: { columns: [qty], by: [1d, 2d] }
      - rolling: { columns: [qty], compute: [max], over: [3d], gap: 1d }
BEHIND
label: { column: qty, horizon: 5d }
sinks:
  trees:
    from: near
    train:
      path: "${out}/trees"
      model: gbdt
      strategy: recursive
      rounds: 25
      leaves: 6
      min_leaf_rows: 5
      dense: [qty_lag_1d, qty_lag_2d, qty_max_3d, qty_lag_5d]
      categorical: []
  forecast: { from: near, predict: { model: trees, path: "${out}/forecast" } }
"#;

/// A step before the rows of the future that leaves nothing to look back at but the label.
const ALONE: &str = "drop: [price]";

/// The same, that makes the label a number with a fraction.
const FRACTION: &str = "derive: { qty: \"CAST(qty AS DOUBLE)\" }\n      - drop: [price]";

/// The spec with steps before the rows of the future, and one behind the windows.
fn spec(before: &str, behind: &str) -> String {
    let line = |step: &str| {
        if step.is_empty() {
            String::new()
        } else {
            format!("      - {step}\n")
        }
    };
    SPEC.replace("BEFORE\n", &line(before))
        .replace("BEHIND\n", &line(behind))
}

/// Series that walk at random, by item and day.
fn walks() -> BTreeMap<(String, i32), f64> {
    let mut values = BTreeMap::new();
    for item in 0..ITEMS {
        let mut seed = item + 1;
        let mut value = 200.0;
        for day in 0..DAYS {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            value += (seed >> 11) as f64 / (1u64 << 53) as f64 * 20.0 - 10.0;
            values.insert((format!("item {item:02}"), FIRST_DAY + day), value);
        }
    }
    values
}

/// Writes rows to a file.
fn write(shop: &TestDirectory, name: &str, rows: &[(&(String, i32), &f64)], label: &DataType) {
    let quantities: ArrayRef =
        Arc::new(rows.iter().map(|(_, qty)| **qty).collect::<Float64Array>());
    let rows = RecordBatch::try_from_iter([
        (
            "date",
            Arc::new(
                rows.iter()
                    .map(|((_, day), _)| Some(*day))
                    .collect::<Date32Array>(),
            ) as ArrayRef,
        ),
        (
            "item",
            Arc::new(StringArray::from_iter_values(
                rows.iter().map(|((item, _), _)| item),
            )),
        ),
        ("qty", cast(&quantities, label).unwrap()),
        ("price", quantities),
    ]);
    let rows = rows.unwrap();
    let path = shop.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

/// Writes values in order of time.
fn write_in_order(shop: &TestDirectory, name: &str, values: &BTreeMap<(String, i32), f64>) {
    let mut rows: Vec<_> = values.iter().collect();
    rows.sort_by_key(|((item, day), _)| (*day, item.clone()));
    write(shop, name, &rows, &DataType::Float64);
}

/// The walks in a file for each few days.
fn shop(label: &DataType) -> TestDirectory {
    let shop = TestDirectory::new();
    let values = walks();
    for from in (FIRST_DAY..FIRST_DAY + DAYS).step_by(4) {
        let mut rows: Vec<_> = values
            .iter()
            .filter(|((_, day), _)| (from..from + 4).contains(day))
            .collect();
        rows.sort_by_key(|((item, day), _)| (*day, item.clone()));
        write(&shop, &format!("walks/{from}.parquet"), &rows, label);
    }
    shop.write("spec.yaml", &spec(ALONE, ""));
    shop
}

/// Prices of each third day: those of the past tell the label, and there are some of days to come.
fn plans() -> BTreeMap<(String, i32), f64> {
    let values = walks();
    let mut plans = BTreeMap::new();
    for item in 0..ITEMS {
        for day in (FIRST_DAY..FIRST_DAY + DAYS + STEPS).step_by(3) {
            let key = (format!("item {item:02}"), day);
            let price = match values.get(&key) {
                Some(value) => *value,
                None => 160.0 + 13.0 * f64::from((day + item as i32) % 7),
            };
            plans.insert(key, price);
        }
    }
    plans
}

/// The spec with a step that joins rows of plans.
fn planned_spec(before: &str, join: &str) -> String {
    spec(before, join)
        .replace(
            "steps:\n  far:",
            "  plans: { parquet: { path: plans }, time: date, keys: [item] }\nsteps:\n  far:",
        )
        .replace("qty_lag_5d]", "qty_lag_5d, price]")
        .replace(
            "horizon: 5d }\nsinks",
            "horizon: 5d, known: [price] }\nsinks",
        )
}

/// Predictions of all steps from features of a day that are values of days before it, predicted ones among them, and from
/// prices, if there are any.
fn predicted_by_hand(
    model: &TrainedModel,
    plans: &BTreeMap<(String, i32), f64>,
) -> BTreeMap<(String, i32), u32> {
    let mut values = walks();
    let mut predictions = BTreeMap::new();
    for day in FIRST_DAY + DAYS..FIRST_DAY + DAYS + STEPS {
        for item in 0..ITEMS {
            let item = format!("item {item:02}");
            let back = |days: i32| values[&(item.clone(), day - days)];
            let highest = back(1).max(back(2)).max(back(3));
            let mut features = vec![
                ("qty_lag_1d", back(1)),
                ("qty_lag_2d", back(2)),
                ("qty_max_3d", highest),
                ("qty_lag_5d", back(5)),
            ];
            let mut prices = plans.range((item.clone(), i32::MIN)..=(item.clone(), day));
            if let Some((_, price)) = prices.next_back() {
                features.push(("price", *price));
            }
            let column =
                |(name, value)| (name, Arc::new(Float64Array::from(vec![value])) as ArrayRef);
            let row = RecordBatch::try_from_iter(features.into_iter().map(column)).unwrap();
            let prediction = model.predict(&row).unwrap().point.value(0);
            values.insert((item.clone(), day), f64::from(prediction));
            predictions.insert((item, day), prediction.to_bits());
        }
    }
    predictions
}

fn run(shop: &TestDirectory, name: &str, more: &[&str]) -> ProgramOutput {
    let out = format!("--param=out={name}");
    let state = format!("--state={name}/state");
    let args = ["run", "spec.yaml", "--json", &out, &state];
    shop.command(&[&args[..], more].concat())
        .env("FOREBAY_RANGE_BYTES", "2000")
        .watched()
        .into()
}

/// The predictions of a forecast by item and day.
fn predicted(rows: &RecordBatch) -> BTreeMap<(String, i32), u32> {
    let items = cast(rows.column_by_name("item").unwrap(), &DataType::Utf8).unwrap();
    let days = rows
        .column_by_name("date")
        .unwrap()
        .as_primitive::<Date32Type>();
    let predictions = rows
        .column_by_name("prediction")
        .unwrap()
        .as_primitive::<Float32Type>();
    let row = |row| {
        (
            (
                items.as_string::<i32>().value(row).to_owned(),
                days.value(row),
            ),
            predictions.value(row).to_bits(),
        )
    };
    (0..rows.num_rows()).map(row).collect()
}

#[test]
fn each_step_is_predicted_from_the_predictions_before_it() {
    let shop = shop(&DataType::Float64);
    run(&shop, "out", &[]).expect(0);
    let found = predicted(&shop.rows("out/forecast"));
    let model = TrainedModel::load(&StorageClient::new().unwrap(), &shop.at("out/trees")).unwrap();
    let expected = predicted_by_hand(&model, &BTreeMap::new());
    assert_eq!(found, expected);
    // The steps of a series differ in what was predicted before them.
    let of_item = |steps: std::ops::Range<i32>| -> Vec<u32> {
        steps
            .map(|step| found[&("item 00".to_owned(), FIRST_DAY + DAYS + step)])
            .collect()
    };
    assert_ne!(of_item(0..1), of_item(1..2));

    // The same by hand, and on any number of threads and workers.
    let rows = shop.rows("out/forecast");
    let by_hand = [
        "predict",
        "out/trees",
        "--source=walks",
        "--output=by_hand",
        "--state=hand-state",
    ];
    shop.forebay(&by_hand).expect(0);
    assert!(shop.rows("by_hand") == rows);
    run(&shop, "slow", &["--threads=1", "--batch-rows=5"]).expect(0);
    assert!(shop.rows("slow/forecast") == rows);
    run(&shop, "away", &["--local-workers=2"]).expect(0);
    assert!(shop.rows("away/forecast") == rows);
    let calm = WorkerProcess::start(&shop, &[], &[]);
    let doomed = WorkerProcess::start(&shop, &[], &[("FOREBAY_KILL_ON", "write a file of rows")]);
    let workers = workers_option(&[&doomed, &calm]);
    let by_hand = [
        "predict",
        "out/trees",
        "--source=walks",
        "--output=killed",
        "--state=killed-state",
        &workers,
    ];
    // There is one task: the worker that gets it first is not for the test to choose.
    shop.forebay(&[&by_hand[..], &["--lease-seconds=5"]].concat())
        .expect(0);
    assert!(shop.rows("killed") == rows);

    // A day later.
    let values = walks();
    let day = FIRST_DAY + DAYS;
    let next: Vec<((String, i32), f64)> = values
        .iter()
        .filter(|((_, own), _)| *own == day - 1)
        .map(|((item, _), qty)| ((item.clone(), day), qty + 1.0))
        .collect();
    let next: Vec<_> = next.iter().map(|(key, qty)| (key, qty)).collect();
    write(
        &shop,
        &format!("walks/{day}.parquet"),
        &next,
        &DataType::Float64,
    );
    run(&shop, "out", &[]).expect(0);
    let later = shop.rows("out/forecast");
    assert!(later != rows);
    run(&shop, "anew", &[]).expect(0);
    assert_eq!(predicted(&shop.rows("anew/forecast")), predicted(&later));
}

#[test]
fn joined_rows_stand_beside_predictions_that_feed_back() {
    let shop = shop(&DataType::Float64);
    let plans = plans();
    write_in_order(&shop, "plans/all.parquet", &plans);
    let join = "as_of_join: { with: plans, columns: [price] }";
    shop.write("spec.yaml", &planned_spec(ALONE, join));
    run(&shop, "out", &[]).expect(0);
    let rows = shop.rows("out/forecast");
    let model = TrainedModel::load(&StorageClient::new().unwrap(), &shop.at("out/trees")).unwrap();
    assert_eq!(predicted(&rows), predicted_by_hand(&model, &plans));
    // Rows of one time come in several chunks, on one thread and on workers.
    run(&shop, "slow", &["--threads=1", "--batch-rows=5"]).expect(0);
    assert!(shop.rows("slow/forecast") == rows);
    run(&shop, "away", &["--local-workers=2"]).expect(0);
    assert!(shop.rows("away/forecast") == rows);
    // Plans in no order of time are sorted.
    let mut prices: Vec<_> = plans.iter().collect();
    prices.sort_by_key(|((item, day), _)| (day.wrapping_mul(40_503) % 61, item.clone()));
    write(&shop, "plans/all.parquet", &prices, &DataType::Float64);
    run(&shop, "shuffled", &[]).expect(0);
    assert_eq!(predicted(&shop.rows("shuffled/forecast")), predicted(&rows));
}

#[test]
fn quantiles_and_groups_follow_the_point_forecast() {
    let shop = shop(&DataType::Float64);
    let text = spec(ALONE, "").replace(
        "categorical: []",
        "categorical: []\n      quantiles: [0.1, 0.9]\n      by: [item]\n      min_rows: 40",
    );
    shop.write(
        "spec.yaml",
        &text.replace(
            "path: \"${out}/forecast\"",
            "path: \"${out}/forecast\", min: 195",
        ),
    );
    let summary = run(&shop, "out", &[]).expect(0).summary();
    assert!(
        summary["models"][0]["groups"]["trained"].as_u64().unwrap() > 1,
        "{summary}"
    );
    let rows = shop.rows("out/forecast");
    assert_eq!(rows.num_rows() as u64, ITEMS * STEPS as u64);
    let low = rows
        .column_by_name("prediction")
        .unwrap()
        .as_primitive::<Float32Type>()
        .values()
        .iter()
        .copied();
    assert!(low.fold(f32::MAX, f32::min) >= 195.0);
    assert!(summary["forecasts"][0]["clipped"].as_u64().unwrap() > 0);
    assert!(rows.column_by_name("prediction_q90").is_some());
    run(&shop, "slow", &["--threads=1"]).expect(0);
    assert!(shop.rows("slow/forecast") == rows);
}

#[test]
fn what_cannot_be_computed_from_predictions_is_refused() {
    let shop = shop(&DataType::Float64);
    let check = |text: &str, words: &[&str]| {
        shop.write("spec.yaml", text);
        let said = shop.forebay(&["check", "spec.yaml"]).expect(78).stderr;
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "`{word}` is missing:\n{said}"));
    };
    // Steps before and behind `future_rows`, a feature, and words of the fault.
    let cases: [(&str, &str, &str, &[&str]); 5] = [
        (
            "",
            "lag: { columns: [price], by: [1d] }\n      - drop: [price]",
            "price_lag_1d",
            &[
                "`price_lag_1d` in sink `trees`",
                "predicted 5d ahead",
                "predicts `qty` alone",
            ],
        ),
        (
            ALONE,
            "rolling: { columns: [qty], compute: [mean], over: [3d] }",
            "qty_mean_3d",
            &["`qty_mean_3d` in sink `trees`", "predicted one step ahead"],
        ),
        (
            ALONE,
            "derive: { qty: \"qty * 2\" }",
            "qty_lag_2d",
            &["changes the label `qty` behind `future_rows`"],
        ),
        (
            "",
            "",
            "price",
            &["`price` in sink `trees`", "predicted one step ahead"],
        ),
        (
            "derive: { twice: \"qty * 2\" }\n      - drop: [price]",
            "lag: { columns: [twice], by: [1d] }\n      - drop: [twice]",
            "twice_lag_1d",
            &["`twice_lag_1d` in sink `trees`", "predicts `qty` alone"],
        ),
    ];
    for (before, behind, feature, words) in cases {
        let dense = format!("dense: [{feature}, qty_lag_1d");
        let text = spec(before, behind).replace("dense: [qty_lag_1d", &dense);
        check(&text, words);
    }
    let without = spec(ALONE, "").replace("      - future_rows: { horizon: 5d, every: 1d }\n", "");
    let end = without.find("  forecast:").unwrap();
    check(
        &without[..end],
        &["`strategy: recursive` predicts rows of the future, and `near` has none"],
    );
    check(
        &spec(ALONE, "").replace("model: gbdt", "model: mlp"),
        &["has no field"],
    );
}

#[test]
fn rows_that_cannot_feed_back_are_refused() {
    let shop = shop(&DataType::Int64);
    let said = run(&shop, "out", &[]).expect(78).stderr;
    assert!(
        said.contains("it is int64") && said.contains("CAST(qty AS DOUBLE)"),
        "{said}"
    );
    shop.write("spec.yaml", &spec(FRACTION, ""));
    run(&shop, "out", &[]).expect(0);
    // Rows of the past are not predicted one from another.
    let past = [
        "predict",
        "out/trees",
        "--source=walks",
        "--output=past",
        "--split=train",
    ];
    let split = format!(
        "split: {{ train: \"date < DATE '2020-01-01'\" }}\n{}",
        spec(FRACTION, "")
    );
    shop.write("spec.yaml", &split);
    run(&shop, "out", &[]).expect(0);
    let said = shop.forebay(&past).expect(78).stderr;
    assert!(said.contains("predicts one step from another"), "{said}");
    // Of a filter, the predictions do not come back to their rows.
    shop.write("spec.yaml", &spec(FRACTION, "filter: \"qty_lag_1d > 190\""));
    let said = run(&shop, "filtered", &[]).expect(65).stderr;
    assert!(said.contains("filters or adds rows"), "{said}");
    // Rows of whole series, and those of a join by predicted values, are computed before the predictions are there.
    write_in_order(&shop, "plans/all.parquet", &plans());
    let by_values =
        "as_of_join: { with: plans, on: [qty_lag_1d], right_on: [qty], columns: [price] }";
    let whole = "forecast_feature: { columns: [qty], horizon: 5d, every: 1d }";
    let of_series = spec(FRACTION, whole).replace("qty_lag_5d]", "qty_lag_5d, qty_theta_5d]");
    let joined = planned_spec(FRACTION, by_values).replace(
        "predict: { model: trees,",
        "predict: { model: trees, missing: accept,",
    );
    let cases = [
        (joined, "columns that windows compute"),
        (of_series, "given whole series"),
    ];
    for (text, words) in cases {
        shop.write("spec.yaml", &text);
        let said = run(&shop, "early", &[]).expect(78).stderr;
        assert!(said.contains(words), "{said}");
    }
    // A history in no order of time.
    let values = walks();
    let mut rows: Vec<_> = values.iter().collect();
    rows.sort_by_key(|((item, day), _)| (day.wrapping_mul(40_503) % 61, item.clone()));
    write(&shop, "shuffled/all.parquet", &rows, &DataType::Float64);
    shop.write("spec.yaml", &spec(ALONE, ""));
    let said = run(&shop, "unordered", &["--param=data=shuffled"])
        .expect(78)
        .stderr;
    assert!(said.contains("in no order of time"), "{said}");
}

#[test]
fn a_backtest_shows_it_beside_one_model_for_all_steps() {
    let shop = shop(&DataType::Float64);
    let direct = r#"
  direct: { from: far, train: { model: gbdt, rounds: 25, leaves: 6, min_leaf_rows: 5, dense: [qty_lag_5d, qty_lag_7d], categorical: [] } }
  of_direct: { from: far, predict: { model: direct, path: out/direct } }
"#;
    shop.write("spec.yaml", &(spec(ALONE, "") + direct));
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
            .map(|step: &Value| step["rmse"].as_f64().unwrap())
            .collect()
    };
    let direct = rmse("of_direct");
    let recursive = rmse("forecast");
    assert_eq!((direct.len(), recursive.len()), (5, 5));
    // The error of a random walk grows with the square root of the steps: one step ahead it is less than half of that
    // five ahead, which both are about equally good at.
    assert!(recursive[0] < 0.7 * direct[0], "{recursive:?} {direct:?}");
    assert!(recursive[4] < 1.3 * direct[4], "{recursive:?} {direct:?}");
}
