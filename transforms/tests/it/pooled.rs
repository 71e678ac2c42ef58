//! Windows over groups of series, and the seasonal indices of groups.

use crate::harness::*;
use arrow::array::*;
use forebay_model::codes;
use serde_json::json;

type NullableFloats = Vec<Option<f64>>;

fn rows() -> NamedColumns {
    vec![
        col("day", Date32Array::from(vec![1, 1, 1, 2, 2, 3, 4, 5, 5, 1])),
        col(
            "g",
            StringArray::from(vec![
                Some("a"),
                Some("a"),
                Some("b"),
                Some("a"),
                Some("b"),
                Some("a"),
                Some("a"),
                Some("a"),
                None,
                Some("a"),
            ]),
        ),
        col(
            "x",
            Float64Array::from(vec![
                Some(1.0),
                Some(3.0),
                Some(10.0),
                None,
                Some(20.0),
                Some(5.0),
                Some(f64::NAN),
                Some(8.0),
                Some(7.0),
                Some(2.0),
            ]),
        ),
    ]
}

fn with_columns(columns: Vec<(String, ArrayRef)>) -> NamedColumns {
    rows().into_iter().chain(columns).collect()
}

fn numbers(name: &str, values: NullableFloats) -> (String, ArrayRef) {
    col(name, Float64Array::from(values))
}

#[test]
fn all_values_of_a_window() {
    let step = json!({"pooled": {"columns": ["x"], "compute": ["mean", "count", "var", "max", "sum"], "by": ["g"],
                                 "over": ["2d"], "time": "day"}});
    let three = Some(3);
    let mean = Some(2.0);
    let var = Some(1.0);
    let expect = vec![
        numbers(
            "x_g_mean_2d",
            vec![
                mean,
                mean,
                Some(10.0),
                mean,
                Some(15.0),
                Some(5.0),
                Some(5.0),
                Some(8.0),
                Some(7.0),
                mean,
            ],
        ),
        col(
            "x_g_count_2d",
            Int64Array::from(vec![
                three,
                three,
                Some(1),
                three,
                Some(2),
                Some(1),
                Some(1),
                Some(1),
                Some(1),
                three,
            ]),
        ),
        numbers(
            "x_g_var_2d",
            vec![var, var, None, var, Some(50.0), None, None, None, None, var],
        ),
        numbers(
            "x_g_max_2d",
            vec![
                Some(3.0),
                Some(3.0),
                Some(10.0),
                Some(3.0),
                Some(20.0),
                Some(5.0),
                Some(5.0),
                Some(8.0),
                Some(7.0),
                Some(3.0),
            ],
        ),
        numbers(
            "x_g_sum_2d",
            vec![
                Some(6.0),
                Some(6.0),
                Some(10.0),
                Some(6.0),
                Some(30.0),
                Some(5.0),
                Some(5.0),
                Some(8.0),
                Some(7.0),
                Some(6.0),
            ],
        ),
    ];
    check(step, rows(), with_columns(expect));
}

#[test]
fn a_gap_leaves_out_the_row_and_its_time() {
    let step = json!({"pooled": {"columns": ["x"], "compute": ["sum", "count"], "by": ["g"], "over": ["3d"], "gap": "1d",
                                 "time": "day", "dtype": "float32"}});
    let sums = vec![
        None,
        None,
        None,
        Some(6.0f32),
        Some(10.0),
        Some(6.0),
        Some(11.0),
        Some(5.0),
        None,
        None,
    ];
    let counts = vec![0, 0, 0, 3, 1, 3, 4, 1, 0, 0];
    let expect = vec![
        col("x_g_sum_3d", Float32Array::from(sums)),
        col("x_g_count_3d", Int64Array::from(counts)),
    ];
    check(step, rows(), with_columns(expect));
}

/// `rolling` and `expanding` say the same: pandas' kurtosis of equal values is -3, and infinity less infinity is
/// no value.
#[test]
fn equal_and_infinite_values_give_what_windows_give() {
    let table = |x: [f64; 4]| {
        vec![
            col("day", Date32Array::from(vec![1, 2, 3, 4])),
            col("x", Float64Array::from(x.to_vec())),
        ]
    };
    let with = |x, name: &str, y: NullableFloats| {
        table(x)
            .into_iter()
            .chain([numbers(name, y)])
            .collect::<NamedColumns>()
    };
    let step = json!({"pooled": {"columns": ["x"], "compute": ["kurtosis"], "aggregate": "mean", "time": "day"}});
    let same = [2.5; 4];
    check(
        step,
        table(same),
        with(
            same,
            "x_all_mean_expanding_kurtosis",
            vec![None, None, None, Some(-3.0)],
        ),
    );
    let infinite = [1.0, f64::INFINITY, 2.0, f64::NEG_INFINITY];
    let up = Some(f64::INFINITY);
    let step = json!({"pooled": {"columns": ["x"], "compute": ["mean"], "time": "day"}});
    check(
        step,
        table(infinite),
        with(
            infinite,
            "x_all_expanding_mean",
            vec![Some(1.0), up, up, None],
        ),
    );
    let step = json!({"pooled": {"columns": ["x"], "compute": ["var"], "aggregate": "sum", "time": "day"}});
    check(
        step,
        table(infinite),
        with(infinite, "x_all_sum_expanding_var", vec![None; 4]),
    );
}

#[test]
fn one_number_for_each_time() {
    // Totals of days: 16, 20, 5 and 15 on the fifth; the fourth has no value.
    let step = json!({"pooled": {"columns": ["x"], "compute": [
        "mean", "std", "median", "skew", "kurtosis", "count", {"quantile": 0.9}, "slope", "first", "last", "n_unique",
        "zero_share", "since_nonzero"], "aggregate": "sum", "over": ["5d"], "time": "day"}});
    let by_day = |name: &str, days: [Option<f64>; 5]| {
        let day = |day: i32| days[day as usize - 1];
        numbers(
            &format!("x_all_sum_{name}_5d"),
            [1, 1, 1, 2, 2, 3, 4, 5, 5, 1].map(day).to_vec(),
        )
    };
    let counts = |name: &str, days: [i64; 5]| {
        let each = [1, 1, 1, 2, 2, 3, 4, 5, 5, 1]
            .map(|day| days[day - 1])
            .to_vec();
        col(&format!("x_all_sum_{name}_5d"), Int64Array::from(each))
    };
    let third = Some(41.0 / 3.0);
    let skew = Some(-1.2298092586842269);
    let slope = Some(-5.5);
    let std = Some(7.76745346515403);
    let expect = vec![
        by_day("mean", [Some(16.0), Some(18.0), third, third, Some(14.0)]),
        by_day(
            "std",
            [
                None,
                Some(2.8284271247461903),
                std,
                std,
                Some(6.377042156569664),
            ],
        ),
        by_day(
            "median",
            [Some(16.0), Some(18.0), Some(16.0), Some(16.0), Some(15.5)],
        ),
        by_day("skew", [None, None, skew, skew, Some(-1.2956312470751588)]),
        by_day(
            "kurtosis",
            [None, None, None, None, Some(2.3707336737436195)],
        ),
        counts("count", [1, 2, 3, 3, 4]),
        by_day(
            "q90",
            [Some(16.0), Some(19.6), Some(19.2), Some(19.2), Some(18.8)],
        ),
        by_day(
            "slope",
            [None, Some(4.0), slope, slope, Some(-0.9142857142857143)],
        ),
        by_day("first", [Some(16.0); 5]),
        by_day(
            "last",
            [Some(16.0), Some(20.0), Some(5.0), Some(5.0), Some(15.0)],
        ),
        counts("n_unique", [1, 2, 3, 3, 4]),
        by_day("zero_share", [Some(0.0); 5]),
        by_day(
            "since_nonzero",
            [Some(0.0), Some(0.0), Some(0.0), Some(1.0), Some(0.0)],
        ),
    ];
    check(step, rows(), with_columns(expect));
}

#[test]
fn everything_before_and_both_ends() {
    let some = |values: [f64; 10]| {
        values
            .map(|value| (!value.is_nan()).then_some(value))
            .to_vec()
    };
    const NONE: f64 = f64::NAN;
    check(
        json!({"pooled": {"columns": ["x"], "compute": ["min"], "by": ["g"], "gap": "1d", "time": "day"}}),
        rows(),
        with_columns(vec![numbers(
            "x_g_expanding_min",
            some([NONE, NONE, NONE, 1.0, 10.0, 1.0, 1.0, 1.0, NONE, NONE]),
        )]),
    );
    let closed = |closed: &str, values: [f64; 10]| {
        let step = json!({"pooled": {"columns": ["x"], "compute": ["count"], "over": ["2d"], "closed": closed,
                                     "time": "day"}});
        let counts = Int64Array::from_iter_values(values.map(|value| value as i64));
        check(
            step,
            rows(),
            with_columns(vec![col("x_all_count_2d", counts)]),
        );
    };
    // Values on days 1 to 5: 4, 1, 1, 0, 2.
    closed("right", [4.0, 4.0, 4.0, 5.0, 5.0, 2.0, 1.0, 2.0, 2.0, 4.0]);
    closed("left", [0.0, 0.0, 0.0, 4.0, 4.0, 5.0, 2.0, 1.0, 1.0, 0.0]);
    closed("both", [4.0, 4.0, 4.0, 5.0, 5.0, 6.0, 2.0, 3.0, 3.0, 4.0]);
    closed(
        "neither",
        [0.0, 0.0, 0.0, 4.0, 4.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    );
    check(
        json!({"pooled": {"columns": ["x"], "compute": ["mean"], "over": ["1d"], "min_periods": 3, "time": "day"}}),
        rows(),
        with_columns(vec![numbers(
            "x_all_mean_1d",
            some([4.0, 4.0, 4.0, NONE, NONE, NONE, NONE, NONE, NONE, 4.0]),
        )]),
    );
}

#[test]
fn whole_numbers_have_whole_sums() {
    let input = || {
        vec![
            col(
                "t",
                TimestampMillisecondArray::from(vec![Some(0), Some(0), Some(0), None]),
            ),
            col("k", BooleanArray::from(vec![true, true, true, true])),
            col("n", Int64Array::from(vec![1, 1, 8_589_934_590, 5])),
        ]
    };
    check(
        json!({"pooled": {"columns": ["n"], "compute": ["sum"], "by": ["k"], "over": ["1s"], "time": "t"}}),
        input(),
        input()
            .into_iter()
            .chain([numbers(
                "n_k_sum_1s",
                vec![
                    Some(8_589_934_592.0),
                    Some(8_589_934_592.0),
                    Some(8_589_934_592.0),
                    None,
                ],
            )])
            .collect(),
    );
    check_fault(
        json!({"pooled": {"columns": ["n"], "compute": ["sum"], "over": ["1s"], "time": "k"}}),
        input(),
        codes::COLUMN_TYPE,
    );
}
