//! NaN in SQL comparisons: it equals itself and is greater than all numbers, regardless of its sign.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::functions::math::expr_fn::nanvl;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};

/// Canonicalizes the NaN of computed operands of comparisons. Kernels compare by the total order of IEEE 754, in
/// which a NaN with a sign is below all numbers. Processors produce such NaN: 0.0 / 0.0 has a sign on x86.
pub(crate) fn canonicalize_nan(
    expression: Expr,
    schema: &DFSchema,
) -> Result<Expr, DataFusionError> {
    let done = expression.transform(|part| match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let left_operand = operand(*left, schema)?;
            let right = operand(*right, schema)?;
            let changed = left_operand.1 || right.1;
            let left_operand = Box::new(left_operand.0);
            let right = Box::new(right.0);
            let compared = Expr::BinaryExpr(BinaryExpr {
                left: left_operand,
                op,
                right,
            });
            Ok(if changed {
                Transformed::yes(compared)
            } else {
                Transformed::no(compared)
            })
        }
        other => Ok(Transformed::no(other)),
    });
    done.map(|done| done.data)
}

pub(crate) fn is_comparison(operator: Operator) -> bool {
    use Operator as O;
    matches!(
        operator,
        O::Eq
            | O::NotEq
            | O::Lt
            | O::LtEq
            | O::Gt
            | O::GtEq
            | O::IsDistinctFrom
            | O::IsNotDistinctFrom
    )
}

/// Wraps an operand; returns whether it was changed.
fn operand(operand: Expr, schema: &DFSchema) -> Result<(Expr, bool), DataFusionError> {
    // Columns are compared unchanged, because the bounds of row groups are compared with them as they are.
    if matches!(operand, Expr::Column(_) | Expr::Literal(..)) {
        return Ok((operand, false));
    }
    let nan = match operand.get_type(schema)? {
        DataType::Float64 => ScalarValue::Float64(Some(f64::NAN)),
        DataType::Float32 => ScalarValue::Float32(Some(f32::NAN)),
        _ => return Ok((operand, false)),
    };
    Ok((nanvl(operand, lit(nan)), true))
}
