//! Location of a served model or artifact, and its newest version.

use forebay_connectors::MODEL_FILE;
use forebay_model::{Fault, Result, codes};
use forebay_run::{Artifact, Manifest, ServingReference, output_root};
use forebay_storage::{StorageClient, StorageLocation};

use super::model::{AnswerOptions, ServedModel};
use crate::TrainedModel;

/// Stands between the directory of an artifact and the hash of its serving state.
const STATE_MARK: char = '#';

/// Location of an artifact or a model.
pub(super) struct ServedLocation {
    io: StorageClient,
    /// The path or name, as the user gave it.
    pub shown: String,
    kind: LocationKind,
}

enum LocationKind {
    /// The directory of one artifact, which never changes.
    Artifact(StorageLocation),
    /// The output of a `train` sink: its manifest names the newest model.
    Published(StorageLocation),
    /// One `_data` directory of a `train` sink.
    Model,
    /// The newest artifact of a pipeline in a state directory.
    Pipeline {
        state: StorageLocation,
        name: String,
    },
}

impl ServedLocation {
    /// Finds out which kind of thing a path or name denotes: an artifact's directory, the output of a `train` sink, or
    /// the name of a pipeline in the state directory.
    pub fn find(io: &StorageClient, path: &str, state: &str) -> Result<ServedLocation> {
        let of_kind = |kind| ServedLocation {
            io: io.clone(),
            shown: path.to_owned(),
            kind,
        };
        let location = io.resolve(path)?;
        if io.head(&location.join("artifact.json"))?.is_some() {
            return Ok(of_kind(LocationKind::Artifact(location)));
        }
        if io.head(&location.join(MODEL_FILE))?.is_some()
            && Manifest::read(io, &output_root(io, path)?)?.is_none()
        {
            return Ok(of_kind(LocationKind::Model));
        }
        let root = output_root(io, path)?;
        if let Some(manifest) = Manifest::read(io, &root)? {
            if io
                .head(&root.join(&manifest.data).join(MODEL_FILE))?
                .is_some()
            {
                return Ok(of_kind(LocationKind::Published(root)));
            }
            let fault =
                Fault::new(codes::UNSUPPORTED, "the output holds rows, and no model").file(path);
            return Err(fault.hint(
                "give the output of a `train` sink, the directory of an artifact, or the name of a \
             pipeline",
            ));
        }
        let state = io.resolve(state)?;
        let is_name = !path.contains(['/', '\\']);
        if is_name && Artifact::latest(io, &state, path)?.is_some() {
            return Ok(of_kind(LocationKind::Pipeline {
                state,
                name: path.to_owned(),
            }));
        }
        let fault =
            Fault::new(codes::NOT_FOUND, "there is no artifact and no model here").file(path);
        Err(fault.hint(format!(
            "give the directory that `forebay run` prints for an artifact or a `train` sink, or \
             the name of a pipeline with an artifact in `{}`",
            state.shown
        )))
    }

    /// True if later runs may publish another version.
    pub fn is_followed(&self) -> bool {
        matches!(
            self.kind,
            LocationKind::Published(_) | LocationKind::Pipeline { .. }
        )
    }

    /// Name of the newest version, which changes with each publication; cheap.
    pub fn newest(&self) -> Result<String> {
        match &self.kind {
            LocationKind::Artifact(location) => Ok(location.shown.clone()),
            LocationKind::Model => Ok(self.shown.clone()),
            LocationKind::Published(root) => {
                let manifest = Manifest::read(&self.io, root)?.ok_or_else(|| self.gone())?;
                Ok(manifest.data.to_string())
            }
            LocationKind::Pipeline { state, name } => {
                let newest = Artifact::latest(&self.io, state, name)?;
                let directory = newest.ok_or_else(|| self.gone())?;
                // Nights that learn the same have one artifact, and a serving state each.
                match ServingReference::read(&self.io, &directory)? {
                    Some(serving) => {
                        let digest = serving.manifest.digest()?;
                        Ok(format!("{}{STATE_MARK}{digest}", directory.shown))
                    }
                    None => Ok(directory.shown),
                }
            }
        }
    }

    /// Loads the version with a name that [`ServedLocation::newest`] gave.
    pub fn load(&self, newest: &str, options: &AnswerOptions) -> Result<ServedModel> {
        match &self.kind {
            LocationKind::Artifact(location) => {
                let artifact = Artifact::load(&self.io, location)?;
                ServedModel::of_artifact(&artifact, options.clone())
            }
            LocationKind::Pipeline { .. } => {
                let directory = newest
                    .rsplit_once(STATE_MARK)
                    .map_or(newest, |(directory, _)| directory);
                let artifact = Artifact::load(&self.io, &self.io.resolve(directory)?)?;
                ServedModel::of_artifact(&artifact, options.clone())
            }
            LocationKind::Published(root) => {
                let data = root.join(newest);
                let trained = TrainedModel::load(&self.io, &data.shown)?;
                ServedModel::of_trained(trained, options.clone())
            }
            LocationKind::Model => {
                let trained = TrainedModel::load(&self.io, &self.shown)?;
                ServedModel::of_trained(trained, options.clone())
            }
        }
    }

    fn gone(&self) -> Fault {
        Fault::new(codes::NOT_FOUND, "the published version is gone").file(&self.shown)
    }
}
