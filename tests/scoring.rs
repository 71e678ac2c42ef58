//! Scoring of new rows: the history that their windows need, the label that they lack, and the filters that they pass.

use std::path::Path;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Date32Type;
use forebay::Forebay;
use serde_json::{Map, Value, json};

use crate::support::{ProgramOutput, TestDirectory};

/// Days of the generated history.
const DAYS: usize = 40;

/// The first source, with a time and keys.
const SOURCE: &str = "version: 1\nname: scored\nsources:\n  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }\n";

/// The days of the history, each a file, and its last date.
struct History {
    files: Vec<String>,
    last: String,
}

fn history(dir: &TestDirectory) -> History {
    let files = dir.days("data");
    assert_eq!(files.len(), DAYS);
    let rows = dir.rows("data");
    let dates = rows["date"].as_primitive::<Date32Type>();
    let last = arrow::compute::max(dates).unwrap();
    let last = arrow::temporal_conversions::date32_to_datetime(last).unwrap();
    History {
        files,
        last: last.date().to_string(),
    }
}

/// Copies the last days of the history to a directory.
fn last_days(dir: &TestDirectory, history: &History, days: usize, name: &str) {
    std::fs::create_dir(dir.path(name)).unwrap();
    for file in &history.files[DAYS - days..] {
        std::fs::copy(dir.path("data").join(file), dir.path(name).join(file)).unwrap();
    }
}

fn artifact(run: &ProgramOutput) -> String {
    run.summary()["artifact_path"].as_str().unwrap().to_owned()
}

/// The rows of the last date.
fn last_rows(rows: &RecordBatch) -> RecordBatch {
    let dates = rows["date"].as_primitive::<Date32Type>();
    let last = arrow::compute::max(dates);
    let is_last: BooleanArray = dates.iter().map(|date| Some(date == last)).collect();
    filter_record_batch(rows, &is_last).unwrap()
}

fn windows_spec(windows: &str) -> String {
    format!(
        "{SOURCE}steps: {{ f: {{ from: demand, do: [{windows}] }} }}\nsinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"
    )
}

#[test]
fn rows_are_applied_with_the_history_that_windows_reach() {
    let lag = "{ lag: { columns: [qty], by: [7d] } }";
    let rolling = "{ rolling: { columns: [qty], compute: [mean], over: [14d], gap: 1d } }";
    let expanding = "{ expanding: { columns: [qty], compute: [mean], gap: 1d } }";
    let by_rows = "{ lag: { columns: [qty], by: [3], gaps: count_rows } }";
    let both = format!("{lag}, {rolling}");
    let nested =
        format!("{lag}, {{ rolling: {{ columns: [qty_lag_7d], compute: [mean], over: [14d] }} }}");
    // Windows, days that are given, whether only the last one is written, other options, the exit code.
    let cases: [(&str, usize, bool, &[&str], i32); 16] = [
        (lag, 1, false, &[], 65),
        (lag, 1, true, &[], 65),
        (lag, 7, true, &[], 65),
        (lag, 8, true, &[], 0),
        (lag, 8, false, &[], 65),
        (lag, 1, false, &["--whole-history"], 0),
        (lag, DAYS, false, &[], 0),
        (&both, 14, true, &[], 65),
        (&both, 15, true, &[], 0),
        (&nested, 20, true, &[], 65),
        (&nested, 21, true, &[], 0),
        (expanding, 39, true, &[], 65),
        (expanding, DAYS, true, &[], 0),
        (by_rows, 39, true, &[], 65),
        (by_rows, 39, true, &["--whole-history"], 0),
        ("{ log1p: { columns: [price] } }", 1, false, &[], 0),
    ];
    let mut last_windows = "";
    let mut path = String::new();
    let dir = TestDirectory::new();
    let history = history(&dir);
    for (number, (windows, days, from_last, options, code)) in cases.into_iter().enumerate() {
        if windows != last_windows {
            dir.write("spec.yaml", &windows_spec(windows));
            let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
            path = artifact(&run);
            last_windows = windows;
        }
        let given = format!("given-{number}");
        last_days(&dir, &history, days, &given);
        let source = format!("demand={given}");
        let output = format!("out-{number}");
        let mut words = vec![
            "apply", &path, "--source", &source, "--output", &output, "--json",
        ];
        if from_last {
            words.extend(["--rows-from", &history.last]);
        }
        words.extend(options);
        let applied = dir.forebay(&words);
        assert_eq!(
            applied.code, code,
            "case {number}: {}{}",
            applied.stdout, applied.stderr
        );
        if code == 65 {
            let said = &applied.stderr;
            for word in [
                "FB0217",
                "reach back",
                "begin at",
                "--rows-from",
                "--whole-history",
            ] {
                assert!(
                    said.contains(word) || applied.stdout.contains(word),
                    "{word}: {said}"
                );
            }
            assert!(!dir.path(&output).exists());
        } else if options.is_empty() {
            let rows = dir.rows(&output);
            let expected = match from_last {
                true => last_rows(&dir.rows("out")),
                false if days == DAYS => dir.rows("out"),
                false => continue,
            };
            assert_eq!(rows, expected, "case {number}");
        }
    }
}

#[test]
fn rows_whose_windows_found_nothing_are_counted() {
    let dir = TestDirectory::new();
    let history = history(&dir);
    dir.write(
        "spec.yaml",
        &windows_spec("{ lag: { columns: [price], by: [7d] } }, { impute: { columns: [price_lag_7d], with: { constant: 0.0 } } }"),
    );
    let count = |said: &ProgramOutput| said.summary()["outputs"][0]["rows_without_history"].clone();
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let input = dir.rows("data");
    let expected = {
        let mut found = std::collections::BTreeSet::new();
        let key = |row: usize, shift: i32| {
            let text = |name: &str| {
                arrow::util::display::array_value_to_string(&input[name], row).unwrap()
            };
            let date = input["date"].as_primitive::<Date32Type>().value(row) + shift;
            (text("store_id"), text("item_id"), date)
        };
        for row in 0..input.num_rows() {
            if input["price"].is_valid(row) {
                found.insert(key(row, 7));
            }
        }
        (0..input.num_rows())
            .filter(|row| !found.contains(&key(*row, 0)))
            .count()
    };
    assert!(expected > 0);
    assert_eq!(count(&run), json!(expected));
    // A repeat reports what it publishes.
    let again = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    assert_eq!(count(&again), json!(expected));
    last_days(&dir, &history, 1, "day");
    let apply = [
        "apply",
        &artifact(&run),
        "--source",
        "demand=day",
        "--output",
        "o",
        "--whole-history",
    ];
    let text = dir.forebay(&apply).expect(0).stdout;
    let rows = dir.rows("o").num_rows();
    assert!(
        text.contains(&format!("{rows} rows: a window found no earlier value")),
        "{text}"
    );
}

const FORECAST: &str = "steps:
  f:
    from: demand
    do:
      - filter: { sql: \"qty IS NOT NULL\", when: learning }
      - future_rows: { horizon: 7d, every: 1d }
      - lag: { columns: [qty], by: [7d] }
      - drop: [price, promotion, event, category, department]
label: { column: qty, horizon: 7d }
sinks:
  net: { from: f, train: { path: net, model: linear, label: qty, dense: [qty_lag_7d], missing: 0, epochs: 1 } }
  week: { from: f, predict: { model: net, path: week } }
";

#[test]
fn forecasts_need_the_history_too() {
    let dir = TestDirectory::new();
    let history = history(&dir);
    dir.write("spec.yaml", &format!("{SOURCE}{FORECAST}"));
    dir.forebay(&["run", "spec.yaml"]).expect(0);
    last_days(&dir, &history, 1, "day");
    last_days(&dir, &history, 10, "days");
    let predict = |source: &str, output: &str, options: &[&str]| {
        let source = format!("demand={source}");
        let words = ["predict", "net", "--source", &source, "--output", output];
        dir.forebay(&[&words[..], options].concat())
    };
    let refused = predict("day", "one", &[]).expect(65);
    assert!(refused.stderr.contains("FB0217"), "{}", refused.stderr);
    let wrong = predict("data", "wrong", &["--rows-from", &history.last]);
    assert_ne!(wrong.code, 0);
    predict("days", "ten", &[]).expect(0);
    predict("data", "all", &[]).expect(0);
    let prediction = |name: &str| {
        let rows = dir.rows(name);
        let mut values: Vec<String> = (0..rows.num_rows())
            .map(|row| {
                let columns = ["store_id", "item_id", "date", "prediction"];
                columns
                    .map(|name| {
                        arrow::util::display::array_value_to_string(&rows[name], row).unwrap()
                    })
                    .join(" ")
            })
            .collect();
        values.sort();
        values
    };
    assert_eq!(prediction("all"), prediction("week"));
}

#[test]
fn new_rows_lack_the_label_and_belong_to_no_part() {
    let dir = TestDirectory::new();
    let row = |id: usize| format!("{id};{}.5;{}\n", id % 7, id % 2);
    let learned: String = (0..100).map(row).collect();
    dir.write("learned.csv", &format!("id;x;y\n{learned}"));
    let new: String = (0..50).map(|id| format!("{id};{}.5\n", id % 7)).collect();
    dir.write("new.csv", &format!("id;x\n{new}"));
    dir.write(
        "spec.yaml",
        "version: 1\nname: churn\nsources:\n  c:\n    csv:\n      path: learned.csv\n      delimiter: \";\"\n      columns: { id: int64, x: float64, y: int64 }\n\
         steps:\n  clean: { from: c, do: [ { dedupe: {} } ] }\n  f:\n    from: clean\n    fit_on: train\n    do:\n      - filter: { sql: \"y IS NOT NULL\", when: learning }\n      - standardize: { columns: [x] }\n\
         split: { train: \"id % 10 < 8\", validation: \"id % 10 >= 8\" }\n\
         sinks:\n  model: { from: f, train: { model: logistic, label: y, dense: [x], epochs: 1, path: model } }\n  train: { from: f, split: train, parquet: { path: train } }\n",
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let path = artifact(&run);
    let applied = dir
        .forebay(&["apply", &path, "--source", "new.csv", "--output", "applied"])
        .expect(0);
    assert!(
        applied.stderr.contains("`c` has no `y`"),
        "{}",
        applied.stderr
    );
    let rows = dir.rows("applied");
    assert_eq!(rows.num_rows(), 50);
    assert_eq!(rows["y"].null_count(), 50);
    assert_eq!(rows["x"].null_count(), 0);
    dir.forebay(&[
        "predict", "model", "--source", "new.csv", "--output", "scores",
    ])
    .expect(0);
    let scores = dir.rows("scores");
    assert_eq!(
        (scores.num_rows(), scores["prediction"].null_count()),
        (50, 0)
    );
    // With the label, it is passed on.
    dir.forebay(&[
        "apply",
        &path,
        "--source",
        "learned.csv",
        "--output",
        "labelled",
    ])
    .expect(0);
    let labelled = dir.rows("labelled");
    assert_eq!((labelled.num_rows(), labelled["y"].null_count()), (100, 0));
    // What features are made of must be there.
    dir.write("without.csv", "id;y\n1;0\n");
    let refused = dir.forebay(&[
        "apply",
        &path,
        "--source",
        "without.csv",
        "--output",
        "never",
    ]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains('x'), "{}", refused.stderr);
}

#[test]
fn single_rows_pass_filters_for_learning_and_are_answered_by_others() {
    let dir = TestDirectory::new();
    dir.demand("data", 1000);
    dir.write(
        "spec.yaml",
        &windows_spec(
            "{ filter: { sql: \"qty IS NOT NULL\", when: learning } }, { filter: \"price > 0\" }, { log1p: { columns: [price] } }",
        ),
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let front = Forebay::new();
    let session = front.clone().session().unwrap();
    let place = dir.path(&artifact(&run));
    let artifact = load(&session, &place);
    let model = front.model(&artifact, None).unwrap();
    let row = |value: Value| -> Map<String, Value> { value.as_object().unwrap().clone() };
    let scored = model.apply_row(&row(json!({ "price": 2.0 }))).unwrap();
    assert_eq!(scored["qty"], Value::Null);
    let taken = model
        .apply_row(&row(json!({ "price": -1.0, "qty": 3 })))
        .unwrap_err();
    assert_eq!(taken.code().name, "FB0218");
    assert!(taken.message().contains("price"), "{}", taken.message());
    assert_eq!(taken.site().step.as_deref(), Some("f.filter"));
}

fn load(session: &forebay::Session, place: &Path) -> forebay::Artifact {
    let place = session.io().resolve(&place.display().to_string()).unwrap();
    forebay::Artifact::load(session.io(), &place).unwrap()
}
