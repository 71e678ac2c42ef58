//! Where a training stands: everything that what comes after depends on.

use forebay_feed::Cursor;
use forebay_model::{Fault, Result, codes};
use forebay_run::Learning;
use serde::{Deserialize, Serialize};

use super::adam::Adam;
use super::network::{Parameters, Shape};
use super::tensors::{File, broken, named, write};

/// The version of checkpoints.
const VERSION: u32 = 1;

/// A training between two steps.
#[derive(Debug)]
pub struct State {
    pub shape: Shape,
    pub parameters: Parameters,
    pub adam: Adam,
    /// The parameters of the best epoch so far, where there is stopping early.
    pub best: Option<Parameters>,
    pub progress: Progress,
}

/// Where it stands, in a few numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Where its feed stands; `None` before the first step.
    pub cursor: Option<Cursor>,
    /// Steps done.
    pub step: u64,
    /// What has been learned of the training itself.
    pub learned: Learning,
    /// The losses of this epoch's batches, times their weights, and the weights.
    pub epoch: (f64, f64),
    /// The same since the last point of the curve.
    pub stretch: (f64, f64),
    /// The best loss on the validation rows.
    pub best_loss: Option<f64>,
    /// Epochs since then.
    pub waited: u32,
    /// Whether it is over before its last epoch.
    pub stopped: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    version: u32,
    shape: Shape,
    progress: Progress,
    best: bool,
}

impl State {
    /// The beginning.
    pub fn first(shape: Shape, seed: u64) -> State {
        let (parameters, adam) = (Parameters::first(&shape, seed), Adam::new(&shape));
        State { parameters, adam, best: None, progress: Progress::default(), shape }
    }

    /// As the bytes of a checkpoint.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let (shape, best) = (self.shape.clone(), self.best.is_some());
        let words = Words { version: VERSION, shape, progress: self.progress.clone(), best };
        let words = serde_json::to_string(&words).map_err(|error| Fault::internal("a checkpoint").cause(error))?;
        let mut tensors = named(&self.shape, &self.parameters, "");
        tensors.extend(named(&self.shape, &self.adam.means, "means."));
        tensors.extend(named(&self.shape, &self.adam.squares, "squares."));
        if let Some(best) = &self.best {
            tensors.extend(named(&self.shape, best, "best."));
        }
        write(&tensors, words)
    }

    /// From the bytes of a checkpoint.
    pub fn decode(bytes: &[u8]) -> Result<State> {
        let file = File::read(bytes)?;
        let words: Words = serde_json::from_str(&file.words).map_err(|error| broken().cause(error))?;
        if words.version != VERSION {
            let message = format!("the checkpoint has version {}, not {VERSION}", words.version);
            return Err(Fault::new(codes::STATE_VERSION, message).hint("go on with the program that wrote it"));
        }
        let shape = words.shape;
        let best = if words.best { Some(file.parameters(&shape, "best.")?) } else { None };
        let adam = Adam { means: file.parameters(&shape, "means.")?, squares: file.parameters(&shape, "squares.")? };
        Ok(State { parameters: file.parameters(&shape, "")?, adam, best, progress: words.progress, shape })
    }
}
