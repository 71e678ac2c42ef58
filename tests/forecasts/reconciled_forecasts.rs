//! Forecasts of several levels, by trees and by models of series, that are made to add up.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use serde_json::Value;

use crate::forecasts::quantiles::numbers;
use crate::support::TestDirectory;

/// Days of the history.
const DAYS: usize = 60;

const SPEC: &str = r#"
version: 1
name: levels
sources:
  items: { csv: { path: items.csv }, time: day, keys: [store, item] }
  stores: { csv: { path: stores.csv }, time: day, keys: [store] }
  totals: { csv: { path: totals.csv }, time: day }
steps:
  item_days: { from: items, do: [STEPS] }
  store_days: { from: stores, do: [STEPS] }
  total_days: { from: totals, do: [TOTAL] }
label: { column: qty, horizon: 3d }
sinks:
  item_trees: { from: item_days, train: { path: out/item_trees, TREES } }
  store_theta:
    from: store_days
    train: { path: out/store_theta, model: theta, by: [store], time: day, every: 1d, season: 7d }
  total_trees: { from: total_days, train: { path: out/total_trees, TREES } }
  by_item: { from: item_days, predict: { model: item_trees, path: out/by_item, season: 7d ITEM } }
  by_store: { from: store_days, predict: { model: store_theta, path: out/by_store, season: 7d STORE } }
  in_total: { from: total_days, predict: { model: total_trees, path: out/in_total, season: 7d } }
"#;

const STEPS: &str =
    "{ future_rows: { horizon: 3d, every: 1d } }, { lag: { columns: [qty], by: [3d, 7d] } }";

/// Steps of a single series.
const TOTAL: &str = "{ future_rows: { horizon: 3d, every: 1d, keys: [] } }, \
                     { lag: { columns: [qty], by: [3d, 7d], keys: [] } }";

const TREES: &str =
    "model: gbdt, label: qty, dense: [qty_lag_3d, qty_lag_7d], rounds: 20, leaves: 4";

/// A forecast by the texts of its keys and its day.
type Forecast = BTreeMap<(Vec<String>, String), f64>;

struct Levels {
    items: Forecast,
    stores: Forecast,
    total: Forecast,
}

struct Shop(TestDirectory);

impl Shop {
    /// Two stores with two items each, and the sums of both levels.
    fn new() -> Shop {
        let shop = TestDirectory::new();
        let mut items = "day,store,item,qty\n".to_owned();
        let mut stores = "day,store,qty\n".to_owned();
        let mut totals = "day,qty\n".to_owned();
        for day in 0..DAYS {
            let date = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(day as i64);
            let mut total = 0;
            for (store_number, store) in ["n", "s"].iter().enumerate() {
                let mut of_store = 0;
                for (item_number, item) in ["a", "b"].iter().enumerate() {
                    let series = 2 * store_number + item_number;
                    let noise = (day * (7 + series) + 3 * series) % 11;
                    let qty = 20 * (series + 1) + 4 * (day % 7) + noise;
                    items += &format!("{date},{store},{item},{qty}\n");
                    of_store += qty;
                }
                stores += &format!("{date},{store},{of_store}\n");
                total += of_store;
            }
            totals += &format!("{date},{total}\n");
        }
        shop.write("items.csv", &items);
        shop.write("stores.csv", &stores);
        shop.write("totals.csv", &totals);
        Shop(shop)
    }

    fn spec(&self, item: &str, store: &str) {
        let spec = SPEC
            .replace("STEPS", STEPS)
            .replace("TOTAL", TOTAL)
            .replace("TREES", TREES)
            .replace("ITEM", item)
            .replace("STORE", store);
        self.0.write("spec.yaml", &spec);
    }

    /// Runs a spec, and reads the forecasts of all levels.
    fn run(&self, item: &str, args: &[&str]) -> (Value, Levels) {
        self.spec(item, "");
        let call = self
            .0
            .forebay(&[&["run", "spec.yaml", "--json"], args].concat());
        let summary = call.expect(0).summary();
        let levels = Levels {
            items: self.forecast("out/by_item", &["store", "item"]),
            stores: self.forecast("out/by_store", &["store"]),
            total: self.forecast("out/in_total", &[]),
        };
        (summary, levels)
    }

    fn forecast(&self, path: &str, keys: &[&str]) -> Forecast {
        let rows = self.0.rows(path);
        let mut names = vec![Vec::new(); rows.num_rows()];
        for key in keys {
            let texts = cast(rows.column_by_name(key).unwrap(), &DataType::Utf8).unwrap();
            for (name, text) in names.iter_mut().zip(texts.as_string::<i32>()) {
                name.push(text.unwrap().to_owned());
            }
        }
        let days = cast(rows.column_by_name("day").unwrap(), &DataType::Utf8).unwrap();
        let days = days
            .as_string::<i32>()
            .iter()
            .map(|day| day.unwrap().to_owned());
        let values = numbers(&rows, "prediction").into_iter().map(Option::unwrap);
        names.into_iter().zip(days).zip(values).collect()
    }

    fn refused(&self, item: &str, store: &str, words: &str) {
        self.spec(item, store);
        let call = self.0.forebay(&["check", "spec.yaml"]);
        assert!(
            call.code == 78 && call.stderr.contains(words),
            "no `{words}`: {}",
            call.stderr
        );
    }
}

/// Sums of the forecasts of items over those of a store, or over all of them.
fn sum_of(items: &Forecast, store: Option<&str>, day: &str) -> f64 {
    let mut sum = 0.0;
    for ((keys, of_day), value) in items {
        if of_day == day && store.is_none_or(|store| keys[0] == store) {
            sum += value;
        }
    }
    sum
}

#[track_caller]
fn assert_adds_up(levels: &Levels) {
    assert_eq!(levels.items.len(), 12);
    assert_eq!(levels.stores.len(), 6);
    assert_eq!(levels.total.len(), 3);
    for ((keys, day), value) in &levels.stores {
        let sum = sum_of(&levels.items, Some(&keys[0]), day);
        assert!((value - sum).abs() < 1e-9 * sum, "{keys:?} {day}: {value}");
    }
    for ((_, day), value) in &levels.total {
        let sum = sum_of(&levels.items, None, day);
        assert!((value - sum).abs() < 1e-9 * sum, "{day}: {value}");
    }
}

const WITH: &str = "with: [by_store, in_total]";

#[test]
fn upper_levels_are_sums_bottom_up() {
    let shop = Shop::new();
    let (_, base) = shop.run("", &[]);
    let item = format!(", reconcile: {{ {WITH}, method: bottom_up }}");
    let (summary, levels) = shop.run(&item, &[]);
    assert_adds_up(&levels);
    assert_eq!(levels.items, base.items);
    assert_ne!(levels.stores, base.stores);
    let reconciled = &summary["forecasts"][0]["reconciled"];
    assert_eq!(reconciled["method"], "bottom_up");
    assert_eq!(reconciled["upper_series"], 3);
    assert_eq!(reconciled["bottom_series"], 4);
    let rows = shop.0.rows("out/by_store");
    let column = rows.column_by_name("prediction").unwrap();
    assert_eq!(column.data_type(), &DataType::Float64);
}

/// The changes are those of least squares: the errors of what each series is part of add up to nothing.
#[test]
fn ordinary_least_squares_change_all_levels() {
    let shop = Shop::new();
    let (_, base) = shop.run("", &[]);
    let item = format!(", reconcile: {{ {WITH}, method: ols }}");
    let (_, levels) = shop.run(&item, &["--threads=1", "--state=one"]);
    assert_adds_up(&levels);
    for ((keys, day), value) in &levels.items {
        let store = (keys[..1].to_vec(), day.clone());
        let total = (Vec::new(), day.clone());
        let item = (keys.clone(), day.clone());
        let residual = base.items[&item] - value + base.stores[&store] - levels.stores[&store]
            + base.total[&total]
            - levels.total[&total];
        assert!(residual.abs() < 1e-3, "{keys:?} {day}: {residual}");
    }
    let (again, by_threads) = shop.run(&item, &["--threads=4", "--state=four"]);
    assert_eq!(again["nothing_new"], false);
    assert_eq!(by_threads.items, levels.items);
    let (again, _) = shop.run(&item, &["--threads=4", "--state=four"]);
    assert_eq!(again["nothing_new"], true);
}

#[test]
fn a_covariance_is_learned_on_folds() {
    let shop = Shop::new();
    let item = format!(", reconcile: {{ {WITH}, folds: 2 }}");
    let (summary, levels) = shop.run(&item, &[]);
    assert_adds_up(&levels);
    let reconciled = &summary["forecasts"][0]["reconciled"];
    assert_eq!(reconciled["method"], "mint_shrink");
    assert_eq!(reconciled["errors"], 6);
    let item = format!(", reconcile: {{ {WITH}, method: ols }}");
    let (_, least_squares) = shop.run(&item, &[]);
    assert_ne!(levels.items, least_squares.items);
    // Each fold of a backtest makes its forecasts add up.
    let backtest = ["backtest", "spec.yaml", "--folds=1", "--json"];
    let scores = shop.0.forebay(&backtest).expect(0).summary();
    let forecasts = scores["backtest"]["forecasts"].as_array().unwrap();
    assert_eq!(forecasts.len(), 3);
    let rows = &forecasts[0]["forecasters"][0]["overall"]["rows"];
    assert_eq!(*rows, 12);
}

#[test]
fn levels_that_do_not_add_up_are_refused() {
    let shop = Shop::new();
    let ols = ", reconcile: { with: [by_store], method: ols }";
    for (item, store, words) in [
        (", reconcile: { with: [] }", "", "name the `predict` sinks"),
        (
            ", reconcile: { with: [by_store, by_store] }",
            "",
            "`by_store` is named twice",
        ),
        (
            ", reconcile: { with: [by_stores] }",
            "",
            "no other sink predicts `by_stores`",
        ),
        (
            ", reconcile: { with: [by_item] }",
            "",
            "no other sink predicts `by_item`",
        ),
        (ols, ", min: 0", "`by_store` has bounds"),
        (
            ols,
            ", reconcile: { with: [in_total], method: ols }",
            "part of two hierarchies",
        ),
        (
            "",
            ", reconcile: { with: [by_item], method: ols }",
            "have the key `item`",
        ),
        (
            ", reconcile: { with: [by_store], method: ols, folds: 2 }",
            "",
            "`folds` is for errors that are learned",
        ),
        (
            ", reconcile: { with: [by_store], every: soon }",
            "",
            "`soon` is not a length",
        ),
    ] {
        shop.refused(item, store, words);
    }
}
