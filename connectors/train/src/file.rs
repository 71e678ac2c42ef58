//! Files of models, and predictions of the models.

use arrow::array::{ArrayRef, BooleanArray};
use forebay_contract::{ModelClasses, Predictions, TrainingContext, TrainingReport};
use forebay_feed::BatchFeatures;
use forebay_model::{Fault, Result, codes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::boosting::{BoostedModel, BoostingCard, BoostingLoss};
use super::class_loss::softmax;
use super::compute::SliceWorkspace;
use super::config::{LossFunction, OnNonFinite, TrainConfig};
use super::model_input::{ModelInput, SLICE_ROWS};
use super::network::{EmbeddingTable, ModelParameters, ModelShape};
use super::series::{SeriesCard, SeriesForecasts};
use super::tensors::{TensorFile, invalid_model_fault, named_tensors, write_tensors};

/// The version of model files. Version 2 has boosted trees of quantiles.
const FORMAT: u32 = 2;

/// The version of files with models for the steps of the horizon.
const FORMAT_STEPS: u32 = 3;

/// The version of files with models that predict one step from another.
const FORMAT_RECURSIVE: u32 = 4;

/// The version of files whose quantiles lie around the point forecast.
const FORMAT_INTERVALS: u32 = 5;

/// The version of files with models of single series by the standard theta method.
const FORMAT_SERIES: u32 = 6;

/// The version of files with other models of single series.
const FORMAT_SERIES_MODELS: u32 = 7;

/// The version of files with boosted trees of classes.
const FORMAT_CLASSES: u32 = 8;

/// The version of files with networks of classes.
const FORMAT_NETWORK_CLASSES: u32 = 9;

/// Versions of model files that can be read.
const READABLE_FORMATS: [u32; 9] = [
    1,
    FORMAT,
    FORMAT_STEPS,
    FORMAT_RECURSIVE,
    FORMAT_INTERVALS,
    FORMAT_SERIES,
    FORMAT_SERIES_MODELS,
    FORMAT_CLASSES,
    FORMAT_NETWORK_CLASSES,
];

/// The model's file.
pub const MODEL_FILE: &str = "model.safetensors";

/// Name of the file with the report of the training.
const LEARNED_FILE: &str = "training.json";

/// Description of a model in the metadata of its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCard {
    /// The version of this file.
    pub format: u32,
    /// Ids of training and artifact, the pipeline, and the step whose rows the model takes.
    pub origin: ModelOrigin,
    /// Inputs and layers of the model.
    pub shape: ModelShape,
    /// The loss that was minimised.
    pub loss: LossFunction,
    /// The column that is predicted.
    pub label: String,
    /// Treatment of numbers that are not finite.
    pub non_finite: OnNonFinite,
    /// The classes of the label, where a network tells classes apart: a result of each, in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ModelClasses>,
    /// Boosted trees, where it is those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boosting: Option<BoostingCard>,
    /// Models of single series, where it is those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesCard>,
}

/// Origin of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelOrigin {
    /// Id of everything that determines the model.
    pub training: String,
    /// Id of the artifact that its features were made with.
    pub artifact: String,
    /// The pipeline.
    pub pipeline: String,
    /// The step whose rows it takes.
    pub from: String,
    /// Horizon of its features: that of the pipeline's label, if it declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<String>,
}

/// A model that can predict.
#[derive(Debug)]
pub struct Predictor {
    /// Description of the model.
    pub card: ModelCard,
    pub(super) model: PredictorModel,
}

#[derive(Debug)]
pub(super) enum PredictorModel {
    Network(ModelParameters),
    Boosted(BoostedModel),
    Series(SeriesForecasts),
}

/// The files of a model.
pub(super) fn write_model(
    config: &TrainConfig,
    context: &TrainingContext<'_>,
    shape: &ModelShape,
    parameters: &ModelParameters,
    classes: Option<&ModelClasses>,
    learned: &TrainingReport,
) -> Result<Vec<(String, Vec<u8>)>> {
    let json = |error| Fault::internal("a model cannot be described").cause(error);
    let origin: Value = context.origin.clone();
    let card = ModelCard {
        format: if classes.is_some() {
            FORMAT_NETWORK_CLASSES
        } else {
            FORMAT
        },
        origin: serde_json::from_value(origin).map_err(json)?,
        shape: shape.clone(),
        loss: config.loss_function(),
        label: context
            .rows
            .features
            .label
            .as_ref()
            .map(|label| label.column.clone())
            .unwrap_or_default(),
        non_finite: config.non_finite,
        classes: classes.cloned(),
        boosting: None,
        series: None,
    };
    let model = write_tensors(
        &named_tensors(shape, parameters, ""),
        serde_json::to_string(&card).map_err(json)?,
    )?;
    let learned = serde_json::to_vec_pretty(learned).map_err(json)?;
    Ok(vec![
        (MODEL_FILE.to_owned(), model),
        (LEARNED_FILE.to_owned(), learned),
    ])
}

/// The files of boosted trees; `encode` makes the model's file of the trees and of words.
pub(super) fn write_boosted_model(
    context: &TrainingContext<'_>,
    non_finite: OnNonFinite,
    boosting: BoostingCard,
    learned: &TrainingReport,
    encode: impl FnOnce(String) -> Result<Vec<u8>>,
) -> Result<Vec<(String, Vec<u8>)>> {
    let json = |error| Fault::internal("a model cannot be described").cause(error);
    let features = &context.rows.features;
    let categorical = features.categorical.iter();
    let embeddings = categorical.map(|field| EmbeddingTable {
        column: field.column.clone(),
        ids: field.width as usize,
        rows: 0,
        width: 0,
    });
    let card = ModelCard {
        format: if boosting.classes.is_some() {
            FORMAT_CLASSES
        } else if boosting.intervals {
            FORMAT_INTERVALS
        } else if boosting.recursive {
            FORMAT_RECURSIVE
        } else if boosting.steps.is_some() {
            FORMAT_STEPS
        } else {
            FORMAT
        },
        origin: serde_json::from_value(context.origin.clone()).map_err(json)?,
        shape: ModelShape {
            dense: features.dense.clone(),
            embeddings: embeddings.collect(),
            hidden: Vec::new(),
            added: false,
            outputs: 1,
        },
        loss: if boosting.loss == BoostingLoss::Logistic {
            LossFunction::Logistic
        } else {
            LossFunction::SquaredError
        },
        label: features
            .label
            .as_ref()
            .map(|label| label.column.clone())
            .unwrap_or_default(),
        non_finite,
        classes: None,
        boosting: Some(boosting),
        series: None,
    };
    let model = encode(serde_json::to_string(&card).map_err(json)?)?;
    let learned = serde_json::to_vec_pretty(learned).map_err(json)?;
    Ok(vec![
        (MODEL_FILE.to_owned(), model),
        (LEARNED_FILE.to_owned(), learned),
    ])
}

/// The files of models of single series; `encode` makes the model's file of words.
pub(super) fn write_series_model(
    context: &TrainingContext<'_>,
    series: &SeriesCard,
    learned: &TrainingReport,
    encode: impl FnOnce(String) -> Result<Vec<u8>>,
) -> Result<Vec<(String, Vec<u8>)>> {
    let json = |error| Fault::internal("a model cannot be described").cause(error);
    let card = ModelCard {
        format: if series.is_standard_theta() {
            FORMAT_SERIES
        } else {
            FORMAT_SERIES_MODELS
        },
        origin: serde_json::from_value(context.origin.clone()).map_err(json)?,
        shape: ModelShape {
            dense: Vec::new(),
            embeddings: Vec::new(),
            hidden: Vec::new(),
            added: false,
            outputs: 1,
        },
        loss: LossFunction::SquaredError,
        label: context
            .rows
            .features
            .label
            .as_ref()
            .map(|label| label.column.clone())
            .unwrap_or_default(),
        non_finite: OnNonFinite::Fail,
        classes: None,
        boosting: None,
        series: Some(series.clone()),
    };
    let model = encode(serde_json::to_string(&card).map_err(json)?)?;
    let learned = serde_json::to_vec_pretty(learned).map_err(json)?;
    Ok(vec![
        (MODEL_FILE.to_owned(), model),
        (LEARNED_FILE.to_owned(), learned),
    ])
}

impl ModelCard {
    /// The classes that the model tells apart; `None` if it predicts numbers.
    pub fn classes(&self) -> Option<&ModelClasses> {
        let of_trees = self.boosting.as_ref();
        let of_trees = of_trees.and_then(|boosting| boosting.classes.as_ref());
        self.classes.as_ref().or(of_trees)
    }

    /// True if a network has one result, or one for each class, and weights of ids for each of them.
    fn has_its_results(&self) -> bool {
        let outputs = self.shape.outputs;
        let is_right = match &self.classes {
            None => outputs == 1 && self.loss != LossFunction::Softmax,
            Some(classes) => {
                let is_softmax = self.loss == LossFunction::Softmax;
                is_softmax && classes.is_sound() && classes.count() == outputs
            }
        };
        let mut tables = self.shape.embeddings.iter();
        is_right && (!self.shape.added || tables.all(|table| table.width == outputs))
    }
}

impl Predictor {
    /// Reads a predictor from the bytes of a model's file.
    pub fn read(bytes: &[u8]) -> Result<Predictor> {
        let file = TensorFile::read(bytes)?;
        let words: Value = serde_json::from_str(&file.words)
            .map_err(|error| invalid_model_fault().cause(error))?;
        if !READABLE_FORMATS
            .iter()
            .any(|format| words["format"] == *format)
        {
            let message = format!(
                "the model has format {}, this program reads up to {FORMAT_NETWORK_CLASSES}",
                words["format"]
            );
            return Err(
                Fault::new(codes::STATE_VERSION, message).hint("train it again with this program")
            );
        }
        let card: ModelCard =
            serde_json::from_value(words).map_err(|error| invalid_model_fault().cause(error))?;
        if let Some(boosting) = &card.boosting {
            let model = PredictorModel::Boosted(BoostedModel::read(bytes, boosting, &card.shape)?);
            return Ok(Predictor { model, card });
        }
        if let Some(series) = &card.series {
            let model = PredictorModel::Series(SeriesForecasts::read(bytes, series)?);
            return Ok(Predictor { model, card });
        }
        if !card.has_its_results() {
            return Err(invalid_model_fault());
        }
        // A shape is believed once the file has room for its numbers.
        card.shape
            .parameter_count()
            .filter(|numbers| *numbers <= bytes.len() / 4)
            .ok_or_else(invalid_model_fault)?;
        Ok(Predictor {
            model: PredictorModel::Network(file.parameters(&card.shape, "")?),
            card,
        })
    }

    /// Boosted trees and their description, if the model consists of these.
    pub(super) fn into_boosted(self) -> Option<(BoostingCard, BoostedModel)> {
        match self.model {
            PredictorModel::Boosted(model) => Some((self.card.boosting?, model)),
            PredictorModel::Network(_) | PredictorModel::Series(_) => None,
        }
    }

    /// Predictions of boosted trees or models of series for rows, whose columns are in the order of
    /// [`BatchFeatures::columns`]; `None` for networks.
    pub fn predict_columns(
        &self,
        features: &BatchFeatures,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Option<Predictions>> {
        match &self.model {
            PredictorModel::Boosted(model) => model.predict(features, columns, rows).map(Some),
            PredictorModel::Series(model) => model.predict(columns).map(Some),
            PredictorModel::Network(_) => Ok(None),
        }
    }

    /// Marks the rows of groups or series that there is a model of; `None` where one model predicts all rows. Columns come
    /// in the order of [`BatchFeatures::columns`].
    pub fn rows_of_groups(
        &self,
        features: &BatchFeatures,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Option<BooleanArray>> {
        match &self.model {
            PredictorModel::Boosted(model) => model.rows_of_groups(features, columns, rows),
            PredictorModel::Series(model) => model.rows_of_series(columns).map(Some),
            PredictorModel::Network(_) => Ok(None),
        }
    }

    /// Predictions for rows of a network: the numbers of each row together, and the ids of each row
    /// together, in the order of the card. Of classes, the probabilities of each row together. Empty
    /// for all other models.
    pub fn predict(&self, rows: usize, dense: &[f32], ids: &[i32]) -> Vec<f32> {
        let PredictorModel::Network(parameters) = &self.model else {
            return Vec::new();
        };
        let batch = ModelInput {
            rows,
            dense,
            ids,
            labels: &[],
            weights: &[],
            mask: &[],
        };
        let mut workspace = SliceWorkspace::new(&self.card.shape);
        let mut predicted = Vec::with_capacity(rows * self.card.shape.outputs);
        for number in 0..rows.div_ceil(SLICE_ROWS) {
            let rows = batch.slice(number);
            workspace.forward(&self.card.shape, parameters, &rows);
            if self.card.classes.is_some() {
                let results = workspace.outputs(rows.rows);
                extend_probabilities(&mut predicted, results, self.card.shape.outputs);
                continue;
            }
            predicted.extend(
                workspace
                    .outputs(rows.rows)
                    .iter()
                    .map(|output| self.card.loss.prediction(*output)),
            );
        }
        predicted
    }
}

/// Adds the probabilities of classes, given the results of rows.
fn extend_probabilities(predicted: &mut Vec<f32>, results: &[f32], classes: usize) {
    let mut scores = Vec::with_capacity(classes);
    for results in results.chunks_exact(classes) {
        scores.clear();
        scores.extend(results.iter().map(|result| f64::from(*result)));
        softmax(&mut scores);
        predicted.extend(scores.iter().map(|probability| *probability as f32));
    }
}
