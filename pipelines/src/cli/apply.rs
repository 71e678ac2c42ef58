//! `forebay apply`.

use std::process::ExitCode;

use clap::Args;
use forebay_contract::ConnectorRegistry;
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_plan::FUTURE_PART;
use forebay_run::{Artifact, InverseRequest, RunReport, ServedRows, Session};

use super::options::{IntervalArgs, MetricsArgs, PublishArgs, RunArgs, ServedArgs};
use super::sources::source_locations;
use super::usage;
use super::workers::WorkersArgs;
use crate::Forebay;
use crate::metrics::{CommandMetrics, RunMetrics};

/// Write features of new data with what an artifact learned; learns nothing. All given rows are written: they belong to
/// no part of the split. Windows need the history, too: see --rows-from.
#[derive(Debug, Args)]
pub(crate) struct ApplyCommand {
    /// The artifact's directory, as `fit` and `run` print it.
    artifact: String,
    /// Present path of a source of the pipeline: NAME=PATH, or only PATH if there is one source.
    /// Can be given many times.
    #[arg(long = "source", value_name = "NAME=PATH", required = true)]
    sources: Vec<String>,
    /// Output path of the features.
    #[arg(long, value_name = "PATH")]
    output: String,
    /// The sink of the pipeline to write [default: the first]
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// Go the other way: write columns of the source, computed from features that the artifact made. `--source` is the
    /// path of the features, in the format of the sink. Scalers, `log1p`, `vocabulary`, `ordinal` and new names can be
    /// inverted; a column of another step is refused by name.
    #[arg(
        long,
        conflicts_with_all = ["rows_from", "whole_history", "interval"],
        conflicts_with_all = ["workers", "local_workers", "on"]
    )]
    inverse: bool,
    /// Columns of the features to invert, with commas between them [default: all]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "inverse"
    )]
    columns: Vec<String>,
    #[command(flatten)]
    served: ServedArgs,
    #[command(flatten)]
    interval: IntervalArgs,
    #[command(flatten)]
    publish: PublishArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl ApplyCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let mut metrics = self.metrics.metrics::<RunMetrics>()?;
        let listener = metrics.watch(reporter.watch());
        let session = self
            .options
            .session(listener.clone())?
            .allowing_empty(self.publish.allow_empty)
            .serving(ServedRows {
                from: self.served.rows_from.clone(),
                whole_history: self.served.whole_history,
                ..ServedRows::default()
            });
        metrics.serve(&session)?;
        let (_workers, session) = self.workers.apply(session, &self.options, &listener, &[])?;
        let report = self.apply(&session, &metrics);
        // Workers that join or leave are reported before the summary, which is the last line.
        drop(session);
        reporter.finish(metrics.finish(report))
    }

    fn apply(&self, session: &Session, metrics: &CommandMetrics<RunMetrics>) -> Result<RunReport> {
        let artifact = Artifact::load(session.io(), &session.io().resolve(&self.artifact)?)?;
        metrics.name_pipeline(&artifact.pipeline.name);
        if self.inverse {
            return self.invert(session, &artifact);
        }
        let mut pipeline = artifact.pipeline.clone();
        let locations = source_locations(&artifact.pipeline, &self.sources)?;
        for source in &mut pipeline.sources {
            source.set_path(locations[&source.name].as_str());
        }
        if let Some(selected) = &self.sink {
            pipeline.sinks.retain(|sink| sink.name == *selected);
        }
        pipeline.sinks.truncate(1);
        let sink = pipeline
            .sinks
            .first_mut()
            .ok_or_else(|| self.missing_sink(&artifact.pipeline))?;
        // New rows belong to no part of the split.
        sink.split = sink.split.take().filter(|part| part == FUTURE_PART);
        sink.set_path(self.output.as_str());
        let connectors = Forebay::new().connectors;
        sink.config = connectors.canonical(&sink.format, sink.config.take())?;
        match self.interval.interval() {
            Some(interval) => session.apply_interval(&pipeline, &artifact, &interval),
            None => session.apply(&pipeline, &artifact),
        }
    }

    /// Writes columns of the source from features.
    fn invert(&self, session: &Session, artifact: &Artifact) -> Result<RunReport> {
        let [path] = self.sources.as_slice() else {
            let fault = usage("`--inverse` reads one dataset of features");
            return Err(fault.hint("give `--source PATH` once"));
        };
        let selected = self.sink.as_ref();
        let mut sinks = artifact.pipeline.sinks.iter();
        let sink = sinks.find(|sink| selected.is_none_or(|name| sink.name == *name));
        let sink = sink.ok_or_else(|| self.missing_sink(&artifact.pipeline))?;
        let request = InverseRequest {
            path: path.clone(),
            output: self.output.clone(),
            format: sink.format.clone(),
            node: sink.from.clone(),
            columns: self.columns.clone(),
        };
        session.apply_inverse(artifact, &request)
    }

    /// The fault of a pipeline without the sink to write.
    fn missing_sink(&self, pipeline: &Pipeline) -> Fault {
        let Some(selected) = &self.sink else {
            let fault = Fault::new(codes::UNKNOWN_NAME, "the pipeline has no sink of features");
            return fault.hint("apply the artifact of a spec with one, or use `forebay predict`");
        };
        let message = format!("the pipeline has no sink `{selected}`");
        let names = pipeline.sinks.iter().map(|sink| sink.name.as_str());
        Fault::new(codes::UNKNOWN_NAME, message).suggest(selected, names, "its sinks are")
    }
}
