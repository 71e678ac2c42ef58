//! Trainings that add trees to those of the run before.

use forebay_contract::{ReadModelFile, TrainingContext};
use forebay_feed::BatchFeatures;
use forebay_model::{Fault, Result, codes};

use super::config::BoostingConfig;
use super::earlier_trees::EarlierTrees;
use super::model::BoostingCard;
use crate::file::{MODEL_FILE, ModelCard, Predictor};
use crate::tensors::{TensorFile, invalid_model_fault};

/// Trees of a model that goes on, by the `rounds` of a training from nothing, at most. With more, all
/// trees are grown again: predictions cost as much as there are trees.
const GROWTH_MAX: usize = 4;

/// The trees of each output of the model that a training continues; `None` if it continues none.
pub fn earlier_trees(context: &TrainingContext<'_>) -> Result<Option<Vec<EarlierTrees>>> {
    let Some(bytes) = context.earlier_file(MODEL_FILE)? else {
        return Ok(None);
    };
    let Some((card, model)) = Predictor::read(&bytes)?.into_boosted() else {
        return Err(Fault::new(
            codes::CORRUPT,
            "a training continues a model without trees",
        ));
    };
    let mut earlier = Vec::new();
    for (model, ensemble) in card.models.iter().zip(model.into_ensembles()) {
        let mut gains = Vec::with_capacity(model.gains.len());
        for (feature, gain) in model.gains.iter().enumerate() {
            gains.push((feature as u32, *gain as f32));
        }
        earlier.push(EarlierTrees { ensemble, gains });
    }
    Ok(Some(earlier))
}

/// Reason why a training cannot add trees to an earlier model: its inputs and outputs must be the
/// same, and it must not have grown too large.
pub fn refuse(
    config: &BoostingConfig,
    files: ReadModelFile<'_>,
    features: &BatchFeatures,
) -> Result<Option<String>> {
    let Some(bytes) = files(MODEL_FILE)? else {
        return Ok(Some("the model of the run before has no file".to_owned()));
    };
    let words = TensorFile::read(&bytes)?.words;
    let card: ModelCard =
        serde_json::from_str(&words).map_err(|error| invalid_model_fault().cause(error))?;
    if let Some(subject) = changed_subject(config, &card, features) {
        return Ok(Some(format!("{subject} changed since the run before")));
    }
    let Some((_, model)) = Predictor::read(&bytes)?.into_boosted() else {
        return Ok(Some("the model of the run before has no trees".to_owned()));
    };
    let ensembles = model.into_ensembles();
    let trees = ensembles.iter().map(|ensemble| ensemble.trees.len()).max();
    let trees = trees.unwrap_or_default();
    let trees_max = GROWTH_MAX * config.rounds as usize;
    let is_full = trees + config.added_rounds_max() as usize > trees_max;
    Ok(is_full.then(|| {
        format!("the model of the run before has {trees} trees, and may have {trees_max}")
    }))
}

/// The first input or setting in which a model differs from those of a training.
fn changed_subject(
    config: &BoostingConfig,
    card: &ModelCard,
    features: &BatchFeatures,
) -> Option<&'static str> {
    let Some(boosting) = &card.boosting else {
        return Some("`model`");
    };
    if card.shape.dense != features.dense {
        return Some("the columns of numbers");
    }
    let stored = card.shape.embeddings.iter();
    let stored = stored.map(|embedding| (&embedding.column, embedding.ids));
    let categorical = features.categorical.iter();
    let categorical = categorical.map(|field| (&field.column, field.width as usize));
    if !stored.eq(categorical) {
        return Some("the columns of ids");
    }
    let label = features.label.as_ref();
    if card.label != label.map_or("", |label| label.column.as_str()) {
        return Some("the label");
    }
    changed_output(config, boosting)
}

/// The first setting by which the outputs of a model differ from those of a training.
fn changed_output(config: &BoostingConfig, card: &BoostingCard) -> Option<&'static str> {
    if (card.loss, card.quantile) != (config.loss, config.quantile)
        || card.tweedie_power != config.tweedie_power
    {
        return Some("`loss`");
    }
    if card.recursive != config.is_recursive() || card.steps.is_some() {
        return Some("`strategy`");
    }
    if !card.by.is_empty() {
        return Some("`by`");
    }
    if card.intervals != config.intervals.is_some()
        || card.quantiles != config.predicted_quantiles()
    {
        return Some("the quantiles");
    }
    None
}
