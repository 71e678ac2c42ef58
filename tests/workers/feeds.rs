//! Feeds over the network: the same batches, for any worker that reads the rows, and also when workers fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::feed::{Feed, FeedBatch, FeedOptions, SampleOrder};
use forebay::model::codes;
use forebay::prelude::*;
use forebay::run::{Cluster, ClusterOptions, ClusterSecurity, FeedSource};

use crate::support::TestDirectory;
use crate::workers::runs::WorkerProcess;

/// Clicks in many blocks, steps that learn, parts of a split, and two steps that can be mixed.
fn spec(shop: &TestDirectory, feed: &str) -> Pipeline {
    let data = if shop.path("clicks").exists() {
        shop.at("clicks")
    } else {
        shop.clicks("clicks", 300)
    };
    let text = format!(
        r#"
version: 1
name: clicks
sources: {{ clicks: {{ parquet: {{ path: "{data}" }} }} }}
steps:
  features:
    from: clicks
    fit_on: train
    do:
      - filter: "f1 IS NULL OR f1 < 1000000"
      - impute: {{ columns: [f1, f2], with: median }}
      - standardize: {{ columns: [f1, f2, f3] }}
      - vocabulary: {{ columns: [c4, c5], min_count: 2, oov_buckets: 1 }}
      - select: [f1, f2, f3, c4, c5, label]
  bought: {{ from: features, do: [{{ filter: "label = 1" }}] }}
  others: {{ from: features, do: [{{ filter: "label = 0" }}] }}
split: {{ train: "label = 0", validation: "label = 1" }}
sinks: {{ table: {{ from: features, parquet: {{ path: "{}", group_rows_max: 400 }} }} }}
feed: {{ label: label, missing: 0, missing_id: 0, batch_rows: 128, last: short, window_rows: 900, {feed} }}
"#,
        shop.at("out")
    );
    forebay::spec::parse(
        &text,
        "spec.yaml",
        &BTreeMap::new(),
        &Forebay::new().spec_catalog(),
    )
    .unwrap()
}

fn session(state: &str) -> Session {
    let options = SessionOptions {
        threads: 2,
        memory_bytes: 1 << 30,
        batch_rows: 100,
        state: state.to_owned(),
        run_id: None,
    };
    Forebay::new().with_options(options).session().unwrap()
}

/// The same with workers, of which one must be there within `grace`.
pub(crate) fn with_workers(
    session: Session,
    workers: &[&WorkerProcess],
    grace: Duration,
) -> Session {
    let security =
        ClusterSecurity::new(None, workers.first().map(|worker| worker.token.as_path())).unwrap();
    let workers = workers
        .iter()
        .map(|worker| worker.address.clone())
        .collect();
    let options = ClusterOptions {
        workers,
        security,
        lease: Duration::from_secs(3),
        grace,
        local: None,
        launched: None,
    };
    session
        .with_cluster(Cluster::new(options, Arc::new(IgnoreEvents)).unwrap())
        .unwrap()
}

pub(crate) const LONG_GRACE: Duration = Duration::from_secs(60);

fn worker(shop: &TestDirectory, envs: &[(&str, &str)]) -> WorkerProcess {
    WorkerProcess::start(shop, &[], envs)
}

fn fed(session: &Session, pipeline: &Pipeline) -> Result<FeedSource> {
    session.feed(pipeline, None, &FeedConfig::from_pipeline(pipeline)?)
}

/// Everything that batches hold.
fn bytes(batch: &FeedBatch) -> Vec<u8> {
    batch
        .layout()
        .parts
        .iter()
        .flat_map(|part| batch.part(part.role).to_vec())
        .collect()
}

fn deliver(config: FeedOptions) -> Result<Vec<Vec<u8>>> {
    Feed::start(config)?
        .map(|batch| batch.map(|batch| bytes(&batch)))
        .collect()
}

/// Two epochs, shuffled, and one in order.
fn all_batches(fed: &FeedSource) -> Result<Vec<Vec<u8>>> {
    let config = || fed.config(3);
    let mut batches = deliver(FeedOptions {
        epochs: 2,
        ..config()?
    })?;
    let order = SampleOrder {
        mix: config()?.order.mix,
        ..SampleOrder::sequential()
    };
    batches.extend(deliver(FeedOptions { order, ..config()? })?);
    Ok(batches)
}

#[test]
fn workers_give_the_same_batches() {
    let shop = TestDirectory::new();
    let state = shop.at("state");
    let plain = spec(&shop, "order: shuffled");
    session(&state).fit(&plain).unwrap();
    let first = worker(&shop, &[]);
    let second = worker(&shop, &[]);
    for feed in [
        "order: shuffled",
        "split: validation",
        "dense_type: bf16, categorical_type: i32",
        "mix: [{ from: bought, weight: 1 }, { from: others, weight: 3 }], epoch_rows: 2000",
    ] {
        let pipeline = spec(&shop, feed);
        let expected = all_batches(&fed(&session(&state), &pipeline).unwrap()).unwrap();
        assert!(!expected.is_empty());
        for workers in [&[&first][..], &[&first, &second]] {
            let away = with_workers(session(&state), workers, LONG_GRACE);
            assert!(
                all_batches(&fed(&away, &pipeline).unwrap()).unwrap() == expected,
                "{feed} on {} workers",
                workers.len()
            );
        }
    }
    // Of an output, too.
    let report = session(&state).run(&plain).unwrap();
    let expected = all_batches(&fed(&session(&state), &plain).unwrap()).unwrap();
    let away = with_workers(session(&state), &[&first, &second], LONG_GRACE);
    assert!(all_batches(&fed(&away, &plain).unwrap()).unwrap() == expected);
    // And with an artifact, where nothing of it was known.
    let io = away.io();
    let artifact = Artifact::load(
        io,
        &io.resolve(report.artifact_path.as_deref().unwrap())
            .unwrap(),
    )
    .unwrap();
    let applied = |session: Session| {
        let config = FeedConfig::from_pipeline(&plain).unwrap();
        all_batches(&session.feed(&plain, Some(&artifact), &config).unwrap()).unwrap()
    };
    let away = with_workers(session(&shop.at("elsewhere")), &[&first], LONG_GRACE);
    assert!(applied(away) == applied(session(&shop.at("here"))));
}

#[test]
fn every_row_is_delivered_once_when_workers_fail() {
    let shop = TestDirectory::new();
    let state = shop.at("state");
    let pipeline = spec(&shop, "order: shuffled");
    session(&state).fit(&pipeline).unwrap();
    let expected = all_batches(&fed(&session(&state), &pipeline).unwrap()).unwrap();
    let steady = worker(&shop, &[]);
    for (at, with, end) in [
        ("0", "kill", Some(-9)),
        ("9", "kill", Some(-9)),
        ("14", "term", Some(0)),
        ("6", "stop", None),
    ] {
        let mut troubled = worker(
            &shop,
            &[("FOREBAY_KILL_AT", at), ("FOREBAY_KILL_WITH", with)],
        );
        let away = with_workers(session(&state), &[&steady, &troubled], LONG_GRACE);
        assert!(
            all_batches(&fed(&away, &pipeline).unwrap()).unwrap() == expected,
            "{with} at {at}"
        );
        match end {
            Some(code) => assert_eq!(troubled.end(), code, "{with} at {at}"),
            None => assert!(troubled.is_stopped()),
        }
    }
}

#[test]
fn a_feed_without_workers_and_rows_that_cannot_be_fed_say_so() {
    let shop = TestDirectory::new();
    let state = shop.at("state");
    let pipeline = spec(&shop, "order: sequential");
    session(&state).fit(&pipeline).unwrap();
    let dies = worker(&shop, &[("FOREBAY_KILL_ON", "send")]);
    let away = with_workers(session(&state), &[&dies], Duration::from_secs(1));
    let alone = all_batches(&fed(&away, &pipeline).unwrap()).unwrap_err();
    assert_eq!(alone.code(), codes::NO_WORKERS, "{alone}");
    // What is wrong with rows is said of the same rows, and of who read them.
    let steady = worker(&shop, &[]);
    let config = FeedConfig {
        missing_id: None,
        ..FeedConfig::from_pipeline(&pipeline).unwrap()
    };
    let away = with_workers(session(&state), &[&steady], LONG_GRACE);
    let of = |session: &Session| {
        all_batches(&session.feed(&pipeline, None, &config).unwrap()).unwrap_err()
    };
    let here = of(&session(&state));
    let there = of(&away);
    assert_eq!(
        (here.code(), there.code()),
        (codes::BAD_ROW, codes::BAD_ROW),
        "{there}"
    );
    assert!(
        there.site().column.is_some() && !there.site().rows.is_empty(),
        "{there}"
    );
    assert_eq!(
        there.site().worker.as_deref(),
        Some(steady.address.as_str()),
        "{there}"
    );
}

#[test]
fn trainings_and_the_program_feed_by_workers() {
    let shop = TestDirectory::new();
    let data = shop.clicks("clicks", 400);
    let spec = format!(
        r#"
version: 1
name: clicks
sources: {{ clicks: {{ parquet: {{ path: "{data}" }} }} }}
steps:
  features:
    from: clicks
    do:
      - impute: {{ columns: [f1, f2], with: median }}
      - standardize: {{ columns: [f1, f2] }}
      - vocabulary: {{ columns: [c6], min_count: 2, oov_buckets: 1 }}
      - select: [f1, f2, c6, label]
split: {{ by_hash: {{ keys: [f1], parts: {{ train: 0.8, validation: 0.2 }} }} }}
sinks:
  net: {{ from: features, train: {{ path: "${{params.out}}", label: label, model: logistic, batch_rows: 256 }} }}
params: {{ out: {{ type: path }} }}
feed: {{ label: label, missing_id: 0, batch_rows: 256 }}
"#
    );
    shop.write("spec.yaml", &spec.replace("${params.out}", "${out}"));
    let model = |out: &str, more: &[&str]| {
        let args = [
            "run",
            "spec.yaml",
            "--memory=512MiB",
            &format!("--param=out={out}"),
            &format!("--state=state-{out}"),
        ];
        shop.forebay(&[&args[..], more].concat()).expect(0);
        std::fs::read(shop.path(&format!("{out}/model.safetensors"))).unwrap()
    };
    assert!(model("here", &[]) == model("away", &["--local-workers=2"]));
    let feed = |more: &[&str]| {
        let args = [
            "feed",
            "spec.yaml",
            "--json",
            "--memory=512MiB",
            "--param=out=here",
            "--state=state-here",
        ];
        shop.forebay(&[&args[..], more].concat())
            .expect(0)
            .summary()
    };
    let here = feed(&[]);
    let away = feed(&["--local-workers=2"]);
    assert_eq!(
        (&here["rows"], &here["streams"]),
        (&away["rows"], &serde_json::json!(0))
    );
    assert_eq!(away["streams"], 2);
}
