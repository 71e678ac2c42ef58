//! The order of rows that tie in the windows of a query. Engines leave it open: `ROW_NUMBER` over rows with equal keys
//! depends on the order in which they arrive, and so do the last bits of a sum of floats.

use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::common::tree_node::Transformed;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Window, WindowFrameUnits,
    WindowFunctionDefinition,
};
use datafusion::physical_plan::ExecutionPlan;
use forebay_model::contains_floats;

use crate::evaluation::refuse_large_constants;

/// Functions that number or shift rows, independent of their frame.
const BY_POSITION: [&str; 4] = ["row_number", "ntile", "lag", "lead"];

/// Functions of the values of a frame, independent of their order.
const BY_VALUE: [&str; 5] = ["count", "sum", "avg", "min", "max"];

/// Functions that give equal rows equal results, independent of their frame.
const BY_PEERS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// The physical plan of a query whose windows order rows that tie by all their columns. The logical plan is optimized
/// first: columns that the query does not use order nothing.
pub async fn query_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let optimized = state.optimize(plan)?;
    refuse_large_constants(&optimized, state.config().batch_size())?;
    let ordered = optimized.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Window(window) => order_ties(window).map(Transformed::yes),
        other => Ok(Transformed::no(other)),
    })?;
    state
        .query_planner()
        .create_physical_plan(&ordered.data, state)
        .await
}

/// Extends the order of the functions that depend on the order of rows that tie.
fn order_ties(window: Window) -> Result<LogicalPlan, DataFusionError> {
    let columns = window.schema.columns();
    let input = window.input.schema().clone();
    let mut open = Vec::new();
    let mut closed = Vec::new();
    for expression in window.window_expr {
        if depends_on_ties(&expression, &input)? {
            open.push(expression)
        } else {
            closed.push(expression)
        }
    }
    if open.is_empty() {
        return Ok(LogicalPlan::Window(Window::try_new(closed, window.input)?));
    }
    let splits = !closed.is_empty();
    let below = if splits {
        Arc::new(LogicalPlan::Window(Window::try_new(closed, window.input)?))
    } else {
        window.input
    };
    let ties: Vec<SortExpr> = input
        .columns()
        .into_iter()
        .map(|tie| Expr::Column(tie).sort(true, false))
        .collect();
    let extended = open
        .into_iter()
        .map(|expression| extend_order(expression, &ties))
        .collect();
    let ordered = LogicalPlan::Window(Window::try_new(extended, below)?);
    if !splits {
        return Ok(ordered);
    }
    // The functions of a window share an order: of two windows, the columns come in another order.
    LogicalPlanBuilder::from(ordered)
        .project(columns.into_iter().map(Expr::Column))?
        .build()
}

fn function(expression: &Expr) -> Option<&WindowFunction> {
    match expression {
        Expr::WindowFunction(function) => Some(function),
        Expr::Alias(alias) => function(&alias.expr),
        _ => None,
    }
}

fn depends_on_ties(
    expression: &Expr,
    input: &datafusion::common::DFSchema,
) -> Result<bool, DataFusionError> {
    let Some(WindowFunction { fun, params }) = function(expression) else {
        return Ok(false);
    };
    let name = fun.name();
    let frame = &params.window_frame;
    if BY_POSITION.contains(&name) {
        return Ok(true);
    }
    // The frames of other units begin and end between rows that do not tie.
    if frame.units != WindowFrameUnits::Rows || BY_PEERS.contains(&name) {
        return Ok(false);
    }
    let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
    let is_by_value =
        matches!(fun, WindowFunctionDefinition::AggregateUDF(_)) && BY_VALUE.contains(&name);
    if !is_whole || !is_by_value {
        return Ok(true);
    }
    let types = params
        .args
        .iter()
        .map(|argument| argument.get_type(input))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(types.iter().any(contains_floats))
}

/// Orders by all columns after the order that was written; the expression keeps its name.
fn extend_order(expression: Expr, ties: &[SortExpr]) -> Expr {
    let (relation, name) = expression.qualified_name();
    let mut inner = match expression {
        Expr::Alias(alias) => *alias.expr,
        other => other,
    };
    if let Expr::WindowFunction(function) = &mut inner {
        let is_new = |tie: &&SortExpr| {
            !function
                .params
                .order_by
                .iter()
                .any(|by| by.expr == tie.expr)
        };
        let new_ties: Vec<SortExpr> = ties.iter().filter(is_new).cloned().collect();
        function.params.order_by.extend(new_ties);
    }
    inner.alias_qualified(relation, name)
}
