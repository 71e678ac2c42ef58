//! Profiles and drift through the front door, beside plain computations of the same numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use serde_json::{Value, json};

use crate::exact_values::write;
use crate::support::TestDirectory;

const ROWS: usize = 1_000;

fn text(row: usize) -> Option<String> {
    (row % 10 != 3).then(|| ["apple", "p\u{e9}ar", "", "fig"][row % 4].to_owned())
}

fn number(row: usize) -> Option<f64> {
    match row % 20 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(f64::INFINITY),
        3 => Some(-0.0),
        _ => Some(row as f64 / 8.0 - 10.0),
    }
}

fn table(shop: &TestDirectory, name: &str, rows: std::ops::Range<usize>) {
    let mut list = ListBuilder::new(StringBuilder::new());
    for row in rows.clone() {
        list.append_value((0..row % 3).map(|_| Some("x")));
    }
    let columns: [(&str, ArrayRef); 6] = [
        ("day", Arc::new(Date32Array::from_iter_values(rows.clone().map(|row| row as i32 / 10)))),
        ("word", Arc::new(StringArray::from_iter(rows.clone().map(text)))),
        ("x", Arc::new(Float64Array::from_iter(rows.clone().map(number)))),
        ("n", Arc::new(Int32Array::from_iter_values(rows.clone().map(|row| row as i32 - 100)))),
        ("flag", Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(row % 4 == 0))))),
        ("list", Arc::new(list.finish())),
    ];
    write(shop, name, columns);
}

fn columns(profile: &Value) -> BTreeMap<String, Value> {
    let columns = profile["columns"].as_array().unwrap().iter();
    columns.map(|column| (column["name"].as_str().unwrap().to_owned(), column.clone())).collect()
}

fn close(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} instead of {expected}");
}

#[test]
fn a_profile_holds_what_the_columns_hold() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("data")).unwrap();
    table(&shop, "data/a.parquet", 0..600);
    table(&shop, "data/b.parquet", 600..ROWS);
    let profile = |more: &[&str]| {
        let call = shop.forebay(&[&["profile", "data", "--json"], more].concat()).expect(0);
        (call.summary()["profile"].clone(), call.stdout)
    };
    let (found, _) = profile(&["--threads=2", "--output=profile.json"]);
    let stored: Value = serde_json::from_slice(&std::fs::read(shop.path("profile.json")).unwrap()).unwrap();
    assert_eq!(stored, found);
    // The same from the rows of one file and of one thread.
    table(&shop, "all.parquet", 0..ROWS);
    let one = shop.forebay(&["profile", "all.parquet", "--json", "--threads=1", "--state=other"]).expect(0).summary();
    assert_eq!(one["profile"]["columns"], found["columns"]);
    assert_eq!((&found["rows"], &found["of"]), (&json!(ROWS), &json!("data")));

    let columns = columns(&found);
    let values: Vec<f64> = (0..ROWS).filter_map(number).filter(|x| !x.is_nan()).collect();
    let x = &columns["x"]["numeric"];
    assert_eq!((&columns["x"]["nulls"], &x["nans"], &x["infinities"]), (&json!(50), &json!(50), &json!(50)));
    let count = |holds: &dyn Fn(f64) -> bool| json!(values.iter().filter(|x| holds(**x)).count());
    assert_eq!((&x["count"], &x["zeros"]), (&count(&|_| true), &count(&|x| x == 0.0)));
    assert_eq!(x["negatives"], count(&|x| x < 0.0));

    let n: Vec<f64> = (0..ROWS).map(|row| row as f64 - 100.0).collect();
    let mean = n.iter().sum::<f64>() / ROWS as f64;
    let var = n.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / (ROWS - 1) as f64;
    let found_n = &columns["n"]["numeric"];
    close(&found_n["mean"], mean);
    close(&found_n["std"], var.sqrt());
    close(&found_n["quantiles"][25], -100.0 + 0.25 * 999.0);
    assert_eq!((&found_n["min"], &found_n["max"]), (&json!(-100.0), &json!(899.0)));
    let shares: f64 = found_n["histogram"].as_array().unwrap().iter().map(|bin| bin["share"].as_f64().unwrap()).sum();
    close(&json!(shares), 1.0);
    let distinct = columns["n"]["distinct"].as_f64().unwrap();
    assert!((distinct / ROWS as f64 - 1.0).abs() < 0.03, "{distinct}");

    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    (0..ROWS).filter_map(text).for_each(|text| *counts.entry(text).or_default() += 1);
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(text, count)| (std::cmp::Reverse(*count), text.clone()));
    let expected: Vec<Value> = counts.iter().map(|(value, count)| json!({ "value": value, "count": count })).collect();
    let word = &columns["word"];
    assert_eq!(word["frequent"], json!(expected));
    assert_eq!((&word["distinct"], &word["distinct_is_exact"], &word["nulls"]), (&json!(4), &json!(true), &json!(100)));
    assert_eq!((&word["length"]["min"], &word["length"]["max"]), (&json!(0), &json!(5)));
    let letters: usize = (0..ROWS).filter_map(text).map(|text| text.chars().count()).sum();
    close(&word["length"]["mean"], letters as f64 / 900.0);
    assert_eq!(columns["day"]["time"], json!({ "first": "1970-01-01", "last": "1970-04-10" }));
    assert_eq!(columns["flag"]["frequent"][0], json!({ "value": "false", "count": 750 }));
    assert_eq!(columns["list"]["length"], json!({ "min": 0, "max": 2, "mean": 999.0 / 1000.0 }));

    // Again: nothing is read.
    let read = |events: &str| -> u64 {
        let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event"] == "pass_done").filter_map(|event| event["rows"].as_u64()).sum()
    };
    let (again, events) = profile(&[]);
    assert_eq!((read(&events), &again), (0, &found), "{events}");
    table(&shop, "data/c.parquet", ROWS..ROWS + 10);
    // For people.
    let text = shop.forebay(&["profile", "data"]).expect(0).stdout;
    for part in ["data: 1,010 rows, 6 columns", "x  Float64", "infinite", "1970-01-01 to 1970-04-11", "length 0 to 5"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn a_step_is_profiled_as_its_rows_are() {
    let shop = TestDirectory::new();
    table(&shop, "all.parquet", 0..ROWS);
    let spec = "version: 1\nname: steps\nparams:\n  least: { type: integer, default: 0 }\nsources:\n  all: { parquet: { \
                path: all.parquet } }\nsteps:\n  scaled:\n    from: all\n    fit_on: train\n    do:\n      - filter: \"n \
                >= ${least}\"\n      - standardize: { columns: [n] }\nsplit: { train: \"n < 500\", test: \"n >= 500\" \
                }\nsinks: { out: { from: scaled, parquet: { path: out } } }\n";
    shop.write("spec.yaml", spec);
    let profile = |args: &[&str]| shop.forebay(&[&["profile", "spec.yaml"], args, &["--json"]].concat());
    let found = |args: &[&str]| columns(&profile(args).expect(0).summary()["profile"]);
    let scaled = found(&["scaled", "--split=train"]);
    assert_eq!(scaled["n"]["rows"], 500);
    assert!(scaled["n"]["numeric"]["mean"].as_f64().unwrap().abs() < 1e-6);
    assert_eq!(found(&["scaled", "--param=least=890"])["word"]["rows"], 10);
    assert_eq!(found(&[])["n"]["numeric"]["min"], -100.0);
    assert!(!shop.path("out").exists());
    let refused = |args: &[&str], code: i32, message: &str| {
        let call = profile(args).expect(code);
        assert!(call.stderr.contains(message), "{}", call.stderr);
    };
    refused(&["scale"], 78, "there is no step or source `scale`");
    refused(&["scaled", "--split=exam"], 78, "the split has no part `exam`");
}

#[test]
fn drift_names_the_columns_and_why() {
    let shop = TestDirectory::new();
    table(&shop, "before.parquet", 0..ROWS);
    let moved: [(&str, ArrayRef); 4] = [
        ("word", Arc::new(StringArray::from_iter((0..500).map(|row| Some(if row % 2 == 0 { "plum" } else { "fig" }))))),
        ("x", Arc::new(Float64Array::from_iter((0..500).map(|row| number(row).filter(|_| row % 2 == 0))))),
        ("n", Arc::new(Int32Array::from_iter_values((0..500).map(|row| row * 10)))),
        ("other", Arc::new(Int32Array::from_iter_values(0..500))),
    ];
    write(&shop, "after.parquet", moved);
    shop.forebay(&["profile", "before.parquet", "--output=before.json"]).expect(0);
    let same = shop.forebay(&["drift", "before.json", "before.parquet", "--fail"]).expect(0);
    assert!(same.stdout.contains("no column has drifted"), "{}", same.stdout);
    let call = shop.forebay(&["drift", "before.json", "after.parquet", "--fail", "--json"]).expect(65);
    let summary = call.summary();
    let found: BTreeMap<&str, &Value> = summary["drift"]["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column))
        .collect();
    let reason = |name: &str| found[name]["reasons"].to_string();
    assert_eq!(reason("day"), "[\"the column is gone\"]");
    assert_eq!(reason("other"), "[\"the column is new\"]");
    assert!(reason("x").contains("rows without a value: 10.0 % before"), "{}", reason("x"));
    assert!(reason("word").contains("Jensen-Shannon") && reason("n").contains("Jensen-Shannon"));
    assert_eq!(found["word"]["new_values"], 0.5);
    let text = shop.forebay(&["drift", "before.parquet", "after.parquet"]).expect(0).stdout;
    assert!(text.contains("; the Jensen-Shannon divergence is 0.678") && text.contains("KS"), "{text}");
    let broken = shop.write("broken.json", "{ \"format\": 9 }");
    let call = shop.forebay(&["drift", &broken, "after.parquet"]);
    assert!(call.code != 0 && call.stderr.contains("broken.json"), "{}", call.stderr);
}
