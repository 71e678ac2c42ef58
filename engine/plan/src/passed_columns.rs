//! Columns whose values expressions and queries pass on as they are, or in another type of numbers.

use datafusion::common::Column;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, Join, JoinType, LogicalPlan};

use crate::nulls::FIRST_VALUES;

/// A column of a table that a query reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub table: String,
    pub column: String,
}

/// The columns of tables whose values a column of a query's result can have.
pub(crate) fn passed_columns(plan: &LogicalPlan, index: usize) -> Vec<TableColumn> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.fields().get(index);
            let column = field.map(|field| TableColumn {
                table: scan.table_name.table().to_owned(),
                column: field.name().clone(),
            });
            column.into_iter().collect()
        }
        LogicalPlan::Projection(projection) => match projection.expr.get(index) {
            Some(expression) => columns_of_input(expression, &projection.input),
            None => Vec::new(),
        },
        LogicalPlan::Filter(filter) => passed_columns(&filter.input, index),
        LogicalPlan::Sort(sort) => passed_columns(&sort.input, index),
        LogicalPlan::Limit(limit) => passed_columns(&limit.input, index),
        LogicalPlan::Repartition(repartition) => passed_columns(&repartition.input, index),
        LogicalPlan::SubqueryAlias(alias) => passed_columns(&alias.input, index),
        LogicalPlan::Subquery(subquery) => passed_columns(&subquery.subquery, index),
        LogicalPlan::Distinct(Distinct::All(input)) => passed_columns(input, index),
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter();
            inputs
                .flat_map(|input| passed_columns(input, index))
                .collect()
        }
        LogicalPlan::Aggregate(aggregate) => columns_of_group(aggregate, index),
        // The columns that a window computes come behind those of its input.
        LogicalPlan::Window(window) if index < window.input.schema().fields().len() => {
            passed_columns(&window.input, index)
        }
        LogicalPlan::Join(join) => columns_of_side(join, index),
        _ => Vec::new(),
    }
}

/// The columns whose values an expression can have.
pub(crate) fn passed_values(expression: &Expr) -> Vec<&Column> {
    match expression {
        Expr::Column(column) => vec![column],
        Expr::Alias(alias) => passed_values(&alias.expr),
        Expr::Cast(cast) if cast.field.data_type().is_numeric() => passed_values(&cast.expr),
        Expr::TryCast(cast) if cast.field.data_type().is_numeric() => passed_values(&cast.expr),
        Expr::Case(case) => {
            let mut results: Vec<&Expr> = Vec::new();
            for (_, result) in &case.when_then_expr {
                results.push(result);
            }
            results.extend(case.else_expr.as_deref());
            results.into_iter().flat_map(passed_values).collect()
        }
        Expr::ScalarFunction(call) if FIRST_VALUES.contains(&call.name()) => {
            call.args.iter().flat_map(passed_values).collect()
        }
        Expr::ScalarFunction(call) if call.name() == "nullif" => {
            call.args.iter().take(1).flat_map(passed_values).collect()
        }
        _ => Vec::new(),
    }
}

fn columns_of_input(expression: &Expr, input: &LogicalPlan) -> Vec<TableColumn> {
    let mut columns = Vec::new();
    for column in passed_values(expression) {
        if let Some(index) = input.schema().maybe_index_of_column(column) {
            columns.extend(passed_columns(input, index));
        }
    }
    columns
}

/// The columns that a key of groups passes on. Other results are computed.
fn columns_of_group(aggregate: &Aggregate, index: usize) -> Vec<TableColumn> {
    let keys = &aggregate.group_expr;
    // The keys of grouping sets are not those of the result.
    if keys.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
        return Vec::new();
    }
    match keys.get(index) {
        Some(key) => columns_of_input(key, &aggregate.input),
        None => Vec::new(),
    }
}

fn columns_of_side(join: &Join, index: usize) -> Vec<TableColumn> {
    let left_width = join.left.schema().fields().len();
    let is_of_right_alone = matches!(
        join.join_type,
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    );
    if is_of_right_alone {
        return passed_columns(&join.right, index);
    }
    match index.checked_sub(left_width) {
        None => passed_columns(&join.left, index),
        // The mark of a join is no column of its right side.
        Some(_) if matches!(join.join_type, JoinType::LeftMark) => Vec::new(),
        Some(index) => passed_columns(&join.right, index),
    }
}
