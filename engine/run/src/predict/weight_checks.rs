//! Conditions for weights of an ensemble to be learned.

use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_plan::{BaseDataset, BoundPipeline, FutureFlow};

/// Refuses ensembles whose weights cannot be learned: folds know the rows of a source before their time, and compare
/// forecasts with the label.
pub(super) fn check_learned_weights(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    future: &FutureFlow,
) -> Result<()> {
    if pipeline.label.is_none() {
        let message = "weights of an ensemble are learned from values of the label, and the spec \
                       declares none";
        return Err(Fault::new(codes::MISSING_FIELD, message)
            .hint("declare `label: { column, horizon }`, or choose `combine: mean`"));
    }
    let base = future
        .history
        .first()
        .map(|stream| &bound.bases[stream.base]);
    let Some(BaseDataset::Source(name)) = base else {
        let message = "weights of an ensemble are learned with the rows before several times, and \
                       the history of the forecast comes from SQL or an aggregate";
        return Err(Fault::new(codes::UNSUPPORTED, message).hint(
            "let `future_rows` follow filters and row-wise steps on a source, or choose \
             `combine: mean`",
        ));
    };
    let source = pipeline.source(name);
    let time = source.and_then(|source| source.time.as_ref());
    if time == Some(&future.time) {
        return Ok(());
    }
    let message = format!(
        "weights of an ensemble are learned with the rows before several times, and the source \
         `{name}` does not declare `{}` as its time",
        future.time
    );
    Err(Fault::new(codes::MISSING_FIELD, message)
        .column(&future.time)
        .hint(format!(
            "declare it: `{name}: {{ ..., time: {} }}`",
            future.time
        )))
}
