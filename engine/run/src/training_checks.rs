//! Checks of trainings that are made before any other work.

use std::collections::BTreeMap;

use forebay_commit::{Manifest, output_root, try_writing};
use forebay_contract::StepStrategy;
use forebay_feed::FeedConfig;
use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{
    BoundPipeline, NodeFlow, UnitMismatch, check_recursive, step_columns, unit_mismatch,
    unknown_column,
};

use crate::feed::features::check_feed;
use crate::output_overlap;
use crate::session::Session;
use crate::training_split::validation_part;

/// Refuses trainings that could not begin, before anything else is done.
pub(crate) fn check_trainings(
    session: &Session,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    datasets: &BTreeMap<String, Dataset>,
) -> Result<()> {
    let mut faults = Vec::new();
    for training in &pipeline.trainings {
        let checked = check_training(session, pipeline, bound, training)
            .and_then(|()| check_training_columns(session, pipeline, bound, training))
            .and_then(|()| session.trainer(training)?.check_ready());
        faults.extend(checked.err().map(|fault| fault.at(training.at.as_ref())));
    }
    Fault::combine(faults).map_or(Ok(()), Err)?;
    let mut locations = Vec::new();
    let mut roots = Vec::new();
    for (index, sink) in pipeline.sinks.iter().enumerate() {
        let location = session.io.resolve(session.sink(pipeline, index)?.path())?;
        locations.push((sink, location));
    }
    for training in &pipeline.trainings {
        if let Some(path) = session.trainer(training)?.path() {
            locations.push((training, session.io.resolve(path)?));
            roots.push((training, output_root(&session.io, path)?));
        }
    }
    for (sink, location) in &locations {
        session
            .io
            .require_bucket(location)
            .map_err(|fault| fault.at(sink.at.as_ref()))?;
    }
    session.check_forecasts(pipeline, bound)?;
    for sink in &pipeline.predictions {
        let config = session.predict_config(sink)?;
        locations.push((sink, session.io.resolve(&config.path)?));
        roots.push((sink, output_root(&session.io, &config.path)?));
    }
    let paths = session.source_paths(pipeline);
    output_overlap::check_overlap(&session.io, pipeline, &paths, datasets, &locations)?;
    for (sink, root) in roots {
        let checked = Manifest::check_place(&session.io, &root)
            .and_then(|()| try_writing(&session.io, &root));
        checked.map_err(|fault| fault.at(sink.at.as_ref()))?;
    }
    Ok(())
}

/// Refuses a training whose rows, label or parts are not there.
pub(crate) fn check_training(
    session: &Session,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    training: &PipelineSink,
) -> Result<()> {
    let trainer = session.trainer(training)?;
    let flow = bound.flows.get(&training.from);
    let flow = flow.ok_or_else(|| {
        Fault::new(
            codes::UNKNOWN_NAME,
            format!("there is no step or source `{}`", training.from),
        )
    })?;
    let label = label_column(pipeline, &trainer.feed())?;
    let Ok(label_field) = flow.schema.field_with_name(&label) else {
        return Err(unknown_column(&label, &flow.schema));
    };
    trainer.label_kind().check(label_field)?;
    let strategy = trainer.step_strategy();
    if strategy == Some(StepStrategy::PerStep) {
        trainer.check_steps(&step_columns(pipeline, bound, &training.from)?)?;
    }
    if strategy == Some(StepStrategy::Recursive) {
        check_recursive(pipeline, bound, &training.from)?;
        if label != pipeline.label.as_ref().map_or("", |label| &label.column) {
            let message = format!(
                "`strategy: recursive` predicts the pipeline's label, and `{label}` is another \
                 column"
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .column(&label)
                .hint("declare it under `label:`"));
        }
    }
    for column in trainer.label_columns() {
        check_label_column(bound, flow, &column, &label)?;
    }
    let parts = pipeline
        .split
        .as_ref()
        .map(|split| split.parts())
        .unwrap_or_default();
    let named = [training.split.as_deref(), trainer.validation()];
    if let Some(part) = named
        .into_iter()
        .flatten()
        .find(|part| !parts.contains(part))
    {
        return Err(Fault::new(
            codes::UNKNOWN_NAME,
            format!("the split has no part `{part}`"),
        )
        .hint("declare it under `split:`, or name one that is there"));
    }
    if trainer.has_intervals() {
        if validation_part(pipeline, training, trainer.validation()).is_none() {
            let message = "`intervals` needs validation rows, and the split has no part for them";
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(
                "add a part `validation` to `split:`, or name another part under `validation`",
            ));
        }
        check_interval_target(flow, &label)?;
    }
    Ok(())
}

/// Refuses intervals around differences that forecasts add up: errors on validation rows are those of one difference.
fn check_interval_target(flow: &NodeFlow, label: &str) -> Result<()> {
    let Some(chain) = &flow.target else {
        return Ok(());
    };
    let Some(future) = &flow.future else {
        return Ok(());
    };
    if chain.column != label || !chain.reaches_into(future.horizon, future.steps) {
        return Ok(());
    }
    let message = "`intervals` would be too narrow: `target` adds up differences over the steps of \
                   the horizon, and errors on validation rows are those of one difference";
    Err(Fault::new(codes::UNSUPPORTED, message)
        .column(label)
        .hint("difference by the length of the horizon or more, or leave `intervals` out"))
}

/// Refuses columns that a training names and its rows do not have.
pub(crate) fn check_training_columns(
    session: &Session,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    training: &PipelineSink,
) -> Result<()> {
    // Faults of the pipeline's feed are its own.
    let without_feed = Pipeline {
        feed: None,
        ..pipeline.clone()
    };
    let feed = session.trainer(training)?.feed();
    check_feed(&without_feed, bound, &training.from, &feed)?;
    session.refuse_labels_as_features(pipeline, bound, training)
}

/// Refuses a column that predicts where it does not hold the label of other times in its own units.
fn check_label_column(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    column: &str,
    label: &str,
) -> Result<()> {
    if flow.schema.field_with_name(column).is_err() {
        return Err(unknown_column(column, &flow.schema));
    }
    let Some(mismatch) = unit_mismatch(bound, flow, column, label) else {
        return Ok(());
    };
    let (message, hint) = match mismatch {
        UnitMismatch::NotOfLabel => (
            format!(
                "`{column}` does not hold values of the label `{label}`, so it cannot predict it"
            ),
            "name a `lag` of the label, or a mean of its window".to_owned(),
        ),
        UnitMismatch::Changed(by) => (
            format!(
                "`{by}` changes `{column}`, which then is not in the units of the label `{label}`"
            ),
            format!(
                "keep the values as they are in another column (`derive`) before `{by}`, and name \
                 that"
            ),
        ),
        UnitMismatch::LabelChanged(by) => (
            format!(
                "`{by}` changes the label `{label}`, and `{column}` holds its values from before"
            ),
            format!("move `{by}` before the window that makes `{column}`"),
        ),
    };
    Err(Fault::new(codes::BAD_VALUE, message)
        .column(column)
        .hint(hint))
}

/// The column that is predicted.
pub(crate) fn label_column(pipeline: &Pipeline, feed: &FeedConfig) -> Result<String> {
    let feed_label = feed.label.as_ref().map(|label| label.column().to_owned());
    feed_label
        .or_else(|| pipeline.label.as_ref().map(|label| label.column.clone()))
        .ok_or_else(|| {
            Fault::new(
                codes::MISSING_FIELD,
                "`train` does not say what is predicted",
            )
            .hint("add `label: <column>`")
        })
}
