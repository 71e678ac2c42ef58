//! Delta tables that other programs change, too: files that hold more than an interval, commits that come first, logs
//! with checkpoints, and stores that fail.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Date32Type;
use serde_json::{Value, json};

use crate::delta::sink::{ROWS, csv_shop, table_rows};
use crate::delta::source::deletion_vector;
use crate::support::delta_log::{actions, commits, file_of, live, statistics, transactions};
use crate::support::request_failures::{ObservedRequest, RequestFailure, request_chance};
use crate::support::s3_server::S3Server;
use crate::support::{TestDirectory, read_files};

/// Two rows for each of some days of a month.
fn days(days: Range<u32>, quantity: u32) -> String {
    days.map(|day| format!("2024-03-{day:02},a,{quantity}\n2024-03-{day:02},b,{quantity}\n"))
        .collect()
}

fn csv(rows: &str) -> String {
    format!("day,shop,qty\n{rows}")
}

/// The rows of a CSV file, as a table gives them.
fn expected(rows: &str) -> RecordBatch {
    let shop = csv_shop(&csv(rows), "", "");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    table_rows(&shop, "table")
}

/// A row without a day, which no interval holds.
const NO_DAY: &str = ",a,7\n";

/// A table of ten days in as few files as may be, which knows nothing of Forebay; and a spec that writes it by intervals.
fn foreign_table(path: &str, sink: &str) -> TestDirectory {
    let shop = csv_shop(&csv(&format!("{}{NO_DAY}", days(1..11, 1))), sink, "");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    std::fs::remove_file(shop.path("table/_manifest.json")).unwrap();
    std::fs::remove_dir_all(shop.path(".forebay")).unwrap();
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let spec = spec
        .replace("rows.csv }", "rows.csv }\n    time: day")
        .replace("path: table", &format!("path: {path}"));
    shop.write("spec.yaml", &spec);
    shop.write("rows.csv", &csv(&days(1..11, 2)));
    shop
}

fn run_interval(shop: &TestDirectory, from: u32, to: u32) -> Value {
    let from = format!("2024-03-{from:02}");
    let to = format!("2024-03-{to:02}");
    let summary = shop
        .forebay(&["run", "spec.yaml", "--json", "--interval", &from, &to])
        .expect(0)
        .summary();
    summary["outputs"][0].clone()
}

/// Appends a commit by another program.
fn commit(table: &Path, all: &[Value]) {
    let text: String = all.iter().map(|action| format!("{action}\n")).collect();
    let version = commits(table).len();
    std::fs::write(
        table.join("_delta_log").join(format!("{version:020}.json")),
        text,
    )
    .unwrap();
}

#[test]
fn rows_beside_an_interval_stay() {
    for (sink, has_statistics) in [
        ("", true),
        ("", false),
        (", partition_by: [shop], group_rows_max: 2", true),
    ] {
        let shop = foreign_table("table", sink);
        let table = shop.path("table");
        if !has_statistics {
            let log = table.join("_delta_log").join(format!("{:020}.json", 0));
            let without = commits(&table).remove(0).into_iter().map(|mut action| {
                action
                    .get_mut("add")
                    .map(|add| add.as_object_mut().unwrap().remove("stats"));
                format!("{action}\n")
            });
            std::fs::write(&log, without.collect::<String>()).unwrap();
        }
        let before = live(&table);
        let output = run_interval(&shop, 4, 6);
        assert_eq!(
            (&output["rows"], &output["rows_copied"]),
            (&json!(4), &json!(17)),
            "{sink}"
        );
        let [_, second] = &commits(&table)[..] else {
            panic!("two commits")
        };
        assert_eq!(actions(second, "remove").len(), before.len());
        assert_eq!(
            actions(second, "commitInfo")[0]["operationMetrics"]["numCopiedRows"],
            "17"
        );
        let rows = |fourth: u32, seventh: u32| {
            let parts = [
                days(1..4, 1),
                days(4..6, fourth),
                days(6..8, seventh),
                days(8..11, 1),
                NO_DAY.to_owned(),
            ];
            expected(&parts.concat())
        };
        assert!(table_rows(&shop, "table") == rows(2, 1), "{sink}");
        // No file reaches over an edge of the interval any more: the next run over it copies nothing.
        for file in live(&table).values() {
            let of = |bound: &str| statistics(file)[bound]["day"].as_str().unwrap().to_owned();
            let min = of("minValues");
            let max = of("maxValues");
            let min = min.as_str();
            let max = max.as_str();
            let is_inside = min >= "2024-03-04" && max < "2024-03-06";
            assert!(
                max < "2024-03-04" || min >= "2024-03-06" || is_inside,
                "{file}"
            );
        }
        shop.write("rows.csv", &csv(&days(1..11, 3)));
        assert_eq!(run_interval(&shop, 4, 6)["rows_copied"], 0);
        assert_eq!(run_interval(&shop, 6, 8)["rows_copied"], 6);
        assert!(table_rows(&shop, "table") == rows(3, 3), "{sink}");
        // Readers of an earlier version see that.
        let old = std::fs::read_to_string(shop.path("read.yaml")).unwrap();
        shop.write(
            "old.yaml",
            &old.replace("path: table }", "path: table, version: 0 }")
                .replace("path: read-", "path: old-"),
        );
        let read = shop
            .forebay(&["run", "old.yaml", "--json", "--state=old"])
            .expect(0)
            .summary();
        assert_eq!(read["outputs"][0]["rows"], 21);
    }
}

#[test]
fn deleted_rows_of_divided_files_stay_deleted() {
    let shop = foreign_table("table", "");
    let table = shop.path("table");
    let add = live(&table).into_values().next().unwrap();
    let features = json!(["deletionVectors"]);
    let protocol = json!({
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
    });
    let removed = json!({ "path": add["path"], "deletionTimestamp": 1, "dataChange": true });
    let mut with_vector = add;
    with_vector
        .as_object_mut()
        .unwrap()
        .extend(deletion_vector(&[0, 9]).as_object().unwrap().clone());
    commit(
        &table,
        &[
            json!({ "protocol": protocol }),
            json!({ "remove": removed }),
            json!({ "add": with_vector }),
        ],
    );
    // The first row and one of the fifth day, which is written again.
    assert_eq!(run_interval(&shop, 4, 6)["rows_copied"], 16);
    let removed = actions(commits(&table).last().unwrap(), "remove");
    assert_eq!(removed[0]["deletionVector"]["cardinality"], 2);
    let rows = [
        "2024-03-01,b,1\n".to_owned(),
        days(2..4, 1),
        days(4..6, 2),
        days(6..11, 1),
        NO_DAY.to_owned(),
    ];
    assert!(table_rows(&shop, "table") == expected(&rows.concat()));
}

#[test]
fn files_that_another_program_puts_together_are_divided_again() {
    for (changes_rows, code) in [(false, 0), (true, 75)] {
        let shop = foreign_table("s3://lake/table", "");
        std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
        std::fs::rename(shop.path("table"), shop.path("buckets/lake/table")).unwrap();
        let server = S3Server::start(&shop.path("buckets"));
        let table = shop.path("buckets/lake/table");
        // Just before the commit of the run, the file gets another name.
        let other = table.clone();
        server.inject_failures(move |asked| {
            let other = other.clone();
            let commits_second =
                asked.method == "PUT" && asked.target.contains(&format!("{:020}.json", 1));
            (commits_second && asked.nth == 0).then(|| {
                RequestFailure::After(Box::new(move || {
                    let mut add = live(&other).into_values().next().unwrap();
                    let path = add["path"].clone();
                    std::fs::copy(file_of(&other, &add), other.join("other.parquet")).unwrap();
                    (add["path"], add["dataChange"]) =
                        (json!("other.parquet"), json!(changes_rows));
                    let removed =
                        json!({ "path": path, "deletionTimestamp": 1, "dataChange": changes_rows });
                    commit(
                        &other,
                        &[json!({ "remove": removed }), json!({ "add": add })],
                    );
                }))
            })
        });
        let args = ["run", "spec.yaml", "--interval", "2024-03-04", "2024-03-06"];
        let ran = server.forebay(&shop, &args).expect(code);
        assert_eq!(server.stop_failures(), 1);
        if code != 0 {
            assert!(
                ran.stderr.contains("another program changed the rows"),
                "{}",
                ran.stderr
            );
            server.forebay(&shop, &args).expect(0);
        }
        let rows = [
            days(1..4, 1),
            days(4..6, 2),
            days(6..11, 1),
            NO_DAY.to_owned(),
        ];
        assert!(
            table_rows(&shop, "buckets/lake/table") == expected(&rows.concat()),
            "{code}"
        );
        assert_eq!((commits(&table).len(), transactions(&table).len()), (3, 2));
        let removed = actions(&commits(&table)[2], "remove");
        assert_eq!(removed[0]["path"], "other.parquet");
    }
}

#[test]
fn rows_that_are_removed_before_their_commit_are_missed() {
    let shop = foreign_table("s3://lake/table", "");
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    std::fs::rename(shop.path("table"), shop.path("buckets/lake/table")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let table = shop.path("buckets/lake/table");
    // What was written again is removed when the run looks whether it is there.
    let buckets = shop.path("buckets");
    server.inject_failures(move |asked| {
        let key = asked.target.trim_start_matches('/').to_owned();
        let file = buckets.join(
            percent_encoding::percent_decode_str(&key)
                .decode_utf8()
                .unwrap()
                .as_ref(),
        );
        let is_data = asked.method == "HEAD" && key.contains("table/data/") && file.is_file();
        let is_copy = is_data && {
            let days = read_files(std::slice::from_ref(&file))["day"].clone();
            let interval = 19786..=19787;
            days.as_primitive::<Date32Type>()
                .iter()
                .flatten()
                .all(|day| !interval.contains(&day))
        };
        is_copy.then(|| RequestFailure::After(Box::new(move || drop(std::fs::remove_file(file)))))
    });
    let args = ["run", "spec.yaml", "--interval", "2024-03-04", "2024-03-06"];
    let said = server.forebay(&shop, &args).expect(75).stderr;
    assert!(
        server.stop_failures() > 0 && said.contains("written again were removed"),
        "{said}"
    );
    assert_eq!(commits(&table).len(), 1);
    server.forebay(&shop, &args).expect(0);
    let rows = [
        days(1..4, 1),
        days(4..6, 2),
        days(6..11, 1),
        NO_DAY.to_owned(),
    ];
    assert!(table_rows(&shop, "buckets/lake/table") == expected(&rows.concat()));
}

#[test]
fn checkpoints_stand_for_the_commits_before_them() {
    let shop = csv_shop(ROWS, ", mode: append", "");
    let log = shop.path("table/_delta_log");
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let append = |run: usize| {
        let rows = format!("rows-{run}.csv");
        if !shop.path(&rows).exists() {
            shop.write(&rows, &format!("{ROWS}2024-03-02,d,{run},1.5\n"));
        }
        shop.write("spec.yaml", &spec.replace("rows.csv", &rows));
        shop.forebay(&["run", "spec.yaml"]).expect(0).stderr
    };
    for run in 0..25 {
        let said = append(run);
        assert!(!said.contains("checkpoint"), "{said}");
    }
    let names = || -> BTreeSet<String> {
        std::fs::read_dir(&log)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let checkpoints: Vec<String> = names()
        .into_iter()
        .filter(|name| name.contains("checkpoint"))
        .collect();
    let named = |version: u32| format!("{version:020}.checkpoint.parquet");
    assert_eq!(
        checkpoints,
        [named(10), named(20), "_last_checkpoint".to_owned()]
    );
    let last: Value =
        serde_json::from_slice(&std::fs::read(log.join("_last_checkpoint")).unwrap()).unwrap();
    assert_eq!(
        (&last["version"], &last["numOfAddFiles"]),
        (&json!(20), &json!(21))
    );
    let bytes = std::fs::metadata(log.join(named(20))).unwrap().len();
    assert_eq!(last["sizeInBytes"], bytes);
    let rows = table_rows(&shop, "table");
    assert_eq!(rows.num_rows(), 25 * 4);
    // Another program cleans the log up: the table is the same.
    (0..20)
        .for_each(|version| std::fs::remove_file(log.join(format!("{version:020}.json"))).unwrap());
    std::fs::remove_file(log.join(named(10))).unwrap();
    assert!(table_rows(&shop, "table") == rows);
    std::fs::remove_file(log.join("_last_checkpoint")).unwrap();
    assert!(table_rows(&shop, "table") == rows);
    let data = || std::fs::read_dir(shop.path("table/data")).unwrap().count();
    assert_eq!(data(), 25);
    shop.forebay(&["cache", "gc", "--older-than", "0s"])
        .expect(0);
    assert_eq!(data(), 25);
    // The checkpoint knows the runs: rows that were added are not added again, and others are.
    let before = names();
    append(3);
    assert_eq!(names(), before);
    append(25);
    assert_eq!(table_rows(&shop, "table").num_rows(), 26 * 4);
}

/// A bucket lists a checkpoint and answers 404 when it is asked for. The commits before it may be gone.
#[test]
fn checkpoints_that_a_bucket_has_no_more_are_bad_data() {
    let shop = csv_shop(ROWS, ", mode: append", "");
    for run in 0..12 {
        shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,{run},1.5\n"));
        shop.forebay(&["run", "spec.yaml"]).expect(0);
    }
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    std::fs::rename(shop.path("table"), shop.path("buckets/lake/table")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    shop.write(
        "copy.yaml",
        "version: 1\nname: copies\nsources: { table: { delta: { path: \"s3://lake/table\" } } }\n\
         sinks: { out: { from: table, parquet: { path: out } } }\n",
    );
    let checkpoint = format!("{:020}.checkpoint.parquet", 10);
    let gone = checkpoint.clone();
    server.inject_failures(move |asked| {
        let is_gone = asked.target.contains(&gone) && !asked.target.contains("list-type");
        is_gone.then_some(RequestFailure::Says(404, "NoSuchKey"))
    });
    for command in ["check", "run"] {
        let call = server.forebay(&shop, &[command, "copy.yaml", "--json"]);
        let is_bad_data = call.code == 65 || (command == "check" && call.code == 78);
        assert!(is_bad_data, "{command}: {} {}", call.code, call.stderr);
        let says = "a file of the table's log is not there";
        for part in ["FB0402", says, &checkpoint] {
            assert!(call.stderr.contains(part), "{command}: {}", call.stderr);
        }
    }
    // A store that says so is believed at once.
    let asked = server.stop_failures();
    assert!((1..=24).contains(&asked), "asked for {asked} times");

    // The list names the checkpoint, too.
    server.inject_failures(|asked| {
        let is_hint = asked.target.contains("_last_checkpoint");
        is_hint.then_some(RequestFailure::Says(404, "NoSuchKey"))
    });
    server
        .forebay(&shop, &["run", "copy.yaml", "--json"])
        .expect(0);
    assert!(server.stop_failures() > 0);
    assert_eq!(shop.visible("out").num_rows(), 12 * 4);
}

#[test]
fn a_table_says_how_often_its_log_gets_a_checkpoint() {
    let shop = csv_shop(ROWS, "", "");
    let run = |quantity: u32| {
        shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,{quantity},1.5\n"));
        shop.forebay(&["run", "spec.yaml"]).expect(0);
    };
    run(0);
    let log = shop.path("table/_delta_log");
    let first = log.join(format!("{:020}.json", 0));
    let text = std::fs::read_to_string(&first).unwrap();
    let set = text.replace(
        "\"configuration\":{}",
        "\"configuration\":{\"delta.checkpointInterval\":\"2\"}",
    );
    assert_ne!(text, set);
    std::fs::write(&first, set).unwrap();
    (1..6).for_each(run);
    let is_there = |version: u32| {
        log.join(format!("{version:020}.checkpoint.parquet"))
            .exists()
    };
    assert_eq!(
        (0..6)
            .filter(|version| is_there(*version))
            .collect::<Vec<_>>(),
        [2, 4]
    );
    // A checkpoint that a run was ended before comes with the next one.
    std::fs::remove_file(log.join(format!("{:020}.checkpoint.parquet", 4))).unwrap();
    std::fs::remove_file(log.join("_last_checkpoint")).unwrap();
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert!(is_there(5));
    assert_eq!(table_rows(&shop, "table").num_rows(), 4);
}

/// A way in which requests go wrong, and how often it does at least.
struct FailureCase {
    name: &'static str,
    least: u64,
    rule: fn(&ObservedRequest) -> Option<RequestFailure>,
}

#[test]
fn a_store_that_fails_neither_loses_nor_doubles_rows() {
    let case = |name, least, rule| FailureCase { name, least, rule };
    let cases = [
        case("one of ten refused", 2, |asked| {
            (request_chance(5, asked) < 0.1).then_some(RequestFailure::Refused(503))
        }),
        case("every second refused", 10, |asked| {
            (request_chance(6, asked) < 0.5).then_some(RequestFailure::Refused(503))
        }),
        case("bodies cut", 5, |asked| {
            (asked.method == "GET" && (asked.nth == 0 || request_chance(7, asked) < 0.3))
                .then_some(RequestFailure::CutBody)
        }),
        case("connections refused", 3, |asked| {
            (request_chance(8, asked) < 0.2).then_some(RequestFailure::Cut { landed: false })
        }),
        case("answers of writes lost", 3, |asked| {
            (asked.method == "PUT" && asked.nth == 0)
                .then_some(RequestFailure::Cut { landed: true })
        }),
    ];
    for FailureCase { name, least, rule } in cases {
        for (mode, rows) in [("append", [4, 8]), ("overwrite", [4, 4])] {
            let shop = csv_shop("", &format!(", mode: {mode}, partition_by: [shop]"), "");
            std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
            let server = S3Server::start(&shop.path("buckets"));
            let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
            shop.write(
                "spec.yaml",
                &spec.replace("path: table", "path: s3://lake/table"),
            );
            let table = shop.path("buckets/lake/table");
            server.inject_failures(rule);
            for (run, expected) in rows.into_iter().enumerate() {
                shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,{run},1.5\n"));
                server
                    .forebay(&shop, &["run", "spec.yaml", "--state=s3://lake/state"])
                    .expect(0);
                let files = live(&table);
                let live_rows = files
                    .values()
                    .map(|file| statistics(file)["numRecords"].as_u64().unwrap());
                assert_eq!(live_rows.sum::<u64>(), expected, "{name}, {mode}");
                let commits = commits(&table).len();
                let named = transactions(&table);
                assert_eq!(
                    (commits, named.iter().collect::<BTreeSet<_>>().len()),
                    (run + 1, run + 1),
                    "{name}, {mode}"
                );
            }
            let fired = server.stop_failures();
            assert!(fired >= least, "{name}, {mode}: only {fired} failures");
            assert_eq!(
                table_rows(&shop, "buckets/lake/table").num_rows() as u64,
                rows[1],
                "{name}, {mode}"
            );
        }
    }
}

#[test]
fn commits_that_come_first_again_and_again_are_kept() {
    let shop = csv_shop(ROWS, ", mode: append", "");
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &spec.replace("path: table", "path: s3://lake/table"),
    );
    server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
    let table = shop.path("buckets/lake/table");
    // Three versions are taken just before the run would take them; and the store loses an answer and refuses requests.
    let other = table.clone();
    server.inject_failures(move |asked| {
        let version = (1..=4).find(|version| asked.target.contains(&format!("{version:020}.json")));
        let other = other.clone();
        match version.filter(|_| asked.method == "PUT") {
            Some(4) if asked.nth == 0 => Some(RequestFailure::Refused(503)),
            Some(4) if asked.nth == 1 => Some(RequestFailure::Cut { landed: true }),
            Some(version) if version < 4 && asked.nth == 0 => {
                Some(RequestFailure::After(Box::new(move || {
                    let mut add = actions(&commits(&other)[0], "add").remove(0);
                    let name = format!("other-{version}.parquet");
                    std::fs::copy(file_of(&other, &add), other.join(&name)).unwrap();
                    add["path"] = json!(name);
                    commit(&other, &[json!({ "add": add })]);
                })))
            }
            _ => (request_chance(9, asked) < 0.1).then_some(RequestFailure::Refused(503)),
        }
    });
    shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,4,1.5\n"));
    server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
    assert!(server.stop_failures() >= 5);
    assert_eq!((commits(&table).len(), transactions(&table).len()), (5, 2));
    assert_eq!(
        table_rows(&shop, "buckets/lake/table").num_rows(),
        3 + 3 * 3 + 4
    );
    server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
    assert_eq!(commits(&table).len(), 5);
}
