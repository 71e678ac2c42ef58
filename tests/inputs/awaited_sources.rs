//! Sources that a run waits for, and those that do not come.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::support::{ProgramOutput, TestDirectory};

fn shop(ready: &str) -> TestDirectory {
    let shop = TestDirectory::new();
    let spec = format!(
        "version: 1\nname: test\nsources:\n  demand: {{ parquet: {{ path: data }}, ready: {{ {ready} }} }}\n\
         sinks:\n  table: {{ from: demand, parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &spec);
    shop
}

fn run(shop: &TestDirectory, code: i32) -> ProgramOutput {
    shop.forebay(&["run", "spec.yaml", "--json"]).expect(code)
}

#[track_caller]
fn not_ready(shop: &TestDirectory, says: &[&str]) {
    let call = run(shop, 75);
    assert_eq!(call.summary()["fault"]["code"], "FB0306");
    for words in ["`demand` is not ready", "spec.yaml:4:"].iter().chain(says) {
        assert!(
            call.stderr.contains(words),
            "`{words}` is missing in\n{}",
            call.stderr
        );
    }
    assert!(!shop.path("out").exists());
}

#[test]
fn a_marker() {
    let shop = shop("marker: data/_SUCCESS");
    shop.demand("data", 1000);
    not_ready(&shop, &["the marker data/_SUCCESS wanted, none found"]);
    std::fs::write(shop.path("data/_SUCCESS"), "").unwrap();
    run(&shop, 0);
}

#[test]
fn a_run_waits_for_a_marker_that_comes() {
    let shop = shop("marker: done, timeout: 10m");
    shop.demand("data", 1000);
    let mut child = shop
        .command(&["run", "spec.yaml", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let waits = lines.next().unwrap();
    assert!(
        waits.contains("\"event\":\"waiting\"") && waits.contains("the marker done"),
        "{waits}"
    );
    std::fs::write(shop.path("done"), "").unwrap();
    let last = lines.last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{last}");
    assert!(shop.path(".out.forebay/_manifest.json").exists());
}

#[test]
fn a_count_of_files() {
    let shop = shop("files: 2");
    not_ready(&shop, &["2 files wanted, 0 found"]);
    shop.demand("more", 1000);
    std::fs::create_dir(shop.path("data")).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(shop.path("more"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let copy = |file: &std::path::Path| {
        std::fs::copy(file, shop.path("data").join(file.file_name().unwrap())).unwrap();
    };
    copy(&files[0]);
    not_ready(&shop, &["2 files wanted, 1 found"]);
    // A writer has written only half of it.
    let whole = std::fs::read(&files[1]).unwrap();
    let half = shop.path("data").join(files[1].file_name().unwrap());
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    not_ready(&shop, &["2 files wanted, one that is not whole found"]);
    std::fs::write(&half, &whole).unwrap();
    run(&shop, 0);
}

#[test]
fn an_age_of_files() {
    let shop = shop("min_age: 1h");
    shop.demand("data", 1000);
    let files: Vec<_> = std::fs::read_dir(shop.path("data"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    for file in &files {
        not_ready(&shop, &["files that are 3600 s old wanted"]);
        std::fs::File::options()
            .write(true)
            .open(file)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    run(&shop, 0);
}

#[test]
fn a_source_that_waits_for_nothing_is_a_mistake() {
    for (ready, says) in [
        ("timeout: 2h", "`ready` says nothing to wait for"),
        (
            "marker: done, timeout: soon",
            "`soon` is not a length of time",
        ),
        ("files: 0", "files"),
    ] {
        let call = shop(ready).forebay(&["check", "spec.yaml"]).expect(78);
        assert!(
            call.stderr.contains(says),
            "`{says}` is missing in\n{}",
            call.stderr
        );
    }
}
