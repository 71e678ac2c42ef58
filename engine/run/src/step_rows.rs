//! The rows of a step, computed into files of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay_commit::Artifact;
use forebay_contract::{ChunkIterator, ConnectorRegistry, ScanRequest, Source};
use forebay_model::{
    DayRules, Fault, NodeInput, Pipeline, PipelineNode, PipelineSink, PipelineSource, Result, Span,
    Step, codes, plain_batch,
};
use forebay_plan::{StepChange, TransformRegistry};
use forebay_storage::ScratchDir;
use serde_json::Value;

use crate::intermediate_files::IntermediateFiles;
use crate::profile::{DatasetProfile, ProfileOptions};
use crate::report::RunReport;
use crate::served_rows::ServedRows;
use crate::session::{Session, SessionOptions};

/// The kind of step that selects rows.
const FILTER: &str = "filter";

/// The kind of step that stops a run for its rows.
const EXPECT: &str = "expect";

/// Kinds of steps that read rows, and do not change them.
const LOOKING: [&str; 2] = [EXPECT, "profile"];

/// Name of the temporary step; no step of a spec can have it.
const SHOWN: &str = "--where";

/// Name of the sink of the rows, which faults of its pass have.
const ROWS: &str = "rows";

/// Rows to compute, and the inputs to use.
pub(crate) struct RowsRequest<'a> {
    /// The step or source.
    pub step: &'a str,
    /// A SQL condition on its rows.
    pub condition: Option<&'a str>,
    /// The connectors that read the sources.
    pub connectors: Arc<dyn ConnectorRegistry>,
    /// Findings to apply; the steps are fitted in this run without it.
    pub artifact: Option<&'a Artifact>,
    /// True if rules of `expect` stop the run and take out rows. Where steps have been fitted, they
    /// only warn.
    pub enforces_rules: bool,
    /// True if findings of earlier runs are taken from the state directory, and kept there.
    pub uses_state: bool,
}

/// The rows of a step, batch by batch. They lie in files until this is dropped.
pub struct StepRows {
    schema: SchemaRef,
    session: Session,
    source: Arc<dyn Source>,
    spans: std::vec::IntoIter<Span>,
    chunks: Option<ChunkIterator>,
    /// Format of the files.
    format: String,
    /// Configuration of the source of the files.
    config: Value,
    _scratch: ScratchDir,
}

impl StepRows {
    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Profiles the rows, which are those of a step, with a state directory beside their files.
    pub(crate) fn profile(&self, step: &str) -> Result<DatasetProfile> {
        let source = PipelineSource {
            name: step.to_owned(),
            format: self.format.clone(),
            config: self.config.clone(),
            time: None,
            keys: Vec::new(),
            duplicates: None,
            ready: None,
            lookback: None,
            days: DayRules::default(),
            at: None,
        };
        let pipeline = Pipeline {
            name: step.to_owned(),
            sources: vec![source],
            ..Pipeline::default()
        };
        let options = ProfileOptions::default();
        self.session.profile_with(&pipeline, step, &options)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(chunk) = self.chunks.as_mut().and_then(Iterator::next) {
                return Ok(Some(plain_batch(&self.schema, &chunk?.batch)?));
            }
            let Some(span) = self.spans.next() else {
                return Ok(None);
            };
            let batch_rows = self.session.options.batch_rows;
            let request = ScanRequest {
                batch_rows,
                ..ScanRequest::of_all_columns(&self.schema)
            };
            self.chunks = Some(self.source.open(&self.session.io, &span, &request)?);
        }
    }
}

/// The sink of the rows of a step.
fn sink_of_rows(files: &IntermediateFiles<'_>, from: &str, path: &str) -> Result<PipelineSink> {
    Ok(PipelineSink {
        name: ROWS.to_owned(),
        from: from.to_owned(),
        format: files.format(),
        config: files.shown_sink_config(path)?,
        split: None,
        optional: false,
        at: None,
    })
}

impl Iterator for StepRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.next_batch().transpose()
    }
}

impl Session {
    /// The rows of a step or source. Its steps are fitted in this run, and nothing is published:
    /// the rows lie in temporary files in the state directory's parent, so that memory stays within
    /// its limit.
    pub fn rows(&self, pipeline: &Pipeline, step: &str) -> Result<StepRows> {
        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let connectors = self.connectors.clone();
        self.compute_rows(
            pipeline,
            RowsRequest {
                step,
                condition: None,
                connectors,
                artifact: None,
                enforces_rules: true,
                uses_state: false,
            },
            scratch,
        )
    }

    /// All rows of a step or source, in memory.
    pub fn collect(&self, pipeline: &Pipeline, step: &str) -> Result<Vec<RecordBatch>> {
        self.rows(pipeline, step)?.collect()
    }

    /// Computes the rows of a step in a temporary directory.
    pub(crate) fn compute_rows(
        &self,
        pipeline: &Pipeline,
        request: RowsRequest<'_>,
        scratch: ScratchDir,
    ) -> Result<StepRows> {
        let step = known_step(pipeline, request.step)?;
        let path_in_scratch = |name: &str| scratch.path().join(name).display().to_string();
        let mut step_pipeline = match request.artifact {
            Some(artifact) => as_learned(&self.registry, pipeline, artifact, &step)?,
            None => self.upstream_of(pipeline, &step)?,
        };
        if request.artifact.is_none() && !request.enforces_rules {
            for node in &mut step_pipeline.nodes {
                node.steps
                    .retain(|step| !LOOKING.contains(&step.kind.as_str()));
            }
        }
        let mut from = step;
        if let Some(condition) = request.condition {
            let steps = vec![Step {
                kind: FILTER.to_owned(),
                config: Value::from(condition),
                at: None,
            }];
            let input = NodeInput::From(from);
            from = SHOWN.to_owned();
            step_pipeline
                .nodes
                .push(PipelineNode::new(&from, input, steps));
        }
        let mut files = IntermediateFiles::new(self.connectors.as_ref());
        let rows_sink = sink_of_rows(&files, &from, &path_in_scratch("rows"))?;
        step_pipeline.sinks.push(rows_sink);
        let state = if request.uses_state {
            self.options.state.clone()
        } else {
            path_in_scratch("state")
        };
        let options = SessionOptions {
            state,
            run_id: None,
            ..self.options.clone()
        };
        // Rows that are only shown are published nowhere: they may lack history.
        let served = ServedRows {
            whole_history: true,
            ..ServedRows::default()
        };
        let session = Session {
            connectors: request.connectors,
            allow_empty: true,
            served,
            renumbers: false,
            deadline: None,
            ..self.for_inner_run(options)
        };
        let mut report = session.run_or_apply(&step_pipeline, request.artifact);
        // Types of columns are checked before anything is computed. Other such faults come again.
        if let Err(fault) = &report
            && fault.code() == codes::UNSUPPORTED
            && let Some(exact_files) = IntermediateFiles::exact(self.connectors.as_ref())
        {
            files = exact_files;
            step_pipeline.sinks.pop();
            let rows_sink = sink_of_rows(&files, &from, &path_in_scratch("exact"))?;
            step_pipeline.sinks.push(rows_sink);
            report = session.run_or_apply(&step_pipeline, request.artifact);
        }
        // The condition is a step of a node that no spec has.
        let report =
            report.map_err(|fault| fault.rename_step(&format!("{SHOWN}.{FILTER}"), SHOWN))?;
        let output = report
            .outputs
            .first()
            .ok_or_else(|| Fault::internal("rows without an output"))?;
        let source = files.source(&output.data)?;
        let dataset = source.discover(&session.io, &[])?;
        Ok(StepRows {
            schema: dataset.schema,
            session,
            source,
            spans: dataset.spans.into_iter(),
            chunks: None,
            format: files.format(),
            config: files.source_config(&output.data),
            _scratch: scratch,
        })
    }

    /// Applies an artifact, or fits the steps where there is none.
    fn run_or_apply(&self, pipeline: &Pipeline, artifact: Option<&Artifact>) -> Result<RunReport> {
        match artifact {
            Some(artifact) => self.apply(pipeline, artifact),
            None => self.run(pipeline),
        }
    }

    /// The sources that a step reads, itself or through others.
    pub fn sources_of(&self, pipeline: &Pipeline, step: &str) -> Result<Vec<String>> {
        let step = known_step(pipeline, step)?;
        Ok(self
            .upstream_of(pipeline, &step)?
            .sources
            .into_iter()
            .map(|source| source.name)
            .collect())
    }

    /// A pipeline of a step and its inputs: its own steps and sources, without sinks.
    fn upstream_of(&self, pipeline: &Pipeline, step: &str) -> Result<Pipeline> {
        let mut open = vec![step.to_owned()];
        let mut names: BTreeSet<String> = BTreeSet::new();
        while let Some(name) = open.pop() {
            if !names.insert(name.clone()) {
                continue;
            }
            let Some(node) = pipeline.node(&name) else {
                continue;
            };
            match &node.input {
                NodeInput::From(from) => open.push(from.clone()),
                NodeInput::Union(inputs) => open.extend(inputs.iter().cloned()),
                NodeInput::Sql(query) => open.extend(self.sql.tables(query)?),
            }
            // Any text may name another step; one too many does no harm.
            for step in &node.steps {
                collect_texts(&step.config, &mut open);
            }
        }
        let is_needed = |name: &String| names.contains(name);
        let mut upstream = Pipeline {
            sources: pipeline
                .sources
                .iter()
                .filter(|source| is_needed(&source.name))
                .cloned()
                .collect(),
            nodes: pipeline
                .nodes
                .iter()
                .filter(|node| is_needed(&node.name))
                .cloned()
                .collect(),
            name: pipeline.name.clone(),
            ..Pipeline::default()
        };
        // Rows that have no column of the split learn from no part of it either.
        upstream.split = pipeline
            .split
            .clone()
            .filter(|_| upstream.nodes.iter().any(|node| node.fit_on.is_some()));
        for source in &mut upstream.sources {
            source.ready = None;
        }
        Ok(upstream)
    }
}

/// The pipeline of an artifact, with its findings, over the sources of this one. Its rules about
/// rows only warn.
fn as_learned(
    registry: &TransformRegistry,
    pipeline: &Pipeline,
    artifact: &Artifact,
    step: &str,
) -> Result<Pipeline> {
    let mut learned = artifact.pipeline.clone();
    known_step(&learned, step)?;
    for source in &mut learned.sources {
        if let Some(declared) = pipeline.source(&source.name) {
            source.format = declared.format.clone();
            source.config = declared.config.clone();
        }
        source.ready = None;
    }
    for node in &mut learned.nodes {
        for step in &mut node.steps {
            registry.change(step, &StepChange::WarnOnly)?;
        }
    }
    let (sinks, trainings, predictions) = Default::default();
    Ok(Pipeline {
        sinks,
        trainings,
        predictions,
        feed: None,
        deadline: None,
        ..learned
    })
}

fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => fields
            .values()
            .for_each(|field| collect_texts(field, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The name of a step or source; a fault if it does not exist.
pub(crate) fn known_step(pipeline: &Pipeline, name: &str) -> Result<String> {
    let nodes = pipeline.nodes.iter().map(|node| node.name.as_str());
    let names: Vec<&str> = nodes
        .chain(pipeline.sources.iter().map(|source| source.name.as_str()))
        .collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    let fault = Fault::new(
        codes::UNKNOWN_NAME,
        format!("there is no step or source `{name}`"),
    );
    Err(fault.suggest(name, names, "the steps and sources are"))
}
