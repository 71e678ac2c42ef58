//! `forebay show`.

use std::process::ExitCode;

use clap::Args;
use forebay_connectors::MODEL_FILE;
use forebay_model::{Fault, Result, codes};
use forebay_run::{Artifact, Manifest, output_root};
use forebay_storage::{StorageClient, StorageLocation};
use jiff::Timestamp;
use serde_json::json;

use crate::present;
use crate::present::report::{RunReporter, Verbosity};
use crate::settings::Settings;

/// Show an artifact: its columns and what it learned.
#[derive(Debug, Args)]
pub(crate) struct ShowCommand {
    /// The artifact's directory, as `fit` and `run` print it.
    #[arg(required_unless_present = "pipeline")]
    artifact: Option<String>,
    /// Show the newest artifact of this pipeline in the state directory.
    #[arg(long, value_name = "NAME", conflicts_with = "artifact")]
    pipeline: Option<String>,
    /// The state directory: a path, or a URL such as s3://bucket/key [default: .forebay]
    #[arg(long, value_name = "DIR", requires = "pipeline")]
    state: Option<String>,
    /// Rows of each finding at most.
    #[arg(long, default_value_t = 10)]
    rows: usize,
    /// Print a line of JSON: the pipeline, the artifact's id and path, and when it was committed.
    #[arg(long)]
    json: bool,
}

impl ShowCommand {
    pub fn run(self) -> Result<ExitCode> {
        let io = StorageClient::new()?;
        let (path, pointer) = self.locate(&io)?;
        let (artifact, location) = load_artifact(&io, &path)?;
        if !self.json {
            super::write_text(&present::artifact::show(&artifact, self.rows)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let committed = io.head(&pointer.unwrap_or_else(|| location.join("artifact.json")))?;
        let at = committed
            .map(|meta| Timestamp::from_millisecond(meta.last_modified.timestamp_millis()));
        let mut body = json!({
            "pipeline": artifact.pipeline.name,
            "artifact": artifact.id.to_string(),
            "artifact_path": path,
            "committed_at": at.and_then(|at| at.ok()).map(|at| at.to_string()),
        });
        if let Some(reference) = &artifact.serving {
            let manifest = &reference.manifest;
            body["serving"] = json!({
                "from": manifest.node,
                "as_of": manifest.as_of,
                "series": manifest.series(),
                "bytes": manifest.bytes(),
            });
        }
        RunReporter::new(true, Verbosity::Normal).done(&body)
    }

    /// The directory of the artifact, and the pointer that makes it the newest of its pipeline, if
    /// it was requested by its pipeline.
    fn locate(&self, io: &StorageClient) -> Result<(String, Option<StorageLocation>)> {
        let Some(pipeline) = &self.pipeline else {
            return Ok((self.artifact.clone().unwrap_or_default(), None));
        };
        let state = Settings::load()?.state(self.state.as_deref()).value;
        let root = io.resolve(&state)?;
        let newest = Artifact::latest(io, &root, pipeline)?.ok_or_else(|| {
            Fault::new(
                codes::NOT_FOUND,
                format!(
                    "pipeline `{pipeline}` has no artifact in \
                     `{state}`"
                ),
            )
            .hint(
                "`forebay run` and `forebay fit` commit one; name their state directory \
                 with `--state`",
            )
        })?;
        Ok((newest.shown, Some(Artifact::pointer(&root, pipeline))))
    }
}

/// Reads an artifact.
pub(crate) fn load_artifact(io: &StorageClient, path: &str) -> Result<(Artifact, StorageLocation)> {
    let location = io.resolve(path)?;
    if std::path::Path::new(path).is_file() {
        let fault = Fault::new(
            codes::NOT_FOUND,
            format!("`{path}` is a file, and an artifact is a directory"),
        );
        return Err(
            fault.hint("give the directory that holds `artifact.json`, as `forebay fit` prints it")
        );
    }
    let root = output_root(io, path)?;
    let visible = Manifest::read(io, &root).ok().flatten();
    let model_file = visible
        .map_or(location.clone(), |visible| root.join(&visible.data))
        .join(MODEL_FILE);
    let artifact = Artifact::load(io, &location).map_err(|fault| match io.get(&model_file) {
        Ok(Some(_)) if fault.code() == codes::NOT_FOUND => {
            let fault = Fault::new(
                codes::NOT_FOUND,
                "this is a trained model, not an \
                 artifact",
            )
            .file(path);
            fault.hint(
                "`forebay predict` uses a model; `forebay run` prints the directory of \
                 the artifact",
            )
        }
        _ => fault,
    })?;
    Ok((artifact, location))
}
