//! Location of a served model or artifact, and its newest version.

use std::sync::Mutex;

use forebay_connectors::MODEL_FILE;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_run::{Artifact, Manifest, ServingReference, output_root};
use forebay_storage::{StorageClient, StorageLocation};
use forebay_threads::lock;

use super::model::{AnswerOptions, ServedModel};
use crate::TrainedModel;
use crate::predict::serving_state;

/// Stands between the directory of an artifact or a model and the hash of its serving state.
const STATE_MARK: char = '#';

/// Location of an artifact or a model.
pub(super) struct ServedLocation {
    io: StorageClient,
    /// The path or name, as the user gave it.
    pub shown: String,
    /// The state directory, which has the serving states of models.
    state: StorageLocation,
    kind: LocationKind,
    /// The model that was read last.
    last_model: Mutex<Option<ReadModel>>,
}

/// A model that was read.
struct ReadModel {
    features: ModelFeatures,
    /// The model, until it is loaded as a version.
    trained: Option<TrainedModel>,
}

/// The features that a model reads.
#[derive(Clone)]
struct ModelFeatures {
    /// Directory of the model.
    model: String,
    /// The artifact that makes them.
    artifact: ContentId,
    pipeline: String,
    /// Their step.
    step: String,
}

impl ModelFeatures {
    fn of(model: &str, trained: &TrainedModel) -> ModelFeatures {
        ModelFeatures {
            model: model.to_owned(),
            artifact: trained.artifact.id,
            pipeline: trained.artifact.pipeline.name.clone(),
            step: trained.card().origin.from.clone(),
        }
    }
}

enum LocationKind {
    /// The directory of one artifact, which never changes.
    Artifact(StorageLocation),
    /// The output of a `train` sink: its manifest names the newest model.
    Published(StorageLocation),
    /// One `_data` directory of a `train` sink.
    Model,
    /// The newest artifact of a pipeline in a state directory.
    Pipeline(String),
}

impl ServedLocation {
    /// Finds out which kind of thing a path or name denotes: an artifact's directory, the output of a `train` sink, or
    /// the name of a pipeline in the state directory.
    pub fn find(io: &StorageClient, path: &str, state: &str) -> Result<ServedLocation> {
        let state = io.resolve(state)?;
        let kind = find_kind(io, path, &state)?;
        Ok(ServedLocation {
            io: io.clone(),
            shown: path.to_owned(),
            state,
            kind,
            last_model: Mutex::default(),
        })
    }

    /// True if later runs may publish another version.
    pub fn is_followed(&self) -> bool {
        matches!(
            self.kind,
            LocationKind::Published(_) | LocationKind::Pipeline(_)
        )
    }

    /// Name of the newest version, which changes with each publication; cheap.
    pub fn newest(&self) -> Result<String> {
        match &self.kind {
            LocationKind::Artifact(location) => Ok(location.shown.clone()),
            LocationKind::Model => Ok(self.shown.clone()),
            LocationKind::Published(root) => {
                let manifest = Manifest::read(&self.io, root)?.ok_or_else(|| self.gone())?;
                // Nights that train no other model have a serving state each.
                let directory = root.join(&manifest.data).shown;
                let features = self.features_of(&directory)?;
                with_state_mark(&manifest.data, self.model_state(&features)?.as_ref())
            }
            LocationKind::Pipeline(name) => {
                let newest = Artifact::latest(&self.io, &self.state, name)?;
                let directory = newest.ok_or_else(|| self.gone())?;
                // Nights that learn the same have one artifact, and a serving state each.
                let serving = ServingReference::read(&self.io, &directory)?;
                with_state_mark(&directory.shown, serving.as_ref())
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
            LocationKind::Pipeline(_) => {
                let directory = without_state_mark(newest);
                let artifact = Artifact::load(&self.io, &self.io.resolve(directory)?)?;
                ServedModel::of_artifact(&artifact, options.clone())
            }
            LocationKind::Published(root) => {
                let data = root.join(without_state_mark(newest));
                self.load_model(&data.shown, options)
            }
            LocationKind::Model => self.load_model(&self.shown, options),
        }
    }

    /// Loads a model with the serving state of its features.
    fn load_model(&self, directory: &str, options: &AnswerOptions) -> Result<ServedModel> {
        let mut trained = match self.take_model(directory)? {
            Some(trained) => trained,
            None => TrainedModel::load(&self.io, directory)?,
        };
        let features = ModelFeatures::of(directory, &trained);
        trained.artifact.serving = self.model_state(&features)?;
        ServedModel::of_trained(trained, options.clone())
    }

    /// The model of a directory, if it was the last one to be read and is not loaded yet.
    fn take_model(&self, directory: &str) -> Result<Option<TrainedModel>> {
        let mut last_model = lock(&self.last_model)?;
        let read = last_model.as_mut();
        let read = read.filter(|read| read.features.model == directory);
        Ok(read.and_then(|read| read.trained.take()))
    }

    /// The features of a model, which is read where another one was read last.
    fn features_of(&self, directory: &str) -> Result<ModelFeatures> {
        let mut last_model = lock(&self.last_model)?;
        if let Some(read) = last_model.as_ref()
            && read.features.model == directory
        {
            return Ok(read.features.clone());
        }
        let trained = TrainedModel::load(&self.io, directory)?;
        let features = ModelFeatures::of(directory, &trained);
        *last_model = Some(ReadModel {
            features: features.clone(),
            trained: Some(trained),
        });
        Ok(features)
    }

    fn model_state(&self, features: &ModelFeatures) -> Result<Option<ServingReference>> {
        let ModelFeatures {
            artifact,
            pipeline,
            step,
            ..
        } = features;
        serving_state(&self.io, &self.state, *artifact, pipeline, step)
    }

    fn gone(&self) -> Fault {
        Fault::new(codes::NOT_FOUND, "the published version is gone").file(&self.shown)
    }
}

/// Finds out which kind of thing a path or name denotes.
fn find_kind(io: &StorageClient, path: &str, state: &StorageLocation) -> Result<LocationKind> {
    let location = io.resolve(path)?;
    if io.head(&location.join("artifact.json"))?.is_some() {
        return Ok(LocationKind::Artifact(location));
    }
    if io.head(&location.join(MODEL_FILE))?.is_some()
        && Manifest::read(io, &output_root(io, path)?)?.is_none()
    {
        return Ok(LocationKind::Model);
    }
    let root = output_root(io, path)?;
    if let Some(manifest) = Manifest::read(io, &root)? {
        if io
            .head(&root.join(&manifest.data).join(MODEL_FILE))?
            .is_some()
        {
            return Ok(LocationKind::Published(root));
        }
        let fault =
            Fault::new(codes::UNSUPPORTED, "the output holds rows, and no model").file(path);
        return Err(fault.hint(
            "give the output of a `train` sink, the directory of an artifact, or the name of a \
             pipeline",
        ));
    }
    let is_name = !path.contains(['/', '\\']);
    if is_name && Artifact::latest(io, state, path)?.is_some() {
        return Ok(LocationKind::Pipeline(path.to_owned()));
    }
    let fault = Fault::new(codes::NOT_FOUND, "there is no artifact and no model here").file(path);
    Err(fault.hint(format!(
        "give the directory that `forebay run` prints for an artifact or a `train` sink, or \
             the name of a pipeline with an artifact in `{}`",
        state.shown
    )))
}

/// Name of a version: its directory, and the hash of its serving state.
fn with_state_mark(directory: &str, state: Option<&ServingReference>) -> Result<String> {
    match state {
        Some(state) => {
            let digest = state.manifest.digest()?;
            Ok(format!("{directory}{STATE_MARK}{digest}"))
        }
        None => Ok(directory.to_owned()),
    }
}

/// The directory in the name of a version.
fn without_state_mark(version: &str) -> &str {
    match version.rsplit_once(STATE_MARK) {
        Some((directory, _)) => directory,
        None => version,
    }
}
