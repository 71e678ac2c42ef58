//! Ranks that are killed, and what comes after them.
//!
//! Each rank is a process of its own that delivers batches until it is killed, in the midst of loading
//! and filling others. Others, in worlds of 1 to 8, go on from the last step that all ranks had told.
//! The quick form kills a few; `FOREBAY_KILLS=1000 cargo test --workspace --test kills` a thousand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)] // Only tests are here.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::*;
use forebay_feed::*;
use serde_json::{Value, json};

/// What a rank is told.
const RANK_ENV: &str = "FOREBAY_FEED_RANK";

const BLOCKS: [u64; 12] = [40, 7, 61, 33, 8, 90, 1, 25, 64, 16, 50, 3];

const EPOCHS: u64 = 2;

/// Numbers that look random.
struct KillRng(u64);

impl KillRng {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn order(seed: u64) -> SampleOrder {
    if seed % 5 == 4 {
        SampleOrder::sequential()
    } else {
        SampleOrder::shuffled(seed, 20 + seed * 37 % 300)
    }
}

/// Not a test of its own: delivers batches where it is told to, and tells of each.
#[test]
fn rank() {
    let Ok(told) = std::env::var(RANK_ENV) else {
        return;
    };
    let told: Value = serde_json::from_str(&told).unwrap();
    let number = |name: &str| told[name].as_u64().unwrap();
    let cursor = told["cursor"]
        .as_str()
        .map(|cursor| FeedCursor::decode(cursor.as_bytes()).unwrap());
    let mut feed = Feed::start(FeedOptions {
        cursor,
        batch_rows: number("batch_rows") as u32,
        threads: number("threads") as usize,
        slots: number("slots") as usize,
        rank: number("rank") as u32,
        world: number("world") as u32,
        epochs: EPOCHS,
        last: RemainderPolicy::Short,
        ..config(
            TestBlocks::rows("a", &BLOCKS).source(),
            order(number("seed")),
        )
    })
    .unwrap();
    println!();
    while let Some(batch) = feed.next() {
        let batch = batch.unwrap();
        let receipt = batch.receipt();
        let cursor = String::from_utf8(feed.cursor().encode().unwrap()).unwrap();
        let line = json!({ "place": batch.first_place(), "ids": ids(&batch), "cursor": cursor,
            "receipt": [receipt.rows, receipt.hash] });
        println!("{line}");
    }
}

/// A process that delivers.
struct RankProcess(Child, BufReader<ChildStdout>);

impl RankProcess {
    fn start(told: &Value) -> RankProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "rank", "--nocapture"])
            .env(RANK_ENV, told.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        RankProcess(child, out)
    }

    /// The next batch that it tells of; none at the end.
    fn step(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.1.read_line(&mut line).unwrap() > 0 {
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
            line.clear();
        }
        None
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn no_row_is_lost_repeated_or_moved_by_kills() {
    let kills = std::env::var("FOREBAY_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(24);
    let mut random = KillRng(kills);
    let mut killed = 0;
    let mut seed = 0;
    while killed < kills {
        killed += epochs_with_kills(seed, &mut random);
        seed += 1;
    }
}

/// Delivers all epochs by ranks that are killed again and again; how many were.
fn epochs_with_kills(seed: u64, random: &mut KillRng) -> u64 {
    let sequence = order(seed)
        .bind(vec![TestBlocks::rows("a", &BLOCKS).dataset()])
        .unwrap();
    let mut cursor = Value::Null;
    let mut killed = 0;
    let mut seen = Vec::new();
    let mut receipt = DeliveryDigest::default();
    while (seen.len() as u64) < EPOCHS * sequence.epoch_rows() {
        let world = 1 + random.below(8);
        let told = |random: &mut KillRng, batch_rows: u64, rank: u64| {
            json!({ "seed": seed, "cursor": cursor, "batch_rows": batch_rows, "world": world, "rank": rank,
                "threads": 1 + random.below(3), "slots": 1 + random.below(4) })
        };
        let batch_rows = 1 + random.below(12);
        let mut ranks: Vec<RankProcess> = (0..world)
            .map(|rank| RankProcess::start(&told(random, batch_rows, rank)))
            .collect();
        let steps = 1 + random.below(6);
        let mut next = Value::Null;
        for _ in 0..steps {
            let told: Vec<Option<Value>> = ranks.iter_mut().map(RankProcess::step).collect();
            let told: Vec<Value> = told.into_iter().flatten().collect();
            assert!(
                told.is_empty() || told.len() as u64 == world,
                "all ranks have the same steps"
            );
            for batch in &told {
                let ids = batch["ids"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|id| id.as_i64().unwrap());
                seen.extend((batch["place"].as_u64().unwrap()..).zip(ids));
                let of = |at: usize| batch["receipt"][at].as_u64().unwrap();
                receipt += DeliveryDigest {
                    rows: of(0),
                    hash: of(1),
                };
                assert_eq!(batch["cursor"], told[0]["cursor"]);
                next = batch["cursor"].clone();
            }
        }
        killed += world;
        ranks.into_iter().for_each(RankProcess::kill);
        cursor = next;
    }
    seen.sort_unstable();
    let mut whole = DeliveryDigest::default();
    let expected = sequence.rows(0..EPOCHS * sequence.epoch_rows());
    assert_eq!(seen.len(), expected.len());
    for ((place, id), (at, row)) in seen.iter().zip((0..).zip(&expected)) {
        assert_eq!((*place, *id), (at, row.row as i64), "seed {seed}");
        whole.add(at, *row);
    }
    assert_eq!(receipt, whole);
    killed
}
