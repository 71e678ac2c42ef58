//! Runs end, whatever happens in a thread: one that goes on alone, and one that panics.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{DataType, Field};
use forebay::model::{Analyzer, AnalyzerInput, Finding, ScratchSpace};
use forebay::plan::{AnalyzerRequest, BindScope, LoweredMap, MapOp, PlanOp};
use forebay::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::nights::changed_history::NightlyFixture;
use crate::nights::intervals::day;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::WorkerProcess;

/// How long a run may take after a panic, however slow the machine is.
const SECONDS: Duration = Duration::from_secs(60);

/// Files of an output's shards, in order of their rows.
fn shards(nights: &NightlyFixture, out: &str) -> Vec<PathBuf> {
    let root = nights.shop.root(out);
    let manifest = std::fs::read(root.join("_manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let path = |shard: &Value| root.join(shard["files"][0]["path"].as_str().unwrap());
    manifest["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(path)
        .collect()
}

#[test]
fn shards_that_are_lost_here_and_there_are_made_again() {
    // Windows remember all rows, so that what lies between the lost shards has to be known, too.
    let nights = NightlyFixture::new(true);
    (0..40).for_each(|day| nights.show(day));
    let run = |threads: usize| {
        let args = [
            "run",
            "spec.yaml",
            "--json",
            &format!("--threads={threads}"),
            "--state=state",
        ];
        nights
            .shop
            .command(&args)
            .env("FOREBAY_RANGE_BYTES", "1000")
            .watched()
    };
    let summary = ProgramOutput::from(run(2)).expect(0).summary();
    let rows = nights.shop.visible("out");
    for (threads, lost) in [(1, &[2, 4, 7][..]), (2, &[1, 3, 5, 8]), (3, &[0, 2, 9])] {
        let files = shards(&nights, "out");
        assert!(files.len() > 9, "{} shards", files.len());
        lost.iter()
            .for_each(|shard| std::fs::remove_file(&files[*shard]).unwrap());
        let again = ProgramOutput::from(run(threads)).expect(0).summary();
        assert_eq!(again["artifact"], summary["artifact"]);
        assert!(
            nights.shop.visible("out") == rows,
            "{threads} threads, {lost:?} lost: other rows"
        );
    }
}

/// A count of rows that panics.
#[derive(Debug, Clone, Copy)]
struct PanickingAnalyzer;

impl Analyzer for PanickingAnalyzer {
    type State = u64;

    fn kind(&self) -> &'static str {
        "test.panics"
    }

    fn config(&self) -> Value {
        json!({})
    }

    fn zero(&self, _: &std::sync::Arc<dyn ScratchSpace>) -> Result<u64> {
        Ok(0)
    }

    fn update(&self, _: &mut u64, _: &AnalyzerInput<'_>) -> Result<()> {
        panic!("an analyzer that panics")
    }

    fn merge(&self, state: &mut u64, later: u64) -> Result<()> {
        *state += later;
        Ok(())
    }

    fn encode(&self, state: &mut u64, out: &mut dyn std::io::Write) -> Result<()> {
        forebay::model::StateEncoder(out).varint(*state)
    }

    fn decode(
        &self,
        input: &mut dyn std::io::Read,
        _: &std::sync::Arc<dyn ScratchSpace>,
    ) -> Result<u64> {
        forebay::model::StateDecoder(input).varint()
    }

    fn finish(&self, state: u64) -> Result<Finding> {
        Finding::of([(
            "count",
            std::sync::Arc::new(UInt64Array::from(vec![state])) as ArrayRef,
        )])
    }

    fn size_bytes(&self, _: &u64) -> usize {
        8
    }

    fn size_bytes_max(&self, _: usize) -> usize {
        8
    }
}

/// A step that panics: its kernel, or its analyzer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PanickingTransform {
    /// Whether the analyzer does.
    learns: bool,
}

impl ConfiguredTransform for PanickingTransform {
    const NAME: &'static str = "panicking";
}

impl Transform for PanickingTransform {
    fn bind(&self, _: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let output = Field::new("qty", DataType::Int64, true);
        Ok(vec![PlanOp::Map(if self.learns {
            MapOp::fitted(
                ["qty"],
                [output],
                [AnalyzerRequest::new(PanickingAnalyzer, ["qty"])],
                |_| Ok(LoweredMap::unary(|column| Ok(column.clone()))),
            )
        } else {
            MapOp::fitted(["qty"], [output], [], |_| {
                Ok(LoweredMap::unary(|_| panic!("a kernel that panics")))
            })
        })])
    }
}

/// Does something that ends with a fault, and not too late.
fn fault_of(what: &str, run: impl FnOnce() -> Result<RunReport> + Send + 'static) -> Fault {
    let (tell, told) = std::sync::mpsc::channel();
    // Where it never ends, the thread is left behind, and the test fails all the same.
    std::thread::spawn(move || drop(tell.send(run().map_err(Box::new))));
    told.recv_timeout(SECONDS)
        .unwrap_or_else(|_| panic!("{what} does not end"))
        .map_or_else(|fault| *fault, |_| panic!("{what} does not fail"))
}

#[test]
fn a_step_that_panics_is_a_fault_with_its_place() {
    let shop = TestDirectory::new();
    shop.days("history");
    let lag = "lag: { columns: [qty], by: [1d] }";
    let cases = [
        // In any order, in order, and while it is learned.
        (
            "cases",
            vec!["panicking: { learns: false }"],
            "a kernel that panics",
        ),
        (
            "windows",
            vec!["panicking: { learns: false }", lag],
            "a kernel that panics",
        ),
        (
            "learning",
            vec!["panicking: { learns: true }"],
            "an analyzer that panics",
        ),
        (
            "gathered",
            vec![
                "panicking: { learns: false }",
                "dedupe: { keys: [item_id] }",
            ],
            "a kernel that panics",
        ),
    ];
    for (name, steps, message) in cases {
        let root = shop.at("");
        let steps: String = steps
            .iter()
            .map(|step| format!("      - {step}\n"))
            .collect();
        let text = format!(
            "version: 1\nname: {name}\nsources:\n  demand:\n    parquet: {{ path: {root}/history }}\n    time: date\n    \
             keys: [store_id, item_id]\nsteps:\n  features:\n    from: demand\n    do:\n{steps}sinks:\n  table: {{ from: \
             features, parquet: {{ path: {root}/{name} }} }}\n"
        );
        let fault = fault_of(name, move || {
            let mut forebay = Forebay::new();
            forebay.registry.register::<PanickingTransform>();
            let pipeline = forebay::spec::parse(
                &text,
                "spec.yaml",
                &Default::default(),
                &forebay.spec_catalog(),
            )?;
            let state = format!("{root}/state");
            let options = SessionOptions {
                threads: 3,
                memory_bytes: 1 << 30,
                batch_rows: 100,
                state,
                run_id: None,
            };
            forebay.with_options(options).session()?.run(&pipeline)
        });
        let site = fault.site();
        assert_eq!(
            (fault.code().name, fault.code().exit_code()),
            ("FB0901", 70),
            "{name}: {fault:?}"
        );
        assert!(fault.message().contains(message), "{name}: {fault:?}");
        assert!(
            site.step
                .as_ref()
                .is_some_and(|step| step.contains("panicking")),
            "{name}: {fault:?}"
        );
        assert!(
            site.file
                .as_ref()
                .is_some_and(|file| file.contains("history")),
            "{name}: {fault:?}"
        );
        let rows = fault.notes().iter().any(|note| note.contains("rows 0 to"));
        assert!(
            rows || message.starts_with("an analyzer"),
            "{name}: {fault:?}"
        );
    }
}

/// What a run comes to that panics at a fail point; it has to end soon.
#[track_caller]
fn run_with_panic(command: &mut Command) -> ProgramOutput {
    let begun = Instant::now();
    let output: Output = command.env("FOREBAY_KILL_WITH", "panic").watched();
    assert!(begun.elapsed() < SECONDS, "it took {:?}", begun.elapsed());
    let call = ProgramOutput::from(output).expect(70);
    assert!(
        call.stderr
            .contains("the program panicked: the fail point at"),
        "{}",
        call.stderr
    );
    call
}

#[test]
fn an_interval_that_panics_stops_those_after_it() {
    let nights = NightlyFixture::new(true);
    (0..19).for_each(|day| nights.show(day));
    let from = day(&nights, 12);
    let to = day(&nights, 18);
    let args = [
        "backfill",
        "spec.yaml",
        "--from",
        &from,
        "--to",
        &to,
        "--threads=3",
        "--beside=3",
        "--state=state",
    ];
    let forget = || {
        nights.shop.remove_output("out");
        std::fs::remove_dir_all(nights.shop.path("state")).unwrap();
    };
    let log = nights.shop.path("steps");
    ProgramOutput::from(
        nights
            .shop
            .command(&args)
            .env("FOREBAY_KILL_LOG", &log)
            .watched(),
    )
    .expect(0);
    let steps = std::fs::read_to_string(&log).unwrap().lines().count();
    // The first interval goes alone; these moments come while others are side by side.
    for moment in [steps / 2, steps * 3 / 4] {
        forget();
        run_with_panic(
            nights
                .shop
                .command(&args)
                .env("FOREBAY_KILL_AT", moment.to_string()),
        );
        // What is committed stays, and the same command goes on.
        ProgramOutput::from(nights.shop.command(&args).watched()).expect(0);
    }
}

#[test]
fn a_panic_in_a_workers_task_ends_the_run() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let spec = crate::support::ready_made("demand.yaml");
    for (name, at) in [("task", "take a task"), ("rows", days[3].as_str())] {
        let envs = [("FOREBAY_KILL_ON", at), ("FOREBAY_KILL_WITH", "panic")];
        let mut worker = WorkerProcess::start(&shop, &[], &envs);
        let at = format!("--workers={}", worker.address);
        let out = format!("--param=out={name}/out");
        let state = format!("--state={name}/state");
        let args = [
            "run",
            &spec,
            "--param=history=history",
            &out,
            &state,
            "--threads=2",
            "--memory=256MiB",
            &at,
        ];
        let begun = Instant::now();
        let call = ProgramOutput::from(
            shop.command(&args)
                .env("FOREBAY_RANGE_BYTES", "2000")
                .watched(),
        )
        .expect(70);
        assert!(begun.elapsed() < SECONDS, "it took {:?}", begun.elapsed());
        assert!(
            call.stderr.contains("the fail point at") && call.stderr.contains(&worker.address),
            "{}",
            call.stderr
        );
        // The worker goes on to serve others.
        ProgramOutput::from(shop.command(&args).watched()).expect(0);
        worker.signal("-TERM");
        assert_eq!(worker.end(), 0);
    }
}

#[test]
fn a_panic_while_rows_are_read_ends_the_run() {
    let nights = NightlyFixture::new(false);
    (0..30).for_each(|day| nights.show(day));
    for threads in [1, 2, 4] {
        let threads = format!("--threads={threads}");
        let args = ["run", "spec.yaml", &threads, "--state=state"];
        let call = run_with_panic(
            nights
                .shop
                .command(&args)
                .env("FOREBAY_RANGE_BYTES", "1000")
                .env("FOREBAY_KILL_ON", &nights.days[20]),
        );
        assert!(call.stderr.contains(&nights.days[20]), "{}", call.stderr);
    }
}
