//! Rows that are written for trainings alone.
//!
//! A feed gives rows in any order, so what windows and gathers make must be written first. Where no sink
//! does it, the run writes the parts that a training reads to the state directory, as one more output.

use forebay_model::{NodeInput, Pipeline, PipelineSink, Result};
use forebay_plan::{BaseDataset, BoundPipeline, ExplainTraining, training_input_name};
use serde_json::json;

use crate::feed::late_steps::shared_operations;
use crate::session::Session;
use crate::training::training_parts;

impl Session {
    /// The pipeline with the outputs that its trainings need; `None` where it has them.
    pub(crate) fn with_training_inputs(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Result<Option<Pipeline>> {
        let mut extended = pipeline.clone();
        for training in &pipeline.trainings {
            let is_written = |sink: &PipelineSink| {
                let holds = sink.from == training.from
                    || shared_operations(bound, &training.from, &sink.from).is_some();
                holds && sink.split.is_none()
            };
            if !needs_rows(bound, &training.from) || extended.sinks.iter().any(is_written) {
                continue;
            }
            let from = written_step(pipeline, bound, &training.from);
            for part in training_parts(pipeline, training, self.trainer(training)?.as_ref()) {
                let alike = |sink: &PipelineSink| sink.from == from && sink.split == part;
                if extended.sinks.iter().any(alike) {
                    continue;
                }
                let name = part.as_deref().unwrap_or("all");
                let path = self
                    .state()?
                    .join(&format!("rows/{}/{}/{name}", pipeline.name, training.name));
                let format = "parquet".to_owned();
                extended.sinks.push(PipelineSink {
                    name: training_input_name(training, part.as_deref()),
                    from: from.to_owned(),
                    config: self
                        .connectors
                        .canonical(&format, json!({ "path": path.shown }))?,
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
    pub(crate) fn explain_trainings(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        passes: usize,
    ) -> Result<Vec<ExplainTraining>> {
        let explain = |(number, training): (usize, &PipelineSink)| {
            let parts = training_parts(pipeline, training, self.trainer(training)?.as_ref());
            let holds = |sink: &&PipelineSink| {
                let late = || shared_operations(bound, &training.from, &sink.from).is_some();
                (sink.from == training.from || late())
                    && (sink.split.is_none() || parts.contains(&sink.split))
            };
            Ok(ExplainTraining {
                number,
                sink: training.name.clone(),
                from: training.from.clone(),
                reads: pipeline
                    .sinks
                    .iter()
                    .find(holds)
                    .map(|sink| sink.name.clone()),
                parts: parts.into_iter().flatten().collect(),
            })
        };
        (passes + 1..)
            .zip(&pipeline.trainings)
            .map(explain)
            .collect()
    }
}

/// The step whose rows are written for a training: one before it, if all that follows looks at one row at a time and
/// learns something. What is written then stands when that changes.
fn written_step<'a>(pipeline: &'a Pipeline, bound: &BoundPipeline, from: &'a str) -> &'a str {
    let Some([stream]) = bound.flows.get(from).map(|flow| flow.streams.as_slice()) else {
        return from;
    };
    let (mut step, mut written, mut end) = (from, from, stream.ops.len());
    while let Some(NodeInput::From(before)) = pipeline.node(step).map(|node| &node.input) {
        let shared = shared_operations(bound, from, before).filter(|_| needs_rows(bound, before));
        let Some(shared) = shared else { break };
        // Where parts are told later, they cannot be written apart.
        if !bound
            .flows
            .get(before)
            .is_some_and(|flow| flow.parts || pipeline.split.is_none())
        {
            break;
        }
        // Of steps with the same statistics before them, the nearest leaves least to do.
        if stream.ops[shared..end]
            .iter()
            .any(|op| !bound.ops[*op].asks.is_empty())
        {
            (written, end) = (before, shared);
        }
        step = before;
    }
    written
}

/// Whether rows depend on others, so that they cannot be made one by one.
fn needs_rows(bound: &BoundPipeline, from: &str) -> bool {
    let streams = bound
        .flows
        .get(from)
        .into_iter()
        .flat_map(|flow| &flow.streams);
    let mut streams = streams.map(|stream| {
        matches!(bound.bases[stream.base], BaseDataset::Gathered(_))
            || stream
                .ops
                .iter()
                .any(|op| bound.ops[*op].op.is_over_series())
    });
    streams.any(|needs| needs)
}
