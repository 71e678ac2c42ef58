//! Scoring of new rows: the history that their windows need, the label that they lack, and the filters that they pass.

use std::path::Path;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Date32Type, Float64Type};
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

const MEAN: &str = "  w: { from: demand, do: [ { aggregate: { by: [item_id], compute: { m: { mean: price } } } } ] }\n";
const WEEKS: &str = "  w: { from: demand, do: [ { aggregate: { by: [item_id], every: 1w, time: date, compute: { m: { mean: price } } } } ] }\n";
const MOVED: &str = "  w: { from: demand, do: [ { derive: { day: \"CAST(date + INTERVAL '7' DAY AS DATE)\", m: price } }, { select: [store_id, item_id, day, m] } ] }\n";

/// Rows of groups, joins and queries depend on earlier rows as those of windows do.
#[test]
fn rows_of_groups_and_joins_are_applied_with_the_history_that_they_read() {
    let by_item = "join: { with: w, on: [item_id], columns: [m]";
    let by_day = "join: { with: w, on: [store_id, item_id, date], right_on: [store_id, item_id, day], columns: [m]";
    let by_week = "derive: { week: \"CAST(date_trunc('week', date) AS DATE)\" } }, { join: { with: w, on: [item_id, week], right_on: [item_id, date], columns: [m]";
    let joined = |before: &str, join: &str, how: &str| -> String {
        format!("{before}  f: {{ from: demand, do: [ {{ {join}{how} }} }} ] }}\n")
    };
    let query = |text: &str| -> String { format!("  f: {{ sql: \"{text}\" }}\n") };
    let table = joined(MEAN, by_item, "");
    let shuffled = joined(MEAN, by_item, ", strategy: shuffle");
    let paired = joined(MEAN, by_item, ", cardinality: many_to_many");
    let weeks = joined(WEEKS, by_week, ", strategy: shuffle");
    let moved = joined(MOVED, by_day, ", strategy: shuffle");
    let total = "  f: { from: demand, do: [ { aggregate: { by: [item_id], compute: { m: { mean: price } } } } ] }\n".to_owned();
    let days = "  f: { from: demand, do: [ { aggregate: { by: [item_id], every: 1d, time: date, compute: { m: { mean: price } } } } ] }\n".to_owned();
    let grouped = query("SELECT item_id, avg(price) AS m FROM demand GROUP BY item_id");
    let by_date = query("SELECT item_id, date, avg(price) AS m FROM demand GROUP BY item_id, date");
    let inner = query(
        "SELECT item_id, store_id, date, price - (SELECT avg(price) FROM demand) AS m FROM demand",
    );
    let ranged = query(
        "SELECT a.item_id, a.store_id, a.date, b.price AS m FROM demand a JOIN demand b ON a.item_id = b.item_id AND a.store_id = b.store_id AND b.date < a.date",
    );
    let cases: [(&str, usize, bool, &[&str], i32); 22] = [
        (&table, 1, false, &[], 0),
        (&shuffled, 1, false, &[], 65),
        (&shuffled, 39, true, &[], 65),
        (&shuffled, 39, true, &["--whole-history"], 0),
        (&shuffled, DAYS, true, &[], 0),
        (&paired, 1, false, &[], 65),
        (&paired, DAYS, true, &[], 0),
        (&weeks, 1, false, &[], 65),
        (&weeks, 14, true, &[], 0),
        (&moved, 1, false, &[], 65),
        (&moved, 7, true, &[], 65),
        (&moved, 8, true, &[], 0),
        (&total, 39, false, &[], 65),
        (&total, 39, false, &["--whole-history"], 0),
        (&total, DAYS, false, &[], 0),
        (&days, 1, false, &[], 0),
        (&grouped, 39, false, &[], 65),
        (&grouped, DAYS, false, &[], 0),
        (&by_date, 1, false, &[], 0),
        (&inner, 39, true, &[], 65),
        (&inner, DAYS, true, &[], 0),
        (&ranged, 39, false, &[], 65),
    ];
    let dir = TestDirectory::new();
    let history = history(&dir);
    let mut last_steps = "";
    let mut path = String::new();
    for (number, (steps, days, from_last, options, code)) in cases.into_iter().enumerate() {
        if steps != last_steps {
            dir.write(
                "spec.yaml",
                &format!("{SOURCE}steps:\n{steps}sinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"),
            );
            let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
            path = artifact(&run);
            last_steps = steps;
        }
        let given = format!("given-{number}");
        last_days(&dir, &history, days, &given);
        let source = format!("demand={given}");
        let output = format!("out-{number}");
        let mut words = vec!["apply", &path, "--source", &source, "--output", &output];
        if from_last {
            words.extend(["--rows-from", &history.last]);
        }
        words.extend(options);
        let applied = dir.forebay(&words);
        let context = format!("case {number}: {}{}", applied.stdout, applied.stderr);
        assert_eq!(applied.code, code, "{context}");
        if code == 65 {
            assert!(applied.stderr.contains("FB0217"), "{context}");
            assert!(applied.stderr.contains("reach back"), "{context}");
            assert!(!dir.path(&output).exists());
        } else if options.is_empty() {
            let rows = dir.rows(&output);
            let whole = dir.rows("out");
            let expected = if days == DAYS && !from_last {
                whole
            } else {
                last_rows(&whole)
            };
            assert_eq!(rows, expected, "{context}");
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
    // Columns that features are made of must be there.
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

/// A sample is to learn from: rows that are scored stay, and those that are only history are sampled as in the run.
#[test]
fn rows_that_are_scored_pass_samples() {
    let dir = TestDirectory::new();
    let keys = ["a", "b", "c", "d"];
    let mut rows = String::from("k,day,y\n");
    for day in 1..=3 {
        for key in keys {
            rows.push_str(&format!("{key},2024-01-0{day},{day}\n"));
        }
    }
    dir.write("h.csv", &rows);
    dir.write(
        "spec.yaml",
        "version: 1\nname: text\nsources: { h: { csv: { path: h.csv, columns: { k: string, day: date, y: int64 } }, \
         time: day, keys: [k] } }\n\
         steps: { f: { from: h, do: [ { sample: { share: 0.5, by: [k], weight: w } } ] } }\n\
         sinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    // The places of a and d are below 0.5.
    let learned = dir.rows("out");
    assert_eq!(learned.num_rows(), 6);
    let weights = |rows: &RecordBatch| rows["w"].as_primitive::<Float64Type>().values().to_vec();
    assert_eq!(weights(&learned), [2.0; 6]);
    let path = artifact(&run);
    dir.forebay(&["apply", &path, "--source", "h.csv", "--output", "all"])
        .expect(0);
    let all = dir.rows("all");
    assert_eq!(weights(&all), [1.0; 12]);
    dir.forebay(&[
        "apply",
        &path,
        "--source",
        "h.csv",
        "--output",
        "last",
        "--rows-from",
        "2024-01-03",
    ])
    .expect(0);
    assert_eq!(weights(&dir.rows("last")), [1.0; 4]);
}

/// New rows that are computed from the serving state are counted from the source on: those that a filter takes, and those
/// whose windows find no row before.
#[test]
fn rows_computed_from_the_serving_state_are_counted() {
    let dir = TestDirectory::new();
    let mut text = String::from("item,day,y\n");
    for day in 1..=20 {
        text += &format!("a,2024-01-{day:02},{day}\nb,2024-01-{day:02},{day}\n");
    }
    dir.write("h.csv", &text);
    dir.write(
        "new.csv",
        "item,day,y\na,2024-01-21,1\nb,2024-01-21,-1\nc,2024-01-21,2\n",
    );
    dir.write(
        "spec.yaml",
        "version: 1\nname: n\nsources: { h: { csv: { path: h.csv, columns: { item: string, day: date, y: int64 } }, time: day, keys: [item] } }\n\
         steps: { f: { from: h, do: [ { filter: \"y >= 0\" }, { lag: { columns: [y], by: [1d] } } ] } }\n\
         serving: { from: f }\nsinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let path = artifact(&run);
    let source = ["--source", "new.csv", "--output", "applied", "--json"];
    let applied = dir.forebay(&[&["apply", &path][..], &source[..]].concat());
    let summary = applied.expect(0).summary();
    assert!(
        summary["warnings"].to_string().contains("serving state"),
        "{summary}"
    );
    let output = &summary["outputs"][0];
    for (name, count) in [
        ("rows_in", 3),
        ("rows_removed", 1),
        ("rows_out", 2),
        ("rows_without_history", 1),
    ] {
        assert_eq!(output[name], count, "{name}: {summary}");
    }
    let change = &output["changes"][0];
    assert_eq!(change["step"], "f.filter");
    assert_eq!(change["count"], 1);
}

/// A fault of new rows that are computed from the serving state names their file, and the row in it.
#[test]
fn faults_of_rows_computed_from_the_serving_state_name_the_file() {
    let dir = TestDirectory::new();
    let mut text = String::from("item,day,y\n");
    for day in 1..=20 {
        text += &format!("a,2024-01-{day:02},{day}\nb,2024-01-{day:02},{day}\n");
    }
    dir.write("h.csv", &text);
    dir.write(
        "spec.yaml",
        "version: 1\nname: n\nsources: { h: { csv: { path: h.csv, columns: { item: string, day: date, y: int64 } }, time: day, keys: [item] } }\n\
         steps: { f: { from: h, do: [ { lag: { columns: [y], by: [1d] } } ] } }\n\
         serving: { from: f }\nsinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let path = artifact(&run);
    // Windows keep no such number; in order of time, and out of it.
    for days in [[21, 21, 22], [22, 21, 21]] {
        let [first, second, third] = days;
        dir.write(
            "new.csv",
            &format!(
                "item,day,y\na,2024-01-{first},1\nb,2024-01-{second},2\nc,2024-01-{third},{}\n",
                i64::MIN
            ),
        );
        let source = ["--source", "new.csv", "--output", "applied", "--json"];
        let applied = dir.forebay(&[&["apply", &path][..], &source[..]].concat());
        let fault = applied.expect(65).summary()["fault"].clone();
        let file = fault["file"].as_str().unwrap_or_default();
        assert!(file.ends_with("new.csv"), "{days:?}: {fault}");
        assert_eq!(fault["rows"], json!([2]), "{days:?}: {fault}");
    }
}

/// A model with windows needs the serving state of its step. The fault names what declares one, and the command that reads
/// the rows before in another way.
#[test]
fn a_model_with_windows_is_not_served_without_a_state_and_predicts_from_it() {
    let dir = TestDirectory::new();
    let mut text = String::from("item,day,y\n");
    for day in 1..=20 {
        text += &format!("a,2024-01-{day:02},{day}\nb,2024-01-{day:02},{day}\n");
    }
    dir.write("h.csv", &text);
    dir.write("new.csv", "item,day,y\na,2024-01-21,1\nb,2024-01-21,2\n");
    dir.write(
        "spec.yaml",
        "version: 1\nname: n\nsources: { h: { csv: { path: h.csv, columns: { item: string, day: date, y: int64 } }, time: day, keys: [item] } }\n\
         steps: { f: { from: h, do: [ { lag: { columns: [y], by: [1d] } } ] } }\n\
         serving: { from: f }\n\
         sinks: { net: { from: f, train: { path: net, model: linear, label: y, dense: [y_lag_1d], missing: 0, epochs: 1 } } }\n",
    );
    dir.forebay(&["run", "spec.yaml"]).expect(0);
    let refused = dir.forebay(&["serve", "net", "--listen=127.0.0.1:0", "--state=other"]);
    let refused = refused.expect(78);
    for words in [
        "`f.lag` needs the rows before",
        "serving: { from: f }",
        "`forebay predict`",
        "--state",
    ] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    let predict = ["predict", "net", "--source", "new.csv", "--output", "day"];
    dir.forebay(&predict).expect(0);
    assert_eq!(dir.rows("day").num_rows(), 2);
}

/// Files of text do not record when their rows begin: the run looks, where steps look back.
#[test]
fn rows_that_begin_with_those_of_the_fit_need_no_more_history() {
    let dir = TestDirectory::new();
    let day = |day: i32| format!("a,2024-01-{day:02},{day}\n");
    let rows: String = (3..=20).map(day).collect();
    let header = "item,day,y\n";
    dir.write("h.csv", &format!("{header}{rows}"));
    let later_rows: String = (4..=20).map(day).collect();
    dir.write("later.csv", &format!("{header}{later_rows}"));
    let new: String = (3..=22).map(day).collect();
    dir.write("new.csv", &format!("{header}{new}"));
    let lines: Vec<String> = (3..=20)
        .map(|day| format!("{{\"item\":\"a\",\"day\":\"2024-01-{day:02}\",\"y\":{day}}}\n"))
        .collect();
    dir.write("h.json", &lines.concat());
    for source in [
        "csv: { path: h.csv }",
        "json: { path: h.json, columns: { item: string, day: date, y: int64 } }",
    ] {
        dir.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: text\nsources: {{ h: {{ {source}, time: day, keys: [item] }} }}\n\
                 steps: {{ f: {{ from: h, do: [ {{ expanding: {{ columns: [y], compute: [mean] }} }} ] }} }}\n\
                 sinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"
            ),
        );
        let path = artifact(&dir.forebay(&["run", "spec.yaml", "--json"]).expect(0));
        if source.starts_with("json") {
            let origin = std::fs::read_to_string(dir.path(&path).join("origin.json")).unwrap();
            assert!(origin.contains("2024-01-03"), "{origin}");
            continue;
        }
        let apply = |source: &str, output: &str, more: &[&str]| {
            let words = ["apply", &path, "--source", source, "--output", output];
            dir.forebay(&[&words[..], more].concat())
        };
        let refused = apply("later.csv", "late", &[]).expect(65).stderr;
        for text in ["FB0217", "the rows of the fit begin at 2024-01-03"] {
            assert!(refused.contains(text), "{refused}");
        }
        apply("h.csv", "again", &[]).expect(0);
        assert_eq!(dir.rows("again"), dir.rows("out"));
        apply("new.csv", "new", &["--rows-from", "2024-01-21"]).expect(0);
        let means = dir.rows("new")["y_expanding_mean"]
            .as_primitive::<Float64Type>()
            .clone();
        assert_eq!(means.values().to_vec(), [12.0, 12.5]);
    }
}

/// Files of new rows without types, or with others than the fit had, mean what they meant in the fit.
#[test]
fn new_rows_are_read_with_the_types_of_the_fit() {
    let dir = TestDirectory::new();
    let fractions: String = (0..20).map(|row| format!("{row}.5,c{row}\n")).collect();
    let wholes: String = (0..20).map(|row| format!("{row},{row}\n")).collect();
    dir.write("fractions.csv", &format!("x,code\n{fractions}"));
    dir.write("wholes.csv", &format!("x,code\n{wholes}"));
    dir.write("new.csv", "x,code\n3,1.50\n5,2.50\n");
    dir.write(
        "new.jsonl",
        "{\"x\":3,\"code\":\"1.50\"}\n{\"x\":5,\"code\":\"2.50\"}\n",
    );
    dir.write("half.csv", "x,code\n3.5,1\n");
    let fit = |name: &str, source: &str| -> String {
        let text = format!(
            "version: 1\nname: {name}\nsources: {{ a: {{ {source} }} }}\nsteps: {{ f: {{ from: a, do: [ {{ derive: {{ half: \"x / 2\", text: \"CAST(code AS VARCHAR)\" }} }} ] }} }}\n\
             sinks: {{ t: {{ from: f, parquet: {{ path: out_{name} }} }} }}\n"
        );
        dir.write(&format!("{name}.yaml"), &text);
        artifact(
            &dir.forebay(&["run", &format!("{name}.yaml"), "--json"])
                .expect(0),
        )
    };
    let halves = |output: &str| -> (Vec<f64>, Vec<String>) {
        let rows = dir.rows(output);
        let texts = rows["text"].clone();
        let texts = arrow::compute::cast(&texts, &arrow::datatypes::DataType::Utf8).unwrap();
        (
            rows["half"].as_primitive::<Float64Type>().values().to_vec(),
            texts
                .as_string::<i32>()
                .iter()
                .map(|text| text.unwrap().to_owned())
                .collect(),
        )
    };
    let expected = (vec![1.5, 2.5], vec!["1.50".to_owned(), "2.50".to_owned()]);
    let csv = fit("csv", "csv: { path: fractions.csv }");
    dir.forebay(&["apply", &csv, "--source", "new.csv", "--output", "of_csv"])
        .expect(0);
    assert_eq!(halves("of_csv"), expected);
    let workers = [
        "apply",
        &csv,
        "--source",
        "new.csv",
        "--output",
        "of_workers",
        "--local-workers",
        "1",
    ];
    dir.forebay(&workers).expect(0);
    assert_eq!(halves("of_workers"), expected);
    dir.write(
        "first.jsonl",
        "{\"x\":1.5,\"code\":\"a\"}\n{\"x\":2.5,\"code\":\"b\"}\n",
    );
    let json = fit("json", "json: { path: first.jsonl }");
    dir.forebay(&[
        "apply",
        &json,
        "--source",
        "new.jsonl",
        "--output",
        "of_json",
    ])
    .expect(0);
    assert_eq!(halves("of_json"), expected);
    // Files with types: those of `wholes` are whole numbers.
    fit("whole", "csv: { path: wholes.csv }");
    fit("fraction", "csv: { path: fractions.csv }");
    let parquet = fit(
        "parquet",
        "parquet: { path: out_fraction, columns: [x, code] }",
    );
    let applied = dir
        .forebay(&[
            "apply",
            &parquet,
            "--source",
            "out_whole",
            "--output",
            "of_parquet",
        ])
        .expect(0);
    let first: Vec<f64> = (0..20).map(|row| f64::from(row) / 2.0).collect();
    assert_eq!(halves("of_parquet").0, first, "{}", applied.stderr);
    // A value that the type of the fit does not hold is refused.
    let whole = fit("wholes", "csv: { path: wholes.csv }");
    let refused = dir
        .forebay(&["apply", &whole, "--source", "half.csv", "--output", "never"])
        .expect(65);
    assert!(refused.stderr.contains("FB0206"), "{}", refused.stderr);
    let typed = fit("typed", "parquet: { path: out_whole, columns: [x, code] }");
    let refused = dir
        .forebay(&[
            "apply",
            &typed,
            "--source",
            "out_fraction",
            "--output",
            "never",
        ])
        .expect(78);
    for word in ["FB0108", "`x`", "0.5", "does not hold"] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
}

const CHURN: &str =
    "c: { csv: { path: learned.csv, columns: { id: int64, x: float64, y: int64, g: string } } }";

/// A hundred rows to learn from, and rows to score: a number, and whether they have the label.
fn churn(dir: &TestDirectory) {
    let learned: String = (0..100)
        .map(|id| format!("{id},{}.5,{},{}\n", id % 7, id % 2, ["a", "b"][id % 2]))
        .collect();
    dir.write("learned.csv", &format!("id,x,y,g\n{learned}"));
}

/// Rules about values judge the rows that are scored; those about the label, and about all rows of a run, do not.
#[test]
fn rules_judge_the_rows_that_are_scored() {
    let dir = TestDirectory::new();
    churn(&dir);
    dir.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: churn\nsources: {{ {CHURN} }}\nsteps:\n  f:\n    from: c\n    do:\n      - expect:\n          - {{ not_null: [y] }}\n          \
             - {{ range: {{ x: [0, 10] }} }}\n          - {{ unique: [id] }}\n          - {{ rows: {{ min: 50 }} }}\n          \
             - {{ range: {{ x: [1, 1000] }}, policy: quarantine, at_most: 50% }}\n      - derive: {{ z: \"x * 2\" }}\n\
             sinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n  model: {{ from: f, train: {{ model: gbdt, label: y, dense: [x, z], categorical: [], rounds: 2, path: model }} }}\n"
        ),
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let path = artifact(&run);
    dir.write("good.csv", "id,x,g\n1,2.5,a\n2,0.5,b\n3,4.5,a\n");
    dir.write("labelled.csv", "id,x,y,g\n1,2.5,,a\n2,3.5,,b\n");
    dir.write("far.csv", "id,x,g\n1,2.5,a\n2,99.5,b\n");
    dir.write("twice.csv", "id,x,g\n1,2.5,a\n1,3.5,b\n");
    let cases = [
        ("good.csv", 0, "not judged: `not_null: y` (f.expect)", 2),
        ("labelled.csv", 0, "not judged: `not_null: y` (f.expect)", 2),
        ("far.csv", 65, "range: x", 0),
        ("twice.csv", 65, "unique: id", 0),
    ];
    for (number, (source, code, words, rows)) in cases.into_iter().enumerate() {
        for command in ["apply", "predict"] {
            let from = if command == "apply" {
                path.as_str()
            } else {
                "model"
            };
            let output = format!("{command}-{number}");
            let scored = dir.forebay(&[command, from, "--source", source, "--output", &output]);
            let said = format!("{source}: {}{}", scored.stdout, scored.stderr);
            assert_eq!(scored.code, code, "{said}");
            assert!(said.contains(words), "{said}");
            if code == 0 {
                assert_eq!(dir.rows(&output).num_rows(), rows, "{said}");
            } else {
                assert!(said.contains("FB0216"), "{said}");
                assert!(!dir.path(&output).exists());
            }
        }
    }
}

/// Rules about the label, of each kind, take out rows to learn from, and no rows that are scored.
#[test]
fn rows_that_are_scored_pass_quarantines_about_the_label() {
    let rules = [
        "{ not_null: [y], policy: quarantine }",
        "{ not_null: [x, y], policy: quarantine }",
        "{ sql: \"y IS NOT NULL AND y >= 0\", policy: quarantine }",
        "{ range: { x: [0, 10] }, policy: quarantine }, { not_null: [y], policy: quarantine }",
    ];
    for (number, rule) in rules.into_iter().enumerate() {
        let dir = TestDirectory::new();
        let learned: String = (0..100)
            .map(|id| {
                let label = if id % 10 == 0 {
                    String::new()
                } else {
                    (id % 2).to_string()
                };
                format!("{id},{}.5,{label},g\n", id % 7)
            })
            .collect();
        dir.write("learned.csv", &format!("id,x,y,g\n{learned}"));
        dir.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: churn\nsources: {{ {CHURN} }}\nsteps:\n  f:\n    from: c\n    do:\n      \
                 - expect: [ {{ not_null: [id] }} ]\n      \
                 - expect: [ {rule} ]\n      - derive: {{ left: \"CASE WHEN y > 0 THEN 1.0 ELSE 0.0 END\", z: \"x * 2\" }}\n\
                 sinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n  \
                 model: {{ from: f, train: {{ model: gbdt, label: left, dense: [x, z], categorical: [], rounds: 2, path: model }} }}\n"
            ),
        );
        let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
        assert_eq!(dir.rows("out").num_rows(), 90, "{rule}");
        let path = artifact(&run);
        // Two rows without a label, and one with a feature that the second and the fourth rule take out.
        dir.write("null.csv", "id,x,y,g\n1,2.5,,a\n2,3.5,,b\n");
        dir.write("none.csv", "id,x,g\n1,2.5,a\n2,3.5,b\n");
        let feature = ["1.5", "", "1.5", "99.5"][number];
        dir.write("bad.csv", &format!("id,x,g\n1,2.5,a\n2,{feature},b\n"));
        let bad_rows = [2, 1, 2, 1][number];
        for (source, rows) in [("null.csv", 2), ("none.csv", 2), ("bad.csv", bad_rows)] {
            for (command, from) in [("apply", path.as_str()), ("predict", "model")] {
                let output = format!("{command}-{source}.out");
                let scored = dir
                    .forebay(&[command, from, "--source", source, "--output", &output])
                    .expect(0);
                assert!(
                    scored.stderr.contains("take out no row that is written"),
                    "{rule}, {source}: {}",
                    scored.stderr
                );
                assert_eq!(dir.rows(&output).num_rows(), rows, "{rule}, {source}");
            }
        }
    }
}

/// Rows that are only history are taken out as in the run, and rows of the future are not.
#[test]
fn quarantines_about_the_label_take_out_history_alone() {
    let dir = TestDirectory::new();
    // The label of the fourth of five days is missing.
    let rows: String = (1..=5)
        .map(|day| {
            let label = if day < 4 {
                day.to_string()
            } else {
                String::new()
            };
            format!("a,2024-01-0{day},{label},{day}0\n")
        })
        .collect();
    dir.write("all.csv", &format!("item,day,y,price\n{rows}"));
    let known_rows = rows.lines().take(4).collect::<Vec<_>>().join("\n");
    dir.write("h.csv", &format!("item,day,y,price\n{known_rows}\n"));
    let spec = |steps: &str, sinks: &str| {
        dir.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: text\nsources: {{ h: {{ csv: {{ path: h.csv, \
                 columns: {{ item: string, day: date, y: float64, price: float64 }} }}, time: day, keys: [item] }} }}\n\
                 steps: {{ f: {{ from: h, do: [ {steps} ] }} }}\n\
                 label: {{ column: y, horizon: 1d, known: [item, day, price, price_lag_1] }}\n\
                 sinks: {{ {sinks} }}\n"
            ),
        );
    };
    let rule = "{ expect: [ { not_null: [y], policy: quarantine } ] }";
    let lag = "{ lag: { columns: [price], by: [1], gaps: count_rows } }";
    spec(
        &format!("{rule}, {lag}"),
        "t: { from: f, parquet: { path: out } }",
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let path = artifact(&run);
    let words = ["apply", &path, "--source", "all.csv", "--output", "new"];
    dir.forebay(
        &[
            &words[..],
            &["--rows-from", "2024-01-05", "--whole-history"],
        ]
        .concat(),
    )
    .expect(0);
    let new = dir.rows("new");
    assert_eq!(new.num_rows(), 1);
    let lagged = new["price_lag_1"].as_primitive::<Float64Type>();
    // The day before was taken out, as in the run.
    assert_eq!(lagged.value(0), 30.0);
    spec(
        &format!("{{ future_rows: {{ horizon: 2d, every: 1d, carry: [price] }} }}, {rule}"),
        "t: { from: f, parquet: { path: known } }, week: { from: f, split: future, parquet: { path: week } }",
    );
    dir.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(dir.rows("known").num_rows(), 3);
    assert_eq!(dir.rows("week").num_rows(), 2);
}

/// New rows need no column of a computed label, and none that only decides about the part of the split.
#[test]
fn new_rows_lack_what_labels_and_parts_are_made_of() {
    let dir = TestDirectory::new();
    churn(&dir);
    dir.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: churn\nsources: {{ {CHURN} }}\nsteps:\n  f:\n    from: c\n    fit_on: train\n    do:\n      - filter: {{ sql: \"y IS NOT NULL\", when: learning }}\n      \
             - derive: {{ left: \"CASE WHEN y > 0 THEN 1.0 ELSE 0.0 END\" }}\n      - standardize: {{ columns: [x] }}\nsplit: {{ train: \"g = 'a'\", validation: \"g = 'b'\" }}\n\
             sinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n  model: {{ from: f, train: {{ model: gbdt, label: left, dense: [x], categorical: [], rounds: 2, path: model }} }}\n"
        ),
    );
    let run = dir.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let path = artifact(&run);
    dir.write("new.csv", "id,x\n1,2.5\n2,3.5\n");
    for (command, from) in [("apply", path.as_str()), ("predict", "model")] {
        let scored = dir
            .forebay(&[command, from, "--source", "new.csv", "--output", command])
            .expect(0);
        assert!(
            scored.stderr.contains("`c` has no `y`, `g`"),
            "{}",
            scored.stderr
        );
        assert_eq!(dir.rows(command).num_rows(), 2);
    }
    // Columns that features are made of must be there.
    dir.write("without.csv", "id,y,g\n1,0,a\n");
    let refused = dir.forebay(&[
        "predict",
        "model",
        "--source",
        "without.csv",
        "--output",
        "never",
    ]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("`x`"), "{}", refused.stderr);
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
    // So do batches whose rows need one answer each.
    let rows = dir.rows("data");
    let has_price = arrow::compute::is_not_null(&rows["price"]).unwrap();
    let rows = filter_record_batch(&rows, &has_price).unwrap().slice(0, 3);
    assert_eq!(model.apply_aligned(&rows).unwrap().num_rows(), 3);
    let mut columns = rows.columns().to_vec();
    let price = rows.schema().index_of("price").unwrap();
    columns[price] = arrow::compute::kernels::numeric::neg(&columns[price]).unwrap();
    let negative = RecordBatch::try_new(rows.schema(), columns).unwrap();
    let taken = model.apply_aligned(&negative).unwrap_err();
    assert_eq!(taken.code().name, "FB0218");
    for words in ["price", "of `f.filter` takes 3 of 3 rows"] {
        assert!(taken.message().contains(words), "{}", taken.message());
    }
}

fn load(session: &forebay::Session, place: &Path) -> forebay::Artifact {
    let place = session.io().resolve(&place.display().to_string()).unwrap();
    forebay::Artifact::load(session.io(), &place).unwrap()
}

/// New files and rows are read by the grammar by which the types of the fit were found: no text loses its zeros or its
/// offset on the way to a type that another file had.
#[test]
fn new_values_are_read_as_strictly_as_types_were_found() {
    let dir = TestDirectory::new();
    dir.write(
        "fit.csv",
        "code,x,t\n1,1.5,2024-01-01T00:00:00\n2,2.5,2024-01-02T00:00:00\n",
    );
    dir.write(
        "fit.jsonl",
        "{\"code\":1,\"x\":1.5}\n{\"code\":2,\"x\":2.5}\n",
    );
    let fit = |name: &str, source: &str| -> String {
        let text = format!(
            "version: 1\nname: {name}\nsources: {{ a: {{ {source} }} }}\n\
             steps: {{ f: {{ from: a, do: [ {{ derive: {{ y: \"x + code\" }} }} ] }} }}\n\
             sinks: {{ t: {{ from: f, parquet: {{ path: out_{name} }} }} }}\n"
        );
        dir.write(&format!("{name}.yaml"), &text);
        artifact(
            &dir.forebay(&["run", &format!("{name}.yaml"), "--json"])
                .expect(0),
        )
    };
    let csv = fit("csv", "csv: { path: fit.csv }");
    let declared = fit(
        "declared",
        "csv: { path: fit.csv, columns: { code: int64, x: float64 } }",
    );
    let json = fit("json", "json: { path: fit.jsonl }");
    let cases = [
        (&csv, "code,x,t\n3,1,2024-01-01\n", 0),
        (&csv, "code,x,t\n00742,1.5,2024-01-01\n", 65),
        (&csv, "code,x,t\n3,007,2024-01-01\n", 65),
        (&csv, "code,x,t\n3,1.5,2024-01-01T00:00:00+02:00\n", 65),
        (&declared, "code,x\n00742,1.5\n", 0),
        (&json, "{\"code\":3.0,\"x\":1}\n", 0),
        (&json, "{\"code\":\"00742\",\"x\":1.5}\n", 65),
        (&json, "{\"code\":3,\"x\":\"1.5\"}\n", 65),
    ];
    for (number, (path, rows, code)) in cases.into_iter().enumerate() {
        let extension = if rows.starts_with('{') {
            "jsonl"
        } else {
            "csv"
        };
        let name = format!("new-{number}.{extension}");
        dir.write(&name, rows);
        let output = format!("of-{number}");
        let applied = dir.forebay(&["apply", path, "--source", &name, "--output", &output]);
        assert_eq!(applied.code, code, "{rows}: {}", applied.stderr);
    }
    let front = Forebay::new();
    let session = front.clone().session().unwrap();
    let row = |value: Value| -> Map<String, Value> { value.as_object().unwrap().clone() };
    for (path, code, is_taken) in [
        (&csv, json!(3), true),
        (&csv, json!(3.0), true),
        (&csv, json!("3"), false),
        (&csv, json!("00742"), false),
        (&csv, json!(true), false),
        (&csv, json!(3.5), false),
        (&declared, json!("00742"), true),
        (&declared, json!("x"), false),
        (&json, json!("3"), false),
    ] {
        let model = front.model(&load(&session, &dir.path(path)), None).unwrap();
        let answer = model.apply_row(&row(json!({ "code": code, "x": 1.5 })));
        assert_eq!(answer.is_ok(), is_taken, "{code}: {answer:?}");
        if let Err(fault) = answer {
            assert!(fault.message().contains("`code`"), "{fault}");
        }
    }
}
