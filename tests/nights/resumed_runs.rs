//! Runs that are killed: the previous result stays whole, and the same command continues.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{TestDirectory, content, ready_made};

/// How often a run is killed in the quick form; `FOREBAY_KILLS` says otherwise.
const KILLS: u64 = 6;

struct ClicksJob<'a> {
    shop: &'a TestDirectory,
    spec: String,
    data: String,
}

impl ClicksJob<'_> {
    fn start(&self, out: &str, state: &str) -> Child {
        let data = format!("--param=log={}", self.data);
        let out = format!("--param=out={out}");
        let args = [
            "run",
            &self.spec,
            &data,
            &out,
            "--state",
            state,
            "--threads=2",
            "--memory=256MiB",
            "--json",
        ];
        self.shop
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Numbers that look random, from a seed that a failure can name.
fn random(seed: u64) -> u64 {
    let x = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 31)
}

#[test]
fn a_killed_run_continues_and_nothing_half_written_shows() {
    let shop = TestDirectory::new();
    let job = ClicksJob {
        shop: &shop,
        spec: ready_made("clicks.yaml"),
        data: shop.clicks("data", 500),
    };
    let begun = Instant::now();
    let done = job.start("calm", "calm-state").wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let whole = begun.elapsed();
    let expected = shop.rows("calm");
    let kills = std::env::var("FOREBAY_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(KILLS);
    let mut fired = 0;
    for seed in 0..kills {
        let out = format!("out{seed}");
        let state = format!("state{seed}");
        let mut child = job.start(&out, &state);
        let moment = whole.mul_f64((random(seed) % 1000) as f64 / 1000.0);
        let deadline = Instant::now() + moment;
        // Waiting is the fault that is injected here: a moment of the run.
        while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let ended_before = child.try_wait().unwrap().is_some();
        if !ended_before {
            child.kill().unwrap();
            fired += 1;
        }
        child.wait().unwrap();
        // What can be seen is nothing or all.
        if shop.root(&out).join("_manifest.json").exists() {
            assert!(shop.rows(&out) == expected, "seed {seed}: a mixture shows");
        }
        let resumed = job.start(&out, &state).wait_with_output().unwrap();
        assert!(
            resumed.status.success(),
            "seed {seed}: {}",
            String::from_utf8_lossy(&resumed.stderr)
        );
        assert!(
            shop.rows(&out) == expected,
            "seed {seed}: other rows after resuming"
        );
        let calm = shop.path("calm-state/artifacts");
        let now = shop.path(&state).join("artifacts");
        let names = |dir: &std::path::Path| {
            content(dir)
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(&calm),
            names(&now),
            "seed {seed}: other files after resuming"
        );
        assert!(
            content(&calm) == content(&now),
            "seed {seed}: another artifact after resuming"
        );
    }
    assert!(
        fired * 2 >= kills,
        "only {fired} of {kills} kills came before the end"
    );
}

#[test]
fn a_committed_pass_is_never_done_again() {
    let shop = TestDirectory::new();
    let job = ClicksJob {
        shop: &shop,
        spec: ready_made("clicks.yaml"),
        data: shop.clicks("data", 500),
    };
    let done = job.start("out", "state").wait_with_output().unwrap();
    assert!(done.status.success());
    let states = content(&shop.path("state/states"));
    let stamps = |name: &str| {
        let entries = std::fs::read_dir(shop.path(name))
            .unwrap()
            .map(Result::unwrap);
        let mut stamps: Vec<_> = entries
            .map(|entry| {
                (
                    entry.file_name(),
                    entry.metadata().unwrap().modified().unwrap(),
                )
            })
            .collect();
        stamps.sort();
        stamps
    };
    let before = stamps("state/states");
    // Without the output, only the last pass has work left.
    shop.remove_output("out");
    let again = job.start("out", "state").wait_with_output().unwrap();
    let again: crate::support::ProgramOutput = again.into();
    let summary = again.expect(0).summary();
    let reused: Vec<bool> = summary["passes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pass| pass["reused"].as_bool().unwrap())
        .collect();
    let (last, learned) = reused.split_last().unwrap();
    assert!(!last && learned.iter().all(|reused| *reused), "{reused:?}");
    assert_eq!(stamps("state/states"), before);
    // A state that was damaged is computed again, not believed.
    let victim = shop.path("state/states").join(&states[0].0);
    let mut bytes = states[0].1.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&victim, bytes).unwrap();
    shop.remove_output("out");
    let repaired: crate::support::ProgramOutput =
        job.start("out", "state").wait_with_output().unwrap().into();
    repaired.expect(0);
    assert!(content(&shop.path("state/states")) == states);
}

#[test]
fn a_run_that_is_asked_to_stop_stops_and_goes_on_later() {
    let shop = TestDirectory::new();
    let job = ClicksJob {
        shop: &shop,
        spec: ready_made("clicks.yaml"),
        data: shop.clicks("data", 100),
    };
    let done = job.start("calm", "calm-state").wait_with_output().unwrap();
    assert!(done.status.success());
    // During the pass that learns, and during the one that writes.
    for (number, label) in ["learn", "write"].into_iter().enumerate() {
        let out = format!("out{number}");
        let state = format!("state{number}");
        let mut child = job.start(&out, &state);
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let begins = |line: &String| {
            line.contains("pass_started") && line.contains(&format!("\"label\":\"{label}"))
        };
        assert!(lines.any(|line| begins(&line)), "no pass to {label}");
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let last: serde_json::Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{last}");
        assert_eq!(last["fault"]["code"], "FB0304");
        assert!(!shop.root(&out).join("_manifest.json").exists());
        let left = content(&shop.path(&state))
            .into_iter()
            .chain(content(&shop.path("")));
        let half = |name: &String| name.contains("tmp-") || name.contains(".attempt-");
        assert_eq!(
            left.map(|(name, _)| name).find(half),
            None,
            "half-written files are left"
        );
        let resumed = job.start(&out, &state).wait_with_output().unwrap();
        assert!(resumed.status.success());
        assert!(shop.rows(&out) == shop.rows("calm"));
        assert!(
            content(&shop.path(&state).join("artifacts"))
                == content(&shop.path("calm-state/artifacts"))
        );
    }
}
