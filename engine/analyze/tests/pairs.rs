//! Findings about pairs of columns and about series beside plain computations.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::DataType;
use forebay_analyze::laws::compute_finding;
use forebay_analyze::*;
use forebay_model::{AnyAnalyzer, Finding};

/// Small enough that some thousand keys spill.
const BUDGET_SMALL: usize = 64 << 10;

fn ask(analyzer: &dyn AnyAnalyzer, columns: &[ArrayRef], budget: usize) -> Finding {
    let named = columns
        .iter()
        .enumerate()
        .map(|(i, column)| (format!("c{i}"), column.clone(), true));
    let batch = RecordBatch::try_from_iter_with_nullable(named).unwrap();
    compute_finding(analyzer, &[batch], budget).unwrap()
}

fn floats(values: &[Option<f64>]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

#[test]
fn quantiles_are_those_of_each_key() {
    let values = [4.0, 1.0, 10.0, 2.0, f64::NAN, 30.0].map(Some);
    let keys = ["a", "a", "b", "a", "b", "b"].map(str::to_owned);
    let columns = [floats(&values), texts(keys.into_iter())];
    for budget in [BUDGET_SMALL, 1 << 20] {
        let quantiles = GroupedQuantiles::new(&[DataType::Utf8], &[0.5, 0.75]).unwrap();
        let finding = ask(&quantiles, &columns, budget);
        assert_eq!(
            finding.column("key1").unwrap().as_string::<i32>().value(0),
            "a"
        );
        assert_eq!(finding.numbers("quantile1").unwrap(), [2.0, 20.0]);
        assert_eq!(finding.numbers("quantile2").unwrap(), [3.0, 25.0]);
        let nothing = ask(&quantiles, &[floats(&[]), texts([].into_iter())], budget);
        assert_eq!(nothing.rows(), 0);
        let keys = nothing.column("key1").unwrap();
        assert_eq!(*keys.data_type(), DataType::Utf8);
    }
}

#[test]
fn covariances_are_those_of_whole_rows() {
    let x = [1.0, 2.0, 4.0, 9.0, 9.0].map(Some);
    let mut y = [2.0, 0.0, 1.0, 9.0, 9.0].map(Some);
    // Rows with a missing or an infinite value do not count.
    y[3] = None;
    y[4] = Some(f64::INFINITY);
    let columns = [floats(&x), floats(&y)];
    let finding = ask(&ColumnCovariance { columns: 2 }, &columns, 1 << 20);
    let numbers = |name: &str| finding.numbers(name).unwrap();
    assert_eq!(numbers("mean"), [7.0 / 3.0, 1.0]);
    assert_eq!(numbers("covariance_0"), [14.0 / 9.0, -1.0 / 3.0]);
    assert_eq!(numbers("covariance_1"), [-1.0 / 3.0, 2.0 / 3.0]);
    assert_eq!(finding.number("count").unwrap(), Some(3.0));
    let nothing = ask(
        &ColumnCovariance { columns: 1 },
        &[floats(&[None])],
        1 << 20,
    );
    assert_eq!(nothing.number("mean").unwrap(), None);
    assert_eq!(nothing.number("covariance_0").unwrap(), None);
}

#[test]
fn correlations_leave_out_what_is_missing() {
    let correlation = |x: &[Option<f64>], y: &[Option<f64>]| {
        let finding = ask(&ColumnCorrelation, &[floats(x), floats(y)], 1 << 20);
        (
            finding.number("count").unwrap().unwrap(),
            finding.number("correlation").unwrap(),
        )
    };
    let some = |values: &[f64]| values.iter().map(|value| Some(*value)).collect::<Vec<_>>();
    assert_eq!(
        correlation(&some(&[1.0, 2.0, 3.0]), &some(&[2.0, 4.0, 6.0])),
        (3.0, Some(1.0))
    );
    assert_eq!(
        correlation(&some(&[1.0, 2.0, 3.0]), &some(&[-2.0, -4.0, -6.0])),
        (3.0, Some(-1.0))
    );
    let gaps = [Some(1.0), None, Some(f64::NAN), Some(2.0), Some(4.0)];
    assert_eq!(
        correlation(&gaps, &some(&[1.0, 9.0, 9.0, 2.0, 4.0])),
        (3.0, Some(1.0))
    );
    assert_eq!(correlation(&some(&[1.0, 1.0]), &some(&[1.0, 2.0])).1, None);
    assert_eq!(
        correlation(&some(&[f64::INFINITY, 1.0]), &some(&[1.0, 2.0])).1,
        None
    );
    assert_eq!(correlation(&[None], &some(&[1.0])), (0.0, None));
    // Large values with small differences, as sums of doubles would lose them; and squares beyond the doubles.
    let far = [1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0, 1e15 + 5.0];
    assert_eq!(
        correlation(&some(&far), &some(&[1.0, 2.0, 3.0, 5.0])).1,
        Some(1.0)
    );
}

#[test]
fn associations_are_exact_where_they_spill() {
    // 40,000 pairs: the second value follows from the first.
    let rows = 40_000;
    let first = texts((0..rows).map(|row| format!("{row}")));
    let second = texts((0..rows).map(|row| format!("{}", row % 3)));
    let analyzer = CategoryAssociation {
        types: [DataType::Utf8, DataType::Utf8],
    };
    for budget in [BUDGET_SMALL, 64 << 20] {
        let finding = ask(&analyzer, &[first.clone(), second.clone()], budget);
        let number = |name: &str| finding.number(name).unwrap().unwrap();
        assert_eq!(
            (number("first"), number("second"), number("count")),
            (f64::from(rows), 3.0, f64::from(rows))
        );
        assert!(
            (number("cramers_v") - 1.0).abs() < 1e-9,
            "{}",
            number("cramers_v")
        );
    }
    let independent = [
        texts((0..12).map(|row| format!("{}", row % 3))),
        texts((0..12).map(|row| format!("{}", row / 3))),
    ];
    let finding = ask(&analyzer, &independent, 1 << 20);
    assert!(finding.number("cramers_v").unwrap().unwrap() < 1e-7);
    let constant = [
        texts((0..4).map(|_| "x\0y".to_owned())),
        texts((0..4).map(|row| format!("{row}"))),
    ];
    assert_eq!(
        ask(&analyzer, &constant, 1 << 20)
            .number("cramers_v")
            .unwrap(),
        None
    );
}

/// Dictionaries of few values and narrow numbers are counted in a table for each batch, all others row by row.
#[test]
fn associations_do_not_depend_on_layouts() {
    let rows = 1_000;
    let first = |row: usize| (row % 7 != 3).then(|| format!("a{}", row * row % 5));
    // The dictionary has a value twice, one that is null, and one that no row has.
    let words = StringArray::from(vec![
        Some("b0"),
        Some("b1"),
        None,
        Some("b0"),
        Some("unused"),
    ]);
    let code = |row: usize| (!row.is_multiple_of(11)).then_some((row * 3 % 4) as i32);
    let second = |row: usize| {
        code(row).and_then(|code| {
            words
                .is_valid(code as usize)
                .then(|| words.value(code as usize))
        })
    };
    let codes: Int32Array = (0..rows).map(code).collect();
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(codes, Arc::new(words.clone())));
    let plain: ArrayRef = Arc::new(StringArray::from_iter((0..rows).map(second)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter((0..rows).map(first)));
    let coded = arrow::compute::cast(
        &texts,
        &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    );
    let coded = coded.unwrap();
    let analyzer = CategoryAssociation {
        types: [DataType::Utf8, DataType::Utf8],
    };
    let told = |columns: [&ArrayRef; 2]| {
        format!("{:?}", ask(&analyzer, &columns.map(Clone::clone), 1 << 20))
    };
    let expected = told([&texts, &plain]);
    assert!(expected.contains("cramers_v"), "{expected}");
    for columns in [
        [&coded, &dictionary],
        [&texts, &dictionary],
        [&coded, &plain],
    ] {
        assert_eq!(told(columns), expected);
    }
    // Batches of one row, of some, and of all of them.
    for batch_rows in [1, 10, 300] {
        let batches: Vec<RecordBatch> = (0..rows)
            .step_by(batch_rows)
            .map(|at| {
                let length = batch_rows.min(rows - at);
                let columns = [
                    ("a", coded.slice(at, length), true),
                    ("b", dictionary.slice(at, length), true),
                ];
                RecordBatch::try_from_iter_with_nullable(columns).unwrap()
            })
            .collect();
        let found = format!(
            "{:?}",
            compute_finding(&analyzer, &batches, 1 << 20).unwrap()
        );
        assert_eq!(found, expected, "{batch_rows} rows a batch");
    }

    // Booleans and small integers, with negative ones, beside the same as text.
    let flags: ArrayRef = Arc::new(BooleanArray::from_iter(
        (0..rows).map(|row| (row % 5 != 1).then_some(row % 3 == 0)),
    ));
    let small: ArrayRef = Arc::new(Int8Array::from_iter(
        (0..rows).map(|row| Some((row % 200) as i8)),
    ));
    let numbers = CategoryAssociation {
        types: [DataType::Boolean, DataType::Int8],
    };
    let found = ask(&numbers, &[flags, small], 1 << 20);
    let as_text = |value: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter((0..rows).map(value)))
    };
    let flags = as_text(&|row| (row % 5 != 1).then(|| (row % 3 == 0).to_string()));
    let small = as_text(&|row| Some(((row % 200) as i8).to_string()));
    let other = ask(&analyzer, &[flags, small], 1 << 20);
    for name in ["count", "first", "second", "cramers_v"] {
        let number = |finding: &Finding| finding.number(name).unwrap().unwrap();
        assert!((number(&found) - number(&other)).abs() < 1e-12, "{name}");
    }
}

#[test]
fn associations_of_thousands_of_values_are_those_of_a_plain_count() {
    let rows = 30_000u64;
    let mixed = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let first = |row: u64| (row % 13 != 5).then(|| mixed(row) % 3_000);
    // It follows from the first value in half of the rows.
    let second = |row: u64| {
        let of_first = first(row).map(|value| value % 1_700);
        (row % 17 != 3).then(|| {
            if row.is_multiple_of(2) {
                of_first.unwrap_or(7)
            } else {
                mixed(row * 31) % 1_700
            }
        })
    };
    let mut pairs = HashMap::new();
    let mut firsts = HashMap::new();
    let mut seconds = HashMap::new();
    for (a, b) in (0..rows).filter_map(|row| first(row).zip(second(row))) {
        *pairs.entry((a, b)).or_insert(0.0) += 1.0;
        *firsts.entry(a).or_insert(0.0) += 1.0;
        *seconds.entry(b).or_insert(0.0) += 1.0;
    }
    let sum: f64 = pairs
        .iter()
        .map(|((a, b), count)| count * count / (firsts[a] * seconds[b]))
        .sum();
    let expected = ((sum - 1.0) / (firsts.len().min(seconds.len()) - 1) as f64).sqrt();
    let text = |value: &dyn Fn(u64) -> Option<u64>, name: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter(
            (0..rows).map(|row| value(row).map(|value| format!("{name} {value}"))),
        ))
    };
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let coded = |column: &ArrayRef| arrow::compute::cast(column, &dictionary).unwrap();
    let plain_first = text(&first, "item");
    let plain_second = text(&second, "shop");
    let number = |value: &dyn Fn(u64) -> Option<u64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(
            (0..rows).map(|row| value(row).map(|value| value as i64 * 1_000_003 - 9)),
        ))
    };
    let texts = [DataType::Utf8, DataType::Utf8];
    let numbers = [DataType::Int64, DataType::Int64];
    let cases = [
        (&texts, [plain_first.clone(), plain_second.clone()]),
        (&texts, [coded(&plain_first), coded(&plain_second)]),
        (&texts, [coded(&plain_first), plain_second]),
        (&numbers, [number(&first), number(&second)]),
    ];
    for (types, columns) in cases {
        let analyzer = CategoryAssociation {
            types: types.clone(),
        };
        for (budget, batch_rows) in [
            (BUDGET_SMALL, 8_192),
            (BUDGET_SMALL, 500),
            (64 << 20, 8_192),
            (64 << 20, 30_000),
        ] {
            let slices = (0..rows as usize).step_by(batch_rows).map(|at| {
                let length = batch_rows.min(rows as usize - at);
                let named = [("a", &columns[0]), ("b", &columns[1])];
                let named = named.map(|(name, column)| (name, column.slice(at, length), true));
                RecordBatch::try_from_iter_with_nullable(named).unwrap()
            });
            let finding = compute_finding(&analyzer, &slices.collect::<Vec<_>>(), budget).unwrap();
            let number = |name: &str| finding.number(name).unwrap().unwrap();
            assert_eq!(number("count"), pairs.values().sum::<f64>());
            assert_eq!(
                (number("first"), number("second")),
                (firsts.len() as f64, seconds.len() as f64)
            );
            assert!(
                (number("cramers_v") - expected).abs() < 1e-9,
                "{} of {expected}",
                number("cramers_v")
            );
        }
    }
}

#[test]
fn the_period_is_that_of_all_series() {
    let shape = |rows: &[(i64, &str)]| {
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
        let keys = texts(rows.iter().map(|row| row.1.to_owned()));
        let finding = ask(
            &SeriesShape {
                keys: vec![DataType::Utf8],
                has_value: false,
                in_local_time: false,
            },
            &[times, keys],
            1 << 20,
        );
        let count = |name: &str| finding.number(name).unwrap().unwrap() as u64;
        (
            finding.integer("period").unwrap(),
            count("gaps"),
            count("series"),
            count("intermittent"),
        )
    };
    // Weeks that begin on different days have no period of a day.
    assert_eq!(
        shape(&[(0, "a"), (7, "a"), (21, "a"), (3, "b"), (10, "b")]),
        (Some(7), 1, 2, 1)
    );
    assert_eq!(
        shape(&[(0, "a"), (7, "a"), (3, "b"), (5, "b"), (6, "b")]),
        (Some(1), 6 + 1, 2, 2)
    );
    assert_eq!(shape(&[(5, "a"), (9, "b")]), (None, 0, 2, 0));
    assert_eq!(shape(&[]), (None, 0, 0, 0));
    assert_eq!(shape(&[(i64::MIN, "a"), (i64::MAX, "a")]).2, 1);
}

/// Days since 1970 of series, the period in months, gaps, and the months from the first to the last time.
#[test]
fn series_of_months_have_a_period_of_months() {
    let shape = |rows: &[(i32, &str)]| {
        let times: ArrayRef = Arc::new(Date32Array::from_iter_values(rows.iter().map(|row| row.0)));
        let keys = texts(rows.iter().map(|row| row.1.to_owned()));
        let analyzer = SeriesShape {
            keys: vec![DataType::Utf8],
            has_value: false,
            in_local_time: false,
        };
        let finding = ask(&analyzer, &[times, keys], 1 << 20);
        (
            finding.integer("period_months").unwrap(),
            finding.number("gaps").unwrap().unwrap() as u64,
            finding.integer("span_months").unwrap(),
        )
    };
    // The first days of January, February and April; and the 15th of January and March.
    let first_days = [(0, "a"), (31, "a"), (90, "a")];
    assert_eq!(shape(&first_days), (Some(1), 1, Some(3)));
    let two_days = [(0, "a"), (31, "a"), (14, "b"), (73, "b")];
    assert_eq!(shape(&two_days), (Some(1), 1, Some(2)));
    // Last days; and the 30th, which February does not have.
    let last_days = [(30, "a"), (58, "a"), (89, "a"), (119, "a")];
    assert_eq!(shape(&last_days), (Some(1), 0, Some(3)));
    let thirtieths = [(29, "a"), (58, "a"), (88, "a"), (119, "a")];
    assert_eq!(shape(&thirtieths), (Some(1), 0, Some(3)));
    // Quarters, and years with one missing.
    assert_eq!(
        shape(&[(0, "a"), (90, "a"), (181, "a")]),
        (Some(3), 0, Some(6))
    );
    assert_eq!(
        shape(&[(0, "a"), (365, "a"), (1_096, "a")]),
        (Some(12), 1, Some(36))
    );
    // Weeks, days, months beside days, and one time alone.
    assert_eq!(shape(&[(0, "a"), (7, "a"), (28, "a")]).0, None);
    assert_eq!(shape(&[(30, "a"), (31, "a")]).0, None);
    assert_eq!(shape(&[(88, "a"), (89, "a"), (119, "a")]).0, None);
    assert_eq!(shape(&[(0, "a"), (31, "a"), (0, "b"), (1, "b")]).0, None);
    assert_eq!(shape(&[(0, "a"), (31, "b")]).0, None);
}

#[test]
fn series_are_the_same_where_they_spill() {
    let rows = 60_000;
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows).map(|row| row / 20_000 * 2),
    ));
    let keys = texts((0..rows).map(|row| format!("series {}", row % 20_000)));
    let qty: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 2)));
    let analyzer = SeriesShape {
        keys: vec![DataType::Utf8],
        has_value: true,
        in_local_time: false,
    };
    let of = |budget| {
        ask(
            &analyzer,
            &[times.clone(), qty.clone(), keys.clone()],
            budget,
        )
    };
    let small = of(BUDGET_SMALL);
    let large = of(64 << 20);
    assert_eq!(small.table(), large.table());
    let count = |name: &str| small.number(name).unwrap().unwrap() as u64;
    assert_eq!(
        (
            count("series"),
            count("rows_min"),
            count("rows_max"),
            count("gaps")
        ),
        (20_000, 3, 3, 0)
    );
    assert_eq!(count("intermittent"), 10_000);
}
