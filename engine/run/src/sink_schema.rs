//! Columns of sinks.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{Fault, Pipeline, Result, logical_type};
use forebay_plan::BoundPipeline;

/// The columns of a sink, in logical types.
pub(crate) fn table_schema(
    bound: &BoundPipeline,
    pipeline: &Pipeline,
    sink: usize,
) -> Result<SchemaRef> {
    let flow = bound
        .flows
        .get(&pipeline.sinks[sink].from)
        .ok_or_else(|| Fault::internal("a sink without rows"))?;
    let field =
        |field: &Arc<Field>| Field::new(field.name(), logical_type(field.data_type()), true);
    Ok(Arc::new(Schema::new(
        flow.schema.fields().iter().map(field).collect::<Vec<_>>(),
    )))
}
