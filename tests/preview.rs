//! Rows of steps and plans, seen before anything runs.

use crate::support::{TestDirectory, repository};

/// The spec and data of the mistakes, without a mistake.
fn workshop() -> TestDirectory {
    let shop = TestDirectory::new();
    for name in ["spec.yaml", "sales.csv", "stores.csv"] {
        std::fs::copy(repository().join("tests/mistakes/data").join(name), shop.path(name)).unwrap();
    }
    shop
}

fn names(shop: &TestDirectory) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(shop.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".user")
        .collect();
    names.sort();
    names
}

/// The values of a column of JSON lines, as text.
fn values(lines: &str, column: &str) -> Vec<String> {
    let rows = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.map(|row| row[column].to_string()).collect()
}

#[test]
fn a_preview_has_the_rows_that_a_run_writes() {
    let shop = workshop();
    let spec =
        std::fs::read_to_string(shop.path("spec.yaml")).unwrap().replace("parquet: { path: out", "csv: { path: out");
    shop.write("spec.yaml", &spec);
    for (step, out) in [("features", "out/features"), ("totals", "out/totals")] {
        let shown = shop.forebay(&["preview", "spec.yaml", step, "--rows=1000", "--format=csv"]).expect(0).stdout;
        assert_eq!(names(&shop), ["sales.csv", "spec.yaml", "stores.csv"]);
        shop.forebay(&["run", "spec.yaml", "-q"]).expect(0);
        let files: Vec<_> = std::fs::read_dir(shop.path(out)).unwrap().map(|entry| entry.unwrap().path()).collect();
        let written = files.iter().find(|path| path.extension().is_some_and(|ending| ending == "csv")).unwrap();
        assert_eq!(shown, std::fs::read_to_string(written).unwrap());
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        std::fs::remove_dir_all(shop.path(".forebay")).unwrap();
    }
}

#[test]
fn a_preview_takes_conditions_samples_and_sources() {
    let shop = workshop();
    let preview = |args: &[&str]| shop.forebay(&[&["preview", "spec.yaml", "--json"], args].concat()).expect(0).stdout;
    let found = preview(&["--where=qty_lag_7d > 9", "--rows=4"]);
    assert_eq!(values(&found, "qty_lag_7d"), ["10"; 4]);
    assert_eq!(preview(&["--sample-rows=7", "--rows=100"]).lines().count(), 7);
    assert_eq!(values(&preview(&["stores"]), "city"), ["\"Delft\"", "\"Gent\""]);

    let table = shop.forebay(&["preview", "spec.yaml", "totals"]).expect(0).stdout;
    assert_eq!(table, "store  total\nint64  int64\n    1    600\n    2    630\n2 rows\n");
    let unknown = shop.forebay(&["preview", "spec.yaml", "total"]).expect(78);
    assert!(unknown.stderr.contains("did you mean `totals`?"), "{}", unknown.stderr);
    let column = shop.forebay(&["preview", "spec.yaml", "--where=qyt > 3"]).expect(78);
    assert!(column.stderr.contains("did you mean `qty`?"), "{}", column.stderr);
}

#[test]
fn a_dry_run_prints_the_plan_and_runs_nothing() {
    let shop = workshop();
    let plan = shop.forebay(&["run", "spec.yaml", "--dry-run"]).expect(0);
    assert_eq!(plan.stdout, shop.forebay(&["explain", "spec.yaml"]).expect(0).stdout);
    assert!(plan.stdout.contains("pass 4  write"), "{}", plan.stdout);
    assert_eq!(names(&shop), ["sales.csv", "spec.yaml", "stores.csv"]);
    let json = shop.forebay(&["run", "spec.yaml", "--dry-run", "--json"]).expect(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["passes"].as_array().unwrap().len(), 4);
}
