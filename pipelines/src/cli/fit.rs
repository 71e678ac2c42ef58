//! `forebay fit`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::{DeadlineArgs, RunArgs, SpecArgs};
use super::workers::WorkersArgs;
use crate::observe::ObserveArgs;

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
    observe: ObserveArgs,
    /// Exit with 99 when everything was known already.
    #[arg(long)]
    signal_nothing_new: bool,
}

impl FitCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let mut observers = self.observe.observers()?;
        let watch = observers.listen(reporter.watch());
        let session = self.deadline.apply(self.options.session(watch.clone())?)?;
        let pipeline = self
            .spec
            .pipeline()
            .inspect(|pipeline| observers.metrics.name_pipeline(&pipeline.name));
        let session = observers.begin(session, &watch, self.options.run_id.as_deref())?;
        let (_workers, session) = self.workers.apply(
            session,
            &self.options,
            &watch,
            &self.observe.worker_arguments(),
        )?;
        let report = pipeline.and_then(|pipeline| {
            observers.run_begins(&pipeline, None);
            session.fit(&pipeline)
        });
        super::report_run(
            &reporter,
            observers.finish(report),
            self.signal_nothing_new,
            self.deadline.signal_ladder,
        )
    }
}
