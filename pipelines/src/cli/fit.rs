//! `forebay fit`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::{RunArgs, SpecArgs};
use crate::present::report::Reporter;

/// Learn everything and commit the artifact; write no output.
#[derive(Debug, Args)]
pub(crate) struct Fit {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    /// Exit with 99 when everything was known already.
    #[arg(long)]
    signal_nothing_new: bool,
}

impl Fit {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = Reporter::new(self.options.json);
        let session = self.options.session(reporter.watch())?;
        let report = self.spec.pipeline().and_then(|pipeline| session.fit(&pipeline));
        let nothing_new = report.as_ref().is_ok_and(|report| report.nothing_new);
        let code = reporter.finish(report)?;
        Ok(if nothing_new && self.signal_nothing_new { ExitCode::from(super::EXIT_NOTHING_NEW) } else { code })
    }
}
