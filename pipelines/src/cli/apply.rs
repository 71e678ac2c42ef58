//! `forebay apply`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result, codes};
use forebay_plan::FUTURE_PART;
use forebay_run::{Artifact, ConnectorRegistry, ServedRows};
use serde_json::Value;

use super::options::{IntervalArgs, MetricsArgs, PublishArgs, RunArgs, ServedArgs};
use super::sources::source_locations;
use super::workers::WorkersArgs;
use crate::Forebay;
use crate::metrics::RunMetrics;

/// Write features of new data with what an artifact learned; learns nothing. All given rows are written: they belong to
/// no part of the split. Windows need the history, too: see --rows-from.
#[derive(Debug, Args)]
pub(crate) struct ApplyCommand {
    /// The artifact's directory, as `fit` and `run` print it.
    artifact: String,
    /// Where a source of the pipeline is now: NAME=PATH, or only PATH if there is one source.
    /// Can be given many times.
    #[arg(long = "source", value_name = "NAME=PATH", required = true)]
    sources: Vec<String>,
    /// Where the features go.
    #[arg(long, value_name = "PATH")]
    output: String,
    /// Which sink of the pipeline to write [default: the first]
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
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
        let watch = metrics.watch(reporter.watch());
        let session = self
            .options
            .session(watch.clone())?
            .allowing_empty(self.publish.allow_empty)
            .serving(ServedRows {
                from: self.served.rows_from.clone(),
                whole_history: self.served.whole_history,
                ..ServedRows::default()
            });
        metrics.serve(&session)?;
        let (_workers, session) = self.workers.apply(session, &self.options, &watch, &[])?;
        let apply = || {
            let artifact = Artifact::load(session.io(), &session.io().resolve(&self.artifact)?)?;
            metrics.name_pipeline(&artifact.pipeline.name);
            let mut pipeline = artifact.pipeline.clone();
            let connectors = Forebay::new().connectors;
            let places = source_locations(&artifact.pipeline, &self.sources)?;
            for source in &mut pipeline.sources {
                source.config["path"] = Value::from(places[&source.name].as_str());
            }
            let wanted = |name: &str| self.sink.as_deref().is_none_or(|sink| sink == name);
            pipeline.sinks.retain(|sink| wanted(&sink.name));
            pipeline.sinks.truncate(1);
            let sink = pipeline
                .sinks
                .first_mut()
                .ok_or_else(|| Fault::new(codes::UNKNOWN_NAME, "the pipeline has no such sink"))?;
            // New rows belong to no part of the split.
            sink.split = sink.split.take().filter(|part| part == FUTURE_PART);
            sink.config["path"] = Value::from(self.output.as_str());
            sink.config = connectors.canonical(&sink.format, sink.config.take())?;
            match self.interval.interval() {
                Some(interval) => session.apply_interval(&pipeline, &artifact, &interval),
                None => session.apply(&pipeline, &artifact),
            }
        };
        let report = apply();
        // Workers that come or go are told of before the summary, which is the last line.
        drop(session);
        reporter.finish(metrics.finish(report))
    }
}
