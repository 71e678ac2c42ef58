//! Types of files: times of INT96, and columns whose types differ from file to file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use forebay_model::codes;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use crate::help::{read, write};

/// The Julian day of 1970-01-01.
const EPOCH_DAY: i64 = 2_440_588;

const NANOSECONDS_PER_DAY: i128 = 86_400_000_000_000;

fn write_int96(file: &Path, nanoseconds: &[i128]) {
    let schema = Arc::new(parse_message_type("message m { required int96 t; }").unwrap());
    let mut writer =
        SerializedFileWriter::new(File::create(file).unwrap(), schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<Int96> = nanoseconds
        .iter()
        .map(|at| {
            let day = at.div_euclid(NANOSECONDS_PER_DAY) as i64 + EPOCH_DAY;
            let of_day = at.rem_euclid(NANOSECONDS_PER_DAY) as u64;
            let mut value = Int96::new();
            value.set_data(of_day as u32, (of_day >> 32) as u32, day as u32);
            value
        })
        .collect();
    column
        .typed::<Int96Type>()
        .write_batch(&values, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn far_times_of_int96_stay_and_fine_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let far = dir.path().join("far.parquet");
    // The years 1, 1676, 1970, 2263 and 9999.
    let seconds: [i128; 5] = [
        -62_135_596_800,
        -9_270_000_000,
        1,
        9_250_000_000,
        253_402_214_400,
    ];
    let nanoseconds: Vec<i128> = seconds
        .iter()
        .map(|at| at * 1_000_000_000 + 5_000)
        .collect();
    write_int96(&far, &nanoseconds);
    let batch = read("parquet", json!({"path": far})).unwrap();
    let expected = TimestampMicrosecondArray::from_iter_values(
        seconds.iter().map(|at| (at * 1_000_000 + 5) as i64),
    );
    assert_eq!(
        batch.column(0).as_ref(),
        &expected as &dyn arrow::array::Array
    );
    let fine = dir.path().join("fine.parquet");
    write_int96(&fine, &[0, 1_000, 1_001]);
    let fault = read("parquet", json!({"path": fine})).unwrap_err();
    assert_eq!(fault.code(), codes::BAD_ROW);
    assert_eq!(fault.site().rows, [2]);
    assert_eq!(fault.site().column.as_deref(), Some("t"));
}

fn table(column: &ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", column.clone(), true)]).unwrap()
}

/// Reads one file for each column.
fn read_together(
    format: &str,
    columns: &[ArrayRef],
    schema: &Value,
) -> forebay_model::Result<ArrayRef> {
    let dir = tempfile::tempdir().unwrap();
    for (at, column) in columns.iter().enumerate() {
        let file = dir.path().join(format!("{at}.{format}"));
        write(format, json!({"path": "out"}), &file, &[table(column)]);
    }
    let batch = read(format, json!({"path": dir.path(), "schema": schema}))?;
    Ok(batch.column(0).clone())
}

#[test]
fn files_of_several_writers_are_one_column() {
    for format in ["parquet", "arrow"] {
        let units: [ArrayRef; 3] = [
            Arc::new(TimestampNanosecondArray::from(vec![1_500])),
            Arc::new(TimestampMicrosecondArray::from(vec![2])),
            Arc::new(TimestampMillisecondArray::from(vec![3])),
        ];
        let found = read_together(format, &units, &json!({})).unwrap();
        let expected = TimestampNanosecondArray::from(vec![1_500, 2_000, 3_000_000]);
        assert_eq!(
            found.as_ref(),
            &expected as &dyn arrow::array::Array,
            "{format}"
        );
        let zones: [ArrayRef; 2] = [
            Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("+00:00")),
            Arc::new(TimestampMicrosecondArray::from(vec![2]).with_timezone("Etc/UTC")),
        ];
        let found = read_together(format, &zones, &json!({})).unwrap();
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        assert_eq!(found.data_type(), &utc, "{format}");
        // Whole numbers that pandas made floats where one was missing.
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let floats = cast(&numbers, &DataType::Float64).unwrap();
        let mixed = [numbers, floats.clone()];
        let fault = read_together(format, &mixed, &json!({})).unwrap_err();
        assert_eq!(fault.code(), codes::SCHEMA_DRIFT);
        assert!(fault.notes()[0].contains("widening"), "{:?}", fault.notes());
        let wide = json!({"widening": true});
        let found = read_together(format, &mixed, &wide).unwrap();
        assert_eq!(found.data_type(), &DataType::Float64);
        let large: ArrayRef = Arc::new(Int64Array::from(vec![1, (1 << 53) + 1]));
        let fault = read_together(format, &[floats, large], &wide).unwrap_err();
        assert!(fault.message().contains("9007199254740993"), "{fault:?}");
        assert_eq!(fault.site().rows, [1]);
        assert!(fault.site().file.as_deref().unwrap().contains("1."));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let fault = read_together(format, &[texts, numbers], &wide).unwrap_err();
        assert!(
            fault.notes()[0].contains("different things"),
            "{:?}",
            fault.notes()
        );
    }
}
