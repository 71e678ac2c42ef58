//! What people write and hand over, damaged: a fault or a meaning, never a panic, never much memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use forebay::run::{DeadlineSpec, PreviewOptions};
use forebay::{Forebay, SessionOptions, spec};
use forebay_fuzz::{CountingAllocator, FuzzTarget, fuzz};

use parquet::arrow::ArrowWriter;

use crate::support::repository;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const WORDS: [&str; 40] = [
    "&a ",
    "*a",
    "<<: ",
    "!!binary ",
    "!!float ",
    "|\n",
    ">\n",
    "---\n",
    "...",
    "%YAML 1.1\n",
    "? ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "#",
    "${",
    "}",
    "${as_of}",
    "version: 1\n",
    "sources:",
    "steps:",
    "params:",
    "sinks:",
    "do:",
    "from: ",
    "time: ",
    "7d",
    "1e400",
    "-1d",
    "9999999999999999999d",
    "\t",
    "\u{85}",
    "~",
    "'",
    "x: &x [*x, *x]\n",
    "0x7fffffffffffffff",
    ".inf",
    "2016-13-45",
];

/// Ready-made specs, and those that are kept.
#[test]
fn specs() {
    let ready = fs::read_dir(repository().join("pipelines/specs")).unwrap();
    let seeds = ready.map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let forebay = Forebay::new();
    let params = BTreeMap::new();
    let words = forebay.spec_catalog();
    fuzz!(
        FuzzTarget::new("specs").seeds(seeds).words(&WORDS),
        |bytes: &[u8]| {
            let _ = spec::parse(
                &String::from_utf8_lossy(bytes),
                "fuzz.yaml",
                &params,
                &words,
            );
        }
    );
}

const VALUES: &str = r#"
version: 1
name: values
params:
  text: { type: string, default: a }
  day: { type: date, default: 2016-05-22 }
  place: { type: path, default: data }
  length: { type: duration, default: 7d }
  at: { type: timestamp, default: 2016-05-22T06:30:00 }
  count: { type: integer, default: 3 }
  share: { type: number, default: 0.5 }
sources: { rows: { parquet: { path: "${place}" }, time: "${text}", lookback: "${length}" } }
steps:
  features:
    from: rows
    do:
      - filter: "at <= DATE '${day}' AND x <> '${text}'"
      - lag: { columns: ["${text}"], by: ["${length}"] }
sinks: { table: { from: features, parquet: { path: "${place}" } } }
deadline: { by: "${text}", ladder: [] }
"#;

/// Values of parameters; durations, instants and deadlines are among what they become.
#[test]
fn values() {
    let forebay = Forebay::new();
    let words = forebay.spec_catalog();
    let seeds = [
        "7d",
        "36h",
        "2016-05-22",
        "2016-05-22T06:30:00Z",
        "06:30",
        "data/*.parquet",
        "1.5",
        "P1DT2H",
        "10m",
    ];
    let more = [
        "${text}",
        "T",
        "Z",
        "[Europe/Berlin]",
        "+25:61",
        "P",
        "d",
        "ns",
        "-",
        "é",
        "/",
    ];
    fuzz!(
        FuzzTarget::new("values")
            .seeds(seeds.map(|seed| seed.as_bytes().to_vec()))
            .words(&more),
        |bytes: &[u8]| {
            let value = String::from_utf8_lossy(bytes).into_owned();
            let _ = DeadlineSpec::parse(&value);
            let _ = value.parse::<forebay::transforms::time::LengthSpec>();
            for name in ["text", "day", "place", "length", "at", "count", "share"] {
                let params = BTreeMap::from([(name.to_owned(), value.clone())]);
                let _ = spec::parse(VALUES, "fuzz.yaml", &params, &words);
            }
        }
    );
}

/// Expressions that are computed.
const EXPRESSIONS: [&str; 24] = [
    "a + b * 2 - c / 3",
    "a % 7 = 3 AND NOT flag",
    "CASE WHEN a > 1 THEN s WHEN b IS NULL THEN 'none' ELSE upper(s) END",
    "coalesce(a, 0) IN (1, 2, 3) OR s LIKE 'a%'",
    "substr(s, 2, 3) || lpad(s, 9, 'x')",
    "repeat(s, 3)",
    "lpad(s, a)",
    "date_trunc('month', d) + INTERVAL '1' DAY",
    "extract(epoch FROM d)",
    "CAST(s AS BIGINT)",
    "TRY_CAST(s AS DOUBLE) > 1e300",
    "regexp_replace(s, '(a|b)+', 'z', 'g')",
    "split_part(s, '-', 2)",
    "array_length(range(1, a))",
    "power(a, b)",
    "factorial(a)",
    "round(c, a)",
    "to_timestamp(a)",
    "to_char(d, '%Y-%m')",
    "named_struct('x', a, 'y', s)['x']",
    "chr(a)",
    "nullif(a, b) << 70",
    "CAST(c AS DECIMAL(38, 10)) * CAST(c AS DECIMAL(38, 10))",
    "md5(s) = encode(sha256(s), 'hex')",
];

const EXPRESSION_WORDS: [&str; 44] = [
    "a",
    "b",
    "c",
    "s",
    "d",
    "flag",
    "(",
    ")",
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " || ",
    " AND ",
    " OR ",
    "NOT ",
    " = ",
    " < ",
    " IS NULL",
    " IS DISTINCT FROM ",
    "CASE WHEN ",
    " THEN ",
    " ELSE ",
    " END",
    "CAST(",
    " AS ",
    "BIGINT",
    "DECIMAL(38, 38)",
    "TIMESTAMP",
    "INTERVAL '1' MONTH",
    "::date",
    "repeat(",
    "range(",
    "array_repeat(",
    "concat_ws(",
    "strpos(",
    "translate(",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "'\u{1f600}'",
    "''",
    "[0]",
];

const EXPRESSION_SPEC: &str = r#"
version: 1
name: computed
sources: { rows: { parquet: { path: ROWS } } }
steps: { made: { from: rows, do: [ { derive: { z: EXPRESSION } } ] } }
"#;

/// Expressions over a few rows of all kinds: a value or a fault, and never one that says that the program is wrong.
#[test]
fn expressions() {
    let folder = tempfile::tempdir().unwrap();
    write_rows(&folder.path().join("rows.parquet"));
    let options = SessionOptions {
        threads: 1,
        memory_bytes: 64 << 20,
        batch_rows: 1024,
        state: folder.path().join("state").display().to_string(),
        run_id: None,
    };
    let session = Forebay::new().with_options(options).session().unwrap();
    let rows = folder.path().join("rows.parquet").display().to_string();
    let forebay = Forebay::new();
    let params = BTreeMap::new();
    let words = forebay.spec_catalog();
    let seeds = EXPRESSIONS.map(|seed| seed.as_bytes().to_vec());
    let target = FuzzTarget::new("expressions").seeds(seeds);
    fuzz!(target.words(&EXPRESSION_WORDS), |bytes: &[u8]| {
        let expression = serde_json::to_string(&String::from_utf8_lossy(bytes)).unwrap();
        let text = EXPRESSION_SPEC
            .replace("ROWS", &rows)
            .replace("EXPRESSION", &expression);
        let Ok(pipeline) = spec::parse(&text, "fuzz.yaml", &params, &words) else {
            return;
        };
        if let Err(fault) = session.preview(&pipeline, &PreviewOptions::default()) {
            assert_ne!(fault.code().exit_code(), 70, "{fault:?}");
        }
    });
}

/// Rows with the numbers, texts and times that trouble expressions.
fn write_rows(path: &Path) {
    let numbers = [
        Some(1),
        Some(-1),
        None,
        Some(i64::MAX),
        Some(i64::MIN),
        Some(0),
    ];
    let reals = [1.5, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e308];
    let texts = [
        Some("a-b-c"),
        Some(""),
        None,
        Some("\u{1f600}é"),
        Some("12"),
        Some("%_"),
    ];
    let times = [0, i64::MAX, i64::MIN, 1_600_000_000_000_000, -1, 1];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int64Array::from_iter(numbers))),
        (
            "b",
            Arc::new(Int32Array::from_iter_values([
                1,
                0,
                -1,
                i32::MAX,
                i32::MIN,
                64,
            ])),
        ),
        ("c", Arc::new(Float64Array::from_iter_values(reals))),
        ("s", Arc::new(StringArray::from_iter(texts))),
        (
            "d",
            Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter([
                Some(true),
                None,
                Some(false),
                None,
                None,
                None,
            ])),
        ),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer =
        ArrowWriter::try_new(fs::File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}
