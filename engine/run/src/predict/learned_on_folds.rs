//! Conditions for something to be learned on folds within a run.

use forebay_contract::{LearnedOnFolds, PredictConfig};
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{BaseDataset, BoundPipeline, FutureFlow};

/// True if a `predict` sink has an ensemble whose weights are learned.
pub(crate) fn learns_weights(sink: &PipelineSink) -> bool {
    let config: Result<PredictConfig, _> = serde_json::from_value(sink.config.clone());
    config.is_ok_and(|config| config.learned_ensemble().is_some())
}

/// True if a `predict` sink has a hierarchy whose errors are learned.
pub(crate) fn learns_errors(sink: &PipelineSink) -> bool {
    let config: Result<PredictConfig, _> = serde_json::from_value(sink.config.clone());
    let reconcile = config.ok().and_then(|config| config.reconcile);
    reconcile.is_some_and(|reconcile| reconcile.learns())
}

/// Refuses forecasts without folds: these know the rows of a source before their time, and compare with the label.
pub(super) fn check_folds(
    learned: &LearnedOnFolds,
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    future: &FutureFlow,
) -> Result<()> {
    let LearnedOnFolds {
        subject, remedy, ..
    } = learned;
    if pipeline.label.is_none() {
        let message =
            format!("{subject} are learned from values of the label, and the spec has none");
        return Err(Fault::new(codes::MISSING_FIELD, message).hint(format!(
            "declare `label: {{ column, horizon }}`, or choose {remedy}"
        )));
    }
    let base = future
        .history
        .first()
        .map(|stream| &bound.bases[stream.base]);
    let Some(BaseDataset::Source(name)) = base else {
        let message = format!(
            "{subject} are learned with the rows before several times, and the history of the \
             forecast comes from SQL or an aggregate"
        );
        return Err(Fault::new(codes::UNSUPPORTED, message).hint(format!(
            "let `future_rows` follow filters and row-wise steps on a source, or choose \
             {remedy}"
        )));
    };
    let source = pipeline.source(name);
    let time = source.and_then(|source| source.time.as_ref());
    if time == Some(&future.time) {
        return Ok(());
    }
    let message = format!(
        "{subject} are learned with the rows before several times, and the source `{name}` \
         does not declare `{}` as its time",
        future.time
    );
    Err(Fault::new(codes::MISSING_FIELD, message)
        .column(&future.time)
        .hint(format!(
            "declare it: `{name}: {{ ..., time: {} }}`",
            future.time
        )))
}
