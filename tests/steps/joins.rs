//! Joins by equal keys against one that looks at every pair of rows: all kinds and cardinalities, keys of all types,
//! nulls and skew, with a lookup table, with partitions in memory and on disk, and on workers.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::datatypes::Int64Type;

use crate::support::TestDirectory;
use crate::support::series;

const SPEC: &str = r#"
version: 1
name: joins
sources:
  here: { parquet: { path: here } }
  there: { parquet: { path: there } }
  many: { parquet: { path: many } }
steps:
  left: { from: here, do: [{ join: { with: there, on: ON, STRATEGY } }, { select: [id, met, name] }] }
  inner: { from: here, do: [{ join: { with: there, on: ON, how: inner, STRATEGY } }, { select: [id, met, name] }] }
  semi: { from: here, do: [{ join: { with: many, on: ON, how: semi, STRATEGY } }, { select: [id] }] }
  anti: { from: here, do: [{ join: { with: many, on: ON, how: anti, STRATEGY } }, { select: [id] }] }
  one: { from: there, do: [{ join: { with: there, on: ON, prefix: its_, cardinality: one_to_one, STRATEGY } }, { select: [met, its_met] }] }
  pairs: { from: here, do: [{ join: { with: many, on: ON, cardinality: many_to_many, columns: [met, name] } }, { select: [id, met, name] }] }
  inner_pairs: { from: here, do: [{ join: { with: many, on: ON, how: inner, cardinality: many_to_many } }, { select: [id, met, name] }] }
sinks:
  left: { from: left, parquet: { path: out/left } }
  inner: { from: inner, parquet: { path: out/inner } }
  semi: { from: semi, parquet: { path: out/semi } }
  anti: { from: anti, parquet: { path: out/anti } }
  one: { from: one, parquet: { path: out/one } }
  pairs: { from: pairs, parquet: { path: out/pairs } }
  inner_pairs: { from: inner_pairs, parquet: { path: out/inner_pairs } }
"#;

const OUTPUTS: [&str; 7] = [
    "left",
    "inner",
    "semi",
    "anti",
    "one",
    "pairs",
    "inner_pairs",
];

/// A NaN with other bits than that of the language.
const OTHER_NAN: f64 = f64::from_bits(0xfff8_0000_0000_0007);

/// Key columns: their names, and values of each for a number, with nulls.
#[derive(Clone, Copy)]
struct KeyCase {
    columns: &'static [&'static str],
}

/// Composite keys differ where any of their columns does.
const CASES: [KeyCase; 6] = [
    KeyCase { columns: &["text"] },
    KeyCase { columns: &["int"] },
    KeyCase {
        columns: &["float"],
    },
    KeyCase { columns: &["day"] },
    KeyCase {
        columns: &["code", "int"],
    },
    KeyCase {
        columns: &["text", "float", "day"],
    },
];

fn pseudo_random(row: u64) -> u64 {
    let row = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (row ^ (row >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 20
}

/// The column of keys with these numbers. Number 0 is null in the first column of a key; 1 and 2 are zeros and NaN among
/// floats, whose bits depend on `side`.
fn key_column(name: &str, first: bool, numbers: &[u64], side: usize) -> ArrayRef {
    let valid = |number: &u64| !first || *number != 0;
    let given = |number: &u64| Some(*number).filter(valid);
    let numbers = numbers.iter();
    match name {
        "text" => Arc::new(StringArray::from_iter(
            numbers.map(|n| given(n).map(|n| format!("key {n}"))),
        )),
        // Widths may differ.
        "int" if side == 0 => Arc::new(
            numbers
                .map(|n| given(n).map(|n| n as i32 - 100))
                .collect::<Int32Array>(),
        ),
        "int" => Arc::new(
            numbers
                .map(|n| given(n).map(|n| n as i64 - 100))
                .collect::<Int64Array>(),
        ),
        "float" => Arc::new(
            numbers
                .map(|n| {
                    given(n).map(|n| match (n, side) {
                        (1, 0) => -0.0,
                        (1, _) => 0.0,
                        (2, 0) => OTHER_NAN,
                        (2, _) => f64::NAN,
                        (n, _) => n as f64 / 4.0,
                    })
                })
                .collect::<Float64Array>(),
        ),
        "day" => Arc::new(
            numbers
                .map(|n| given(n).map(|n| n as i32 * 3))
                .collect::<Date32Array>(),
        ),
        "code" => Arc::new(StringArray::from_iter(
            numbers.map(|n| given(n).map(|n| format!("c{}", n % 7))),
        )),
        other => panic!("no key column {other}"),
    }
}

/// Rows of one side: the number of their key, and columns.
struct Side {
    keys: Vec<u64>,
    batch: RecordBatch,
}

impl Side {
    fn new(case: KeyCase, keys: Vec<u64>, side: usize, own: Vec<(&str, ArrayRef)>) -> Side {
        let columns = case.columns.iter().enumerate();
        let columns =
            columns.map(|(place, name)| (*name, key_column(name, place == 0, &keys, side)));
        let all = columns
            .chain(own)
            .map(|(name, column)| (name, column, true));
        Side {
            batch: RecordBatch::try_from_iter_with_nullable(all).unwrap(),
            keys,
        }
    }

    fn there(case: KeyCase, keys: Vec<u64>) -> Side {
        let met = Int64Array::from_iter_values(0..keys.len() as i64);
        let name =
            |row: usize| (!row.is_multiple_of(5)).then(|| format!("name {}", "x".repeat(row % 40)));
        let name = StringArray::from_iter((0..keys.len()).map(name));
        Side::new(
            case,
            keys,
            1,
            vec![("met", Arc::new(met)), ("name", Arc::new(name))],
        )
    }

    fn matches(&self, key: u64) -> Vec<usize> {
        let rows = self.keys.iter().enumerate();
        rows.filter(|(_, known)| key != 0 && **known == key)
            .map(|(row, _)| row)
            .collect()
    }
}

/// A row that comes out: here and there.
type Pair = (i64, Option<i64>);

fn expected(output: &str, here: &Side, there: &Side, many: &Side) -> Vec<Pair> {
    let other = if ["left", "inner"].contains(&output) {
        there
    } else {
        many
    };
    let mut pairs = Vec::new();
    if output == "one" {
        return (0..there.keys.len())
            .map(|row| {
                (
                    row as i64,
                    there.matches(there.keys[row]).pop().map(|r| r as i64),
                )
            })
            .collect();
    }
    for (row, key) in here.keys.iter().enumerate() {
        let found = other.matches(*key);
        let row = row as i64;
        match output {
            "semi" if !found.is_empty() => pairs.push((row, None)),
            "anti" if found.is_empty() => pairs.push((row, None)),
            "left" | "pairs" if found.is_empty() => pairs.push((row, None)),
            "left" | "inner" | "pairs" | "inner_pairs" => {
                pairs.extend(found.iter().map(|met| (row, Some(*met as i64))))
            }
            _ => {}
        }
    }
    pairs
}

fn integers(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    batch
        .column_by_name(name)
        .unwrap()
        .as_primitive::<Int64Type>()
        .iter()
        .collect()
}

/// What a run reads as: the shares of its memory, and how it is divided.
struct JoinRun {
    strategy: &'static str,
    /// Bytes of tables and of rows that are partitioned.
    bytes: Option<&'static str>,
    args: &'static [&'static str],
}

const RUNS: [JoinRun; 3] = [
    JoinRun {
        strategy: "strategy: lookup",
        bytes: None,
        args: &["--threads=2"],
    },
    JoinRun {
        strategy: "strategy: shuffle",
        bytes: None,
        args: &["--threads=1", "--batch-rows=100"],
    },
    JoinRun {
        strategy: "strategy: shuffle",
        bytes: Some("12000"),
        args: &["--threads=3"],
    },
];

const ON_WORKERS: JoinRun = JoinRun {
    strategy: "strategy: shuffle",
    bytes: Some("12000"),
    args: &["--threads=2", "--local-workers=2"],
};

#[test]
fn joins_give_the_rows_of_a_reference() {
    for (number, case) in CASES.into_iter().enumerate() {
        let shop = TestDirectory::new();
        // Half of the rows here have one key, and half of those in `many` another one. Unique keys come in no order.
        let here: Vec<u64> = (0..900)
            .map(|row| {
                if row % 2 == 0 {
                    7
                } else {
                    pseudo_random(row) % 260
                }
            })
            .collect();
        let mut there: Vec<u64> = (1..200).map(|key| key * 71 % 199 + 1).collect();
        there.extend([0, 0]);
        let many = (0..600)
            .map(|row| {
                if row % 2 == 0 {
                    9
                } else {
                    pseudo_random(row + 7_777) % 260
                }
            })
            .collect();
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..here.len() as i64));
        let here = Side::new(case, here, 0, vec![("id", id)]);
        let (there, many) = (Side::there(case, there), Side::there(case, many));
        for (name, side, files) in [("here", &here, 3), ("there", &there, 2), ("many", &many, 3)] {
            series::write(&shop, name, &side.batch, files, 50);
        }
        let mut known: Option<Vec<RecordBatch>> = None;
        let workers = Some(&ON_WORKERS).filter(|_| number == CASES.len() - 1);
        for run in RUNS.iter().chain(workers) {
            let on = format!("[{}]", case.columns.join(", "));
            shop.write(
                "spec.yaml",
                &SPEC.replace("ON", &on).replace("STRATEGY", run.strategy),
            );
            let mut command = shop
                .command(&[&["run", "spec.yaml", "--state=state", "--json"], run.args].concat());
            command
                .env("FOREBAY_RANGE_BYTES", "1")
                .envs(run.bytes.map(|bytes| ("FOREBAY_JOIN_BYTES", bytes)));
            let call: crate::support::ProgramOutput = command.output().unwrap().into();
            call.expect(0);
            let what = format!("{on} {} {:?}", run.strategy, run.args);
            let tables = OUTPUTS.map(|output| shop.visible(&format!("out/{output}")));
            for (output, table) in OUTPUTS.iter().zip(&tables) {
                let expected = expected(output, &here, &there, &many);
                let (own, met) = if *output == "one" {
                    ("met", "its_met")
                } else {
                    ("id", "met")
                };
                let ids: Vec<Option<i64>> = expected.iter().map(|(row, _)| Some(*row)).collect();
                assert_eq!(integers(table, own), ids, "{output} {what}");
                if table.column_by_name(met).is_some() {
                    let rows: Vec<Option<i64>> = expected.iter().map(|(_, met)| *met).collect();
                    assert_eq!(integers(table, met), rows, "{output} {what}");
                }
                let Some(names) = table.column_by_name("name") else {
                    continue;
                };
                let other = if ["left", "inner"].contains(output) {
                    &there
                } else {
                    &many
                };
                let text = |column: &ArrayRef, row: usize| {
                    let column = column.as_string::<i32>();
                    column.is_valid(row).then(|| column.value(row).to_owned())
                };
                let theirs = other.batch.column_by_name("name").unwrap();
                for (row, (_, met)) in expected.iter().enumerate() {
                    assert_eq!(
                        text(names, row),
                        met.and_then(|met| text(theirs, met as usize)),
                        "{output} {what}"
                    );
                }
            }
            let tables = tables.to_vec();
            assert!(
                *known.get_or_insert_with(|| tables.clone()) == tables,
                "other bits: {what}"
            );
            std::fs::remove_dir_all(shop.path("out")).unwrap();
            std::fs::remove_dir_all(shop.path("state")).unwrap();
        }
    }
}

const CHECKED: &str = r#"
version: 1
name: checks
sources:
  here: { parquet: { path: here } }
  there: { parquet: { path: there } }
steps:
  joined: { from: here, do: [{ join: { with: there, on: [int], STEP } }] }
sinks:
  table: { from: joined, parquet: { path: out } }
"#;

#[test]
fn cardinalities_are_checked_and_name_the_key() {
    let case = KeyCase { columns: &["int"] };
    let shop = TestDirectory::new();
    let write = |here: &[u64], there: &[u64]| {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..here.len() as i64));
        let here = Side::new(case, here.to_vec(), 0, vec![("id", id)]);
        let there = Side::there(case, there.to_vec());
        series::write(&shop, "here", &here.batch, 1, 50);
        series::write(&shop, "there", &there.batch, 1, 50);
    };
    let call = |step: &str, bytes: &str| -> crate::support::ProgramOutput {
        shop.write("spec.yaml", &CHECKED.replace("STEP", step));
        let args = ["run", "spec.yaml", "--json", "--allow-empty"];
        shop.command(&args)
            .env("FOREBAY_JOIN_BYTES", bytes)
            .output()
            .unwrap()
            .into()
    };
    let unique: Vec<u64> = (1..300).collect();
    let twice: Vec<u64> = unique.iter().copied().chain([123]).collect();
    for (strategy, bytes) in [
        ("lookup", "1000000"),
        ("shuffle", "1000000"),
        ("shuffle", "12000"),
    ] {
        for kind in ["left", "inner"] {
            // The key is refused whether a row meets it or not.
            for here in [&twice[..], &[5]] {
                write(here, &twice);
                let found = call(&format!("how: {kind}, strategy: {strategy}"), bytes).expect(65);
                for word in [
                    "FB0207",
                    "`there` holds the key int = 23 more than once",
                    "many_to_many",
                ] {
                    assert!(
                        found.stdout.contains(word),
                        "{kind} {strategy} {bytes}: {}",
                        found.stdout
                    );
                }
            }
        }
        write(&twice, &unique);
        let found = call(
            &format!("cardinality: one_to_one, strategy: {strategy}"),
            bytes,
        )
        .expect(65);
        for word in ["FB0207", "several rows meet one row of `there`", "int = 23"] {
            assert!(
                found.stdout.contains(word),
                "{strategy} {bytes}: {}",
                found.stdout
            );
        }
        call(
            &format!("cardinality: many_to_one, strategy: {strategy}"),
            bytes,
        )
        .expect(0);
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        std::fs::remove_dir_all(shop.root("out")).unwrap();
    }
    for step in [
        "how: semi, columns: [met]",
        "how: anti, cardinality: many_to_many",
    ] {
        let found = call(step, "12000").expect(78);
        assert!(
            found.stdout.contains("needs `how: left` or `how: inner`"),
            "{step}: {}",
            found.stdout
        );
    }
}

#[test]
fn a_shuffle_join_is_done_again_if_either_side_changes() {
    let case = KeyCase { columns: &["int"] };
    let shop = TestDirectory::new();
    let keys: Vec<u64> = (1..50).collect();
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..keys.len() as i64));
    let here = Side::new(case, keys.clone(), 0, vec![("id", id)]);
    series::write(&shop, "here", &here.batch, 1, 50);
    let write_there =
        |keys: Vec<u64>| series::write(&shop, "there", &Side::there(case, keys).batch, 1, 50);
    write_there(keys.clone());
    let run = |cardinality: &str| {
        let step = format!("strategy: shuffle, cardinality: {cardinality}");
        shop.write("spec.yaml", &CHECKED.replace("STEP", &step));
        let summary = shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        (
            summary["passes"]
                .as_array()
                .unwrap()
                .iter()
                .all(|pass| pass["reused"] == true),
            shop.visible("out"),
        )
    };
    for cardinality in ["many_to_one", "many_to_many"] {
        let (reused, first) = run(cardinality);
        assert!(!reused);
        let (reused, again) = run(cardinality);
        assert!(reused && again == first, "{cardinality}");
        write_there(keys.iter().rev().copied().collect());
        let (reused, changed) = run(cardinality);
        assert!(!reused);
        let mut met = integers(&changed, "met");
        met.reverse();
        assert_eq!(met, integers(&first, "met"), "{cardinality}");
        write_there(keys.clone());
    }
}

#[test]
fn explain_names_the_method_of_each_join() {
    let case = KeyCase { columns: &["int"] };
    let shop = TestDirectory::new();
    let keys: Vec<u64> = (1..50).collect();
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..keys.len() as i64));
    series::write(
        &shop,
        "here",
        &Side::new(case, keys.clone(), 0, vec![("id", id)]).batch,
        1,
        50,
    );
    series::write(&shop, "there", &Side::there(case, keys).batch, 1, 50);
    for (step, method) in [
        ("how: left", "lookup table"),
        ("how: left, strategy: shuffle", "shuffle join"),
        ("how: left, cardinality: many_to_many", "shuffle join"),
    ] {
        shop.write("spec.yaml", &CHECKED.replace("STEP", step));
        let text = shop.forebay(&["explain", "spec.yaml"]).expect(0).stdout;
        assert!(
            text.contains(&format!("joined.join  {method}")),
            "{step}: {text}"
        );
    }
}
