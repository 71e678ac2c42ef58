//! Extents of watched columns.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt32Array, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::{BoundValue, ColumnExtent, Dataset};
use forebay_storage::StorageClient;
use serde_json::{Value, json};

use crate::help::{source, write};

fn put(dir: &Path, format: &str, name: &str, arrays: &[ArrayRef]) {
    let batches: Vec<RecordBatch> = arrays
        .iter()
        .map(|array| {
            RecordBatch::try_from_iter_with_nullable([("x", array.clone(), true)]).unwrap()
        })
        .collect();
    write(format, json!({"path": "out"}), &dir.join(name), &batches);
}

fn discover(format: &str, dir: &Path, schema: Value, watch: &[&str]) -> Dataset {
    let watch: Vec<String> = watch.iter().map(|name| (*name).to_owned()).collect();
    source(format, json!({"path": dir, "schema": schema}))
        .discover(&StorageClient::new().unwrap(), &watch)
        .unwrap()
}

fn ints(min: i64, max: i64) -> Option<ColumnExtent> {
    Some(ColumnExtent {
        min: BoundValue::Int(min),
        max: BoundValue::Int(max),
        nulls: false,
    })
}

fn texts(min: &str, max: &str) -> Option<ColumnExtent> {
    Some(ColumnExtent {
        min: BoundValue::Text(min.to_owned()),
        max: BoundValue::Text(max.to_owned()),
        nulls: false,
    })
}

#[test]
fn every_ordered_type_has_extents() {
    let words =
        |words: &[Option<&str>]| -> ArrayRef { Arc::new(StringArray::from(words.to_vec())) };
    let keyed = cast(
        &words(&[Some("a"), Some("b")]),
        &DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
    );
    let big = 1 << 53;
    let cases: Vec<(Vec<ArrayRef>, Option<ColumnExtent>)> = vec![
        (
            vec![
                Arc::new(Int32Array::from(vec![Some(3), None])),
                Arc::new(Int32Array::from(vec![-5, 1])),
            ],
            ints(-5, 3),
        ),
        (
            vec![Arc::new(Int64Array::from(vec![big + 1, big]))],
            ints(big, big + 1),
        ),
        (
            vec![Arc::new(UInt32Array::from(vec![7, u32::MAX]))],
            ints(7, u32::MAX.into()),
        ),
        (vec![Arc::new(UInt64Array::from(vec![7, 8]))], ints(7, 8)),
        (vec![Arc::new(UInt64Array::from(vec![7, u64::MAX]))], None),
        (
            vec![Arc::new(BooleanArray::from(vec![true, false]))],
            ints(0, 1),
        ),
        (
            vec![Arc::new(Date32Array::from(vec![-1, 400]))],
            ints(-1, 400),
        ),
        (
            vec![Arc::new(TimestampSecondArray::from(vec![1, 2]))],
            ints(1_000, 2_000),
        ),
        (
            vec![Arc::new(TimestampMillisecondArray::from(vec![1, 2]))],
            ints(1, 2),
        ),
        (
            vec![Arc::new(
                TimestampMicrosecondArray::from(vec![1, 2]).with_timezone("UTC"),
            )],
            ints(1, 2),
        ),
        (
            vec![Arc::new(TimestampNanosecondArray::from(vec![1, 2]))],
            ints(1, 2),
        ),
        (
            vec![words(&[Some("b"), None, Some("B")]), words(&[Some("ü")])],
            texts("B", "ü"),
        ),
        (vec![keyed.unwrap()], texts("a", "b")),
        // What compares with NaN as the greatest, and what has no values.
        (vec![Arc::new(Float64Array::from(vec![1.0, 2.0]))], None),
        (
            vec![
                Arc::new(Int32Array::from(vec![None, None])),
                Arc::new(Int32Array::from(vec![1])),
            ],
            None,
        ),
        (vec![Arc::new(Int32Array::from(vec![0; 0]))], None),
    ];
    for (arrays, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "parquet", "a.parquet", &arrays);
        let dataset = discover("parquet", dir.path(), json!({}), &["nowhere", "x"]);
        assert_eq!(dataset.watched, ["nowhere", "x"]);
        let found: Vec<_> = dataset
            .spans
            .iter()
            .map(|span| (span.extent(0), span.extent(1)))
            .collect();
        let nulls = arrays.iter().any(|array| array.null_count() > 0);
        let expected = expected.map(|extent| ColumnExtent { nulls, ..extent });
        assert_eq!(found, [(None, expected)], "{}", arrays[0].data_type());
    }
}

#[test]
fn long_strings_have_an_upper_bound() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(200);
    put(
        dir.path(),
        "parquet",
        "a.parquet",
        &[Arc::new(StringArray::from(vec![long.as_str()]))],
    );
    let extent = discover("parquet", dir.path(), json!({}), &["x"]).spans[0]
        .extent(0)
        .unwrap();
    assert!(
        extent.min <= BoundValue::Text(long.clone()) && BoundValue::Text(long) <= extent.max,
        "{extent:?}"
    );
}

#[test]
fn folders_and_differing_files_have_extents() {
    let one = |x: i32| -> ArrayRef { Arc::new(Int32Array::from(vec![x])) };
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![8]));
    let policy = json!({"widening": true, "missing": "null", "added": "include"});
    let check = |files: &[(&str, &ArrayRef)], x: Option<ColumnExtent>, k: Option<ColumnExtent>| {
        let dir = tempfile::tempdir().unwrap();
        for (name, array) in files {
            put(dir.path(), "parquet", name, std::slice::from_ref(*array));
        }
        let dataset = discover("parquet", dir.path(), policy.clone(), &["x", "k"]);
        let over = |watched| {
            let spans: Vec<_> = dataset
                .spans
                .iter()
                .map(|span| span.extent(watched))
                .collect();
            ColumnExtent::union(spans.iter().map(Option::as_ref))
        };
        assert_eq!((over(0), over(1)), (x, k), "{files:?}");
    };
    check(
        &[("a.parquet", &one(1)), ("b.parquet", &wide)],
        ints(1, 8),
        None,
    );
    check(
        &[("k=3/a.parquet", &one(1)), ("k=-4/a.parquet", &wide)],
        ints(1, 8),
        ints(-4, 3),
    );
    check(
        &[
            ("k=1970-01-02/a.parquet", &one(1)),
            ("k=1970-01-11/a.parquet", &one(2)),
        ],
        ints(1, 2),
        ints(1, 10),
    );
    check(
        &[("k=3/a.parquet", &one(1)), ("k=b/a.parquet", &one(2))],
        ints(1, 2),
        texts("3", "b"),
    );
    check(
        &[
            ("k=3/a.parquet", &one(1)),
            ("k=__HIVE_DEFAULT_PARTITION__/a.parquet", &one(2)),
        ],
        ints(1, 2),
        None,
    );
    // A folder's value stands for the file's own, also where it is null.
    check(
        &[("x=5/a.parquet", &one(1)), ("x=6/a.parquet", &one(2))],
        ints(5, 6),
        None,
    );
    check(
        &[
            ("x=5/a.parquet", &one(1)),
            ("x=__HIVE_DEFAULT_PARTITION__/a.parquet", &one(2)),
        ],
        None,
        None,
    );
}

#[test]
fn formats_without_metadata_have_those_of_folders() {
    for (format, name) in [
        ("csv", "k=3/a.csv"),
        ("json", "k=3/a.jsonl"),
        ("arrow", "k=3/a.arrow"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let x: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        match format {
            "arrow" => put(dir.path(), format, name, &[x]),
            _ => {
                std::fs::create_dir_all(dir.path().join("k=3")).unwrap();
                let text = if format == "csv" {
                    "x\n1\n2\n"
                } else {
                    "{\"x\": 1}\n{\"x\": 2}\n"
                };
                std::fs::write(dir.path().join(name), text).unwrap();
            }
        }
        let watch = ["x".to_owned(), "k".to_owned()];
        let dataset = source(format, json!({"path": dir.path()}))
            .discover(&StorageClient::new().unwrap(), &watch)
            .unwrap();
        assert_eq!(
            (dataset.spans[0].extent(0), dataset.spans[0].extent(1)),
            (None, ints(3, 3)),
            "{format}"
        );
    }
}

#[test]
fn watching_changes_no_fingerprint() {
    let dir = tempfile::tempdir().unwrap();
    put(
        dir.path(),
        "parquet",
        "k=1/a.parquet",
        &[Arc::new(Int32Array::from(vec![1]))],
    );
    let with = discover("parquet", dir.path(), json!({}), &["x", "k"]);
    assert_eq!(
        with.fingerprint(),
        discover("parquet", dir.path(), json!({}), &[]).fingerprint()
    );
}
