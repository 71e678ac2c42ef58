//! What people write and hand over, damaged: a fault or a meaning, never a panic, never much memory.

use std::collections::BTreeMap;
use std::fs;

use forebay::run::DeadlineSpec;
use forebay::{Forebay, spec};
use forebay_fuzz::{CountingAllocator, FuzzTarget, fuzz};

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
    let (forebay, params) = (Forebay::new(), BTreeMap::new());
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
