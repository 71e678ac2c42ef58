//! Compares random windows over random rows with the oracle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use common::oracle::{OracleValue, expected};
use common::random::{any_function, any_gaps, any_rows};
use common::*;
use proptest::prelude::*;

fn check(column: &ArrayRef, expected: &[OracleValue]) -> Result<(), TestCaseError> {
    let numbers = doubles(column);
    prop_assert_eq!(numbers.len(), expected.len());
    for (row, (number, expected)) in numbers.iter().zip(expected).enumerate() {
        match (*expected, *number) {
            // Both results are valid.
            (OracleValue::Number(expected, _), _) if expected.is_nan() => {}
            (OracleValue::None, None) => {}
            (OracleValue::Number(expected, scale), Some(number)) => {
                let near = (number - expected).abs() <= 1e-9 * expected.abs().max(scale);
                prop_assert!(
                    near || number == expected,
                    "row {row}: {number} but expected {expected}"
                );
            }
            (OracleValue::Bits(bits), Some(_)) => {
                prop_assert_eq!(column.data_type(), &DataType::Int64);
                prop_assert_eq!(
                    column.as_primitive::<Int64Type>().value(row),
                    bits,
                    "row {}",
                    row
                );
            }
            (expected, number) => {
                prop_assert!(false, "row {row}: {number:?} but expected {expected:?}")
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn windows_match_the_oracle(
        functions in prop::collection::vec(any_function(), 1..6),
        gaps in any_gaps(),
        rows in any_rows(120),
    ) {
        let plan = plan(functions, gaps);
        let outputs = outputs(&plan, &rows);
        for ((function, output), expected) in plan.functions.iter().zip(&outputs).zip(expected(&plan, &rows)) {
            check(output, &expected).map_err(|error| TestCaseError::fail(format!("{function:?}: {error}")))?;
        }
    }
}
