//! `dedupe` on workers: the rows of one process, whichever worker is lost, and a plan that says
//! where it runs.

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{WorkerProcess, events, workers_option};
use crate::workers::sql_queries::pass_lines;

/// Keys with few values and with many, whole rows, keys that are learned, rows of two streams, rows
/// of a query, and rows behind a window.
const STEPS: &str = r#"
version: 1
name: deduped
params: { out: { type: path } }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  first:
    from: demand
    do:
      - filter: "qty > 0"
      - dedupe: { keys: [store_id, category] }
  last:
    from: demand
    do:
      - dedupe: { keys: [category, date], keep: last }
  whole:
    from: demand
    do:
      - select: [store_id, category, qty]
      - dedupe: {}
  bucketed:
    from: demand
    do:
      - bucketize: { columns: [price], q: 4, suffix: _bucket }
      - dedupe: { keys: [price_bucket, store_id], keep: last }
  few: { from: demand, do: [ { filter: "qty < 5" } ] }
  many: { from: demand, do: [ { filter: "qty > 2" } ] }
  united:
    union: [few, many]
    do:
      - dedupe: { keys: [date, store_id, item_id], keep: last }
  queried: { sql: "SELECT store_id, item_id, qty FROM demand WHERE qty > 1" }
  of_query:
    from: queried
    do:
      - dedupe: { keys: [store_id, qty] }
  lagged:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d] }
      - dedupe: { keys: [store_id, qty_lag_1d], keep: last }
sinks:
"#;

const SINKS: [&str; 7] = [
    "first", "last", "whole", "bucketed", "united", "of_query", "lagged",
];

/// Bytes of a range: the history of these tests becomes many.
const RANGE_BYTES: &str = "4000";

fn shop(sinks: &[&str]) -> TestDirectory {
    let shop = TestDirectory::new();
    shop.demand("history", 97);
    let mut spec = STEPS.to_owned();
    for sink in sinks {
        let path = format!("\"${{out}}/{sink}\"");
        spec += &format!("  {sink}: {{ from: {sink}, parquet: {{ path: {path} }} }}\n");
    }
    shop.write("spec.yaml", &spec);
    shop
}

/// Runs the spec with ranges of this size, or of the usual one.
fn run(
    shop: &TestDirectory,
    name: &str,
    range_bytes: Option<&str>,
    args: &[&str],
) -> ProgramOutput {
    let out = format!("--param=out={name}");
    let state = format!("--state=state-{name}");
    let options = [
        "run",
        "spec.yaml",
        "--json",
        "--memory=512MiB",
        "--threads=2",
        &out,
        &state,
    ];
    let mut command = shop.command(&[&options[..], args].concat());
    if let Some(range_bytes) = range_bytes {
        command.env("FOREBAY_RANGE_BYTES", range_bytes);
    }
    command.watched().into()
}

fn rows(shop: &TestDirectory, name: &str, sinks: &[&str]) -> Vec<RecordBatch> {
    let mut rows = Vec::with_capacity(sinks.len());
    for sink in sinks {
        rows.push(shop.visible(&format!("{name}/{sink}")));
    }
    rows
}

/// The counts of rows of each output.
fn ledgers(call: &ProgramOutput) -> Vec<Vec<Value>> {
    let summary = call.summary();
    let mut ledgers = Vec::new();
    for output in summary["outputs"].as_array().unwrap() {
        let parts = [
            "rows_in",
            "rows_added",
            "rows_out",
            "rows_removed",
            "changes",
        ];
        ledgers.push(parts.map(|part| output[part].clone()).to_vec());
    }
    ledgers
}

/// True if the coordinator did again what workers could not do.
fn is_begun_again(call: &ProgramOutput) -> bool {
    let mut warnings = events(call, "warning");
    warnings.any(|warning| warning["message"].to_string().contains("the coordinator"))
}

/// True if a worker read rows in the gather of a step.
fn is_on_workers(call: &ProgramOutput, step: &str) -> bool {
    let lines = pass_lines(call, &format!("gather {step}"));
    assert!(!lines.is_empty(), "no pass of {step}");
    lines.iter().any(|line| line.contains("worker_moved"))
}

#[test]
fn kept_rows_are_the_same_on_any_number_of_workers() {
    let shop = shop(&SINKS);
    let here = run(&shop, "here", Some(RANGE_BYTES), &[]).expect(0);
    let expected = rows(&shop, "here", &SINKS);
    for ((sink, rows), ledger) in SINKS.iter().zip(&expected).zip(ledgers(&here)) {
        assert!(rows.num_rows() > 0, "{sink} has no rows to compare");
        let changes = ledger[4].to_string();
        assert!(
            changes.contains("duplicate"),
            "{sink} drops no row: {changes}"
        );
    }
    for count in [1, 3] {
        let name = format!("on{count}");
        let workers = format!("--local-workers={count}");
        let there = run(&shop, &name, Some(RANGE_BYTES), &[&workers]).expect(0);
        let found = rows(&shop, &name, &SINKS);
        for ((sink, found), expected) in SINKS.iter().zip(&found).zip(&expected) {
            assert!(found == expected, "{sink} on {count} workers");
        }
        assert_eq!(ledgers(&there), ledgers(&here), "{count} workers");
        assert_eq!(there.summary()["artifact"], here.summary()["artifact"]);
        assert!(!is_begun_again(&there), "{}", there.stdout);
        for step in ["first", "last", "whole", "bucketed", "united"] {
            assert!(is_on_workers(&there, step), "no worker deduplicated {step}");
        }
        // Windows need the rows before.
        assert!(!is_on_workers(&there, "lagged"));
        let exchanges = shop.path(&format!("state-{name}/exchanges"));
        let mut entries = exchanges.read_dir().into_iter().flatten();
        assert!(entries.next().is_none(), "an exchange is left");
    }
}

#[test]
fn few_rows_are_deduplicated_by_the_coordinator() {
    let sinks = ["first", "last"];
    let shop = shop(&sinks);
    run(&shop, "here", None, &[]).expect(0);
    let there = run(&shop, "there", None, &["--local-workers=2"]).expect(0);
    assert!(rows(&shop, "there", &sinks) == rows(&shop, "here", &sinks));
    for sink in sinks {
        assert!(!is_on_workers(&there, sink), "{sink}");
    }
}

/// Workers die while they divide keys, choose rows and read them.
#[test]
fn workers_that_die_in_a_dedupe_cost_only_their_tasks() {
    let sinks = ["last"];
    let shop = shop(&sinks);
    run(&shop, "here", Some(RANGE_BYTES), &[]).expect(0);
    let expected = rows(&shop, "here", &sinks);
    let calm = WorkerProcess::start(&shop, &[], &[]);
    for moment in [
        "/keys-",
        "/divided-",
        "/stays-",
        "/chosen-",
        "/rows-",
        "/filtered-",
    ] {
        let mut doomed = WorkerProcess::start(&shop, &[], &[("FOREBAY_KILL_ON", moment)]);
        let workers = workers_option(&[&doomed, &calm]);
        let name = format!("killed{}", moment.replace('/', "-"));
        let args = [workers.as_str(), "--lease-seconds=5"];
        let call = run(&shop, &name, Some(RANGE_BYTES), &args).expect(0);
        assert!(
            rows(&shop, &name, &sinks) == expected,
            "{moment}: other rows"
        );
        assert_eq!(doomed.end(), -9, "{moment}: the worker lives");
        let mut lost = events(&call, "worker_lost");
        assert!(
            lost.any(|event| event["worker"] == doomed.address),
            "{moment}: {}",
            call.stdout
        );
        assert!(!is_begun_again(&call), "{moment}: {}", call.stdout);
    }
}

/// The executor of the gather of each step, as `explain` says it.
fn executors(shop: &TestDirectory, range_bytes: Option<&str>, steps: &[&str]) -> Vec<String> {
    let mut command = shop.command(&["explain", "spec.yaml", "--param=out=out", "--json"]);
    if let Some(range_bytes) = range_bytes {
        command.env("FOREBAY_RANGE_BYTES", range_bytes);
    }
    let call = ProgramOutput::from(command.watched()).expect(0);
    let explained: Value = serde_json::from_str(&call.stdout).unwrap();
    let mut executors = Vec::new();
    for step in steps {
        let begin = format!("{step}.");
        let mut passes = explained["passes"].as_array().unwrap().iter();
        let pass = passes
            .find(|pass| {
                let gives = pass["gives"].as_str().unwrap_or_default();
                pass["work"] == "gather" && gives.starts_with(&begin)
            })
            .unwrap_or_else(|| panic!("no pass of {step}: {}", call.stdout));
        executors.push(pass["runs_on"].as_str().unwrap().to_owned());
    }
    executors
}

#[test]
fn explain_says_where_rows_are_deduplicated() {
    let shop = shop(&SINKS);
    let steps = ["first", "last", "united", "of_query", "lagged"];
    let in_order = "the coordinator, since windows read the rows in order";
    // The rows of a query are not known before it has run.
    let unknown = "workers, or the coordinator where the rows are few";
    assert_eq!(
        executors(&shop, Some(RANGE_BYTES), &steps),
        ["workers", "workers", "workers", unknown, in_order]
    );
    let few = "the coordinator, since the rows are few";
    assert_eq!(
        executors(&shop, None, &steps),
        [few, few, few, unknown, in_order]
    );
}
