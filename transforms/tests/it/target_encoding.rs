//! Labels of categories: values of the peers, and the law that no row sees its own label.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::harness::*;
use arrow::array::*;
use arrow::datatypes::{Float64Type, Int64Type};
use forebay_model::codes;
use serde_json::{Value, json};

const CATEGORIES: [&str; 10] = ["a", "a", "b", "b", "b", "c", "c", "c", "c", "d"];
const LABELS: [i64; 10] = [1, 0, 1, 1, 0, 0, 0, 1, 0, 1];

/// Rows to learn from at time 0, and rows without a label at time 1.
fn later_rows() -> NamedColumns {
    let asked = ["a", "b", "c", "d", "unseen"];
    let categories = CATEGORIES.iter().chain(&asked);
    let labels = LABELS.iter().map(|label| Some(*label));
    let times = CATEGORIES.map(|_| 0).into_iter().chain([1; 5]);
    vec![
        col("c", StringArray::from_iter_values(categories)),
        col("y", Int64Array::from_iter(labels.chain([None; 5]))),
        col("t", Int64Array::from_iter_values(times)),
    ]
}

fn encodings(values: &[f64]) -> Float64Array {
    let earlier = [None; 10].into_iter();
    Float64Array::from_iter(earlier.chain(values.iter().map(|value| Some(*value))))
}

#[test]
fn later_rows_see_what_scikit_learn_learns() {
    // TargetEncoder(smooth).fit(categories, labels).transform(asked) of scikit-learn 1.9.1.
    let automatic = [0.5, 0.6285714285714286, 0.2894736842105263, 1.0, 0.5];
    // The same, and MEstimateEncoder(m=2) of category_encoders 2.11.2.
    let of_two = [0.5, 0.6, 0.3333333333333333, 0.6666666666666666, 0.5];
    for (smoothing, values) in [(json!("auto"), automatic), (json!(2), of_two)] {
        let step = json!({"target_encoding": {
            "columns": ["c"], "label": "y", "cross_fit": "time", "time": "t", "smoothing": smoothing, "suffix": "_e",
        }});
        let mut expected = later_rows();
        expected.push(col("c_e", encodings(&values)));
        check(step, later_rows(), expected);
    }
    // Labels as booleans.
    let mut rows = later_rows();
    let labels = rows[1].1.as_primitive::<Int64Type>();
    let booleans = BooleanArray::from_iter(labels.iter().map(|label| label.map(|y| y == 1)));
    rows[1] = col("y", booleans);
    let mut expected = rows.clone();
    expected[0] = col("c", encodings(&of_two));
    let step = json!({"target_encoding": {
        "columns": ["c"], "label": "y", "cross_fit": "time", "time": "t", "smoothing": 2,
    }});
    check(step, rows, expected);
}

#[test]
fn weights_of_evidence_as_category_encoders() {
    let mut rows = later_rows();
    let labels = rows[1].1.as_primitive::<Int64Type>();
    let booleans = BooleanArray::from_iter(labels.iter().map(|label| label.map(|y| y == 1)));
    rows[1] = col("y", booleans);
    // Of 5 true and 5 false labels, a has 1 and 1, b 2 and 1, c 1 and 3, d 1 and 0; the classes have `smoothing` more.
    // WOEEncoder(regularization=1) has 0 for d, whose label is the only one.
    let of_one = [0.0, 1.5_f64.ln(), 0.5_f64.ln(), 2.0_f64.ln(), 0.0];
    let of_two = [0.0, (4.0 / 3.0_f64).ln(), 0.6_f64.ln(), 1.5_f64.ln(), 0.0];
    for (smoothing, values) in [
        (json!("auto"), of_one),
        (json!(1), of_one),
        (json!(2), of_two),
    ] {
        let step = json!({"target_encoding": {
            "columns": ["c"], "label": "y", "compute": "woe", "cross_fit": "time", "time": "t", "smoothing": smoothing,
            "suffix": "_e",
        }});
        let mut expected = rows.clone();
        expected.push(col("c_e", encodings(&values)));
        check(step, rows.clone(), expected);
    }
    let woe = |smoothing: Value| {
        json!({"target_encoding": {
            "columns": ["c"], "label": "y", "compute": "woe", "cross_fit": "time", "time": "t", "smoothing": smoothing,
        }})
    };
    check_fault(woe(json!(0)), rows, codes::BAD_VALUE);
    check_fault(woe(json!(1)), later_rows(), codes::COLUMN_TYPE);
}

#[test]
fn a_gap_hides_the_labels_within() {
    let table = |encoded: Option<Vec<Option<f64>>>| {
        let mut columns = vec![
            col("c", StringArray::from(vec!["a", "a", "b", "a"])),
            col("y", Float64Array::from(vec![1.0, 3.0, 5.0, 100.0])),
            col(
                "t",
                Int64Array::from(vec![Some(0), Some(1), Some(2), Some(3)]),
            ),
        ];
        columns.extend(encoded.map(|encoded| col("c_e", Float64Array::from(encoded))));
        columns
    };
    let step = |gap: Value| {
        json!({"target_encoding": {
            "columns": ["c"], "label": "y", "cross_fit": "time", "time": "t", "gap": gap, "smoothing": 0, "suffix": "_e",
        }})
    };
    let earlier = vec![None, Some(1.0), Some(2.0), Some(2.0)];
    check(step(Value::Null), table(None), table(Some(earlier)));
    let before_gap = vec![None, None, Some(1.0), Some(2.0)];
    check(step(json!("2t")), table(None), table(Some(before_gap)));
}

/// Rows with categories, labels, users and one more column.
fn clicks(labels: &[Option<f64>]) -> RecordBatch {
    let rows = labels.len() as i64;
    let categories = (0..rows).map(|row| (row % 11 != 4).then(|| format!("c{}", row * row % 5)));
    let columns: [(&str, ArrayRef); 4] = [
        ("c", Arc::new(StringArray::from_iter(categories))),
        ("y", Arc::new(Float64Array::from(labels.to_vec()))),
        (
            "user",
            Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 13))),
        ),
        (
            "one",
            Arc::new(Int64Array::from_iter_values((0..rows).map(|_| 1))),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn column_after(step: Value, rows: &RecordBatch, column: &str) -> ArrayRef {
    let sources = BTreeMap::from([("this", rows.clone())]);
    let result = run(&[("out", "this", vec![step])], &sources, 7).unwrap();
    result.column_by_name(column).unwrap().clone()
}

fn encode_by_folds() -> Value {
    json!({"target_encoding": {
        "columns": ["c"], "label": "y", "folds": 3, "fold_by": ["user", "one"], "smoothing": 2, "suffix": "_e",
    }})
}

fn labels() -> Vec<Option<f64>> {
    (0..60_i64)
        .map(|row| (row % 7 != 3).then_some((row * row % 17) as f64))
        .collect()
}

#[test]
fn rows_see_the_labels_of_other_folds() {
    let labels = labels();
    let rows = clicks(&labels);
    // The fold is the bucket of a cross of the same columns.
    let cross = json!({"cross": {"columns": ["user", "one"], "buckets": 3, "name": "fold"}});
    let folds = column_after(cross, &rows, "fold");
    let folds = folds.as_primitive::<Int64Type>();
    let categories = rows.column(0).as_string::<i32>();
    let encoded = column_after(encode_by_folds(), &rows, "c_e");
    let encoded = encoded.as_primitive::<Float64Type>();
    for row in 0..labels.len() {
        let others = (0..labels.len()).filter(|other| folds.value(*other) != folds.value(row));
        let others: Vec<usize> = others.filter(|other| labels[*other].is_some()).collect();
        let sum: f64 = others.iter().filter_map(|other| labels[*other]).sum();
        let mean = sum / others.len() as f64;
        let is_alike = |other: &&usize| {
            categories.is_null(**other) == categories.is_null(row)
                && (categories.is_null(row) || categories.value(**other) == categories.value(row))
        };
        let alike: Vec<&usize> = others.iter().filter(is_alike).collect();
        let of_category: f64 = alike.iter().filter_map(|other| labels[**other]).sum();
        let expected = (of_category + 2.0 * mean) / (alike.len() as f64 + 2.0);
        let error = (encoded.value(row) - expected).abs();
        assert!(
            error < 1e-12,
            "row {row}: {} is not {expected}",
            encoded.value(row)
        );
    }
    let distinct: std::collections::BTreeSet<i64> = folds.values().iter().copied().collect();
    assert_eq!(distinct.len(), 3, "the rows are in all folds");
}

#[test]
fn a_row_never_sees_its_own_label() {
    let labels = labels();
    let before = column_after(encode_by_folds(), &clicks(&labels), "c_e");
    let by_time = json!({"target_encoding": {
        "columns": ["c"], "label": "y", "cross_fit": "time", "time": "user", "suffix": "_e",
    }});
    let earlier = column_after(by_time.clone(), &clicks(&labels), "c_e");
    for row in 0..labels.len() {
        for other_label in [Some(1e6), None] {
            let mut changed = labels.clone();
            changed[row] = other_label;
            let rows = clicks(&changed);
            for (step, encodings) in [(encode_by_folds(), &before), (by_time.clone(), &earlier)] {
                let after = column_after(step, &rows, "c_e");
                let after = after.as_primitive::<Float64Type>().iter().nth(row);
                let encoding = encodings.as_primitive::<Float64Type>().iter().nth(row);
                assert_eq!(after, encoding, "row {row}");
            }
        }
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let rows = || {
        vec![
            col("c", StringArray::from(vec!["a"])),
            col("y", Int64Array::from(vec![1])),
            col("s", StringArray::from(vec!["b"])),
        ]
    };
    let cases = [
        (json!({"fold_by": ["c"]}), codes::BAD_VALUE, "alone"),
        (json!({"fold_by": ["y"]}), codes::BAD_VALUE, "the label"),
        (
            json!({"fold_by": ["s"], "folds": 1}),
            codes::BAD_VALUE,
            "between 2",
        ),
        (
            json!({"fold_by": ["s"], "gap": "1d"}),
            codes::BAD_VALUE,
            "cross_fit: time",
        ),
        (
            json!({"fold_by": ["s"], "smoothing": -1}),
            codes::BAD_VALUE,
            "smoothing",
        ),
        (
            json!({"cross_fit": "time", "folds": 3}),
            codes::BAD_VALUE,
            "cross_fit: folds",
        ),
        (
            json!({"fold_by": ["s"], "label": "s"}),
            codes::COLUMN_TYPE,
            "not a number or boolean",
        ),
        (json!({}), codes::MISSING_FIELD, "divide rows into folds"),
    ];
    for (settings, code, text) in cases {
        let mut step = json!({"columns": ["c"], "label": "y"});
        for (name, value) in settings.as_object().unwrap() {
            step[name] = value.clone();
        }
        let fault = check_fault(json!({"target_encoding": step}), rows(), code);
        assert!(fault.message().contains(text), "{fault}");
    }
}
