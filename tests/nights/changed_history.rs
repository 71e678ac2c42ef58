//! A history that grows, shrinks and changes: what is the same as yesterday is not done again, and
//! the result is that of doing everything.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};

/// Windows of bounded reach, others of none, and a standardisation by days that stay.
const SPEC: &str = r#"
version: 1
name: nightly
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    fit_on: train
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
      - rolling: { columns: [qty], compute: [mean, std], over: [7d], gap: 1d }
      - standardize: { columns: [price, qty_mean_7d] }
      - vocabulary: { columns: [category], min_count: 2 }
      - bucketize: { columns: [qty], q: 4 }
UNBOUNDED
split:
  train: "date >= DATE '2016-04-22' AND date < DATE '2016-05-01'"
  validation: "date >= DATE '2016-05-01'"
sinks:
  table: { from: features, parquet: { path: "${out}" } }
"#;

const EXPANDING: &str = "      - expanding: { columns: [qty], compute: [mean], gap: 1d }";

/// A shop with a spec and forty days, of which the first are visible.
pub struct NightlyFixture {
    pub shop: TestDirectory,
    pub days: Vec<String>,
    /// An hour before it all began.
    long_ago: std::time::SystemTime,
}

impl NightlyFixture {
    pub fn new(unbounded: bool) -> NightlyFixture {
        NightlyFixture::with_spec(
            &SPEC.replace("UNBOUNDED", if unbounded { EXPANDING } else { "" }),
        )
    }

    pub fn with_spec(spec: &str) -> NightlyFixture {
        let shop = TestDirectory::new();
        shop.write("spec.yaml", spec);
        let days = shop.days("all");
        std::fs::create_dir_all(shop.path("history")).unwrap();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        NightlyFixture {
            shop,
            days,
            long_ago,
        }
    }

    /// The fixture with a split whose parts both have rows of the first six days.
    pub fn with_early_split(self) -> NightlyFixture {
        let spec = std::fs::read_to_string(self.shop.path("spec.yaml")).unwrap();
        let spec = spec
            .replace("2016-04-22", "2016-04-13")
            .replace("2016-05-01", "2016-04-16");
        self.shop.write("spec.yaml", &spec);
        self
    }

    pub fn show(&self, day: usize) {
        let from = self.shop.path("all");
        let to = self.shop.path("history");
        std::fs::copy(from.join(&self.days[day]), to.join(&self.days[day])).unwrap();
    }

    pub fn hide(&self, day: usize) {
        std::fs::remove_file(self.shop.path("history").join(&self.days[day])).unwrap();
    }

    /// Runs, and gives the rows that were read by the pass that read most. Artifact and output are those of a
    /// run that knows nothing.
    pub fn run_night(&self, threads: usize) -> u64 {
        self.run_night_with_output(threads).0
    }

    /// The same, and all that the run said.
    fn run_night_with_output(&self, threads: usize) -> (u64, ProgramOutput) {
        let run = |out: &str, threads: usize| {
            let (out, state) = (format!("--param=out={out}"), format!("--state=state-{out}"));
            let args = [
                "run",
                "spec.yaml",
                "--json",
                &format!("--threads={threads}"),
                &out,
                &state,
            ];
            self.shop.forebay(&args).expect(0)
        };
        let call = run("out", threads);
        let summary = call.summary();
        let full = format!(
            "full-{}-{threads}",
            std::fs::read_dir(self.shop.path("")).unwrap().count()
        );
        assert_eq!(run(&full, 1).summary()["artifact"], summary["artifact"]);
        let rows = self.shop.rows(&full);
        assert!(
            rows.num_rows() > 0 && self.shop.rows("out") == rows,
            "a full run gives other rows"
        );
        assert!(self.shop.visible("out") == rows);
        (rows_read(&summary), call)
    }

    /// Writes a day anew, with a row less: another day's rows under its name would be another time.
    pub fn restate(&self, day: usize) {
        let day = self.shop.path("history").join(&self.days[day]);
        let rows = crate::support::read_files(std::slice::from_ref(&day));
        let mut writer =
            ArrowWriter::try_new(std::fs::File::create(&day).unwrap(), rows.schema(), None)
                .unwrap();
        writer.write(&rows.slice(0, rows.num_rows() - 1)).unwrap();
        writer.close().unwrap();
    }

    /// Damages a day so that its footer can be read, and nothing else, until it is shown again.
    pub fn damage(&self, day: usize) {
        damage(&self.shop.path("history").join(&self.days[day]));
    }

    /// Runs while the files of some days are unreadable: they have their old stamps, and damaged contents.
    fn run_without_days(&self, days: Range<usize>, threads: &str) -> ProgramOutput {
        let file = |day: usize| self.shop.path("history").join(&self.days[day]);
        let whole: Vec<Vec<u8>> = days
            .clone()
            .map(|day| std::fs::read(file(day)).unwrap())
            .collect();
        for day in days.clone() {
            self.damage(day);
            self.age(day);
        }
        let call = self.shop.forebay(&[
            "run",
            "spec.yaml",
            "--json",
            "--param=out=out",
            "--state=state-out",
            threads,
        ]);
        for (day, whole) in days.zip(whole) {
            std::fs::write(file(day), whole).unwrap();
            self.age(day);
        }
        call
    }

    /// Lets a day look as if it had been written long ago.
    fn age(&self, day: usize) {
        let file = self.shop.path("history").join(&self.days[day]);
        std::fs::File::options()
            .write(true)
            .open(file)
            .unwrap()
            .set_modified(self.long_ago)
            .unwrap();
    }

    /// Stored bytes of a day that is shown.
    fn bytes(&self, day: usize) -> u64 {
        std::fs::metadata(self.shop.path("history").join(&self.days[day]))
            .unwrap()
            .len()
    }

    pub fn rows(&self, days: impl IntoIterator<Item = usize>) -> u64 {
        days.into_iter()
            .map(|day| rows_of(&self.shop.path("all").join(&self.days[day])))
            .sum()
    }
}

/// The rows that were read by the pass of a run that read most.
fn rows_read(summary: &Value) -> u64 {
    let passes = summary["passes"].as_array().unwrap().iter();
    let rows = passes.map(|pass| {
        if pass["reused"].as_bool().unwrap() {
            0
        } else {
            pass["rows_in"].as_u64().unwrap() - pass["rows_kept"].as_u64().unwrap()
        }
    });
    rows.max().unwrap()
}

/// Damages a file so that its footer can be read, and nothing else.
pub fn damage(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let end = bytes.len();
    let footer = u32::from_le_bytes(bytes[end - 8..end - 4].try_into().unwrap()) as usize;
    bytes[4..end - 8 - footer].fill(0xa5);
    std::fs::write(file, bytes).unwrap();
}

fn rows_of(file: &Path) -> u64 {
    let file = std::fs::File::open(file).unwrap();
    SerializedFileReader::new(file)
        .unwrap()
        .metadata()
        .file_metadata()
        .num_rows() as u64
}

#[test]
fn a_new_day_costs_a_day() {
    for unbounded in [false, true] {
        let nights = NightlyFixture::new(unbounded);
        (0..30).for_each(|day| nights.show(day));
        assert_eq!(nights.run_night(2), nights.rows(0..30));
        nights.show(30);
        assert_eq!(nights.run_night(1), nights.rows([30]), "one more day");
        assert_eq!(nights.run_night(7), 0, "nothing new");
        (31..34).for_each(|day| nights.show(day));
        assert_eq!(nights.run_night(2), nights.rows(31..34), "three more days");
    }
}

/// Statistics of which counts move each day, while the tokens and the ranges that rows take stay.
const STATISTICS_OF_SETS: &str = r#"
version: 1
name: sets
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d] }
      - derive:
          kind: "CASE WHEN qty % 2 = 0 THEN 'even' ELSE 'odd' END"
          odd: "qty % 2"
          even: "1 - qty % 2"
      - ordinal: { columns: [kind], suffix: _id }
      - one_hot: { columns: [kind], suffix: _vector }
      - min_max: { columns: [odd], by: [kind], suffix: _by_kind }
      - min_max: { columns: [odd] }
      - max_abs: { columns: [even] }
sinks:
  table: { from: features, parquet: { path: "${out}" } }
"#;

#[test]
fn statistics_cost_a_day_where_rows_take_no_counts() {
    let nights = NightlyFixture::with_spec(STATISTICS_OF_SETS);
    (0..30).for_each(|day| nights.show(day));
    assert_eq!(nights.run_night(2), nights.rows(0..30));
    nights.show(30);
    assert_eq!(nights.run_night(1), nights.rows([30]), "one more day");
}

#[test]
fn explanations_name_the_steps_that_write_all_rows_again() {
    let windows = SPEC.replace("UNBOUNDED", "");
    let cases = [
        (
            windows.as_str(),
            "features.standardize",
            "when what it learned changed: `refit` holds it",
        ),
        (
            STATISTICS_OF_SETS,
            "features.ordinal",
            "when its tokens, their order or its range changed",
        ),
    ];
    for (spec, step, when) in cases {
        let nights = NightlyFixture::with_spec(spec);
        (0..3).for_each(|day| nights.show(day));
        let call = nights.shop.forebay(&["explain", "spec.yaml"]).expect(0);
        assert!(
            call.stdout
                .lines()
                .any(|line| line.contains(&format!("{step} ")) && line.ends_with(when)),
            "{}",
            call.stdout
        );
    }
}

#[test]
fn a_stable_vocabulary_without_a_new_token_costs_a_day() {
    let spec = STATISTICS_OF_SETS.replace(
        "ordinal: { columns: [kind], suffix: _id }",
        "vocabulary: { columns: [kind], stable: true, suffix: _id }",
    );
    let nights = NightlyFixture::with_spec(&spec);
    (0..30).for_each(|day| nights.show(day));
    let args = ["run", "spec.yaml", "--json", "--param=out=out"];
    let first = nights.shop.forebay(&args).expect(0).summary();
    assert_eq!(rows_read(&first), nights.rows(0..30));
    let rows = nights.shop.rows("out");
    nights.show(30);
    let second = nights.shop.forebay(&args).expect(0).summary();
    assert_ne!(first["artifact"], second["artifact"], "counts moved");
    assert_eq!(rows_read(&second), nights.rows([30]), "one more day");
    assert!(nights.shop.rows("out").slice(0, rows.num_rows()) == rows);
}

/// Aggregates of all functions, one behind a filter and one behind windows, joined back.
const AGGREGATES: &str = r#"
version: 1
name: aggregates
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  by_item:
    from: demand
    do:
      - filter: "price > 1"
      - aggregate:
          by: [item_id]
          compute:
            rows: { count: "*" }
            total: { sum: qty }
            price: { mean: price }
            low: { min: qty }
            high: { max: price }
            spread: { std: price }
            days: { n_unique: date }
            prices: { approx_n_unique: price }
            middle: { median: price }
            tail: { quantile: { column: qty, q: 0.9 } }
            sold_at: { weighted_mean: { column: price, weight: qty } }
            first: { first: qty }
            last: { last: qty }
            first_price: { first_by: { column: price, time: date } }
            last_price: { last_by: { column: price, time: date } }
            often: { top_k: { column: qty, k: 3 } }
            sales: { list: { column: qty, limit: 40, beyond: truncate } }
  by_week:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d] }
      - aggregate: { by: [store_id], every: 7d, time: date, compute: { rows: { count: "*" }, before: { sum: qty_lag_1d } } }
sinks:
  items: { from: by_item, parquet: { path: "${out}" } }
  weeks: { from: by_week, parquet: { path: "${out}-weeks" } }
"#;

#[test]
fn aggregates_cost_the_new_days() {
    let nights = NightlyFixture::with_spec(AGGREGATES);
    // The rows of the history that each of the aggregates reads: outputs read the groups.
    let run = |out: &str, threads: usize, run_bytes: &str| {
        let param = format!("--param=out={out}");
        let state = format!("--state=state-{out}");
        let args = [
            "run",
            "spec.yaml",
            "--json",
            &format!("--threads={threads}"),
            &param,
            &state,
        ];
        let call = nights
            .shop
            .command(&args)
            .env("FOREBAY_RANGE_BYTES", run_bytes)
            .watched();
        ProgramOutput::from(call).expect(0).summary()
    };
    let read = |threads: usize| {
        let summary = run("out", threads, "3000");
        let full = format!(
            "full-{}",
            std::fs::read_dir(nights.shop.path("")).unwrap().count()
        );
        run(&full, 2, "1000000");
        for name in ["", "-weeks"] {
            let [own, other] = ["out", &full].map(|out| nights.shop.rows(&format!("{out}{name}")));
            assert!(
                own.num_rows() > 0 && own == other,
                "a run that knows nothing gives other rows"
            );
        }
        let gathers = summary["passes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|pass| pass["work"] == "gather");
        let rows =
            |pass: &Value| pass["rows_in"].as_u64().unwrap() - pass["rows_kept"].as_u64().unwrap();
        gathers.map(rows).collect::<Vec<_>>()
    };
    (0..30).for_each(|day| nights.show(day));
    assert_eq!(read(2), [nights.rows(0..30); 2]);
    for (threads, last) in [(1, 30), (2, 31), (7, 32)] {
        nights.show(last);
        assert_eq!(read(threads), [nights.rows([last]); 2], "one more day");
    }
    assert_eq!(read(2), [0, 0], "nothing new");
    nights.restate(3);
    let rows = read(2);
    assert!(
        rows.iter().all(|rows| *rows < nights.rows(0..33)),
        "a restated day costs {rows:?} rows"
    );
    nights.hide(0);
    read(2);
    // Garbage collection keeps the states of the last run.
    nights
        .shop
        .forebay(&["cache", "gc", "--older-than", "0s", "--state=state-out"])
        .expect(0);
    nights
        .shop
        .forebay(&["cache", "verify", "--state=state-out"])
        .expect(0);
    nights.show(33);
    assert_eq!(
        read(2),
        [nights.rows([33]); 2],
        "one more day after garbage collection"
    );
}

/// Few groups at first, later one for each row.
const MANY_GROUPS: &str = r#"
version: 1
name: groups
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  groups:
    from: demand
    do:
      - derive: { key: "CASE WHEN date < DATE '2016-05-07' THEN 'old' ELSE concat(store_id, item_id, date) END" }
      - aggregate:
          by: [key]
          compute: { total: { sum: qty }, price: { mean: price }, high: { max: price }, first: { first: qty }, last: { last: price } }
sinks:
  table: { from: groups, parquet: { path: "${out}" } }
"#;

#[test]
fn groups_that_are_nearly_as_many_as_rows_are_not_kept() {
    let nights = NightlyFixture::with_spec(MANY_GROUPS);
    let run = |out: &str, threads: usize, run_bytes: &str| {
        let param = format!("--param=out={out}");
        let state = format!("--state=state-{out}");
        let args = [
            "run",
            "spec.yaml",
            "--json",
            &format!("--threads={threads}"),
            &param,
            &state,
        ];
        let call = nights
            .shop
            .command(&args)
            .env("FOREBAY_RANGE_BYTES", run_bytes)
            .watched();
        let summary = ProgramOutput::from(call).expect(0).summary();
        let gather = summary["passes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|pass| pass["work"] == "gather");
        let rows = |name: &str| gather.unwrap()[name].as_u64().unwrap();
        rows("rows_in") - rows("rows_kept")
    };
    (0..30).for_each(|day| nights.show(day));
    for (shown, (threads, run_bytes)) in
        (30..).zip([(1, "3000"), (2, "6000"), (7, "3000"), (2, "3000")])
    {
        let read = run("out", threads, run_bytes);
        let full = format!("full-{shown}");
        run(&full, 2, "1000000");
        let [own, other] = ["out", &full].map(|out| nights.shop.rows(out));
        assert!(
            own.num_rows() > 100 && own == other,
            "a run that knows nothing gives other rows"
        );
        if shown > 30 {
            let all = nights.rows(0..shown);
            let newest = nights.rows([shown - 1]);
            assert!(
                newest < read && read < all,
                "{read} of {all} rows were read, {newest} are new"
            );
        }
        nights.show(shown);
    }
    nights.restate(25);
    run("out", 2, "3000");
    run("restated", 1, "1000000");
    assert_eq!(nights.shop.rows("out"), nights.shop.rows("restated"));
    nights
        .shop
        .forebay(&["cache", "gc", "--older-than", "0s", "--state=state-out"])
        .expect(0);
    nights
        .shop
        .forebay(&["cache", "verify", "--state=state-out"])
        .expect(0);
}

/// Statistics and aggregates of the rows of one source.
const SHARED_READ: &str = r#"
version: 1
name: shared
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  scaled:
    from: demand
    do:
      - standardize: { columns: [price, qty] }
      - vocabulary: { columns: [item_id] }
  by_item:
    from: demand
    do:
      - filter: "price > 1"
      - aggregate:
          by: [item_id]
          compute: { total: { sum: qty }, price: { mean: price }, first: { first: qty }, often: { top_k: { column: qty, k: 2 } } }
  by_store:
    from: demand
    do:
      - aggregate: { by: [store_id], every: 7d, time: date, compute: { total: { sum: qty }, most: { max: price } } }
sinks:
  rows: { from: scaled, parquet: { path: "${out}" } }
  items: { from: by_item, parquet: { path: "${out}-items" } }
  stores: { from: by_store, parquet: { path: "${out}-stores" } }
"#;

#[test]
fn statistics_and_aggregates_share_a_read() {
    let nights = NightlyFixture::with_spec(SHARED_READ);
    let run = |out: &str, more: &[&str]| {
        let param = format!("--param=out={out}");
        let state = format!("--state=state-{out}");
        let args = [&["run", "spec.yaml", "--json", &param, &state], more].concat();
        let call = nights
            .shop
            .command(&args)
            .env("FOREBAY_RANGE_BYTES", "3000")
            .watched();
        ProgramOutput::from(call).expect(0).summary()
    };
    // The rows that the learn pass reads, and those that the gathers read.
    let read = |threads: &str| {
        let summary = run("out", &[threads]);
        let rows = |work: &str| {
            let passes = summary["passes"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|pass| pass["work"] == work);
            let rows = |pass: &Value| {
                pass["rows_in"].as_u64().unwrap() - pass["rows_kept"].as_u64().unwrap()
            };
            passes.map(rows).collect::<Vec<_>>()
        };
        // Workers read the rows for each pass.
        let other = format!(
            "full-{}",
            std::fs::read_dir(nights.shop.path("")).unwrap().count()
        );
        run(&other, &["--local-workers=1"]);
        for name in ["", "-items", "-stores"] {
            let [own, other] = ["out", &other].map(|out| nights.shop.rows(&format!("{out}{name}")));
            assert!(
                own.num_rows() > 0 && own == other,
                "{threads}: other rows of out{name}"
            );
        }
        (rows("learn"), rows("gather"))
    };
    (0..30).for_each(|day| nights.show(day));
    let explained = nights
        .shop
        .forebay(&["explain", "spec.yaml", "--json", "--state=state-out"])
        .expect(0);
    let explained: Value = serde_json::from_str(&explained.stdout).unwrap();
    let passes = explained["passes"].as_array().unwrap();
    let why = |work: &str| {
        let passes = passes.iter().filter(|pass| pass["work"] == work);
        passes
            .map(|pass| pass["why"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(passes[0]["work"], "learn");
    assert!(
        why("gather")
            .iter()
            .all(|why| why.ends_with("is made of groups that pass 1 learns in its read"))
    );
    assert_eq!(read("--threads=2"), (vec![nights.rows(0..30)], vec![0, 0]));
    for (threads, last) in [
        ("--threads=1", 30),
        ("--threads=2", 31),
        ("--threads=7", 32),
    ] {
        nights.show(last);
        assert_eq!(
            read(threads),
            (vec![nights.rows([last])], vec![0, 0]),
            "one more day"
        );
    }
    nights.restate(3);
    let (learned, gathered) = read("--threads=2");
    assert!(
        learned[0] < nights.rows(0..33) && gathered == [0, 0],
        "{learned:?} {gathered:?}"
    );
}

#[test]
fn workers_learn_groups_like_one_process() {
    let nights = NightlyFixture::with_spec(AGGREGATES);
    (0..33).for_each(|day| nights.show(day));
    let run = |out: &str, more: &[&str]| {
        let param = format!("--param=out={out}");
        let state = format!("--state=state-{out}");
        let args = [&["run", "spec.yaml", "--json", &param, &state], more].concat();
        let call = nights
            .shop
            .command(&args)
            .env("FOREBAY_RANGE_BYTES", "3000")
            .watched();
        ProgramOutput::from(call).expect(0).summary()
    };
    let alone = run("alone", &[]);
    for workers in ["1", "3"] {
        let out = format!("with-{workers}");
        assert_eq!(
            run(&out, &["--local-workers", workers])["artifact"],
            alone["artifact"]
        );
        for (own, other) in [
            (out.clone(), "alone"),
            (format!("{out}-weeks"), "alone-weeks"),
        ] {
            assert!(
                nights.shop.rows(&own) == nights.shop.rows(other),
                "{workers} workers give other rows"
            );
        }
    }
}

#[test]
fn a_removed_day_costs_the_rows_in_its_reach() {
    let nights = NightlyFixture::new(false);
    (0..40).for_each(|day| nights.show(day));
    nights.run_night(2);
    nights.hide(0);
    let rows = nights.run_night(2);
    assert!(
        rows >= nights.rows(1..8) && rows < nights.rows(1..40),
        "{rows} rows"
    );
}

#[test]
fn a_changed_day_costs_the_rows_in_its_reach() {
    let nights = NightlyFixture::new(false);
    (0..40).for_each(|day| nights.show(day));
    nights.run_night(2);
    nights.restate(3);
    let rows = nights.run_night(2);
    assert!(rows < nights.rows(0..40) - 1, "{rows} rows");
}

#[test]
fn a_day_that_cannot_be_read_ahead_is_named_in_its_turn() {
    let nights = NightlyFixture::new(false);
    (0..40).for_each(|day| nights.show(day));
    nights.run_night(2);
    let before = nights.shop.visible("out");
    nights.restate(20);
    // The first of what is written anew, and one among it.
    for damaged in [15, 24] {
        nights.damage(damaged);
        for threads in ["--threads=1", "--threads=2", "--threads=5"] {
            let call = nights.shop.forebay(&[
                "run",
                "spec.yaml",
                "--json",
                threads,
                "--param=out=out",
                "--state=state-out",
            ]);
            let fault = &call.expect(65).summary()["fault"];
            assert!(
                fault["file"]
                    .as_str()
                    .unwrap()
                    .contains(&nights.days[damaged]),
                "{fault}"
            );
            assert!(nights.shop.visible("out") == before);
        }
        nights.show(damaged);
    }
    let rows = nights.run_night(5);
    assert!(rows < nights.rows(0..40) - 1, "{rows} rows");
}

#[test]
fn an_output_that_was_moved_is_known() {
    let nights = NightlyFixture::new(false);
    (0..30).for_each(|day| nights.show(day));
    nights.run_night(2);
    std::fs::rename(nights.shop.path("out"), nights.shop.path("moved")).unwrap();
    std::fs::rename(nights.shop.root("out"), nights.shop.root("moved")).unwrap();
    nights.show(30);
    let args = [
        "run",
        "spec.yaml",
        "--json",
        "--param=out=moved",
        "--state=state-out",
    ];
    let summary = nights.shop.forebay(&args).expect(0).summary();
    let write = summary["passes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pass| pass["work"] == "write")
        .unwrap();
    let count = |name: &str| write[name].as_u64().unwrap();
    assert_eq!(count("rows_in") - count("rows_kept"), nights.rows([30]));
    assert_eq!(
        nights.shop.rows("moved").num_rows() as u64,
        nights.rows(0..31)
    );
}

/// Checks that the directory which readers see holds the files of the shards, numbered in row order, and nothing else.
#[cfg(unix)]
fn assert_links(shop: &TestDirectory, out: &str) {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| std::fs::metadata(path).unwrap().ino();
    let root = shop.root(out);
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(root.join("_manifest.json")).unwrap()).unwrap();
    let mut expected = BTreeMap::new();
    let mut counters: BTreeMap<String, usize> = BTreeMap::new();
    for file in manifest["shards"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|shard| shard["files"].as_array().unwrap())
    {
        let path = file["path"].as_str().unwrap();
        let inside = path.splitn(3, '/').nth(2).unwrap();
        let partition = inside
            .rsplit_once('/')
            .map_or(String::new(), |(partition, _)| format!("{partition}/"));
        let counter = counters.entry(partition.clone()).or_default();
        let digest = &file["digest"].as_str().unwrap()[..12];
        expected.insert(
            format!("{partition}part-{counter:05}-{digest}.parquet"),
            number(&root.join(path)),
        );
        *counter += 1;
    }
    let visible = shop.path(out);
    let links = crate::support::content(&visible)
        .into_iter()
        .map(|(name, _)| name);
    assert_eq!(
        links
            .map(|name| (name.clone(), number(&visible.join(name))))
            .collect::<BTreeMap<_, _>>(),
        expected
    );
}

/// The rows of each folder.
#[cfg(unix)]
fn by_folder(dir: &Path) -> BTreeMap<String, RecordBatch> {
    let mut files: BTreeMap<String, Vec<std::path::PathBuf>> = BTreeMap::new();
    for (name, _) in crate::support::content(dir) {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        files
            .entry(folder.to_owned())
            .or_default()
            .push(dir.join(&name));
    }
    files.values_mut().for_each(|files| files.sort());
    files
        .into_iter()
        .map(|(folder, files)| (folder, crate::support::read_files(&files)))
        .collect()
}

#[cfg(unix)]
#[test]
fn the_visible_directory_has_the_files_of_its_shards() {
    for partitions in ["", ", partition_by: [department]"] {
        let sink = format!("path: \"${{out}}\"{partitions}");
        let nights = NightlyFixture::with_spec(
            &SPEC
                .replace("UNBOUNDED", "")
                // One of the nights has no row of the part that is learned from.
                .replace("fit_on: train\n", "fit_on: train\n    allow_empty: true\n")
                .replace("path: \"${out}\"", &sink),
        );
        let run = |out: &str| {
            let param = format!("--param=out={out}");
            let state = format!("--state=state-{out}");
            nights
                .shop
                .forebay(&["run", "spec.yaml", "--threads=2", &param, &state])
                .expect(0);
            nights.shop.path(out)
        };
        (0..30).for_each(|day| nights.show(day));
        let mut number = 0;
        let mut night = |change: &dyn Fn()| {
            change();
            let out = run("out");
            let full = run(&format!("full-{number}"));
            number += 1;
            assert_links(&nights.shop, "out");
            assert!(by_folder(&out) == by_folder(&full));
        };
        night(&|| ());
        night(&|| nights.show(30));
        night(&|| nights.show(31));
        night(&|| nights.restate(20));
        // Files come and go, and have other numbers.
        for day in 0..4 {
            night(&|| nights.hide(day));
        }
        night(&|| nights.hide(14));
        night(&|| (0..4).for_each(|day| nights.show(day)));
        night(&|| (8..14).chain(15..31).for_each(|day| nights.hide(day)));
    }
}

/// Writes what needs nothing that is learned, and learns of it.
pub const FUSED_SPEC: &str = r#"
version: 1
name: along
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  windows:
    from: demand
    do:
      - filter: "price > 1"
      - lag: { columns: [qty], by: [1d, 2d] }
      - filter: "qty IS NOT NULL"
      - rolling: { columns: [qty], compute: [mean, std], over: [3d], gap: 1d }
  features:
    from: windows
    fit_on: train
    do:
      - derive: { twice: "2 * qty_mean_3d" }
      - standardize: { columns: [price, twice] }
      - vocabulary: { columns: [category, item_id], min_count: 2 }
MORE
split:
  train: "date >= DATE '2016-01-01'"
sinks:
  table: { from: windows, parquet: { path: "${out}" } }
"#;

#[test]
fn a_fused_night_reads_its_rows_once() {
    // Samples of quantiles want to know where rows lie, and what a filter leaves is asked for below it.
    let others = [
        "",
        "      - bucketize: { columns: [qty], q: 4 }",
        "      - filter: \"qty > 2\"\n      - standardize: { columns: [qty] }",
    ];
    for (turn, more) in others.into_iter().enumerate() {
        let nights = NightlyFixture::with_spec(&FUSED_SPEC.replace("MORE", more));
        let last = [36, 12, 12][turn];
        (0..last).for_each(|day| nights.show(day));
        nights.run_night(2);
        nights.show(last);
        let (rows, call) = nights.run_night_with_output(1 + turn);
        assert_eq!(rows, nights.rows([last]), "one more day");
        let lines = call
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let read = lines
            .filter(|line| line["event"] == "pass_reads")
            .map(|line| line["bytes"].as_u64().unwrap());
        let read = read.sum::<u64>();
        let day = nights.bytes(last);
        assert!(
            if turn == 0 { read <= day } else { read > day },
            "{more}: {read} bytes of {day}"
        );
        if turn == 0 {
            nights.restate(20);
            let rows = nights.run_night(2);
            assert!(
                rows >= nights.rows(21..24) && rows < nights.rows(0..last),
                "{rows} rows"
            );
        }
    }
}

/// Columns that reach nothing, a day, three days and eight, and what is made of them.
const REACHES: &str = r#"
version: 1
name: reaches
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  windows:
    from: demand
    do:
      - filter: "price > 1"
      - lag: { columns: [qty], by: [1d, 6d] }
      - rolling: { columns: [qty], compute: [mean, std], over: [3d, 8d] }
      - derive: { twice: "2 * qty_mean_3d", far: "qty_lag_1d + qty_mean_8d", wide: "struct(qty_std_3d, price)" }
      - rename: { qty_std_8d: spread }
FILTER
  features:
    from: windows
    do:
      - standardize: { columns: [price, twice, far] }
SPLIT
sinks:
  table: { from: windows, parquet: { path: "${out}" } }
"#;

#[test]
fn a_restated_day_is_written_again_in_a_bucket() {
    let nights = NightlyFixture::with_spec(&REACHES.replace("SPLIT", "").replace("FILTER", ""));
    (0..30).for_each(|day| nights.show(day));
    std::fs::create_dir_all(nights.shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&nights.shop.path("buckets"));
    let run = || {
        server
            .forebay(
                &nights.shop,
                &["run", "spec.yaml", "--json", "--param=out=s3://lake/out"],
            )
            .expect(0)
    };
    run();
    nights.restate(15);
    run();
    nights
        .shop
        .forebay(&[
            "run",
            "spec.yaml",
            "--param=out=whole",
            "--state=state-whole",
        ])
        .expect(0);
    assert!(nights.shop.visible("buckets/lake/out") == nights.shop.rows("whole"));
}

#[test]
fn files_after_a_change_are_those_of_a_full_run() {
    let split = "split: { train: \"date < DATE '2016-06-01'\" }";
    // Which rows there are is decided by rows that lie three days back.
    let filter = "      - filter: \"qty_mean_3d > 1\"";
    for (turn, (split, filter)) in [("", ""), (split, ""), ("", filter)]
        .into_iter()
        .enumerate()
    {
        let nights =
            NightlyFixture::with_spec(&REACHES.replace("SPLIT", split).replace("FILTER", filter));
        (0..36).for_each(|day| nights.show(day));
        nights.run_night(2);
        let shards = |out: &str| -> BTreeMap<String, Value> {
            let manifest = std::fs::read(nights.shop.root(out).join("_manifest.json")).unwrap();
            let manifest: Value = serde_json::from_slice(&manifest).unwrap();
            let shards = manifest["shards"].as_array().unwrap().iter();
            shards
                .map(|shard| {
                    (
                        shard["id"].as_str().unwrap().to_owned(),
                        shard["files"].clone(),
                    )
                })
                .collect()
        };
        let changes: [(&str, &dyn Fn()); 4] = [
            ("restate", &|| nights.restate(20)),
            ("drop", &|| nights.hide(0)),
            ("drop in the middle, and one at its end", &|| {
                [12, 35].iter().for_each(|day| nights.hide(*day))
            }),
            ("a day that was not there", &|| nights.show(12)),
        ];
        for (what, change) in changes {
            let before = shards("out");
            change();
            nights.run_night(1 + turn);
            nights
                .shop
                .forebay(&[
                    "run",
                    "spec.yaml",
                    "--param=out=whole",
                    "--state=state-whole",
                ])
                .expect(0);
            let after = shards("out");
            let whole = shards("whole");
            let new: Vec<&String> = after
                .keys()
                .filter(|id| !before.contains_key(*id))
                .collect();
            assert!(
                new.iter().any(|id| whole.get(*id) == after.get(*id)),
                "{what}"
            );
            assert!(
                new.iter()
                    .all(|id| whole.get(*id).is_none_or(|files| files == &after[*id])),
                "{what}"
            );
            nights.shop.remove_output("whole");
            std::fs::remove_dir_all(nights.shop.path("state-whole")).unwrap();
        }
    }
}

#[test]
fn an_output_that_is_gone_is_made_again() {
    let nights = NightlyFixture::with_spec(&REACHES.replace("SPLIT", "").replace("FILTER", ""));
    (0..12).for_each(|day| nights.show(day));
    nights.run_night(2);
    std::fs::remove_dir_all(nights.shop.path(".out.forebay/_data")).unwrap();
    nights.run_night(2);
    assert!(nights.shop.path(".out.forebay/_data").exists());
}

/// Windows that look at days far back, and not at those in between.
const DISTANT_WINDOWS: &str = r#"
version: 1
name: far
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  windows:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d, 21d] }
      - rolling: { columns: [qty], compute: [mean], over: [3d], gap: 1d }
MORE
  features:
    from: windows
    do:
      - standardize: { columns: [price, qty_mean_3d, qty_lag_21d] }
sinks:
  table: { from: windows, parquet: { path: "${out}" } }
"#;

#[test]
fn days_between_distant_windows_are_skipped() {
    let nights = NightlyFixture::with_spec(&DISTANT_WINDOWS.replace("MORE", ""));
    let without = |days: Range<usize>, threads: &str| {
        nights.run_without_days(days, threads).expect(0);
        assert_eq!(
            nights.run_night(2),
            0,
            "the same as of all days, and nothing new"
        );
    };
    for day in 0..36 {
        nights.show(day);
        nights.age(day);
    }
    nights.run_night(2);
    // It reaches three days after it, and the one that lies three weeks later; shards have up to five days, and need
    // what their own windows look at.
    nights.restate(8);
    without(17..21, "--threads=2");
    for (day, threads) in [
        (36, "--threads=1"),
        (37, "--local-workers=2"),
        (38, "--threads=2"),
    ] {
        nights.show(day);
        without(day - 15..day - 8, threads);
    }
}

#[test]
fn distant_days_are_added_removed_and_changed() {
    let chained = "      - lag: { columns: [qty_mean_3d], by: [9d] }";
    let seasonal = "      - seasonal_rolling: { columns: [qty], compute: [mean], season: 7d, over: [2], gap: 7d }";
    // Two windows are one for what is asked of the second, and the first alone for all else.
    let filter = "      - filter: \"qty_lag_21d is null or qty_lag_21d < 9\"";
    for (turn, more) in [chained, seasonal, filter].into_iter().enumerate() {
        let nights = NightlyFixture::with_spec(&DISTANT_WINDOWS.replace("MORE", more));
        (0..36).for_each(|day| nights.show(day));
        nights.run_night(2);
        let changes: [(&str, &dyn Fn()); 6] = [
            ("restate", &|| nights.restate(8)),
            ("drop", &|| nights.hide(0)),
            ("drop in the middle, and two at its end", &|| {
                [12, 34, 35].iter().for_each(|day| nights.hide(*day))
            }),
            ("a day that was not there", &|| nights.show(12)),
            ("the end again, and more", &|| {
                (34..37).for_each(|day| nights.show(day))
            }),
            ("two changes", &|| {
                [10, 30].iter().for_each(|day| nights.restate(*day))
            }),
        ];
        for (what, change) in changes {
            change();
            let read = nights.run_night(1 + turn);
            assert!(read > 0 && read < nights.rows(0..36), "{what}: {read} rows");
        }
        assert_eq!(nights.run_night(1), 0);
    }
}

#[test]
fn nothing_new_is_said_by_the_exit_code_when_asked_for() {
    let nights = NightlyFixture::new(false);
    (0..10).for_each(|day| nights.show(day));
    let call = |command: &str, asked: bool, code: i32| {
        let mut args = vec![command, "spec.yaml", "--json"];
        args.extend(asked.then_some("--signal-nothing-new"));
        nights.shop.forebay(&args).expect(code).summary()
    };
    let first = call("run", true, 0);
    assert_eq!(first["nothing_new"], false);
    for command in ["run", "fit"] {
        call(command, false, 0);
        let summary = call(command, true, 99);
        assert_eq!(
            (&summary["nothing_new"], &summary["status"]),
            (&true.into(), &"done".into())
        );
        assert_eq!(summary["artifact"], first["artifact"]);
    }
    nights.show(10);
    call("run", true, 0);
}

#[test]
fn files_that_stay_what_they_are_are_not_looked_at_again() {
    let nights = NightlyFixture::new(false);
    let file = |day: usize| nights.shop.path("history").join(&nights.days[day]);
    let run = |code: i32| {
        nights
            .shop
            .forebay(&["run", "spec.yaml", "--json", "--signal-nothing-new"])
            .expect(code)
    };
    for day in 0..20 {
        nights.show(day);
        nights.age(day);
    }
    run(0);
    // Notes are written where a file had to be looked at, under a new inode.
    let notes = || {
        std::fs::read_dir(nights.shop.path(".forebay/notes"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
    };
    let noted = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(notes()).unwrap());
    let before = noted();
    run(99);
    assert_eq!(noted(), before);
    nights.show(20);
    let summary = run(0).summary();
    assert_eq!(summary["passes"][0]["rows_in"], nights.rows(0..21));
    assert_ne!(noted(), before);
    // Another stamp: it is looked at, also where size and time of modification are the old ones.
    let whole = std::fs::read(file(0)).unwrap();
    let broken = [&whole[..whole.len() - 4], b"gone"].concat();
    for is_aged in [true, false] {
        std::fs::write(file(0), &broken).unwrap();
        if is_aged {
            nights.age(0);
        }
        assert_eq!(run(65).summary()["fault"]["code"], "FB0203");
    }
    std::fs::write(file(0), &whole).unwrap();
    nights.age(0);
    run(99);
    // Notes that are broken are no notes.
    let notes = notes();
    std::fs::write(&notes, "nonsense").unwrap();
    run(99);
    assert!(
        std::fs::metadata(&notes).unwrap().len() > 1000,
        "they are made anew"
    );
}
