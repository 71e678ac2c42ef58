//! Inputs of a training of a run.

use forebay_commit::{Artifact, StateStore};
use forebay_model::{Interval, Pipeline, PipelineSink};
use forebay_storage::ScratchDir;

use crate::session::Session;
use crate::training_cadence::TrainingCadence;

/// Context of a training.
pub(crate) struct TrainingRun<'a> {
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub training: &'a PipelineSink,
    pub artifact: &'a Artifact,
    /// The decision about a training that is not done in each run.
    pub cadence: Option<&'a TrainingCadence>,
    pub interval: Option<&'a Interval>,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
}
