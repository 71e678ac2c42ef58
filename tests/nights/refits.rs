//! Steps that hold what they learned: a new day then changes its own rows alone.

use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::nights::intervals::day;
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, content};

/// Windows that reach eight days back, and what two steps learn.
const SPEC: &str = r#"
version: 1
name: nights
params:
  history: { type: path, default: history }
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: "${history}" }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    REFIT
    do:
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 1d }
      - standardize: { columns: [price, qty_mean_7d] }
      - vocabulary: { columns: [category], min_count: 2 }
  scaled:
    from: features
    LATER
    do:
      - min_max: { columns: [qty] }
      - robust_scale: { columns: [price] }
sinks:
  table: { from: scaled, parquet: { path: "${out}" } }
"#;

/// Days that are there before the first night.
const FIRST: usize = 12;

struct Nights(NightlyFixture);

impl Nights {
    fn new(refit: &str, days: usize) -> Nights {
        let nights = Nights(NightlyFixture::with_spec(&spec(refit, refit)));
        (0..days).for_each(|day| nights.0.show(day));
        nights
    }

    fn shop(&self) -> &TestDirectory {
        &self.0.shop
    }

    fn run(&self, args: &[&str], code: i32) -> Value {
        let call = self.shop().forebay(
            &[
                &["run", "spec.yaml", "--json", "--signal-nothing-new"],
                args,
            ]
            .concat(),
        );
        call.expect(code).summary()
    }

    fn interval(&self, number: usize, code: i32) -> Value {
        self.run(
            &[
                "--interval",
                &day(&self.0, number),
                &day(&self.0, number + 1),
            ],
            code,
        )
    }

    /// What an artifact makes of all rows that are there.
    fn applied(&self, summary: &Value) -> arrow::array::RecordBatch {
        let artifact = summary["artifact_path"].as_str().unwrap();
        let out = self.shop().path("applied");
        let _ = std::fs::remove_dir_all(&out);
        let _ = std::fs::remove_dir_all(self.shop().root("applied"));
        let args = [
            "apply",
            artifact,
            "--source=history",
            "--output=applied",
            "--state=apply-state",
        ];
        self.shop().forebay(&args).expect(0);
        self.shop().visible("applied")
    }
}

fn spec(refit: &str, later: &str) -> String {
    let key = |text: &str| {
        if text.is_empty() {
            String::new()
        } else {
            format!("refit: {text}")
        }
    };
    SPEC.replace("REFIT", &key(refit))
        .replace("LATER", &key(later))
}

/// Whether each step holds what an earlier night learned.
fn held(summary: &Value) -> Vec<bool> {
    summary["refits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["held"].as_bool().unwrap())
        .collect()
}

fn reason(summary: &Value, step: usize) -> String {
    summary["refits"][step]["reason"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Rows that a pass read, rather than taking over what an earlier night made of them.
fn rows_read(summary: &Value, work: &str) -> u64 {
    let passes = summary["passes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pass| pass["work"] == work);
    let read = |pass: &Value| {
        if pass["reused"].as_bool().unwrap() {
            0
        } else {
            pass["rows_in"].as_u64().unwrap() - pass["rows_kept"].as_u64().unwrap()
        }
    };
    passes.map(read).sum()
}

#[test]
fn what_was_learned_is_in_force_until_its_time_has_passed() {
    let nights = Nights::new("3d", FIRST);
    let mut learned: Value = Value::Null;
    for night in 0..7 {
        let newest = FIRST + night;
        nights.0.show(newest);
        let summary = nights.run(&[], 0);
        let anew = night % 3 == 0;
        assert_eq!(held(&summary), [!anew, !anew], "night {night}");
        if anew {
            learned = summary.clone();
        }
        // All that was learned is that of the night in force, and so is the artifact.
        assert_eq!(summary["artifact"], learned["artifact"], "night {night}");
        assert_eq!(
            summary["refits"][0]["since"],
            day(&nights.0, newest - night % 3)
        );
        assert_eq!(rows_read(&summary, "learn") == 0, !anew);
        // Eight days of the windows, the new one, and the shard that they end in.
        let read = rows_read(&summary, "write");
        let all = nights.shop().visible("out").num_rows() as u64;
        assert_eq!(read < all, !anew, "night {night}: {read} of {all}");
        assert!(
            nights.shop().visible("out") == nights.applied(&learned),
            "night {night}"
        );
        let again = nights.run(&[], 99);
        assert_eq!(
            (&again["artifact"], &again["refits"]),
            (&summary["artifact"], &summary["refits"])
        );
    }
    assert_eq!(
        reason(&learned, 1),
        format!("3d had passed since {}", day(&nights.0, FIRST + 3))
    );
    let explained = nights
        .shop()
        .forebay(&["explain", "spec.yaml"])
        .expect(0)
        .stdout;
    let since = day(&nights.0, FIRST + 6);
    assert!(
        explained.contains(&format!(
            "features: learned anew at {since} (3d had passed since"
        )),
        "{explained}"
    );
    nights.0.show(FIRST + 7);
    let explained = nights
        .shop()
        .forebay(&["explain", "spec.yaml"])
        .expect(0)
        .stdout;
    assert!(
        explained.contains(&format!(
            "features: in force since {since} (3d had passed since"
        )),
        "{explained}"
    );
    let said = nights
        .shop()
        .forebay(&["run", "spec.yaml"])
        .expect(0)
        .stdout;
    assert!(
        said.contains(&format!(
            "scaled: in force since {since} (3d had passed since"
        )),
        "{said}"
    );
    let artifact = learned["artifact_path"].as_str().unwrap();
    let shown = nights.shop().forebay(&["show", artifact]).expect(0).stdout;
    assert!(
        shown.contains(&format!("scaled learned at {since}: 3d had passed since")),
        "{shown}"
    );
}

#[test]
fn a_night_at_rest_reads_the_new_day_and_its_halo_alone() {
    let spec = SPEC
        .replace("REFIT", "refit: never")
        .replace("LATER", "refit: never");
    let shop = NightlyFixture::with_spec(&spec);
    std::fs::create_dir_all(shop.shop.path("buckets/lake/history")).unwrap();
    let show = |number: usize| {
        let to = shop
            .shop
            .path("buckets/lake/history")
            .join(&shop.days[number]);
        std::fs::copy(shop.shop.path("all").join(&shop.days[number]), &to).unwrap();
        // The metadata of files that are just written is not kept.
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        std::fs::File::options()
            .write(true)
            .open(to)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    };
    let server = S3Server::start(&shop.shop.path("buckets"));
    let run = |state: &str, out: &str| -> Value {
        let state = format!("--state={state}");
        let out = format!("--param=out={out}");
        let args = [
            "run",
            "spec.yaml",
            "--json",
            "--param=history=s3://lake/history",
            &state,
            &out,
        ];
        server.forebay(&shop.shop, &args).expect(0).summary()
    };
    (0..34).for_each(show);
    run("state", "out");
    let mut rest = Value::Null;
    for number in 34..37 {
        show(number);
        rest = run("state", "out");
        assert_eq!(held(&rest), [true, true]);
    }
    let bytes = |from: usize, to: usize| -> u64 {
        (from..to)
            .map(|at| {
                std::fs::metadata(shop.shop.path("all").join(&shop.days[at]))
                    .unwrap()
                    .len()
            })
            .sum()
    };
    let read = rest["storage"]["bytes_read"].as_u64().unwrap();
    let near = bytes(28, 37);
    let all = bytes(0, 37);
    // The new day, eight days before it, and the footers of files, each of which is as long as its few rows.
    assert!(
        read < near + near / 2,
        "{read} bytes were read; the new day and its halo have {near}, all have {all}"
    );
    // Only shards of the last days were written again.
    let kept = rest["passes"].as_array().unwrap().last().unwrap()["rows_kept"]
        .as_u64()
        .unwrap();
    assert!(
        2 * kept > shop.shop.visible("out").num_rows() as u64,
        "{rest}"
    );
    // Learning anew each night reads and writes everything.
    shop.shop
        .write("spec.yaml", &spec.replace("refit: never", "refit: always"));
    let always = run("state", "out");
    assert!(
        always["storage"]["bytes_read"].as_u64().unwrap() > 2 * read,
        "{always}"
    );
}

#[test]
fn drift_makes_a_step_learn_anew() {
    let nights = Nights(NightlyFixture::with_spec(&spec(
        "drift above 0.02",
        "never",
    )));
    (0..FIRST).for_each(|day| nights.0.show(day));
    let first = nights.run(&[], 0);
    assert_eq!(
        (held(&first), reason(&first, 0)),
        (
            vec![false, false],
            "no earlier run had learned it".to_owned()
        )
    );
    for night in FIRST..FIRST + 3 {
        nights.0.show(night);
        let summary = nights.run(&[], 0);
        assert_eq!(held(&summary), [true, true]);
        let drift = summary["refits"][0]["drift"].as_f64().unwrap();
        assert!(drift > 0.0 && drift < 0.02, "{summary}");
        assert!(summary["refits"][1]["drift"].is_null());
        assert_eq!(summary["artifact"], first["artifact"]);
        let again = nights.run(&[], 99);
        assert_eq!(
            (&again["artifact"], &again["refits"]),
            (&summary["artifact"], &summary["refits"])
        );
    }
    // Without most days, the categories and prices of those that are left are others.
    (1..FIRST + 2).for_each(|day| nights.0.hide(day));
    let text = std::fs::read_to_string(nights.shop().path("spec.yaml")).unwrap();
    nights.shop().write(
        "spec.yaml",
        &text.replace("drift above 0.02", "drift above 0.0"),
    );
    let summary = nights.run(&[], 0);
    assert_eq!(held(&summary), [false, false]);
    assert!(
        reason(&summary, 0).starts_with("the drift was "),
        "{summary}"
    );
    assert_eq!(reason(&summary, 1), "`features` was learned anew");
    assert_ne!(summary["artifact"], first["artifact"]);
    assert!(nights.shop().visible("out") == nights.applied(&summary));
    let again = nights.run(&[], 99);
    assert_eq!(
        (&again["artifact"], &again["refits"]),
        (&summary["artifact"], &summary["refits"])
    );
}

#[test]
fn intervals_and_backfills_come_to_the_same() {
    for refit in ["3d", "drift above 0.001"] {
        let days = FIRST..FIRST + 6;
        let nights = Nights::new(refit, days.end);
        let found: Vec<Value> = days.clone().map(|day| nights.interval(day, 0)).collect();
        if refit == "3d" {
            let expected = [false, true, true, false, true, true];
            assert_eq!(
                found
                    .iter()
                    .map(|summary| held(summary)[0])
                    .collect::<Vec<_>>(),
                expected
            );
        }
        let rows = nights.shop().visible("out");
        for at in [2, 0, 5] {
            let again = nights.interval(days.start + at, 99);
            assert_eq!(
                (&again["artifact"], &again["refits"]),
                (&found[at]["artifact"], &found[at]["refits"])
            );
            assert!(nights.shop().visible("out") == rows);
        }
        let artifacts = content(&nights.shop().path(".forebay/artifacts"));
        for args in [["--beside=1", "--threads=2"], ["--beside=3", "--threads=3"]] {
            for place in ["out", ".out.forebay", ".forebay"] {
                let _ = std::fs::remove_dir_all(nights.shop().path(place));
            }
            let from = day(&nights.0, days.start);
            let to = day(&nights.0, days.end);
            let fixed = [
                "backfill",
                "spec.yaml",
                "--json",
                "--from",
                &from,
                "--to",
                &to,
            ];
            nights
                .shop()
                .forebay(&[&fixed[..], &args[..]].concat())
                .expect(0);
            assert!(nights.shop().visible("out") == rows, "{refit} {args:?}");
            assert!(
                content(&nights.shop().path(".forebay/artifacts")) == artifacts,
                "{refit} {args:?}"
            );
        }
    }
}

#[test]
fn a_removed_artifact_and_a_changed_step_learn_anew() {
    let nights = Nights::new("never", FIRST);
    let first = nights.run(&[], 0);
    nights.0.show(FIRST);
    assert_eq!(held(&nights.run(&[], 0)), [true, true]);
    // The step after a changed one learns other values.
    let text = std::fs::read_to_string(nights.shop().path("spec.yaml")).unwrap();
    nights.shop().write(
        "spec.yaml",
        &text.replace(
            "standardize: { columns: [price,",
            "standardize: { columns: [",
        ),
    );
    let changed = nights.run(&[], 0);
    assert_eq!(
        (held(&changed), reason(&changed, 0)),
        (vec![false, false], "what it learns had changed".to_owned())
    );
    nights.0.show(FIRST + 1);
    let rest = nights.run(&[], 0);
    assert_eq!(
        (held(&rest), &rest["artifact"]),
        (vec![true, true], &changed["artifact"])
    );
    std::fs::remove_dir_all(
        nights
            .shop()
            .path(changed["artifact_path"].as_str().unwrap()),
    )
    .unwrap();
    nights.0.show(FIRST + 2);
    let anew = nights.run(&[], 0);
    assert_eq!(
        (held(&anew), reason(&anew, 0)),
        (
            vec![false, false],
            "no earlier run had learned it".to_owned()
        )
    );
    assert_ne!(anew["artifact"], first["artifact"]);
    // Garbage collection leaves what the next learning goes on from.
    nights.0.show(FIRST + 3);
    assert_eq!(held(&nights.run(&[], 0)), [true, true]);
    nights
        .shop()
        .forebay(&["cache", "gc", "--older-than=0s"])
        .expect(0);
    nights.shop().write(
        "spec.yaml",
        &text
            .replace("refit: never", "refit: 4d")
            .replace("[price,", "["),
    );
    nights.0.show(FIRST + 4);
    assert_eq!(held(&nights.run(&[], 0)), [true, true]);
    nights.0.show(FIRST + 5);
    nights.0.show(FIRST + 6);
    let due = nights.run(&[], 0);
    assert_eq!(held(&due), [false, false]);
    let all = nights.shop().visible("out").num_rows() as u64;
    let learned = due["passes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pass| pass["work"] == "learn");
    assert!(
        learned
            .clone()
            .any(|pass| pass["rows_kept"].as_u64().unwrap() > all / 2),
        "{due}"
    );
}

#[test]
fn a_killed_night_comes_to_what_it_would_have_come_to() {
    for refit in ["drift above 0.0", "1d"] {
        let prepare = || {
            let nights = Nights::new(refit, FIRST);
            nights.run(&[], 0);
            nights.0.show(FIRST);
            nights
        };
        let whole = prepare();
        let steps = whole.shop().path("steps");
        let command = |nights: &Nights| nights.shop().command(&["run", "spec.yaml", "--json"]);
        let call: ProgramOutput = command(&whole)
            .env("FOREBAY_KILL_LOG", &steps)
            .watched()
            .into();
        let summary = call.expect(0).summary();
        assert_eq!(held(&summary), [false, false]);
        let expected = (summary["artifact"].clone(), whole.shop().visible("out"));
        let steps = std::fs::read_to_string(steps).unwrap().lines().count();
        for at in (1..steps).step_by((steps / 6).max(1)) {
            let nights = prepare();
            let before = nights.shop().visible("out");
            let killed = command(&nights)
                .env("FOREBAY_KILL_AT", at.to_string())
                .watched();
            assert_eq!(killed.status.signal(), Some(9), "step {at} of {steps}");
            let visible = nights.shop().visible("out");
            assert!(
                visible == before || visible == expected.1,
                "step {at}: a mixture"
            );
            let summary = nights
                .shop()
                .forebay(&["run", "spec.yaml", "--json"])
                .expect(0)
                .summary();
            assert!(
                (&summary["artifact"], nights.shop().visible("out"))
                    == (&expected.0, expected.1.clone()),
                "step {at}"
            );
            nights.run(&[], 99);
        }
    }
}

#[test]
fn workers_hold_the_same() {
    for refit in ["2d", "drift above 0.00001"] {
        let alone = Nights::new(refit, FIRST);
        let together = Nights::new(refit, FIRST);
        for night in FIRST..FIRST + 4 {
            [&alone, &together]
                .iter()
                .for_each(|nights| nights.0.show(night));
            let expected = alone.run(&[], 0);
            let found = together.run(&["--local-workers=2"], 0);
            assert_eq!(
                (&found["artifact"], &found["refits"]),
                (&expected["artifact"], &expected["refits"]),
                "{refit}"
            );
            assert!(together.shop().visible("out") == alone.shop().visible("out"));
        }
    }
}

#[test]
fn a_degraded_run_of_an_old_interval_takes_the_artifact_before_it() {
    let deadline = "deadline: { ladder: [last_model] }\nsinks:";
    let nights = Nights(NightlyFixture::with_spec(
        &spec("", "").replace("sinks:", deadline),
    ));
    (0..FIRST + 4).for_each(|day| nights.0.show(day));
    let found: Vec<Value> = [FIRST, FIRST + 2]
        .into_iter()
        .map(|day| nights.interval(day, 0))
        .collect();
    let late = |number: usize| {
        let from = day(&nights.0, number);
        let to = day(&nights.0, number + 1);
        let args = [
            "--interval",
            &from,
            &to,
            "--deadline=2020-01-01T00:00:00Z",
            "--signal-ladder",
        ];
        nights.run(&args, 98)
    };
    // The newest artifact knows later days than this interval may see.
    assert_eq!(late(FIRST + 1)["ladder"]["artifact"], found[0]["artifact"]);
    assert_eq!(late(FIRST + 3)["ladder"]["artifact"], found[1]["artifact"]);
    assert_ne!(found[0]["artifact"], found[1]["artifact"]);
}

#[test]
fn a_degraded_run_leaves_a_step_due_that_it_did_not_learn() {
    let deadline = "deadline: { ladder: [reuse_states] }\nsinks:";
    let nights = Nights(NightlyFixture::with_spec(
        &spec("2d", "2d").replace("sinks:", deadline),
    ));
    (0..FIRST).for_each(|day| nights.0.show(day));
    let first = nights.run(&[], 0);
    (FIRST..FIRST + 3).for_each(|day| nights.0.show(day));
    let late = nights.run(&["--deadline=2020-01-01T00:00:00Z", "--signal-ladder"], 98);
    assert_eq!(late["ladder"]["artifact"], first["artifact"]);
    assert_eq!(
        (held(&late), &late["refits"][0]["since"]),
        (vec![true, true], &first["refits"][0]["since"])
    );
    nights.0.show(FIRST + 3);
    let due = nights.run(&[], 0);
    assert_eq!(held(&due), [false, false]);
    let since = first["refits"][0]["since"].as_str().unwrap();
    assert_eq!(reason(&due, 0), format!("2d had passed since {since}"));
}

/// Models and forecasts of a step whose statistics are held; the model goes on from the night before.
const FORECAST: &str = r#"
version: 1
name: nights
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  windows:
    from: demand
    do:
      - filter: "qty IS NOT NULL"
      - future_rows: { horizon: 3d, every: 1d, carry: [category] }
      - lag: { columns: [qty], by: [3d, 7d] }
  features:
    from: windows
    refit: 3d
    do:
      - standardize: { columns: [qty_lag_3d, qty_lag_7d] }
      - vocabulary: { columns: [category], stable: true, oov_buckets: 1 }
label: { column: qty, horizon: 3d, known: [category, department, price, promotion, event] }
sinks:
  net:
    from: features
    train:
      path: "${out}/net"
      model: mlp
      start: last
      hidden: [8]
      dense: [qty_lag_3d, qty_lag_7d]
      categorical: [category]
      missing: 0
  forecast: { from: features, predict: { model: net, path: "${out}/forecast", min: 0 } }
"#;

#[test]
fn forecasts_use_what_is_in_force() {
    let nights = Nights(NightlyFixture::with_spec(FORECAST));
    (0..FIRST + 8).for_each(|day| nights.0.show(day));
    let mut before: Option<Value> = None;
    for night in 0..4 {
        if night > 0 {
            nights.0.show(FIRST + 7 + night);
        }
        let summary = nights.run(&[], 0);
        assert_eq!(held(&summary), [night % 3 != 0]);
        let told = &summary["forecasts"][0];
        let rows = nights.shop().rows("out/forecast");
        assert_eq!(rows.num_rows() as u64, told["series"].as_u64().unwrap() * 3);
        assert_eq!(told["artifact"], summary["artifact"]);
        let model = &summary["models"][0];
        assert_eq!(told["model"], model["id"]);
        if let Some(before) = &before {
            assert_eq!(model["start"]["from"], before["models"][0]["id"], "{model}");
            assert!(
                model["start"]["new_rows"].as_u64() < model["start"]["all_rows"].as_u64(),
                "{model}"
            );
            assert_eq!(summary["artifact"] == before["artifact"], night % 3 != 0);
        }
        let again = nights.run(&[], 99);
        assert_eq!(
            (&again["models"][0]["id"], &again["refits"]),
            (&model["id"], &summary["refits"])
        );
        // Night by night on workers, it is the same forecast.
        let elsewhere = [
            "--local-workers=2",
            "--state=other",
            "--param=out=elsewhere",
        ];
        assert_eq!(nights.run(&elsewhere, 0)["models"][0]["id"], model["id"]);
        assert!(
            nights.shop().rows("elsewhere/forecast") == rows,
            "night {night}"
        );
        before = Some(summary);
    }
}

/// A feed of rows that a run has written, with what it has held.
#[test]
fn a_feed_reads_what_was_written_with_held_statistics() {
    let feed = format!("{}feed: {{ missing: 0 }}\n", spec("3d", "3d"));
    let nights = Nights(NightlyFixture::with_spec(&feed));
    (0..FIRST).for_each(|day| nights.0.show(day));
    for night in 0..3 {
        nights.0.show(FIRST + night);
        nights.run(&[], 0);
        let shown = nights
            .shop()
            .forebay(&["feed", "spec.yaml", "--rows=64"])
            .expect(0)
            .stdout;
        assert!(
            shown.contains("from the output of `table`"),
            "night {night}: {shown}"
        );
    }
}

#[test]
fn a_step_cannot_rest_on_one_that_does_not() {
    let check = |text: &str| {
        let shop = NightlyFixture::with_spec(text);
        shop.show(0);
        shop.shop.forebay(&["check", "spec.yaml"])
    };
    let moving = spec("", "7d").replace(
        "columns: [qty] }\n      - robust",
        "columns: [qty_mean_7d] }\n      - robust",
    );
    let said = check(&moving).expect(78).stderr;
    assert!(
        said.contains(
            "`scaled` would hold statistics of values that `features` learns anew in each run"
        ),
        "{said}"
    );
    assert!(said.contains("give `features` a `refit`, too"), "{said}");
    let said = check(&spec("sometimes", "")).expect(78).stderr;
    assert!(
        said.contains("`sometimes` does not say when a step learns anew"),
        "{said}"
    );
    assert!(said.contains("spec.yaml:12"), "{said}");
    let timeless = spec("7d", "7d").replace("time: date, keys: [store_id, item_id] }", "}");
    let timeless = timeless.replace(
        "      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 1d }\n",
        "",
    );
    let nights = Nights(NightlyFixture::with_spec(
        &timeless.replace(", qty_mean_7d", ""),
    ));
    nights.0.show(0);
    let said = nights
        .shop()
        .forebay(&["run", "spec.yaml"])
        .expect(78)
        .stderr;
    assert!(said.contains("no source declares its `time`"), "{said}");
}
