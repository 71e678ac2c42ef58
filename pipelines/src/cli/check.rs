//! `forebay check`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;

use super::options::SpecArgs;

/// Check a spec without reading any data; reports every problem at once.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    spec: SpecArgs,
}

impl Check {
    pub fn run(self) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let steps: usize = pipeline.nodes.iter().map(|node| node.steps.len()).sum();
        super::out(&format!(
            "{}: {} sources, {} steps, {} sinks, no problems\n",
            pipeline.name,
            pipeline.sources.len(),
            steps,
            pipeline.sinks.len()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
