//! Rows that are written for trainings alone.
//!
//! A feed gives rows in any order, so what windows and gathers make must be written first. Where no sink
//! does it, the run writes the parts that a training reads to the state directory, as one more output.

use forebay_model::{Pipeline, PipelineSink, Result};
use forebay_plan::{BaseDataset, BoundPipeline, ExplainTraining};
use serde_json::json;

use crate::session::Session;
use crate::training::training_parts;

impl Session {
    /// The pipeline with the outputs that its trainings need; `None` where it has them.
    pub(crate) fn with_training_inputs(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Result<Option<Pipeline>> {
        let mut extended = pipeline.clone();
        for training in &pipeline.trainings {
            let is_written = |sink: &PipelineSink| sink.from == training.from && sink.split.is_none();
            if !needs_rows(bound, &training.from) || extended.sinks.iter().any(is_written) {
                continue;
            }
            for part in training_parts(pipeline, training, self.trainer(training)?.as_ref()) {
                let alike = |sink: &PipelineSink| sink.from == training.from && sink.split == part;
                if extended.sinks.iter().any(alike) {
                    continue;
                }
                let name = part.as_deref().unwrap_or("all");
                let path = self.state()?.join(&format!("rows/{}/{}/{name}", pipeline.name, training.name));
                let format = "parquet".to_owned();
                extended.sinks.push(PipelineSink {
                    name: format!("{}.{name}", training.name),
                    from: training.from.clone(),
                    config: self.connectors.canonical(&format, json!({ "path": path.shown }))?,
                    format,
                    split: part,
                    optional: false,
                    at: training.at.clone(),
                });
            }
        }
        Ok((extended.sinks.len() > pipeline.sinks.len()).then_some(extended))
    }

    /// The trainings of a pipeline with all outputs that they need, after so many passes.
    pub(crate) fn explain_trainings(&self, pipeline: &Pipeline, passes: usize) -> Result<Vec<ExplainTraining>> {
        let explain = |(number, training): (usize, &PipelineSink)| {
            let parts = training_parts(pipeline, training, self.trainer(training)?.as_ref());
            let holds = |sink: &&PipelineSink| {
                sink.from == training.from && (sink.split.is_none() || parts.contains(&sink.split))
            };
            Ok(ExplainTraining {
                number,
                sink: training.name.clone(),
                from: training.from.clone(),
                reads: pipeline.sinks.iter().find(holds).map(|sink| sink.name.clone()),
                parts: parts.into_iter().flatten().collect(),
            })
        };
        (passes + 1..).zip(&pipeline.trainings).map(explain).collect()
    }
}

/// Whether rows depend on others, so that they cannot be made one by one.
fn needs_rows(bound: &BoundPipeline, from: &str) -> bool {
    let streams = bound.flows.get(from).into_iter().flat_map(|flow| &flow.streams);
    let mut streams = streams.map(|stream| {
        matches!(bound.bases[stream.base], BaseDataset::Gathered(_))
            || stream.ops.iter().any(|op| bound.ops[*op].op.is_over_series())
    });
    streams.any(|needs| needs)
}
