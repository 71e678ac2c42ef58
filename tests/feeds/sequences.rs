//! Sequence batches: each row with the rows before it in its series, whatever the order in which they lie.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Float32Array, Int64Array, RecordBatch, StringArray};
use forebay::feed::{Feed, FeedBatch, FeedCursor, FeedOptions, PartRole, SampleOrder};
use forebay::model::codes;
use forebay::prelude::*;
use forebay::run::{FeedOrigin, FeedSource};

use crate::support::TestDirectory;
use crate::workers::feeds::{LONG_GRACE, with_workers};
use crate::workers::runs::WorkerProcess;

const STEPS: usize = 5;
const WITHIN: i32 = 9;

/// A row: its series, its day and who it is.
type SequenceRow = (String, i64, i32, i64);

/// Forty days of thirty series, each of which misses some days and one of which is long.
fn history() -> Vec<SequenceRow> {
    let mut rows = Vec::new();
    for day in 0..40 {
        for series in 0..30_i64 {
            let there = (day as i64 * 7 + series * 13) % 11 > series % 7;
            let times = if series == 3 { 6 } else { 1 };
            for _ in 0..if there { times } else { 0 } {
                rows.push((
                    format!("shop-{}", series % 4),
                    series / 4,
                    day,
                    rows.len() as i64,
                ));
            }
        }
    }
    rows
}

fn write(shop: &TestDirectory, name: &str, rows: &[SequenceRow], row_groups: usize) {
    std::fs::create_dir_all(shop.path("data")).unwrap();
    let ids: ArrayRef = Arc::new(Float32Array::from_iter_values(
        rows.iter().map(|row| row.3 as f32),
    ));
    let columns: [(&str, ArrayRef); 5] = [
        (
            "shop",
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.0))),
        ),
        (
            "item",
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter_values(rows.iter().map(|row| row.2))),
        ),
        ("id", ids.clone()),
        // The same as a feature: a feed refuses its label among them.
        ("seen", ids),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let limit = parquet::file::properties::WriterProperties::builder();
    let limit = limit.set_max_row_group_row_count(Some(rows.len().div_ceil(row_groups)));
    let file = std::fs::File::create(shop.path("data").join(name)).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(limit.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn session(shop: &TestDirectory) -> Session {
    let options = SessionOptions {
        threads: 2,
        memory_bytes: 1 << 30,
        batch_rows: 50,
        state: shop.at("state"),
        run_id: None,
    };
    Forebay::new().with_options(options).session().unwrap()
}

fn spec(shop: &TestDirectory, series: &str, more: &str) -> Pipeline {
    let text = format!(
        r#"
version: 1
name: sequences
sources: {{ rows: {{ parquet: {{ path: "{data}" }}, time: day, keys: [shop, item], duplicates: allow }} }}
steps: {{ kept: {{ from: rows, do: [{{ filter: "id < 100000" }}] }} }}
split: {{ train: "day < '1970-01-25'", validation: "day >= '1970-01-25'" }}
sinks: {{ table: {{ from: kept, parquet: {{ path: "{out}", group_rows_max: 70 }} }} }}
feed: {{ dense: [seen], categorical: [item], label: id, batch_rows: 32, window_rows: 128, last: short, series: {series}, {more} }}
"#,
        data = shop.at("data"),
        out = shop.at("out"),
    );
    forebay::spec::parse(
        &text,
        "spec.yaml",
        &BTreeMap::new(),
        &Forebay::new().spec_catalog(),
    )
    .unwrap()
}

const SERIES: &str = "{ steps: 5, within: 9d }";

fn fed(session: &Session, pipeline: &Pipeline) -> Result<FeedSource, forebay::model::Fault> {
    session.feed(
        pipeline,
        None,
        &FeedConfig::from_pipeline(pipeline).unwrap(),
    )
}

/// What each row of a batch comes with: the ids of its steps, itself last.
fn sequences(batch: &FeedBatch) -> Vec<Vec<i64>> {
    let dense = batch.numbers::<f32>(PartRole::Dense);
    let mask = batch.part(PartRole::Mask);
    let labels = batch.numbers::<f32>(PartRole::Label);
    let of_row = |row: usize| {
        let steps = row * STEPS..(row + 1) * STEPS;
        let missing = mask[steps.clone()]
            .iter()
            .filter(|mask| **mask == 0)
            .count();
        assert!(
            mask[steps.start + missing..steps.end]
                .iter()
                .all(|mask| *mask == 1),
            "steps are missing first"
        );
        assert!(
            dense[steps.start..steps.start + missing]
                .iter()
                .all(|value| *value == 0.0)
        );
        assert_eq!(
            labels[row],
            dense[steps.end - 1],
            "the label is the row's own"
        );
        dense[steps.start + missing..steps.end]
            .iter()
            .map(|id| *id as i64)
            .collect()
    };
    (0..batch.rows()).map(of_row).collect()
}

fn deliver(config: FeedOptions) -> Vec<Vec<i64>> {
    Feed::start(config)
        .unwrap()
        .flat_map(|batch| sequences(&batch.unwrap()))
        .collect()
}

fn sorted(mut rows: Vec<Vec<i64>>) -> Vec<Vec<i64>> {
    rows.sort_unstable_by_key(|steps| *steps.last().unwrap());
    rows
}

/// What each row should come with, in order of the ids, computed row by row. `id` numbers rows of equal
/// series and time in their order.
fn expected(rows: &[SequenceRow], from_day: i32) -> Vec<Vec<i64>> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.3);
    let steps = |at: usize| {
        let own = &rows[at];
        let of_series = rows[..=at]
            .iter()
            .filter(|row| (&row.0, row.1) == (&own.0, own.1) && row.2 >= own.2 - WITHIN);
        let ids: Vec<i64> = of_series.map(|row| row.3).collect();
        ids[ids.len().saturating_sub(STEPS)..].to_vec()
    };
    (0..rows.len())
        .filter(|at| rows[*at].2 >= from_day)
        .map(steps)
        .collect()
}

/// The same rows in order of time and series by series: same sequences, from sources and outputs, in any
/// order, of all rows and of a part, whose history is everything before.
#[test]
fn rows_come_with_the_steps_before_them() {
    let rows = history();
    let all = expected(&rows, 0);
    let late = expected(&rows, 24);
    assert!(late.len() > 200 && late.iter().all(|steps| !steps.is_empty()));
    assert!(
        all.iter().any(|steps| steps.len() == STEPS) && all.iter().any(|steps| steps.len() == 1)
    );
    let mut by_series = rows.clone();
    by_series.sort();
    for (name, rows, series) in [
        ("time", &rows, SERIES),
        ("series", &by_series, SERIES),
        ("series by series", &by_series, SERIES),
    ] {
        let shop = TestDirectory::new();
        let session = session(&shop);
        let cut = rows.len() / 3;
        let cut = cut
            + rows[cut..]
                .iter()
                .position(|row| name != "time" || row.2 != rows[cut].2)
                .unwrap();
        write(&shop, "a.parquet", &rows[..cut], 4);
        write(
            &shop,
            "b.parquet",
            &rows[cut..],
            if name == "series by series" { 1 } else { 9 },
        );
        for from in [FeedOrigin::Sources, FeedOrigin::Output("table".to_owned())] {
            let pipeline = spec(&shop, series, "order: shuffled");
            if from != FeedOrigin::Sources {
                session.run(&pipeline).unwrap();
            }
            let whole = fed(&session, &pipeline).unwrap();
            assert_eq!(
                (whole.rows(), &whole.from[0]),
                (rows.len() as u64, &from),
                "{name}"
            );
            assert!(whole.blocks[0].dataset().blocks() > 2, "{name}");
            let shuffled = deliver(whole.config(1).unwrap());
            assert!(sorted(shuffled.clone()) == all, "{name} from {from:?}");
            assert!(shuffled != deliver(whole.config(2).unwrap()));
            let straight = deliver(FeedOptions {
                order: SampleOrder::sequential(),
                ..whole.config(1).unwrap()
            });
            let ids: Vec<i64> = straight
                .iter()
                .map(|steps| *steps.last().unwrap())
                .collect();
            assert!(
                ids == rows.iter().map(|row| row.3).collect::<Vec<_>>(),
                "{name}: as they lie"
            );
            assert!(sorted(straight) == all);
            let part = fed(&session, &spec(&shop, series, "split: validation")).unwrap();
            assert_eq!((part.rows(), &part.from[0]), (late.len() as u64, &from));
            assert!(
                sorted(deliver(part.config(1).unwrap())) == late,
                "{name}, a part from {from:?}"
            );
        }
    }
}

/// Parts of one history, mixed: each row comes with the steps before it, whichever part they are of.
#[test]
fn mixtures_know_sequences() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let rows = history();
    write(&shop, "a.parquet", &rows, 8);
    let all = expected(&rows, 0);
    let late = rows.iter().filter(|row| row.2 >= 24).count();
    let mix = "mix: [{ from: rows, split: validation, weight: 2 }, { from: kept, split: train, weight: 1 }]";
    let mixed = fed(&session, &spec(&shop, SERIES, mix)).unwrap();
    for order in [SampleOrder::shuffled(1, 128), SampleOrder::sequential()] {
        let config = mixed.config(1).unwrap();
        let order = SampleOrder {
            mix: config.order.mix.clone(),
            ..order
        };
        let delivered = deliver(FeedOptions { order, ..config });
        let cycles = late.div_ceil(2).max(rows.len() - late);
        assert_eq!(delivered.len(), 3 * cycles);
        let mut times = vec![0; rows.len()];
        for steps in &delivered {
            let id = *steps.last().unwrap() as usize;
            assert_eq!(*steps, all[id]);
            times[id] += 1;
        }
        assert!(times.iter().all(|times| *times > 0));
        let late: usize = rows
            .iter()
            .filter(|row| row.2 >= 24)
            .map(|row| times[row.3 as usize])
            .sum();
        assert_eq!(late, 2 * cycles);
    }
}

/// Workers deliver the same preceding rows of each sequence as an embedded feed.
#[test]
fn workers_give_the_same_sequences() {
    let shop = TestDirectory::new();
    write(&shop, "a.parquet", &history(), 8);
    let worker = WorkerProcess::start(&shop, &[], &[]);
    for more in ["order: shuffled", "split: validation"] {
        let pipeline = spec(&shop, SERIES, more);
        let rows = |session: &Session| deliver(fed(session, &pipeline).unwrap().config(1).unwrap());
        assert!(
            rows(&session(&shop)) == rows(&with_workers(session(&shop), &[&worker], LONG_GRACE)),
            "{more}"
        );
    }
}

/// Ranks share the rows, and a cursor goes on at another world size, as with any other feed.
#[test]
fn ranks_and_cursors_know_sequences() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let rows = history();
    write(&shop, "a.parquet", &rows, 8);
    let pipeline = spec(&shop, SERIES, "order: shuffled");
    let fed = fed(&session, &pipeline).unwrap();
    let of_rank = |rank, world, cursor| FeedOptions {
        rank,
        world,
        cursor,
        receipts: true,
        ..fed.config(3).unwrap()
    };
    let mut seen = Vec::new();
    let mut cursor = None;
    for rank in 0..2 {
        let mut feed = Feed::start(of_rank(rank, 2, None)).unwrap();
        seen.extend(
            feed.by_ref()
                .take(4)
                .flat_map(|batch| sequences(&batch.unwrap())),
        );
        cursor = Some(FeedCursor::decode(&feed.cursor().encode().unwrap()).unwrap());
    }
    seen.extend((0..3).flat_map(|rank| deliver(of_rank(rank, 3, cursor.clone()))));
    assert!(sorted(seen) == expected(&rows, 0));
    // In order of time, blocks can be delivered so.
    let timely = spec(&shop, SERIES, "order: time");
    let timely = session
        .feed(&timely, None, &FeedConfig::from_pipeline(&timely).unwrap())
        .unwrap();
    let ids = deliver(timely.config(1).unwrap())
        .into_iter()
        .map(|steps| *steps.last().unwrap());
    assert!(ids.eq(0..rows.len() as i64));
}

#[test]
fn what_is_no_sequence_says_why() {
    let shop = TestDirectory::new();
    let session = session(&shop);
    let rows = history();
    write(&shop, "a.parquet", &rows, 4);
    let refused = |series: &str| {
        fed(&session, &spec(&shop, series, "order: shuffled"))
            .err()
            .unwrap()
    };
    let within = refused("{ steps: 5 }");
    assert_eq!(within.code(), codes::MISSING_FIELD, "{within}");
    assert!(
        within.hint_text().unwrap().contains("within: 28d"),
        "{within}"
    );
    let unknown = refused("{ steps: 5, keys: [shop, itm] }");
    assert_eq!(unknown.code(), codes::UNKNOWN_COLUMN, "{unknown}");
    for wrong in ["{ steps: 5, within: 3x }", "{ steps: 5, within: 3t }"] {
        let fault = refused(wrong);
        assert_eq!(fault.code(), codes::BAD_VALUE, "{fault}");
    }
    let pipeline = spec(&shop, SERIES, "order: shuffled");
    let none = FeedConfig {
        series: Some(Default::default()),
        ..FeedConfig::from_pipeline(&pipeline).unwrap()
    };
    let none = session.feed(&pipeline, None, &none).err().unwrap();
    assert_eq!(none.code(), codes::BAD_VALUE, "{none}");
    // Each file is in order, and both together are in none.
    let mut by_series = rows.clone();
    by_series.sort();
    write(&shop, "a.parquet", &by_series, 1);
    write(&shop, "b.parquet", &by_series, 1);
    let mixed = refused(SERIES);
    assert_eq!(mixed.code(), codes::OUT_OF_ORDER, "{mixed}");
    assert!(
        mixed
            .message()
            .contains("b.parquet row group 0 goes back behind the end of"),
        "{mixed}"
    );
    // More than the memory holds is a fault before anything is read.
    std::fs::remove_file(shop.path("data").join("b.parquet")).unwrap();
    let config = fed(&session, &spec(&shop, SERIES, "order: shuffled"))
        .unwrap()
        .config(1)
        .unwrap();
    let small = Feed::start(FeedOptions {
        memory_max: Some(20_000),
        ..config
    })
    .err()
    .unwrap();
    assert_eq!(small.code(), codes::MEMORY, "{small}");
}

/// Rows of two items of one shop, of which the keys name the shop alone.
#[test]
fn rows_of_one_time_are_refused_or_told() {
    let shop = TestDirectory::new();
    shop.write(
        "rows.csv",
        "shop,item,day,x\na,1,2024-01-01,1\na,2,2024-01-01,2\na,1,2024-01-02,3\na,2,2024-01-02,4\n",
    );
    for (declared, series, code, expected) in [
        (
            "",
            "{ steps: 2, within: 7d }",
            65,
            "the same keys and the same time as a row before them: shop a, day 2024-01-01; shop a, day 2024-01-02",
        ),
        (
            ", duplicates: warn",
            "{ steps: 2, within: 7d }",
            0,
            "warning: sequences of the feed hold rows with the same keys and the same time",
        ),
        (", duplicates: allow", "{ steps: 2, within: 7d }", 0, ""),
        (
            "",
            "{ steps: 2 }",
            0,
            "warning: sequences of the feed hold rows with the same keys and the same time",
        ),
        ("", "{ steps: 2, within: 7d, keys: [shop, item] }", 0, ""),
    ] {
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: s\nsources: {{ r: {{ csv: {{ path: rows.csv }}, time: day, keys: [shop]{declared} }} }}\n\
                 sinks: {{ t: {{ from: r, parquet: {{ path: out }} }} }}\n\
                 feed: {{ dense: [x], batch_rows: 2, series: {series} }}\n"
            ),
        );
        let fed = shop.forebay(&["feed", "spec.yaml", "--json"]);
        assert_eq!(fed.code, code, "{declared} {series}: {}", fed.stderr);
        assert!(
            fed.stderr.contains(expected),
            "{declared} {series}: {}",
            fed.stderr
        );
        if expected.is_empty() {
            assert!(
                !fed.stderr.contains("same keys"),
                "{declared} {series}: {}",
                fed.stderr
            );
        }
        if code == 0 {
            let duplicate_rows = if expected.is_empty() { 0 } else { 2 };
            assert_eq!(
                fed.summary()["duplicate_rows"],
                duplicate_rows,
                "{declared} {series}"
            );
        }
    }
}
