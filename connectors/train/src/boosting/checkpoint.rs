//! Checkpoints of trainings of trees: the state after a round, as a file.

use forebay_model::{Fault, Result, codes};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::encode::{FeatureCounts, decode_ensembles, encode_ensembles};
use super::tree::TreeEnsemble;
use crate::tensors::TensorFile;

/// State after a round, besides the trees. `G` holds the gains of a round's splits.
pub struct RoundState<'a, G> {
    /// The mean loss on the rows that are learned from, of each round.
    pub losses: &'a [f64],
    /// The best number of rounds so far, and the loss on the validation rows after them.
    pub best: Option<(usize, f64)>,
    /// True if no round follows.
    pub stopped: bool,
    pub gains: &'a [G],
}

/// State of a training that a checkpoint holds.
pub struct StoredState<G> {
    /// The id of the training.
    pub id: String,
    pub losses: Vec<f64>,
    pub best: Option<(usize, f64)>,
    pub stopped: bool,
    pub gains: Vec<G>,
    pub ensembles: Vec<TreeEnsemble>,
}

/// A checkpoint of the training of this id.
pub fn encode_state<'a, G: Serialize>(
    id: &str,
    state: &RoundState<'_, G>,
    ensembles: impl Iterator<Item = &'a TreeEnsemble>,
) -> Result<Vec<u8>> {
    let words = (id, state.losses, state.best, state.stopped, state.gains);
    let words = serde_json::to_string(&words)
        .map_err(|error| Fault::internal("a training").cause(error))?;
    encode_ensembles(ensembles, words)
}

/// Decodes a checkpoint. Its content is validated, as that of a model is.
pub fn decode_state<G: DeserializeOwned>(
    bytes: &[u8],
    features: FeatureCounts,
) -> Result<StoredState<G>> {
    let words = TensorFile::read(bytes)?.words;
    let (id, losses, best, stopped, gains) = serde_json::from_str(&words)
        .map_err(|error| Fault::new(codes::CORRUPT, "a checkpoint cannot be read").cause(error))?;
    Ok(StoredState {
        id,
        losses,
        best,
        stopped,
        gains,
        ensembles: decode_ensembles(bytes, features)?,
    })
}
