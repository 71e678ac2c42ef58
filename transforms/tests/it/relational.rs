//! Joins, groups, duplicates.

use crate::harness::*;
use arrow::array::*;
use arrow::datatypes::{DataType, Float64Type};
use forebay_analyze::laws::check_laws;
use forebay_model::codes;
use forebay_transforms::relational::CollectRows;
use serde_json::{Value, json};

fn words(values: &[Option<&str>]) -> StringArray {
    StringArray::from(values.to_vec())
}

fn ints(values: &[Option<i64>]) -> Int64Array {
    Int64Array::from(values.to_vec())
}

fn sales() -> NamedColumns {
    vec![
        col(
            "k",
            words(&[Some("a"), Some("b"), None, Some("z"), Some("a")]),
        ),
        col("q", ints(&[Some(1), Some(2), Some(3), Some(4), Some(5)])),
    ]
}

fn items() -> NamedColumns {
    vec![
        col("key", words(&[Some("b"), None, Some("a")])),
        col(
            "price",
            Float64Array::from(vec![Some(2.5), Some(9.0), None]),
        ),
        col("q", BooleanArray::from(vec![Some(true), None, Some(false)])),
    ]
}

fn join_nodes(step: Value) -> Vec<(&'static str, &'static str, Vec<Value>)> {
    vec![("out", "this", vec![step])]
}

#[test]
fn join_left_and_inner() {
    let prices = || Float64Array::from(vec![None, Some(2.5), None, None, None]);
    let left =
        json!({"join": {"with": "items", "on": ["k"], "right_on": ["key"], "columns": ["price"]}});
    check_nodes(
        join_nodes(left),
        vec![("this", sales()), ("items", items())],
        [sales(), vec![col("price", prices())]].concat(),
    );
    let inner = json!({"join": {
        "with": "items", "on": ["k"], "right_on": ["key"], "how": "inner", "prefix": "item_", "suffix": "!"}});
    check_nodes(
        join_nodes(inner),
        vec![("this", sales()), ("items", items())],
        vec![
            col("k", words(&[Some("a"), Some("b"), Some("a")])),
            col("q", ints(&[Some(1), Some(2), Some(5)])),
            col(
                "item_price!",
                Float64Array::from(vec![None, Some(2.5), None]),
            ),
            col(
                "item_q!",
                BooleanArray::from(vec![Some(false), Some(true), Some(false)]),
            ),
        ],
    );
}

#[test]
fn join_with_a_step_by_two_keys_of_other_widths() {
    let right = vec![
        col("i", Int32Array::from(vec![1, 1, 2])),
        col("d", Date32Array::from(vec![10, 11, 10])),
        col("v", words(&[Some("x"), Some("y"), Some("z")])),
    ];
    check_nodes(
        vec![
            ("dates", "right", vec![json!({"filter": "v <> 'z'"})]),
            (
                "out",
                "this",
                vec![json!({"join": {"with": "dates", "on": ["i", "d"]}})],
            ),
        ],
        vec![
            (
                "this",
                vec![
                    col("i", ints(&[Some(1), Some(2), Some(i64::MAX)])),
                    col("d", Date32Array::from(vec![11, 10, 10])),
                ],
            ),
            ("right", right),
        ],
        vec![
            col("i", ints(&[Some(1), Some(2), Some(i64::MAX)])),
            col("d", Date32Array::from(vec![11, 10, 10])),
            col("v", words(&[Some("y"), None, None])),
        ],
    );
}

/// Zones by two names are one.
#[test]
fn join_by_times_of_zones_with_two_names() {
    for (name, other_name) in [("UTC", "+00:00"), ("US/Eastern", "America/New_York")] {
        let here = TimestampSecondArray::from(vec![5, 6, 7]).with_timezone(name);
        let there = TimestampSecondArray::from(vec![7, 5]).with_timezone(other_name);
        check_nodes(
            join_nodes(json!({"join": {"with": "there", "on": ["t"]}})),
            vec![
                ("this", vec![col("t", here.clone())]),
                (
                    "there",
                    vec![col("t", there), col("v", ints(&[Some(70), Some(50)]))],
                ),
            ],
            vec![col("t", here), col("v", ints(&[Some(50), None, Some(70)]))],
        );
    }
    let berlin = TimestampSecondArray::from(vec![5]).with_timezone("Europe/Berlin");
    let paris = TimestampSecondArray::from(vec![5]).with_timezone("Europe/Paris");
    check_fault_nodes(
        join_nodes(json!({"join": {"with": "there", "on": ["t"], "how": "semi"}})),
        vec![
            ("this", vec![col("t", berlin)]),
            ("there", vec![col("t", paris)]),
        ],
        codes::COLUMN_TYPE,
    );
}

#[test]
fn join_checks_cardinality_and_names() {
    let sources = || vec![("this", sales()), ("items", items())];
    let by = |extra: Value| {
        let mut config =
            json!({"with": "items", "on": ["k"], "right_on": ["key"], "columns": ["price"]});
        config
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        join_nodes(json!({ "join": config }))
    };
    let twice = vec![
        col("key", words(&[Some("b"), Some("b")])),
        col("price", Float64Array::from(vec![1.0, 2.0])),
    ];
    let fault = check_fault_nodes(
        by(json!({})),
        vec![("this", sales()), ("items", twice)],
        codes::CARDINALITY,
    );
    assert_eq!(
        fault.message(),
        "`items` holds the key key = b more than once"
    );
    check_fault_nodes(
        by(json!({"cardinality": "one_to_one"})),
        sources(),
        codes::CARDINALITY,
    );
    check_fault_nodes(
        by(json!({"columns": ["q"]})),
        sources(),
        codes::COLUMN_CLASH,
    );
    check_fault_nodes(by(json!({"with": "item"})), sources(), codes::UNKNOWN_NAME);
    check_fault_nodes(
        by(json!({"right_on": ["q"]})),
        sources(),
        codes::COLUMN_TYPE,
    );
    let fewer = vec![
        col("k", words(&[Some("b"), Some("a")])),
        col("q", ints(&[Some(1), Some(2)])),
    ];
    check_nodes(
        by(json!({"cardinality": "one_to_one"})),
        vec![("this", fewer.clone()), ("items", items())],
        [
            fewer,
            vec![col("price", Float64Array::from(vec![Some(2.5), None]))],
        ]
        .concat(),
    );
}

#[test]
fn collect_keeps_the_laws() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    (0..40).for_each(|i| match i % 3 {
        0 => lists.append_null(),
        _ => lists.append_value((0..i % 4).map(|j| (j > 0).then(|| format!("{i}-{j}")))),
    });
    let text: StringArray = (0..40)
        .map(|i| (i % 5 > 0).then(|| "x".repeat(i)))
        .collect();
    let dictionary = arrow::compute::cast(
        &text,
        &DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
    );
    let numbers: Float64Array = (0..40)
        .map(|i| (i % 7 > 0).then_some(f64::from(i)))
        .collect();
    let flags: BooleanArray = (0..40).map(|i| Some(i % 3 == 0)).collect();
    let columns: NamedColumns = vec![
        col("lists", lists.finish()),
        ("text".into(), dictionary.unwrap()),
        col("numbers", numbers),
        col("flags", flags),
    ];
    let named: Vec<_> = columns
        .iter()
        .map(|(name, column)| (name.clone(), column.data_type().clone()))
        .collect();
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for seed in 0..20 {
        check_laws(
            &CollectRows {
                columns: named.clone(),
            },
            std::slice::from_ref(&batch),
            seed,
        )
        .unwrap();
    }
}

#[test]
fn aggregate_by_keys() {
    let input = vec![
        col(
            "k",
            words(&[Some("b"), Some("a"), Some("b"), None, Some("a"), Some("a")]),
        ),
        col(
            "x",
            Float64Array::from(vec![
                Some(1e16),
                Some(2.0),
                Some(1.0),
                Some(5.0),
                Some(f64::NAN),
                None,
            ]),
        ),
        col(
            "q",
            Int32Array::from(vec![Some(1), Some(2), Some(3), None, Some(5), Some(7)]),
        ),
        col(
            "s",
            words(&[Some("p"), None, Some("q"), None, Some("r"), Some("r")]),
        ),
    ];
    check(
        json!({"aggregate": {"by": ["k"], "compute": {
            "total": {"sum": "x"}, "sum_q": {"sum": "q"}, "mean_q": {"mean": "q"}, "std_q": {"std": "q"},
            "var_x": {"var": "x"}, "rows": {"count": "*"}, "n": {"count": "x"}, "lo": {"min": "x"}, "hi": {"max": "s"},
            "first": {"first": "s"}, "last": {"last": "x"}, "kinds": {"n_unique": "s"}, "about": {"approx_n_unique": "s"},
            "middle": {"median": "q"}, "near": {"quantile": {"column": "q", "q": 0.9}}, "kinds_q": {"n_unique": "q"}}}}),
        input,
        vec![
            col("k", words(&[Some("a"), Some("b"), None])),
            col("total", Float64Array::from(vec![2.0, 1e16, 5.0])),
            col("sum_q", ints(&[Some(14), Some(4), None])),
            col(
                "mean_q",
                Float64Array::from(vec![Some(14.0 / 3.0), Some(2.0), None]),
            ),
            col(
                "std_q",
                Float64Array::from(vec![
                    Some(2.5166114784235836),
                    Some(std::f64::consts::SQRT_2),
                    None,
                ]),
            ),
            col("var_x", Float64Array::from(vec![None, Some(5e31), None])),
            col("rows", ints(&[Some(3), Some(2), Some(1)])),
            col("n", ints(&[Some(1), Some(2), Some(1)])),
            col("lo", Float64Array::from(vec![2.0, 1.0, 5.0])),
            col("hi", words(&[Some("r"), Some("q"), None])),
            col("first", words(&[Some("r"), Some("p"), None])),
            col("last", Float64Array::from(vec![2.0, 1.0, 5.0])),
            col("kinds", ints(&[Some(1), Some(2), Some(0)])),
            col("about", ints(&[Some(1), Some(2), Some(0)])),
            col(
                "middle",
                Float64Array::from(vec![Some(5.0), Some(2.0), None]),
            ),
            col("near", Float64Array::from(vec![Some(6.6), Some(2.8), None])),
            col("kinds_q", ints(&[Some(3), Some(2), Some(0)])),
        ],
    );
}

#[test]
fn aggregate_by_time() {
    // 1970-01-01 was a Thursday; weeks begin on Mondays.
    check(
        json!({"aggregate": {"every": "1w", "time": "d", "compute": {"q": {"sum": "q"}}}}),
        vec![
            col("d", Date32Array::from(vec![0, 3, 4, 10, 11])),
            col("q", Float32Array::from(vec![1., 2., 4., 8., 16.])),
        ],
        vec![
            col("d", Date32Array::from(vec![-3, 4, 11])),
            col("q", Float64Array::from(vec![3.0, 12.0, 16.0])),
        ],
    );
    check(
        json!({"aggregate": {"by": ["k"], "every": "15m", "time": "t", "compute": {"n": {"count": "*"}}}}),
        vec![
            col(
                "t",
                TimestampMillisecondArray::from(vec![Some(899_999), Some(900_000), Some(-1), None]),
            ),
            col("k", BooleanArray::from(vec![true, true, true, true])),
        ],
        vec![
            col("k", BooleanArray::from(vec![true, true, true, true])),
            col(
                "t",
                TimestampMillisecondArray::from(vec![Some(-900_000), Some(0), Some(900_000), None]),
            ),
            col("n", ints(&[Some(1), Some(1), Some(1), Some(1)])),
        ],
    );
    let input = || {
        vec![
            col("d", Date32Array::from(vec![0])),
            col("s", words(&[None])),
        ]
    };
    for bad in [
        json!({"every": "1h", "time": "d"}),
        json!({"every": "1d"}),
        json!({"every": "xd", "time": "d"}),
    ] {
        let mut config = json!({"compute": {"n": {"count": "*"}}});
        config
            .as_object_mut()
            .unwrap()
            .extend(bad.as_object().unwrap().clone());
        check_fault(json!({ "aggregate": config }), input(), codes::BAD_VALUE);
    }
    for bad in [json!({"mean": "s"}), json!({"median": "s"})] {
        check_fault(
            json!({"aggregate": {"compute": {"n": bad}}}),
            input(),
            codes::COLUMN_TYPE,
        );
    }
    let beyond = json!({"quantile": {"column": "d", "q": 1.5}});
    check_fault(
        json!({"aggregate": {"compute": {"n": beyond}}}),
        vec![col("d", ints(&[Some(1)]))],
        codes::BAD_VALUE,
    );
}

/// A column of lists; those of no values are null.
fn lists(values: &[&[&str]]) -> ListArray {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for values in values {
        values
            .iter()
            .for_each(|value| lists.values().append_value(value));
        lists.append(!values.is_empty());
    }
    lists.finish()
}

/// The values of Polars 2.1 (`sort` by time keeping the order of rows, `first`, `last`; `len`, `sort`, `head`; sums of
/// products) and of DuckDB 2.0 (`arg_min`, `list`, `histogram`), which takes any row among those of one time.
#[test]
fn aggregate_by_weight_by_time_and_to_lists() {
    let text =
        |values: [&'static str; 10]| words(&values.map(|value| (value != "-").then_some(value)));
    let nan = f64::NAN;
    let x = vec![0.1, 2.5, 0.3, 99.0, 1e16, nan, 0.7, -4.0, 1.0, 2.5];
    let days = [3, 1, 1, 2, 3, 0, 2, 9, 1, 1];
    let input = || {
        vec![
            col(
                "k",
                text(["b", "a", "b", "a", "b", "a", "b", "-", "b", "a"]),
            ),
            col(
                "x",
                x.iter()
                    .map(|x| (*x != 99.0).then_some(*x))
                    .collect::<Float64Array>(),
            ),
            col(
                "w",
                ints(&[3, 1, 7, 2, 0, 5, 99, 2, 1, -3].map(|w| (w != 99).then_some(w))),
            ),
            col(
                "d",
                days.iter()
                    .map(|day| (*day > 0).then_some(*day))
                    .collect::<Date32Array>(),
            ),
            col(
                "s",
                text(["q", "p", "p", "r", "q", "r", "p", "z", "-", "q"]),
            ),
        ]
    };
    let by = |column: &str, time: &str| json!({"column": column, "time": time});
    check(
        json!({"aggregate": {"by": ["k"], "compute": {
            "mean": {"weighted_mean": {"column": "x", "weight": "w"}},
            "mean_w": {"weighted_mean": {"column": "w", "weight": "x"}},
            "first_x": {"first_by": by("x", "d")}, "last_x": {"last_by": by("x", "d")},
            "first_s": {"first_by": by("s", "d")}, "last_s": {"last_by": by("s", "d")},
            "last_w": {"last_by": by("w", "w")},
            "often": {"top_k": {"column": "s", "k": 2}},
            "most": {"top_k": {"column": "s", "k": 1}},
            "all": {"list": {"column": "s", "limit": 4}},
            "some": {"list": {"column": "s", "limit": 3, "beyond": "truncate"}},
            "none": {"list": {"column": "x", "limit": 1, "beyond": "truncate"}}}}}),
        input(),
        vec![
            col("k", words(&[Some("a"), Some("b"), None])),
            col(
                "mean",
                Float64Array::from(vec![2.5, 0.3090909090909091, -4.0]),
            ),
            col("mean_w", Float64Array::from(vec![-1.0, 3.4e-16, 2.0])),
            col("first_x", Float64Array::from(vec![2.5, 0.3, -4.0])),
            col("last_x", Float64Array::from(vec![2.5, 1e16, -4.0])),
            col("first_s", words(&[Some("p"), Some("p"), Some("z")])),
            col("last_s", words(&[Some("r"), Some("q"), Some("z")])),
            col("last_w", ints(&[Some(5), Some(7), Some(2)])),
            col("often", lists(&[&["r", "p"], &["p", "q"], &["z"]])),
            col("most", lists(&[&["r"], &["p"], &["z"]])),
            col(
                "all",
                lists(&[&["p", "r", "r", "q"], &["q", "p", "q", "p"], &["z"]]),
            ),
            col("some", lists(&[&["p", "r", "r"], &["q", "p", "q"], &["z"]])),
            col(
                "none",
                ListArray::from_iter_primitive::<Float64Type, _, _>([
                    Some(vec![Some(2.5)]),
                    Some(vec![Some(0.1)]),
                    Some(vec![Some(-4.0)]),
                ]),
            ),
        ],
    );
    let fault = check_fault(
        json!({"aggregate": {"by": ["k"], "compute": {"all": {"list": {"column": "s", "limit": 3}}}}}),
        input(),
        codes::BAD_ROW,
    );
    assert_eq!(
        fault.message(),
        "a list of 4 values is longer than `limit: 3`"
    );
    let cases = [
        (
            json!({"weighted_mean": {"column": "s", "weight": "w"}}),
            codes::COLUMN_TYPE,
        ),
        (
            json!({"weighted_mean": {"column": "x", "weight": "s"}}),
            codes::COLUMN_TYPE,
        ),
        (
            json!({"weighted_mean": {"column": "x", "weight": "y"}}),
            codes::UNKNOWN_COLUMN,
        ),
        (
            json!({"first_by": {"column": "x", "time": "s"}}),
            codes::COLUMN_TYPE,
        ),
        (
            json!({"last_by": {"column": "x", "time": "x"}}),
            codes::COLUMN_TYPE,
        ),
        (json!({"top_k": {"column": "s", "k": 0}}), codes::BAD_VALUE),
        (
            json!({"top_k": {"column": "s", "k": 1001}}),
            codes::BAD_VALUE,
        ),
        (
            json!({"list": {"column": "s", "limit": 0}}),
            codes::BAD_VALUE,
        ),
        (
            json!({"list": {"column": "s", "limit": 10001}}),
            codes::BAD_VALUE,
        ),
    ];
    for (bad, code) in cases {
        check_fault(json!({"aggregate": {"compute": {"n": bad}}}), input(), code);
    }
}

#[test]
fn weighted_means_of_what_is_not_finite() {
    let infinity = f64::INFINITY;
    let nan = f64::NAN;
    // Values, weights, the mean: that of numpy.average, but for weights that sum to 0 and sums beyond the greatest double.
    type Case<'c> = (&'c [f64], &'c [f64], Option<f64>);
    let cases: [Case<'_>; 8] = [
        (&[1.0, infinity], &[1.0, 2.0], Some(infinity)),
        (&[1.0, infinity], &[1.0, -2.0], Some(infinity)),
        (&[infinity, -infinity], &[1.0, 1.0], Some(nan)),
        (&[infinity, 1.0], &[0.0, 1.0], Some(nan)),
        (&[1.0, 2.0], &[infinity, 1.0], Some(nan)),
        (&[1.0, 2.0], &[1.0, -1.0], None),
        (&[nan, 3.0], &[1.0, 0.5], Some(3.0)),
        (&[1e308, 1e308], &[10.0, 10.0], Some(1e308)),
    ];
    for (values, weights, mean) in cases {
        check(
            json!({"aggregate": {"compute": {"m": {"weighted_mean": {"column": "x", "weight": "w"}}}}}),
            vec![
                col("x", Float64Array::from(values.to_vec())),
                col("w", Float64Array::from(weights.to_vec())),
            ],
            vec![col("m", Float64Array::from(vec![mean]))],
        );
    }
}

/// numpy 2.4.6, `np.quantile(x, q, weights=w, method="inverted_cdf")` of each key.
#[test]
fn weighted_quantiles_as_numpy() {
    let infinity = f64::INFINITY;
    let nan = f64::NAN;
    // Each row: the key, the value, the weight.
    let rows = [
        ("a", 5.0, Some(2.0)),
        ("b", 10.0, Some(1.0)),
        ("a", 1.0, Some(0.0)),
        ("b", 7.0, Some(2.0)),
        ("a", 2.0, Some(3.0)),
        ("b", nan, Some(9.0)),
        ("b", 8.0, Some(4.0)),
        ("a", 3.0, Some(1.0)),
        ("b", 7.0, Some(1.0)),
        ("b", -3.0, Some(8.0)),
        ("a", 4.0, Some(0.5)),
        ("b", infinity, Some(0.0)),
        ("a", 6.0, Some(1.5)),
        ("a", 99.0, None),
        ("c", 1.0, Some(0.0)),
    ];
    let input = |last_weight: f64| {
        let mut weights: Vec<Option<f64>> = rows.iter().map(|row| row.2).collect();
        weights[14] = Some(last_weight);
        vec![
            col(
                "k",
                rows.iter().map(|row| Some(row.0)).collect::<StringArray>(),
            ),
            col(
                "x",
                rows.iter().map(|row| Some(row.1)).collect::<Float64Array>(),
            ),
            col("w", Float64Array::from(weights)),
        ]
    };
    let quantile = |q: f64| json!({"weighted_quantile": {"column": "x", "weight": "w", "q": q}});
    let step = json!({"aggregate": {"by": ["k"], "compute": {
        "least": quantile(0.0), "quarter": quantile(0.25), "half": quantile(0.5), "above": quantile(0.5625),
        "most": quantile(0.95), "all": quantile(1.0),
        "kinds": {"n_unique": "x"}, "middle": {"median": "x"},
        "mean": {"weighted_mean": {"column": "x", "weight": "w"}}}}});
    check(
        step.clone(),
        input(0.0),
        vec![
            col("k", words(&[Some("a"), Some("b"), Some("c")])),
            col(
                "least",
                Float64Array::from(vec![Some(2.0), Some(-3.0), None]),
            ),
            col(
                "quarter",
                Float64Array::from(vec![Some(2.0), Some(-3.0), None]),
            ),
            col(
                "half",
                Float64Array::from(vec![Some(3.0), Some(-3.0), None]),
            ),
            col(
                "above",
                Float64Array::from(vec![Some(4.0), Some(7.0), None]),
            ),
            col(
                "most",
                Float64Array::from(vec![Some(6.0), Some(10.0), None]),
            ),
            col("all", Float64Array::from(vec![Some(6.0), Some(10.0), None])),
            col("kinds", Int64Array::from(vec![7, 5, 1])),
            col("middle", Float64Array::from(vec![4.0, 7.5, 1.0])),
            col(
                "mean",
                Float64Array::from(vec![Some(3.75), Some(nan), None]),
            ),
        ],
    );
    for weight in [-1.0, infinity, 1e-300] {
        let fault = check_fault(
            json!({"aggregate": {"by": ["k"], "compute": {"half": quantile(0.5)}}}),
            input(weight),
            codes::BAD_ROW,
        );
        assert_eq!(fault.site().column.as_deref(), Some("w"), "{fault}");
    }
    for (bad, code) in [
        (quantile(1.5), codes::BAD_VALUE),
        (
            json!({"weighted_quantile": {"column": "x", "weight": "k", "q": 0.5}}),
            codes::COLUMN_TYPE,
        ),
        (
            json!({"weighted_quantile": {"column": "k", "weight": "w", "q": 0.5}}),
            codes::COLUMN_TYPE,
        ),
    ] {
        check_fault(
            json!({"aggregate": {"compute": {"n": bad}}}),
            input(0.0),
            code,
        );
    }
}

#[test]
fn aggregate_of_everything_and_nothing() {
    let compute = json!({"aggregate": {"compute": {"n": {"count": "*"}, "x": {"mean": "x"}, "s": {"sum": "i"}}}});
    check(
        compute,
        vec![
            col("x", Float64Array::from(Vec::<f64>::new())),
            col("i", Int64Array::from(Vec::<i64>::new())),
        ],
        vec![
            col("n", ints(&[Some(0)])),
            col("x", Float64Array::from(vec![None])),
            col("s", ints(&[None])),
        ],
    );
    check_fault(
        json!({"aggregate": {"compute": {"s": {"sum": "i"}}}}),
        vec![col("i", Int64Array::from(vec![i64::MAX, 1]))],
        codes::BAD_ROW,
    );
}

#[test]
fn dedupe_keeps_first_or_last() {
    let input = || {
        vec![
            col(
                "k",
                words(&[Some("b"), Some("a"), Some("b"), None, Some("a"), None]),
            ),
            col(
                "x",
                ints(&[Some(1), Some(2), None, Some(4), Some(5), Some(6)]),
            ),
        ]
    };
    check(
        json!({"dedupe": {"keys": ["k"]}}),
        input(),
        vec![
            col("k", words(&[Some("b"), Some("a"), None])),
            col("x", ints(&[Some(1), Some(2), Some(4)])),
        ],
    );
    check(
        json!({"dedupe": {"keys": ["k"], "keep": "last"}}),
        input(),
        vec![
            col("k", words(&[Some("b"), Some("a"), None])),
            col("x", ints(&[None, Some(5), Some(6)])),
        ],
    );
    check(json!({"dedupe": {}}), input(), input());
    // Equal rows, also those of the two zeros.
    for zero in [0.0, -0.0] {
        let numbers = vec![1.5, 2.5, 1.5, zero, -zero, 2.5];
        check(
            json!({"dedupe": {}}),
            vec![
                col(
                    "k",
                    words(&[Some("b"), Some("a"), Some("b"), None, None, Some("a")]),
                ),
                col("x", Float64Array::from(numbers)),
            ],
            vec![
                col("k", words(&[Some("b"), Some("a"), None])),
                col("x", Float64Array::from(vec![1.5, 2.5, zero])),
            ],
        );
    }
    let numbers = || ints(&[Some(7), None, Some(7), Some(-1), None, Some(-1)]);
    check(
        json!({"dedupe": {}}),
        vec![col("n", numbers()), col("m", numbers())],
        vec![
            col("n", ints(&[Some(7), None, Some(-1)])),
            col("m", ints(&[Some(7), None, Some(-1)])),
        ],
    );
    check_fault(
        json!({"dedupe": {"keys": ["y"]}}),
        input(),
        codes::UNKNOWN_COLUMN,
    );
}

#[test]
fn sums_and_means_of_decimals_are_decimals() {
    let decimals = |values: Vec<Option<i128>>, precision, scale| {
        Decimal128Array::from(values)
            .with_precision_and_scale(precision, scale)
            .unwrap()
    };
    let large = 12_345_678_901_234_567_890_123_456_789_012;
    let input = || {
        vec![
            col(
                "k",
                words(&[Some("a"), Some("a"), Some("b"), Some("b"), Some("c")]),
            ),
            col(
                "x",
                decimals(vec![Some(large), Some(1), Some(-1), Some(-2), None], 38, 2),
            ),
        ]
    };
    check(
        json!({"aggregate": {"by": ["k"], "compute": {"s": {"sum": "x"}, "m": {"mean": "x"}}}}),
        input(),
        vec![
            col("k", words(&[Some("a"), Some("b"), Some("c")])),
            col("s", decimals(vec![Some(large + 1), Some(-3), None], 38, 2)),
            col(
                "m",
                decimals(vec![Some((large + 1) * 5_000), Some(-15_000), None], 38, 6),
            ),
        ],
    );
    let most = 10i128.pow(38) - 1;
    check_fault(
        json!({"aggregate": {"compute": {"s": {"sum": "x"}}}}),
        vec![col("x", decimals(vec![Some(most), Some(1)], 38, 0))],
        codes::BAD_ROW,
    );
}
