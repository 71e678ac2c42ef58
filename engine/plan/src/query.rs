//! Whole SQL queries over named steps, made repeatable.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
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
        let plan = plan.transform_up(|node| Ok(Transformed::yes(total_order(node)?))).map_err(fault)?.data;
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
