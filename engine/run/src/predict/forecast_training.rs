//! Trainings whose models make forecasts.

use forebay_contract::{MissingKnown, PredictConfig};
use forebay_model::{Pipeline, PipelineSink, Result};

use crate::session::Session;

/// True if a forecast by a model of a step accepts missing values of columns that are known in advance.
pub(crate) fn accepts_missing(session: &Session, pipeline: &Pipeline, from: &str) -> Result<bool> {
    for sink in &pipeline.predictions {
        let config = session.predict_config(sink)?;
        let trainings = trainings_of(pipeline, &config);
        let is_of_step = trainings.iter().any(|training| training.from == from);
        if is_of_step && config.missing == MissingKnown::Accept {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The training of the model of a forecast that its configuration names first.
pub(super) fn training_of<'p>(
    pipeline: &'p Pipeline,
    config: &PredictConfig,
) -> Option<&'p PipelineSink> {
    training_named(pipeline, &config.model)
}

/// The trainings of all models of a forecast.
pub(super) fn trainings_of<'p>(
    pipeline: &'p Pipeline,
    config: &PredictConfig,
) -> Vec<&'p PipelineSink> {
    let names = config.models().into_iter();
    names
        .filter_map(|name| training_named(pipeline, name))
        .collect()
}

/// The training of this name.
pub(super) fn training_named<'p>(pipeline: &'p Pipeline, name: &str) -> Option<&'p PipelineSink> {
    let mut trainings = pipeline.trainings.iter();
    trainings.find(|training| training.name == name)
}

/// Declared horizon of the label of a pipeline.
pub(crate) fn declared_horizon(pipeline: &Pipeline) -> Option<&str> {
    pipeline.label.as_ref()?.horizon.as_deref()
}
