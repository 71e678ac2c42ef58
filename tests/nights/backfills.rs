//! Backfills: intervals side by side come to what they come to one after the other, and can be interrupted.

use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};

use crate::nights::changed_history::NightlyFixture;
use crate::nights::intervals::day;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, content};

/// The first day of the first interval, and the day after the last one.
const DAYS: std::ops::Range<usize> = 12..19;

/// A shop with all days, and the rows and artifacts of intervals that were done one by one.
struct BackfillFixture {
    nights: NightlyFixture,
    rows: arrow::array::RecordBatch,
    artifacts: Vec<(String, Vec<u8>)>,
}

impl BackfillFixture {
    fn new(unbounded: bool) -> BackfillFixture {
        let nights = NightlyFixture::new(unbounded);
        (0..DAYS.end).for_each(|day| nights.show(day));
        let args = backfill_args(
            &nights,
            &["--beside=1", "--param=out=one", "--state=state-one"],
        );
        nights.shop.forebay(&texts(&args)).expect(0);
        let rows = nights.shop.visible("one");
        let artifacts = content(&nights.shop.path("state-one/artifacts"));
        BackfillFixture {
            nights,
            rows,
            artifacts,
        }
    }

    fn command(&self, more: &[&str]) -> std::process::Command {
        let args = backfill_args(
            &self.nights,
            &[more, &["--threads=3", "--state=state"]].concat(),
        );
        self.nights.shop.command(&texts(&args))
    }

    fn backfill(&self) -> ProgramOutput {
        self.command(&[]).watched().into()
    }

    /// Nothing tells that intervals were done side by side, or in several attempts.
    #[track_caller]
    fn assert_same_as_sequential(&self, what: &str) {
        let shop = &self.nights.shop;
        assert!(shop.visible("out") == self.rows, "{what}: other rows");
        assert!(
            shop.rows("out") == self.rows,
            "{what}: other rows in the directory"
        );
        let names = |artifacts: &[(String, Vec<u8>)]| {
            artifacts
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        let artifacts = content(&shop.path("state/artifacts"));
        assert_eq!(
            names(&artifacts),
            names(&self.artifacts),
            "{what}: other artifacts"
        );
        assert!(
            artifacts == self.artifacts,
            "{what}: artifacts of other bytes"
        );
    }

    fn clear_results(&self) {
        for dir in ["out", ".out.forebay", "state"] {
            let _ = std::fs::remove_dir_all(self.nights.shop.path(dir));
        }
    }
}

fn backfill_args(nights: &NightlyFixture, more: &[&str]) -> Vec<String> {
    let from = day(nights, DAYS.start);
    let to = day(nights, DAYS.end - 1);
    let fixed = [
        "backfill",
        "spec.yaml",
        "--json",
        "--from",
        &from,
        "--to",
        &to,
    ];
    fixed
        .iter()
        .chain(more)
        .map(|word| (*word).to_owned())
        .collect()
}

fn texts(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn skipped(summary: &Value) -> Vec<bool> {
    summary["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|done| done["skipped"].as_bool().unwrap())
        .collect()
}

#[test]
fn concurrent_intervals_match_sequential_ones() {
    for unbounded in [false, true] {
        let filled = BackfillFixture::new(unbounded);
        let call = filled.backfill().expect(0);
        filled.assert_same_as_sequential("at the end");
        assert_eq!(skipped(&call.summary()), [false; 6]);
        let told: Vec<Value> = call
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let beside = told
            .iter()
            .find(|event| event["event"] == "beside")
            .unwrap();
        assert_eq!(
            (&beside["intervals"], &beside["beside"]),
            (&5.into(), &3.into()),
            "the first goes alone"
        );
        let done: Vec<u64> = told
            .iter()
            .filter_map(|event| event["done"].as_u64())
            .collect();
        assert_eq!(done, (1..=5).collect::<Vec<_>>());
        let from = day(&filled.nights, 18);
        let to = day(&filled.nights, 19);
        let explain = filled
            .nights
            .shop
            .forebay(&["explain", "spec.yaml", "--json", "--interval", &from, &to])
            .expect(0);
        let explain: Value = serde_json::from_str(&explain.stdout).unwrap();
        let write = explain["passes"].as_array().unwrap().last().unwrap();
        assert_eq!(write["beside"], !unbounded);
    }
}

#[test]
fn a_fault_stops_the_later_intervals() {
    let filled = BackfillFixture::new(false);
    let shop = &filled.nights.shop;
    filled.nights.damage(15);
    let summary = filled.backfill().expect(65).summary();
    assert!(
        summary["fault"]["file"]
            .as_str()
            .unwrap()
            .contains(&filled.nights.days[15]),
        "{summary}"
    );
    assert_eq!(
        skipped(&summary),
        [false; 3],
        "those before it are published, and none after it"
    );
    assert_eq!(
        shop.visible("out").num_rows() as u64,
        filled.nights.rows(12..15)
    );
    filled.nights.show(15);
    assert_eq!(
        skipped(&filled.backfill().expect(0).summary()),
        [true, true, true, false, false, false]
    );
    filled.assert_same_as_sequential("at the end");
}

#[test]
fn a_killed_backfill_redoes_only_unfinished_intervals() {
    let filled = BackfillFixture::new(true);
    let steps = filled.nights.shop.path("steps");
    let call: ProgramOutput = filled
        .command(&[])
        .env("FOREBAY_KILL_LOG", &steps)
        .watched()
        .into();
    call.expect(0);
    let steps = std::fs::read_to_string(steps).unwrap().lines().count();
    for at in (1..4).map(|nth| steps * nth / 4) {
        filled.clear_results();
        let killed = filled
            .command(&[])
            .env("FOREBAY_KILL_AT", at.to_string())
            .watched();
        assert_eq!(killed.status.signal(), Some(9), "step {at} of {steps}");
        filled.backfill().expect(0);
        filled.assert_same_as_sequential(&format!("step {at} of {steps}"));
    }
}

#[test]
fn an_end_that_is_in_no_interval_is_named() {
    let nights = NightlyFixture::new(false);
    (0..16).for_each(|day| nights.show(day));
    let from = day(&nights, 12);
    let end = day(&nights, 14);
    let to = day(&nights, 15);
    let args = [
        "backfill",
        "spec.yaml",
        "--every=2d",
        "--from",
        &from,
        "--to",
        &to,
    ];
    let call = nights.shop.forebay(&args).expect(0);
    let line = format!("{end} .. {to}: no whole interval");
    assert!(call.stdout.contains(&line), "{}", call.stdout);
    let call = nights
        .shop
        .forebay(&[args.as_slice(), &["--json"]].concat())
        .expect(0);
    let remainder = json!({ "from": end, "to": to });
    assert_eq!(call.summary()["remainder"], remainder);
}
