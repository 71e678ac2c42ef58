//! Rows, columns and types.

use std::collections::BTreeSet;

use crate::harness::*;
use arrow::array::*;
use forebay_model::{Step, codes};
use forebay_plan::{FutureRowsFacts, LearningFilter, StepChange, StepFacts};
use serde_json::{Value, json};

fn words(values: &[Option<&str>]) -> StringArray {
    StringArray::from(values.to_vec())
}

/// Rows with keys, one of them null, and labels.
fn keyed_rows() -> NamedColumns {
    let keys = [Some("a"), Some("b"), Some("d"), None, Some("a"), Some("b")];
    vec![
        col("k", words(&keys)),
        col("clicked", Int64Array::from(vec![0, 0, 1, 0, 1, 1])),
    ]
}

#[test]
fn samples_keep_keys_as_a_whole() {
    // Places of the hash with the seed 0: a 0.18, b 0.62, d 0.39, null 0.51; with 1: a 0.06, b 0.38, d 0.61, null 0.78.
    check(
        json!({"sample": {"share": 0.5, "by": ["k"]}}),
        keyed_rows(),
        vec![
            col("k", words(&[Some("a"), Some("d"), Some("a")])),
            col("clicked", Int64Array::from(vec![0, 1, 1])),
        ],
    );
    check(
        json!({"sample": {"share": 0.25, "by": ["k"], "seed": 1, "of": "clicked = 0", "weight": "w"}}),
        keyed_rows(),
        vec![
            col("k", words(&[Some("a"), Some("d"), Some("a"), Some("b")])),
            col("clicked", Int64Array::from(vec![0, 1, 1, 1])),
            col("w", Float64Array::from(vec![4.0, 1.0, 1.0, 1.0])),
        ],
    );
    // Weights may replace the column of the condition.
    check(
        json!({"sample": {
            "share": 0.25, "by": ["k"], "seed": 1, "of": "clicked = 0", "weight": "clicked",
        }}),
        keyed_rows(),
        vec![
            col("k", words(&[Some("a"), Some("d"), Some("a"), Some("b")])),
            col("clicked", Float64Array::from(vec![4.0, 1.0, 1.0, 1.0])),
        ],
    );
    // All rows pass, with the weight 1.
    let mut weighted = keyed_rows();
    weighted.push(col("w", Float64Array::from(vec![1.0; 6])));
    check(
        json!({"sample": {"share": 1.0, "by": ["k"], "weight": "w"}}),
        keyed_rows(),
        weighted,
    );
    for (settings, code) in [
        (json!({"share": 0.0, "by": ["k"]}), codes::BAD_VALUE),
        (json!({"share": 1.5, "by": ["k"]}), codes::BAD_VALUE),
        (json!({"share": 0.5}), codes::MISSING_FIELD),
        (json!({"share": 0.5, "by": ["key"]}), codes::UNKNOWN_COLUMN),
    ] {
        check_fault(json!({ "sample": settings }), keyed_rows(), code);
    }
}

#[test]
fn filter_keeps_true_only() {
    let input = || {
        vec![
            col(
                "x",
                Float64Array::from(vec![
                    Some(1.0),
                    None,
                    Some(f64::NAN),
                    Some(-1.0),
                    Some(f64::INFINITY),
                ]),
            ),
            col(
                "s",
                words(&[Some("a"), Some("b"), None, Some(""), Some("a")]),
            ),
        ]
    };
    check(
        json!({"filter": "x > 0 AND s = 'a'"}),
        input(),
        vec![
            col("x", Float64Array::from(vec![1.0, f64::INFINITY])),
            col("s", words(&[Some("a"), Some("a")])),
        ],
    );
    check(
        json!({"filter": "x > 1e300"}),
        vec![col("x", Float64Array::from(Vec::<f64>::new()))],
        vec![col("x", Float64Array::from(Vec::<f64>::new()))],
    );
    check_fault(json!({"filter": "x + 1"}), input(), codes::EXPRESSION);
    check_fault(json!({"filter": "y > 1"}), input(), codes::UNKNOWN_COLUMN);
}

#[test]
fn derive_sees_earlier_columns_and_replaces_its_own() {
    let input = || vec![col("q", Int64Array::from(vec![Some(1), None, Some(3)]))];
    check(
        json!({"derive": {"z": "q * 2", "a": "z + q", "q": "coalesce(q, 0)"}}),
        input(),
        vec![
            col("q", Int64Array::from(vec![1, 0, 3])),
            col("z", Int64Array::from(vec![Some(2), None, Some(6)])),
            col("a", Int64Array::from(vec![Some(3), None, Some(9)])),
        ],
    );
    check_fault(json!({"derive": {"q": "1"}}), input(), codes::COLUMN_CLASH);
    let fault = check_fault(
        json!({"derive": {"a": "w", "b": "lgo(q)"}}),
        input(),
        codes::UNKNOWN_COLUMN,
    );
    assert_eq!(fault.others().len(), 1);
}

#[test]
fn columns_are_selected_dropped_and_renamed() {
    let a = || Int32Array::from(vec![1]);
    let b = || Int32Array::from(vec![2]);
    let c = || Float32Array::from(vec![3.0]);
    let input = || vec![col("a", a()), col("b", b()), col("c", c())];
    check(
        json!({"select": ["type:float", "a"]}),
        input(),
        vec![col("c", c()), col("a", a())],
    );
    check(
        json!({"drop": ["type:integer"]}),
        input(),
        vec![col("c", c())],
    );
    check(
        json!({"rename": {"a": "b", "b": "a"}}),
        input(),
        vec![col("b", a()), col("a", b()), col("c", c())],
    );
    check_fault(json!({"drop": ["*"]}), input(), codes::BAD_VALUE);
    check_fault(json!({"rename": {"a": "c"}}), input(), codes::COLUMN_CLASH);
    check_fault(
        json!({"rename": {"d": "e"}}),
        input(),
        codes::UNKNOWN_COLUMN,
    );
}

#[test]
fn cast_faults_or_gives_null() {
    let texts = || vec![col("s", words(&[Some("12"), None, Some("x")]))];
    check(
        json!({"cast": {"columns": {"s": "int32"}, "on_error": "missing"}}),
        texts(),
        vec![col("s", Int32Array::from(vec![Some(12), None, None]))],
    );
    let fault = check_fault(
        json!({"cast": {"columns": {"s": "int32"}}}),
        texts(),
        codes::BAD_ROW,
    );
    assert_eq!(fault.message(), "`s` holds `x`, which is not int32");
    let numbers = || {
        vec![col(
            "x",
            Float64Array::from(vec![Some(1.9), Some(-1.9), None]),
        )]
    };
    check(
        json!({"cast": {"columns": {"x": "int8"}}}),
        numbers(),
        vec![col("x", Int8Array::from(vec![Some(1), Some(-1), None]))],
    );
    for bad in [300.0, f64::NAN, f64::INFINITY] {
        let input = vec![col("x", Float64Array::from(vec![bad]))];
        check_fault(
            json!({"cast": {"columns": {"type:float": "int8"}}}),
            input,
            codes::BAD_ROW,
        );
    }
    check(
        json!({"cast": {"columns": {"s": "date"}}}),
        vec![col("s", words(&[Some("2016-05-22"), None]))],
        vec![col("s", Date32Array::from(vec![Some(16943), None]))],
    );
    check(
        json!({"cast": {"columns": {"s": "timestamp"}}}),
        vec![col("s", words(&[Some("1970-01-01T00:00:01")]))],
        vec![col("s", TimestampMicrosecondArray::from(vec![1_000_000]))],
    );
}

/// Texts that a type does not take, and one that it does.
#[test]
fn cast_reads_texts_by_the_grammar_of_files() {
    let cases = [
        ("boolean", "true", vec!["yes", "t", "1", "on"]),
        ("float64", "1e300", vec!["1e400", "-1e400", "1,5"]),
        ("float32", "1.5", vec!["1e39"]),
        ("int64", "00742", vec!["7.5", " 7", "0x1F"]),
        (
            "date",
            "2024-02-29",
            vec!["2024-02-29T12:00:00", "2023-02-29"],
        ),
        (
            "timestamp",
            "2024-02-29T12:00:00.123456",
            vec!["2024-02-29T12:00:00.1234567", "2024-02-29T25:00:00"],
        ),
        (
            "timestamp_ns",
            "2024-02-29T12:00:00.123456789",
            vec!["9999-12-31"],
        ),
        ("timestamp_utc", "2024-02-29T12:00:00+02:00", vec!["12:00"]),
    ];
    for (of, good, bad) in cases {
        let input = |text: &str| vec![col("s", words(&[Some(text)]))];
        let step = json!({"cast": {"columns": {"s": of}}});
        for text in bad {
            let fault = check_fault(step.clone(), input(text), codes::BAD_ROW);
            assert!(fault.message().contains(text), "{}", fault.message());
        }
        let steps = vec![
            step,
            json!({"filter": "s IS NOT NULL"}),
            json!({"select": ["n"]}),
        ];
        let mut input = input(good);
        input.push(col("n", Int32Array::from(vec![1])));
        check_steps(steps, input, vec![col("n", Int32Array::from(vec![1]))]);
    }
}

#[test]
fn cast_cuts_no_digits_off_times() {
    let times = || vec![col("t", TimestampNanosecondArray::from(vec![1_000, 1_001]))];
    let fault = check_fault(
        json!({"cast": {"columns": {"t": "timestamp"}}}),
        times(),
        codes::BAD_ROW,
    );
    assert!(fault.message().contains("digits"), "{}", fault.message());
    check(
        json!({"cast": {"columns": {"t": "timestamp"}, "on_error": "missing"}}),
        times(),
        vec![col(
            "t",
            TimestampMicrosecondArray::from(vec![Some(1), None]),
        )],
    );
    check_fault(
        json!({"cast": {"columns": {"d": "timestamp_ns"}}}),
        vec![col("d", Date32Array::from(vec![2_932_896]))],
        codes::BAD_ROW,
    );
}

#[test]
fn parts_of_times_beyond_the_calendar_are_refused() {
    for step in [
        json!({"date_parts": {"columns": ["t"], "parts": ["year"]}}),
        json!({"date_parts": {"columns": ["t"], "parts": ["hour"], "cyclic": true}}),
        json!({"calendar": {"columns": ["t"], "parts": ["is_month_end"]}}),
        json!({"calendar": {"columns": ["t"], "fourier": [{"period": "7d", "order": 1}]}}),
        json!({"derive": {"z": "date_part('month', t)"}}),
        json!({"derive": {"z": "extract(dow FROM t)"}}),
    ] {
        let times = TimestampMicrosecondArray::from(vec![Some(0), None, Some(i64::MAX)]);
        check_fault(step, vec![col("t", times)], codes::BAD_ROW);
    }
    let days = Date32Array::from(vec![0, i32::MAX]);
    let step = json!({"date_parts": {"columns": ["d"], "parts": ["year"]}});
    let fault = check_fault(step, vec![col("d", days)], codes::BAD_ROW);
    assert_eq!(fault.site().column.as_deref(), Some("d"));
}

#[test]
fn cast_makes_no_infinity() {
    let doubles = || {
        let values = vec![Some(1e300), None, Some(f64::NEG_INFINITY), Some(0.5)];
        vec![col("x", Float64Array::from(values))]
    };
    let fault = check_fault(
        json!({"cast": {"columns": {"x": "float32"}}}),
        doubles(),
        codes::BAD_ROW,
    );
    assert!(fault.message().contains("`1e300`"), "{}", fault.message());
    let floats = vec![None, None, Some(f32::NEG_INFINITY), Some(0.5)];
    check(
        json!({"cast": {"columns": {"x": "float32"}, "on_error": "missing"}}),
        doubles(),
        vec![col("x", Float32Array::from(floats))],
    );
}

#[test]
fn every_transform_has_a_described_schema() {
    for kind in forebay_transforms::registry().kinds() {
        let mut generator = schemars::SchemaGenerator::default();
        (kind.schema)(&mut generator);
        let text = serde_json::to_string(&generator.take_definitions(true)).unwrap();
        assert!(
            text.contains("description"),
            "`{}` has no description",
            kind.name
        );
    }
}

#[test]
fn steps_state_the_facts_that_others_read() {
    let joined = StepFacts {
        other_input: Some("stores".to_owned()),
        ..StepFacts::default()
    };
    let future_rows = |every: Option<&str>, time: Option<&str>| StepFacts {
        future_rows: Some(FutureRowsFacts {
            horizon: Some("28d".to_owned()),
            every: every.map(str::to_owned),
            time: time.map(str::to_owned),
            keys: None,
        }),
        ..StepFacts::default()
    };
    let stable = StepFacts {
        has_stable_ids: true,
        ..StepFacts::default()
    };
    let learning = |filter: LearningFilter| StepFacts {
        learning_filter: Some(filter),
        ..StepFacts::default()
    };
    let calling = StepFacts {
        calls_function: true,
        ..StepFacts::default()
    };
    let cases = [
        (
            "join",
            json!({"with": "stores", "on": ["store"]}),
            joined.clone(),
        ),
        (
            "as_of_join",
            json!({"with": "stores", "on": ["store"]}),
            joined,
        ),
        (
            "future_rows",
            json!({"horizon": "28d", "every": "1d"}),
            future_rows(Some("1d"), None),
        ),
        (
            "future_rows",
            json!({"horizon": "28d", "every": 1, "time": "day"}),
            future_rows(None, Some("day")),
        ),
        (
            "vocabulary",
            json!({"columns": ["item"], "stable": true}),
            stable,
        ),
        (
            "vocabulary",
            json!({"columns": ["item"]}),
            StepFacts::default(),
        ),
        (
            "impute",
            json!({"columns": ["x"], "with": "median"}),
            StepFacts::default(),
        ),
        ("filter", json!("x > 0"), StepFacts::default()),
        (
            "filter",
            json!({"sql": "x > 0", "when": "learning"}),
            learning(LearningFilter::RowsOnly),
        ),
        (
            "sample",
            json!({"share": 0.5, "by": ["x"]}),
            learning(LearningFilter::RowsOnly),
        ),
        (
            "sample",
            json!({"share": 0.5, "by": ["x"], "weight": "w"}),
            learning(LearningFilter::WithColumns),
        ),
        (
            "sample",
            json!({"share": 0.5, "by": ["x"], "weight": "w", "when": "always"}),
            StepFacts::default(),
        ),
        (
            "command",
            json!({"run": ["cat"], "columns": ["x"], "returns": {"x": "int32"}}),
            calling.clone(),
        ),
        (
            "python",
            json!({"function": "f:g", "columns": ["x"], "returns": {"x": "int32"}}),
            calling,
        ),
    ];
    let registry = forebay_transforms::registry();
    for (kind, config, expected) in cases {
        let step = Step {
            kind: kind.to_owned(),
            config,
            at: None,
        };
        assert_eq!(registry.facts(&step).unwrap(), expected, "{step:?}");
    }
}

/// A change concerns some kinds of steps and their settings, and leaves all others as they are written.
#[test]
fn steps_change_their_own_settings() {
    let rules = BTreeSet::from(["not_null(y)".to_owned()]);
    let all = StepChange::PassScoredRows { from: None };
    let scored_rows_change = StepChange::PassScoredRows {
        from: Some("2024-01-01"),
    };
    let all_rules = StepChange::PassRules {
        rules: &rules,
        from: None,
    };
    let later_rules = StepChange::PassRules {
        rules: &rules,
        from: Some("2024-01-01"),
    };
    let changes = [
        all,
        scored_rows_change,
        all_rules,
        later_rules,
        StepChange::WarnOnly,
        StepChange::BatchRows(7),
    ];
    let filter = json!({"sql": "x > 0", "when": "learning"});
    let sample = json!({"share": 0.5, "by": ["x"]});
    let expect = json!([
        {"not_null": ["x"], "policy": "fail"},
        {"not_null": ["y"], "policy": "quarantine"},
        {"not_null": ["z"], "policy": "warn"},
    ]);
    let command = json!({"run": ["cat"], "columns": ["x"], "returns": {"x": "int32"}});
    let cases = [
        ("filter", json!("x > 0"), vec![]),
        ("filter", json!({"sql": "x > 0", "when": "always"}), vec![]),
        (
            "filter",
            filter,
            vec![
                (0, "/sql", json!("TRUE")),
                (1, "/history_until", json!("2024-01-01")),
            ],
        ),
        (
            "sample",
            json!({"share": 0.5, "by": ["x"], "when": "always"}),
            vec![],
        ),
        (
            "sample",
            sample,
            vec![
                (0, "/share", json!(1.0)),
                (1, "/history_until", json!("2024-01-01")),
            ],
        ),
        (
            "expect",
            expect,
            vec![
                (2, "/1/of_labels", json!(["not_null(y)"])),
                (2, "/1/history_until", json!(null)),
                (3, "/1/of_labels", json!(["not_null(y)"])),
                (3, "/1/history_until", json!("2024-01-01")),
                (4, "/0/policy", json!("warn")),
            ],
        ),
        ("command", command, vec![(5, "/batch_rows", json!(7))]),
        ("select", json!(["x"]), vec![]),
    ];
    let registry = forebay_transforms::registry();
    for (kind, config, settings) in cases {
        for (number, change) in changes.iter().enumerate() {
            let mut expected = config.clone();
            for (of_change, setting, value) in &settings {
                if *of_change == number {
                    set(&mut expected, setting, value);
                }
            }
            let mut step = Step {
                kind: kind.to_owned(),
                config: config.clone(),
                at: None,
            };
            registry.change(&mut step, change).unwrap();
            assert_eq!(step.config, expected, "{kind} after {change:?}");
        }
    }
}

/// Sets a value by the path of a setting, such as `/0/policy`.
fn set(config: &mut Value, path: &str, value: &Value) {
    let (parent, name) = path.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap()[name] = value.clone();
}

#[test]
fn explode_repeats_the_others() {
    let lists = || {
        let mut lists = ListBuilder::new(Int32Builder::new());
        lists.append_value([Some(1), None]);
        lists.append_null();
        lists.append_value([] as [Option<i32>; 0]);
        lists.append_value([Some(4)]);
        lists.finish()
    };
    let input = || {
        vec![
            col("l", lists()),
            col("s", words(&[Some("a"), Some("b"), Some("c"), None])),
        ]
    };
    check(
        json!({"explode": {"column": "l"}}),
        input(),
        vec![
            col("l", Int32Array::from(vec![Some(1), None, Some(4)])),
            col("s", words(&[Some("a"), Some("a"), None])),
        ],
    );
    check(
        json!({"explode": {"column": "l", "keep_empty": true}}),
        input(),
        vec![
            col(
                "l",
                Int32Array::from(vec![Some(1), None, None, None, Some(4)]),
            ),
            col(
                "s",
                words(&[Some("a"), Some("a"), Some("b"), Some("c"), None]),
            ),
        ],
    );
    check_fault(
        json!({"explode": {"column": "s"}}),
        input(),
        codes::COLUMN_TYPE,
    );
}

#[test]
fn date_parts_of_the_calendar() {
    // 2016-05-22 was a Sunday in ISO week 20; 1970-01-01 a Thursday; 2021-01-01 a Friday in week 53.
    let days = || Date32Array::from(vec![Some(16943), Some(0), None, Some(18628)]);
    let ints = |name: &str, a, b, d| {
        col(
            name,
            Int32Array::from(vec![Some(a), Some(b), None, Some(d)]),
        )
    };
    check(
        json!({"date_parts": {"columns": ["d"], "parts": [
            "year", "quarter", "month", "week", "day", "day_of_week", "day_of_year", "is_weekend"]}}),
        vec![col("d", days())],
        vec![
            col("d", days()),
            ints("d_year", 2016, 1970, 2021),
            ints("d_quarter", 2, 1, 1),
            ints("d_month", 5, 1, 1),
            ints("d_week", 20, 1, 53),
            ints("d_day", 22, 1, 1),
            ints("d_day_of_week", 6, 3, 4),
            ints("d_day_of_year", 143, 1, 1),
            col(
                "d_is_weekend",
                BooleanArray::from(vec![Some(true), Some(false), None, Some(false)]),
            ),
        ],
    );
    let times = || TimestampSecondArray::from(vec![Some(6 * 3600 + 59 * 60 + 58), Some(-1)]);
    check(
        json!({"date_parts": {"columns": ["t"], "parts": ["minute", "second"]}}),
        vec![col("t", times())],
        vec![
            col("t", times()),
            col("t_minute", Int32Array::from(vec![59, 59])),
            col("t_second", Int32Array::from(vec![58, 59])),
        ],
    );
    check(
        json!({"date_parts": {"columns": ["t"], "parts": ["hour"], "cyclic": true}}),
        vec![col("t", times())],
        vec![
            col("t", times()),
            col("t_hour_sin", Float32Array::from(vec![1.0, -0.25881904])),
            col(
                "t_hour_cos",
                Float32Array::from(vec![6.123234e-17, 0.9659258]),
            ),
        ],
    );
    let input = vec![col("d", days())];
    check_fault(
        json!({"date_parts": {"columns": ["d"], "parts": ["hour"]}}),
        input,
        codes::COLUMN_TYPE,
    );
}

/// NaN is above all numbers and equals itself, whichever sign the processor gives it: 0 / 0 has one on x86.
#[test]
fn computed_nan_is_above_all_numbers() {
    let table = || {
        vec![col(
            "x",
            Float64Array::from(vec![0.0, 2.0, f64::INFINITY, -1.0]),
        )]
    };
    let kept = |x: Vec<f64>| vec![col("x", Float64Array::from(x))];
    let zero = 0.0;
    let inf = f64::INFINITY;
    check(
        json!({"filter": "x / x > 1.5"}),
        table(),
        kept(vec![zero, inf]),
    );
    check(
        json!({"filter": "x / x < 1.5"}),
        table(),
        kept(vec![2.0, -1.0]),
    );
    check(
        json!({"filter": "-(x / x) >= x / x"}),
        table(),
        kept(vec![zero, inf]),
    );
    check(
        json!({"filter": "x / x = -(x / x)"}),
        table(),
        kept(vec![zero, inf]),
    );
}
