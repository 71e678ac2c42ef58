//! A command that gets SIGTERM or SIGINT ends, whatever it is doing, and shows nothing half-made; the same command then
//! comes to what it would have come to.
//!
//! The quick form sends fifty signals, at least one to each command. The long one sends a thousand, each after some work
//! that a seed chooses, and each command must end within ten seconds:
//!
//! ```text
//! FOREBAY_SIGNALS=1000 cargo test -p forebay --test forebay command_line::signals::
//! ```
//!
//! `FOREBAY_SIGNALS=250..500` sends a part of them: several processes can share the thousand.

use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{ProgramOutput, TestDirectory};

/// How long a command may take to end, in the long form.
const SECONDS_MAX: Duration = Duration::from_secs(10);

/// Signals of the quick form.
const QUICK_SIGNALS: u64 = 50;

/// CPU time before a signal at most, in clock ticks of 10 ms.
const TICKS_MAX: u64 = 150;

const SOURCE: &str =
    "  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }\n";

/// Windows, statistics, and two formats.
const WINDOWS: &str = "
steps:
  f:
    from: demand
    do:
      - filter: \"qty IS NOT NULL\"
      - lag: { columns: [qty], by: [7d] }
      - rolling: { columns: [qty], compute: [mean], over: [28d], gap: 7d }
      - standardize: { columns: [price] }
sinks:
  t: { from: f, parquet: { path: out } }
  u: { from: f, csv: { path: out-csv } }
";

/// Passes that need all rows at once: groups, a sort, and one row of each series.
const GATHERS: &str = "
steps:
  totals:
    from: demand
    do:
      - aggregate: { by: [store_id], every: 1w, time: date, compute: { total: { sum: qty } } }
  places:
    sql: \"SELECT *, row_number() OVER (PARTITION BY item_id ORDER BY qty, date, store_id) AS place FROM demand\"
  latest: { from: demand, do: [ { dedupe: { keys: [store_id, item_id], keep: last } } ] }
sinks:
  t: { from: totals, parquet: { path: out } }
  u: { from: places, csv: { path: out-csv } }
  v: { from: latest, parquet: { path: out-latest } }
";

/// A query that reads nothing and never ends, in steps.
const RECURSION: &str = "
steps: { f: { sql: \"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) AS m FROM t\" } }
sinks: { t: { from: f, parquet: { path: out } } }
";

/// A query whose few rows meet each other for hours.
const CROSS_JOIN: &str = "
steps:
  f: { sql: \"SELECT count(*) AS n FROM demand a, demand b, demand c WHERE a.qty + b.qty + c.qty = 1.5\" }
sinks: { t: { from: f, parquet: { path: out } } }
";

/// A query whose few rows become many.
const UNNEST: &str = "
steps: { f: { sql: \"SELECT count(*) AS n FROM (SELECT unnest(range(0, 50000 + CAST(qty AS BIGINT))) AS v FROM demand) AS items WHERE v % 7 = 1\" } }
sinks: { t: { from: f, parquet: { path: out } } }
";

/// A function that computes for minutes in one call.
const LONG_CALL: &str = "
steps:
  f:
    from: demand
    do:
      - derive: { d: \"levenshtein(repeat(item_id, 400), repeat(store_id, 400))\" }
sinks: { t: { from: f, parquet: { path: out } } }
";

/// Models that learn for hours.
const TREES: &str = "
steps: { f: { from: demand, do: [ { filter: \"qty IS NOT NULL\" }, { drop: [promotion, event] } ] } }
sinks:
  net: { from: f, train: { path: net, model: gbdt, label: qty, dense: [price], rounds: 1000000 } }
";

const NETWORK: &str = "
steps: { f: { from: demand, do: [ { filter: \"qty IS NOT NULL AND price IS NOT NULL\" } ] } }
sinks:
  net: { from: f, train: { path: net, model: mlp, label: qty, dense: [price], epochs: 1000000 } }
";

/// Forecasts as of two times, and what came.
const BACKTEST: &str = "
steps:
  f:
    from: demand
    do:
      - filter: \"qty IS NOT NULL\"
      - future_rows: { horizon: 7d, every: 1d, carry: [price] }
      - lag: { columns: [qty], by: [7d] }
      - drop: [promotion, event]
label: { column: qty, horizon: 7d, known: [price, category, department] }
sinks:
  net: { from: f, train: { path: net, model: gbdt, label: qty, dense: [qty_lag_7d, price], rounds: 3 } }
  p: { from: f, predict: { model: net, where: future, path: forecast } }
";

/// Rows of a step as batches.
const FEED: &str = "
steps: { f: { from: demand, do: [ { filter: \"qty IS NOT NULL AND price IS NOT NULL\" }, { drop: [promotion, event] } ] } }
feed: { from: f, label: qty, dense: [price], batch_rows: 16 }
";

/// An output of intervals.
const BACKFILL: &str = "
steps: { f: { from: demand, do: [ { filter: \"qty IS NOT NULL\" }, { lag: { columns: [qty], by: [7d] } } ] } }
sinks: { t: { from: f, parquet: { path: out-intervals } } }
";

/// A model without windows, for commands that take a model or an artifact.
const SERVED: &str = "
steps: { f: { from: demand, do: [ { impute: { columns: [qty, price], with: mean } }, { standardize: { columns: [price] } } ] } }
sinks:
  t: { from: f, parquet: { path: served/t } }
  net: { from: f, train: { path: served/net, model: linear, label: qty, dense: [price], epochs: 1 } }
";

/// Commands that go on until a signal, mostly without work.
const SERVERS: [&str; 4] = ["serve", "ui", "worker", "top"];

/// Commands that have no `--threads`.
const WITHOUT_THREADS: [&str; 5] = ["ui", "top", "export", "certificates", "cache"];

/// A command with its spec. In its arguments, `NUMBER` stands for the number of the signal and `ARTIFACT` for the artifact
/// of [`SERVED`].
struct SignalledCommand {
    name: &'static str,
    spec: &'static str,
    args: &'static [&'static str],
}

const RUN: &[&str] = &["run", "spec.yaml"];

/// All commands that read, compute or listen. Others print something short.
const COMMANDS: [SignalledCommand; 29] = [
    SignalledCommand {
        name: "windows",
        spec: WINDOWS,
        args: RUN,
    },
    SignalledCommand {
        name: "gathers",
        spec: GATHERS,
        args: RUN,
    },
    SignalledCommand {
        name: "check",
        spec: WINDOWS,
        args: &["check", "spec.yaml"],
    },
    SignalledCommand {
        name: "explain",
        spec: WINDOWS,
        args: &["explain", "spec.yaml"],
    },
    SignalledCommand {
        name: "drift",
        spec: WINDOWS,
        args: &["drift", "data", "data"],
    },
    SignalledCommand {
        name: "fit",
        spec: WINDOWS,
        args: &["fit", "spec.yaml"],
    },
    SignalledCommand {
        name: "preview",
        spec: WINDOWS,
        args: &["preview", "spec.yaml"],
    },
    SignalledCommand {
        name: "profile",
        spec: WINDOWS,
        args: &["profile", "data"],
    },
    SignalledCommand {
        name: "backtest",
        spec: BACKTEST,
        args: &["backtest", "spec.yaml", "--folds=2", "--every=7d"],
    },
    SignalledCommand {
        name: "recursion",
        spec: RECURSION,
        args: RUN,
    },
    SignalledCommand {
        name: "cross join",
        spec: CROSS_JOIN,
        args: RUN,
    },
    SignalledCommand {
        name: "unnest",
        spec: UNNEST,
        args: RUN,
    },
    SignalledCommand {
        name: "trees",
        spec: TREES,
        args: RUN,
    },
    SignalledCommand {
        name: "network",
        spec: NETWORK,
        args: RUN,
    },
    SignalledCommand {
        name: "local workers",
        spec: WINDOWS,
        args: &["run", "spec.yaml", "--local-workers=2", "--memory=512MiB"],
    },
    SignalledCommand {
        name: "feed",
        spec: FEED,
        args: &["feed", "spec.yaml"],
    },
    SignalledCommand {
        name: "generate",
        spec: WINDOWS,
        args: &[
            "generate",
            "demand",
            "--days=4000",
            "--series=500",
            "--out=made",
            "--replace",
        ],
    },
    SignalledCommand {
        name: "backfill",
        spec: BACKFILL,
        args: &[
            "backfill",
            "spec.yaml",
            "--from=2016-04-15",
            "--to=2016-05-20",
            "--every=1d",
        ],
    },
    SignalledCommand {
        name: "long call",
        spec: LONG_CALL,
        args: RUN,
    },
    SignalledCommand {
        name: "apply",
        spec: WINDOWS,
        args: &[
            "apply",
            "ARTIFACT",
            "--source=data",
            "--output=applied-NUMBER",
        ],
    },
    SignalledCommand {
        name: "predict",
        spec: WINDOWS,
        args: &[
            "predict",
            "served/net",
            "--source=data",
            "--output=predicted-NUMBER",
        ],
    },
    SignalledCommand {
        name: "score",
        spec: BACKTEST,
        args: &["score", "spec.yaml"],
    },
    SignalledCommand {
        name: "export",
        spec: WINDOWS,
        args: &["export", "served/t", "exported-NUMBER"],
    },
    SignalledCommand {
        name: "certificates",
        spec: WINDOWS,
        args: &["certificates", "certificates-NUMBER"],
    },
    SignalledCommand {
        name: "cache gc",
        spec: WINDOWS,
        args: &["cache", "gc"],
    },
    SignalledCommand {
        name: "serve",
        spec: WINDOWS,
        args: &["serve", "ARTIFACT", "--listen=127.0.0.1:0"],
    },
    SignalledCommand {
        name: "ui",
        spec: WINDOWS,
        args: &["ui", "--listen=127.0.0.1:0"],
    },
    SignalledCommand {
        name: "worker",
        spec: WINDOWS,
        args: &["worker", "--listen=127.0.0.1:0"],
    },
    SignalledCommand {
        name: "top",
        spec: WINDOWS,
        args: &["top"],
    },
];

const _: () = assert!(QUICK_SIGNALS as usize >= COMMANDS.len());

/// What became of a command that got a signal.
struct SignalledEnd {
    output: Output,
    took: Duration,
}

/// CPU time of a process in clock ticks; `None` once it has ended.
fn cpu_ticks(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    sent.unwrap();
}

fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Sends a signal after so much work; after so much time where a command waits for work.
fn signal_after(command: &mut Command, ticks: u64, is_server: bool, signal: &str) -> SignalledEnd {
    let child = start(command);
    let began = Instant::now();
    let time = Duration::from_millis(10 * ticks);
    while cpu_ticks(child.id()).is_some_and(|used| used < ticks) {
        if is_server && began.elapsed() > time {
            break;
        }
        std::thread::yield_now();
    }
    send_signal(&child, signal);
    let sent = Instant::now();
    let output = child.wait_with_output().unwrap();
    SignalledEnd {
        output,
        took: sent.elapsed(),
    }
}

/// True if a command ended as it may: done, as asked, or before it listened to signals.
fn is_clean(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 75)) || matches!(status.signal(), Some(2 | 15))
}

fn random(seed: u64) -> u64 {
    let x = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// The signals of a number or a range, such as `1000` or `250..500`.
fn signal_numbers(text: &str) -> Range<u64> {
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..text.parse().unwrap(),
    }
}

/// Trains the model of [`SERVED`] and publishes the forecast of [`BACKTEST`]. Returns the path of the model's artifact.
fn prepare_models(shop: &TestDirectory) -> String {
    let mut artifact = String::new();
    for (name, spec) in [("forecast", BACKTEST), ("served", SERVED)] {
        let spec = format!("version: 1\nname: {name}\nsources:\n{SOURCE}{spec}");
        shop.write("spec.yaml", &spec);
        let state = format!("--state={name}-state");
        let args = ["run", "spec.yaml", "--json", &state];
        let summary = shop.forebay(&args).expect(0).summary();
        artifact = summary["artifact_path"].as_str().unwrap().to_owned();
    }
    artifact
}

/// Forty days of demand.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.days("data");
    shop
}

#[test]
fn every_command_ends_at_a_signal() {
    let signals = std::env::var("FOREBAY_SIGNALS").ok();
    let numbers = signals.as_deref().map_or(0..QUICK_SIGNALS, signal_numbers);
    let shop = shop();
    let artifact = prepare_models(&shop);
    let mut slowest = Duration::ZERO;
    let mut sent = 0;
    for number in numbers {
        let SignalledCommand { name, spec, args } = &COMMANDS[number as usize % COMMANDS.len()];
        let spec = format!("version: 1\nname: signalled\nsources:\n{SOURCE}{spec}");
        shop.write("spec.yaml", &spec);
        let (threads, signal) = match random(number) % 4 {
            0 => ("--threads=2", "-TERM"),
            1 => ("--threads=8", "-TERM"),
            2 => ("--threads=2", "-INT"),
            _ => ("--threads=8", "-INT"),
        };
        let mut words: Vec<String> = Vec::new();
        for word in *args {
            let word = word.replace("NUMBER", &number.to_string());
            words.push(word.replace("ARTIFACT", &artifact));
        }
        if !WITHOUT_THREADS.contains(&args[0]) {
            words.push(threads.to_owned());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ticks = random(number + 1_000_000) % TICKS_MAX;
        let is_server = SERVERS.contains(&args[0]);
        let mut command = shop.command(&words);
        let SignalledEnd { output, took } = signal_after(&mut command, ticks, is_server, signal);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let context =
            format!("{number} {name} {signal} {threads} after {ticks} ticks, {took:?}: {text}");
        assert!(is_clean(output.status), "{:?} {context}", output.status);
        assert!(!text.contains("panicked"), "{context}");
        assert!(signals.is_none() || took < SECONDS_MAX, "{context}");
        slowest = slowest.max(took);
        sent += 1;
    }
    println!("{sent} commands ended at a signal, the slowest after {slowest:?}");
    // Nothing that was left hinders the next run.
    let spec = format!("version: 1\nname: signalled\nsources:\n{SOURCE}{WINDOWS}");
    shop.write("spec.yaml", &spec);
    shop.forebay(RUN).expect(0);
    let rows = shop.visible("out");
    shop.forebay(&["run", "spec.yaml", "--state=fresh"])
        .expect(0);
    assert!(shop.visible("out") == rows);
}

/// Commands that read some small files, print or write a little, and end by themselves.
const SHORT: [&str; 11] = [
    "new",
    "init",
    "fmt",
    "test",
    "show",
    "diff",
    "report",
    "schema",
    "doctor",
    "completions",
    "man",
];

/// A new command gets its signals, or is named among the short ones.
#[test]
fn every_command_of_the_program_is_signalled_or_short() {
    let help = TestDirectory::new().forebay(&["--help"]).expect(0).stdout;
    // Commands are indented below the titles of their groups.
    let lines = help.lines().take_while(|line| *line != "Options:");
    let mut count = 0;
    for line in lines.filter_map(|line| line.strip_prefix("  ")) {
        let name = line.split_whitespace().next().unwrap();
        let is_signalled = COMMANDS.iter().any(|command| command.args[0] == name);
        assert!(is_signalled || SHORT.contains(&name), "{name}");
        count += 1;
    }
    assert!(count >= 30, "{count} commands:\n{help}");
}

/// A run whose state directory is locked by this process, with a name in the file of the lock.
fn run_against_lock(seconds: Option<&str>, holder: &str) -> (Child, TestDirectory, std::fs::File) {
    let shop = shop();
    let spec = format!("version: 1\nname: signalled\nsources:\n{SOURCE}{WINDOWS}");
    shop.write("spec.yaml", &spec);
    std::fs::create_dir_all(shop.path("state")).unwrap();
    let lock = std::fs::File::create(shop.path("state/_lease")).unwrap();
    lock.lock().unwrap();
    std::fs::write(shop.path("state/_lease"), holder).unwrap();
    let mut command = shop.command(&["run", "spec.yaml", "--json", "--state=state"]);
    if let Some(seconds) = seconds {
        command.env("FOREBAY_LOCK_SECONDS", seconds);
    }
    (start(&mut command), shop, lock)
}

#[test]
fn a_run_that_waits_for_a_lock_says_so_and_ends_at_a_signal() {
    let (mut child, _shop, _lock) = run_against_lock(None, "");
    let stdout = child.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let warning = lines.find_map(|line| {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let message = event["message"].as_str()?.to_owned();
        (event["event"] == "warning").then_some(message)
    });
    let warning = warning.unwrap();
    assert!(
        warning.contains("the state directory `state` is in use by another process"),
        "{warning}"
    );
    send_signal(&child, "-TERM");
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(75));
}

/// The text that the holder of a lock leaves in its file, for a process of this machine.
fn holder(process: u32, began: &str) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let origin = json!({ "host": "lake-7", "process": process, "began": "2026-01-02T03:04:05Z" });
    let machine = format!("{} {}", boot.trim(), namespace.display());
    let process = json!({ "machine": machine, "process": process, "began": began });
    json!({ "origin": origin, "process": process }).to_string()
}

/// Start of a process in the unit of the system.
fn began(process: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(19).unwrap().to_owned()
}

/// A name that is in the file of a lock counts while its process is there: else it is one of an earlier holder.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_for_a_lock_names_host_process_and_begin() {
    let here = std::process::id();
    let named = format!("process {here} on lake-7, begun at 2026-01-02T03:04:05Z");
    for (holder, says) in [
        (holder(here, &began(here)), named.as_str()),
        (holder(here, "0"), "another process"),
    ] {
        let (child, _shop, _lock) = run_against_lock(Some("0"), &holder);
        let call = ProgramOutput::from(child.wait_with_output().unwrap()).expect(75);
        let fault = &call.summary()["fault"];
        assert_eq!(fault["code"], "FB0407");
        let message = fault["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("is in use by {says}")),
            "{message}"
        );
    }
}

#[test]
fn a_wait_for_a_lock_ends_by_itself() {
    let (child, _shop, _lock) = run_against_lock(Some("0"), "");
    let call = ProgramOutput::from(child.wait_with_output().unwrap()).expect(75);
    let summary = call.summary();
    assert_eq!(summary["fault"]["code"], "FB0407");
    assert!(
        call.stderr.contains("FOREBAY_LOCK_SECONDS"),
        "{}",
        call.stderr
    );
}
