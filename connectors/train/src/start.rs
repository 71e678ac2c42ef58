//! Trainings that go on from the model of an earlier one.

use forebay_contract::{ReadModelFile, TrainingContext};
use forebay_feed::BatchFeatures;
use forebay_model::Result;

use super::config::TrainConfig;
use super::file::{MODEL_FILE, ModelCard};
use super::network::{ModelParameters, ModelShape};
use super::tensors::{TensorFile, invalid_model_fault};

/// The parameters of an earlier model.
pub struct EarlierNetwork {
    pub shape: ModelShape,
    parameters: ModelParameters,
}

fn read_card(file: &TensorFile<'_>) -> Result<ModelCard> {
    serde_json::from_str(&file.words).map_err(|error| invalid_model_fault().cause(error))
}

impl EarlierNetwork {
    /// Loads the model that a training continues, if it continues one.
    pub fn of(context: &TrainingContext<'_>) -> Result<Option<EarlierNetwork>> {
        let Some(bytes) = context.earlier_file(MODEL_FILE)? else {
            return Ok(None);
        };
        let file = TensorFile::read(&bytes)?;
        let shape = read_card(&file)?.shape;
        Ok(Some(EarlierNetwork {
            parameters: file.parameters(&shape, "")?,
            shape,
        }))
    }

    /// Copies the values to the parameters of a shape with as many ids or more; new ids keep their
    /// first values.
    pub fn copy_to(&self, parameters: &mut ModelParameters) {
        parameters.layers.clone_from(&self.parameters.layers);
        for (to, from) in parameters.tables.iter_mut().zip(&self.parameters.tables) {
            to[..from.len()].copy_from_slice(from);
        }
    }
}

/// Reason why a training cannot continue an earlier model: its inputs and layers must be the same.
pub fn refuse(
    config: &TrainConfig,
    files: ReadModelFile<'_>,
    features: &BatchFeatures,
) -> Result<Option<String>> {
    let Some(bytes) = files(MODEL_FILE)? else {
        return Ok(Some("the model of the run before has no file".to_owned()));
    };
    let card = read_card(&TensorFile::read(&bytes)?)?;
    let subject = changed_subject(config, &card, features);
    Ok(subject.map(|subject| format!("{subject} changed since the run before")))
}

/// The first input or setting in which a model differs from those of a training.
fn changed_subject(
    config: &TrainConfig,
    card: &ModelCard,
    features: &BatchFeatures,
) -> Option<&'static str> {
    let shape = &card.shape;
    let is_other = card.boosting.is_some() || card.series.is_some();
    if is_other || shape.added != config.adds_ids() {
        return Some("`model`");
    }
    if shape.dense != features.dense {
        return Some("the columns of numbers");
    }
    let embedded = shape.embeddings.iter();
    let embedded = embedded.map(|embedding| (&embedding.column, embedding.ids));
    let categorical = features.categorical.iter();
    let categorical = categorical.map(|field| (&field.column, field.width as usize));
    if !embedded.eq(categorical) {
        return Some("the columns of ids");
    }
    for embedding in &shape.embeddings {
        let width = config.embeddings.get(&embedding.column);
        if width.is_some_and(|width| *width as usize != embedding.width) {
            return Some("`embeddings`");
        }
    }
    if shape.hidden != config.hidden_widths() {
        return Some("`hidden`");
    }
    if card.loss != config.loss_function() {
        return Some("`loss`");
    }
    let label = features.label.as_ref();
    if card.label != label.map_or("", |label| label.column.as_str()) {
        return Some("the label");
    }
    None
}
