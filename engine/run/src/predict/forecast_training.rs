//! Trainings whose models make forecasts.

use forebay_model::{Pipeline, PipelineSink, Result};

use super::config::{MissingKnown, PredictConfig};
use crate::session::Session;

/// True if a forecast by a model of a step accepts missing values of columns that are known in advance.
pub(crate) fn accepts_missing(session: &Session, pipeline: &Pipeline, from: &str) -> Result<bool> {
    for sink in &pipeline.predictions {
        let config = session.predict_config(sink)?;
        let training = training_of(pipeline, &config);
        let is_of_step = training.is_some_and(|training| training.from == from);
        if is_of_step && config.missing == MissingKnown::Accept {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The training whose model makes a forecast.
pub(super) fn training_of<'p>(
    pipeline: &'p Pipeline,
    config: &PredictConfig,
) -> Option<&'p PipelineSink> {
    let mut trainings = pipeline.trainings.iter();
    trainings.find(|training| training.name == config.model)
}

/// Declared horizon of the label of a pipeline.
pub(crate) fn declared_horizon(pipeline: &Pipeline) -> Option<&str> {
    pipeline.label.as_ref()?.horizon.as_deref()
}
