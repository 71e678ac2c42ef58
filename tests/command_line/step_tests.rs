//! Tests of steps in specs: `forebay test`.

use serde_json::Value;

use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: shop
params: { scale: { type: number, default: 2 } }
sources:
  sales: { parquet: { path: missing/sales }, time: day, keys: [item] }
  stores: { csv: { path: missing/stores.csv } }
steps:
  features:
    from: sales
    do:
      - lag: { columns: [qty], by: [1d] }
      - derive: { scaled: "qty * ${scale}" }
      - standardize: { columns: [price] }
  named:
    from: features
    do:
      - join: { with: stores, on: [store] }
      - filter: "city IS NOT NULL"
  total: { sql: "SELECT item, sum(qty) AS qty FROM sales GROUP BY item ORDER BY item" }
sinks: { table: { from: named, parquet: { path: out } } }
tests:
"#;

const SALES: &str = r#"
      sales:
        - { day: 2024-01-01, item: a, store: 1, qty: 3, price: 1.5 }
        - { day: 2024-01-02, item: a, store: 2, qty: 5, price: 2.5 }
        - { day: 2024-01-03, item: a, store: 1, qty: null, price: 3.5 }"#;

fn shop(tests: &str) -> TestDirectory {
    let dir = TestDirectory::new();
    dir.write(
        "spec.yaml",
        &format!("{SPEC}{}", tests.replace("SALES", SALES)),
    );
    dir
}

#[test]
fn steps_are_tested_on_given_rows_without_any_data() {
    let dir = shop(
        "
  lags:
    step: features
    given: SALES
    expect:
      - { day: 2024-01-01, qty_lag_1d: null, scaled: 6, price: -1.2247449 }
      - { day: 2024-01-02, qty_lag_1d: 3, scaled: 10, price: 0 }
      - { day: '2024-01-03T00:00:00', qty_lag_1d: 5, scaled: null, price: 1.2247449 }
  joins_names:
    step: named
    given: SALES
      stores: [{ store: 1, city: Delft }]
    where: qty = 3
    expect: [{ item: a, city: Delft }]
  sums:
    step: total
    given: SALES
    expect: [{ item: a, qty: 8 }]
  wrong_types:
    step: features
    given:
      sales: [{ day: 2024-01-01, item: a, store: 1, qty: much, price: 1.5 }]
    fault: FB0110
  small_types:
    step: total
    given:
      sales: [{ item: 7, qty: 250 }, { item: 7, qty: 250 }]
    types: { sales: { qty: uint8 } }
    expect: [{ item: 7, qty: 500 }]
",
    );
    let passed = dir.forebay(&["test", "spec.yaml"]).expect(0);
    assert_eq!(
        passed.stdout,
        "ok    lags\nok    joins_names\nok    sums\nok    wrong_types\nok    small_types\n5 tests, all passed\n"
    );
    // Nothing is left behind, and parameters count.
    assert!(!dir.path(".forebay").exists() && !dir.path("out").exists());
    let chosen = dir
        .forebay(&["test", "spec.yaml", "lags", "--param=scale=3", "--json"])
        .expect(65);
    let summary: Value = serde_json::from_str(chosen.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["failed"], 1);
    let differences = summary["tests"][0]["differences"].as_array().unwrap();
    assert_eq!(differences[0], "row 1: `scaled` is 9, expected 6");
    assert_eq!(differences.len(), 2);
}

#[test]
fn failures_show_what_the_step_made() {
    let dir = shop(
        "
  sums: { step: total, given: { sales: [{ item: a, qty: 3 }, { item: b, qty: 4 }] }, expect: [{ item: a, qty: 4 }] }
  columns: { step: total, given: { sales: [{ item: a, qty: 3 }] }, expect: [{ item: a, qtty: 3 }] }
  no_fault: { step: total, given: { sales: [{ item: a, qty: 3 }] }, fault: FB0206 }
  other_fault: { step: total, given: { sales: [{ item: a }] }, expect: [{ item: a }] }
  tolerant: { step: total, given: { sales: [{ item: a, qty: 3.5 }] }, tolerance: 0.2, expect: [{ qty: 4 }] }
",
    );
    let failed = dir.forebay(&["test", "spec.yaml"]).expect(65).stdout;
    let expected = "FAIL  sums (step `total`)
      expected 1 row, got 2 rows
      row 1: `qty` is 3, expected 4
      rows of the step:
        item      qty
        string  int64
        a           3
        b           4
        2 rows
FAIL  columns (step `total`)
      the step has no column `qtty`; did you mean `qty`?
";
    assert!(failed.starts_with(expected), "{failed}");
    for text in [
        "expected the fault FB0206, but",
        "FAIL  other_fault",
        "ok    tolerant",
        "5 tests, 4 failed",
    ] {
        assert!(failed.contains(text), "{failed}");
    }
}

#[test]
fn mistakes_in_tests_are_told_with_their_place() {
    let dir = shop(
        "
  one: { step: fetures, given: { sale: [] }, expect: [] }
  two: { step: total, given: { sales: [] }, fault: FB9999 }
  three: { step: total, given: { sales: [] } }
",
    );
    let checked = dir
        .forebay(&["check", "spec.yaml", "--offline"])
        .expect(78)
        .stderr;
    for text in [
        "there is no step `fetures`",
        "did you mean `features`?",
        "there is no source `sale`",
        "there is no fault `FB9999`",
        "`three` needs one of `expect`, `fault`",
    ] {
        assert!(checked.contains(text), "{text}: {checked}");
    }
    let dir = shop("\n  one: { step: named, given: { sales: [{ item: a }] }, expect: [] }\n");
    let missing = dir.forebay(&["test", "spec.yaml"]).expect(78).stderr;
    assert!(
        missing.contains("the step `named` reads the source `stores`, of which no rows are given"),
        "{missing}"
    );
    let unknown = dir.forebay(&["test", "spec.yaml", "on"]).expect(78).stderr;
    assert!(unknown.contains("did you mean `one`?"), "{unknown}");
    let none = shop("");
    none.write("spec.yaml", &SPEC.replace("tests:\n", ""));
    assert!(
        none.forebay(&["test", "spec.yaml"])
            .expect(65)
            .stderr
            .contains("the spec has no tests")
    );
}
