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
}

impl Fit {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = Reporter::new(self.options.json);
        let session = self.options.session(reporter.watch())?;
        reporter.finish(self.spec.pipeline().and_then(|pipeline| session.fit(&pipeline)))
    }
}
