//! The `try_cast`s of expressions, as functions that count what they turn to null.

use std::sync::{Arc, LazyLock};

use arrow::compute::CastOptions;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::format::DEFAULT_FORMAT_OPTIONS;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, ExprSchema, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use forebay_model::type_label;

use crate::checked_casts::internal;
use crate::sql_faults::shown;
use crate::strict_casts::{WrittenCast, type_of_name, written_cast};
use crate::tried_values::add_tried_nulls;

/// The `try_cast`s of an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TriedCasts {
    /// The text of each cast, once.
    pub texts: Vec<String>,
    /// True if the expression is null where one of them does not succeed or a column is null, and in no other rows: the
    /// nulls of its column tell how many casts do not succeed.
    pub are_in_column: bool,
}

impl TriedCasts {
    /// The casts of an expression.
    pub(crate) fn of(expression: &Expr) -> TriedCasts {
        let mut texts = Vec::new();
        add_tried_casts(expression, &mut texts);
        TriedCasts {
            texts,
            are_in_column: all_nulls_are_tried(expression),
        }
    }
}

/// True for an expression with a `try_cast` that is null only where a column is, or where a `try_cast` in it does not
/// succeed.
fn all_nulls_are_tried(expression: &Expr) -> bool {
    let mut has_try = false;
    let mut has_other_nulls = false;
    // The closure gives no error.
    let _ = expression.apply(|part| {
        match part {
            Expr::TryCast(_) => has_try = true,
            Expr::Literal(value, _) => has_other_nulls |= value.is_null(),
            Expr::BinaryExpr(operation) => has_other_nulls |= hides_nulls(operation.op),
            Expr::Alias(_) | Expr::Cast(_) | Expr::Column(_) | Expr::Negative(_) => {}
            _ => has_other_nulls = true,
        }
        Ok(TreeNodeRecursion::Continue)
    });
    has_try && !has_other_nulls
}

/// True for an operator that may have a result where an operand is null.
fn hides_nulls(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::And | Operator::Or | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom
    )
}

/// Adds the text of each `try_cast` of an expression, once.
pub(crate) fn add_tried_casts(expression: &Expr, texts: &mut Vec<String>) {
    // The closure gives no error.
    let _ = expression.apply(|part| {
        if let Some(text) = tried_cast(part)
            && !texts.contains(&text)
        {
            texts.push(text);
        }
        Ok(TreeNodeRecursion::Continue)
    });
}

/// The text of a `try_cast` of other values than constants.
fn tried_cast(part: &Expr) -> Option<String> {
    // The form of a `try_cast` to a time of a zone.
    if let Expr::ScalarFunction(call) = part
        && call.func.name() == "local_time"
        && let [text, .., Expr::Literal(ScalarValue::Boolean(Some(true)), _)] = call.args.as_slice()
    {
        return Some(shown(&format!("try_cast({text} as timestamp)")));
    }
    let WrittenCast {
        inner,
        target,
        is_try,
    } = written_cast(part)?;
    if !is_try || matches!(inner, Expr::Literal(..)) {
        return None;
    }
    let target = type_label(&target);
    Some(shown(&format!("try_cast({inner} as {target})")))
}

static TRY_AS: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(TryAsUdf {
        signature: Signature::any(2, Volatility::Immutable),
    })
});

/// The function of a `try_cast` that counts: of a value, and the name of a type.
pub(crate) fn try_as_function() -> &'static ScalarUDF {
    &TRY_AS
}

/// Replaces each `try_cast` of the query engine in an expression by a call that counts.
pub(crate) fn counted_tries(
    expression: Expr,
    schema: &dyn ExprSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    expression.transform_up(|part| {
        let Some(WrittenCast {
            inner,
            target,
            is_try: true,
        }) = written_cast(&part)
        else {
            return Ok(Transformed::no(part));
        };
        let Ok(of) = inner.get_type(schema) else {
            return Ok(Transformed::no(part));
        };
        let name = target.to_string();
        let is_named = name.parse::<DataType>().is_ok_and(|named| named == target);
        let is_constant = matches!(inner, Expr::Literal(..));
        if is_constant || !is_named || of == target {
            return Ok(Transformed::no(part));
        }
        let arguments = vec![inner.clone(), lit(name)];
        Ok(Transformed::yes(TRY_AS.call(arguments)))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TryAsUdf {
    signature: Signature,
}

impl ScalarUDFImpl for TryAsUdf {
    fn name(&self) -> &str {
        "try_as"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Err(internal("the type of a cast depends on its arguments"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        let target = type_of_name(args.scalar_arguments.get(1).copied().flatten())?;
        Ok(Arc::new(Field::new(self.name(), target, true)))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let Some(input) = arguments.args.first() else {
            return Err(internal("a cast of no value"));
        };
        let options = CastOptions {
            safe: true,
            format_options: DEFAULT_FORMAT_OPTIONS,
        };
        let output = input.cast_to(arguments.return_type(), Some(&options))?;
        if let (ColumnarValue::Array(input), ColumnarValue::Array(output)) = (input, &output) {
            add_tried_nulls(input, output);
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::Schema;

    use super::*;
    use crate::SqlCompiler;
    use crate::tried_values::count_tried;

    #[test]
    fn casts_count_the_values_that_they_turn_to_null() {
        let deep = format!("try_cast(s as int){}", " + 1".repeat(80));
        let cases: [(&str, u64); 9] = [
            ("try_cast(s as int)", 2),
            ("try_cast(s as int) IS NULL", 2),
            ("coalesce(try_cast(s as int), 0)", 2),
            ("CASE WHEN s = 'x' THEN 0 ELSE try_cast(s as int) END", 1),
            ("arrow_try_cast(s, 'Int32')", 2),
            // Of other values than texts.
            ("try_cast(length(s) * 100 as tinyint)", 1),
            ("try_cast(length(s) as bigint)", 0),
            ("upper(s)", 0),
            // Evaluated on a thread of its own.
            (deep.as_str(), 2),
        ];
        let schema = Schema::new(vec![Field::new("s", DataType::Utf8, true)]);
        for (text, expected) in cases {
            let expression = SqlCompiler::default().expression(text, &schema).unwrap();
            let texts = StringArray::from(vec![Some("1"), Some("x"), None, Some("yy")]);
            let column: ArrayRef = Arc::new(texts);
            let (values, count) = count_tried(|| (expression.kernel)(&[column], 4));
            assert!(values.is_ok(), "{text}: {values:?}");
            assert_eq!(count, expected, "{text}");
        }
    }

    #[test]
    fn casts_are_listed_by_their_text() {
        let deep = "+ 1 ".repeat(100);
        let deep_number = format!("try_cast(s as int) {deep}");
        let deep_choice = format!("coalesce(try_cast(s as int), 0) {deep}");
        let to_number = vec!["try_cast(s as int32)"];
        let cases = [
            ("s || 'x'", vec![], false),
            ("cast(s as int)", vec![], false),
            ("try_cast('1' as int) IS NULL", vec![], false),
            ("-try_cast(s as int) > 1", to_number.clone(), true),
            // Null where the text is no number, too, but true in rows of `x`.
            (
                "try_cast(s as int) > 1 OR s = 'x'",
                to_number.clone(),
                false,
            ),
            (
                "try_cast(s as int) IS DISTINCT FROM 1",
                to_number.clone(),
                false,
            ),
            (
                "coalesce(try_cast(s as int), try_cast(s as double), try_cast(s as int))",
                vec!["try_cast(s as int32)", "try_cast(s as float64)"],
                false,
            ),
            // Too deep to be walked later.
            (deep_number.as_str(), to_number.clone(), true),
            (deep_choice.as_str(), to_number, false),
        ];
        let schema = Schema::new(vec![Field::new("s", DataType::Utf8, true)]);
        for (text, texts, are_in_column) in cases {
            let expression = SqlCompiler::default().expression(text, &schema).unwrap();
            assert_eq!(expression.tried.texts, texts, "{text}");
            assert_eq!(expression.tried.are_in_column, are_in_column, "{text}");
        }
    }
}
