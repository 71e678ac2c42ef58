//! `forebay completions`.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;
use forebay_model::Result;

/// Print completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsCommand {
    /// The shell.
    shell: Shell,
}

impl CompletionsCommand {
    pub fn run(self, command: &mut clap::Command) -> Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, command, "forebay", &mut text);
        super::write_stdout(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}
