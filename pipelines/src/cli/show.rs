//! `forebay show`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;
use forebay_run::Artifact;
use forebay_storage::{StorageClient, StorageLocation};

use crate::present;

/// Show an artifact: its columns and what it learned.
#[derive(Debug, Args)]
pub(crate) struct ShowCommand {
    /// The artifact's directory, as `fit` and `run` print it.
    artifact: String,
    /// Rows of each finding at most.
    #[arg(long, default_value_t = 10)]
    rows: usize,
}

impl ShowCommand {
    pub fn run(self) -> Result<ExitCode> {
        let (artifact, _) = load_artifact(&StorageClient::new()?, &self.artifact)?;
        super::write_stdout(&present::artifact::show(&artifact, self.rows)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads an artifact.
pub(crate) fn load_artifact(io: &StorageClient, path: &str) -> Result<(Artifact, StorageLocation)> {
    let place = io.resolve(path)?;
    Ok((Artifact::load(io, &place)?, place))
}
