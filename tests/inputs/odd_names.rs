//! Inputs and outputs with odd names, bounds and permissions: rows are never lost, and faults name the file.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, DurationSecondArray, FixedSizeBinaryArray, Int64Array,
    ListArray, RecordBatch, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use parquet::arrow::ArrowWriter;
use serde_json::Value;

use crate::support::s3_server::S3Server;
use crate::support::{ProgramOutput, TestDirectory};

/// Values that no path can hold as they are.
const ODD: [&str; 6] = ["a:b", "a/b", "50%", "a%3Ab", "what?*", "plain"];

fn write(file: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(file).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Copies rows from a path to an output, in folders by some columns.
fn copies(from: &str, to: &str, partition_by: &str) -> String {
    format!(
        "version: 1\nname: copies\nsources:\n  data:\n    parquet: {{ path: \"{from}\" }}\nsteps:\n  rows:\n    \
         from: data\n    do: []\nsinks:\n  table: {{ from: rows, parquet: {{ path: \"{to}\", \
         partition_by: [{partition_by}] }} }}\n"
    )
}

/// Values of two columns of all rows, sorted.
fn pairs(rows: &RecordBatch) -> Vec<(String, i64)> {
    let texts = cast(&rows["k:k"], &DataType::Utf8).unwrap();
    let numbers = rows["n"].as_primitive::<Int64Type>();
    let mut pairs: Vec<(String, i64)> = texts
        .as_string::<i32>()
        .iter()
        .flatten()
        .map(str::to_owned)
        .zip(numbers.values().iter().copied())
        .collect();
    pairs.sort();
    pairs
}

fn odd_rows(file: &Path) -> Vec<(String, i64)> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(0..6))),
        ("k:k", Arc::new(StringArray::from_iter_values(ODD))),
    ];
    write(file, columns);
    let mut expected: Vec<(String, i64)> =
        ODD.iter().map(|odd| (*odd).to_owned()).zip(0..6).collect();
    expected.sort();
    expected
}

#[test]
fn odd_values_name_folders_once() {
    let shop = TestDirectory::new();
    let expected = odd_rows(&shop.path("data/a.parquet"));
    let run = |name: &str, spec: String| {
        shop.write(name, &spec);
        shop.forebay(&["run", name, "--json"]).expect(0).summary()
    };
    run("there.yaml", copies("data", "out", "\"k:k\""));
    assert!(shop.path("out/k%3Ak=a%3Ab").is_dir());
    assert!(shop.path("out/k%3Ak=a%253Ab").is_dir());
    let verified = shop
        .forebay(&["cache", "verify", "--json"])
        .expect(0)
        .summary();
    assert_eq!(
        verified["broken"].as_array().map(Vec::len),
        Some(0),
        "{verified}"
    );
    run("back.yaml", copies("out", "back", ""));
    assert_eq!(pairs(&shop.rows("back")), expected);
    // Nothing is missing, so that nothing is done again.
    assert_eq!(
        run("there.yaml", copies("data", "out", "\"k:k\""))["nothing_new"],
        true
    );
}

/// Bytes would come back as the digits of their names, or as a number.
#[test]
fn values_without_a_text_name_no_folders() {
    let shop = TestDirectory::new();
    let numbers = Int64Array::from_iter_values(0..2);
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)]), None]);
    let bytes = FixedSizeBinaryArray::try_from_iter(["ab", "cd"].iter()).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(numbers)),
        ("list", Arc::new(list)),
        ("bytes", Arc::new(bytes)),
        (
            "binary",
            Arc::new(BinaryArray::from_iter_values(["ab", "c"])),
        ),
        ("length", Arc::new(DurationSecondArray::from(vec![1, 2]))),
    ];
    write(&shop.path("data/a.parquet"), columns);
    for column in ["list", "bytes", "binary", "length"] {
        shop.write("spec.yaml", &copies("data", "out", column));
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "spec.yaml"]).expect(78);
            let expected = format!("folders cannot be named after `{column}`");
            assert!(call.stderr.contains(&expected), "{}", call.stderr);
        }
    }
    shop.write("spec.yaml", &copies("data", "out", "n"));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
}

#[test]
fn odd_values_name_folders_in_a_bucket_as_on_a_disk() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let expected = odd_rows(&shop.path("buckets/lake/data/a.parquet"));
    let server = S3Server::start(&shop.path("buckets"));
    let run = |name: &str, spec: String| -> Value {
        shop.write(name, &spec);
        let call: ProgramOutput = server
            .command(&shop, &["run", name, "--json", "--state=s3://lake/state"])
            .output()
            .unwrap()
            .into();
        call.expect(0).summary()
    };
    run(
        "there.yaml",
        copies("s3://lake/data", "s3://lake/out", "\"k:k\""),
    );
    let mut folders = Vec::new();
    for shard in std::fs::read_dir(shop.path("buckets/lake/out/_data")).unwrap() {
        folders.extend(
            std::fs::read_dir(shard.unwrap().path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap()),
        );
    }
    folders.sort();
    let names = ["50%25", "a%253Ab", "a%2Fb", "a%3Ab", "plain", "what%3F%2A"];
    assert_eq!(folders, names.map(|name| format!("k%3Ak={name}")));
    let verified = server
        .forebay(
            &shop,
            &["cache", "verify", "--json", "--state=s3://lake/state"],
        )
        .expect(0)
        .summary();
    assert_eq!(
        verified["broken"].as_array().map(Vec::len),
        Some(0),
        "{verified}"
    );
    run(
        "back.yaml",
        copies("s3://lake/out/_data/**/*.parquet", "back", ""),
    );
    assert_eq!(pairs(&shop.rows("back")), expected);
    assert_eq!(
        run(
            "there.yaml",
            copies("s3://lake/data", "s3://lake/out", "\"k:k\"")
        )["nothing_new"],
        true
    );
}

#[test]
fn a_file_of_the_same_size_and_time_is_read_anew() {
    let shop = TestDirectory::new();
    let file = shop.path("data/a.parquet");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let put = |from: i64| {
        write(
            &file,
            vec![(
                "n",
                Arc::new(Int64Array::from_iter_values(from..from + 6)) as ArrayRef,
            )],
        );
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        std::fs::metadata(&file).unwrap().len()
    };
    shop.write("spec.yaml", &copies("data", "out", ""));
    let run = || {
        shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
        let rows = shop.rows("out");
        rows["n"].as_primitive::<Int64Type>().values().to_vec()
    };
    let before = put(0);
    assert_eq!(run(), (0..6).collect::<Vec<_>>());
    assert_eq!(put(100), before);
    assert_eq!(run(), (100..106).collect::<Vec<_>>());
}

#[test]
fn objects_that_stay_what_they_are_are_not_looked_at_again() {
    let shop = TestDirectory::new();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let put = |name: &str| {
        let file = shop.path("buckets/lake/data").join(name);
        write(
            &file,
            vec![(
                "n",
                Arc::new(Int64Array::from_iter_values(0..6)) as ArrayRef,
            )],
        );
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    };
    put("a.parquet");
    let server = S3Server::start(&shop.path("buckets"));
    shop.write("spec.yaml", &copies("s3://lake/data", "out", ""));
    // Which objects a run reads.
    let read = || {
        let reads: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let seen = reads.clone();
        server.inject_failures(move |asked| {
            let object = asked.target.split('?').next().unwrap_or_default();
            if asked.method == "GET" && object.ends_with(".parquet") {
                seen.lock()
                    .unwrap()
                    .insert(object.rsplit('/').next().unwrap_or_default().to_owned());
            }
            None
        });
        server.forebay(&shop, &["explain", "spec.yaml"]).expect(0);
        server.stop_failures();
        let reads = reads.lock().unwrap().clone();
        reads.into_iter().collect::<Vec<String>>()
    };
    server.forebay(&shop, &["run", "spec.yaml"]).expect(0);
    assert_eq!(read(), Vec::<String>::new());
    put("b.parquet");
    assert_eq!(read(), ["b.parquet"]);
}

#[test]
fn an_output_in_a_folder_with_wildcards_in_its_name_is_refused_where_it_is_read() {
    let shop = TestDirectory::new();
    let column = Arc::new(Int64Array::from_iter_values(0..6)) as ArrayRef;
    write(&shop.path("what?/a.parquet"), vec![("n", column)]);
    shop.write("inside.yaml", &copies("what[?]", "what?/below/out", ""));
    let call = shop.forebay(&["run", "inside.yaml"]).expect(78);
    assert!(call.stderr.contains("FB0114"), "{}", call.stderr);
    shop.write("beside.yaml", &copies("what[?]", "what!/out", ""));
    shop.forebay(&["run", "beside.yaml"]).expect(0);
    assert_eq!(shop.rows("what!/out").num_rows(), 6);
}

#[test]
fn a_folder_that_may_not_be_searched_is_named() {
    let shop = TestDirectory::new();
    let columns = || {
        vec![(
            "n",
            Arc::new(Int64Array::from_iter_values(0..6)) as ArrayRef,
        )]
    };
    write(&shop.path("data/a.parquet"), columns());
    write(&shop.path("data/day=2/b.parquet"), columns());
    shop.write("spec.yaml", &copies("data", "out", ""));
    let open = |name: &str, mode: u32| {
        std::fs::set_permissions(shop.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open("", 0o777);
    // Its names can be listed, and no more.
    open("data/day=2", 0o644);
    // Permissions hold for everybody but the superuser.
    let mut command = shop.command(&["explain", "spec.yaml"]);
    command.env("HOME", shop.path(""));
    if is_superuser(&shop) {
        command.uid(65_534).gid(65_534);
    }
    let call: ProgramOutput = command.output().unwrap().into();
    open("data/day=2", 0o755);
    let call = call.expect(78);
    assert!(
        call.stderr.contains("FB0403") && call.stderr.contains("data/day=2"),
        "{}",
        call.stderr
    );
}

/// Whether this process may do whatever permissions say.
fn is_superuser(shop: &TestDirectory) -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(shop.path("")).unwrap()) == 0
}
