//! The columns of sinks: what is checked before a run computes anything.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use forebay_contract::{FileLayout, Sink};
use forebay_model::{Fault, Pipeline, Result, check_type_levels};
use forebay_plan::{BaseDataset, BoundPipeline};

use crate::session::Session;
use crate::sink_schema::table_schema;

/// The columns that files hold: folders tell the others.
fn stored_columns(schema: &SchemaRef, layout: &FileLayout) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .filter(|field| !layout.partition_by.contains(field.name()));
    Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()))
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
        self.check_columns(pipeline, sinks, bound, &|sink, schema| {
            sink.table()
                .map_or(Ok(()), |log| log.check(&self.io, schema))
        })
    }

    /// Refuses sinks whose formats do not hold their columns, as far as types are known before rows are gathered.
    pub(crate) fn check_formats(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        bound: &BoundPipeline,
    ) -> Result<()> {
        self.check_columns(pipeline, sinks, bound, &|sink, schema| {
            let stored = stored_columns(schema, &sink.layout());
            check_type_levels(&stored)?;
            sink.check_schema(&stored)
        })
    }

    fn check_columns(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        bound: &BoundPipeline,
        check: &dyn Fn(&dyn Sink, &SchemaRef) -> Result<()>,
    ) -> Result<()> {
        let mut faults = Vec::new();
        for index in sinks {
            let sink = self.sink(pipeline, *index)?;
            let at = pipeline.sinks[*index].at.as_ref();
            let Some(flow) = bound.flows.get(&pipeline.sinks[*index].from) else {
                continue;
            };
            let is_known = |base: usize| matches!(bound.bases[base], BaseDataset::Source(_));
            if flow.streams.iter().all(|stream| is_known(stream.base)) {
                let schema = table_schema(bound, pipeline, *index)?;
                let checked = check(sink.as_ref(), &schema);
                faults.extend(checked.err().map(|fault| fault.at(at)));
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }
}
