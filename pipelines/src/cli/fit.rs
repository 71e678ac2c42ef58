//! `forebay fit`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::{DeadlineArgs, RunArgs, SpecArgs};
use crate::present::report::Reporter;

/// Learn everything and commit the artifact; write no output.
#[derive(Debug, Args)]
pub(crate) struct Fit {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    deadline: DeadlineArgs,
    /// Exit with 99 when everything was known already.
    #[arg(long)]
    signal_nothing_new: bool,
}

impl Fit {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = Reporter::new(self.options.json);
        let session = self.deadline.apply(self.options.session(reporter.watch())?)?;
        let report = self.spec.pipeline().and_then(|pipeline| session.fit(&pipeline));
        let signal = report.as_ref().ok().and_then(|report| match report {
            report if report.nothing_new && self.signal_nothing_new => Some(super::EXIT_NOTHING_NEW),
            report if report.ladder.is_some() && self.deadline.signal_ladder => Some(super::EXIT_LADDER),
            _ => None,
        });
        let code = reporter.finish(report)?;
        Ok(signal.map_or(code, ExitCode::from))
    }
}
