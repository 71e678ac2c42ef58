//! Where columns of outputs come from.

use std::collections::BTreeMap;

use crate::support::TestDirectory;

#[test]
fn columns_tell_where_they_come_from() {
    let shop = TestDirectory::new();
    shop.demand("data", 1000);
    shop.write("names.csv", "category,label,other\na,1,2\nb,2,3\n");
    let spec = r#"
version: 1
name: origins
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }
  names: { csv: { path: names.csv } }
steps:
  totals:
    from: demand
    do:
      - aggregate: { by: [store_id], compute: { most: { max: qty } } }
  features:
    from: demand
    do:
      - filter: "event IS NULL OR event <> 'x'"
      - derive: { revenue: "qty * price", one: "1" }
      - rolling: { columns: [revenue], compute: [mean], over: [7d], gap: 1d }
      - rename: { price: cost }
      - standardize: { columns: [cost], by: [category] }
      - join: { with: names, on: [category], how: left, prefix: its_ }
      - select: [date, item_id, cost, one, revenue_mean_7d, its_label]
sinks:
  table: { from: features, parquet: { path: out } }
  sums: { from: totals, parquet: { path: sums } }
"#;
    shop.write("spec.yaml", spec);
    let summary = shop
        .forebay(&["run", "spec.yaml", "--json"])
        .expect(0)
        .summary();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column in summary["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|o| o["columns"].as_array().unwrap())
    {
        let from = column["from"].as_array().unwrap().iter();
        let from = from.map(|from| {
            format!(
                "{}.{}",
                from["source"].as_str().unwrap(),
                from["column"].as_str().unwrap()
            )
        });
        found.insert(column["name"].as_str().unwrap().to_owned(), from.collect());
        assert!(column["type"].is_string());
    }
    let expect = [
        ("date", vec!["demand.date"]),
        ("item_id", vec!["demand.item_id"]),
        ("cost", vec!["demand.category", "demand.price"]),
        ("one", vec![]),
        ("revenue_mean_7d", vec!["demand.price", "demand.qty"]),
        (
            "its_label",
            vec!["demand.category", "names.category", "names.label"],
        ),
        ("store_id", vec!["demand.store_id"]),
    ];
    for (name, from) in expect {
        assert_eq!(found[name], from, "{name}");
    }
    // What a query computes is made of what it reads.
    assert!(found["most"].contains(&"demand.qty".to_owned()));
}
