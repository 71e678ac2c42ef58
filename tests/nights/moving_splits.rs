//! Splits by time whose boundaries are counted from the newest time of the data.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Date32Type};
use serde_json::Value;

use crate::support::TestDirectory;

/// A source of two columns: rows by day, and a value.
const SPEC: &str = r#"
version: 1
name: moving
sources:
  sales: { SOURCE, time: day }
  prices: { csv: { path: prices.csv }, time: day }
steps:
  features:
    from: sales
    fit_on: train
    do:
      - join: { with: prices, on: [day], columns: [price] }
      - standardize: { columns: [qty] }
split: { by_time: { column: day, parts: [train, validation], ENDS } }
sinks:
  train: { from: features, split: train, parquet: { path: train } }
  validation: { from: features, split: validation, parquet: { path: validation } }
"#;

const CSV: &str = "csv: { path: sales }";

struct Shop(TestDirectory);

impl Shop {
    fn new(source: &str, ends: &str) -> Shop {
        let shop = Shop(TestDirectory::new());
        std::fs::create_dir(shop.0.path("sales")).unwrap();
        let spec = SPEC.replace("SOURCE", source).replace("ENDS", ends);
        shop.0.write("spec.yaml", &spec);
        // Prices are planned far ahead: they do not tell what is known of sales.
        let prices: String = (1..29).map(|day| format!("2024-03-{day:02},1\n")).collect();
        shop.0.write("prices.csv", &format!("day,price\n{prices}"));
        shop
    }

    /// A file with two rows for each day of March 2024.
    fn show(&self, days: std::ops::RangeInclusive<u32>) {
        for day in days {
            let rows = format!("day,qty\n2024-03-{day:02},{day}\n2024-03-{day:02},7\n");
            self.0.write(&format!("sales/{day:02}.csv"), &rows);
        }
    }

    fn run(&self, args: &[&str]) -> Value {
        let call = self
            .0
            .forebay(&[&["run", "spec.yaml", "--json"], args].concat());
        call.expect(0).summary()
    }

    /// The days of a part, in order.
    fn days(&self, part: &str) -> Vec<u32> {
        let rows = self.0.visible(part);
        let days = rows.column_by_name("day").unwrap();
        let days = arrow::compute::cast(days, &DataType::Date32).unwrap();
        let of_march = |day: &i32| u32::try_from(day - 19_782).unwrap();
        let values = days.as_primitive::<Date32Type>().values();
        let mut days: Vec<u32> = values.iter().map(of_march).collect();
        days.sort_unstable();
        days.dedup();
        days
    }
}

fn until(first: u32, last: u32) -> Vec<u32> {
    (first..=last).collect()
}

#[test]
fn the_boundary_moves_with_each_day() {
    let shop = Shop::new(CSV, "ends: [last 3d]");
    shop.show(1..=9);
    for last in 10..=12 {
        shop.show(last..=last);
        shop.run(&[]);
        assert_eq!(shop.days("train"), until(1, last - 3));
        assert_eq!(shop.days("validation"), until(last - 2, last));
    }
    // A repeat has the same parts, and so it is known as one.
    let again = shop
        .0
        .forebay(&["run", "spec.yaml", "--signal-nothing-new"]);
    again.expect(99);
}

#[test]
fn rows_before_a_boundary_may_belong_to_no_part() {
    let shop = Shop::new(CSV, "ends: [last 3d], embargo: 2d");
    shop.show(1..=12);
    shop.run(&[]);
    assert_eq!(shop.days("train"), until(1, 7));
    assert_eq!(shop.days("validation"), until(10, 12));
}

#[test]
fn an_interval_counts_from_its_own_end() {
    let shop = Shop::new(CSV, "ends: [last 3d]");
    shop.show(1..=12);
    shop.run(&["--interval", "2024-03-01", "2024-03-09"]);
    assert_eq!(shop.days("train"), until(1, 5));
    assert_eq!(shop.days("validation"), until(6, 8));
}

#[test]
fn checks_and_plans_resolve_boundaries() {
    let shop = Shop::new(CSV, "ends: [last 3d]");
    shop.show(1..=12);
    shop.0.forebay(&["check", "spec.yaml"]).expect(0);
    shop.0.forebay(&["explain", "spec.yaml"]).expect(0);
    // A length beyond the data leaves nothing to learn from.
    let spec = SPEC
        .replace("SOURCE", CSV)
        .replace("ENDS", "ends: [last 3mo]");
    shop.0.write("spec.yaml", &spec);
    let call = shop.0.forebay(&["run", "spec.yaml"]);
    assert!(
        call.code == 65 && call.stderr.contains("FB0204"),
        "{}",
        call.stderr
    );
}

#[test]
fn a_boundary_without_a_time_to_count_from_is_refused() {
    for (source, ends, message) in [
        (
            "csv: { path: sales }, keys: [qty]",
            "ends: [last 3d]",
            "no source of its rows declares its `time`",
        ),
        (CSV, "ends: [last 12h]", "whole number of days"),
        (CSV, "ends: [last soon]", "`soon` is not a length of time"),
    ] {
        let shop = Shop::new(source, ends);
        shop.show(1..=12);
        if source != CSV {
            let spec = std::fs::read_to_string(shop.0.path("spec.yaml")).unwrap();
            let untimed = spec.replace("keys: [qty], time: day }", "keys: [qty] }");
            shop.0.write("spec.yaml", &untimed);
        }
        for command in ["run", "check"] {
            let call = shop.0.forebay(&[command, "spec.yaml"]);
            assert!(
                call.code == 78 && call.stderr.contains(message),
                "{command} {ends}: {}",
                call.stderr
            );
        }
    }
}
