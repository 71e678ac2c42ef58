//! Rows of any step, computed from the first rows of the sources in a temporary directory.

mod sampled_source;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_model::{Fault, NodeInput, Pipeline, PipelineNode, PipelineSink, Result, Step, codes, nearest_word};
use forebay_storage::{ScanRequest, ScratchDir, literal_path};
use serde_json::{Value, json};

use self::sampled_source::SampledConnectors;
use crate::session::{Session, SessionOptions};

/// What a preview shows.
#[derive(Debug, Clone)]
pub struct PreviewOptions {
    /// The step or source; that of the first sink, else the last step, where left out.
    pub step: Option<String>,
    /// Rows to show at most.
    pub rows: usize,
    /// A SQL condition on the rows to show.
    pub condition: Option<String>,
    /// Rows of each source to compute from: its first ones.
    pub sample_rows: u64,
}

/// Some rows of a step.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The step or source.
    pub step: String,
    /// Its rows, in order.
    pub batches: Vec<RecordBatch>,
}

/// The kind of step that selects the rows to show.
const FILTER: &str = "filter";

/// The kind of step that stops a run for its rows: a preview is to show them.
const EXPECT: &str = "expect";

/// The name of what is shown; no step can be called so.
const SHOWN: &str = "--where";

impl Session {
    /// Computes some rows of a step. Statistics are learned from the same sample. Writes nothing that lasts.
    pub fn preview(&self, pipeline: &Pipeline, options: &PreviewOptions) -> Result<Preview> {
        let step = match &options.step {
            Some(step) => known_step(pipeline, step)?,
            None => default_step(pipeline)?,
        };
        let scratch = ScratchDir::new(None, self.watch.clone())?;
        let place = |name: &str| scratch.path().join(name).display().to_string();
        let mut wanted = self.upstream_of(pipeline, &step)?;
        let mut from = step.clone();
        if let Some(condition) = &options.condition {
            let steps = vec![Step { kind: FILTER.to_owned(), config: Value::from(condition.as_str()), at: None }];
            let input = NodeInput::From(step.clone());
            from = SHOWN.to_owned();
            wanted.nodes.push(PipelineNode::new(&from, input, steps));
        }
        let format = "parquet".to_owned();
        wanted.sinks.push(PipelineSink {
            name: SHOWN.to_owned(),
            from,
            config: self.connectors.canonical(&format, json!({ "path": place("rows") }))?,
            format,
            split: None,
            optional: false,
            at: None,
        });
        let connectors = Arc::new(SampledConnectors { inner: self.connectors.clone(), rows: options.sample_rows });
        let session_options = SessionOptions { state: place("state"), run_id: None, ..self.options.clone() };
        let (registry, sql) = (self.registry.clone(), self.sql.clone());
        let session = Session::new(registry, connectors, sql, session_options, self.watch.clone())?;
        let report = session.allowing_empty(true).run(&wanted)?;
        let output = report.outputs.first().ok_or_else(|| Fault::internal("a preview without an output"))?;
        Ok(Preview { step, batches: self.first_rows(&output.data, options.rows)? })
    }

    /// The sources that a step reads, itself or through others.
    pub fn sources_of(&self, pipeline: &Pipeline, step: &str) -> Result<Vec<String>> {
        let step = known_step(pipeline, step)?;
        Ok(self.upstream_of(pipeline, &step)?.sources.into_iter().map(|source| source.name).collect())
    }

    /// A step, and what it reads: its own steps and sources, without sinks.
    fn upstream_of(&self, pipeline: &Pipeline, step: &str) -> Result<Pipeline> {
        let mut open = vec![step.to_owned()];
        let mut names: BTreeSet<String> = BTreeSet::new();
        while let Some(name) = open.pop() {
            if !names.insert(name.clone()) {
                continue;
            }
            let Some(node) = pipeline.node(&name) else { continue };
            match &node.input {
                NodeInput::From(from) => open.push(from.clone()),
                NodeInput::Union(all) => open.extend(all.iter().cloned()),
                NodeInput::Sql(query) => open.extend(self.sql.tables(query)?),
            }
            // Any text may name another step; one too many does no harm.
            node.steps.iter().for_each(|step| collect_texts(&step.config, &mut open));
        }
        let is_needed = |name: &String| names.contains(name);
        let mut wanted = Pipeline {
            sources: pipeline.sources.iter().filter(|source| is_needed(&source.name)).cloned().collect(),
            nodes: pipeline.nodes.iter().filter(|node| is_needed(&node.name)).cloned().collect(),
            name: pipeline.name.clone(),
            ..Pipeline::default()
        };
        // Rows that have no column of the split learn from no part of it either.
        wanted.split = pipeline.split.clone().filter(|_| wanted.nodes.iter().any(|node| node.fit_on.is_some()));
        wanted.sources.iter_mut().for_each(|source| source.ready = None);
        wanted.nodes.iter_mut().for_each(|node| node.steps.retain(|step| step.kind != EXPECT));
        Ok(wanted)
    }

    /// The first rows of an output.
    fn first_rows(&self, data: &str, rows: usize) -> Result<Vec<RecordBatch>> {
        let source = self.connectors.source("parquet", &json!({ "path": literal_path(data) }))?;
        let dataset = source.discover(&self.io, &[])?;
        let request =
            ScanRequest { batch_rows: self.options.batch_rows, ..ScanRequest::of_all_columns(&dataset.schema) };
        let (mut batches, mut left) = (Vec::new(), rows);
        for span in &dataset.spans {
            for chunk in source.open(&self.io, span, &request)? {
                let batch = chunk?.batch;
                let batch = batch.slice(0, batch.num_rows().min(left));
                left -= batch.num_rows();
                batches.push(batch);
                if left == 0 {
                    return Ok(batches);
                }
            }
        }
        Ok(batches)
    }
}

fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn default_step(pipeline: &Pipeline) -> Result<String> {
    let sinks = pipeline.sinks.iter().chain(&pipeline.trainings).map(|sink| &sink.from);
    let nodes = pipeline.nodes.iter().rev().map(|node| &node.name);
    let sources = pipeline.sources.iter().map(|source| &source.name);
    let first = sinks.chain(nodes).chain(sources).next();
    first.cloned().ok_or_else(|| Fault::new(codes::EMPTY, "the pipeline has no rows to show"))
}

fn known_step(pipeline: &Pipeline, name: &str) -> Result<String> {
    let nodes = pipeline.nodes.iter().map(|node| node.name.as_str());
    let names: Vec<&str> = nodes.chain(pipeline.sources.iter().map(|source| source.name.as_str())).collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no step or source `{name}`"));
    Err(match nearest_word(name, names.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint(format!("there are {}", names.join(", "))),
    })
}
