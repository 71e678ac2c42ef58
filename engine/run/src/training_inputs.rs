//! Rows that are written for trainings alone.
//!
//! A feed returns rows in any order, so the outputs of windows and gathers must be written first.
//! If no sink writes them, the run writes the parts that a training reads to the state directory,
//! as one more output.

use forebay_model::{DataSplit, NodeInput, Pipeline, PipelineSink, Result};
use forebay_plan::{BaseDataset, BoundPipeline, ExplainTraining, training_input_name};

use crate::connector_registry::IntermediateFiles;
use crate::feed::late_steps::shared_operations;
use crate::session::Session;
use crate::training::training_parts;
use crate::training_cadence::TrainingNeeds;

impl Session {
    /// The pipeline with the outputs that its trainings need; `None` where it has them.
    pub(crate) fn with_training_inputs(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        needs: &TrainingNeeds<'_>,
    ) -> Result<Option<Pipeline>> {
        let mut extended = pipeline.clone();
        for training in &pipeline.trainings {
            if !needs.includes(training) {
                continue;
            }
            let is_written = |sink: &PipelineSink| {
                let holds = sink.from == training.from
                    || shared_operations(bound, &training.from, &sink.from).is_some();
                holds && sink.split.is_none()
            };
            if !needs_rows(bound, &training.from) || extended.sinks.iter().any(is_written) {
                continue;
            }
            let from = written_step(pipeline, bound, &training.from);
            let parts = if needs.is_moving && tells_parts(pipeline, bound, from) {
                // Rows change their part from run to run.
                vec![None]
            } else {
                training_parts(pipeline, training, self.trainer(training)?.as_ref())
            };
            for part in parts {
                let alike = |sink: &PipelineSink| sink.from == from && sink.split == part;
                if extended.sinks.iter().any(alike) {
                    continue;
                }
                let name = part.as_deref().unwrap_or("all");
                let path = self
                    .state()?
                    .join(&format!("rows/{}/{}/{name}", pipeline.name, training.name));
                let files = IntermediateFiles::new(self.connectors.as_ref());
                extended.sinks.push(PipelineSink {
                    name: training_input_name(training, part.as_deref()),
                    from: from.to_owned(),
                    format: files.format(),
                    config: files.sink_config(&path.shown)?,
                    split: part,
                    optional: false,
                    at: training.at.clone(),
                });
            }
        }
        Ok((extended.sinks.len() > pipeline.sinks.len()).then_some(extended))
    }

    /// The trainings of a pipeline with all outputs that they need, numbered after `passes` passes.
    pub(crate) fn explain_trainings(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        passes: usize,
    ) -> Result<Vec<ExplainTraining>> {
        let mut explained = Vec::new();
        for (number, training) in (passes + 1..).zip(&pipeline.trainings) {
            let parts = training_parts(pipeline, training, self.trainer(training)?.as_ref());
            let mut sinks = pipeline.sinks.iter();
            let read_sink = sinks.find(|sink| {
                let holds_parts = sink.split.is_none() || parts.contains(&sink.split);
                holds_parts && holds_rows(bound, &training.from, &sink.from)
            });
            explained.push(ExplainTraining {
                number,
                sink: training.name.clone(),
                from: training.from.clone(),
                reads: read_sink.map(|sink| sink.name.clone()),
                parts: parts.into_iter().flatten().collect(),
            });
        }
        Ok(explained)
    }
}

/// True if rows of a step still tell which part of a split by time they belong to.
fn tells_parts(pipeline: &Pipeline, bound: &BoundPipeline, from: &str) -> bool {
    let Some(DataSplit::Time { column, .. }) = &pipeline.split else {
        return false;
    };
    bound
        .flows
        .get(from)
        .is_some_and(|flow| flow.streams.len() == 1 && flow.schema.field_with_name(column).is_ok())
}

/// The step whose rows are written for a training: an earlier one, if all later operations are
/// row-wise and one of them depends on findings. Its rows can then be reused when the findings
/// change.
fn written_step<'a>(pipeline: &'a Pipeline, bound: &BoundPipeline, from: &'a str) -> &'a str {
    let Some([stream]) = bound.flows.get(from).map(|flow| flow.streams.as_slice()) else {
        return from;
    };
    let mut step = from;
    let mut written = from;
    let mut end = stream.ops.len();
    while let Some(NodeInput::From(upstream)) = pipeline.node(step).map(|node| &node.input) {
        let shared =
            shared_operations(bound, from, upstream).filter(|_| needs_rows(bound, upstream));
        let Some(shared) = shared else { break };
        // Parts that a later step marks cannot be written apart.
        if !bound
            .flows
            .get(upstream)
            .is_some_and(|flow| flow.parts || pipeline.split.is_none())
        {
            break;
        }
        // Of steps with the same statistics before them, the nearest leaves least to do.
        if stream.ops[shared..end]
            .iter()
            .any(|op| !bound.ops[*op].asks.is_empty())
        {
            written = upstream;
            end = shared;
        }
        step = upstream;
    }
    written
}

/// True if rows depend on others, so that they cannot be computed one by one.
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

/// True if the rows of a step are those of a sink, or made of them row by row.
fn holds_rows(bound: &BoundPipeline, step: &str, written: &str) -> bool {
    written == step || shared_operations(bound, step, written).is_some()
}
