//! Settings of what is learned on folds within a run.

use forebay_model::{ConfigError, ConfigResult, TimeLength, length_hint, parse_duration};

/// Folds on which something is learned, where the spec names no number.
const FOLDS_DEFAULT: u32 = 3;

/// Something that is learned on folds, in the plural.
pub struct LearnedOnFolds {
    /// Its noun.
    pub noun: &'static str,
    /// Its noun with the thing that it belongs to.
    pub subject: &'static str,
    /// The setting of a `predict` sink.
    pub setting: &'static str,
    /// The choice there that learns.
    pub choice: &'static str,
    /// The choice that learns nothing.
    pub remedy: &'static str,
}

/// Weights of an ensemble.
pub const FOLD_WEIGHTS: LearnedOnFolds = LearnedOnFolds {
    noun: "weights",
    subject: "weights of an ensemble",
    setting: "ensemble",
    choice: "`combine: nnls`",
    remedy: "`combine: mean`",
};

/// Errors of a hierarchy.
pub const FOLD_ERRORS: LearnedOnFolds = LearnedOnFolds {
    noun: "errors",
    subject: "errors of a hierarchy",
    setting: "reconcile",
    choice: "`method: mint_shrink`",
    remedy: "`method: ols`",
};

/// Number of folds, which a spec may name.
pub(crate) fn fold_count(folds: Option<u32>) -> usize {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_folds_are_lengths_or_numbers() {
        for every in ["28d", "12h", "2w", "1mo", "1h30m", "7", "7t"] {
            assert!(
                FOLD_WEIGHTS.check_settings(true, None, Some(every)).is_ok(),
                "{every}"
            );
        }
        for every in ["", "soon", "3x"] {
            let refused = FOLD_WEIGHTS.check_settings(true, None, Some(every));
            assert_eq!(refused.unwrap_err().path, "ensemble.every", "{every}");
        }
    }
}
