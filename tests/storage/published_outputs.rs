//! What runs count, publish and remove: manifests are believed only where they can be, and what is published stays
//! as it is until a run that succeeds replaces it.

use std::fs;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Date32Array, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use crate::support::s3_server::S3Server;
use crate::support::{ProgramOutput, TestDirectory, content};

/// Twelve days of two stores, in one file.
fn history(shop: &TestDirectory) {
    let mut text = String::from("store,day,qty,price\n");
    for row in 0..24 {
        text += &format!(
            "{},2016-01-{:02},{},{}.5\n",
            ["a", "b"][row % 2],
            1 + row / 2,
            row * 7 % 11,
            row % 5
        );
    }
    shop.write("history.csv", &text);
}

/// A spec over the history with these steps and sinks.
fn spec(shop: &TestDirectory, steps: &str, sinks: &str) {
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: test\nsources:\n  demand:\n    csv: {{ path: history.csv }}\n    time: day\n    \
             keys: [store]\nsteps:\n  features:\n    from: demand\n    do:\n{steps}sinks:\n{sinks}"
        ),
    );
}

const LAG: &str = "      - lag: { columns: [qty], by: [1d] }\n      - derive: { before: \"COALESCE(qty_lag_1d, 0)\" }\n      \
                   - select: [store, day, qty, price, before]\n";
const TABLE: &str = "  table: { from: features, parquet: { path: out } }\n";
const NET: &str = "  net: { from: features, train: { model: linear, label: qty, dense: [price, before], epochs: 1, path: net } }\n";

#[test]
fn manifests_name_nothing_outside_of_their_output() {
    let shop = TestDirectory::new();
    history(&shop);
    spec(&shop, LAG, TABLE);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let path = shop.path(".out.forebay/_manifest.json");
    let good: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fs::create_dir_all(shop.path("victim")).unwrap();
    shop.write("victim/file", "precious");
    let with = |field: &str, value: Value| {
        let mut bad = good.clone();
        bad[field] = value;
        bad.to_string()
    };
    let mut file = good.clone();
    file["shards"][0]["files"][0]["path"] = "../victim/file".into();
    let mut loose = good.clone();
    loose["shards"][0]["files"][0]["path"] = "part-00000.parquet".into();
    let cases = [
        (with("previous", json!([shop.at("victim")])), "FB0203"),
        (with("previous", json!(["../victim"])), "FB0203"),
        (with("previous", json!(["_data/../../victim"])), "FB0203"),
        (with("previous", json!(["_data"])), "FB0203"),
        (with("previous", json!(["_data//x"])), "FB0203"),
        (with("data", json!("../victim")), "FB0203"),
        (file.to_string(), "FB0203"),
        (loose.to_string(), "FB0203"),
        ("no manifest".to_owned(), "FB0203"),
        (good.to_string()[..40].to_owned(), "FB0203"),
        (with("format", json!(9)), "FB0209"),
        ("{\"format\": 1}".to_owned(), "FB0209"),
    ];
    // Other rows, so that a run would publish.
    spec(&shop, "      - filter: \"qty > 3\"\n", TABLE);
    for (bad, code) in cases {
        fs::write(&path, &bad).unwrap();
        let call = shop.forebay(&["run", "spec.yaml"]).expect(65);
        let said = &call.stderr;
        assert!(
            said.contains(code)
                && said.contains(".out.forebay/_manifest.json")
                && said.contains("hint:"),
            "{bad}\n{said}"
        );
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            bad,
            "the manifest was replaced"
        );
        assert!(shop.path("victim/file").exists(), "{bad}");
        shop.forebay(&["cache", "gc", "--older-than", "0s"])
            .expect(65);
        assert!(
            !content(&shop.path(".out.forebay/_data")).is_empty(),
            "{bad}"
        );
        let found = shop
            .forebay(&["cache", "verify", "--json"])
            .expect(65)
            .summary();
        assert!(
            found["broken"].to_string().contains("_manifest.json"),
            "{found}"
        );
    }
    fs::remove_file(&path).unwrap();
    shop.forebay(&["run", "spec.yaml"]).expect(0);
}

#[test]
fn collection_needs_all_roots() {
    let shop = TestDirectory::new();
    history(&shop);
    spec(&shop, "      - standardize: { columns: [price] }\n", TABLE);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let before = content(&shop.path(".forebay"));
    let id = fs::read_dir(shop.path(".forebay/artifacts"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let lineage = id
        .filter(|path| path.is_dir())
        .last()
        .unwrap()
        .join("lineage.json");
    for file in [shop.path(".forebay/artifacts/test.json"), lineage] {
        let whole = fs::read(&file).unwrap();
        for broken in ["", "{", "{\"artifact\": \"../../victim\""] {
            fs::write(&file, broken).unwrap();
            let call = shop
                .forebay(&["cache", "gc", "--older-than", "0s"])
                .expect(65);
            assert!(
                call.stderr.contains("nothing was removed"),
                "{}",
                call.stderr
            );
        }
        fs::write(&file, whole).unwrap();
    }
    assert!(content(&shop.path(".forebay")) == before);
}

#[test]
fn a_proof_on_scrambled_rows_leaves_models_as_they_are() {
    let shop = TestDirectory::new();
    history(&shop);
    spec(&shop, LAG, NET);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let before = content(&shop.path("net"));
    let call = shop
        .forebay(&["check", "spec.yaml", "--perturb-future", "--json"])
        .expect(0);
    assert!(
        content(&shop.path("net")) == before,
        "the model was replaced"
    );
    // The rows that the model learns from are compared.
    let sinks = call.summary()["perturbed"]["cuts"][0]["sinks"].clone();
    assert!(
        sinks[0]["sink"] == "net" && sinks[0]["rows"].as_u64().unwrap() > 0,
        "{sinks}"
    );
}

#[test]
fn what_workers_wrote_is_trained_on_and_fed() {
    let shop = TestDirectory::new();
    history(&shop);
    let feed = "feed: { label: qty, dense: [price, before], batch_rows: 8 }\n";
    spec(&shop, LAG, &format!("{TABLE}{NET}{feed}"));
    let model = |args: &[&str]| {
        shop.forebay(&[&["run", "spec.yaml"], args].concat())
            .expect(0);
        fs::read(shop.path("net/model.safetensors")).unwrap()
    };
    let away = model(&["--state=away", "--local-workers=1"]);
    let directories = fs::read_dir(shop.path(".out.forebay/_data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert!(
        directories
            .into_iter()
            .all(|name| name.to_string_lossy().contains('.')),
        "no attempt of a worker"
    );
    let fed = shop
        .forebay(&["feed", "spec.yaml", "--state=away", "--json"])
        .expect(0)
        .summary();
    assert_eq!(fed["rows"], 24, "{fed}");
    shop.remove_output("out");
    assert!(model(&["--state=here"]) == away);
}

/// Writes rows of a day (or none) and a number as Parquet, with so many rows in a row group.
fn parquet(shop: &TestDirectory, name: &str, rows: &[(Option<i32>, i64)], group_rows: usize) {
    let days: ArrayRef = Arc::new(rows.iter().map(|(day, _)| *day).collect::<Date32Array>());
    let numbers: ArrayRef = Arc::new(
        rows.iter()
            .map(|(_, number)| *number)
            .collect::<Int64Array>(),
    );
    let batch =
        RecordBatch::try_from_iter_with_nullable([("day", days, true), ("x", numbers, true)])
            .unwrap();
    let path = shop.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let mut writer = ArrowWriter::try_new(
        fs::File::create(path).unwrap(),
        batch.schema(),
        Some(properties),
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// A spec over the Parquet files of a folder.
fn parquet_spec(shop: &TestDirectory, folder: &str, steps: &str, rest: &str) {
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: test\nsources:\n  rows: {{ parquet: {{ path: {folder} }}, time: day }}\nsteps:\n  \
             features:\n    from: rows\n    do:\n{steps}{rest}"
        ),
    );
}

fn passes(summary: &Value) -> Vec<(u64, u64, u64)> {
    let number = |pass: &Value, name: &str| pass[name].as_u64().unwrap();
    let all = summary["passes"].as_array().unwrap().iter();
    all.map(|pass| {
        (
            number(pass, "rows_in"),
            number(pass, "rows_out"),
            number(pass, "rows_filtered"),
        )
    })
    .collect()
}

#[test]
fn rows_of_row_groups_that_are_not_read_are_counted() {
    let shop = TestDirectory::new();
    let rows: Vec<(Option<i32>, i64)> = (0..1000).map(|x| (Some(x / 100), i64::from(x))).collect();
    parquet(&shop, "data/a.parquet", &rows, 100);
    parquet(&shop, "data/b.parquet", &rows[..500], 100);
    let steps = "      - filter: \"x >= 950\"\n      - standardize: { columns: [x], suffix: _z }\n";
    parquet_spec(&shop, "data", steps, &format!("sinks:\n{TABLE}"));
    for threads in ["--threads=1", "--threads=2"] {
        let state = threads.replace("--threads=", "--state=state-");
        let fit = shop
            .forebay(&["fit", "spec.yaml", "--json", threads, &state])
            .expect(0)
            .summary();
        assert_eq!(passes(&fit), [(1500, 0, 1450)], "{fit}");
        let run = shop
            .forebay(&["run", "spec.yaml", "--json", threads, &state])
            .expect(0)
            .summary();
        assert_eq!(passes(&run).last(), Some(&(1500, 50, 1450)), "{run}");
        let artifact = run["artifact_path"].as_str().unwrap();
        let apply = [
            "apply",
            artifact,
            "--source=data",
            "--output=applied",
            "--json",
            threads,
            &state,
        ];
        let apply = shop.forebay(&apply).expect(0).summary();
        assert_eq!(passes(&apply).last(), Some(&(1500, 50, 1450)), "{apply}");
    }
}

#[test]
fn rows_without_a_time_are_outside_of_every_interval() {
    let shop = TestDirectory::new();
    // Ten days of ten rows; every seventh row has no time.
    let rows: Vec<(Option<i32>, i64)> = (0..100)
        .map(|x| ((x % 7 != 3).then_some(x / 10), i64::from(x)))
        .collect();
    parquet(&shop, "whole/all.parquet", &rows, 1000);
    for day in 0..10 {
        parquet(
            &shop,
            &format!("days/{day}.parquet"),
            &rows[10 * day..10 * day + 10],
            1000,
        );
    }
    let steps = "      - standardize: { columns: [x], suffix: _z }\n";
    let mut seen = Vec::new();
    for cut in ["whole", "days"] {
        parquet_spec(
            &shop,
            cut,
            steps,
            &format!("sinks:\n  table: {{ from: features, parquet: {{ path: {cut}-out }} }}\n"),
        );
        let state = format!("--state={cut}-state");
        for (from, to) in [("1970-01-03", "1970-01-05"), ("1970-01-05", "1970-01-07")] {
            let run = ["run", "spec.yaml", "--json", &state, "--interval", from, to];
            let summary = shop.forebay(&run).expect(0).summary();
            let written = *passes(&summary).last().unwrap();
            assert_eq!(written.0, written.1 + written.2, "{cut}: {summary}");
            assert!(
                written.2 > 0,
                "{cut}: rows without a time are not counted: {summary}"
            );
        }
        seen.push((
            shop.visible(&format!("{cut}-out")),
            content(&shop.path(&format!("{cut}-state/artifacts"))),
        ));
    }
    let whole = seen.remove(0);
    let days = seen.remove(0);
    assert!(
        whole.0.num_rows() > 30 && whole.0 == days.0,
        "rows depend on how files are cut"
    );
    assert!(
        whole.1 == days.1,
        "what is learned depends on how files are cut"
    );
}

#[test]
fn a_whole_output_does_not_become_empty_unasked() {
    let shop = TestDirectory::new();
    let rows: Vec<(Option<i32>, i64)> = (0..100).map(|x| (Some(x / 10), i64::from(x))).collect();
    parquet(&shop, "data/a.parquet", &rows, 1000);
    parquet(&shop, "none/a.parquet", &[], 1000);
    let aggregate = "      - aggregate: { by: [day], compute: { n: { count: x } } }\n";
    let steps = |least: i64, more: &str| format!("      - filter: \"x >= {least}\"\n{more}");
    let sinks = format!("sinks:\n{TABLE}");
    let refused = |args: &[&str], says: &str| {
        let call = shop.forebay(args).expect(65);
        let said = &call.stderr;
        assert!(
            said.contains("FB0204") && said.contains("--allow-empty") && said.contains(says),
            "{said}"
        );
    };
    // Nothing is published, the artifact neither.
    for more in ["", aggregate] {
        parquet_spec(&shop, "data", &steps(1000, more), &sinks);
        refused(&["run", "spec.yaml"], "100 rows were read");
        assert!(
            !shop.path(".out.forebay/_manifest.json").exists()
                && !shop.path(".forebay/artifacts").exists()
        );
    }
    // What readers see stays, also where nothing is read any more.
    parquet_spec(&shop, "data", &steps(50, ""), &sinks);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let before = fs::read(shop.path(".out.forebay/_manifest.json")).unwrap();
    parquet_spec(&shop, "data", &steps(1000, ""), &sinks);
    refused(&["run", "spec.yaml"], "100 rows were read");
    parquet_spec(&shop, "none", &steps(50, ""), &sinks);
    refused(&["run", "spec.yaml"], "readers see 50 rows");
    assert!(fs::read(shop.path(".out.forebay/_manifest.json")).unwrap() == before);
    // The same for an artifact that is applied.
    parquet_spec(&shop, "data", &steps(1000, ""), &sinks);
    let fit = shop
        .forebay(&["fit", "spec.yaml", "--json"])
        .expect(0)
        .summary();
    let artifact = fit["artifact_path"].as_str().unwrap();
    let apply = ["apply", artifact, "--source=data", "--output=applied"];
    refused(&apply, "100 rows were read");
    assert!(!shop.path(".applied.forebay/_manifest.json").exists());
    shop.forebay(&[&apply[..], &["--allow-empty"]].concat())
        .expect(0);
    assert!(shop.path(".applied.forebay/_manifest.json").exists());
    // Asked for, or without any row to begin with.
    shop.forebay(&["run", "spec.yaml", "--allow-empty"])
        .expect(0);
    assert_eq!(shop.visible("out").num_rows(), 0);
    parquet_spec(&shop, "none", &steps(50, ""), &sinks);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    // An interval may be empty, and says so.
    parquet_spec(
        &shop,
        "data",
        &steps(50, ""),
        "sinks:\n  table: { from: features, parquet: { path: parts } }\n",
    );
    let call = shop
        .forebay(&["run", "spec.yaml", "--interval", "1970-02-01", "1970-02-02"])
        .expect(0);
    assert!(
        call.stdout.contains("table: the interval is empty"),
        "{}",
        call.stdout
    );
    let run = ["run", "spec.yaml", "--json", "--interval"];
    let march = [&run[..], &["1970-03-01", "1970-03-02"]].concat();
    let summary = shop.forebay(&march).expect(0).summary();
    let warnings = summary["warnings"].to_string();
    let words = "`table` has no row in the interval from 1970-03-01 to 1970-03-02";
    assert!(warnings.contains(words), "{warnings}");
    let allowed = [&run[..], &["1970-04-01", "1970-04-02", "--allow-empty"]].concat();
    let summary = shop.forebay(&allowed).expect(0).summary();
    let warnings = summary["warnings"].to_string();
    assert!(!warnings.contains("has no row"), "{warnings}");
}

#[test]
fn a_run_that_fails_publishes_nothing() {
    let shop = TestDirectory::new();
    history(&shop);
    let split =
        |condition: &str| format!("split:\n  train: \"{condition}\"\n  validation: \"qty < 3\"\n");
    let sinks = |train: &str| format!("{TABLE}{NET}{}", split(train));
    // There are no rows to learn from: the training fails after all outputs are written.
    spec(&shop, LAG, &sinks("qty > 1000"));
    let failed = || {
        let call = shop.forebay(&["run", "spec.yaml"]).expect(65);
        assert!(
            call.stderr.contains("no rows to learn from"),
            "{}",
            call.stderr
        );
    };
    failed();
    assert!(
        !shop.path(".out.forebay/_manifest.json").exists()
            && !shop.path(".forebay/artifacts/test.json").exists()
    );
    spec(&shop, LAG, &sinks("qty >= 3"));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let shown = || {
        let read = |name: &str| fs::read(shop.path(name)).unwrap();
        [
            ".out.forebay/_manifest.json",
            ".forebay/artifacts/test.json",
            ".net.forebay/_manifest.json",
        ]
        .map(read)
    };
    let before = shown();
    spec(
        &shop,
        &format!("{LAG}      - derive: {{ more: \"qty + 1\" }}\n"),
        &sinks("qty > 1000"),
    );
    failed();
    assert!(shown() == before, "a run that failed has published");
}

/// A run that stopped itself at a moment; it ends with the test.
struct StoppedRun(Child);

impl StoppedRun {
    /// Waits until it has stopped.
    fn at(mut command: std::process::Command, moment: &str) -> StoppedRun {
        command
            .env("FOREBAY_KILL_ON", moment)
            .env("FOREBAY_KILL_WITH", "stop");
        let child = StoppedRun(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let begin = Instant::now();
        let state = || fs::read_to_string(format!("/proc/{}/stat", child.0.id())).unwrap();
        while !state()
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('T')
        {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the run does not come to `{moment}`: {}",
                state()
            );
            std::thread::yield_now();
        }
        child
    }

    /// Lets it go on to its end.
    fn resume_to_end(mut self) -> ProgramOutput {
        let id = self.0.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-CONT", &id])
                .status()
                .unwrap()
                .success()
        );
        let mut stdout = String::new();
        let mut stderr = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut stdout).unwrap();
        std::io::Read::read_to_string(self.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        ProgramOutput {
            code: self.0.wait().unwrap().code().unwrap_or(-1),
            stdout,
            stderr,
        }
    }
}

impl Drop for StoppedRun {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_collected_while_a_run_is_at_work() {
    for in_bucket in [false, true] {
        let shop = TestDirectory::new();
        history(&shop);
        fs::create_dir_all(shop.path("buckets/lake")).unwrap();
        let server = in_bucket.then(|| S3Server::start(&shop.path("buckets")));
        let root = if in_bucket { "s3://lake/" } else { "" };
        let command = |args: &[&str]| match &server {
            Some(server) => {
                let mut command = server.command(&shop, args);
                // Other tests call their state directories the same, and theirs must not be collected here.
                command.env("TMPDIR", shop.path("tmp"));
                command
            }
            None => shop.command(args),
        };
        fs::create_dir_all(shop.path("tmp")).unwrap();
        let state = format!("--state={root}state");
        let steps = |least: i64| {
            format!(
                "      - filter: \"qty > {least}\"\n      - standardize: {{ columns: [price] }}\n"
            )
        };
        let table = format!("  table: {{ from: features, parquet: {{ path: {root}out }} }}\n");
        let call = |args: &[&str]| ProgramOutput::from(command(args).output().unwrap());
        spec(&shop, &steps(1), &table);
        call(&["run", "spec.yaml", &state]).expect(0);
        let run = ["run", "spec.yaml", "--json", &state];
        let gc = ["cache", "gc", "--older-than", "0s", &state];
        for (least, moment) in [(2, "have put "), (3, "passes/"), (4, "/_manifest.json")] {
            spec(&shop, &steps(least), &table);
            let stopped = StoppedRun::at(command(&run), moment);
            let call = call(&gc).expect(75);
            assert!(
                call.stderr.contains("FB0407") && call.stderr.contains("nothing was removed"),
                "{}",
                call.stderr
            );
            let summary = stopped.resume_to_end().expect(0).summary();
            let rows = summary["outputs"][0]["rows"].as_u64().unwrap();
            let out = if in_bucket { "buckets/lake/out" } else { "out" };
            assert_eq!(
                shop.visible(out).num_rows() as u64,
                rows,
                "what readers see is not there"
            );
        }
        // A run that was killed holds nothing.
        spec(&shop, &steps(5), &table);
        drop(StoppedRun::at(command(&run), "/_manifest.json"));
        call(&gc).expect(0);
        call(&run).expect(0);
        call(&gc).expect(0);
        call(&["cache", "verify", &state]).expect(0);
    }
}

#[test]
fn a_run_whose_files_were_removed_publishes_nothing() {
    let shop = TestDirectory::new();
    history(&shop);
    spec(&shop, LAG, TABLE);
    shop.forebay(&["run", "spec.yaml", "--state=one"]).expect(0);
    spec(&shop, "      - filter: \"qty > 3\"\n", TABLE);
    let before = fs::read(shop.path(".out.forebay/_manifest.json")).unwrap();
    // Collected with another state directory, which knows nothing of the run.
    let stopped = StoppedRun::at(
        shop.command(&["run", "spec.yaml", "--state=other"]),
        "put other/passes/",
    );
    shop.forebay(&["cache", "gc", "--older-than", "0s", "--state=one"])
        .expect(0);
    let call = stopped.resume_to_end().expect(75);
    assert!(
        call.stderr.contains("was removed before it was published"),
        "{}",
        call.stderr
    );
    assert!(fs::read(shop.path(".out.forebay/_manifest.json")).unwrap() == before);
    shop.forebay(&["run", "spec.yaml", "--state=other"])
        .expect(0);
    assert!(shop.visible("out").num_rows() > 0);
}

#[test]
fn a_collection_in_a_bucket_stops_the_publication_of_what_it_removes() {
    let shop = TestDirectory::new();
    history(&shop);
    fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let command = |args: &[&str]| server.command(&shop, args);
    let call = |args: &[&str]| ProgramOutput::from(command(args).output().unwrap());
    let table = "  table: { from: features, parquet: { path: s3://lake/out } }\n";
    spec(&shop, LAG, table);
    call(&["run", "spec.yaml", "--state=s3://lake/one"]).expect(0);
    let rows = shop.visible("buckets/lake/out").num_rows();
    spec(&shop, "      - filter: \"qty > 3\"\n", table);
    // It has seen that its files are there, and is about to replace the manifest.
    let stopped = StoppedRun::at(
        command(&["run", "spec.yaml", "--state=s3://lake/other"]),
        "lake/out/_manifest.json",
    );
    call(&["cache", "gc", "--older-than", "0s", "--state=s3://lake/one"]).expect(0);
    let call = stopped.resume_to_end().expect(75);
    assert!(
        call.stderr.contains("was removed before it was published"),
        "{}",
        call.stderr
    );
    assert_eq!(shop.visible("buckets/lake/out").num_rows(), rows);
}

#[test]
fn directories_that_a_bucket_has_given_up_are_never_published_again() {
    let shop = TestDirectory::new();
    history(&shop);
    fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let command = || server.command(&shop, &["run", "spec.yaml", "--state=s3://lake/state"]);
    let choose = |least: i64| {
        let table = "  table: { from: features, parquet: { path: s3://lake/out } }\n";
        spec(
            &shop,
            &format!("      - filter: \"qty > {least}\"\n"),
            table,
        );
    };
    let publish = |least: i64| {
        choose(least);
        ProgramOutput::from(command().output().unwrap()).expect(0);
    };
    let path = shop.path("buckets/lake/out/_manifest.json");
    let manifest = || -> Value { serde_json::from_slice(&fs::read(&path).unwrap()).unwrap() };
    let files = |directory: &Value| {
        content(
            &shop
                .path("buckets/lake/out")
                .join(directory.as_str().unwrap()),
        )
        .len()
    };
    publish(1);
    let first = manifest()["data"].clone();
    assert_eq!(
        (
            &manifest()["format"],
            &manifest()["publication"],
            files(&first)
        ),
        (&json!(3), &json!(1), 1)
    );
    publish(2);
    publish(3);
    assert_eq!(
        (&manifest()["removed"], files(&first)),
        (&json!([first]), 0)
    );
    // The rows of the first run again: they lie in a directory that was never removed.
    publish(1);
    let again = manifest();
    assert!(
        again["data"] != first && files(&again["data"]) == 1,
        "{again}"
    );
    assert!(
        !again["removed"].as_array().unwrap().contains(&first),
        "it was seen to be empty: {again}"
    );
    // A run that ends before it has removed anything leaves that to the next one.
    choose(4);
    drop(StoppedRun::at(command(), "remove s3://lake/out/"));
    let left = manifest()["removed"][0].clone();
    assert_eq!(files(&left), 1);
    publish(5);
    assert!(
        manifest()["removed"].as_array().unwrap().contains(&left) && files(&left) == 0,
        "{}",
        manifest()
    );
    // Manifests of the version before name no directories of this kind.
    let mut older = manifest();
    older["format"] = json!(2);
    let fields = older.as_object_mut().unwrap();
    fields.retain(|name, _| !["removed", "publication"].contains(&name.as_str()));
    fs::write(&path, older.to_string()).unwrap();
    publish(6);
    assert_eq!(
        (&manifest()["format"], &manifest()["publication"]),
        (&json!(3), &json!(1))
    );
}

/// Copies the files of a folder, and those of its folders.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Lays a plain copy of the output at another place.
fn lay_copy(shop: &TestDirectory) {
    copy(&shop.path("out"), &shop.path("keep"));
}

/// Links the files of the output at another place.
fn lay_links(shop: &TestDirectory) {
    fs::create_dir_all(shop.path("keep")).unwrap();
    for file in fs::read_dir(shop.path("out")).unwrap() {
        let file = file.unwrap();
        fs::hard_link(file.path(), shop.path("keep").join(file.file_name())).unwrap();
    }
}

/// Moves what readers see of the output.
fn move_folder(shop: &TestDirectory) {
    fs::rename(shop.path("out"), shop.path("keep")).unwrap();
}

fn lay_whole_copy(shop: &TestDirectory) {
    lay_copy(shop);
    copy(&shop.path(".out.forebay"), &shop.path(".keep.forebay"));
}

fn move_whole(shop: &TestDirectory) {
    move_folder(shop);
    fs::rename(shop.path(".out.forebay"), shop.path(".keep.forebay")).unwrap();
}

fn move_and_lose_root(shop: &TestDirectory) {
    move_whole(shop);
    fs::remove_dir_all(shop.path(".keep.forebay")).unwrap();
}

fn lay_edited_copy(shop: &TestDirectory) {
    lay_whole_copy(shop);
    let file = fs::read_dir(shop.path("keep")).unwrap().next().unwrap();
    fs::write(file.unwrap().path(), "k\n1\n2\n").unwrap();
}

#[test]
fn a_copy_of_an_output_is_replaced_only_with_its_manifest() {
    let spec = |shop: &TestDirectory, place: &str| {
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: {place}\nsources: {{ a: {{ csv: {{ path: a.csv }} }} }}\n\
                 sinks: {{ t: {{ from: a, csv: {{ path: {place} }} }} }}\n"
            ),
        );
    };
    type Lay = fn(&TestDirectory);
    let places: [(&str, Lay, bool); 7] = [
        ("a copy of the folder", lay_copy, false),
        ("links of another output", lay_links, false),
        ("the folder, moved alone", move_folder, false),
        ("a copy with its root", lay_whole_copy, true),
        ("an output, moved", move_whole, true),
        ("an output that lost its root", move_and_lose_root, false),
        ("a copy with other bytes", lay_edited_copy, false),
    ];
    for (what, lay, is_ours) in places {
        let shop = TestDirectory::new();
        shop.write("a.csv", "k\n1\n");
        spec(&shop, "out");
        shop.forebay(&["run", "spec.yaml", "--state=one"]).expect(0);
        lay(&shop);
        let before = content(&shop.path("keep"));
        shop.write("a.csv", "k\n7\n8\n9\n");
        spec(&shop, "keep");
        let run = shop.forebay(&["run", "spec.yaml", "--state=two"]);
        assert_eq!(run.code == 0, is_ours, "{what}: {}", run.stderr);
        if !is_ours {
            assert!(run.stderr.contains("FB0114"), "{what}: {}", run.stderr);
            assert_eq!(content(&shop.path("keep")), before, "{what}");
        }
    }
}

#[test]
fn values_that_no_folder_can_hold_are_refused() {
    let long = "x".repeat(300);
    for (value, is_refused) in [
        ("__HIVE_DEFAULT_PARTITION__", true),
        (long.as_str(), true),
        ("..", false),
        ("%5F", false),
        ("a/b=c", false),
    ] {
        let shop = TestDirectory::new();
        shop.write("a.csv", &format!("_k,x\n{value},1\nplain,2\n,3\n"));
        let spec = |source: &str, sink: &str| {
            format!(
                "version: 1\nname: t\nsources: {{ a: {{ {source} }} }}\n\
                 sinks: {{ t: {{ from: a, {sink} }} }}\n"
            )
        };
        let partitioned = "parquet: { path: out, partition_by: [_k] }";
        shop.write("spec.yaml", &spec("csv: { path: a.csv }", partitioned));
        let run = shop.forebay(&["run", "spec.yaml"]);
        assert_eq!(run.code != 0, is_refused, "{value}: {}", run.stderr);
        if is_refused {
            assert!(run.stderr.contains("_k"), "{value}: {}", run.stderr);
            continue;
        }
        let back = spec("parquet: { path: out }", "csv: { path: back }");
        shop.write("back.yaml", &back);
        shop.forebay(&["run", "back.yaml", "--state=other"])
            .expect(0);
        let back = content(&shop.path("back"));
        let text = String::from_utf8(back[0].1.clone()).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = format!("1,{value}");
        assert_eq!(lines, [&expected, "2,plain", "3,", "x,_k"], "{value}");
    }
}
