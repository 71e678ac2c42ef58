//! Forecasts: one run that learns, trains and predicts; what is published is whole, or is not published.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, UInt32Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, ready_made};

/// Days of demand that come one by one.
struct Shop {
    shop: TestDirectory,
    days: Vec<String>,
}

impl Shop {
    fn new(nights: usize) -> Shop {
        let shop = TestDirectory::new();
        let days = shop.days("all");
        std::fs::create_dir(shop.path("history")).unwrap();
        let shop = Shop { shop, days };
        shop.show(0..nights);
        shop
    }

    fn show(&self, days: std::ops::Range<usize>) {
        for name in &self.days[days] {
            std::fs::copy(
                self.shop.path("all").join(name),
                self.shop.path("history").join(name),
            )
            .unwrap();
        }
    }

    fn date(&self, day: usize) -> String {
        let stem = self.days[day].split('.').next().unwrap();
        stem[stem.len() - 10..].to_owned()
    }

    fn rows(&self, dir: &str) -> RecordBatch {
        self.shop.rows(dir)
    }
}

fn texts(rows: &RecordBatch, name: &str) -> Vec<String> {
    let column = rows
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no `{name}` in {}", rows.schema()));
    let options = FormatOptions::default().with_null("null");
    let text = ArrayFormatter::try_new(column, &options).unwrap();
    (0..rows.num_rows())
        .map(|row| text.value(row).to_string())
        .collect()
}

fn series(rows: &RecordBatch) -> BTreeSet<(String, String)> {
    texts(rows, "store_id")
        .into_iter()
        .zip(texts(rows, "item_id"))
        .collect()
}

fn names(rows: &RecordBatch) -> Vec<String> {
    rows.schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}

/// The interval of the comment in the spec: a run as of an earlier day, with nothing before it.
#[test]
fn the_ready_made_night_begins_with_an_interval() {
    let night = Shop::new(40);
    let spec = std::fs::read_to_string(ready_made("nightly_forecast.yaml")).unwrap();
    night.shop.write("spec.yaml", &spec);
    let summary = night
        .shop
        .forebay(&[
            "run",
            "spec.yaml",
            "--json",
            "--param=history=history",
            "--param=out=out/as_of",
            "--param=epochs=1",
            "--param=validation=8d",
            "--interval",
            &night.date(0),
            &night.date(36),
        ])
        .expect(0)
        .summary();
    // The rows of the days after it are not known.
    let forecast = &summary["forecasts"][0];
    let rows = night.rows("out/as_of/forecast");
    assert_eq!(forecast["rows"], rows.num_rows());
    let days: BTreeSet<String> = texts(&rows, "date").into_iter().collect();
    assert_eq!(days.first(), Some(&night.date(36)));
    assert_eq!(days.len(), 7);
    assert!(summary["models"][0]["rows"].as_u64().unwrap() > 0);
}

#[test]
fn the_ready_made_night_publishes_a_whole_forecast() {
    let night = Shop::new(36);
    let spec = std::fs::read_to_string(ready_made("nightly_forecast.yaml")).unwrap();
    night.shop.write("spec.yaml", &spec);
    let run = |more: &[&str]| {
        let params = [
            "run",
            "spec.yaml",
            "--json",
            "--param=history=history",
            "--param=out=out",
            "--param=epochs=1",
            "--param=validation=8d",
        ];
        night.shop.forebay(&[&params[..], more].concat())
    };
    let summary = run(&[]).expect(0).summary();
    let told = &summary["forecasts"][0];
    let rows = night.rows("out/forecast");
    // Keys are those of the source, and no series is missing: not those that are younger than the windows either.
    let known = night.rows("out/table");
    assert!(known.num_rows() > 0);
    let mut all = BTreeSet::new();
    for name in &night.days[..36] {
        all.extend(series(&crate::support::read_files(&[night
            .shop
            .path("all")
            .join(name)])));
    }
    assert_eq!(series(&rows), all);
    assert_eq!(rows.num_rows(), 7 * all.len());
    assert_eq!(
        (&told["series"], &told["steps"], &told["rows"]),
        (&all.len().into(), &7.into(), &rows.num_rows().into())
    );
    let expected = [
        "store_id",
        "item_id",
        "date",
        "category",
        "step",
        "prediction",
        "known_until",
        "model",
        "artifact",
    ];
    assert_eq!(names(&rows), expected);
    let predicted = rows
        .column_by_name("prediction")
        .unwrap()
        .as_primitive::<Float32Type>();
    assert!(
        predicted.null_count() == 0
            && predicted
                .values()
                .iter()
                .all(|value| value.is_finite() && *value >= 0.0)
    );
    assert!(predicted.values().iter().any(|value| *value > 0.0));
    let steps = rows
        .column_by_name("step")
        .unwrap()
        .as_primitive::<UInt32Type>();
    assert_eq!(steps.values().iter().collect::<BTreeSet<_>>().len(), 7);
    assert!(
        texts(&rows, "known_until")
            .iter()
            .all(|known| *known == night.date(35))
    );
    assert!(
        texts(&rows, "model")
            .iter()
            .all(|model| *model == summary["models"][0]["id"].as_str().unwrap())
    );
    assert!(
        texts(&rows, "artifact")
            .iter()
            .all(|artifact| *artifact == summary["artifact"].as_str().unwrap())
    );
    assert_eq!(texts(&rows, "date").first(), Some(&night.date(36)));

    // By hand, with what the model's directory holds, it is the same forecast.
    let by_hand = [
        "predict",
        "out/net",
        "--source",
        "history",
        "--output",
        "by_hand",
        "--min",
        "0",
        "--columns",
        "category",
    ];
    let fails = night
        .shop
        .forebay(&[&by_hand[..], &["--format", "csv"]].concat());
    fails.expect(0);
    let text = std::fs::read_dir(night.shop.path("by_hand"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = std::fs::read_to_string(text).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap(), expected.join(","));
    let columns: Vec<Vec<String>> = expected.iter().map(|name| texts(&rows, name)).collect();
    let row = |at: usize| {
        columns
            .iter()
            .map(|column| column[at].clone())
            .collect::<Vec<_>>()
            .join(",")
    };
    for (at, line) in lines.enumerate() {
        assert_eq!(line, row(at));
    }

    // Again: nothing new. A day later: another forecast, of which each row knows the day.
    assert_eq!(
        run(&["--signal-nothing-new"]).expect(99).summary()["forecasts"][0]["rows"],
        told["rows"]
    );
    night.show(36..37);
    // By hand as of the day before: the new day is not seen.
    let interval = ["--interval", &night.date(29), &night.date(36)];
    night
        .shop
        .forebay(&[&by_hand[..4], &["--output=as_of"], &by_hand[6..], &interval].concat())
        .expect(0);
    assert!(night.rows("as_of") == rows);
    let later = run(&[]).expect(0).summary();
    // Statistics and the model stay for a week, and of the history the new day alone is read.
    assert_eq!(later["refits"][0]["held"], true, "{later}");
    let model = &later["models"][0];
    assert_eq!(model["refit"]["held"], true, "{later}");
    assert_eq!(model["id"], summary["models"][0]["id"]);
    let table = later["passes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pass| pass["work"] == "write")
        .unwrap();
    let new_day = crate::support::read_files(&[night.shop.path("all").join(&night.days[36])])
        .num_rows() as u64;
    let read = table["rows_in"].as_u64().unwrap() - table["rows_kept"].as_u64().unwrap();
    assert!(
        (new_day..5 * new_day).contains(&read),
        "{read} rows were read of {new_day}"
    );
    assert!(
        texts(&night.rows("out/forecast"), "known_until")
            .iter()
            .all(|known| *known == night.date(36))
    );
    // From nothing it is the same on workers.
    run(&["--state=alone"]).expect(0);
    let alone = night.rows("out/forecast");
    run(&["--local-workers=2", "--state=other"]).expect(0);
    assert!(night.rows("out/forecast") == alone);
}

/// A spec whose forecast is as wrong as its parts.
fn spec(shop: &Shop, steps: &str, label: &str, train: &str, predict: &str) {
    let until = shop.date(25);
    let text = format!(
        r#"
version: 1
name: wrong
sources:
  demand: {{ parquet: {{ path: history }}, time: date, keys: [store_id, item_id] }}
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - future_rows: {{ horizon: 3d, every: 1d, carry: [category] }}
      - lag: {{ columns: [qty], by: [3d, 7d] }}
{steps}
split: {{ train: "date < DATE '{until}'" }}
{label}
sinks:
  net: {{ from: features, train: {{ path: out/net, label: qty, dense: [qty_lag_3d, qty_lag_7d], missing: 0, {train} }} }}
  forecast: {{ from: features, predict: {{ model: net, path: out/forecast, {predict} }} }}
"#
    );
    shop.shop.write("spec.yaml", &text);
}

const LABEL: &str =
    "label: { column: qty, horizon: 3d, known: [category, department, price, promotion, event] }";

#[test]
fn a_forecast_that_is_not_whole_is_not_published() {
    let shop = Shop::new(30);
    let run = || shop.shop.forebay(&["run", "spec.yaml", "--json"]);
    let fault = |call: ProgramOutput, code: i32, words: &[&str]| {
        for word in words {
            assert!(
                call.stderr.contains(word),
                "`{word}` is missing:\n{}",
                call.stderr
            );
        }
        call.expect(code).summary()
    };
    spec(
        &shop,
        "",
        LABEL,
        "epochs: 1",
        "min: 0, format: csv, columns: [category]",
    );
    run().expect(0);
    let visible = || {
        ["forecast", "net"].map(|sink| {
            let manifest = std::fs::read(
                shop.shop
                    .root(&format!("out/{sink}"))
                    .join("_manifest.json"),
            )
            .unwrap();
            (
                manifest,
                crate::support::content(&shop.shop.path("out").join(sink)),
            )
        })
    };
    let published = visible();
    let unchanged = || assert!(visible() == published, "something was published");

    // Before anything is done.
    let beyond = LABEL.replace("horizon: 3d", "horizon: 2d");
    spec(&shop, "", &beyond, "epochs: 1", "");
    fault(run(), 78, &["beyond the horizon of 2d", "future_rows"]);
    spec(&shop, "", "", "epochs: 1", "");
    fault(run(), 78, &["how far ahead", "label"]);
    for (predict, words) in [
        ("columns: [qty_lag_9d]", "qty_lag_9d"),
        ("min: 3, max: 2", "less than"),
        ("name: date", "would be called `date`"),
        ("where: tomorrow", "future"),
        ("colour: red", "colour"),
    ] {
        spec(&shop, "", LABEL, "epochs: 1", predict);
        fault(run(), 78, &[words]);
        unchanged();
    }
    let text = std::fs::read_to_string(shop.shop.path("spec.yaml"))
        .unwrap()
        .replace("model: net", "model: nett");
    shop.shop
        .write("spec.yaml", &text.replace("colour: red", ""));
    fault(run(), 78, &["nett", "net"]);

    // What the files tell.
    spec(
        &shop,
        "      - filter: \"qty_lag_7d > 0\"",
        LABEL,
        "epochs: 1",
        "",
    );
    fault(
        run(),
        65,
        &[
            "the forecast has",
            "series with 3 steps",
            "readers see the forecast before",
        ],
    );
    unchanged();
    spec(
        &shop,
        "      - derive: { qty_lag_7d: \"qty_lag_7d / 0.0\" }",
        LABEL,
        "non_finite: skip, epochs: 1",
        "",
    );
    fault(
        run(),
        65,
        &["the prediction of store_id", "is null", "impute"],
    );
    unchanged();
    spec(&shop, "", LABEL, "epochs: 2", "max: 0.5");
    let summary = run().expect(0).summary();
    assert!(
        summary["forecasts"][0]["clipped"].as_u64().unwrap() > 0,
        "{}",
        Value::to_string(&summary["forecasts"])
    );
}

#[test]
fn a_late_night_publishes_a_forecast_all_the_same() {
    let night = Shop::new(30);
    let past = "--deadline=2020-01-01T00:00:00Z";
    let ladder = |rungs: &str| {
        let deadline = format!("deadline: {{ ladder: [{rungs}] }}\n{LABEL}");
        spec(&night, "", &deadline, "epochs: 1", "min: 0, season: 2d");
    };
    let run = |more: &[&str]| {
        night
            .shop
            .forebay(&[&["run", "spec.yaml", "--json"], more].concat())
    };
    let rung = |summary: &Value| {
        summary["ladder"]["rungs"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };

    // The first night of all has neither a model nor an artifact.
    ladder("last_model, naive");
    let summary = run(&[past, "--signal-ladder"]).expect(98).summary();
    assert_eq!(rung(&summary), "naive");
    assert_eq!(summary["ladder"]["skipped"], serde_json::json!(["net"]));
    let naive = night.rows("out/forecast");
    assert!(
        texts(&naive, "model")
            .iter()
            .all(|model| model == "seasonal naive of qty by 2d")
    );
    // Each value is that of the last known season, or of the one before that where there is none.
    let mut known = std::collections::BTreeMap::new();
    for name in &night.days[..30] {
        let rows = crate::support::read_files(&[night.shop.path("all").join(name)]);
        let keys = texts(&rows, "store_id")
            .into_iter()
            .zip(texts(&rows, "item_id"))
            .zip(texts(&rows, "date"));
        known.extend(
            keys.zip(texts(&rows, "qty"))
                .filter(|(_, qty)| qty != "null"),
        );
    }
    let columns = ["store_id", "item_id", "step", "prediction"].map(|name| texts(&naive, name));
    let mut compared = 0;
    for row in 0..naive.num_rows() {
        let [store, item, step, predicted] = columns.each_ref().map(|column| column[row].clone());
        // Steps 1 and 3 look at the day before the last, step 2 at the last.
        let back = if step == "2" { 29 } else { 28 };
        if let Some(qty) = known.get(&((store, item), night.date(back))) {
            assert_eq!(
                predicted.parse::<f64>().unwrap(),
                qty.parse::<f64>().unwrap(),
                "step {step}"
            );
            compared += 1;
        }
    }
    assert!(
        compared > naive.num_rows() / 2,
        "{compared} of {}",
        naive.num_rows()
    );

    // In time: the model. Late, a day later: the model of the night before, on what is known now.
    let full = run(&[]).expect(0).summary();
    assert_eq!(full.get("ladder"), None);
    night.show(30..31);
    ladder("last_model");
    let summary = run(&[past, "--signal-ladder", "--local-workers=2"])
        .expect(98)
        .summary();
    assert_eq!(rung(&summary), "last_model");
    let forecast = &summary["forecasts"][0];
    assert_eq!(
        (&forecast["model"], &forecast["artifact"]),
        (&full["models"][0]["id"], &full["artifact"])
    );
    assert_eq!(forecast["known_until"].as_str(), Some(&*night.date(30)));
    let rows = night.rows("out/forecast");
    assert!(
        texts(&rows, "known_until")
            .iter()
            .all(|known| *known == night.date(30))
    );
    // It is what the model predicts by hand.
    let args = [
        "predict", "out/net", "--source", "history", "--output", "by_hand", "--min", "0",
    ];
    night.shop.forebay(&args).expect(0);
    assert!(night.rows("by_hand") == rows);

    // Where it cannot be taken, it is refused before the run begins.
    let wrong = |deadline: &str, predict: &str, words: &str| {
        spec(
            &night,
            "",
            &format!("{deadline}\n{LABEL}"),
            "epochs: 1",
            predict,
        );
        let call = run(&[]);
        assert!(call.stderr.contains(words), "{}", call.stderr);
        call.expect(78);
    };
    wrong("deadline: { ladder: [naive] }", "min: 0", "season");
    wrong(
        "deadline: { ladder: [naive] }",
        "season: '7'",
        "counts the other",
    );
    wrong(
        "deadline: { ladder: [naive, last_model] }",
        "season: 7d",
        "mildest",
    );
}

/// Kills that are tried.
const KILLS: usize = 7;

#[test]
fn a_killed_night_shows_the_forecast_before_or_the_new_one() {
    let night = Shop::new(29);
    spec(&night, "", LABEL, "epochs: 1", "min: 0");
    let job = |more: &[&str]| {
        night.shop.command(
            &[
                &["run", "spec.yaml", "--json", "--signal-nothing-new"],
                more,
            ]
            .concat(),
        )
    };
    let call = |more: &[&str]| -> ProgramOutput { job(more).watched().into() };
    call(&[]).expect(0);
    let before = night.rows("out/forecast");
    night.show(29..30);
    let keep = |from: &str, to: &str| {
        for dir in ["out", ".forebay"] {
            let _ = std::fs::remove_dir_all(night.shop.path(to).join(dir));
            std::fs::create_dir_all(night.shop.path(to)).unwrap();
            let copied = std::process::Command::new("cp")
                .args([
                    "-a".as_ref(),
                    night.shop.path(from).join(dir).as_os_str(),
                    night.shop.path(to).as_os_str(),
                ])
                .status();
            assert!(copied.unwrap().success());
        }
    };
    keep("", "kept");
    let log: ProgramOutput = job(&[])
        .env("FOREBAY_KILL_LOG", night.shop.path("steps"))
        .watched()
        .into();
    log.expect(0);
    let after = night.rows("out/forecast");
    assert!(after != before);
    let steps = std::fs::read_to_string(night.shop.path("steps"))
        .unwrap()
        .lines()
        .count();
    let mut kills = 0;
    // The last steps publish: they are tried one by one.
    let late = (1..=3).map(|back| steps - back);
    for moment in (0..KILLS - 3)
        .map(|kill| kill * steps / (KILLS - 3))
        .chain(late)
    {
        keep("kept", "");
        let killed = job(&[])
            .env("FOREBAY_KILL_AT", moment.to_string())
            .watched();
        // How often temporary files grow differs from run to run: a late step may not come.
        assert!(
            killed.status.signal() == Some(9) || killed.status.success(),
            "step {moment} of {steps}"
        );
        kills += usize::from(killed.status.signal() == Some(9));
        let shown = night.rows("out/forecast");
        assert!(
            shown == before || shown == after,
            "step {moment} of {steps}: something between shows"
        );
        let again = call(&[]);
        // What becomes visible is new, whichever run computed it.
        let codes = if shown == before {
            vec![0]
        } else {
            vec![0, 99]
        };
        assert!(
            codes.contains(&again.code),
            "step {moment} of {steps}: {} {}",
            again.code,
            again.stderr
        );
        assert!(
            night.rows("out/forecast") == after,
            "step {moment} of {steps}: another forecast"
        );
    }
    assert!(kills >= KILLS - 3, "{kills} kills");
    // What the next night needs is in use.
    night
        .shop
        .forebay(&["cache", "gc", "--older-than", "0s"])
        .expect(0);
    night.shop.forebay(&["cache", "verify"]).expect(0);
    call(&[]).expect(99);
}

/// The files that readers see of an output, with their bytes.
fn visible_files(shop: &TestDirectory, out: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(shop.path(out)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            files.push((name, std::fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

/// As numbers, the keys of both series would be one.
#[test]
fn forecasts_in_formats_of_text_keep_keys_apart() {
    let shop = TestDirectory::new();
    let rows: String = (0..60)
        .flat_map(|day| {
            let date = jiff::civil::date(2024, 1, 1)
                .checked_add(jiff::Span::new().days(day))
                .unwrap();
            ["1.1", "1.10"].map(|item| format!("{date},{item},{}\n", day % 7))
        })
        .collect();
    shop.write("rows.csv", &format!("date,item,qty\n{rows}"));
    let mut first_lines = Vec::new();
    for format in ["csv", "json"] {
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: keys\nsources: {{ s: {{ csv: {{ path: rows.csv, columns: {{ date: date, item: string, qty: float64 }} }}, \
                 time: date, keys: [item] }} }}\nsteps:\n  features:\n    from: s\n    do:\n      - future_rows: {{ horizon: 7d, every: 1d }}\n      \
                 - lag: {{ columns: [qty], by: [7d] }}\n      - select: [date, item, qty, qty_lag_7d]\nlabel: {{ column: qty, horizon: 7d }}\nsinks:\n  \
                 trees: {{ from: features, train: {{ path: out/trees, model: gbdt, label: qty, rounds: 3 }} }}\n  \
                 forecast: {{ from: features, predict: {{ model: trees, where: future, path: out/{format}, format: {format} }} }}\n"
            ),
        );
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        let files = visible_files(&shop, &format!("out/{format}"));
        let text = String::from_utf8(files[0].1.clone()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("item,"));
        assert_eq!(lines.clone().count(), 14, "{text}");
        first_lines.extend(lines.take(1).map(str::to_owned));
    }
    assert!(first_lines[0].starts_with("1.1,2024-03-01,1,"));
    assert!(
        first_lines[1].starts_with(r#"{"item":"1.1","date":"2024-03-01","step":1,"prediction":"#)
    );
}

/// Two shops on weekdays, until Friday, 23 February 2024.
const WEEKDAYS: &str = r#"
version: 1
name: weekdays
sources:
  sales: { csv: { path: sales.csv }, time: day, keys: [shop] }
steps:
  features:
    from: sales
    do:
      - future_rows: { horizon: 7d, every: 1d }
      - filter: "CONDITION"
      - lag: { columns: [qty], by: [7d] }
label: { column: qty, horizon: 7d }
sinks:
  trees: { from: features, train: { model: gbdt, rounds: 3, min_leaf_rows: 1, dense: [qty_lag_7d] } }
  forecast: { from: features, predict: { model: trees, path: out/forecast } }
"#;

/// Of the days of the horizon, a forecast has those that the calendar has.
#[test]
fn a_filter_behind_the_rows_of_the_future_takes_weekends_out() {
    let dir = TestDirectory::new();
    let mut sales = "shop,day,qty\n".to_owned();
    let first: jiff::civil::Date = "2024-01-01".parse().unwrap();
    for day in (0..54).filter(|day| day % 7 < 5) {
        let date = first.saturating_add(jiff::Span::new().days(day));
        for shop in ["a", "b"] {
            sales += &format!("{shop},{date},{}\n", day % 7);
        }
    }
    dir.write("sales.csv", &sales);
    let weekdays = "date_part('dow', day) BETWEEN 1 AND 5";
    dir.write("spec.yaml", &WEEKDAYS.replace("CONDITION", weekdays));
    let summary = dir
        .forebay(&["run", "spec.yaml", "--json"])
        .expect(0)
        .summary();
    let forecast = &summary["forecasts"][0];
    for (name, count) in [("rows", 10), ("series", 2), ("steps", 5)] {
        assert_eq!(forecast[name], count, "{forecast}");
    }
    let mut days = texts(&dir.rows("out/forecast"), "day");
    days.dedup();
    let expected = [26, 27, 28, 29].map(|day| format!("2024-02-{day}"));
    assert_eq!(days, [&expected[..], &["2024-03-01".to_owned()]].concat());
    // A day that one series lacks is a hole.
    let hole = format!("{weekdays} AND NOT (shop = 'b' AND day = DATE '2024-02-28')");
    dir.write("spec.yaml", &WEEKDAYS.replace("CONDITION", &hole));
    let call = dir.forebay(&["run", "spec.yaml"]).expect(65);
    let words = "2 series with 7 steps are 14";
    assert!(call.stderr.contains(words), "{}", call.stderr);
}
