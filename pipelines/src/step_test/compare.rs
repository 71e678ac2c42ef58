//! Compares the rows of a step with those that a test expects.

use arrow::array::RecordBatch;
use forebay_model::{Fault, Result, suggestion};
use serde_json::Value;

use super::TestRow;
use crate::present::rows;

/// Maximum number of differences that are listed; the rest is counted.
const DIFFERENCES_MAX: usize = 10;

/// The differences of the rows of a step from the expected ones.
pub fn differences(
    batches: &[RecordBatch],
    expected: &[TestRow],
    tolerance: f64,
) -> Result<Vec<String>> {
    let unreadable = |error| Fault::internal("the rows of a step cannot be compared").cause(error);
    let text = rows::json(batches)?;
    let rows = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<TestRow>, _>>()
        .map_err(unreadable)?;
    let mut differences = Vec::new();
    if let Some(batch) = batches.first() {
        let schema = batch.schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let mut unknown: Vec<&String> = expected.iter().flat_map(|row| row.keys()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        for name in unknown
            .into_iter()
            .filter(|name| !names.contains(&name.as_str()))
        {
            let hint =
                suggestion(name, names.iter().copied(), "the columns are").unwrap_or_default();
            differences.push(format!("the step has no column `{name}`; {hint}"));
        }
        if !differences.is_empty() {
            return Ok(differences);
        }
    }
    if rows.len() != expected.len() {
        differences.push(format!(
            "expected {}, got {}",
            counted(expected.len()),
            counted(rows.len())
        ));
    }
    for (number, (row, expected)) in rows.iter().zip(expected).enumerate() {
        for (name, expected_value) in expected {
            let value = row.get(name).unwrap_or(&Value::Null);
            if !is_equal(value, expected_value, tolerance) {
                differences.push(format!(
                    "row {}: `{name}` is {value}, expected {expected_value}",
                    number + 1
                ));
            }
        }
    }
    if differences.len() > DIFFERENCES_MAX {
        let hidden = differences.len() - DIFFERENCES_MAX;
        differences.truncate(DIFFERENCES_MAX);
        differences.push(format!("and {hidden} more differences"));
    }
    Ok(differences)
}

fn counted(rows: usize) -> String {
    format!("{rows} {}", if rows == 1 { "row" } else { "rows" })
}

fn is_equal(value: &Value, expected: &Value, tolerance: f64) -> bool {
    let time = |text: &str| {
        text.trim_end_matches('Z')
            .parse::<jiff::civil::DateTime>()
            .ok()
    };
    match (value, expected) {
        (Value::Number(value), Value::Number(expected)) => {
            // Whole numbers have digits that floats do not hold.
            if !value.is_f64() && !expected.is_f64() {
                return value == expected;
            }
            match value.as_f64().zip(expected.as_f64()) {
                Some((value, expected)) => is_near(value, expected, tolerance),
                None => false,
            }
        }
        (Value::String(value), Value::String(expected)) => {
            value == expected
                || time(value)
                    .zip(time(expected))
                    .is_some_and(|(value, expected)| value == expected)
        }
        (Value::Array(values), Value::Array(expected)) => {
            values.len() == expected.len()
                && values
                    .iter()
                    .zip(expected)
                    .all(|(value, expected)| is_equal(value, expected, tolerance))
        }
        _ => value == expected,
    }
}

/// True if two numbers differ by no more than a tolerance, relative to numbers above 1.
fn is_near(value: f64, expected: f64, tolerance: f64) -> bool {
    let size = value.abs().max(expected.abs()).max(1.0);
    (value - expected).abs() <= tolerance * size
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_equal_within_the_tolerance() {
        for (value, expected, is_same) in [
            (json!(1), json!(1.0), true),
            (json!(0.5), json!(0.5000004), true),
            (json!(0.5), json!(0.50001), false),
            (json!(1e9), json!(1e9 + 100.0), true),
            (
                json!(9_007_199_254_740_993_i64),
                json!(9_007_199_254_740_992_i64),
                false,
            ),
            (json!(null), json!(0), false),
            (json!(null), json!(null), true),
            (json!("2024-01-01T00:00:00"), json!("2024-01-01"), true),
            (json!("2024-01-01T00:00:01"), json!("2024-01-01"), false),
            (json!([1.0, null]), json!([1, null]), true),
            (json!([1.0]), json!([1, 2]), false),
            (json!("a"), json!("b"), false),
        ] {
            assert_eq!(
                is_equal(&value, &expected, 1e-6),
                is_same,
                "{value} and {expected}"
            );
        }
    }
}
