//! State of a training: everything that its later steps depend on.

use std::borrow::Cow;

use forebay_contract::TrainingReport;
use forebay_feed::FeedCursor;
use forebay_model::{Fault, Result, codes};
use serde::{Deserialize, Serialize};

use super::adam::AdamState;
use super::class_loss::log_shares;
use super::network::{ModelParameters, ModelShape};
use super::row_changes::RowsRead;
use super::scale::InputScale;
use super::tensors::{TensorFile, invalid_model_fault, named_tensors, write_tensors};

/// The version of checkpoints.
const VERSION: u32 = 1;

/// A training between two steps.
#[derive(Debug)]
pub struct TrainingState {
    pub shape: ModelShape,
    pub parameters: ModelParameters,
    pub adam: AdamState,
    /// The parameters of the best epoch so far, where there is stopping early.
    pub best: Option<ModelParameters>,
    pub progress: TrainingProgress,
}

/// Progress of a training, in a few numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingProgress {
    /// Position of its feed; `None` before the first step.
    pub cursor: Option<FeedCursor>,
    /// Steps done.
    pub step: u64,
    /// Report of the training so far.
    pub learned: TrainingReport,
    /// The labels of the first epoch's batches, times their weights, and the weights.
    #[serde(default)]
    pub labels: (f64, f64),
    /// Weights of the first epoch's rows by class, where the label is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_weights: Vec<f64>,
    /// Scales of numbers and labels, where the training standardises them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<InputScale>,
    /// Rows of the first epoch so far that count.
    #[serde(default)]
    pub rows_learned: u64,
    /// Rows of the first epoch with their changes, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<RowsRead>,
    /// Validation rows with their changes, once the model has been validated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<RowsRead>,
    /// The losses of this epoch's batches, times their weights, and the weights.
    pub epoch: (f64, f64),
    /// Sums of losses and weights since the last point of the curve.
    pub stretch: (f64, f64),
    /// The best loss on the validation rows.
    pub best_loss: Option<f64>,
    /// Epochs since then.
    pub waited: u32,
    /// True if it ended before its last epoch.
    pub stopped: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointHeader {
    version: u32,
    shape: ModelShape,
    progress: TrainingProgress,
    best: bool,
}

impl TrainingState {
    /// The beginning.
    pub fn initial(shape: ModelShape, seed: u64) -> TrainingState {
        let parameters = ModelParameters::initial(&shape, seed);
        let adam = AdamState::new(&shape);
        TrainingState {
            parameters,
            adam,
            best: None,
            progress: TrainingProgress::default(),
            shape,
        }
    }

    /// The parameters for numbers and labels as the data has them.
    pub fn data_parameters(&self) -> Cow<'_, ModelParameters> {
        match &self.progress.scale {
            Some(scale) => Cow::Owned(scale.data_parameters(&self.shape, &self.parameters)),
            None => Cow::Borrowed(&self.parameters),
        }
    }

    /// Logarithms of the shares of the classes among the rows of the first epoch, where the label is one.
    pub fn class_log_shares(&self) -> Vec<f64> {
        let weights = &self.progress.class_weights;
        log_shares(weights, weights.iter().sum())
    }

    /// Encodes the state as the bytes of a checkpoint.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let shape = self.shape.clone();
        let best = self.best.is_some();
        let words = CheckpointHeader {
            version: VERSION,
            shape,
            progress: self.progress.clone(),
            best,
        };
        let words = serde_json::to_string(&words)
            .map_err(|error| Fault::internal("a checkpoint").cause(error))?;
        let mut tensors = named_tensors(&self.shape, &self.parameters, "");
        tensors.extend(named_tensors(&self.shape, &self.adam.means, "means."));
        tensors.extend(named_tensors(&self.shape, &self.adam.squares, "squares."));
        if let Some(best) = &self.best {
            tensors.extend(named_tensors(&self.shape, best, "best."));
        }
        write_tensors(&tensors, words)
    }

    /// Decodes the state from the bytes of a checkpoint.
    pub fn decode(bytes: &[u8]) -> Result<TrainingState> {
        let file = TensorFile::read(bytes)?;
        let words: CheckpointHeader = serde_json::from_str(&file.words)
            .map_err(|error| invalid_model_fault().cause(error))?;
        if words.version != VERSION {
            let message = format!(
                "the checkpoint has version {}, not {VERSION}",
                words.version
            );
            return Err(Fault::new(codes::STATE_VERSION, message)
                .hint("go on with the program that wrote it"));
        }
        let shape = words.shape;
        let best = if words.best {
            Some(file.parameters(&shape, "best.")?)
        } else {
            None
        };
        let adam = AdamState {
            means: file.parameters(&shape, "means.")?,
            squares: file.parameters(&shape, "squares.")?,
        };
        Ok(TrainingState {
            parameters: file.parameters(&shape, "")?,
            adam,
            best,
            progress: words.progress,
            shape,
        })
    }
}
