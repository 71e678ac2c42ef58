//! Configuration of a forecast in a spec.

use forebay_model::{ConfigError, ConfigResult, TimeLength, length_hint};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connector_format::ConnectorConfig;
use crate::learned_on_folds::{FOLD_WEIGHTS, fold_count};
use crate::reconcile_config::ForecastReconcile;

/// Writes the predictions of a model of the same run for the rows of the future, after its
/// training, and publishes them in one step: readers see the previous forecast or this one.
///
/// In: a step with `future_rows`, and a `train` sink. Out, in this order: the keys of the series
/// and the time, as they came from the source; `columns`; `step`, the number of steps beyond the
/// known data; the prediction, and its quantiles where the model has some (`prediction_q10`, ...);
/// `known_until`, the time up to which data were known; `model` and `artifact`, the ids of the
/// model and of the findings. Rows come in order of time, then of keys.
///
/// Before anything is published, the files are read back: the number of rows is that of series
/// times steps, no series has a time twice, and no prediction is null or not finite. Quantiles of a
/// row that cross are sorted, and the summary counts such rows. Otherwise the run fails, and
/// readers keep the previous forecast. A model predicts no further than the horizon of the
/// pipeline's `label`: rows beyond it are refused before the run begins. So is a label that a step
/// after `future_rows` computes. A column that the label lists as `known`, and that has no value in
/// rows of the future, is a fault with its counts and the last time for which it is known. So is any
/// other feature that the model predicts by, and that has no value in any row of the future.
///
/// ```yaml
/// steps:
///   features:
///     from: sales
///     do:
///       - filter: "qty IS NOT NULL"
///       - future_rows: { horizon: 7d, every: 1d }
///       - lag: { columns: [qty], by: [7d, 14d] }
///       - select: [date, store, item, qty, "qty_lag_*"]
/// label: { column: qty, horizon: 7d }
/// sinks:
///   trees: { from: features, train: { path: out/trees, model: gbdt, label: qty } }
///   forecast: { from: features, predict: { model: trees, where: future, path: out/forecast, min: 0 } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct PredictConfig {
    /// The `train` sink whose model predicts.
    #[setters(skip)]
    pub model: String,
    /// The rows to predict.
    #[serde(default)]
    #[setters(skip)]
    pub r#where: PredictedRows,
    /// The directory of the forecast.
    #[setters(skip)]
    pub path: String,
    /// The format of its files.
    #[serde(default)]
    pub format: ForecastFormat,
    /// Source columns that are written in addition to keys and time, as they were in the row of the
    /// future: those that `future_rows` carries on.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Name of the column of predictions.
    #[serde(default = "prediction")]
    pub name: String,
    /// The least prediction: smaller ones become it, and the summary counts them. Demand has `min: 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest prediction: greater ones become it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Treatment of columns that the label lists as `known`, where rows of the future have no value
    /// for them, and of features without a value in any row of the future: `error` when left out.
    #[serde(default, skip_serializing_if = "MissingKnown::is_error")]
    pub missing: MissingKnown,
    /// Length of a season, such as `7d`; steps or rows where the horizon is a number of them. The rung `naive` of a
    /// deadline's ladder repeats the label of the last known season: of the same weekday, say. A
    /// series that has no value there gets that of a season before, up to four seasons further
    /// back, else 0. Its quantiles are those of the last five known seasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season: Option<String>,
    /// The `train` sink whose model predicts for groups and series that `model` has no model of: those with few rows, or
    /// that were not there when it learned. It comes before the `fallback` of the training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Models whose predictions are combined with those of `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<ForecastEnsemble>,
    /// Forecasts of upper levels that this one is made to add up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconcile: Option<ForecastReconcile>,
    /// Scores that `backtest` and `score` expect of the forecast; they fail where it has others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub expect: Option<ForecastExpectation>,
}

/// Models whose predictions are combined. Predictions of each row, and each quantile of it, are combined in the units of
/// the label that the models learned. Ends of `intervals` are quantiles, so that all members have the same levels. A
/// mean of intervals is as wide as they are on average. Errors of several models partly cancel, so that it usually holds
/// more values than its level says; `backtest` prints how many.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForecastEnsemble {
    /// The other `train` sinks, which learn from the same step.
    pub with: Vec<String>,
    /// The combination.
    #[serde(default, skip_serializing_if = "EnsembleCombination::is_mean")]
    pub combine: EnsembleCombination,
    /// Weights of a mean, that of `model` first; equal ones when left out. Only their ratios count. `combine: nnls` learns
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// Number of folds that `combine: nnls` learns on: 3 when left out. Each trains and forecasts with all members once
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<u32>,
    /// Length between the times from which folds forecast, such as `28d`: the horizon when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
}

/// Members of an ensemble whose weights are learned, at most: the time doubles with each.
const LEARNED_MEMBERS_MAX: usize = 12;

/// Combination of the predictions of several models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnsembleCombination {
    /// The mean.
    #[default]
    Mean,
    /// The median of each row.
    Median,
    /// A weighted mean. Its weights are not negative, add up to one, and have the least squares of errors on folds of a
    /// backtest within the run. Each series counts in units of its seasonal differences.
    Nnls,
}

impl EnsembleCombination {
    fn is_mean(&self) -> bool {
        *self == EnsembleCombination::Mean
    }
}

/// Expected scores of a forecast, over all folds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForecastExpectation {
    /// The least skill: one less the mean absolute error by that of the naive forecast. 0 is as good as the naive
    /// forecast, 0.2 is better by a fifth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<f64>,
    /// The greatest wMAPE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wmape: Option<f64>,
}

fn prediction() -> String {
    "prediction".to_owned()
}

/// The rows that a forecast predicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PredictedRows {
    /// The rows that `future_rows` adds.
    #[default]
    Future,
}

/// Treatment of known columns and features without a value in rows of the future.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingKnown {
    /// The run publishes nothing, unless the model declares with `missing` how missing numbers are
    /// replaced.
    #[default]
    Error,
    /// The model predicts without them.
    Accept,
}

impl MissingKnown {
    fn is_error(&self) -> bool {
        *self == MissingKnown::Error
    }
}

/// The format of a forecast.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForecastFormat {
    /// Parquet.
    #[default]
    Parquet,
    /// CSV with a header.
    Csv,
    /// JSON lines: an object for each row.
    Json,
}

impl ForecastFormat {
    /// The name of the sink that writes it.
    pub fn name(self) -> &'static str {
        match self {
            ForecastFormat::Parquet => "parquet",
            ForecastFormat::Csv => "csv",
            ForecastFormat::Json => "json",
        }
    }
}

impl PredictConfig {
    /// A forecast of a model, with defaults.
    pub fn new(model: impl Into<String>, path: impl Into<String>) -> PredictConfig {
        PredictConfig {
            model: model.into(),
            r#where: PredictedRows::default(),
            path: path.into(),
            format: ForecastFormat::default(),
            columns: Vec::new(),
            name: prediction(),
            min: None,
            max: None,
            missing: MissingKnown::default(),
            season: None,
            fallback: None,
            ensemble: None,
            reconcile: None,
            expect: None,
        }
    }

    /// The names of all models: the one that predicts, its fallback, and the others of an ensemble.
    pub fn models(&self) -> Vec<&str> {
        let mut names = vec![self.model.as_str()];
        names.extend(self.fallback.as_deref());
        if let Some(ensemble) = &self.ensemble {
            names.extend(ensemble.with.iter().map(String::as_str));
        }
        names
    }

    /// The ensemble, if its weights are learned.
    pub fn learned_ensemble(&self) -> Option<&ForecastEnsemble> {
        let ensemble = self.ensemble.as_ref()?;
        (ensemble.combine == EnsembleCombination::Nnls).then_some(ensemble)
    }

    /// The names of the members of the ensemble, as reports have them.
    pub fn member_names(&self) -> Vec<String> {
        let mut names = vec![self.first_member_text()];
        if let Some(ensemble) = &self.ensemble {
            names.extend(ensemble.with.iter().cloned());
        }
        names
    }

    /// The configuration with learned weights, which declares them.
    pub fn with_weights(mut self, weights: Vec<f64>) -> PredictConfig {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.combine = EnsembleCombination::Mean;
            ensemble.weights = weights;
            ensemble.folds = None;
            ensemble.every = None;
        }
        self
    }

    /// The models in words, as reports name them.
    pub fn models_text(&self) -> String {
        let mut text = self.first_member_text();
        if let Some(ensemble) = &self.ensemble {
            text += &format!(" with {}", ensemble.with.join(" and "));
        }
        text
    }

    /// The model and its fallback in words: the first member of an ensemble.
    fn first_member_text(&self) -> String {
        match &self.fallback {
            Some(fallback) => format!("{}, else {fallback}", self.model),
            None => self.model.clone(),
        }
    }

    /// Checks the other models that predict.
    fn check_models(&self) -> ConfigResult<()> {
        if self.fallback.as_ref() == Some(&self.model) {
            let message = format!("`{}` is no fallback of itself", self.model);
            return Err(ConfigError::at("fallback", message));
        }
        let Some(ensemble) = &self.ensemble else {
            return Ok(());
        };
        if ensemble.with.is_empty() {
            let message = "an ensemble has two models or more: name others, `with: [theta]`";
            return Err(ConfigError::at("ensemble.with", message));
        }
        for (number, name) in ensemble.with.iter().enumerate() {
            if *name == self.model || ensemble.with[..number].contains(name) {
                let message = format!("`{name}` is named twice");
                return Err(ConfigError::at("ensemble.with", message));
            }
        }
        ensemble.check_folds()?;
        ensemble.check_weights()
    }

    /// True if a skill is expected, and there is no naive forecast to measure it by.
    fn expects_skill_of_nothing(&self) -> bool {
        let expects = self.expect.is_some_and(|expect| expect.skill.is_some());
        expects && self.season.is_none()
    }

    /// True if the season is no length.
    fn has_unreadable_season(&self) -> bool {
        let Some(season) = &self.season else {
            return false;
        };
        // A number of steps or of rows.
        let count = season.strip_suffix('t').unwrap_or(season);
        count.parse::<u64>().is_err() && season.parse::<TimeLength>().is_err()
    }

    /// The reason why the season is no length, and the remedy.
    fn season_problem(&self) -> String {
        let season = self.season.as_deref().unwrap_or_default();
        let hint = length_hint(season);
        format!("`{season}` is not a length; hint: {hint}")
    }

    /// Checks the configuration. The error names the wrong field.
    pub fn check(&self) -> ConfigResult<()> {
        let wrong = |field: &str, message: String| Err(ConfigError::at(field, message));
        for (field, bound) in [("min", self.min), ("max", self.max)] {
            if bound.is_some_and(|bound| !(bound as f32).is_finite()) {
                return wrong(field, "a bound is a finite number".to_owned());
            }
        }
        self.check_models()?;
        if let Some(reconcile) = &self.reconcile {
            reconcile.check()?;
        }
        match (self.min, self.max) {
            (Some(min), Some(max)) if min > max => {
                wrong("max", format!("{max} is less than `min: {min}`"))
            }
            _ if self.expects_skill_of_nothing() => wrong(
                "expect.skill",
                "skill is measured beside the naive forecast: add its `season`".to_owned(),
            ),
            _ if self.expect.is_some_and(|expect| !expect.is_finite()) => {
                wrong("expect", "a limit is a finite number".to_owned())
            }
            _ if self.has_unreadable_season() => wrong("season", self.season_problem()),
            _ if self.path.is_empty() => wrong("path", "the path is empty".to_owned()),
            _ if self.name.is_empty() => wrong("name", "the name is empty".to_owned()),
            _ => Ok(()),
        }
    }
}

impl ConnectorConfig for PredictConfig {
    const NAME: &'static str = "predict";

    fn check(&self) -> ConfigResult<()> {
        PredictConfig::check(self)
    }
}

impl ForecastEnsemble {
    /// Number of folds that weights are learned on.
    pub fn fold_count(&self) -> usize {
        fold_count(self.folds)
    }

    fn check_folds(&self) -> ConfigResult<()> {
        let learns = self.combine == EnsembleCombination::Nnls;
        let members = self.with.len() + 1;
        if learns && members > LEARNED_MEMBERS_MAX {
            let message = format!(
                "weights of {LEARNED_MEMBERS_MAX} models are learned at most, and there are \
                 {members}: leave some out, or choose `combine: median`"
            );
            return Err(ConfigError::at("ensemble.with", message));
        }
        FOLD_WEIGHTS.check_settings(learns, self.folds, self.every.as_deref())
    }

    fn check_weights(&self) -> ConfigResult<()> {
        if self.weights.is_empty() {
            return Ok(());
        }
        let count = self.with.len() + 1;
        let total: f64 = self.weights.iter().sum();
        let mut weights = self.weights.iter();
        let are_shares = weights.all(|weight| weight.is_finite() && *weight >= 0.0);
        let message = if self.combine == EnsembleCombination::Nnls {
            "`nnls` learns the weights: leave them out, or choose `combine: mean`".to_owned()
        } else if !self.combine.is_mean() {
            "a median has no weights: leave them out, or choose `combine: mean`".to_owned()
        } else if self.weights.len() != count {
            format!(
                "there are {count} models, and {} weights",
                self.weights.len()
            )
        } else if !are_shares || !total.is_finite() || total <= 0.0 {
            "weights are numbers from 0 on, and one of them is above 0".to_owned()
        } else {
            return Ok(());
        };
        Err(ConfigError::at("ensemble.weights", message))
    }
}

impl ForecastExpectation {
    fn is_finite(&self) -> bool {
        let limits = self.skill.iter().chain(&self.wmape);
        limits.copied().all(f64::is_finite)
    }
}
