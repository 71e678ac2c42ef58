//! What a sink writes, its source reads back equal; else the sink refuses it.
//!
//! Each column of awkward values goes through each format, as it is and nested. `FOREBAY_ROUND_TRIPS=N` adds N random
//! columns of each type.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::*;
use forebay_connectors::BuiltInConnectors;
use forebay_contract::{ConnectorRegistry, Sink, TableCommit, TableFile, TableScope, total_rows};
use forebay_model::{Fault, FaultDomain, Result, TextRules, codes, logical_type};
use forebay_storage::{IgnoreEvents, ScratchDir, StorageClient};
use serde_json::json;

use crate::help::read;

type F16 = <Float16Type as ArrowPrimitiveType>::Native;

const FORMATS: [&str; 8] = [
    "parquet", "arrow", "delta", "csv", "csv.gz", "json", "json.gz", "json.zst",
];

/// What formats refuse whatever its values are.
const FORMLESS: [(&str, &[&str]); 4] = [
    (
        "parquet",
        &[
            "date64 with a clock",
            "decimal128(5, -2)",
            "decimal128(38, -38)",
            "decimal256(60, -2)",
            "interval parts",
        ],
    ),
    ("arrow", &[]),
    ("csv", FORMLESS_IN_TEXT),
    // JSON has maps.
    ("json", FORMLESS_IN_TEXT.split_at(18).0),
];

const FORMLESS_IN_TEXT: &[&str] = &[
    "duration s",
    "duration ms",
    "duration µs",
    "duration ns",
    "bytes",
    "large bytes",
    "bytes view",
    "fixed bytes",
    "runs",
    "runs of numbers",
    "runs of times",
    "list view",
    "large list view",
    "dictionary of bytes",
    "dictionary of byte views",
    "interval months",
    "interval days",
    "interval parts",
    "map by numbers",
    "map by dates",
    "map by decimals",
    "map by times",
];

/// Columns that are written and read as one.
struct TestColumn {
    about: String,
    values: ArrayRef,
}

impl TestColumn {
    fn new(about: impl Into<String>, values: ArrayRef) -> TestColumn {
        TestColumn {
            about: about.into(),
            values,
        }
    }
}

/// A sink, and the source that reads it.
struct RoundTrip {
    format: &'static str,
    compression: &'static str,
    folder: tempfile::TempDir,
}

impl RoundTrip {
    fn new(of: &'static str) -> RoundTrip {
        let (format, compression) = match of.split_once('.') {
            Some((format, "gz")) => (format, "gzip"),
            Some((format, _)) => (format, "zstd"),
            None => (of, "none"),
        };
        RoundTrip {
            format,
            compression,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// True if null has a word in the files, beside empty fields.
    fn has_null_text(&self) -> bool {
        self.format == "csv" && self.compression != "none"
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let path = self.folder.path().join("out");
        let config = match self.format {
            "delta" => json!({ "path": path }),
            "csv" if self.has_null_text() => {
                json!({"path": path, "null_text": "<null>", "compression": self.compression})
            }
            _ => json!({ "path": path, "compression": self.compression }),
        };
        BuiltInConnectors.sink(self.format, &config).unwrap()
    }

    /// Writes a column; a fault refuses it.
    fn write(&self, batch: &RecordBatch) -> Result<()> {
        let sink = self.sink();
        let folder = self.folder.path().join("out");
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        sink.check_schema(&batch.schema())?;
        let name = format!("a.{}", sink.extension());
        let file = folder.join(&name);
        write_file(sink.as_ref(), &file, batch)?;
        if let Some(log) = sink.table() {
            let io = StorageClient::new().unwrap();
            let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
            log.check(&io, &batch.schema())?;
            log.commit(
                &io,
                &TableCommit {
                    content: "content",
                    schema: &batch.schema(),
                    files: vec![TableFile {
                        path: &name,
                        rows: batch.num_rows() as u64,
                        bytes: file.metadata().unwrap().len(),
                    }],
                    scope: TableScope::All,
                    may: &|| Ok(()),
                    scratch: &scratch,
                },
            )?;
        }
        Ok(())
    }

    /// Reads the column in the type that it was written with. With `declared`, sources of text are told the type where
    /// they can be.
    fn read(&self, of: &DataType, is_declared: bool) -> std::result::Result<ArrayRef, String> {
        let mut config = json!({"path": self.folder.path().join("out")});
        if is_declared {
            config["columns"] = json!({"c": declared_type(of)});
        }
        if self.has_null_text() {
            config["nulls"] = json!(["<null>"]);
        }
        let batch = read(self.format, config).map_err(|fault| format!("{fault:?}"))?;
        let column = batch.column_by_name("c").ok_or("no column")?;
        as_written(column, of)
    }

    /// Writes and reads a column, beside another one and alone; `Err` where the sink refuses it.
    fn check(&self, column: &ArrayRef) -> std::result::Result<(), Outcome> {
        let beside = [
            ("id", row_numbers(column.len()), false),
            ("c", column.clone(), true),
        ];
        let beside = RecordBatch::try_from_iter_with_nullable(beside).unwrap();
        self.check_batch(&beside, column)?;
        // Rows of one column without a value are blank lines.
        let alone = RecordBatch::try_from_iter_with_nullable([("c", column.clone(), true)]);
        if self.format == "csv" {
            self.check_batch(&alone.unwrap(), column)?;
        }
        Ok(())
    }

    fn check_batch(
        &self,
        batch: &RecordBatch,
        column: &ArrayRef,
    ) -> std::result::Result<(), Outcome> {
        let of = column.data_type();
        self.write(batch).map_err(Outcome::Refused)?;
        let readings: &[bool] = match self.format {
            "csv" => &[true],
            "json" if of.is_nested() => &[false],
            "json" => &[true, false],
            _ => &[false],
        };
        for is_declared in readings {
            let back = self.read(of, *is_declared).map_err(Outcome::Unread)?;
            // Layouts of one type are not told apart.
            let expected = cast(column, &plain_type(of)).unwrap();
            let back = cast(&back, &plain_type(of)).unwrap();
            if back.to_data() != expected.to_data() {
                return Err(Outcome::Unread(format!("{back:?} and not {expected:?}")));
            }
        }
        Ok(())
    }
}

enum Outcome {
    Refused(Fault),
    Unread(String),
}

fn row_numbers(rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(0..rows as i64))
}

fn write_file(sink: &dyn Sink, file: &Path, batch: &RecordBatch) -> Result<()> {
    let schema = batch.schema();
    let mut writer = sink.open_writer(&schema, Box::new(File::create(file).unwrap()))?;
    // In two parts, as a run writes row groups.
    let middle = batch.num_rows() / 2;
    for part in [
        batch.slice(0, middle),
        batch.slice(middle, batch.num_rows() - middle),
    ] {
        assert_eq!(
            total_rows(std::slice::from_ref(&part)),
            part.num_rows() as u64
        );
        let part = sink.encode(&schema, &[part])?;
        writer.append(part)?;
    }
    writer.finish()
}

/// The type to declare at a source of text.
fn declared_type(of: &DataType) -> &'static str {
    match of {
        DataType::Boolean => "boolean",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float32 => "float32",
        DataType::Float64 => "float64",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "timestamp_ns",
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp_utc",
        _ => "string",
    }
}

/// Logical types at all depths.
fn plain_type(of: &DataType) -> DataType {
    let plain = |field: &FieldRef| {
        Arc::new(
            field
                .as_ref()
                .clone()
                .with_data_type(plain_type(field.data_type())),
        )
    };
    match of {
        DataType::List(item) => DataType::List(plain(item)),
        DataType::LargeList(item) => DataType::LargeList(plain(item)),
        DataType::FixedSizeList(item, width) => DataType::FixedSizeList(plain(item), *width),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::Map(entries, sorted) => DataType::Map(plain(entries), *sorted),
        DataType::ListView(item) => DataType::List(plain(item)),
        DataType::LargeListView(item) => DataType::LargeList(plain(item)),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        other => logical_type(other),
    }
}

/// What was read, in the type that was written: texts as `cast` reads them, all else where nothing is lost.
fn as_written(column: &ArrayRef, of: &DataType) -> std::result::Result<ArrayRef, String> {
    let of = &plain_type(of);
    if column.data_type() == of {
        return Ok(column.clone());
    }
    let failed = |error: arrow::error::ArrowError| error.to_string();
    match (column.data_type(), of) {
        (DataType::Dictionary(..), _) => {
            let plain = logical_type(column.data_type());
            as_written(&cast(column, &plain).map_err(failed)?, of)
        }
        (DataType::List(_), DataType::Map(entries, sorted)) => {
            let lists = column.as_list::<i32>();
            let values = as_written(lists.values(), entries.data_type())?;
            let values = values.as_struct().clone();
            let nulls = lists.nulls().cloned();
            let maps = MapArray::try_new(
                entries.clone(),
                lists.offsets().clone(),
                values,
                nulls,
                *sorted,
            );
            Ok(Arc::new(maps.map_err(failed)?))
        }
        (
            DataType::List(_),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
        ) => {
            let lists = column.as_list::<i32>();
            let values = as_written(lists.values(), item.data_type())?;
            let lists = ListArray::try_new(
                item.clone(),
                lists.offsets().clone(),
                values,
                lists.nulls().cloned(),
            );
            strict_cast(&(Arc::new(lists.map_err(failed)?) as ArrayRef), of)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let objects = column.as_struct();
            let values = fields.iter().map(|field| {
                let values = objects.column_by_name(field.name()).ok_or("no field")?;
                as_written(values, field.data_type())
            });
            let values = values.collect::<std::result::Result<Vec<_>, String>>()?;
            let objects = StructArray::try_new(fields.clone(), values, objects.nulls().cloned());
            Ok(Arc::new(objects.map_err(failed)?))
        }
        (DataType::Utf8, of) if *of != DataType::Binary => {
            let texts = column.as_string::<i32>();
            TextRules::declared()
                .read_all(texts, of)
                .map_err(|row| format!("`{}` is not {of}", texts.value(row)))
        }
        _ => strict_cast(column, of),
    }
}

fn strict_cast(column: &ArrayRef, of: &DataType) -> std::result::Result<ArrayRef, String> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, of, &strict).map_err(|error| error.to_string())
}

/// Texts that formats of text are known to lose.
const TEXTS: [&str; 44] = [
    "",
    " ",
    "  two  ",
    "\t",
    "\"",
    "\"\"",
    "\"a\"",
    "a\"b",
    ",",
    "a,b",
    ";",
    "|",
    "\n",
    "\r",
    "\r\n",
    "a\nb",
    "a\r\nb",
    "\0",
    "a\0b",
    "\u{2028}",
    "\u{2029}",
    "\u{85}",
    "\u{feff}x",
    "NaN",
    "null",
    "NULL",
    "\\N",
    "true",
    "007",
    "1e308",
    "-0",
    "0001-01-01",
    "{}",
    "[]",
    "{\"a\":1}",
    "\\",
    "\\\"",
    "'",
    "#x",
    "=1+1",
    "\u{7f}",
    "ünï",
    "👩‍👩‍👧",
    "\u{10ffff}",
];

const INSTANTS: [i64; 22] = [
    0,
    -1,
    1,
    // The years 1 and 9999, and one second beyond each.
    -62_135_596_800,
    -62_135_596_801,
    253_402_300_799,
    253_402_300_800,
    // 1582, 1883 in New York, 1937 in Amsterdam, 1972 in Monrovia.
    -12_219_292_800,
    -2_717_650_800,
    -1_025_740_800,
    63_593_070,
    // An hour that a clock shows twice.
    1_699_160_400,
    1_699_164_000,
    1_711_846_800,
    951_868_799,
    // The ends of nanoseconds.
    -9_223_372_036,
    9_223_372_036,
    -9_223_372_037,
    9_223_372_037,
    4_102_444_800,
    i64::MIN,
    i64::MAX,
];

/// Zones of microseconds; times of other units have the first three.
const ZONES: [Option<&str>; 8] = [
    None,
    Some("UTC"),
    Some("Africa/Monrovia"),
    Some("+00:00"),
    Some("+02:00"),
    Some("-09:30"),
    Some("America/New_York"),
    Some("Europe/Amsterdam"),
];

/// The first and the last second that texts hold.
const TEXT_SECONDS: [i64; 2] = [-62_135_596_800, 253_402_300_799];

/// Times of a unit: whole seconds of the years 1 to 9999, ticks beside them, and times of other years.
fn ticks(per_second: i64) -> [(&'static str, Vec<i64>); 3] {
    let [first, last] = TEXT_SECONDS.map(|second| second.saturating_mul(per_second));
    let mut whole = Vec::new();
    let mut fine = Vec::new();
    let mut far = vec![i64::MIN, i64::MAX];
    for instant in INSTANTS {
        let Some(tick) = instant.checked_mul(per_second) else {
            continue;
        };
        if (first..=last).contains(&tick) {
            whole.push(tick);
            fine.extend([tick.saturating_add(1), tick.saturating_sub(1)]);
        } else {
            far.push(tick);
        }
    }
    fine.retain(|tick| (first..last).contains(tick));
    [("", whole), (" fine", fine), (" far", far)]
}

/// Integers as an array of a type that holds them as they are.
fn of_ticks(ticks: &[i64], of: &DataType) -> ArrayRef {
    let nullable = ticks.iter().copied().map(Some).chain([None]);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(nullable));
    cast(&numbers, of).unwrap()
}

fn with_null<T: ArrowPrimitiveType>(values: &[T::Native]) -> ArrayRef {
    let nullable = values.iter().copied().map(Some).chain([None]);
    Arc::new(PrimitiveArray::<T>::from_iter(nullable))
}

fn integers(columns: &mut Vec<TestColumn>) {
    macro_rules! add {
        ($($of:ty: $native:ty;)*) => {$(
            let values = [<$native>::MIN, <$native>::MAX, 0, 1, 42, <$native>::MAX - 1];
            columns.push(TestColumn::new(stringify!($native), with_null::<$of>(&values)));
        )*};
    }
    add! {
        Int8Type: i8; Int16Type: i16; Int32Type: i32; Int64Type: i64;
        UInt8Type: u8; UInt16Type: u16; UInt32Type: u32; UInt64Type: u64;
    }
    let beyond_floats = [(1 << 53) + 1, -(1 << 53) - 1];
    columns.push(TestColumn::new(
        "beyond floats",
        with_null::<Int64Type>(&beyond_floats),
    ));
}

fn floats(columns: &mut Vec<TestColumn>) {
    let doubles = [
        0.0,
        -0.0,
        1e308,
        -1e308,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        0.1,
        1.0 / 3.0,
        1e23,
        1e22,
        1e21,
        123_456_789_012_345_680.0,
        1.0,
        1e-7,
        9_007_199_254_740_993.0,
    ];
    columns.push(TestColumn::new("f64", with_null::<Float64Type>(&doubles)));
    let words = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5, -0.0];
    columns.push(TestColumn::new(
        "f64 words",
        with_null::<Float64Type>(&words),
    ));
    let singles = [
        0.0,
        -0.0,
        1e38,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-45,
        0.1,
        16_777_217.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    columns.push(TestColumn::new("f32", with_null::<Float32Type>(&singles)));
    let halves = [
        F16::ZERO,
        F16::NEG_ZERO,
        F16::MAX,
        F16::MIN,
        F16::MIN_POSITIVE,
        F16::from_f32(0.1),
        F16::NAN,
        F16::INFINITY,
        F16::NEG_INFINITY,
    ];
    columns.push(TestColumn::new("f16", with_null::<Float16Type>(&halves)));
}

fn times(columns: &mut Vec<TestColumn>) {
    use DataType::*;
    let days = [0, -1, -719_162, 2_932_896, -141_428, 19_782];
    columns.push(TestColumn::new("date", with_null::<Date32Type>(&days)));
    let far = [-719_163, -719_529, 2_932_897, i32::MIN, i32::MAX];
    columns.push(TestColumn::new("far date", with_null::<Date32Type>(&far)));
    let millis: Vec<i64> = [0, -1, -719_162, 2_932_896, 19_782]
        .iter()
        .map(|day: &i64| day * 86_400_000)
        .collect();
    columns.push(TestColumn::new("date64", with_null::<Date64Type>(&millis)));
    let uneven = with_null::<Date64Type>(&[1, 86_399_999]);
    columns.push(TestColumn::new("date64 with a clock", uneven));
    let seconds = [0, 1, 86_399, 43_200];
    columns.push(TestColumn::new(
        "time s",
        with_null::<Time32SecondType>(&seconds),
    ));
    let millis = [0, 1, 86_399_999, 43_200_500];
    columns.push(TestColumn::new(
        "time ms",
        with_null::<Time32MillisecondType>(&millis),
    ));
    let micros = [0, 1, 86_399_999_999];
    columns.push(TestColumn::new(
        "time us",
        with_null::<Time64MicrosecondType>(&micros),
    ));
    let nanos = [0, 1, 86_399_999_999_999];
    columns.push(TestColumn::new(
        "time ns",
        with_null::<Time64NanosecondType>(&nanos),
    ));
    let units = [
        (TimeUnit::Second, 1),
        (TimeUnit::Millisecond, 1_000),
        (TimeUnit::Microsecond, 1_000_000),
        (TimeUnit::Nanosecond, 1_000_000_000),
    ];
    for (unit, per_second) in units {
        let zones = match unit {
            TimeUnit::Microsecond => ZONES.len(),
            _ => 3,
        };
        for zone in &ZONES[..zones] {
            let of = Timestamp(unit, zone.map(Into::into));
            for (kind, ticks) in ticks(per_second) {
                columns.push(TestColumn::new(
                    format!("{of}{kind}"),
                    of_ticks(&ticks, &of),
                ));
            }
        }
        let lengths = of_ticks(&[0, 1, -1, i64::MIN, i64::MAX], &Duration(unit));
        columns.push(TestColumn::new(format!("duration {unit}"), lengths));
    }
}

fn decimals(columns: &mut Vec<TestColumn>) {
    let most = 10_i128.pow(38) - 1;
    for (precision, scale) in [(38, 0), (38, 2), (38, 38), (38, 10)] {
        let values = [0, 1, -1, most, -most, 10, 100];
        let values =
            PrimitiveArray::<Decimal128Type>::from_iter(values.into_iter().map(Some).chain([None]));
        let values = values.with_precision_and_scale(precision, scale).unwrap();
        columns.push(TestColumn::new(
            format!("decimal128({precision}, {scale})"),
            Arc::new(values),
        ));
    }
    let small = Decimal128Array::from(vec![Some(12_345), None, Some(-99_999)]);
    let small = small.with_precision_and_scale(5, 2).unwrap();
    columns.push(TestColumn::new("decimal128(5, 2)", Arc::new(small)));
    for (precision, scale) in [(5, -2), (38, -38)] {
        let values = Decimal128Array::from(vec![Some(12_345), None, Some(-99_999), Some(0)]);
        let values = values.with_precision_and_scale(precision, scale).unwrap();
        columns.push(TestColumn::new(
            format!("decimal128({precision}, {scale})"),
            Arc::new(values),
        ));
    }
    let large = [Some(i256::from_i128(12_345)), None, Some(i256::ZERO)];
    let large = Decimal256Array::from_iter(large).with_precision_and_scale(60, -2);
    columns.push(TestColumn::new(
        "decimal256(60, -2)",
        Arc::new(large.unwrap()),
    ));
    let most = i256::from_string(&"9".repeat(76)).unwrap();
    for scale in [0, 2, 76] {
        let values = [i256::ZERO, i256::ONE, i256::MINUS_ONE, most, -most];
        let values =
            PrimitiveArray::<Decimal256Type>::from_iter(values.into_iter().map(Some).chain([None]));
        let values = values.with_precision_and_scale(76, scale).unwrap();
        columns.push(TestColumn::new(
            format!("decimal256(76, {scale})"),
            Arc::new(values),
        ));
    }
}

fn texts(columns: &mut Vec<TestColumn>) {
    let nullable = || TEXTS.into_iter().map(Some).chain([None]);
    columns.push(TestColumn::new(
        "text",
        Arc::new(StringArray::from_iter(nullable())),
    ));
    columns.push(TestColumn::new(
        "large text",
        Arc::new(LargeStringArray::from_iter(nullable())),
    ));
    columns.push(TestColumn::new(
        "text view",
        Arc::new(StringViewArray::from_iter(nullable())),
    ));
    columns.push(TestColumn::new(
        "dictionary",
        Arc::new(DictionaryArray::<Int32Type>::from_iter(nullable())),
    ));
    columns.push(TestColumn::new(
        "small dictionary",
        Arc::new(DictionaryArray::<UInt8Type>::from_iter(nullable())),
    ));
    let numbers: ArrayRef = with_null::<Int64Type>(&[1, 1, i64::MAX]);
    let keyed = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Int64));
    columns.push(TestColumn::new(
        "dictionary of i64",
        cast(&numbers, &keyed).unwrap(),
    ));
    columns.push(TestColumn::new(
        "booleans",
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
    ));
    columns.push(TestColumn::new("nulls", Arc::new(NullArray::new(3))));
    let bytes: Vec<Option<&[u8]>> = vec![Some(b""), Some(b"\0"), Some(b"\xff\xfe,\n"), None];
    columns.push(TestColumn::new(
        "bytes",
        Arc::new(BinaryArray::from_iter(bytes.clone())),
    ));
    columns.push(TestColumn::new(
        "large bytes",
        Arc::new(LargeBinaryArray::from_iter(bytes.clone())),
    ));
    columns.push(TestColumn::new(
        "bytes view",
        Arc::new(BinaryViewArray::from_iter(bytes)),
    ));
    let fixed = [Some([0_u8, 255]), None, Some([b',', b'\n'])];
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 2).unwrap();
    columns.push(TestColumn::new("fixed bytes", Arc::new(fixed)));
}

/// A dictionary of two values, for keys of which one is null.
fn keyed(values: ArrayRef) -> ArrayRef {
    let keys = Int8Array::from(vec![Some(1), None, Some(0), Some(1)]);
    Arc::new(DictionaryArray::<Int8Type>::new(keys, values))
}

/// Values as runs of equal ones.
fn in_runs(values: &ArrayRef) -> ArrayRef {
    let run_ends = Field::new("run_ends", DataType::Int32, false);
    let run_values = Field::new("values", values.data_type().clone(), true);
    let runs = DataType::RunEndEncoded(run_ends.into(), run_values.into());
    cast(values, &runs).unwrap()
}

/// Types that few writers use.
fn rare_types(columns: &mut Vec<TestColumn>) {
    let words: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        Some("a"),
        None,
        Some("b"),
        Some(""),
    ]));
    columns.push(TestColumn::new("runs", in_runs(&words)));
    let numbers: ArrayRef = with_null::<Float64Type>(&[1.5, 1.5, -0.0, f64::NAN]);
    columns.push(TestColumn::new("runs of numbers", in_runs(&numbers)));
    let instants = TimestampMicrosecondArray::from(vec![-1, -1, 253_402_214_400_000_000]);
    let instants: ArrayRef = Arc::new(instants.with_timezone("UTC"));
    columns.push(TestColumn::new("runs of times", in_runs(&instants)));
    let (offsets, nulls) = cut_lists(&words);
    let lists = ListArray::new(item(&words), offsets, words.clone(), Some(nulls));
    let views = cast(&lists, &DataType::ListView(item(&words))).unwrap();
    columns.push(TestColumn::new("list view", views));
    let large = cast(&lists, &DataType::LargeList(item(&words))).unwrap();
    let views = cast(&large, &DataType::LargeListView(item(&words))).unwrap();
    columns.push(TestColumn::new("large list view", views));
    let times = TimestampMicrosecondArray::from(vec![0, 253_402_214_400_000_000]);
    columns.push(TestColumn::new(
        "dictionary of times",
        keyed(Arc::new(times.with_timezone("UTC"))),
    ));
    let days = Date32Array::from(vec![-719_162, 2_932_896]);
    columns.push(TestColumn::new(
        "dictionary of dates",
        keyed(Arc::new(days)),
    ));
    let floats = Float64Array::from(vec![1e308, -0.0]);
    columns.push(TestColumn::new(
        "dictionary of floats",
        keyed(Arc::new(floats)),
    ));
    let large_texts = LargeStringArray::from(vec!["a,b", ""]);
    columns.push(TestColumn::new(
        "dictionary of large texts",
        keyed(Arc::new(large_texts)),
    ));
    let text_views = StringViewArray::from(vec!["longer than twelve bytes", ""]);
    columns.push(TestColumn::new(
        "dictionary of text views",
        keyed(Arc::new(text_views)),
    ));
    let amounts = Decimal128Array::from(vec![12_345, -1]).with_precision_and_scale(20, 2);
    columns.push(TestColumn::new(
        "dictionary of decimals",
        keyed(Arc::new(amounts.unwrap())),
    ));
    let bytes = BinaryArray::from(vec![&b"\0\xff"[..], b""]);
    columns.push(TestColumn::new(
        "dictionary of bytes",
        keyed(Arc::new(bytes)),
    ));
    let byte_views = BinaryViewArray::from_iter_values([&b"longer than twelve bytes"[..], b""]);
    columns.push(TestColumn::new(
        "dictionary of byte views",
        keyed(Arc::new(byte_views)),
    ));
    let texts_with_null = StringArray::from(vec![None, Some("b")]);
    columns.push(TestColumn::new(
        "dictionary with null",
        keyed(Arc::new(texts_with_null)),
    ));
    let narrow = Decimal32Array::from(vec![Some(12_345), None, Some(-99_999)]);
    let narrow: ArrayRef = Arc::new(narrow.with_precision_and_scale(5, 2).unwrap());
    let middle = cast(&narrow, &DataType::Decimal64(12, 2)).unwrap();
    columns.push(TestColumn::new("decimal32(5, 2)", narrow));
    columns.push(TestColumn::new("decimal64(12, 2)", middle));
    let months = IntervalYearMonthArray::from(vec![Some(14), None, Some(-1), Some(i32::MAX)]);
    columns.push(TestColumn::new("interval months", Arc::new(months)));
    let days = IntervalDayTimeArray::from(vec![
        Some(IntervalDayTime::new(1, 2)),
        None,
        Some(IntervalDayTime::new(-3, i32::MIN)),
    ]);
    columns.push(TestColumn::new("interval days", Arc::new(days)));
    let parts = IntervalMonthDayNanoArray::from(vec![
        Some(IntervalMonthDayNano::new(1, 2, 3)),
        None,
        Some(IntervalMonthDayNano::new(0, -1, i64::MAX)),
    ]);
    columns.push(TestColumn::new("interval parts", Arc::new(parts)));
}

/// Maps whose keys are no texts.
fn maps(columns: &mut Vec<TestColumn>) {
    let amounts = Decimal128Array::from(vec![12_345, -1, 0, 100]).with_precision_and_scale(10, 2);
    let times = TimestampMicrosecondArray::from(vec![0, -1, 1, 253_402_214_400_000_000]);
    let keys: [(&str, ArrayRef); 4] = [
        (
            "map by numbers",
            Arc::new(Int32Array::from(vec![1, -2, i32::MAX, 0])),
        ),
        (
            "map by dates",
            Arc::new(Date32Array::from(vec![0, -1, 19_782, 2_932_896])),
        ),
        ("map by decimals", Arc::new(amounts.unwrap())),
        ("map by times", Arc::new(times.with_timezone("UTC"))),
    ];
    for (about, keys) in keys {
        let fields: Fields = vec![
            Field::new("key", keys.data_type().clone(), false),
            Field::new("value", DataType::Utf8, true),
        ]
        .into();
        let values = StringArray::from(vec![Some("a"), None, Some(""), Some("b")]);
        let entries = StructArray::new(fields, vec![keys, Arc::new(values)], None);
        let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1, 0, 1]);
        let nulls = NullBuffer::from(vec![true, false, true, true, true]);
        let maps = MapArray::new(entry, offsets, entries, Some(nulls), false);
        columns.push(TestColumn::new(about, Arc::new(maps)));
    }
}

fn item(values: &ArrayRef) -> FieldRef {
    Arc::new(Field::new_list_field(values.data_type().clone(), true))
}

/// Offsets of lists of 0, 1, 2 and 0 values and so on, of which some are null.
fn cut_lists(values: &ArrayRef) -> (OffsetBuffer<i32>, NullBuffer) {
    let mut lengths = Vec::new();
    let mut valid = Vec::new();
    let mut rest = values.len();
    while rest > 0 || lengths.len() < 4 {
        let length = (lengths.len() % 3).min(rest);
        rest -= length;
        valid.push(length > 0 || lengths.len() % 2 == 0);
        lengths.push(length);
    }
    (OffsetBuffer::from_lengths(lengths), NullBuffer::from(valid))
}

/// A column nested in the ways that types nest.
fn nested(column: &TestColumn) -> Vec<TestColumn> {
    let values = &column.values;
    let about = |kind: &str| format!("{kind} of {}", column.about);
    let (offsets, nulls) = cut_lists(values);
    let lists = ListArray::new(
        item(values),
        offsets.clone(),
        values.clone(),
        Some(nulls.clone()),
    );
    let lists: ArrayRef = Arc::new(lists);
    let large = DataType::LargeList(item(values));
    let even = values.slice(0, values.len() / 2 * 2);
    let valid = NullBuffer::from_iter((0..even.len() / 2).map(|row| row != 1));
    let fixed = FixedSizeListArray::new(item(values), 2, even, Some(valid));
    let fields: Fields = vec![
        Field::new("a", values.data_type().clone(), true),
        Field::new("b c", DataType::Int64, true),
    ]
    .into();
    let valid = NullBuffer::from_iter((0..values.len()).map(|row| row % 3 != 1));
    let objects = StructArray::new(
        fields,
        vec![values.clone(), row_numbers(values.len())],
        Some(valid),
    );
    let keys = StringArray::from_iter_values((0..values.len()).map(|row| format!("key {row}")));
    let entries: Fields = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", values.data_type().clone(), true),
    ]
    .into();
    let entries = StructArray::new(entries, vec![Arc::new(keys), values.clone()], None);
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let maps = MapArray::new(entry, offsets, entries, Some(nulls), false);
    let objects: ArrayRef = Arc::new(objects);
    let (offsets, nulls) = cut_lists(&objects);
    let rows = ListArray::new(item(&objects), offsets, objects.clone(), Some(nulls));
    vec![
        TestColumn::new(about("large list"), cast(&lists, &large).unwrap()),
        TestColumn::new(about("list"), lists),
        TestColumn::new(about("fixed list"), Arc::new(fixed)),
        TestColumn::new(about("struct"), objects),
        TestColumn::new(about("map"), Arc::new(maps)),
        TestColumn::new(about("list of structs"), Arc::new(rows)),
    ]
}

fn awkward_columns() -> Vec<TestColumn> {
    let mut columns = Vec::new();
    integers(&mut columns);
    floats(&mut columns);
    times(&mut columns);
    decimals(&mut columns);
    texts(&mut columns);
    rare_types(&mut columns);
    maps(&mut columns);
    columns
}

/// Random bits: a small generator, so that a case can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number of any size.
    fn number(&mut self) -> i64 {
        let shift = self.next() % 64;
        (self.next() as i64) >> shift
    }
}

/// Random values of the type of a column.
fn random_column(column: &TestColumn, random: &mut Random) -> TestColumn {
    let of = column.values.data_type();
    let rows = 1 + (random.next() % 20) as usize;
    let numbers: Vec<i64> = (0..rows).map(|_| random.number()).collect();
    let values: ArrayRef = match of {
        DataType::Float64 => {
            let floats = numbers.iter().map(|bits| f64::from_bits(*bits as u64));
            let floats: Vec<f64> = floats
                .map(|float| if float.is_nan() { f64::NAN } else { float })
                .collect();
            with_null::<Float64Type>(&floats)
        }
        of if of.is_integer() || matches!(of, DataType::Timestamp(..)) => {
            let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
            cast(&numbers, of).unwrap()
        }
        _ => {
            // Some of the awkward values, in another order.
            let rows = column.values.len() as u64;
            let taken = numbers.iter().map(|number| number.unsigned_abs() % rows);
            let taken = UInt64Array::from_iter_values(taken);
            arrow::compute::take(&column.values, &taken, None).unwrap()
        }
    };
    TestColumn::new(format!("random {}", column.about), values)
}

fn random_columns(columns: &[TestColumn]) -> Vec<TestColumn> {
    let more = std::env::var("FOREBAY_ROUND_TRIPS").ok();
    let more: u64 = more.map_or(0, |more| more.parse().unwrap());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut all = Vec::new();
    for _ in 0..more {
        all.extend(
            columns
                .iter()
                .map(|column| random_column(column, &mut random)),
        );
    }
    all
}

/// Counts of what happened.
#[derive(Default)]
struct Tally {
    values: usize,
    refused: usize,
    failures: Vec<String>,
    /// Columns none of whose values a format takes.
    formless: Vec<String>,
}

impl Tally {
    /// Checks a column, then each value of one that is refused. Gives the values that the format takes.
    fn check(&mut self, trip: &RoundTrip, column: &TestColumn) -> ArrayRef {
        let values = &column.values;
        if self.is_taken(trip, &column.about, values) {
            return values.clone();
        }
        let taken: BooleanArray = (0..values.len())
            .map(|row| {
                let about = format!("{} row {row}", column.about);
                Some(self.is_taken(trip, &about, &values.slice(row, 1)))
            })
            .collect();
        let taken = arrow::compute::filter(values, &taken).unwrap();
        if taken.null_count() == taken.len() {
            self.formless.push(column.about.clone());
        }
        taken
    }

    /// False where the sink refuses the values.
    fn is_taken(&mut self, trip: &RoundTrip, about: &str, values: &ArrayRef) -> bool {
        self.values += values.len();
        let fault = match trip.check(values) {
            Ok(()) => return true,
            Err(Outcome::Unread(message)) => {
                self.failures.push(format!("{about}: {message}"));
                return true;
            }
            Err(Outcome::Refused(fault)) => fault,
        };
        self.refused += 1;
        let is_clear = fault.code().domain != FaultDomain::Internal
            && fault.site().column.as_deref() == Some("c")
            && fault.hint_text().is_some();
        if !is_clear {
            self.failures.push(format!("{about}: unclear {fault:?}"));
        }
        false
    }

    /// Checks values of which some are refused in the ways in which types nest: there, too, they are read back equal, or
    /// refused.
    fn check_inside(&mut self, trip: &RoundTrip, column: &TestColumn) {
        for column in nested(column) {
            self.is_taken(trip, &column.about, &column.values);
        }
    }

    /// Checks a column in the ways in which types nest. Values that are taken alone are taken there, too.
    fn check_nested(&mut self, trip: &RoundTrip, about: &str, taken: ArrayRef) {
        if taken.is_empty() || taken.null_count() == taken.len() {
            return;
        }
        for column in nested(&TestColumn::new(about, taken)) {
            if !self.is_taken(trip, &column.about, &column.values) {
                self.failures.push(format!("{}: refused", column.about));
            }
        }
    }
}

fn check_format(format: &'static str) -> Tally {
    let mut tally = Tally::default();
    let trip = RoundTrip::new(format);
    let mut columns = awkward_columns();
    if format.contains('.') {
        // How files are packed does not depend on types.
        columns.retain(|column| ["text", "f64 words", "i64"].contains(&column.about.as_str()));
    }
    columns.extend(random_columns(&columns));
    for column in &columns {
        let taken = tally.check(&trip, column);
        // Maps differ in their keys alone, which nothing nests.
        if trip.format == "csv" || matches!(column.values.data_type(), DataType::Map(..)) {
            continue;
        }
        let about = column.about.as_str();
        let is_variant =
            about.ends_with(" fine") || about.ends_with(" far") || about == "date64 with a clock";
        if is_variant {
            tally.check_inside(&trip, column);
        } else {
            tally.check_nested(&trip, about, taken);
        }
    }
    tally
}

#[test]
fn what_a_sink_writes_its_source_reads_back_equal() {
    let tallies: Vec<(&str, Tally)> = std::thread::scope(|scope| {
        let threads: Vec<_> = FORMATS
            .into_iter()
            .map(|format| (format, scope.spawn(move || check_format(format))))
            .collect();
        threads
            .into_iter()
            .map(|(format, thread)| (format, thread.join().unwrap()))
            .collect()
    });
    let mut failures = Vec::new();
    let mut values = 0;
    for (format, tally) in tallies {
        println!(
            "{format}: {} values, {} faults; refused as a whole: {:?}",
            tally.values, tally.refused, tally.formless
        );
        if let Some((_, expected)) = FORMLESS.iter().find(|(name, _)| *name == format) {
            assert_eq!(tally.formless, *expected, "{format}");
        }
        values += tally.values;
        failures.extend(
            tally
                .failures
                .iter()
                .map(|failure| format!("{format}, {failure}")),
        );
    }
    println!("{values} values");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
}

/// Names that formats of text are known to lose.
const NAMES: [&str; 18] = [
    "",
    " lead",
    "trail ",
    "a,b",
    "a;b",
    "a\"b",
    "a\nb",
    "a\r\nb",
    "a\tb",
    "a.b",
    "'q'",
    "#x",
    "1",
    "NULL",
    "column_1",
    "\u{fc}",
    "\u{feff}x",
    "sep=;",
];

#[test]
fn names_of_columns_are_read_back_or_refused() {
    let mut refused = Vec::new();
    for format in ["parquet", "arrow", "csv", "json"] {
        for name in NAMES {
            for names in [vec![name], vec![name, "id"], vec!["id", name]] {
                let columns = names.iter().map(|name| (*name, row_numbers(3)));
                let batch = RecordBatch::try_from_iter(columns).unwrap();
                let trip = RoundTrip::new(format);
                if let Err(fault) = trip.write(&batch) {
                    assert_ne!(fault.code().domain, FaultDomain::Internal, "{fault:?}");
                    refused.push((format, names));
                    continue;
                }
                let mut config = json!({ "path": trip.folder.path().join("out") });
                if format == "csv" {
                    // One column has no delimiter that tells it from others.
                    config["delimiter"] = json!(",");
                }
                let rows = read(format, config).unwrap();
                let schema = rows.schema();
                let fields = schema.fields().iter();
                let read_names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
                assert_eq!(read_names, names, "{format}");
                assert_eq!(rows.num_rows(), 3, "{format}: {names:?}");
            }
        }
    }
    let expected = [
        ("csv", vec!["\u{feff}x"]),
        ("csv", vec!["\u{feff}x", "id"]),
        ("csv", vec!["sep=;"]),
    ];
    assert_eq!(refused, expected);
}

fn list_of(of: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(of, true)))
}

fn struct_of(of: DataType) -> DataType {
    DataType::Struct(vec![Field::new("part", of, true)].into())
}

/// A type that a format has not is refused for what it is, before a row is written.
#[test]
fn types_that_a_format_has_not_are_refused_by_name() {
    let parts = DataType::Interval(IntervalUnit::MonthDayNano);
    let numbers_or_texts = UnionFields::from_fields(vec![
        Field::new("number", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]);
    let sparse = DataType::Union(numbers_or_texts.clone(), UnionMode::Sparse);
    let union = DataType::Union(numbers_or_texts, UnionMode::Dense);
    let empty = DataType::Struct(Fields::empty());
    let parquet_has_not = [
        DataType::Decimal128(10, -2),
        DataType::Decimal256(60, -2),
        parts.clone(),
        list_of(parts.clone()),
        struct_of(list_of(parts.clone())),
        union.clone(),
        list_of(union.clone()),
        sparse.clone(),
        empty.clone(),
        list_of(empty.clone()),
    ];
    let text_has_not = [
        DataType::Binary,
        DataType::Duration(TimeUnit::Second),
        parts.clone(),
        union.clone(),
        empty.clone(),
    ];
    let delta_has_not = [
        DataType::UInt64,
        DataType::Null,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Duration(TimeUnit::Second),
        DataType::Decimal256(60, 2),
        DataType::Interval(IntervalUnit::DayTime),
        list_of(parts.clone()),
        struct_of(union.clone()),
        empty.clone(),
    ];
    let arrow_has_not = [
        union.clone(),
        struct_of(list_of(union.clone())),
        sparse.clone(),
        list_of(sparse),
    ];
    let csv_has_not = [list_of(DataType::Utf8), struct_of(DataType::Utf8)];
    let json_has_not = [list_of(DataType::Binary), struct_of(list_of(parts))];
    let cases: [(&str, &[DataType]); 7] = [
        ("parquet", &parquet_has_not),
        ("delta", &delta_has_not),
        ("arrow", &arrow_has_not),
        ("csv", &text_has_not),
        ("json", &text_has_not),
        ("csv", &csv_has_not),
        ("json", &json_has_not),
    ];
    for (format, types) in cases {
        for of in types {
            let schema = Schema::new(vec![Field::new("c", of.clone(), true)]);
            let sink = RoundTrip::new(format).sink();
            let fault = sink.check_schema(&Arc::new(schema)).unwrap_err();
            let refusals = [codes::UNSUPPORTED, codes::COLUMN_TYPE];
            assert!(refusals.contains(&fault.code()), "{format}, {of}: {fault}");
            assert_eq!(fault.site().column.as_deref(), Some("c"));
            assert!(fault.message().contains("`c`"), "{format}: {fault}");
            assert!(fault.hint_text().is_some(), "{format}: {fault}");
        }
    }
}
