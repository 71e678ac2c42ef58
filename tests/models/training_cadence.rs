//! Trainings that are not done in each run: the model of an earlier run forecasts with the newest rows.

use arrow::array::Array;
use serde_json::Value;

use crate::support::{TestDirectory, read_files};

/// A forecast of three days, from a training part that grows every night.
const SPEC: &str = r#"
version: 1
name: cadence
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: { sql: "qty IS NOT NULL", when: learning }
      - future_rows: { horizon: 3d, every: 1d, active_within: 14d }
      - lag: { columns: [qty], by: [3d, 7d] }
      - standardize: { columns: [qty_lag_3d, qty_lag_7d] }
label: { column: qty, horizon: 3d, known: [category, department, price, promotion, event] }
split: { by_time: { column: date, parts: [train, validation], ends: [last 5d] } }
sinks:
  net: { from: features, train: { path: out/net, label: qty, dense: [qty_lag_3d, qty_lag_7d], TRAIN } }
  forecast: { from: features, predict: { model: net, path: out/forecast, season: 7d, min: 0 } }
"#;

const TREES: &str = "model: gbdt, rounds: 5, leaves: 4";

const LINEAR: &str = "model: linear, missing: 0, epochs: 1";

/// Days before the first night.
const HISTORY: usize = 20;

struct Shop {
    dir: TestDirectory,
    days: Vec<String>,
}

impl Shop {
    fn new(train: &str) -> Shop {
        let dir = TestDirectory::new();
        let days = dir.days("all");
        std::fs::create_dir(dir.path("history")).unwrap();
        let shop = Shop { dir, days };
        shop.set_train(train);
        (0..HISTORY).for_each(|day| shop.show(day));
        shop
    }

    fn set_train(&self, train: &str) {
        self.dir.write("spec.yaml", &SPEC.replace("TRAIN", train));
    }

    fn show(&self, day: usize) {
        let name = &self.days[day];
        let from = self.dir.path("all").join(name);
        std::fs::copy(from, self.dir.path("history").join(name)).unwrap();
    }

    fn date(&self, day: usize) -> String {
        let stem = self.days[day].split('.').next().unwrap();
        stem[stem.len() - 10..].to_owned()
    }

    fn run(&self, args: &[&str], code: i32) -> Value {
        let run = ["run", "spec.yaml", "--json", "--signal-nothing-new"];
        let call = self.dir.forebay(&[&run, args].concat());
        call.expect(code).summary()
    }

    fn stdout(&self, args: &[&str]) -> String {
        self.dir.forebay(args).expect(0).stdout
    }
}

fn model(summary: &Value) -> &Value {
    &summary["models"][0]
}

fn is_held(summary: &Value) -> bool {
    model(summary)["refit"]["held"].as_bool().unwrap()
}

fn reason(summary: &Value) -> &str {
    model(summary)["refit"]["reason"].as_str().unwrap()
}

#[test]
fn a_model_stays_in_force_until_its_time_has_passed() {
    for train in [TREES, LINEAR] {
        let shop = Shop::new(&format!("{train}, refit: 3d"));
        let mut trained = Value::Null;
        for night in 0..7 {
            let newest = HISTORY + night;
            shop.show(newest);
            let summary = shop.run(&[], 0);
            assert_eq!(
                is_held(&summary),
                night % 3 != 0,
                "night {night} of {train}"
            );
            if !is_held(&summary) {
                trained = summary.clone();
            }
            let since = shop.date(newest - night % 3);
            assert_eq!(model(&summary)["refit"]["since"], since);
            // The forecast is of the new day, by the model in force and the statistics that it was trained with.
            let forecast = &summary["forecasts"][0];
            assert_eq!(forecast["known_until"], shop.date(newest));
            assert_eq!(forecast["model"], model(&trained)["id"]);
            assert_eq!(forecast["artifact"], trained["artifact"]);
            let by_hand = [
                "predict",
                "out/net",
                "--source=history",
                "--output=by_hand",
                "--min=0",
            ];
            shop.dir.forebay(&by_hand).expect(0);
            assert!(
                shop.dir.rows("out/forecast") == shop.dir.rows("by_hand"),
                "night {night} of {train}"
            );
            // A repeat decides the same.
            let again = shop.run(&[], 99);
            for part in ["id", "refit"] {
                assert_eq!(model(&again)[part], model(&summary)[part]);
            }
        }
        let passed = format!("3d had passed since {}", shop.date(HISTORY + 3));
        assert_eq!(reason(&trained), passed);
    }
}

#[test]
fn people_are_told_which_model_is_in_force() {
    let shop = Shop::new(&format!("{TREES}, refit: 7d"));
    shop.run(&[], 0);
    shop.show(HISTORY);
    let since = shop.date(HISTORY - 1);
    let plan = shop.stdout(&["explain", "spec.yaml"]);
    assert!(
        plan.contains(&format!("net: in force since {since}")),
        "{plan}"
    );
    let said = shop.stdout(&["run", "spec.yaml", "--report=page.html"]);
    let page = std::fs::read_to_string(shop.dir.path("page.html")).unwrap();
    let line =
        format!("stays in force, trained at {since} (no earlier run had trained it); refit: 7d");
    for (place, text) in [("summary", &said), ("page", &page)] {
        assert!(text.contains(&line), "the {place} does not say it: {text}");
    }
}

#[test]
fn a_model_that_cannot_stay_is_trained_and_the_reason_is_told() {
    let kept = format!("{TREES}, refit: 30d");
    let shop = Shop::new(TREES);
    let mut newest = HISTORY;
    let mut next = |train: &str| {
        shop.set_train(train);
        shop.show(newest);
        newest += 1;
        shop.run(&[], 0)
    };
    assert_eq!(next(TREES)["models"][0]["refit"], Value::Null);
    assert_eq!(reason(&next(&kept)), "no earlier run had trained it");
    assert!(is_held(&next(&kept)));
    // Another cadence is no other model.
    assert!(is_held(&next(&format!("{TREES}, refit: never"))));
    let changed = next(&kept.replace("rounds: 5", "rounds: 6"));
    assert_eq!(
        reason(&changed),
        "the spec of the model or of its rows had changed"
    );
    std::fs::remove_dir_all(shop.dir.path("out/net")).unwrap();
    std::fs::remove_dir_all(shop.dir.root("out/net")).unwrap();
    let gone = next(&kept.replace("rounds: 5", "rounds: 6"));
    assert_eq!(reason(&gone), "the model of the run before is gone");
    for (refit, message) in [
        ("often", "does not say when"),
        ("drift above 0.1", "measures the statistics of steps"),
    ] {
        shop.set_train(&format!("{TREES}, refit: {refit}"));
        let call = shop.dir.forebay(&["run", "spec.yaml"]);
        assert!(
            call.code == 78 && call.stderr.contains(message),
            "{}",
            call.stderr
        );
    }
}

/// A changed setting trains again, applies at once, or is said to wait for the next training.
#[test]
fn a_changed_setting_never_waits_in_silence() {
    let shop = Shop::new("");
    let spec = SPEC
        .replace("TRAIN", &format!("{TREES}, refit: 30d"))
        .replace("    fit_on: train\n", "")
        .replace(
            "qty IS NOT NULL",
            "qty IS NOT NULL AND date >= DATE '2001-01-01'",
        )
        .replace(
            "      - standardize: { columns: [qty_lag_3d, qty_lag_7d] }\n",
            "",
        );
    let mut newest = HISTORY;
    let mut next = |spec: &str| {
        shop.dir.write("spec.yaml", spec);
        shop.show(newest);
        newest += 1;
        shop.run(&[], 0)
    };
    assert_eq!(reason(&next(&spec)), "no earlier run had trained it");
    let cases = [
        ("min: 0", "min: 5", true, false),
        ("2001-01-01", "2002-01-01", true, true),
        ("min: 0", "min: 0, missing: accept", false, false),
        ("by: [3d, 7d]", "by: [3d, 7d, 14d]", false, false),
    ];
    for (setting, changed, held, is_told) in cases {
        let summary = next(&spec.replace(setting, changed));
        assert_eq!(is_held(&summary), held, "{changed}");
        let warnings = summary["warnings"].to_string();
        let is_named = warnings.contains("`net` stays in force") && warnings.contains("a filter");
        assert_eq!(is_named, is_told, "{changed}: {warnings}");
    }
}

/// An interval decides by the trainings before it. Its rows are kept for the next training, also where it trains nothing
/// itself.
#[test]
fn an_interval_goes_on_from_the_trainings_before_it() {
    let shop = Shop::new(&format!("{TREES}, refit: 3d"));
    (HISTORY..HISTORY + 6).for_each(|day| shop.show(day));
    let interval = |from: usize, to: usize| {
        let [from, to] = [shop.date(from), shop.date(to)];
        let args = ["run", "spec.yaml", "--json", "--interval", &from, &to];
        shop.dir.forebay(&args).expect(0).summary()
    };
    let first = interval(0, HISTORY);
    assert!(!is_held(&first));
    for day in HISTORY..HISTORY + 2 {
        let held = interval(day, day + 1);
        assert!(is_held(&held), "day {day}");
        assert_eq!(model(&held)["id"], model(&first)["id"]);
    }
    let next = interval(HISTORY + 2, HISTORY + 3);
    let passed = format!("3d had passed since {}", shop.date(HISTORY));
    assert_eq!(reason(&next), passed);
    // The training part has grown by three days, of which the run has one.
    let rows = |summary: &Value| model(summary)["rows"].as_u64().unwrap();
    let days_after = &shop.days[HISTORY - 5..HISTORY - 2];
    let with_label = |name: &String| {
        let rows = read_files(&[shop.dir.path("all").join(name)]);
        let labels = rows.column_by_name("qty").unwrap();
        (rows.num_rows() - labels.null_count()) as u64
    };
    let grown: u64 = days_after.iter().map(with_label).sum();
    assert_eq!(rows(&next), rows(&first) + grown);
    assert!(is_held(&interval(HISTORY + 3, HISTORY + 4)));
}

/// Each fold of a backtest is a first night.
#[test]
fn folds_of_a_backtest_train() {
    let shop = Shop::new(TREES);
    let errors = || {
        let args = ["backtest", "spec.yaml", "--folds=2", "--every=1d", "--json"];
        let summary = shop.dir.forebay(&args).expect(0).summary();
        let folds = &summary["backtest"]["forecasts"][0]["forecasters"][0]["folds"];
        [0, 1].map(|fold| folds[fold]["wmape"].as_f64().unwrap())
    };
    let each_run = errors();
    shop.set_train(&format!("{TREES}, refit: 30d"));
    for (kept, trained) in errors().into_iter().zip(each_run) {
        assert!((kept - trained).abs() < 1e-9, "{kept}, {trained}");
    }
}
