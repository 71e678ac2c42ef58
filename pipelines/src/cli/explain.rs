//! `forebay explain`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay_model::Result;
use forebay_run::Interval;

use super::options::{RunArgs, SpecArgs};
use crate::present;

/// Show each pass: what it reads, why it exists, what it reuses, and what it will cost.
#[derive(Debug, Args)]
pub(crate) struct ExplainCommand {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    /// The form of the explanation.
    #[arg(long, value_enum, default_value_t = ExplainFormat::Text)]
    format: ExplainFormat,
    /// Explain a run for an interval, as `run --interval` has it.
    #[arg(long, num_args = 2, value_names = ["START", "END"])]
    interval: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExplainFormat {
    Text,
    Json,
    Mermaid,
}

impl ExplainCommand {
    pub fn run(self) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let interval = match self.interval.as_deref() {
            Some([from, to]) => Some(Interval { from: from.clone(), to: to.clone() }),
            _ => None,
        };
        let explain = self.options.silent_session()?.explain(&pipeline, interval.as_ref())?;
        let form = if self.options.json { ExplainFormat::Json } else { self.format };
        super::write_stdout(&match form {
            ExplainFormat::Text => present::explain::text(&explain),
            ExplainFormat::Json => present::explain::json(&explain)?,
            ExplainFormat::Mermaid => present::explain::mermaid(&explain),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
