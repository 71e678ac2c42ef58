//! Casts that are written as calls of functions.
//!
//! Left to itself, the query engine makes casts of these calls after casts have been checked: `cast_to_type('t', true)`
//! would be true.

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, try_cast};

/// A call of `cast_to_type` or `try_cast_to_type` as the cast that it stands for. `None` for other expressions.
pub(crate) fn cast_of_call(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = part else {
        return None;
    };
    let [value, example] = call.args.as_slice() else {
        return None;
    };
    let target = example.get_type(schema).ok()?;
    match call.func.name() {
        "cast_to_type" => Some(cast(value.clone(), target)),
        "try_cast_to_type" => Some(try_cast(value.clone(), target)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use forebay_model::codes;

    use crate::SqlCompiler;

    #[test]
    fn calls_are_as_strict_as_casts() {
        let schema = Schema::new(vec![Field::new("s", DataType::Utf8, true)]);
        for (example, whole, cut) in [
            ("true", "false", "t"),
            ("1", "7", "7.0"),
            ("0.5", "7.5", "1e400"),
            ("DATE '2000-01-01'", "2024-01-01", "2024-01-01T12:00:00"),
            ("TIME '12:00:00'", "12:30:00", "23:59:60"),
        ] {
            for (function, is_try) in [("cast_to_type", false), ("try_cast_to_type", true)] {
                let expression = format!("{function}(s, {example})");
                let compiled = SqlCompiler::default()
                    .expression(&expression, &schema)
                    .unwrap();
                let texts: ArrayRef = Arc::new(StringArray::from(vec![whole, cut]));
                let values = (compiled.kernel)(&[texts.slice(0, 1)], 1).unwrap();
                assert_eq!(values[0].null_count(), 0, "{expression} of {whole}");
                match (compiled.kernel)(&[texts], 2) {
                    Ok(values) => {
                        assert!(is_try && values[0].is_null(1), "{expression} of {cut}");
                    }
                    Err(fault) => {
                        assert!(!is_try, "{expression} of {cut}");
                        assert_eq!(fault.code(), codes::BAD_ROW);
                    }
                }
            }
        }
    }
}
