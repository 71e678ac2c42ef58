//! Trainings that go on from the model of the night before.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};

/// Two trainings on the same rows: one goes on from the night before, one begins with nothing.
const SPEC: &str = r#"
version: 1
name: nights
sources:
  sales: { parquet: { path: history }, time: day, keys: [item] }
steps:
  features:
    from: sales
    refit: 5d
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
      - standardize: { columns: [price, qty_lag_1d, qty_lag_7d] }
      - vocabulary: { columns: [item], stable: STABLE, oov_buckets: 1 }
split: { by_hash: { keys: [day, slot], parts: { train: 0.9, validation: 0.1 } } }
sinks:
  table: { from: features, parquet: { path: out } }
  warm: { from: features, train: { path: warm, start: last, replay: 0.1, TRAIN } }
  anew: { from: features, train: { path: anew, TRAIN } }
"#;

const TRAIN: &str = "model: mlp, hidden: [32], label: qty, dense: [price, qty_lag_1d, qty_lag_7d], categorical: [item], \
                     embeddings: { item: 4 }, missing: 0, epochs: 6, batch_rows: 64, learning_rate: 0.02";

const TREES: &str = "model: gbdt, label: qty, dense: [price, qty_lag_1d, qty_lag_7d], \
                     categorical: [item], rounds: 60, leaves: 8";

/// Days before the first night.
const HISTORY: usize = 90;

const ITEMS: usize = 40;

struct Shop {
    dir: TestDirectory,
}

impl Shop {
    fn new() -> Shop {
        let dir = TestDirectory::new();
        std::fs::create_dir_all(dir.path("history")).unwrap();
        let shop = Shop { dir };
        shop.set_spec("true", TRAIN);
        shop
    }

    fn set_spec(&self, stable: &str, train: &str) {
        self.dir.write(
            "spec.yaml",
            &SPEC.replace("STABLE", stable).replace("TRAIN", train),
        );
    }

    /// Days, each with its own file: demand by item, weekday and price, which drifts a little.
    fn show(&self, days: std::ops::Range<usize>) {
        for day in days {
            let mut columns: (Vec<i32>, Vec<String>, Vec<f64>, Vec<f64>) = Default::default();
            // New items come one by one.
            for item in 0..ITEMS + day / 8 {
                let chance = |salt: u64| uniform((day * 1000 + item) as u64 * 7 + salt);
                let price = 2.0 + (item % 9) as f64 + chance(1);
                let weekday = 1.0 + 0.4 * ((day % 7) as f64 - 3.0) / 3.0;
                let base = 20.0 + 3.0 * ((item * 7) % 13) as f64 + 0.05 * day as f64;
                columns.0.push(DAY_0 + day as i32);
                columns.1.push(format!("item {item}"));
                columns.2.push(price);
                columns
                    .3
                    .push(base * weekday * (1.2 - 0.03 * price) * (0.9 + 0.2 * chance(2)));
            }
            let (days, items, prices, quantities) = columns;
            let rows = RecordBatch::try_from_iter([
                ("day", Arc::new(Date32Array::from(days)) as ArrayRef),
                (
                    "slot",
                    Arc::new(Int64Array::from_iter_values(0..items.len() as i64)) as ArrayRef,
                ),
                ("item", Arc::new(StringArray::from(items))),
                ("price", Arc::new(Float64Array::from(prices))),
                ("qty", Arc::new(Float64Array::from(quantities))),
            ]);
            let rows = rows.unwrap();
            let file =
                std::fs::File::create(self.dir.path(&format!("history/{day:03}.parquet"))).unwrap();
            let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
            writer.write(&rows).unwrap();
            writer.close().unwrap();
        }
    }

    fn run(&self, args: &[&str], code: i32) -> Value {
        let call = self.dir.forebay(
            &[
                &["run", "spec.yaml", "--json", "--signal-nothing-new"],
                args,
            ]
            .concat(),
        );
        call.expect(code).summary()
    }

    fn interval(&self, from: usize, to: usize, code: i32) -> Value {
        self.run(&["--interval", &date(from), &date(to)], code)
    }
}

/// 2024-01-01 as days since 1970.
const DAY_0: i32 = 19_723;

fn date(day: usize) -> String {
    let begin: jiff::civil::Date = "2024-01-01".parse().unwrap();
    begin
        .checked_add(jiff::Span::new().days(day as i64))
        .unwrap()
        .to_string()
}

fn uniform(seed: u64) -> f64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

fn model<'a>(summary: &'a Value, sink: &str) -> &'a Value {
    summary["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["sink"] == sink)
        .unwrap()
}

fn wmape(summary: &Value, sink: &str) -> f64 {
    model(summary, sink)["epochs"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["validation"]["wmape"]
        .as_f64()
        .unwrap()
}

fn rows(summary: &Value, sink: &str) -> f64 {
    model(summary, sink)["rows"].as_f64().unwrap()
}

fn reason(summary: &Value) -> String {
    model(summary, "warm")["start"]["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn nights_are_learned_from_the_new_day_and_a_sample() {
    assert_nights(TRAIN);
}

#[test]
fn trees_are_added_to_those_of_the_night_before() {
    assert_nights(TREES);
}

/// As good as training from nothing, at about a tenth of the rows. `FOREBAY_LONG_TESTS` makes it a month, over which
/// wMAPE may be 1.02 times as much; that of few nights says less.
fn assert_nights(train: &str) {
    let (nights, error_max) = if std::env::var_os("FOREBAY_LONG_TESTS").is_some() {
        (30, 1.02)
    } else {
        (6, 1.2)
    };
    let shop = Shop::new();
    shop.set_spec("true", train);
    shop.show(0..HISTORY);
    let first = shop.interval(0, HISTORY, 0);
    assert_eq!(reason(&first), "no earlier run has trained it");
    assert_eq!(rows(&first, "warm"), rows(&first, "anew"));
    let mut errors = [0.0, 0.0];
    let mut all_rows = [0.0, 0.0];
    let mut before = first;
    for night in HISTORY..HISTORY + nights {
        shop.show(night..night + 1);
        let summary = shop.interval(night, night + 1, 0);
        let start = &model(&summary, "warm")["start"];
        assert_eq!(start["from"], model(&before, "warm")["id"], "{summary}");
        let of_rows =
            [&start["new_rows"], &start["replayed_rows"]].map(|rows| rows.as_f64().unwrap());
        assert_eq!(of_rows[0] + of_rows[1], rows(&summary, "warm"));
        assert!(of_rows[0] < 60.0, "more than a day is new: {start}");
        let found = ["warm", "anew"].map(|sink| wmape(&summary, sink));
        println!(
            "night {night}: wMAPE {found:?}, {} of {} rows",
            rows(&summary, "warm"),
            rows(&summary, "anew")
        );
        for (at, sink) in ["warm", "anew"].into_iter().enumerate() {
            errors[at] += found[at];
            all_rows[at] += rows(&summary, sink);
        }
        // A repeat is known as one.
        if night % 3 == 0 {
            let again = shop.interval(night, night + 1, 99);
            assert_eq!(model(&again, "warm")["id"], model(&summary, "warm")["id"]);
            assert_eq!(model(&again, "warm")["start"], *start);
        }
        before = summary;
    }
    println!(
        "wMAPE summed over nights: {:.4} of that from nothing",
        errors[0] / errors[1]
    );
    assert!(
        errors[0] <= error_max * errors[1],
        "wMAPE summed over nights: {errors:?}"
    );
    assert!(
        all_rows[0] <= 0.15 * all_rows[1],
        "rows summed over nights: {all_rows:?}"
    );
}

/// Night by night, the day that leaves the validation part is learned: it is new in one night, and never again.
#[test]
fn rows_that_a_moving_split_gives_are_new_once() {
    const VALIDATION: usize = 14;
    let shop = Shop::new();
    let by_hash = "by_hash: { keys: [day, slot], parts: { train: 0.9, validation: 0.1 } }";
    let by_time = "by_time: { column: day, parts: [train, validation], ends: [last 14d] }";
    let train = TRAIN.replace("epochs: 6", "epochs: 1");
    let spec = SPEC
        .replace(by_hash, by_time)
        .replace("refit: 5d", "refit: never")
        .replace("STABLE", "true")
        .replace("TRAIN", &train);
    shop.dir.write("spec.yaml", &spec);
    shop.show(0..40);
    shop.run(&[], 0);
    for night in 40..46 {
        shop.show(night..night + 1);
        let summary = shop.run(&[], 0);
        let start = &model(&summary, "warm")["start"];
        let rows_of_day = ITEMS + (night - VALIDATION) / 8;
        assert_eq!(start["new_rows"], rows_of_day, "night {night}: {start}");
        let days = night + 1 - VALIDATION;
        let all: usize = (0..days).map(|day| ITEMS + day / 8).sum();
        assert_eq!(start["all_rows"], all, "night {night}: {start}");
    }
}

#[test]
fn what_cannot_go_on_begins_with_nothing_and_says_why() {
    let shop = Shop::new();
    shop.show(0..20);
    let train = &TRAIN.replace("epochs: 6", "epochs: 1");
    shop.set_spec("true", train);
    let first = shop.run(&[], 0);
    shop.show(20..21);
    let second = shop.run(&[], 0);
    assert_eq!(
        model(&second, "warm")["start"]["from"],
        model(&first, "warm")["id"]
    );
    let said = shop.dir.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(said.contains("goes on from"), "{said}");
    // A repeat, also of an earlier training elsewhere.
    assert_eq!(
        model(&shop.run(&[], 99), "warm")["id"],
        model(&second, "warm")["id"]
    );
    let next = |day: usize| {
        shop.show(day..day + 1);
        let summary = shop.run(&[], 0);
        assert_eq!(rows(&summary, "warm"), rows(&summary, "anew"), "{summary}");
        reason(&summary)
    };
    shop.set_spec("true", &train.replace("hidden: [32]", "hidden: [8]"));
    assert_eq!(next(21), "`hidden` changed since the run before");
    shop.set_spec(
        "true",
        &train
            .replace("hidden: [32]", "hidden: [8]")
            .replace("dense: [price,", "dense: ["),
    );
    assert_eq!(
        next(22),
        "the columns of numbers changed since the run before"
    );
    std::fs::remove_dir_all(shop.dir.path("warm")).unwrap();
    std::fs::remove_dir_all(shop.dir.root("warm")).unwrap();
    assert_eq!(next(23), "the model of the run before is gone");
    let said = shop.dir.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(
        said.contains("begins with nothing: the model of the run before is gone"),
        "{said}"
    );
    let spec = std::fs::read_to_string(shop.dir.path("spec.yaml")).unwrap();
    shop.dir.write(
        "spec.yaml",
        &spec.replace("    do:\n", "    do:\n      - filter: \"price < 100\"\n"),
    );
    shop.show(24..25);
    // Which rows there are does not change what columns mean.
    assert_eq!(reason(&shop.run(&[], 0)), "");
    shop.dir.write(
        "spec.yaml",
        &spec.replace(
            "standardize: { columns: [price, ",
            "standardize: { columns: [",
        ),
    );
    assert_eq!(next(25), "`features` changed since the run before");
    // Without `stable`, a vocabulary that is learned anew gives other ids.
    shop.set_spec(
        "false",
        &train
            .replace("hidden: [32]", "hidden: [8]")
            .replace("dense: [price,", "dense: ["),
    );
    shop.show(26..27);
    shop.run(&[], 0);
    shop.show(27..33);
    let other = |path: &str| std::fs::remove_file(shop.dir.path(path)).unwrap();
    (0..12).for_each(|day| other(&format!("history/{day:03}.parquet")));
    let summary = shop.run(&[], 0);
    assert_eq!(
        reason(&summary),
        "the ids of `features.vocabulary` have moved: `stable: true` would keep them"
    );
}

#[test]
fn rows_that_a_split_gives_to_the_training_are_new() {
    let shop = Shop::new();
    let spec = std::fs::read_to_string(shop.dir.path("spec.yaml"))
        .unwrap()
        .replace("epochs: 6", "epochs: 1");
    let until = |day: usize| {
        let begin = spec.find("split:").unwrap();
        let end = spec.find("sinks:").unwrap();
        let split = format!(
            "split: {{ train: \"day < DATE '{0}'\", validation: \"day >= DATE '{0}'\" }}\n",
            date(day)
        );
        shop.dir.write(
            "spec.yaml",
            &format!("{}{split}{}", &spec[..begin], &spec[end..]),
        );
    };
    shop.show(0..20);
    until(18);
    let first = shop.run(&[], 0);
    until(19);
    let second = shop.run(&[], 0);
    let start = &model(&second, "warm")["start"];
    assert_eq!(start["from"], model(&first, "warm")["id"]);
    let of_day = rows(&second, "anew") - rows(&first, "anew");
    assert!(of_day >= ITEMS as f64);
    let new = start["new_rows"].as_f64().unwrap();
    assert!(
        new >= of_day && new < rows(&second, "anew") / 2.0,
        "{start}"
    );
    // What the training learns from does not depend on where and when files were written.
    for place in [
        "warm",
        ".warm.forebay",
        "anew",
        ".anew.forebay",
        "out",
        ".out.forebay",
        ".forebay",
    ] {
        let _ = std::fs::remove_dir_all(shop.dir.path(place));
    }
    until(18);
    shop.run(&[], 0);
    until(19);
    let again = shop.run(&[], 0);
    assert_eq!(model(&again, "warm")["id"], model(&second, "warm")["id"]);
    assert_eq!(model(&again, "warm")["start"], *start);
}

#[test]
fn a_killed_training_goes_on_from_the_night_before() {
    let prepare = || {
        let shop = Shop::new();
        shop.set_spec("true", &TRAIN.replace("epochs: 6", "epochs: 1"));
        shop.show(0..12);
        let first = shop.run(&[], 0);
        shop.show(12..13);
        (shop, first)
    };
    let (whole, _) = prepare();
    let steps = whole.dir.path("steps");
    let command = |shop: &Shop| shop.dir.command(&["run", "spec.yaml", "--json"]);
    let call: ProgramOutput = command(&whole)
        .env("FOREBAY_KILL_LOG", &steps)
        .watched()
        .into();
    call.expect(0);
    let steps = std::fs::read_to_string(steps).unwrap().lines().count();
    for at in (steps / 2..steps).step_by((steps / 12).max(1)) {
        let (shop, first) = prepare();
        let killed = command(&shop)
            .env("FOREBAY_KILL_AT", at.to_string())
            .watched();
        assert_eq!(killed.status.signal(), Some(9), "step {at} of {steps}");
        let summary = shop
            .dir
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        let start = &model(&summary, "warm")["start"];
        assert_eq!(
            start["from"],
            model(&first, "warm")["id"],
            "step {at} of {steps}"
        );
        let again = shop.run(&[], 99);
        assert_eq!(
            model(&again, "warm")["id"],
            model(&summary, "warm")["id"],
            "step {at} of {steps}"
        );
        assert_eq!(model(&again, "warm")["start"], *start);
    }
}

/// Trees are grown again once there are four times as many as `rounds`, and where outputs are others.
#[test]
fn trees_that_cannot_be_added_are_grown_again() {
    let shop = Shop::new();
    let declare = |added: u32, train: &str| {
        let added = format!("replay: 0.1, added_rounds: {added},");
        let spec = SPEC
            .replace("replay: 0.1,", &added)
            .replace("STABLE", "true")
            .replace("TRAIN", train);
        shop.dir.write("spec.yaml", &spec);
    };
    declare(240, TREES);
    shop.show(0..20);
    shop.run(&[], 0);
    // More than four times 60 with those that are there.
    shop.show(20..21);
    let full = shop.run(&[], 0);
    let why = reason(&full);
    assert!(why.ends_with("trees, and may have 240"), "{why}");
    // Other settings of growth fit the same trees.
    declare(2, TREES);
    shop.show(21..22);
    let second = shop.run(&["--threads=1"], 0);
    let start = &model(&second, "warm")["start"];
    assert_eq!(start["from"], model(&full, "warm")["id"], "{second}");
    let added = |summary: &Value| model(summary, "warm")["parameters"].as_u64().unwrap();
    assert!(added(&second) >= added(&full));
    declare(
        2,
        &TREES.replace("leaves: 8", "leaves: 8, loss: absolute_error"),
    );
    shop.show(22..23);
    let other = reason(&shop.run(&[], 0));
    assert_eq!(other, "`loss` changed since the run before");
}

#[test]
fn trees_of_groups_and_steps_are_not_added_to() {
    let shop = Shop::new();
    shop.show(0..3);
    for (more, message) in [
        ("by: [item]", "one model over all rows"),
        ("strategy: per_step", "one model of all steps"),
    ] {
        shop.set_spec(
            "true",
            &format!("model: gbdt, label: qty, dense: [price], {more}"),
        );
        let call = shop.dir.forebay(&["check", "spec.yaml"]).expect(78);
        assert!(call.stderr.contains(message), "{}", call.stderr);
    }
}
