//! `forebay fit`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::{DeadlineArgs, MetricsArgs, RunArgs, SpecArgs};
use super::workers::WorkersArgs;

/// Learn everything and commit the artifact; write no output.
#[derive(Debug, Args)]
pub(crate) struct FitCommand {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    deadline: DeadlineArgs,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Exit with 99 when everything was known already.
    #[arg(long)]
    signal_nothing_new: bool,
}

impl FitCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let mut metrics = self.metrics.metrics()?;
        let watch = metrics.watch(reporter.watch());
        let session = self.deadline.apply(self.options.session(watch.clone())?)?;
        metrics.serve(&session)?;
        let (_workers, session) = self.workers.apply(session, &self.options, &watch)?;
        let report = self.spec.pipeline().and_then(|pipeline| session.fit(&pipeline));
        super::report_run(&reporter, metrics.finish(report), self.signal_nothing_new, self.deadline.signal_ladder)
    }
}
