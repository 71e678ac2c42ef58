//! Models in files, and what they predict.

use forebay_model::{Fault, Result, codes};
use forebay_run::{TrainingContext, TrainingReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compute::{ModelInput, SLICE_ROWS, SliceWorkspace};
use super::config::{LossFunction, OnNonFinite, TrainConfig};
use super::network::{ModelParameters, ModelShape};
use super::tensors::{TensorFile, invalid_model_fault, named_tensors, write_tensors};

/// The version of model files.
const FORMAT: u32 = 1;

/// The model's file.
pub const MODEL_FILE: &str = "model.safetensors";

/// How the training went.
const LEARNED_FILE: &str = "training.json";

/// What a model says of itself, in the metadata of its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCard {
    /// The version of this file.
    pub format: u32,
    /// Ids of training and artifact, the pipeline, and the step whose rows the model takes.
    pub origin: ModelOrigin,
    /// What it takes and which layers it has.
    pub shape: ModelShape,
    /// What was made small.
    pub loss: LossFunction,
    /// The column that is predicted.
    pub label: String,
    /// What becomes of numbers that are not finite.
    pub non_finite: OnNonFinite,
}

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelOrigin {
    /// Names everything that determines the model.
    pub training: String,
    /// What the features were made with.
    pub artifact: String,
    /// The pipeline.
    pub pipeline: String,
    /// The step whose rows it takes.
    pub from: String,
    /// How far ahead its features look: the horizon of the pipeline's label, if it declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<String>,
}

/// A model that can predict.
#[derive(Debug)]
pub struct Predictor {
    /// What it says of itself.
    pub card: ModelCard,
    parameters: ModelParameters,
}

/// The files of a model.
pub(super) fn write_model(
    config: &TrainConfig,
    course: &TrainingContext<'_>,
    shape: &ModelShape,
    parameters: &ModelParameters,
    learned: &TrainingReport,
) -> Result<Vec<(String, Vec<u8>)>> {
    let json = |error| Fault::internal("a model cannot be described").cause(error);
    let origin: Value = course.origin.clone();
    let card = ModelCard {
        format: FORMAT,
        origin: serde_json::from_value(origin).map_err(json)?,
        shape: shape.clone(),
        loss: config.loss(),
        label: course.rows.features.label.as_ref().map(|label| label.column.clone()).unwrap_or_default(),
        non_finite: config.non_finite,
    };
    let model = write_tensors(&named_tensors(shape, parameters, ""), serde_json::to_string(&card).map_err(json)?)?;
    let learned = serde_json::to_vec_pretty(learned).map_err(json)?;
    Ok(vec![(MODEL_FILE.to_owned(), model), (LEARNED_FILE.to_owned(), learned)])
}

impl Predictor {
    /// From the bytes of a model's file.
    pub fn read(bytes: &[u8]) -> Result<Predictor> {
        let file = TensorFile::read(bytes)?;
        let words: Value = serde_json::from_str(&file.words).map_err(|error| invalid_model_fault().cause(error))?;
        if words["format"] != FORMAT {
            let message = format!("the model has format {}, this program reads {FORMAT}", words["format"]);
            return Err(Fault::new(codes::STATE_VERSION, message).hint("train it again with this program"));
        }
        let card: ModelCard = serde_json::from_value(words).map_err(|error| invalid_model_fault().cause(error))?;
        // A shape is believed once the file has room for its numbers.
        card.shape.parameter_count().filter(|numbers| *numbers <= bytes.len() / 4).ok_or_else(invalid_model_fault)?;
        Ok(Predictor { parameters: file.parameters(&card.shape, "")?, card })
    }

    /// Predictions for rows: numbers side by side, and ids side by side, in the order of the card.
    pub fn predict(&self, rows: usize, dense: &[f32], ids: &[i32]) -> Vec<f32> {
        let all = ModelInput { rows, dense, ids, labels: &[], weights: &[], mask: &[] };
        let mut workspace = SliceWorkspace::new(&self.card.shape);
        let mut predicted = Vec::with_capacity(rows);
        for number in 0..rows.div_ceil(SLICE_ROWS) {
            let rows = all.slice(number);
            workspace.forward(&self.card.shape, &self.parameters, &rows);
            predicted.extend(workspace.outputs(rows.rows).iter().map(|output| self.card.loss.prediction(*output)));
        }
        predicted
    }
}
