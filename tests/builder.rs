//! A pipeline from the builder and the same one from YAML have equal ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::prelude::*;

use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: demand
sources:
  demand:
    parquet: { path: DATA }
    time: date
    keys: [store_id, item_id]
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - standardize: { columns: [price], by: [category] }
      - vocabulary: { columns: [item_id], min_count: 5, oov_buckets: 1 }
split:
  train: "date < DATE '2016-05-10'"
sinks:
  table: { from: features, parquet: { path: OUT } }
"#;

#[test]
fn yaml_and_builder_are_one() {
    let shop = TestDirectory::new();
    let (data, out) = (shop.demand("data", 1000), shop.at("out"));
    let forebay = Forebay::standard();
    let text = SPEC.replace("DATA", &data).replace("OUT", &out);
    let from_yaml = forebay::spec::parse(&text, "spec.yaml", &BTreeMap::new(), &forebay.spec_catalog()).unwrap();
    let built = PipelineBuilder::new("demand")
        .source("demand", ParquetSource::at(&data), |source| source.time("date").keys(["store_id", "item_id"]))
        .step("features", "demand", |step| {
            step.fit_on("train")
                .apply(FilterRows("qty IS NOT NULL".into()))
                .apply(Standardize { columns: ["price"].into(), by: vec!["category".into()], ..Default::default() })
                .apply(VocabularyEncoder {
                    columns: ["item_id"].into(),
                    min_count: 5,
                    oov_buckets: 1,
                    ..Default::default()
                })
        })
        .split(DataSplit::Expressions(vec![("train".into(), "date < DATE '2016-05-10'".into())]))
        .sink("table", "features", ParquetSink::at(&out))
        .build()
        .unwrap();
    let options =
        SessionOptions { threads: 2, memory_bytes: 1 << 30, batch_rows: 1000, state: shop.at("state"), run_id: None };
    let session = forebay.session(options, Arc::new(IgnoreEvents)).unwrap();
    let ids = |report: &RunReport| report.passes.iter().map(|pass| pass.id.clone()).collect::<Vec<_>>();
    let first = session.run(&from_yaml).unwrap();
    assert!(!first.nothing_new);
    // The second continues what the first one did: there is nothing left to do.
    let second = session.run(&built).unwrap();
    assert_eq!(ids(&first), ids(&second));
    assert!(second.nothing_new);
    assert_eq!(first.artifact, second.artifact);
}
