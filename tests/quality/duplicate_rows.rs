//! Rows with the keys and the time of an earlier row: refused, counted, or taken as they come.

use std::collections::BTreeSet;

use crate::support::series::{self, DemandRow, FileOrder};
use crate::support::{ProgramOutput, TestDirectory};

/// The orders in which rows come: each is read in another way.
const ORDERS: [(&str, FileOrder); 3] = [
    ("by_time", FileOrder::Time),
    ("by_key", FileOrder::Key),
    ("shuffled", FileOrder::Shuffled),
];

struct Sales {
    shop: TestDirectory,
    rows: Vec<DemandRow>,
}

impl Sales {
    fn new() -> Sales {
        let shop = TestDirectory::new();
        let rows = series::demand(11, 40);
        for (name, order) in ORDERS {
            series::write_in_order(&shop, name, &rows, order, 5, 50);
        }
        Sales { shop, rows }
    }

    /// Rows that have the series and the day of an earlier one.
    fn duplicates(&self) -> usize {
        let distinct: BTreeSet<_> = self
            .rows
            .iter()
            .map(|row| (row.series(), row.day))
            .collect();
        self.rows.len() - distinct.len()
    }

    /// Runs windows over the rows in some order; `series` declares keys and what duplicates mean.
    fn run(&self, order: &str, series: &str, steps: &str, args: &[&str]) -> ProgramOutput {
        let spec = format!(
            "version: 1\nname: sales\nsources: {{ sales: {{ parquet: {{ path: {order} }}, time: day, {series} }} }}\n\
             steps: {{ features: {{ from: sales, do: [ {steps} ] }} }}\n\
             sinks: {{ table: {{ from: features, parquet: {{ path: out }} }} }}\n"
        );
        self.shop.write("spec.yaml", &spec);
        for place in ["out", ".out.forebay", ".forebay"] {
            let _ = std::fs::remove_dir_all(self.shop.path(place));
        }
        self.shop
            .forebay(&[&["run", "spec.yaml", "--json"], args].concat())
    }
}

const BY_TIME: &str = "{ lag: { columns: [price], by: [1d] } }, \
                       { rolling: { columns: [qty], compute: [mean, max], over: [7d] } }";
const BY_ROWS: &str = "{ lag: { columns: [price], by: [1], gaps: count_rows } }";

#[test]
fn a_missing_key_is_refused_in_any_order() {
    let sales = Sales::new();
    for (order, _) in ORDERS {
        for series in ["keys: [store]", "keys: [store, item]"] {
            let call = sales.run(order, series, BY_TIME, &["--threads=2"]);
            let fault = call.expect(65).summary()["fault"].take();
            assert_eq!(fault["code"], "FB0212", "{fault}");
            let text = fault.to_string();
            for part in [
                "rows of store ",
                "day 20",
                "a key is missing",
                "duplicates: allow",
            ] {
                assert!(text.contains(part), "{order}: no `{part}` in {text}");
            }
            assert!(!sales.shop.path("out").exists());
        }
    }
}

#[test]
fn duplicates_are_counted_alike_in_all_orders() {
    let sales = Sales::new();
    let expected = sales.duplicates();
    assert!(expected > 10);
    let options: [&[&str]; 4] = [
        &["--threads=1", "--batch-rows=3"],
        &["--threads=1"],
        &["--threads=4", "--batch-rows=100"],
        &["--local-workers=2"],
    ];
    for (order, _) in ORDERS {
        for steps in [BY_TIME, BY_ROWS] {
            for args in options {
                let series = "keys: [store, item], duplicates: warn";
                let call = sales.run(order, series, steps, args).expect(0);
                let warnings: Vec<&str> = call
                    .stdout
                    .lines()
                    .filter(|line| line.contains("the same keys and the same time"))
                    .collect();
                let counts = format!("{expected} rows have the same keys and the same time");
                assert!(
                    !warnings.is_empty() && warnings.iter().all(|line| line.contains(&counts)),
                    "{order}, {args:?}: not {expected} in {}",
                    call.stdout
                );
            }
        }
    }
}

#[test]
fn windows_by_rows_warn_and_declared_duplicates_are_silent() {
    let sales = Sales::new();
    let warned = sales
        .run("by_time", "keys: [store, item]", BY_ROWS, &[])
        .expect(0);
    assert!(
        warned.stdout.contains("a key may be missing"),
        "{}",
        warned.stdout
    );
    let allowed = "keys: [store, item], duplicates: allow";
    for steps in [BY_TIME, BY_ROWS] {
        let silent = sales.run("by_time", allowed, steps, &[]).expect(0);
        assert!(!silent.stdout.contains("same time"), "{}", silent.stdout);
    }
    // A step that puts series together warns, and is not refused.
    let pooled = "{ lag: { columns: [price], by: [1d], keys: [store] } }";
    let declared = sales
        .run("by_time", "keys: [store, item]", pooled, &[])
        .expect(0);
    assert!(
        declared.stdout.contains("a key may be missing"),
        "{}",
        declared.stdout
    );
    let silent = sales.run("by_time", allowed, pooled, &[]).expect(0);
    assert!(!silent.stdout.contains("same time"), "{}", silent.stdout);
}

/// Windows whose rows become others before they are written are told of, too.
#[test]
fn duplicates_before_a_gather_are_told() {
    let sales = Sales::new();
    let counts = format!(
        "met {} rows with the same keys and the same time",
        sales.duplicates()
    );
    let gathers = [
        "{ aggregate: { by: [item], compute: { n: { count: price_lag_1 } } } }",
        "{ dedupe: { keys: [store, item] } }",
    ];
    for gather in gathers {
        let steps = format!("{BY_ROWS}, {gather}");
        for args in [&[][..], &["--local-workers=1"]] {
            let call = sales.run("by_time", "keys: [store, item]", &steps, args);
            let output_text = call.expect(0).stdout;
            assert!(
                output_text.contains(&counts),
                "{steps}, {args:?}: {output_text}"
            );
        }
    }
}

/// Rows of the future are made of the last row of each series, without any window.
#[test]
fn rows_of_the_future_notice_a_missing_key() {
    let shop = TestDirectory::new();
    let mut rows = "store,item,day,qty\n".to_owned();
    for day in 1..=9 {
        for (store, item) in [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)] {
            rows.push_str(&format!("{store},{item},2024-01-0{day},{item}\n"));
        }
    }
    shop.write("sales.csv", &rows);
    let run = |series: &str, keys: &str| {
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: sales\n\
                 sources: {{ sales: {{ csv: {{ path: sales.csv }}, time: day, {series} }} }}\n\
                 steps: {{ next: {{ from: sales, do: [ \
                 {{ future_rows: {{ horizon: 2d, every: 1d{keys} }} }} ] }} }}\n\
                 sinks: {{ table: {{ from: next, split: future, parquet: {{ path: out }} }} }}\n"
            ),
        );
        for place in ["out", ".out.forebay", ".forebay"] {
            let _ = std::fs::remove_dir_all(shop.path(place));
        }
        shop.forebay(&["run", "spec.yaml", "--json"])
    };
    for series in ["keys: [store]", "keys: [store], duplicates: error"] {
        let refused = run(series, "").expect(65);
        let fault = refused.summary()["fault"].take();
        assert_eq!(fault["code"], "FB0212", "{fault}");
        let text = fault.to_string();
        for part in [
            "3 rows at the ends of series",
            "2 rows of store a, day 2024-01-09; 3 rows of store b, day 2024-01-09",
            "a key is missing",
            "duplicates: allow",
        ] {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
        assert!(!shop.path("out").exists());
    }
    // A declaration, and a step that puts series together, are warned of.
    for (series, keys) in [
        ("keys: [store], duplicates: warn", ""),
        ("keys: [store, item]", ", keys: [store]"),
    ] {
        let warned = run(series, keys).expect(0);
        assert!(
            warned.stdout.contains("3 rows at the ends of series"),
            "{series}: {}",
            warned.stdout
        );
        assert_eq!(shop.visible("out").num_rows(), 2 * 2);
    }
    for series in ["keys: [store], duplicates: allow", "keys: [store, item]"] {
        let silent = run(series, "").expect(0);
        assert!(!silent.stdout.contains("same time"), "{}", silent.stdout);
    }
}
