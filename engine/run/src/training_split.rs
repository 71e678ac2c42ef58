//! The parts of a split that a training takes.

use forebay_model::{Pipeline, PipelineSink};

/// The part that trainings take where they name none.
const TRAIN_PART: &str = "train";

/// The part that trainings are validated on where they name none.
const VALIDATION_PART: &str = "validation";

/// The part that is learned from; all rows where the split has none of this name.
pub(crate) fn train_part(pipeline: &Pipeline, training: &PipelineSink) -> Option<String> {
    training
        .split
        .clone()
        .or_else(|| existing_part(pipeline, TRAIN_PART))
}

/// The part that a training is validated on, if the split has one: the declared part, or that of the usual name.
pub(crate) fn validation_part(
    pipeline: &Pipeline,
    training: &PipelineSink,
    declared: Option<&str>,
) -> Option<String> {
    let named = declared
        .map(str::to_owned)
        .or_else(|| existing_part(pipeline, VALIDATION_PART));
    named.filter(|part| Some(part) != train_part(pipeline, training).as_ref())
}

fn existing_part(pipeline: &Pipeline, name: &str) -> Option<String> {
    let parts = pipeline
        .split
        .as_ref()
        .map(|split| split.parts())
        .unwrap_or_default();
    parts.contains(&name).then(|| name.to_owned())
}
