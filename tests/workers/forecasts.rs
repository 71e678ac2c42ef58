//! Forecasts, predictions and applied artifacts on worker processes: the same bits as without them, also where workers
//! or the coordinator are killed.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{WorkerProcess, events, workers_option};

/// Bytes of a range: the days of these tests become many.
const RANGE_BYTES: &str = "2000";

const SPEC: &str = r#"
version: 1
name: forecasts
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - future_rows: { horizon: 7d, every: 1d, carry: [category] }
      - lag: { columns: [qty], by: [7d, 14d] }
      - rolling: { columns: [qty], compute: [mean], over: [14d], gap: 7d }
      - standardize: { columns: [qty_mean_14d] }
split: { train: "date < DATE '2016-05-08'", validation: "date >= DATE '2016-05-08'" }
label: { column: qty, horizon: 7d, known: [category, department, price, promotion, event] }
sinks:
  table: { from: features, parquet: { path: "${out}/table" } }
  trees:
    from: features
    train:
      path: "${out}/trees"
      model: gbdt
      rounds: 12
      leaves: 6
      min_leaf_rows: 5
      dense: [qty_lag_7d, qty_lag_14d, qty_mean_14d]
      categorical: []
      quantiles: [0.8, 0.82, 0.84]
  forecast: { from: features, predict: { model: trees, path: "${out}/forecast", min: 0.4, columns: [category] } }
"#;

/// Forty days of demand, with a model and a forecast that a run without workers made.
struct TrainedJob {
    shop: TestDirectory,
    rows: RecordBatch,
    summary: Value,
}

impl TrainedJob {
    fn new() -> TrainedJob {
        let shop = TestDirectory::new();
        shop.days("history");
        shop.write("spec.yaml", SPEC);
        let summary = run(&shop, "here", &[]).expect(0).summary();
        let rows = shop.rows("here/forecast");
        TrainedJob {
            shop,
            rows,
            summary,
        }
    }

    fn predict(&self, name: &str, more: &[&str]) -> Command {
        let output = format!("--output={name}/forecast");
        let state = format!("--state={name}/state");
        let args = [
            "predict",
            "here/trees",
            "--source=history",
            "--min=0.4",
            "--columns=category",
            &output,
            &state,
        ];
        self.command(&args, more)
    }

    fn apply(&self, name: &str, more: &[&str]) -> Command {
        let output = format!("--output={name}/table");
        let state = format!("--state={name}/state");
        let artifact = self.summary["artifact_path"].as_str().unwrap();
        self.command(
            &[
                "apply",
                artifact,
                "--source=history",
                "--sink=table",
                &output,
                &state,
            ],
            more,
        )
    }

    fn command(&self, args: &[&str], more: &[&str]) -> Command {
        let mut command = self
            .shop
            .command(&[args, &["--json", "--memory=256MiB", "--threads=2"], more].concat());
        command.env("FOREBAY_RANGE_BYTES", RANGE_BYTES);
        command
    }
}

fn run(shop: &TestDirectory, name: &str, more: &[&str]) -> ProgramOutput {
    let out = format!("--param=out={name}");
    let state = format!("--state={name}/state");
    let args = [
        "run",
        "spec.yaml",
        "--json",
        "--memory=256MiB",
        "--threads=2",
        &out,
        &state,
    ];
    shop.command(&[&args[..], more].concat())
        .env("FOREBAY_RANGE_BYTES", RANGE_BYTES)
        .watched()
        .into()
}

/// How many rows had predictions that were moved, and quantiles that were sorted.
fn moved(report: &Value) -> (u64, u64) {
    (
        report["clipped"].as_u64().unwrap_or(0),
        report["crossed"].as_u64().unwrap_or(0),
    )
}

fn call(mut command: Command) -> ProgramOutput {
    command.watched().into()
}

#[test]
fn forecasts_of_a_run_have_the_same_bits() {
    let job = TrainedJob::new();
    let expected = &job.summary["forecasts"][0];
    let (clipped, crossed) = moved(expected);
    assert!(clipped > 0 && crossed > 0, "{expected}");
    for count in [1, 3] {
        let name = format!("on{count}");
        let done = run(&job.shop, &name, &[&format!("--local-workers={count}")]).expect(0);
        assert!(
            job.shop.rows(&format!("{name}/forecast")) == job.rows,
            "{count} workers come to something else"
        );
        let forecast = &done.summary()["forecasts"][0];
        assert_eq!(
            (moved(forecast), &forecast["model"]),
            ((clipped, crossed), &expected["model"])
        );
        // The forecast is there already: what its predictions were is known all the same.
        let again = run(&job.shop, &name, &["--signal-nothing-new"])
            .expect(99)
            .summary();
        assert_eq!(moved(&again["forecasts"][0]), (clipped, crossed));
    }
    // As if time had come as far as a day of the past.
    let interval = ["--interval", "2016-04-20", "2016-05-17"];
    let here = run(&job.shop, "past", &interval).expect(0).summary();
    let there = run(
        &job.shop,
        "past-away",
        &[&["--local-workers=2"], &interval[..]].concat(),
    )
    .expect(0)
    .summary();
    assert!(job.shop.rows("past-away/forecast") == job.shop.rows("past/forecast"));
    assert_eq!(moved(&there["forecasts"][0]), moved(&here["forecasts"][0]));
}

/// The features of a model that stays in force are those of the artifact that it was trained with.
#[test]
fn a_model_in_force_forecasts_on_workers() {
    let shop = TestDirectory::new();
    let days = shop.days("all");
    std::fs::create_dir_all(shop.path("history")).unwrap();
    shop.write(
        "spec.yaml",
        &SPEC.replace("model: gbdt", "model: gbdt\n      refit: never"),
    );
    let calls: [(&str, &[&str]); 2] = [("here", &[]), ("there", &["--local-workers=2"])];
    let (last, first) = days.split_last().unwrap();
    let mut models = Vec::new();
    for shown in [first, std::slice::from_ref(last)] {
        for day in shown {
            let to = shop.path("history").join(day);
            std::fs::copy(shop.path("all").join(day), to).unwrap();
        }
        for (name, workers) in calls {
            let summary = run(&shop, name, workers).expect(0).summary();
            models.push(summary["forecasts"][0]["model"].clone());
        }
    }
    assert!(models.iter().all(|model| *model == models[0]), "{models:?}");
    assert!(shop.rows("there/forecast") == shop.rows("here/forecast"));
    assert!(shop.rows("there/table") == shop.rows("here/table"));
}

#[test]
fn predictions_and_applied_artifacts_have_the_same_bits() {
    let job = TrainedJob::new();
    let here = call(job.predict("by-hand", &[])).expect(0).summary();
    assert!(job.shop.rows("by-hand/forecast") == job.rows);
    let counts = moved(&here["outputs"][0]);
    assert_eq!(counts, moved(&job.summary["forecasts"][0]));
    call(job.apply("applied", &[])).expect(0);
    let table = job.shop.rows("applied/table");
    assert!(table.num_rows() > 0 && table == job.shop.rows("here/table"));
    let validated = call(job.predict("validated", &["--split=validation", "--columns=qty_lag_7d"]))
        .expect(0)
        .summary();
    for count in [1, 3] {
        let workers = format!("--local-workers={count}");
        let predicted = format!("predicted{count}");
        let applied = format!("applied{count}");
        let done = call(job.predict(&predicted, &[&workers])).expect(0);
        assert!(
            job.shop.rows(&format!("{predicted}/forecast")) == job.rows,
            "{count} workers come to something else"
        );
        assert_eq!(moved(&done.summary()["outputs"][0]), counts);
        assert!(
            events(&done, "worker_moved").count() > 0,
            "no worker did anything"
        );
        let done = call(job.apply(&applied, &[&workers])).expect(0);
        assert!(
            job.shop.rows(&format!("{applied}/table")) == table,
            "{count} workers come to something else"
        );
        assert!(
            events(&done, "worker_moved").count() > 0,
            "no worker did anything"
        );
        // Rows of the past, beside a column of theirs.
        let name = format!("validated{count}");
        let done = call(job.predict(
            &name,
            &["--split=validation", "--columns=qty_lag_7d", &workers],
        ))
        .expect(0);
        let rows = job.shop.rows(&format!("{name}/forecast"));
        assert!(rows.num_rows() > 0 && rows == job.shop.rows("validated/forecast"));
        assert_eq!(
            moved(&done.summary()["outputs"][0]),
            moved(&validated["outputs"][0])
        );
    }
}

#[test]
fn a_worker_that_dies_while_it_predicts_or_applies_costs_only_its_tasks() {
    let job = TrainedJob::new();
    let calm = WorkerProcess::start(&job.shop, &[], &[]);
    let attempt = |step: &str, command: &dyn Fn(&[&str]) -> Command| {
        let mut doomed = WorkerProcess::start(&job.shop, &[], &[("FOREBAY_KILL_ON", step)]);
        // The only worker dies, and the run ends so that it can go on: on another one.
        call(command(&[&workers_option(&[&doomed]), "--grace-seconds=1"])).expect(75);
        assert_eq!(doomed.end(), -9, "{step}: the worker lives");
        call(command(&[&workers_option(&[&calm])]))
            .expect(0)
            .summary()
    };
    for (number, step) in [
        "take a task",
        "read a span",
        "write a file of rows",
        "name ",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("predicted{number}");
        let summary = attempt(step, &|more| job.predict(&name, more));
        assert!(
            job.shop.rows(&format!("{name}/forecast")) == job.rows,
            "{step}: something else comes of it"
        );
        assert_eq!(
            moved(&summary["outputs"][0]),
            moved(&job.summary["forecasts"][0])
        );
        let name = format!("applied{number}");
        attempt(step, &|more| job.apply(&name, more));
        assert!(
            job.shop.rows(&format!("{name}/table")) == job.shop.rows("here/table"),
            "{step}"
        );
    }
}

#[test]
fn a_killed_coordinator_goes_on_predicting_and_applying() {
    let job = TrainedJob::new();
    let workers = [
        WorkerProcess::start(&job.shop, &[], &[]),
        WorkerProcess::start(&job.shop, &[], &[]),
    ];
    let workers = workers_option(&workers.iter().collect::<Vec<_>>());
    for kind in 0..2 {
        let command = |name: &str, more: &[&str]| {
            if kind == 0 {
                job.predict(name, more)
            } else {
                job.apply(name, more)
            }
        };
        let log = job.shop.at("steps");
        let mut logged = command(&format!("logged{kind}"), &[&workers]);
        logged.env("FOREBAY_KILL_LOG", &log);
        call(logged).expect(0);
        let steps = std::fs::read_to_string(&log).unwrap().lines().count();
        assert!(steps > 8, "{steps}");
        for moment in [steps / 4, steps / 2, 3 * steps / 4, steps - 3] {
            let name = format!("killed{kind}-{moment}");
            let killed = command(&name, &[&workers])
                .env("FOREBAY_KILL_AT", moment.to_string())
                .watched();
            assert_eq!(
                killed.status.signal(),
                Some(9),
                "{}",
                String::from_utf8_lossy(&killed.stderr)
            );
            let summary = call(command(&name, &[&workers])).expect(0).summary();
            match kind {
                0 => {
                    assert!(
                        job.shop.rows(&format!("{name}/forecast")) == job.rows,
                        "step {moment} of {steps}"
                    );
                    let moved_rows = moved(&summary["outputs"][0]);
                    let expected = moved(&job.summary["forecasts"][0]);
                    assert_eq!(moved_rows, expected, "step {moment} of {steps}: {summary}");
                }
                _ => {
                    assert!(job.shop.rows(&format!("{name}/table")) == job.shop.rows("here/table"))
                }
            }
        }
    }
}
