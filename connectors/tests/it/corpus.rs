//! Small files of the classes that other programs write: each is read as its expected values, or refused with a fault.
//! `tests/corpus/small/generate.py` makes the files and the values.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::*;
use arrow::compute::cast;
use arrow::datatypes::*;
use forebay_model::FaultDomain;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::help::read;

/// What a source reads of a file.
#[derive(Debug, Deserialize)]
struct Expected {
    format: String,
    #[serde(default)]
    options: Map<String, Value>,
    columns: Option<Map<String, Value>>,
    fault: Option<Vec<String>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/small")
}

/// The values of a column as the expected ones are told.
fn told(column: &ArrayRef) -> Vec<Value> {
    (0..column.len())
        .map(|row| told_value(column, row))
        .collect()
}

fn told_value(column: &ArrayRef, row: usize) -> Value {
    if column.is_null(row) || *column.data_type() == DataType::Null {
        return Value::Null;
    }
    let number = |of: &DataType| cast(&column.slice(row, 1), of).unwrap();
    match column.data_type() {
        DataType::Dictionary(_, of) => told_value(&number(of), 0),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let text = number(&DataType::Utf8);
            Value::from(text.as_string::<i32>().value(0))
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let bytes = number(&DataType::Binary);
            let digits = bytes.as_binary::<i32>().value(0).iter();
            Value::from(digits.map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        DataType::Boolean => Value::from(column.as_boolean().value(row)),
        DataType::UInt64 => Value::from(column.as_primitive::<UInt64Type>().value(row)),
        DataType::Date32 => Value::from(column.as_primitive::<Date32Type>().value(row)),
        of if of.is_integer() => {
            let whole = number(&DataType::Int64);
            Value::from(whole.as_primitive::<Int64Type>().value(0))
        }
        of if of.is_floating() => {
            let float = number(&DataType::Float64);
            told_float(float.as_primitive::<Float64Type>().value(0))
        }
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            let whole = match column.data_type() {
                DataType::Time32(_) => cast(&number(&DataType::Int32), &DataType::Int64).unwrap(),
                _ => number(&DataType::Int64),
            };
            let ticks = i128::from(whole.as_primitive::<Int64Type>().value(0));
            let nanoseconds = match unit {
                TimeUnit::Second => 1_000_000_000,
                TimeUnit::Millisecond => 1_000_000,
                TimeUnit::Microsecond => 1_000,
                TimeUnit::Nanosecond => 1,
            };
            Value::from((ticks * nanoseconds).to_string())
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let text = number(&DataType::Utf8);
            Value::from(text.as_string::<i32>().value(0))
        }
        DataType::List(_) => told(&column.as_list::<i32>().value(row)).into(),
        DataType::LargeList(_) => told(&column.as_list::<i64>().value(row)).into(),
        DataType::FixedSizeList(..) => told(&column.as_fixed_size_list().value(row)).into(),
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let keys = told(entries.column(0)).into_iter();
            let pairs = keys.zip(told(entries.column(1)));
            pairs.map(|(key, value)| json!([key, value])).collect()
        }
        DataType::Struct(fields) => {
            let values = column.as_struct().columns().iter();
            let struct_values = fields.iter().zip(values);
            struct_values
                .map(|(field, values)| (field.name().clone(), told_value(values, row)))
                .collect::<Map<String, Value>>()
                .into()
        }
        other => panic!("{other}"),
    }
}

fn told_float(float: f64) -> Value {
    if float.is_finite() {
        return Value::from(float);
    }
    Value::from(float.to_string())
}

/// Numbers are compared by their values, zeros with their signs.
fn is_equal(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len()
                && actual
                    .iter()
                    .zip(expected)
                    .all(|(actual, expected)| is_equal(actual, expected))
        }
        (Value::Object(actual), Value::Object(expected)) => {
            actual.len() == expected.len()
                && actual.iter().all(|(name, value)| {
                    expected
                        .get(name)
                        .is_some_and(|expected| is_equal(value, expected))
                })
        }
        (Value::Number(actual), Value::Number(expected))
            if actual.is_f64() || expected.is_f64() =>
        {
            let bits = |number: &serde_json::Number| number.as_f64().map(f64::to_bits);
            bits(actual) == bits(expected)
        }
        _ => actual == expected,
    }
}

/// A sentence on what is wrong with a file.
fn problem(name: &str, expected: &Expected) -> Option<String> {
    let mut config = expected.options.clone();
    config.insert("path".to_owned(), json!(folder().join(name)));
    match (read(&expected.format, config.into()), &expected.columns) {
        (Ok(batch), Some(columns)) => {
            let schema = batch.schema();
            let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
            if names.len() != columns.len() {
                return Some(format!("columns {names:?}"));
            }
            columns.iter().find_map(|(column, values)| {
                let Some(actual) = batch.column_by_name(column) else {
                    return Some(format!("no `{column}` among {names:?}"));
                };
                let actual = Value::from(told(actual));
                (!is_equal(&actual, values))
                    .then(|| format!("`{column}`: {actual} and not {values}"))
            })
        }
        (Ok(batch), None) => Some(format!("read as {batch:?}")),
        (Err(fault), Some(_)) => Some(format!("{fault:?}")),
        (Err(fault), None) => {
            let text = format!("{fault:?}");
            let words = expected.fault.iter().flatten();
            let mut missing = words.filter(|word| !text.contains(word.as_str()));
            if fault.code().domain == FaultDomain::Internal {
                return Some(format!("a bug: {text}"));
            }
            missing.next().map(|word| format!("no `{word}` in {text}"))
        }
    }
}

#[test]
fn small_files_of_other_programs_are_read_as_expected() {
    let expected = fs::read_to_string(folder().join("expected.json")).unwrap();
    let expected: BTreeMap<String, Expected> = serde_json::from_str(&expected).unwrap();
    let problems: Vec<String> = expected
        .iter()
        .filter_map(|(name, expected)| Some(format!("{name}: {}", problem(name, expected)?)))
        .collect();
    println!("{} files", expected.len());
    assert!(expected.len() >= 200, "{} files", expected.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
