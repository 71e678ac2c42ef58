//! Trial runs over a sample of the sources, into a place of their own.

mod source;

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use forebay_model::{Fault, NodeInput, Pipeline, PipelineSource, Result, codes};

pub(crate) use self::source::{RowSample, SampledConnectors};
use crate::session::{Session, SessionOptions};

/// The rows of each source that a trial run reads. Sources that steps only look rows up in are read
/// whole.
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
    /// A session and a pipeline for a trial run: the sources are sampled, and everything that the
    /// run keeps and publishes goes into a directory next to the state directory,
    /// `.forebay-sample/limit-1000/out/table` for the sink `table`. The outputs, models and states
    /// of real runs are neither read nor changed.
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
        for node in &mut trial.nodes {
            node.allow_empty = true;
        }
        for sink in trial
            .sinks
            .iter_mut()
            .chain(&mut trial.trainings)
            .chain(&mut trial.predictions)
        {
            sink.set_path(format!("{root}/out/{}", sink.name));
        }
        for source in &mut trial.sources {
            source.ready = None;
        }
        trial.deadline = None;
        let mut looked_up = BTreeSet::new();
        for step in trial.nodes.iter().flat_map(|node| &node.steps) {
            looked_up.extend(self.registry.facts(step)?.other_input);
        }
        let mut samples = Vec::new();
        for source in &trial.sources {
            if !looked_up.contains(&source.name) && is_read(&trial, &source.name, &looked_up) {
                samples.push((source.config.clone(), sample.of_source(source)));
            }
        }
        let connectors = SampledConnectors {
            inner: self.connectors.clone(),
            samples,
        };
        let options = SessionOptions {
            state: format!("{root}/state"),
            ..self.options.clone()
        };
        let session = Session {
            connectors: Arc::new(connectors),
            ..self.for_inner_run(options)
        };
        Ok((session, trial))
    }
}

/// True if the rows of a source are input rows of a step or a sink.
fn is_read(pipeline: &Pipeline, name: &str, looked_up: &BTreeSet<String>) -> bool {
    let sinks = pipeline.sinks.iter().chain(&pipeline.trainings);
    let sinks = sinks.chain(&pipeline.predictions);
    let mut ends: Vec<&str> = sinks.map(|sink| sink.from.as_str()).collect();
    // Steps that no other one continues are learned, too.
    let inputs = pipeline
        .nodes
        .iter()
        .flat_map(|node| inputs_of(&node.input));
    let continued: BTreeSet<&str> = inputs.map(String::as_str).collect();
    let nodes = pipeline.nodes.iter().map(|node| node.name.as_str());
    ends.extend(nodes.filter(|node| !continued.contains(node) && !looked_up.contains(*node)));
    // Queries join whole tables, or read one.
    let reads_queries = pipeline.sources.len() == 1;
    input_sources(pipeline, ends, reads_queries).contains(name)
}

/// The steps and sources whose rows an input takes by name.
fn inputs_of(input: &NodeInput) -> &[String] {
    match input {
        NodeInput::From(from) => std::slice::from_ref(from),
        NodeInput::Union(inputs) => inputs,
        NodeInput::Sql(_) => &[],
    }
}

/// The sources whose rows become those of some steps, without those that joins look up. Of a query, they are all sources
/// or none.
pub(crate) fn input_sources<'p>(
    pipeline: &'p Pipeline,
    mut steps: Vec<&'p str>,
    reads_queries: bool,
) -> BTreeSet<&'p str> {
    let mut seen = BTreeSet::new();
    while let Some(step) = steps.pop() {
        if !seen.insert(step) {
            continue;
        }
        let Some(node) = pipeline.node(step) else {
            continue;
        };
        steps.extend(inputs_of(&node.input).iter().map(String::as_str));
        if reads_queries && matches!(node.input, NodeInput::Sql(_)) {
            steps.extend(source_names(pipeline));
        }
    }
    let names = source_names(pipeline);
    names.filter(|source| seen.contains(source)).collect()
}

fn source_names(pipeline: &Pipeline) -> impl Iterator<Item = &str> {
    pipeline.sources.iter().map(|source| source.name.as_str())
}
