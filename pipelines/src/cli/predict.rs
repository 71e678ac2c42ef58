//! `forebay predict`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay_contract::ForecastFormat;
use forebay_model::Result;

use super::options::{IntervalArgs, MetricsArgs, PublishArgs, RunArgs, ServedArgs};
use super::sources::source_locations;
use super::workers::WorkersArgs;
use crate::metrics::RunMetrics;
use crate::{ScoringRequest, TrainedModel};

/// Write what a trained model predicts for a dataset: for its rows of the future, where the model's step adds them.
#[derive(Debug, Args)]
pub(crate) struct PredictCommand {
    /// The model's directory: that of a `train` sink, as `run` prints it.
    model: String,
    /// Present path of a source of the pipeline: NAME=PATH, or only PATH if there is one source.
    /// Can be given many times.
    #[arg(long = "source", value_name = "NAME=PATH", required = true)]
    sources: Vec<String>,
    /// Output path of the predictions.
    #[arg(long, value_name = "PATH")]
    output: String,
    /// The format of the files.
    #[arg(long, value_enum, default_value_t = OutputFormat::Parquet)]
    format: OutputFormat,
    /// Columns to write in addition to the predictions, with commas between them [default: all of
    /// the step; for rows of the future, keys and time]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Predict for the rows of this part of the split only; `future` are the rows that `future_rows` adds.
    #[arg(long, value_name = "PART")]
    split: Option<String>,
    /// Name of the column of predictions.
    #[arg(long, value_name = "NAME", default_value = "prediction")]
    name: String,
    /// Least prediction: smaller ones become it.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    min: Option<f64>,
    /// Greatest prediction: greater ones become it.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    max: Option<f64>,
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

/// The format of predictions.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OutputFormat {
    Parquet,
    Csv,
    Json,
}

impl From<OutputFormat> for ForecastFormat {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Parquet => ForecastFormat::Parquet,
            OutputFormat::Csv => ForecastFormat::Csv,
            OutputFormat::Json => ForecastFormat::Json,
        }
    }
}

impl PredictCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let mut metrics = self.metrics.metrics::<RunMetrics>()?;
        let watch = metrics.watch(reporter.watch());
        let session = self
            .options
            .session(watch.clone())?
            .allowing_empty(self.publish.allow_empty);
        metrics.serve(&session)?;
        let (_workers, session) = self.workers.apply(session, &self.options, &watch, &[])?;
        let predict = || {
            let model = TrainedModel::load(session.io(), &self.model)?;
            metrics.name_pipeline(&model.artifact.pipeline.name);
            let sources = source_locations(&model.artifact.pipeline, &self.sources)?;
            let output = self.output.clone();
            let columns = self.columns.clone();
            let split = self.split.clone();
            let format = self.format.into();
            let bounds = (self.min, self.max);
            let name = Some(self.name.clone());
            let interval = self.interval.interval();
            model.score(
                &session,
                &ScoringRequest {
                    sources,
                    output,
                    format,
                    columns,
                    split,
                    name,
                    bounds,
                    interval,
                    rows_from: self.served.rows_from.clone(),
                    whole_history: self.served.whole_history,
                },
            )
        };
        let report = predict();
        // Workers that join or leave are reported before the summary, which is the last line.
        drop(session);
        reporter.finish(metrics.finish(report))
    }
}
