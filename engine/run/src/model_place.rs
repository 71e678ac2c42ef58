//! Locations of models, and the ids of models there.

use forebay_commit::{StateStore, output_root};
use forebay_contract::Trainer;
use forebay_model::{ContentId, IdBuilder, Pipeline, PipelineSink, Result};
use forebay_storage::StorageLocation;

use crate::session::Session;

/// Location of the model of a training.
pub(crate) fn model_location(
    session: &Session,
    pipeline: &Pipeline,
    training: &PipelineSink,
    store: &StateStore,
) -> Result<StorageLocation> {
    place_of(
        session,
        pipeline,
        training,
        session.trainer(training)?.as_ref(),
        store,
    )
}

/// Location of the model of a trainer.
pub(crate) fn place_of(
    session: &Session,
    pipeline: &Pipeline,
    training: &PipelineSink,
    trainer: &dyn Trainer,
    store: &StateStore,
) -> Result<StorageLocation> {
    match trainer.path() {
        Some(path) => output_root(&session.io, path),
        None => {
            let models = store
                .root()
                .join(&format!("models/{}/{}", pipeline.name, training.name));
            output_root(&session.io, &models.shown)
        }
    }
}

/// Id of a model in a directory: the location does not change the model, but each location has a
/// record.
pub(crate) fn publication_id(training: ContentId, out: &StorageLocation) -> ContentId {
    let mut id = IdBuilder::new("published training");
    id.id(training).text(&out.shown);
    id.finish()
}
