//! Whole specs as their users write them, each from the reference alone, over generated data.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int64Type};
use forebay_generate::{DemandOptions, HistoryExtent, demand};
use serde_json::Value;

use crate::support::{TestDirectory, read, repository};

/// Data for a spec of `tests/specs`, which is checked and run.
fn run(name: &str) -> (TestDirectory, Value) {
    let shop = TestDirectory::new();
    if name == "click_through" {
        shop.clicks("clicks", 1_000);
    } else {
        let mut options = DemandOptions::new(HistoryExtent::Days(80), 7, shop.path("demand"));
        options.series = 120;
        options.period = "week".parse().unwrap();
        demand(&options, &mut |_| {}).unwrap();
    }
    let spec = repository()
        .join(format!("tests/specs/{name}.yaml"))
        .display()
        .to_string();
    let checked = shop.forebay(&["check", &spec]).expect(0);
    assert!(
        checked.stdout.contains("no problems"),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
    shop.forebay(&["fmt", "--check", &spec]).expect(0);
    let summary = shop
        .forebay(&["run", &spec, "--json", "--threads=2"])
        .expect(0)
        .summary();
    // A second run finds everything.
    let again = shop
        .forebay(&["run", &spec, "--json", "--threads=1"])
        .expect(0)
        .summary();
    assert_eq!(
        (&again["nothing_new"], &again["artifact"]),
        (&Value::Bool(true), &summary["artifact"])
    );
    (shop, summary)
}

fn floats(rows: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    cast(&rows[name], &DataType::Float64)
        .unwrap()
        .as_primitive::<Float64Type>()
        .iter()
        .collect()
}

fn integers(rows: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    cast(&rows[name], &DataType::Int64)
        .unwrap()
        .as_primitive::<Int64Type>()
        .iter()
        .collect()
}

fn words(rows: &RecordBatch, name: &str) -> Vec<String> {
    let column = cast(&rows[name], &DataType::Utf8).unwrap();
    column
        .as_string::<i32>()
        .iter()
        .map(|text| text.unwrap_or_default().to_owned())
        .collect()
}

fn days(rows: &RecordBatch) -> Vec<i32> {
    rows["date"].as_primitive::<Date32Type>().values().to_vec()
}

fn rows_of(summary: &Value, sink: &str) -> u64 {
    let outputs = summary["outputs"].as_array().unwrap().iter();
    let found = outputs
        .filter(|output| output["sink"] == sink)
        .map(|output| output["rows"].as_u64().unwrap());
    found.sum()
}

#[test]
fn features_of_clicks() {
    let (shop, summary) = run("click_through");
    let shown = read(&shop.path("clicks"));
    let f1 = floats(&shown, "f1");
    let f2 = floats(&shown, "f2");
    let kept = f1
        .iter()
        .zip(&f2)
        .filter(|(f1, f2)| f1.is_some() || f2.is_some())
        .count() as u64;
    let model = &summary["models"][0];
    let parts = [
        rows_of(&summary, "train"),
        rows_of(&summary, "test"),
        model["validation_rows"].as_u64().unwrap(),
    ];
    assert_eq!(
        (parts.iter().sum::<u64>(), model["rows"].as_u64()),
        (kept, Some(parts[0]))
    );
    let train = shop.visible("out/clicks/train");
    for name in ["f1", "f2"] {
        let values: Vec<f64> = floats(&train, name)
            .into_iter()
            .map(Option::unwrap)
            .collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / n;
        assert!(
            mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4,
            "{name}: mean {mean}, variance {variance}"
        );
    }
    for name in ["f1", "f2", "f3", "f4_bin", "f1_missing"] {
        assert_eq!(train[name].null_count(), 0, "{name}");
    }
    let spec = repository()
        .join("tests/specs/click_through.yaml")
        .display()
        .to_string();
    let fed = shop
        .forebay(&["feed", &spec, "--json", "--show=0"])
        .expect(0)
        .summary();
    assert_eq!(fed["rows"].as_u64(), Some(parts[0]), "{fed}");
}

#[test]
fn a_report_by_week() {
    let (shop, _) = run("weekly_report");
    let sold = read(&shop.path("demand"));
    let report = shop.visible("out/report/table");
    let total = |rows: &RecordBatch| integers(rows, "qty").into_iter().flatten().sum::<i64>();
    assert_eq!(total(&sold), total(&report));
    let revenue = |qty: Vec<Option<f64>>, price: Vec<Option<f64>>| -> f64 {
        qty.into_iter()
            .zip(price)
            .filter_map(|(qty, price)| Some(qty? * price?))
            .sum()
    };
    let expected = revenue(floats(&sold, "qty"), floats(&sold, "price"));
    let found: f64 = floats(&report, "revenue").into_iter().flatten().sum();
    assert!(
        (found - expected).abs() < 1e-9 * expected,
        "{found} is not {expected}"
    );
    // Shares of a store add up to 1, and weeks begin on Mondays.
    let mut shares: BTreeMap<(String, i32), f64> = BTreeMap::new();
    let stores = words(&report, "store_id");
    let weeks = days(&report);
    let share = floats(&report, "share");
    for ((store, week), share) in stores.into_iter().zip(weeks).zip(share) {
        assert_eq!((week + 3) % 7, 0, "{week} is no Monday");
        *shares.entry((store, week)).or_default() += share.unwrap_or(0.0);
    }
    assert!(shares.len() > 50);
    assert!(
        shares
            .values()
            .all(|sum| (sum - 1.0).abs() < 1e-9 || *sum == 0.0),
        "{shares:?}"
    );
    // The CSV holds the same rows, a folder for each category.
    let folders: BTreeSet<String> = std::fs::read_dir(shop.path("out/report/csv"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("category="))
        .collect();
    assert_eq!(
        folders.len(),
        words(&report, "category")
            .into_iter()
            .collect::<BTreeSet<_>>()
            .len()
    );
}

#[test]
fn a_history_without_doubled_or_wrong_rows() {
    let (shop, summary) = run("clean_history");
    let rows = read(&shop.path("demand"));
    let wrong = integers(&rows, "qty")
        .into_iter()
        .filter(|qty| qty.is_none_or(|qty| !(0..=15).contains(&qty)))
        .count();
    assert!(wrong > 0);
    assert_eq!(rows_of(&summary, "refused"), wrong as u64);
    assert_eq!(rows_of(&summary, "table"), (rows.num_rows() - wrong) as u64);
    assert!(shop.path("out/clean/table/_delta_log").exists());
    let spec = repository()
        .join("tests/specs/clean_history.yaml")
        .display()
        .to_string();
    let tested = shop.forebay(&["test", &spec]).expect(0);
    assert!(
        tested.stdout.contains("1 test, all passed"),
        "{}",
        tested.stdout
    );
}

#[test]
fn a_forecast_by_trees_for_each_category() {
    let (shop, summary) = run("category_forecast");
    let forecast = &summary["forecasts"][0];
    let series = forecast["series"].as_u64().unwrap();
    let rows = forecast["rows"].as_u64().unwrap();
    assert!(series > 80 && rows == 7 * series, "{forecast}");
    let groups = summary["models"][0]["groups"]["groups"].as_u64();
    assert_eq!(groups, Some(3), "{}", summary["models"]);
    let last = days(&read(&shop.path("demand"))).into_iter().max().unwrap();
    let last =
        jiff::civil::date(1970, 1, 1).saturating_add(jiff::Span::new().days(i64::from(last)));
    assert_eq!(forecast["known_until"], last.to_string());
    let mut lines = 0;
    for file in std::fs::read_dir(shop.path("out/forecast/week")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let mut records = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let at = records
            .next()
            .unwrap()
            .iter()
            .position(|name| *name == "prediction")
            .unwrap();
        for record in records {
            let predicted: f64 = record[at].parse().unwrap();
            assert!((0.0..1_000.0).contains(&predicted), "{predicted}");
            lines += 1;
        }
    }
    assert_eq!(lines, rows);
}

#[test]
fn prices_as_they_were_known_that_morning() {
    let (shop, _) = run("price_history");
    let all = read(&shop.path("demand"));
    let sold = shop.visible("out/prices/table");
    let key = |rows: &RecordBatch| {
        words(rows, "store_id")
            .into_iter()
            .zip(words(rows, "item_id"))
            .collect::<Vec<_>>()
    };
    // Changes of the price of each series, in order of time.
    let mut changes: BTreeMap<(String, String), Vec<(i32, f64)>> = BTreeMap::new();
    let mut told: Vec<_> = key(&all)
        .into_iter()
        .zip(days(&all))
        .zip(floats(&all, "price"))
        .collect();
    told.sort_by_key(|((_, day), _)| *day);
    for ((key, day), price) in told {
        let Some(price) = price else { continue };
        let known = changes.entry(key).or_default();
        if known.last().is_none_or(|(_, last)| *last != price) {
            known.push((day, price));
        }
    }
    let keys = key(&sold);
    let days = days(&sold);
    let prices = floats(&sold, "price");
    let missing = sold["price_missing"].as_boolean().clone();
    assert!(sold.num_rows() > 1_000 && missing.true_count() > 0);
    for row in 0..sold.num_rows() {
        let before = changes[&keys[row]]
            .iter()
            .rfind(|(day, _)| *day < days[row] && days[row] - day <= 90);
        assert_eq!(
            missing.value(row),
            before.is_none(),
            "{:?} on day {}",
            keys[row],
            days[row]
        );
        if let Some((_, price)) = before {
            assert_eq!(
                prices[row],
                Some(*price),
                "{:?} on day {}",
                keys[row],
                days[row]
            );
        }
    }
}
