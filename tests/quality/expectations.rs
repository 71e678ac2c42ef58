//! Expectations: what holds lets a run publish, what does not is named with its rows, and nothing is published.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Float64Array, Int32Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use serde_json::{Value, json};

use crate::steps::edge_values::write;
use crate::support::{ProgramOutput, TestDirectory};

const ROWS: i32 = 1_000;

/// Rows with a date, a key, a category, a price and a quantity, and some faults.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let category = |row: i32| match row {
        7 | 8 => Some("toys"),
        9 => None,
        _ => Some(["food", "household"][row as usize % 2]),
    };
    let price = |row: i32| match row {
        3 => None,
        4 => Some(f64::NAN),
        5 => Some(-1.5),
        _ => Some(f64::from(row) / 10.0),
    };
    let columns: [(&str, ArrayRef); 5] = [
        (
            "date",
            Arc::new(Date32Array::from_iter_values(
                (0..ROWS).map(|row| 16_000 + row / 10),
            )),
        ),
        (
            "item",
            Arc::new(Int32Array::from_iter_values(
                (0..ROWS).map(|row| if row == 999 { 8 } else { row % 10 }),
            )),
        ),
        (
            "category",
            Arc::new(StringArray::from_iter((0..ROWS).map(category))),
        ),
        (
            "price",
            Arc::new(Float64Array::from_iter((0..ROWS).map(price))),
        ),
        (
            "qty",
            Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row % 50))),
        ),
    ];
    write(&shop, "rows.parquet", columns);
    shop
}

fn spec(shop: &TestDirectory, rules: &str) {
    let text = format!(
        "version: 1\nname: expected\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }}, time: date, keys: [item] \
         }}\nsteps:\n  checked:\n    from: rows\n    do:\n      - expect:\n{rules}\nsinks:\n  out: {{ from: checked, \
         parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &text);
}

fn run(shop: &TestDirectory, rule: &str, more: &[&str]) -> ProgramOutput {
    spec(shop, &format!("          - {rule}"));
    shop.forebay(&[&["run", "spec.yaml", "--json"], more].concat())
}

#[test]
fn each_rule_tells_which_rows_violate_it() {
    let shop = shop();
    let violated = [
        (
            "{ not_null: [qty, price] }",
            "not_null: price",
            1,
            json!([["null", 1]]),
        ),
        (
            "{ range: { price: [0, null] } }",
            "range: price",
            1,
            json!([["-1.5", 1]]),
        ),
        (
            "{ range: { price: [-5, 90] } }",
            "range: price",
            100,
            Value::Null,
        ),
        (
            "{ range: { date: [2013-10-23, null] } }",
            "range: date",
            10,
            json!([["2013-10-22", 10]]),
        ),
        (
            "{ in_set: { category: [food, household] } }",
            "in_set: category",
            2,
            json!([["toys", 2]]),
        ),
        (
            "{ in_set: { qty: [0, 1] } }",
            "in_set: qty",
            960,
            Value::Null,
        ),
        (
            "{ sql: \"qty < 49 OR price < 10\" }",
            "sql: qty < 49 OR price < 10",
            18,
            Value::Null,
        ),
        (
            "{ sql: \"price >= 0\" }",
            "sql: price >= 0",
            1,
            json!([["price=-1.5", 1]]),
        ),
        (
            "{ unique: [date, item] }",
            "unique: date, item",
            0,
            json!([["2014-01-29, 8", 2]]),
        ),
        (
            "{ rows: { min: 1001 } }",
            "rows: at least 1001",
            0,
            json!([]),
        ),
        ("{ rows: { max: 999 } }", "rows: at most 999", 0, json!([])),
        (
            "{ fresh: { date: 2d } }",
            "fresh: date within 2d",
            0,
            json!([]),
        ),
    ];
    for (rule, name, violations, values) in violated {
        let call = run(&shop, rule, &[]).expect(65);
        assert!(
            call.stderr.contains("FB0216") && call.stderr.contains(name),
            "{rule}: {}",
            call.stderr
        );
        assert!(
            call.stderr.contains("checked.expect") && !shop.path("out").exists(),
            "{rule}: {}",
            call.stderr
        );
        // The same with a warning: the rows are published.
        let warned = rule.replacen("{ ", "{ policy: warn, ", 1);
        let call = run(&shop, &warned, &["--state=warned"]).expect(0);
        let summary = call.summary();
        let found = &summary["expectations"]
            .as_array()
            .unwrap()
            .iter()
            .find(|rule| rule["rule"] == name)
            .unwrap();
        assert_eq!(
            (&found["holds"], &found["violations"]),
            (&json!(false), &json!(violations)),
            "{rule}"
        );
        if !values.is_null() {
            let pair = |value: &Value| json!([value["value"], value["rows"]]);
            let found: Vec<Value> = found["values"]
                .as_array()
                .unwrap()
                .iter()
                .map(pair)
                .collect();
            assert_eq!(json!(found), values, "{rule}");
        }
        assert_eq!(summary["outputs"][0]["rows"], ROWS);
        assert!(
            call.stdout.contains("\"warning\"") && call.stdout.contains("does not hold"),
            "{}",
            call.stdout
        );
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        std::fs::remove_dir_all(shop.path(".out.forebay")).unwrap();
    }
    let held = [
        "{ not_null: [qty, date] }",
        "{ not_null: [price], at_most: 0.1% }",
        "{ range: { price: [-2, null], qty: [0, 49] }, at_most: 0.002 }",
        "{ in_set: { category: [food, household, toys] } }",
        "{ sql: \"qty >= 0\" }",
        "{ unique: [date, item, price] }",
        "{ rows: { min: 1000, max: 1000 } }",
        "{ fresh: { date: 20000d } }",
    ];
    let rules: Vec<String> = held
        .iter()
        .map(|rule| format!("          - {rule}"))
        .collect();
    spec(&shop, &rules.join("\n"));
    for more in [
        &["--threads=2"][..],
        &["--local-workers=2", "--state=on-workers"],
    ] {
        let summary = shop
            .forebay(&[&["run", "spec.yaml", "--json"], more].concat())
            .expect(0)
            .summary();
        let rules = summary["expectations"].as_array().unwrap();
        assert!(
            rules.len() == 10 && rules.iter().all(|rule| rule["holds"] == true),
            "{rules:?}"
        );
    }
    let text = shop.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(
        text.contains("expectations: 10 of 10 rules hold") && text.contains("nothing new"),
        "{text}"
    );
}

#[test]
fn a_run_that_fails_keeps_what_readers_see() {
    let shop = shop();
    run(&shop, "{ rows: { min: 1 } }", &[]).expect(0);
    let before = shop.visible("out");
    // A rule more: no row is written anew.
    let call = run(&shop, "{ in_set: { category: [food] } }", &[]).expect(65);
    assert!(
        call.stderr.contains("household (498 rows), toys (2 rows)"),
        "{}",
        call.stderr
    );
    assert!(shop.visible("out") == before);
    let summary = run(&shop, "{ rows: { min: 1 } }", &["--signal-nothing-new"])
        .expect(99)
        .summary();
    assert_eq!(summary["expectations"][0]["holds"], true);
    // An interval knows what was known at its end: here nothing is old.
    let interval = [
        "--interval",
        "2014-01-20",
        "2014-01-30",
        "--state=nights-state",
        "--json",
    ];
    let rule = "          - { fresh: { date: 2d } }\n          - { rows: { min: 900 } }";
    spec(&shop, rule);
    shop.write(
        "spec.yaml",
        &std::fs::read_to_string(shop.path("spec.yaml"))
            .unwrap()
            .replace("path: out", "path: nights"),
    );
    shop.forebay(&[&["run", "spec.yaml"], &interval[..]].concat())
        .expect(0);
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    let shop = shop();
    for (rule, message) in [
        ("{ not_null: [amount] }", "there is no column `amount`"),
        ("{ policy: warn }", "an item of `expect` has one rule"),
        (
            "{ not_null: [qty], unique: [qty] }",
            "an item of `expect` has one rule",
        ),
        ("{ rows: { min: 2, max: 1 } }", "`rows` has a least number"),
        (
            "{ rows: { min: 2 }, at_most: 1% }",
            "this rule is about all of them",
        ),
        ("{ range: { qty: [null, null] } }", "has no bound"),
        ("{ in_set: { qty: [] } }", "is empty"),
        (
            "{ fresh: { qty: 2d } }",
            "only a date or a timestamp has an age",
        ),
        ("{ sql: \"qty +\" }", "qty +"),
        ("{ not_null: [qty], at_most: 200% }", "at_most"),
    ] {
        let call = run(&shop, rule, &[]);
        assert!(
            call.code == 78 && call.stderr.contains(message),
            "{rule}: {} {}",
            call.code,
            call.stderr
        );
    }
}

#[test]
fn quarantined_rows_are_taken_out_and_written_with_the_rule() {
    let shop = shop();
    let spec = |at_most: &str| {
        let text = format!(
            "version: 1\nname: expected\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }}, time: date, keys: [item] \
             }}\nsteps:\n  checked:\n    from: rows\n    fit_on: train\n    do:\n      - filter: \"qty < 40\"\n      - expect:\n          \
             - {{ rows: {{ min: 794, max: 794 }} }}\n          \
             - {{ in_set: {{ category: [food, household] }}, policy: quarantine }}\n          \
             - {{ not_null: [category, price], policy: quarantine{at_most} }}\n          \
             - {{ range: {{ price: [0, null] }} }}\n      - standardize: {{ columns: [price] }}\n\
             split:\n  train: \"date < DATE '2014-01-01'\"\nsinks:\n  \
             out: {{ from: checked, parquet: {{ path: out }} }}\n  \
             bad: {{ from: checked, quarantined: true, parquet: {{ path: bad }} }}\n"
        );
        // NaN is above every range, and -1.5 below this one: both are removed from the data first.
        let text = text.replace(
            "\"qty < 40\"",
            "\"qty < 40 AND (price IS NULL OR price >= 0) AND price IS DISTINCT FROM 'NaN'\"",
        );
        shop.write("spec.yaml", &text);
    };
    spec("");
    for more in [
        &["--threads=2"][..],
        &["--local-workers=2", "--state=on-workers"],
    ] {
        let call = shop.forebay(&[&["run", "spec.yaml", "--json"], more].concat());
        let summary = call.expect(0).summary();
        let rules = summary["expectations"].as_array().unwrap();
        let found: Vec<Value> = rules
            .iter()
            .filter(|rule| rule["step"] == "checked.expect")
            .map(|rule| {
                json!([
                    rule["rule"],
                    rule["holds"],
                    rule["rows"],
                    rule["quarantined"]
                ])
            })
            .collect();
        let expected = json!([
            ["in_set: category", true, 798, 2],
            ["not_null: category", true, 798, 1],
            ["not_null: price", true, 798, 1],
            ["rows: 794 to 794", true, 794, 0],
            ["range: price", true, 794, 0],
        ]);
        assert_eq!(json!(found), expected);
        let outputs = summary["outputs"].as_array().unwrap();
        let rows = |sink: &str| {
            outputs
                .iter()
                .find(|output| output["sink"] == sink)
                .unwrap()["rows"]
                .clone()
        };
        assert_eq!((rows("out"), rows("bad")), (json!(794), json!(4)));
    }
    let bad = shop.visible("bad");
    let text = |column: &str| {
        let column = cast(bad.column_by_name(column).unwrap(), &DataType::Utf8).unwrap();
        column
            .as_string::<i32>()
            .iter()
            .map(|value| value.unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        text("violated_rule"),
        [
            "not_null: price",
            "in_set: category",
            "in_set: category",
            "not_null: category"
        ]
    );
    assert_eq!(text("violating_value"), ["null", "toys", "toys", "null"]);
    assert_eq!(text("qty"), ["3", "7", "8", "9"]);
    let told = shop.forebay(&["run", "spec.yaml"]).expect(0).stdout;
    assert!(
        told.contains("`in_set: category`: 2 rows quarantined"),
        "{told}"
    );

    // An error budget: more rows than that, and nothing is published.
    spec(", at_most: 0.1%");
    let call = shop
        .forebay(&["run", "spec.yaml", "--state=budget"])
        .expect(65);
    assert!(
        call.stderr.contains("`not_null: category`") && call.stderr.contains("raise `at_most`"),
        "{}",
        call.stderr
    );
    // A sink of quarantined rows needs a rule that takes rows out.
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &text.replace("policy: quarantine", "policy: warn"),
    );
    let call = shop.forebay(&["check", "spec.yaml"]).expect(78);
    assert!(
        call.stderr
            .contains("no rule of `checked` has `policy: quarantine`"),
        "{}",
        call.stderr
    );
    let call = run(&shop, "{ unique: [date, item], policy: quarantine }", &[]).expect(78);
    assert!(
        call.stderr.contains("does not tell which rows to take out"),
        "{}",
        call.stderr
    );
}

#[test]
fn inferred_rules_hold_for_the_rows_and_find_others() {
    let shop = shop();
    spec(&shop, "          - { rows: { min: 1 } }");
    let inferred = shop
        .forebay(&["check", "spec.yaml", "--infer", "rows"])
        .expect(0)
        .stdout;
    let expected = "# Of 1000 rows of `rows`, which keep these rules. Review them.\n- expect:\n    - { not_null: [date, \
                    item, qty] }\n    - { range: { qty: [0, 100] } }\n    - { in_set: { category: [\"food\", \
                    \"household\", \"toys\"] } }\n    - { rows: { min: 500 } }\n";
    assert_eq!(inferred, expected);
    let rules: String = inferred
        .lines()
        .skip(2)
        .map(|line| format!("      {line}\n"))
        .collect();
    spec(&shop, &rules);
    let call = |code: i32| {
        shop.forebay(&["run", "spec.yaml", "--json"])
            .expect(code)
            .stderr
    };
    call(0);
    let columns: [(&str, ArrayRef); 5] = [
        ("date", Arc::new(Date32Array::from(vec![16_000; 40]))),
        (
            "item",
            Arc::new(Int32Array::from_iter(
                (0..40).map(|row| (row > 0).then_some(row)),
            )),
        ),
        ("category", Arc::new(StringArray::from(vec!["tools"; 40]))),
        ("price", Arc::new(Float64Array::from(vec![1.0; 40]))),
        ("qty", Arc::new(Int32Array::from(vec![101; 40]))),
    ];
    write(&shop, "rows.parquet", columns);
    let violated = call(65);
    for rule in [
        "not_null: item",
        "range: qty",
        "in_set: category",
        "rows: at least 500",
    ] {
        assert!(violated.contains(rule), "{rule}: {violated}");
    }
}

/// Writes 1,000 rows a file: prices of this scale, and a missing category for each `gap` rows.
fn write_day(shop: &TestDirectory, name: &str, scale: f64, gap: i32) {
    let category = |row: i32| (row % gap != 0).then_some(["food", "household"][row as usize % 2]);
    let columns: [(&str, ArrayRef); 5] = [
        (
            "date",
            Arc::new(Date32Array::from_iter_values(
                (0..ROWS).map(|row| 16_000 + row / 10),
            )),
        ),
        (
            "item",
            Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row % 10))),
        ),
        (
            "category",
            Arc::new(StringArray::from_iter((0..ROWS).map(category))),
        ),
        (
            "price",
            Arc::new(Float64Array::from_iter_values(
                (0..ROWS).map(|row| scale * f64::from(row % 97)),
            )),
        ),
        (
            "qty",
            Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row % 50))),
        ),
    ];
    write(shop, name, columns);
}

#[test]
fn rules_compare_with_the_last_run_that_published() {
    let shop = TestDirectory::new();
    write_day(&shop, "rows.parquet", 1.0, 100);
    let rules = "          - { rows: { change: { from: last_run, within: 20% } } }\n          - { drift: { columns: \
                 [price, category], against: last_run } }";
    spec(&shop, rules);
    let call = |code: i32| shop.forebay(&["run", "spec.yaml", "--json"]).expect(code);
    // Nothing to compare with, then the same rows.
    let summary = call(0).summary();
    assert_eq!(
        summary["expectations"][0]["rule"],
        "rows: within 20% of the last run"
    );
    call(0);
    write_day(&shop, "rows.parquet", 3.0, 100);
    let drifted = call(65).stderr;
    let message = "`drift: price against last_run` does not hold in step checked.expect: the Jensen-Shannon divergence is";
    assert!(
        drifted.contains(message) && !drifted.contains("drift: category"),
        "{drifted}"
    );
    write_day(&shop, "rows.parquet", 1.0, 4);
    let drifted = call(65).stderr;
    let message = "`drift: category against last_run` does not hold in step checked.expect: rows without a value: 1.0 % \
                   before, 25.0 % now";
    assert!(
        drifted.contains(message) && !drifted.contains("drift: price"),
        "{drifted}"
    );
    // A run that failed is not compared with.
    call(65);
    write_day(&shop, "rows.parquet", 1.0, 100);
    shop.forebay(&["cache", "gc", "--older-than", "0s"])
        .expect(0);
    shop.forebay(&["cache", "verify"]).expect(0);
    std::fs::create_dir(shop.path("days")).unwrap();
    let text = std::fs::read_to_string(shop.path("spec.yaml"))
        .unwrap()
        .replace("path: rows.parquet", "path: days");
    shop.write("spec.yaml", &text);
    for name in ["days/a.parquet", "days/b.parquet"] {
        write_day(&shop, name, 1.0, 100);
    }
    let grown = call(65).stderr;
    assert!(
        grown.contains("2000 rows, 1000 in the last run") && !grown.contains("drift"),
        "{grown}"
    );
}

#[test]
fn rules_compare_parts_of_the_split() {
    let shop = shop();
    let rule = |columns: &str, more: &str| {
        format!("          - {{ drift: {{ columns: {columns}, {more} }} }}")
    };
    let call = |rule: &str, code: i32| {
        spec(&shop, rule);
        let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        shop.write(
            "spec.yaml",
            &text.replace(
                "sinks:",
                "split:\n  train: \"qty < 25\"\n  test: \"qty >= 25\"\nsinks:",
            ),
        );
        shop.forebay(&["run", "spec.yaml", "--json"])
            .expect(code)
            .stderr
    };
    call(&rule("[category, price]", "of: test, against: train"), 0);
    for more in [
        &["of: test, against: train"][..],
        &["against: test", "of: train, against: test, js: 0.99"],
    ]
    .concat()
    {
        let drifted = call(&rule("[category, qty]", more), 65);
        assert!(
            drifted.contains("`drift: qty ") && !drifted.contains("drift: category"),
            "{more}: {drifted}"
        );
    }
    let unknown = call(&rule("[qty]", "against: trial"), 78);
    assert!(
        unknown.contains("the split has no part `trial`"),
        "{unknown}"
    );
    let unknown = call(&rule("[amount]", "against: last_run"), 78);
    assert!(unknown.contains("there is no column `amount`"), "{unknown}");
}

#[test]
fn a_fault_names_the_first_rows_that_violate_a_rule() {
    let shop = shop();
    std::fs::create_dir(shop.path("days")).unwrap();
    for name in ["a.parquet", "b.parquet"] {
        std::fs::copy(shop.path("rows.parquet"), shop.path("days").join(name)).unwrap();
    }
    let rules =
        "          - { range: { price: [0, null] } }\n          - { in_set: { qty: [0, 1, 2] } }";
    spec(&shop, rules);
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    // Rows are found behind a filter and a window, too.
    let text = text.replace("path: rows.parquet", "path: days").replace(
        "      - expect:",
        "      - filter: \"item <> 3\"\n      - lag: { columns: [qty], by: [1], gaps: count_rows }\n      - expect:",
    );
    shop.write("spec.yaml", &text);
    for more in [
        &["--threads=2"][..],
        &["--threads=1", "--state=other"],
        &["--local-workers=2", "--state=third"],
    ] {
        let call = shop
            .forebay(&[&["run", "spec.yaml"], more].concat())
            .expect(65);
        let told = call
            .stderr
            .replace(&shop.path("days").display().to_string(), "days");
        let places = "the first rows that violate it: days/a.parquet row 5 (-1.5); days/b.parquet row 5 (-1.5)\n";
        assert!(told.contains(places), "{more:?}: {told}");
        let rows = [4, 5, 6, 7, 8, 9, 10, 11, 12, 14].map(|row| format!("row {row} ({row})"));
        assert!(
            told.contains(&format!("days/a.parquet {}\n", rows.join(", "))),
            "{more:?}: {told}"
        );
    }
}

/// Twenty numbers of a day, up to 19 times `scale`.
fn write_numbers(shop: &TestDirectory, day: usize, scale: i32) {
    let rows: String = (0..20)
        .map(|row| format!("2020-01-{day:02},{row},{}\n", row * scale))
        .collect();
    std::fs::create_dir_all(shop.path("data")).unwrap();
    shop.write(&format!("data/{day}.csv"), &format!("date,item,x\n{rows}"));
}

/// Numbers in units of their own spread, and a rule about them.
fn standardized(more: &str) -> String {
    format!(
        "version: 1\nname: scaled\nsources:\n  rows: {{ csv: {{ path: data }}, time: date, keys: [item] }}\n\
         {more}steps:\n  f:\n    from: rows\n    do:\n      - standardize: {{ columns: [x] }}\n      \
         - expect:\n          - {{ range: {{ x: [-1.5, 1.5] }}, policy: warn }}\n\
         sinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n"
    )
}

fn violations(call: &ProgramOutput) -> u64 {
    call.summary()["expectations"][0]["violations"]
        .as_u64()
        .unwrap()
}

/// Rows that are computed with the statistics of another run are counted under another name: no run takes such a count for
/// its own, and no application takes that of a run.
#[test]
fn rules_count_rows_by_the_statistics_that_make_them() {
    const RUN: [&str; 3] = ["run", "spec.yaml", "--json"];
    let fresh = TestDirectory::new();
    write_numbers(&fresh, 1, 1);
    write_numbers(&fresh, 2, 10);
    fresh.write("spec.yaml", &standardized(""));
    let with_own = violations(&fresh.forebay(&RUN).expect(0));
    let cases = [
        "",
        "deadline: { ladder: [reuse_states] }\n",
        "deadline: { ladder: [last_model] }\n",
    ];
    for deadline in cases {
        let shop = TestDirectory::new();
        write_numbers(&shop, 1, 1);
        shop.write("spec.yaml", &standardized(deadline));
        let first = shop.forebay(&RUN).expect(0).summary();
        write_numbers(&shop, 2, 10);
        let apply = |output: &str| {
            let path = first["artifact_path"].as_str().unwrap();
            let options = ["--source", "rows=data", "--output", output, "--json"];
            let applied = shop.forebay(&[&["apply", path][..], &options].concat());
            violations(&applied.expect(0))
        };
        let with_earlier = if deadline.is_empty() {
            apply("applied")
        } else {
            let late = [&RUN[..], &["--deadline=2020-01-01T00:00:00Z"]].concat();
            let late = shop.forebay(&late).expect(0);
            assert_eq!(late.summary()["ladder"]["reused"], json!(["f.standardize"]));
            violations(&late)
        };
        assert_ne!(with_earlier, with_own, "{deadline}");
        assert_eq!(
            violations(&shop.forebay(&RUN).expect(0)),
            with_own,
            "{deadline}"
        );
        assert_eq!(apply("again"), with_earlier, "{deadline}");
    }
}
