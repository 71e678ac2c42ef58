//! Conditions for something to be learned on folds within a run.

use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_plan::{BaseDataset, BoundPipeline, FutureFlow};

/// Something that is learned on folds, in the plural, and the setting that learns nothing.
pub(super) struct LearnedOnFolds {
    pub subject: &'static str,
    pub remedy: &'static str,
}

/// Weights of an ensemble.
pub(super) const WEIGHTS: LearnedOnFolds = LearnedOnFolds {
    subject: "weights of an ensemble",
    remedy: "`combine: mean`",
};

/// Errors of a hierarchy.
pub(super) const ERRORS: LearnedOnFolds = LearnedOnFolds {
    subject: "errors of a hierarchy",
    remedy: "`method: ols`",
};

impl LearnedOnFolds {
    /// Refuses forecasts without folds: these know the rows of a source before their time, and compare with the label.
    pub fn check(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        future: &FutureFlow,
    ) -> Result<()> {
        let LearnedOnFolds { subject, remedy } = self;
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
}
