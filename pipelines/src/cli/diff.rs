//! `forebay diff`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;
use forebay_storage::StorageClient;

use super::show::load_artifact;
use crate::present;

/// Compare two artifacts: steps, columns and what they learned. Exit code 1 where they differ.
#[derive(Debug, Args)]
pub(crate) struct DiffCommand {
    /// The earlier artifact's directory.
    before: String,
    /// The later artifact's directory.
    after: String,
}

impl DiffCommand {
    pub fn run(self) -> Result<ExitCode> {
        let io = StorageClient::new()?;
        let (old_artifact, _) = load_artifact(&io, &self.before)?;
        let (new_artifact, _) = load_artifact(&io, &self.after)?;
        let differences = present::artifact::diff(&old_artifact, &new_artifact)?;
        super::write_text(if differences.is_empty() {
            "no differences\n"
        } else {
            &differences
        })?;
        Ok(ExitCode::from(u8::from(!differences.is_empty())))
    }
}
