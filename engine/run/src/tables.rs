//! Sinks that are tables: what is checked before a run computes anything.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{Fault, Pipeline, Result, logical_type};
use forebay_plan::{BaseDataset, BoundPipeline};

use crate::session::Session;

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

impl Session {
    /// Refuses sinks whose columns could not be committed to their tables. Where rows are gathered first, the types of
    /// columns are known only afterwards: these are checked by the commit.
    pub(crate) fn check_tables(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        bound: &BoundPipeline,
    ) -> Result<()> {
        let mut faults = Vec::new();
        for sink in sinks {
            let (of, at) = (self.sink(pipeline, *sink)?, &pipeline.sinks[*sink].at);
            let (Some(log), Some(flow)) =
                (of.table(), bound.flows.get(&pipeline.sinks[*sink].from))
            else {
                continue;
            };
            let is_known = |base: usize| matches!(bound.bases[base], BaseDataset::Source(_));
            if flow.streams.iter().all(|stream| is_known(stream.base)) {
                let schema = table_schema(bound, pipeline, *sink)?;
                let checked = log.check(&self.io, &schema);
                faults.extend(checked.err().map(|fault| fault.at(at.as_ref())));
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }
}
