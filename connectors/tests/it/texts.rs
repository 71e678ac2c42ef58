//! Files of texts: a value is never read looser than the type of its column was found, and no field vanishes.

use std::fs;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_connectors::BuiltInConnectors;
use forebay_contract::ConnectorRegistry;
use forebay_model::{Result, type_label};
use serde_json::{Value, json};

use crate::help::{read, write};

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
                Columns(&["t timestamp_ns: 2024-03-10T12:00:00.123456789 2024-03-10T00:00:00"]),
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
                Columns(&["t string: 2024-03-10T12:00:00.1234567891"]),
            ),
            (
                "offsets are instants",
                b"t\n2024-03-10T12:00:00+02:00\n2024-03-10 12:00:00Z\n",
                json!({}),
                Columns(&["t timestamp_utc: 2024-03-10T10:00:00Z 2024-03-10T12:00:00Z"]),
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
                Columns(&["t string: 2024-03-10T12:00:00Z 2024-03-10T12:00:00"]),
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
                    "zip int64: 742",
                    "t timestamp_ns: 2024-03-10T12:00:00.500",
                    "u timestamp_utc: 2024-03-10T10:00:00Z",
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
                Columns(&["a float64: 1234.5 -2.25", "b string: x y"]),
            ),
            (
                "a number that is not grouped by three",
                b"a\n1.234\n1.23\n",
                json!({"delimiter": ";", "decimal": ",", "thousands": ".", "infer_rows": 1}),
                Fault(&["1.23"]),
            ),
            (
                "groups that a narrow space divides",
                "a;b\n1\u{202f}234,5;1\u{202f}000\n-2,25;7\n".as_bytes(),
                json!({"delimiter": ";", "decimal": ",", "thousands": "\u{202f}"}),
                Columns(&["a float64: 1234.5 -2.25", "b int64: 1000 7"]),
            ),
            (
                "lines before the header",
                b"Report \"of May\r\n\r\na,b\r\n1,x\r\n",
                json!({"skip_lines": 2}),
                Columns(&["a int64: 1", "b string: x"]),
            ),
            (
                "a first record that is a row",
                b"1,x\n2,y\n",
                json!({"header": false}),
                Columns(&["column_1 int64: 1 2", "column_2 string: x y"]),
            ),
            (
                "Windows-1252",
                b"name,x\n\x80 \x93ok\x94,1\n",
                json!({"encoding": "windows-1252"}),
                Columns(&["name string: \u{20ac} \u{201c}ok\u{201d}", "x int64: 1"]),
            ),
            (
                "dates by their format",
                b"day,at\n31.12.2023,3/9/2024 07:05\n,\n",
                json!({"formats": {"day": "%d.%m.%Y", "at": "%m/%d/%Y %H:%M"}}),
                Columns(&[
                    "day date: 2023-12-31 null",
                    "at timestamp: 2024-03-09T07:05:00 null",
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
                Columns(&["name string: M\u{fc}ller", "x int64: 1"]),
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
                Columns(&["a int64: 1", "b string: \u{fc}"]),
            ),
            (
                "another quote, an escape, comments",
                b"# made by hand\na,b\n1,'x\\'y,z'\n# more\n2,w\n",
                json!({"quote": "'", "escape": "\\", "comment": "#"}),
                Columns(&["a int64: 1 2", "b string: x'y,z w"]),
            ),
            (
                "columns without a name",
                b"id,,\n1,2,x\n",
                json!({}),
                Columns(&["id int64: 1", "column_2 int64: 2", "column_3 string: x"]),
            ),
            (
                "columns of one name",
                b"a,b,a\n1,2,3\n",
                json!({"same_names": "number"}),
                Columns(&["a int64: 1", "b int64: 2", "a_2 int64: 3"]),
            ),
            (
                "columns of one name that are not read",
                b"a,b,a\n1,2,3\n",
                json!({"columns": {"b": "int64"}}),
                Columns(&["b int64: 2"]),
            ),
        ],
    );
}

#[test]
fn csv_files_of_programs_have_their_dialect() {
    let spark = b"a,b,c\n\"x \\\"y\\\", \\\\z\\w\",\"\",\n1,\\,2\n";
    let mysql = b"1\t\\N\ta\\tb\\\\N\n2\t\tc\\\td\\\ne\n";
    check(
        "csv",
        vec![
            (
                "Spark",
                spark,
                json!({"dialect": "spark"}),
                Columns(&[
                    "a string: x \"y\", \\z\\w 1",
                    "b string:  \\",
                    "c int64: null 2",
                ]),
            ),
            (
                "Spark that the source does not name",
                spark,
                json!({}),
                Fault(&["line 2, column 6", "dialect: spark", "text stands behind"]),
            ),
            (
                "MySQL",
                mysql,
                json!({"dialect": "mysql", "header": false}),
                Columns(&[
                    "column_1 int64: 1 2",
                    "column_2 string: null ",
                    "column_3 string: a\tb\\N c\td\ne",
                ]),
            ),
            (
                "MySQL that the source does not name",
                mysql,
                json!({"delimiter": "\t", "header": false}),
                Fault(&["dialect: mysql"]),
            ),
            (
                "MySQL with fields in quotes",
                b"a,b\n\"x \\\"y\\\"\",\\N\n",
                json!({"dialect": "mysql", "delimiter": ",", "quote": "\""}),
                Columns(&["a string: x \"y\"", "b string: null"]),
            ),
            (
                "Excel with its line",
                b"\xef\xbb\xbfsep=|\r\na|b;c\r\n1|\"x \"\"y\"\"\"\r\n",
                json!({"dialect": "excel"}),
                Columns(&["a int64: 1", "b;c string: x \"y\""]),
            ),
            (
                "Excel without its line",
                b"a;b\r\n1,5;TRUE\r\n",
                json!({"dialect": "excel", "decimal": ","}),
                Columns(&["a float64: 1.5", "b boolean: true"]),
            ),
            (
                "Excel that the source does not name",
                b"sep=;\na;b\n1;2\n",
                json!({}),
                Fault(&["dialect: excel"]),
            ),
            (
                "pandas without quotes",
                b"a,b\nx\\,y,1\n\\\"z,2\n",
                json!({"dialect": "pandas", "quote": "none", "escape": "\\"}),
                Columns(&["a string: x,y \"z", "b int64: 1 2"]),
            ),
            (
                "pandas with an index and quotes around all texts",
                b"\"\",\"a\"\n0,\"x\"\n1,\"\"\n",
                json!({"dialect": "pandas"}),
                Columns(&[" int64: 0 1", "a string: x null"]),
            ),
            (
                "fields in quotes that are no nulls",
                b"a,b\n\"\",\n\"n/a\",n/a\n",
                json!({"nulls": ["", "n/a"], "quoted_nulls": false}),
                Columns(&["a string:  n/a", "b string: null null"]),
            ),
            (
                "empty fields in quotes, which are texts in columns of texts alone",
                b"a,b,c,d\n\"\",\"\",\"\",\"\"\n,,,\nx,1,2024-01-01,true\n",
                json!({}),
                Columns(&[
                    "a string:  null x",
                    "b int64: null null 1",
                    "c date: null null 2024-01-01",
                    "d boolean: null null true",
                ]),
            ),
            (
                "another null in quotes, beside an empty text",
                b"a,b\n\"\",\"n/a\"\n,n/a\n",
                json!({"nulls": ["", "n/a"]}),
                Columns(&["a string:  null", "b string: null null"]),
            ),
            (
                "all fields in quotes, of which empty ones are null",
                b"a,b\n\"\",\"\"\n\"x\",\"1\"\n",
                json!({"quoted_nulls": true}),
                Columns(&["a string: null x", "b int64: null 1"]),
            ),
            (
                "a file of one column, as DuckDB, Polars and pyarrow write null and an empty text",
                b"a\nx\n\n\"\"\ny\n\n",
                json!({}),
                Columns(&["a string: x null  y null"]),
            ),
            (
                "numbers of one column, with both line ends of Windows",
                b"a\r\n1\r\n\r\n\"\"\r\n2\r\n",
                json!({}),
                Columns(&["a int64: 1 null null 2"]),
            ),
            (
                "one column without a header, whose first row is null",
                b"\nx\n\n",
                json!({"header": false}),
                Columns(&["column_1 string: null x null"]),
            ),
            (
                "one declared column without a header and without values",
                b"\n\n",
                json!({"header": false, "columns": {"a": "int64"}}),
                Columns(&["a int64: null null"]),
            ),
            (
                "the line of a value behind blank lines that are rows",
                b"a\n1\n\n\nx\n",
                json!({"infer_rows": 1}),
                Fault(&["`x`", "line 5", "rows: [3]"]),
            ),
            (
                "one column of pandas, which skips blank lines",
                b"a\n1.0\n\n\"\"\n2.0\n\n",
                json!({"dialect": "pandas"}),
                Columns(&["a float64: 1.0 null 2.0"]),
            ),
            (
                "blank lines before a header",
                b"\n\na\n1\n",
                json!({}),
                Columns(&["a int64: 1"]),
            ),
            (
                "blank lines in a file of two columns",
                b"a,b\n1,2\n\n",
                json!({}),
                Columns(&["a int64: 1", "b int64: 2"]),
            ),
            (
                "files of pandas, where an empty field in quotes is null",
                b"a,b\n\"\",1\n",
                json!({"dialect": "pandas"}),
                Columns(&["a string: null", "b int64: 1"]),
            ),
            (
                "a semicolon file that is read with commas",
                b"a;b\n1;2\n3,5;4\n",
                json!({}),
                Fault(&["`a;b`", "delimiter: \\\";\\\""]),
            ),
            (
                "a semicolon file without a comma that is read with commas",
                b"a;b\n1;2\n",
                json!({}),
                Fault(&["`a;b`", "delimiter"]),
            ),
            (
                "a file of tabs that is read with commas",
                b"a\tb\n1\t2\n",
                json!({}),
                Fault(&["the header is one name", "delimiter"]),
            ),
            (
                "one column whose name holds another delimiter",
                b"a;b\n1\n",
                json!({"delimiter": ","}),
                Columns(&["a;b int64: 1"]),
            ),
        ],
    );
}

#[test]
fn csv_quotes_are_right_or_faults_with_line_and_column() {
    check(
        "csv",
        vec![
            (
                "a quote in a field that does not begin with one",
                b"a,b\n1,x\n2,5\" pipe\n",
                json!({}),
                Fault(&["line 3, column 4", "b", "rows: [1]", "stray_quotes: text"]),
            ),
            (
                "the same as a letter",
                b"a,b\n1,x\n2,5\" pipe\n",
                json!({"stray_quotes": "text"}),
                Columns(&["a int64: 1 2", "b string: x 5\" pipe"]),
            ),
            (
                "a blank before a quote",
                b"a,b\n1, \"x,y\"\n",
                json!({"infer_rows": 1}),
                Fault(&["line 2, column 4"]),
            ),
            (
                "text behind a field in quotes",
                b"a,b\n\"x\ny\" z,1\n",
                json!({}),
                Fault(&["line 3, column 3", "text stands behind"]),
            ),
            (
                "the same as a letter",
                b"a,b\n\"x\"y,1\n",
                json!({"stray_quotes": "text"}),
                Columns(&["a string: xy", "b int64: 1"]),
            ),
            (
                "a quote that is not closed",
                b"a,b\n1,x\n2,\"y\n3,z\n",
                json!({}),
                Fault(&["line 3, column 3", "not closed"]),
            ),
            (
                "a header with a quote that is not closed",
                b"\"a,b\n1,x\n",
                json!({}),
                Fault(&["line 1, column 1", "not closed"]),
            ),
            (
                "no quotes",
                b"a,b\n1,\"x\n",
                json!({"quote": "none"}),
                Columns(&["a int64: 1", "b string: \"x"]),
            ),
        ],
    );
}

#[test]
fn values_that_do_not_fit_become_null_where_the_source_says_so() {
    let missing = json!({"infer_rows": 1, "on_error": "missing"});
    check(
        "csv",
        vec![
            (
                "all columns",
                b"a,b,t\n1,true,2024-01-01\nx,t,1.1.24\n3,false,2024-01-03\n",
                missing.clone(),
                Columns(&[
                    "a int64: 1 null 3",
                    "b boolean: true null false",
                    "t date: 2024-01-01 null 2024-01-03",
                ]),
            ),
            (
                "one column",
                b"a,b\n1,2\nx,3\n",
                json!({"infer_rows": 1, "on_error": {"a": "missing"}}),
                Columns(&["a int64: 1 null", "b int64: 2 3"]),
            ),
            (
                "another column",
                b"a,b\n1,2\nx,3\n",
                json!({"infer_rows": 1, "on_error": {"b": "missing"}}),
                Fault(&["`x`", "line 3"]),
            ),
        ],
    );
    check(
        "json",
        vec![
            (
                "all columns, at any depth",
                b"{\"a\":1,\"o\":{\"x\":[1.5]},\"b\":true}\n{\"a\":\"u\",\"o\":{\"x\":[2,\"v\",{}]},\"b\":\"yes\"}\n{\"a\":[],\"o\":3,\"b\":null}\n",
                missing,
                Columns(&[
                    "a int64: 1 null null",
                    "o struct(x: list of float64): {x: [1.5]} {x: [2.0, null, null]} null",
                    "b boolean: true null null",
                ]),
            ),
            (
                "a broken line stays a fault",
                b"{\"a\":1}\n{\"a\":\n",
                json!({"infer_rows": 1, "on_error": "missing"}),
                Fault(&["rows: [1]"]),
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
                Columns(&["a struct(x: int64): {x: 1} {x: 2}"]),
            ),
            (
                "a field that all rows are looked at for",
                b"{\"a\":1}\n{\"a\":2,\"promo\":\"sale\"}\n",
                json!({"infer_rows": 1, "added": "include"}),
                Columns(&["a int64: 1 2", "promo string: null sale"]),
            ),
            (
                "declared fields alone",
                b"{\"a\":1}\n{\"a\":2,\"promo\":\"sale\"}\n",
                json!({"columns": {"a": "int64"}}),
                Columns(&["a int64: 1 2"]),
            ),
            (
                "objects, lists and fields without any value",
                b"{\"a\":1,\"meta\":{},\"tags\":[],\"no\":null,\"in\":{\"e\":{}}}\n{\"a\":2,\"meta\":null}\n",
                json!({}),
                Columns(&[
                    "a int64: 1 2",
                    "meta string: {} null",
                    "tags list of string: [] null",
                    "no string: null null",
                    "in struct(e: string): {e: {}} null",
                ]),
            ),
            (
                "an empty object that is not after the sample",
                b"{\"a\":1,\"meta\":{}}\n{\"a\":2,\"meta\":{\"k\":1}}\n",
                sample(1),
                Fault(&["is an object, and `meta` is a string", "rows: [1]"]),
            ),
            (
                "an empty object among texts, and one that is not",
                b"{\"meta\":{}}\n{\"meta\":{\"k\":1}}\n{\"meta\":\"x\"}\n{\"meta\":{ }}\n",
                json!({"infer_rows": 1, "on_error": "missing"}),
                Columns(&["meta string: {} null x {}"]),
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
                    "t timestamp_utc: 2024-03-10T10:00:00Z",
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

#[test]
fn json_values_are_of_the_kind_that_the_first_rows_have() {
    let sample = json!({ "infer_rows": 1 });
    let missing = json!({ "infer_rows": 1, "on_error": "missing" });
    let mut cases: Vec<Case> = Vec::new();
    for (text, words) in [
        (
            &b"{\"a\":1}\n\n{\"a\":\"1\"}\n"[..],
            &["is a string", "numbers", "line 3", "columns", "on_error"][..],
        ),
        (
            b"{\"a\":1.5}\n{\"a\":\"1.5\"}\n",
            &["is a string", "line 2"],
        ),
        (b"{\"a\":1.5}\n{\"a\":\"NaN\"}\n", &["is a string", "NaN"]),
        (
            b"{\"a\":18446744073709551615}\n{\"a\":\"1\"}\n",
            &["is a string"],
        ),
        (b"{\"a\":[1]}\n{\"a\":[2,\"1\"]}\n", &["is a string"]),
        (
            b"{\"a\":{\"x\":[1]}}\n{\"a\":{\"x\":[\"1\"]}}\n",
            &["is a string", "a.x"],
        ),
        (
            b"{\"a\":[{\"x\":1}]}\n{\"a\":[{\"x\":\"1\"}]}\n",
            &["is a string", "a.x"],
        ),
        (b"{\"a\":1}\n{\"a\":true}\n", &["`true`", "int64"]),
        (b"{\"a\":1}\n{\"a\":1.5}\n", &["`1.5`", "int64"]),
        (b"{\"a\":1}\n{\"a\":1.0}\n", &["`1.0`", "int64"]),
        (b"{\"a\":1}\n{\"a\":1e2}\n", &["`1e2`", "int64"]),
        (
            b"{\"a\":true}\n{\"a\":\"true\"}\n",
            &["is a string, and `a` is a boolean", "line 2"],
        ),
        (
            b"{\"a\":true}\n{\"a\":1}\n",
            &["is a number, and `a` is a boolean"],
        ),
        (
            b"{\"a\":1}\n{\"a\":{\"k\":1}}\n",
            &["is an object, and `a` is int64"],
        ),
        (
            b"{\"a\":[1]}\n{\"a\":1}\n",
            &["is a number, and `a` is a list of int64"],
        ),
        (
            b"{\"a\":\"x\"}\n{\"a\":[\"x\"]}\n",
            &["is a list, and `a` is a string"],
        ),
    ] {
        cases.push(("another kind", text, sample.clone(), Fault(words)));
    }
    for (text, options, columns) in [
        (
            &b"{\"a\":1}\n{\"a\":1.0}\n{\"a\":1e2}\n"[..],
            &json!({ "columns": { "a": "int64" } }),
            &["a int64: 1 1 100"][..],
        ),
        (
            b"{\"a\":1}\n{\"a\":-0}\n",
            &json!({}),
            &["a float64: 1.0 -0.0"],
        ),
        (
            b"{\"a\":\"x\"}\n{\"a\":1.50}\n{\"a\":true}\n",
            &sample,
            &["a string: x 1.50 true"],
        ),
        (
            b"{\"a\":1}\n{\"a\":\"1\"}\n",
            &json!({}),
            &["a string: 1 1"],
        ),
        (
            b"{\"a\":\"1\"}\n{\"a\":2}\n",
            &json!({ "columns": { "a": "int64" } }),
            &["a int64: 1 2"],
        ),
        (
            b"{\"a\":1,\"l\":[1.5]}\n{\"a\":\"2\",\"l\":[\"2.5\",3]}\n",
            &missing,
            &["a int64: 1 null", "l list of float64: [1.5] [null, 3.0]"],
        ),
    ] {
        cases.push(("fitting values", text, options.clone(), Columns(columns)));
    }
    check("json", cases);
}

#[test]
fn empty_texts_are_written_in_quotes_and_null_without() {
    let dir = tempfile::tempdir().unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec![
        Some(""),
        None,
        Some("\""),
        Some(" "),
        Some(""),
    ]));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("s", texts.clone(), true), ("id", ids, true)])
            .unwrap();
    let file = dir.path().join("a.csv");
    write("csv", json!({ "path": "out" }), &file, &[batch]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "s,id\n\"\",0\n,1\n\"\"\"\",2\n ,3\n\"\",4\n");
    let columns = json!({ "s": "string", "id": "int64" });
    let exact = json!({ "path": file, "columns": columns });
    assert_eq!(read("csv", exact).unwrap().column(0), &texts);
    // Some writers put all fields in quotes, also those without a value.
    let lax = json!({ "path": file, "columns": columns, "quoted_nulls": true });
    assert_eq!(read("csv", lax).unwrap().column(0).null_count(), 3);
    let sink = BuiltInConnectors
        .sink("csv", &json!({ "path": "out" }))
        .unwrap();
    let encode = |texts: ArrayRef, beside: &str| {
        let rows = texts.len() as i64;
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let mut columns = vec![("s", texts, true)];
        if !beside.is_empty() {
            columns.push((beside, ids, true));
        }
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        sink.encode(&batch.schema(), &[batch]).map(drop)
    };
    let single = RecordBatch::try_from_iter_with_nullable([("s", texts.clone(), true)]).unwrap();
    let file = dir.path().join("b.csv");
    write("csv", json!({ "path": "out" }), &file, &[single]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "s\n\"\"\n\n\"\"\"\"\n \n\"\"\n");
    let exact = json!({ "path": file, "columns": { "s": "string" } });
    assert_eq!(read("csv", exact).unwrap().column(0), &texts);
    let marked: ArrayRef = Arc::new(StringArray::from(vec!["\u{fdd0}\u{fdd1}", ""]));
    assert!(encode(marked, "id").is_err(), "the characters of the mark");
    let marked: ArrayRef = Arc::new(StringArray::from(vec![Some("\u{fdd0}\u{fdd1}"), None]));
    assert!(encode(marked, "").is_err(), "the mark beside null");
    let alone: ArrayRef = Arc::new(StringArray::from(vec!["\u{fdd0}\u{fdd1}", "x"]));
    assert!(encode(alone, "id").is_ok());
}
