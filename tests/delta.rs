//! Delta tables as sources: versions, partitions, and nights that read only what commits added.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::Int64Type;
use serde_json::{Value, json};

use crate::exact_values::write;
use crate::support::TestDirectory;

/// A table whose log is written line by line, as the protocol of Delta has it.
struct DeltaTable {
    shop: TestDirectory,
    versions: usize,
}

impl DeltaTable {
    /// A table of items and prices, partitioned by day.
    fn new() -> DeltaTable {
        let shop = TestDirectory::new();
        std::fs::create_dir_all(shop.path("table/_delta_log")).unwrap();
        let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
        let fields = [field("item", "long"), field("price", "double"), field("day", "date")];
        let schema = json!({"type": "struct", "fields": fields}).to_string();
        let mut table = DeltaTable { shop, versions: 0 };
        let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
        let metadata = json!({"metaData": {
            "id": "5b1fd6a8-9b1d-4f0e-8d43-2d3c2f6a7e10", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": ["day"], "configuration": {}, "createdTime": 1_700_000_000_000_u64,
        }});
        let first = table.add("2025-01-01", 0..10);
        table.commit(&[protocol, metadata, first]);
        table
    }

    /// Writes a file of one day, and gives the action that adds it.
    fn add(&self, day: &str, items: std::ops::Range<i64>) -> Value {
        let name = format!("day={day}/part-{}.parquet", items.start);
        let columns: [(&str, ArrayRef); 2] = [
            ("item", Arc::new(Int64Array::from_iter_values(items.clone()))),
            ("price", Arc::new(Float64Array::from_iter_values(items.clone().map(|item| item as f64 / 2.0)))),
        ];
        std::fs::create_dir_all(self.shop.path(&format!("table/day={day}"))).unwrap();
        write(&self.shop, &format!("table/{name}"), columns);
        let size = std::fs::metadata(self.shop.path(&format!("table/{name}"))).unwrap().len();
        let statistics = json!({
            "numRecords": items.end - items.start, "minValues": {"item": items.start}, "maxValues": {"item": items.end - 1},
            "nullCount": {"item": 0, "price": 0},
        });
        json!({"add": {
            "path": name, "partitionValues": {"day": day}, "size": size, "modificationTime": 1_735_800_000_000_u64,
            "dataChange": true, "stats": statistics.to_string(),
        }})
    }

    fn remove(day: &str, first: i64) -> Value {
        json!({"remove": {
            "path": format!("day={day}/part-{first}.parquet"), "deletionTimestamp": 1_735_900_000_000_u64,
            "dataChange": true,
        }})
    }

    fn commit(&mut self, actions: &[Value]) {
        let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
        self.shop.write(&format!("table/_delta_log/{:020}.json", self.versions), &lines);
        self.versions += 1;
    }

    /// Runs a spec over the table, and gives the summary and the items that were written.
    fn run(&self, options: &str) -> (Value, Vec<i64>) {
        let spec = format!(
            "version: 1\nname: prices\nsources: {{ prices: {{ delta: {{ path: table{options} }} }} }}\n\
             steps: {{ scaled: {{ from: prices, do: [ standardize: {{ columns: [price] }} ] }} }}\n\
             sinks: {{ out: {{ from: scaled, parquet: {{ path: out }} }} }}\n"
        );
        self.shop.write("spec.yaml", &spec);
        let summary = self.shop.forebay(&["run", "spec.yaml", "--json"]).expect(0).summary();
        let rows = self.shop.visible("out");
        assert!(rows.column_by_name("day").is_some(), "{:?}", rows.schema());
        let mut items = rows.column_by_name("item").unwrap().as_primitive::<Int64Type>().values().to_vec();
        items.sort_unstable();
        (summary, items)
    }
}

#[test]
fn versions_of_a_table_are_read_and_nights_follow_its_commits() {
    let mut table = DeltaTable::new();
    let (_, items) = table.run("");
    assert_eq!(items, (0..10).collect::<Vec<_>>());
    assert_eq!(table.run("").0["nothing_new"], true);

    // A night: one file more. Of the first one, what was learned is kept.
    let second = table.add("2025-01-02", 10..30);
    table.commit(&[second]);
    let (summary, items) = table.run("");
    assert_eq!(items, (0..30).collect::<Vec<_>>());
    let learned = &summary["passes"][0];
    assert_eq!((&learned["rows_in"], &learned["rows_kept"]), (&json!(30), &json!(10)), "{learned}");

    // A day is replaced; a file that no commit names is not of the table.
    let replaced = table.add("2025-01-01", 100..105);
    table.commit(&[DeltaTable::remove("2025-01-01", 0), replaced]);
    table.add("2025-01-03", 900..950);
    let expected: Vec<i64> = (10..30).chain(100..105).collect();
    assert_eq!(table.run("").1, expected);

    for (version, last) in [(0, 10), (1, 30)] {
        assert_eq!(table.run(&format!(", version: {version}")).1, (0..last).collect::<Vec<_>>());
    }
}

#[test]
fn tables_that_cannot_be_read_are_named() {
    let mut table = DeltaTable::new();
    let run = |table: &DeltaTable, options: &str| {
        let spec = format!(
            "version: 1\nname: prices\nsources: {{ prices: {{ delta: {{ path: table{options} }} }} }}\n\
             steps: {{ rows: {{ from: prices, do: [ filter: \"item >= 0\" ] }} }}\n\
             sinks: {{ out: {{ from: rows, parquet: {{ path: out }} }} }}\n"
        );
        table.shop.write("spec.yaml", &spec);
        table.shop.forebay(&["run", "spec.yaml"])
    };
    let refused = |options: &str, says: &[&str], table: &DeltaTable| {
        let call = run(table, options);
        for word in says {
            assert!(call.code != 0 && call.stderr.contains(word), "{options}: no `{word}` in {}", call.stderr);
        }
        assert!(!table.shop.path("out").exists());
    };
    refused(", version: 7", &["table", "7"], &table);
    refused(", version: 1, timestamp: 2025-01-01", &["either `version` or `timestamp`"], &table);
    refused(", timestamp: soon", &["soon"], &table);
    refused("s/missing", &["tables/missing"], &table);
    // A feature of a later protocol.
    let features = json!({"protocol": {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timeTravelOfDreams"], "writerFeatures": ["timeTravelOfDreams"],
    }});
    table.commit(&[features]);
    refused("", &["timeTravelOfDreams"], &table);
}
