//! What steps over series compute. The expected values are those of pandas, or of the definition
//! where pandas has no such thing.

use std::f64::consts::SQRT_2;
use std::sync::Arc;

use crate::harness::*;
use arrow::array::*;
use forebay_model::codes;
use serde_json::{Value, json};

/// A missing value.
const N: f64 = f64::NAN;

type NamedColumn = (String, ArrayRef);

fn missing<T>(values: impl IntoIterator<Item = f64>, of: impl Fn(f64) -> T) -> Vec<Option<T>> {
    values
        .into_iter()
        .map(|value| (!value.is_nan()).then(|| of(value)))
        .collect()
}

fn numbers<const ROWS: usize>(name: &str, values: [f64; ROWS]) -> NamedColumn {
    col(name, Float64Array::from(missing(values, |value| value)))
}

fn ints<const ROWS: usize>(name: &str, values: [f64; ROWS]) -> NamedColumn {
    col(
        name,
        Int32Array::from(missing(values, |value| value as i32)),
    )
}

fn whole<const ROWS: usize>(name: &str, values: [f64; ROWS]) -> NamedColumn {
    col(
        name,
        Int64Array::from(missing(values, |value| value as i64)),
    )
}

/// Two series, the one with missing values, the other with missing days too.
fn rows() -> NamedColumns {
    let price = [
        Some(1.0),
        Some(2.0),
        None,
        Some(N),
        Some(3.0),
        Some(4.0),
        Some(4.5),
        Some(5.0),
        Some(8.0),
        None,
    ];
    vec![
        col(
            "day",
            Date32Array::from(vec![1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7]),
        ),
        col(
            "s",
            StringArray::from(vec![
                "a", "b", "a", "b", "a", "b", "a", "a", "b", "a", "b", "a",
            ]),
        ),
        ints(
            "qty",
            [
                1.0, 10.0, 2.0, 20.0, 0.0, 0.0, 4.0, 5.0, 50.0, 0.0, 60.0, 7.0,
            ],
        ),
        col(
            "price",
            Float64Array::from([&price[..], &[Some(16.0), Some(7.0)]].concat()),
        ),
    ]
}

/// Runs a step over the two series; `expect` are the new columns.
fn series<const COLUMNS: usize>(step: Value, expect: [NamedColumn; COLUMNS]) {
    check(
        with_time_and_keys(step),
        rows(),
        rows().into_iter().chain(expect).collect(),
    );
}

/// The step with its time and keys.
fn with_time_and_keys(mut step: Value) -> Value {
    for config in step.as_object_mut().unwrap().values_mut() {
        config["time"] = json!("day");
        config["keys"] = json!(["s"]);
    }
    step
}

#[test]
fn lag_by_time_is_exact() {
    series(
        json!({"lag": {"columns": ["qty"], "by": ["1d", "2d"]}}),
        [
            ints(
                "qty_lag_1d",
                [N, N, 1.0, 10.0, 2.0, 20.0, 0.0, 4.0, N, 5.0, 50.0, 0.0],
            ),
            ints(
                "qty_lag_2d",
                [N, N, N, N, 1.0, 10.0, 2.0, 0.0, 0.0, 4.0, N, 5.0],
            ),
        ],
    );
}

#[test]
fn texts_are_copied_and_counted_as_other_values_are() {
    let texts = |name: &str, places: [usize; 12]| {
        let letters = [None, Some("a"), Some("b")];
        col(
            name,
            StringArray::from(places.map(|at| letters[at]).to_vec()),
        )
    };
    series(
        json!({"lag": {"columns": ["s"], "by": ["1d"]}}),
        [texts("s_lag_1d", [0, 0, 1, 2, 1, 2, 1, 1, 0, 1, 2, 1])],
    );
    series(
        json!({"rolling": {"columns": ["s"], "compute": ["last", "n_unique", "count"], "over": ["2d"]}}),
        [
            texts("s_last_2d", [1, 2, 1, 2, 1, 2, 1, 1, 2, 1, 2, 1]),
            whole("s_n_unique_2d", [1.0; 12]),
            whole(
                "s_count_2d",
                [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 2.0, 2.0, 2.0],
            ),
        ],
    );
}

#[test]
fn lag_as_of_takes_the_latest() {
    series(
        json!({"lag": {"columns": ["qty", "price"], "by": ["1d"], "as_of": "1d"}}),
        [
            ints(
                "qty_lag_1d",
                [N, N, 1.0, 10.0, 2.0, 20.0, 0.0, 4.0, 0.0, 5.0, 50.0, 0.0],
            ),
            numbers(
                "price_lag_1d",
                [N, N, 1.0, 2.0, N, N, 3.0, 4.5, 4.0, 5.0, 8.0, N],
            ),
        ],
    );
}

#[test]
fn lag_by_rows() {
    series(
        json!({"lag": {"columns": ["qty"], "by": [1, 3], "gaps": "count_rows"}}),
        [
            ints(
                "qty_lag_1",
                [N, N, 1.0, 10.0, 2.0, 20.0, 0.0, 4.0, 0.0, 5.0, 50.0, 0.0],
            ),
            ints(
                "qty_lag_3",
                [N, N, N, N, N, N, 1.0, 2.0, 10.0, 0.0, 20.0, 4.0],
            ),
        ],
    );
}

#[test]
fn missing_periods_count_as_rows() {
    series(
        json!({"lag": {"columns": ["qty"], "by": [1], "gaps": {"complete": {"every": "1d"}}}}),
        [ints(
            "qty_lag_1",
            [N, N, 1.0, 10.0, 2.0, 20.0, 0.0, 4.0, N, 5.0, 50.0, 0.0],
        )],
    );
}

#[test]
fn missing_periods_are_filled() {
    series(
        json!({"lag": {"columns": ["qty"], "by": [1], "gaps": {"complete": {"every": "1d", "fill": "zero"}}}}),
        [ints(
            "qty_lag_1",
            [N, N, 1.0, 10.0, 2.0, 20.0, 0.0, 4.0, 0.0, 5.0, 50.0, 0.0],
        )],
    );
}

#[test]
fn diff_of_integers_and_floats() {
    series(
        json!({"diff": {"columns": ["qty", "price"], "by": [1], "gaps": "count_rows"}}),
        [
            whole(
                "qty_diff_1",
                [
                    N, N, 1.0, 10.0, -2.0, -20.0, 4.0, 1.0, 50.0, -5.0, 10.0, 7.0,
                ],
            ),
            numbers("price_diff_1", [N, N, N, N, N, N, 1.5, 0.5, 4.0, N, 8.0, N]),
        ],
    );
}

#[test]
fn pct_change_by_time() {
    series(
        json!({"pct_change": {"columns": ["price"], "by": ["1d"]}}),
        [numbers(
            "price_pct_change_1d",
            [N, N, N, N, N, N, 0.5, 0.11111111111111116, N, N, 1.0, N],
        )],
    );
}

#[test]
fn rolling_over_time() {
    series(
        json!({"rolling": {"columns": ["price"], "compute": ["mean", "sum", "std", "var", "min", "max", "median", "skew", "kurtosis", {"quantile": 0.25}, "count", "first", "last", "n_unique"], "over": ["4d"]}}),
        [
            numbers(
                "price_mean_4d",
                [
                    1.0,
                    2.0,
                    1.0,
                    2.0,
                    2.0,
                    3.0,
                    2.8333333333333335,
                    4.166666666666667,
                    6.0,
                    4.166666666666667,
                    9.333333333333334,
                    5.5,
                ],
            ),
            numbers(
                "price_sum_4d",
                [
                    1.0, 2.0, 1.0, 2.0, 4.0, 6.0, 8.5, 12.5, 12.0, 12.5, 28.0, 16.5,
                ],
            ),
            numbers(
                "price_std_4d",
                [
                    N,
                    N,
                    N,
                    N,
                    SQRT_2,
                    SQRT_2,
                    1.755942292142123,
                    1.0408329997330665,
                    2.8284271247461903,
                    1.0408329997330665,
                    6.110100926607786,
                    1.3228756555322954,
                ],
            ),
            numbers(
                "price_var_4d",
                [
                    N,
                    N,
                    N,
                    N,
                    2.0,
                    2.0,
                    3.083333333333333,
                    1.0833333333333335,
                    8.0,
                    1.0833333333333335,
                    37.33333333333333,
                    1.75,
                ],
            ),
            numbers(
                "price_min_4d",
                [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 3.0, 4.0, 3.0, 4.0, 4.5],
            ),
            numbers(
                "price_max_4d",
                [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 8.0, 5.0, 16.0, 7.0],
            ),
            numbers(
                "price_median_4d",
                [1.0, 2.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.5, 6.0, 4.5, 8.0, 5.0],
            ),
            numbers(
                "price_skew_4d",
                [
                    N,
                    N,
                    N,
                    N,
                    N,
                    N,
                    -0.4232731602680063,
                    -1.293342780733396,
                    N,
                    -1.293342780733396,
                    0.9352195295828246,
                    1.457862967321305,
                ],
            ),
            numbers("price_kurtosis_4d", [N, N, N, N, N, N, N, N, N, N, N, N]),
            numbers(
                "price_q25_4d",
                [
                    1.0, 2.0, 1.0, 2.0, 1.5, 2.5, 2.0, 3.75, 5.0, 3.75, 6.0, 4.75,
                ],
            ),
            whole(
                "price_count_4d",
                [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 2.0, 3.0, 3.0, 3.0],
            ),
            numbers(
                "price_first_4d",
                [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 3.0, 4.0, 3.0, 4.0, 4.5],
            ),
            numbers(
                "price_last_4d",
                [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 8.0, 5.0, 16.0, 7.0],
            ),
            whole(
                "price_n_unique_4d",
                [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 2.0, 3.0, 3.0, 3.0],
            ),
        ],
    );
}

#[test]
fn rolling_over_rows() {
    series(
        json!({"rolling": {"columns": ["qty"], "compute": ["mean", "zero_share", "since_nonzero", "slope"], "over": [3], "gaps": "count_rows"}}),
        [
            numbers(
                "qty_mean_3",
                [
                    N,
                    N,
                    N,
                    N,
                    1.0,
                    10.0,
                    2.0,
                    3.0,
                    23.333333333333332,
                    3.0,
                    36.666666666666664,
                    4.0,
                ],
            ),
            numbers(
                "qty_zero_share_3",
                [
                    N,
                    N,
                    N,
                    N,
                    0.3333333333333333,
                    0.3333333333333333,
                    0.3333333333333333,
                    0.3333333333333333,
                    0.3333333333333333,
                    0.3333333333333333,
                    0.3333333333333333,
                    0.3333333333333333,
                ],
            ),
            whole(
                "qty_since_nonzero_3",
                [N, N, N, N, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            ),
            numbers(
                "qty_slope_3",
                [N, N, N, N, -0.5, -5.0, 1.0, 2.5, 15.0, -2.0, 30.0, 1.0],
            ),
        ],
    );
}

#[test]
fn rolling_before_a_gap() {
    series(
        json!({"rolling": {"columns": ["qty"], "compute": ["mean", "slope"], "over": ["3d"], "gap": "1d"}}),
        [
            numbers(
                "qty_mean_3d",
                [N, N, 1.0, 10.0, 1.5, 15.0, 1.0, 2.0, 10.0, 3.0, 25.0, 3.0],
            ),
            numbers(
                "qty_slope_3d",
                [N, N, N, N, 1.0, 10.0, -0.5, 1.0, -20.0, 2.5, 25.0, -2.0],
            ),
        ],
    );
}

#[test]
fn rolling_before_a_gap_of_rows() {
    series(
        json!({"rolling": {"columns": ["qty"], "compute": ["sum"], "over": [2], "gap": 1, "min_periods": 1, "gaps": "count_rows"}}),
        [numbers(
            "qty_sum_2",
            [N, N, 1.0, 10.0, 3.0, 30.0, 2.0, 4.0, 20.0, 9.0, 50.0, 5.0],
        )],
    );
}

#[test]
fn expanding_so_far() {
    series(
        json!({"expanding": {"columns": ["price"], "compute": ["mean", "std", "count", {"quantile": 0.5}]}}),
        [
            numbers(
                "price_expanding_mean",
                [
                    1.0,
                    2.0,
                    1.0,
                    2.0,
                    2.0,
                    3.0,
                    2.8333333333333335,
                    3.375,
                    4.666666666666667,
                    3.375,
                    7.5,
                    4.1,
                ],
            ),
            numbers(
                "price_expanding_std",
                [
                    N,
                    N,
                    N,
                    N,
                    SQRT_2,
                    SQRT_2,
                    1.755942292142123,
                    1.796988221070652,
                    3.055050463303893,
                    1.796988221070652,
                    6.191391873668904,
                    2.247220505424423,
                ],
            ),
            whole(
                "price_expanding_count",
                [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 3.0, 4.0, 4.0, 5.0],
            ),
            numbers(
                "price_expanding_q50",
                [1.0, 2.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.75, 4.0, 3.75, 6.0, 4.5],
            ),
        ],
    );
}

#[test]
fn expanding_before_a_gap() {
    series(
        json!({"expanding": {"columns": ["qty"], "compute": ["sum", "max"], "gap": "2d", "min_periods": 2}}),
        [
            numbers(
                "qty_expanding_sum",
                [N, N, N, N, N, N, 3.0, 3.0, 30.0, 7.0, 30.0, 12.0],
            ),
            numbers(
                "qty_expanding_max",
                [N, N, N, N, N, N, 2.0, 2.0, 20.0, 4.0, 20.0, 5.0],
            ),
        ],
    );
}

#[test]
fn ewm_by_alpha() {
    series(
        json!({"ewm": {"columns": ["price"], "compute": ["mean", "std", "var"], "alpha": 0.3, "gaps": "count_rows"}}),
        [
            numbers(
                "price_ewm_mean_alpha0.3",
                [
                    1.0,
                    2.0,
                    1.0,
                    2.0,
                    2.3422818791946307,
                    3.3422818791946307,
                    3.3984336759667153,
                    4.0574873461997445,
                    5.622124326970142,
                    4.0574873461997445,
                    9.892679313608493,
                    5.400641059290681,
                ],
            ),
            numbers(
                "price_ewm_std_alpha0.3",
                [
                    N,
                    N,
                    N,
                    N,
                    SQRT_2,
                    SQRT_2,
                    1.620290397146651,
                    1.501061560033024,
                    3.0903824554052344,
                    1.5010615600330242,
                    6.5085599632312015,
                    2.0676757512637547,
                ],
            ),
            numbers(
                "price_ewm_var_alpha0.3",
                [
                    N,
                    N,
                    N,
                    N,
                    1.9999999999999998,
                    1.9999999999999998,
                    2.6253409710856515,
                    2.2531858070087756,
                    9.550463720676484,
                    2.253185807008776,
                    42.36135279497614,
                    4.275283012364132,
                ],
            ),
        ],
    );
}

#[test]
fn ewm_without_adjustment() {
    series(
        json!({"ewm": {"columns": ["price"], "compute": ["mean"], "span": 3, "adjust": false, "ignore_na": true, "gaps": "count_rows"}}),
        [numbers(
            "price_ewm_mean_span3",
            [
                1.0, 2.0, 1.0, 2.0, 2.0, 3.0, 3.25, 4.125, 5.5, 4.125, 10.75, 5.5625,
            ],
        )],
    );
}

#[test]
fn ewm_as_mlforecast() {
    // exponentially_weighted_mean(x, 0.5) of coreforecast 0.0.20, which mlforecast's ExponentiallyWeightedMean calls.
    let rows = || {
        vec![
            col("day", Date32Array::from(vec![1, 2, 3, 4])),
            numbers("x", [1.0, 2.0, 4.0, 8.0]),
        ]
    };
    let mut expected = rows();
    expected.push(numbers("x_ewm_mean_alpha0.5", [1.0, 1.5, 2.75, 5.375]));
    check(
        json!({"ewm": {
            "columns": ["x"],
            "compute": ["mean"],
            "alpha": 0.5,
            "adjust": false,
            "time": "day",
            "keys": [],
            "gaps": "count_rows",
        }}),
        rows(),
        expected,
    );
}

#[test]
fn ewm_by_time() {
    series(
        json!({"ewm": {"columns": ["price"], "compute": ["mean"], "half_life": "2d"}}),
        [numbers(
            "price_ewm_mean_half_life2d",
            [
                1.0,
                2.0,
                1.0,
                2.0,
                2.3333333333333335,
                3.3333333333333335,
                3.384776310850236,
                4.042144440520923,
                6.0,
                4.042144440520923,
                10.469399850850976,
                5.36939806251813,
            ],
        )],
    );
}

#[test]
fn ewm_before_a_gap() {
    series(
        json!({"ewm": {"columns": ["qty"], "compute": ["mean"], "alpha": 0.5, "gap": 1, "gaps": "count_rows"}}),
        [numbers(
            "qty_ewm_mean_alpha0.5",
            [
                N,
                N,
                1.0,
                10.0,
                1.6666666666666667,
                16.666666666666668,
                0.7142857142857143,
                2.466666666666667,
                7.142857142857143,
                3.774193548387097,
                30.0,
                1.8571428571428572,
            ],
        )],
    );
}

#[test]
fn seasons_of_rows() {
    series(
        json!({"seasonal_rolling": {"columns": ["qty"], "compute": ["mean", "count"], "season": 2, "over": [2], "gap": 1, "gaps": "count_rows"}}),
        [
            numbers(
                "qty_seasonal_mean_2x2",
                [N, N, N, N, N, N, 0.5, 3.0, 5.0, 2.5, 35.0, 2.0],
            ),
            whole(
                "qty_seasonal_count_2x2",
                [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
            ),
        ],
    );
}

#[test]
fn seasons_of_time() {
    series(
        json!({"seasonal_rolling": {"columns": ["qty"], "compute": ["mean"], "season": "2d", "over": [3], "gap": "1d"}}),
        [numbers(
            "qty_seasonal_mean_2dx3",
            [N, N, 1.0, 10.0, 2.0, 20.0, 0.5, 3.0, 20.0, 2.0, 20.0, 2.0],
        )],
    );
}

#[test]
fn index_of_a_slot() {
    series(
        json!({"seasonal_index": {"columns": ["qty"], "period": {"expression": "CAST(day AS INT) % 2"}, "gap": "1d"}}),
        [numbers(
            "qty_seasonal_index",
            [
                N,
                N,
                N,
                N,
                0.6666666666666666,
                0.6666666666666666,
                2.0,
                0.2857142857142857,
                0.5,
                1.25,
                1.0,
                1.0,
            ],
        )],
    );
}

#[test]
fn index_shrunk_to_one() {
    series(
        json!({"seasonal_index": {"columns": ["qty"], "period": {"expression": "CAST(day AS INT) % 2"}, "gap": "1d", "shrink": {"strength": 2}}}),
        [numbers(
            "qty_seasonal_index",
            [
                1.0,
                1.0,
                1.0,
                1.0,
                0.8888888888888888,
                0.8888888888888888,
                1.3333333333333333,
                0.6428571428571428,
                0.75,
                1.125,
                1.0,
                1.0,
            ],
        )],
    );
}

#[test]
fn index_shrunk_to_all_series() {
    series(
        json!({"seasonal_index": {"columns": ["qty"], "period": {"expression": "CASE WHEN CAST(day AS INT) % 2 = 0 THEN 'even' ELSE 'odd' END"}, "gap": "1d", "shrink": {"strength": 2, "parent": []}}}),
        [numbers(
            "qty_seasonal_index",
            [
                1.0,
                1.0,
                1.0,
                1.0,
                0.6666666666666666,
                0.6666666666666666,
                2.0,
                0.402992277992278,
                0.5101351351351351,
                1.0489130434782608,
                0.8985507246376812,
                0.9184210526315789,
            ],
        )],
    );
}

#[test]
fn fill_forward_keeps_the_type() {
    series(
        json!({"fill_forward": {"columns": ["price"], "suffix": "_filled"}}),
        [numbers(
            "price_filled",
            [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 8.0, 5.0, 16.0, 7.0],
        )],
    );
}

#[test]
fn interpolate_between() {
    series(
        json!({"interpolate": {"columns": ["price"], "suffix": "_line"}}),
        [numbers(
            "price_line",
            [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.5, 5.0, 8.0, 6.0, 16.0, 7.0],
        )],
    );
}

#[test]
fn copies_are_exact() {
    let large = 9_007_199_254_740_993i64;
    let times =
        |values: Vec<Option<i64>>| TimestampMicrosecondArray::from(values).with_timezone("UTC");
    let input = || {
        vec![
            col("t", Int64Array::from(vec![1, 2, 3])),
            col(
                "n",
                Int64Array::from(vec![Some(large), None, Some(large + 2)]),
            ),
            col("u", UInt64Array::from(vec![u64::MAX, u64::MAX - 1, 1])),
            col("at", times(vec![Some(large), Some(1), None])),
            col("day", Date32Array::from(vec![1, 2, 3])),
            col(
                "flag",
                BooleanArray::from(vec![Some(true), Some(false), None]),
            ),
            col("small", UInt8Array::from(vec![255, 0, 1])),
            col(
                "float",
                Float32Array::from(vec![0.1, f32::INFINITY, f32::NAN]),
            ),
        ]
    };
    let with = |more: NamedColumns| input().into_iter().chain(more).collect::<NamedColumns>();
    let common = json!({"time": "t", "keys": [], "gaps": "count_rows"});
    let step = |kind: &str, mut config: Value| {
        common
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| config[key] = value.clone());
        json!({ kind: config })
    };
    check(
        step(
            "lag",
            json!({"columns": ["n", "u", "at", "day", "flag", "small", "float"], "by": [1]}),
        ),
        input(),
        with(vec![
            col("n_lag_1", Int64Array::from(vec![None, Some(large), None])),
            col(
                "u_lag_1",
                UInt64Array::from(vec![None, Some(u64::MAX), Some(u64::MAX - 1)]),
            ),
            col("at_lag_1", times(vec![None, Some(large), Some(1)])),
            col("day_lag_1", Date32Array::from(vec![None, Some(1), Some(2)])),
            col(
                "flag_lag_1",
                BooleanArray::from(vec![None, Some(true), Some(false)]),
            ),
            col(
                "small_lag_1",
                UInt8Array::from(vec![None, Some(255), Some(0)]),
            ),
            col(
                "float_lag_1",
                Float32Array::from(vec![None, Some(0.1), Some(f32::INFINITY)]),
            ),
        ]),
    );
    check(
        step(
            "diff",
            json!({"columns": ["n", "u", "small"], "by": ["2t"]}),
        ),
        input(),
        with(vec![
            whole("n_diff_2t", [N, N, 2.0]),
            col("u_diff_2t", Int64Array::from(vec![None::<i64>, None, None])),
            whole("small_diff_2t", [N, N, -254.0]),
        ]),
    );
    check(
        step(
            "rolling",
            json!({"columns": ["n", "flag"], "compute": ["first", "last", "mean"], "over": ["3t"]}),
        ),
        input(),
        with(vec![
            col("n_first_3t", Int64Array::from(vec![large; 3])),
            col("n_last_3t", Int64Array::from(vec![large, large, large + 2])),
            col(
                "n_mean_3t",
                Float64Array::from(vec![large as f64, large as f64, 9_007_199_254_740_994.0]),
            ),
            col("flag_first_3t", BooleanArray::from(vec![true; 3])),
            col("flag_last_3t", BooleanArray::from(vec![true, false, false])),
            numbers("flag_mean_3t", [1.0, 0.5, 0.5]),
        ]),
    );
    let mut filled = input();
    filled[1].1 = Arc::new(Int64Array::from(vec![large, large, large + 2]));
    filled[3].1 = Arc::new(times(vec![Some(large), Some(1), Some(1)]));
    filled[5].1 = Arc::new(BooleanArray::from(vec![true, false, false]));
    filled[7].1 = Arc::new(Float32Array::from(vec![0.1, f32::INFINITY, f32::INFINITY]));
    check(
        step(
            "fill_forward",
            json!({"columns": ["n", "u", "at", "flag", "small", "float"]}),
        ),
        input(),
        filled,
    );
}

#[test]
fn limits_of_filling() {
    let input = || {
        vec![
            col("t", Int32Array::from(vec![0, 1, 2, 10, 11])),
            numbers("x", [1.0, N, N, 2.0, N]),
        ]
    };
    let with = |x: [f64; 5]| vec![input().remove(0), numbers("x", x)];
    let step = |kind: &str| json!({kind: {"columns": ["x"], "limit": 1, "time": "t", "keys": [], "gaps": "count_rows"}});
    check(step("fill_forward"), input(), with([1.0, 1.0, N, 2.0, 2.0]));
    check(step("interpolate"), input(), with([1.0, 1.1, N, 2.0, N]));
}

#[test]
fn gaps_are_refused_where_declared() {
    let step = |gaps: Value| {
        with_time_and_keys(json!({"lag": {"columns": ["qty"], "by": [1], "gaps": gaps}}))
    };
    check_fault(step(json!({"error": {"every": "1d"}})), rows(), codes::GAP);
    let lag = ints(
        "qty_lag_1",
        [N, N, 1.0, 10.0, 2.0, 20.0, 0.0, 4.0, 0.0, 5.0, 50.0, 0.0],
    );
    check(
        step(json!({"warn": {"every": "1d"}})),
        rows(),
        rows().into_iter().chain([lag]).collect(),
    );
    let input = vec![
        col("day", TimestampSecondArray::from(vec![0, 86_400, 100_000])),
        col("s", StringArray::from(vec!["a", "a", "a"])),
        ints("qty", [1.0, 2.0, 3.0]),
    ];
    check_fault(
        step(json!({"complete": {"every": "1d"}})),
        input,
        codes::GAP,
    );
}

#[test]
fn rows_out_of_order_and_without_time() {
    let input =
        |days: Vec<Option<i32>>| vec![col("day", Date32Array::from(days)), ints("qty", [1.0, 2.0])];
    let step = json!({"lag": {"columns": ["qty"], "by": ["1d"], "time": "day", "keys": []}});
    check_fault(
        step.clone(),
        input(vec![Some(2), Some(1)]),
        codes::OUT_OF_ORDER,
    );
    check_fault(step, input(vec![Some(2), None]), codes::BAD_ROW);
}

#[test]
fn empty_data_and_one_row() {
    for days in [vec![], vec![5]] {
        let nothing = vec![None; days.len()];
        let input = || {
            vec![
                col("day", Date32Array::from(days.clone())),
                col("s", StringArray::from(vec!["a"; days.len()])),
                col("qty", Int32Array::from(vec![3; days.len()])),
            ]
        };
        let step =
            json!({"rolling": {"columns": ["qty"], "compute": ["mean", "std"], "over": ["7d"]}});
        let mean = Float64Array::from(vec![3.0; days.len()]);
        let std = Float64Array::from(nothing);
        let expect = input()
            .into_iter()
            .chain([col("qty_mean_7d", mean), col("qty_std_7d", std)])
            .collect();
        check(with_time_and_keys(step), input(), expect);
    }
}

/// Windows keep 64-bit values as they are, and the bits of one of them for missing ones: it is refused, and not
/// taken for null.
#[test]
fn the_value_whose_bits_stand_for_a_missing_one_is_refused() {
    let table = |x: (String, ArrayRef)| vec![col("day", Date32Array::from(vec![1, 2, 3])), x];
    let least = || {
        table(col(
            "x",
            Int64Array::from(vec![Some(1), None, Some(i64::MIN)]),
        ))
    };
    let half = || table(col("x", UInt64Array::from(vec![1 << 63, 2, 3])));
    for config in [
        json!({"lag": {"columns": ["x"], "by": ["1d"], "time": "day", "keys": []}}),
        json!({"fill_forward": {"columns": ["x"], "time": "day", "keys": []}}),
        json!({"diff": {"columns": ["x"], "by": ["1d"], "time": "day", "keys": []}}),
        json!({"expanding": {"columns": ["x"], "compute": ["first"], "time": "day", "keys": [], "gap": "1d"}}),
    ] {
        let fault = check_fault(config.clone(), least(), codes::BAD_ROW);
        assert!(
            fault.to_string().contains("-9223372036854775808"),
            "{config}: {fault}"
        );
        let fault = check_fault(config.clone(), half(), codes::BAD_ROW);
        assert!(
            fault.to_string().contains("9223372036854775808"),
            "{config}: {fault}"
        );
    }
    // As numbers they are not kept by their bits, and a null's bits do not matter.
    let x = Int64Array::new(
        vec![i64::MIN, 5, 6].into(),
        Some(vec![false, true, true].into()),
    );
    let after = Int64Array::from(vec![None, None, Some(5)]);
    let expect = [table(col("x", x.clone())), vec![col("x_lag_1d", after)]].concat();
    check(
        json!({"lag": {"columns": ["x"], "by": ["1d"], "time": "day", "keys": []}}),
        table(col("x", x)),
        expect,
    );
}
