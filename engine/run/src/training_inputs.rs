//! Rows that are written for trainings alone.
//!
//! A feed returns rows in any order, so the outputs of windows and gathers must be written first.
//! If no sink writes them, the run writes the parts that a training reads to the state directory,
//! as one more output.

use forebay_model::{DataSplit, NodeInput, Pipeline, PipelineSink, Result};
use forebay_plan::{BaseDataset, BoundPipeline, ExplainTraining, training_input_name};

use crate::feed::late_steps::shared_operations;
use crate::intermediate_files::IntermediateFiles;
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
            if !needs_rows(bound, &training.from)
                || is_written_whole(&extended, bound, &training.from)
            {
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
                if !is_part_written(&extended, from, &part) {
                    let input = self.training_input(pipeline, training, from, part)?;
                    extended.sinks.push(input);
                }
            }
        }
        let is_extended = extended.sinks.len() > pipeline.sinks.len();
        Ok(is_extended.then_some(extended))
    }

    /// A sink in the state directory for a part of the rows of a step.
    fn training_input(
        &self,
        pipeline: &Pipeline,
        training: &PipelineSink,
        from: &str,
        part: Option<String>,
    ) -> Result<PipelineSink> {
        let name = part.as_deref().unwrap_or("all");
        let path = self
            .state()?
            .join(&format!("rows/{}/{}/{name}", pipeline.name, training.name));
        let files = IntermediateFiles::new(self.connectors.as_ref());
        Ok(PipelineSink {
            name: training_input_name(training, part.as_deref()),
            from: from.to_owned(),
            format: files.format(),
            config: files.sink_config(&path.shown)?,
            split: part,
            optional: false,
            at: training.at.clone(),
        })
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
            let mut reads = None;
            for sink in &pipeline.sinks {
                let holds_parts = sink.split.is_none() || parts.contains(&sink.split);
                if holds_parts && holds_rows(bound, &training.from, &sink.from) {
                    reads = Some(sink.name.clone());
                    break;
                }
            }
            explained.push(ExplainTraining {
                number,
                sink: training.name.clone(),
                from: training.from.clone(),
                reads,
                parts: parts.into_iter().flatten().collect(),
            });
        }
        Ok(explained)
    }
}

/// True if a sink holds all rows of a step, or rows that they are made of one by one.
fn is_written_whole(pipeline: &Pipeline, bound: &BoundPipeline, step: &str) -> bool {
    for sink in &pipeline.sinks {
        if sink.split.is_none() && holds_rows(bound, step, &sink.from) {
            return true;
        }
    }
    false
}

/// True if a sink holds just a part of the rows of a step.
fn is_part_written(pipeline: &Pipeline, step: &str, part: &Option<String>) -> bool {
    for sink in &pipeline.sinks {
        if sink.from == step && sink.split == *part {
            return true;
        }
    }
    false
}

/// True if rows of a step still tell which part of a split by time they belong to.
fn tells_parts(pipeline: &Pipeline, bound: &BoundPipeline, from: &str) -> bool {
    let Some(DataSplit::Time { column, .. }) = &pipeline.split else {
        return false;
    };
    let Some(flow) = bound.flows.get(from) else {
        return false;
    };
    flow.streams.len() == 1 && flow.schema.field_with_name(column).is_ok()
}

/// The step whose rows are written for a training: an earlier one, if all later operations are
/// row-wise and one of them depends on findings. Its rows can then be reused when the findings
/// change.
fn written_step<'a>(pipeline: &'a Pipeline, bound: &BoundPipeline, from: &'a str) -> &'a str {
    let Some(flow) = bound.flows.get(from) else {
        return from;
    };
    let [stream] = flow.streams.as_slice() else {
        return from;
    };
    let mut step = from;
    let mut written = from;
    let mut end = stream.ops.len();
    while let Some(NodeInput::From(upstream)) = pipeline.node(step).map(|node| &node.input) {
        let Some(shared) = shared_operations(bound, from, upstream) else {
            break;
        };
        if !needs_rows(bound, upstream) {
            break;
        }
        // Parts that a later step marks cannot be written apart.
        let marks_parts = match bound.flows.get(upstream) {
            Some(flow) => flow.parts || pipeline.split.is_none(),
            None => false,
        };
        if !marks_parts {
            break;
        }
        // Of steps with the same statistics before them, the nearest leaves least to do.
        let mut later_ops = stream.ops[shared..end].iter();
        if later_ops.any(|op| !bound.ops[*op].asks.is_empty()) {
            written = upstream;
            end = shared;
        }
        step = upstream;
    }
    written
}

/// True if rows depend on others, so that they cannot be computed one by one.
fn needs_rows(bound: &BoundPipeline, from: &str) -> bool {
    let Some(flow) = bound.flows.get(from) else {
        return false;
    };
    for stream in &flow.streams {
        if matches!(bound.bases[stream.base], BaseDataset::Gathered(_)) {
            return true;
        }
        let mut ops = stream.ops.iter();
        if ops.any(|op| bound.ops[*op].op.is_over_series()) {
            return true;
        }
    }
    false
}

/// True if the rows of a step are those of a sink, or made of them row by row.
fn holds_rows(bound: &BoundPipeline, step: &str, written: &str) -> bool {
    written == step || shared_operations(bound, step, written).is_some()
}
