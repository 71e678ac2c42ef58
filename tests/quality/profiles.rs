//! Profiles and drift through the front door, beside plain computations of the same numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, FixedSizeBinaryArray,
    FixedSizeListArray, Float64Array, Int32Array, LargeBinaryArray, ListBuilder, StringArray,
    StringBuilder,
};
use serde_json::{Value, json};

use crate::steps::edge_values::write;
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
        (
            "day",
            Arc::new(Date32Array::from_iter_values(
                rows.clone().map(|row| row as i32 / 10),
            )),
        ),
        (
            "word",
            Arc::new(StringArray::from_iter(rows.clone().map(text))),
        ),
        (
            "x",
            Arc::new(Float64Array::from_iter(rows.clone().map(number))),
        ),
        (
            "n",
            Arc::new(Int32Array::from_iter_values(
                rows.clone().map(|row| row as i32 - 100),
            )),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                rows.clone().map(|row| Some(row % 4 == 0)),
            )),
        ),
        ("list", Arc::new(list.finish())),
    ];
    write(shop, name, columns);
}

fn columns(profile: &Value) -> BTreeMap<String, Value> {
    let columns = profile["columns"].as_array().unwrap().iter();
    columns
        .map(|column| (column["name"].as_str().unwrap().to_owned(), column.clone()))
        .collect()
}

fn close(found: &Value, expected: f64) {
    close_to(found, expected, 1e-12);
}

fn close_to(found: &Value, expected: f64, error: f64) {
    let found = found.as_f64().unwrap();
    assert!(
        (found - expected).abs() <= error * expected.abs(),
        "{found} instead of {expected}"
    );
}

#[test]
fn a_profile_holds_what_the_columns_hold() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("data")).unwrap();
    table(&shop, "data/a.parquet", 0..600);
    table(&shop, "data/b.parquet", 600..ROWS);
    let profile = |more: &[&str]| {
        let call = shop
            .forebay(&[&["profile", "data", "--json"], more].concat())
            .expect(0);
        (call.summary()["profile"].clone(), call.stdout)
    };
    let (found, _) = profile(&["--threads=2", "--output=profile.json"]);
    let stored: Value =
        serde_json::from_slice(&std::fs::read(shop.path("profile.json")).unwrap()).unwrap();
    assert_eq!(stored, found);
    // The same from the rows of one file and of one thread.
    table(&shop, "all.parquet", 0..ROWS);
    let one = shop
        .forebay(&[
            "profile",
            "all.parquet",
            "--json",
            "--threads=1",
            "--state=other",
        ])
        .expect(0)
        .summary();
    assert_eq!(one["profile"]["columns"], found["columns"]);
    assert_eq!(
        (&found["rows"], &found["of"]),
        (&json!(ROWS), &json!("data"))
    );

    let columns = columns(&found);
    let values: Vec<f64> = (0..ROWS)
        .filter_map(number)
        .filter(|x| !x.is_nan())
        .collect();
    let x = &columns["x"]["numeric"];
    assert_eq!(
        (&columns["x"]["nulls"], &x["nans"], &x["infinities"]),
        (&json!(50), &json!(50), &json!(50))
    );
    let count = |holds: &dyn Fn(f64) -> bool| json!(values.iter().filter(|x| holds(**x)).count());
    assert_eq!(
        (&x["count"], &x["zeros"]),
        (&count(&|_| true), &count(&|x| x == 0.0))
    );
    assert_eq!(x["negatives"], count(&|x| x < 0.0));

    let n: Vec<f64> = (0..ROWS).map(|row| row as f64 - 100.0).collect();
    let mean = n.iter().sum::<f64>() / ROWS as f64;
    let var = n.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / (ROWS - 1) as f64;
    let found_n = &columns["n"]["numeric"];
    close(&found_n["mean"], mean);
    close(&found_n["std"], var.sqrt());
    close(&found_n["quantiles"][25], -100.0 + 0.25 * 999.0);
    assert_eq!(
        (&found_n["min"], &found_n["max"]),
        (&json!(-100.0), &json!(899.0))
    );
    let shares: f64 = found_n["histogram"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bin| bin["share"].as_f64().unwrap())
        .sum();
    close(&json!(shares), 1.0);
    let distinct = columns["n"]["distinct"].as_f64().unwrap();
    assert!((distinct / ROWS as f64 - 1.0).abs() < 0.03, "{distinct}");

    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    (0..ROWS)
        .filter_map(text)
        .for_each(|text| *counts.entry(text).or_default() += 1);
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(text, count)| (std::cmp::Reverse(*count), text.clone()));
    let expected: Vec<Value> = counts
        .iter()
        .map(|(value, count)| json!({ "value": value, "count": count }))
        .collect();
    let word = &columns["word"];
    assert_eq!(word["frequent"], json!(expected));
    assert_eq!(
        (
            &word["distinct"],
            &word["distinct_is_exact"],
            &word["nulls"]
        ),
        (&json!(4), &json!(true), &json!(100))
    );
    assert_eq!(
        (&word["length"]["min"], &word["length"]["max"]),
        (&json!(0), &json!(5))
    );
    let letters: usize = (0..ROWS)
        .filter_map(text)
        .map(|text| text.chars().count())
        .sum();
    close(&word["length"]["mean"], letters as f64 / 900.0);
    assert_eq!(
        columns["day"]["time"],
        json!({ "first": "1970-01-01", "last": "1970-04-10" })
    );
    assert_eq!(
        columns["flag"]["frequent"][0],
        json!({ "value": "false", "count": 750 })
    );
    assert_eq!(
        columns["list"]["length"],
        json!({ "min": 0, "max": 2, "mean": 999.0 / 1000.0 })
    );
    // Examples are values of the column, each once.
    let examples = |name: &str| -> BTreeSet<String> {
        let found = columns[name]["examples"].as_array().unwrap();
        let examples: BTreeSet<String> = found
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(examples.len(), found.len(), "{name}");
        examples
    };
    assert_eq!(
        examples("flag"),
        ["false", "true"].map(str::to_owned).into()
    );
    assert_eq!(examples("word"), (0..ROWS).filter_map(text).collect());
    let day = |row: usize| {
        jiff::civil::date(1970, 1, 1)
            .checked_add(jiff::Span::new().days(row as i64 / 10))
            .unwrap()
    };
    let values: [(&str, BTreeSet<String>); 3] = [
        (
            "n",
            (0..ROWS)
                .map(|row| (row as i64 - 100).to_string())
                .collect(),
        ),
        (
            "x",
            values.iter().map(|x| format!("{:?}", x + 0.0)).collect(),
        ),
        ("day", (0..ROWS).map(|row| day(row).to_string()).collect()),
    ];
    for (name, values) in values {
        let found = examples(name);
        assert!(
            found.len() == 5 && found.is_subset(&values),
            "{name}: {found:?}"
        );
    }
    assert_eq!(
        examples("list"),
        ["[]", "[x]", "[x, x]"].map(str::to_owned).into()
    );

    // Again: nothing is read.
    let read = |events: &str| -> u64 {
        let events = events
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .filter(|event| event["event"] == "pass_done")
            .filter_map(|event| event["rows"].as_u64())
            .sum()
    };
    let (again, events) = profile(&[]);
    assert_eq!((read(&events), &again), (0, &found), "{events}");
    table(&shop, "data/c.parquet", ROWS..ROWS + 10);
    // For people.
    let text = shop.forebay(&["profile", "data"]).expect(0).stdout;
    for part in [
        "data: 1,010 rows, 6 columns",
        "x  float64",
        "word  string",
        "day  date",
        "infinite",
        "1970-01-01 to 1970-04-11",
        "length 0 to 5",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    // Numbers, days and lists have examples; the words are all among the frequent ones.
    assert_eq!(text.matches("\n  such as ").count(), 4, "{text}");
    shop.forebay(&["profile", "data", "--report=page.html"])
        .expect(0);
    assert_eq!(
        std::fs::read_to_string(shop.path("page.html"))
            .unwrap()
            .matches("such as ")
            .count(),
        4
    );
}

#[test]
fn lists_and_bytes_have_short_examples() {
    let shop = TestDirectory::new();
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![
        Some(1.5),
        None,
        Some(-0.25),
        Some(2.0),
    ]));
    let item = Arc::new(arrow::datatypes::Field::new_list_field(
        numbers.data_type().clone(),
        true,
    ));
    let mut words = ListBuilder::new(StringBuilder::new());
    words.append_value((0..7).map(|word| Some(format!("word {word}"))));
    words.append_value([Some("\u{e9}".repeat(40)), None]);
    words.append_null();
    words.append_value([None::<&str>; 0]);
    let long = [7_u8; 40];
    let bytes = vec![
        Some(&b"\x00\xff"[..]),
        Some(&long[..]),
        None,
        Some(&b""[..]),
    ];
    let fixed =
        FixedSizeBinaryArray::try_from_iter([[1_u8, 2], [3, 4], [1, 2], [255, 0]].into_iter())
            .unwrap();
    let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(item, 1, numbers, None));
    let columns: [(&str, ArrayRef, Value); 5] = [
        (
            "words",
            Arc::new(words.finish()),
            json!([
                "[]",
                "[word 0, word 1, word 2, word 3, word 4, ...]",
                format!("[{}..., null]", "\u{e9}".repeat(16))
            ]),
        ),
        (
            "pairs",
            pairs,
            json!(["[-0.25]", "[1.5]", "[2.0]", "[null]"]),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from(bytes.clone())),
            json!(["", "00ff", format!("{}...", "07".repeat(16))]),
        ),
        (
            "large",
            Arc::new(LargeBinaryArray::from(bytes)),
            json!(["", "00ff", format!("{}...", "07".repeat(16))]),
        ),
        ("fixed", Arc::new(fixed), json!(["0102", "0304", "ff00"])),
    ];
    write(
        &shop,
        "data.parquet",
        columns.clone().map(|(name, column, _)| (name, column)),
    );
    let found = self::columns(
        &shop
            .forebay(&["profile", "data.parquet", "--json"])
            .expect(0)
            .summary()["profile"],
    );
    for (name, _, expected) in columns {
        let mut examples: Vec<String> =
            serde_json::from_value(found[name]["examples"].clone()).unwrap();
        examples.sort();
        assert_eq!(json!(examples), expected, "{name}");
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
    let profile =
        |args: &[&str]| shop.forebay(&[&["profile", "spec.yaml"], args, &["--json"]].concat());
    let found = |args: &[&str]| columns(&profile(args).expect(0).summary()["profile"]);
    let scaled = found(&["scaled", "--split=train"]);
    assert_eq!(scaled["n"]["rows"], 500);
    assert!(scaled["n"]["numeric"]["mean"].as_f64().unwrap().abs() < 1e-6);
    assert_eq!(found(&["scaled", "--param=least=890"])["word"]["rows"], 10);
    assert_eq!(found(&[])["n"]["numeric"]["min"], -100.0);
    assert!(!shop.path("out").exists());
    // Each part by itself, side by side.
    let call = profile(&["scaled", "--parts", "--report=parts.html"]).expect(0);
    let parts = call.summary()["profiles"].clone();
    let told: Vec<&Value> = parts
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| &profile["part"])
        .collect();
    assert_eq!(told, ["train", "test"]);
    assert_eq!(columns(&parts[0])["n"], scaled["n"]);
    let page = std::fs::read_to_string(shop.path("parts.html")).unwrap();
    assert!(
        page.contains("Columns by part of the split") && page.contains("train 500 rows"),
        "{page}"
    );
    let refused = |args: &[&str], code: i32, message: &str| {
        let call = profile(args).expect(code);
        assert!(call.stderr.contains(message), "{}", call.stderr);
    };
    refused(&["scale"], 78, "there is no step or source `scale`");
    refused(
        &["scaled", "--split=exam"],
        78,
        "the split has no part `exam`",
    );
}

#[test]
fn drift_names_the_columns_and_why() {
    let shop = TestDirectory::new();
    table(&shop, "before.parquet", 0..ROWS);
    let moved: [(&str, ArrayRef); 4] = [
        (
            "word",
            Arc::new(StringArray::from_iter(
                (0..500).map(|row| Some(if row % 2 == 0 { "plum" } else { "fig" })),
            )),
        ),
        (
            "x",
            Arc::new(Float64Array::from_iter(
                (0..500).map(|row| number(row).filter(|_| row % 2 == 0)),
            )),
        ),
        (
            "n",
            Arc::new(Int32Array::from_iter_values((0..500).map(|row| row * 10))),
        ),
        ("other", Arc::new(Int32Array::from_iter_values(0..500))),
    ];
    write(&shop, "after.parquet", moved);
    shop.forebay(&["profile", "before.parquet", "--output=before.json"])
        .expect(0);
    let same = shop
        .forebay(&["drift", "before.json", "before.parquet", "--fail"])
        .expect(0);
    assert!(
        same.stdout.contains("no column has drifted"),
        "{}",
        same.stdout
    );
    let call = shop
        .forebay(&["drift", "before.json", "after.parquet", "--fail", "--json"])
        .expect(65);
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
    assert!(
        reason("x").contains("rows without a value: 10.0 % before"),
        "{}",
        reason("x")
    );
    assert!(reason("word").contains("Jensen-Shannon") && reason("n").contains("Jensen-Shannon"));
    assert_eq!(found["word"]["new_values"], 0.5);
    let text = shop
        .forebay(&["drift", "before.parquet", "after.parquet"])
        .expect(0)
        .stdout;
    assert!(
        text.contains("; the Jensen-Shannon divergence is 0.678") && text.contains("KS"),
        "{text}"
    );
    let broken = shop.write("broken.json", "{ \"format\": 9 }");
    let call = shop.forebay(&["drift", &broken, "after.parquet"]);
    assert!(
        call.code != 0 && call.stderr.contains("broken.json"),
        "{}",
        call.stderr
    );
}

/// A number from 0 to 1 that looks like chance, the same in Python.
fn mixed(number: u64) -> f64 {
    let x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x ^ (x >> 32)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Rows for a comparison with TFDV: values of both kinds that move from one side to the other.
fn moving(shop: &TestDirectory, name: &str, rows: u64, side: u64) {
    let moved = side as f64;
    let u: Vec<f64> = (0..rows).map(|row| mixed(row * 2 + side + 1)).collect();
    let v: Vec<f64> = (0..rows)
        .map(|row| mixed(row * 2 + side + 1 + 1_000_000))
        .collect();
    let colour = |u: &f64| match *u {
        u if u < 0.5 - 0.15 * moved => "red",
        u if u < 0.8 - 0.075 * moved => "green",
        u if u < 0.97 || side == 0 => "blue",
        _ => "violet",
    };
    let some = u
        .iter()
        .enumerate()
        .map(|(row, u)| (row % 10 != 0).then(|| colour(u)));
    let columns: [(&str, ArrayRef); 6] = [
        (
            "colour",
            Arc::new(StringArray::from_iter_values(u.iter().map(colour))),
        ),
        ("some", Arc::new(StringArray::from_iter(some))),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                v.iter().map(|v| Some(*v < 0.3 + 0.15 * moved)),
            )),
        ),
        (
            "steps",
            Arc::new(Float64Array::from_iter_values(
                u.iter()
                    .map(|u| (10.0 * u.powf(1.0 + 0.5 * moved)).floor().min(9.0)),
            )),
        ),
        (
            "price",
            Arc::new(Float64Array::from_iter_values(
                u.iter().map(|u| -(1.0 - u).ln() * (1.0 + 0.5 * moved)),
            )),
        ),
        ("same", Arc::new(Float64Array::from(v))),
    ];
    write(shop, name, columns);
}

/// The measures of TFDV 1.16.1, from its own code (`validate_statistics` with a threshold of 0): of numbers over bins that
/// each hold a twentieth of the first side.
#[test]
fn measures_of_drift_are_those_of_tfdv() {
    let shop = TestDirectory::new();
    moving(&shop, "before.parquet", 4_000, 0);
    moving(&shop, "after.parquet", 3_000, 1);
    let summary = shop
        .forebay(&["drift", "before.parquet", "after.parquet", "--json"])
        .expect(0)
        .summary();
    let found = columns(&summary["drift"]);
    for (name, js, l_infinity) in [
        ("colour", 0.030_685_519_730_600_7, 0.148_666_666_666_666_67),
        ("flag", 0.013_284_300_626_556_458, 0.130_750_000_000_000_03),
        ("some", 0.033_417_346_455_021_264, 0.155_648_148_148_148_15),
    ] {
        close(&found[name]["js"], js);
        close(&found[name]["l_infinity"], l_infinity);
    }
    // Quantiles are known to a hundredth of the rows.
    for (name, js) in [
        ("steps", 0.022_350),
        ("price", 0.033_573),
        ("same", 0.001_604),
    ] {
        let own = found[name]["js"].as_f64().unwrap();
        assert!((own - js).abs() < 0.0015, "{name}: {own} instead of {js}");
    }
}

/// Rows of a shop: `store` sells on some of 30 days.
struct ShopDays {
    rows: Vec<(usize, i32, Option<f64>, f64)>,
}

impl ShopDays {
    /// Store 0 sells each day, store 1 each second day, store 2 twice, store 3 sells nothing on most days.
    fn new() -> ShopDays {
        let mut rows = Vec::new();
        for day in 0..30 {
            for store in 0..4 {
                let is_there = [true, day % 2 == 0, day == 3 || day == 20, day != 7][store];
                let qty = match store {
                    3 if day % 5 != 0 => Some(0.0),
                    _ if day == 11 => None,
                    _ => Some(f64::from(day * 3 % 7) + 1.0),
                };
                if is_there {
                    rows.push((
                        store,
                        day,
                        qty,
                        f64::from(day) * 0.37 - f64::from(day * day % 11),
                    ));
                }
            }
        }
        ShopDays { rows }
    }

    fn word(&self, row: usize) -> &'static str {
        let (store, day, ..) = self.rows[row];
        if day % 3 == 0 {
            "a"
        } else {
            ["b", "c", "a", "b"][store]
        }
    }

    fn write(&self, shop: &TestDirectory, name: &str, rows: std::ops::Range<usize>) {
        let these = &self.rows[rows.clone()];
        let columns: [(&str, ArrayRef); 5] = [
            (
                "store",
                Arc::new(StringArray::from_iter_values(
                    these.iter().map(|row| format!("s{}", row.0)),
                )),
            ),
            (
                "day",
                Arc::new(Date32Array::from_iter_values(these.iter().map(|row| row.1))),
            ),
            (
                "qty",
                Arc::new(Float64Array::from_iter(these.iter().map(|row| row.2))),
            ),
            (
                "price",
                Arc::new(Float64Array::from_iter_values(
                    these.iter().map(|row| row.3),
                )),
            ),
            (
                "word",
                Arc::new(StringArray::from_iter_values(
                    rows.map(|row| self.word(row)),
                )),
            ),
        ];
        write(shop, name, columns);
    }

    /// Pearson's correlation of quantity and price, in two passes.
    fn correlation(&self) -> f64 {
        let pairs: Vec<(f64, f64)> = self
            .rows
            .iter()
            .filter_map(|row| Some((row.2?, row.3)))
            .collect();
        let n = pairs.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
        let x = mean(&|pair| pair.0);
        let y = mean(&|pair| pair.1);
        let spread =
            |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(a, b)| of(a - x, b - y)).sum::<f64>();
        spread(&|a, b| a * b) / (spread(&|a, _| a * a) * spread(&|_, b| b * b)).sqrt()
    }

    /// Cramér's V of store and word, by its definition.
    fn association(&self) -> f64 {
        let mut counts: BTreeMap<(usize, &str), f64> = BTreeMap::new();
        (0..self.rows.len()).for_each(|row| {
            *counts
                .entry((self.rows[row].0, self.word(row)))
                .or_default() += 1.0
        });
        let n = self.rows.len() as f64;
        let sum = |holds: &dyn Fn(&(usize, &str)) -> bool| -> f64 {
            counts
                .iter()
                .filter(|(key, _)| holds(key))
                .map(|(_, count)| count)
                .sum()
        };
        let mut chi = 0.0;
        for store in 0..4 {
            for word in ["a", "b", "c"] {
                let expected = sum(&|key| key.0 == store) * sum(&|key| key.1 == word) / n;
                chi += (counts.get(&(store, word)).copied().unwrap_or(0.0) - expected).powi(2)
                    / expected;
            }
        }
        (chi / n / 2.0).sqrt()
    }
}

#[test]
fn series_and_pairs_are_profiled_on_workers_too() {
    let shop = TestDirectory::new();
    let data = ShopDays::new();
    std::fs::create_dir(shop.path("data")).unwrap();
    let half = data.rows.len() / 2;
    let all = data.rows.len();
    data.write(&shop, "data/a.parquet", 0..half);
    data.write(&shop, "data/b.parquet", half..all);
    let profile = |more: &[&str]| {
        let args = [
            "profile",
            "data",
            "--json",
            "--time=day",
            "--keys=store",
            "--demand=qty",
        ];
        shop.forebay(&[&args, more].concat()).expect(0).summary()["profile"].clone()
    };
    let found = profile(&["--threads=2", "--pairs"]);
    let series = &found["series"];
    assert_eq!(
        (&series["keys"], &series["time"]),
        (&json!(["store"]), &json!("day"))
    );
    assert_eq!(
        (&series["series"], &series["period"]),
        (&json!(4), &json!("1d"))
    );
    assert_eq!(
        (&series["first"], &series["last"]),
        (&json!("1970-01-01"), &json!("1970-01-30"))
    );
    assert_eq!(
        series["rows_per_series"],
        json!([2.0, all as f64 / 4.0, 30.0])
    );
    close(&series["rows_per_period"], all as f64 / 30.0);
    // Store 1 lacks 14 days of 29, store 2 lacks 16 of 18, store 3 lacks one.
    assert_eq!(
        (&series["gaps"], &series["series_with_gaps"]),
        (&json!(14 + 16 + 1), &json!(3))
    );
    assert_eq!(
        (&series["intermittent"], &series["intermittent_share"]),
        (&json!(3), &json!(0.75))
    );
    let pair = |first: &str, second: &str| {
        let mut pairs = found["pairs"].as_array().unwrap().iter();
        let is_it = |pair: &&Value| pair["first"] == first && pair["second"] == second;
        pairs
            .find(is_it)
            .unwrap_or_else(|| panic!("no pair of {first} and {second}"))
            .clone()
    };
    assert_eq!(found["pairs"].as_array().unwrap().len(), 2);
    let correlation = pair("qty", "price");
    close_to(&correlation["correlation"], data.correlation(), 1e-13);
    assert_eq!(
        correlation["rows"],
        data.rows.iter().filter(|row| row.2.is_some()).count()
    );
    close_to(
        &pair("store", "word")["cramers_v"],
        data.association(),
        1e-13,
    );

    // The same bits from one file, one thread, and workers.
    data.write(&shop, "all.parquet", 0..all);
    let args = [
        "profile",
        "all.parquet",
        "--json",
        "--time=day",
        "--keys=store",
        "--demand=qty",
        "--pairs",
    ];
    let one = shop
        .forebay(&[&args[..], &["--threads=1", "--state=one"]].concat())
        .expect(0)
        .summary();
    for part in ["columns", "series", "pairs"] {
        assert_eq!(one["profile"][part], found[part], "{part}");
    }
    assert_eq!(
        profile(&[
            "--local-workers=2",
            "--state=away",
            "--memory=512MiB",
            "--pairs"
        ]),
        found
    );
    let named = profile(&["--pairs=price,qty", "--state=named"]);
    assert_eq!(named["pairs"].as_array().unwrap().len(), 1);
    let text = shop
        .forebay(&[
            "profile",
            "data",
            "--time=day",
            "--keys=store",
            "--demand=qty",
            "--pairs",
        ])
        .expect(0);
    for part in [
        "4 series, 2 to 30 rows each",
        "periods of 1d",
        "intermittent by qty: 3 (75.0 %)",
        "store, word: Cram",
    ] {
        assert!(
            text.stdout.contains(part),
            "no `{part}` in:\n{}",
            text.stdout
        );
    }
    shop.forebay(&[
        "profile",
        "data",
        "--time=day",
        "--keys=store",
        "--report=page.html",
        "--pairs",
    ])
    .expect(0);
    let page = std::fs::read_to_string(shop.path("page.html")).unwrap();
    assert!(
        page.contains("periods of 1d") && page.contains("Pairs of columns"),
        "{page}"
    );
    let call = shop
        .forebay(&[
            "profile",
            "data",
            "--time=day",
            "--keys=store",
            "--demand=word",
        ])
        .expect(78);
    assert!(call.stderr.contains("word"), "{}", call.stderr);
}

#[test]
fn rows_of_files_that_cannot_match_do_not_count_as_read() {
    for workers in [&[][..], &["--local-workers=1", "--memory=512MiB"]] {
        let shop = TestDirectory::new();
        std::fs::create_dir(shop.path("data")).unwrap();
        // Days 0 to 49, 50 to 99.
        table(&shop, "data/a.parquet", 0..500);
        table(&shop, "data/b.parquet", 500..ROWS);
        let spec = "version: 1\nname: pruned\nsources:\n  all: { parquet: { path: data } }\nsteps:\n  late:\n    from: all\n    \
                    do:\n      - filter: \"day >= DATE '1970-03-01' AND n < 880\"\n      - standardize: { columns: [n] }\n\
                    sinks: { out: { from: late, parquet: { path: out } } }\n";
        shop.write("spec.yaml", spec);
        let run = |more: &[&str]| {
            shop.forebay(&[&["run", "spec.yaml", "--report=run.html"], workers, more].concat())
        };
        let summary = run(&["--json"]).expect(0).summary();
        let pass = &summary["passes"][0];
        let counts = ["rows_in", "rows_skipped", "rows_filtered"].map(|name| pass[name].as_u64());
        // Day 59 is the first of March.
        assert_eq!(
            counts,
            [Some(1_000), Some(500), Some(500 + 90 + 20)],
            "{workers:?}: {pass}"
        );
        let page = std::fs::read_to_string(shop.path("run.html")).unwrap();
        let cells = "<td class=\"number\">1,000</td><td class=\"number\">500</td>";
        assert!(
            page.contains(">not read<") && page.contains(cells),
            "{workers:?}: {page}"
        );
        shop.write("spec.yaml", &spec.replace("880", "870"));
        let text = run(&[]).expect(0);
        let told = format!("{}{}", text.stdout, text.stderr);
        assert!(
            told.contains("500 rows read, 500 skipped, 120 filtered"),
            "{workers:?}: {told}"
        );
    }
}

#[test]
fn a_sample_is_a_first_look() {
    let shop = TestDirectory::new();
    table(&shop, "all.parquet", 0..ROWS);
    let call = shop
        .forebay(&["profile", "all.parquet", "--limit=200", "--json"])
        .expect(0);
    let profile = &call.summary()["profile"];
    assert_eq!(
        (&profile["rows"], &columns(profile)["n"]["numeric"]["max"]),
        (&json!(200), &json!(99.0))
    );
    // It leaves no state behind that another profile would take.
    let whole = shop
        .forebay(&["profile", "all.parquet", "--json"])
        .expect(0)
        .summary();
    assert_eq!(whole["profile"]["rows"], ROWS);
}
