//! Quantile forecasts: columns that do not cross, the same by hand and from the naive rung, and scores from their
//! definition.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use serde_json::Value;

use crate::support::TestDirectory;

/// Days of a history.
const DAYS: usize = 40;

const QUANTILES: [f64; 3] = [0.1, 0.5, 0.9];
const COLUMNS: [&str; 3] = ["prediction_q10", "prediction_q50", "prediction_q90"];

/// A night with boosted trees. `until` is the first day that is not trained on.
pub fn spec(shop: &TestDirectory, history: &str, until: &str, train: &str, more: &str) {
    shop.write(
        "spec.yaml",
        &format!(
            r#"
version: 1
name: quantiles
params: {{ until: {{ type: date, default: {until} }} }}
sources:
  demand: {{ parquet: {{ path: {history} }}, time: date, keys: [store_id, item_id] }}
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - future_rows: {{ horizon: 3d, every: 1d, carry: [category] }}
      - lag: {{ columns: [qty], by: [3d, 4d, 7d] }}
      - rolling: {{ columns: [qty], compute: [mean], over: [7d], gap: 3d }}
split: {{ train: "date < DATE '${{until}}'", validation: "date >= DATE '${{until}}'" }}
label: {{ column: qty, horizon: 3d, known: [category, department, price, promotion, event] }}
{more}
sinks:
  trees:
    from: features
    train:
      path: out/trees
      model: gbdt
      label: qty
      dense: [qty_lag_3d, qty_lag_4d, qty_lag_7d, qty_mean_7d]
      rounds: 30
      leaves: 8
      {train}
  forecast: {{ from: features, predict: {{ model: trees, path: out/forecast, min: 0, season: 2d }} }}
"#
        ),
    );
}

pub fn numbers(rows: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    let column = rows
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no `{name}` in {}", rows.schema()));
    cast(column, &DataType::Float64)
        .unwrap()
        .as_primitive::<Float64Type>()
        .iter()
        .collect()
}

pub fn columns(rows: &RecordBatch) -> Vec<String> {
    rows.schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}

pub type SeriesDay = (String, String, i32);

pub fn series_days(rows: &RecordBatch) -> Vec<SeriesDay> {
    let text = |name: &str| {
        let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
        column
            .as_string::<i32>()
            .iter()
            .map(|text| text.unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let days = cast(rows.column_by_name("date").unwrap(), &DataType::Int32).unwrap();
    let days = days.as_primitive::<Int32Type>().values().to_vec();
    text("store_id")
        .into_iter()
        .zip(text("item_id"))
        .zip(days)
        .map(|((store, item), day)| (store, item, day))
        .collect()
}

pub fn values_by_day(rows: &RecordBatch) -> BTreeMap<SeriesDay, f64> {
    let values = series_days(rows).into_iter().zip(numbers(rows, "qty"));
    values
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// Quantiles of each row, checked to be whole, in order and not negative.
fn quantiles(rows: &RecordBatch) -> Vec<[f64; 3]> {
    let columns = COLUMNS.map(|name| numbers(rows, name));
    let row = |at: usize| columns.each_ref().map(|column| column[at].unwrap());
    let all: Vec<[f64; 3]> = (0..rows.num_rows()).map(row).collect();
    for row in &all {
        assert!(
            row.is_sorted() && row[0] >= 0.0 && row[2].is_finite(),
            "{row:?}"
        );
    }
    all
}

pub fn date(days: &[String], day: usize) -> String {
    let stem = days[day].split('.').next().unwrap();
    stem[stem.len() - 10..].to_owned()
}

#[test]
fn quantiles_are_columns_of_the_forecast_in_order_and_the_same_by_hand() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let until = date(&days, 33);
    spec(&shop, "history", &until, "quantiles: [0.1, 0.5, 0.9]", "");
    let run = |more: &[&str]| shop.forebay(&[&["run", "spec.yaml", "--json"], more].concat());
    let summary = run(&[]).expect(0).summary();
    let rows = shop.rows("out/forecast");
    let expected = [
        &["store_id", "item_id", "date", "step", "prediction"],
        &COLUMNS[..],
    ]
    .concat();
    assert_eq!(
        columns(&rows),
        [&expected[..], &["known_until", "model", "artifact"]].concat()
    );
    let found = quantiles(&rows);
    // The median of such demand is often 0, as its first decile is.
    assert!(found.iter().filter(|row| row[0] < row[2]).count() > found.len() / 2);
    assert!(summary["forecasts"][0]["crossed"].is_u64());
    let metrics = &summary["models"][0]["epochs"][0]["validation"];
    for name in ["rmse", "pinball_q10", "pinball_q50", "pinball_q90"] {
        assert!(
            metrics[name].as_f64().is_some_and(|value| value > 0.0),
            "no {name} in {metrics}"
        );
    }

    // By hand, and from the rows of the split that are known: about as many values as each quantile says lie below it.
    let predict = |more: &[&str]| {
        let args = [
            "predict",
            "out/trees",
            "--source",
            "history",
            "--output",
            "by_hand",
            "--min",
            "0",
        ];
        shop.forebay(&[&args[..], more].concat()).expect(0);
        shop.rows("by_hand")
    };
    assert!(predict(&[]) == rows);
    let known = predict(&["--split", "train", "--columns", "qty"]);
    assert_eq!(
        columns(&known),
        [&["qty", "prediction"], &COLUMNS[..]].concat()
    );
    let values = numbers(&known, "qty");
    for (at, quantile) in QUANTILES.into_iter().enumerate() {
        let below = quantiles(&known)
            .iter()
            .zip(&values)
            .filter(|(row, value)| value.unwrap() <= row[at])
            .count();
        let share = below as f64 / values.len() as f64;
        // Demand is whole numbers, of which many are equal.
        assert!(
            share > quantile - 0.1,
            "{share} of the values lie below the quantile {quantile}"
        );
    }
    let low = quantiles(&known)
        .iter()
        .zip(&values)
        .filter(|(row, value)| value.unwrap() < row[0])
        .count();
    let high = quantiles(&known)
        .iter()
        .zip(&values)
        .filter(|(row, value)| value.unwrap() < row[2])
        .count();
    assert!(
        (low as f64) < 0.2 * values.len() as f64 && high as f64 > 0.7 * values.len() as f64,
        "{low}, {high}"
    );

    // One more quantile trains that alone, and a model without quantiles has their columns no more.
    spec(
        &shop,
        "history",
        &until,
        "quantiles: [0.1, 0.25, 0.5, 0.9]",
        "",
    );
    run(&[]).expect(0);
    let more = shop.rows("out/forecast");
    assert!(columns(&more).contains(&"prediction_q25".to_owned()));
    let point = |rows: &RecordBatch| numbers(rows, "prediction");
    assert_eq!(point(&more), point(&rows));
    spec(&shop, "history", &until, "quantiles: []", "");
    run(&[]).expect(0);
    assert!(
        !columns(&shop.rows("out/forecast"))
            .iter()
            .any(|name| name.starts_with("prediction_q"))
    );

    for (train, words) in [
        ("quantiles: [0.9, 0.1]", "ascending order"),
        ("quantiles: [0.1, 0.1]", "ascending order"),
        ("quantiles: [0.5, 1.0]", "1 is not between 0 and 1"),
        ("quantiles: [0.5]\n      loss: logistic", "no quantiles"),
    ] {
        spec(&shop, "history", &until, train, "");
        let call = run(&[]);
        assert!(
            call.stderr.contains(words),
            "no `{words}` in {}",
            call.stderr
        );
        call.expect(78);
    }
}

#[test]
fn groups_have_quantiles_of_their_own() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let train = "quantiles: [0.1, 0.5, 0.9]\n      by: [category]\n      min_rows: 300";
    spec(&shop, "history", &date(&days, 33), train, "");
    let run = |more: &[&str]| {
        shop.forebay(&[&["run", "spec.yaml", "--json"], more].concat())
            .expect(0)
            .summary()
    };
    let summary = run(&[]);
    let groups = &summary["models"][0]["groups"];
    assert!(groups["trained"].as_u64().unwrap() > 1, "{groups}");
    let grouped = quantiles(&shop.rows("out/forecast"));
    let bytes = std::fs::read(shop.path("out/trees/model.safetensors")).unwrap();
    // What the models are made of has not changed: they stand. Anew, they are the same.
    spec(
        &shop,
        "history",
        &date(&days, 33),
        &train.replace("300", "301"),
        "",
    );
    let stands = run(&[]);
    assert_eq!(stands["models"][0]["groups"]["trained"], 0);
    assert_eq!(stands["models"][0]["groups"]["reused"], groups["trained"]);
    spec(&shop, "history", &date(&days, 33), train, "");
    std::fs::remove_dir_all(shop.path("out")).unwrap();
    assert_eq!(
        run(&["--state=anew", "--threads=1"])["models"][0]["groups"]["trained"],
        groups["trained"]
    );
    assert!(std::fs::read(shop.path("out/trees/model.safetensors")).unwrap() == bytes);
    spec(
        &shop,
        "history",
        &date(&days, 33),
        "quantiles: [0.1, 0.5, 0.9]",
        "",
    );
    run(&[]);
    assert!(quantiles(&shop.rows("out/forecast")) != grouped);
}

#[test]
fn the_naive_rung_has_the_quantiles_of_the_last_seasons() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let deadline = "deadline: { ladder: [naive] }";
    spec(
        &shop,
        "history",
        &date(&days, 33),
        "quantiles: [0.1, 0.5, 0.9]",
        deadline,
    );
    let late = [
        "run",
        "spec.yaml",
        "--json",
        "--deadline=2020-01-01T00:00:00Z",
    ];
    shop.forebay(&late).expect(0);
    let rows = shop.rows("out/forecast");
    let made = quantiles(&rows);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(
        columns(&shop.rows("out/forecast")),
        columns(&rows),
        "a forecast has the same columns on each rung"
    );
    let came = values_by_day(&crate::support::read(&shop.path("history")));
    for ((store, item, day), found) in series_days(&rows).into_iter().zip(made) {
        let value = |back: i32| {
            came.get(&(store.clone(), item.clone(), day - back))
                .copied()
        };
        let mut seasons: Vec<f64> = (1..=6)
            .filter_map(|season| value(2 * season))
            .take(5)
            .collect();
        seasons.sort_by(f64::total_cmp);
        let expected = QUANTILES.map(|quantile| {
            let Some(last) = seasons.len().checked_sub(1) else {
                return 0.0;
            };
            let whole = (quantile * last as f64).floor();
            let part = (quantile * last as f64).fract();
            seasons[whole as usize]
                + part * (seasons[(whole as usize + 1).min(last)] - seasons[whole as usize])
        });
        let close = found
            .iter()
            .zip(&expected)
            .all(|(found, expected)| (found - expected).abs() < 1e-4);
        assert!(
            close,
            "{store}, {item}, {day}: {found:?} instead of {expected:?}"
        );
    }
}

#[test]
fn a_backtest_scores_quantiles_by_pinball_loss_and_coverage() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    spec(
        &shop,
        "history",
        &date(&days, DAYS - 7),
        "quantiles: [0.1, 0.5, 0.9]",
        "",
    );
    let call = |args: &[&str]| shop.forebay(args).expect(0);
    let found = call(&["backtest", "spec.yaml", "--folds=1", "--json"]).summary();
    let forecast = &found["backtest"]["forecasts"][0];
    std::fs::create_dir(shop.path("known")).unwrap();
    for name in &days[..DAYS - 3] {
        std::fs::copy(
            shop.path("history").join(name),
            shop.path("known").join(name),
        )
        .unwrap();
    }
    spec(
        &shop,
        "known",
        &date(&days, DAYS - 10),
        "quantiles: [0.1, 0.5, 0.9]",
        "",
    );
    call(&["run", "spec.yaml", "--state=fresh"]);
    let rows = shop.rows("out/forecast");
    let came = values_by_day(&crate::support::read(&shop.path("history")));
    let made = series_days(&rows).into_iter().zip(quantiles(&rows));
    let both: Vec<([f64; 3], f64)> = made
        .filter_map(|(key, row)| Some((row, *came.get(&key)?)))
        .collect();
    assert!(both.len() > 50);
    let score = &forecast["forecasters"][0]["overall"];
    assert_eq!(score["rows"], both.len());
    for (at, quantile) in QUANTILES.into_iter().enumerate() {
        let pinball = both.iter().map(|(row, value)| {
            let error = value - row[at];
            if error > 0.0 {
                quantile * error
            } else {
                (quantile - 1.0) * error
            }
        });
        let pinball = pinball.sum::<f64>() / both.len() as f64;
        assert_eq!(score["quantiles"][at]["quantile"], quantile);
        let found = score["quantiles"][at]["pinball"].as_f64().unwrap();
        assert!(
            (found - pinball).abs() < 1e-9,
            "{quantile}: {found} instead of {pinball}"
        );
    }
    let inside = both
        .iter()
        .filter(|(row, value)| (row[0]..=row[2]).contains(value))
        .count();
    assert_eq!(score["intervals"].as_array().map(Vec::len), Some(1));
    assert_eq!(score["intervals"][0]["level"], 0.8);
    let coverage = score["intervals"][0]["coverage"].as_f64().unwrap();
    assert!(
        (coverage - inside as f64 / both.len() as f64).abs() < 1e-12,
        "{coverage}"
    );
    for number in 0..3 {
        let scores: &Value = &forecast["forecasters"][number];
        assert!(
            scores["overall"]["quantiles"][2]["pinball"]
                .as_f64()
                .unwrap()
                > 0.0,
            "{scores}"
        );
    }

    spec(
        &shop,
        "history",
        &date(&days, DAYS - 7),
        "quantiles: [0.1, 0.5, 0.9]",
        "",
    );
    let text = call(&["backtest", "spec.yaml", "--folds=1", "--report=page.html"]).stdout;
    for part in ["pinball loss of 0.1", "coverage of 0.8"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let page = std::fs::read_to_string(shop.path("page.html")).unwrap();
    assert!(page.contains("pinball loss of 0.9") && page.contains("coverage of 0.8"));
}
