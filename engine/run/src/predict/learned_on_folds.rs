//! Conditions for something to be learned on folds within a run.

use forebay_model::{
    ConfigError, ConfigResult, Fault, Pipeline, Result, TimeLength, codes, length_hint,
};
use forebay_plan::{BaseDataset, BoundPipeline, FutureFlow};

use crate::deadline::parse_duration;

/// Folds on which something is learned, where the spec names no number.
const FOLDS_DEFAULT: u32 = 3;

/// Something that is learned on folds, in the plural.
pub(super) struct LearnedOnFolds {
    pub noun: &'static str,
    pub subject: &'static str,
    /// The setting of a `predict` sink.
    pub setting: &'static str,
    /// The choice there that learns.
    pub choice: &'static str,
    /// The choice that learns nothing.
    pub remedy: &'static str,
}

/// Weights of an ensemble.
pub(super) const WEIGHTS: LearnedOnFolds = LearnedOnFolds {
    noun: "weights",
    subject: "weights of an ensemble",
    setting: "ensemble",
    choice: "`combine: nnls`",
    remedy: "`combine: mean`",
};

/// Errors of a hierarchy.
pub(super) const ERRORS: LearnedOnFolds = LearnedOnFolds {
    noun: "errors",
    subject: "errors of a hierarchy",
    setting: "reconcile",
    choice: "`method: mint_shrink`",
    remedy: "`method: ols`",
};

/// Number of folds, which a spec may name.
pub(super) fn fold_count(folds: Option<u32>) -> usize {
    folds.unwrap_or(FOLDS_DEFAULT) as usize
}

/// True for a distance of folds: a length of time, or a number of steps where times are whole numbers.
fn is_distance(text: &str) -> bool {
    let count = text.strip_suffix('t').unwrap_or(text);
    count.parse::<i64>().is_ok()
        || text.parse::<TimeLength>().is_ok()
        || parse_duration(text).is_some()
}

impl LearnedOnFolds {
    /// Checks the settings of folds, which have no use where nothing is learned. The error names the wrong field.
    pub fn check_settings(
        &self,
        learns: bool,
        folds: Option<u32>,
        every: Option<&str>,
    ) -> ConfigResult<()> {
        let LearnedOnFolds {
            noun,
            setting,
            choice,
            ..
        } = self;
        if folds == Some(0) {
            let message = format!("{noun} are learned on one fold or more");
            return Err(ConfigError::at(format!("{setting}.folds"), message));
        }
        if let Some(every) = every.filter(|every| !is_distance(every)) {
            let message = format!("`{every}` is not a length; hint: {}", length_hint(every));
            return Err(ConfigError::at(format!("{setting}.every"), message));
        }
        if learns || (folds.is_none() && every.is_none()) {
            return Ok(());
        }
        let unused = if folds.is_some() { "folds" } else { "every" };
        let message =
            format!("`{unused}` is for {noun} that are learned: leave it out, or choose {choice}");
        Err(ConfigError::at(format!("{setting}.{unused}"), message))
    }

    /// Refuses forecasts without folds: these know the rows of a source before their time, and compare with the label.
    pub fn check(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        future: &FutureFlow,
    ) -> Result<()> {
        let LearnedOnFolds {
            subject, remedy, ..
        } = self;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_folds_are_lengths_or_numbers() {
        for every in ["28d", "12h", "2w", "1mo", "1h30m", "7", "7t"] {
            assert!(
                WEIGHTS.check_settings(true, None, Some(every)).is_ok(),
                "{every}"
            );
        }
        for every in ["", "soon", "3x"] {
            let refused = WEIGHTS.check_settings(true, None, Some(every));
            assert_eq!(refused.unwrap_err().path, "ensemble.every", "{every}");
        }
    }
}
