//! Rows, columns and types.

mod harness;

use arrow::array::*;
use forebay_model::codes;
use harness::*;
use serde_json::json;

fn words(values: &[Option<&str>]) -> StringArray {
    StringArray::from(values.to_vec())
}

#[test]
fn filter_keeps_true_only() {
    let input = || {
        vec![
            col("x", Float64Array::from(vec![Some(1.0), None, Some(f64::NAN), Some(-1.0), Some(f64::INFINITY)])),
            col("s", words(&[Some("a"), Some("b"), None, Some(""), Some("a")])),
        ]
    };
    check(
        json!({"filter": "x > 0 AND s = 'a'"}),
        input(),
        vec![col("x", Float64Array::from(vec![1.0, f64::INFINITY])), col("s", words(&[Some("a"), Some("a")]))],
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
    let fault = check_fault(json!({"derive": {"a": "w", "b": "lgo(q)"}}), input(), codes::UNKNOWN_COLUMN);
    assert_eq!(fault.others().len(), 1);
}

#[test]
fn columns_are_selected_dropped_and_renamed() {
    let (a, b, c) = (|| Int32Array::from(vec![1]), || Int32Array::from(vec![2]), || Float32Array::from(vec![3.0]));
    let input = || vec![col("a", a()), col("b", b()), col("c", c())];
    check(json!({"select": ["type:float", "a"]}), input(), vec![col("c", c()), col("a", a())]);
    check(json!({"drop": ["type:integer"]}), input(), vec![col("c", c())]);
    check(json!({"rename": {"a": "b", "b": "a"}}), input(), vec![col("b", a()), col("a", b()), col("c", c())]);
    check_fault(json!({"drop": ["*"]}), input(), codes::BAD_VALUE);
    check_fault(json!({"rename": {"a": "c"}}), input(), codes::COLUMN_CLASH);
    check_fault(json!({"rename": {"d": "e"}}), input(), codes::UNKNOWN_COLUMN);
}

#[test]
fn cast_faults_or_gives_null() {
    let texts = || vec![col("s", words(&[Some("12"), None, Some("x")]))];
    check(
        json!({"cast": {"columns": {"s": "int32"}, "on_error": "missing"}}),
        texts(),
        vec![col("s", Int32Array::from(vec![Some(12), None, None]))],
    );
    let fault = check_fault(json!({"cast": {"columns": {"s": "int32"}}}), texts(), codes::BAD_ROW);
    assert_eq!(fault.message(), "`s` holds `x`, which is not Int32");
    let numbers = || vec![col("x", Float64Array::from(vec![Some(1.9), Some(-1.9), None]))];
    check(
        json!({"cast": {"columns": {"x": "int8"}}}),
        numbers(),
        vec![col("x", Int8Array::from(vec![Some(1), Some(-1), None]))],
    );
    for bad in [300.0, f64::NAN, f64::INFINITY] {
        let input = vec![col("x", Float64Array::from(vec![bad]))];
        check_fault(json!({"cast": {"columns": {"type:float": "int8"}}}), input, codes::BAD_ROW);
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

#[test]
fn every_transform_has_a_described_schema() {
    for kind in forebay_transforms::registry().kinds() {
        let mut generator = schemars::SchemaGenerator::default();
        (kind.schema)(&mut generator);
        let text = serde_json::to_string(&generator.take_definitions(true)).unwrap();
        assert!(text.contains("description"), "`{}` has no description", kind.name);
    }
}
