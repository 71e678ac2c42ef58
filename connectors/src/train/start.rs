//! Trainings that go on from the model of an earlier one.

use forebay_feed::BatchFeatures;
use forebay_model::Result;
use forebay_run::{ReadModelFile, TrainingContext};

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
    /// That of a training, if it goes on from one.
    pub fn of(course: &TrainingContext<'_>) -> Result<Option<EarlierNetwork>> {
        let Some(bytes) = course.earlier_file(MODEL_FILE)? else {
            return Ok(None);
        };
        let file = TensorFile::read(&bytes)?;
        let shape = read_card(&file)?.shape;
        Ok(Some(EarlierNetwork {
            parameters: file.parameters(&shape, "")?,
            shape,
        }))
    }

    /// Takes its place among the parameters of a shape with as many ids or more; new ids keep their first values.
    pub fn copy_to(&self, parameters: &mut ModelParameters) {
        parameters.layers.clone_from(&self.parameters.layers);
        for (to, from) in parameters.tables.iter_mut().zip(&self.parameters.tables) {
            to[..from.len()].copy_from_slice(from);
        }
    }
}

/// Why a training cannot go on from an earlier model: what it takes and which layers it has must be the same.
pub fn refuse(
    config: &TrainConfig,
    files: ReadModelFile<'_>,
    features: &BatchFeatures,
) -> Result<Option<String>> {
    let Some(bytes) = files(MODEL_FILE)? else {
        return Ok(Some("the model of the run before has no file".to_owned()));
    };
    let card = read_card(&TensorFile::read(&bytes)?)?;
    let shape = &card.shape;
    let columns = |of: &ModelShape| -> Vec<(String, usize)> {
        of.embeddings
            .iter()
            .map(|embedding| (embedding.column.clone(), embedding.ids))
            .collect()
    };
    let wanted: Vec<(String, usize)> = features
        .categorical
        .iter()
        .map(|field| (field.column.clone(), field.width as usize))
        .collect();
    let widths = shape.embeddings.iter().all(|embedding| {
        config
            .embeddings
            .get(&embedding.column)
            .is_none_or(|width| *width as usize == embedding.width)
    });
    let label = features
        .label
        .as_ref()
        .map(|label| label.column.as_str())
        .unwrap_or_default();
    let changed = [
        (
            card.boosting.is_some() || shape.added != config.adds_ids(),
            "`model`",
        ),
        (shape.dense != features.dense, "the columns of numbers"),
        (columns(shape) != wanted, "the columns of ids"),
        (!widths, "`embeddings`"),
        (shape.hidden != config.hidden_widths(), "`hidden`"),
        (card.loss != config.loss_function(), "`loss`"),
        (card.label != label, "the label"),
    ];
    let changed = changed.into_iter().find(|(changed, _)| *changed);
    Ok(changed.map(|(_, what)| format!("{what} changed since the run before")))
}
