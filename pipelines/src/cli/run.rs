//! `forebay run`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::{RunArgs, SpecArgs};
use crate::present::report::Reporter;

/// Learn everything, commit the artifact, and write all sinks.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
}

impl Run {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = Reporter::new(self.options.json);
        let session = self.options.session(reporter.watch())?;
        reporter.finish(self.spec.pipeline().and_then(|pipeline| session.run(&pipeline)))
    }
}
