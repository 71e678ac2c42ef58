//! Outputs of all formats as inputs: each pair of a source and a sink gives equal rows, in the same bits for any division.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray, FixedLenByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::support::{TestDirectory, content};

const ROWS: i64 = 3000;

/// Texts that formats of text write in quotes or with escapes.
const WORDS: [&str; 8] = [
    " ",
    "a,b",
    "\"",
    "two\nlines",
    "\r\n",
    "\u{2028}",
    "007",
    "tab\tand \\",
];

const FLOATS: [f64; 6] = [0.1, -0.0, f64::NAN, f64::INFINITY, 1e308, 5e-324];

fn write_rows(shop: &TestDirectory, name: &str) {
    let every = |step: i64, i: i64| i % step != step - 1;
    let all = || 0..ROWS;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter(all().map(Some)))),
        (
            "small",
            Arc::new(Int32Array::from_iter(
                all().map(|i| every(5, i).then_some(i as i32 - 7)),
            )),
        ),
        (
            "x",
            Arc::new(Float64Array::from_iter(
                all().map(|i| every(7, i).then(|| FLOATS[i as usize % FLOATS.len()])),
            )),
        ),
        (
            "word",
            Arc::new(StringArray::from_iter(
                all().map(|i| every(3, i).then(|| WORDS[i as usize % WORDS.len()])),
            )),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                all().map(|i| every(11, i).then_some(i % 2 == 0)),
            )),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter(
                all().map(|i| every(9, i).then_some(i as i32 * 900 - 719_162)),
            )),
        ),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter(all().map(|i| {
                every(4, i).then_some(i * 77_777_777_777_777 - 62_135_596_800_000_000)
            }))),
        ),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(500))
        .build();
    let file = File::create(shop.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

const TYPES: &str = "{ id: int64, small: int32, x: float64, word: string, flag: boolean, day: date, at: timestamp }";

/// Sinks of all formats.
const SINKS: [(&str, &str); 7] = [
    ("parquet", "parquet: { path: PATH }"),
    ("arrow", "arrow: { path: PATH }"),
    ("delta", "delta: { path: PATH }"),
    ("csv", "csv: { path: PATH }"),
    (
        "csv_zst",
        "csv: { path: PATH, compression: zstd, null_text: NA }",
    ),
    ("json", "json: { path: PATH }"),
    ("json_gz", "json: { path: PATH, compression: gzip }"),
];

/// Writes the rows of a source by all sinks, below a folder.
fn write_all(shop: &TestDirectory, source: &str, out: &str, threads: &str) {
    let mut spec = format!("version: 1\nname: formats\nsources:\n  rows: {source}\nsinks:\n");
    for (name, sink) in SINKS {
        let sink = sink.replace("PATH", &format!("{out}_{name}"));
        spec += &format!("  {name}: {{ from: rows, {sink} }}\n");
    }
    shop.write("spec.yaml", &spec);
    let state = format!("{out}_state");
    shop.forebay(&["run", "spec.yaml", "--threads", threads, "--state", &state])
        .expect(0);
}

/// The files of rows of an output, without their folders.
fn files(shop: &TestDirectory, out: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = content(&shop.path(out))
        .into_iter()
        .map(|(name, bytes)| {
            let name = name.rsplit('/').next().unwrap_or_default().to_owned();
            (name, bytes)
        })
        // A table has its log and its manifest beside them.
        .filter(|(name, _)| name.starts_with("part-"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{out} has no files");
    files
}

#[test]
fn each_source_gives_each_sink_the_same_bits() {
    let shop = TestDirectory::new();
    write_rows(&shop, "rows.parquet");
    write_all(&shop, "{ parquet: { path: rows.parquet } }", "first", "1");
    let sources = [
        ("parquet", "{ parquet: { path: first_parquet } }".to_owned()),
        ("arrow", "{ arrow: { path: first_arrow } }".to_owned()),
        ("delta", "{ delta: { path: first_delta } }".to_owned()),
        (
            "csv",
            format!("{{ csv: {{ path: first_csv, columns: {TYPES} }} }}"),
        ),
        (
            "csv_zst",
            format!("{{ csv: {{ path: first_csv_zst, columns: {TYPES}, nulls: [NA] }} }}"),
        ),
        (
            "json",
            format!("{{ json: {{ path: first_json, columns: {TYPES} }} }}"),
        ),
        (
            "json_gz",
            format!("{{ json: {{ path: first_json_gz, columns: {TYPES} }} }}"),
        ),
    ];
    for (source_name, source) in sources {
        write_all(&shop, &source, source_name, "4");
        for (sink_name, _) in SINKS {
            let expected = files(&shop, &format!("first_{sink_name}"));
            let written_files = files(&shop, &format!("{source_name}_{sink_name}"));
            assert!(written_files == expected, "{source_name} to {sink_name}");
        }
    }
}

#[test]
fn json_lines_are_partitioned_sorted_and_counted_as_other_outputs() {
    let shop = TestDirectory::new();
    write_rows(&shop, "rows.parquet");
    for threads in ["1", "4"] {
        let spec = format!(
            "version: 1\nname: lines\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }} }}\nsinks:\n  lines: {{ \
             from: rows, json: {{ path: out{threads}, partition_by: [flag], sort_by: [small], compression: zstd }} }}\n"
        );
        shop.write("spec.yaml", &spec);
        let run = shop
            .forebay(&["run", "spec.yaml", "--threads", threads, "--json"])
            .expect(0);
        assert!(run.stdout.contains("3000"), "{}", run.stdout);
    }
    let names = |out: &str| {
        let mut files = content(&shop.path(out));
        files.sort();
        files
    };
    let written = names("out1");
    assert_eq!(written.len(), 3, "a file for each value, and one for null");
    assert!(written.iter().all(|(name, _)| name.ends_with(".jsonl.zst")));
    assert!(written == names("out4"));
    shop.write(
        "back.yaml",
        &format!(
            "version: 1\nname: back\nsources:\n  rows: {{ json: {{ path: out1, columns: {} }} }}\nsinks:\n  table: {{ \
             from: rows, parquet: {{ path: back }} }}\n",
            TYPES.replace("flag: boolean, ", "")
        ),
    );
    shop.forebay(&["run", "back.yaml"]).expect(0);
    assert_eq!(shop.visible("back").num_rows() as i64, ROWS);
}

#[test]
fn columns_that_a_format_does_not_hold_are_refused_before_a_run_begins() {
    let shop = TestDirectory::new();
    shop.write("rows.jsonl", "{\"id\": 1, \"tags\": [\"a\"]}\n");
    shop.write(
        "spec.yaml",
        "version: 1\nname: lists\nsources:\n  rows: { json: { path: rows.jsonl } }\nsinks:\n  table: { from: rows, \
         csv: { path: out } }\n",
    );
    for command in ["run", "check"] {
        let call = shop.forebay(&[command, "spec.yaml"]).expect(78);
        for word in ["FB0108", "tags", "spec.yaml:6"] {
            assert!(call.stderr.contains(word), "{command}: {}", call.stderr);
        }
    }
    assert!(!shop.path("out").exists());
}

#[test]
fn empty_texts_in_csv_are_told_from_null() {
    let shop = TestDirectory::new();
    shop.write(
        "rows.jsonl",
        "{\"a\": \"\"}\n{\"a\": null}\n{\"a\": \"x\"}\n",
    );
    let spec = |sink: &str| {
        let text = format!(
            "version: 1\nname: texts\nsources:\n  rows: {{ json: {{ path: rows.jsonl }} }}\nsinks:\n  table: {{ from: \
             rows, csv: {{ {sink} }} }}\n"
        );
        shop.write("spec.yaml", &text);
    };
    spec("path: out");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(files(&shop, "out")[0].1, b"a\n\"\"\n\nx\n");
    spec("path: out, null_text: NA");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(files(&shop, "out")[0].1, b"a\n\"\"\nNA\nx\n");
    spec("path: out, null_text: x");
    let run = shop.forebay(&["run", "spec.yaml"]).expect(65);
    assert!(run.stderr.contains("null_text"), "{}", run.stderr);
    spec("path: out, null_text: \"1\"");
    shop.forebay(&["run", "spec.yaml"]).expect(78);
}

const ANNOTATED: &str = "message m {
    optional fixed_len_byte_array(16) key (UUID);
    optional binary doc (JSON);
    optional binary bytes (BSON);
    optional binary kind (ENUM);
    optional binary word (STRING);
    optional int32 hour (TIME(MILLIS,true));
    optional int64 instant (TIME(NANOS,true));
    optional int32 old (TIME_MILLIS);
    optional int64 local (TIME(MICROS,false));
}";

fn write_annotated(shop: &TestDirectory, name: &str) {
    let schema = Arc::new(parse_message_type(ANNOTATED).unwrap());
    let file = File::create(shop.path(name)).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let key = FixedLenByteArray::from(vec![7_u8; 16]);
    column
        .typed::<FixedLenByteArrayType>()
        .write_batch(&[key], Some(&[1, 0]), None)
        .unwrap();
    column.close().unwrap();
    while let Some(mut column) = group.next_column().unwrap() {
        let levels: &[i16] = &[1, 0];
        let written = match column.untyped() {
            ColumnWriter::Int32ColumnWriter(times) => {
                times.write_batch(&[3_600_000], Some(levels), None)
            }
            ColumnWriter::Int64ColumnWriter(times) => {
                times.write_batch(&[3_600_000], Some(levels), None)
            }
            ColumnWriter::ByteArrayColumnWriter(texts) => {
                texts.write_batch(&[ByteArray::from("{\"a\":1}")], Some(levels), None)
            }
            _ => panic!("another type"),
        };
        written.unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

/// The logical types of the columns of an output.
fn logical_types(shop: &TestDirectory, out: &str) -> Vec<String> {
    let files = content(&shop.path(out));
    let bytes = bytes::Bytes::from(files[0].1.clone());
    let reader = SerializedFileReader::new(bytes).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    schema
        .columns()
        .iter()
        .map(|column| {
            let of = column.logical_type_ref();
            format!("{} {of:?} {:?}", column.name(), column.converted_type())
        })
        .collect()
}

#[test]
fn logical_types_without_a_type_here_pass_through() {
    let shop = TestDirectory::new();
    write_annotated(&shop, "rows.parquet");
    let spec = |out: &str, steps: &str| {
        let text = format!(
            "version: 1\nname: passing\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }} }}\nsteps:\n  all:\n    \
             from: rows\n    do:\n{steps}sinks:\n  table: {{ from: all, parquet: {{ path: {out} }} }}\n"
        );
        shop.write("spec.yaml", &text);
    };
    spec(
        "kept",
        "      - derive: { is_known: \"key IS NOT NULL\" }\n",
    );
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let mut expected = vec![
        "key Some(Uuid) NONE",
        "doc Some(Json) JSON",
        "bytes Some(Bson) BSON",
        "kind Some(Enum) ENUM",
        "word Some(String) UTF8",
        "hour Some(Time(TimestampType { is_adjusted_to_u_t_c: true, unit: MILLIS })) TIME_MILLIS",
        "instant Some(Time(TimestampType { is_adjusted_to_u_t_c: true, unit: NANOS })) NONE",
        "old Some(Time(TimestampType { is_adjusted_to_u_t_c: true, unit: MILLIS })) TIME_MILLIS",
        "local Some(Time(TimestampType { is_adjusted_to_u_t_c: false, unit: MICROS })) TIME_MICROS",
        "is_known None NONE",
    ];
    assert_eq!(logical_types(&shop, "kept"), expected);
    // An operation that writes a column makes another one of it.
    spec("changed", "      - derive: { doc: \"upper(doc)\" }\n");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    expected[1] = "doc Some(String) UTF8";
    expected.pop();
    assert_eq!(logical_types(&shop, "changed"), expected);
}
