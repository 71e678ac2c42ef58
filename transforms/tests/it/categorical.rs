//! Categories: ids, indicators, hashes.

use std::sync::Arc;

use crate::harness::*;
use arrow::array::*;
use arrow::datatypes::{DataType, Field};
use forebay_model::codes;
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
fn columns_have_a_joint_vocabulary() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("b"), Some("3"), None]);
    lists.append_null();
    lists.append_value([Some("a")]);
    let mut ids = ListBuilder::new(Int64Builder::new());
    ids.append_value([Some(1), Some(0), None]);
    ids.append_null();
    ids.append_value([Some(3)]);
    // 3 comes three times, b twice, a and c once: c before a, in reverse byte order.
    let lists = lists.finish();
    let numbers = || Int32Array::from(vec![Some(3), Some(3), None]);
    let input = || {
        vec![
            col("l", lists.clone()),
            col("s", words(&[Some("b"), None, Some("c")])),
            col("i", numbers()),
        ]
    };
    let mut expected = input();
    expected[0] = col("l", ids.finish());
    expected[1] = col("s", Int64Array::from(vec![Some(1), None, Some(2)]));
    expected[2] = col("i", Int64Array::from(vec![Some(0), Some(0), None]));
    check(
        json!({"vocabulary": {"columns": ["l", "s", "i"], "joint": true}}),
        input(),
        expected,
    );
    let mut expected = input();
    expected.push(col("s_id", Int64Array::from(vec![Some(0), None, Some(1)])));
    check(
        json!({"vocabulary": {"columns": ["s"], "joint": true, "order": "value", "suffix": "_id"}}),
        input(),
        expected,
    );
    check_fault(
        json!({"vocabulary": {"columns": ["s"], "joint": true, "stable": true}}),
        input(),
        codes::BAD_VALUE,
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
    // Of three categories, the two most frequent ones: `a` and `c` are equally frequent.
    check(
        json!({"one_hot": {"columns": ["s"], "as": "columns", "columns_max": 2}}),
        input(),
        [
            input(),
            vec![
                col("s_0", Float32Array::from(vec![0., 1., 0., 0., 0.])),
                col("s_1", Float32Array::from(vec![1., 0., 0., 1., 0.])),
            ],
        ]
        .concat(),
    );
    // More columns than categories.
    check(
        json!({"one_hot": {
            "columns": ["s"], "as": "columns", "columns_max": 2, "min_count": 2, "suffix": "_hot"
        }}),
        input(),
        [
            input(),
            vec![
                col("s_0_hot", Float32Array::from(vec![1., 0., 0., 1., 0.])),
                col("s_1_hot", Float32Array::from(vec![0., 0., 0., 0., 0.])),
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
fn multi_hot_gives_columns() {
    let text = || words(&[Some("b|a"), None, Some(""), Some("c||b|b")]);
    let input = || vec![col("s", text())];
    let indicator = |name: &str, ones: [f32; 4]| col(name, Float32Array::from(ones.to_vec()));
    check(
        json!({"multi_hot": {
            "columns": ["s"], "delimiter": "|", "as": "columns", "categories": ["z", "b"],
            "suffix": "_hot"
        }}),
        input(),
        vec![
            col("s", text()),
            indicator("s_z_hot", [0., 0., 0., 0.]),
            indicator("s_b_hot", [1., 0., 0., 1.]),
        ],
    );
    // `b` is the most frequent one; `a` and `c` are equally frequent.
    check(
        json!({"multi_hot": {
            "columns": ["s"], "delimiter": "|", "as": "columns", "columns_max": 2
        }}),
        input(),
        vec![
            col("s", text()),
            indicator("s_0", [1., 0., 0., 0.]),
            indicator("s_1", [1., 0., 0., 1.]),
        ],
    );
    // More columns than categories, of lists.
    let lists = || {
        let mut lists = ListBuilder::new(Int64Builder::new());
        lists.append_value([Some(2), Some(1)]);
        lists.append_null();
        lists.append_value([] as [Option<i64>; 0]);
        lists.append_value([Some(3), None, Some(2)]);
        lists.finish()
    };
    check(
        json!({"multi_hot": {"columns": ["l"], "as": "columns", "columns_max": 2, "min_count": 2}}),
        vec![col("l", lists())],
        vec![
            col("l", lists()),
            indicator("l_0", [1., 0., 0., 1.]),
            indicator("l_1", [0., 0., 0., 0.]),
        ],
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
    // The 32-bit MurmurHash3 of "a" is 1009084850, in onnxruntime as well.
    check(
        json!({"hash_bucket": {"columns": ["s"], "buckets": 1000, "hash": "murmur3"}}),
        vec![col(
            "s",
            words(&[Some("a"), Some("b"), None, Some("item 17"), Some("straße")]),
        )],
        vec![col(
            "s",
            Int64Array::from(vec![Some(850), Some(435), None, Some(231), Some(437)]),
        )],
    );
    // tf.strings.to_hash_bucket_fast(["Hello", "TensorFlow", "2.x"], 3) of TensorFlow's documentation.
    check(
        json!({"hash_bucket": {"columns": ["s"], "buckets": 3, "hash": "farm"}}),
        vec![col(
            "s",
            words(&[Some("Hello"), Some("TensorFlow"), None, Some("2.x")]),
        )],
        vec![col(
            "s",
            Int64Array::from(vec![Some(0), Some(2), None, Some(2)]),
        )],
    );
    check_fault(
        json!({"hash_bucket": {"columns": ["s"], "buckets": 3, "hash": "farm", "seed": 1}}),
        vec![col("s", words(&[Some("a")]))],
        codes::BAD_VALUE,
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
fn numbered_columns_are_for_learned_categories() {
    let word = || vec![col("s", words(&[Some("b")]))];
    for settings in [
        json!({"columns": ["s"], "as": "columns"}),
        json!({"columns": ["s"], "columns_max": 2}),
        json!({"columns": ["s"], "as": "columns", "columns_max": 2, "categories": ["b"]}),
        json!({"columns": ["s"], "as": "columns", "columns_max": 0}),
        json!({"columns": ["s"], "as": "columns", "columns_max": 1001}),
    ] {
        let mut parts = settings.clone();
        parts["delimiter"] = json!("|");
        for step in [
            json!({ "one_hot": settings }),
            json!({ "multi_hot": parts }),
        ] {
            let fault = check_fault(step, word(), codes::BAD_VALUE);
            assert!(fault.message().contains("`columns_max`"), "{fault}");
        }
    }
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

#[test]
fn rare_categories_become_one() {
    let c = || {
        words(&[
            Some("a"),
            Some("a"),
            Some("b"),
            Some("b"),
            Some("b"),
            Some("c"),
            Some("c"),
            Some("c"),
            Some("c"),
            Some("d"),
        ])
    };
    // RareLabelEncoder(tol=0.3, n_categories=1, replace_with="other") of feature_engine 1.9.4.
    let grouped = || {
        words(&[
            Some("other"),
            Some("other"),
            Some("b"),
            Some("b"),
            Some("b"),
            Some("c"),
            Some("c"),
            Some("c"),
            Some("c"),
            Some("other"),
        ])
    };
    for limit in ["min_share", "min_count", "top_k"] {
        let mut step = json!({"group_rare": {"columns": ["c"]}});
        step["group_rare"][limit] = match limit {
            "min_share" => json!(0.3),
            "min_count" => json!(3),
            _ => json!(2),
        };
        check(step, vec![col("c", c())], vec![col("c", grouped())]);
    }
    check(
        json!({"group_rare": {"columns": ["s", "i"], "min_count": 2, "other": "x", "suffix": "_g"}}),
        vec![
            col(
                "s",
                words(&[None, Some("x"), Some("x"), Some(""), Some("")]),
            ),
            col(
                "i",
                Int64Array::from(vec![Some(7), Some(7), None, Some(-1), Some(0)]),
            ),
        ],
        vec![
            col(
                "s",
                words(&[None, Some("x"), Some("x"), Some(""), Some("")]),
            ),
            col(
                "i",
                Int64Array::from(vec![Some(7), Some(7), None, Some(-1), Some(0)]),
            ),
            col(
                "s_g",
                words(&[None, Some("x"), Some("x"), Some(""), Some("")]),
            ),
            col(
                "i_g",
                words(&[Some("7"), Some("7"), None, Some("x"), Some("x")]),
            ),
        ],
    );
    // Exactly the share stays, also where the product of share and rows is above the count.
    let seven = StringArray::from_iter_values((0..100).map(|row| if row < 7 { "a" } else { "b" }));
    check(
        json!({"group_rare": {"columns": ["c"], "min_share": 0.07}}),
        vec![col("c", seven.clone())],
        vec![col("c", seven)],
    );
    for step in [
        json!({"group_rare": {"columns": ["c"]}}),
        json!({"group_rare": {"columns": ["c"], "min_share": 1.5}}),
    ] {
        check_fault(step, vec![col("c", c())], codes::BAD_VALUE);
    }
}

#[test]
fn frequencies_as_category_encoders() {
    let c = || {
        words(&[
            Some("a"),
            Some("a"),
            Some("b"),
            Some("b"),
            Some("b"),
            Some("c"),
            Some("c"),
            Some("c"),
            Some("c"),
            Some("d"),
        ])
    };
    // CountEncoder of category_encoders 2.11.2, and with normalize=True.
    check(
        json!({"frequency_encoding": {"columns": ["c"], "compute": "count"}}),
        vec![col("c", c())],
        vec![col(
            "c",
            Int64Array::from(vec![2, 2, 3, 3, 3, 4, 4, 4, 4, 1]),
        )],
    );
    check(
        json!({"frequency_encoding": {"columns": ["c"], "suffix": "_share"}}),
        vec![col("c", c())],
        vec![
            col("c", c()),
            col(
                "c_share",
                Float64Array::from(vec![0.2, 0.2, 0.3, 0.3, 0.3, 0.4, 0.4, 0.4, 0.4, 0.1]),
            ),
        ],
    );
    // Nulls are no values of their own, and are not in the divisor.
    check(
        json!({"frequency_encoding": {"columns": ["i"], "min_count": 2}}),
        vec![col(
            "i",
            Int32Array::from(vec![Some(5), Some(5), None, Some(6), Some(5)]),
        )],
        vec![col(
            "i",
            Float64Array::from(vec![Some(0.75), Some(0.75), None, Some(0.0), Some(0.75)]),
        )],
    );
    check(
        json!({"frequency_encoding": {"columns": ["s"]}}),
        vec![col("s", words(&[None]))],
        vec![col("s", Float64Array::from(vec![None]))],
    );
}
