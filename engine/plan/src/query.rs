//! SQL queries over named steps, made deterministic.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    Window, WindowFunctionDefinition, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes, contains_floats, logical_type};

use crate::canonical_floats::{canonical_key, canonical_key_in};
use crate::copied_operands::refuse_many_copies;
use crate::expression_depth::{checked_levels, with_planning_stack};
use crate::local_times::localize_plan;
use crate::misplanned::refuse_misplanned;
use crate::plan_size::refuse_large_plan;
use crate::pushed_filters::refuse_growing_filters;
use crate::sql_faults::{query_fault, shown};
use crate::strict_casts::checked_node;
use crate::{GatherBy, GatherOp, QueryPlan, SqlCompiler};

impl SqlCompiler {
    /// Names of the tables in a query.
    pub fn tables(&self, query: &str) -> Result<Vec<String>> {
        with_planning_stack(query, || self.table_names(query))
    }

    fn table_names(&self, query: &str) -> Result<Vec<String>> {
        let state = self.context().state();
        let statement = self.statement(query)?;
        let tables = state
            .resolve_table_references(&statement)
            .map_err(|error| query_fault(query, &error))?;
        Ok(tables
            .iter()
            .map(|table| table.table().to_owned())
            .collect())
    }

    /// Parses the text as a single query; refuses anything that does more than read.
    fn statement(&self, query: &str) -> Result<Statement> {
        let state = self.context().state();
        let dialect = state.config().options().sql_parser.dialect;
        let statement = state
            .sql_to_statement(query, &dialect)
            .map_err(|error| query_fault(query, &error))?;
        let reads = match &statement {
            Statement::Statement(parsed) => match parsed.as_ref() {
                ast::Statement::Query(parsed) => {
                    checked_levels(parsed.as_ref(), query)?;
                    refuse_many_copies(parsed.as_ref(), query)?;
                    refuse_large_plan(parsed.as_ref(), query)?;
                    refuse_misplanned(parsed.as_ref(), query)?;
                    self.refuse_unstable(parsed.as_ref(), query)?;
                    parsed.visit(&mut ReadOnlyVisitor).is_continue()
                }
                _ => false,
            },
            _ => false,
        };
        if reads {
            Ok(statement)
        } else {
            Err(not_a_query(query))
        }
    }

    /// Compiles a query to a gather over its tables. Rows are in the order of `ORDER BY`; ties, and
    /// queries without it, are ordered by all columns, so that the result is deterministic. Sums and
    /// means of floats, and variances, covariances and regressions of all numbers use the exact
    /// aggregates set by `with_exact`. Like all statistics here, they ignore NaN.
    pub fn query(&self, query: &str, tables: &BTreeMap<String, SchemaRef>) -> Result<GatherOp> {
        with_planning_stack(query, || self.compile_query(query, tables))
    }

    fn compile_query(&self, query: &str, tables: &BTreeMap<String, SchemaRef>) -> Result<GatherOp> {
        let fault = |error| query_fault(query, &error);
        let context = self.context().state().clone();
        let session = datafusion::prelude::SessionContext::new_with_state(context);
        let catalog = self.lock_catalog();
        for (name, schema) in tables {
            session.deregister_table(name.as_str()).map_err(fault)?;
            session
                .register_table(name.as_str(), Arc::new(EmptyTable::new(schema.clone())))
                .map_err(fault)?;
        }
        let statement = self.statement(query)?;
        let plan = futures::executor::block_on(session.state().statement_to_plan(statement))
            .map_err(fault)?;
        refuse_writing(&plan).map_err(|_| not_a_query(query))?;
        tables
            .keys()
            .for_each(|name| drop(session.deregister_table(name.as_str())));
        drop(catalog);
        refuse_growing_filters(&plan, query)?;
        let written = QueryPlan {
            plan: plan.clone(),
            data_age: BTreeMap::new(),
        };
        let plan = localize_plan(plan).map_err(fault)?;
        let plan = self.coerced(plan).map_err(fault)?;
        let plan = plan.transform_up_with_subqueries(|node| {
            let node = self.exactly(checked_node(node)?)?;
            Ok(Transformed::yes(total_order(canonicalize_keys(node)?)?))
        });
        let plan = plan.map_err(fault)?.data;
        let plan = if ordered(&plan) {
            plan
        } else {
            sort_all(plan).map_err(fault)?
        };
        let fields: Vec<Field> = plan
            .schema()
            .fields()
            .iter()
            .map(|field| {
                Field::new(
                    field.name(),
                    logical_type(field.data_type()),
                    field.is_nullable(),
                )
            })
            .collect();
        let names: Vec<String> = tables.keys().cloned().collect();
        let text = query.to_owned();
        Ok(GatherOp {
            others: names.clone(),
            alone: true,
            schema: Arc::new(Schema::new(fields)),
            lower: GatherBy::Query(Arc::new(move |inputs| {
                let inputs: BTreeMap<&str, LogicalPlan> =
                    names.iter().map(String::as_str).zip(inputs).collect();
                with_inputs(plan.clone(), &inputs).map_err(|error| query_fault(&text, &error))
            })),
            query: Some(Arc::new(written)),
        })
    }
}

impl SqlCompiler {
    /// Gives operands one type, as the engine does before it runs a query. Its planner types a `CASE` by its first
    /// branch and a `UNION` by its first query, and values of other types would not fit the columns.
    fn coerced(&self, plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        let state = self.context().state();
        TypeCoercion::new().analyze(plan, state.config_options())
    }

    /// Replaces aggregates whose bits would depend on the partitioning of rows, or on rows before a window, and sums
    /// of integers that would wrap around.
    fn exactly(&self, node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        let aggregate = match node {
            LogicalPlan::Aggregate(aggregate) => aggregate,
            LogicalPlan::Window(window) => return self.exact_windows(window),
            other => return Ok(other),
        };
        let input = aggregate.input.schema().clone();
        let exact = |expression: Expr| -> Result<Expr, DataFusionError> {
            let name = expression.schema_name().to_string();
            let replaced = expression.transform_up(|part| {
                let Expr::AggregateFunction(call) = &part else {
                    return Ok(Transformed::no(part));
                };
                let params = &call.params;
                if params.distinct {
                    let mut call = call.clone();
                    let keys = call
                        .params
                        .args
                        .into_iter()
                        .map(|key| canonical_key_in(key, input.as_ref()));
                    call.params.args = keys.collect::<Result<_, _>>()?;
                    return Ok(Transformed::yes(Expr::AggregateFunction(call)));
                }
                // Sums do not depend on an order; for other functions with an order there is no exact one.
                let name = call.func.name();
                let Some(exact) = self.exact_call(name, &params.args, input.as_ref())? else {
                    return Ok(Transformed::no(part));
                };
                let mut replaced = exact.function.call(exact.arguments);
                if let Expr::AggregateFunction(call) = &mut replaced {
                    call.params.filter = params.filter.clone();
                }
                Ok(Transformed::yes(replaced))
            })?;
            Ok(if replaced.transformed {
                replaced.data.alias(name)
            } else {
                replaced.data
            })
        };
        let expressions = aggregate
            .aggr_expr
            .into_iter()
            .map(exact)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(LogicalPlan::Aggregate(Aggregate::try_new(
            aggregate.input,
            aggregate.group_expr,
            expressions,
        )?))
    }

    /// Replaces such aggregates of windows: in those of the query engine, a large number, a NaN or an infinity stays
    /// in the sums after it has left the frame.
    fn exact_windows(&self, window: Window) -> Result<LogicalPlan, DataFusionError> {
        let input = window.input.schema().clone();
        let mut expressions = Vec::with_capacity(window.window_expr.len());
        for expression in window.window_expr {
            let name = expression.schema_name().to_string();
            let replaced = expression.transform_up(|part| match part {
                Expr::WindowFunction(call) => self.exact_window(*call, input.as_ref()),
                other => Ok(Transformed::no(other)),
            })?;
            expressions.push(match replaced.data {
                call @ Expr::WindowFunction(_) if replaced.transformed => call.alias(name),
                named => named,
            });
        }
        Ok(LogicalPlan::Window(Window::try_new(
            expressions,
            window.input,
        )?))
    }

    fn exact_window(
        &self,
        mut call: WindowFunction,
        input: &DFSchema,
    ) -> Result<Transformed<Expr>, DataFusionError> {
        let exact = match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => {
                self.exact_call(function.name(), &call.params.args, input)?
            }
            WindowFunctionDefinition::WindowUDF(_) => None,
        };
        let Some(exact) = exact.filter(|_| !call.params.distinct) else {
            return Ok(Transformed::no(Expr::from(call)));
        };
        call.fun = WindowFunctionDefinition::AggregateUDF(Arc::new(exact.function.clone()));
        call.params.args = exact.arguments;
        Ok(Transformed::yes(Expr::from(call)))
    }

    /// The exact function for an aggregate of the query engine: of floats, or of integers whose sum could wrap around.
    fn exact_call(
        &self,
        name: &str,
        arguments: &[Expr],
        input: &DFSchema,
    ) -> Result<Option<ExactCall<'_>>, DataFusionError> {
        if self.exact(name).is_none() {
            return Ok(None);
        }
        if is_inexact(name, arguments, input)? {
            return Ok(self.exact(name).map(|function| ExactCall {
                function,
                arguments: doubles(arguments.iter().cloned()),
            }));
        }
        let [argument] = arguments else {
            return Ok(None);
        };
        let of = argument.get_type(input)?;
        if name != "sum" || !matches!(of, DataType::Int64 | DataType::UInt64) {
            return Ok(None);
        }
        Ok(self.exact(INTEGER_SUM).map(|function| ExactCall {
            function,
            arguments: arguments.to_vec(),
        }))
    }
}

/// Name under which `with_exact` is given the sum of 64-bit integers.
pub const INTEGER_SUM: &str = "sum of integers";

/// A function that replaces an aggregate, and its arguments.
struct ExactCall<'a> {
    function: &'a AggregateUDF,
    arguments: Vec<Expr>,
}

/// True if the query engine computes a function of these arguments in doubles that it rounds row by row. Sums and means
/// of integers it adds as they are.
fn is_inexact(
    function: &str,
    arguments: &[Expr],
    input: &DFSchema,
) -> Result<bool, DataFusionError> {
    let adds = matches!(function, "sum" | "avg");
    for argument in arguments {
        let data_type = argument.get_type(input)?;
        if data_type.is_floating() || (data_type.is_numeric() && !adds) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn doubles(arguments: impl IntoIterator<Item = Expr>) -> Vec<Expr> {
    let arguments = arguments.into_iter();
    arguments
        .map(|argument| cast(argument, DataType::Float64))
        .collect()
}

/// Replaces table scans by the plans of the inputs of the same name.
fn with_inputs(
    plan: LogicalPlan,
    inputs: &BTreeMap<&str, LogicalPlan>,
) -> Result<LogicalPlan, DataFusionError> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        // Vector widths are known by now, and change the types of expressions that read them.
        let LogicalPlan::TableScan(scan) = &node else {
            return Ok(Transformed::yes(node.recompute_schema()?));
        };
        let Some(input) = inputs.get(scan.table_name.table()) else {
            return Ok(Transformed::no(node));
        };
        let columns = scan.projected_schema.fields().iter().map(|field| {
            let column = Expr::Column(Column::from_name(field.name()));
            canonical_key(column, field.data_type()).alias(field.name())
        });
        let built = LogicalPlanBuilder::from(input.clone())
            .project(columns.collect::<Vec<_>>())?
            .alias(scan.table_name.clone())?
            .build()?;
        Ok(Transformed::yes(built))
    })?;
    replaced.data.recompute_schema()
}

/// Stops at a subquery that does more than read.
struct ReadOnlyVisitor;

impl Visitor for ReadOnlyVisitor {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        if is_read_only(&query.body) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

fn is_read_only(body: &ast::SetExpr) -> bool {
    match body {
        ast::SetExpr::Select(select) => select.into.is_none(),
        ast::SetExpr::SetOperation { left, right, .. } => is_read_only(left) && is_read_only(right),
        ast::SetExpr::Query(query) => is_read_only(&query.body),
        ast::SetExpr::Values(_) | ast::SetExpr::Table(_) => true,
        _ => false,
    }
}

/// Fails if a plan does more than read: if it writes, defines or sets something.
pub fn refuse_writing(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    let walk = plan.apply_with_subqueries(|node| {
        use LogicalPlan as P;
        if matches!(
            node,
            P::Statement(_)
                | P::Dml(_)
                | P::Ddl(_)
                | P::Copy(_)
                | P::Explain(_)
                | P::Analyze(_)
                | P::DescribeTable(_)
        ) {
            refused = Some(node.display().to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walk.map_err(|error| Fault::internal("a query plan cannot be traversed").cause(error))?;
    match refused {
        None => Ok(()),
        Some(statement) => Err(Fault::new(
            codes::EXPRESSION,
            format!("`{statement}` is not a query"),
        )
        .hint(QUERIES_ONLY)),
    }
}

const QUERIES_ONLY: &str = "write one SELECT over steps and sources; declare outputs under `sinks`";

fn not_a_query(query: &str) -> Fault {
    let message = format!("`{}` is not a query: it does more than read", shown(query));
    Fault::new(codes::EXPRESSION, message).hint(QUERIES_ONLY)
}

/// Canonicalizes float keys: computed columns may contain both zeros.
fn canonicalize_keys(node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    Ok(match node {
        LogicalPlan::Aggregate(aggregate) => {
            let input = aggregate.input.schema().clone();
            let keys = aggregate
                .group_expr
                .into_iter()
                .map(|key| named_key(key, &input));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            LogicalPlan::Aggregate(Aggregate::try_new(
                aggregate.input,
                keys,
                aggregate.aggr_expr,
            )?)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let schema = input.schema().clone();
            let keys = schema
                .columns()
                .into_iter()
                .map(|column| named_key(Expr::Column(column), &schema));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
                .project(keys)?
                .distinct()?
                .build()?
        }
        LogicalPlan::Join(mut join) => {
            let left_schema = join.left.schema().clone();
            let right = join.right.schema().clone();
            let keys = join.on.into_iter().map(|(key, other_key)| {
                Ok((
                    canonical_key_in(key, left_schema.as_ref())?,
                    canonical_key_in(other_key, right.as_ref())?,
                ))
            });
            join.on = keys.collect::<Result<Vec<_>, DataFusionError>>()?;
            LogicalPlan::Join(join)
        }
        other => other,
    })
}

/// Canonicalizes a key and keeps its name.
fn named_key(key: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    if matches!(key, Expr::GroupingSet(_)) || !contains_floats(&key.get_type(schema)?) {
        return Ok(key);
    }
    let (relation, name) = key.qualified_name();
    let key = if let Expr::Alias(alias) = key {
        *alias.expr
    } else {
        key
    };
    Ok(canonical_key_in(key, schema)?.alias_qualified(relation, name))
}

/// Extends every sort to a total order; refuses `LIMIT` without an order.
fn total_order(node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    match node {
        LogicalPlan::Sort(mut sort) => {
            sort.expr.extend(all_columns(&sort.input));
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Limit(limit) if !ordered(&limit.input) => Err(DataFusionError::Plan(
            "LIMIT without ORDER BY is not deterministic".to_owned(),
        )),
        other => Ok(other),
    }
}

fn ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Limit(limit) => ordered(&limit.input),
        LogicalPlan::Projection(projection) => ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => ordered(&alias.input),
        _ => false,
    }
}

fn all_columns(plan: &LogicalPlan) -> Vec<SortExpr> {
    plan.schema()
        .columns()
        .into_iter()
        .map(|column| Expr::Column(column).sort(true, false))
        .collect()
}

fn sort_all(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let columns = all_columns(&plan);
    LogicalPlanBuilder::from(plan).sort(columns)?.build()
}

#[cfg(test)]
mod tests {
    use datafusion::functions_aggregate::covariance::covar_pop_udaf;
    use datafusion::functions_aggregate::expr_fn::{avg, corr, sum, var_sample};
    use datafusion::functions_aggregate::variance::var_pop_udaf;
    use datafusion::logical_expr::{col, table_scan};

    use super::*;

    #[test]
    fn aggregates_that_round_each_row_are_exact() {
        // Other functions stand for the exact ones.
        let of_one = var_pop_udaf();
        let of_two = covar_pop_udaf();
        let compiler = SqlCompiler::default().with_exact([
            ("sum", of_one.as_ref().clone()),
            ("avg", of_one.as_ref().clone()),
            ("var", of_one.as_ref().clone()),
            ("corr", of_two.as_ref().clone()),
        ]);
        let schema = Schema::new(vec![
            Field::new("i", DataType::Int64, true),
            Field::new("x", DataType::Float64, true),
        ]);
        for (aggregate, is_replaced) in [
            (sum(col("i")), false),
            (avg(col("i")), false),
            (sum(col("x")), true),
            (avg(col("x")), true),
            (var_sample(col("i")), true),
            (var_sample(col("x")), true),
            (corr(col("i"), col("i")), true),
            (corr(col("i"), col("x")), true),
        ] {
            let text = aggregate.to_string();
            let rows = table_scan(Some("t"), &schema, None).unwrap();
            let aggregated = rows.aggregate(Vec::<Expr>::new(), [aggregate]).unwrap();
            let node = compiler.exactly(aggregated.build().unwrap()).unwrap();
            let plan = node.display_indent().to_string();
            assert_eq!(plan.contains("_pop("), is_replaced, "{text}: {plan}");
        }
    }
    fn tables() -> BTreeMap<String, SchemaRef> {
        let columns = [
            ("i", DataType::Int64),
            ("small", DataType::Int8),
            ("x", DataType::Float64),
            ("t", DataType::Utf8),
        ];
        let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
        BTreeMap::from([("a".to_owned(), Arc::new(Schema::new(fields.to_vec())))])
    }

    /// Queries of one column, and its type: that of all values, not of the first branch or query.
    #[test]
    fn columns_have_the_types_of_all_their_values() {
        for (query, expected) in [
            (
                "SELECT CASE WHEN i = 1 THEN i ELSE x END AS v FROM a",
                DataType::Float64,
            ),
            (
                "SELECT CASE WHEN i = 1 THEN small ELSE i END AS v FROM a",
                DataType::Int64,
            ),
            (
                "SELECT CASE WHEN i = 1 THEN i ELSE t END AS v FROM a",
                DataType::Utf8,
            ),
            (
                "SELECT i AS v FROM a UNION ALL SELECT x FROM a",
                DataType::Float64,
            ),
            (
                "SELECT small AS v FROM a UNION ALL SELECT i FROM a",
                DataType::Int64,
            ),
            ("SELECT i AS v FROM a UNION SELECT t FROM a", DataType::Utf8),
            (
                "SELECT v FROM (SELECT i AS v FROM a UNION ALL SELECT x FROM a) ORDER BY v LIMIT 2",
                DataType::Float64,
            ),
            (
                "SELECT max(CASE WHEN i = 1 THEN i ELSE x END) AS v FROM a GROUP BY t",
                DataType::Float64,
            ),
        ] {
            let gather = SqlCompiler::default().query(query, &tables()).unwrap();
            assert_eq!(gather.schema.field(0).data_type(), &expected, "{query}");
        }
    }
}
