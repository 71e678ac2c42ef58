//! Runs on worker processes: the same bits as without them, and workers that die, stall, leave and come.
//!
//! The quick form kills one worker at a few kinds of step. The long one does everything (kills, stalls, cut
//! connections, kills of the coordinator) at as many random steps, too, and counts 1, 2, 3 and 5 workers:
//!
//! ```text
//! FOREBAY_KILLS=20 cargo test -p forebay --test forebay workers::runs::
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use forebay_generate::{ClicksOptions, clicks};
use serde_json::Value;

use crate::support::s3_server::S3Server;
use crate::support::series::{self, FileOrder};
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, content, ready_made, real_data};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes of a range: the days of these tests become many.
const RANGE_BYTES: &str = "2000";

/// A worker process; it ends with the test.
pub(crate) struct WorkerProcess {
    pub child: Child,
    pub address: String,
    /// Where its token lies, if it was not told of another one.
    pub token: std::path::PathBuf,
}

impl WorkerProcess {
    pub fn start(shop: &TestDirectory, args: &[&str], envs: &[(&str, &str)]) -> WorkerProcess {
        let mut command = shop.command(&[
            "worker",
            "--listen=127.0.0.1:0",
            "--threads=1",
            "--memory=128MiB",
        ]);
        command
            .args(args)
            .envs(envs.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        WorkerProcess::of(command)
    }

    pub fn of(mut command: Command) -> WorkerProcess {
        let user = command
            .get_envs()
            .find(|(name, _)| *name == "XDG_STATE_HOME")
            .and_then(|(_, value)| value);
        let token = user
            .map(|user| std::path::Path::new(user).join("forebay/token"))
            .unwrap_or_default();
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening at ")
            .unwrap()
            .to_owned();
        WorkerProcess {
            child,
            address,
            token,
        }
    }

    pub fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill")
                .args([signal, &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Whether it was sent to sleep.
    pub fn is_stopped(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        status
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('T')
    }

    /// Waits for its end; gives its exit code, or the signal that ended it as a negative number.
    pub fn end(&mut self) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or_else(|| -status.signal().unwrap());
            }
            assert!(begin.elapsed() < PATIENCE, "the worker does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job on some days of demand: windows, statistics over them, features.
struct DemandJob {
    shop: TestDirectory,
}

/// What a run comes to.
#[derive(PartialEq)]
struct DemandResult {
    rows: RecordBatch,
    artifact: Vec<(String, Vec<u8>)>,
}

impl DemandJob {
    fn new() -> DemandJob {
        let shop = TestDirectory::new();
        shop.days("history");
        DemandJob { shop }
    }

    fn command(&self, name: &str, args: &[&str]) -> Command {
        let params = [
            "--param=history=history".to_owned(),
            format!("--param=out={name}/out"),
        ];
        let spec = ready_made("demand.yaml");
        let mut command =
            self.shop
                .command(&["run", &spec, "--json", "--memory=256MiB", "--threads=2"]);
        command
            .args(params)
            .arg(format!("--state={name}/state"))
            .args(args)
            .env("FOREBAY_RANGE_BYTES", RANGE_BYTES);
        command
    }

    fn run(&self, name: &str, args: &[&str]) -> ProgramOutput {
        self.command(name, args).watched().into()
    }

    fn on(&self, name: &str, workers: &[&WorkerProcess], args: &[&str]) -> ProgramOutput {
        self.run(
            name,
            &[
                &[workers_option(workers).as_str(), "--lease-seconds=5"],
                args,
            ]
            .concat(),
        )
    }

    fn result(&self, name: &str, call: &ProgramOutput) -> DemandResult {
        demand_result(&self.shop, &format!("{name}/out"), call)
    }

    /// What it comes to without workers.
    fn expected(&self) -> DemandResult {
        let call = self.run("here", &[]).expect(0);
        self.result("here", &call)
    }

    fn worker(&self, envs: &[(&str, &str)]) -> WorkerProcess {
        WorkerProcess::start(&self.shop, &[], envs)
    }
}

fn demand_result(shop: &TestDirectory, out: &str, call: &ProgramOutput) -> DemandResult {
    let summary = call.summary();
    let path = summary["artifact_path"]
        .as_str()
        .unwrap_or_else(|| panic!("{}\n{}", call.stdout, call.stderr));
    DemandResult {
        rows: shop.visible(out),
        artifact: content(&shop.path(path)),
    }
}

pub(crate) fn workers_option(workers: &[&WorkerProcess]) -> String {
    let addresses: Vec<&str> = workers
        .iter()
        .map(|worker| worker.address.as_str())
        .collect();
    format!("--workers={}", addresses.join(","))
}

pub(crate) fn events<'c>(
    call: &'c ProgramOutput,
    kind: &'c str,
) -> impl Iterator<Item = Value> + 'c {
    let lines = call
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(move |event| event["event"] == kind)
}

fn long_form_kills() -> Option<u64> {
    std::env::var("FOREBAY_KILLS").ok()?.parse().ok()
}

/// In the long form: random moments among the first so many steps.
fn random_kill_moments(steps: usize) -> impl Iterator<Item = (&'static str, String)> {
    let moments =
        (0..long_form_kills().unwrap_or(0)).map(move |seed| (seed as usize * 7919 + 1) % steps);
    moments.map(|moment| ("FOREBAY_KILL_AT", moment.to_string()))
}

/// Runs a ready-made spec with and without workers.
fn same_bits(shop: &TestDirectory, spec: &str, param: &str, path: &str) {
    let spec = ready_made(spec);
    let mut expected = None;
    let counts: &[usize] = if long_form_kills().is_some() {
        &[0, 1, 2, 3, 5]
    } else {
        &[0, 1, 3]
    };
    for count in counts {
        let out = format!("out{count}");
        let state = format!("--state=state{count}");
        let input = format!("--param={param}={path}");
        let output = format!("--param=out={out}");
        let workers = format!("--local-workers={count}");
        let args = [
            "run",
            &spec,
            "--json",
            "--memory=512MiB",
            &input,
            &output,
            &state,
            "--threads=2",
        ];
        let workers: &[&str] = if *count > 0 { &[&workers] } else { &[] };
        let mut command = shop.command(&[&args[..], workers].concat());
        let call: ProgramOutput = command
            .env("FOREBAY_RANGE_BYTES", RANGE_BYTES)
            .watched()
            .into();
        let call = call.expect(0);
        let found = demand_result(shop, &out, &call);
        assert_eq!(events(&call, "worker_joined").count(), *count);
        match &expected {
            None => expected = Some(found),
            Some(expected) => {
                assert!(*expected == found, "{count} workers come to something else");
                assert!(
                    events(&call, "worker_moved").count() > 0,
                    "no worker did anything"
                );
            }
        }
    }
}

#[test]
fn demand_has_the_same_bits() {
    let shop = TestDirectory::new();
    let history = shop.demand("history", 97);
    same_bits(&shop, "demand.yaml", "history", &history);
}

#[test]
fn clicks_have_the_same_bits() {
    let shop = TestDirectory::new();
    let log = shop.clicks("log", 330);
    same_bits(&shop, "clicks.yaml", "log", &log);
}

/// States that are too large for one to merge are merged by all, share by share: of a log, whose states serve
/// this run alone, and of a history, whose states the next night finds in shares, or reads beside whole ones.
#[test]
fn large_vocabularies_are_merged_by_workers() {
    let shop = TestDirectory::new();
    // Enough files for several spans: a worker that reads all of a lane finalises the answer and merges nothing.
    let mut options = ClicksOptions::new(6000, 7, shop.path("log"));
    options.rows_per_file = 60;
    clicks(&options, &mut |_| {}).unwrap();
    let log = shop.at("log");
    let shared = |name: &str| {
        let partials = std::fs::read_dir(shop.path(&format!("{name}/state/partials")))
            .into_iter()
            .flatten();
        partials
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .ends_with(".shares")
            })
            .count()
    };
    let command = |spec: &str, params: &[String], name: &str, divided: &str, more: &[&str]| {
        let out = format!("--param=out={name}/out");
        let state = format!("--state={name}/state");
        let spec = ready_made(spec);
        let mut command = shop.command(&[
            "run",
            &spec,
            "--json",
            "--memory=512MiB",
            "--threads=2",
            &out,
            &state,
        ]);
        command
            .args(params)
            .args(more)
            .env("FOREBAY_RANGE_BYTES", RANGE_BYTES)
            .env("FOREBAY_DIVIDED_BYTES", divided);
        command
    };
    let run = |spec: &str, params: &[String], name: &str, divided: &str, more: &[&str]| {
        let call: ProgramOutput = command(spec, params, name, divided, more).watched().into();
        demand_result(&shop, &format!("{name}/out"), &call.expect(0))
    };
    let params = [format!("--param=log={log}")];
    let expected = run("clicks.yaml", &params, "here", "0", &[]);
    assert!(
        run(
            "clicks.yaml",
            &params,
            "log-away",
            "0",
            &["--local-workers=2"]
        ) == expected
    );
    assert!(shared("here") == 0 && shared("log-away") > 0);
    let left = std::fs::read_dir(shop.path("log-away/state/exchanges"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "what served the run alone is gone");
    // Some in shares and some whole.
    assert!(
        run(
            "clicks.yaml",
            &params,
            "mixed",
            "900",
            &["--local-workers=3"]
        ) == expected
    );

    shop.days("history");
    let params = ["--param=history=history".to_owned()];
    let expected = run("demand.yaml", &params, "here-too", "0", &[]);
    assert!(
        run(
            "demand.yaml",
            &params,
            "history-away",
            "0",
            &["--local-workers=2"]
        ) == expected
    );
    assert!(shared("history-away") > 0);
    // Where there are many units, runs of whole states are merged into shares first.
    let in_runs = |spec: &str, params: &[String], name: &str| {
        let mut command = command(spec, params, name, "0", &["--local-workers=2"]);
        let call: ProgramOutput = command
            .env("FOREBAY_SOURCES_PER_MERGE", "2")
            .watched()
            .into();
        demand_result(&shop, &format!("{name}/out"), &call.expect(0))
    };
    assert!(in_runs("demand.yaml", &params, "history-in-runs") == expected);
    assert!(
        (1..shared("history-away")).contains(&shared("history-in-runs")),
        "fewer states lie in shares"
    );
    // The next night merges shares and states that are whole, with workers and without.
    let days: Vec<_> = std::fs::read_dir(shop.path("history"))
        .unwrap()
        .map(|day| day.unwrap().path())
        .collect();
    std::fs::remove_file(days.iter().max().unwrap()).unwrap();
    let expected = run("demand.yaml", &params, "fewer", "0", &[]);
    let verify = || shop.forebay(&["cache", "verify", "--state=history-away/state"]);
    verify().expect(0);
    assert!(
        run(
            "demand.yaml",
            &params,
            "history-away",
            "0",
            &["--local-workers=1"]
        ) == expected
    );
    let again = run("demand.yaml", &params, "history-away", "0", &[]);
    assert!(again == expected);
    verify().expect(0);
}

#[test]
fn flights_and_taxi_have_the_same_bits() {
    let Some(data) = real_data("flights") else {
        return;
    };
    let shop = TestDirectory::new();
    same_bits(&shop, "flights.yaml", "data", &data.display().to_string());
    let shop = TestDirectory::new();
    same_bits(&shop, "taxi.yaml", "data", &data.display().to_string());
}

/// A run over rows in no order on so many workers, and what a worker died of, if one did.
fn shuffled(
    shop: &TestDirectory,
    name: &str,
    sinks: &[&str],
    params: &[&str],
    workers: &[&str],
) -> (Vec<RecordBatch>, ProgramOutput) {
    let out = format!("--param=out={name}");
    let state = format!("--state=state-{name}");
    let args = [
        "run",
        "spec.yaml",
        "--json",
        "--memory=512MiB",
        "--threads=2",
        &out,
        &state,
    ];
    let mut command = shop.command(&[&args[..], params, workers].concat());
    let call: ProgramOutput = command.env("FOREBAY_RANGE_BYTES", "4000").watched().into();
    let call = call.expect(0);
    (
        sinks
            .iter()
            .map(|sink| shop.visible(&format!("{name}/{sink}")))
            .collect(),
        call,
    )
}

/// Windows over rows in no order, one over the other: workers divide the rows by their keys.
#[test]
fn unordered_rows_are_shuffled() {
    let shop = crate::steps::windows::workshop(crate::steps::windows::SPEC);
    let data = series::write_in_order(
        &shop,
        "data",
        &series::demand(11, 60),
        FileOrder::Shuffled,
        7,
        37,
    );
    let params = format!("--param=data={data}");
    let sinks = ["table", "both"];
    let (expected, _) = shuffled(&shop, "here", &sinks, &[&params], &[]);
    for count in ["1", "3"] {
        let workers = format!("--local-workers={count}");
        let (found, call) = shuffled(
            &shop,
            &format!("on{count}"),
            &sinks,
            &[&params],
            &[&workers],
        );
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(
                (found.num_rows(), found.schema()),
                (expected.num_rows(), expected.schema())
            );
            let fields = found.schema().fields().clone();
            let columns = fields
                .iter()
                .zip(found.columns().iter().zip(expected.columns()));
            let other: Vec<&String> = columns
                .filter(|(_, (found, expected))| found != expected)
                .map(|(field, _)| field.name())
                .collect();
            assert!(
                other.is_empty(),
                "{count} workers come to something else in {other:?}"
            );
        }
        let written = events(&call, "worker_moved").count();
        assert!(written > 0, "no worker did anything");
        assert!(
            !shop
                .path(&format!("state-on{count}/exchanges"))
                .read_dir()
                .is_ok_and(|mut dir| dir.next().is_some())
        );
    }
}

/// Windows over rows in no order, and statistics of them.
const SORTED_STATISTICS: &str = r#"
version: 1
name: sorted
params: { data: { type: path }, out: { type: path } }
sources:
  demand: { parquet: { path: "${data}" }, time: day, keys: [store, item], duplicates: allow }
steps:
  features:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 1d }
      - standardize: { columns: [qty_lag_7d, qty_mean_7d] }
      - bucketize: { columns: [qty_lag_1d], q: 4 }
sinks:
  table: { from: features, parquet: { path: "${out}/table" } }
"#;

#[test]
fn statistics_of_sorted_rows_are_learned_by_workers() {
    let shop = TestDirectory::new();
    shop.write("spec.yaml", SORTED_STATISTICS);
    let rows = series::demand(11, 60);
    let data = series::write_in_order(&shop, "data", &rows, FileOrder::Shuffled, 7, 37);
    let params = format!("--param=data={data}");
    let (expected, here) = shuffled(&shop, "here", &["table"], &[&params], &[]);
    let logs = ["steps-0", "steps-1"];
    let start =
        |log: &&str| WorkerProcess::start(&shop, &[], &[("FOREBAY_KILL_LOG", &shop.at(log))]);
    let workers: Vec<WorkerProcess> = logs.iter().map(start).collect();
    let workers = workers_option(&workers.iter().collect::<Vec<_>>());
    let (rows, there) = shuffled(&shop, "there", &["table"], &[&params], &[&workers]);
    assert_eq!(there.summary()["artifact"], here.summary()["artifact"]);
    assert!(rows == expected, "workers come to something else");
    let mut learned = 0;
    for log in logs {
        let log = std::fs::read_to_string(shop.path(log)).unwrap();
        learned += log.matches("have read a span").count();
    }
    assert!(learned > 0, "no worker learned: {}", there.stdout);
}

/// The same of as-of joins; workers die while they divide, compute and put back.
#[test]
fn workers_that_die_in_a_shuffle_cost_only_their_share() {
    let shop = TestDirectory::new();
    let spec = crate::steps::as_of_joins::SPEC.replace("path: out", "path: \"${out}/table\"");
    shop.write(
        "spec.yaml",
        &spec.replace("params: { ", "params: { out: { type: path }, "),
    );
    let here = series::write_in_order(
        &shop,
        "here",
        &series::demand(21, 40),
        FileOrder::Shuffled,
        7,
        50,
    );
    let there = series::demand(22, 40);
    let late = series::table(&there, 0);
    let day = late.column_by_name("day").unwrap().clone();
    let there = series::write(
        &shop,
        "there",
        &crate::steps::as_of_joins::with_column(late, "known", day),
        5,
        50,
    );
    let params = [
        format!("--param=here={here}"),
        format!("--param=there={there}"),
    ];
    let params: Vec<&str> = params.iter().map(String::as_str).collect();
    let (expected, _) = shuffled(&shop, "expected", &["table"], &params, &[]);
    let calm = WorkerProcess::start(&shop, &[], &[]);
    let kinds = [
        "rows-1-",
        "divided-",
        "out-1-",
        "computed-",
        "write a file of rows",
    ];
    let kinds = kinds.map(|kind| ("FOREBAY_KILL_ON", kind.to_owned()));
    for (number, (how, step)) in kinds
        .iter()
        .cloned()
        .chain(random_kill_moments(400))
        .enumerate()
    {
        let mut doomed = WorkerProcess::start(&shop, &[], &[(how, &step)]);
        let workers = [
            workers_option(&[&doomed, &calm]),
            "--lease-seconds=5".to_owned(),
        ];
        let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
        let (found, _) = shuffled(
            &shop,
            &format!("killed{number}"),
            &["table"],
            &params,
            &workers,
        );
        assert!(found == expected, "{step}: something else comes of it");
        let fired = doomed
            .child
            .try_wait()
            .unwrap()
            .and_then(|status| status.signal());
        assert!(
            fired == Some(9) || number >= kinds.len(),
            "{step}: the worker lives"
        );
    }
}

/// A worker that ends at a step of its own, beside one that does not.
#[test]
fn a_worker_that_is_killed_costs_only_what_it_was_doing() {
    let job = DemandJob::new();
    let expected = job.expected();
    let log = job.shop.at("steps");
    let calm = job.worker(&[("FOREBAY_KILL_LOG", &log)]);
    let call = job.on("calm", &[&calm], &[]).expect(0);
    assert!(job.result("calm", &call) == expected);
    let steps = std::fs::read_to_string(&log).unwrap().lines().count();
    let kinds = [
        "take a task",
        "read a span",
        "have read a span",
        "write a file of rows",
        "name ",
        "put ",
    ];
    let kinds = kinds.map(|kind| ("FOREBAY_KILL_ON", kind.to_owned()));
    // Both do about half of it.
    for (number, (how, step)) in kinds
        .iter()
        .cloned()
        .chain(random_kill_moments(steps / 2))
        .enumerate()
    {
        let name = format!("killed{number}");
        let mut doomed = job.worker(&[(how, &step)]);
        let call = job.on(&name, &[&doomed, &calm], &[]).expect(0);
        assert!(
            job.result(&name, &call) == expected,
            "{step}: something else comes of it"
        );
        let fired = doomed
            .child
            .try_wait()
            .unwrap()
            .and_then(|status| status.signal());
        // At random steps it may have had less to do.
        assert!(
            fired == Some(9) || number >= kinds.len(),
            "{step}: the worker lives"
        );
        if fired.is_some() {
            let lost: Vec<Value> = events(&call, "worker_lost").collect();
            assert!(
                lost.iter().any(|event| event["worker"] == doomed.address),
                "{step}: {lost:?}"
            );
        }
        std::fs::remove_dir_all(job.shop.path(&name)).unwrap();
    }
}

/// States that are large together and cannot be divided are merged by workers, run by run.
#[test]
fn workers_merge_runs_of_states() {
    let job = DemandJob::new();
    let expected = job.expected();
    let calm = job.worker(&[]);
    let mut doomed = job.worker(&[("FOREBAY_KILL_ON", "merge runs of states")]);
    let mut command = job.command(
        "merged",
        &[&workers_option(&[&doomed, &calm]), "--lease-seconds=5"],
    );
    command
        .env("FOREBAY_DIVIDED_BYTES", "1")
        .env("FOREBAY_SOURCES_PER_MERGE", "2");
    let call: ProgramOutput = command.watched().into();
    let call = call.expect(0);
    assert!(job.result("merged", &call) == expected);
    assert_eq!(
        doomed
            .child
            .try_wait()
            .unwrap()
            .and_then(|status| status.signal()),
        Some(9),
        "nothing was merged"
    );
    // The next night finds the states of the runs.
    let days: Vec<_> = std::fs::read_dir(job.shop.path("history"))
        .unwrap()
        .map(|day| day.unwrap().path())
        .collect();
    std::fs::remove_file(days.iter().max().unwrap()).unwrap();
    let fewer = job.run("fewer", &[]).expect(0);
    let night = job.run("merged", &[]).expect(0);
    assert!(job.result("merged", &night) == job.result("fewer", &fewer));
    assert!(night.summary()["passes"][0]["rows_kept"].as_u64().unwrap() > 0);
}

/// Intervals, and what a later night goes on from, are those of runs without workers.
#[test]
fn intervals_and_nights_are_those_of_runs_without_workers() {
    let job = DemandJob::new();
    let interval = ["--interval", "2016-05-10", "2016-05-20"];
    let here = job.run("here", &interval).expect(0);
    let there = job
        .run("there", &[&["--local-workers=2"], &interval[..]].concat())
        .expect(0);
    assert!(job.result("there", &there) == job.result("here", &here));
    assert!(events(&there, "worker_moved").count() > 0);
    // The next interval finds what workers kept.
    let interval = ["--interval", "2016-05-20", "2016-05-22"];
    let here = job.run("here", &interval).expect(0);
    let there = job.run("there", &interval).expect(0);
    assert!(job.result("there", &there) == job.result("here", &here));
    let kept = |call: &ProgramOutput| call.summary()["passes"][0]["rows_kept"].clone();
    assert_eq!(kept(&there), kept(&here));
    assert!(kept(&there).as_u64().unwrap() > 0);
}

/// Follows a run's events.
struct FollowedRun {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    seen: String,
}

impl FollowedRun {
    fn new(mut command: Command) -> FollowedRun {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        FollowedRun {
            child,
            lines,
            seen: String::new(),
        }
    }

    fn wait_for_event(&mut self, event: &str, worker: &WorkerProcess) {
        assert!(
            self.saw_event(event, worker),
            "no {event} of {}:\n{}",
            worker.address,
            self.seen
        );
    }

    /// Whether the run says this of a worker before it ends.
    fn saw_event(&mut self, event: &str, worker: &WorkerProcess) -> bool {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            self.seen += &format!("{line}\n");
            if value["event"] == event && value["worker"] == worker.address {
                return true;
            }
        }
        false
    }

    /// The next event of a kind.
    fn next_event(&mut self, event: &str) -> Value {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            self.seen += &format!("{line}\n");
            if value["event"] == event {
                return value;
            }
        }
        panic!("no {event}:\n{}", self.seen);
    }

    fn end(mut self) -> ProgramOutput {
        for line in self.lines.by_ref() {
            self.seen += &format!("{}\n", line.unwrap());
        }
        let mut stderr = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        ProgramOutput {
            code: self.child.wait().unwrap().code().unwrap_or(-1),
            stdout: self.seen,
            stderr,
        }
    }
}

/// A worker that stands still for longer than its lease, and then goes on as if nothing had happened.
#[test]
fn a_worker_that_stalls_comes_too_late() {
    let job = DemandJob::new();
    let expected = job.expected();
    let calm = job.worker(&[]);
    let kinds = ["have read a span", "write a file of rows"]
        .map(|kind| ("FOREBAY_KILL_ON", kind.to_owned()));
    for (number, (how, moment)) in kinds
        .iter()
        .cloned()
        .chain(random_kill_moments(100))
        .enumerate()
    {
        let name = format!("stalled{number}");
        let mut stalled = job.worker(&[(how, &moment), ("FOREBAY_KILL_WITH", "stop")]);
        let mut run = FollowedRun::new(job.command(
            &name,
            &[
                workers_option(&[&stalled, &calm]).as_str(),
                "--lease-seconds=1",
            ],
        ));
        // At random steps it may have had less to do.
        let fired = run.saw_event("worker_lost", &stalled);
        assert!(
            fired || number >= kinds.len(),
            "{moment}: the worker goes on"
        );
        stalled.signal("-CONT");
        let call = run.end().expect(0);
        assert!(job.result(&name, &call) == expected, "step {moment}");
        assert!(stalled.child.try_wait().unwrap().is_none(), "it lives");
    }
}

/// A worker that is asked to leave ends what it is doing, and hands back the rest.
#[test]
fn a_worker_that_leaves_hands_back() {
    let job = DemandJob::new();
    let expected = job.expected();
    let calm = job.worker(&[]);
    let mut leaver = job.worker(&[
        ("FOREBAY_KILL_ON", "write a file"),
        ("FOREBAY_KILL_WITH", "term"),
    ]);
    let call = job.on("left", &[&leaver, &calm], &[]).expect(0);
    assert!(job.result("left", &call) == expected);
    assert_eq!(leaver.end(), 0);
    let temporary = |name: &str| name.contains("tmp-") || name.contains(".attempt-");
    let left: Vec<String> = content(&job.shop.path("left"))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(!left.iter().any(|name| temporary(name)), "{left:?}");
}

/// Workers that are gone, all of them: the run waits, and ends so that it can go on.
#[test]
fn a_run_without_workers_can_go_on_later() {
    let job = DemandJob::new();
    let expected = job.expected();
    let doomed = job.worker(&[("FOREBAY_KILL_ON", "write a file")]);
    let call = job
        .on("gone", &[&doomed], &["--grace-seconds=1"])
        .expect(75);
    assert_eq!(call.summary()["fault"]["code"], "FB0501");
    let committed = std::fs::read_dir(job.shop.path("gone/state/partials"))
        .unwrap()
        .count();
    assert!(committed > 0);
    let calm = job.worker(&[]);
    let call = job.on("gone", &[&calm], &[]).expect(0);
    assert!(job.result("gone", &call) == expected);
    assert_eq!(
        call.summary()["passes"][0]["reused"],
        true,
        "what was committed was done again"
    );
}

/// A worker that comes while a pass goes on gets work in that pass.
#[test]
fn a_worker_that_comes_later_gets_work() {
    let job = DemandJob::new();
    let expected = job.expected();
    let doomed = job.worker(&[("FOREBAY_KILL_ON", "have read")]);
    let roster = job.shop.write("roster", &format!("{}\n", doomed.address));
    let workers = format!("--workers=@{roster}");
    let mut run = FollowedRun::new(job.command(
        "later",
        &[&workers, "--lease-seconds=5", "--grace-seconds=60"],
    ));
    run.wait_for_event("worker_lost", &doomed);
    let calm = job.worker(&[]);
    job.shop
        .write("roster", &format!("{}\n{}\n", doomed.address, calm.address));
    run.wait_for_event("worker_joined", &calm);
    let call = run.end().expect(0);
    assert!(job.result("later", &call) == expected);
}

/// Rows that end every worker are named, and the run does not try for ever.
#[test]
fn rows_that_end_workers_are_named() {
    let job = DemandJob::new();
    let days = std::fs::read_dir(job.shop.path("history")).unwrap();
    let mut days: Vec<String> = days
        .map(|day| day.unwrap().file_name().into_string().unwrap())
        .collect();
    days.sort();
    let spec = "version: 1\nname: one\nsources: { days: { parquet: { path: history }, time: date } }\n\
                steps: { scaled: { from: days, do: [ standardize: { columns: [price] } ] } }\n\
                sinks: { table: { from: scaled, parquet: { path: out } } }\n";
    let spec = job.shop.write("one.yaml", spec);
    let poison = [("FOREBAY_KILL_ON", days[20].as_str())];
    // A death may take along the news of what was committed just before it, and that counts for the next one.
    let attempt = || {
        let workers: Vec<WorkerProcess> = (0..6).map(|_| job.worker(&poison)).collect();
        let workers = workers_option(&workers.iter().collect::<Vec<_>>());
        job.shop
            .forebay(&["run", &spec, "--json", &workers, "--grace-seconds=2"])
    };
    // All workers may end at the same moment, before a task has failed often enough to be refused: then the run
    // says that no worker is left, and the same command is run again.
    let mut call = attempt();
    for _ in 0..2 {
        if call.code == 75 {
            call = attempt();
        }
    }
    let call = call.expect(65);
    let fault = call.summary()["fault"].clone();
    assert_eq!(fault["code"], "FB0503");
    // One range holds them all here; what is named is its first file that is not done.
    assert!(
        fault["file"].as_str().unwrap().contains("history"),
        "{fault}"
    );
}

/// A spec that reads all days of a job for one statistic.
const ALL_DAYS: &str = "version: 1\nname: one\n\
    sources: { days: { parquet: { path: history }, time: date } }\n\
    steps: { scaled: { from: days, do: [ standardize: { columns: [price] } ] } }\n\
    sinks: { table: { from: scaled, parquet: { path: out } } }\n";

/// Worker processes of a run's own that abort are named with the signal, and replaced. The rows that end two of them are
/// refused at once: no other process will come.
#[test]
fn own_workers_that_abort_are_named_at_once() {
    let job = DemandJob::new();
    let days = std::fs::read_dir(job.shop.path("history")).unwrap();
    let mut days: Vec<String> = days
        .map(|day| day.unwrap().file_name().into_string().unwrap())
        .collect();
    days.sort();
    let spec = job.shop.write("all.yaml", ALL_DAYS);
    for count in [1, 2] {
        let workers = format!("--local-workers={count}");
        let state = format!("--state=state{count}");
        let mut command = job.shop.command(&[
            "run",
            &spec,
            "--json",
            &workers,
            &state,
            "--memory=256MiB",
            "--threads=2",
            "--grace-seconds=3600",
        ]);
        command
            .env("FOREBAY_KILL_ON", &days[20])
            .env("FOREBAY_KILL_WITH", "abort");
        let call = ProgramOutput::from(command.watched()).expect(65);
        let fault = call.summary()["fault"].clone();
        assert_eq!(fault["code"], "FB0503", "{fault}");
        assert!(
            fault["file"].as_str().unwrap().contains("history"),
            "{fault}"
        );
        assert!(call.stdout.contains("signal: 6"), "{}", call.stdout);
        // Each worker may hold a task that reads the file, and each of these tasks ends two.
        let lost = events(&call, "worker_lost").count();
        assert!((2..=1 + 2 * count).contains(&lost), "{}", call.stdout);
    }
}

/// A local worker that ends once is replaced, and the run comes to the same rows.
#[test]
fn own_workers_that_end_once_are_replaced() {
    let job = DemandJob::new();
    let expected = job.expected();
    let mut run = FollowedRun::new(job.command("replaced", &["--local-workers=1"]));
    let joined = run.next_event("worker_joined");
    let port = joined["worker"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    kill_listener(port.parse().unwrap());
    let call = run.end().expect(0);
    assert!(job.result("replaced", &call) == expected);
}

/// Kills the process of this user that listens at a port of this machine.
fn kill_listener(port: u16) {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let address = format!(":{port:04X} 00000000:0000 0A");
    let line = table.lines().find(|line| line.contains(&address)).unwrap();
    let inode = line.split_whitespace().nth(9).unwrap();
    let socket = format!("socket:[{inode}]");
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let has_socket = |file: std::fs::DirEntry| {
            std::fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == socket.as_str())
        };
        if files.flatten().any(has_socket) {
            let pid = process.file_name().into_string().unwrap();
            assert!(
                Command::new("kill")
                    .args(["-KILL", &pid])
                    .status()
                    .unwrap()
                    .success()
            );
            return;
        }
    }
    panic!("no process listens at {port}");
}

/// The coordinator is killed; the same command goes on.
#[test]
fn a_coordinator_that_is_killed_goes_on() {
    let job = DemandJob::new();
    let expected = job.expected();
    let workers = [job.worker(&[]), job.worker(&[])];
    let workers: Vec<&WorkerProcess> = workers.iter().collect();
    let moments = ["3", "12", "24"]
        .map(str::to_owned)
        .into_iter()
        .chain(random_kill_moments(24).map(|(_, moment)| moment));
    for (number, moment) in moments.enumerate() {
        let name = format!("orphaned{number}");
        let killed = job
            .command(&name, &[&workers_option(&workers)])
            .env("FOREBAY_KILL_AT", &moment)
            .watched();
        assert_eq!(
            killed.status.signal(),
            Some(9),
            "{}",
            String::from_utf8_lossy(&killed.stderr)
        );
        let call = job.on(&name, &workers, &[]).expect(0);
        assert!(job.result(&name, &call) == expected, "step {moment}");
    }
}

/// Two coordinators on one run: one wins, or the other finds its work done.
#[test]
fn two_coordinators_come_to_one_result() {
    let job = DemandJob::new();
    let expected = job.expected();
    let workers = [job.worker(&[]), job.worker(&[])];
    let workers = workers_option(&workers.iter().collect::<Vec<_>>());
    let runs: Vec<FollowedRun> = (0..2)
        .map(|_| FollowedRun::new(job.command("both", &[&workers])))
        .collect();
    let calls: Vec<ProgramOutput> = runs.into_iter().map(FollowedRun::end).collect();
    assert!(
        calls.iter().all(|call| [0, 75].contains(&call.code)),
        "{calls:?}"
    );
    let winner = calls.iter().find(|call| call.code == 0).expect("one wins");
    assert!(job.result("both", winner) == expected);
    for loser in calls.iter().filter(|call| call.code == 75) {
        assert_eq!(loser.summary()["fault"]["code"], "FB0404");
    }
}

/// Hands on what both sides say, and hangs up once after so many bytes of the second one.
pub(crate) struct CuttingProxy {
    pub address: String,
    cut: Arc<AtomicBool>,
}

impl CuttingProxy {
    pub fn start(to: &str, after: u64) -> CuttingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicBool::new(false));
        let said = Arc::new(AtomicU64::new(0));
        let to = to.to_owned();
        let was_cut = cut.clone();
        std::thread::spawn(move || {
            for here in listener.incoming() {
                let (Ok(here), Ok(there)) = (here, TcpStream::connect(&to)) else {
                    continue;
                };
                let cut = was_cut.clone();
                let said = said.clone();
                let back = (there.try_clone().unwrap(), here.try_clone().unwrap());
                std::thread::spawn(move || forward_bytes(here, there, |_| false));
                std::thread::spawn(move || {
                    let ends = |bytes: u64| {
                        let all = said.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        all > after && !cut.swap(true, Ordering::Relaxed)
                    };
                    forward_bytes(back.0, back.1, ends);
                });
            }
        });
        CuttingProxy { address, cut }
    }
}

fn forward_bytes(mut from: TcpStream, mut to: TcpStream, mut ends: impl FnMut(u64) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if ends(read as u64) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// A connection that is cut costs what was in flight on it, and the worker is asked again.
#[test]
fn a_connection_that_is_cut_costs_what_was_in_flight() {
    let job = DemandJob::new();
    let expected = job.expected();
    // Without TLS, a worker is not believed by way of another address.
    let secrets = certificates(&job.shop, "ours");
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let start = || WorkerProcess::start(&job.shop, &secrets, &[]);
    let worker = start();
    let calm = start();
    let random = (0..long_form_kills().unwrap_or(0)).map(|seed| (seed * 7919 + 100) % 12_000);
    for (number, after) in [4_000, 8_500].into_iter().chain(random).enumerate() {
        let proxy = CuttingProxy::start(&worker.address, after);
        let name = format!("cut{number}");
        let workers = format!("--workers={},{}", proxy.address, calm.address);
        let options = [
            &[workers.as_str(), "--lease-seconds=5", "--tls-name=forebay"],
            &secrets[..],
        ]
        .concat();
        let call = job.run(&name, &options).expect(0);
        // The other worker may have done nearly all.
        let cut = proxy.cut.load(Ordering::Relaxed);
        assert!(cut || number >= 2, "nothing was cut");
        assert!(job.result(&name, &call) == expected);
        assert!(
            !cut || number >= 2
                || events(&call, "worker_lost").any(|event| event["worker"] == proxy.address)
        );
    }
}

/// Certificates of one authority, in files.
pub(crate) fn certificates(shop: &TestDirectory, name: &str) -> [String; 3] {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["forebay".to_owned(), "localhost".to_owned()];
    let cert = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &ca)
        .unwrap();
    [
        format!(
            "--tls-ca={}",
            shop.write(&format!("{name}-ca.pem"), &ca.pem())
        ),
        format!(
            "--tls-cert={}",
            shop.write(&format!("{name}-cert.pem"), &cert.pem())
        ),
        format!(
            "--tls-key={}",
            shop.write(&format!("{name}-key.pem"), &key.serialize_pem())
        ),
    ]
}

#[test]
fn only_those_of_the_cluster_work_together() {
    let job = DemandJob::new();
    let expected = job.expected();
    let ours = certificates(&job.shop, "ours");
    let theirs = certificates(&job.shop, "theirs");
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
    let token = format!("--token-file={}", job.shop.write("token", "river\n"));
    let other = format!("--token-file={}", job.shop.write("other", "lake\n"));
    let worker = WorkerProcess::start(&job.shop, &[&ours[..], &[&token]].concat(), &[]);
    let run = |name: &str, more: &[&str]| {
        let workers = format!("--workers={}", worker.address);
        job.run(
            name,
            &[
                &[workers.as_str(), "--tls-name=forebay", "--grace-seconds=2"],
                more,
            ]
            .concat(),
        )
    };
    let call = run("tls", &[&ours[..], &[&token]].concat()).expect(0);
    assert!(job.result("tls", &call) == expected);
    // Another authority, another token, none at all, no TLS.
    run("authority", &[&theirs[..], &[&token]].concat()).expect(75);
    let call = run("tokens", &[&ours[..], &[&other]].concat()).expect(75);
    assert!(
        call.stderr.contains("FB0504") && !call.stderr.contains("lake"),
        "{}",
        call.stderr
    );
    run("none", &ours).expect(75);
    job.run(
        "plain",
        &[workers_option(&[&worker]).as_str(), "--grace-seconds=1"],
    )
    .expect(75);
    // What others could reach needs TLS.
    let open = job
        .shop
        .forebay(&["worker", "--listen=0.0.0.0:0"])
        .expect(78);
    assert!(open.stderr.contains("FB0504"), "{}", open.stderr);
}

#[test]
fn certificates_of_the_program_are_those_of_a_cluster() {
    let job = DemandJob::new();
    let expected = job.expected();
    job.shop.forebay(&["certificates", "ours"]).expect(0);
    for name in ["token", "ca.pem", "cert.pem", "key.pem"] {
        let file = std::fs::metadata(job.shop.path(&format!("ours/{name}"))).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let options = [
        "--token-file=ours/token",
        "--tls-ca=ours/ca.pem",
        "--tls-cert=ours/cert.pem",
        "--tls-key=ours/key.pem",
    ];
    let worker = WorkerProcess::start(&job.shop, &options, &[]);
    let workers = workers_option(&[&worker]);
    let named = [&options[..], &["--tls-name=forebay-run", &workers]].concat();
    let call = job.run("certified", &named).expect(0);
    assert!(job.result("certified", &call) == expected);
    // Certificates that processes use are not replaced.
    let again = job.shop.forebay(&["certificates", "ours"]).expect(78);
    for word in ["ours/token", "not replaced"] {
        assert!(again.stderr.contains(word), "{}", again.stderr);
    }
}

/// `/proc/self/cwd` is another directory for each process, as a path can be another one on each machine.
#[test]
fn a_path_that_a_worker_does_not_see_is_named_before_the_first_pass() {
    let job = DemandJob::new();
    let elsewhere = job.shop.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut command = job.shop.command(&[
        "worker",
        "--listen=127.0.0.1:0",
        "--threads=1",
        "--memory=128MiB",
    ]);
    command
        .current_dir(&elsewhere)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let worker = WorkerProcess::of(command);
    let workers = workers_option(&[&worker]);
    let spec = ready_made("demand.yaml");
    // State, output and source; the last word is the one that the worker does not see.
    let cases = [
        ["/proc/self/cwd/state0", "out0", "history", "state0"],
        ["state1", "/proc/self/cwd/out1", "history", "out1"],
        ["state2", "out2", "/proc/self/cwd/history", "history"],
    ];
    for [state, out, history, hidden] in cases {
        let state = format!("--state={state}");
        let out = format!("--param=out={out}");
        let history = format!("--param=history={history}");
        let args = [
            "run",
            &spec,
            "--memory=256MiB",
            &state,
            &out,
            &history,
            &workers,
        ];
        let call = job.shop.forebay(&args).expect(75);
        for word in ["FB0505", &worker.address, "/proc/self/cwd", hidden] {
            assert!(call.stderr.contains(word), "{word}: {}", call.stderr);
        }
        let left = std::fs::read_dir(&elsewhere).unwrap().count();
        assert_eq!(left, 0, "the worker has written a file of its own");
    }
}

/// Everything in a bucket, two workers, one of them killed.
#[test]
fn a_job_in_a_bucket_by_two_workers() {
    let (shop, server) = S3Server::over_demand();
    let spec = ready_made("demand.yaml");
    let worker = |envs: &[(&str, &str)]| {
        let mut command = server.command(&shop, &["worker", "--listen=127.0.0.1:0", "--threads=1"]);
        command
            .arg("--memory=128MiB")
            .envs(envs.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        WorkerProcess::of(command)
    };
    let calm = worker(&[]);
    let mut doomed = worker(&[("FOREBAY_KILL_ON", "have read")]);
    let args = [
        "run",
        &spec,
        "--param=history=s3://lake/demand",
        "--param=out=s3://lake/out",
        "--json",
    ];
    let options = [
        "--state=s3://lake/state",
        "--memory=256MiB",
        "--threads=2",
        "--lease-seconds=5",
    ];
    let mut command = server.command(
        &shop,
        &[&args[..], &options, &[&workers_option(&[&calm, &doomed])]].concat(),
    );
    let call: ProgramOutput = command
        .env("FOREBAY_RANGE_BYTES", RANGE_BYTES)
        .watched()
        .into();
    let call = call.expect(0);
    assert_eq!(doomed.end(), -9);
    let data = shop.at("buckets/lake/demand");
    let params = [
        format!("--param=history={data}"),
        "--param=out=local".to_owned(),
    ];
    let local = [
        "run",
        &spec,
        "--json",
        "--memory=256MiB",
        &params[0],
        &params[1],
    ];
    let local = shop.forebay(&local).expect(0);
    assert_eq!(local.summary()["artifact"], call.summary()["artifact"]);
    assert!(shop.visible("buckets/lake/out") == shop.visible("local"));
}
