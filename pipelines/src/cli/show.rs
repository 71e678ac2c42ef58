//! `forebay show`.

use std::process::ExitCode;

use clap::Args;
use forebay_connectors::MODEL_FILE;
use forebay_model::{Fault, Result, codes};
use forebay_run::{Artifact, Manifest, output_root};
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
    if std::path::Path::new(path).is_file() {
        let fault = Fault::new(codes::NOT_FOUND, format!("`{path}` is a file, and an artifact is a directory"));
        return Err(fault.hint("give the directory that holds `artifact.json`, as `forebay fit` prints it"));
    }
    let root = output_root(io, path)?;
    let visible = Manifest::read(io, &root).ok().flatten();
    let model_file = visible.map_or(place.clone(), |visible| root.join(&visible.data)).join(MODEL_FILE);
    let artifact = Artifact::load(io, &place).map_err(|fault| match io.get(&model_file) {
        Ok(Some(_)) if fault.code() == codes::NOT_FOUND => {
            let fault = Fault::new(codes::NOT_FOUND, "this is a trained model, not an artifact").file(path);
            fault.hint("`forebay predict` uses a model; `forebay run` prints the directory of the artifact")
        }
        _ => fault,
    })?;
    Ok((artifact, place))
}
