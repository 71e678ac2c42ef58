//! Configuration of a training in a spec.

use std::collections::BTreeMap;

use forebay_contract::{ConnectorConfig, WarmStart};
use forebay_device::Precision;
use forebay_feed::{FeedCache, NonFinite};
use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::place::TrainingDevice;
use super::refit::check_refit;
use super::tracking::MlflowTracking;

/// Trains a model on the rows of a step, after everything else, and publishes it: `model.safetensors`
/// and the artifact that its features come from, all that `forebay predict` needs.
///
/// Rows come shuffled, from an output that holds them or from the sources. Where the split has a
/// part `train`, the model learns from that (`split` names another); where it has a part
/// `validation`, the model is validated on it after every epoch. The same rows, spec and seed give
/// the same model, to the bit, on any number of threads; a training that was killed continues from
/// its last checkpoint and gives that same model. A finished training is not repeated. A GPU gives
/// another model than the processor does, close to that; so a training of the one is never
/// continued on the other.
///
/// ```
/// use forebay_train::{ModelKind, TrainConfig};
/// let train = TrainConfig::new(ModelKind::Mlp).label("qty").epochs(2);
/// assert_eq!(train.epochs, Some(2));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// The directory of the model; a folder of the state directory when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The kind of model.
    #[setters(skip)]
    pub model: ModelKind,
    /// The widths of an `mlp`'s hidden layers; 128 and 64 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Vec<u32>>,
    /// The loss that is minimised: that of the kind when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossFunction>,
    /// The column that is predicted; that of the pipeline's `label` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Columns of numbers; when left out, those that a `feed` would take. Patterns (`x_*`) and types (`type:float`) stand
    /// for all columns that match, but for the label and those that other settings name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Vec<String>>,
    /// Columns of ids, each with an embedding; when left out, those that a `feed` would take. Patterns stand for all
    /// columns that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categorical: Option<Vec<String>>,
    /// Widths of embeddings by column; the others go by the rule 1.6 n^0.56 of n ids, at most 600.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub embeddings: BTreeMap<String, u32>,
    /// The column with the weight of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Replacement of missing numbers; without it, a missing number is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
    /// Treatment of numbers, labels and weights that are not finite.
    pub non_finite: OnNonFinite,
    /// The part of the split that the model is validated on; `validation` when left out, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// When a new model is trained: `always` (the default), `never`, `weekly`, or a duration of the data's time such as
    /// `7d`. Until then the model of an earlier run stays in force, and forecasts with the newest rows. A training
    /// whose settings, steps or rows are of another spec trains in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refit: Option<String>,
    /// Start of the training: `nothing` when left out.
    #[serde(skip_serializing_if = "is_default_start")]
    pub start: TrainingStart,
    /// With `start: last`, the share of the rows of the run before that is learned from again, in
    /// addition to the new ones; 0.1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub replay: Option<f64>,
    /// Number of times that all rows are seen. When left out, once, and so often that there are at least 1,000 steps; a training
    /// that goes on from an earlier model sees its rows once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub epochs: Option<u32>,
    /// Rows of a batch. When left out, 8192; with `epochs` left out too, fewer for fewer than 8,192,000 rows: the
    /// largest power of two that gives 1,000 steps an epoch, at least 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch_rows: Option<u32>,
    /// Number of rows that the shuffle mixes; without it, as many as 512 MiB hold. At least 65536
    /// rows are mixed, or as many as 16 MiB hold where these are fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub window_rows: Option<u64>,
    /// Keeps what is read of a remote store on a local disk, so that epochs after the first do not read it
    /// again; the model does not depend on it. Without it, every epoch reads the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<FeedCache>,
    /// Chooses first weights and the order of rows.
    pub seed: u64,
    /// The learning rate of AdamW, after warming up. When left out, 0.001; 0.01 for `linear` and `logistic` where `epochs`
    /// is left out, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Steps in which the learning rate grows from nothing.
    pub warmup_steps: u64,
    /// Course of the learning rate after that.
    pub decay: LearningRateDecay,
    /// Share of weights, times the learning rate, by which they decay per step (embeddings and
    /// biases do not).
    pub weight_decay: f64,
    /// Gradients longer than this are cut to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Number of epochs in a row without a lower loss on the validation rows after which the
    /// training stops, and takes the model of the best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub patience_epochs: Option<u32>,
    /// Steps between checkpoints; the model does not depend on them.
    #[schemars(range(min = 1))]
    pub checkpoint_steps: u64,
    /// Device of the training: `cpu` when left out; `cuda`, or `cuda:1` for a GPU by its number;
    /// `auto` for the first GPU, where there is one whose results are close to those of the
    /// processor, else the processor. Validation and predictions always run on the processor. Tried
    /// on NVIDIA H100 and H200.
    #[serde(skip_serializing_if = "is_cpu")]
    pub device: TrainingDevice,
    /// Precision of products of matrices on a GPU: `bf16` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Tracks the training in MLflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow: Option<MlflowTracking>,
}

fn is_cpu(on: &TrainingDevice) -> bool {
    *on == TrainingDevice::Cpu
}

/// The kind of model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// A weighted sum of the numbers, and a weight of each id; squared error. Numbers and label are standardised within
    /// the training, so that `learning_rate` and `weight_decay` mean the same in any units; the model's file has the
    /// weights for the data.
    #[default]
    Linear,
    /// The sum of `linear` as the logarithm of the odds: predicts a probability.
    Logistic,
    /// Layers with relu between them, over numbers and embeddings; squared error by default. Without `epochs`, numbers
    /// and label are standardised as those of `linear` are, where the loss is the squared error.
    Mlp,
}

/// The loss that is minimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossFunction {
    /// Half the square of the error.
    SquaredError,
    /// The negative logarithm of the probability of labels between 0 and 1.
    Logistic,
    /// The negative logarithm of the probability of the label's class: of texts, whole numbers or booleans, at most 1,000.
    /// For `linear` and `mlp`, on the processor.
    Softmax,
}

/// Course of the learning rate after warming up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LearningRateDecay {
    /// Falls to zero along half a cosine.
    #[default]
    Cosine,
    /// Stays constant.
    Constant,
}

/// Start of a training.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrainingStart {
    /// A new model: every run trains on all rows.
    #[default]
    Nothing,
    /// The model of the run before: the rows of files that are new since then are learned, and a sample of the others.
    /// A training without such a model, or whose columns, ids or layers have changed, begins with nothing and says so.
    Last,
}

pub(super) fn is_default_start(start: &TrainingStart) -> bool {
    *start == TrainingStart::default()
}

/// Default for the share of old rows that is learned from again.
const REPLAY_DEFAULT: f64 = 0.1;

impl TrainingStart {
    /// The share of old rows that a training learns from again; `None` for one that begins with nothing.
    pub(super) fn warm_start(self, replay: Option<f64>) -> Option<WarmStart> {
        let replay = replay.unwrap_or(REPLAY_DEFAULT);
        (self == TrainingStart::Last).then_some(WarmStart { replay })
    }
}

/// Treatment of values that are not finite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnNonFinite {
    /// A fault that names the rows.
    #[default]
    Fail,
    /// The row does not count; counted. Predicts null.
    Skip,
    /// The value is zero; counted.
    Zero,
}

impl OnNonFinite {
    /// The policy in the feed's type.
    pub(super) fn feed_policy(self) -> NonFinite {
        match self {
            OnNonFinite::Fail => NonFinite::Fail,
            OnNonFinite::Skip => NonFinite::Skip,
            OnNonFinite::Zero => NonFinite::Zero,
        }
    }
}

/// Id of values that are missing: no row of a table has it.
pub(super) const MISSING_ID: i32 = -1;

/// Steps of a training at least, where the spec leaves its epochs out: fewer do not move the weights far enough.
const STEPS_MIN: u64 = 1000;

/// Default for the rows of a batch, unless the number of rows is too small for it.
const BATCH_ROWS_MAX: u32 = 8192;

/// Minimum of the default for the rows of a batch: smaller batches cost more than they improve the
/// model.
const BATCH_ROWS_MIN: u32 = 64;

/// The learning rate unless the spec names one.
const LEARNING_RATE: f64 = 1e-3;

/// The learning rate of linear models whose epochs are left out: half a thousand steps of it move a weight by 5.
const LINEAR_LEARNING_RATE: f64 = 1e-2;

/// Largest power of two, within limits, with enough steps in one epoch.
fn batch_rows_for(rows: u64) -> u32 {
    let exponent = (rows / STEPS_MIN)
        .max(1)
        .ilog2()
        .min(BATCH_ROWS_MAX.ilog2());
    (1 << exponent).max(BATCH_ROWS_MIN)
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            path: None,
            model: ModelKind::default(),
            hidden: None,
            loss: None,
            label: None,
            dense: None,
            categorical: None,
            embeddings: BTreeMap::new(),
            weight: None,
            missing: None,
            non_finite: OnNonFinite::default(),
            validation: None,
            refit: None,
            start: TrainingStart::default(),
            replay: None,
            epochs: None,
            batch_rows: None,
            window_rows: None,
            cache: None,
            seed: 0,
            learning_rate: None,
            warmup_steps: 0,
            decay: LearningRateDecay::default(),
            weight_decay: 0.01,
            clip_norm: None,
            patience_epochs: None,
            checkpoint_steps: 1000,
            device: TrainingDevice::default(),
            precision: None,
            mlflow: None,
        }
    }
}

impl TrainConfig {
    /// A model of a kind, with defaults for the rest.
    pub fn new(model: ModelKind) -> TrainConfig {
        TrainConfig {
            model,
            ..TrainConfig::default()
        }
    }

    /// Number of times that all rows are seen, unless their number decides.
    pub(super) fn epoch_count(&self) -> u32 {
        self.epochs.unwrap_or(1)
    }

    /// Rows of a batch, unless the number of rows decides.
    pub(super) fn rows_per_batch(&self) -> u32 {
        self.batch_rows.unwrap_or(BATCH_ROWS_MAX)
    }

    /// The learning rate, unless the number of rows decides.
    pub(super) fn rate(&self) -> f64 {
        self.learning_rate.unwrap_or(LEARNING_RATE)
    }

    /// The configuration with every default that does not depend on the rows. Trainings that name their epochs have had
    /// these defaults always, so that their ids and bits stay.
    pub(super) fn with_fixed_defaults(&self) -> TrainConfig {
        if self.epochs.is_none() {
            return self.clone();
        }
        TrainConfig {
            batch_rows: Some(self.rows_per_batch()),
            learning_rate: Some(self.rate()),
            ..self.clone()
        }
    }

    /// The configuration for `rows` rows: epochs, rows of a batch and learning rate where the spec
    /// leaves them out. `continues` is true if the training continues an earlier model.
    pub(super) fn for_rows(&self, rows: u64, continues: bool) -> TrainConfig {
        if self.epochs.is_some() {
            return self.with_fixed_defaults();
        }
        let batch_rows = self.batch_rows.unwrap_or_else(|| batch_rows_for(rows));
        let steps = rows.div_ceil(u64::from(batch_rows)).max(1);
        let epochs = if continues {
            1
        } else {
            STEPS_MIN.div_ceil(steps)
        };
        let rate = match self.model {
            ModelKind::Linear | ModelKind::Logistic => LINEAR_LEARNING_RATE,
            ModelKind::Mlp => LEARNING_RATE,
        };
        TrainConfig {
            epochs: Some(u32::try_from(epochs).unwrap_or(u32::MAX)),
            batch_rows: Some(batch_rows),
            learning_rate: Some(self.learning_rate.unwrap_or(rate)),
            ..self.clone()
        }
    }

    /// The loss.
    pub fn loss_function(&self) -> LossFunction {
        self.loss.unwrap_or(match self.model {
            ModelKind::Logistic => LossFunction::Logistic,
            ModelKind::Linear | ModelKind::Mlp => LossFunction::SquaredError,
        })
    }

    /// True if the label is a class.
    pub(super) fn learns_classes(&self) -> bool {
        self.loss_function() == LossFunction::Softmax
    }

    /// True if numbers and labels are standardised within the training: parameters for standardised data become those
    /// for the data in the first and the last layer. Layers of specs that name their epochs have had none of it always,
    /// so that their ids and bits stay.
    pub(super) fn standardizes(&self) -> bool {
        let by_default = self.epochs.is_none() || self.model == ModelKind::Linear;
        by_default && self.loss_function() == LossFunction::SquaredError
    }

    /// True if ids have weights that are added to the result.
    pub(super) fn adds_ids(&self) -> bool {
        self.model != ModelKind::Mlp
    }

    /// The widths of hidden layers.
    pub(super) fn hidden_widths(&self) -> Vec<usize> {
        match (self.model, &self.hidden) {
            (ModelKind::Mlp, None) => vec![128, 64],
            (ModelKind::Mlp, Some(hidden)) => hidden.iter().map(|width| *width as usize).collect(),
            (ModelKind::Linear | ModelKind::Logistic, _) => Vec::new(),
        }
    }
}

/// The widest layer: beyond, a batch alone would take gigabytes.
const WIDTH_MAX: u32 = 65_536;

impl ConnectorConfig for TrainConfig {
    const NAME: &'static str = "train";

    fn check(&self) -> ConfigResult<()> {
        let wrong = |field: &str, message: String| Err(ConfigError::at(field, message));
        if self.model != ModelKind::Mlp && self.hidden.is_some() {
            return wrong("hidden", "`hidden` is for `model: mlp`".to_owned());
        }
        let is_linear_of_classes = self.model == ModelKind::Linear && self.learns_classes();
        if self.model != ModelKind::Mlp && self.loss.is_some() && !is_linear_of_classes {
            let message = "`loss` is for `model: mlp`, and `loss: softmax` for `linear`, too";
            return wrong("loss", message.to_owned());
        }
        if self.learns_classes() && self.device != TrainingDevice::Cpu {
            let message = "`loss: softmax` is trained on the processor: leave `device` out";
            return wrong("device", message.to_owned());
        }
        if self.learns_classes() && self.start == TrainingStart::Last {
            let message = "`loss: softmax` begins with nothing, as classes may change: leave \
                           `start` out";
            return wrong("start", message.to_owned());
        }
        if self
            .hidden
            .iter()
            .flatten()
            .any(|width| *width == 0 || *width > WIDTH_MAX)
        {
            return wrong(
                "hidden",
                format!("a layer is between 1 and {WIDTH_MAX} wide"),
            );
        }
        if self
            .embeddings
            .values()
            .any(|width| *width == 0 || *width > WIDTH_MAX)
        {
            return wrong(
                "embeddings",
                format!("an embedding is between 1 and {WIDTH_MAX} wide"),
            );
        }
        if self.model != ModelKind::Mlp && !self.embeddings.is_empty() {
            return wrong("embeddings", "`embeddings` is for `model: mlp`".to_owned());
        }
        if let Some(rate) = self.learning_rate
            && !(rate > 0.0 && rate.is_finite())
        {
            return wrong("learning_rate", format!("{rate} is not a number above 0"));
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            return wrong(
                "weight_decay",
                format!("{} is not a number from 0 on", self.weight_decay),
            );
        }
        if self
            .clip_norm
            .is_some_and(|norm| norm.is_nan() || norm <= 0.0)
        {
            return wrong("clip_norm", "a norm is above 0".to_owned());
        }
        if self.device == TrainingDevice::Cpu && self.precision == Some(Precision::Bf16) {
            return wrong(
                "precision",
                "`bf16` is for a GPU: say `device: cuda` or `device: auto`".to_owned(),
            );
        }
        if self.replay.is_some() && self.start != TrainingStart::Last {
            return wrong("replay", "`replay` is for `start: last`".to_owned());
        }
        if self
            .replay
            .is_some_and(|replay| !(0.0..=1.0).contains(&replay))
        {
            return wrong("replay", "a share lies between 0 and 1".to_owned());
        }
        let counts = [
            ("epochs", self.epochs.map_or(1, u64::from)),
            ("batch_rows", self.batch_rows.map_or(1, u64::from)),
            ("checkpoint_steps", self.checkpoint_steps),
            ("patience_epochs", self.patience_epochs.map_or(1, u64::from)),
            ("window_rows", self.window_rows.unwrap_or(1)),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((field, _)) => return wrong(field, "it must be at least 1".to_owned()),
            None => self.mlflow.iter().try_for_each(MlflowTracking::check)?,
        }
        check_refit(self.refit.as_deref())
    }
}
