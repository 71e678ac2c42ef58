//! Categories: ids, indicators, hashes.

#![allow(clippy::unwrap_used)] // Only tests are here.

mod harness;

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field};
use forebay_model::codes;
use harness::*;
use serde_json::json;

fn words(values: &[Option<&str>]) -> StringArray {
    StringArray::from(values.to_vec())
}

fn vectors(width: i32, rows: &[&[f32]]) -> FixedSizeListArray {
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    let values = Arc::new(Float32Array::from(rows.concat()));
    FixedSizeListArray::try_new_with_length(item, width, values, None, rows.len()).unwrap()
}

#[test]
fn vocabulary_as_tf_transform() {
    let input = || {
        vec![col(
            "s",
            words(&[Some("a"), Some("b"), Some("c"), Some("b"), None, Some("")]),
        )]
    };
    // Count descending, then reverse byte order: b, c, a, "".
    check(
        json!({"vocabulary": {"columns": ["s"]}}),
        input(),
        vec![col(
            "s",
            Int64Array::from(vec![Some(2), Some(0), Some(1), Some(0), None, Some(3)]),
        )],
    );
    check(
        json!({"vocabulary": {"columns": ["s"], "min_count": 2, "default": -7, "dtype": "int32", "suffix": "_id"}}),
        input(),
        [
            input(),
            vec![col(
                "s_id",
                Int32Array::from(vec![Some(-7), Some(0), Some(-7), Some(0), None, Some(-7)]),
            )],
        ]
        .concat(),
    );
    check(
        json!({"vocabulary": {"columns": ["s"], "top_k": 1, "oov_buckets": 1, "reserved": ["<pad>", "c"]}}),
        input(),
        vec![col(
            "s",
            Int64Array::from(vec![Some(3), Some(2), Some(1), Some(2), None, Some(3)]),
        )],
    );
    check(
        json!({"vocabulary": {"columns": ["s"]}}),
        vec![col("s", words(&[None]))],
        vec![col("s", Int64Array::from(vec![None]))],
    );
}

#[test]
fn vocabulary_of_numbers_and_lists() {
    check(
        json!({"vocabulary": {"columns": ["i"], "order": "value"}}),
        vec![col("i", Int64Array::from(vec![Some(10), Some(9), None]))],
        vec![col("i", Int64Array::from(vec![Some(0), Some(1), None]))],
    );
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("x"), Some("y"), None]);
    lists.append_null();
    lists.append_value([] as [Option<&str>; 0]);
    lists.append_value([Some("x")]);
    let mut ids = ListBuilder::new(Int64Builder::new());
    ids.append_value([Some(0), Some(1), None]);
    ids.append_null();
    ids.append_value([] as [Option<i64>; 0]);
    ids.append_value([Some(0)]);
    check(
        json!({"vocabulary": {"columns": ["l"]}}),
        vec![col("l", lists.finish())],
        vec![col("l", ids.finish())],
    );
}

#[test]
fn one_hot_as_scikit_learn() {
    let input = || {
        vec![col(
            "s",
            words(&[Some("b"), Some("a"), None, Some("b"), Some("c")]),
        )]
    };
    check(
        json!({"one_hot": {"columns": ["s"]}}),
        input(),
        vec![col(
            "s",
            vectors(
                3,
                &[
                    &[0., 1., 0.],
                    &[1., 0., 0.],
                    &[0., 0., 0.],
                    &[0., 1., 0.],
                    &[0., 0., 1.],
                ],
            ),
        )],
    );
    check(
        json!({"one_hot": {"columns": ["s"], "min_count": 2, "suffix": "_hot"}}),
        input(),
        [
            input(),
            vec![col(
                "s_hot",
                vectors(1, &[&[1.], &[0.], &[0.], &[1.], &[0.]]),
            )],
        ]
        .concat(),
    );
    check(
        json!({"one_hot": {"columns": ["s"], "categories": ["c", "z"]}}),
        input(),
        vec![col(
            "s",
            vectors(2, &[&[0., 0.], &[0., 0.], &[0., 0.], &[0., 0.], &[1., 0.]]),
        )],
    );
    check(
        json!({"one_hot": {"columns": ["s"], "categories": ["c", "b"], "as": "columns"}}),
        input(),
        [
            input(),
            vec![
                col("s_c", Float32Array::from(vec![0., 0., 0., 0., 1.])),
                col("s_b", Float32Array::from(vec![1., 0., 0., 1., 0.])),
            ],
        ]
        .concat(),
    );
    check(
        json!({"one_hot": {"columns": ["s"]}}),
        vec![col("s", words(&[None]))],
        vec![col("s", vectors(0, &[&[]]))],
    );
    check_fault(
        json!({"one_hot": {"columns": ["s"], "as": "columns"}}),
        input(),
        codes::BAD_VALUE,
    );
}

#[test]
fn ordinal_sorts_values() {
    let input = || {
        vec![col(
            "s",
            words(&[Some("b"), Some("a"), None, Some("c"), Some("b")]),
        )]
    };
    check(
        json!({"ordinal": {"columns": ["s"], "dtype": "int32"}}),
        input(),
        vec![col(
            "s",
            Int32Array::from(vec![Some(1), Some(0), None, Some(2), Some(1)]),
        )],
    );
    // Numbers in their own order, not in that of their text.
    check(
        json!({"ordinal": {"columns": ["i"]}}),
        vec![col(
            "i",
            Int16Array::from(vec![Some(10), Some(9), Some(-1), None]),
        )],
        vec![col(
            "i",
            Int64Array::from(vec![Some(2), Some(1), Some(0), None]),
        )],
    );
    let listed = |unknown| json!({"ordinal": {"columns": ["s"], "categories": ["c", "b"], "unknown": unknown}});
    check(
        listed(json!("missing")),
        input(),
        vec![col(
            "s",
            Int64Array::from(vec![Some(1), None, None, Some(0), Some(1)]),
        )],
    );
    check(
        listed(json!({"value": -1})),
        input(),
        vec![col(
            "s",
            Int64Array::from(vec![Some(1), Some(-1), None, Some(0), Some(1)]),
        )],
    );
    let fault = check_fault(listed(json!("error")), input(), codes::UNKNOWN_VALUE);
    assert_eq!(fault.message(), "`s` holds `a`, which was never seen");
}

#[test]
fn multi_hot_of_lists_and_text() {
    let text = || words(&[Some("b|a"), None, Some(""), Some("c||b|b")]);
    let expect = || {
        vectors(
            3,
            &[&[1., 1., 0.], &[0., 0., 0.], &[0., 0., 0.], &[0., 1., 1.]],
        )
    };
    check(
        json!({"multi_hot": {"columns": ["s"], "delimiter": "|"}}),
        vec![col("s", text())],
        vec![col("s", expect())],
    );
    check(
        json!({"multi_hot": {"columns": ["s"], "delimiter": "|", "categories": ["b", "z"], "suffix": "_hot"}}),
        vec![
            col("s", text()),
            col("t", Int32Array::from(vec![1, 2, 3, 4])),
        ],
        vec![
            col("s", text()),
            col("t", Int32Array::from(vec![1, 2, 3, 4])),
            col(
                "s_hot",
                vectors(2, &[&[1., 0.], &[0., 0.], &[0., 0.], &[1., 0.]]),
            ),
        ],
    );
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(2), Some(1)]);
    lists.append_null();
    lists.append_value([] as [Option<i64>; 0]);
    lists.append_value([Some(3), None, Some(2)]);
    check(
        json!({"multi_hot": {"columns": ["l"]}}),
        vec![col("l", lists.finish())],
        vec![col("l", expect())],
    );
    check_fault(
        json!({"multi_hot": {"columns": ["s"]}}),
        vec![col("s", text())],
        codes::COLUMN_TYPE,
    );
}

#[test]
fn hashes_stay_for_ever() {
    // These buckets must never change: models are trained with them.
    check(
        json!({"hash_bucket": {"columns": ["s"], "buckets": 1000}}),
        vec![col("s", words(&[Some("a"), Some("b"), None, Some("")]))],
        vec![col(
            "s",
            Int64Array::from(vec![Some(901), Some(341), None, Some(175)]),
        )],
    );
    check(
        json!({"cross": {"columns": ["s", "i"], "buckets": 1000}}),
        vec![
            col("s", words(&[Some("a"), Some("b"), None, Some("a")])),
            col("i", Int32Array::from(vec![Some(1), Some(1), Some(1), None])),
        ],
        vec![
            col("s", words(&[Some("a"), Some("b"), None, Some("a")])),
            col("i", Int32Array::from(vec![Some(1), Some(1), Some(1), None])),
            col(
                "s_x_i",
                Int64Array::from(vec![Some(996), Some(785), None, None]),
            ),
        ],
    );
    let input = vec![col("s", words(&[Some("a")]))];
    check_fault(
        json!({"cross": {"columns": ["s"], "buckets": 10}}),
        input,
        codes::BAD_VALUE,
    );
}

#[test]
fn categories_that_are_listed_twice_are_refused() {
    let input = || vec![col("a", StringArray::from(vec!["b", "c"]))];
    let categories = json!(["b", "c", "b"]);
    for step in [
        json!({"one_hot": {"columns": ["a"], "categories": categories}}),
        json!({"one_hot": {"columns": ["a"], "categories": categories, "as": "columns"}}),
        json!({"ordinal": {"columns": ["a"], "categories": categories}}),
        json!({"multi_hot": {"columns": ["a"], "categories": categories, "delimiter": "|"}}),
    ] {
        let fault = check_fault(step, input(), codes::BAD_VALUE);
        assert!(fault.message().contains("`b`"), "{}", fault.message());
    }
}
