//! Columns of texts and whole numbers that are dates or times by a format, in every format of files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::compute::kernels::cast_utils::Parser;
use arrow::datatypes::{DataType, Date32Type, TimestampMicrosecondType};
use datafusion::prelude::{Expr, col, lit};
use forebay_connectors::{BuiltInConnectors, source_formats};
use forebay_contract::{ConnectorRegistry, ScanRequest};
use forebay_model::{BoundValue, Fault, codes};
use forebay_storage::StorageClient;
use serde_json::{Value, json};

use crate::help::{chunks, read, request, source, whole, write};

const FORMATS: [&str; 5] = ["parquet", "delta", "arrow", "csv", "json"];

/// 2024-01-31, 1969-12-31 and 2024-02-29 in days since 1970.
const DAYS: [Option<i32>; 4] = [Some(19_753), Some(-1), None, Some(19_782)];

fn texts(values: [Option<&str>; 4]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn numbers(values: [Option<i64>; 4]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

/// Writes a column as the files of a format, and returns the configuration that reads them.
fn put(format: &str, directory: &Path, column: &ArrayRef) -> Value {
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..column.len() as i32));
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("id", ids, false),
        ("day", column.clone(), true),
    ])
    .unwrap();
    if format != "delta" {
        let file = directory.join(format!("a.{format}"));
        write(format, json!({ "path": "out" }), &file, &[batch]);
        return json!({ "path": file });
    }
    let file = directory.join("a.parquet");
    write("parquet", json!({ "path": "out" }), &file, &[batch]);
    let of = if *column.data_type() == DataType::Utf8 {
        "string"
    } else {
        "long"
    };
    let field = |name: &str, of: &str| json!({ "name": name, "type": of, "nullable": true, "metadata": {} });
    let schema = json!({ "type": "struct", "fields": [field("id", "integer"), field("day", of)] });
    let actions = [
        json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } }),
        json!({ "metaData": {
            "id": "a", "format": { "provider": "parquet", "options": {} },
            "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {},
        } }),
        json!({ "add": {
            "path": "a.parquet", "partitionValues": {}, "size": fs::metadata(&file).unwrap().len(),
            "modificationTime": 0, "dataChange": true,
        } }),
    ];
    let log = directory.join("_delta_log");
    fs::create_dir_all(&log).unwrap();
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    fs::write(log.join("00000000000000000000.json"), lines.join("\n")).unwrap();
    json!({ "path": directory })
}

/// Reads a column by a format.
fn read_as(format: &str, column: &ArrayRef, text: &str, more: Value) -> Result<ArrayRef, Fault> {
    let directory = tempfile::tempdir().unwrap();
    let mut config = put(format, directory.path(), column);
    config["formats"] = json!({ "day": text });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    Ok(read(format, config)?.column_by_name("day").unwrap().clone())
}

fn days(column: &ArrayRef) -> Vec<Option<i32>> {
    column.as_primitive::<Date32Type>().iter().collect()
}

#[test]
fn every_format_of_files_is_here() {
    let known: Vec<&str> = source_formats().iter().map(|format| format.name).collect();
    assert_eq!(known, FORMATS);
}

#[test]
fn texts_and_whole_numbers_are_dates_by_a_format() {
    for format in FORMATS {
        let columns = [
            (
                numbers([Some(20_240_131), Some(19_691_231), None, Some(20_240_229)]),
                "%Y%m%d",
            ),
            (
                texts([Some("20240131"), Some("19691231"), None, Some("20240229")]),
                "%Y%m%d",
            ),
            (
                texts([
                    Some("31.01.2024"),
                    Some("31.12.1969"),
                    None,
                    Some("29.2.2024"),
                ]),
                "%d.%m.%Y",
            ),
            (
                texts([
                    Some("31JAN2024"),
                    Some("31Dec1969"),
                    None,
                    Some("29Feb2024"),
                ]),
                "%d%b%Y",
            ),
        ];
        for (column, text) in columns {
            let read = read_as(format, &column, text, json!({})).unwrap();
            assert_eq!(days(&read), DAYS, "{format} {text}");
        }
        let seconds = numbers([Some(1_706_659_200), Some(-1), None, Some(0)]);
        let read = read_as(format, &seconds, "%s", json!({})).unwrap();
        let times = read.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.timezone(), Some("UTC"), "{format}");
        assert_eq!(
            times.iter().collect::<Vec<_>>(),
            [Some(1_706_659_200_000_000), Some(-1_000_000), None, Some(0)],
            "{format}"
        );
    }
}

#[test]
fn a_value_of_another_form_is_a_fault_or_counted() {
    for format in FORMATS {
        let column = numbers([Some(20_240_131), Some(20_240_230), None, Some(202_402)]);
        let fault = read_as(format, &column, "%Y%m%d", json!({})).unwrap_err();
        assert_eq!(fault.code(), codes::BAD_ROW, "{format}: {fault}");
        assert!(fault.message().contains("`20240230`"), "{format}: {fault}");
        assert!(fault.message().contains("%Y%m%d"), "{format}: {fault}");
        let site = fault.site();
        assert!(site.file.as_deref().unwrap().contains("a."), "{format}");
        assert_eq!(site.column.as_deref(), Some("day"), "{format}");
        assert_eq!(site.rows, [1], "{format}");
        assert!(
            fault.hint_text().unwrap().contains("on_error: missing"),
            "{format}"
        );
        let missing = json!({ "on_error": { "day": "missing" } });
        let read = read_as(format, &column, "%Y%m%d", missing).unwrap();
        assert_eq!(days(&read), [Some(19_753), None, None, None], "{format}");
    }
}

#[test]
fn values_that_become_null_are_counted() {
    for format in FORMATS {
        let directory = tempfile::tempdir().unwrap();
        let column = numbers([Some(20_240_131), Some(20_240_230), None, Some(202_402)]);
        let mut config = put(format, directory.path(), &column);
        config["formats"] = json!({ "day": "%Y%m%d" });
        config["on_error"] = json!("missing");
        let io = StorageClient::new().unwrap();
        let source = source(format, config);
        let dataset = source.discover(&io, &[]).unwrap();
        assert!(
            dataset.null_count("day").is_none_or(|count| count != 1),
            "{format}"
        );
        let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
        let unfit: Vec<_> = chunks.iter().flat_map(|chunk| &chunk.unfit).collect();
        assert_eq!(unfit.len(), 1, "{format}");
        assert_eq!(unfit[0].count, 2, "{format}");
        assert_eq!(unfit[0].examples[0].value, "20240230", "{format}");
        assert_eq!(unfit[0].examples[0].row, 1, "{format}");
        let file = &unfit[0].examples[0].file;
        assert!(!file.contains('/'), "{format}: {file}");
    }
}

#[test]
fn formats_of_other_columns_and_types_are_refused() {
    for format in ["parquet", "delta", "arrow", "json"] {
        let directory = tempfile::tempdir().unwrap();
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, 2.0, 3.0]));
        let mut config = if format == "delta" {
            put(format, directory.path(), &numbers([Some(1); 4]))
        } else {
            put(format, directory.path(), &floats)
        };
        config["formats"] = json!({ "days": "%Y%m%d" });
        let fault = read(format, config.clone()).unwrap_err();
        assert_eq!(fault.code(), codes::UNKNOWN_COLUMN, "{format}");
        assert!(fault.hint_text().unwrap().contains("`day`"), "{format}");
        if format != "delta" {
            config["formats"] = json!({ "day": "%Y%m%d" });
            let fault = read(format, config.clone()).unwrap_err();
            assert_eq!(fault.code(), codes::COLUMN_TYPE, "{format}");
        }
        config["formats"] = json!({ "day": "%H:%M" });
        let fault = BuiltInConnectors.source(format, &config).unwrap_err();
        assert!(fault.message().contains("formats.day"), "{format}: {fault}");
    }
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![1, 2, 3, 4]));
    let fault = read_as("parquet", &dates, "%Y%m%d", json!({})).unwrap_err();
    assert!(fault.hint_text().unwrap().contains("without one"));
    // A policy for values that always fit would say nothing.
    let config = json!({ "path": "a", "on_error": { "x": "missing" } });
    assert!(BuiltInConnectors.source("parquet", &config).is_err());
}

#[test]
fn declared_columns_are_what_they_are_or_what_they_become() {
    for format in ["csv", "json"] {
        for of in ["date", "string", "int64", "int32"] {
            let column = numbers([Some(20_240_131), Some(19_691_231), None, Some(20_240_229)]);
            let columns = json!({ "columns": { "id": "int32", "day": of } });
            let read = read_as(format, &column, "%Y%m%d", columns).unwrap();
            assert_eq!(days(&read), DAYS, "{format} {of}");
        }
        for of in ["boolean", "float64", "timestamp"] {
            let config =
                json!({ "path": "a", "columns": { "day": of }, "formats": { "day": "%Y%m%d" } });
            assert!(
                BuiltInConnectors.source(format, &config).is_err(),
                "{format} {of}"
            );
        }
    }
}

/// Conditions on a date say nothing about the numbers that it is written as.
#[test]
fn row_groups_are_not_left_out_by_the_numbers_of_dates() {
    let directory = tempfile::tempdir().unwrap();
    let column = numbers([Some(20_240_131), Some(19_691_231), None, Some(20_240_229)]);
    for format in ["parquet", "delta"] {
        let mut config = put(format, directory.path(), &column);
        config["formats"] = json!({ "day": "%Y%m%d" });
        let io = StorageClient::new().unwrap();
        let source = source(format, config);
        let watch = ["day".to_owned()];
        let dataset = source.discover(&io, &watch).unwrap();
        let extent = dataset.spans[0].extent(0).unwrap();
        assert_eq!(extent.min, BoundValue::Int(-1), "{format}");
        assert_eq!(extent.max, BoundValue::Int(19_782), "{format}");
        let request = ScanRequest {
            pruning: vec![
                col("day").lt(lit(datafusion::common::ScalarValue::Date32(Some(20_000)))),
            ],
            ..request(&dataset)
        };
        let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
        assert_eq!(whole(&chunks).num_rows(), 4, "{format}");
    }
}

/// Rows that are read of three row groups, each of a month of 2024, with a condition on the day.
fn rows_read(columns: [ArrayRef; 3], config: Value, condition: Expr) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.parquet");
    let batches: Vec<RecordBatch> = columns
        .into_iter()
        .map(|day| RecordBatch::try_from_iter_with_nullable([("day", day, true)]).unwrap())
        .collect();
    write("parquet", json!({ "path": "out" }), &file, &batches);
    let mut config = config;
    config["path"] = json!(file);
    let io = StorageClient::new().unwrap();
    let source = source("parquet", config);
    let dataset = source.discover(&io, &[]).unwrap();
    let request = ScanRequest {
        pruning: vec![condition],
        ..request(&dataset)
    };
    let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
    chunks.iter().map(|chunk| chunk.batch.num_rows()).sum()
}

/// The first ten days of January, February and March of 2024 as a format has them.
fn written_days(format: &str) -> [ArrayRef; 3] {
    [1, 2, 3].map(|month| -> ArrayRef {
        let days = (1..=10).map(|day| jiff::civil::date(2024, month, day));
        let texts = days.map(|day| day.strftime(format).to_string());
        Arc::new(StringArray::from_iter_values(texts))
    })
}

fn is_day(day: &str) -> Expr {
    lit(datafusion::common::ScalarValue::Date32(Date32Type::parse(
        day,
    )))
}

#[test]
fn row_groups_are_left_out_by_formats_that_have_the_order_of_time() {
    let february = || {
        let day = col("day");
        day.clone()
            .gt_eq(is_day("2024-02-05"))
            .and(day.lt(is_day("2024-02-07")))
    };
    for (format, written, rows) in [
        ("%Y%m%d", "%Y%m%d", 10),
        ("%Y-%m-%d", "%Y-%m-%d", 10),
        ("%F", "%F", 10),
        ("%Y/%m/%d", "%Y/%-m/%-d", 10),
        ("%d.%m.%Y", "%d.%m.%Y", 30),
    ] {
        let config = json!({ "formats": { "day": format } });
        let read = rows_read(written_days(written), config, february());
        assert_eq!(read, rows, "{format}");
    }
    let numbers = written_days("%Y%m%d");
    let numbers = numbers.map(|texts| arrow::compute::cast(&texts, &DataType::Int32).unwrap());
    let config = json!({ "formats": { "day": "%Y%m%d" } });
    assert_eq!(rows_read(numbers, config, february()), 10);
}

/// Values that do not fit a format may be null.
#[test]
fn row_groups_stay_where_values_may_become_null() {
    let mut columns = written_days("%Y%m%d");
    columns[1] = Arc::new(StringArray::from(vec!["20240201", "2024020x", "20240203"]));
    let config = json!({ "formats": { "day": "%Y%m%d" }, "on_error": { "day": "missing" } });
    let condition = || col("day").is_null();
    assert_eq!(rows_read(columns.clone(), config.clone(), condition()), 23);
    // The bounds of February are no days, and those of March are.
    let early = col("day").lt(is_day("2024-01-05"));
    assert_eq!(rows_read(columns, config, early), 13);
}

#[test]
fn folders_are_left_out_by_a_format() {
    let directory = tempfile::tempdir().unwrap();
    for day in ["20240131", "20240229"] {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let file = directory.path().join(format!("day={day}/a.parquet"));
        write("parquet", json!({ "path": "out" }), &file, &[batch]);
    }
    let config = json!({ "path": directory.path(), "formats": { "day": "%Y%m%d" } });
    let io = StorageClient::new().unwrap();
    let source = source("parquet", config);
    let dataset = source.discover(&io, &[]).unwrap();
    let request = ScanRequest {
        pruning: vec![col("day").gt(is_day("2024-02-01"))],
        ..request(&dataset)
    };
    let chunks = chunks(&io, source.as_ref(), &dataset, &request).unwrap();
    let rows: usize = chunks.iter().map(|chunk| chunk.batch.num_rows()).sum();
    assert_eq!(rows, 2);
}

#[test]
fn folders_are_dates_by_a_format() {
    let directory = tempfile::tempdir().unwrap();
    for day in ["20240131", "20240229"] {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let file = directory.path().join(format!("day={day}/a.parquet"));
        write("parquet", json!({ "path": "out" }), &file, &[batch]);
    }
    let config = json!({ "path": directory.path(), "formats": { "day": "%Y%m%d" } });
    let batch = read("parquet", config).unwrap();
    let column = batch.column_by_name("day").unwrap();
    assert_eq!(days(column), [19_753, 19_753, 19_782, 19_782].map(Some));
}
