//! Rows of steps and plans, seen before anything runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int64Array, IntervalMonthDayNanoArray, RecordBatch,
    StructArray,
};
use arrow::datatypes::IntervalMonthDayNano;
use forebay::model::codes;
use forebay::prelude::{Forebay, PreviewOptions, SessionOptions};
use forebay::run::CancellationToken;

use crate::steps::edge_values::write;
use crate::support::{TestDirectory, repository};

/// The spec and data of the mistakes, without a mistake.
fn workshop() -> TestDirectory {
    let shop = TestDirectory::new();
    for name in ["spec.yaml", "sales.csv", "stores.csv"] {
        std::fs::copy(
            repository().join("tests/mistakes/data").join(name),
            shop.path(name),
        )
        .unwrap();
    }
    shop
}

fn names(shop: &TestDirectory) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(shop.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".user")
        .collect();
    names.sort();
    names
}

/// The values of a column of JSON lines, as text.
fn values(lines: &str, column: &str) -> Vec<String> {
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.map(|row| row[column].to_string()).collect()
}

#[test]
fn a_preview_has_the_rows_that_a_run_writes() {
    let shop = workshop();
    let spec = std::fs::read_to_string(shop.path("spec.yaml"))
        .unwrap()
        .replace("parquet: { path: out", "csv: { path: out");
    shop.write("spec.yaml", &spec);
    for (step, out) in [("features", "out/features"), ("totals", "out/totals")] {
        let shown = shop
            .forebay(&["preview", "spec.yaml", step, "--rows=1000", "--format=csv"])
            .expect(0)
            .stdout;
        assert_eq!(names(&shop), ["sales.csv", "spec.yaml", "stores.csv"]);
        shop.forebay(&["run", "spec.yaml", "-q"]).expect(0);
        let files: Vec<_> = std::fs::read_dir(shop.path(out))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let written = files
            .iter()
            .find(|path| path.extension().is_some_and(|ending| ending == "csv"))
            .unwrap();
        assert_eq!(shown, std::fs::read_to_string(written).unwrap());
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        std::fs::remove_dir_all(shop.path(".forebay")).unwrap();
    }
}

#[test]
fn a_session_that_is_stopped_leaves_the_one_that_it_is_made_of_alone() {
    let shop = workshop();
    let text = format!(
        "version: 1\nname: p\nsources: {{ rows: {{ csv: {{ path: {:?} }} }} }}\n\
         steps: {{ all: {{ from: rows, do: [] }} }}\n",
        shop.at("sales.csv")
    );
    let options = SessionOptions::default().state(shop.at("state"));
    let forebay = Forebay::new().with_options(options);
    let catalog = forebay.spec_catalog();
    let pipeline = forebay::spec::parse(&text, "t.yaml", &Default::default(), &catalog).unwrap();
    let session = forebay.session().unwrap();
    let interrupt = CancellationToken::default();
    let stopped = session.with_interrupt(interrupt.clone());
    interrupt.flag().store(true, Ordering::Relaxed);
    let options = PreviewOptions::default();
    let fault = stopped.preview(&pipeline, &options).unwrap_err();
    assert_eq!(fault.code(), codes::INTERRUPTED);
    let preview = session.preview(&pipeline, &options).unwrap();
    assert!(preview.batches.iter().any(|batch| batch.num_rows() > 0));
}

#[test]
fn a_preview_takes_conditions_samples_and_sources() {
    let shop = workshop();
    let preview = |args: &[&str]| {
        shop.forebay(&[&["preview", "spec.yaml", "--json"], args].concat())
            .expect(0)
            .stdout
    };
    let found = preview(&["--where=qty_lag_7d > 9", "--rows=4"]);
    assert_eq!(values(&found, "qty_lag_7d"), ["10"; 4]);
    assert_eq!(
        preview(&["--sample-rows=7", "--rows=100"]).lines().count(),
        7
    );
    assert_eq!(
        values(&preview(&["stores"]), "city"),
        ["\"Delft\"", "\"Gent\""]
    );

    let table = shop
        .forebay(&["preview", "spec.yaml", "totals"])
        .expect(0)
        .stdout;
    assert_eq!(
        table,
        "store  total\nint64  int64\n    1    600\n    2    630\n2 rows\n"
    );
    let unknown = shop.forebay(&["preview", "spec.yaml", "total"]).expect(78);
    assert!(
        unknown.stderr.contains("did you mean `totals`?"),
        "{}",
        unknown.stderr
    );
    let column = shop
        .forebay(&["preview", "spec.yaml", "--where=qyt > 3"])
        .expect(78);
    assert!(
        column.stderr.contains("did you mean `qty`?"),
        "{}",
        column.stderr
    );
    for condition in ["qyt > 3", "qty >", "qty", "nonsense(qty)"] {
        let call = shop
            .forebay(&["preview", "spec.yaml", "--where", condition])
            .expect(78);
        assert!(call.stderr.contains("| in --where\n"), "{}", call.stderr);
        assert!(!call.stderr.contains("filter"), "{}", call.stderr);
    }
}

#[test]
fn a_table_begins_where_windows_have_values() {
    let shop = workshop();
    let preview = |args: &[&str]| {
        shop.forebay(&[&["preview", "spec.yaml", "--rows=2"], args].concat())
            .expect(0)
            .stdout
    };
    let table = preview(&[]);
    assert!(!table.contains("null"), "{table}");
    assert!(table.contains("\n2 rows\nfrom row "), "{table}");
    let first = preview(&["--first"]);
    assert!(
        first.contains("null") && first.ends_with("\n2 rows\n"),
        "{first}"
    );
    let expanded = preview(&["--expand"]);
    assert!(expanded.starts_with("row 1\n  date"), "{expanded}");
    assert!(expanded.contains("\n  qty_lag_7d"), "{expanded}");
    let refused = shop.forebay(&["preview", "spec.yaml", "--expand", "--json"]);
    refused.expect(64);
}

#[test]
fn a_dry_run_prints_the_plan_and_runs_nothing() {
    let shop = workshop();
    let plan = shop.forebay(&["run", "spec.yaml", "--dry-run"]).expect(0);
    assert_eq!(
        plan.stdout,
        shop.forebay(&["explain", "spec.yaml"]).expect(0).stdout
    );
    assert!(plan.stdout.contains("pass 4  write"), "{}", plan.stdout);
    assert_eq!(names(&shop), ["sales.csv", "spec.yaml", "stores.csv"]);
    let json = shop
        .forebay(&["run", "spec.yaml", "--dry-run", "--json"])
        .expect(0)
        .stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["passes"].as_array().unwrap().len(), 4);
}

/// Rows per store of an output.
fn rows_of_stores(shop: &TestDirectory, out: &str) -> std::collections::BTreeMap<i64, usize> {
    use arrow::array::AsArray;
    let rows = shop.rows(out);
    let stores = arrow::compute::cast(&rows["store"], &arrow::datatypes::DataType::Int64).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for store in stores
        .as_primitive::<arrow::datatypes::Int64Type>()
        .values()
    {
        *counts.entry(*store).or_insert(0) += 1;
    }
    counts
}

/// The days of the workshop: each of its four series has a row for each.
const DAYS: usize = 60;

#[test]
fn trial_runs_read_a_sample_and_touch_no_real_output() {
    let shop = workshop();
    shop.write("stores.csv", "store,city,size\n2,Gent,20\n1,Delft,10\n");
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let join = "      - vocabulary: { columns: [item] }\n      - join: { with: stores, on: [store], columns: [city] }\n";
    shop.write(
        "spec.yaml",
        &spec.replace("      - vocabulary: { columns: [item] }\n", join),
    );
    shop.forebay(&["run", "spec.yaml", "-q"]).expect(0);
    let whole = rows_of_stores(&shop, "out/features");
    assert_eq!(whole.values().sum::<usize>(), 4 * DAYS);
    let kept = || {
        std::fs::read_dir(shop.path(".forebay/artifacts"))
            .unwrap()
            .count()
    };
    let changed = || {
        std::fs::metadata(shop.path("out/features"))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = (kept(), changed());

    let trial = shop
        .forebay(&["run", "spec.yaml", "--limit=1", "--json"])
        .expect(0);
    let table = &trial.summary()["outputs"][0];
    let place = ".forebay-sample/limit-1/out/table";
    assert!(
        table["sink"] == "table" && table["path"].as_str().unwrap().ends_with(place),
        "{table}"
    );
    assert_eq!(rows_of_stores(&shop, place), [(1, 1)].into());
    // The table that rows are looked up in is whole.
    assert_eq!(
        arrow::array::Array::null_count(&shop.rows(place)["city"]),
        0
    );

    // Whole series are chosen, and more of them for a larger share.
    let sampled = ["0.01", "30%", "100%"].map(|share| {
        let run = shop
            .forebay(&[
                "run",
                "spec.yaml",
                "--sample",
                share,
                "--json",
                "--allow-empty",
            ])
            .expect(0);
        let summary = run.summary();
        match summary["outputs"][0]["rows"].as_u64() {
            Some(0) => Default::default(),
            _ => rows_of_stores(&shop, summary["outputs"][0]["path"].as_str().unwrap()),
        }
    });
    assert!(
        sampled
            .iter()
            .flat_map(|found| found.values())
            .all(|rows| rows % DAYS == 0),
        "{sampled:?}"
    );
    let totals = sampled
        .each_ref()
        .map(|found| found.values().sum::<usize>());
    assert!(
        totals[0] <= totals[1] && 0 < totals[1] && totals[1] < totals[2],
        "{totals:?}"
    );
    assert_eq!(sampled[2], whole);

    assert_eq!(before, (kept(), changed()));
    for wrong in ["--sample=0", "--sample=200%", "--sample=x"] {
        shop.forebay(&["run", "spec.yaml", wrong]).expect(64);
    }
    for unclear in ["1", "1.0"] {
        let call = shop
            .forebay(&["run", "spec.yaml", "--sample", unclear])
            .expect(64);
        assert!(
            call.stderr
                .contains("write 1% for one percent, or 100% for everything"),
            "{}",
            call.stderr
        );
    }
    shop.forebay(&["run", "spec.yaml", "--limit=0"]).expect(78);
}

/// Metadata tell the rows of files, and not those of a sample. Two steps read the rows once.
#[test]
fn passes_tell_the_rows_that_they_read() {
    let shop = TestDirectory::new();
    let columns: [(&str, ArrayRef); 3] = [
        (
            "day",
            Arc::new(Date32Array::from_iter_values((0..400).map(|row| row / 20))),
        ),
        (
            "store",
            Arc::new(Int64Array::from_iter_values((0..400).map(|row| row % 20))),
        ),
        (
            "qty",
            Arc::new(Int64Array::from_iter_values((0..400).map(|row| row % 7))),
        ),
    ];
    write(&shop, "sales.parquet", columns);
    let step = |name: &str, least: usize| {
        format!(
            "  {name}: {{ from: sales, do: [ {{ filter: qty > {least} }}, {{ standardize: {{ columns: [qty] }} }} ] }}\n"
        )
    };
    let spec = |order: &str| {
        let source = format!(
            "version: 1\nname: s\nsources:\n  sales: {{ parquet: {{ path: sales.parquet }}{order} }}\n"
        );
        let sink = "sinks:\n  a: { from: a, parquet: { path: a } }\n  b: { from: b, parquet: { path: b } }\n";
        format!("{source}steps:\n{}{}{sink}", step("a", 2), step("b", 4))
    };
    // The rows of each pass, as people read them.
    let told = |order: &str, args: &[&str]| -> Vec<String> {
        shop.write("spec.yaml", &spec(order));
        let text = shop
            .forebay(&[&["run", "spec.yaml"], args].concat())
            .expect(0)
            .stdout;
        let passes = text
            .lines()
            .filter_map(|line| line.strip_prefix("pass ")?.split_once(": "));
        let passes =
            passes.filter_map(|(_, done)| Some(done.split_once(" rows read")?.0.to_owned()));
        passes
            .inspect(|rows| assert!(!rows.is_empty(), "{text}"))
            .collect()
    };
    let series = ", time: day, keys: [store]";
    for (order, state) in [(series, "series"), ("", "rows")] {
        let state = format!("--state={state}");
        assert_eq!(told(order, &[&state]), ["400"; 3]);
        assert_eq!(told(order, &[&state, "--limit=100"]), ["100"; 3]);
        assert_eq!(told(order, &[&state, "--sample=100%"]), ["400"; 3]);
        let some = told(order, &[&state, "--sample=30%"]);
        assert!(
            some.len() == 3 && some.iter().all(|rows| *rows == some[0]),
            "{some:?}"
        );
        assert!(
            (1..400).contains(&some[0].parse::<usize>().unwrap()),
            "{some:?}"
        );
    }
}

/// A sample of the rows meets all rows of the tables that it is joined with.
#[test]
fn a_preview_reads_tables_of_joins_whole() {
    let shop = TestDirectory::new();
    shop.write("a.csv", "k\n3\n2\n1\n");
    shop.write("b.csv", "k,name\n1,one\n2,two\n3,three\n");
    shop.write(
        "spec.yaml",
        "version: 1\nname: p\nsources: { a: { csv: { path: a.csv } }, b: { csv: { path: b.csv } } }\n\
         steps:\n  names: { from: b, do: [ { filter: \"k > 0\" } ] }\n  \
         f: { from: a, do: [ { join: { with: b, on: [k], suffix: _b } }, { join: { with: names, on: [k] } } ] }\n\
         sinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let call = shop.forebay(&["preview", "spec.yaml", "--json", "--sample-rows=1"]);
    let rows = call.expect(0).stdout;
    for column in ["name_b", "name"] {
        assert_eq!(values(&rows, column), ["\"three\""], "{rows}");
    }
}

/// Rows of a preview lie in files, which do not have all types of the rows.
#[test]
fn previews_show_decimals_of_a_negative_scale() {
    let shop = TestDirectory::new();
    let hundreds = Decimal128Array::from(vec![Some(12), None, Some(-3)]);
    let hundreds = hundreds.with_precision_and_scale(10, -2).unwrap();
    let columns = [("qty", Arc::new(hundreds) as ArrayRef, true)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let file = std::fs::File::create(shop.path("a.arrow")).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    shop.write(
        "spec.yaml",
        "version: 1\nname: p\nsources: { a: { arrow: { path: a.arrow } } }\n\
         sinks: { t: { from: a, csv: { path: out } } }\n",
    );
    let call = shop.forebay(&["preview", "spec.yaml", "--format=csv"]);
    assert_eq!(call.expect(0).stdout, "qty\n1200\n\"\"\n-300\n");
}

/// Parquet has no columns for these types.
#[test]
fn previews_show_intervals_and_structs_without_fields() {
    let shop = TestDirectory::new();
    let intervals = IntervalMonthDayNanoArray::from(vec![
        Some(IntervalMonthDayNano::new(1, 2, 3_000_000_000)),
        None,
    ]);
    let nothings = StructArray::new_empty_fields(2, None);
    let columns = [
        ("n", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        ("every", Arc::new(intervals) as ArrayRef),
        ("nothing", Arc::new(nothings) as ArrayRef),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let file = std::fs::File::create(shop.path("a.arrow")).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    shop.write(
        "spec.yaml",
        "version: 1\nname: p\nsources: { a: { arrow: { path: a.arrow } } }\n\
         sinks: { t: { from: a, arrow: { path: out } } }\n",
    );
    let shown = |more: &[&str]| {
        let arguments = [&["preview", "spec.yaml"], more].concat();
        shop.forebay(&arguments).expect(0).stdout
    };
    let lines = shown(&["--json"]);
    assert_eq!(
        values(&lines, "every"),
        [r#""1 mons 2 days 3.000000000 secs""#, "null"]
    );
    assert_eq!(values(&lines, "nothing"), ["{}", "{}"]);
    let second = shown(&["--json", "--where", "n = 2"]);
    assert_eq!(values(&second, "n"), ["2"]);
    let table = shown(&[]);
    assert!(table.contains("1 mons 2 days"), "{table}");
}

#[test]
fn previews_are_written_as_arrow_and_with_the_newest_artifact() {
    let shop = workshop();
    let missing = shop
        .forebay(&["preview", "spec.yaml", "--artifact"])
        .expect(65);
    assert!(missing.stderr.contains("no run of `"), "{}", missing.stderr);
    shop.forebay(&["run", "spec.yaml", "-q"]).expect(0);
    // A sample of its own would give other statistics.
    let preview = |more: &[&str]| {
        shop.forebay(
            &[
                &["preview", "spec.yaml", "--json", "--sample-rows=20"],
                more,
            ]
            .concat(),
        )
        .expect(0)
        .stdout
    };
    let whole = shop
        .forebay(&["preview", "spec.yaml", "--json", "--rows=20"])
        .expect(0)
        .stdout;
    let learned = preview(&["--artifact"]);
    assert_eq!(learned.lines().count(), 20);
    assert_eq!(learned, whole);

    shop.forebay(&[
        "preview",
        "spec.yaml",
        "--rows=5",
        "--format=arrow",
        "--out=rows.arrow",
    ])
    .expect(0);
    let file = std::fs::File::open(shop.path("rows.arrow")).unwrap();
    let batches: Vec<_> = arrow::ipc::reader::FileReader::try_new(file, None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
        5
    );
    let stream = shop
        .command(&["preview", "spec.yaml", "--rows=5", "--format=arrow"])
        .output()
        .unwrap()
        .stdout;
    let streamed: Vec<_> = arrow::ipc::reader::StreamReader::try_new(stream.as_slice(), None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(batches, streamed);
    shop.forebay(&[
        "preview",
        "spec.yaml",
        "totals",
        "--format=csv",
        "--out=totals.csv",
    ])
    .expect(0);
    assert_eq!(
        std::fs::read_to_string(shop.path("totals.csv")).unwrap(),
        "store,total\n1,600\n2,630\n"
    );
}

#[test]
fn the_log_tells_events_and_what_libraries_say() {
    let shop = workshop();
    let run = |log: &str| {
        use crate::support::watched_command::WatchedCommand;
        let call: crate::support::ProgramOutput = shop
            .command(&["run", "spec.yaml", "-q"])
            .env("RUST_LOG", log)
            .watched()
            .into();
        call
    };
    let quiet = run("").expect(0).stderr;
    assert_eq!(quiet, "");
    let told = run("forebay=info").expect(0).stderr;
    assert!(
        told.contains("INFO forebay: {\"event\":\"discovered\",\"source\":\"sales\""),
        "{told}"
    );
    assert!(!told.contains("\"event\":\"progress\""), "{told}");
    let wrong = run("forebay=loud").expect(64).stderr;
    assert!(
        wrong.contains("`RUST_LOG=forebay=loud` does not say what to log"),
        "{wrong}"
    );
}

/// Lines that are longer than a terminal of 80 columns is wide, but for single words, such as paths.
fn long_lines(text: &str) -> Vec<String> {
    let plain = anstream::adapter::strip_str(text).to_string();
    let is_long = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
    plain.lines().filter(is_long).map(str::to_owned).collect()
}

#[test]
fn what_commands_print_fits_80_columns() {
    let shop = workshop();
    shop.forebay(&["run", "spec.yaml", "-q", "--state=earlier"])
        .expect(0);
    let artifact = shop
        .forebay(&["run", "spec.yaml", "--json"])
        .expect(0)
        .summary()["artifact_path"]
        .clone();
    let earlier = shop
        .forebay(&["run", "spec.yaml", "--json", "--state=earlier"])
        .expect(0)
        .summary();
    // The first days have no lag, and a feed takes no null.
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let fed = spec
        .lines()
        .filter(|line| !line.contains("lag:") && !line.contains("rolling:"));
    shop.write("fed.yaml", &fed.collect::<Vec<_>>().join("\n"));
    let artifact = artifact.as_str().unwrap();
    let earlier = earlier["artifact_path"].as_str().unwrap().to_owned();
    let commands: Vec<Vec<&str>> = vec![
        vec!["check", "spec.yaml"],
        vec!["explain", "spec.yaml"],
        vec!["explain", "spec.yaml", "--state=other"],
        vec!["run", "spec.yaml", "--dry-run"],
        vec!["run", "spec.yaml"],
        vec!["run", "spec.yaml", "--state=more", "-v"],
        vec!["fit", "spec.yaml", "--state=fitted"],
        vec!["preview", "spec.yaml"],
        vec!["show", artifact],
        vec!["diff", artifact, &earlier],
        vec!["profile", "spec.yaml"],
        vec!["cache", "ls"],
        vec!["cache", "verify"],
        vec!["fit", "fed.yaml"],
        vec!["feed", "fed.yaml", "--last=short"],
        vec!["doctor"],
        vec!["export", "out/features", "copy"],
        vec!["run", "spec.yaml", "--limit=5"],
    ];
    for command in commands {
        use crate::support::watched_command::WatchedCommand;
        let call: crate::support::ProgramOutput =
            shop.command(&command).env("COLUMNS", "80").watched().into();
        assert_eq!(
            long_lines(&call.stdout),
            Vec::<String>::new(),
            "{command:?} on standard output"
        );
        assert_eq!(
            long_lines(&call.stderr),
            Vec::<String>::new(),
            "{command:?} on standard error"
        );
    }
}

/// Files with and without known row counts, in one span and in several, in order of time and not.
#[test]
fn a_limit_counts_the_rows_of_the_source() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("parquet")).unwrap();
    std::fs::create_dir_all(shop.path("csv")).unwrap();
    for file in 0..4 {
        let days: Vec<i32> = (0..50).map(|row| 100 * (3 - file) + row).collect();
        let numbers: Vec<i64> = (0..50).map(|row| i64::from(100 * file + row)).collect();
        let columns: [(&str, ArrayRef); 2] = [
            ("day", Arc::new(Date32Array::from(days.clone()))),
            ("x", Arc::new(Int64Array::from(numbers.clone()))),
        ];
        write(&shop, &format!("parquet/{file}.parquet"), columns);
        let mut text = String::from("day,x\n");
        for (day, number) in days.iter().zip(&numbers) {
            let date = jiff::civil::date(1970, 1, 1)
                .checked_add(jiff::Span::new().days(*day))
                .unwrap();
            text += &format!("{date},{number}\n");
        }
        shop.write(&format!("csv/{file}.csv"), &text);
    }
    for (format, series) in [
        ("parquet", ""),
        ("csv", ""),
        ("parquet", ", time: day, keys: []"),
    ] {
        shop.write(
            "spec.yaml",
            &format!(
                "version: 1\nname: t\nsources: {{ a: {{ {format}: {{ path: {format} }}{series} }} }}\n\
                 sinks: {{ t: {{ from: a, parquet: {{ path: out }} }} }}\n"
            ),
        );
        for (limit, expected) in [(30, 30), (50, 50), (120, 120), (200, 200), (999, 200)] {
            for threads in ["--threads=1", "--threads=3"] {
                let state = format!("--state={format}{}{threads}", series.len());
                let limit = format!("--limit={limit}");
                let run = shop
                    .forebay(&["run", "spec.yaml", &limit, threads, &state, "--json"])
                    .expect(0);
                let output = &run.summary()["outputs"][0];
                let rows = (&output["rows_in"], &output["rows"]);
                let expected = serde_json::json!(expected);
                assert_eq!(
                    rows,
                    (&expected, &expected),
                    "{format}{series} {limit} {threads}"
                );
            }
        }
    }
}
