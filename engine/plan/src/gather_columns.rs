//! The columns that an operation over all rows reads of its inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};

use crate::{BoundPipeline, GatherBy, GatherOp, LowerGather, NodeFlow, OpId, PlanOp};

/// The columns that are read of each input, in the order of `gather_inputs`.
pub(crate) fn gather_columns(bound: &BoundPipeline, op: OpId) -> Vec<Vec<String>> {
    let inputs = bound.gather_inputs.get(&op).map_or(&[][..], Vec::as_slice);
    let PlanOp::Gather(gather) = &bound.ops[op].op else {
        return Vec::new();
    };
    // A query reads the columns of its leaves; one that cannot be planned, all of them.
    let columns_of_query = match &gather.lower {
        GatherBy::Query(lower) => query_columns(lower, inputs).ok(),
        _ => None,
    };
    let mut columns = Vec::with_capacity(inputs.len());
    for (input, (name, flow)) in inputs.iter().enumerate() {
        let mut names = flow.column_names();
        if let Some(columns_of_leaves) = &columns_of_query {
            match columns_of_leaves.get(name) {
                Some(columns_of_leaf) => names.retain(|column| columns_of_leaf.contains(column)),
                None => names.clear(),
            }
        } else {
            names.retain(|column| is_read(gather, input, &flow.schema, column));
        }
        columns.push(names);
    }
    columns
}

/// True if an operation that is not a query reads a column of the input at a place.
fn is_read(gather: &GatherOp, input: usize, schema: &Schema, column: &str) -> bool {
    match &gather.lower {
        GatherBy::GroupBy(group) => {
            let positions = group.read_columns(schema);
            let mut names = positions
                .iter()
                .map(|position| schema.field(*position).name());
            names.any(|name| name == column)
        }
        GatherBy::Join { join, .. } if input > 0 => join.columns_there().any(|read| read == column),
        _ => true,
    }
}

/// The columns that the leaves of a query read, by input.
fn query_columns(
    lower: &LowerGather,
    inputs: &[(String, NodeFlow)],
) -> Result<BTreeMap<String, BTreeSet<String>>, DataFusionError> {
    let mut leaves = Vec::with_capacity(inputs.len());
    for (name, flow) in inputs {
        leaves.push(leaf(name, &flow.schema)?);
    }
    let lowered = lower(leaves).map_err(|fault| DataFusionError::Execution(fault.to_string()))?;
    leaf_columns(&lowered)
}

/// The columns that a query reads of its tables, by the table.
pub fn leaf_columns(
    query: &LogicalPlan,
) -> Result<BTreeMap<String, BTreeSet<String>>, DataFusionError> {
    let state = SessionStateBuilder::new().with_default_features().build();
    let plan = state.optimize(query)?;
    let mut columns_of_leaves: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let leaf_name = scan.table_name.table().to_owned();
            let columns = columns_of_leaves.entry(leaf_name).or_default();
            for field in scan.projected_schema.fields() {
                columns.insert(field.name().clone());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns_of_leaves)
}

/// A table without rows that has the columns of an input, and the position of each row.
fn leaf(name: &str, schema: &Schema) -> Result<LogicalPlan, DataFusionError> {
    let position = Arc::new(Field::new(GatherOp::ROW, DataType::UInt64, false));
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(position);
    let table = EmptyTable::new(Arc::new(Schema::new(fields)));
    let source = provider_as_source(Arc::new(table));
    LogicalPlanBuilder::scan(datafusion::common::TableReference::bare(name), source, None)?.build()
}
