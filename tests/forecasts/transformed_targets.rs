//! Transformed targets: forecasts are in the units of the rows, as if each transformation was done and undone by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Float64Type};
use parquet::arrow::ArrowWriter;

use crate::support::TestDirectory;

const FIRST_DAY: i32 = 16_900;
const DAYS: i32 = 60;
const ITEMS: i32 = 8;
const STEPS: i32 = 5;

type ItemDay = (String, i32);

/// Forecasts of `LABEL` in the strategy `STRATEGY`, with steps before the rows of the future and behind them.
const SPEC: &str = r#"
version: 1
name: trends
sources:
  sales: { parquet: { path: "SOURCE" }, time: date, keys: [item] }
steps:
  features:
    from: sales
    do:
BEFORE      - future_rows: { horizon: 5d, every: 1d }
BEHIND      - lag: { columns: [LABEL], by: [FIRSTd, 7d] }
      - rolling: { columns: [LABEL], compute: [mean], over: [4d], gap: FIRSTd }
label: { column: LABEL, horizon: 5d }
sinks:
  trees:
    from: features
    train:
      path: OUT/trees
      model: gbdt
      strategy: STRATEGY
      rounds: 20
      leaves: 6
      min_leaf_rows: 5
      dense: [LABEL_lag_FIRSTd, LABEL_lag_7d, LABEL_mean_4d]
      categorical: []
      MORE
  forecast: { from: features, predict: { model: trees, path: OUT/forecast, season: 7d } }
"#;

/// A spec, and where it reads and writes.
struct ForecastSpec<'a> {
    source: &'a str,
    label: &'a str,
    strategy: &'a str,
    before: &'a [&'a str],
    behind: &'a [&'a str],
    more: &'a str,
}

impl ForecastSpec<'_> {
    fn text(&self, out: &str) -> String {
        let steps = |steps: &[&str]| -> String {
            steps
                .iter()
                .map(|step| format!("      - {step}\n"))
                .collect()
        };
        let first = if self.strategy == "direct" { "5" } else { "1" };
        SPEC.replace("SOURCE", self.source)
            .replace("BEFORE", &steps(self.before))
            .replace("BEHIND", &steps(self.behind))
            .replace("LABEL", self.label)
            .replace("FIRST", first)
            .replace("STRATEGY", self.strategy)
            .replace("MORE", self.more)
            .replace("OUT", out)
    }

    /// The forecast of a run by item and day.
    fn forecast(&self, shop: &TestDirectory, out: &str) -> BTreeMap<ItemDay, f64> {
        self.columns(shop, out, "prediction")
    }

    fn columns(&self, shop: &TestDirectory, out: &str, column: &str) -> BTreeMap<ItemDay, f64> {
        shop.write("spec.yaml", &self.text(out));
        let state = format!("--state={out}/state");
        shop.forebay(&["run", "spec.yaml", &state]).expect(0);
        by_item_and_day(&shop.rows(&format!("{out}/forecast")), column)
    }
}

fn by_item_and_day(rows: &RecordBatch, column: &str) -> BTreeMap<ItemDay, f64> {
    let items = cast(rows.column_by_name("item").unwrap(), &DataType::Utf8).unwrap();
    let items = items.as_string::<i32>();
    let days = rows.column_by_name("date").unwrap();
    let days = days.as_primitive::<Date32Type>();
    let values = cast(rows.column_by_name(column).unwrap(), &DataType::Float64).unwrap();
    let values = values.as_primitive::<Float64Type>();
    (0..rows.num_rows())
        .map(|row| {
            let key = (items.value(row).to_owned(), days.value(row));
            (key, values.value(row))
        })
        .collect()
}

/// Series with a trend, a week and noise, at levels of their own.
fn trends() -> BTreeMap<ItemDay, f64> {
    let mut values = BTreeMap::new();
    for item in 0..ITEMS {
        let mut seed = item as u64 + 1;
        for day in 0..DAYS {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let noise = (seed >> 11) as f64 / (1u64 << 53) as f64;
            let level = 100.0 * f64::from(item + 1);
            let trend = f64::from(day) * f64::from(item - 3);
            let value = level + trend + 10.0 * f64::from(day % 7) + 6.0 * noise + 200.0;
            values.insert((format!("item {item}"), FIRST_DAY + day), value);
        }
    }
    values
}

fn write(shop: &TestDirectory, name: &str, values: &BTreeMap<ItemDay, f64>) {
    let mut rows: Vec<(&ItemDay, &f64)> = values.iter().collect();
    rows.sort_by_key(|((item, day), _)| (*day, item.clone()));
    let days = rows.iter().map(|((_, day), _)| *day);
    let items = rows.iter().map(|((item, _), _)| item);
    let quantities = rows.iter().map(|(_, value)| **value);
    let columns: [(&str, ArrayRef); 3] = [
        ("date", Arc::new(Date32Array::from_iter_values(days))),
        ("item", Arc::new(StringArray::from_iter_values(items))),
        ("qty", Arc::new(Float64Array::from_iter_values(quantities))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(shop.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    write(&shop, "sales.parquet", &trends());
    shop
}

fn transformed<'a>(strategy: &'a str, behind: &'a [&'a str]) -> ForecastSpec<'a> {
    ForecastSpec {
        source: "sales.parquet",
        label: "qty",
        strategy,
        before: &[],
        behind,
        more: "",
    }
}

fn assert_close(actual: &BTreeMap<ItemDay, f64>, expected: &BTreeMap<ItemDay, f64>) {
    assert_eq!(actual.len(), expected.len());
    for (key, expected) in expected {
        let actual = actual[key];
        let error = (actual - expected).abs() / expected.abs();
        assert!(error < 1e-12, "{key:?}: {actual} is not {expected}");
    }
}

/// The changes of predicted days, added up from the last known value.
fn summed(
    changes: &BTreeMap<ItemDay, f64>,
    known: &BTreeMap<ItemDay, f64>,
) -> BTreeMap<ItemDay, f64> {
    let mut values = BTreeMap::new();
    for ((item, day), change) in changes {
        let before = (item.clone(), day - 1);
        let earlier = values.get(&before).or(known.get(&before)).unwrap();
        let value = earlier + change;
        values.insert((item.clone(), *day), value);
    }
    values
}

#[test]
fn differences_are_those_made_and_undone_by_hand() {
    let shop = shop();
    // The change as a column of the rows, which a model learns and predicts.
    let before = [
        "lag: { columns: [qty], by: [1d] }",
        "derive: { change: \"qty - qty_lag_1d\" }",
        "filter: \"change IS NOT NULL\"",
        "drop: [qty, qty_lag_1d]",
    ];
    for strategy in ["direct", "recursive", "per_step"] {
        let by_hand = ForecastSpec {
            label: "change",
            before: &before,
            ..transformed(strategy, &[])
        };
        let changes = by_hand.forecast(&shop, &format!("{strategy}_hand"));
        let spec = transformed(
            strategy,
            &["target: { column: qty, do: [{ difference: 1d }] }"],
        );
        let forecasts = spec.forecast(&shop, strategy);
        assert_eq!(forecasts.len(), (ITEMS * STEPS) as usize);
        assert_close(&forecasts, &summed(&changes, &trends()));
    }
}

#[test]
fn a_constant_passes_through_differences() {
    let shop = shop();
    let raised = trends()
        .into_iter()
        .map(|(key, value)| (key, value + 4096.0));
    write(&shop, "raised.parquet", &raised.collect());
    let behind = ["target: { column: qty, do: [{ difference: [1d, 7d] }] }"];
    for strategy in ["direct", "recursive"] {
        let spec = transformed(strategy, &behind);
        let forecast = spec.forecast(&shop, &format!("{strategy}_low"));
        let spec = ForecastSpec {
            source: "raised.parquet",
            ..spec
        };
        let high = spec.forecast(&shop, &format!("{strategy}_high"));
        for (key, value) in &forecast {
            let distance = high[key] - value;
            assert!((distance - 4096.0).abs() < 1e-3, "{key:?}: {distance}");
        }
    }
}

#[test]
fn scales_of_series_are_those_made_and_undone_by_hand() {
    let shop = shop();
    let by_hand = ForecastSpec {
        before: &["standardize: { columns: [qty], by: [item] }"],
        ..transformed("direct", &[])
    };
    let scores = by_hand.forecast(&shop, "hand");
    let spec = transformed(
        "direct",
        &["target: { column: qty, do: [{ scale: standard }] }"],
    );
    let forecasts = spec.forecast(&shop, "scaled");
    let values = trends();
    let mut expected = BTreeMap::new();
    for ((item, day), score) in scores {
        let own: Vec<f64> = values
            .iter()
            .filter(|((other, _), _)| *other == item)
            .map(|(_, value)| *value)
            .collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let squares: f64 = own.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / own.len() as f64).sqrt();
        expected.insert((item, day), score * deviation + mean);
    }
    assert_close(&forecasts, &expected);
}

#[test]
fn chains_quantiles_and_bounds_are_in_the_units_of_the_rows() {
    let shop = shop();
    let behind = ["target: { column: qty, do: [log1p, { difference: 7d }, { scale: robust }] }"];
    let spec = ForecastSpec {
        more: "quantiles: [0.1, 0.9]",
        ..transformed("recursive", &behind)
    };
    let point = spec.forecast(&shop, "out");
    let rows = shop.rows("out/forecast");
    let low = by_item_and_day(&rows, "prediction_q10");
    let high = by_item_and_day(&rows, "prediction_q90");
    let values = trends();
    for ((item, day), value) in &point {
        let week_before = values[&(item.clone(), day - 7)];
        assert!(
            (value / week_before - 1.0).abs() < 0.5,
            "{item} {day}: {value}"
        );
        let key = (item.clone(), *day);
        assert!(low[&key] <= high[&key]);
    }
    // Whole weeks are known ahead: nothing is fed back, and threads and batches change no bit.
    shop.forebay(&[
        "run",
        "spec.yaml",
        "--state=slow",
        "--threads=1",
        "--batch-rows=5",
    ])
    .expect(0);
    assert!(shop.rows("out/forecast") == rows);
    // An earlier model makes the same forecast by hand.
    shop.forebay(&[
        "predict",
        "out/trees",
        "--source=sales.parquet",
        "--output=by_hand",
        "--state=hand",
    ])
    .expect(0);
    let by_hand = by_item_and_day(&shop.rows("by_hand"), "prediction");
    assert_eq!(by_hand, point);
}

#[test]
fn what_each_series_needs_is_chosen() {
    let shop = shop();
    let behind = [
        "target: { column: qty, gaps: count_rows, do: [{ difference: auto }, { seasonal_difference: { auto: 7 } }] }",
    ];
    let forecasts = transformed("recursive", &behind).forecast(&shop, "auto");
    assert_eq!(forecasts.len(), (ITEMS * STEPS) as usize);
    // Item 3 has no trend: its level is kept. All follow their weeks.
    let values = trends();
    for ((item, day), value) in &forecasts {
        let week_before = values[&(item.clone(), day - 7)];
        assert!(
            (value - week_before).abs() < 60.0,
            "{item} {day}: {value}, {week_before}"
        );
    }
}

#[test]
fn backtests_score_values_of_the_rows() {
    let shop = shop();
    let spec = transformed(
        "recursive",
        &["target: { column: qty, do: [{ difference: 7d }] }"],
    );
    shop.write("spec.yaml", &spec.text("out"));
    let report = shop
        .forebay(&["backtest", "spec.yaml", "--folds=2", "--json"])
        .expect(0)
        .summary();
    let report = &report["backtest"];
    let forecasters = report["forecasts"][0]["forecasters"].as_array().unwrap();
    let wmape = |name: &str| {
        let one = forecasters
            .iter()
            .find(|one| one["forecaster"] == name)
            .unwrap();
        one["overall"]["wmape"].as_f64().unwrap()
    };
    assert!(wmape("trees") < 0.05, "{report}");
    assert!(wmape("trees") < wmape("seasonal_naive"), "{report}");
}

#[test]
fn targets_that_cannot_be_undone_are_refused() {
    let shop = shop();
    let cases: [(&[&str], &[&str], &str); 4] = [
        (
            &["target: { column: qty, do: [log1p] }"],
            &[],
            "move `target` behind `future_rows`",
        ),
        (
            &[],
            &["target: { column: qty, do: [{ difference: 1 }] }"],
            "counts rows",
        ),
        (
            &[],
            &["target: { column: qty, do: [{ power: -1 }] }"],
            "above 0",
        ),
        (
            &[],
            &[
                "target: { column: qty, do: [log1p] }",
                "derive: { qty: \"qty * 2\" }",
            ],
            "changes the label",
        ),
    ];
    for (before, behind, words) in cases {
        let spec = ForecastSpec {
            before,
            ..transformed("direct", behind)
        };
        shop.write("spec.yaml", &spec.text("out"));
        let said = shop.forebay(&["check", "spec.yaml"]).expect(78).stderr;
        assert!(said.contains(words), "`{words}` is missing:\n{said}");
    }
    // Values beyond the domain.
    let mut values = trends();
    values.values_mut().for_each(|value| *value -= 500.0);
    write(&shop, "sales.parquet", &values);
    let spec = transformed("direct", &["target: { column: qty, do: [log1p] }"]);
    shop.write("spec.yaml", &spec.text("out"));
    let failed = shop.forebay(&["run", "spec.yaml"]);
    assert!(
        failed.stderr.contains("`log1p` takes values above -1"),
        "{}",
        failed.stderr
    );
}
