//! Purposes of runs.

use forebay_commit::Artifact;

/// Purpose of a run.
#[derive(Clone, Copy)]
pub(crate) enum RunMode<'a> {
    /// The artifact.
    Fit,
    /// The artifact, outputs and models.
    Run,
    /// Outputs, with the findings of this artifact.
    Apply(&'a Artifact),
}

impl RunMode<'_> {
    /// Name of the mode, as it is hashed.
    pub fn name(self) -> &'static str {
        match self {
            RunMode::Fit => "fit",
            RunMode::Run => "run",
            RunMode::Apply(_) => "apply",
        }
    }
}
