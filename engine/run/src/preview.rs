//! Some rows of any step, computed from a sample of the sources.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_commit::Artifact;
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_setters::Setters;
use forebay_storage::ScratchDir;
use serde_json::Value;

use crate::sample::{RowSample, SampledConnectors};
use crate::session::Session;
use crate::step_rows::RowsRequest;

/// What a preview shows.
#[derive(Debug, Clone, Setters)]
pub struct PreviewOptions {
    /// The step or source; that of the first sink, else the last step, where left out.
    pub step: Option<String>,
    /// Rows to show at most.
    pub rows: usize,
    /// A SQL condition on the rows to show.
    pub condition: Option<String>,
    /// Rows of each source to compute from: its first ones.
    pub sample_rows: u64,
    /// Takes the steps and what they learned from the newest artifact of the pipeline, rather than learn from the
    /// sample.
    pub newest_artifact: bool,
}

impl Default for PreviewOptions {
    fn default() -> Self {
        PreviewOptions {
            step: None,
            rows: 20,
            condition: None,
            sample_rows: 100_000,
            newest_artifact: false,
        }
    }
}

/// Some rows of a step.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The step or source.
    pub step: String,
    /// Its rows, in order.
    pub batches: Vec<RecordBatch>,
}

impl Session {
    /// Computes some rows of a step. Writes nothing that lasts.
    pub fn preview(&self, pipeline: &Pipeline, options: &PreviewOptions) -> Result<Preview> {
        let step = match &options.step {
            Some(step) => step.clone(),
            None => default_step(pipeline)?,
        };
        let artifact = match options.newest_artifact {
            true => Some(self.newest_artifact(&pipeline.name)?),
            false => None,
        };
        let first = |config: &Value| (config.clone(), RowSample::First(options.sample_rows));
        let samples = pipeline
            .sources
            .iter()
            .map(|source| first(&source.config))
            .collect();
        let connectors = SampledConnectors {
            inner: self.connectors.clone(),
            samples,
        };
        let request = RowsRequest {
            step: &step,
            condition: options.condition.as_deref(),
            connectors: Arc::new(connectors),
            artifact: artifact.as_ref(),
            enforces_rules: false,
            uses_state: false,
        };
        let rows = self.compute_rows(
            pipeline,
            request,
            ScratchDir::new(None, self.watch.clone())?,
        )?;
        let (mut batches, mut left) = (Vec::new(), options.rows);
        for batch in rows {
            let batch = batch?;
            let batch = batch.slice(0, batch.num_rows().min(left));
            left -= batch.num_rows();
            batches.push(batch);
            if left == 0 {
                break;
            }
        }
        Ok(Preview { step, batches })
    }

    /// The artifact that the last run of a pipeline has left.
    fn newest_artifact(&self, name: &str) -> Result<Artifact> {
        let root = self.state()?;
        let Some(place) = Artifact::latest(&self.io, &root, name)? else {
            let fault = Fault::new(
                codes::NOT_FOUND,
                format!("no run of `{name}` has left an artifact"),
            );
            return Err(fault
                .file(&root.shown)
                .hint("run it first, or name its state directory by `--state`"));
        };
        Artifact::load(&self.io, &place)
    }
}

fn default_step(pipeline: &Pipeline) -> Result<String> {
    let sinks = pipeline
        .sinks
        .iter()
        .chain(&pipeline.trainings)
        .map(|sink| &sink.from);
    let nodes = pipeline.nodes.iter().rev().map(|node| &node.name);
    let sources = pipeline.sources.iter().map(|source| &source.name);
    let first = sinks.chain(nodes).chain(sources).next();
    first
        .cloned()
        .ok_or_else(|| Fault::new(codes::EMPTY, "the pipeline has no rows to show"))
}
