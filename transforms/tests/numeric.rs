//! Scaling, filling, buckets. Expected numbers come from the peers' formulas.

#![allow(clippy::unwrap_used)] // Only tests are here.

mod harness;

use arrow::array::*;
use forebay_model::codes;
use harness::*;
use serde_json::json;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn f64s(values: &[f64]) -> Float64Array {
    Float64Array::from(values.to_vec())
}

fn f32s(values: &[f32]) -> Float32Array {
    Float32Array::from(values.to_vec())
}

#[test]
fn standardize_as_scikit_learn() {
    // StandardScaler().fit_transform([[1], [2], [3], [4]])
    let scaled = [
        -1.3416407864998738,
        -0.4472135954999579,
        0.4472135954999579,
        1.3416407864998738,
    ];
    check(
        json!({"standardize": {"columns": ["x", "i"]}}),
        vec![
            col("x", f64s(&[1.0, 2.0, 3.0, 4.0])),
            col("i", Int32Array::from(vec![1, 2, 3, 4])),
        ],
        vec![
            col("x", f64s(&scaled)),
            col("i", f32s(&scaled.map(|x| x as f32))),
        ],
    );
    check(
        json!({"standardize": {"columns": ["x"], "suffix": "_z", "ddof": 1}}),
        vec![col(
            "x",
            Float32Array::from(vec![Some(1.0), None, Some(f32::NAN), Some(3.0)]),
        )],
        vec![
            col(
                "x",
                Float32Array::from(vec![Some(1.0), None, Some(f32::NAN), Some(3.0)]),
            ),
            col(
                "x_z",
                Float32Array::from(vec![
                    Some(-0.70710677),
                    None,
                    Some(f32::NAN),
                    Some(0.70710677),
                ]),
            ),
        ],
    );
}

#[test]
fn standardize_at_the_edges() {
    let step = || json!({"standardize": {"columns": ["x"]}});
    check(step(), vec![col("x", f64s(&[]))], vec![col("x", f64s(&[]))]);
    check(
        step(),
        vec![col("x", f64s(&[5.0]))],
        vec![col("x", f64s(&[0.0]))],
    );
    check(
        step(),
        vec![col("x", f64s(&[NAN]))],
        vec![col("x", f64s(&[NAN]))],
    );
    check(
        step(),
        vec![col("x", Float64Array::from(vec![None, None]))],
        vec![col("x", Float64Array::from(vec![None, None]))],
    );
    check(
        step(),
        vec![col("x", f64s(&[1.0, INF]))],
        vec![col("x", f64s(&[NAN, NAN]))],
    );
    check(
        json!({"standardize": {"columns": ["x"], "zero_variance": "zero"}}),
        vec![col("x", f64s(&[7.0, 7.0, NAN]))],
        vec![col("x", f64s(&[0.0, 0.0, NAN]))],
    );
    check_fault(
        step(),
        vec![col("x", StringArray::from(vec!["a"]))],
        codes::COLUMN_TYPE,
    );
}

#[test]
fn standardize_by_key() {
    let keys = || StringArray::from(vec![Some("a"), Some("b"), Some("a"), None, None, Some("c")]);
    let numbers = || Int64Array::from(vec![Some(1), Some(5), Some(3), Some(10), Some(30), None]);
    let scaled = || {
        Float32Array::from(vec![
            Some(-1.0),
            Some(0.0),
            Some(1.0),
            Some(-1.0),
            Some(1.0),
            None,
        ])
    };
    check(
        json!({"standardize": {"columns": ["x"], "by": ["k"]}}),
        vec![col("k", keys()), col("x", numbers())],
        vec![col("k", keys()), col("x", scaled())],
    );
    let two = || Int32Array::from(vec![1, 1, 1, 2, 2, 2]);
    check(
        json!({"standardize": {"columns": ["x"], "by": ["k", "j"]}}),
        vec![col("k", keys()), col("j", two()), col("x", numbers())],
        vec![col("k", keys()), col("j", two()), col("x", scaled())],
    );
}

#[test]
fn min_max_as_the_peers() {
    check(
        json!({"min_max": {"columns": ["x"], "lo": -1, "hi": 1}}),
        vec![col(
            "x",
            Float64Array::from(vec![Some(0.0), Some(5.0), None, Some(NAN), Some(10.0)]),
        )],
        vec![col(
            "x",
            Float64Array::from(vec![Some(-1.0), Some(0.0), None, Some(NAN), Some(1.0)]),
        )],
    );
    // tf.Transform: sigmoid(x) where min == max.
    check(
        json!({"min_max": {"columns": ["x"]}}),
        vec![col("x", f64s(&[2.0, 2.0]))],
        vec![col("x", f64s(&[0.8807970779778823, 0.8807970779778823]))],
    );
    for (name, value) in [("lower", 10.0), ("middle", 15.0)] {
        check(
            json!({"min_max": {"columns": ["x"], "lo": 10, "hi": 20, "zero_range": name}}),
            vec![col("x", f64s(&[2.0]))],
            vec![col("x", f64s(&[value]))],
        );
    }
    check_fault(
        json!({"min_max": {"columns": ["x"], "lo": 1, "hi": 1}}),
        vec![col("x", f64s(&[2.0]))],
        codes::BAD_VALUE,
    );
    check(
        json!({"min_max": {"columns": ["x"], "by": ["k"]}}),
        vec![
            col("k", BooleanArray::from(vec![true, false, true, false])),
            col("x", f32s(&[0.0, 5.0, 1.0, 9.0])),
        ],
        vec![
            col("k", BooleanArray::from(vec![true, false, true, false])),
            col("x", f32s(&[0.0, 0.0, 1.0, 1.0])),
        ],
    );
}

#[test]
fn impute_fills_nulls_and_nan() {
    let x = || {
        col(
            "x",
            Float64Array::from(vec![Some(1.0), None, Some(NAN), Some(3.0), Some(11.0)]),
        )
    };
    let missing = || {
        col(
            "x_missing",
            BooleanArray::from(vec![false, true, true, false, false]),
        )
    };
    for (with, value) in [
        (json!("mean"), 5.0),
        (json!("median"), 3.0),
        (json!({"constant": -1}), -1.0),
    ] {
        check(
            json!({"impute": {"columns": ["x"], "with": with, "indicator": true}}),
            vec![x()],
            vec![col("x", f64s(&[1.0, value, value, 3.0, 11.0])), missing()],
        );
    }
    check(
        json!({"impute": {"columns": ["i"], "with": "median", "exact": true}}),
        vec![col("i", Int32Array::from(vec![Some(1), Some(2), None]))],
        vec![col("i", f64s(&[1.0, 2.0, 1.5]))],
    );
    check(
        json!({"impute": {"columns": ["x"], "with": "mode"}}),
        vec![col(
            "x",
            Float64Array::from(vec![Some(NAN), None, Some(0.5), Some(NAN)]),
        )],
        vec![col("x", f64s(&[0.5, 0.5, 0.5, 0.5]))],
    );
    check(
        json!({"impute": {"columns": ["x"], "with": "mean"}}),
        vec![col("x", Float64Array::from(vec![None, Some(NAN)]))],
        vec![col("x", Float64Array::from(vec![None, Some(NAN)]))],
    );
}

#[test]
fn impute_fills_text_booleans_and_dates() {
    let words = || {
        StringArray::from(vec![
            Some("b"),
            None,
            Some("a"),
            Some("b"),
            Some("a"),
            Some(""),
        ])
    };
    let filled = |word| StringArray::from(vec!["b", word, "a", "b", "a", ""]);
    check(
        json!({"impute": {"columns": ["s"], "with": "mode"}}),
        vec![col("s", words())],
        vec![col("s", filled("a"))],
    );
    check(
        json!({"impute": {"columns": ["s"], "with": {"constant": "?"}, "suffix": "_full"}}),
        vec![col("s", words())],
        vec![col("s", words()), col("s_full", filled("?"))],
    );
    check(
        json!({"impute": {"columns": ["b"], "with": {"constant": true}}}),
        vec![col("b", BooleanArray::from(vec![None, Some(false)]))],
        vec![col("b", BooleanArray::from(vec![true, false]))],
    );
    check(
        json!({"impute": {"columns": ["d"], "with": {"constant": "1970-01-03"}}}),
        vec![col("d", Date32Array::from(vec![None, Some(1)]))],
        vec![col("d", Date32Array::from(vec![2, 1]))],
    );
    let number = || vec![col("i", Int8Array::from(vec![None, Some(1)]))];
    for bad in [json!(1.5), json!(300), json!("x"), json!(true)] {
        check_fault(
            json!({"impute": {"columns": ["i"], "with": {"constant": bad}}}),
            number(),
            codes::COLUMN_TYPE,
        );
    }
}

#[test]
fn clip_keeps_types() {
    check(
        json!({"clip": {"columns": ["x", "i", "u"], "min": 0.5, "max": 300}}),
        vec![
            col(
                "x",
                Float32Array::from(vec![Some(-1.0), None, Some(f32::NAN), Some(f32::INFINITY)]),
            ),
            col(
                "i",
                Int32Array::from(vec![Some(-1), None, Some(1000), Some(2)]),
            ),
            col(
                "u",
                UInt8Array::from(vec![Some(0), None, Some(255), Some(2)]),
            ),
        ],
        vec![
            col(
                "x",
                Float32Array::from(vec![Some(0.5), None, Some(f32::NAN), Some(300.0)]),
            ),
            col(
                "i",
                Int32Array::from(vec![Some(1), None, Some(300), Some(2)]),
            ),
            col(
                "u",
                UInt8Array::from(vec![Some(1), None, Some(255), Some(2)]),
            ),
        ],
    );
    check(
        json!({"clip": {"columns": ["i"], "max": -1e30}}),
        vec![col("i", Int64Array::from(vec![5]))],
        vec![col("i", Int64Array::from(vec![i64::MIN]))],
    );
    for bad in [
        json!({"columns": ["x"]}),
        json!({"columns": ["x"], "min": 2, "max": 1}),
    ] {
        check_fault(
            json!({"clip": bad}),
            vec![col("x", f64s(&[1.0]))],
            codes::BAD_VALUE,
        );
    }
    let between = json!({"clip": {"columns": ["x"], "min": 0.5, "max": 0.5}});
    check(
        between.clone(),
        vec![col("x", f64s(&[1.0]))],
        vec![col("x", f64s(&[0.5]))],
    );
    check_fault(
        between,
        vec![col("x", Int64Array::from(vec![1]))],
        codes::BAD_VALUE,
    );
}

#[test]
fn log1p_as_numpy() {
    check(
        json!({"log1p": {"columns": ["x", "i"], "suffix": "_log"}}),
        vec![
            col(
                "x",
                Float64Array::from(vec![
                    Some(0.0),
                    Some(-1.0),
                    Some(-2.0),
                    None,
                    Some(1e-20),
                    Some(INF),
                ]),
            ),
            col(
                "i",
                Int64Array::from(vec![Some(0), Some(-1), Some(-2), None, Some(1), Some(2)]),
            ),
        ],
        vec![
            col(
                "x",
                Float64Array::from(vec![
                    Some(0.0),
                    Some(-1.0),
                    Some(-2.0),
                    None,
                    Some(1e-20),
                    Some(INF),
                ]),
            ),
            col(
                "i",
                Int64Array::from(vec![Some(0), Some(-1), Some(-2), None, Some(1), Some(2)]),
            ),
            col(
                "x_log",
                Float64Array::from(vec![
                    Some(0.0),
                    Some(-INF),
                    Some(NAN),
                    None,
                    Some(1e-20),
                    Some(INF),
                ]),
            ),
            col(
                "i_log",
                Float32Array::from(vec![
                    Some(0.0),
                    Some(f32::NEG_INFINITY),
                    Some(f32::NAN),
                    None,
                    Some(std::f32::consts::LN_2),
                    Some(1.0986123),
                ]),
            ),
        ],
    );
}

#[test]
fn robust_scale_as_scikit_learn() {
    // RobustScaler().fit_transform([[1], [2], [3], [4], [100]])
    for exact in [false, true] {
        check(
            json!({"robust_scale": {"columns": ["x"], "exact": exact}}),
            vec![col(
                "x",
                Float64Array::from(vec![
                    Some(1.0),
                    Some(2.0),
                    Some(3.0),
                    None,
                    Some(4.0),
                    Some(100.0),
                ]),
            )],
            vec![col(
                "x",
                Float64Array::from(vec![
                    Some(-1.0),
                    Some(-0.5),
                    Some(0.0),
                    None,
                    Some(0.5),
                    Some(48.5),
                ]),
            )],
        );
    }
    let step = || json!({"robust_scale": {"columns": ["x"]}});
    check(
        step(),
        vec![col("x", f64s(&[7.0, 7.0, NAN]))],
        vec![col("x", f64s(&[0.0, 0.0, NAN]))],
    );
    check(
        step(),
        vec![col("x", f64s(&[NAN]))],
        vec![col("x", f64s(&[NAN]))],
    );
}

#[test]
fn buckets_as_tf_transform() {
    let values = || {
        Float64Array::from(vec![
            Some(1.0),
            Some(2.0),
            Some(3.0),
            Some(4.0),
            None,
            Some(NAN),
            Some(-INF),
        ])
    };
    // Sorted: -inf 1 2 3 4; boundary k of 4 is sorted[floor(5 * k / 4)]: 1, 2, 3.
    for exact in [false, true] {
        check(
            json!({"bucketize": {"columns": ["x"], "q": 4, "exact": exact}}),
            vec![col("x", values())],
            vec![col(
                "x",
                Int32Array::from(vec![
                    Some(1),
                    Some(2),
                    Some(3),
                    Some(3),
                    None,
                    Some(3),
                    Some(0),
                ]),
            )],
        );
    }
    check(
        json!({"apply_buckets": {"columns": ["x"], "boundaries": [1, 3.5], "suffix": "_b"}}),
        vec![col("x", values())],
        vec![
            col("x", values()),
            col(
                "x_b",
                Int32Array::from(vec![
                    Some(1),
                    Some(1),
                    Some(1),
                    Some(2),
                    None,
                    Some(2),
                    Some(0),
                ]),
            ),
        ],
    );
    check(
        json!({"bucketize": {"columns": ["x"], "q": 3}}),
        vec![col("x", f64s(&[NAN]))],
        vec![col("x", Int32Array::from(vec![0]))],
    );
    check_fault(
        json!({"bucketize": {"columns": ["x"], "q": 1}}),
        vec![col("x", f64s(&[1.0]))],
        codes::BAD_VALUE,
    );
    let input = vec![col("x", f64s(&[1.0]))];
    check_fault(
        json!({"apply_buckets": {"columns": ["x"], "boundaries": [2, 2]}}),
        input,
        codes::BAD_VALUE,
    );
}

#[test]
fn quantiles_interpolate_ranks() {
    // Boundaries of 4 buckets over 0, 10, ..., 70: 20, 40, 60.
    let x = || {
        Float64Array::from_iter(
            (0..8)
                .map(|i| Some(f64::from(i) * 10.0))
                .chain([None, Some(NAN)]),
        )
    };
    let ranks = [0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0].map(Some);
    check(
        json!({"quantiles": {"columns": ["x"], "q": 4, "exact": true}}),
        vec![col("x", x())],
        vec![col(
            "x",
            Float64Array::from_iter(ranks.into_iter().chain([None, Some(0.5)])),
        )],
    );
}

#[test]
fn k_bins_as_scikit_learn() {
    // KBinsDiscretizer(3, strategy="uniform", encode="ordinal")
    check(
        json!({"k_bins": {"columns": ["x"], "bins": 3}}),
        vec![col(
            "x",
            Float64Array::from(vec![
                Some(-2.0),
                Some(-1.0),
                Some(0.0),
                Some(1.0),
                None,
                Some(NAN),
            ]),
        )],
        vec![col(
            "x",
            Int32Array::from(vec![Some(0), Some(1), Some(2), Some(2), None, Some(2)]),
        )],
    );
    check(
        json!({"k_bins": {"columns": ["x"], "bins": 2, "strategy": "quantile"}}),
        vec![col("x", f64s(&[1.0, 2.0, 3.0, 100.0]))],
        vec![col("x", Int32Array::from(vec![0, 0, 1, 1]))],
    );
    check(
        json!({"k_bins": {"columns": ["x"], "bins": 5}}),
        vec![col("x", f64s(&[4.0, 4.0]))],
        vec![col("x", Int32Array::from(vec![0, 0]))],
    );
    let fault = check_fault(
        json!({"k_bins": {"columns": ["x"], "bins": 5}}),
        vec![col("x", f64s(&[4.0, INF]))],
        codes::NOT_FINITE,
    );
    assert!(fault.hint_text().unwrap().contains("clip"));
}

#[test]
fn z_scores_of_numbers_whose_squares_no_double_holds_are_refused() {
    for values in [vec![1e200, 2e200, 3e200], vec![1e-200, 2e-200]] {
        let fault = check_fault(
            json!({"standardize": {"columns": ["x"]}}),
            vec![col("x", Float64Array::from(values))],
            codes::OVERFLOW,
        );
        assert_eq!(fault.site().column.as_deref(), Some("x"));
    }
}
