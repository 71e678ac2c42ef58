//! Files of texts: a value is never read looser than the type of its column was found, and no field vanishes.

use std::fs;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Result, type_label};
use serde_json::{Value, json};

use crate::help::read;

/// Values of the columns, row by row, as `type: value value`.
fn shown(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    let options = FormatOptions::default().with_null("null");
    let column = |at: usize| {
        let texts = ArrayFormatter::try_new(batch.column(at), &options).unwrap();
        let values: Vec<String> = (0..batch.num_rows())
            .map(|row| texts.value(row).to_string())
            .collect();
        let field = schema.field(at);
        format!(
            "{} {}: {}",
            field.name(),
            type_label(field.data_type()),
            values.join(" ")
        )
    };
    (0..batch.num_columns()).map(column).collect()
}

/// A file as its source sees it: its columns, or the fault.
enum Expected {
    Columns(&'static [&'static str]),
    Fault(&'static [&'static str]),
}

use Expected::{Columns, Fault};

/// A file, options of the source, and what is expected.
type Case = (&'static str, &'static [u8], Value, Expected);

fn check(format: &str, cases: Vec<Case>) {
    for (about, text, options, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("a.{format}"));
        fs::write(&path, text).unwrap();
        let mut config = options.clone();
        config["path"] = json!(path);
        let found: Result<RecordBatch> = read(format, config);
        match (found, expected) {
            (Ok(batch), Columns(columns)) => assert_eq!(shown(&batch), columns, "{about}"),
            (Err(fault), Fault(words)) => {
                let told = format!("{fault:?}");
                for word in words {
                    assert!(told.contains(word), "{about}: no `{word}` in {told}");
                }
                assert!(told.contains("a."), "{about}: no file in {told}");
            }
            (Ok(batch), Fault(_)) => panic!("{about}: read as {:?}", shown(&batch)),
            (Err(fault), Columns(_)) => panic!("{about}: {fault:?}"),
        }
    }
}

#[test]
fn csv_values_have_the_type_of_their_column_or_are_faults() {
    let sample = |rows: usize| json!({ "infer_rows": rows });
    check(
        "csv",
        vec![
            (
                "a code after the sample",
                b"zip\n10115\n10117\n00742\n",
                sample(2),
                Fault(&["00742", "zip", "columns", "nulls", "on_error"]),
            ),
            (
                "a code after the sample of a float",
                b"x\n1.5\n007\n",
                sample(1),
                Fault(&["007", "x"]),
            ),
            (
                "a boolean that is none in the sample",
                b"b\ntrue\nfalse\nt\n",
                sample(2),
                Fault(&["`t`", "boolean"]),
            ),
            (
                "a number beyond all floats",
                b"x\n1.5\n1e400\n",
                sample(1),
                Fault(&["1e400", "range"]),
            ),
            (
                "nanoseconds in the sample",
                b"t\n2024-03-10T12:00:00.123456789\n2024-03-10\n",
                json!({}),
                Columns(&["t timestamp(ns): 2024-03-10T12:00:00.123456789 2024-03-10T00:00:00"]),
            ),
            (
                "nanoseconds after the sample",
                b"t\n2024-03-10T12:00:00\n2024-03-10T12:00:00.123456789\n",
                sample(1),
                Fault(&["123456789", "digits"]),
            ),
            (
                "picoseconds are texts",
                b"t\n2024-03-10T12:00:00.1234567891\n",
                json!({}),
                Columns(&["t text: 2024-03-10T12:00:00.1234567891"]),
            ),
            (
                "offsets are instants",
                b"t\n2024-03-10T12:00:00+02:00\n2024-03-10 12:00:00Z\n",
                json!({}),
                Columns(&[
                    "t timestamp(\u{b5}s, \"UTC\"): 2024-03-10T10:00:00Z 2024-03-10T12:00:00Z",
                ]),
            ),
            (
                "an offset after the sample",
                b"t\n2024-03-10T12:00:00\n2024-03-10T12:00:00+02:00\n",
                sample(1),
                Fault(&["+02:00", "no time zone"]),
            ),
            (
                "no offset after the sample",
                b"t\n2024-03-10T12:00:00Z\n2024-03-10T12:00:00\n",
                sample(1),
                Fault(&["2024-03-10T12:00:00", "no offset"]),
            ),
            (
                "some offsets in the sample",
                b"t\n2024-03-10T12:00:00Z\n2024-03-10T12:00:00\n",
                json!({}),
                Columns(&["t text: 2024-03-10T12:00:00Z 2024-03-10T12:00:00"]),
            ),
            (
                "a time after a sample of days",
                b"d\n2024-03-10\n2024-03-10T12:00:00\n",
                sample(1),
                Fault(&["2024-03-10T12:00:00", "time of day"]),
            ),
            (
                "declared types take what they hold",
                b"zip,t,u\n00742,2024-03-10T12:00:00.5,2024-03-10T12:00:00+02:00\n",
                json!({"columns": {"zip": "int64", "t": "timestamp_ns", "u": "timestamp_utc"}}),
                Columns(&[
                    "zip Int64: 742",
                    "t timestamp(ns): 2024-03-10T12:00:00.500",
                    "u timestamp(\u{b5}s, \"UTC\"): 2024-03-10T10:00:00Z",
                ]),
            ),
            (
                "declared types cut nothing off",
                b"t\n2024-03-10T12:00:00.1234567\n",
                json!({"columns": {"t": "timestamp"}}),
                Fault(&["1234567", "digits"]),
            ),
            (
                "declared booleans have two words",
                b"b\nyes\n",
                json!({"columns": {"b": "boolean"}}),
                Fault(&["`yes`"]),
            ),
        ],
    );
}

#[test]
fn csv_files_of_other_dialects_are_read_as_the_source_says() {
    check(
        "csv",
        vec![
            (
                "decimal commas and groups",
                b"a;b\n1.234,5;x\n-2,25;y\n",
                json!({"delimiter": ";", "decimal": ",", "thousands": "."}),
                Columns(&["a Float64: 1234.5 -2.25", "b text: x y"]),
            ),
            (
                "a number that is not grouped by three",
                b"a\n1.234\n1.23\n",
                json!({"delimiter": ";", "decimal": ",", "thousands": ".", "infer_rows": 1}),
                Fault(&["1.23"]),
            ),
            (
                "dates by their format",
                b"day,at\n31.12.2023,3/9/2024 07:05\n,\n",
                json!({"formats": {"day": "%d.%m.%Y", "at": "%m/%d/%Y %H:%M"}}),
                Columns(&[
                    "day date: 2023-12-31 null",
                    "at timestamp(\u{b5}s): 2024-03-09T07:05:00 null",
                ]),
            ),
            (
                "a date of another format",
                b"day\n31.12.2023\n2023-12-31\n",
                json!({"formats": {"day": "%d.%m.%Y"}}),
                Fault(&["2023-12-31", "%d.%m.%Y"]),
            ),
            (
                "Latin-1",
                b"name,x\nM\xfcller,1\n",
                json!({"encoding": "latin-1"}),
                Columns(&["name text: M\u{fc}ller", "x Int64: 1"]),
            ),
            (
                "Latin-1 that the source does not name",
                b"name,x\nM\xfcller,1\n",
                json!({}),
                Fault(&["UTF-8", "encoding"]),
            ),
            (
                "UTF-16",
                b"\xff\xfea\0,\0b\0\n\x001\0,\0\xfc\0\n\0",
                json!({"encoding": "utf-16"}),
                Columns(&["a Int64: 1", "b text: \u{fc}"]),
            ),
            (
                "another quote, an escape, comments",
                b"# made by hand\na,b\n1,'x\\'y,z'\n# more\n2,w\n",
                json!({"quote": "'", "escape": "\\", "comment": "#"}),
                Columns(&["a Int64: 1 2", "b text: x'y,z w"]),
            ),
            (
                "columns without a name",
                b"id,,\n1,2,x\n",
                json!({}),
                Columns(&["id Int64: 1", "column_2 Int64: 2", "column_3 text: x"]),
            ),
            (
                "columns of one name",
                b"a,b,a\n1,2,3\n",
                json!({"same_names": "number"}),
                Columns(&["a Int64: 1", "b Int64: 2", "a_2 Int64: 3"]),
            ),
            (
                "columns of one name that are not read",
                b"a,b,a\n1,2,3\n",
                json!({"columns": {"b": "int64"}}),
                Columns(&["b Int64: 2"]),
            ),
        ],
    );
}

#[test]
fn json_fields_are_read_or_are_faults() {
    let sample = |rows: usize| json!({ "infer_rows": rows });
    check(
        "json",
        vec![
            (
                "a field after the sample",
                b"{\"a\":1}\n{\"a\":2,\"promo\":true}\n",
                sample(1),
                Fault(&["`promo`", "added", "rows: [1]"]),
            ),
            (
                "a field inside after the sample",
                b"{\"a\":{\"x\":1}}\n{\"a\":{\"x\":2,\"y\":3}}\n",
                sample(1),
                Fault(&["`a.y`", "added"]),
            ),
            (
                "a field that is left out",
                b"{\"a\":{\"x\":1}}\n{\"a\":{\"x\":2,\"y\":3},\"promo\":true}\n",
                json!({"infer_rows": 1, "added": "ignore"}),
                Columns(&["a Struct(\"x\": Int64): {x: 1} {x: 2}"]),
            ),
            (
                "a field that all rows are looked at for",
                b"{\"a\":1}\n{\"a\":2,\"promo\":\"sale\"}\n",
                json!({"infer_rows": 1, "added": "include"}),
                Columns(&["a Int64: 1 2", "promo text: null sale"]),
            ),
            (
                "declared fields alone",
                b"{\"a\":1}\n{\"a\":2,\"promo\":\"sale\"}\n",
                json!({"columns": {"a": "int64"}}),
                Columns(&["a Int64: 1 2"]),
            ),
            (
                "objects, lists and fields without any value",
                b"{\"a\":1,\"meta\":{},\"tags\":[],\"no\":null,\"in\":{\"e\":{}}}\n{\"a\":2,\"meta\":null}\n",
                json!({}),
                Columns(&[
                    "a Int64: 1 2",
                    "meta text: {} null",
                    "tags list of text: [] null",
                    "no text: null null",
                    "in Struct(\"e\": Utf8): {e: {}} null",
                ]),
            ),
            (
                "an empty object that is not after the sample",
                b"{\"a\":1,\"meta\":{}}\n{\"a\":2,\"meta\":{\"k\":1}}\n",
                sample(1),
                Fault(&["meta"]),
            ),
            (
                "a code as a text after the sample",
                b"{\"a\":{\"zip\":10115}}\n{\"a\":{\"zip\":\"00742\"}}\n",
                sample(1),
                Fault(&["00742"]),
            ),
            (
                "a number beyond all floats",
                b"{\"x\":1.5}\n{\"x\":1e400}\n",
                sample(1),
                Fault(&["1e400"]),
            ),
            (
                "declared times",
                b"{\"t\":\"2024-03-10T12:00:00+02:00\",\"d\":\"2024-03-10\"}\n",
                json!({"columns": {"t": "timestamp_utc", "d": "date"}}),
                Columns(&[
                    "t timestamp(\u{b5}s, \"UTC\"): 2024-03-10T10:00:00Z",
                    "d date: 2024-03-10",
                ]),
            ),
            (
                "declared times cut nothing off",
                b"{\"t\":\"2024-03-10T12:00:00.123456789\"}\n",
                json!({"columns": {"t": "timestamp"}}),
                Fault(&["123456789"]),
            ),
            (
                "an array of objects",
                b"[{\"a\":1},\n{\"a\":2}]\n",
                json!({}),
                Fault(&["JSON array", "jq"]),
            ),
            (
                "an object over several lines",
                b"{\n \"a\": 1\n}\n",
                json!({}),
                Fault(&["line of its own"]),
            ),
        ],
    );
}
