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
    let read = match &gather.lower {
        GatherBy::Query(lower) => query_columns(lower, inputs).ok(),
        _ => None,
    };
    let mut columns = Vec::with_capacity(inputs.len());
    for (input, (name, flow)) in inputs.iter().enumerate() {
        let mut names = flow.column_names();
        match &read {
            // A query reads the columns of its leaves; one that cannot be planned, all of them.
            Some(read) => match read.get(name) {
                Some(read) => names.retain(|column| read.contains(column)),
                None => names.clear(),
            },
            None => names.retain(|column| is_read(gather, input, &flow.schema, column)),
        }
        columns.push(names);
    }
    columns
}

/// True if an operation that is not a query reads a column of the input at a place.
fn is_read(gather: &GatherOp, input: usize, schema: &Schema, column: &str) -> bool {
    match &gather.lower {
        GatherBy::GroupBy(group) => group
            .read_columns(schema)
            .iter()
            .any(|read| schema.field(*read).name() == column),
        GatherBy::Join { join, .. } if input > 0 => join.columns_there().any(|read| read == column),
        _ => true,
    }
}

/// The columns that the leaves of a query read, by input.
fn query_columns(
    lower: &LowerGather,
    inputs: &[(String, NodeFlow)],
) -> Result<BTreeMap<String, BTreeSet<String>>, DataFusionError> {
    let state = SessionStateBuilder::new().with_default_features().build();
    let leaves = inputs
        .iter()
        .map(|(name, flow)| leaf(name, &flow.schema))
        .collect::<Result<Vec<_>, DataFusionError>>()?;
    let lowered = lower(leaves).map_err(|fault| DataFusionError::Execution(fault.to_string()))?;
    let plan = state.optimize(&lowered)?;
    let mut read: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let names = scan.projected_schema.fields().iter();
            read.entry(scan.table_name.table().to_owned())
                .or_default()
                .extend(names.map(|field| field.name().clone()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(read)
}

/// A table without rows that has the columns of an input, and the position of each row.
fn leaf(name: &str, schema: &Schema) -> Result<LogicalPlan, DataFusionError> {
    let position = Arc::new(Field::new(GatherOp::ROW, DataType::UInt64, false));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([position]).collect();
    let table = EmptyTable::new(Arc::new(Schema::new(fields)));
    let source = provider_as_source(Arc::new(table));
    LogicalPlanBuilder::scan(datafusion::common::TableReference::bare(name), source, None)?.build()
}
