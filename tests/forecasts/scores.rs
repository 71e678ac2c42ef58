//! Published forecasts beside the values that came since.

use serde_json::{Value, json};

use crate::support::TestDirectory;

/// A forecast of three days.
const SPEC: &str = r#"
version: 1
name: scored
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - filter: { sql: "qty IS NOT NULL", when: learning }
      - future_rows: { horizon: 3d, every: 1d, carry: [category], active_within: 14d }
      - lag: { columns: [qty], by: [3d, 7d] }
label: { column: qty, horizon: 3d, known: [category, department, price, promotion, event] }
sinks:
  trees: { from: features, train: { model: gbdt, rounds: 5, leaves: 4, quantiles: [0.1, 0.9], dense: [qty_lag_3d, qty_lag_7d] } }
  forecast: { from: features, predict: { model: trees, path: out/forecast, season: 7d, columns: [category], MORE } }
"#;

/// Days that the forecast is made of.
const KNOWN: usize = 20;

struct Shop {
    dir: TestDirectory,
    days: Vec<String>,
}

impl Shop {
    fn new(more: &str) -> Shop {
        let dir = TestDirectory::new();
        let days = dir.days("all");
        std::fs::create_dir(dir.path("history")).unwrap();
        let shop = Shop { dir, days };
        shop.set_more(more);
        shop.show(0..KNOWN);
        shop
    }

    fn set_more(&self, more: &str) {
        self.dir.write("spec.yaml", &SPEC.replace("MORE", more));
    }

    fn show(&self, days: std::ops::Range<usize>) {
        for name in &self.days[days] {
            let from = self.dir.path("all").join(name);
            std::fs::copy(from, self.dir.path("history").join(name)).unwrap();
        }
    }

    fn date(&self, day: usize) -> String {
        let stem = self.days[day].split('.').next().unwrap();
        stem[stem.len() - 10..].to_owned()
    }

    fn json(&self, args: &[&str], code: i32) -> Value {
        let call = self.dir.forebay(&[args, &["--json"]].concat());
        call.expect(code).summary()
    }
}

/// Fails unless both have the same structure and texts, and numbers that agree to a billionth.
#[track_caller]
fn assert_close(actual: &Value, expected: &Value, path: &str) {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            let names =
                |of: &serde_json::Map<String, Value>| of.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(actual), names(expected), "{path}");
            for (name, value) in actual {
                assert_close(value, &expected[name], &format!("{path}.{name}"));
            }
        }
        (Value::Array(actual), Value::Array(expected)) => {
            assert_eq!(actual.len(), expected.len(), "{path}");
            for (at, value) in actual.iter().enumerate() {
                assert_close(value, &expected[at], &format!("{path}[{at}]"));
            }
        }
        (Value::Number(actual), Value::Number(expected)) => {
            let [actual, expected] = [actual, expected].map(|number| number.as_f64().unwrap());
            let difference = (actual - expected).abs();
            assert!(
                difference <= 1e-9 * expected.abs().max(1.0),
                "{path}: {actual}, {expected}"
            );
        }
        _ => assert_eq!(actual, expected, "{path}"),
    }
}

/// A fold of a backtest makes the forecast that was published on its day, and scores it.
#[test]
fn a_score_is_that_of_a_backtest_of_the_day() {
    for format in ["parquet", "csv"] {
        let shop = Shop::new(&format!("format: {format}"));
        shop.json(&["run", "spec.yaml"], 0);
        shop.show(KNOWN..KNOWN + 3);
        let score = &shop.json(&["score", "spec.yaml", "--by=category"], 0)["score"];
        let args = ["backtest", "spec.yaml", "--folds=1", "--by=category"];
        let backtest = &shop.json(&args, 0)["backtest"];
        assert_eq!(score["folds"][0]["known_before"], shop.date(KNOWN));
        assert_close(&score["forecasts"], &backtest["forecasts"], format);
        assert!(score["forecasts"][0]["forecasters"][0]["overall"]["skill"].is_number());
    }
}

#[test]
fn values_that_have_not_come_are_missing() {
    let shop = Shop::new("");
    let run = shop.json(&["run", "spec.yaml"], 0);
    let series = run["forecasts"][0]["series"].as_u64().unwrap();
    let none = shop.dir.forebay(&["score", "spec.yaml"]).expect(0);
    assert!(
        none.stderr.contains("no value has come yet"),
        "{}",
        none.stderr
    );
    shop.show(KNOWN..KNOWN + 1);
    let score = &shop.json(&["score", "spec.yaml"], 0)["score"];
    let model = &score["forecasts"][0]["forecasters"][0];
    let [rows, missing] =
        [&model["overall"]["rows"], &model["missing"]].map(|count| count.as_u64().unwrap());
    assert!(rows > 0 && rows <= series, "{rows} of {series}");
    assert_eq!(rows + missing, 3 * series);
    // The forecast of that day, kept while the next run replaces it.
    let copied = |args: &[&str]| shop.json(&[&["score", "spec.yaml"], args].concat(), 0);
    std::fs::create_dir(shop.dir.path("kept")).unwrap();
    for file in std::fs::read_dir(shop.dir.path("out/forecast")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), shop.dir.path("kept").join(file.file_name())).unwrap();
    }
    shop.json(&["run", "spec.yaml"], 0);
    for path in ["--forecast=kept", "--forecast=forecast=kept"] {
        let kept = &copied(&[path])["score"];
        assert_close(&kept["forecasts"], &score["forecasts"], path);
    }
    assert_eq!(
        copied(&[])["score"]["folds"][0]["known_before"],
        shop.date(KNOWN + 1)
    );
}

#[test]
fn people_read_scores_and_rules() {
    let shop = Shop::new("expect: { skill: -100, wmape: 100 }");
    shop.json(&["run", "spec.yaml"], 0);
    shop.show(KNOWN..KNOWN + 3);
    let call = shop
        .dir
        .forebay(&["score", "spec.yaml", "--report=page.html"])
        .expect(0);
    for part in [
        "seasonal naive by",
        "wMAPE",
        "expected skill of -100 at least:",
        "holds",
        "seasonal_naive",
    ] {
        assert!(
            call.stdout.contains(part),
            "no `{part}` in:\n{}",
            call.stdout
        );
    }
    let page = std::fs::read_to_string(shop.dir.path("page.html")).unwrap();
    assert!(page.contains("Score of qty") && page.contains(&shop.date(KNOWN)));
    shop.set_more("expect: { skill: 0.99, wmape: 0 }");
    for args in [
        &["score", "spec.yaml"][..],
        &["backtest", "spec.yaml", "--folds=1"],
    ] {
        let call = shop.dir.forebay(args);
        for part in [
            "FB0216",
            "the skill of `forecast` is",
            "0.99 is the least",
            "0 is the greatest",
        ] {
            assert!(
                call.code == 65 && call.stderr.contains(part),
                "{args:?}: {}",
                call.stderr
            );
        }
        let summary = shop.json(args, 65);
        let rules = &summary[args[0]]["forecasts"][0]["rules"];
        assert_eq!(rules[0]["holds"], false, "{summary}");
    }
}

#[test]
fn what_cannot_be_scored_says_why() {
    let shop = Shop::new("");
    for (more, args, code, message) in [
        (
            "",
            &[][..],
            65,
            "has to publish a forecast before it is scored",
        ),
        ("", &["--by=price"], 78, "which `forecast` does not write"),
        ("expect: { skills: 1 }", &[], 78, "skills"),
    ] {
        shop.set_more(more);
        let call = shop.dir.forebay(&[&["score", "spec.yaml"], args].concat());
        assert!(
            call.code == code && call.stderr.contains(message),
            "{args:?}: {} {}",
            call.code,
            call.stderr
        );
    }
    let unseasoned = SPEC
        .replace("season: 7d, ", "")
        .replace("MORE", "expect: { skill: 0 }");
    shop.dir.write("spec.yaml", &unseasoned);
    let call = shop.dir.forebay(&["score", "spec.yaml"]);
    assert!(
        call.code == 78 && call.stderr.contains("add its `season`"),
        "{}",
        call.stderr
    );
}

/// Six days of two series, of which the last value is the naive forecast, and the two days after them.
const SMALL: &str = r#"
version: 1
name: small
sources:
  history: { csv: { path: history.csv }, time: day, keys: [item] }
steps:
  features:
    from: history
    do:
      - future_rows: { horizon: 2d, every: 1d }
      - lag: { columns: [y], by: [2d] }
label: { column: y, horizon: 2d }
sinks:
  trees: { from: features, train: { model: gbdt, rounds: 2, quantiles: [0.1, 0.5, 0.9], dense: [y_lag_2d] } }
  forecast: { from: features, predict: { model: trees, path: out/forecast, format: csv, season: 1d } }
"#;

/// Forecasts of the two days with their quantiles: of the values 4, 6 and 6, 8.
const FORECAST: &str = "item,day,step,prediction,prediction_q10,prediction_q50,prediction_q90\n\
                        a,2024-01-07,1,5,4,5,6\n\
                        a,2024-01-08,2,5,4,5,6\n\
                        b,2024-01-07,1,6,5,6,7\n\
                        b,2024-01-08,2,8,7,8,7.5\n";

/// All measures by hand. Values of `a` are those of utilsforecast: MASE 0.625, RMSSE 0.597614, sMAPE 0.101010, MAPE 0.208333,
/// CRPS 0.093333. The last value of `b` lies above its interval.
#[test]
fn measures_are_those_of_their_definitions() {
    let dir = TestDirectory::new();
    dir.write("spec.yaml", SMALL);
    let mut history = "item,day,y\n".to_owned();
    for (item, values) in [
        ("a", [1, 3, 2, 4, 3, 5, 4, 6]),
        ("b", [2, 2, 4, 4, 6, 6, 6, 8]),
    ] {
        for (day, value) in values.into_iter().enumerate() {
            history += &format!("{item},2024-01-{:02},{value}\n", day + 1);
        }
    }
    dir.write("history.csv", &history);
    std::fs::create_dir(dir.path("made")).unwrap();
    dir.write("made/forecast.csv", FORECAST);
    let args = [
        "score",
        "spec.yaml",
        "--forecast=made",
        "--by=item",
        "--json",
    ];
    let summary = dir.forebay(&args).expect(0).summary();
    let scored = &summary["score"]["forecasts"][0];
    let model = &scored["forecasters"][0];
    let overall = json!({
        "rows": 4,
        "wmape": 2.0 / 24.0,
        "rmse": 0.5_f64.sqrt(),
        "mae": 0.5,
        "bias": 0.0,
        // Errors of 1, -1, 0 and 0.
        "mean_error": 0.0,
        "error_deviation": 0.5_f64.sqrt(),
        "smape": (1.0 / 9.0 + 1.0 / 11.0) / 4.0,
        "mape": (1.0 / 4.0 + 1.0 / 6.0) / 4.0,
        // The scales are the mean absolute changes: 1.6 and 0.8.
        "mase": 2.0 / 1.6 / 4.0,
        "rmsse": (2.0_f64 / 2.8 / 4.0).sqrt(),
        "crps": 2.0 * (2.15 / 3.0) / 24.0,
        "skill": 0.5,
        "quantiles": [
            { "quantile": 0.1, "pinball": 0.4 / 4.0, "calibration": 0.25 },
            { "quantile": 0.5, "pinball": 1.0 / 4.0, "calibration": 0.75 },
            { "quantile": 0.9, "pinball": 0.75 / 4.0, "calibration": 0.75 },
        ],
        // Three widths of 2, one of 0.5 with a miss of 0.5 times ten.
        "intervals": [{ "level": 0.8, "coverage": 0.75, "winkler": (6.0 + 5.5) / 4.0 }],
    });
    assert_close(&model["overall"], &overall, "overall");
    assert_close(&model["folds"][0], &overall, "fold");
    // On the first day both values lie inside, on the second one of two.
    let judgement = "trees: intervals of 0.8 are too narrow: 0.7500 of 4 values lie inside, and \
                     0 of 2 steps are within 0.03; chance alone moves the share of so few values \
                     by 0.40";
    let coverage = json!([{
        "level": 0.8,
        "coverage": 0.75,
        "holds": false,
        "summary": judgement,
        "steps": [
            { "step": 1, "rows": 2, "coverage": 1.0, "holds": false },
            { "step": 2, "rows": 2, "coverage": 0.5, "holds": false },
        ],
    }]);
    assert_close(&scored["coverage"], &coverage, "coverage");
    let measure = |score: &Value, name: &str| score[name].as_f64().unwrap();
    // The naive forecasts are 5 and 6: errors 1, 0 on the first day, and 1, 2 on the second.
    for (step, skill) in [(0, 0.0), (1, 1.0 - 1.0 / 3.0)] {
        let measured = measure(&model["steps"][step], "skill");
        assert!((measured - skill).abs() < 1e-9, "step {step}: {measured}");
    }
    for (group, skill, mase, rmsse, smape, mape, crps) in [
        (
            0,
            0.0,
            0.625,
            0.597_614_305,
            0.101_010_101,
            0.208_333_333,
            0.093_333_333,
        ),
        (1, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0 * (0.75 / 2.0 / 3.0) / 7.0),
    ] {
        let score = &model["groups"][group];
        let expected = [
            ("skill", skill),
            ("mase", mase),
            ("rmsse", rmsse),
            ("smape", smape),
            ("mape", mape),
            ("crps", crps),
        ];
        for (name, value) in expected {
            let measured = measure(score, name);
            assert!(
                (measured - value).abs() < 1e-8,
                "{name} of group {group}: {measured}"
            );
        }
    }
    let sentence = "forecast: better than seasonal naive by 50 %";
    let text = dir.forebay(&args[..4]).expect(0).stdout;
    let first = text.lines().find(|line| line.contains("seasonal naive"));
    assert!(
        first.is_some_and(|line| line.ends_with("better than seasonal naive by 50 %")),
        "no `{sentence}` in:\n{text}"
    );
    assert!(text.contains(judgement), "no `{judgement}` in:\n{text}");
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let head = ["step", "coverage", "of", "0.8", "values"];
    assert!(lines.any(|line| line == head), "no {head:?} in:\n{text}");
    for expected in [
        ["all", "0.7500", "4"],
        ["1", "1.0000", "2"],
        ["2", "0.5000", "2"],
    ] {
        assert_eq!(lines.next().unwrap(), expected, "{text}");
    }
    let page_args = [&args[..4], &["--report=page.html"]].concat();
    dir.forebay(&page_args).expect(0);
    let page = std::fs::read_to_string(dir.path("page.html")).unwrap();
    for part in [
        judgement,
        "Coverage of forecast by step of the horizon",
        "Sums of forecast over all series, by fold",
        "<h4>Known before 2024-01-07</h4>",
        "<h4>item b</h4>",
        "distribution of 4 errors",
        "Mean error of forecast by step of the horizon",
        "Bias of forecast by group",
    ] {
        assert!(page.contains(part), "no `{part}` in the page");
    }
}

/// Values beside forecasts, by hand, of the small forecast.
#[test]
fn values_stand_beside_forecasts_by_step_series_and_size_of_error() {
    let dir = TestDirectory::new();
    dir.write("spec.yaml", SMALL);
    let mut history = "item,day,y\n".to_owned();
    for (item, values) in [
        ("a", [1, 3, 2, 4, 3, 5, 4, 6]),
        ("b", [2, 2, 4, 4, 6, 6, 6, 8]),
    ] {
        for (day, value) in values.into_iter().enumerate() {
            history += &format!("{item},2024-01-{:02},{value}\n", day + 1);
        }
    }
    dir.write("history.csv", &history);
    std::fs::create_dir(dir.path("made")).unwrap();
    dir.write("made/forecast.csv", FORECAST);
    let args = ["score", "spec.yaml", "--forecast=made", "--json"];
    let summary = dir.forebay(&args).expect(0).summary();
    let scored = &summary["score"]["forecasts"][0];
    // The naive forecasts are 5 and 6 on both days.
    for (forecaster, predicted) in [(0, [11.0, 13.0]), (1, [11.0, 11.0])] {
        let totals = json!([[
            { "step": 1, "rows": 2, "actual": 10.0, "predicted": predicted[0] },
            { "step": 2, "rows": 2, "actual": 14.0, "predicted": predicted[1] },
        ]]);
        let path = format!("totals of {forecaster}");
        assert_close(&scored["forecasters"][forecaster]["totals"], &totals, &path);
    }
    // The series with the higher prediction first.
    let point = |step: u64, actual: f64, predicted: f64| {
        json!({
            "fold": 0,
            "step": step,
            "time": format!("2024-01-{:02}", step + 6),
            "actual": actual,
            "predicted": predicted,
        })
    };
    let series = json!([
        {
            "keys": [{ "name": "item", "value": "b" }],
            "points": [point(1, 6.0, 6.0), point(2, 8.0, 8.0)],
        },
        {
            "keys": [{ "name": "item", "value": "a" }],
            "points": [point(1, 4.0, 5.0), point(2, 6.0, 5.0)],
        },
    ]);
    assert_close(&scored["series"], &series, "series");
    // Errors of -1, 0 twice, and 1. Three times their RMSE is 2.12, so that bins are 0.11 wide.
    let ends: Vec<f64> = (-20..=20).map(|end| f64::from(end) * 0.11).collect();
    let mut counts = [0; 40];
    counts[10] = 1;
    counts[20] = 2;
    counts[29] = 1;
    let residuals = json!({ "ends": ends, "folds": [counts.to_vec()] });
    assert_close(&scored["residuals"], &residuals, "residuals");
}

/// A series that never changes has no scale: its rows have no scaled errors, and the report counts them.
#[test]
fn rows_of_series_without_a_scale_are_counted() {
    let dir = TestDirectory::new();
    dir.write("spec.yaml", SMALL);
    let mut history = "item,day,y\n".to_owned();
    for (item, values) in [
        ("a", [1, 3, 2, 4, 3, 5, 4, 6]),
        ("b", [0, 0, 0, 0, 0, 0, 0, 8]),
    ] {
        for (day, value) in values.into_iter().enumerate() {
            history += &format!("{item},2024-01-{:02},{value}\n", day + 1);
        }
    }
    dir.write("history.csv", &history);
    std::fs::create_dir(dir.path("made")).unwrap();
    dir.write("made/forecast.csv", FORECAST);
    let args = ["score", "spec.yaml", "--forecast=made", "--json"];
    let summary = dir.forebay(&args).expect(0).summary();
    let overall = &summary["score"]["forecasts"][0]["forecasters"][0]["overall"];
    assert_eq!(overall["rows"], json!(4), "{overall}");
    assert_eq!(overall["unscaled_rows"], json!(2), "{overall}");
    // The errors of `a` alone.
    let mase = overall["mase"].as_f64().unwrap();
    assert!((mase - 0.625).abs() < 1e-9, "{mase}");
    let text = dir.forebay(&args[..3]).expect(0).stdout;
    let words = "MASE and RMSSE leave out 2 rows of series that do not change";
    assert!(text.contains(words), "{text}");
}
