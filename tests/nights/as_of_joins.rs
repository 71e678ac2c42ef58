//! Nights of as-of joins: the last rows of the other side are kept, and a new day costs the rows of that day.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::SystemTime;

use crate::nights::changed_history::NightlyFixture;
use crate::support::ProgramOutput;
use crate::support::watched_command::WatchedCommand;
use crate::workers::runs::{WorkerProcess, workers_option};

/// Prices of another history, met by demand: before the row, within days, and through windows and statistics.
const SPEC: &str = r#"
version: 1
name: joined
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
  offers: { parquet: { path: offers }, time: date, keys: [store_id, item_id] }
steps:
  priced:
    from: offers
    do:
      - filter: "qty > 1"
      - derive: { paid: "price * 2", word: "concat(item_id, '-', cast(qty as varchar))" }
      - select: [store_id, item_id, date, paid, word]
COMPUTED
  joined:
    from: demand
    fit_on: train
    do:
      - filter: "price > 1"
      - as_of_join: { with: priced, columns: [paid, word], suffix: _now }
      - as_of_join: { with: priced, columns: [paid, word], suffix: _before, exact: false }
      - as_of_join: { with: priced, columns: [paid], suffix: _near, tolerance: 3d }
MORE
split:
  train: "date < DATE '2016-05-01'"
  validation: "date >= DATE '2016-05-01'"
sinks:
  table: { from: joined, parquet: { path: "${out}" } }
"#;

const COMPUTED: &str = "      - rename: { date: day }
      - derive: { date: day }
      - drop: [day]";

const WINDOWS: &str =
    "      - rolling: { columns: [paid_now, paid_near], compute: [mean], over: [7d], gap: 1d }
      - expanding: { columns: [paid_before], compute: [max], gap: 1d }
      - standardize: { columns: [paid_now] }
      - vocabulary: { columns: [word_before] }";

/// When days were written: what is known of a file that has just been written is not trusted.
const LONG_AGO: SystemTime = SystemTime::UNIX_EPOCH;

/// Demand and offers, with forty days each, of which some are visible; and whether their rows have to be sorted.
struct JoinedNights(NightlyFixture, bool);

impl JoinedNights {
    fn new(more: &str) -> JoinedNights {
        let spec = SPEC.replace("MORE", more);
        let nights = NightlyFixture::with_spec(&spec.replace("COMPUTED", ""));
        // Of times that are computed it is not known how spans follow each other.
        nights
            .shop
            .write("sorted.yaml", &spec.replace("COMPUTED", COMPUTED));
        std::fs::create_dir_all(nights.shop.path("offers")).unwrap();
        JoinedNights(nights, false)
    }

    fn offer(&self, day: usize) {
        let from = self.0.shop.path("all");
        let to = self.0.shop.path("offers");
        std::fs::copy(from.join(&self.0.days[day]), to.join(&self.0.days[day])).unwrap();
        set_modified(&to.join(&self.0.days[day]), LONG_AGO);
    }

    fn show(&self, days: impl IntoIterator<Item = usize>) {
        for day in days {
            self.0.show(day);
            set_modified(
                &self.0.shop.path("history").join(&self.0.days[day]),
                LONG_AGO,
            );
            self.offer(day);
        }
    }

    /// A run whose output is compared with that of a run that knows nothing. Returns the rows of demand that were read.
    fn run(&self, more: &[&str]) -> u64 {
        let shop = &self.0.shop;
        let run = |spec: &str, out: &str, more: &[&str]| {
            let param = format!("--param=out={out}");
            let state = format!("--state=state-{out}");
            let mut call = shop.command(&[&["run", spec, "--json", &param, &state], more].concat());
            ProgramOutput::from(call.env("FOREBAY_RANGE_BYTES", "3000").watched()).expect(0)
        };
        let call = run("spec.yaml", "out", more);
        let full = format!("full-{}", std::fs::read_dir(shop.path("")).unwrap().count());
        run("sorted.yaml", &full, &["--threads=1"]);
        let rows = shop.rows(&full);
        assert!(
            rows.num_rows() > 0 && shop.rows("out") == rows,
            "a run that knows nothing, and sorts, gives other rows"
        );
        let is_sorted =
            call.stdout.contains("sorted first") || call.stderr.contains("sorted first");
        assert_eq!(is_sorted, self.1, "{}{}", call.stdout, call.stderr);
        let read = |pass: &serde_json::Value| {
            if pass["reused"].as_bool().unwrap() {
                0
            } else {
                pass["rows_in"].as_u64().unwrap() - pass["rows_kept"].as_u64().unwrap()
            }
        };
        call.summary()["passes"]
            .as_array()
            .unwrap()
            .iter()
            .map(read)
            .max()
            .unwrap()
    }

    /// Runs while all but some days of a directory cannot be read.
    fn run_without(
        &self,
        hidden: &[(&str, std::ops::Range<usize>)],
        more: &[&str],
    ) -> ProgramOutput {
        let shop = &self.0.shop;
        let files: Vec<_> = hidden
            .iter()
            .flat_map(|(directory, days)| {
                days.clone()
                    .map(|day| shop.path(directory).join(&self.0.days[day]))
            })
            .collect();
        let whole: Vec<_> = files
            .iter()
            .map(|file| (std::fs::read(file).unwrap(), modified(file)))
            .collect();
        for (file, (_, stamp)) in files.iter().zip(&whole) {
            crate::nights::changed_history::damage(file);
            set_modified(file, *stamp);
        }
        let args = [
            "run",
            "spec.yaml",
            "--json",
            "--param=out=out",
            "--state=state-out",
        ];
        let call = shop.forebay(&[&args, more].concat());
        for (file, (bytes, stamp)) in files.iter().zip(whole) {
            std::fs::write(file, bytes).unwrap();
            set_modified(file, stamp);
        }
        call
    }
}

fn modified(file: &Path) -> SystemTime {
    std::fs::metadata(file).unwrap().modified().unwrap()
}

fn set_modified(file: &Path, stamp: SystemTime) {
    std::fs::File::options()
        .write(true)
        .open(file)
        .unwrap()
        .set_modified(stamp)
        .unwrap();
}

#[test]
fn a_new_day_costs_the_rows_of_that_day() {
    for more in ["", WINDOWS] {
        let nights = JoinedNights::new(more);
        nights.show(0..30);
        assert_eq!(nights.run(&["--threads=2"]), nights.0.rows(0..30));
        for (day, threads) in [
            (30, "--threads=1"),
            (31, "--threads=2"),
            (32, "--threads=7"),
        ] {
            nights.show([day]);
            let read = nights.run(&[threads]);
            assert_eq!(read, nights.0.rows([day]), "day {day}");
        }
        assert_eq!(nights.run(&["--threads=2"]), 0, "nothing new");
        nights.show(33..36);
        assert_eq!(
            nights.run(&["--local-workers=2"]),
            nights.0.rows(33..36),
            "three more days on workers"
        );
        // Offers that come before demand does are no rows that demand has met.
        nights.offer(36);
        assert_eq!(nights.run(&["--threads=2"]), 0, "an offer of tomorrow");
        nights.show([36, 37]);
        assert_eq!(nights.run(&["--threads=2"]), nights.0.rows([36, 37]));
    }
}

#[test]
fn old_days_of_neither_side_are_read() {
    for workers in [None, Some("--local-workers=1")] {
        let nights = JoinedNights::new("");
        nights.show(0..30);
        let more: Vec<&str> = workers.into_iter().collect();
        nights.run(&more);
        nights.show([30]);
        // Offers of the last day are met anew: a row meets no offer of its own day where `exact` is false.
        let old = [("history", 0..30), ("offers", 0..29)];
        nights.run_without(&old, &more).expect(0);
        nights.run(&more);
        nights
            .0
            .shop
            .forebay(&["cache", "gc", "--older-than", "0s", "--state=state-out"])
            .expect(0);
        nights
            .0
            .shop
            .forebay(&["cache", "verify", "--state=state-out"])
            .expect(0);
        nights.show([31]);
        nights
            .run_without(&[("history", 0..31), ("offers", 0..30)], &more)
            .expect(0);
        nights.run(&more);
        // Without the kept rows all offers are read.
        std::fs::remove_dir_all(nights.0.shop.path("state-out/carries")).unwrap();
        nights.show([32]);
        nights.run_without(&[("offers", 3..4)], &more).expect(65);
        nights.run(&more);
    }
}

#[test]
fn restated_and_removed_days_give_the_rows_of_a_run_that_knows_nothing() {
    let nights = JoinedNights::new("");
    nights.show(0..36);
    nights.run(&["--threads=2"]);
    // A day of demand is met by the same offers: what is read are the rows of its shard.
    nights.0.restate(20);
    let read = nights.run(&["--threads=2"]);
    assert!(read > 0 && read < nights.0.rows(14..26), "{read} rows");
    // An offer may be met by all rows after it, and by none before it.
    restate(&nights, "offers", 30);
    let read = nights.run(&["--threads=2"]);
    assert!(
        read >= nights.0.rows(30..36) - 2 && read < nights.0.rows(22..36),
        "{read} rows"
    );
    nights.0.hide(0);
    let read = nights.run(&["--threads=2"]);
    assert!(read < nights.0.rows(0..8), "{read} rows");
    std::fs::remove_file(nights.0.shop.path("offers").join(&nights.0.days[34])).unwrap();
    let read = nights.run(&["--local-workers=2"]);
    assert!(
        read >= nights.0.rows([34, 35]) - 2 && read < nights.0.rows(26..36),
        "{read} rows"
    );
}

#[test]
fn rows_out_of_order_are_sorted() {
    for side in ["history", "offers"] {
        for more in [&["--threads=2"][..], &["--local-workers=2"]] {
            let nights = JoinedNights(JoinedNights::new("").0, true);
            nights.show(0..20);
            // The rows of two days in one file, the later ones first.
            let file = |day: usize| nights.0.shop.path(side).join(&nights.0.days[day]);
            let [first, second] = [10, 11].map(|day| crate::support::read_files(&[file(day)]));
            let both = arrow::compute::concat_batches(&first.schema(), [&second, &first]).unwrap();
            std::fs::remove_file(file(11)).unwrap();
            write(&file(10), &both);
            nights.run(more);
        }
    }
}

/// Workers that end while they take, read, write, and keep the rows that are held at the end: the last, if they do so.
#[test]
fn a_worker_that_is_killed_costs_only_what_it_was_doing() {
    for step in [
        "take a task",
        "read a span",
        "write a file of rows",
        "carries/",
    ] {
        let nights = JoinedNights::new("");
        nights.show(0..20);
        let shop = &nights.0.shop;
        let mut doomed = WorkerProcess::start(shop, &[], &[("FOREBAY_KILL_ON", step)]);
        let calm = WorkerProcess::start(shop, &[], &[]);
        nights.run(&[&workers_option(&[&doomed, &calm]), "--lease-seconds=5"]);
        let is_killed = doomed
            .child
            .try_wait()
            .unwrap()
            .and_then(|status| status.signal())
            == Some(9);
        assert!(is_killed || step == "carries/", "{step}: the worker lives");
        nights.show([20]);
        assert_eq!(nights.run(&["--threads=2"]), nights.0.rows([20]), "{step}");
    }
}

fn restate(nights: &JoinedNights, side: &str, day: usize) {
    let file = nights.0.shop.path(side).join(&nights.0.days[day]);
    let rows = crate::support::read_files(std::slice::from_ref(&file));
    write(&file, &rows.slice(0, rows.num_rows() - 1));
}

fn write(file: &Path, rows: &arrow::array::RecordBatch) {
    let file = std::fs::File::create(file).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}
