//! Equal runs publish equal files: on local disks under equal names, in buckets and tables below directories whose names
//! have a random token.

use std::fs;
use std::path::Path;

use crate::support::s3_server::S3Server;
use crate::support::{TestDirectory, content};

/// A spec with a table, an aggregate, a model and a forecast below `out`.
fn spec(format: &str, out: &str) -> String {
    format!(
        "version: 1\nname: equal\nsources: {{ demand: {{ parquet: {{ path: data }}, time: date, keys: [store_id, item_id] }} }}\n\
         steps:\n  features:\n    from: demand\n    do:\n      - filter: \"qty IS NOT NULL\"\n      - select: [store_id, item_id, date, qty, price]\n      - future_rows: {{ horizon: 7d, every: 1d, carry: [price] }}\n      \
         - lag: {{ columns: [qty], by: [7d] }}\n      - impute: {{ columns: [qty_lag_7d, price], with: {{ constant: 0 }} }}\n  \
         totals:\n    from: demand\n    do:\n      - aggregate: {{ by: [store_id], compute: {{ qty: {{ sum: qty }} }} }}\n\
         label: {{ column: qty, horizon: 7d, known: [price] }}\nsinks:\n  \
         table: {{ from: features, {format}: {{ path: \"{out}/table\" }} }}\n  totals: {{ from: totals, {format}: {{ path: \"{out}/totals\" }} }}\n  \
         trees: {{ from: features, train: {{ path: \"{out}/trees\", model: gbdt, label: qty, dense: [qty_lag_7d, price], rounds: 3 }} }}\n  \
         forecast: {{ from: features, predict: {{ model: trees, where: future, path: \"{out}/forecast\" }} }}\n"
    )
}

/// The files that readers see of an output, with their bytes.
fn visible_files(shop: &TestDirectory, out: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(shop.path(out))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn equal_runs_publish_equal_files() {
    let shop = TestDirectory::new();
    shop.demand("data", 1000);
    for format in ["parquet", "arrow", "csv"] {
        shop.write("spec.yaml", &spec(format, "out"));
        let run = |state: &str, threads: &str| {
            let _ = fs::remove_dir_all(shop.path("out"));
            shop.forebay(&["run", "spec.yaml", "--state", state, "--threads", threads])
                .expect(0);
            ["out/table", "out/totals", "out/forecast", "out/trees"]
                .map(|out| visible_files(&shop, out))
        };
        let first = run(&format!("{format}-one"), "1");
        assert!(first.iter().all(|files| !files.is_empty()));
        assert!(run(&format!("{format}-other"), "3") == first, "{format}");
    }
}

/// The data files below a directory, by their paths without the tokens of directories. Manifests and logs name
/// directories with their tokens, and logs the time of a commit.
fn data_files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (below, bytes) in content(root) {
        if below.contains("_manifest.json") || below.contains("_delta_log") {
            continue;
        }
        let mut parts = Vec::new();
        for part in below.split('/') {
            // `<id of the shard>.<token>`.
            let is_shard =
                part.len() > 32 && part[..32].bytes().all(|byte| byte.is_ascii_hexdigit());
            parts.push(if is_shard { &part[..32] } else { part });
        }
        files.push((parts.join("/"), bytes));
    }
    files.sort();
    files
}

#[test]
fn equal_runs_publish_equal_files_in_tables_and_buckets() {
    let shop = TestDirectory::new();
    shop.demand("data", 1000);
    fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    for (format, out, seen) in [
        ("delta", "out", "out"),
        ("parquet", "s3://lake/out", "buckets/lake/out"),
        ("delta", "s3://lake/out", "buckets/lake/out"),
    ] {
        shop.write("spec.yaml", &spec(format, out));
        let run = |state: &str, threads: &str| {
            let _ = fs::remove_dir_all(shop.path(seen));
            let arguments = ["run", "spec.yaml", "--state", state, "--threads", threads];
            server.forebay(&shop, &arguments).expect(0);
            data_files(&shop.path(seen))
        };
        let name = out.replace(['/', ':'], "-");
        let first = run(&format!("{format}{name}-one"), "1");
        let other = run(&format!("{format}{name}-other"), "3");
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert!(first.len() > 3, "{:?}", names(&first));
        assert_eq!(names(&first), names(&other), "{format} {out}");
        assert!(first == other, "{format} {out}: other bytes");
    }
}
