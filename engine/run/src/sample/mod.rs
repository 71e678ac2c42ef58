//! Trial runs over a sample of the sources, into a place of their own.

mod source;

use std::str::FromStr;
use std::sync::Arc;

use forebay_model::{Fault, NodeInput, Pipeline, PipelineSource, Result, codes};
use serde_json::Value;

pub(crate) use self::source::{RowSample, SampledConnectors};
use crate::session::{Session, SessionOptions};

/// Transforms that look rows up in another step or source, which they name under `with`.
const LOOKS_UP: [&str; 2] = ["join", "as_of_join"];

/// Which rows of each source a trial run reads. Sources that steps only look rows up in are read whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunSample {
    /// The first rows.
    Rows(u64),
    /// A share of the series, chosen by a hash of their keys; of the rows, where a source declares no keys.
    Share(f64),
}

/// `1%` or `0.01`. `1` is refused: it may be meant as one percent, or as everything.
impl FromStr for RunSample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let share = match (text.strip_suffix('%'), number(text)) {
            (Some(percent), _) => number(percent).map(|percent| percent / 100.0),
            (None, Some(1.0)) => {
                return Err(format!(
                    "`{text}` is not clear; write 1% for one percent, or 100% for everything"
                ));
            }
            (None, share) => share,
        };
        let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
        share
            .map(RunSample::Share)
            .ok_or_else(|| format!("`{text}` is not a share; write 1% or 0.01"))
    }
}

impl RunSample {
    /// The name of its directory: another sample never meets the states of this one.
    fn directory(self) -> String {
        match self {
            RunSample::Rows(rows) => format!("limit-{rows}"),
            RunSample::Share(share) => format!("share-{share}"),
        }
    }

    fn of_source(self, source: &PipelineSource) -> RowSample {
        match self {
            RunSample::Rows(rows) => RowSample::First(rows),
            RunSample::Share(share) => RowSample::Share {
                share,
                keys: source.keys.clone(),
            },
        }
    }
}

impl Session {
    /// A session and a pipeline for a trial run: the sources are sampled, and everything that the run keeps and
    /// publishes goes into a directory beside the state directory, `.forebay-sample/limit-1000/out/table` for the sink
    /// `table`. The outputs, models and states of real runs are neither read nor changed.
    pub fn sampled(&self, pipeline: &Pipeline, sample: RunSample) -> Result<(Session, Pipeline)> {
        if sample == RunSample::Rows(0) {
            return Err(Fault::new(
                codes::BAD_VALUE,
                "a sample has at least one row",
            ));
        }
        let root = format!(
            "{}-sample/{}",
            self.options.state.trim_end_matches('/'),
            sample.directory()
        );
        let mut trial = pipeline.clone();
        // A sample may have no rows of a part.
        trial
            .nodes
            .iter_mut()
            .for_each(|node| node.allow_empty = true);
        for sink in trial
            .sinks
            .iter_mut()
            .chain(&mut trial.trainings)
            .chain(&mut trial.predictions)
        {
            sink.config["path"] = Value::from(format!("{root}/out/{}", sink.name));
        }
        trial
            .sources
            .iter_mut()
            .for_each(|source| source.ready = None);
        trial.deadline = None;
        let sampled = trial
            .sources
            .iter()
            .filter(|source| is_read(&trial, &source.name));
        let connectors = SampledConnectors {
            inner: self.connectors.clone(),
            samples: sampled
                .map(|source| (source.config.clone(), sample.of_source(source)))
                .collect(),
        };
        let options = SessionOptions {
            state: format!("{root}/state"),
            ..self.options.clone()
        };
        let session = Session {
            connectors: Arc::new(connectors),
            options,
            cluster: None,
            ..self.clone()
        };
        Ok((session, trial))
    }
}

/// Whether the rows of a source are read on their own account, and not only looked up.
fn is_read(pipeline: &Pipeline, name: &str) -> bool {
    let reads = |input: &NodeInput| match input {
        NodeInput::From(from) => from == name,
        NodeInput::Union(all) => all.iter().any(|from| from == name),
        // Queries join whole tables, or read one.
        NodeInput::Sql(_) => pipeline.sources.len() == 1,
    };
    let looks_up = pipeline
        .nodes
        .iter()
        .flat_map(|node| &node.steps)
        .any(|step| {
            LOOKS_UP.contains(&step.kind.as_str())
                && step.config.get("with").is_some_and(|with| with == name)
        });
    let sinks = pipeline
        .sinks
        .iter()
        .chain(&pipeline.trainings)
        .any(|sink| sink.from == name);
    !looks_up && (sinks || pipeline.nodes.iter().any(|node| reads(&node.input)))
}
