//! Backtests: what they score is what would have been forecast at the time.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use serde_json::Value;

use crate::support::{TestDirectory, ready_made};

/// Days of a history; the last seven are forecast by the last fold.
const DAYS: usize = 40;

type SeriesDay = (String, String, i32);

fn texts(rows: &RecordBatch, name: &str) -> Vec<String> {
    let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    column
        .as_string::<i32>()
        .iter()
        .map(|text| text.unwrap().to_owned())
        .collect()
}

fn numbers(rows: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    let column = cast(rows.column_by_name(name).unwrap(), &DataType::Float64).unwrap();
    column.as_primitive::<Float64Type>().iter().collect()
}

fn series_days(rows: &RecordBatch) -> Vec<SeriesDay> {
    let days = cast(rows.column_by_name("date").unwrap(), &DataType::Int32).unwrap();
    let days = days.as_primitive::<Int32Type>().values().to_vec();
    let keys = texts(rows, "store_id")
        .into_iter()
        .zip(texts(rows, "item_id"));
    keys.zip(days)
        .map(|((store, item), day)| (store, item, day))
        .collect()
}

fn by_key(rows: &RecordBatch, column: &str) -> BTreeMap<SeriesDay, f64> {
    let values = series_days(rows).into_iter().zip(numbers(rows, column));
    values
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// wMAPE, RMSE and bias of forecasts whose value came, and the number of both kinds.
fn score(
    forecasts: &BTreeMap<SeriesDay, f64>,
    came: &BTreeMap<SeriesDay, f64>,
) -> (f64, f64, f64, u64, u64) {
    let both: Vec<(f64, f64)> = forecasts
        .iter()
        .filter_map(|(key, forecast)| Some((*forecast, *came.get(key)?)))
        .collect();
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| both.iter().map(of).sum::<f64>();
    let values = sum(&|(_, value)| value.abs());
    let rmse = (sum(&|(forecast, value)| (forecast - value).powi(2)) / both.len() as f64).sqrt();
    let absolute = sum(&|(forecast, value)| (forecast - value).abs());
    let missing = forecasts.len() - both.len();
    (
        absolute / values,
        rmse,
        sum(&|(forecast, value)| forecast - value) / values,
        both.len() as u64,
        missing as u64,
    )
}

fn assert_score(found: &Value, expected: (f64, f64, f64, u64, u64), what: &str) {
    for (name, expected) in [
        ("wmape", expected.0),
        ("rmse", expected.1),
        ("bias", expected.2),
    ] {
        let found = found[name].as_f64().unwrap();
        assert!(
            (found - expected).abs() < 1e-9,
            "{name} of {what}: {found} instead of {expected}"
        );
    }
    assert_eq!(found["rows"], expected.3, "{what}");
}

/// Fails unless errors of a fold are counted by the ends of their bins.
#[track_caller]
fn assert_residuals(
    residuals: &Value,
    fold: usize,
    forecasts: &BTreeMap<SeriesDay, f64>,
    came: &BTreeMap<SeriesDay, f64>,
) {
    let ends = residuals["ends"].as_array().unwrap();
    let ends: Vec<f64> = ends.iter().map(|end| end.as_f64().unwrap()).collect();
    let inner_ends = &ends[1..ends.len() - 1];
    let mut counts = vec![0; ends.len() - 1];
    for (key, forecast) in forecasts {
        if let Some(value) = came.get(key) {
            let error = forecast - value;
            counts[inner_ends.iter().filter(|end| error >= **end).count()] += 1;
        }
    }
    assert_eq!(residuals["folds"][fold], Value::from(counts));
}

/// Fails unless a sample has up to eight series, with the forecasts and values of a fold.
#[track_caller]
fn assert_sampled_series(
    sample: &Value,
    fold: usize,
    forecasts: &BTreeMap<SeriesDay, f64>,
    came: &BTreeMap<SeriesDay, f64>,
) {
    let first_day = forecasts.keys().map(|key| key.2).min().unwrap();
    let sample = sample.as_array().unwrap();
    assert!((1..=8).contains(&sample.len()), "{} series", sample.len());
    for series in sample {
        let mut steps = 0;
        for point in series["points"].as_array().unwrap() {
            if point["fold"] != fold {
                continue;
            }
            steps += 1;
            let step = point["step"].as_i64().unwrap();
            let [store, item] =
                [0usize, 1].map(|key| series["keys"][key]["value"].as_str().unwrap().to_owned());
            let key = (store, item, first_day + step as i32 - 1);
            let predicted = point["predicted"].as_f64().unwrap();
            assert!((predicted - forecasts[&key]).abs() < 1e-9, "{key:?}");
            let expected = came.get(&key).copied();
            assert_eq!(point["actual"].as_f64(), expected, "{key:?}");
        }
        assert!(
            steps == 0 || steps == 7,
            "{steps} steps of {}",
            series["keys"]
        );
    }
}

#[test]
fn a_fold_scores_what_would_have_been_forecast_on_its_day() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let date = |day: usize| {
        days[day]
            .split('.')
            .next()
            .map(|stem| stem[stem.len() - 10..].to_owned())
            .unwrap()
    };
    let spec = std::fs::read_to_string(ready_made("nightly_forecast.yaml")).unwrap();
    shop.write("spec.yaml", &spec);
    // The last week of what is known validates.
    let params = |history: &str| {
        let params = [
            format!("history={history}"),
            "out=out".to_owned(),
            "epochs=1".to_owned(),
            "validation=7d".to_owned(),
        ];
        params
            .into_iter()
            .map(|param| format!("--param={param}"))
            .collect::<Vec<_>>()
    };
    let call = |args: &[&str], params: &[String]| {
        let params: Vec<&str> = params.iter().map(String::as_str).collect();
        shop.forebay(&[args, &params].concat())
    };
    let backtest = [
        "backtest",
        "spec.yaml",
        "--folds=2",
        "--every=3d",
        "--by=category",
        "--json",
    ];
    let done = call(&backtest, &params("history")).expect(0).summary();
    let found = &done["backtest"];
    assert!(!shop.path("out").exists(), "a backtest publishes nothing");
    let forecast = &found["forecasts"][0];
    let names: Vec<&Value> = forecast["forecasters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| &of["forecaster"])
        .collect();
    assert_eq!(names, ["net", "seasonal_naive", "last_value"]);

    let whole = crate::support::read(&shop.path("history"));
    let came = by_key(&whole, "qty");
    for (fold, known) in [(0, DAYS - 10), (1, DAYS - 7)] {
        assert_eq!(found["folds"][fold]["known_before"], date(known));
        // A history that ends there.
        let history = format!("until_{known}");
        std::fs::create_dir(shop.path(&history)).unwrap();
        for name in &days[..known] {
            std::fs::copy(
                shop.path("history").join(name),
                shop.path(&history).join(name),
            )
            .unwrap();
        }
        let fresh = [
            "run",
            "spec.yaml",
            "--json",
            &format!("--state=fresh-{fold}"),
        ];
        call(&fresh, &params(&history)).expect(0);
        let made = by_key(&shop.rows("out/forecast"), "prediction");
        assert_score(
            &forecast["forecasters"][0]["folds"][fold],
            score(&made, &came),
            "the model",
        );
        let first_day = made.keys().map(|key| key.2).min().unwrap();
        let totals = forecast["forecasters"][0]["totals"][fold]
            .as_array()
            .unwrap();
        assert_eq!(totals.len(), 7);
        for (total, day) in totals.iter().zip(first_day..) {
            assert_eq!(total["step"], day - first_day + 1);
            let of_day = made.iter().filter(|(key, _)| key.2 == day);
            let pairs: Vec<(f64, f64)> = of_day
                .filter_map(|(key, predicted)| Some((*predicted, *came.get(key)?)))
                .collect();
            assert_eq!(total["rows"], pairs.len());
            let predicted: f64 = pairs.iter().map(|(predicted, _)| predicted).sum();
            let actual: f64 = pairs.iter().map(|(_, actual)| actual).sum();
            for (name, expected) in [("predicted", predicted), ("actual", actual)] {
                let sum = total[name].as_f64().unwrap();
                let difference = (sum - expected).abs();
                assert!(difference < 1e-6, "{name} of {day}: {sum}, {expected}");
            }
        }
        assert_residuals(&forecast["residuals"], fold, &made, &came);
        assert_sampled_series(&forecast["series"], fold, &made, &came);
    }

    // The naive forecasts, from their definition.
    let first = came.keys().map(|key| key.2).min().unwrap();
    let mut naive = Vec::new();
    let mut last = Vec::new();
    for known in [DAYS - 10, DAYS - 7] {
        let end = first + known as i32;
        let is_active = |key: &SeriesDay| key.2 < end && key.2 >= end - 28;
        let series: std::collections::BTreeSet<(String, String)> = came
            .keys()
            .filter(|key| is_active(key))
            .map(|key| (key.0.clone(), key.1.clone()))
            .collect();
        for (store, item) in series {
            let value = |day: i32| {
                came.get(&(store.clone(), item.clone(), day))
                    .filter(|_| day < end)
                    .copied()
            };
            for step in 0..7 {
                let key = (store.clone(), item.clone(), end + step);
                let seasons = (1..=5)
                    .filter_map(|season| value(end + step - 7 * season))
                    .next();
                naive.push((key.clone(), seasons.unwrap_or(0.0)));
                let values = (1..=11).filter_map(|back| value(end + step - back)).next();
                last.push((key, values.unwrap_or(0.0)));
            }
        }
    }
    for (number, made) in [(1, naive), (2, last)] {
        // Both folds forecast some days: each forecast counts.
        let halves = made.split_at(made.len() / 2);
        let mut rows = 0;
        let mut missing = 0;
        for (fold, half) in [halves.0, halves.1].into_iter().enumerate() {
            let expected = score(&half.iter().cloned().collect(), &came);
            assert_score(
                &forecast["forecasters"][number]["folds"][fold],
                expected,
                &names[number].to_string(),
            );
            (rows, missing) = (rows + expected.3, missing + expected.4);
        }
        let scores = &forecast["forecasters"][number];
        assert_eq!(
            (&scores["overall"]["rows"], &scores["missing"]),
            (&rows.into(), &missing.into())
        );
        let steps = scores["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 7);
        let groups = scores["groups"].as_array().unwrap();
        let sum = |scores: &[Value]| {
            scores
                .iter()
                .map(|score| score["rows"].as_u64().unwrap())
                .sum::<u64>()
        };
        assert!(groups.len() > 1 && sum(groups) == rows && sum(steps) == rows);
    }

    // For people.
    let text = call(
        &[
            "backtest",
            "spec.yaml",
            "--folds=1",
            "--report=backtest.html",
        ],
        &params("history"),
    )
    .expect(0)
    .stdout;
    for part in [
        "forecast: qty in 1 fold",
        "seasonal_naive",
        "wMAPE",
        "known before",
        &date(DAYS - 7),
        "step",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let page = std::fs::read_to_string(shop.path("backtest.html")).unwrap();
    assert!(
        page.contains("Backtest of qty") && page.contains("<svg") && page.contains("last_value")
    );
    for part in [
        "Actual and predicted",
        &format!("Known before {}", date(DAYS - 7)),
        "actual qty",
        "Series of forecast",
        "Errors of forecast by fold",
        "one standard deviation of the errors",
    ] {
        assert!(page.contains(part), "no `{part}` on the page");
    }
}

#[test]
fn a_fold_without_values_is_told() {
    let shop = TestDirectory::new();
    shop.days("history");
    let spec = std::fs::read_to_string(ready_made("nightly_forecast.yaml")).unwrap();
    shop.write("spec.yaml", &spec);
    let args = [
        "backtest",
        "spec.yaml",
        "--param=history=history",
        "--folds=1",
        "--until=2030-01-01",
    ];
    let call = shop.forebay(&args).expect(0);
    assert!(
        call.stderr
            .contains("no value came for the forecasts of `forecast`"),
        "{}",
        call.stderr
    );
}

#[test]
fn backtests_that_cannot_be_made_are_refused() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let spec = std::fs::read_to_string(ready_made("nightly_forecast.yaml")).unwrap();
    shop.write("spec.yaml", &spec);
    for (args, message) in [
        (&["--folds=20"][..], "the first would know nothing"),
        (&["--every=12h"], "`12h` is no distance of folds"),
        (
            &["--by=price"],
            "groups are scored by `price`, which `forecast` does not write",
        ),
    ] {
        let call =
            shop.forebay(&[&["backtest", "spec.yaml", "--param=history=history"], args].concat());
        assert!(
            call.code == 78 && call.stderr.contains(message),
            "{args:?}: {}",
            call.stderr
        );
    }
    let table = "version: 1\nname: table\nsources:\n  demand: { parquet: { path: history }, time: date }\nsinks:\n  \
                 out: { from: demand, parquet: { path: out } }\n";
    shop.write("table.yaml", table);
    let call = shop.forebay(&["backtest", "table.yaml"]);
    assert!(
        call.code == 78 && call.stderr.contains("needs a `predict` sink"),
        "{}",
        call.stderr
    );
    assert_eq!(days.len(), DAYS);
}
