//! `||` of texts, with a bound on the text that it makes.
//!
//! The query engine joins the texts of a chain `a || b || c` two by two, and looks at no size. The chain becomes a call of a
//! function of ours, which computes the size first and makes the text once. As for `||`, null makes null.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, ExprSchema, ScalarValue};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use forebay_model::logical_type;

use crate::bounded_functions::{check_growth, joined_values, row_in};
use crate::function_guard::argument_columns;
use crate::guarded_functions::with_guard;

/// Name of the function.
const JOINED_TEXTS: &str = "joined_texts";

static JOIN: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(JoinedTextsUdf {
        signature: Signature::variadic_any(Volatility::Immutable),
    })
});

/// The function that joins texts.
pub(crate) fn joined_texts_function() -> &'static ScalarUDF {
    &JOIN
}

/// Replaces operators and functions of an expression, whose output has no bound, by functions with one. Operators on lists
/// are calls of functions that the registry does not give.
pub(crate) fn with_bounds(
    expression: Expr,
    schema: &dyn ExprSchema,
) -> Result<Transformed<Expr>, DataFusionError> {
    expression.transform_up(|part| match part {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::StringConcat,
            right,
        }) if is_text(&left, schema) || is_text(&right, schema) => {
            let parts = parts_of(*left).into_iter().chain(parts_of(*right));
            Ok(Transformed::yes(JOIN.call(parts.collect())))
        }
        Expr::ScalarFunction(call) => Ok(with_guard(call)),
        other => Ok(Transformed::no(other)),
    })
}

fn is_text(operand: &Expr, schema: &dyn ExprSchema) -> bool {
    // Columns of an outer query have no type here.
    let of = operand.get_type(schema);
    of.is_ok_and(|of| logical_type(&of) == DataType::Utf8)
}

/// The texts that an operand joins.
fn parts_of(operand: Expr) -> Vec<Expr> {
    match operand {
        Expr::ScalarFunction(call) if call.func.name() == JOINED_TEXTS => call.args,
        other => vec![other],
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JoinedTextsUdf {
    signature: Signature,
}

impl ScalarUDFImpl for JoinedTextsUdf {
    fn name(&self) -> &str {
        JOINED_TEXTS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        // As the query engine coerces texts.
        let layouts = [DataType::Utf8View, DataType::LargeUtf8];
        let mut layouts = layouts.into_iter();
        let layout = layouts.find(|layout| arguments.contains(layout));
        Ok(layout.unwrap_or(DataType::Utf8))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef, DataFusionError> {
        let mut types = Vec::with_capacity(args.arg_fields.len());
        for field in args.arg_fields {
            types.push(field.data_type().clone());
        }
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let data_type = self.return_type(&types)?;
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(arguments.args.len());
        for column in argument_columns(&arguments)? {
            columns.push(cast(&column, &DataType::Utf8)?);
        }
        let mut values = arguments.args.iter();
        let is_constant = values.all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant {
            1
        } else {
            arguments.number_rows
        };
        let bytes = joined_values(&columns, rows);
        check_growth("||", bytes, &columns, rows)?;
        let joined = join(&columns, rows, bytes)?;
        let joined = cast(&joined, arguments.return_field.data_type())?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?)
        } else {
            ColumnarValue::Array(joined)
        })
    }
}

fn join(columns: &[ArrayRef], rows: usize, bytes: u128) -> Result<ArrayRef, DataFusionError> {
    let capacity = i32::try_from(bytes).map_err(|_| {
        DataFusionError::ResourcesExhausted(format!(
            "`||` makes {} MiB of a batch of {rows} rows, more than a column of texts holds",
            bytes >> 20
        ))
    })?;
    let mut texts: Vec<&StringArray> = Vec::with_capacity(columns.len());
    for column in columns {
        texts.push(column.as_string::<i32>());
    }
    let mut joined = StringBuilder::with_capacity(rows, capacity as usize);
    for row in 0..rows {
        if texts.iter().any(|text| text.is_null(row_in(*text, row))) {
            joined.append_null();
            continue;
        }
        for text in &texts {
            let part = text.value(row_in(*text, row));
            let written = joined.write_str(part);
            written.map_err(|error| DataFusionError::External(Box::new(error)))?;
        }
        joined.append_value("");
    }
    Ok(Arc::new(joined.finish()))
}
