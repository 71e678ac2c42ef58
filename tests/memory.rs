//! The promise about memory, held against real processes: a run stays within 1.3 times `--memory` and 150 MiB, or it
//! stops with a fault before it would not.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{Int32Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::support::{ProgramOutput, TestDirectory, repository};

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
    let properties = properties.build();
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
    let (mut peak, mut code) = (0, None);
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
    let call = call.expect(code);
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
    let (here, there) = (40_000, 30_000);
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
        let time = move |row: u64| match in_order {
            true => (row % here * 25) as i64,
            false => (pseudo_random(row + 1_000_003) % 1_000_000) as i64,
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
    let (here, there) = (50_000, 40_000);
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

/// A step of every transform, over rows that are larger than the limit.
const TRANSFORMS: &[(&str, &str)] = &[
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
        "bucketize",
        "{ bucketize: { columns: [n], q: 10, exact: true } }",
    ),
    ("cast", "{ cast: { columns: { n: string } } }"),
    ("clip", "{ clip: { columns: [x], min: 0.1, max: 0.9 } }"),
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
    ("drop", "{ drop: [word] }"),
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
        "future_rows",
        "{ future_rows: { horizon: 2h, every: 1h, carry: [word] } }",
    ),
    (
        "hash_bucket",
        "{ hash_bucket: { columns: [word], buckets: 1000 } }",
    ),
    ("impute", "{ impute: { columns: [word], with: mode } }"),
    ("interpolate", "{ interpolate: { columns: [x] } }"),
    ("join", "{ join: { with: small, on: [n] } }"),
    ("k_bins", "{ k_bins: { columns: [x], bins: 9 } }"),
    (
        "lag",
        "{ lag: { columns: [x], by: [1], gaps: count_rows } }",
    ),
    ("log1p", "{ log1p: { columns: [x] } }"),
    ("min_max", "{ min_max: { columns: [x] } }"),
    ("multi_hot", "{ multi_hot: { columns: [list] } }"),
    ("one_hot", "{ one_hot: { columns: [word], top_k: 100 } }"),
    ("ordinal", "{ ordinal: { columns: [word] } }"),
    (
        "pct_change",
        "{ pct_change: { columns: [x], by: [1], gaps: count_rows } }",
    ),
    (
        "pooled",
        "{ pooled: { columns: [x], compute: [mean], by: [series], over: [1h], gap: 1h } }",
    ),
    ("profile", "{ profile: {} }"),
    ("quantiles", "{ quantiles: { columns: [x] } }"),
    ("rename", "{ rename: { x: y } }"),
    ("robust_scale", "{ robust_scale: { columns: [x] } }"),
    (
        "rolling",
        "{ rolling: { columns: [x], compute: [mean], over: [5], gap: 1, gaps: count_rows } }",
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
    ("standardize", "{ standardize: { columns: [x, n] } }"),
    (
        "violations",
        "{ violations: [{ sql: \"n % 2 = 0\" }, { not_null: [word] }] }",
    ),
    ("vocabulary", "{ vocabulary: { columns: [word] } }"),
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
