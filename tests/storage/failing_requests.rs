//! Storage that fails: a run gives the same bytes as one that nothing disturbed, or ends with a fault
//! that names the object. Never anything in between.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::support::request_failures::{ObservedRequest, RequestFailure, request_chance};
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, ready_made};

/// The job of these tests: sources, state and output lie in the bucket.
fn args(spec: &str) -> Vec<&str> {
    let mut args = vec![
        "run",
        spec,
        "--json",
        "--param=history=s3://lake/demand",
        "--param=out=s3://lake/out",
    ];
    args.extend(["--state=s3://lake/state", "--memory=256MiB", "--threads=2"]);
    args
}

fn run(server: &S3Server, shop: &TestDirectory) -> ProgramOutput {
    server.forebay(shop, &args(&ready_made("demand.yaml")))
}

/// What a run gives that nothing disturbs.
fn undisturbed_result() -> &'static (Value, RecordBatch) {
    static CALM: OnceLock<(Value, RecordBatch)> = OnceLock::new();
    CALM.get_or_init(|| {
        let (shop, server) = S3Server::over_demand();
        let summary = run(&server, &shop).expect(0).summary();
        (
            summary["artifact"].clone(),
            shop.visible("buckets/lake/out"),
        )
    })
}

/// A run comes to the same as one that nothing disturbed.
fn assert_undisturbed_result(call: ProgramOutput, shop: &TestDirectory) {
    let (artifact, rows) = undisturbed_result();
    assert_eq!(call.expect(0).summary()["artifact"], *artifact);
    assert!(shop.visible("buckets/lake/out") == *rows, "other rows");
}

/// A run whose storage fails by some rule comes to the same in the end.
fn assert_survives(
    least: u64,
    rule: impl FnMut(&ObservedRequest) -> Option<RequestFailure> + Send + 'static,
) {
    let (shop, server) = S3Server::over_demand();
    server.inject_failures(rule);
    let call = run(&server, &shop);
    let fired = server.stop_failures();
    assert!(fired >= least, "only {fired} faults fired");
    assert_undisturbed_result(call, &shop);
}

/// Some of the requests, each as often as chance has it.
fn is_chosen(seed: u64, part: f64, asked: &ObservedRequest) -> bool {
    request_chance(seed, asked) < part
}

#[test]
fn one_refused_request_in_twenty() {
    assert_survives(1, |asked| {
        is_chosen(1, 0.05, asked).then_some(RequestFailure::Refused(503))
    });
}

#[test]
fn one_refused_request_in_ten() {
    assert_survives(4, |asked| {
        is_chosen(2, 0.1, asked).then_some(RequestFailure::Refused(500))
    });
}

#[test]
fn every_second_request_refused() {
    assert_survives(30, |asked| {
        is_chosen(3, 0.5, asked)
            .then(|| RequestFailure::Refused(if asked.nth % 2 == 0 { 500 } else { 503 }))
    });
}

#[test]
fn bodies_that_are_cut() {
    // Every object and every listing once, and some again.
    assert_survives(30, |asked| {
        (asked.method == "GET" && (asked.nth == 0 || is_chosen(4, 0.3, asked)))
            .then_some(RequestFailure::CutBody)
    });
}

#[test]
fn writes_whose_answer_is_lost() {
    for landed in [true, false] {
        assert_survives(10, move |asked| {
            (asked.method != "GET" && asked.nth % 2 == 0).then_some(RequestFailure::Cut { landed })
        });
    }
}

#[test]
fn writes_that_are_never_answered() {
    for landed in [true, false] {
        let (shop, server) = S3Server::over_demand();
        // One of each kind, now landed and now not.
        let mut kinds = vec![
            "states/",
            "carries/",
            "_data/",
            "shards/",
            "passes/",
            "_manifest.json",
            "artifacts/",
        ];
        server.inject_failures(move |asked| {
            let kind = kinds
                .iter()
                .position(|kind| asked.method == "PUT" && asked.target.contains(kind))?;
            let landed = landed == (kinds.swap_remove(kind).len() % 2 == 0);
            Some(RequestFailure::Silent { landed })
        });
        let mut command = server.command(&shop, &args(&ready_made("demand.yaml")));
        let call: ProgramOutput = command.env("AWS_TIMEOUT", "300ms").watched().into();
        assert!(server.stop_failures() >= 6);
        assert_undisturbed_result(call, &shop);
    }
}

#[test]
fn a_slow_connection_does_not_stop_a_run() {
    let (shop, server) = S3Server::over_demand();
    // That over which the first data come.
    let mut slow = None;
    server.inject_failures(move |asked| {
        if asked.method == "GET" && asked.target.contains("lake/demand/") {
            slow.get_or_insert(asked.connection);
        }
        (asked.method == "GET" && slow == Some(asked.connection)).then_some(RequestFailure::Slow)
    });
    let mut command = server.command(&shop, &args(&ready_made("demand.yaml")));
    let call: ProgramOutput = command.env("AWS_TIMEOUT", "300ms").watched().into();
    assert!(
        server.stop_failures() >= 1 && server.abandoned_bodies() >= 1,
        "it was not that slow"
    );
    assert_undisturbed_result(call, &shop);
}

#[test]
fn patience_ends_with_a_fault_that_names_the_object() {
    let (shop, server) = S3Server::over_demand();
    // The first of each kind of request fails, again and again.
    let kinds = [
        ("GET", "list-type"),
        ("GET", "demand/"),
        ("PUT", "state/"),
        ("PUT", "_data/"),
    ];
    for (method, part) in kinds.into_iter().chain([
        ("PUT", "passes/"),
        ("PUT", "_manifest"),
        ("PUT", "artifacts/"),
    ]) {
        let mut victim: Option<String> = None;
        server.inject_failures(move |asked| {
            let fits = asked.method == method && asked.target.contains(part);
            let hit = fits && *victim.get_or_insert_with(|| asked.target.clone()) == asked.target;
            hit.then_some(RequestFailure::Refused(503))
        });
        let mut command = server.command(&shop, &args(&ready_made("demand.yaml")));
        let call: ProgramOutput = command.env("AWS_MAX_ATTEMPTS", "4").watched().into();
        let summary = call.expect(75).summary();
        assert!(server.stop_failures() >= 4, "{method} {part}");
        assert_eq!(summary["fault"]["code"], "FB0401", "{summary}");
        let message = summary["fault"]["message"].to_string();
        let file = summary["fault"]["file"].to_string();
        assert!(
            message.contains("in 4 attempts"),
            "{method} {part}: {summary}"
        );
        assert!(file.contains("s3://lake/"), "{method} {part}: {summary}");
        if part == "_manifest" {
            assert!(!shop.path("buckets/lake/out/_manifest.json").exists());
        }
    }
    assert_undisturbed_result(run(&server, &shop), &shop);
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_named() {
    let (shop, server) = S3Server::over_demand();
    let mut days: Vec<_> = std::fs::read_dir(shop.path("buckets/lake/demand"))
        .unwrap()
        .map(|day| day.unwrap().path())
        .collect();
    days.sort();
    let victim = days[2].clone();
    let other = std::fs::read(&days[3]).unwrap();
    let whole = std::fs::read(&victim).unwrap();
    let name = victim.file_name().unwrap().to_str().unwrap().to_owned();
    // Between the listing and the first request that reads. A small file has no later one.
    {
        let nth = 0;
        let victim = victim.clone();
        let other = other.clone();
        let key = name.clone();
        let mut seen = 0;
        server.inject_failures(move |asked| {
            let hit = asked.method == "GET" && asked.target.contains(&key);
            seen += i32::from(hit);
            let victim = victim.clone();
            let other = other.clone();
            (hit && seen == nth + 1).then(|| {
                RequestFailure::After(Box::new(move || std::fs::write(victim, other).unwrap()))
            })
        });
        let call = run(&server, &shop).expect(75);
        assert_eq!(server.stop_failures(), 1);
        let fault = call.summary()["fault"].take();
        assert_eq!(fault["code"], "FB0208", "{fault}");
        assert!(fault["file"].as_str().unwrap().ends_with(&name), "{fault}");
        assert!(!shop.path("buckets/lake/out/_manifest.json").exists());
        std::fs::write(shop.path("buckets/lake/demand").join(&name), &whole).unwrap();
    }
    assert_undisturbed_result(run(&server, &shop), &shop);
}

/// A file that is read in several requests: what comes after the footer must be of the same object.
#[test]
fn a_large_object_that_is_replaced_while_it_is_read_is_named() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake/in")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let file = shop.path("buckets/lake/in/large.parquet");
    let write = |seed: u64| {
        let noise =
            (0..200_000u64).map(move |row| (row + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64);
        let numbers: ArrayRef = Arc::new(Float64Array::from_iter_values(noise));
        let batch = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        assert!(bytes.len() > 1 << 20);
        bytes
    };
    std::fs::write(&file, write(0)).unwrap();
    let spec = shop.write(
        "large.yaml",
        "version: 1\nname: large\nsources: { large: { parquet: { path: \"s3://lake/in/*.parquet\" } } }\nsteps: { scaled: \
         { from: large, do: [ standardize: { columns: [number] } ] } }\nsinks: { table: { from: scaled, parquet: { path: \
         \"s3://lake/out\" } } }\n",
    );
    let run = || server.forebay(&shop, &["run", &spec, "--json", "--state=s3://lake/state"]);
    for nth in [0, 1] {
        let victim = file.clone();
        let other = write(1);
        let mut seen = 0;
        server.inject_failures(move |asked| {
            let hit = asked.method == "GET" && asked.target.contains("large.parquet");
            seen += i32::from(hit);
            let victim = victim.clone();
            let other = other.clone();
            (hit && seen == nth + 1).then(|| {
                RequestFailure::After(Box::new(move || std::fs::write(victim, other).unwrap()))
            })
        });
        let call = run().expect(75);
        assert_eq!(server.stop_failures(), 1);
        assert_eq!(call.summary()["fault"]["code"], "FB0208", "{}", call.stdout);
        assert!(!shop.path("buckets/lake/out/_manifest.json").exists());
        std::fs::write(&file, write(0)).unwrap();
    }
    run().expect(0);
}

#[test]
fn a_run_that_waits_for_storage_can_be_stopped() {
    let (shop, server) = S3Server::over_demand();
    server.inject_failures(|asked| {
        (asked.method == "GET" && asked.target.contains("demand/"))
            .then_some(RequestFailure::Refused(503))
    });
    let mut command = server.command(&shop, &args(&ready_made("demand.yaml")));
    command
        .env("FOREBAY_RETRY_SECONDS", "1000")
        .env("AWS_MAX_ATTEMPTS", "1000");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.failure_count() < 2 {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let asked = Instant::now();
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let call: ProgramOutput = child.wait_with_output().unwrap().into();
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(call.expect(75).summary()["fault"]["code"], "FB0304");
    server.stop_failures();
    assert_undisturbed_result(run(&server, &shop), &shop);
}

#[test]
fn a_run_that_dies_at_a_write_goes_on() {
    // `FOREBAY_KILLS` says at how many of all writes; else some that matter.
    let kills: Option<u64> = std::env::var("FOREBAY_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok());
    let some = [
        ("_data/", true),
        ("passes/", false),
        ("_manifest.json", false),
        ("_manifest.json", true),
    ];
    let all = (0..kills.unwrap_or(0)).map(|nth| ("lake/", nth % 2 == 0, nth / 2));
    let (shop, server) = S3Server::over_demand();
    for (key, landed, nth) in some
        .into_iter()
        .map(|(key, landed)| (key, landed, 0))
        .chain(all)
    {
        for dir in ["out", "state"] {
            let _ = std::fs::remove_dir_all(shop.path("buckets/lake").join(dir));
        }
        let victim = Arc::new(AtomicU32::new(0));
        let pid = victim.clone();
        let mut seen = 0;
        server.inject_failures(move |asked| {
            let is_it = asked.method == "PUT" && asked.target.contains(key);
            seen += u64::from(is_it);
            if !is_it || seen != nth + 1 {
                return None;
            }
            let pid = pid.load(Ordering::SeqCst).to_string();
            assert!(
                Command::new("kill")
                    .args(["-KILL", &pid])
                    .status()
                    .unwrap()
                    .success()
            );
            Some(RequestFailure::Cut { landed })
        });
        let mut child = server
            .command(&shop, &args(&ready_made("demand.yaml")))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        victim.store(child.id(), Ordering::SeqCst);
        let ended = child.wait().unwrap();
        if server.stop_failures() == 0 {
            assert!(ended.success() && nth > 20, "{key} {nth}");
            break;
        }
        assert_eq!(ended.signal(), Some(9), "{key} {nth}");
        let shown = shop.path("buckets/lake/out/_manifest.json").exists();
        assert!(
            !shown || shop.visible("buckets/lake/out") == undisturbed_result().1,
            "{key} {nth}: something between shows"
        );
        assert_undisturbed_result(run(&server, &shop), &shop);
    }
}

#[test]
fn two_runs_that_publish_at_once_lose_nothing_of_each_other() {
    let nights = NightlyFixture::new(false);
    let shop = &nights.shop;
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    (0..30).for_each(|day| nights.show(day));
    std::fs::rename(shop.path("history"), shop.path("buckets/lake/history")).unwrap();
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &spec.replace("path: history", "path: s3://lake/history"),
    );
    let server = S3Server::start(&shop.path("buckets"));
    let day = |day: usize| {
        let name = nights.days[day].split('.').next().unwrap();
        name[name.len() - 10..].to_owned()
    };
    let command = |first: usize, state: &str| {
        let state = format!("--state={state}");
        let args = [
            "run",
            "spec.yaml",
            "--json",
            "--param=out=s3://lake/out",
            &state,
            "--interval",
        ];
        server.command(shop, &[&args[..], &[&day(first), &day(first + 2)]].concat())
    };
    // Each run but the last one finds, when it publishes, that another one has just done so.
    let mut others: Vec<Command> = [20, 22, 24]
        .map(|first| command(first, &format!("state-{first}")))
        .into();
    server.inject_failures(move |asked| {
        let publishes = asked.method == "PUT" && asked.target.contains("_manifest.json");
        let mut other = if publishes {
            others.pop()?
        } else {
            return None;
        };
        Some(RequestFailure::After(Box::new(move || {
            let call: ProgramOutput = other.watched().into();
            call.expect(0);
        })))
    });
    let call: ProgramOutput = command(26, "state-26").watched().into();
    call.expect(0);
    assert_eq!(server.stop_failures(), 3);
    let manifest = std::fs::read(shop.path("buckets/lake/out/_manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let starts: Vec<String> = manifest["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|known| known["from"].as_str().unwrap().into())
        .collect();
    assert_eq!(starts, [20, 22, 24, 26].map(day));
    assert_eq!(
        shop.visible("buckets/lake/out").num_rows() as u64,
        nights.rows(20..28)
    );
}
