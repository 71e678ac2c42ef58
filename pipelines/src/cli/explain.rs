//! `forebay explain`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay_model::{Result, codes};

use super::options::{RunArgs, SpecArgs, interval_of};
use super::usage;
use super::workers::WorkerChoiceArgs;
use crate::present;

/// Show each pass of a spec: what it reads, why it exists, what it reuses, and what it will cost; or what the code of
/// a fault means, such as FB0107.
#[derive(Debug, Args)]
pub(crate) struct ExplainCommand {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    workers: WorkerChoiceArgs,
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
        if let Some(name) = self.fault_code() {
            return print_page(&name);
        }
        let pipeline = self.spec.pipeline()?;
        let interval = interval_of(self.interval.as_deref());
        let workers = self.workers.expected(&self.options)?;
        let explain =
            self.options
                .silent_session()?
                .explain_on(&pipeline, interval.as_ref(), workers)?;
        let form = if self.options.json {
            ExplainFormat::Json
        } else {
            self.format
        };
        super::write_stdout(&match form {
            ExplainFormat::Text => {
                present::fit(&present::explain::text(&explain), present::output_columns())
            }
            ExplainFormat::Json => present::explain::json(&explain)?,
            ExplainFormat::Mermaid => present::explain::mermaid(&explain),
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// The code of a fault, where one is given instead of a spec.
    fn fault_code(&self) -> Option<String> {
        let name = self.spec.spec.to_str()?.to_uppercase();
        let is_code = name
            .strip_prefix("FB")
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        (is_code && !self.spec.spec.exists()).then_some(name)
    }
}

fn print_page(name: &str) -> Result<ExitCode> {
    let Some(code) = codes::ALL.iter().find(|code| code.name == name) else {
        let names = codes::ALL.iter().map(|code| code.name);
        let fault = usage(format!("no fault has the code `{name}`"));
        return Err(fault
            .hint("the reference lists all codes")
            .suggest(name, names, ""));
    };
    super::write_stdout(
        present::fault_pages::page(*code)
            .trim_start_matches('#')
            .trim_start(),
    )?;
    Ok(ExitCode::SUCCESS)
}
