//! Delta tables as sinks: commits to the log, read here action by action and through Forebay's own source.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use serde_json::{Value, json};

use crate::nights::changed_history::NightlyFixture;
use crate::nights::intervals;
use crate::support::delta_log::{actions, commits, file_of, live, sorted, statistics};
use crate::support::s3_server::S3Server;
use crate::support::{ProgramOutput, TestDirectory};

/// All rows that Forebay's source reads of a table, in an order of their own.
pub fn table_rows(shop: &TestDirectory, table: &str) -> RecordBatch {
    let out = format!("read-{}", std::fs::read_dir(shop.path("")).unwrap().count());
    shop.write(
        "read.yaml",
        &format!(
            "version: 1\nname: reads\nsources:\n  table:\n    delta: {{ path: {table} }}\nsinks:\n  out: {{ from: table, parquet: {{ path: {out} }} }}\n"
        ),
    );
    shop.forebay(&["run", "read.yaml", &format!("--state=state-{out}")])
        .expect(0);
    sorted(&shop.visible(&out))
}

/// A shop whose one input is a file of CSV.
pub fn csv_shop(rows: &str, sink: &str, steps: &str) -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write("rows.csv", rows);
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: writes\nsources:\n  rows:\n    csv: {{ path: rows.csv }}\nsteps:\n  shaped:\n    from: rows\n    do: [{steps}]\nsinks:\n  table: {{ from: shaped, delta: {{ path: table{sink} }} }}\n"
        ),
    );
    shop
}

fn run(shop: &TestDirectory) -> ProgramOutput {
    shop.forebay(&["run", "spec.yaml", "--json"])
}

pub const ROWS: &str =
    "day,shop,qty,price\n2024-02-29,a,1,0.5\n2024-03-01,b/c,2,NaN\n2024-03-01,,3,\n";

#[test]
fn a_run_is_one_commit_with_statistics() {
    let shop = csv_shop(ROWS, "", "");
    let summary = run(&shop).expect(0).summary();
    assert_eq!(summary["outputs"][0]["rows"], 3);
    let [first] = &commits(&shop.path("table"))[..] else {
        panic!("one commit")
    };
    assert_eq!(
        actions(first, "protocol"),
        [json!({ "minReaderVersion": 1, "minWriterVersion": 2 })]
    );
    let metadata = &actions(first, "metaData")[0];
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
    let types: Vec<&str> = schema["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["date", "string", "long", "double"]);
    let [added] = &actions(first, "add")[..] else {
        panic!("one file")
    };
    let told = statistics(added);
    assert_eq!(
        told,
        json!({
            "numRecords": 3,
            "minValues": { "day": "2024-02-29", "shop": "a", "qty": 1 },
            "maxValues": { "day": "2024-03-01", "shop": "b/c", "qty": 3 },
            "nullCount": { "day": 0, "shop": 1, "qty": 0, "price": 1 },
        })
    );
    let file = shop.path("table").join(added["path"].as_str().unwrap());
    assert_eq!(
        std::fs::metadata(&file).unwrap().len(),
        added["size"].as_u64().unwrap()
    );
    // The same run again commits nothing; other rows take the place of those that are there.
    run(&shop).expect(0);
    assert_eq!(commits(&shop.path("table")).len(), 1);
    shop.write("rows.csv", "day,shop,qty,price\n2024-03-02,d,4,1.5\n");
    run(&shop).expect(0);
    let all = commits(&shop.path("table"));
    assert_eq!(
        (
            all.len(),
            actions(&all[1], "remove").len(),
            actions(&all[1], "add").len()
        ),
        (2, 1, 1)
    );
    assert_eq!(table_rows(&shop, "table").num_rows(), 1);
    // Back again: what was taken out of the table is written anew, under another name.
    shop.write("rows.csv", ROWS);
    run(&shop).expect(0);
    let live = live(&shop.path("table"));
    assert_eq!(live.len(), 1);
    assert!(!live.contains_key(added["path"].as_str().unwrap()));
    assert_eq!(table_rows(&shop, "table").num_rows(), 3);
}

#[test]
fn appended_rows_are_committed_once() {
    let shop = csv_shop(ROWS, ", mode: append", "");
    run(&shop).expect(0);
    run(&shop).expect(0);
    assert_eq!(commits(&shop.path("table")).len(), 1);
    // Also where the state was lost: the log knows the run.
    std::fs::remove_dir_all(shop.path(".forebay")).unwrap();
    run(&shop).expect(0);
    assert_eq!(commits(&shop.path("table")).len(), 1);
    shop.write("more.csv", &format!("{ROWS}2024-03-02,d,4,1.5\n"));
    let first = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let second = first.replace("rows.csv", "more.csv");
    assert_ne!(first, second);
    shop.write("spec.yaml", &second);
    run(&shop).expect(0);
    assert_eq!(table_rows(&shop, "table").num_rows(), 7);
    // The first run again: its rows are there.
    shop.write("spec.yaml", &first);
    run(&shop).expect(0);
    assert_eq!(table_rows(&shop, "table").num_rows(), 7);
}

#[test]
fn partition_values_are_in_the_log_alone() {
    let shop = csv_shop(ROWS, ", partition_by: [day, shop]", "");
    run(&shop).expect(0);
    let live = live(&shop.path("table"));
    let mut partitions: Vec<Value> = live
        .values()
        .map(|file| file["partitionValues"].clone())
        .collect();
    partitions.sort_by_key(Value::to_string);
    assert_eq!(
        partitions,
        [
            json!({ "day": "2024-02-29", "shop": "a" }),
            json!({ "day": "2024-03-01", "shop": "b/c" }),
            json!({ "day": "2024-03-01", "shop": null }),
        ]
    );
    let rows = table_rows(&shop, "table");
    let whole = csv_shop(ROWS, "", "");
    run(&whole).expect(0);
    assert!(rows == table_rows(&whole, "table"));
    let other = std::fs::read_to_string(shop.path("spec.yaml"))
        .unwrap()
        .replace("[day, shop]", "[day]");
    shop.write("spec.yaml", &other);
    let said = run(&shop).expect(65).stderr;
    assert!(said.contains("partitioned by"), "{said}");
}

#[test]
fn folders_of_partitions_hold_what_urls_hold() {
    let shop = csv_shop(
        "shop,qty\nx y,1\ngröße,2\na/b,3\n",
        ", partition_by: [shop]",
        "",
    );
    run(&shop).expect(0);
    let mut folders: Vec<String> = Vec::new();
    for file in live(&shop.path("table")).values() {
        let path = file_of(&shop.path("table"), file);
        assert!(path.exists(), "{}", path.display());
        folders.push(
            path.parent()
                .unwrap()
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned(),
        );
    }
    folders.sort();
    assert_eq!(
        folders,
        ["shop=a%2Fb", "shop=gr%C3%B6%C3%9Fe", "shop=x%20y"]
    );
    let whole = csv_shop("shop,qty\nx y,1\ngröße,2\na/b,3\n", "", "");
    run(&whole).expect(0);
    assert!(table_rows(&shop, "table") == table_rows(&whole, "table"));
}

#[test]
fn another_schema_is_refused_with_the_columns_named() {
    let shop = csv_shop(ROWS, "", "");
    run(&shop).expect(0);
    let before = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    for (steps, expected) in [
        (
            "{ drop: [qty, price] }",
            "columns that the rows lack: `qty`, `price`",
        ),
        (
            "{ derive: { twice: \"qty * 2\", thrice: \"qty * 3\" } }",
            "columns that the Delta table lacks: `twice`, `thrice`",
        ),
        (
            "{ cast: { columns: { qty: float64 } } }",
            "the column `qty` is long in the Delta table, and double in the rows",
        ),
    ] {
        shop.write(
            "spec.yaml",
            &before.replace("do: []", &format!("do: [{steps}]")),
        );
        let said = run(&shop).expect(65).stderr;
        let said: String = said.replace("\n", " ");
        assert!(said.contains(expected), "{said}");
        assert_eq!(commits(&shop.path("table")).len(), 1);
    }
    let with = before.replace("do: []", "do: [{ derive: { twice: \"qty * 2\" } }]");
    shop.write(
        "spec.yaml",
        &with.replace(
            "path: table",
            "path: table, mode: append, added_columns: add",
        ),
    );
    run(&shop).expect(0);
    let rows = table_rows(&shop, "table");
    assert_eq!((rows.num_rows(), rows["twice"].null_count()), (6, 3));
    // The table keeps its columns: a run without the new one is another one.
    shop.write("spec.yaml", &before);
    let said = run(&shop).expect(65).stderr;
    assert!(said.contains("`twice`"), "{said}");
}

#[test]
fn intervals_replace_their_own_rows() {
    for partitioned in [false, true] {
        let nights = NightlyFixture::new(false);
        (0..40).for_each(|day| nights.show(day));
        let spec = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
        let by = if partitioned {
            ", partition_by: [date]"
        } else {
            ""
        };
        let table = spec.replace(
            "parquet: { path: \"${out}\" }",
            &format!("delta: {{ path: table{by} }}"),
        );
        assert_ne!(spec, table);
        nights.shop.write("table.yaml", &table);
        let run = |days: std::ops::Range<usize>, code: i32| {
            let from = intervals::day(&nights, days.start);
            let to = intervals::day(&nights, days.end);
            let args = [
                "run",
                "table.yaml",
                "--json",
                "--signal-nothing-new",
                "--interval",
                &from,
                &to,
            ];
            nights.shop.forebay(&args).expect(code)
        };
        let commits = || commits(&nights.shop.path("table"));
        run(24..31, 0);
        run(17..24, 0);
        assert_eq!(commits().len(), 2);
        assert!(actions(&commits()[1], "remove").is_empty());
        let both = [
            intervals::expected(&nights, 24, 17..24),
            intervals::expected(&nights, 31, 24..31),
        ];
        let both = sorted(&concat_batches(&both[0].schema(), &both).unwrap());
        assert!(table_rows(&nights.shop, "table") == both, "{partitioned}");
        run(17..24, 99);
        assert_eq!(commits().len(), 2);
        // Data of a day changes: the interval is written again, and replaces itself.
        nights.restate(20);
        run(17..24, 0);
        assert_eq!(commits().len(), 3);
        assert!(!actions(&commits()[2], "remove").is_empty());
        assert_eq!(
            table_rows(&nights.shop, "table").num_rows(),
            both.num_rows() - 1
        );
        // Runs over everything and over intervals do not mix.
        nights.shop.forebay(&["run", "table.yaml"]).expect(78);
    }
}

#[test]
fn a_table_that_another_program_wrote_is_kept_whole() {
    let shop = csv_shop(ROWS, ", mode: append", "");
    run(&shop).expect(0);
    let log = shop.path("table/_delta_log");
    let commit = |version: usize, actions: &[Value]| {
        let text: String = actions.iter().map(|action| format!("{action}\n")).collect();
        std::fs::write(log.join(format!("{version:020}.json")), text).unwrap();
    };
    for (settings, features, expected) in [
        (json!({ "delta.appendOnly": "true" }), json!([]), None),
        (
            json!({ "delta.constraints.positive": "qty > 0" }),
            json!([]),
            Some("the constraint `positive`"),
        ),
        (
            json!({}),
            json!(["rowTracking", "domainMetadata"]),
            Some("the writer feature `rowTracking`"),
        ),
    ] {
        let version = commits(&shop.path("table")).len();
        let mut metadata = actions(&commits(&shop.path("table"))[0], "metaData")[0].clone();
        metadata["configuration"] = settings;
        let protocol = json!({ "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": features });
        commit(
            version,
            &[
                json!({ "metaData": metadata }),
                json!({ "protocol": protocol }),
            ],
        );
        shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,{version},1.5\n"));
        match expected {
            None => {
                run(&shop).expect(0);
                let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
                shop.write(
                    "overwrite.yaml",
                    &spec.replace("mode: append", "mode: overwrite"),
                );
                let said = shop.forebay(&["run", "overwrite.yaml"]).expect(78).stderr;
                assert!(said.contains("only be added"), "{said}");
            }
            Some(expected) => {
                let said = run(&shop).expect(78).stderr;
                assert!(said.contains(expected), "{said}");
            }
        }
    }
}

#[test]
fn a_table_on_a_bucket_is_committed_whole() {
    let shop = csv_shop(ROWS, ", partition_by: [shop]", "");
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &spec.replace("path: table", "path: s3://lake/table"),
    );
    server
        .forebay(&shop, &["run", "spec.yaml", "--json"])
        .expect(0);
    server
        .forebay(&shop, &["run", "spec.yaml", "--json"])
        .expect(0);
    let table = shop.path("buckets/lake/table");
    assert_eq!(commits(&table).len(), 1);
    shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,4,1.5\n"));
    server
        .forebay(&shop, &["run", "spec.yaml", "--json"])
        .expect(0);
    assert_eq!(commits(&table).len(), 2);
    for (path, file) in live(&table) {
        let path = percent_encoding::percent_decode_str(&path)
            .decode_utf8_lossy()
            .into_owned();
        assert_eq!(
            std::fs::metadata(table.join(&path)).unwrap().len(),
            file["size"].as_u64().unwrap(),
            "{path}"
        );
    }
    assert_eq!(table_rows(&shop, "buckets/lake/table").num_rows(), 4);
}

#[test]
fn a_version_that_another_program_takes_is_kept() {
    for (mode, expected) in [("append", 0), ("overwrite", 75)] {
        let shop = csv_shop(ROWS, &format!(", mode: {mode}"), "");
        std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
        let server = S3Server::start(&shop.path("buckets"));
        let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        shop.write(
            "spec.yaml",
            &spec.replace("path: table", "path: s3://lake/table"),
        );
        server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
        let log = shop.path("buckets/lake/table/_delta_log");
        let taken = log.join(format!("{:020}.json", 1));
        // Another program commits the file once more, just before this run does.
        let first = std::fs::read_to_string(log.join(format!("{:020}.json", 0))).unwrap();
        let add = first
            .lines()
            .find(|line| line.starts_with("{\"add\""))
            .unwrap();
        let mut other: Value = serde_json::from_str(add).unwrap();
        let path = other["add"]["path"].as_str().unwrap().to_owned();
        let folder = shop.path("buckets/lake/table");
        std::fs::copy(folder.join(&path), folder.join("other.parquet")).unwrap();
        other["add"]["path"] = json!("other.parquet");
        let text = format!("{other}\n");
        let written = taken.clone();
        server.inject_failures(move |asked| {
            let is_commit =
                asked.method == "PUT" && asked.target.contains(&format!("{:020}.json", 1));
            let written = written.clone();
            let text = text.clone();
            (is_commit && asked.nth == 0).then(|| {
                crate::support::request_failures::RequestFailure::After(Box::new(move || {
                    std::fs::write(written, text).unwrap()
                }))
            })
        });
        shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,4,1.5\n"));
        let ran = server
            .forebay(&shop, &["run", "spec.yaml"])
            .expect(expected);
        if expected != 0 {
            assert!(
                ran.stderr.contains("another program changed the rows"),
                "{}",
                ran.stderr
            );
            server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
        }
        let rows = table_rows(&shop, "buckets/lake/table").num_rows();
        assert_eq!(rows, if expected == 0 { 3 + 3 + 4 } else { 4 }, "{mode}");
    }
}

#[test]
fn values_have_the_types_of_tables() {
    let steps = "{ derive: { at: \"arrow_cast(day, 'Timestamp(Nanosecond, None)')\" } }, { cast: { columns: { qty: uint16 } } }";
    let shop = csv_shop(ROWS, "", steps);
    run(&shop).expect(0);
    let first = &commits(&shop.path("table"))[0];
    let schema = actions(first, "metaData")[0]["schemaString"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        schema.contains("timestamp_ntz") && schema.contains("\"integer\""),
        "{schema}"
    );
    assert_eq!(
        actions(first, "protocol")[0]["readerFeatures"],
        json!(["timestampNtz"])
    );
    assert_eq!(
        statistics(&actions(first, "add")[0])["maxValues"]["at"],
        "2024-03-01T00:00:00.000000"
    );
    assert_eq!(table_rows(&shop, "table").num_rows(), 3);
    let shop = csv_shop(ROWS, "", "{ cast: { columns: { qty: uint64 } } }");
    let said = run(&shop).expect(78).stderr;
    assert!(
        said.contains("a Delta table has no type for `qty`"),
        "{said}"
    );
    assert!(!shop.path("table").exists());
}

#[test]
fn small_files_are_put_together() {
    let shop = csv_shop(
        ROWS,
        ", mode: append, partition_by: [day], compact_below_bytes: 1000000",
        "",
    );
    for more in 0..3 {
        shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,{more},1.5\n"));
        run(&shop).expect(0);
    }
    let table = shop.path("table");
    assert_eq!(live(&table).len(), 3, "one file for each day");
    let compacted = commits(&table).pop().unwrap();
    assert_eq!(
        (
            actions(&compacted, "remove").len(),
            actions(&compacted, "add").len()
        ),
        (6, 3)
    );
    assert!(
        ["remove", "add"]
            .iter()
            .flat_map(|kind| actions(&compacted, kind))
            .all(|file| file["dataChange"] == false)
    );
    let rows: u64 = live(&table)
        .values()
        .map(|file| statistics(file)["numRecords"].as_u64().unwrap())
        .sum();
    assert_eq!((rows, table_rows(&shop, "table").num_rows()), (12, 12));
    // The run is known, though its files are others by now.
    run(&shop).expect(0);
    assert_eq!(commits(&table).len(), 5);
}

#[test]
fn files_that_no_version_needs_are_collected() {
    let shop = csv_shop(ROWS, "", "");
    let killed = shop
        .command(&["run", "spec.yaml"])
        .env("FOREBAY_KILL_ON", "put table/_delta_log")
        .output()
        .unwrap();
    assert!(!killed.status.success());
    let data = || std::fs::read_dir(shop.path("table/data")).unwrap().count();
    assert_eq!((shop.path("table/_delta_log").exists(), data()), (false, 1));
    let collect = || {
        shop.forebay(&["cache", "gc", "--older-than", "0s"])
            .expect(0)
    };
    collect();
    assert_eq!(data(), 0);
    run(&shop).expect(0);
    shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,4,1.5\n"));
    run(&shop).expect(0);
    collect();
    // Readers of the first version need its file for a week.
    assert_eq!(data(), 2);
    let log = shop
        .path("table/_delta_log")
        .join(format!("{:020}.json", 1));
    let text = std::fs::read_to_string(&log).unwrap();
    let removed: Value = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|action| action.get("remove").is_some())
        .unwrap();
    let time = removed["remove"]["deletionTimestamp"].to_string();
    std::fs::write(
        &log,
        text.replace(
            &format!("\"deletionTimestamp\":{time}"),
            "\"deletionTimestamp\":1000",
        ),
    )
    .unwrap();
    collect();
    assert_eq!(data(), 1);
    assert_eq!(table_rows(&shop, "table").num_rows(), 4);
}

#[test]
fn exported_files_are_those_of_one_result() {
    let shop = csv_shop(ROWS, ", partition_by: [day]", "");
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &format!("{spec}  plain: {{ from: shaped, parquet: {{ path: s3://lake/plain }} }}\n"),
    );
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
    shop.write("rows.csv", &format!("{ROWS}2024-03-02,d,4,1.5\n"));
    let said = server
        .forebay(&shop, &["run", "spec.yaml"])
        .expect(0)
        .stdout;
    assert!(
        said.contains("`s3://lake/plain/_manifest.json` names"),
        "{said}"
    );
    assert!(said.contains("a Delta table: read it as one"), "{said}");
    let told = server
        .forebay(&shop, &["export", "s3://lake/plain", "copy", "--json"])
        .expect(0)
        .summary();
    assert_eq!((&told["rows"], &told["files"]), (&json!(4), &json!(1)));
    assert_eq!(shop.rows("copy").num_rows(), 4);
    let taken = server
        .forebay(&shop, &["export", "s3://lake/plain", "copy"])
        .expect(78)
        .stderr;
    assert!(taken.contains("FB0114"), "{taken}");
    server
        .forebay(&shop, &["export", "table", "s3://lake/copy"])
        .expect(0);
    let copied = shop.path("buckets/lake/copy");
    assert!(copied.join("_SUCCESS").is_file());
    let days: Vec<_> = std::fs::read_dir(&copied)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(days.len(), 3);
    assert_eq!(
        crate::support::read(&copied.join("day=2024-03-02")).num_rows(),
        1
    );
    let said = shop
        .forebay(&["export", "nowhere", "copy2"])
        .expect(65)
        .stderr;
    assert!(said.contains("there is no output here"), "{said}");
    assert!(!shop.path("copy2").exists());
}
