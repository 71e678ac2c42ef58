//! Behaviour that every format must have.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::DataType;
use forebay_connectors::{ConnectorFormat, CsvSource, FormatRegistry, JsonSink, JsonSource};
use forebay_contract::{ConnectorRegistry, ScanRequest};
use forebay_storage::StorageClient;
use serde_json::{Value, json};

use crate::help::{assert_rows, chunks, keys, read, request, rows, source, whole, write};

/// Writes a text format with Arrow's own writer, packed as the name's ending says.
fn write_text(file: &Path, batch: &RecordBatch) {
    let name = file.to_str().unwrap();
    let mut text = Vec::new();
    if name.contains(".csv") {
        arrow::csv::Writer::new(&mut text).write(batch).unwrap();
    } else {
        let mut writer = arrow::json::LineDelimitedWriter::new(&mut text);
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    }
    let mut out = File::create(file).unwrap();
    match name.rsplit('.').next() {
        Some("gz") => {
            let mut packed = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            packed.write_all(&text).unwrap();
            packed.finish().unwrap();
        }
        Some("zst") => out
            .write_all(&zstd::encode_all(text.as_slice(), 1).unwrap())
            .unwrap(),
        _ => out.write_all(&text).unwrap(),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let binary = [
        ("parquet", "snappy"),
        ("parquet", "zstd"),
        ("parquet", "lz4"),
        ("parquet", "none"),
        ("arrow", "none"),
        ("arrow", "lz4"),
        ("arrow", "zstd"),
    ];
    for (format, compression) in binary {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        let parts = [rows(0, 1000), rows(1000, 1), rows(1001, 3000)];
        write(
            format,
            json!({"path": "out", "compression": compression}),
            &file,
            &parts,
        );
        let back = read(format, json!({"path": file})).unwrap();
        assert_rows(&back, &rows(0, 4001));
    }
}

#[test]
fn text_is_read_with_inferred_and_with_declared_types() {
    let types = json!({
        "id": "int64", "small": "int32", "x": "float64", "word": "string", "text": "string", "flag": "boolean",
        "day": "date"
    });
    for name in [
        "a.csv",
        "a.csv.gz",
        "a.csv.zst",
        "a.jsonl",
        "a.ndjson.gz",
        "a.json.zst",
    ] {
        let format = if name.contains("csv") { "csv" } else { "json" };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        let all = rows(0, 20_000);
        write_text(&file, &all);
        let declared = read(format, json!({"path": file, "columns": types})).unwrap();
        assert_rows(&declared, &all);
        let inferred = read(format, json!({"path": file})).unwrap();
        assert_eq!(inferred.num_rows(), 20_000);
        let type_of = |name: &str| {
            inferred
                .schema()
                .field_with_name(name)
                .unwrap()
                .data_type()
                .clone()
        };
        let found = ["id", "small", "x", "word", "flag", "day"].map(type_of);
        let day = if format == "csv" {
            DataType::Date32
        } else {
            DataType::Utf8
        };
        let expected = [
            DataType::Int64,
            DataType::Int64,
            DataType::Float64,
            DataType::Utf8,
            DataType::Boolean,
            day,
        ];
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn arrow_streams_are_told_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.arrows");
    let batch = rows(0, 5000);
    let mut writer =
        arrow::ipc::writer::StreamWriter::try_new(File::create(&file).unwrap(), &batch.schema())
            .unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    assert_rows(&read("arrow", json!({"path": file})).unwrap(), &batch);
}

/// Calls `check` for one data set in every format, in three folders.
fn for_every_format(check: impl Fn(&str, Value, &Path)) {
    for format in ["parquet", "arrow", "csv", "json"] {
        let dir = tempfile::tempdir().unwrap();
        for (i, folder) in ["k=1/d=2020-01-01", "k=2/d=2020-01-01", "k=2/d=2020-01-02"]
            .iter()
            .enumerate()
        {
            let file = dir.path().join(folder).join(format!("part.{format}"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let batch = rows(i as i64 * 1000, 1000);
            match format {
                "parquet" | "arrow" => write(format, json!({"path": "out"}), &file, &[batch]),
                _ => write_text(&file, &batch),
            }
        }
        check(format, json!({"path": dir.path()}), dir.path());
    }
}

#[test]
fn folders_give_columns() {
    for_every_format(|format, config, _| {
        let all = read(format, config).unwrap();
        let schema = all.schema();
        let last: Vec<_> = schema
            .fields()
            .iter()
            .rev()
            .take(2)
            .map(|field| (field.name().as_str(), field.data_type()))
            .collect();
        assert_eq!(
            last,
            [("d", &DataType::Date32), ("k", &DataType::Int64)],
            "{format}"
        );
        let k = arrow::compute::cast(all.column_by_name("k").unwrap(), &DataType::Int64).unwrap();
        let expected = arrow::array::Int64Array::from_iter_values(
            (0..3000).map(|i| if i < 1000 { 1 } else { 2 }),
        );
        assert_eq!(
            k.as_ref(),
            &expected as &dyn arrow::array::Array,
            "{format}"
        );
    });
}

#[test]
fn folders_can_be_plain() {
    for_every_format(|format, mut config, _| {
        config["partitions"] = json!("none");
        assert!(read(format, config).unwrap().column_by_name("k").is_none());
    });
}

#[test]
fn columns_come_in_the_order_that_was_asked_for() {
    for_every_format(|format, config, _| {
        let io = StorageClient::new().unwrap();
        let source = source(format, config);
        let dataset = source.discover(&io, &[]).unwrap();
        let ask = |columns: &[&str]| ScanRequest {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            ..request(&dataset)
        };
        let got = chunks(&io, source.as_ref(), &dataset, &ask(&["word", "k", "id"])).unwrap();
        let names = |batch: &RecordBatch| {
            batch
                .schema()
                .fields()
                .iter()
                .map(|f| f.name().clone())
                .collect::<Vec<_>>()
        };
        assert!(
            got.iter()
                .all(|chunk| names(&chunk.batch) == ["word", "k", "id"]),
            "{format}"
        );
        let none = chunks(&io, source.as_ref(), &dataset, &ask(&[])).unwrap();
        assert_eq!(
            none.iter()
                .map(|chunk| chunk.batch.num_rows())
                .sum::<usize>(),
            3000,
            "{format}"
        );
        let folder = chunks(&io, source.as_ref(), &dataset, &ask(&["d"])).unwrap();
        assert_eq!(whole(&folder).num_rows(), 3000, "{format}");
    });
}

#[test]
fn rows_and_keys_do_not_depend_on_batches() {
    for_every_format(|format, config, _| {
        let io = StorageClient::new().unwrap();
        let source = source(format, config);
        let dataset = source.discover(&io, &[]).unwrap();
        let with = |batch_rows| {
            let request = ScanRequest {
                batch_rows,
                ..request(&dataset)
            };
            let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
            assert!(
                chunks
                    .iter()
                    .all(|chunk| chunk.batch.num_rows() <= batch_rows),
                "{format}"
            );
            (whole(&chunks), keys(&chunks))
        };
        let (all, expected) = with(8192);
        let mut distinct = expected.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 3000, "{format}");
        for batch_rows in [1, 7, 999] {
            let (rows, keys) = with(batch_rows);
            assert_eq!(rows, all, "{format} in batches of {batch_rows}");
            assert_eq!(keys, expected, "{format} in batches of {batch_rows}");
        }
    });
}

#[test]
fn keys_do_not_change_when_the_root_moves() {
    for_every_format(|format, config, root| {
        let io = StorageClient::new().unwrap();
        let all_keys = |config: Value| {
            let source = source(format, config);
            let dataset = source.discover(&io, &[]).unwrap();
            keys(&chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap())
        };
        let before = all_keys(config);
        let elsewhere = tempfile::tempdir().unwrap();
        let moved = elsewhere.path().join("moved");
        std::fs::rename(root, &moved).unwrap();
        let after = all_keys(json!({"path": moved}));
        std::fs::rename(&moved, root).unwrap();
        assert_eq!(before, after, "{format}");
    });
}

#[test]
fn hidden_names_do_not_count_and_patterns_choose() {
    for_every_format(|format, config, root| {
        std::fs::write(root.join("_SUCCESS"), "").unwrap();
        std::fs::write(root.join("README.md"), "no data").unwrap();
        std::fs::create_dir(root.join(".tmp")).unwrap();
        std::fs::write(root.join(format!(".tmp/x.{format}")), "no data").unwrap();
        assert_eq!(read(format, config).unwrap().num_rows(), 3000, "{format}");
        let count = |pattern: &str| {
            let path = format!("{}/{pattern}", root.display());
            read(format, json!({"path": path})).unwrap().num_rows()
        };
        assert_eq!(count("k=2/**"), 2000, "{format}");
        assert_eq!(count("k=*"), 3000, "{format}");
        assert_eq!(
            count(&format!("*/d=2020-01-01/*.{format}")),
            2000,
            "{format}"
        );
        assert_eq!(
            count(&format!("**/d=2020-01-02/part.{format}")),
            1000,
            "{format}"
        );
        let several = json!({"paths": [root.join("k=1"), root.join("k=2/d=2020-01-02")]});
        assert_eq!(read(format, several).unwrap().num_rows(), 2000, "{format}");
    });
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    for format in ["parquet", "arrow"] {
        let dir = tempfile::tempdir().unwrap();
        let sink = forebay_contract::ConnectorRegistry::sink(
            &forebay_connectors::BuiltInConnectors,
            format,
            &json!({"path": "out"}),
        )
        .unwrap();
        let encode = |name: &str, batches: &[RecordBatch]| {
            let file = dir.path().join(name);
            let schema = batches[0].schema();
            let mut out = sink
                .open_writer(&schema, Box::new(File::create(&file).unwrap()))
                .unwrap();
            out.append(sink.encode(&schema, batches).unwrap()).unwrap();
            out.finish().unwrap();
            std::fs::read(file).unwrap()
        };
        let one = encode("one", &[rows(0, 3000)]);
        let many = encode("many", &[rows(0, 10), rows(10, 1990), rows(2000, 1000)]);
        assert!(one == many, "{format}");
    }
}

#[test]
fn csv_variants() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let bom = put("bom.csv", "\u{feff}a;b\n1;NA\n;x\n");
    let all = read(
        "csv",
        json!({"path": bom, "delimiter": ";", "nulls": ["", "NA"]}),
    )
    .unwrap();
    assert_eq!(all.schema().field(0).name(), "a");
    assert_eq!(
        (all.column(0).null_count(), all.column(1).null_count()),
        (1, 1)
    );
    let bare = put("bare.csv", "1,007\n2,008\n");
    let all = read("csv", json!({"path": bare, "header": false})).unwrap();
    let schema = all.schema();
    assert_eq!(schema.field(0).name(), "column_1");
    assert_eq!(schema.field(1).data_type(), &DataType::Utf8);
    let named = json!({"path": bare, "header": false, "columns": {"n": "int32", "m": "int32"}});
    assert_eq!(
        read("csv", named).unwrap().schema().field(1).data_type(),
        &DataType::Int32
    );
    let quoted = put("quoted.csv", "a,b\n\"x, \"\"y\"\"\nz\",1\n");
    let all = read("csv", json!({"path": quoted})).unwrap();
    assert_eq!(
        arrow::array::AsArray::as_string::<i32>(all.column(0)).value(0),
        "x, \"y\"\nz"
    );
    let gaps = put("gaps.csv", "a,b\n,NA\n\"\",x\n");
    let columns = json!({"a": "string", "b": "string"});
    for (nulls, counts) in [
        (json!([]), [0, 0]),
        (json!(["NA"]), [0, 1]),
        // An empty field in quotes is an empty text.
        (json!(["", "NA"]), [1, 1]),
    ] {
        let all = read(
            "csv",
            json!({"path": gaps, "columns": columns, "nulls": nulls}),
        )
        .unwrap();
        assert_eq!(
            [all.column(0).null_count(), all.column(1).null_count()],
            counts,
            "{nulls}"
        );
    }
    let empty = put("empty.csv", "a,b\n");
    let io = StorageClient::new().unwrap();
    // Nothing says of which types the columns are.
    let fault = source("csv", json!({"path": empty}))
        .discover(&io, &[])
        .unwrap_err();
    assert!(fault.message().contains("no rows"), "{}", fault.message());
    assert!(
        fault
            .hint_text()
            .unwrap()
            .contains("`columns: { a: string }`")
    );
    let declared = json!({"path": empty, "columns": {"a": "int64", "b": "string"}});
    let discovered = source("csv", declared).discover(&io, &[]).unwrap();
    assert_eq!(discovered.schema.fields().len(), 2);
    let _ = concat_batches(&all.schema(), [&all]).unwrap();
}

#[test]
fn configurations_are_completed_and_checked() {
    for (formats, what) in [
        (forebay_connectors::source_formats(), "source"),
        (forebay_connectors::sink_formats(), "sink"),
    ] {
        for format in formats {
            let full = (format.canonical)(json!({"path": "x"})).unwrap();
            assert_eq!(
                (format.canonical)(full.clone()).unwrap(),
                full,
                "{what} {}",
                format.name
            );
            let error = (format.canonical)(json!({"path": "x", "pth": 1})).unwrap_err();
            assert!(error.message.contains("unknown field `pth`"), "{error:?}");
            (format.schema)(&mut schemars::SchemaGenerator::default());
        }
    }
    let fault = forebay_contract::ConnectorRegistry::source(
        &forebay_connectors::BuiltInConnectors,
        "parqet",
        &json!({}),
    )
    .unwrap_err();
    assert_eq!(
        (fault.code().name, fault.hint_text()),
        ("FB0105", Some("did you mean `parquet`?"))
    );
    let csv = forebay_connectors::source_formats()
        .iter()
        .find(|format| format.name == "csv")
        .unwrap();
    let error = (csv.canonical)(json!({"path": "x", "columns": {"a": "in64"}})).unwrap_err();
    assert_eq!(error.path, "columns.a");
    // Rows that begin with such a character would be left out without a word.
    for (setting, characters) in [
        ("comment", &["\"", ",", "##"][..]),
        ("thousands", &["", "..", "1", "-", "x"]),
        ("decimal", &["", ".,"]),
    ] {
        for character in characters {
            let error = (csv.canonical)(json!({"path": "x", setting: character})).unwrap_err();
            assert_eq!(error.path, setting, "{character}");
        }
    }
}

#[test]
fn sources_state_the_paths_that_they_read() {
    let one = json!({"path": "a/*.x"});
    let several = json!({"paths": ["a.x", "b.x"]});
    let formatted = json!({"path": "a", "formats": {"day": "%Y%m%d"}});
    for (format, config, expected) in [
        ("parquet", &one, &["a/*.x"][..]),
        ("parquet", &several, &["a.x", "b.x"]),
        ("parquet", &formatted, &["a"]),
        ("arrow", &several, &["a.x", "b.x"]),
        ("csv", &one, &["a/*.x"]),
        ("csv", &several, &["a.x", "b.x"]),
        ("json", &several, &["a.x", "b.x"]),
        ("delta", &one, &["a/*.x"]),
    ] {
        assert_eq!(source(format, config.clone()).paths(), expected, "{format}");
    }
}

#[test]
fn formats_are_known_by_the_endings_of_files() {
    for (name, expected) in [
        ("a.parquet", Some("parquet")),
        ("a.b.feather", Some("arrow")),
        ("a.arrows", Some("arrow")),
        ("a.csv.gz", Some("csv")),
        ("a.tsv", Some("csv")),
        ("a.ndjson.zst", Some("json")),
        ("a.txt", None),
        ("csv", None),
    ] {
        assert_eq!(forebay_connectors::format_of_name(name), expected, "{name}");
    }
}

#[test]
fn a_registered_kind_replaces_one_of_its_name() {
    let names = |formats: &[ConnectorFormat]| -> Vec<&'static str> {
        formats.iter().map(|format| format.name).collect()
    };
    let mut registry = FormatRegistry::empty();
    assert_eq!(names(registry.sources()), [""; 0]);
    registry
        .register_source::<CsvSource>()
        .register_source::<JsonSource>()
        .register_source::<CsvSource>()
        .register_sink::<JsonSink>();
    assert_eq!(names(registry.sources()), ["json", "csv"]);
    assert_eq!(names(registry.sinks()), ["json"]);
    let built_in = FormatRegistry::built_in();
    assert_eq!(
        names(built_in.sinks()),
        ["parquet", "delta", "arrow", "csv", "json"]
    );
    assert_eq!(names(built_in.trainers()), ["train"]);
    assert_eq!(names(built_in.predictors()), ["predict"]);
}

#[test]
fn files_between_passes_keep_times_in_seconds() {
    let registry = FormatRegistry::built_in();
    let format = registry.intermediate_format();
    let config = json!({ "path": "rows", "keeps_seconds": true });
    let canonical = registry.canonical(format, config).unwrap();
    assert!(registry.sink(format, &canonical).is_ok());
    assert!(registry.source(format, &json!({ "path": "rows" })).is_ok());
}
