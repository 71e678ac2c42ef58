//! Columns of the outputs of an artifact, with the columns of sources that they depend on.

use forebay_commit::Artifact;
use forebay_model::Result;
use forebay_plan::ColumnLineage;

use crate::report::OutputColumn;
use crate::session::Session;

/// Columns of a sink.
#[derive(Debug, Clone)]
pub struct SinkColumns {
    /// The sink.
    pub sink: String,
    /// Its first columns, in order.
    pub columns: Vec<OutputColumn>,
    /// Number of all columns.
    pub total: usize,
}

impl Session {
    /// Columns of all sinks of an artifact, at most `columns_max` of each.
    pub fn sink_columns(
        &self,
        artifact: &Artifact,
        columns_max: usize,
    ) -> Result<Vec<SinkColumns>> {
        let bound = artifact.bind(&self.registry, &self.sql)?;
        let mut lineage = ColumnLineage::new(&bound);
        let mut sinks = Vec::with_capacity(artifact.pipeline.sinks.len());
        for sink in &artifact.pipeline.sinks {
            let Some(flow) = bound.flows.get(&sink.from) else {
                continue;
            };
            let fields = flow.schema.fields();
            let mut columns = Vec::with_capacity(fields.len().min(columns_max));
            for field in fields.iter().take(columns_max) {
                let data_type = field.data_type().to_string();
                columns.push(OutputColumn::traced(
                    &mut lineage,
                    flow,
                    field.name(),
                    data_type,
                ));
            }
            sinks.push(SinkColumns {
                sink: sink.name.clone(),
                columns,
                total: fields.len(),
            });
        }
        Ok(sinks)
    }
}
