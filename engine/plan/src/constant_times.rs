//! Times that are computed of constants alone.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

/// The time that an expression of constants computes, such as `TIMESTAMP '2024-01-01' - INTERVAL '1 millisecond'`. `None`
/// for other expressions, and for those that fail.
pub(crate) fn constant_time(expression: &Expr) -> Option<ScalarValue> {
    let has_other_parts = expression.exists(|part| Ok(!is_computed(part))).ok()?;
    if has_other_parts {
        return None;
    }
    let schema = Arc::new(DFSchema::empty());
    let data_type = expression.get_type(schema.as_ref()).ok()?;
    if !matches!(data_type, DataType::Timestamp(..)) {
        return None;
    }
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(&schema))
        .with_config_options(Arc::new(ConfigOptions::default()))
        .build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(expression.clone(), &schema).ok()?;
    match simplifier.simplify(coerced).ok()? {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// True for the parts of expressions of constants.
fn is_computed(part: &Expr) -> bool {
    matches!(
        part,
        Expr::Literal(..)
            | Expr::BinaryExpr(_)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::Negative(_)
            | Expr::ScalarFunction(_)
            | Expr::Case(_)
    )
}
