//! What is refused of trainings before anything else is done.

use std::collections::BTreeMap;

use forebay_commit::{Manifest, output_root};
use forebay_feed::FeedConfig;
use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{
    BoundPipeline, NodeFlow, UnitMismatch, check_recursive, step_columns, unit_mismatch,
    unknown_column,
};
use forebay_storage::StorageLocation;

use crate::output_overlap;
use crate::session::Session;

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
            .and_then(|()| session.trainer(training)?.check_ready());
        faults.extend(checked.err().map(|fault| fault.at(training.at.as_ref())));
    }
    Fault::combine(faults).map_or(Ok(()), Err)?;
    let (mut places, mut roots) = (Vec::new(), Vec::new());
    for (index, sink) in pipeline.sinks.iter().enumerate() {
        places.push((
            sink,
            session.io.resolve(session.sink(pipeline, index)?.path())?,
        ));
    }
    for training in &pipeline.trainings {
        if let Some(path) = session.trainer(training)?.path() {
            places.push((training, session.io.resolve(path)?));
            roots.push((training, output_root(&session.io, path)?));
        }
    }
    for (sink, place) in &places {
        session
            .io
            .require_bucket(place)
            .map_err(|fault| fault.at(sink.at.as_ref()))?;
    }
    session.check_forecasts(pipeline, bound)?;
    for sink in &pipeline.predictions {
        places.push((
            sink,
            session.io.resolve(&session.predict_config(sink)?.path)?,
        ));
        roots.push((
            sink,
            output_root(&session.io, &session.predict_config(sink)?.path)?,
        ));
    }
    output_overlap::check_overlap(&session.io, pipeline, datasets, &places)?;
    let check = |(sink, root): (&PipelineSink, StorageLocation)| {
        Manifest::check_place(&session.io, &root).map_err(|fault| fault.at(sink.at.as_ref()))
    };
    roots.into_iter().try_for_each(check)
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
    if flow.schema.field_with_name(&label).is_err() {
        return Err(unknown_column(&label, &flow.schema));
    }
    if trainer.per_step() {
        trainer.check_steps(&step_columns(pipeline, bound, &training.from)?)?;
    }
    if trainer.recursive() {
        check_recursive(pipeline, bound, &training.from)?;
        if label != pipeline.label.as_ref().map_or("", |label| &label.column) {
            let message = format!(
                "`strategy: recursive` predicts the pipeline's label, and `{label}` is another column"
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
    Ok(())
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
                "keep the values as they are in another column (`derive`) before `{by}`, and name that"
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
    let own = feed.label.as_ref().map(|label| label.column().to_owned());
    own.or_else(|| pipeline.label.as_ref().map(|label| label.column.clone()))
        .ok_or_else(|| {
            Fault::new(
                codes::MISSING_FIELD,
                "`train` does not say what is predicted",
            )
            .hint("add `label: <column>`")
        })
}
