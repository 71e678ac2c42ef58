//! Mini-batches of real pipelines: the rows that a run writes, each exactly once, from outputs and from
//! sources alike.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Int64Type};
use forebay::feed::{Feed, FeedBatch, FeedCursor, PartRole, RemainderPolicy, SampleOrder};
use forebay::model::codes;
use forebay::prelude::*;
use forebay::run::{FeatureColumn, FeedOrigin, FeedSource};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::support::{TestDirectory, ready_made};

fn pipeline(text: &str) -> Pipeline {
    forebay::spec::parse(
        text,
        "spec.yaml",
        &BTreeMap::new(),
        &Forebay::new().spec_catalog(),
    )
    .unwrap()
}

fn session(shop: &TestDirectory) -> Session {
    let options = SessionOptions {
        threads: 2,
        memory_bytes: 1 << 30,
        batch_rows: 300,
        state: shop.at("state"),
        run_id: None,
    };
    Forebay::new().with_options(options).session().unwrap()
}

/// Clicks with a filter and a split, as a step that nothing but rows alone decides.
fn clicks(shop: &TestDirectory, feed: &str) -> Pipeline {
    let data = if shop.path("clicks").exists() {
        shop.at("clicks")
    } else {
        shop.clicks("clicks", 500)
    };
    pipeline(&format!(
        r#"
version: 1
name: clicks
sources:
  clicks: {{ parquet: {{ path: "{data}" }} }}
steps:
  features:
    from: clicks
    fit_on: train
    do:
      - filter: "f1 IS NULL OR f1 < 1000000"
      - impute: {{ columns: ["f*"], with: median }}
      - standardize: {{ columns: ["f*"] }}
      - vocabulary: {{ columns: [c3, c4], min_count: 2, oov_buckets: 1 }}
      - select: ["f*", c3, c4, label]
split: {{ train: "label = 0", validation: "label = 1" }}
sinks:
  table: {{ from: features, parquet: {{ path: "{}", group_rows_max: 400 }} }}
feed: {feed}
"#,
        shop.at("out")
    ))
}

const FEED: &str =
    "{ label: label, missing_id: 0, batch_rows: 256, last: short, window_rows: 1500 }";

fn fed(session: &Session, pipeline: &Pipeline) -> FeedSource {
    session
        .feed(
            pipeline,
            None,
            &FeedConfig::from_pipeline(pipeline).unwrap(),
        )
        .unwrap()
}

/// What a batch holds of each row, as text that sorts.
fn rows_of(batch: &FeedBatch) -> Vec<String> {
    let dense = batch.numbers::<f32>(PartRole::Dense);
    let categorical = batch.numbers::<i64>(PartRole::Categorical);
    let labels = batch.numbers::<f32>(PartRole::Label);
    let of = |all: usize| all / batch.shape_rows();
    (0..batch.rows())
        .map(|row| {
            let dense = &dense[row * of(dense.len())..(row + 1) * of(dense.len())];
            let categorical =
                &categorical[row * of(categorical.len())..(row + 1) * of(categorical.len())];
            format!("{dense:?} {categorical:?} {}", labels[row])
        })
        .collect()
}

fn deliver(config: forebay::feed::FeedOptions) -> Vec<String> {
    Feed::start(config)
        .unwrap()
        .flat_map(|batch| rows_of(&batch.unwrap()))
        .collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

/// The rows of an output as batches hold them.
fn written(shop: &TestDirectory, out: &str) -> Vec<String> {
    let all = shop.rows(out);
    let column = |name: &str| all.column_by_name(name).unwrap();
    let dense: Vec<_> = (1..=13)
        .map(|number| cast(column(&format!("f{number}")), &DataType::Float32).unwrap())
        .collect();
    let ids: Vec<_> = ["c3", "c4"]
        .map(|name| cast(column(name), &DataType::Int64).unwrap())
        .to_vec();
    let label = cast(column("label"), &DataType::Float32).unwrap();
    (0..all.num_rows())
        .map(|row| {
            let dense: Vec<f32> = dense
                .iter()
                .map(|values| values.as_primitive::<Float32Type>().value(row))
                .collect();
            let ids = ids.iter().map(|values| values.as_primitive::<Int64Type>());
            let ids: Vec<i64> = ids
                .map(|ids| ids.iter().nth(row).unwrap().unwrap_or(0))
                .collect();
            format!(
                "{dense:?} {ids:?} {}",
                label.as_primitive::<Float32Type>().value(row)
            )
        })
        .collect()
}

#[test]
fn sources_and_outputs_give_the_rows_that_a_run_writes() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let pipeline = clicks(&shop, FEED);
    let fault = session
        .feed(
            &pipeline,
            None,
            &FeedConfig::from_pipeline(&pipeline).unwrap(),
        )
        .err()
        .unwrap();
    assert_eq!(fault.code(), codes::NOT_FOUND, "{fault}");

    session.fit(&pipeline).unwrap();
    let applied = fed(&session, &pipeline);
    assert_eq!(applied.from, [FeedOrigin::Sources]);
    assert_eq!(applied.features.dense.len(), 13);
    assert_eq!(
        applied
            .features
            .categorical
            .iter()
            .map(|field| &field.column)
            .collect::<Vec<_>>(),
        ["c3", "c4"]
    );
    let from_sources = deliver(applied.config(1).unwrap());

    session.run(&pipeline).unwrap();
    let committed = fed(&session, &pipeline);
    assert_eq!(committed.from, [FeedOrigin::Output("table".to_owned())]);
    let from_output = deliver(committed.config(1).unwrap());
    let expected = sorted(written(&shop, "out"));
    assert!(expected.len() > 4000);
    assert!(sorted(from_sources.clone()) == expected);
    assert!(sorted(from_output.clone()) == expected);
    // A shuffle is one, and a function of its seed; rows as they lie are those of the files.
    assert!(from_output != deliver(committed.config(2).unwrap()));
    assert!(from_output == deliver(committed.config(1).unwrap()));
    let straight = |fed: &FeedSource| forebay::feed::FeedOptions {
        order: SampleOrder::sequential(),
        ..fed.config(1).unwrap()
    };
    assert!(deliver(straight(&committed)) == written(&shop, "out"));
    assert!(deliver(straight(&applied)) == written(&shop, "out"));
}

#[test]
fn parts_are_fed_from_sources_and_from_outputs_of_everything() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let feed = FEED.replace("label: label", "label: label, split: validation");
    let pipeline = clicks(&shop, &feed);
    session.fit(&pipeline).unwrap();
    let from_sources = sorted(deliver(fed(&session, &pipeline).config(1).unwrap()));
    session.run(&pipeline).unwrap();
    let committed = fed(&session, &pipeline);
    assert_eq!(committed.from, [FeedOrigin::Output("table".to_owned())]);
    let expected: Vec<String> = written(&shop, "out")
        .into_iter()
        .filter(|row| row.ends_with(" 1"))
        .collect();
    assert!(expected.len() > 10);
    assert!(from_sources == sorted(expected.clone()));
    assert!(sorted(deliver(committed.config(1).unwrap())) == sorted(expected));
    // How many rows each block gives was counted once, and is known the next time.
    assert_eq!(fed(&session, &pipeline).rows(), from_sources.len() as u64);
}

#[test]
fn ranks_share_an_epoch_and_cursors_go_on_in_other_worlds() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let pipeline = clicks(&shop, FEED);
    session.run(&pipeline).unwrap();
    let fed = fed(&session, &pipeline);
    let whole = sorted(deliver(fed.config(5).unwrap()));
    let of_rank = |rank, world, cursor: Option<FeedCursor>| forebay::feed::FeedOptions {
        rank,
        world,
        cursor,
        last: RemainderPolicy::Short,
        ..fed.config(5).unwrap()
    };
    let shared = (0..3)
        .flat_map(|rank| deliver(of_rank(rank, 3, None)))
        .collect();
    assert!(sorted(shared) == whole);
    // Both of two ranks stop after three steps; three others go on.
    let mut rows = Vec::new();
    let mut cursor = None;
    for rank in 0..2 {
        let mut feed = Feed::start(of_rank(rank, 2, None)).unwrap();
        rows.extend(
            feed.by_ref()
                .take(3)
                .flat_map(|batch| rows_of(&batch.unwrap())),
        );
        cursor = Some(FeedCursor::decode(&feed.cursor().encode().unwrap()).unwrap());
    }
    rows.extend((0..3).flat_map(|rank| deliver(of_rank(rank, 3, cursor.clone()))));
    assert!(sorted(rows) == whole);
}

#[test]
fn windows_are_fed_from_outputs_alone() {
    let shop = TestDirectory::new();
    let spec = ready_made("demand.yaml");
    let data = shop.demand("data", 500);
    let params = [
        format!("--param=history={data}"),
        format!("--param=out={}", shop.at("out")),
    ];
    let call = |command: &str, more: &[&str]| {
        let mut args = vec![
            command,
            &spec,
            &params[0],
            &params[1],
            "--param=train_until=2016-05-15",
        ];
        args.extend(more);
        shop.forebay(&args)
    };
    call("fit", &[]).expect(0);
    let early = call("feed", &[]).expect(78);
    assert!(
        early.stderr.contains("is fed from an output"),
        "{}",
        early.stderr
    );
    call("run", &[]).expect(0);
    let told = call("feed", &["--json", "--split", "train", "--rows", "128"])
        .expect(0)
        .summary();
    assert!(told["rows"].as_u64().unwrap() > 0, "{told}");
    let all = call("feed", &["--json", "--last", "short", "--rows", "128"])
        .expect(0)
        .summary();
    assert_eq!(
        all["rows"].as_u64().unwrap(),
        shop.rows("out").num_rows() as u64
    );
    let text = call("feed", &["--bench", "--rows", "128"]).expect(0).stdout;
    for word in [
        "from the output of `table`",
        "dense",
        "bottleneck",
        "in order",
        "shuffle",
    ] {
        assert!(text.contains(word), "`{word}` is missing in\n{text}");
    }
}

#[test]
fn what_cannot_be_fed_says_why() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let mut pipeline = clicks(&shop, FEED);
    session.run(&pipeline).unwrap();
    let config = FeedConfig::from_pipeline(&pipeline).unwrap();
    let refused = |config: &FeedConfig| session.feed(&pipeline, None, config).err().unwrap();
    let named = |names: &[&str]| {
        Some(
            names
                .iter()
                .map(|name| FeatureColumn::from(*name))
                .collect(),
        )
    };
    let unknown = refused(&FeedConfig {
        dense: named(&["f1", "f99"]),
        ..config.clone()
    });
    assert_eq!(unknown.code(), codes::UNKNOWN_COLUMN, "{unknown}");
    let part = refused(&FeedConfig {
        split: Some("test".to_owned()),
        ..config.clone()
    });
    assert_eq!(part.code(), codes::UNKNOWN_NAME, "{part}");

    let start = |config: &FeedConfig| {
        let fed = session.feed(&pipeline, None, config).unwrap();
        Feed::start(fed.config(1).unwrap())
            .and_then(|mut feed| feed.try_for_each(|batch| batch.map(drop)))
    };
    // Values that are missing name the column, the rows and the file.
    let missing = start(&FeedConfig {
        missing_id: None,
        ..config.clone()
    })
    .unwrap_err();
    assert_eq!(missing.code(), codes::BAD_ROW, "{missing}");
    assert!(missing.site().column.is_some() && !missing.site().rows.is_empty());
    let held = start(&FeedConfig {
        window_rows: Some(1 << 40),
        ..config.clone()
    });
    assert!(
        held.is_ok(),
        "a window beyond all rows is all rows: {held:?}"
    );

    // A cursor of other data has a fault of its own, and so have ranks outside the world.
    let fed = session.feed(&pipeline, None, &config).unwrap();
    let cursor = Feed::start(fed.config(1).unwrap())
        .unwrap()
        .cursor()
        .clone();
    pipeline.split = None;
    pipeline.nodes[0].fit_on = None;
    session.run(&pipeline).unwrap();
    let other = session.feed(&pipeline, None, &config).unwrap();
    let wrong = Feed::start(forebay::feed::FeedOptions {
        cursor: Some(cursor),
        ..other.config(1).unwrap()
    })
    .err()
    .unwrap();
    assert_eq!(wrong.code(), codes::OTHER_DATA, "{wrong}");
    let outside = forebay::feed::FeedOptions {
        rank: 2,
        world: 2,
        ..other.config(1).unwrap()
    };
    assert_eq!(Feed::start(outside).err().unwrap().code(), codes::BAD_VALUE);
}

/// A small window takes parts of many row groups, from outputs and from sources whose rows a filter takes away.
#[test]
fn a_window_smaller_than_a_row_group_mixes_row_groups() {
    const ROWS: usize = 400_000;
    const GROUP_ROWS: usize = 100_000;
    let shop = TestDirectory::new();
    let ids = Int64Array::from_iter_values(0..ROWS as i64);
    let all = RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef)]).unwrap();
    let groups = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let file = File::create(shop.path("all.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, all.schema(), Some(groups)).unwrap();
    writer.write(&all).unwrap();
    assert_eq!(writer.close().unwrap().row_groups().len(), 4);
    let spec = format!(
        "version: 1\nname: small\nsources: {{ all: {{ parquet: {{ path: \"{}\" }} }} }}\nsteps:\n  even: {{ from: all, do: \
         [{{ filter: \"id % 2 = 0\" }}] }}\n",
        shop.at("all.parquet")
    );
    for (from, step) in [("all", 1), ("even", 2)] {
        let feed = format!(
            "feed: {{ from: {from}, dense: [id], batch_rows: 4096, window_rows: 20000, last: short }}\n"
        );
        let fed = fed(&session(&shop), &pipeline(&format!("{spec}{feed}")));
        let config = || fed.config(7).unwrap();
        let quality = config().sequence().unwrap().quality(0).unwrap();
        assert!(
            quality.score > 0.95 && !quality.is_poor(),
            "{from}: {quality:?}"
        );
        let deliver = |config| -> Vec<usize> {
            let batches = Feed::start(config).unwrap().map(|batch| batch.unwrap());
            batches
                .flat_map(|batch| batch.numbers::<f32>(PartRole::Dense).to_vec())
                .map(|id| id as usize)
                .collect()
        };
        let rows = deliver(config());
        let in_order: Vec<usize> = (0..ROWS).step_by(step).collect();
        let mut ordered = rows.clone();
        ordered.sort_unstable();
        assert!(ordered == in_order, "{from}: {} rows", rows.len());
        for batch in rows.chunks_exact(4096) {
            let mut groups: Vec<usize> = batch.iter().map(|row| row / GROUP_ROWS).collect();
            groups.sort_unstable();
            groups.dedup();
            assert_eq!(groups.len(), 4, "{from}");
        }
        let correlation = correlation(&rows);
        assert!(
            correlation.abs() < 0.2,
            "{from}: correlation of row and position is {correlation}"
        );
        // Any place in a row group can be gone on from.
        let mut begun = Feed::start(config()).unwrap();
        let first: Vec<f32> = begun
            .by_ref()
            .take(9)
            .flat_map(|batch| batch.unwrap().numbers(PartRole::Dense).to_vec())
            .collect();
        let cursor = Some(begun.cursor().clone());
        let rest = deliver(forebay::feed::FeedOptions { cursor, ..config() });
        assert!(
            first.iter().map(|id| *id as usize).chain(rest).eq(rows),
            "{from}"
        );
    }
}

/// Pearson's correlation of rows and the positions at which they are delivered.
fn correlation(rows: &[usize]) -> f64 {
    let count = rows.len() as f64;
    let mean = rows.iter().sum::<usize>() as f64 / count;
    let half = (count - 1.0) / 2.0;
    let sums = rows
        .iter()
        .enumerate()
        .fold((0.0, 0.0, 0.0), |(both, row, position), (at, &id)| {
            let id = id as f64 - mean;
            let at = at as f64 - half;
            (both + id * at, row + id * id, position + at * at)
        });
    sums.0 / (sums.1 * sums.2).sqrt()
}

/// Steps and sources, mixed by weight: shares are exact, and what ends first begins again.
#[test]
fn mixtures_have_their_shares_and_their_columns() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let data = shop.clicks("clicks", 500);
    let spec = |feed: &str| {
        format!(
            r#"
version: 1
name: mixed
sources: {{ clicks: {{ parquet: {{ path: "{data}" }} }} }}
steps:
  bought: {{ from: clicks, do: [{{ filter: "label = 1" }}] }}
  others: {{ from: clicks, do: [{{ filter: "label = 0" }}] }}
  fewer: {{ from: clicks, do: [{{ select: [f1, label] }}] }}
feed: {feed}
"#
        )
    };
    let columns = "label: label, dense: [f1, f2], categorical: [], missing: 0, batch_rows: 64, window_rows: 900";
    let mixed = spec(&format!(
        "{{ mix: [{{ from: bought, weight: 1 }}, {{ from: others, weight: 3 }}], epoch_rows: 1000, {columns} }}"
    ));
    let fed = fed(&session, &pipeline(&mixed));
    assert_eq!((fed.blocks.len(), fed.rows()), (2, 6000));
    let config = || forebay::feed::FeedOptions {
        last: RemainderPolicy::Short,
        epochs: 3,
        ..fed.config(4).unwrap()
    };
    let labels = |config| {
        let batches = Feed::start(config).unwrap().map(|batch| batch.unwrap());
        batches
            .flat_map(|batch| batch.numbers::<f32>(PartRole::Label).to_vec())
            .collect::<Vec<f32>>()
    };
    let all = labels(config());
    assert_eq!(all.len(), 3000);
    assert!(
        all.chunks(4).all(|four| four.iter().sum::<f32>() == 1.0),
        "one of four rows is of `bought`"
    );
    // A cursor knows the shares.
    let mut begun = Feed::start(config()).unwrap();
    let first: Vec<f32> = begun
        .by_ref()
        .take(5)
        .flat_map(|batch| batch.unwrap().numbers(PartRole::Label).to_vec())
        .collect();
    let cursor = Some(begun.cursor().clone());
    let rest = labels(forebay::feed::FeedOptions { cursor, ..config() });
    assert!([first, rest].concat() == all);

    let other =
        spec("{ mix: [{ from: bought, weight: 1 }, { from: fewer, weight: 3 }], missing: 0 }");
    let other = pipeline(&other);
    let fault = session
        .feed(&other, None, &FeedConfig::from_pipeline(&other).unwrap())
        .err()
        .unwrap();
    assert_eq!(
        (fault.code(), fault.message()),
        (codes::BAD_VALUE, "`bought` and `fewer` have other columns")
    );
    let both = pipeline(&spec(
        "{ from: clicks, mix: [{ from: bought, weight: 1 }], missing: 0 }",
    ));
    let fault = session
        .feed(&both, None, &FeedConfig::from_pipeline(&both).unwrap())
        .err()
        .unwrap();
    assert!(
        fault
            .message()
            .contains("either from `clicks` or a mixture"),
        "{fault}"
    );
    let alone = pipeline(&spec("{ epoch_rows: 10, missing: 0 }"));
    let fault = session
        .feed(&alone, None, &FeedConfig::from_pipeline(&alone).unwrap())
        .err()
        .unwrap();
    assert_eq!(fault.message(), "`epoch_rows` is for a mixture");
    let path = shop.write(
        "wrong.yaml",
        &spec("{ mix: [{ from: bougth, weight: 1 }] }"),
    );
    let wrong = shop.forebay(&["check", &path]).expect(78);
    assert!(
        wrong.stderr.contains("no step or source `bougth`") && wrong.stderr.contains("`bought`?"),
        "{}",
        wrong.stderr
    );
}

/// Files whose names say nothing of their time.
#[test]
fn rows_come_in_order_of_time() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    std::fs::create_dir(shop.path("data")).unwrap();
    let write = |name: &str, days: std::ops::Range<i32>| {
        let times = days.clone().flat_map(|day| [day; 50]);
        let columns: [(&str, arrow::array::ArrayRef); 2] = [
            (
                "day",
                Arc::new(arrow::array::Date32Array::from_iter_values(times.clone())),
            ),
            (
                "x",
                Arc::new(arrow::array::Float32Array::from_iter_values(
                    times.map(|day| day as f32),
                )),
            ),
        ];
        let rows = arrow::array::RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(shop.path("data").join(name)).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    };
    write("a.parquet", 20..30);
    write("b.parquet", 0..10);
    write("c.parquet", 10..20);
    let spec = |order: &str| {
        pipeline(&format!(
            "version: 1\nname: timely\nsources: {{ rows: {{ parquet: {{ path: {:?} }}, time: day }} }}\n\
             feed: {{ dense: [x], order: {order}, batch_rows: 64, last: short }}\n",
            shop.at("data")
        ))
    };
    let days = |order: &str| {
        let batches = Feed::start(fed(&session, &spec(order)).config(1).unwrap()).unwrap();
        let days =
            batches.flat_map(|batch| batch.unwrap().numbers::<f32>(PartRole::Dense).to_vec());
        days.map(|day| day as i32).collect::<Vec<i32>>()
    };
    let expected: Vec<i32> = (0..30).flat_map(|day| [day; 50]).collect();
    assert_eq!(days("time"), expected);
    assert_eq!(sorted_days(days("shuffled")), expected);
    // Blocks that overlap have no order of time.
    write("d.parquet", 25..35);
    let late = Feed::start(fed(&session, &spec("time")).config(1).unwrap())
        .err()
        .unwrap();
    assert_eq!(late.code(), codes::OUT_OF_ORDER, "{late}");
}

fn sorted_days(mut days: Vec<i32>) -> Vec<i32> {
    days.sort_unstable();
    days
}
