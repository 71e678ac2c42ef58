//! Deadlines: the ladder that a spec declares, what is said about it, and that nothing is left half
//! done. No test waits: deadlines are gone by, or far away.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use crate::support::{ProgramOutput, TestDirectory, content, read_files};

const SPEC: &str = r#"
version: 1
name: nightly
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
      - standardize: { columns: [price] }
      - vocabulary: { columns: [category], min_count: 2 }
  extra:
    from: features
    optional: true
    do:
      - bucketize: { columns: [qty], q: 4 }
DEADLINE
sinks:
  table: { from: features, parquet: { path: "${out}" } }
  more: { from: extra, optional: true, parquet: { path: "${out}-more" } }
"#;

const PAST_DEADLINE: &str = "--deadline=2020-01-01T00:00:00Z";

/// Days that are there in the evening; in the morning there is one more.
const DAYS: usize = 14;

/// A shop with some days, on which the spec has run; then comes one more.
struct DeadlineFixture {
    shop: TestDirectory,
    days: Vec<String>,
    /// What the first run said.
    first: Value,
}

impl DeadlineFixture {
    fn new(deadline: &str) -> DeadlineFixture {
        DeadlineFixture::of(SPEC, deadline)
    }

    fn of(spec: &str, deadline: &str) -> DeadlineFixture {
        let shop = TestDirectory::new();
        let days = shop.days("all");
        std::fs::create_dir_all(shop.path("history")).unwrap();
        let morning = DeadlineFixture {
            shop,
            days,
            first: Value::Null,
        };
        (0..DAYS).for_each(|day| morning.show(day));
        morning
            .shop
            .write("spec.yaml", &spec.replace("DEADLINE", deadline));
        let first = morning.run(&[]).expect(0).summary();
        morning.set_run_costs();
        morning.show(DAYS);
        DeadlineFixture { first, ..morning }
    }

    /// Lets the run before have cost so many seconds: what these tests decide must not hang on the machine.
    fn set_run_costs(&self) {
        let path = self.shop.path(".forebay/costs/nightly.json");
        let mut costs: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for cost in costs["runs"][0].as_array_mut().unwrap() {
            cost["seconds"] = if cost["pass"].as_str().unwrap().starts_with("learn") {
                100.0
            } else {
                50.0
            }
            .into();
        }
        std::fs::write(path, costs.to_string()).unwrap();
    }

    fn show(&self, day: usize) {
        let name = &self.days[day];
        std::fs::copy(
            self.shop.path("all").join(name),
            self.shop.path("history").join(name),
        )
        .unwrap();
    }

    fn run(&self, more: &[&str]) -> ProgramOutput {
        let args = ["run", "spec.yaml", "--json", "--threads=2"];
        self.shop.forebay(&[&args, more].concat())
    }

    /// Rows of the last day.
    fn new_rows(&self) -> u64 {
        read_files(&[self.shop.path("all").join(&self.days[DAYS])]).num_rows() as u64
    }

    fn manifest(&self, out: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.shop.root(out).join("_manifest.json")).unwrap())
            .unwrap()
    }

    /// A run over everything that has no deadline gives these rows, and this artifact.
    fn assert_full_run(&self) {
        let summary = self.run(&[]).expect(0).summary();
        let full = self
            .run(&["--param=out=full", "--state=full-state"])
            .expect(0)
            .summary();
        assert_eq!(summary["artifact"], full["artifact"]);
        assert_eq!(summary.get("ladder"), None);
        assert!(self.shop.visible("out") == self.shop.visible("full"));
        assert!(self.shop.visible("out-more") == self.shop.visible("full-more"));
        assert_eq!(self.manifest("out").get("ladder"), None);
    }

    /// The rows that the first run's artifact gives for all days.
    fn apply_first_artifact(&self) -> arrow::array::RecordBatch {
        let artifact = self.first["artifact_path"].as_str().unwrap();
        let args = [
            "apply",
            artifact,
            "--source=history",
            "--output=applied",
            "--sink=table",
            "--state=apply-state",
        ];
        self.shop.forebay(&args).expect(0);
        self.shop.visible("applied")
    }
}

fn events<'c>(call: &'c ProgramOutput, event: &str) -> Vec<Value> {
    let lines: std::str::Lines<'c> = call.stdout.lines();
    let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["event"] == event).collect()
}

fn actions(call: &ProgramOutput) -> Vec<String> {
    events(call, "at_risk")
        .iter()
        .map(|event| event["action"].as_str().unwrap().to_owned())
        .collect()
}

fn rows_read_by_passes(summary: &Value) -> u64 {
    let passes = summary["passes"].as_array().unwrap().iter();
    passes
        .map(|pass| pass["rows_in"].as_u64().unwrap() - pass["rows_kept"].as_u64().unwrap())
        .sum()
}

#[test]
fn a_deadline_far_away_changes_nothing() {
    let morning = DeadlineFixture::new(
        "deadline: { ladder: [skip_optional, reuse_states, last_model], by: 300d }",
    );
    let call = morning.run(&[]).expect(0);
    assert_eq!(call.summary()["deadline"]["on_time"], true);
    assert!(actions(&call).is_empty());
    // By now there is an earlier run to foretell from.
    let foretold = events(&call, "eta");
    assert!(
        !foretold.is_empty() && foretold.iter().all(|event| event["on_time"] == true),
        "{}",
        call.stdout
    );
    morning.assert_full_run();
}

#[test]
fn optional_steps_and_sinks_are_left_out() {
    let morning = DeadlineFixture::new("deadline: { ladder: [skip_optional] }");
    let before = content(&morning.shop.path("out-more"));
    let call = morning.run(&[PAST_DEADLINE, "--signal-ladder"]).expect(98);
    assert_eq!(actions(&call), ["skip_optional", "none"]);
    let summary = call.summary();
    assert_eq!(
        summary["ladder"]["rungs"],
        serde_json::json!(["skip_optional"])
    );
    assert_eq!(
        summary["ladder"]["skipped"],
        serde_json::json!(["extra", "more"])
    );
    assert_eq!(summary["deadline"]["on_time"], false);
    assert_eq!(morning.manifest("out")["ladder"], summary["ladder"]);
    assert!(
        content(&morning.shop.path("out-more")) == before,
        "what was left out is as it was"
    );
    let rows = morning.shop.visible("out");
    morning.assert_full_run();
    assert!(
        morning.shop.visible("out") == rows,
        "what was not left out is what it always is"
    );
}

#[test]
fn the_last_model_costs_only_what_is_new() {
    let morning =
        DeadlineFixture::new("deadline: { ladder: [skip_optional, reuse_states, last_model] }");
    let summary = morning.run(&[PAST_DEADLINE]).expect(0).summary();
    let ladder = &summary["ladder"];
    assert_eq!(
        ladder["rungs"],
        serde_json::json!(["skip_optional", "reuse_states", "last_model"])
    );
    assert_eq!(ladder["artifact"], morning.first["artifact"]);
    assert_eq!(
        ladder["reused"],
        serde_json::json!(["features.standardize", "features.vocabulary"])
    );
    assert_eq!(
        (&summary["artifact"], &summary["artifact_path"]),
        (&morning.first["artifact"], &morning.first["artifact_path"])
    );
    assert_eq!(rows_read_by_passes(&summary), morning.new_rows());
    assert_eq!(summary["nothing_new"], false);
    assert_eq!(&morning.manifest("out")["ladder"], ladder);
    assert!(morning.shop.visible("out") == morning.apply_first_artifact());
    // Later there is time: nothing of this stands for what the data say.
    morning.assert_full_run();
}

/// Workers read the findings of the earlier artifact from the state directory.
#[test]
fn degraded_runs_have_the_same_rows_on_workers() {
    for (levels, last_level) in [
        ("reuse_states", "reuse_states"),
        ("skip_optional, reuse_states, last_model", "last_model"),
    ] {
        let deadline = format!("deadline: {{ ladder: [{levels}] }}");
        let here = DeadlineFixture::new(&deadline);
        let expected = here.run(&[PAST_DEADLINE]).expect(0).summary();
        let there = DeadlineFixture::new(&deadline);
        let call = there.run(&[PAST_DEADLINE, "--local-workers=2"]).expect(0);
        let summary = call.summary();
        assert_eq!(summary["ladder"]["artifact"], there.first["artifact"]);
        for field in ["rungs", "skipped", "reused"] {
            assert_eq!(summary["ladder"][field], expected["ladder"][field]);
        }
        assert!(
            there.shop.visible("out") == here.shop.visible("out"),
            "{levels}: workers come to something else"
        );
        let degraded = call
            .stdout
            .lines()
            .skip_while(|line| !(line.contains("\"at_risk\"") && line.contains(last_level)));
        let mut moved = degraded.filter(|line| line.contains("\"worker_moved\""));
        assert!(
            moved.next().is_some(),
            "{levels}: no worker did anything\n{}",
            call.stdout
        );
        there.assert_full_run();
    }
}

#[test]
fn what_an_artifact_was_applied_to_is_not_taken_for_a_run() {
    let morning = DeadlineFixture::new("");
    let artifact = morning.first["artifact_path"].as_str().unwrap();
    morning
        .shop
        .forebay(&[
            "apply",
            artifact,
            "--source=history",
            "--output=out",
            "--sink=table",
        ])
        .expect(0);
    morning.assert_full_run();
}

#[test]
fn states_of_another_night_never_meet_those_of_tonight() {
    let deadline = "deadline: { ladder: [reuse_states] }";
    let morning = DeadlineFixture::new(deadline);
    // Tonight's prices are known already, as if the run had come so far.
    let steps = "
steps:
  features:
    from: demand
    do:
      - lag: { columns: [qty], by: [1d, 7d] }
      - standardize: { columns: [price] }
";
    let spec = SPEC.replace("DEADLINE", "");
    let head = &spec[..spec.find("steps:").unwrap()];
    let prices = format!("{}{steps}", head.replace("name: nightly", "name: prices"));
    morning.shop.write("prices.yaml", &prices);
    morning.shop.forebay(&["fit", "prices.yaml"]).expect(0);
    let call = morning.run(&[PAST_DEADLINE]).expect(0);
    let summary = call.summary();
    assert_eq!(
        summary["ladder"]["reused"],
        serde_json::json!(["extra.bucketize", "features.vocabulary"])
    );
    assert_eq!(summary["ladder"]["artifact"], morning.first["artifact"]);
    assert_ne!(summary["artifact"], morning.first["artifact"]);
    let lineage =
        std::path::Path::new(summary["artifact_path"].as_str().unwrap()).join("lineage.json");
    let lineage: Value =
        serde_json::from_slice(&std::fs::read(morning.shop.path("").join(lineage)).unwrap())
            .unwrap();
    assert_eq!(lineage["ladder"], summary["ladder"]);
    morning.assert_full_run();

    // Where buckets are those of standardised prices, prices cannot be tonight's and buckets another's.
    let morning = DeadlineFixture::of(
        &SPEC.replace(
            "bucketize: { columns: [qty]",
            "bucketize: { columns: [price]",
        ),
        deadline,
    );
    morning.shop.write("prices.yaml", &prices);
    morning.shop.forebay(&["fit", "prices.yaml"]).expect(0);
    let summary = morning.run(&[PAST_DEADLINE]).expect(0).summary();
    let all = serde_json::json!([
        "extra.bucketize",
        "features.standardize",
        "features.vocabulary"
    ]);
    assert_eq!(summary["ladder"]["reused"], all);
    assert_eq!(summary["artifact"], morning.first["artifact"]);
}

#[test]
fn findings_are_reused_for_equal_analyzers_only() {
    let deadline = "deadline: { ladder: [reuse_states] }";
    let before = "    do:\n      - derive: { price: \"price * 1\" }\n      - filter: \"date <= DATE '2016-05-22'\"";
    let spec = SPEC.replacen("    do:", before, 1);
    let reused = |changed: &dyn Fn(&str) -> String| {
        let morning = DeadlineFixture::of(&spec, deadline);
        let text = std::fs::read_to_string(morning.shop.path("spec.yaml")).unwrap();
        let later = changed(&text);
        assert_ne!(later, text);
        morning.shop.write("spec.yaml", &later);
        let summary = morning.run(&[PAST_DEADLINE]).expect(0).summary();
        let ladder = summary
            .get("ladder")
            .map(|ladder| ladder["reused"].clone())
            .unwrap_or_default();
        if ladder.is_null() {
            morning.assert_full_run();
        }
        ladder
    };
    // A night moves the dates of conditions.
    let moved = reused(&|text| text.replace("2016-05-22", "2036-05-22"));
    assert_eq!(
        moved,
        serde_json::json!([
            "extra.bucketize",
            "features.standardize",
            "features.vocabulary"
        ])
    );
    // What a column holds, and which rows there are, is another question.
    assert!(reused(&|text| text.replace("price * 1", "price * 2")).is_null());
    assert!(
        reused(&|text| text.replace("DATE '2016-05-22'", "DATE '2016-05-22' AND qty > 0"))
            .is_null()
    );
}

#[test]
fn a_spec_that_learns_otherwise_has_no_last_model() {
    let morning = DeadlineFixture::new("deadline: { ladder: [last_model] }");
    let text = std::fs::read_to_string(morning.shop.path("spec.yaml")).unwrap();
    morning
        .shop
        .write("spec.yaml", &text.replace("min_count: 2", "min_count: 3"));
    let call = morning.run(&[PAST_DEADLINE]).expect(0);
    assert_eq!(actions(&call), ["none"]);
    assert_eq!(call.summary().get("ladder"), None);
    morning.assert_full_run();
}

#[test]
fn without_a_ladder_a_run_warns_and_goes_on() {
    let morning = DeadlineFixture::new("");
    let call = morning
        .shop
        .forebay(&["run", "spec.yaml", PAST_DEADLINE])
        .expect(0);
    assert!(
        call.stderr
            .contains("the deadline 2020-01-01T00:00:00Z is at risk"),
        "{}",
        call.stderr
    );
    assert!(
        call.stderr.contains("nothing more can be done"),
        "{}",
        call.stderr
    );
    assert!(
        call.stdout
            .contains("deadline 2020-01-01T00:00:00Z: missed"),
        "{}",
        call.stdout
    );
    morning.assert_full_run();
    // What is done already is never late.
    let call = morning.run(&[PAST_DEADLINE]).expect(0);
    assert!(
        actions(&call).is_empty() && call.summary()["nothing_new"] == true,
        "{}",
        call.stdout
    );
}

#[test]
fn a_run_that_must_not_be_late_stops() {
    let morning = DeadlineFixture::new("deadline: { on_deadline: fail, ladder: [last_model] }");
    let before = (
        content(&morning.shop.path("out")),
        content(&morning.shop.path(".forebay/artifacts")),
    );
    let call = morning.run(&[PAST_DEADLINE]).expect(75);
    assert_eq!(actions(&call), ["stop"]);
    assert_eq!(call.summary()["fault"]["code"], "FB0305");
    let after = (
        content(&morning.shop.path("out")),
        content(&morning.shop.path(".forebay/artifacts")),
    );
    assert!(before == after, "readers see what they saw");
    morning.assert_full_run();
}

#[test]
fn missing_run_costs_are_no_fault() {
    let morning = DeadlineFixture::new("");
    let costs = morning.shop.path(".forebay/costs/nightly.json");
    let known: Value = serde_json::from_slice(&std::fs::read(&costs).unwrap()).unwrap();
    let passes: Vec<&str> = known["runs"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|cost| cost["pass"].as_str().unwrap())
        .collect();
    assert_eq!(
        passes,
        [
            "learn 1",
            "write table",
            "write more",
            "artifact",
            "publish"
        ]
    );
    std::fs::write(&costs, "nonsense").unwrap();
    morning.assert_full_run();
}

#[test]
fn the_webhook_is_called() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            lines.push(line.trim().to_owned());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            .unwrap();
        (
            lines.remove(0),
            serde_json::from_slice::<Value>(&body).unwrap(),
        )
    });
    let deadline = format!("deadline: {{ webhook: 'http://127.0.0.1:{port}/late?key=secret' }}");
    let morning = DeadlineFixture::new(&deadline);
    morning.run(&[PAST_DEADLINE, "--run-id=tonight"]).expect(0);
    let (line, body) = server.join().unwrap();
    assert_eq!(line, "POST /late?key=secret HTTP/1.1");
    assert_eq!(
        (&body["event"], &body["pipeline"], &body["run_id"]),
        (&"at_risk".into(), &"nightly".into(), &"tonight".into())
    );
    assert_eq!(
        (&body["deadline"], &body["action"]),
        (&"2020-01-01T00:00:00Z".into(), &"none".into())
    );

    // The server is gone; that is no reason to fail, and its address, which may hold a secret, is not said.
    let call = morning
        .run(&[PAST_DEADLINE, "--param=out=again", "--state=state-again"])
        .expect(0);
    let warnings = events(&call, "warning");
    assert_eq!(warnings[0]["message"], "the webhook cannot be reached");
    assert!(!call.stdout.contains("secret") && !call.stderr.contains("secret"));
}

#[test]
fn specs_are_checked_for_what_may_be_left_out() {
    let shop = TestDirectory::new();
    let check = |from: &str, to: &str, says: &[&str]| {
        let spec = SPEC.replace(
            "DEADLINE",
            "deadline: { by: '06:30', ladder: [skip_optional] }",
        );
        assert!(spec.contains(from), "{from}");
        shop.write("spec.yaml", &spec.replace(from, to));
        let call = shop
            .forebay(&["check", "spec.yaml", "--offline"])
            .expect(if says.is_empty() { 0 } else { 78 });
        for words in says {
            assert!(
                call.stderr.contains(words),
                "`{words}` is missing in\n{}",
                call.stderr
            );
        }
    };
    check("by: '06:30'", "by: 45m", &[]);
    check(
        "from: extra, optional: true",
        "from: extra",
        &["FB0113", "`more` reads `extra`, which may be left out"],
    );
    check(
        "from: features, parquet",
        "from: features, optional: true, parquet",
        &["FB0113", "every sink"],
    );
    let twice = "\n  extra:\n    from: features\n    optional: true";
    check(
        twice,
        "\n  last: { from: extra }\n  extra:\n    from: features\n    optional: true",
        &["`last` reads `extra`"],
    );
    let join =
        "- join: { with: extra, on: [date, store_id, item_id], columns: [qty], prefix: its_ }";
    let last = format!(
        "\n  last:\n    from: demand\n    do:\n      {join}\n  extra:\n    from: features\n    optional: true"
    );
    check(
        twice,
        &last,
        &["`last` reads `extra`, which may be left out"],
    );
    check(
        "[skip_optional]",
        "[last_model, reuse_states]",
        &["FB0104", "from the mildest rung"],
    );
    check(
        "[skip_optional]",
        "[skip_everything]",
        &["FB0104", "skip_optional"],
    );
    check(
        "by: '06:30'",
        "by: soon",
        &["FB0104", "`soon` is no deadline", "06:30"],
    );
    check(
        "by: '06:30'",
        "webhook: example.com",
        &["FB0104", "no http:// or https:// URL"],
    );
    check(
        "optional: true",
        "optional: false",
        &["FB0113", "nothing is optional"],
    );
    let usage = shop
        .forebay(&["run", "spec.yaml", "--deadline", "soon"])
        .expect(64);
    assert!(usage.stderr.contains("no deadline"), "{}", usage.stderr);
}
