//! The promise about memory, held against real processes: a run stays within 1.3 times `--memory` and 150 MiB, or it
//! stops with a fault before it would not.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter as IpcFileWriter, IpcWriteOptions};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

use crate::support::{ProgramOutput, TestDirectory, has_pyarrow, repository};

/// The least that `--memory` takes.
const LIMIT: &str = "64MiB";

/// The promise for that, in KiB, without the program's own code: 1.3 times the limit and 90 MiB. The remaining 60 MiB
/// of the promise are for code, of which a debug program maps twice as much as a released one. Mapped code also depends
/// on what the page cache holds.
const PROMISED_KIB: u64 = (64 * 13 / 10 + 90) << 10;

const HEAD: &str = "version: 1\nname: job\nsources:\n  rows: { parquet: { path: rows.parquet } }\n";
const SINK: &str = "sinks: { table: { from: made, parquet: { path: out } } }\n";

/// Rows of a batch that is written, and a text that makes them large without many of them.
const BATCH_ROWS: u64 = 5_000;
const PAD_BYTES: usize = 700;

/// Writes rows to a file of small row groups, batch by batch.
fn table(
    workshop: &TestDirectory,
    name: &str,
    batches: impl Iterator<Item = Vec<(&'static str, ArrayRef)>>,
) {
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(5_000));
    table_with(workshop, name, properties.build(), batches);
}

/// Writes rows to a file with some properties, batch by batch.
fn table_with(
    workshop: &TestDirectory,
    name: &str,
    properties: WriterProperties,
    batches: impl Iterator<Item = Vec<(&'static str, ArrayRef)>>,
) {
    let mut writer: Option<ArrowWriter<File>> = None;
    for columns in batches {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let writer = writer.get_or_insert_with(|| {
            let file = File::create(workshop.path(name)).unwrap();
            ArrowWriter::try_new(file, batch.schema(), Some(properties.clone())).unwrap()
        });
        writer.write(&batch).unwrap();
    }
    writer.unwrap().close().unwrap();
}

/// Numbers that look like chance.
fn pseudo_random(row: u64) -> u64 {
    let row = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (row ^ (row >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 20
}

/// Runs the program. Returns its result and the peak of its resident memory without mapped files, in KiB. The system
/// forgets the peak when the process ends, so the status is read every millisecond.
fn measured(workshop: &TestDirectory, args: &[&str]) -> (ProgramOutput, u64) {
    let file = |name| File::create(workshop.path(name)).unwrap();
    let mut command = workshop.command(args);
    #[allow(clippy::zombie_processes, reason = "the loop ends with the child")]
    let mut child = command
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let mut code = None;
    while code.is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let kib = |name: &str| -> Option<u64> {
            status.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .trim()
                    .strip_suffix(" kB")?
                    .parse()
                    .ok()
            })
        };
        // Mapped files only grow, so that the peak less what is mapped now is at most what was held at the peak.
        let held = kib("VmHWM:")
            .zip(kib("RssFile:"))
            .map(|(highest, mapped)| highest.saturating_sub(mapped));
        peak = peak.max(held.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
        code = child.try_wait().unwrap();
    }
    assert!(peak > 0, "the system does not tell what a process holds");
    let said = |name| std::fs::read_to_string(workshop.path(name)).unwrap();
    let code = code.and_then(|status| status.code()).unwrap_or(-1);
    (
        ProgramOutput {
            code,
            stdout: said("stdout"),
            stderr: said("stderr"),
        },
        peak,
    )
}

/// Runs a spec under the least limit; the peak must be within the promise.
#[track_caller]
fn run_within_limit(workshop: &TestDirectory, steps: &str, code: i32) -> ProgramOutput {
    run_within_promise(workshop, steps).expect(code)
}

/// Runs a spec under the least limit. It ends well, or is refused since it does not fit.
#[track_caller]
fn run_or_refuse(workshop: &TestDirectory, steps: &str) {
    let call = run_within_promise(workshop, steps);
    let is_refused = call.code == 78 && call.stdout.contains("FB0301");
    assert!(call.code == 0 || is_refused, "{steps}: {}", call.stdout);
    std::fs::remove_dir_all(workshop.path("state")).unwrap();
}

#[track_caller]
fn run_within_promise(workshop: &TestDirectory, steps: &str) -> ProgramOutput {
    let spec = workshop.write("job.yaml", steps);
    let (call, peak) = measured(
        workshop,
        &[
            "run",
            &spec,
            "--memory",
            LIMIT,
            "--threads",
            "2",
            "--state",
            "state",
            "--json",
        ],
    );
    println!("peak: {} MiB of {}", peak >> 10, PROMISED_KIB >> 10);
    assert!(
        peak <= PROMISED_KIB,
        "a peak of {peak} KiB, promised were {PROMISED_KIB} KiB: {steps}"
    );
    let left = std::fs::read_dir(workshop.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with("tmp-"))
        .collect();
    assert!(left.is_empty(), "temporary files are left: {left:?}");
    call
}

fn steps(steps: &str) -> String {
    format!("{HEAD}steps: {{ made: {{ from: rows, do: [{steps}] }} }}\n{SINK}")
}

fn texts(rows: std::ops::Range<u64>, text: impl Fn(u64) -> String) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.map(text)))
}

fn numbers(rows: std::ops::Range<u64>, number: impl Fn(u64) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(number)))
}

fn padded(number: u64) -> String {
    format!("{number:0PAD_BYTES$}")
}

/// Batches of rows.
fn batches(rows: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..rows)
        .step_by(BATCH_ROWS as usize)
        .map(move |from| from..(from + BATCH_ROWS).min(rows))
}

fn integers(batch: &RecordBatch, name: &str) -> Vec<i64> {
    batch
        .column_by_name(name)
        .unwrap()
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[test]
fn a_vocabulary_that_does_not_fit_is_refused_before_it_is_made() {
    let workshop = TestDirectory::new();
    let rows = 160_000;
    table(
        &workshop,
        "rows.parquet",
        batches(rows).map(|rows| vec![("word", texts(rows, padded))]),
    );
    let call = run_within_limit(&workshop, &steps("{ vocabulary: { columns: [word] } }"), 78);
    assert!(
        call.stdout.contains("FB0301") && call.stdout.contains("top_k"),
        "{}",
        call.stdout
    );
    std::fs::remove_dir_all(workshop.path("state")).unwrap();
    // Of a state that is kept, only the first tokens are there, and the next run takes them.
    let few = steps("{ vocabulary: { columns: [word], top_k: 100 } }");
    run_within_limit(&workshop, &few, 0);
    let states: u64 = std::fs::read_dir(workshop.path("state/states"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(states < 200 * PAD_BYTES as u64, "{states} bytes of states");
    let again = run_within_limit(&workshop, &few.replace("path: out", "path: again"), 0);
    assert_eq!(
        again.summary()["passes"][0]["reused"],
        true,
        "{}",
        again.stdout
    );
    let ids = integers(&workshop.visible("again"), "word");
    assert_eq!(ids, integers(&workshop.visible("out"), "word"));
    assert_eq!(ids.iter().filter(|id| **id >= 0).count(), 100);
}

#[test]
fn moments_of_too_many_groups_are_refused_before_they_are_made() {
    let workshop = TestDirectory::new();
    let columns = |rows: std::ops::Range<u64>| -> Vec<(&'static str, ArrayRef)> {
        let time = TimestampMicrosecondArray::from_iter_values(
            rows.clone().map(|row| row as i64 * 60_000_000),
        );
        let word = texts(rows.clone(), padded);
        vec![
            ("word", word),
            ("time", Arc::new(time)),
            ("x", numbers(rows, |row| row as i64)),
        ]
    };
    table(&workshop, "rows.parquet", batches(160_000).map(columns));
    let step =
        steps("{ pooled: { columns: [x], compute: [mean], by: [word], over: [1h], gap: 1h } }");
    let spec = step.replace("path: rows.parquet }", "path: rows.parquet }, time: time");
    let call = run_within_limit(&workshop, &spec, 78);
    assert!(
        call.stdout.contains("FB0301") && call.stdout.contains("what is learned needs"),
        "{}",
        call.stdout
    );
}

#[test]
fn wide_vectors_are_computed_a_few_rows_at_a_time() {
    let workshop = TestDirectory::new();
    let rows = 3_000;
    table(
        &workshop,
        "rows.parquet",
        batches(rows).map(|rows| vec![("word", texts(rows, |row| row.to_string()))]),
    );
    let spec = steps(
        "{ one_hot: { columns: [word] } }, { derive: { first: \"word[1]\" } }, { select: [first] }",
    );
    let spec = spec.replace("{ select: [first] }", "");
    let spec = spec.replace(
        "parquet: { path: out }",
        "arrow: { path: out, compression: none }",
    );
    // 3,000 rows of 40,000 values.
    let spec = spec.replace(
        "one_hot: { columns: [word] }",
        &format!(
            "one_hot: {{ columns: [word], categories: [{}] }}",
            (0..40_000)
                .map(|word| format!("\"{word}\""))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    );
    run_within_limit(&workshop, &spec, 0);
}

#[test]
fn rows_beyond_memory_are_deduplicated() {
    let workshop = TestDirectory::new();
    let rows = 60_000;
    let id = |row| (pseudo_random(row) % 40_000) as i64;
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            ("id", numbers(rows.clone(), id)),
            ("row", numbers(rows.clone(), |row| row as i64)),
            (
                "pad",
                texts(rows, |row| padded(pseudo_random(row) % 40_000)),
            ),
        ]
    };
    table(&workshop, "rows.parquet", batches(rows).map(columns));
    for (config, last) in [
        ("{ keys: [id, pad] }", false),
        ("{ keys: [pad], keep: last }", true),
    ] {
        run_within_limit(
            &workshop,
            &steps(&format!("{{ dedupe: {config} }}, {{ drop: [pad] }}")),
            0,
        );
        let mut kept: HashMap<i64, u64> = HashMap::new();
        for row in 0..rows {
            let kept = kept.entry(id(row)).or_insert(row);
            *kept = if last { row } else { *kept };
        }
        let mut expected: Vec<i64> = kept.into_values().map(|row| row as i64).collect();
        expected.sort_unstable();
        assert!(
            integers(&workshop.visible("out"), "row") == expected,
            "{config}"
        );
    }
}

#[test]
fn as_of_joins_beyond_memory_meet_the_rows_before() {
    let here = 40_000;
    let there = 30_000;
    let steps = steps(
        "{ as_of_join: { with: others, on: [key], time: time, columns: [row], suffix: _met } }, { drop: [key] }",
    );
    let source = |name: &str| format!("  {name}: {{ parquet: {{ path: {name} }}, time: time }}\n");
    let steps = &steps[HEAD.len()..];
    let spec = format!(
        "version: 1\nname: job\nsources:\n{}{}{steps}",
        source("rows"),
        source("others")
    );
    // Whether both sides come in order of time, in how many files, and how many keys there are.
    for (in_order, files, keys) in [
        (false, 1, 50),
        (true, 1, 50),
        (true, 4, 50),
        (true, 4, 20_000),
    ] {
        let workshop = TestDirectory::new();
        let key = move |row| pseudo_random(row) % keys;
        let time = move |row: u64| {
            if in_order {
                (row % here * 25) as i64
            } else {
                (pseudo_random(row + 1_000_003) % 1_000_000) as i64
            }
        };
        let columns = move |rows: std::ops::Range<u64>| -> Vec<(&'static str, ArrayRef)> {
            let times = TimestampMicrosecondArray::from_iter_values(rows.clone().map(time));
            vec![
                ("key", texts(rows.clone(), move |row| padded(key(row)))),
                ("time", Arc::new(times)),
                ("row", numbers(rows, |row| row as i64)),
            ]
        };
        for (name, first, rows) in [("rows", 0, here), ("others", here, there)] {
            std::fs::create_dir(workshop.path(name)).unwrap();
            for file in 0..files {
                let part = batches(rows).filter(|batch| batch.start * files / rows == file);
                let part = part.map(|batch| columns(batch.start + first..batch.end + first));
                table(&workshop, &format!("{name}/part-{file}.parquet"), part);
            }
        }
        let call = run_within_limit(&workshop, &spec, 0);
        let spills = call.stdout.contains(r#""event":"spilled""#);
        let outgrows = call
            .stdout
            .contains("the last rows of keys outgrow the memory, so they are sorted first");
        let expected = (!in_order || keys > 50, files > 1 && keys > 50);
        assert_eq!(
            (spills, outgrows),
            expected,
            "sides in order of time are merged, others are sorted"
        );
        let mut met: BTreeMap<(u64, i64), i64> = BTreeMap::new();
        met.extend((here..here + there).map(|row| ((key(row), time(row)), row as i64)));
        let out = workshop.visible("out");
        assert_eq!(integers(&out, "row"), (0..here as i64).collect::<Vec<_>>());
        let found = out
            .column_by_name("row_met")
            .unwrap()
            .as_primitive::<Int64Type>();
        for row in 0..here {
            let before = met
                .range((key(row), i64::MIN)..=(key(row), time(row)))
                .next_back()
                .map(|(_, met)| *met);
            assert_eq!(
                found
                    .is_valid(row as usize)
                    .then(|| found.value(row as usize)),
                before,
                "row {row}"
            );
        }
    }
}

#[test]
fn joins_beyond_memory_partition_both_sides() {
    let workshop = TestDirectory::new();
    let here = 50_000;
    let there = 40_000;
    // Every key of the other side is met by some rows, and half of all rows here have one key.
    let key = move |row: u64| {
        if row.is_multiple_of(2) {
            3
        } else {
            pseudo_random(row) % (2 * there)
        }
    };
    let columns = move |rows: std::ops::Range<u64>,
                        key: &dyn Fn(u64) -> u64|
          -> Vec<(&'static str, ArrayRef)> {
        vec![
            ("key", texts(rows.clone(), |row| padded(key(row)))),
            ("row", numbers(rows.clone(), |row| row as i64)),
            ("pad", texts(rows, padded)),
        ]
    };
    table(
        &workshop,
        "rows.parquet",
        batches(here).map(|rows| columns(rows, &key)),
    );
    // 0 to `there`, in no order; half of the rows of `skewed` have one key, which few rows here have.
    let place = move |row: u64| row * 7_919 % there;
    let rare = (0..here)
        .map(key)
        .find(|key| *key != 3 && *key < there)
        .unwrap();
    let skewed = move |row: u64| {
        if row.is_multiple_of(2) {
            rare
        } else {
            place(row)
        }
    };
    table(
        &workshop,
        "others.parquet",
        batches(there).map(|rows| columns(rows, &place)),
    );
    table(
        &workshop,
        "skewed.parquet",
        batches(there).map(|rows| columns(rows, &skewed)),
    );
    let mut matches: HashMap<u64, Vec<i64>> = HashMap::new();
    (0..there).for_each(|row| matches.entry(skewed(row)).or_default().push(row as i64));
    let rows_of: HashMap<u64, i64> = (0..there).map(|row| (place(row), row as i64)).collect();
    let sources = "sources:\n  others: { parquet: { path: others.parquet } }\n  skewed: { parquet: { path: skewed.parquet } }";
    let run = |join: &str, brought: &str| {
        let spec = steps(&format!(
            "{{ join: {{ on: [key], {join} }} }}, {{ select: [row{brought}] }}"
        ));
        let call = run_within_limit(&workshop, &spec.replace("sources:", sources), 0);
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
        call.stdout
    };
    let said = run(
        "with: others, columns: [row, pad], suffix: _met",
        ", row_met, pad_met",
    );
    assert!(said.contains("exceed their share of the memory"), "{said}");
    let out = workshop.visible("out");
    assert_eq!(integers(&out, "row"), (0..here as i64).collect::<Vec<_>>());
    let found = out
        .column_by_name("row_met")
        .unwrap()
        .as_primitive::<Int64Type>();
    let pads = out.column_by_name("pad_met").unwrap().as_string::<i32>();
    for row in 0..here as usize {
        let met = rows_of.get(&key(row as u64)).copied();
        assert_eq!(
            found.is_valid(row).then(|| found.value(row)),
            met,
            "row {row}"
        );
        assert!(
            met.is_none_or(|met| pads.value(row) == padded(met as u64)),
            "row {row}"
        );
    }
    let meets = |row: &u64| matches.contains_key(&key(*row));
    run("with: skewed, how: anti", "");
    let expected: Vec<i64> = (0..here)
        .filter(|row| !meets(row))
        .map(|row| row as i64)
        .collect();
    assert_eq!(integers(&workshop.visible("out"), "row"), expected);
    run(
        "with: skewed, how: inner, cardinality: many_to_many, columns: [row, pad], suffix: _met",
        ", row_met, pad_met",
    );
    let pairs = (0..here).flat_map(|row| {
        matches
            .get(&key(row))
            .into_iter()
            .flatten()
            .map(move |met| (row as i64, *met))
    });
    let out = workshop.visible("out");
    let found: Vec<(i64, i64)> = integers(&out, "row")
        .into_iter()
        .zip(integers(&out, "row_met"))
        .collect();
    assert!(found == pairs.collect::<Vec<_>>(), "other pairs");
}

#[test]
fn sorts_of_queries_spill_though_their_keys_are_larger_than_their_rows() {
    let workshop = TestDirectory::new();
    let rows = 1_600_000;
    let column = |rows: std::ops::Range<u64>, salt: u64| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(
            rows.map(|row| pseudo_random(row + salt) as i32),
        ))
    };
    let columns =
        |rows: std::ops::Range<u64>| vec![("a", column(rows.clone(), 0)), ("b", column(rows, 7))];
    table(
        &workshop,
        "rows.parquet",
        (0..16)
            .map(|part| part * (rows / 16)..(part + 1) * (rows / 16))
            .map(columns),
    );
    let steps = "steps: { made: { sql: \"SELECT a, b FROM rows ORDER BY a\" } }\n";
    run_within_limit(&workshop, &format!("{HEAD}{steps}{SINK}"), 0);
    let sorted = workshop.visible("out");
    let numbers = |name: &str| {
        sorted
            .column_by_name(name)
            .unwrap()
            .as_primitive::<Int32Type>()
            .values()
            .to_vec()
    };
    let found: Vec<(i32, i32)> = numbers("a").into_iter().zip(numbers("b")).collect();
    let mut expected: Vec<(i32, i32)> = (0..rows)
        .map(|row| (pseudo_random(row) as i32, pseudo_random(row + 7) as i32))
        .collect();
    expected.sort_unstable();
    assert!(found == expected, "other rows, or another order");
}

#[test]
fn a_full_disk_ends_a_spilling_run_with_a_fault_that_names_the_directory() {
    let workshop = TestDirectory::new();
    let rows = 60_000;
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            ("id", numbers(rows.clone(), |row| pseudo_random(row) as i64)),
            ("pad", texts(rows, |row| padded(pseudo_random(row)))),
        ]
    };
    table(&workshop, "rows.parquet", batches(rows).map(columns));
    let jobs = [
        "{ vocabulary: { columns: [pad], top_k: 10 } }",
        "{ dedupe: { keys: [pad] } }",
        "{ aggregate: { by: [pad], compute: { rows: { count: id } } } }",
    ];
    for job in jobs {
        let spec = workshop.write("job.yaml", &steps(job));
        // The system refuses files beyond 2 MiB, as a full disk does.
        let script = "ulimit -f 2048; exec \"$0\" \"$@\"";
        let program = workshop.command(&[]);
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .arg(program.get_program())
            .current_dir(workshop.path(""))
            .env("NO_COLOR", "1");
        let call: ProgramOutput = command
            .args(["run", &spec, "--memory", LIMIT, "--state", "state"])
            .output()
            .unwrap()
            .into();
        let call = call.expect(75);
        assert!(
            call.stderr.contains("FB0302")
                && call.stderr.contains("tmp-")
                && call.stderr.contains("ulimit"),
            "{job}: {}",
            call.stderr
        );
        let left = std::fs::read_dir(workshop.path("state"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        assert!(
            left.into_iter()
                .all(|name| !name.to_string_lossy().starts_with("tmp-")),
            "{job}"
        );
        assert!(!workshop.path(".out.forebay/_manifest.json").exists());
    }
}

#[test]
fn states_of_many_columns_lie_in_few_files() {
    let workshop = TestDirectory::new();
    let columns: Vec<String> = (0..600).map(|column| format!("column_{column}")).collect();
    let batch = columns
        .iter()
        .map(|name| (name.as_str(), numbers(0..3, |row| row as i64)));
    let batch = RecordBatch::try_from_iter(batch).unwrap();
    let mut writer = ArrowWriter::try_new(
        File::create(workshop.path("rows.parquet")).unwrap(),
        batch.schema(),
        None,
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    run_within_limit(
        &workshop,
        &steps("{ standardize: { columns: [\"column_*\"] } }"),
        0,
    );
    assert_eq!(
        std::fs::read_dir(workshop.path("state/states"))
            .unwrap()
            .count(),
        1
    );
    let held = workshop
        .forebay(&["cache", "ls", "--state=state", "--json"])
        .expect(0)
        .summary();
    let states = held["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .find(|kind| kind["kind"] == "states")
        .unwrap();
    assert_eq!(states["entries"], 600, "{held}");
    assert_eq!(workshop.visible("out").num_columns(), 600);
}

/// Rows of which one in a million is kept.
const FEW: &str = "{ filter: \"x0 > 0.5\" }";

/// Columns `x0` and so on of zeros, with a one in the last row of the first.
fn nearly_zeros(columns: usize, rows: usize) -> RecordBatch {
    let column = |number: usize| -> ArrayRef {
        let mut values = vec![0.0; rows];
        if number == 0 {
            values[rows - 1] = 1.0;
        }
        Arc::new(Float64Array::from(values))
    };
    let columns = (0..columns).map(|number| (format!("x{number}"), column(number)));
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn batches_of_arrow_beyond_memory_are_read_some_rows_at_a_time() {
    let workshop = TestDirectory::new();
    // 280 MB in a batch.
    let batch = nearly_zeros(7, 5_000_000);
    for compression in [None, Some(CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default()
            .try_with_compression(compression)
            .unwrap();
        let file = File::create(workshop.path("rows.arrow")).unwrap();
        let mut writer =
            IpcFileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let spec = steps(FEW).replace(
            "parquet: { path: rows.parquet }",
            "arrow: { path: rows.arrow }",
        );
        run_within_limit(&workshop, &spec, 0);
        assert_eq!(workshop.visible("out").num_rows(), 1);
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
    }
}

#[test]
fn pages_beyond_memory_are_refused_before_they_are_decompressed() {
    let workshop = TestDirectory::new();
    let rows = 30_000_000;
    let batch = nearly_zeros(1, rows);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(rows)
        .set_max_row_group_row_count(Some(rows))
        .build();
    let file = File::create(workshop.path("rows.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    drop(batch);
    let call = run_within_limit(&workshop, &steps(FEW), 78);
    for part in [
        "FB0301",
        "a page of 228 MiB",
        "x0",
        "rows.parquet",
        "--memory ",
    ] {
        assert!(call.stdout.contains(part), "{part}: {}", call.stdout);
    }
}

/// Bytes that become 256 MiB, made of pieces that are compressed once.
fn zeros_compressed(compression: Compression) -> Vec<u8> {
    const PIECES: usize = 256;
    let piece = vec![0; 1 << 20];
    // The second piece refers to zeros before it, as all later ones do.
    let mut ends = Vec::new();
    let mut bytes = if matches!(compression, Compression::GZIP(_)) {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..2 {
            writer.write_all(&piece).unwrap();
            writer.flush().unwrap();
            ends.push(writer.get_ref().len());
        }
        writer.finish().unwrap()
    } else {
        let mut writer = brotli::CompressorWriter::new(Vec::new(), 1 << 20, 1, 22);
        for _ in 0..2 {
            writer.write_all(&piece).unwrap();
            writer.flush().unwrap();
            ends.push(writer.get_ref().len());
        }
        writer.into_inner()
    };
    let second = bytes[ends[0]..ends[1]].to_vec();
    let end = bytes.split_off(ends[1]);
    for _ in 2..PIECES {
        bytes.extend_from_slice(&second);
    }
    bytes.extend(end);
    bytes
}

/// A file with one page of one number, whose header tells 14 bytes.
fn write_lying_page(path: &Path, compression: Compression) {
    let payload = zeros_compressed(compression);
    let mut header = Vec::new();
    let number = |header: &mut Vec<u8>, number: u64| {
        header.push(0x15);
        let mut zigzag = number * 2;
        while zigzag >= 0x80 {
            header.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        header.push(zigzag as u8);
    };
    // A data page, its two sizes; then the count of values and three encodings.
    for field in [0, 14, payload.len() as u64] {
        number(&mut header, field);
    }
    header.push(0x2c);
    for field in [1, 0, 3, 3] {
        number(&mut header, field);
    }
    header.extend([0, 0]);
    let chunk = Bytes::from([header, payload].concat());
    let schema = parse_message_type("message rows { required int64 x0; }").unwrap();
    let schema = Arc::new(schema);
    let described = SchemaDescriptor::new(schema.clone()).column(0);
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let column = ColumnChunkMetaData::builder(described)
        .set_compression(compression)
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
        .set_num_values(1)
        .set_data_page_offset(0)
        .set_total_compressed_size(chunk.len() as i64)
        .set_total_uncompressed_size(100)
        .build()
        .unwrap();
    let close = ColumnCloseResult {
        bytes_written: chunk.len() as u64,
        rows_written: 1,
        metadata: column,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    group.append_column(&chunk, close).unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn pages_that_become_more_than_they_tell_are_refused_before_they_are_decompressed() {
    for compression in [
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let workshop = TestDirectory::new();
        write_lying_page(&workshop.path("rows.parquet"), compression);
        let call = run_within_limit(&workshop, &steps("{ filter: \"x0 < 2\" }"), 65);
        for part in [
            "rows.parquet",
            "x0",
            "than the 14 bytes that its header tells",
        ] {
            assert!(call.stdout.contains(part), "{part}: {}", call.stdout);
        }
    }
}

#[test]
fn wide_rows_are_read_and_written_within_memory() {
    let workshop = TestDirectory::new();
    let batch = nearly_zeros(800, 10_000);
    let file = File::create(workshop.path("rows.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    run_within_limit(&workshop, &steps("{ filter: \"x0 < 2\" }"), 0);
    assert_eq!(workshop.visible("out").num_rows(), 10_000);
}

/// A column takes the memory of its fields, and not that of a thousand rows.
#[test]
fn types_of_many_columns_of_few_rows_are_found_within_memory() {
    let workshop = TestDirectory::new();
    let columns = 30_000;
    let line = |text: &dyn Fn(usize) -> String| {
        let fields: Vec<String> = (0..columns).map(text).collect();
        fields.join(",") + "\n"
    };
    let header = line(&|column| format!("x{column}"));
    let row = line(&|column| (column % 10).to_string());
    workshop.write("rows.csv", &format!("{header}{row}{row}{row}"));
    let spec = steps("{ filter: \"x0 < 2\" }");
    let spec = spec.replace("parquet: { path: rows.parquet }", "csv: { path: rows.csv }");
    let spec = workshop.write("job.yaml", &spec);
    let check = ["check", &spec, "--memory", LIMIT, "--threads", "2"];
    let (call, peak) = measured(&workshop, &check);
    call.expect(0);
    assert!(peak <= PROMISED_KIB, "a peak of {peak} KiB");
}

#[test]
fn long_lines_are_read_one_at_a_time() {
    let workshop = TestDirectory::new();
    let long = "x".repeat(9_000_000);
    let lines: String = (0..8)
        .map(|row| format!("{{\"x0\": {row}, \"text\": \"{long}\"}}\n"))
        .collect();
    std::fs::write(workshop.path("rows.json"), lines).unwrap();
    let spec = steps("{ filter: \"x0 > 5\" }").replace(
        "parquet: { path: rows.parquet }",
        "json: { path: rows.json }",
    );
    run_within_limit(&workshop, &spec, 0);
    assert_eq!(workshop.visible("out").num_rows(), 2);
}

#[test]
fn few_rows_of_many_partitions_become_a_file_of_each() {
    let workshop = TestDirectory::new();
    let partitions = 2_000;
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            (
                "k",
                numbers(rows.clone(), |row| (pseudo_random(row) % partitions) as i64),
            ),
            ("row", numbers(rows.clone(), |row| row as i64)),
            ("text", texts(rows, |row| format!("the text of row {row}"))),
        ]
    };
    // 8 row groups, each with rows of nearly all partitions, and with a dictionary of all its texts.
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(5_000));
    let batches = batches(40_000).map(columns);
    table_with(&workshop, "rows.parquet", properties.build(), batches);
    let spec = steps("{ filter: \"row >= 0\" }");
    let spec = spec.replace("path: out", "path: out, partition_by: [k]");
    run_within_limit(&workshop, &spec, 0);
    let mut rows = 0;
    for partition in 0..partitions {
        let folder = workshop.path(&format!("out/k={partition}"));
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
        assert_eq!(files.len(), 1, "partition {partition}");
        let numbers = integers(&workshop.rows(&format!("out/k={partition}")), "row");
        assert!(numbers.is_sorted(), "partition {partition}: {numbers:?}");
        let is_of_partition = |row: &i64| pseudo_random(*row as u64) % partitions == partition;
        assert!(numbers.iter().all(is_of_partition), "{numbers:?}");
        rows += numbers.len();
    }
    assert_eq!(rows, 40_000);
}

/// Small files that stand for much: a footer with long notes, and a text in a dictionary that each row has.
#[test]
fn footers_and_dictionaries_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let columns = |rows: std::ops::Range<u64>| vec![("id", numbers(rows, |row| row as i64))];
    let note = KeyValue::new("note".to_owned(), "z".repeat(60_000_000));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![note]));
    let rows = std::iter::once(columns(0..10));
    table_with(&workshop, "rows.parquet", properties.build(), rows);
    let call = run_within_limit(&workshop, &steps("{ filter: \"id >= 0\" }"), 78);
    for part in ["FB0301", "reading the footer", "or give --memory "] {
        assert!(call.stdout.contains(part), "{part}: {}", call.stdout);
    }

    let columns = |rows: std::ops::Range<u64>| {
        let text = "y".repeat(100_000);
        vec![
            ("id", numbers(rows.clone(), |row| row as i64)),
            ("x", texts(rows, |_| text.clone())),
        ]
    };
    let properties = WriterProperties::builder().build();
    let rows = (0..40).map(|part| columns(part * 100..part * 100 + 100));
    table_with(&workshop, "rows.parquet", properties, rows);
    for step in [
        "{ derive: { z: \"length(x)\" } }, { drop: [x] }",
        "{ derive: { z: \"upper(x)\" } }, { drop: [x] }",
    ] {
        run_or_refuse(&workshop, &steps(step));
    }
    // Files of texts have no dictionaries.
    let spec = steps("{ filter: \"id < 1000\" }");
    let spec = spec.replace("parquet: { path: out }", "csv: { path: out-csv }");
    run_within_limit(&workshop, &spec, 0);
}

/// Rows of a few long texts, in a file of which each text takes its bytes once. Steps that write texts in place of a
/// dictionary get a few rows at a time.
#[test]
fn steps_over_long_texts_of_few_values_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let rows = 2_000;
    let columns = |rows: std::ops::Range<u64>| -> Vec<(&'static str, ArrayRef)> {
        let times = rows.clone().map(|row| row as i64 * 60_000_000);
        let long =
            |row: u64| (!row.is_multiple_of(5)).then(|| format!("{}", row % 3).repeat(1_000_000));
        vec![
            (
                "time",
                Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
            ),
            ("series", texts(rows.clone(), |row| format!("{}", row % 7))),
            ("n", numbers(rows.clone(), |row| row as i64)),
            ("x", Arc::new(rows.map(long).collect::<StringArray>())),
        ]
    };
    let properties = WriterProperties::builder()
        .set_dictionary_page_size_limit(8 << 20)
        .set_max_row_group_row_count(Some(1_000));
    let parts = (0..rows / 100).map(|part| columns(part * 100..part * 100 + 100));
    table_with(&workshop, "rows.parquet", properties.build(), parts);
    let constant = "c".repeat(100_000);
    let filled = format!("{{ impute: {{ columns: [x], with: {{ constant: {constant} }} }} }}");
    for (name, step, measure) in [
        (
            "mode",
            "{ impute: { columns: [x], with: mode } }",
            "length(x)",
        ),
        ("constant", filled.as_str(), "length(x)"),
        (
            "fill_forward",
            "{ fill_forward: { columns: [x] } }",
            "length(x)",
        ),
        (
            "lag",
            "{ lag: { columns: [x], by: [1], gaps: count_rows } }",
            "length(x_lag_1)",
        ),
        (
            "target_encoding",
            "{ target_encoding: { columns: [x], label: n, cross_fit: time } }",
            "x",
        ),
        (
            "join",
            "{ join: { with: one, on: [series], columns: [joined] } }",
            "length(joined)",
        ),
        (
            "ngrams",
            "{ ngrams: { columns: [x], by: characters, max: 3 } }",
            "array_length(x)",
        ),
        (
            "coalesce",
            "{ filter: \"n >= 0\" }",
            "length(coalesce(x, series))",
        ),
    ] {
        let spec = format!(
            "version: 1\nname: job\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }}, time: time, keys: [series] }}\n\
             steps:\n  one: {{ from: rows, do: [{{ filter: \"n > 0 AND n < 8\" }}, {{ select: [series, x] }}, {{ rename: {{ x: joined }} }}] }}\n\
             \x20 made: {{ from: rows, do: [{step}, {{ derive: {{ z: \"{measure}\" }} }}, {{ select: [n, z] }}] }}\n{SINK}"
        );
        println!("{name}:");
        run_or_refuse(&workshop, &spec);
    }
}

/// Constants of which each row may get a copy.
#[test]
fn constants_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let columns = |rows: std::ops::Range<u64>| vec![("x", numbers(rows, |row| row as i64))];
    table(&workshop, "rows.parquet", batches(1_000).map(columns));
    let literal = "z".repeat(3_000_000);
    for step in [
        "{ derive: { z: \"length(repeat('a', 60000000)) + x\" } }".to_owned(),
        "{ derive: { z: \"repeat('a', 8000000)\" } }".to_owned(),
        format!("{{ derive: {{ z: \"CASE WHEN x > 5 THEN '{literal}' END\" }} }}"),
        format!("{{ derive: {{ z: \"length(concat('{literal}', CAST(x AS VARCHAR)))\" }} }}"),
    ] {
        run_or_refuse(&workshop, &steps(&step));
    }
    for query in [
        "SELECT x, repeat('a', 60000000) AS z FROM rows".to_owned(),
        "SELECT x, repeat('a', 1000000) AS z FROM rows".to_owned(),
        format!("SELECT x, '{literal}' AS z FROM rows"),
    ] {
        let steps = format!("steps: {{ made: {{ sql: \"{query}\" }} }}\n");
        run_or_refuse(&workshop, &format!("{HEAD}{steps}{SINK}"));
    }
}

/// Rows of many short fields take far more memory as columns than as text.
#[test]
fn wide_rows_of_short_fields_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let columns = 2_000;
    let mut text = String::new();
    for column in 0..columns {
        text += if column > 0 { "," } else { "" };
        text += &format!("x{column}");
    }
    for row in 0..3_000 {
        text.push('\n');
        text += &format!("{}", row % 10);
        text += &",1".repeat(columns - 1);
    }
    workshop.write("rows.csv", &text);
    let spec = steps("{ filter: \"x0 > 3\" }");
    let spec = spec.replace("parquet: { path: rows.parquet }", "csv: { path: rows.csv }");
    run_or_refuse(&workshop, &spec);
}

/// A file of zeros behind a length that it tells.
#[test]
fn headers_of_arrow_streams_are_not_as_long_as_they_tell() {
    let workshop = TestDirectory::new();
    let mut file = File::create(workshop.path("rows.arrow")).unwrap();
    file.write_all(&[0xff; 4]).unwrap();
    file.write_all(&300_000_000_u32.to_le_bytes()).unwrap();
    file.set_len(400_000_000).unwrap();
    let spec = steps("{ filter: \"id >= 0\" }");
    let spec = spec.replace(
        "parquet: { path: rows.parquet }",
        "arrow: { path: rows.arrow }",
    );
    run_within_limit(&workshop, &spec, 65);
}

/// Logs of a Delta table with many files. The text of a commit is decoded as a whole; of many small commits, the list of
/// files is what becomes large.
#[test]
fn large_logs_are_refused_before_they_are_decoded() {
    for (commits, files, names) in [(1, 150_000, ".json"), (300, 1_000, "table")] {
        let workshop = TestDirectory::new();
        std::fs::create_dir_all(workshop.path("table/_delta_log")).unwrap();
        let columns = vec![("id", numbers(0..10, |row| row as i64))];
        let properties = WriterProperties::builder().build();
        table_with(
            &workshop,
            "table/0.parquet",
            properties,
            [columns].into_iter(),
        );
        let bytes = std::fs::metadata(workshop.path("table/0.parquet"))
            .unwrap()
            .len();
        for commit in 0..commits {
            let mut log = String::new();
            if commit == 0 {
                log += concat!(
                    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
                    "\n",
                    r#"{"metaData":{"id":"large","format":{"provider":"parquet","options":{}},"#,
                    r#""schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\","#,
                    r#"\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","#,
                    r#""partitionColumns":[],"configuration":{},"createdTime":0}}"#,
                    "\n",
                );
            }
            for file in commit * files..(commit + 1) * files {
                log += &format!(
                    r#"{{"add":{{"path":"{file:0100}.parquet","partitionValues":{{}},"size":{bytes},"#
                );
                log += r#""modificationTime":0,"dataChange":true,"stats":"{\"numRecords\":10}"}}"#;
                log.push('\n');
            }
            workshop.write(&format!("table/_delta_log/{commit:020}.json"), &log);
        }
        let spec = steps("{ filter: \"id >= 0\" }");
        let spec = spec.replace("parquet: { path: rows.parquet }", "delta: { path: table }");
        let call = run_within_promise(&workshop, &spec).expect(78);
        for part in ["FB0301", "reading the table's log", "--memory", names] {
            assert!(call.stdout.contains(part), "{part}: {}", call.stdout);
        }
    }
}

#[test]
fn queries_that_make_or_hold_many_rows_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            ("k", numbers(rows.clone(), |row| (row % 100) as i64)),
            ("x", numbers(rows, |row| row as i64)),
        ]
    };
    table(&workshop, "rows.parquet", batches(500_000).map(columns));
    for query in [
        "SELECT x, sum(x) OVER () AS s FROM rows",
        "SELECT k, array_agg(x) AS l FROM rows GROUP BY k",
        "SELECT x, unnest(range(0, 50000)) AS n FROM rows WHERE x < 20",
    ] {
        let steps = format!("steps: {{ made: {{ sql: \"{query}\" }} }}\n");
        run_or_refuse(&workshop, &format!("{HEAD}{steps}{SINK}"));
    }
}

/// Each step makes more rows than the one before, without an end.
#[test]
fn recursive_queries_that_grow_are_refused_within_the_promise() {
    let workshop = TestDirectory::new();
    let columns = vec![
        ("n", numbers(0..10, |row| row as i64)),
        ("s", texts(0..10, |row| format!("{row:032}"))),
    ];
    table(&workshop, "rows.parquet", std::iter::once(columns));
    for (columns, first, union, step) in [
        ("n", "n", "UNION ALL", "unnest(make_array(n, n))"),
        ("n", "n", "UNION ALL", "unnest(range(n, n + 300))"),
        (
            "n",
            "n",
            "UNION",
            "unnest(make_array(n * 2 + 10, n * 2 + 11))",
        ),
        ("n, s", "n, s", "UNION ALL", "unnest(make_array(n, n)), s"),
        ("n, s", "n, s", "UNION ALL", "n, s || s"),
    ] {
        let query = format!(
            "WITH RECURSIVE t({columns}) AS (SELECT {first} FROM rows {union} SELECT {step} FROM t) \
             SELECT count(*) AS n FROM t"
        );
        let steps = format!("steps: {{ made: {{ sql: \"{query}\" }} }}\n");
        let call = run_within_limit(&workshop, &format!("{HEAD}{steps}{SINK}"), 78);
        assert!(call.stdout.contains("FB0301"), "{query}: {}", call.stdout);
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
    }
}

/// Each row of a join's output has a copy of the text.
#[test]
fn joins_of_queries_that_repeat_a_long_text_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    // All copies have 500 MiB.
    let text = |row: u64| "x".repeat(if row == 0 { 256 << 10 } else { 3 });
    let columns = vec![
        ("id", numbers(0..2_000, |row| row as i64)),
        ("k", numbers(0..2_000, |_| 1)),
        ("s", texts(0..2_000, text)),
    ];
    table(&workshop, "rows.parquet", std::iter::once(columns));
    for join in ["JOIN rows b ON a.k = b.k", "CROSS JOIN rows b"] {
        let query =
            format!("SELECT b.id AS id, length(a.s) AS n FROM rows a {join} WHERE a.id = 0");
        let steps = format!("steps: {{ made: {{ sql: \"{query}\" }} }}\n");
        let call = run_within_promise(&workshop, &format!("{HEAD}{steps}{SINK}")).expect(0);
        let messages = format!("{}{}", call.stdout, call.stderr);
        assert!(messages.contains("repeats long values"), "{messages}");
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
    }
}

/// The side of a join with fewer rows is estimated small enough for a table, but its texts are long.
#[test]
fn joins_of_queries_whose_tables_do_not_fit_begin_again_with_joins_that_spill() {
    let workshop = TestDirectory::new();
    let met = 60_000;
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            ("k", numbers(rows.clone(), |row| (row % 60_007) as i64)),
            ("x", numbers(rows, |row| row as i64)),
        ]
    };
    table(&workshop, "rows.parquet", batches(300_000).map(columns));
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            ("k", numbers(rows.clone(), |row| row as i64)),
            ("pad", texts(rows, |row| format!("{row:0300}"))),
        ]
    };
    table(&workshop, "others.parquet", batches(met).map(columns));
    let query = "SELECT a.k % 10 AS g, count(*) AS n, count(b.k) AS met, sum(a.x) AS total, \
                 min(b.pad) AS low, max(b.pad) AS high FROM rows a \
                 LEFT JOIN (SELECT * FROM others WHERE k >= 0) b ON a.k = b.k GROUP BY a.k % 10";
    let sources = "sources:\n  others: { parquet: { path: others.parquet } }";
    let head = HEAD.replace("sources:", sources);
    let spec = format!("{head}steps: {{ made: {{ sql: \"{query}\" }} }}\n{SINK}");
    let pairs = (0..300_000).filter(|row| row % 60_007 < met).count() as i64;
    let check = |table: &RecordBatch| {
        assert_eq!(integers(table, "g"), (0..10).collect::<Vec<_>>());
        assert_eq!(integers(table, "n").iter().sum::<i64>(), 300_000);
        assert_eq!(integers(table, "met").iter().sum::<i64>(), pairs);
    };
    let call = run_within_limit(&workshop, &spec, 0);
    let messages = format!("{}{}", call.stdout, call.stderr);
    assert!(messages.contains("do not fit into memory"), "{messages}");
    check(&workshop.visible("out"));
    for threads in ["1", "2"] {
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
        let spec = workshop.at("job.yaml");
        let memory = ["--memory", "2GiB", "--threads", threads];
        let words = ["run", spec.as_str(), "--state", "state", "--json"];
        let call = workshop.forebay(&[&words[..], &memory].concat()).expect(0);
        let messages = format!("{}{}", call.stdout, call.stderr);
        assert!(!messages.contains("begins again"), "{messages}");
        check(&workshop.visible("out"));
    }
}

/// The engine reads a side that it cannot hold again, which a side that several threads divide must allow.
#[test]
fn joins_of_all_pairs_whose_sides_do_not_fit_spill() {
    let workshop = TestDirectory::new();
    let rows = 120_000;
    let columns = |rows: std::ops::Range<u64>| {
        vec![
            ("k", numbers(rows.clone(), |row| (row % 100) as i64)),
            ("pad", texts(rows, |row| format!("{row:0300}"))),
        ]
    };
    table(&workshop, "rows.parquet", batches(rows).map(columns));
    let few_rows = batches(40).map(|rows| vec![("k", numbers(rows, |row| row as i64 / 2))]);
    table(&workshop, "others.parquet", few_rows);
    let sources = "sources:\n  others: { parquet: { path: others.parquet } }";
    let head = HEAD.replace("sources:", sources);
    // Keys 0 to 19 come twice in the other table.
    let pairs = rows as i64 / 100 * (0..20).map(|key| 2 * (19 - key)).sum::<i64>();
    let unmatched = rows as i64 / 100 * 81;
    for (join, count, met) in [
        ("JOIN", pairs, pairs),
        ("LEFT JOIN", pairs + unmatched, pairs),
        ("RIGHT JOIN", pairs + 2, pairs + 2),
        ("FULL JOIN", pairs + unmatched + 2, pairs + 2),
        ("LEFT SEMI JOIN", rows as i64 - unmatched, 0),
        ("LEFT ANTI JOIN", unmatched, 0),
    ] {
        let met_rows = if met > 0 { "count(b.k)" } else { "0" };
        let query = format!(
            "SELECT count(*) AS n, {met_rows} AS met, max(a.pad) AS high \
             FROM (SELECT * FROM rows WHERE k >= 0) a \
             {join} (SELECT * FROM others WHERE k >= 0) b ON a.k < b.k"
        );
        let spec = format!("{head}steps: {{ made: {{ sql: \"{query}\" }} }}\n{SINK}");
        let call = run_within_limit(&workshop, &spec, 0);
        let messages = format!("{}{}", call.stdout, call.stderr);
        assert!(messages.contains("joins that spill"), "{messages}");
        let output = workshop.visible("out");
        let counts = [integers(&output, "n"), integers(&output, "met")];
        assert_eq!(counts, [[count], [met]], "{join}");
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
    }
}

#[test]
fn cells_of_megabytes_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let cell = |row: u64| format!("{row:08}").repeat(1_000_000);
    let columns = vec![
        ("id", numbers(0..12, |row| row as i64)),
        ("s", texts(0..12, cell)),
    ];
    table(&workshop, "rows.parquet", std::iter::once(columns));
    for step in [
        "{ filter: \"id > 10\" }",
        "{ dedupe: { keys: [s] } }",
        "{ derive: { z: \"repeat(s, 3)\" } }",
    ] {
        run_or_refuse(&workshop, &steps(step));
    }
}

/// Each step makes twice the text of the one before.
#[test]
fn texts_that_double_from_step_to_step_stay_within_the_promise() {
    let workshop = TestDirectory::new();
    let columns = vec![("s", texts(0..2, |row| format!("{row}")))];
    table(&workshop, "rows.parquet", std::iter::once(columns));
    let doubled = vec!["{ derive: { s: \"s || s\" } }"; 30].join(", ");
    let chain = format!("{doubled}, {{ derive: {{ n: \"length(s)\" }} }}, {{ select: [n] }}");
    run_or_refuse(&workshop, &steps(&chain));
}

#[test]
fn plans_that_double_are_refused_when_they_are_checked() {
    let workshop = TestDirectory::new();
    table(
        &workshop,
        "rows.parquet",
        batches(10).map(|rows| vec![("x", numbers(rows, |row| row as i64))]),
    );
    let tables: String = (1..=24)
        .map(|table| {
            format!(
                ", t{table} AS (SELECT a.x FROM t{0} a JOIN t{0} b ON a.x = b.x)",
                table - 1
            )
        })
        .collect();
    let query = format!(
        "{HEAD}steps: {{ made: {{ sql: \"WITH t0 AS (SELECT x FROM rows){tables} SELECT x FROM t24\" }} }}\n{SINK}"
    );
    let unions: String = (1..=24)
        .map(|step| format!("  u{step}: {{ union: [u{0}, u{0}] }}\n", step - 1))
        .collect();
    let unions = format!(
        "{HEAD}steps:\n  u0: {{ from: rows, do: [{{ select: [x] }}] }}\n{unions}  made: {{ from: u24 }}\n{SINK}"
    );
    for (spec, code) in [(query, "FB0110"), (unions, "at most 4096 are allowed")] {
        let spec = workshop.write("job.yaml", &spec);
        let (call, peak) = measured(&workshop, &["check", &spec]);
        let call = call.expect(78);
        assert!(call.stderr.contains(code), "{code}: {}", call.stderr);
        assert!(peak <= PROMISED_KIB, "a peak of {peak} KiB");
    }
}

/// A step of every transform of the reference, for columns `time`, `series`, `word`, `n`, `x` and `list`.
pub const TRANSFORMS: &[(&str, &str)] = &[
    (
        "aggregate",
        "{ aggregate: { by: [series], compute: { most: { max: n }, kinds: { approx_n_unique: word } } } }",
    ),
    (
        "apply_buckets",
        "{ apply_buckets: { columns: [x], boundaries: [0.2, 0.5] } }",
    ),
    (
        "as_of_join",
        "{ as_of_join: { with: rows, columns: [word], suffix: _before, exact: false } }",
    ),
    (
        "bag_of_tokens",
        "{ bag_of_tokens: { columns: [list], buckets: 64 } }",
    ),
    (
        "bucketize",
        "{ bucketize: { columns: [n], q: 10, exact: true } }",
    ),
    (
        "calendar",
        "{ calendar: { columns: [time], holidays: [1970-05-01], parts: [is_holiday], fourier: [{ period: 7d, order: 2 }] } }",
    ),
    ("cast", "{ cast: { columns: { n: string } } }"),
    ("clip", "{ clip: { columns: [x], min: 0.1, max: 0.9 } }"),
    (
        "command",
        "{ command: { run: [cat], columns: [x], returns: { x: float64 } } }",
    ),
    (
        "cross",
        "{ cross: { columns: [series, word], buckets: 1000 } }",
    ),
    (
        "date_parts",
        "{ date_parts: { columns: [time], parts: [hour, day_of_week] } }",
    ),
    ("dedupe", "{ dedupe: {} }"),
    ("derive", r#"{ derive: { both: "concat(series, word)" } }"#),
    (
        "diff",
        "{ diff: { columns: [x], by: [1], gaps: count_rows } }",
    ),
    ("distance", "{ distance: { from: [x, x], to: [x, n] } }"),
    ("drop", "{ drop: [word] }"),
    (
        "estimator",
        "{ estimator: { function: Count, columns: [x], returns: { x: float64 }, frames: arrow, code: \"class Count:\\n  \
         rows = 0\\n  def partial_fit(self, batch):\\n    self.rows += batch.num_rows\\n  def transform(self, batch):\\n    \
         return batch['x']\" } }",
    ),
    (
        "ewm",
        "{ ewm: { columns: [x], compute: [mean], span: 7, gap: 1, gaps: count_rows } }",
    ),
    (
        "expanding",
        "{ expanding: { columns: [x], compute: [mean], gap: 1, gaps: count_rows } }",
    ),
    (
        "expect",
        "{ expect: [{ unique: [n, word] }, { not_null: [word] }] }",
    ),
    ("explode", "{ explode: { column: list } }"),
    (
        "fill_forward",
        "{ fill_forward: { columns: [x], suffix: _filled } }",
    ),
    ("filter", r#"{ filter: "n % 2 = 0" }"#),
    (
        "forecast_feature",
        "{ forecast_feature: { columns: [x], horizon: 500m, every: 500m, refit: 5000m } }",
    ),
    (
        "frequency_encoding",
        "{ frequency_encoding: { columns: [word] } }",
    ),
    (
        "future_rows",
        "{ future_rows: { horizon: 2h, every: 1h, carry: [word] } }",
    ),
    ("g_and_h", "{ g_and_h: { columns: [x, n] } }"),
    ("geohash", "{ geohash: { place: [x, n] } }"),
    (
        "group_rare",
        "{ group_rare: { columns: [word], min_count: 1 } }",
    ),
    (
        "hash_bucket",
        "{ hash_bucket: { columns: [word], buckets: 1000 } }",
    ),
    ("impute", "{ impute: { columns: [word], with: mode } }"),
    ("interpolate", "{ interpolate: { columns: [x] } }"),
    ("join", "{ join: { with: small, on: [n] } }"),
    (
        "k_bins",
        "{ k_bins: { columns: [x], bins: 9, strategy: tree, label: n, suffix: _side } }, { k_bins: { columns: [x], bins: 9 } }",
    ),
    (
        "keep_best",
        "{ derive: { side: \"n % 7\", is_even: \"n % 2 = 0\" } }, { keep_best: { columns: [side], score: mutual_information, label: is_even, count: 1 } }, { keep_best: { columns: [x, n], count: 1, correlation_max: 0.9 } }",
    ),
    (
        "knn_impute",
        "{ knn_impute: { columns: [x, n], sample_rows: 100 } }",
    ),
    (
        "lag",
        "{ lag: { columns: [x], by: [1], gaps: count_rows } }",
    ),
    (
        "list_statistics",
        "{ derive: { pair: \"make_array(x, x * 2)\" } }, { list_statistics: { columns: [pair], compute: [mean] } }",
    ),
    ("log1p", "{ log1p: { columns: [x] } }"),
    ("max_abs", "{ max_abs: { columns: [x, n] } }"),
    ("min_max", "{ min_max: { columns: [x] } }"),
    (
        "missing_indicator",
        "{ missing_indicator: { columns: [x, word] } }",
    ),
    ("multi_hot", "{ multi_hot: { columns: [list] } }"),
    ("ngrams", "{ ngrams: { columns: [list], max: 2 } }"),
    ("normal_quantiles", "{ normal_quantiles: { columns: [x] } }"),
    ("normalize", "{ normalize: { columns: [x, n] } }"),
    (
        "normalize_text",
        "{ normalize_text: { columns: [word, list] } }",
    ),
    ("one_hot", "{ one_hot: { columns: [word], top_k: 100 } }"),
    ("ordinal", "{ ordinal: { columns: [word] } }"),
    ("pca", "{ pca: { columns: [x, n], components: 2 } }"),
    (
        "pct_change",
        "{ pct_change: { columns: [x], by: [1], gaps: count_rows } }",
    ),
    ("polynomial", "{ polynomial: { columns: [x, n] } }"),
    (
        "pooled",
        "{ pooled: { columns: [x], compute: [mean], by: [series], over: [1h], gap: 1h } }",
    ),
    ("power", "{ power: { columns: [x] } }"),
    ("profile", "{ profile: {} }"),
    (
        "python",
        "{ python: { function: f, columns: [x], returns: { x: float64 }, code: \"def f(batch): return batch['x']\" } }",
    ),
    ("quantiles", "{ quantiles: { columns: [x] } }"),
    ("rename", "{ rename: { x: y } }"),
    (
        "robust_scale",
        "{ robust_scale: { columns: [x] } }, { robust_scale: { columns: [x], spread: mad } }",
    ),
    (
        "rolling",
        "{ rolling: { columns: [x], compute: [mean], over: [5], gap: 1, gaps: count_rows } }",
    ),
    (
        "sample",
        "{ sample: { share: 0.5, by: [series], weight: weight, when: always } }",
    ),
    (
        "seasonal_index",
        "{ seasonal_index: { columns: [x], period: hour, gap: 1h } }",
    ),
    (
        "seasonal_rolling",
        "{ seasonal_rolling: { columns: [x], compute: [mean], season: 3, over: [2], gap: 3, gaps: count_rows } }",
    ),
    ("select", "{ select: [n, word] }"),
    ("spline", "{ spline: { columns: [x], knots: 8 } }"),
    ("standardize", "{ standardize: { columns: [x, n] } }"),
    (
        "target",
        "{ target: { column: x, do: [{ difference: auto }, { scale: robust }], gaps: count_rows } }",
    ),
    (
        "target_encoding",
        "{ target_encoding: { columns: [series], label: x, cross_fit: time } }",
    ),
    ("tf_idf", "{ tf_idf: { columns: [list], top_k: 100 } }"),
    (
        "violations",
        "{ violations: [{ sql: \"n % 2 = 0\" }, { not_null: [word] }] }",
    ),
    ("vocabulary", "{ vocabulary: { columns: [word] } }"),
    (
        "winsorize",
        "{ winsorize: { columns: [x] } }, { winsorize: { columns: [x], around: median, suffix: _bounded } }",
    ),
];

#[test]
fn every_transform_stays_within_the_promise() {
    let workshop = TestDirectory::new();
    let reference = std::fs::read_to_string(repository().join("pipelines/REFERENCE.md")).unwrap();
    let headings = reference
        .lines()
        .filter_map(|line| line.strip_prefix("### "));
    let transforms: Vec<&str> = headings
        .skip_while(|name| *name != "aggregate")
        .take(TRANSFORMS.len())
        .collect();
    let tried: Vec<&str> = TRANSFORMS.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        transforms, tried,
        "each transform of the reference has its step here"
    );
    let rows = 30_000;
    // Rows in no order.
    let place = |row: u64| row * 7_919 % rows;
    let columns = |rows: std::ops::Range<u64>| -> Vec<(&'static str, ArrayRef)> {
        let time = TimestampMicrosecondArray::from_iter_values(
            rows.clone().map(|row| place(row) as i64 * 60_000_000),
        );
        let mut list = ListBuilder::new(StringBuilder::new());
        for row in rows.clone() {
            list.append_value([
                Some(format!("a{}", place(row) % 300)),
                Some(format!("b{}", place(row) % 7)),
            ]);
        }
        vec![
            ("time", Arc::new(time)),
            (
                "series",
                texts(rows.clone(), |row| padded(place(row) % 500)),
            ),
            ("word", texts(rows.clone(), |row| padded(place(row)))),
            ("n", numbers(rows.clone(), |row| place(row) as i64)),
            (
                "x",
                Arc::new(Float64Array::from_iter_values(
                    rows.map(|row| pseudo_random(row) as f64 / (1u64 << 44) as f64),
                )),
            ),
            ("list", Arc::new(list.finish())),
        ]
    };
    table(&workshop, "rows.parquet", batches(rows).map(columns));
    for (name, step) in TRANSFORMS {
        if ["estimator", "python"].contains(name) && !has_pyarrow() {
            continue;
        }
        let spec = format!(
            "version: 1\nname: job\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }}, time: time, keys: [series] }}\n\
             steps:\n  small: {{ from: rows, do: [{{ filter: \"n < 20000\" }}, {{ select: [n, word] }}, {{ rename: {{ word: joined }} }}] }}\n\
             \x20 made: {{ from: rows, do: [{step}] }}\n{SINK}"
        );
        println!("{name}:");
        run_within_limit(&workshop, &spec, 0);
        std::fs::remove_dir_all(workshop.path("state")).unwrap();
    }
}
