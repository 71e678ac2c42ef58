//! Whole SQL queries over named steps, made repeatable.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast};
use forebay_model::{Fault, Result, codes, logical_type};

use crate::{Gather, Sql};

impl Sql {
    /// The tables that a query names.
    pub fn tables(&self, query: &str) -> Result<Vec<String>> {
        let state = self.context().state();
        let dialect = state.config().options().sql_parser.dialect;
        let fault = |error| query_fault(query, error);
        let statement = state.sql_to_statement(query, &dialect).map_err(fault)?;
        let tables = state.resolve_table_references(&statement).map_err(fault)?;
        Ok(tables.iter().map(|table| table.table().to_owned()).collect())
    }

    /// A query as a gather over its tables. Rows come out in the order of `ORDER BY`, ties and
    /// everything else in the order of all columns, so that the result is the same every time.
    /// Sums, means and variances of floats are the exact ones, where [`Sql::with_exact`] gave them;
    /// like all statistics here they ignore NaN.
    pub fn query(&self, query: &str, tables: &BTreeMap<String, SchemaRef>) -> Result<Gather> {
        let fault = |error| query_fault(query, error);
        let context = self.context().state().clone();
        let session = datafusion::prelude::SessionContext::new_with_state(context);
        for (name, schema) in tables {
            session.deregister_table(name.as_str()).map_err(fault)?;
            session.register_table(name.as_str(), Arc::new(EmptyTable::new(schema.clone()))).map_err(fault)?;
        }
        let plan = futures::executor::block_on(session.state().create_logical_plan(query)).map_err(fault)?;
        tables.keys().for_each(|name| drop(session.deregister_table(name.as_str())));
        let plan = plan.transform_up(|node| Ok(Transformed::yes(total_order(self.exactly(node)?)?)));
        let plan = plan.map_err(fault)?.data;
        let plan = if ordered(&plan) { plan } else { sort_all(plan).map_err(fault)? };
        let fields: Vec<Field> = plan
            .schema()
            .fields()
            .iter()
            .map(|field| Field::new(field.name(), logical_type(field.data_type()), field.is_nullable()))
            .collect();
        let names: Vec<String> = tables.keys().cloned().collect();
        let text = query.to_owned();
        Ok(Gather {
            others: names.clone(),
            alone: true,
            schema: Arc::new(Schema::new(fields)),
            lower: Arc::new(move |inputs| {
                let inputs: BTreeMap<&str, LogicalPlan> = names.iter().map(String::as_str).zip(inputs).collect();
                with_inputs(plan.clone(), &inputs).map_err(|error| query_fault(&text, error))
            }),
        })
    }
}

impl Sql {
    /// Replaces aggregates of floats whose bits would depend on how rows are divided.
    fn exactly(&self, node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(node) };
        let input = aggregate.input.schema().clone();
        let exact = |expression: Expr| -> Result<Expr, DataFusionError> {
            let name = expression.schema_name().to_string();
            let replaced = expression.transform_up(|part| {
                let Expr::AggregateFunction(call) = &part else { return Ok(Transformed::no(part)) };
                let params = &call.params;
                let plain = !params.distinct && params.filter.is_none() && params.order_by.is_empty();
                let ([argument], Some(function)) = (params.args.as_slice(), self.exact(call.func.name())) else {
                    return Ok(Transformed::no(part));
                };
                if !plain || !argument.get_type(&input)?.is_floating() {
                    return Ok(Transformed::no(part));
                }
                Ok(Transformed::yes(function.call(vec![cast(argument.clone(), DataType::Float64)])))
            })?;
            Ok(if replaced.transformed { replaced.data.alias(name) } else { replaced.data })
        };
        let expressions = aggregate.aggr_expr.into_iter().map(exact).collect::<Result<Vec<_>, _>>()?;
        Ok(LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, aggregate.group_expr, expressions)?))
    }
}

/// Puts the inputs' plans in the place of the tables of the same name.
fn with_inputs(plan: LogicalPlan, inputs: &BTreeMap<&str, LogicalPlan>) -> Result<LogicalPlan, DataFusionError> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let Some(input) = inputs.get(scan.table_name.table()) else { return Ok(Transformed::no(node)) };
        let columns = scan.projected_schema.fields().iter().map(|field| Expr::Column(Column::from_name(field.name())));
        let built = LogicalPlanBuilder::from(input.clone())
            .project(columns.collect::<Vec<_>>())?
            .alias(scan.table_name.clone())?
            .build()?;
        Ok(Transformed::yes(built))
    })?;
    replaced.data.recompute_schema()
}

/// Sorts by everything after what was asked for; refuses to pick rows without an order.
fn total_order(node: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    match node {
        LogicalPlan::Sort(mut sort) => {
            sort.expr.extend(all_columns(&sort.input));
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Limit(limit) if !ordered(&limit.input) => {
            Err(DataFusionError::Plan("LIMIT without ORDER BY gives other rows each time".to_owned()))
        }
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
    plan.schema().columns().into_iter().map(|column| Expr::Column(column).sort(true, false)).collect()
}

fn sort_all(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let columns = all_columns(&plan);
    LogicalPlanBuilder::from(plan).sort(columns)?.build()
}

fn query_fault(query: &str, error: DataFusionError) -> Fault {
    let short: String = query.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
    if let Some(reason) = crate::sql::syntax_reason(&error) {
        return Fault::new(codes::EXPRESSION, format!("the query `{short}` is not valid: {reason}"));
    }
    let reason = error.strip_backtrace();
    let reason = reason.lines().next().unwrap_or_default().to_owned();
    Fault::new(codes::EXPRESSION, format!("the query `{short}` is not valid: {reason}")).cause(error)
}
