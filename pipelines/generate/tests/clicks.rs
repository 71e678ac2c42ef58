//! The advertiser's log.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{HashMap, HashSet};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float32Type, Int32Type};
use common::{batches, bytes, files, reader};
use forebay_generate::{ClicksOptions, clicks};
use forebay_model::codes;

fn options(rows: u64, seed: u64, out: &std::path::Path) -> ClicksOptions {
    let mut options = ClicksOptions::new(rows, seed, out);
    options.output.threads = 2;
    options
}

#[test]
fn bytes_depend_on_the_seed_and_not_on_the_threads() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, seed, threads| {
        let mut options = options(45_000, seed, &home.path().join(name));
        options.rows_per_file = 10_000;
        options.output.threads = threads;
        options.output.row_group_rows = 4_000;
        let mut seen = Vec::new();
        let summary = clicks(&options, &mut |rows| seen.push(rows)).unwrap();
        assert_eq!((summary.files, summary.rows), (5, 45_000));
        assert_eq!(seen.last(), Some(&45_000));
        assert!(seen.is_sorted());
        let bytes = bytes(&options.output.out);
        assert_eq!(
            bytes
                .iter()
                .map(|(_, bytes)| bytes.len() as u64)
                .sum::<u64>(),
            summary.bytes
        );
        bytes
    };
    let one = write("one", 1, 1);
    assert!(one == write("two", 1, 2));
    assert!(one == write("many", 1, 16));
    assert!(one[0].1 != write("other", 2, 1)[0].1);
    assert_eq!(one[4].0, "clicks-00004.parquet");
}

#[test]
fn a_row_does_not_depend_on_the_files() {
    let home = tempfile::tempdir().unwrap();
    let rows = |name: &str, rows_per_file| {
        let mut options = options(30_000, 5, &home.path().join(name));
        options.rows_per_file = rows_per_file;
        clicks(&options, &mut |_| {}).unwrap();
        let all: Vec<_> = batches(&options.output.out).collect();
        arrow::compute::concat_batches(&all[0].schema(), &all).unwrap()
    };
    assert!(rows("small", 7_001) == rows("large", 30_000));
}

#[test]
fn schema_is_plain() {
    let home = tempfile::tempdir().unwrap();
    clicks(&options(1, 1, home.path()), &mut |_| {}).unwrap();
    let reader = reader(&files(home.path())[0]);
    let columns: Vec<(&str, &DataType, bool)> = reader
        .schema()
        .fields()
        .iter()
        .map(|f| (f.name().as_str(), f.data_type(), f.is_nullable()))
        .collect();
    assert_eq!(columns.len(), 40);
    assert_eq!(columns[0], ("label", &DataType::Int32, false));
    assert_eq!(columns[1], ("f1", &DataType::Float32, true));
    assert_eq!(columns[13], ("f13", &DataType::Float32, true));
    assert_eq!(columns[14], ("c1", &DataType::Utf8, true));
    assert_eq!(columns[39], ("c26", &DataType::Utf8, true));
}

#[test]
fn shares_and_values_are_near_the_declared() {
    let home = tempfile::tempdir().unwrap();
    let rows = 150_000;
    clicks(&options(rows, 1, home.path()), &mut |_| {}).unwrap();
    let mut ones = 0;
    let mut nulls = [0; 40];
    let mut zeros = [0; 40];
    let mut tokens: Vec<HashMap<String, u32>> = vec![HashMap::new(); 26];
    for batch in batches(home.path()) {
        ones += batch
            .column(0)
            .as_primitive::<Int32Type>()
            .values()
            .iter()
            .sum::<i32>();
        for (nulls, column) in nulls.iter_mut().zip(batch.columns()) {
            *nulls += column.null_count();
        }
        for (zeros, column) in zeros.iter_mut().zip(batch.columns()).skip(1).take(13) {
            let values = column.as_primitive::<Float32Type>();
            assert!(
                values
                    .iter()
                    .flatten()
                    .all(|value| value.is_finite() && value >= 0.0)
            );
            *zeros += values
                .iter()
                .flatten()
                .filter(|value| *value == 0.0)
                .count();
        }
        for column in 14..40 {
            for token in batch.column(column).as_string::<i32>().iter().flatten() {
                assert!(
                    token.len() == 8
                        && token
                            .bytes()
                            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
                );
                *tokens[column - 14].entry(token.to_owned()).or_default() += 1;
            }
        }
    }
    let part = |count: usize| count as f64 / rows as f64;
    assert!(
        (0.22..0.28).contains(&part(ones as usize)),
        "{}",
        part(ones as usize)
    );
    for (column, declared) in [
        (1, 0.45),
        (2, 0.0),
        (3, 0.21),
        (13, 0.22),
        (14, 0.0),
        (16, 0.034),
        (35, 0.76),
        (39, 0.05),
    ] {
        assert!(
            (part(nulls[column]) - declared).abs() < 0.006,
            "column {column}: {}",
            part(nulls[column])
        );
    }
    assert!(part(zeros[2]) > 0.15);
    // The small columns show all their values, the large ones very many.
    for (column, values) in [(1, 558), (4, 305), (5, 20), (8, 3), (16, 10), (19, 4)] {
        assert_eq!(tokens[column].len(), values, "c{}", column + 1);
    }
    assert!(tokens[25].len() > 80_000, "{}", tokens[25].len());
    assert!(tokens[2].len() > 30_000, "{}", tokens[2].len());
    // The same rank has another token in another column, and frequent tokens are not the first in order.
    let all: HashSet<&String> = tokens[..2].iter().flat_map(HashMap::keys).collect();
    assert_eq!(all.len(), tokens[0].len() + tokens[1].len());
    let most = tokens[3].iter().max_by_key(|(_, count)| **count).unwrap();
    assert!(f64::from(*most.1) / rows as f64 > 0.05);
}

/// Naive Bayes over tokens and buckets of numbers, learned under one seed, ranks the rows of another one.
#[test]
fn label_can_be_learned() {
    let home = tempfile::tempdir().unwrap();
    let rows = |seed: u64| {
        let out = home.path().join(seed.to_string());
        clicks(&options(60_000, seed, &out), &mut |_| {}).unwrap();
        let mut rows: Vec<(bool, Vec<String>)> = Vec::new();
        for batch in batches(&out) {
            let labels = batch.column(0).as_primitive::<Int32Type>();
            for row in 0..batch.num_rows() {
                let tokens = (14..40).map(|column| {
                    let column = batch.column(column).as_string::<i32>();
                    if column.is_valid(row) {
                        column.value(row).to_owned()
                    } else {
                        String::new()
                    }
                });
                // Numbers by their powers of two.
                let buckets = (1..14).map(|column| {
                    let column = batch.column(column).as_primitive::<Float32Type>();
                    if column.is_valid(row) {
                        column.value(row).log2().floor().to_string()
                    } else {
                        String::new()
                    }
                });
                rows.push((labels.value(row) == 1, tokens.chain(buckets).collect()));
            }
        }
        rows
    };
    // Before anything is known of a token: forty rows with the usual share of ones.
    let prior = [30.0, 10.0];
    let mut counts: HashMap<(usize, String), [f64; 2]> = HashMap::new();
    for (label, values) in rows(1) {
        for key in values.into_iter().enumerate() {
            counts.entry(key).or_insert(prior)[usize::from(label)] += 1.0;
        }
    }
    let mut scores: Vec<(f64, bool)> = rows(2)
        .into_iter()
        .map(|(label, values)| {
            let odds = values.into_iter().enumerate().map(|key| {
                let [no, yes] = counts.get(&key).unwrap_or(&prior);
                f64::ln(yes / no)
            });
            (odds.sum(), label)
        })
        .collect();
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    let mut wins = 0.0;
    let mut ones = 0.0;
    for (_, label) in scores {
        if label {
            wins += below;
            ones += 1.0;
        } else {
            below += 1.0;
        }
    }
    let area = wins / (below * ones);
    assert!(
        (0.77..0.84).contains(&area),
        "the area under the curve is {area}"
    );
}

#[test]
fn nothing_is_replaced_unasked_and_nothing_stale_remains() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(3_000, 1, home.path());
    options.rows_per_file = 1_000;
    clicks(&options, &mut |_| {}).unwrap();
    let before = bytes(home.path());
    assert_eq!(before.len(), 3);
    let fault = clicks(&options, &mut |_| {}).unwrap_err();
    assert_eq!(fault.code(), codes::USAGE);
    assert!(before == bytes(home.path()));
    options.rows = 1_500;
    options.output.replace = true;
    clicks(&options, &mut |_| {}).unwrap();
    assert_eq!(files(home.path()).len(), 2);
    assert_eq!(
        batches(home.path())
            .map(|batch| batch.num_rows())
            .sum::<usize>(),
        1_500
    );
}

#[test]
fn faults_name_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let code = |change: &dyn Fn(&mut ClicksOptions)| {
        let mut options = options(100, 1, &home.path().join("out"));
        change(&mut options);
        clicks(&options, &mut |_| {}).unwrap_err().code()
    };
    assert_eq!(code(&|options| options.rows = 0), codes::BAD_VALUE);
    assert_eq!(code(&|options| options.rows_per_file = 0), codes::BAD_VALUE);
    assert_eq!(code(&|options| options.rows = u64::MAX), codes::BAD_VALUE);
    assert_eq!(
        code(&|options| options.output.threads = 0),
        codes::BAD_VALUE
    );
    assert_eq!(
        code(&|options| options.output.row_group_rows = 0),
        codes::BAD_VALUE
    );
    assert!(!home.path().join("out").exists());
    // A file where a directory is wanted.
    std::fs::write(home.path().join("plain"), "").unwrap();
    let fault = clicks(
        &options(100, 1, &home.path().join("plain").join("out")),
        &mut |_| {},
    )
    .unwrap_err();
    assert_eq!(fault.code(), codes::NOT_FOUND);
    // A hidden name that is taken by a directory: the file cannot be made, and none becomes visible.
    std::fs::create_dir_all(home.path().join("full").join(".clicks-00001.parquet.tmp")).unwrap();
    let mut options = options(100, 1, &home.path().join("full"));
    options.rows_per_file = 50;
    let fault = clicks(&options, &mut |_| {}).unwrap_err();
    assert_eq!(fault.code(), codes::STORAGE);
    assert!(
        fault
            .site()
            .file
            .as_ref()
            .unwrap()
            .ends_with("clicks-00001.parquet")
    );
}
