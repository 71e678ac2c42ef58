//! Types, layouts, missing values, values that are not finite, series.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::*;
use arrow::datatypes::{DataType, Float32Type, Int32Type, Int64Type};
use common::*;
use forebay_feed::*;
use forebay_model::{DuplicateRows, Fault, codes};
use half::{bf16, f16};

fn source(columns: Vec<(&str, ArrayRef)>) -> Vec<Arc<dyn BlockSource>> {
    TestBlocks::new("a", vec![RecordBatch::try_from_iter(columns).unwrap()]).source()
}

/// Rows of which another machine has done ahead what it can do.
struct PrecastBlocks(Arc<dyn BlockSource>, BatchFeatures);

impl BlockSource for PrecastBlocks {
    fn dataset(&self) -> BlockDataset {
        self.0.dataset()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration, Fault> {
        let mut first_row = 0;
        let mut failed = None;
        let waited = self.0.read(block, columns, &mut |batch| {
            let ahead = self.1.precast(&batch, first_row);
            first_row += batch.num_rows() as u64;
            match ahead {
                Ok(ahead) => rows(ahead),
                Err(fault) => {
                    failed = Some(fault);
                    ControlFlow::Break(())
                }
            }
        });
        failed.map_or(waited, Err)
    }
}

/// All batches, straight from columns, by way of records, and of rows done ahead, which must agree.
fn batches(
    columns: Vec<(&str, ArrayRef)>,
    features: BatchFeatures,
    batch_rows: u32,
) -> Result<Vec<FeedBatch>, Fault> {
    let run = |order, sources| {
        let config = FeedOptions {
            features: features.clone(),
            batch_rows,
            last: RemainderPolicy::Short,
            ..config(sources, order)
        };
        Feed::start(config)?.collect::<Result<Vec<_>, _>>()
    };
    let here = || source(columns.clone());
    let ahead = here()
        .into_iter()
        .map(|blocks| Arc::new(PrecastBlocks(blocks, features.clone())) as Arc<dyn BlockSource>);
    let straight = run(SampleOrder::sequential(), here());
    let shuffled = run(SampleOrder::shuffled(1, 1000), here());
    let ahead = run(SampleOrder::sequential(), ahead.collect());
    assert_eq!(straight.is_ok(), shuffled.is_ok());
    match (&straight, &ahead) {
        (Ok(straight), Ok(ahead)) => straight.iter().zip(ahead).for_each(|(straight, ahead)| {
            straight
                .layout()
                .parts
                .iter()
                .for_each(|part| assert_eq!(straight.part(part.role), ahead.part(part.role)));
        }),
        (Err(straight), Err(ahead)) => {
            let of = |fault: &Fault| {
                (
                    fault.code(),
                    fault.message().to_owned(),
                    fault.site().rows.clone(),
                )
            };
            assert_eq!(of(straight), of(ahead));
        }
        (straight, ahead) => panic!(
            "{:?} and {:?}",
            straight.as_ref().err(),
            ahead.as_ref().err()
        ),
    }
    if let (Ok(straight), Ok(shuffled)) = (&straight, &shuffled) {
        for part in &straight[0].layout().parts {
            let rows = |batches: &[FeedBatch]| {
                let rows = batches
                    .iter()
                    .flat_map(|batch| batch.part(part.role).chunks_exact(part.row_bytes));
                let mut rows: Vec<Vec<u8>> = rows.map(<[u8]>::to_vec).collect();
                rows.sort_unstable();
                rows
            };
            assert_eq!(rows(straight), rows(shuffled), "{:?}", part.role);
        }
    }
    straight
}

fn dense(fields: Vec<FeatureField>) -> BatchFeatures {
    BatchFeatures {
        dense: fields,
        ..BatchFeatures::default()
    }
}

#[test]
fn numbers_of_all_types_are_packed_row_by_row() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int8Array::from(vec![1, -2, 3]))),
        ("b", Arc::new(UInt64Array::from(vec![4, 5, 6]))),
        ("c", Arc::new(BooleanArray::from(vec![true, false, true]))),
        (
            "d",
            Arc::new(DictionaryArray::<Int32Type>::new(
                vec![1, 0, 1].into(),
                Arc::new(Float32Array::from(vec![0.5, 0.25])),
            )),
        ),
        ("e", Arc::new(Date32Array::from(vec![10, 11, 12]))),
        (
            "f",
            Arc::new(
                FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
                    [
                        Some(vec![Some(1.0), Some(2.0)]),
                        Some(vec![Some(3.0), None]),
                        None,
                    ],
                    2,
                ),
            ),
        ),
        (
            "g",
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
                Some(vec![Some(1), Some(2)]),
                Some(vec![Some(3), Some(4)]),
                None,
            ])),
        ),
    ];
    let list = |name: &str| FeatureField {
        width: 2,
        ..FeatureField::new(name).missing(-1.0)
    };
    let fields = vec!["a", "b", "c", "d", "e"]
        .into_iter()
        .map(FeatureField::new)
        .chain([list("f"), list("g")])
        .collect();
    for dense_type in [DenseType::F32, DenseType::F16, DenseType::Bf16] {
        let features = BatchFeatures {
            dense_type,
            ..dense(Vec::clone(&fields))
        };
        let batch = batches(columns.clone(), features, 3).unwrap().remove(0);
        let values: Vec<f32> = match dense_type {
            DenseType::F32 => batch.numbers::<f32>(PartRole::Dense).to_vec(),
            DenseType::F16 => batch
                .numbers::<u16>(PartRole::Dense)
                .iter()
                .map(|&bits| f16::from_bits(bits).to_f32())
                .collect(),
            DenseType::Bf16 => batch
                .numbers::<u16>(PartRole::Dense)
                .iter()
                .map(|&bits| bf16::from_bits(bits).to_f32())
                .collect(),
        };
        let rows: Vec<&[f32]> = values.chunks_exact(9).collect();
        assert_eq!(rows[0], [1.0, 4.0, 1.0, 0.25, 10.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!(rows[1], [-2.0, 5.0, 0.0, 0.5, 11.0, 3.0, -1.0, 3.0, 4.0]);
        assert_eq!(rows[2], [3.0, 6.0, 1.0, 0.25, 12.0, -1.0, -1.0, -1.0, -1.0]);
    }
}

#[test]
fn parts_are_aligned_and_typed() {
    let features = BatchFeatures {
        dense: vec![FeatureField::new("x"); 3],
        dense_type: DenseType::Bf16,
        categorical: vec![FeatureField::new("id")],
        categorical_type: CategoricalType::I32,
        label: Some(FeatureField::new("x")),
        weight: Some(FeatureField::new("x")),
        ..BatchFeatures::default()
    };
    let layout = BatchLayout::new(&features, 5).unwrap();
    let parts: Vec<_> = layout
        .parts
        .iter()
        .map(|part| (part.role, part.data_type, part.shape.clone(), part.offset))
        .collect();
    assert_eq!(
        parts,
        [
            (PartRole::Dense, ValueType::Bf16, vec![5, 3], 0),
            (PartRole::Categorical, ValueType::I32, vec![5, 1], 256),
            (PartRole::Label, ValueType::F32, vec![5], 512),
            (PartRole::Weight, ValueType::F32, vec![5], 768),
            (PartRole::Mask, ValueType::U8, vec![5], 1024),
        ]
    );
    assert_eq!((layout.bytes, layout.record_bytes), (1280, 24));
    let slot = HostMemory.allocate(layout.bytes).unwrap();
    assert_eq!(slot.bytes().as_ptr().align_offset(ALIGN), 0);
    assert!(BatchLayout::new(&features, 1 << 27).is_err());
}

fn fault(name: &str, array: ArrayRef, features: BatchFeatures) -> Fault {
    batches(vec![(name, array)], features, 4)
        .err()
        .expect("a fault")
}

#[test]
fn columns_that_are_no_numbers_are_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let found = fault("s", text.clone(), dense(vec![FeatureField::new("s")]));
    assert_eq!(
        (found.code(), found.site().column.as_deref()),
        (codes::COLUMN_TYPE, Some("s"))
    );
    let ids = |name| BatchFeatures {
        categorical: vec![FeatureField::new(name)],
        categorical_type: CategoricalType::I32,
        ..BatchFeatures::default()
    };
    assert!(
        fault("s", text, ids("s"))
            .hint_text()
            .unwrap()
            .contains("vocabulary")
    );
    let large = fault("i", Arc::new(Int64Array::from(vec![1, 1 << 40])), ids("i"));
    assert_eq!(
        (large.code(), large.message(), &large.site().rows[..]),
        (
            codes::OVERFLOW,
            "1099511627776 of `i` is no 32-bit id",
            &[1][..]
        )
    );
    let lists =
        FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>([Some(vec![Some(1.0); 3])], 3);
    let width = fault(
        "l",
        Arc::new(lists),
        dense(vec![FeatureField {
            width: 2,
            ..FeatureField::new("l")
        }]),
    );
    assert_eq!(
        (width.code(), width.message()),
        (
            codes::SCHEMA_DRIFT,
            "rows of 3 values, and the batch has room for 2"
        )
    );
}

#[test]
fn missing_values_become_what_the_field_says_or_a_fault() {
    let column =
        || Arc::new(Float64Array::from(vec![Some(1.0), None, Some(3.0), None])) as ArrayRef;
    let found = fault(
        "y",
        column(),
        BatchFeatures {
            label: Some(FeatureField::new("y")),
            ..dense(vec![FeatureField::new("y").missing(0.0)])
        },
    );
    assert_eq!(
        (found.message(), &found.site().rows[..]),
        ("2 values of `y` are missing", &[1, 3][..])
    );
    let batch = batches(
        vec![("y", column())],
        dense(vec![FeatureField::new("y").missing(-9.0)]),
        4,
    )
    .unwrap()
    .remove(0);
    assert_eq!(
        batch.numbers::<f32>(PartRole::Dense),
        [1.0, -9.0, 3.0, -9.0]
    );
}

#[test]
fn values_that_are_not_finite_fail_are_skipped_or_zeroed() {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN, 1e300, 4.0]));
    let columns = vec![
        ("x", x.clone()),
        ("w", Arc::new(Float32Array::from(vec![1.0; 4])) as ArrayRef),
    ];
    let features = |non_finite| BatchFeatures {
        weight: Some(FeatureField::new("w")),
        non_finite,
        ..dense(vec![FeatureField::new("x")])
    };
    let found = batches(columns.clone(), features(NonFinite::Fail), 4)
        .err()
        .unwrap();
    assert_eq!(
        (found.code(), &found.site().rows[..]),
        (codes::NOT_FINITE, &[1, 2][..])
    );
    for (policy, mask) in [
        (NonFinite::Zero, [1, 1, 1, 1]),
        (NonFinite::Skip, [1, 0, 0, 1]),
    ] {
        let batch = batches(columns.clone(), features(policy), 4)
            .unwrap()
            .remove(0);
        assert_eq!(batch.numbers::<f32>(PartRole::Dense), [1.0, 0.0, 0.0, 4.0]);
        assert_eq!(batch.part(PartRole::Mask), mask);
        assert_eq!(batch.numbers::<f32>(PartRole::Weight), mask.map(f32::from));
        for order in [SampleOrder::sequential(), SampleOrder::shuffled(1, 9)] {
            let mut feed = Feed::start(FeedOptions {
                features: features(policy),
                batch_rows: 4,
                ..config(source(columns.clone()), order)
            })
            .unwrap();
            feed.by_ref().for_each(|batch| drop(batch.unwrap()));
            let found = feed.take_stats().times.found;
            assert_eq!(
                found,
                ValueCounts {
                    non_finite: 2,
                    skipped: if policy == NonFinite::Skip { 2 } else { 0 },
                    ..ValueCounts::default()
                }
            );
        }
    }
}

/// Series `a` of 3 rows and `b` of 2, in one block with a halo of one row of `a`.
#[test]
fn sequences_end_at_their_row_and_stay_in_their_series() {
    let block = RecordBatch::try_from_iter([
        (
            "x",
            Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0, 10.0, 20.0])) as ArrayRef,
        ),
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]))),
        (
            "key",
            Arc::new(StringArray::from(vec!["a", "a", "a", "b", "b"])),
        ),
    ]);
    let mut memory = TestBlocks::new("a", vec![block.unwrap()]);
    (memory.halo, memory.cut) = (1, 2);
    let series = SequenceOptions {
        steps: 3,
        keys: vec!["key".into()],
        ..SequenceOptions::default()
    };
    let features = BatchFeatures {
        series: Some(series),
        label: Some(FeatureField::new("x")),
        ..features()
    };
    let config = FeedOptions {
        features,
        batch_rows: 4,
        ..config(memory.source(), SampleOrder::sequential())
    };
    let mut feed = Feed::start(config).unwrap();
    assert_eq!(
        feed.layout().part(PartRole::Dense).unwrap().shape,
        [4, 3, 1]
    );
    let batch = feed.next().unwrap().unwrap();
    assert_eq!(
        batch.numbers::<f32>(PartRole::Dense),
        [
            0.0, 1.0, 2.0, 1.0, 2.0, 3.0, 0.0, 0.0, 10.0, 0.0, 10.0, 20.0
        ]
    );
    assert_eq!(
        batch.numbers::<i64>(PartRole::Categorical),
        [0, 1, 2, 1, 2, 3, 0, 0, 4, 0, 4, 5]
    );
    assert_eq!(
        batch.part(PartRole::Mask),
        [0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 1, 1]
    );
    assert_eq!(
        batch.numbers::<f32>(PartRole::Label),
        [2.0, 3.0, 10.0, 20.0]
    );
    assert!(feed.next().is_none());
}

/// Missing numbers, ids and lists, with their replacements.
fn missing_values() -> (Vec<(&'static str, ArrayRef)>, BatchFeatures) {
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "x",
            Arc::new(Float32Array::from(vec![
                Some(1.0),
                None,
                Some(3.0),
                None,
                None,
            ])),
        ),
        ("whole", Arc::new(Float64Array::from(vec![1.0; 5]))),
        (
            "list",
            Arc::new(
                FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
                    [
                        Some(vec![Some(1.0), None]),
                        None,
                        Some(vec![Some(3.0), Some(4.0)]),
                        Some(vec![None, None]),
                        Some(vec![Some(5.0), Some(6.0)]),
                    ],
                    2,
                ),
            ),
        ),
        (
            "id",
            Arc::new(Int64Array::from(vec![
                Some(1),
                None,
                None,
                Some(4),
                Some(5),
            ])),
        ),
    ];
    let features = BatchFeatures {
        dense: vec![
            FeatureField::new("x").missing(0.0),
            FeatureField::new("whole").missing(0.0),
            FeatureField {
                width: 2,
                ..FeatureField::new("list").missing(-1.0)
            },
        ],
        categorical: vec![FeatureField::new("id").missing(9.0)],
        ..BatchFeatures::default()
    };
    (columns, features)
}

#[test]
fn filled_values_are_counted_by_column() {
    let (columns, features) = missing_values();
    let expected = [("x", 3), ("list", 5), ("id", 2)].map(|(name, count)| (name.to_owned(), count));
    let precast_source = PrecastBlocks(source(columns.clone()).remove(0), features.clone());
    let precast_source: Arc<dyn BlockSource> = Arc::new(precast_source);
    for (sources, order) in [
        (source(columns.clone()), SampleOrder::sequential()),
        (source(columns.clone()), SampleOrder::shuffled(1, 9)),
        (vec![precast_source], SampleOrder::sequential()),
    ] {
        let mut feed = Feed::start(FeedOptions {
            features: features.clone(),
            batch_rows: 2,
            epochs: 3,
            ..config(sources, order)
        })
        .unwrap();
        feed.by_ref().for_each(|batch| drop(batch.unwrap()));
        let first = feed.first_epoch_counts();
        assert_eq!(features.named_counts(&first.filled), expected);
        let all = expected.clone().map(|(name, count)| (name, 3 * count));
        assert_eq!(feed.filled_values(), all);
        assert_eq!(
            (first.values.filled, feed.take_stats().times.found.filled),
            (10, 30)
        );
    }
}

/// Rows of series `a` at times 1, 2, 2, 2 and of `b` at 2 and 3, of which the first two are a halo.
fn rows_of_equal_times(duplicates: DuplicateRows) -> FeedOptions {
    let columns: [(&str, ArrayRef); 3] = [
        (
            "x",
            Arc::new(Float32Array::from(vec![
                None,
                None,
                Some(3.0),
                None,
                None,
                Some(6.0),
            ])),
        ),
        (
            "key",
            Arc::new(StringArray::from(vec!["a", "a", "a", "b", "a", "b"])),
        ),
        ("time", Arc::new(Int64Array::from(vec![1, 2, 2, 2, 2, 3]))),
    ];
    let mut memory = TestBlocks::new("a", vec![RecordBatch::try_from_iter(columns).unwrap()]);
    memory.halo = 2;
    memory.cut = 4;
    let series = SequenceOptions {
        steps: 2,
        keys: vec!["key".into()],
        time: Some("time".into()),
        duplicates,
        ..SequenceOptions::default()
    };
    FeedOptions {
        features: BatchFeatures {
            series: Some(series),
            ..dense(vec![FeatureField::new("x").missing(0.0)])
        },
        batch_rows: 2,
        ..config(memory.source(), SampleOrder::sequential())
    }
}

#[test]
fn rows_of_sequences_with_equal_times_are_counted_or_refused() {
    for (policy, expected) in [(DuplicateRows::Allow, 0), (DuplicateRows::Warn, 2)] {
        let reported = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = reported.clone();
        let mut feed = Feed::start(FeedOptions {
            on_duplicates: Some(Arc::new(move |rows| heard.lock().unwrap().push(rows))),
            ..rows_of_equal_times(policy)
        })
        .unwrap();
        feed.by_ref().for_each(|batch| drop(batch.unwrap()));
        let counts = feed.load_counts();
        assert_eq!(counts.values.duplicates, expected, "{policy:?}");
        // The missing values of the halo belong to the block before.
        assert_eq!(counts.filled, [2]);
        let expected: Vec<u64> = (expected > 0).then_some(expected).into_iter().collect();
        assert_eq!(*reported.lock().unwrap(), expected);
    }
    let mut feed = Feed::start(rows_of_equal_times(DuplicateRows::Error)).unwrap();
    let fault = feed.find_map(Result::err).unwrap();
    assert_eq!(
        (fault.code(), &fault.site().rows[..]),
        (codes::OUT_OF_ORDER, &[2, 4][..])
    );
    let expected = "2 rows of a block have the same keys and the same time as a row before them: key a, time 2; key a, time 2";
    assert_eq!(fault.message(), expected);
}

#[test]
fn a_label_that_is_read_as_it_is_stays_a_text() {
    let features = BatchFeatures {
        label: Some(FeatureField::new("kind")),
        label_as_is: true,
        weight: Some(FeatureField::new("w")),
        ..dense(vec![FeatureField::new("x")])
    };
    let kinds: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let weights: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.0]));
    let columns = vec![
        ("x", weights.clone()),
        ("kind", kinds.clone()),
        ("w", weights),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let precast_batch = features.precast(&batch, 0).unwrap();
    assert_eq!(precast_batch.column(1), &kinds);
    assert_eq!(precast_batch.column(2).data_type(), &DataType::Float32);
    let as_number = BatchFeatures {
        label_as_is: false,
        ..features
    };
    let fault = as_number.precast(&batch, 0).unwrap_err();
    assert_eq!(fault.code(), codes::COLUMN_TYPE);
}
