//! Ensembles whose weights are learned on folds of a backtest within the run.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::forecasts::quantiles::{SeriesDay, numbers, series_days, values_by_day};
use crate::support::{TestDirectory, read};

/// Days of the history.
const DAYS: usize = 40;

/// Days that folds know: their forecasts are of the last and the last but one three days.
const FOLDS: [usize; 2] = [DAYS - 6, DAYS - 3];

const SPEC: &str = r#"
version: 1
name: weights
sources:
  demand: { parquet: { path: HISTORY }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - future_rows: { horizon: 3d, every: 1d }
      - lag: { columns: [qty], by: [3d, 4d, 7d] }
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 3d }
split: { by_time: { column: date, parts: [train, validation], ends: [last 5d] } }
label: { column: qty, horizon: 3d }
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
  theta:
    from: features
    train: { path: out/theta, model: theta, by: [store_id, item_id], time: date, every: 1d, season: 7d }
  of_trees: { from: features, predict: { model: trees, path: out/of_trees } }
  of_theta: { from: features, predict: { model: theta, path: out/of_theta } }
"#;

/// An ensemble of both models. Its members are bound by nothing, so that a row is the weighted mean of theirs.
const BLEND: &str = "  blend: { from: features, predict: { model: trees, ensemble: ENSEMBLE, \
                     path: out/blend, season: 7d } }\n";

const NNLS: &str = "{ with: [theta], combine: nnls, folds: 2, every: 3d }";

struct Shop(TestDirectory);

impl Shop {
    fn new() -> Shop {
        let shop = TestDirectory::new();
        shop.days("history");
        Shop(shop)
    }

    fn spec(&self, history: &str, ensemble: Option<&str>) {
        let mut spec = SPEC.replace("HISTORY", history);
        if let Some(ensemble) = ensemble {
            spec += &BLEND.replace("ENSEMBLE", ensemble);
        }
        self.0.write("spec.yaml", &spec);
    }

    fn run(&self, args: &[&str]) -> Value {
        let call = self
            .0
            .forebay(&[&["run", "spec.yaml", "--json"], args].concat());
        call.expect(0).summary()
    }

    /// The forecasts of both members with the rows of the first days.
    fn members_after(&self, days: usize) -> [BTreeMap<SeriesDay, f64>; 2] {
        let history = format!("first_{days}");
        std::fs::create_dir(self.0.path(&history)).unwrap();
        let entries = std::fs::read_dir(self.0.path("history")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in &names[..days] {
            let file = self.0.path("history").join(name);
            std::fs::copy(file, self.0.path(&history).join(name)).unwrap();
        }
        self.spec(&history, None);
        self.run(&[&format!("--state=state_{days}")]);
        self.members()
    }

    /// The forecasts of both members.
    fn members(&self) -> [BTreeMap<SeriesDay, f64>; 2] {
        ["out/of_trees", "out/of_theta"].map(|path| forecast(&self.0.rows(path)))
    }
}

fn forecast(rows: &RecordBatch) -> BTreeMap<SeriesDay, f64> {
    let predictions = numbers(rows, "prediction").into_iter().map(Option::unwrap);
    series_days(rows).into_iter().zip(predictions).collect()
}

/// The ensemble of a summary.
fn ensemble(summary: &Value) -> &Value {
    let forecasts = summary["forecasts"].as_array().unwrap();
    let blend = forecasts
        .iter()
        .find(|forecast| forecast["sink"] == "blend");
    &blend.unwrap()["ensemble"]
}

fn weights(summary: &Value) -> [f64; 2] {
    let members = &ensemble(summary)["members"];
    [0, 1].map(|member| members[member]["weight"].as_f64().unwrap())
}

/// The mean of the differences of each series over seven rows before a day, without sign.
fn scales(values: &BTreeMap<SeriesDay, f64>, end: i32) -> BTreeMap<(String, String), f64> {
    let mut of_series: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for ((store, item, day), value) in values {
        if *day < end {
            let key = (store.clone(), item.clone());
            of_series.entry(key).or_default().push(*value);
        }
    }
    let mut scales = BTreeMap::new();
    for (series, values) in of_series {
        let changes: Vec<f64> = values
            .windows(8)
            .map(|window| (window[7] - window[0]).abs())
            .collect();
        let scale = changes.iter().sum::<f64>() / changes.len() as f64;
        if scale > 0.0 {
            scales.insert(series, scale);
        }
    }
    scales
}

/// Sums over the forecasts of two members.
#[derive(Default)]
struct TwoMembers {
    rows: u64,
    /// Sum of the squared differences of both errors.
    differences: f64,
    /// Sum of the second error times its difference to the first one.
    products: f64,
}

impl TwoMembers {
    /// The weights of least squares of two members, in closed form.
    fn weights(&self) -> [f64; 2] {
        let first = (self.products / self.differences).clamp(0.0, 1.0);
        [first, 1.0 - first]
    }
}

#[test]
fn weights_are_those_of_least_squares_on_folds() {
    let shop = Shop::new();
    shop.spec("history", Some(NNLS));
    let summary = shop.run(&[]);
    let weights = weights(&summary);
    let blend = forecast(&shop.0.rows("out/blend"));
    let [of_trees, of_theta] = shop.members();
    assert_eq!(blend.len(), of_trees.len());
    for (key, value) in &blend {
        let expected = weights[0] * of_trees[key] + weights[1] * of_theta[key];
        assert_eq!(*value, f64::from(expected as f32), "{key:?}");
    }

    let values = values_by_day(&read(&shop.0.path("history")));
    let first_day = values.keys().map(|key| key.2).min().unwrap();
    let scales = scales(&values, first_day + FOLDS[0] as i32);
    let mut sums = TwoMembers::default();
    for days in FOLDS {
        let [of_trees, of_theta] = shop.members_after(days);
        for (key, of_trees) in &of_trees {
            let scale = scales.get(&(key.0.clone(), key.1.clone()));
            let Some((value, scale)) = values.get(key).zip(scale) else {
                continue;
            };
            let first = (of_trees - value) / scale;
            let second = (of_theta[key] - value) / scale;
            sums.rows += 1;
            sums.differences += (first - second).powi(2);
            sums.products += second * (second - first);
        }
    }
    let learned = ensemble(&summary);
    assert_eq!(learned["rows"], sums.rows);
    for (weight, expected) in weights.iter().zip(sums.weights()) {
        assert!(
            (weight - expected).abs() < 1e-6,
            "{learned}, not {expected}"
        );
    }
    // No member is better than the weighted mean on these forecasts.
    for member in learned["members"].as_array().unwrap() {
        assert!(learned["error"].as_f64() <= member["error"].as_f64());
    }
    let names = [0, 1].map(|member| &learned["members"][member]["model"]);
    assert_eq!(names, ["trees", "theta"]);
    assert_eq!(learned["folds"].as_array().unwrap().len(), 2);
}

#[test]
fn weights_have_the_same_bits_for_any_number_of_threads() {
    let shop = Shop::new();
    shop.spec("history", Some(NNLS));
    let one_thread = shop.run(&["--threads=1", "--state=one"]);
    let forecast_by_one = shop.0.rows("out/blend");
    let four_threads = shop.run(&["--threads=4", "--state=four"]);
    assert_eq!(ensemble(&one_thread), ensemble(&four_threads));
    assert_eq!(
        numbers(&forecast_by_one, "prediction"),
        numbers(&shop.0.rows("out/blend"), "prediction")
    );
    // The state knows the weights of the same models and rows.
    let again = shop.run(&["--threads=4", "--state=four"]);
    assert_eq!(again["nothing_new"], true);
    assert_eq!(ensemble(&again), ensemble(&four_threads));
}

#[test]
fn weights_are_told() {
    let shop = Shop::new();
    shop.spec("history", Some(NNLS));
    let call = shop
        .0
        .forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(0);
    for text in ["of trees + ", "of theta, learned on ", "of 2 folds"] {
        assert!(call.stdout.contains(text), "no `{text}`: {}", call.stdout);
    }
    let page = std::fs::read_to_string(shop.0.path("run.html")).unwrap();
    assert!(page.contains("Weights of blend, learned on"));
    // A backtest learns the weights of each fold with its rows.
    let backtest = ["backtest", "spec.yaml", "--folds=1", "--json"];
    let scores = shop.0.forebay(&backtest).expect(0).summary();
    let forecasts = scores["backtest"]["forecasts"].as_array().unwrap();
    let blend = forecasts
        .iter()
        .find(|forecast| forecast["sink"] == "blend");
    let model = &blend.unwrap()["forecasters"][0];
    assert_eq!(model["forecaster"], "trees with theta");
    assert!(model["overall"]["rows"].as_u64().unwrap() > 0, "{model}");
}

#[test]
fn ensembles_that_learn_nothing_are_refused() {
    let shop = Shop::new();
    for (ensemble, words) in [
        (
            "{ with: [theta], combine: nnls, weights: [1, 1] }",
            "`nnls` learns the weights",
        ),
        (
            "{ with: [theta], folds: 2 }",
            "`folds` is for weights that are learned",
        ),
        (
            "{ with: [theta], combine: median, every: 7d }",
            "`every` is for weights that are learned",
        ),
        (
            "{ with: [theta], combine: nnls, every: 3x }",
            "`3x` is not a length",
        ),
        (
            "{ with: [theta], combine: nnls, folds: 0 }",
            "one fold or more",
        ),
    ] {
        shop.spec("history", Some(ensemble));
        let call = shop.0.forebay(&["check", "spec.yaml"]);
        assert!(
            call.code == 78 && call.stderr.contains(words),
            "{ensemble}: {}",
            call.stderr
        );
    }
    shop.spec(
        "history",
        Some("{ with: [theta], combine: nnls, folds: 20 }"),
    );
    let call = shop.0.forebay(&["run", "spec.yaml"]);
    assert!(
        call.code != 0 && call.stderr.contains("20 folds reach 60 days back"),
        "{}",
        call.stderr
    );
}

/// A run that is too late to train combines the models of the run before by its weights.
#[test]
fn a_late_run_takes_the_weights_of_the_run_before() {
    let shop = Shop::new();
    let deadline = "deadline: { ladder: [last_model] }\n";
    let late = [
        "run",
        "spec.yaml",
        "--json",
        "--deadline=2020-01-01T00:00:00Z",
    ];
    shop.spec("history", Some(NNLS));
    let spec = std::fs::read_to_string(shop.0.path("spec.yaml")).unwrap();
    shop.0.write(
        "spec.yaml",
        &spec.replace("sinks:\n", &format!("{deadline}sinks:\n")),
    );
    let on_time = shop.run(&[]);
    let forecast_on_time = shop.0.rows("out/blend");
    let summary = shop.0.forebay(&late).expect(0).summary();
    assert_eq!(
        summary["ladder"]["rungs"],
        serde_json::json!(["last_model"])
    );
    assert_eq!(ensemble(&summary), ensemble(&on_time));
    assert_eq!(
        numbers(&shop.0.rows("out/blend"), "prediction"),
        numbers(&forecast_on_time, "prediction")
    );
}
