//! SQL queries over named steps, made deterministic.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes, contains_floats, logical_type};

use crate::canonical_floats::{canonical_key, canonical_key_in};
use crate::expression_depth::{checked_levels, with_planning_stack};
use crate::plan_size::refuse_large_plan;
use crate::sql_faults::{query_fault, shown};
use crate::{GatherBy, GatherOp, QueryPlan, SqlCompiler};

impl SqlCompiler {
    /// Names of the tables in a query.
    pub fn tables(&self, query: &str) -> Result<Vec<String>> {
        with_planning_stack(query.len(), || self.table_names(query))
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
                    refuse_large_plan(parsed.as_ref(), query)?;
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

    /// Compiles a query to a gather over its tables. Rows come out in the order of `ORDER BY`; ties, and queries
    /// without it, are ordered by all columns, so that the result is deterministic. Sums, means and variances of
    /// floats use the exact aggregates set by `with_exact_aggregates`. Like all statistics here, they ignore NaN.
    pub fn query(&self, query: &str, tables: &BTreeMap<String, SchemaRef>) -> Result<GatherOp> {
        with_planning_stack(query.len(), || self.compile_query(query, tables))
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
        let written = QueryPlan {
            plan: plan.clone(),
            data_age: BTreeMap::new(),
        };
        let plan = plan.transform_up_with_subqueries(|node| {
            Ok(Transformed::yes(total_order(canonicalize_keys(
                self.exactly(node)?,
            )?)?))
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
    /// Replaces float aggregates whose bits would depend on the partitioning of rows.
    fn exactly(&self, node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        let LogicalPlan::Aggregate(aggregate) = node else {
            return Ok(node);
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
                let ([argument], Some(function)) =
                    (params.args.as_slice(), self.exact(call.func.name()))
                else {
                    return Ok(Transformed::no(part));
                };
                // Sums do not depend on an order; for other functions with an order there is no exact one.
                if !argument.get_type(&input)?.is_floating() {
                    return Ok(Transformed::no(part));
                }
                let mut replaced = function.call(vec![cast(argument.clone(), DataType::Float64)]);
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
        Some(shown) => Err(
            Fault::new(codes::EXPRESSION, format!("`{shown}` is not a query")).hint(QUERIES_ONLY),
        ),
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
            let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
            let keys = join.on.into_iter().map(|(here, there)| {
                Ok((
                    canonical_key_in(here, left.as_ref())?,
                    canonical_key_in(there, right.as_ref())?,
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
