//! Configuration of models of single series in a spec.

use forebay_contract::ConnectorConfig;
use forebay_model::{ConfigError, ConfigResult};
use forebay_series::theta::ThetaVariant;
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ensemble::EnsembleWeights;
use super::fit::FitFolds;
use super::grid::StepLength;
use super::intervals::SeriesIntervals;
use super::method::SeriesMethod;
use super::model::SeriesModelKind;
use super::reconcile_config::ReconcileConfig;

/// Fits a statistical model to each series of a step, after everything else, and publishes them as other models are.
/// A series is forecast from its own values alone: there are no features. An ensemble combines several methods.
///
/// All rows of a series have to lie whole steps of `every` apart. Steps without a row get a value on the line between
/// their neighbours, and a warning counts them. A series of fewer than four steps (five with `ets`) is forecast by its
/// last value. Where the split has a part `validation`, which must come after the rows to learn from, models are fitted
/// without it. Their forecasts are compared with it, and then they go on over its rows: forecasts always begin at the
/// last value. Models are fitted in each run. The same rows and spec give the same models, to the bit, on any number of
/// threads.
///
/// ```
/// use forebay_train::SeriesModelConfig;
/// let theta = SeriesModelConfig { time: "date".into(), every: "1d".into(), ..SeriesModelConfig::default() };
/// assert_eq!(theta.season, None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct SeriesModelConfig {
    /// The directory of the model; a folder of the state directory when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The kind of model.
    pub model: SeriesModelKind,
    /// The variant of the theta method.
    #[serde(skip_serializing_if = "ThetaVariant::is_standard")]
    pub variant: ThetaVariant,
    /// The methods that an `ensemble` combines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<SeriesMethod>,
    /// The combination of their forecasts.
    #[serde(skip_serializing_if = "EnsembleWeights::is_mean")]
    pub weights: EnsembleWeights,
    /// Length of the folds that `weights: nnls` and `intervals` learn on, and of the forecasts that `reconcile` makes: that
    /// of the label's horizon, say. A fold is an end of a series that is forecast from the values before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<String>,
    /// Number of these folds; 3 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub folds: Option<u32>,
    /// Intervals around the forecasts, whose widths are found from errors on folds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<SeriesIntervals>,
    /// Levels of a hierarchy: their sums of series have models of their own, and all forecasts are made to add up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconcile: Option<ReconcileConfig>,
    /// The columns that tell series apart; without them, all rows are one series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// The column of times.
    pub time: String,
    /// The distance between rows of a series: a length of time such as `1d` or `1mo`, `1t` for whole numbers.
    pub every: String,
    /// The length of a season, a whole number of steps: `7d` for days, `1y` for months. Series of fewer than two seasons
    /// have none, nor have those that do not pass a test for it (`theta`) or that a form without it fits better (`ets`).
    /// There are no seasons when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub season: Option<String>,
    /// The column that is predicted; that of the pipeline's `label` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The part of the split that forecasts are compared with; `validation` when left out, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// Columns of numbers as features: always none. The field is a part of the ids of models.
    #[schemars(skip)]
    #[setters(skip)]
    pub dense: Vec<String>,
    /// Columns of ids as features: always none. The field is a part of the ids of models.
    #[schemars(skip)]
    #[setters(skip)]
    pub categorical: Vec<String>,
}

/// The longest season, in steps.
const SEASON_STEPS_MAX: i128 = 10_000;

/// Folds that weights are learned on, unless the spec says how many.
const FOLDS: u32 = 3;

/// Most folds.
const FOLDS_MAX: u32 = 100;

/// The longest horizon, in steps.
const HORIZON_STEPS_MAX: i128 = 10_000;

impl SeriesModelConfig {
    /// The distance between rows.
    pub(super) fn step_length(&self) -> ConfigResult<StepLength> {
        if self.every.is_empty() {
            let message = "`every` is missing: give the distance between rows, such as `1d`";
            return Err(ConfigError::at("every", message));
        }
        parse_length("every", &self.every)
    }

    /// The methods that are fitted.
    pub(super) fn methods(&self) -> Vec<SeriesMethod> {
        match self.model {
            SeriesModelKind::Theta => vec![SeriesMethod::Theta],
            SeriesModelKind::Ets => vec![SeriesMethod::Ets],
            SeriesModelKind::Ensemble => self.of.clone(),
        }
    }

    fn learns_on_folds(&self) -> bool {
        self.weights == EnsembleWeights::Nnls || self.intervals.is_some()
    }

    /// The folds that weights and intervals are learned on; none where neither is learned.
    pub(super) fn fit_folds(&self) -> ConfigResult<Option<FitFolds>> {
        if !self.learns_on_folds() {
            if self.folds.is_some() {
                let message = "`folds` are what `weights: nnls` and `intervals` learn on";
                return Err(ConfigError::at("folds", message));
            }
            return Ok(None);
        }
        let count = self.folds.unwrap_or(FOLDS);
        if !(1..=FOLDS_MAX).contains(&count) {
            let message = format!("there are 1 to {FOLDS_MAX} folds");
            return Err(ConfigError::at("folds", message));
        }
        Ok(Some(FitFolds {
            count: count as usize,
            steps: self.horizon_steps()?,
        }))
    }

    /// Steps of the horizon, which has to be given.
    pub(super) fn horizon_steps(&self) -> ConfigResult<usize> {
        let Some(horizon) = &self.horizon else {
            let message = "`horizon` is missing: `weights: nnls`, `intervals` and `reconcile` need \
                           a length, such as that of the label's horizon";
            return Err(ConfigError::at("horizon", message));
        };
        let steps = parse_length("horizon", horizon)?.steps_of(self.step_length()?);
        let Some(steps @ 1..=HORIZON_STEPS_MAX) = steps else {
            let message = format!(
                "a horizon has 1 to {HORIZON_STEPS_MAX} whole steps of `every: {}`, and \
                 `{horizon}` has not",
                self.every
            );
            return Err(ConfigError::at("horizon", message));
        };
        Ok(steps as usize)
    }

    /// Fails where levels are no groups of series.
    fn check_reconcile(&self) -> ConfigResult<()> {
        let Some(reconcile) = &self.reconcile else {
            if self.horizon.is_some() && !self.learns_on_folds() {
                let message = "`horizon` is of `weights: nnls`, `intervals` and `reconcile`";
                return Err(ConfigError::at("horizon", message));
            }
            return Ok(());
        };
        if self.intervals.is_some() {
            let message = "errors on folds are not those of reconciled forecasts: leave \
                           `intervals` or `reconcile` out";
            return Err(ConfigError::at("intervals", message));
        }
        if reconcile.by.is_empty() {
            let message = "`by` has no level: name the columns of each, or `[]` for the sum of all";
            return Err(ConfigError::at("reconcile.by", message));
        }
        for level in &reconcile.by {
            if let Some(column) = level.iter().find(|column| !self.by.contains(column)) {
                let message = format!("`{column}` does not tell series apart: name it under `by`");
                return Err(ConfigError::at("reconcile.by", message));
            }
            let is_whole = self.by.iter().all(|column| level.contains(column));
            if is_whole {
                let message =
                    "a level has fewer columns than `by`, whose series are the lowest level";
                return Err(ConfigError::at("reconcile.by", message));
            }
        }
        // The sums of a level that comes twice would count twice.
        for (position, level) in reconcile.by.iter().enumerate() {
            let is_repeated = |earlier: &Vec<String>| has_equal_columns(earlier, level);
            if reconcile.by[..position].iter().any(is_repeated) {
                let message = format!("the level `[{}]` is there twice", level.join(", "));
                return Err(ConfigError::at("reconcile.by", message));
            }
        }
        self.horizon_steps().map(drop)
    }

    /// Fails where the methods of an ensemble cannot be combined, and where other models have settings of ensembles.
    fn check_ensemble(&self) -> ConfigResult<()> {
        if self.model != SeriesModelKind::Ensemble {
            let is_set = !self.of.is_empty() || !self.weights.is_mean();
            if is_set {
                let message = "`of` and `weights` are of ensembles: choose `model: ensemble`";
                return Err(ConfigError::at("of", message));
            }
            return Ok(());
        }
        for (position, method) in self.of.iter().enumerate() {
            if self.of[..position].contains(method) {
                let message = format!("`{}` is named twice", method.name());
                return Err(ConfigError::at("of", message));
            }
        }
        if self.of.len() < 2 {
            let message = "an ensemble has two methods or more: `of: [theta, ets]`";
            return Err(ConfigError::at("of", message));
        }
        Ok(())
    }

    /// Steps of a season; 1 without one.
    pub(super) fn season_steps(&self) -> ConfigResult<usize> {
        let every = self.step_length()?;
        let Some(season) = &self.season else {
            return Ok(1);
        };
        let steps = parse_length("season", season)?.steps_of(every);
        let steps = steps.filter(|steps| (2..=SEASON_STEPS_MAX).contains(steps));
        steps.map(|steps| steps as usize).ok_or_else(|| {
            let message = format!(
                "a season has 2 to {SEASON_STEPS_MAX} whole steps of `every: {}`, and `{season}` \
                 has not",
                self.every
            );
            ConfigError::at("season", message)
        })
    }
}

/// True if two lists name the same columns, in any order.
fn has_equal_columns(first: &[String], second: &[String]) -> bool {
    let is_within = first.iter().all(|column| second.contains(column));
    is_within && second.iter().all(|column| first.contains(column))
}

fn parse_length(field: &str, text: &str) -> ConfigResult<StepLength> {
    let length: StepLength = text
        .parse()
        .map_err(|message: String| ConfigError::at(field, message))?;
    if length.is_positive() {
        return Ok(length);
    }
    Err(ConfigError::at(field, format!("`{text}` has no length")))
}

impl ConnectorConfig for SeriesModelConfig {
    const NAME: &'static str = "train";

    fn check(&self) -> ConfigResult<()> {
        if self.time.is_empty() {
            let message = "`time` is missing: name the column with the times of the rows";
            return Err(ConfigError::at("time", message));
        }
        if self.by.contains(&self.time) {
            let message = format!("`{}` is the time, and tells no series apart", self.time);
            return Err(ConfigError::at("by", message));
        }
        for (field, columns) in [("dense", &self.dense), ("categorical", &self.categorical)] {
            if !columns.is_empty() {
                let message = "the model takes no features: it forecasts a series from its values";
                return Err(ConfigError::at(field, message));
            }
        }
        self.check_ensemble()?;
        if let Some(intervals) = &self.intervals {
            intervals.check()?;
        }
        self.fit_folds()?;
        self.check_reconcile()?;
        let has_theta = self.methods().contains(&SeriesMethod::Theta);
        if !has_theta && !self.variant.is_standard() {
            let message = "`variant` names variants of the theta method: choose `model: theta`, or \
                           an ensemble of it";
            return Err(ConfigError::at("variant", message));
        }
        self.season_steps().map(drop)
    }
}
