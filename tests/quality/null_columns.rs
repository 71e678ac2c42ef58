//! Columns that can be null where a training or a feed refuses nulls: `check` and `run` warn of them, and of no others.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Float64Array, Int32Array};

use crate::steps::edge_values::write;
use crate::steps::peer_values::texts;
use crate::support::{ProgramOutput, TestDirectory};

/// Sixty days of two series. Files declare every column as one that can be null, and count nulls in `price` alone.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    let rows = 0..120;
    let keys: Vec<&str> = rows
        .clone()
        .map(|row| ["a", "b"][row as usize % 2])
        .collect();
    let days: Date32Array = rows.clone().map(|row| Some(19_000 + row / 2)).collect();
    let demand: Int32Array = rows.clone().map(|row| Some(row * 7 % 11)).collect();
    let cost: Float64Array = rows.clone().map(|row| Some(f64::from(row % 5))).collect();
    let price: Float64Array = rows
        .clone()
        .map(|row| (row % 40 != 1).then_some(f64::from(row)))
        .collect();
    let columns: [(&str, ArrayRef); 5] = [
        ("k", texts(&keys)),
        ("day", Arc::new(days)),
        ("qty", Arc::new(demand)),
        ("cost", Arc::new(cost)),
        ("price", Arc::new(price)),
    ];
    write(&shop, "sales.parquet", columns);
    let sizes = Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef;
    write(
        &shop,
        "stores.parquet",
        [("k", texts(&["a", "b"])), ("size", sizes)],
    );
    shop
}

/// A spec with these steps, and these sinks and sections beside the table.
fn spec(steps: &str, sections: &str) -> String {
    let steps: String = steps
        .lines()
        .map(|line| format!("      {line}\n"))
        .collect();
    format!(
        "version: 1\nname: test\nsources:\n  sales: {{ parquet: {{ path: sales.parquet }}, time: day, keys: [k] }}\n  stores: {{ \
         parquet: {{ path: stores.parquet }} }}\nsteps:\n  features:\n    from: sales\n    do:\n{steps}{sections}"
    )
}

fn check(shop: &TestDirectory, steps: &str, sections: &str) -> ProgramOutput {
    shop.write("spec.yaml", &spec(steps, sections));
    shop.forebay(&["check", "spec.yaml", "--json"]).expect(0)
}

/// The sinks of a training over one column.
fn training(column: &str, options: &str) -> String {
    format!(
        "sinks:\n  net: {{ from: features, train: {{ path: out, model: linear, label: qty, dense: [{column}]{options} }} }}\n"
    )
}

#[test]
fn the_step_that_makes_a_column_null_is_named() {
    let shop = shop();
    let none: &[&str] = &[];
    let source = "3 rows of source `sales` have no `price`";
    let cases: [(&str, &str, &[&str]); 30] = [
        // What files say.
        ("- drop: []", "price", &[source]),
        ("- drop: []", "cost", none),
        ("- standardize: { columns: [price] }", "price", &[source]),
        ("- standardize: { columns: [cost], by: [k] }", "cost", none),
        ("- rename: { price: paid }", "paid", &["no `price`"]),
        // What steps make.
        (
            "- lag: { columns: [cost], by: [7d] }",
            "cost_lag_7d",
            &["`features.lag`"],
        ),
        (
            "- diff: { columns: [cost], by: [7d] }",
            "cost_diff_7d",
            &["`features.diff`"],
        ),
        (
            "- rolling: { columns: [cost], compute: [mean], over: [7d], gap: 1d }",
            "cost_mean_7d",
            &["`features.rolling` has too few values"],
        ),
        (
            "- rolling: { columns: [cost], compute: [mean], over: [7d] }",
            "cost_mean_7d",
            none,
        ),
        (
            "- rolling: { columns: [cost], compute: [std], over: [7d] }",
            "cost_std_7d",
            &["`features.rolling`"],
        ),
        (
            "- rolling: { columns: [price], compute: [count], over: [7d] }",
            "price_count_7d",
            none,
        ),
        (
            "- rolling: { columns: [price], compute: [mean], over: [7d] }",
            "price_mean_7d",
            &[source],
        ),
        (
            "- ewm: { columns: [cost], compute: [mean], alpha: 0.5 , gaps: count_rows }",
            "cost_ewm_mean_alpha0.5",
            none,
        ),
        ("- fill_forward: { columns: [price] }", "price", &[source]),
        (
            "- join: { with: stores, on: [k] }",
            "size",
            &["`features.join` finds no row with the key"],
        ),
        (
            "- join: { with: stores, on: [k], how: inner }",
            "size",
            none,
        ),
        (
            "- join: { with: stores, on: [k], how: inner, strategy: shuffle }",
            "size",
            none,
        ),
        (
            "- join: { with: stores, on: [k], strategy: shuffle }",
            "size",
            &["`features.join`"],
        ),
        (
            "- cast: { columns: { k: float64 }, on_error: missing }",
            "k",
            &["`features.cast`"],
        ),
        (
            "- derive: { x: \"CASE WHEN cost > 1 THEN cost END\" }",
            "x",
            &["`features.derive` gives null where no `WHEN` holds"],
        ),
        (
            "- derive: { x: \"CASE WHEN cost > 1 THEN cost ELSE 0 END\" }",
            "x",
            none,
        ),
        (
            "- derive: { x: \"CASE WHEN price IS NULL THEN 0 ELSE price END\" }",
            "x",
            none,
        ),
        ("- derive: { x: \"nullif(cost, 0)\" }", "x", &["`nullif`"]),
        ("- derive: { x: \"abs(cost) + sqrt(qty)\" }", "x", none),
        ("- derive: { x: \"price * cost\" }", "x", &[source]),
        // What takes nulls away.
        (
            "- impute: { columns: [price], with: median }",
            "price",
            none,
        ),
        ("- derive: { x: \"coalesce(price, cost)\" }", "x", none),
        (
            "- filter: \"price IS NOT NULL AND cost >= 0\"",
            "price",
            none,
        ),
        (
            "- derive: { x: \"price + 1\" }\n- filter: \"x > 0\"",
            "x",
            none,
        ),
        (
            "- expect: [{ not_null: [price], policy: quarantine }]",
            "price",
            none,
        ),
    ];
    let mut failures = Vec::new();
    for (steps, column, expected) in cases {
        let steps = steps.replace("- drop: []", "- filter: \"cost >= 0\"");
        let said = check(&shop, &steps, &training(column, "")).stderr;
        let names_it = said.contains(&format!("`net` trains on `{column}`, which can be null"));
        let is_right =
            names_it != expected.is_empty() && expected.iter().all(|part| said.contains(part));
        if !is_right {
            failures.push(format!("{steps}: {column}\n{said}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_takes_nulls_is_not_warned_of() {
    let shop = shop();
    let lag = "- lag: { columns: [cost], by: [7d] }\n- vocabulary: { columns: [k], suffix: _id }";
    let quiet = [
        training("price, cost_lag_7d", ", missing: 0"),
        "sinks:\n  net: { from: features, train: { path: out, model: gbdt, label: qty, dense: [price, cost_lag_7d] } }\n".to_owned(),
        "sinks:\n  table: { from: features, parquet: { path: out } }\n".to_owned(),
        "sinks:\n  table: { from: features, parquet: { path: out } }\nfeed: { label: qty, dense: [price], missing: 0 }\n".to_owned(),
    ];
    for sections in quiet {
        let checked = check(&shop, lag, &sections);
        assert!(
            !checked.stderr.contains("can be null"),
            "{sections}\n{}",
            checked.stderr
        );
    }
    // Nothing stands for a label.
    let label = "sinks:\n  net: { from: features, train: { path: out, model: gbdt, label: price, dense: [cost] } }\n";
    let said = check(&shop, lag, label).stderr;
    assert!(
        said.contains("`price`, which can be null") && said.contains("price IS NOT NULL"),
        "{said}"
    );
    let feed = "sinks:\n  table: { from: features, parquet: { path: out } }\nfeed: { label: qty, dense: [price, cost] }\n";
    let said = check(&shop, lag, feed).stderr;
    assert!(
        said.contains("`feed` delivers `price`, which can be null"),
        "{said}"
    );
}

#[test]
fn nulls_are_those_that_metadata_count() {
    let shop = shop();
    let copies = "- filter: \"cost >= 0\"";
    let sinks = "sinks:\n  a: { from: features, delta: { path: delta } }\n  b: { from: features, csv: { path: csv } }\n";
    shop.write("copy.yaml", &spec(copies, sinks));
    shop.forebay(&["run", "copy.yaml"]).expect(0);
    for (source, warns) in [
        ("delta: { path: delta }", true),
        ("csv: { path: csv }", false),
    ] {
        let text = spec(copies, &training("price, cost", ""));
        shop.write(
            "spec.yaml",
            &text.replacen("parquet: { path: sales.parquet }", source, 1),
        );
        let said = shop.forebay(&["check", "spec.yaml"]).expect(0).stderr;
        let counted = "`price`, which can be null: 3 rows of source `sales` have no `price`";
        assert_eq!(said.contains(counted), warns, "{source}: {said}");
    }
}

#[test]
fn a_run_warns_at_its_start_with_the_ways_out() {
    let shop = shop();
    let steps = "- lag: { columns: [cost], by: [7d, 14d] }";
    let sections = training("price, cost_lag_7d, cost_lag_14d", "");
    let checked = check(&shop, steps, &sections);
    let diagnostics = checked.summary()["diagnostics"].clone();
    let [warning] = diagnostics.as_array().unwrap().as_slice() else {
        panic!("{diagnostics}");
    };
    assert_eq!(warning["severity"], "warning");
    let run = shop.forebay(&["run", "spec.yaml"]).expect(65);
    for part in [
        "`net` trains on 3 columns that can be null: `price` (3 rows of source `sales` have no `price`); `cost_lag_7d`, \
         `cost_lag_14d` (`features.lag` looks back beyond the start of each series)",
        "`impute: { columns: [price], with: median }`",
        "`missing: 0`",
    ] {
        assert!(
            run.stderr.contains(part),
            "`{part}` is missing in\n{}",
            run.stderr
        );
    }
    let message = warning["message"].as_str().unwrap();
    let said = run.stderr.find(message).unwrap();
    assert!(said < run.stderr.find("pass 1").unwrap(), "{}", run.stderr);
}
