//! `forebay diff`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;
use forebay_storage::Io;

use super::show::load;
use crate::present;

/// Compare two artifacts: steps, columns and what they learned. Exit code 1 where they differ.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The earlier artifact's directory.
    before: String,
    /// The later artifact's directory.
    after: String,
}

impl Diff {
    pub fn run(self) -> Result<ExitCode> {
        let io = Io::new()?;
        let (before, _) = load(&io, &self.before)?;
        let (after, _) = load(&io, &self.after)?;
        let differences = present::artifact::diff(&before, &after)?;
        super::out(if differences.is_empty() { "no differences\n" } else { &differences })?;
        Ok(ExitCode::from(u8::from(!differences.is_empty())))
    }
}
