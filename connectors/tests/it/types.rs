//! Types of files: times of INT96, and columns whose types differ from file to file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal32Array, DictionaryArray, Int8Array, Int64Array,
    IntervalDayTimeArray, ListArray, MapArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UnionBuilder,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Int8Type, Int64Type, IntervalDayTime, IntervalDayTimeType, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::ipc::writer::FileWriter;
use forebay_model::codes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
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
    assert!(fault.hint_text().unwrap().contains("int96: nanoseconds"));
}

#[test]
fn fine_times_of_int96_are_read_on_request_and_far_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let nanoseconds = |name: &str, times: &[i128]| {
        let path = dir.path().join(name);
        write_int96(&path, times);
        read("parquet", json!({"path": path, "int96": "nanoseconds"}))
    };
    let times = [
        0,
        1_001,
        -1_001,
        9_223_372_036_854_775_807,
        -9_223_286_400_000_000_000,
    ];
    let batch = nanoseconds("fine.parquet", &times).unwrap();
    let expected = TimestampNanosecondArray::from_iter_values(times.map(|at| at as i64));
    assert_eq!(
        batch.column(0).as_ref(),
        &expected as &dyn arrow::array::Array
    );
    let fault = nanoseconds("far.parquet", &[1, 253_402_214_400_000_000_000]).unwrap_err();
    assert_eq!(fault.code(), codes::BAD_ROW);
    assert_eq!(fault.site().rows, [1]);
    assert!(fault.message().contains("9999-12-31"));
}

/// Writes columns as another program does: in their own layouts.
fn write_arrow(file: &Path, columns: Vec<(&str, ArrayRef)>) {
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(file).unwrap();
    let mut writer = FileWriter::try_new(file, &rows.schema()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
}

#[test]
fn layouts_of_arrow_files_are_read_as_plain_types() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.arrow");
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("a")]));
    let item = |of: &DataType| Arc::new(Field::new_list_field(of.clone(), true));
    let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
    let lists = ListArray::new(item(&DataType::Utf8), offsets.clone(), texts.clone(), None);
    let lists: ArrayRef = Arc::new(lists);
    let run_ends = Field::new("run_ends", DataType::Int32, false);
    let run_values = Field::new("values", DataType::Utf8, true);
    let runs = DataType::RunEndEncoded(run_ends.into(), run_values.into());
    let keyed = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let keyed = cast(&texts, &keyed).unwrap();
    let keyed_lists = ListArray::new(item(keyed.data_type()), offsets, keyed, None);
    let views = cast(&lists, &DataType::ListView(item(&DataType::Utf8))).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 7]));
    let keyed_numbers = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64));
    let words = StringArray::from(vec![None, Some("b")]);
    let keys = Int8Array::from(vec![0, 1, 0]);
    let words = DictionaryArray::<Int8Type>::new(keys, Arc::new(words));
    write_arrow(
        &file,
        vec![
            ("runs", cast(&texts, &runs).unwrap()),
            ("keyed_lists", Arc::new(keyed_lists)),
            ("views", views),
            ("keyed_numbers", cast(&numbers, &keyed_numbers).unwrap()),
            ("keyed_words", Arc::new(words)),
        ],
    );
    let rows = read("arrow", json!({ "path": directory.path() })).unwrap();
    let words: ArrayRef = Arc::new(StringArray::from(vec![None, Some("b"), None]));
    let expected = [texts, lists.clone(), lists, numbers, words];
    for (column, expected) in rows.columns().iter().zip(&expected) {
        assert_eq!(column.to_data(), expected.to_data());
    }
    let mut values = UnionBuilder::new_dense();
    values.append::<Int64Type>("number", 1).unwrap();
    let union: ArrayRef = Arc::new(values.build().unwrap());
    write_arrow(&file, vec![("either", union)]);
    let fault = read("arrow", json!({ "path": directory.path() })).unwrap_err();
    assert_eq!(fault.code(), codes::UNSUPPORTED);
    assert_eq!(fault.site().column.as_deref(), Some("either"));
    assert!(fault.site().file.as_deref().unwrap().contains("a.arrow"));
}

fn map_of(key: &str, value: &str, values: ArrayRef) -> ArrayRef {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..values.len()).map(|row| format!("key {row}")),
    ));
    let fields = vec![
        Field::new(key, DataType::Utf8, false),
        Field::new(value, values.data_type().clone(), true),
    ];
    let rows = values.len();
    let entries = StructArray::new(fields.into(), vec![keys, values], None);
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(1, rows));
    Arc::new(MapArray::new(entry, offsets, entries, None, false))
}

/// Keys of maps that writers name apart, and texts that one of them did not annotate.
#[test]
fn maps_and_texts_of_several_writers_are_one_column() {
    for format in ["parquet", "arrow"] {
        let numbers = |number: i64| Arc::new(Int64Array::from(vec![number])) as ArrayRef;
        let maps = [
            map_of("key", "value", numbers(1)),
            map_of("keys", "values", numbers(2)),
        ];
        let column = read_together(format, &maps, &json!({})).unwrap();
        let values = column.as_map().values().as_primitive::<Int64Type>();
        assert_eq!(values.values(), &[1, 2], "{format}");
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["ünï"]));
        let bytes = cast(&texts, &DataType::Binary).unwrap();
        let mixed = [texts.clone(), bytes];
        let fault = read_together(format, &mixed, &json!({})).unwrap_err();
        assert_eq!(fault.code(), codes::SCHEMA_DRIFT);
        let wide = json!({ "widening": true });
        let column = read_together(format, &mixed, &wide).unwrap();
        let column = column.as_string::<i32>();
        assert_eq!(column.value(0), column.value(1), "{format}");
        let broken: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\xff"[..]]));
        let fault = read_together(format, &[texts, broken], &wide).unwrap_err();
        assert_eq!(fault.site().rows, [0]);
        assert!(fault.message().contains("ff"), "{fault}");
    }
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
        let combined = read_together(format, &units, &json!({})).unwrap();
        let expected = TimestampNanosecondArray::from(vec![1_500, 2_000, 3_000_000]);
        assert_eq!(
            combined.as_ref(),
            &expected as &dyn arrow::array::Array,
            "{format}"
        );
        let zones: [ArrayRef; 2] = [
            Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("+00:00")),
            Arc::new(TimestampMicrosecondArray::from(vec![2]).with_timezone("Etc/UTC")),
        ];
        let combined = read_together(format, &zones, &json!({})).unwrap();
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        assert_eq!(combined.data_type(), &utc, "{format}");
        for (names, expected) in [
            (["US/Eastern", "America/New_York"], Some("America/New_York")),
            (["Asia/Kolkata", "Asia/Calcutta"], Some("Asia/Kolkata")),
            (["+05:30", "+0530"], Some("+05:30")),
            (["GMT", "Zulu"], Some("UTC")),
            (["Europe/Berlin", "Europe/Paris"], None),
        ] {
            let zones: [ArrayRef; 2] = names.map(|name| {
                let times = TimestampMicrosecondArray::from(vec![1]).with_timezone(name);
                Arc::new(times) as ArrayRef
            });
            let combined = read_together(format, &zones, &json!({}));
            let data_type = combined
                .as_ref()
                .ok()
                .map(|combined| combined.data_type().clone());
            let expected =
                expected.map(|zone| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into())));
            assert_eq!(data_type, expected, "{names:?} in {format}");
        }
        // Whole numbers that pandas made floats where one was missing.
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let floats = cast(&numbers, &DataType::Float64).unwrap();
        let mixed = [numbers, floats.clone()];
        let fault = read_together(format, &mixed, &json!({})).unwrap_err();
        assert_eq!(fault.code(), codes::SCHEMA_DRIFT);
        assert!(fault.notes()[0].contains("widening"), "{:?}", fault.notes());
        let wide = json!({"widening": true});
        let combined = read_together(format, &mixed, &wide).unwrap();
        assert_eq!(combined.data_type(), &DataType::Float64);
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

#[test]
fn narrow_decimals_are_read_in_128_bits() {
    for format in ["parquet", "arrow"] {
        let narrow = Decimal32Array::from(vec![Some(150), None]).with_precision_and_scale(5, 2);
        let narrow: ArrayRef = Arc::new(narrow.unwrap());
        let middle = cast(&narrow, &DataType::Decimal64(5, 2)).unwrap();
        let wide = cast(&narrow, &DataType::Decimal128(5, 2)).unwrap();
        let item = Arc::new(Field::new_list_field(narrow.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 0]);
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, narrow.clone(), None));
        let combined = read_together(format, &[narrow, middle, wide.clone()], &json!({})).unwrap();
        assert_eq!(combined.data_type(), wide.data_type(), "{format}");
        assert_eq!(combined.len(), 6);
        assert_eq!(combined.slice(2, 2).to_data(), wide.to_data(), "{format}");
        let combined = read_together(format, &[lists], &json!({})).unwrap();
        let values = combined.as_list::<i32>().values();
        assert_eq!(values.to_data(), wide.to_data(), "{format}");
    }
}

/// A column of lengths, written with or without the schema of Arrow that tells their unit.
fn write_intervals(file: &Path, is_told: bool) {
    let lengths: ArrayRef = Arc::new(IntervalDayTimeArray::from(vec![IntervalDayTime::new(1, 2)]));
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let rows = RecordBatch::try_from_iter([("length", lengths), ("id", ids)]).unwrap();
    let options = ArrowWriterOptions::new().with_skip_arrow_metadata(!is_told);
    let file = File::create(file).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

#[test]
fn lengths_whose_months_would_be_lost_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.parquet");
    write_intervals(&file, false);
    let fault = read("parquet", json!({ "path": file })).unwrap_err();
    assert_eq!(fault.code(), codes::UNSUPPORTED);
    assert_eq!(fault.site().column.as_deref(), Some("length"));
    let ids = read("parquet", json!({ "path": file, "columns": ["id"] })).unwrap();
    assert_eq!(ids.num_rows(), 1);
    write_intervals(&file, true);
    let lengths = read("parquet", json!({ "path": file })).unwrap();
    let lengths = lengths.column(0).as_primitive::<IntervalDayTimeType>();
    assert_eq!(lengths.value(0), IntervalDayTime::new(1, 2));
}

/// pandas writes nanoseconds, and Spark the end of all times.
#[test]
fn times_are_read_in_microseconds_on_request() {
    let directory = tempfile::tempdir().unwrap();
    const END: i64 = 253_402_214_400_000_000;
    let far: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![END]));
    let put = |nanosecond: i64| {
        let fine: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![nanosecond]));
        for (name, column) in [("a.parquet", &fine), ("b.parquet", &far)] {
            let file = directory.path().join(name);
            write("parquet", json!({ "path": "out" }), &file, &[table(column)]);
        }
    };
    put(-1_000);
    let config = json!({ "path": directory.path() });
    let fault = read("parquet", config.clone()).unwrap_err();
    assert!(fault.hint_text().unwrap().contains("times: microseconds"));
    let mut config = config;
    config["schema"] = json!({ "times": "microseconds" });
    let times = read("parquet", config.clone()).unwrap();
    let times = times.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values(), &[-1, END]);
    put(1_001);
    let fault = read("parquet", config).unwrap_err();
    assert!(
        fault.message().contains("1970-01-01T00:00:00.000001001"),
        "{fault}"
    );
}

/// Spark wrote INT96 first and times in UTC later; pandas writes both.
#[test]
fn times_without_a_zone_are_instants_in_utc_on_request() {
    let directory = tempfile::tempdir().unwrap();
    write_int96(&directory.path().join("a.parquet"), &[1_000, -2_000]);
    let times = |unit: TimeUnit, tick: i64| {
        let ticks: ArrayRef = Arc::new(Int64Array::from(vec![tick]));
        cast(&ticks, &DataType::Timestamp(unit, Some("UTC".into()))).unwrap()
    };
    let column = times(TimeUnit::Microsecond, 3);
    let rows = RecordBatch::try_from_iter_with_nullable([("t", column, true)]).unwrap();
    let file = directory.path().join("b.parquet");
    write("parquet", json!({ "path": "out" }), &file, &[rows]);
    let mut config = json!({ "path": directory.path() });
    let fault = read("parquet", config.clone()).unwrap_err();
    assert_eq!(fault.code(), codes::SCHEMA_DRIFT);
    assert!(fault.hint_text().unwrap().contains("local_times: utc"));
    config["schema"] = json!({ "local_times": "utc" });
    let read_times = read("parquet", config).unwrap();
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    assert_eq!(read_times.column(0).data_type(), &utc);
    let ticks = read_times
        .column(0)
        .as_primitive::<TimestampMicrosecondType>();
    assert_eq!(ticks.values(), &[1, -2, 3]);
    for format in ["parquet", "arrow"] {
        let local: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![i64::MIN, 7]));
        let utc = json!({ "local_times": "utc" });
        let column = read_together(format, &[local, times(TimeUnit::Millisecond, 8)], &utc);
        let column = column.unwrap();
        let ticks = cast(&column, &DataType::Int64).unwrap();
        let ticks = ticks.as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(ticks, [i64::MIN, 7, 8], "{format}");
    }
}
