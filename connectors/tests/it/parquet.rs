//! Parquet alone.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Int32Type};
use datafusion::prelude::{Expr, col, lit};
use forebay_contract::{RowRuns, ScanRequest};
use forebay_model::{Dataset, Span, codes};
use forebay_storage::StorageClient;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};

use crate::help::{assert_rows, chunks, keys, read, request, rows, source, whole, write};

fn put(dir: &Path, name: &str, batches: &[RecordBatch]) {
    write("parquet", json!({"path": "out"}), &dir.join(name), batches);
}

fn one(column: &str, array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(column, Arc::new(array) as ArrayRef, true)]).unwrap()
}

#[test]
fn row_groups_that_cannot_matter_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let groups: Vec<RecordBatch> = (0..10).map(|i| rows(i * 1000, 1000)).collect();
    put(dir.path(), "k=1/a.parquet", &groups);
    put(dir.path(), "k=2/a.parquet", &groups);
    let io = StorageClient::new().unwrap();
    let source = source("parquet", json!({"path": dir.path()}));
    let dataset = source.discover(&io, &[]).unwrap();
    let read = |pruning: Vec<Expr>| {
        let request = ScanRequest {
            pruning,
            columns: vec!["word".into()],
            ..request(&dataset)
        };
        let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
        // A chunk without rows counts the rows that were left out.
        let chunks = chunks.iter().filter(|chunk| chunk.batch.num_rows() > 0);
        chunks
            .map(|chunk| (chunk.file.contains("k=1"), chunk.first_row / 1000))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(vec![]).len(), 20);
    assert_eq!(
        read(vec![col("id").lt(lit(1500_i64)), col("k").eq(lit(1_i64))]),
        [(true, 0), (true, 1)]
    );
    // A literal of another type, a date as text, an IN list, and a condition on both.
    assert_eq!(
        read(vec![col("id").gt_eq(lit(8999.5))]),
        [(true, 9), (false, 9)]
    );
    assert_eq!(read(vec![col("day").lt(lit("1970-01-11"))]).len(), 2);
    assert_eq!(
        read(vec![
            col("id").in_list(vec![lit(1_i64), lit(5001_i64)], false)
        ])
        .len(),
        4
    );
    assert_eq!(
        read(vec![col("k").eq(lit(1_i64)).or(col("id").lt(lit(10_i64)))]).len(),
        11
    );
    assert_eq!(read(vec![col("k").gt(lit(7_i64))]).len(), 0);
    // NaN may hide behind the bounds of floats: nothing is left out by them.
    assert_eq!(read(vec![col("x").gt(lit(1e9))]).len(), 20);
    // A condition that statistics cannot decide, and one about a column that does not exist.
    assert_eq!(
        read(vec![
            col("text").like(lit("%7%")),
            col("nowhere").eq(lit(1_i64))
        ])
        .len(),
        20
    );
}

#[test]
fn parts_of_row_groups_hold_the_rows_of_the_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let limits = json!({"path": "out", "group_rows_max": 1000});
    write(
        "parquet",
        limits,
        &dir.path().join("a.parquet"),
        &[rows(0, 1000), rows(1000, 700), rows(1700, 90)],
    );
    let io = StorageClient::new().unwrap();
    let source = source("parquet", json!({"path": dir.path()}));
    let dataset = source.discover(&io, &[]).unwrap();
    let cut = |columns: &[&str]| -> Vec<Span> {
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        source
            .split_spans(
                &io,
                &dataset.spans,
                Some(RowRuns {
                    rows_max: 300,
                    columns: &columns,
                }),
            )
            .unwrap()
    };
    let spans = cut(&["id", "text"]);
    let counts: Vec<u64> = spans.iter().map(|span| span.rows().unwrap()).collect();
    assert_eq!(counts, [250, 250, 250, 250, 233, 233, 234, 90]);
    assert_eq!(
        spans[1].label(),
        format!(
            "{}/a.parquet row group 0, rows 250..500 of it",
            dir.path().display()
        )
    );
    assert!(
        spans
            .windows(2)
            .all(|pair| pair[0].fingerprint() != pair[1].fingerprint())
    );
    for batch_rows in [7, 100, 8192] {
        let request = ScanRequest {
            batch_rows,
            ..request(&dataset)
        };
        let all = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
        let parts = Dataset {
            spans: spans.clone(),
            ..dataset.clone()
        };
        let parts = chunks(&io, source.as_ref(), &parts, &request).unwrap();
        assert_rows(&whole(&parts), &whole(&all));
        assert_eq!(keys(&parts), keys(&all));
        let row = |chunk: &forebay_model::Chunk| chunk.first_row;
        assert!(
            parts
                .windows(2)
                .all(|pair| row(&pair[1]) == row(&pair[0]) + pair[0].batch.num_rows() as u64)
        );
    }
    // Nothing but the number of rows.
    let none = ScanRequest {
        columns: Vec::new(),
        row_keys: false,
        ..request(&dataset)
    };
    let counted = source
        .open(&io, &spans[4], &none)
        .unwrap()
        .map(|chunk| chunk.unwrap().batch.num_rows());
    assert_eq!(counted.sum::<usize>(), 233);
}

/// Lists are divided where pages record their rows; without an index, only columns of single values
/// are.
#[test]
fn parts_of_row_groups_hold_lists_by_the_index_of_pages() {
    let dir = tempfile::tempdir().unwrap();
    let list = |i: i32| {
        (i % 7 > 0).then(|| {
            (0..i % 5)
                .map(|x| (x != 2).then_some(i + x))
                .collect::<Vec<_>>()
        })
    };
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>((0..3000).map(list));
    let words = StringArray::from_iter(
        (0..3000).map(|i| (i % 11 > 0).then(|| format!("word {}", i % 300))),
    );
    let ids = Int32Array::from_iter_values(0..3000);
    let columns = [
        ("id", Arc::new(ids) as ArrayRef),
        ("list", Arc::new(lists)),
        ("word", Arc::new(words)),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
            .unwrap();
    let write = |name: &str, is_indexed: bool| {
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1700));
        let properties = properties
            .set_data_page_row_count_limit(130)
            .set_write_batch_size(10);
        let properties = properties
            .set_dictionary_page_size_limit(600)
            .set_offset_index_disabled(!is_indexed);
        let properties = properties
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    write("indexed.parquet", true);
    write("plain.parquet", false);
    put(dir.path(), "ours.parquet", std::slice::from_ref(&batch));
    let io = StorageClient::new().unwrap();
    for (name, parts_of_lists, parts_of_ids) in
        [("indexed", 30, 30), ("plain", 2, 30), ("ours", 30, 30)]
    {
        let source = source(
            "parquet",
            json!({"path": dir.path().join(format!("{name}.parquet"))}),
        );
        let dataset = source.discover(&io, &[]).unwrap();
        let cut = |columns: &[&str]| -> Vec<Span> {
            let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
            source
                .split_spans(
                    &io,
                    &dataset.spans,
                    Some(RowRuns {
                        rows_max: 100,
                        columns: &columns,
                    }),
                )
                .unwrap()
        };
        assert_eq!(cut(&["word", "id"]).len(), parts_of_ids, "{name}");
        let spans = cut(&["list", "id"]);
        assert_eq!(spans.len(), parts_of_lists, "{name}");
        for columns in [
            vec!["id", "list", "word"],
            vec!["list"],
            vec!["word", "list"],
        ] {
            let columns = columns.into_iter().map(str::to_owned).collect();
            let request = ScanRequest {
                columns,
                batch_rows: 64,
                ..request(&dataset)
            };
            let all = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
            let parts = Dataset {
                spans: spans.clone(),
                ..dataset.clone()
            };
            let parts = chunks(&io, source.as_ref(), &parts, &request).unwrap();
            assert_rows(&whole(&parts), &whole(&all));
            assert_eq!(keys(&parts), keys(&all), "{name}");
        }
    }
}

#[test]
fn keys_do_not_depend_on_row_groups_or_pruning() {
    let all = |sizes: &[usize], pruning: Vec<Expr>| {
        let dir = tempfile::tempdir().unwrap();
        let mut from = 0;
        let groups: Vec<RecordBatch> = sizes
            .iter()
            .map(|size| {
                from += size;
                rows((from - size) as i64, *size)
            })
            .collect();
        put(dir.path(), "a.parquet", &groups);
        let io = StorageClient::new().unwrap();
        let source = source("parquet", json!({"path": dir.path()}));
        let dataset = source.discover(&io, &[]).unwrap();
        let request = ScanRequest {
            batch_rows: 700,
            pruning,
            ..request(&dataset)
        };
        let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
        (whole(&chunks), keys(&chunks))
    };
    let (rows, expected) = all(&[6000], vec![]);
    let (same, keys) = all(&[1, 999, 3000, 2000], vec![]);
    assert_eq!((&same, &keys), (&rows, &expected));
    let (some, keys) = all(
        &[1000, 1000, 4000],
        vec![col("id").gt_eq(lit(1000_i64)), col("id").lt(lit(2000_i64))],
    );
    assert_eq!(keys, expected[1000..2000]);
    assert_eq!(some, rows.slice(1000, 1000));
}

#[test]
fn strings_come_as_dictionaries_where_all_pages_are() {
    let dir = tempfile::tempdir().unwrap();
    let few = one(
        "s",
        StringArray::from_iter(
            (0..50_000).map(|i| (i % 5 > 0).then(|| format!("value {}", i % 5))),
        ),
    );
    let many = one(
        "s",
        StringArray::from_iter_values((0..200_000).map(|i| format!("a long and unique value {i}"))),
    );
    put(dir.path(), "a.parquet", &[few.clone(), many, few]);
    let io = StorageClient::new().unwrap();
    let source = source("parquet", json!({"path": dir.path()}));
    let dataset = source.discover(&io, &[]).unwrap();
    assert_eq!(dataset.schema.field(0).data_type(), &DataType::Utf8);
    let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
    let group = |first: u64| match first {
        ..50_000 => 0,
        50_000..250_000 => 1,
        _ => 2,
    };
    let mut dictionaries: [Vec<ArrayRef>; 3] = Default::default();
    for chunk in &chunks {
        let column = chunk.batch.column(0);
        let at = group(chunk.first_row);
        match column.as_dictionary_opt::<Int32Type>() {
            Some(keyed) => dictionaries[at].push(keyed.values().clone()),
            None => assert_eq!((at, column.data_type()), (1, &DataType::Utf8View)),
        }
    }
    assert_eq!(dictionaries.each_ref().map(Vec::len), [7, 0, 7]);
    for values in [&dictionaries[0], &dictionaries[2]] {
        assert!(
            values.iter().all(|other| Arc::ptr_eq(other, &values[0])),
            "chunks of a row group share a dictionary"
        );
    }
}

#[test]
fn rows_without_any_value_keep_the_dictionary() {
    let dir = tempfile::tempdir().unwrap();
    let values = (0..1000).map(|i| (!(100..300).contains(&i)).then_some("x"));
    put(
        dir.path(),
        "a.parquet",
        &[one("s", StringArray::from_iter(values))],
    );
    let io = StorageClient::new().unwrap();
    let source = source("parquet", json!({"path": dir.path()}));
    let dataset = source.discover(&io, &[]).unwrap();
    let request = ScanRequest {
        batch_rows: 100,
        ..request(&dataset)
    };
    let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
    let values: Vec<_> = chunks
        .iter()
        .map(|c| {
            c.batch
                .column(0)
                .as_dictionary::<Int32Type>()
                .values()
                .clone()
        })
        .collect();
    assert!(values.iter().all(|other| Arc::ptr_eq(other, &values[0])));
    assert_eq!(whole(&chunks).column(0).null_count(), 200);
}

#[test]
fn differing_files_are_listed_and_policies_accept_them() {
    let dir = tempfile::tempdir().unwrap();
    let both = |x: ArrayRef| {
        RecordBatch::try_from_iter([("x", x), ("y", Arc::new(Int64Array::from(vec![7])) as _)])
            .unwrap()
    };
    put(
        dir.path(),
        "a.parquet",
        &[both(Arc::new(Int32Array::from(vec![1])))],
    );
    put(
        dir.path(),
        "b.parquet",
        &[both(Arc::new(Int64Array::from(vec![2])))],
    );
    put(
        dir.path(),
        "c.parquet",
        &[one("x", Int32Array::from(vec![3]))],
    );
    let config = |schema: Value| json!({"path": dir.path(), "schema": schema});
    let fault = read("parquet", config(json!({}))).unwrap_err();
    assert_eq!(fault.code().name, codes::SCHEMA_DRIFT.name);
    let table: Vec<String> = fault
        .notes()
        .iter()
        .map(|note| note.rsplit('/').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        table,
        [
            "b.parquet: column `x` is int64, expected int32 (`widening` takes both)",
            "c.parquet: column `y` is missing"
        ]
    );
    let all = read(
        "parquet",
        config(json!({"widening": true, "missing": "null"})),
    )
    .unwrap();
    assert_eq!(
        all.column(0).as_ref(),
        &Int64Array::from(vec![1, 2, 3]) as &dyn Array
    );
    assert_eq!(
        all.column(1).as_ref(),
        &Int64Array::from(vec![Some(7), Some(7), None]) as &dyn Array
    );
    put(
        dir.path(),
        "0.parquet",
        &[one("x", Int32Array::from(vec![0]))],
    );
    let fault = read("parquet", config(json!({"widening": true}))).unwrap_err();
    assert!(
        fault.notes().iter().any(|note| note.contains("column `y`")),
        "{fault:?}"
    );
    let ignoring = read(
        "parquet",
        config(json!({"widening": true, "added": "ignore"})),
    )
    .unwrap();
    assert_eq!((ignoring.num_columns(), ignoring.num_rows()), (1, 4));
    let including = json!({"widening": true, "missing": "null", "added": "include"});
    assert_eq!(
        read("parquet", config(including))
            .unwrap()
            .column(1)
            .null_count(),
        2
    );
}

#[test]
fn files_without_rows_are_fine() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a.parquet", &[rows(0, 0)]);
    put(dir.path(), "b.parquet", &[rows(0, 5)]);
    put(dir.path(), "c.parquet", &[rows(0, 0)]);
    assert_rows(
        &read("parquet", json!({"path": dir.path()})).unwrap(),
        &rows(0, 5),
    );
}

#[test]
fn columns_can_be_chosen_and_their_bytes_are_known() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "k=a/a.parquet", &[rows(0, 5000)]);
    let io = StorageClient::new().unwrap();
    let discover = |columns: Value| {
        source("parquet", json!({"path": dir.path(), "columns": columns})).discover(&io, &[])
    };
    let dataset = discover(json!(["k", "text", "flag"])).unwrap();
    let bytes = dataset.column_bytes.unwrap();
    assert_eq!(bytes.len(), 3);
    assert!(
        bytes[0] == 0 && bytes[1] > bytes[2] && bytes[2] > 0,
        "{bytes:?}"
    );
    let fault = discover(json!(["txet"])).unwrap_err();
    assert_eq!(
        (fault.code().name, fault.hint_text()),
        (codes::UNKNOWN_COLUMN.name, Some("did you mean `text`?"))
    );
}

#[test]
fn footers_count_nulls() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = |values: Vec<Option<i32>>| Arc::new(Int32Array::from(values)) as ArrayRef;
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![None]), None]);
    let columns = [
        ("x", numbers(vec![Some(1), None]), true),
        ("y", numbers(vec![Some(1), Some(2)]), true),
        ("list", Arc::new(lists) as ArrayRef, true),
    ];
    let whole = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    put(dir.path(), "k=a/a.parquet", &[whole]);
    let without_x = one("y", Int32Array::from(vec![3, 4, 5]));
    put(dir.path(), "k=b/b.parquet", &[without_x]);
    let config = json!({"path": dir.path(), "schema": {"missing": "null"}});
    let io = StorageClient::new().unwrap();
    let dataset = source("parquet", config).discover(&io, &[]).unwrap();
    assert_eq!(dataset.null_count("x"), Some(1 + 3));
    assert_eq!(dataset.null_count("y"), Some(0));
    // Footers count the elements of lists, and folders give `k`.
    assert_eq!(dataset.null_count("list"), None);
    assert_eq!(dataset.null_count("k"), None);
    assert_eq!(dataset.null_count("z"), None);
}

#[test]
fn odd_names_are_read() {
    let dir = tempfile::tempdir().unwrap();
    for (i, name) in [
        "a b.parquet",
        "50%25.parquet",
        "ü+ä.parquet",
        "t=10%3A30/x#y.parquet",
    ]
    .iter()
    .enumerate()
    {
        let dir = dir.path().join(i.to_string());
        put(&dir, name, &[rows(0, 10)]);
        assert_eq!(
            read("parquet", json!({"path": dir})).unwrap().num_rows(),
            10,
            "{name}"
        );
    }
}

#[test]
fn strings_of_any_layout_are_written_alike() {
    let words =
        StringArray::from_iter((0..3000).map(|i| (i % 7 > 0).then(|| format!("word {}", i % 5))));
    let plain = one("s", words);
    let cast = |to: DataType| one("s", arrow::compute::cast(plain.column(0), &to).unwrap());
    let keyed = cast(DataType::Dictionary(
        Box::new(DataType::Int32),
        Box::new(DataType::Utf8),
    ));
    let views = cast(DataType::Utf8View);
    let sink = forebay_contract::ConnectorRegistry::sink(
        &forebay_connectors::BuiltInConnectors,
        "parquet",
        &json!({"path": "out"}),
    )
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let encode = |batches: &[RecordBatch]| {
        let file = dir.path().join("a.parquet");
        let schema = plain.schema();
        let mut out = sink
            .open_writer(&schema, Box::new(std::fs::File::create(&file).unwrap()))
            .unwrap();
        out.append(sink.encode(&schema, batches).unwrap()).unwrap();
        out.finish().unwrap();
        let back = read("parquet", json!({"path": file})).unwrap();
        assert_rows(&back, &plain);
        std::fs::read(file).unwrap()
    };
    let expected = encode(std::slice::from_ref(&plain));
    assert!(encode(std::slice::from_ref(&keyed)) == expected);
    assert!(encode(std::slice::from_ref(&views)) == expected);
    assert!(
        encode(&[
            keyed.slice(0, 1000),
            views.slice(1000, 1000),
            plain.slice(2000, 1000)
        ]) == expected
    );
}
