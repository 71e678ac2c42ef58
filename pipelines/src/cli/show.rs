//! `forebay show`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;
use forebay_run::Artifact;
use forebay_storage::{Io, Place};

use crate::present;

/// Show an artifact: its columns and what it learned.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The artifact's directory, as `fit` and `run` print it.
    artifact: String,
    /// Rows of each finding at most.
    #[arg(long, default_value_t = 10)]
    rows: usize,
}

impl Show {
    pub fn run(self) -> Result<ExitCode> {
        let (artifact, _) = load(&Io::new()?, &self.artifact)?;
        super::out(&present::artifact::show(&artifact, self.rows)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads an artifact.
pub(crate) fn load(io: &Io, path: &str) -> Result<(Artifact, Place)> {
    let place = io.place(path)?;
    Ok((Artifact::load(io, &place)?, place))
}
