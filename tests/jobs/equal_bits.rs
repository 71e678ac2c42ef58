//! Same data, same spec, same bits: whatever the threads, batches, row groups and order of files.

use crate::support::{TestDirectory, content, ready_made, real_data};

/// Runs a spec over several layouts of the same rows under several options; the artifact must
/// have the same bytes and the output the same rows.
fn same_bits(
    spec: &str,
    param: &str,
    layouts: &[(&str, String)],
    shop: &TestDirectory,
    row_by_row: bool,
) {
    let spec = ready_made(spec);
    let mut expected = None;
    let mut number = 0;
    for (layout, path) in layouts {
        for (threads, batch_rows) in [("1", "8192"), ("2", "1"), ("7", "1000"), ("2", "8192")] {
            // One row per batch is slow; once per spec proves it, on small data.
            if batch_rows == "1" && (number > 4 || !row_by_row) {
                continue;
            }
            number += 1;
            let out = format!("out{number}");
            let state = format!("state{number}");
            let (param, out_param) = (
                format!("--param={param}={path}"),
                format!("--param=out={}", shop.at(&out)),
            );
            let args = [
                "run",
                &spec,
                "--json",
                "--memory=256MiB",
                &param,
                &out_param,
            ];
            let options = [
                "--state",
                &state,
                "--threads",
                threads,
                "--batch-rows",
                batch_rows,
            ];
            let summary = shop
                .forebay(&[&args[..], &options[..]].concat())
                .expect(0)
                .summary();
            let artifact = summary["artifact_path"].as_str().unwrap();
            let artifact = content(&shop.path(artifact));
            let rows = shop.rows(&out);
            match &expected {
                None => expected = Some((artifact, rows)),
                Some((known_artifact, known_rows)) => {
                    let what = format!("{layout}, {threads} threads, {batch_rows} rows per batch");
                    assert!(*known_artifact == artifact, "other artifact: {what}");
                    assert!(*known_rows == rows, "other rows: {what}");
                }
            }
            std::fs::remove_dir_all(shop.path(&out)).unwrap();
        }
    }
}

#[test]
fn demand() {
    let shop = TestDirectory::new();
    let layouts = [
        ("one group a file", shop.demand("a", 1_000_000)),
        ("small groups", shop.demand("b", 97)),
    ];
    same_bits("demand.yaml", "history", &layouts, &shop, true);
}

#[test]
fn clicks() {
    let shop = TestDirectory::new();
    let layouts = [
        ("one group a file", shop.clicks("a", 1_000_000)),
        ("small groups", shop.clicks("b", 330)),
    ];
    same_bits("clicks.yaml", "log", &layouts, &shop, true);
}

#[test]
fn flights_with_weather() {
    let Some(data) = real_data("flights") else {
        return;
    };
    let shop = TestDirectory::new();
    same_bits(
        "flights.yaml",
        "data",
        &[("as it is", data.display().to_string())],
        &shop,
        false,
    );
}

#[test]
fn taxi() {
    let Some(data) = real_data("taxi") else {
        return;
    };
    let shop = TestDirectory::new();
    same_bits(
        "taxi.yaml",
        "data",
        &[("as it is", data.display().to_string())],
        &shop,
        true,
    );
}
