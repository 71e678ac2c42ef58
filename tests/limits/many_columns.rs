//! Tables of thousands of columns: the work of a command grows with their number, not with its square.

use std::fmt::Write as _;
use std::process::Stdio;

use crate::support::TestDirectory;

const FEW: usize = 4_000;

/// Columns of the wide table: four times as many, for which quadratic work is sixteen times as much.
const MANY: usize = 4 * FEW;

/// Greatest ratio of the CPU time of a wide table to that of one with a quarter of its columns.
const TIMES_MAX: u64 = 9;

/// CPU time in clock ticks that a process took in all; `None` until it has ended.
fn ticks_at_end(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    (fields[0] == "Z")
        .then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// The CPU time of a command, which ends with `code`.
fn cpu_ticks(shop: &TestDirectory, arguments: &[&str], code: i32) -> u64 {
    let mut child = shop
        .command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ticks = loop {
        match ticks_at_end(child.id()) {
            Some(ticks) => break ticks,
            None => std::thread::park_timeout(std::time::Duration::from_millis(5)),
        }
    };
    assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments:?}");
    ticks
}

fn csv(columns: usize) -> String {
    let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
    let mut text = names.join(",");
    for row in 0..3 {
        let values: Vec<String> = (0..columns)
            .map(|column| (row * column).to_string())
            .collect();
        write!(text, "\n{}", values.join(",")).unwrap();
    }
    text + "\n"
}

/// Lines of objects, of which the last may have a text among its numbers.
fn json(columns: usize, last: &str) -> String {
    let mut text = String::new();
    for row in 0..3 {
        let mut fields: Vec<String> = (0..columns)
            .map(|column| format!("\"c{column}\":{}.5", row * column))
            .collect();
        if row == 2 {
            fields[columns / 2] = format!("\"c{}\":{last}", columns / 2);
        }
        writeln!(text, "{{{}}}", fields.join(",")).unwrap();
    }
    text
}

#[cfg(target_os = "linux")]
#[test]
fn work_grows_with_the_number_of_columns_and_not_with_its_square() {
    let numbers = |columns: usize| json(columns, "7.5");
    let unfit = |columns: usize| json(columns, "\"seven\"");
    let nested = |columns: usize| -> String {
        let lines = numbers(columns);
        let lines = lines.lines().map(|line| format!("{{\"o\":{line}}}\n"));
        lines.collect()
    };
    let same_names =
        |columns: usize| vec!["x"; columns].join(",") + "\n" + &vec!["1"; columns].join(",") + "\n";
    type Table<'t> = &'t dyn Fn(usize) -> String;
    let cases: [(&str, Table<'_>, &str, i32); 6] = [
        ("names", &csv, "csv: { path: rows.csv }", 0),
        // An operation and a statistic of each column.
        ("standardized columns", &csv, "csv: { path: rows.csv }", 0),
        (
            "equal names",
            &same_names,
            "csv: { path: rows.csv, same_names: number }",
            0,
        ),
        ("fields", &numbers, "json: { path: rows.json }", 0),
        ("nested fields", &nested, "json: { path: rows.json }", 0),
        (
            "a value that does not fit",
            &unfit,
            "json: { path: rows.json, infer_rows: 2 }",
            65,
        ),
    ];
    for (name, table, source, code) in cases {
        let ticks = [FEW, MANY].map(|columns| {
            let shop = TestDirectory::new();
            let file = if source.starts_with("csv") {
                "rows.csv"
            } else {
                "rows.json"
            };
            shop.write(file, &table(columns));
            let is_stepped = name.starts_with("standardized");
            let steps =
                "steps: { f: { from: a, do: [ { standardize: { columns: [\"c*\"] } } ] } }\n";
            let steps = if is_stepped { steps } else { "" };
            let from = if is_stepped { "f" } else { "a" };
            shop.write(
                "spec.yaml",
                &format!(
                    "version: 1\nname: wide\nsources: {{ a: {{ {source} }} }}\n{steps}\
                     sinks: {{ t: {{ from: {from}, parquet: {{ path: out }} }} }}\n"
                ),
            );
            cpu_ticks(
                &shop,
                &["run", "spec.yaml", "--memory=4GiB", "--threads=2"],
                code,
            )
        });
        // Work that does not depend on the number of columns takes some ticks of both.
        let allowed = TIMES_MAX * ticks[0].max(10);
        assert!(ticks[1] <= allowed, "{name}: {ticks:?} ticks");
        println!("{name}: {ticks:?} ticks for {FEW} and {MANY} columns");
    }
}

/// Rows are read with what a fit has learned of each column: the history that they need is looked up for all columns.
#[cfg(target_os = "linux")]
#[test]
fn applying_grows_with_the_number_of_columns_and_not_with_its_square() {
    let ticks = [FEW, MANY].map(|columns| {
        let shop = TestDirectory::new();
        shop.write("rows.csv", &csv(columns));
        shop.write(
            "spec.yaml",
            "version: 1\nname: wide\nsources: { a: { csv: { path: rows.csv } } }\n\
             steps: { f: { from: a, do: [ { standardize: { columns: [\"c*\"] } } ] } }\n\
             sinks: { t: { from: f, parquet: { path: out } } }\n",
        );
        let run = ["run", "spec.yaml", "--memory=4GiB", "--json"];
        let summary = shop.forebay(&run).expect(0).summary();
        let artifact = summary["artifact_path"].as_str().unwrap();
        let apply = [
            "apply",
            artifact,
            "--source=rows.csv",
            "--output=applied",
            "--memory=4GiB",
            "--threads=2",
        ];
        cpu_ticks(&shop, &apply, 0)
    });
    let allowed = TIMES_MAX * ticks[0].max(10);
    assert!(ticks[1] <= allowed, "{ticks:?} ticks");
}

/// A spec of unknown fields: each is compared with the fields that there are, and not with each other.
#[cfg(target_os = "linux")]
#[test]
fn checking_grows_with_the_number_of_fields_and_not_with_its_square() {
    let ticks = [4 * FEW, 4 * MANY].map(|fields| {
        let shop = TestDirectory::new();
        let mut spec = "version: 1\nname: wide\n".to_owned();
        for field in 0..fields {
            writeln!(spec, "field_{field}: 1").unwrap();
        }
        shop.write("spec.yaml", &spec);
        let unlisted = format!("has {} more unknown fields", fields - 1000);
        let call = shop.forebay(&["check", "spec.yaml", "--json"]).expect(78);
        assert!(call.stdout.contains(&unlisted), "{unlisted}");
        cpu_ticks(&shop, &["check", "spec.yaml"], 78)
    });
    let allowed = TIMES_MAX * ticks[0].max(10);
    assert!(ticks[1] <= allowed, "{ticks:?} ticks");
}
