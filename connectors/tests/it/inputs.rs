//! Inputs at the edges of what formats can say: what is read is what is there, or a fault that names it.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Date64Array, Decimal128Array, Float64Array, Int64Array,
    ListArray, RecordBatch, StringArray, Time32SecondArray, TimestampSecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use datafusion::logical_expr::{col, lit};
use forebay_contract::ScanRequest;
use forebay_model::codes;
use forebay_storage::StorageClient;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use crate::help::{chunks, read, request, rows, source, whole, write};

/// Writes a column of text in one row group whose bounds are ordered as signed bytes, in the way of
/// the first versions.
fn with_old_bounds(file: &Path, values: &[&str]) {
    let schema = Arc::new(parse_message_type("message m { required binary s (UTF8); }").unwrap());
    let properties = || {
        Arc::new(
            WriterProperties::builder()
                .set_dictionary_enabled(false)
                .build(),
        )
    };
    // A column chunk, written alone, and then described by other metadata.
    let mut alone = Vec::new();
    let mut closed = None;
    let mut writer = SerializedFileWriter::new(&mut alone, schema.clone(), properties()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(*value)).collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&values, None, None)
        .unwrap();
    column.close().unwrap();
    let told = group.close().unwrap();
    writer.close().unwrap();
    let signed = |value: &ByteArray| {
        value
            .data()
            .iter()
            .map(|byte| *byte as i8)
            .collect::<Vec<_>>()
    };
    let min = values.iter().min_by_key(|v| signed(v));
    let max = values.iter().max_by_key(|v| signed(v));
    let bounds = ValueStatistics::new(min.cloned(), max.cloned(), None, Some(0), true);
    let metadata: ColumnChunkMetaData = told
        .column(0)
        .clone()
        .into_builder()
        .set_statistics(Statistics::from(bounds))
        .build()
        .unwrap();
    closed.get_or_insert(parquet::column::writer::ColumnCloseResult {
        bytes_written: metadata.compressed_size() as u64,
        rows_written: values.len() as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    });
    let mut writer =
        SerializedFileWriter::new(File::create(file).unwrap(), schema, properties()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    group
        .append_column(&Bytes::from(alone), closed.unwrap())
        .unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn bounds_of_text_as_signed_bytes_leave_no_row_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.parquet");
    with_old_bounds(&file, &["aaaa", "émile", "zoe"]);
    let io = StorageClient::new().unwrap();
    let source = source("parquet", json!({"path": file}));
    let dataset = source.discover(&io, &["s".to_owned()]).unwrap();
    assert!(dataset.spans[0].extent(0).is_none());
    for value in ["aaaa", "émile", "zoe"] {
        let request = ScanRequest {
            pruning: vec![col("s").eq(lit(value))],
            ..request(&dataset)
        };
        assert_eq!(
            chunks(&io, source.as_ref(), &dataset, &request)
                .unwrap()
                .len(),
            1,
            "{value}"
        );
    }
    // Bounds in the order of the type do leave rows out.
    write("parquet", json!({"path": "out"}), &file, &[rows(0, 100)]);
    let dataset = source.discover(&io, &[]).unwrap();
    let request = ScanRequest {
        pruning: vec![col("word").eq(lit("zoe"))],
        ..request(&dataset)
    };
    let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
    assert!(chunks.iter().all(|chunk| chunk.batch.num_rows() == 0));
}

#[test]
fn listed_files_are_read_or_named_in_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("a.csv"), "a\n1\n").unwrap();
    fs::write(path("notes.txt"), "no data").unwrap();
    let read = |config| read("csv", config);
    let fails = |path: &Path, code: &str, name: &str| {
        let fault = read(json!({"path": path})).unwrap_err();
        assert_eq!(fault.code().name, code, "{fault}");
        assert!(
            fault.site().file.as_deref().unwrap().ends_with(name),
            "{fault:?}"
        );
    };
    // A link to a file, and one to a folder.
    fs::create_dir(dir.path().join("_kept")).unwrap();
    fs::write(path("_kept/b.csv"), "a\n2\n").unwrap();
    std::os::unix::fs::symlink(path("_kept/b.csv"), path("b.csv")).unwrap();
    assert_eq!(read(json!({"path": dir.path()})).unwrap().num_rows(), 2);
    fs::remove_file(path("_kept/b.csv")).unwrap();
    fails(dir.path(), codes::NOT_FOUND.name, "/b.csv");
    fails(&path("*.csv"), codes::NOT_FOUND.name, "/b.csv");
    fails(&path("b.csv"), codes::NOT_FOUND.name, "/b.csv");
    fs::remove_file(path("b.csv")).unwrap();
    std::os::unix::fs::symlink(path("_gone"), path("day=2")).unwrap();
    fails(dir.path(), codes::NOT_FOUND.name, "/day=2");
    fails(&path("day=*/*.csv"), codes::NOT_FOUND.name, "/day=2");
    fs::remove_file(path("day=2")).unwrap();
    // A file that would block on opening, and a similar one that is no data.
    let fifo = |name: &str| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path(name))
                .status()
                .unwrap()
                .success()
        )
    };
    fifo("pipe");
    assert_eq!(read(json!({"path": dir.path()})).unwrap().num_rows(), 1);
    fifo("c.csv");
    fails(dir.path(), codes::UNSUPPORTED.name, "/c.csv");
    fails(&path("c.csv"), codes::UNSUPPORTED.name, "/c.csv");
}

#[test]
fn columns_of_one_name_are_refused_where_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let field = |name: &str| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("a"), field("b"), field("a")]));
    let column = |from: i64| Arc::new(Int64Array::from_iter_values(from..from + 3)) as ArrayRef;
    let batch =
        RecordBatch::try_new(schema.clone(), vec![column(0), column(10), column(20)]).unwrap();
    let parquet = dir.path().join("a.parquet");
    let mut writer =
        ArrowWriter::try_new(File::create(&parquet).unwrap(), schema.clone(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let arrow = dir.path().join("a.arrow");
    let mut writer =
        arrow::ipc::writer::FileWriter::try_new(File::create(&arrow).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    for (format, file) in [("parquet", &parquet), ("arrow", &arrow)] {
        let fault = read(format, json!({"path": file})).unwrap_err();
        assert_eq!(
            (fault.code().name, fault.site().column.as_deref()),
            (codes::DUPLICATE.name, Some("a")),
            "{fault}"
        );
        assert_eq!(fault.site().file.as_deref(), file.to_str());
    }
    let b = read("parquet", json!({"path": parquet, "columns": ["b"]})).unwrap();
    assert_eq!(b.column(0), &column(10));
    // So are two folders of one name.
    let folders = dir.path().join("k=1/k=2");
    fs::create_dir_all(&folders).unwrap();
    fs::write(folders.join("a.csv"), "x\n1\n").unwrap();
    let fault = read("csv", json!({"path": dir.path().join("**/*.csv")})).unwrap_err();
    assert_eq!(
        (fault.code().name, fault.site().column.as_deref()),
        (codes::DUPLICATE.name, Some("k")),
        "{fault}"
    );
}

#[test]
fn dates_are_written_as_dates() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.parquet");
    let dates = |millis: i64| {
        Arc::new(Date64Array::from(vec![
            Some(86_400_000),
            None,
            Some(millis),
        ])) as ArrayRef
    };
    let batch = |millis: i64| RecordBatch::try_from_iter([("day", dates(millis))]).unwrap();
    write(
        "parquet",
        json!({"path": "out"}),
        &file,
        &[batch(-86_400_000)],
    );
    // As programs see them that know nothing of Arrow's own types.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader =
        ParquetRecordBatchReaderBuilder::try_new_with_options(File::open(&file).unwrap(), options)
            .unwrap();
    let plain = reader.build().unwrap().next().unwrap().unwrap();
    assert_eq!(
        plain.column(0).as_ref(),
        &Date32Array::from(vec![Some(1), None, Some(-1)])
    );
    assert_eq!(
        read("parquet", json!({"path": file})).unwrap().column(0),
        &dates(-86_400_000)
    );
    // Arrow's dates in milliseconds are whole days, too.
    let sink = forebay_contract::ConnectorRegistry::sink(
        &forebay_connectors::BuiltInConnectors,
        "parquet",
        &json!({"path": "out"}),
    )
    .unwrap();
    let fault = sink.encode(&batch(0).schema(), &[batch(5)]).err().unwrap();
    assert_eq!(
        (fault.code().name, fault.site().column.as_deref()),
        (codes::BAD_ROW.name, Some("day")),
        "{fault}"
    );
}

fn list_column(values: ArrayRef) -> ArrayRef {
    let item = Field::new_list_field(values.data_type().clone(), true);
    let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
    Arc::new(ListArray::new(Arc::new(item), offsets, values, None))
}

/// Types that Parquet does not have, alone and in lists, as programs see them that know nothing of Arrow's own types.
#[test]
fn times_of_seconds_are_written_as_times() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.parquet");
    let seconds = TimestampSecondArray::from(vec![Some(1_710_000_000), None, Some(-1)]);
    let clock = Time32SecondArray::from(vec![Some(0), None, Some(86_399)]);
    let times = TimestampSecondArray::from(vec![1_710_000_000, 0, -1]);
    let days = Date64Array::from(vec![86_400_000, 0, -86_400_000]);
    let zoned = seconds.clone().with_timezone("Europe/Berlin");
    let columns: [(&str, ArrayRef, bool); 5] = [
        ("time", Arc::new(seconds), true),
        ("zoned", Arc::new(zoned), true),
        ("clock", Arc::new(clock), true),
        ("times", list_column(Arc::new(times)), true),
        ("days", list_column(Arc::new(days)), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let config = json!({"path": "out"});
    write("parquet", config, &file, std::slice::from_ref(&batch));
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader =
        ParquetRecordBatchReaderBuilder::try_new_with_options(File::open(&file).unwrap(), options)
            .unwrap();
    let plain = reader.build().unwrap().next().unwrap().unwrap();
    for (name, expected) in [
        (
            "time",
            ["2024-03-09T16:00:00", "null", "1969-12-31T23:59:59"],
        ),
        (
            "zoned",
            ["2024-03-09T16:00:00Z", "null", "1969-12-31T23:59:59Z"],
        ),
        ("clock", ["00:00:00", "null", "23:59:59"]),
        (
            "times",
            [
                "[2024-03-09T16:00:00, 1970-01-01T00:00:00]",
                "[]",
                "[1969-12-31T23:59:59]",
            ],
        ),
        ("days", ["[1970-01-02, 1970-01-01]", "[]", "[1969-12-31]"]),
    ] {
        let options = FormatOptions::default().with_null("null");
        let column = plain.column_by_name(name).unwrap();
        let texts = ArrayFormatter::try_new(column, &options).unwrap();
        let texts = [0, 1, 2].map(|row| texts.value(row).to_string());
        assert_eq!(texts, expected, "{name}");
    }
    // Programs that know Arrow's types find the zone, too.
    let back = read("parquet", json!({"path": file})).unwrap();
    assert_eq!(
        back.schema().field(1).data_type(),
        &DataType::Timestamp(TimeUnit::Millisecond, Some("Europe/Berlin".into()))
    );
    // Files between two passes keep the types that were planned.
    let config = json!({"path": "out", "keeps_seconds": true});
    write("parquet", config, &file, std::slice::from_ref(&batch));
    let back = read("parquet", json!({"path": file})).unwrap();
    for at in 0..3 {
        assert_eq!(back.column(at), batch.column(at));
    }
}

/// Parquet has no decimals of a negative scale. Files of rows that are shown have all their digits; others refuse them.
#[test]
fn files_of_shown_rows_hold_decimals_of_a_negative_scale() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.parquet");
    let column = |values: Vec<Option<i128>>, digits: u8, scale: i8| {
        let values = Decimal128Array::from(values);
        values.with_precision_and_scale(digits, scale).unwrap()
    };
    let hundreds = column(vec![Some(12), None, Some(-3)], 10, -2);
    let wide = column(vec![Some(7), None, Some(-1)], 38, -3);
    let listed = column(vec![Some(5), Some(0), Some(-9)], 5, -1);
    let seconds = TimestampSecondArray::from(vec![Some(1_710_000_000), None, Some(-1)]);
    let columns: [(&str, ArrayRef, bool); 4] = [
        ("hundreds", Arc::new(hundreds), true),
        ("wide", Arc::new(wide), true),
        ("listed", list_column(Arc::new(listed)), true),
        ("seconds", Arc::new(seconds), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let shown = json!({"path": "out", "keeps_seconds": true, "widens_decimals": true});
    write("parquet", shown, &file, std::slice::from_ref(&batch));
    let back = read("parquet", json!({"path": file})).unwrap();
    for (name, data_type, expected) in [
        (
            "hundreds",
            DataType::Decimal128(12, 0),
            ["1200", "null", "-300"],
        ),
        (
            "wide",
            DataType::Decimal256(41, 0),
            ["7000", "null", "-1000"],
        ),
        (
            "listed",
            DataType::new_list(DataType::Decimal128(6, 0), true),
            ["[50, 0]", "[]", "[-90]"],
        ),
    ] {
        let column = back.column_by_name(name).unwrap();
        assert!(column.data_type().equals_datatype(&data_type), "{name}");
        let options = FormatOptions::default().with_null("null");
        let texts = ArrayFormatter::try_new(column, &options).unwrap();
        let texts = [0, 1, 2].map(|row| texts.value(row).to_string());
        assert_eq!(texts, expected, "{name}");
    }
    assert_eq!(
        back.column_by_name("seconds"),
        batch.column_by_name("seconds")
    );
}

#[test]
fn values_of_folders_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    for (folder, row) in [("k=7", "1"), ("k=007", "2"), ("k=12", "3")] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        fs::write(dir.path().join(folder).join("a.csv"), format!("x\n{row}\n")).unwrap();
    }
    let all = read("csv", json!({"path": dir.path()})).unwrap();
    let k = arrow::compute::cast(all.column_by_name("k").unwrap(), &DataType::Utf8).unwrap();
    let mut k: Vec<&str> = k.as_string::<i32>().iter().flatten().collect();
    k.sort_unstable();
    assert_eq!(k, ["007", "12", "7"]);
}

/// A folder's value stands for all rows of its files. A column of the files that it hides is named.
#[test]
fn columns_that_folders_replace_are_named() {
    for (format, text) in [("csv", "k,x\n1,1\n"), ("json", "{\"k\":1,\"x\":1}\n")] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("k=7");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(format!("a.{format}")), text).unwrap();
        let io = StorageClient::new().unwrap();
        for (partitions, expected) in [("auto", &["k"][..]), ("none", &[])] {
            let config = json!({"path": dir.path(), "partitions": partitions});
            let dataset = source(format, config).discover(&io, &[]).unwrap();
            assert_eq!(dataset.left_out.columns, expected, "{format}");
            let text = dataset.left_out.text().unwrap_or_default();
            assert_eq!(
                text.contains("`k` of its files is not read"),
                !expected.is_empty(),
                "{text}"
            );
        }
    }
}

#[test]
fn a_replaced_file_has_another_fingerprint_at_the_same_time() {
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for (format, before, after) in [
        ("csv", "a\n1\n", "a\n2\n"),
        ("json", "{\"a\":1}\n", "{\"a\":2}\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        let put = |text: &str| {
            fs::write(&file, text).unwrap();
            File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        };
        let io = StorageClient::new().unwrap();
        let source = source(format, json!({"path": file}));
        put(before);
        let first = source.discover(&io, &[]).unwrap();
        assert_eq!(
            source.discover(&io, &[]).unwrap().fingerprint(),
            first.fingerprint()
        );
        // Times of inodes go on in steps of some milliseconds.
        let changed = || std::os::unix::fs::MetadataExt::ctime_nsec(&fs::metadata(&file).unwrap());
        let before = changed();
        while changed() == before {
            put(after);
        }
        let second = source.discover(&io, &[]).unwrap();
        assert_ne!(second.fingerprint(), first.fingerprint(), "{format}");
        let fault = chunks(&io, source.as_ref(), &first, &request(&first)).unwrap_err();
        assert_eq!(fault.code().name, codes::CHANGED.name, "{fault}");
        assert_eq!(
            whole(&chunks(&io, source.as_ref(), &second, &request(&second)).unwrap()).num_rows(),
            1
        );
    }
}

#[test]
fn names_with_wildcards_can_be_escaped() {
    let dir = tempfile::tempdir().unwrap();
    for (name, rows) in [
        ("what?", 1),
        ("whatx", 2),
        ("a*b", 4),
        ("ab", 8),
        ("[1]", 16),
    ] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(
            dir.path().join(name).join("x*.csv"),
            "a\n".to_owned() + &"1\n".repeat(rows),
        )
        .unwrap();
    }
    let count = |path: &str| {
        read(
            "csv",
            json!({"path": format!("{}/{path}", dir.path().display())}),
        )
        .unwrap()
        .num_rows()
    };
    assert_eq!(count("what?"), 3);
    assert_eq!(count("what[?]"), 1);
    assert_eq!(count("a[*]b/x[*].csv"), 4);
    assert_eq!(count("a*b/*[*].csv"), 12);
    assert_eq!(count("[1]"), 16);
    assert_eq!(count("[[]1]/*.csv"), 16);
}

/// The values of a column, as text.
fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let texts =
        arrow::compute::cast(batch.column_by_name(column).unwrap(), &DataType::Utf8).unwrap();
    texts
        .as_string::<i32>()
        .iter()
        .map(|text| text.unwrap_or("null").to_owned())
        .collect()
}

#[test]
fn numbers_keep_their_digits() {
    let dir = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], DataType)] = &[
        (&["1", "9223372036854775807", "-5"], DataType::Int64),
        (
            &["18446744073709551615", "18446744073709551614", "7"],
            DataType::UInt64,
        ),
        (&["18446744073709551615", "-1"], DataType::Utf8),
        (
            &["123456789012345678901", "123456789012345678902", "1"],
            DataType::Utf8,
        ),
        (&["9007199254740993", "1.5"], DataType::Utf8),
        (&["9007199254740993.5", "1.5"], DataType::Utf8),
        (&["9007199254740992", "1.5"], DataType::Float64),
        (&["0.1", "-2.25", "1e300"], DataType::Float64),
    ];
    for (i, (values, expected)) in cases.iter().enumerate() {
        let csv = dir.path().join(format!("{i}.csv"));
        fs::write(&csv, format!("a\n{}\n", values.join("\n"))).unwrap();
        let json_file = dir.path().join(format!("{i}.jsonl"));
        let lines: String = values
            .iter()
            .map(|value| format!("{{\"a\":{value},\"n\":{{\"l\":[{value}]}}}}\n"))
            .collect();
        fs::write(&json_file, lines).unwrap();
        for (format, file) in [("csv", &csv), ("json", &json_file)] {
            let all = read(format, json!({"path": file})).unwrap();
            let of = all
                .schema()
                .field_with_name("a")
                .unwrap()
                .data_type()
                .clone();
            assert_eq!(&of, expected, "{format} {values:?}");
            if of.is_floating() {
                let floats: Vec<f64> = values.iter().map(|value| value.parse().unwrap()).collect();
                assert_eq!(
                    all.column_by_name("a").unwrap().as_ref(),
                    &Float64Array::from(floats)
                );
            } else {
                assert_eq!(texts(&all, "a"), *values, "{format}");
            }
            if let Some(nested) = all.column_by_name("n") {
                let list = nested.as_struct().column(0).as_list::<i32>();
                assert_eq!(
                    list.values().as_ref(),
                    all.column_by_name("a").unwrap().as_ref(),
                    "{values:?}"
                );
            }
        }
    }
}

#[test]
fn digits_after_the_sample_are_kept_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = [
        (
            "csv",
            "a\n1.5\n9007199254740993\n",
            json!({"infer_rows": 1}),
            1,
        ),
        (
            "json",
            "{\"a\":1.5}\n{\"a\":9007199254740993}\n",
            json!({"infer_rows": 1}),
            1,
        ),
        (
            "json",
            "{\"a\":1}\n{\"a\":1.5}\n",
            json!({"infer_rows": 1}),
            1,
        ),
        (
            "json",
            "{\"a\":1}\n{\"a\":1}\n{\"a\":1e300}\n",
            json!({"columns": {"a": "int64"}}),
            2,
        ),
        (
            "json",
            "{\"a\":1}\n{\"a\":9007199254740993.0}\n",
            json!({"columns": {"a": "int64"}}),
            1,
        ),
    ];
    for (format, text, mut config, row) in refused {
        let file = dir.path().join(format!("a.{format}"));
        fs::write(&file, text).unwrap();
        config["path"] = json!(file);
        let fault = read(format, config).unwrap_err();
        assert_eq!(
            (fault.code().name, &fault.site().rows[..]),
            (codes::BAD_ROW.name, &[row][..]),
            "{text}: {fault}"
        );
    }
    let file = dir.path().join("a.json");
    fs::write(
        &file,
        "{\"a\":5.0,\"s\":18446744073709551616}\n{\"a\":7,\"s\":\"x\"}\n",
    )
    .unwrap();
    let all = read(
        "json",
        json!({"path": file, "columns": {"a": "int64", "s": "string"}}),
    )
    .unwrap();
    assert_eq!(all.column(0).as_ref(), &Int64Array::from(vec![5, 7]));
    assert_eq!(
        all.column(1).as_ref(),
        &StringArray::from(vec!["18446744073709551616", "x"])
    );
}

#[test]
fn records_that_never_end_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let endless = "x".repeat(17 << 20);
    let csv = format!("a,b\n1,2\n\"{endless}\n1,2\n");
    let lines = format!("{{\"a\":1}}\n{{\"a\":\"{endless}\"}}\n");
    let declared = json!({"a": "string"});
    let gzip = |text: &str| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
        out.finish().unwrap()
    };
    let cases = [
        ("csv", "a.csv.gz", gzip(&csv), json!({}), 1),
        (
            "csv",
            "headless.csv",
            format!("\"{endless}\n1,2\n").into_bytes(),
            json!({"header": false, "columns": {"a": "string", "b": "int64"}}),
            0,
        ),
        (
            "json",
            "a.jsonl.zst",
            zstd::encode_all(lines.as_bytes(), 1).unwrap(),
            json!({}),
            1,
        ),
        (
            "json",
            "a.jsonl",
            lines.clone().into_bytes(),
            json!({"columns": declared}),
            1,
        ),
    ];
    for (format, name, bytes, mut config, row) in cases {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        config["path"] = json!(file);
        let fault = read(format, config).unwrap_err();
        assert_eq!(
            (fault.code().name, &fault.site().rows[..]),
            (codes::BAD_ROW.name, &[row][..]),
            "{fault}"
        );
        assert!(fault.message().contains("16777216 bytes"), "{fault}");
        assert_eq!(fault.site().file.as_deref(), file.to_str());
    }
}

/// A number from a seed, one after the other.
struct DamageGenerator(u64);

impl DamageGenerator {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }

    /// Damages bytes as disks, networks and programs do.
    fn damage(&mut self, bytes: &mut [u8]) -> String {
        let at = self.below(bytes.len());
        let end = bytes.len().min(at + 1 + self.below(64));
        match self.below(5) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = bytes[at].wrapping_add(1 + self.below(255) as u8),
            2 => bytes[at..end].fill(0),
            3 => bytes[at..end].reverse(),
            _ => {
                let from = self.below(bytes.len() - (end - at));
                bytes.copy_within(from..from + (end - at), at);
            }
        }
        format!("{at}..{end}")
    }
}

/// Reads a file after each of some mutations. Gives how many were faults, and how many gave other rows without one.
fn read_mutations(file: &Path, seed: u64, count: usize) -> (usize, Vec<String>) {
    let bytes = fs::read(file).unwrap();
    let expected = read("parquet", json!({"path": file})).unwrap();
    let mut seeded = DamageGenerator(seed);
    let mut faults = 0;
    let mut wrong = Vec::new();
    for mutation in 0..count {
        let mut damaged = bytes.clone();
        let place = seeded.damage(&mut damaged);
        fs::write(file, &damaged).unwrap();
        match read("parquet", json!({"path": file})) {
            Err(fault) => {
                assert_ne!(
                    fault.code().name,
                    codes::INTERNAL.name,
                    "mutation {mutation} at {place}: {fault:?}"
                );
                faults += 1;
            }
            Ok(rows) if rows == expected => {}
            Ok(_) => wrong.push(format!("mutation {mutation} at {place} of {}", bytes.len())),
        }
    }
    fs::write(file, bytes).unwrap();
    (faults, wrong)
}

/// Damaged files that Forebay wrote are faults, or have the same rows: in CI 60 mutations of each, and as many as
/// `FOREBAY_MUTATIONS` says by hand, then also of files without checksums.
#[test]
fn checksums_detect_damage() {
    let by_hand = std::env::var("FOREBAY_MUTATIONS")
        .ok()
        .and_then(|count| count.parse().ok());
    let count = by_hand.unwrap_or(60);
    let dir = tempfile::tempdir().unwrap();
    for (seed, compression) in [(1, "none"), (2, "snappy"), (3, "zstd")] {
        let file = dir.path().join("a.parquet");
        write(
            "parquet",
            json!({"path": "out", "compression": compression}),
            &file,
            &[rows(0, 2000), rows(2000, 500)],
        );
        let (faults, wrong) = read_mutations(&file, seed, count);
        println!(
            "{compression}, with checksums: {count} mutations, {faults} faults, {} with other rows",
            wrong.len()
        );
        assert!(wrong.is_empty(), "{compression}: {wrong:?}");
        assert!(faults * 2 > count, "{compression}: {faults} faults");
    }
    if by_hand.is_none() {
        return;
    }
    for (seed, compression) in [(1, Compression::UNCOMPRESSED), (2, Compression::SNAPPY)] {
        let file = dir.path().join("b.parquet");
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .build();
        let all = rows(0, 2500);
        let mut writer =
            ArrowWriter::try_new(File::create(&file).unwrap(), all.schema(), Some(properties))
                .unwrap();
        writer.write(&all).unwrap();
        writer.close().unwrap();
        let (faults, wrong) = read_mutations(&file, seed, count);
        println!(
            "{compression}, without checksums: {count} mutations, {faults} faults, {} with other rows",
            wrong.len()
        );
    }
}

#[test]
fn files_of_folders_are_read_or_reported_as_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let io = StorageClient::new().unwrap();
    for name in [
        "a.parquet",
        "000000_0",
        "part-00001",
        "x.parquet.snappy",
        "deeper/000001_0",
        "a.parquet.bak",
        "_hidden",
        ".hidden",
        "_key=1/b.parquet",
    ] {
        let file = folder.path().join("parquet").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        write("parquet", json!({ "path": "unused" }), &file, &[rows(0, 3)]);
    }
    fs::write(folder.path().join("parquet/notes.txt"), "PAR").unwrap();
    fs::write(folder.path().join("parquet/empty"), "").unwrap();
    for name in [
        "a.csv",
        "b.txt",
        "c.csv.bz2",
        "part-0000",
        "d.tsv",
        "e.csv.tmp",
        "_SUCCESS",
    ] {
        let file = folder.path().join("csv").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x\n1\n").unwrap();
    }
    let partitions = json!("none");
    let cases: [(&str, &str, &[&str], &str); 5] = [
        (
            "parquet",
            "",
            &[
                "000000_0",
                "_key=1/b.parquet",
                "a.parquet",
                "deeper/000001_0",
                "part-00001",
                "x.parquet.snappy",
            ],
            "3 files left out: `a.parquet.bak` (a backup or an unfinished file by its name), `empty` (not of this format by its name), `notes.txt` (not of this format by its name)",
        ),
        ("parquet", "/*.bak", &["a.parquet.bak"], ""),
        ("parquet", "/deeper", &["000001_0"], ""),
        (
            "csv",
            "",
            &["a.csv", "d.tsv"],
            "4 files left out: `b.txt` (not of this format by its name), `c.csv.bz2` (not of this format by its name), `e.csv.tmp` (a backup or an unfinished file by its name), `part-0000` (not of this format by its name)",
        ),
        ("csv", "/b.*", &["b.txt"], ""),
    ];
    for (format, below, expected, left_out) in cases {
        let path = format!("{}/{format}{below}", folder.path().display());
        let config = json!({ "path": path, "partitions": partitions });
        let dataset = source(format, config).discover(&io, &[]).unwrap();
        let pieces = dataset.spans.iter().flat_map(|span| &span.pieces);
        let mut names: Vec<&str> = pieces.map(|piece| piece.relative.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{path}");
        assert_eq!(
            dataset.left_out.text().unwrap_or_default(),
            left_out,
            "{path}"
        );
    }
    // A path that a folder leaves out may be named in addition, and a path without files is a
    // fault.
    let at = |name: &str| format!("{}/csv{name}", folder.path().display());
    let both = json!({ "paths": [at(""), at("/b.txt")] });
    let dataset = source("csv", both).discover(&io, &[]).unwrap();
    assert_eq!(dataset.left_out.files, 3);
    let none = json!({ "paths": [at(""), at("/*.json")] });
    let fault = source("csv", none).discover(&io, &[]).unwrap_err();
    assert_eq!(fault.code(), codes::NO_INPUT);
}
