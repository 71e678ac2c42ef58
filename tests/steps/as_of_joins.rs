//! As-of joins against one that looks at every pair of rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, RecordBatch};
use arrow::datatypes::{Date32Type, Int64Type};

use crate::support::TestDirectory;
use crate::support::series::{self, DemandRow, FileOrder};

pub const SPEC: &str = r#"
version: 1
name: as_of
params: { here: { type: path }, there: { type: path } }
sources:
  here: { parquet: { path: "${here}" }, time: day, keys: [store, item], duplicates: allow }
  there: { parquet: { path: "${there}" }, time: day, keys: [store, item], duplicates: allow }
steps:
  other: { from: there, do: [{ rename: { id: met } }] }
  joined:
    from: here
    do:
      - drop: [pad]
      - as_of_join: { with: other, columns: [met, price], suffix: _backward }
      - as_of_join: { with: other, columns: [met], suffix: _before, exact: false, tolerance: 6d }
      - as_of_join: { with: other, columns: [met], suffix: _known, known_at: known }
      - as_of_join: { with: other, columns: [met], suffix: _forward, direction: forward, tolerance: 3d }
      - as_of_join: { with: other, columns: [met], suffix: _nearest, direction: nearest }
      - as_of_join: { with: other, columns: [met], suffix: _near, direction: nearest, exact: false, tolerance: 2d }
      - as_of_join: { with: other, columns: [met], suffix: _any, on: [] }
sinks:
  table: { from: joined, parquet: { path: out } }
"#;

/// Which row there counts.
struct AsOfRule {
    suffix: &'static str,
    backward: bool,
    forward: bool,
    exact: bool,
    tolerance: i64,
    known: bool,
    keys: bool,
}

const BACKWARD_RULE: AsOfRule = AsOfRule {
    suffix: "backward",
    backward: true,
    forward: false,
    exact: true,
    tolerance: 1 << 40,
    known: false,
    keys: true,
};

const AS_OF_RULES: [AsOfRule; 7] = [
    BACKWARD_RULE,
    AsOfRule {
        suffix: "before",
        exact: false,
        tolerance: 6,
        ..BACKWARD_RULE
    },
    AsOfRule {
        suffix: "known",
        known: true,
        ..BACKWARD_RULE
    },
    AsOfRule {
        suffix: "forward",
        backward: false,
        forward: true,
        tolerance: 3,
        ..BACKWARD_RULE
    },
    AsOfRule {
        suffix: "nearest",
        forward: true,
        ..BACKWARD_RULE
    },
    AsOfRule {
        suffix: "near",
        forward: true,
        exact: false,
        tolerance: 2,
        ..BACKWARD_RULE
    },
    AsOfRule {
        suffix: "any",
        keys: false,
        ..BACKWARD_RULE
    },
];

/// Every 17th row here has no time; rows there are known up to three days late, some never.
fn day_here(row: &DemandRow) -> Option<i32> {
    (row.id % 17 != 0).then_some(row.day)
}

fn known_day(row: &DemandRow) -> Option<i32> {
    (row.id % 13 != 0).then_some(row.day + (row.id % 4) as i32)
}

/// The id of the row that is met, from all rows there, in order.
fn expected(rule: &AsOfRule, here: &DemandRow, there: &[DemandRow]) -> Option<i64> {
    let now = i64::from(day_here(here)?);
    if rule.keys && here.item.is_none() {
        return None;
    }
    let meets = |row: &&DemandRow| {
        let behind = now - i64::from(row.day);
        (!rule.keys || row.series() == here.series())
            && (rule.exact || behind != 0)
            && behind.abs() <= rule.tolerance
            && (!rule.known || known_day(row).is_some_and(|known| i64::from(known) <= now))
    };
    let behind = |row: &DemandRow| now - i64::from(row.day);
    let before = there
        .iter()
        .filter(meets)
        .filter(|row| rule.backward && behind(row) >= 0);
    let before = before.min_by_key(|row| (behind(row), -row.id));
    let after = there
        .iter()
        .filter(meets)
        .filter(|row| rule.forward && behind(row) <= 0);
    let after = after.min_by_key(|row| (-behind(row), -row.id));
    let met = match (before, after) {
        (Some(before), Some(after)) if -behind(after) < behind(before) => Some(after),
        (before, after) => before.or(after),
    };
    met.map(|row| row.id)
}

pub fn with_column(batch: RecordBatch, name: &str, column: ArrayRef) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| (field.name().clone(), column.clone()))
        .filter(|(known, _)| known != name)
        .collect();
    columns.push((name.to_owned(), column));
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

#[test]
fn as_of_joins_meet_the_rows_of_an_oracle() {
    let shop = TestDirectory::new();
    shop.write("spec.yaml", SPEC);
    let left = series::demand(21, 60);
    let right = series::demand(22, 60);
    let layouts = [
        (FileOrder::Time, FileOrder::Time, 1, "1", "8192"),
        (FileOrder::Key, FileOrder::Shuffled, 7, "2", "1000"),
        (FileOrder::Shuffled, FileOrder::Key, 50, "7", "64"),
        (FileOrder::Time, FileOrder::Time, 0, "2", "1000"),
    ];
    for (number, (order, order_there, files, threads, batch_rows)) in
        layouts.into_iter().enumerate()
    {
        // With no files one side is empty, then the other.
        for side in 0..if files == 0 { 2 } else { 1 } {
            let here =
                series::rows_in_order(if files == 0 && side == 0 { &[] } else { &left }, order, 5);
            let there = series::rows_in_order(
                if files == 0 && side == 1 { &[] } else { &right },
                order_there,
                6,
            );
            let days: Date32Array = here.iter().map(day_here).collect();
            let batch = with_column(series::table(&here, 0), "day", Arc::new(days));
            let name = |what: &str| format!("{what}{number}{side}");
            let data_here = series::write(&shop, &name("here"), &batch, files, 100);
            let late: Date32Array = there.iter().map(known_day).collect();
            let batch = with_column(series::table(&there, 0), "known", Arc::new(late));
            let data_there = series::write(&shop, &name("there"), &batch, files, 100);
            let params = [
                format!("--param=here={data_here}"),
                format!("--param=there={data_there}"),
            ];
            let state = format!("--state={}", name("state"));
            let args = [
                "run",
                "spec.yaml",
                &params[0],
                &params[1],
                &state,
                "--threads",
                threads,
            ];
            let more = [
                "--batch-rows",
                batch_rows,
                "--memory=256MiB",
                "--allow-empty",
            ];
            shop.forebay(&[&args[..], &more].concat()).expect(0);
            let found = shop.rows("out");
            assert_eq!(
                found.num_rows(),
                here.len(),
                "{order:?}: one row for each row"
            );
            let ids = found
                .column_by_name("id")
                .unwrap()
                .as_primitive::<Int64Type>();
            assert!(
                ids.values().iter().eq(here.iter().map(|row| &row.id)),
                "{order:?}: another order of rows"
            );
            assert_eq!(
                *found
                    .column_by_name("day")
                    .unwrap()
                    .as_primitive::<Date32Type>(),
                here.iter().map(day_here).collect()
            );
            for rule in &AS_OF_RULES {
                let column = found
                    .column_by_name(&format!("met_{}", rule.suffix))
                    .unwrap();
                let column = column.as_primitive::<Int64Type>();
                for (row, met) in here.iter().zip(column) {
                    // Rows of one time but of several series lie in the order of their file.
                    let expected = expected(rule, row, &there);
                    let day = |id: Option<i64>| {
                        id.and_then(|id| there.iter().find(|row| row.id == id))
                            .map(|row| row.day)
                    };
                    let same = if rule.keys {
                        met == expected
                    } else {
                        day(met) == day(expected)
                    };
                    assert!(
                        same,
                        "{order:?}, {}: {row:?} met {met:?}, not {expected:?}",
                        rule.suffix
                    );
                }
            }
            let prices = found.column_by_name("price_backward").unwrap();
            let met = found.column_by_name("met_backward").unwrap();
            assert_eq!(prices.null_count(), met.null_count());
        }
    }
}
