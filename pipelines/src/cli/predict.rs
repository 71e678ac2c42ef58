//! `forebay predict`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::{PublishArgs, RunArgs};
use super::sources::source_locations;
use crate::present::report::RunReporter;
use crate::{ScoringRequest, TrainedModel};

/// Write what a trained model predicts for a dataset, as Parquet.
#[derive(Debug, Args)]
pub(crate) struct PredictCommand {
    /// The model's directory: that of a `train` sink, as `run` prints it.
    model: String,
    /// Where a source of the pipeline is now: NAME=PATH, or only PATH if there is one source.
    /// Can be given many times.
    #[arg(long = "source", value_name = "NAME=PATH", required = true)]
    sources: Vec<String>,
    /// Where the predictions go.
    #[arg(long, value_name = "PATH")]
    output: String,
    /// Columns to write beside the predictions, with commas between them [default: all of the step]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Predict for the rows of this part of the split only.
    #[arg(long, value_name = "PART")]
    split: Option<String>,
    /// What the column of predictions is called.
    #[arg(long, value_name = "NAME", default_value = "prediction")]
    name: String,
    #[command(flatten)]
    publish: PublishArgs,
    #[command(flatten)]
    options: RunArgs,
}

impl PredictCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = RunReporter::new(self.options.json);
        let session = self.options.session(reporter.watch())?.allowing_empty(self.publish.allow_empty);
        let predict = || {
            let model = TrainedModel::load(session.io(), &self.model)?;
            let sources = source_locations(&model.artifact.pipeline, &self.sources)?;
            let (output, columns, split) = (self.output.clone(), self.columns.clone(), self.split.clone());
            model.score(&session, &ScoringRequest { sources, output, columns, split, name: Some(self.name.clone()) })
        };
        reporter.finish(predict())
    }
}
