//! Steps that need all rows at once: the same bits from any number of threads.

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};

use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: relations
params: { data: { type: path }, out: { type: path } }
sources:
  demand:
    parquet: { path: "${data}" }
steps:
  sales:
    from: demand
    do:
      - filter: "qty > 0"
      - derive: { revenue: "qty * price" }
      - select: [date, store_id, item_id, category, revenue]
  rest:
    from: demand
    do:
      - filter: "qty = 0"
      - derive: { revenue: "CAST(0.0 AS DOUBLE)" }
      - select: [date, store_id, item_id, category, revenue]
  both:
    union: [sales, rest]
    do:
      - standardize: { columns: [revenue], suffix: _z }
  weekly:
    from: both
    do:
      - aggregate:
          by: [store_id]
          time: date
          every: 7d
          compute: { total: { sum: revenue }, average: { mean: revenue_z }, rows: { count: revenue_z } }
  stores:
    sql: "SELECT store_id, SUM(total) AS total, AVG(average) AS average, COUNT(*) AS weeks FROM weekly GROUP BY store_id"
    do:
      - min_max: { columns: [total], suffix: _scaled }
  first_sales:
    from: sales
    do:
      - dedupe: { keys: [item_id] }
sinks:
  both: { from: both, parquet: { path: "${out}/both" } }
  stores: { from: stores, parquet: { path: "${out}/stores" } }
  first_sales: { from: first_sales, parquet: { path: "${out}/first" } }
"#;

#[test]
fn gathers_give_the_same_bits_from_any_threads() {
    let shop = TestDirectory::new();
    let spec = shop.write("spec.yaml", SPEC);
    let layouts = [shop.demand("a", 1_000_000), shop.demand("b", 97)];
    let mut expected = None;
    for (number, (layout, threads, batch_rows)) in [
        (0, "1", "8192"),
        (0, "7", "1000"),
        (1, "2", "100"),
        (1, "1", "7"),
    ]
    .into_iter()
    .enumerate()
    {
        let data = format!("--param=data={}", layouts[layout]);
        let out = format!("--param=out=out{number}");
        let state = format!("state{number}");
        let args = [
            "run",
            &spec,
            &data,
            &out,
            "--state",
            &state,
            "--memory=256MiB",
            "--json",
        ];
        let options = ["--threads", threads, "--batch-rows", batch_rows];
        shop.forebay(&[&args[..], &options[..]].concat()).expect(0);
        let tables =
            ["both", "stores", "first"].map(|name| shop.rows(&format!("out{number}/{name}")));
        match &expected {
            None => expected = Some(tables),
            Some(known) => assert!(
                *known == tables,
                "{threads} threads, {batch_rows} rows per batch: other rows"
            ),
        }
    }
    let [both, stores, first] = expected.unwrap();

    // The same sums by hand.
    let text = |table: &arrow::array::RecordBatch, name: &str| -> Vec<String> {
        let column = table.column_by_name(name).unwrap();
        column
            .as_string::<i32>()
            .iter()
            .map(|value| value.unwrap().to_owned())
            .collect()
    };
    let revenue = both
        .column_by_name("revenue")
        .unwrap()
        .as_primitive::<Float64Type>();
    let mut totals = std::collections::BTreeMap::new();
    for (store, revenue) in text(&both, "store_id").into_iter().zip(revenue) {
        *totals.entry(store).or_insert(0.0) += revenue.unwrap_or(0.0);
    }
    assert_eq!(
        text(&stores, "store_id"),
        totals.keys().cloned().collect::<Vec<_>>()
    );
    let found = stores
        .column_by_name("total")
        .unwrap()
        .as_primitive::<Float64Type>();
    for (found, expected) in found.values().iter().zip(totals.values()) {
        assert!(
            (found - expected).abs() <= 1e-9 * expected.abs(),
            "{found} is not {expected}"
        );
    }
    assert!(
        stores
            .column_by_name("weeks")
            .unwrap()
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .all(|weeks| *weeks > 4)
    );
    let mut items = text(&first, "item_id");
    let before = items.len();
    items.sort();
    items.dedup();
    assert_eq!(items.len(), before, "an item came twice");
}
