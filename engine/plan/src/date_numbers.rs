//! Dates that are compared with whole numbers.
//!
//! Left to itself, the query engine takes a whole number beside a date as days since 1970. `2024-02-01` without quotes
//! is the number 2021, so that such a condition holds for all rows, or for none.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::logical_expr::{Expr, ExprSchemable, Join, Operator};

/// Refuses an expression that compares a date with a whole number.
pub(crate) fn refuse_date_numbers(
    expression: &Expr,
    schema: &DFSchema,
) -> Result<(), DataFusionError> {
    expression.apply(|part| {
        refuse_comparison(part, schema)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Refuses a join that has a date for a whole number, as `USING` compares them.
pub(crate) fn refuse_date_keys(join: &Join) -> Result<(), DataFusionError> {
    let left_schema: &DFSchema = join.left.schema();
    let right_schema: &DFSchema = join.right.schema();
    for (left, right) in &join.on {
        let Ok(left_type) = left.get_type(left_schema) else {
            continue;
        };
        let Ok(right_type) = right.get_type(right_schema) else {
            continue;
        };
        refuse_types(&left_type, &right_type, "=")?;
    }
    Ok(())
}

fn refuse_comparison(part: &Expr, schema: &DFSchema) -> Result<(), DataFusionError> {
    match part {
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => {
            let operator = binary.op.to_string();
            let word = operator.split(' ').next().unwrap_or_default();
            refuse_pair([&binary.left, &binary.right], word, schema)
        }
        Expr::Between(between) => {
            refuse_pair([&between.expr, &between.low], "BETWEEN", schema)?;
            refuse_pair([&between.expr, &between.high], "BETWEEN", schema)
        }
        Expr::InList(list) => {
            for value in &list.list {
                refuse_pair([&list.expr, value], "IN", schema)?;
            }
            Ok(())
        }
        Expr::InSubquery(list) => {
            let list_schema: &DFSchema = list.subquery.subquery.schema();
            let Ok(value_type) = list.expr.get_type(schema) else {
                return Ok(());
            };
            for field in list_schema.fields() {
                refuse_types(&value_type, field.data_type(), "IN")?;
            }
            Ok(())
        }
        Expr::Case(case) => {
            let Some(compared) = &case.expr else {
                return Ok(());
            };
            for (value, _) in &case.when_then_expr {
                refuse_pair([compared, value], "=", schema)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// True for the operators that compare their operands.
pub(crate) fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// Refuses two sides of a comparison, if one is a date and the other a whole number.
fn refuse_pair(
    [first, second]: [&Expr; 2],
    operator: &str,
    schema: &DFSchema,
) -> Result<(), DataFusionError> {
    let Ok(first_type) = first.get_type(schema) else {
        return Ok(());
    };
    let Ok(second_type) = second.get_type(schema) else {
        return Ok(());
    };
    refuse_types(&first_type, &second_type, operator)
}

/// Refuses types in the words of the query engine for others that do not compare.
fn refuse_types(
    first_type: &DataType,
    second_type: &DataType,
    operator: &str,
) -> Result<(), DataFusionError> {
    let is_mixed = (is_date(first_type) && second_type.is_integer())
        || (first_type.is_integer() && is_date(second_type));
    if !is_mixed {
        return Ok(());
    }
    Err(DataFusionError::Plan(format!(
        "Cannot infer common argument type for comparison operation {first_type} {operator} \
         {second_type}"
    )))
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}
