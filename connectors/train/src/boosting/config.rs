//! Configuration of boosted trees in a spec.

use forebay_contract::{ConnectorConfig, is_pattern};
use forebay_feed::FeedCache;
use forebay_model::{ConfigError, ConfigResult, Fault, Result};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::boost::BoostingOptions;
use super::fallback_kind::GroupFallbackKind;
use super::intervals::{ForecastIntervals, IntervalBound};
use super::loss::{BoostingLoss, Objective};
use super::split::SplitLimits;
use super::steps::{ForecastStrategy, StepFeatures};
use crate::config::{OnNonFinite, TrainingStart, is_default_start};
use crate::refit::check_refit;
use crate::tracking::MlflowTracking;

/// Trains gradient-boosted trees on the rows of a step, after everything else, and publishes them as the other
/// models are: one model, or one for each group of rows (`by`).
///
/// Rows are read once and held in memory as numbers and bins; those of groups that do not fit are divided on the local
/// disk first, so that all rows of a group come together. Trees are grown leaf by leaf over histograms of 256 bins.
/// Numbers that are missing (null or NaN) go to the side of each split that suits them. Categorical ids are split as
/// sets of ids. Where the split has a part `validation`, boosting stops once `patience_rounds` rounds in a row have not
/// lowered the loss on it, and takes the trees of the best round. The same rows and spec give the same model, to the
/// bit, on any number of threads.
///
/// With `by`, the model over all rows is trained, too. It predicts for groups with fewer than `min_rows` rows, for
/// groups whose training fails, and for groups that were not there, unless `fallback` says otherwise. A group whose rows
/// have not changed keeps its model from the run before.
///
/// ```
/// use forebay_train::BoostingConfig;
/// let trees = BoostingConfig { label: Some("qty".into()), by: vec!["store_id".into()], ..BoostingConfig::default() };
/// assert_eq!(trees.leaves, 31);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct BoostingConfig {
    /// The directory of the model; a folder of the state directory when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The kind of model.
    pub model: BoostedModelKind,
    /// Division of the steps of the horizon among models.
    #[serde(skip_serializing_if = "ForecastStrategy::is_default")]
    pub strategy: ForecastStrategy,
    /// The columns that name the groups, each with a model of its own. They are no features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Rows of a group at least: the model over all rows predicts for smaller ones. 100 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_rows: Option<u64>,
    /// Prediction for groups without a model of their own: those with fewer than `min_rows` rows,
    /// those whose training fails, and those without rows in the training.
    #[serde(skip_serializing_if = "GroupFallbackKind::is_default")]
    pub fallback: GroupFallbackKind,
    /// Rows that one model learns from at most, evenly spaced ones of all; all rows when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub sample_rows: Option<u64>,
    /// The loss that is minimised.
    pub loss: BoostingLoss,
    /// Quantiles that are predicted in addition to the point forecast of `loss`, such as `[0.1,
    /// 0.5, 0.9]`: each has trees of its own with the pinball loss, and a column of its own
    /// (`prediction_q10`). Quantiles of a row that cross are sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
    /// Intervals around the point forecast, such as `{ levels: [80, 95] }`, whose widths are found from its errors on the
    /// validation rows, so that they hold as large a share of values as they say. Each model has widths of its own, which
    /// follow the rows with `scale`; a group with too few validation rows takes those of the model over all rows. Trees
    /// that stop early choose their rounds on the same rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<ForecastIntervals>,
    /// The quantile that `loss: quantile` predicts, such as 0.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// The power of the variance of `loss: tweedie`, between 1 and 2: 1.5 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tweedie_power: Option<f64>,
    /// The column that is predicted; that of the pipeline's `label` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Columns of numbers; when left out, those that a `feed` would take. Patterns (`x_*`) and types (`type:float`) stand
    /// for all columns that match, but for the label and those that other settings name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Vec<String>>,
    /// Columns of ids; when left out, those that a `feed` would take. Patterns stand for all columns that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categorical: Option<Vec<String>>,
    /// The column with the weight of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Treatment of labels and weights that are not finite. Among features, NaN is a missing
    /// number.
    pub non_finite: OnNonFinite,
    /// The part of the split that boosting is validated on; `validation` when left out, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// When a new model is trained: `always` (the default), `never`, `weekly`, or a duration of the data's time such as
    /// `7d`. Until then the model of an earlier run stays in force, and forecasts with the newest rows. A training
    /// whose settings, steps or rows are of another spec trains in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refit: Option<String>,
    /// Start of the training: `nothing` when left out. With `last`, `added_rounds` trees correct
    /// those of the run before on new rows and on a sample of the others, as far as that lowers the
    /// loss on the validation rows. Once a model has four times as many trees as `rounds`, all of
    /// them are grown again from all rows. Not with `by`, nor with `strategy: per_step`.
    #[serde(skip_serializing_if = "is_default_start")]
    pub start: TrainingStart,
    /// With `start: last`, the share of the rows of the run before that is learned from again, in
    /// addition to the new ones; 0.1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub replay: Option<f64>,
    /// Trees that a training adds to those of the run before, at most; a tenth of `rounds` when left
    /// out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub added_rounds: Option<u32>,
    /// Trees of a model at most.
    #[schemars(range(min = 1))]
    pub rounds: u32,
    /// Factor for the values of each tree.
    pub learning_rate: f64,
    /// Leaves of a tree at most.
    #[schemars(range(min = 2))]
    pub leaves: u32,
    /// Rows of a leaf at least.
    #[schemars(range(min = 1))]
    pub min_leaf_rows: u32,
    /// Added to the second derivatives of a leaf: shrinks the values of small leaves.
    pub l2: f64,
    /// Rounds in a row without a lower loss on the validation rows after which boosting stops.
    #[schemars(range(min = 1))]
    pub patience_rounds: u32,
    /// Keeps what is read of a remote store on a local disk; the model does not depend on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<FeedCache>,
    /// Tracks the training in MLflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow: Option<MlflowTracking>,
}

/// The kind of model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoostedModelKind {
    /// Gradient-boosted decision trees.
    #[default]
    Gbdt,
}

/// Default for the minimum rows of a group.
const MIN_ROWS_DEFAULT: u64 = 100;

/// Default for the power of `loss: tweedie`.
const TWEEDIE_POWER_DEFAULT: f64 = 1.5;

/// The quantile where the loss is not that of one.
const QUANTILE_DEFAULT: f64 = 0.5;

/// Quantiles of a model at most.
const QUANTILES_MAX: usize = 99;

/// The widest tree.
const LEAVES_MAX: u32 = 65_536;

impl Default for BoostingConfig {
    fn default() -> Self {
        BoostingConfig {
            path: None,
            model: BoostedModelKind::Gbdt,
            strategy: ForecastStrategy::default(),
            by: Vec::new(),
            min_rows: None,
            fallback: GroupFallbackKind::default(),
            sample_rows: None,
            loss: BoostingLoss::default(),
            quantiles: Vec::new(),
            intervals: None,
            quantile: None,
            tweedie_power: None,
            label: None,
            dense: None,
            categorical: None,
            weight: None,
            non_finite: OnNonFinite::default(),
            validation: None,
            refit: None,
            start: TrainingStart::default(),
            replay: None,
            added_rounds: None,
            rounds: 200,
            learning_rate: 0.1,
            leaves: 31,
            min_leaf_rows: 20,
            l2: 0.0,
            patience_rounds: 30,
            cache: None,
            mlflow: None,
        }
    }
}

/// A number that boosted trees predict for a row, with trees of its own.
#[derive(Debug, Clone)]
pub(super) struct BoostedOutput {
    /// The predicted quantile; `None` is the point forecast.
    pub quantile: Option<f64>,
    pub objective: Objective,
    /// The end of an interval around the point forecast; `None` of outputs with trees.
    pub bound: Option<IntervalBound>,
    /// The features that it takes, where there is a model for each step of the horizon.
    pub features: Option<StepFeatures>,
    /// Everything that determines its trees besides their rows, the columns of these, and the group
    /// that they are for.
    pub identity: Value,
}

impl BoostingConfig {
    /// The objective of a loss of numbers.
    pub(super) fn objective(&self) -> Result<Objective> {
        let power = self.tweedie_power.unwrap_or(TWEEDIE_POWER_DEFAULT);
        let quantile = self.quantile.unwrap_or(QUANTILE_DEFAULT);
        Objective::new(self.loss, power, quantile)
            .ok_or_else(|| Fault::internal("a loss of classes is not one of numbers"))
    }

    /// True if the label is a class, of which each has trees of its own.
    pub(super) fn learns_classes(&self) -> bool {
        self.loss == BoostingLoss::Softmax
    }

    /// Outputs for which trees are grown: the point forecast, then the quantiles; for each model of
    /// the horizon's steps, if there is more than one.
    pub(super) fn outputs(&self, steps: &[StepFeatures]) -> Result<Vec<BoostedOutput>> {
        let row_outputs = self.outputs_of_rows()?;
        let of_step = |features: &StepFeatures| {
            let features = features.clone();
            row_outputs.iter().cloned().map(move |mut output| {
                output.identity["features"] = json!(features.allowed.as_ref());
                BoostedOutput {
                    features: Some(features.clone()),
                    ..output
                }
            })
        };
        Ok(if steps.is_empty() {
            row_outputs
        } else {
            steps.iter().flat_map(of_step).collect()
        })
    }

    fn outputs_of_rows(&self) -> Result<Vec<BoostedOutput>> {
        let point = BoostingConfig {
            quantiles: Vec::new(),
            intervals: None,
            ..self.clone()
        };
        let of_quantile = |quantile: &f64| BoostingConfig {
            loss: BoostingLoss::Quantile,
            quantile: Some(*quantile),
            tweedie_power: None,
            ..point.clone()
        };
        let configs = std::iter::once((None, point.clone()));
        let configs = configs.chain(
            self.quantiles
                .iter()
                .map(|quantile| (Some(*quantile), of_quantile(quantile))),
        );
        let output = |(quantile, config): (Option<f64>, BoostingConfig)| {
            let objective = config.objective()?;
            let identity = config.model_identity()?;
            Ok(BoostedOutput {
                quantile,
                objective,
                bound: None,
                features: None,
                identity,
            })
        };
        let mut outputs = configs
            .map(output)
            .collect::<Result<Vec<BoostedOutput>>>()?;
        outputs.extend(self.interval_outputs(point.objective()?, point.model_identity()?));
        Ok(outputs)
    }

    /// The ends of intervals around the point forecast, whose objective and identity these are.
    fn interval_outputs(&self, point: Objective, point_identity: Value) -> Vec<BoostedOutput> {
        let Some(intervals) = &self.intervals else {
            return Vec::new();
        };
        let mut outputs = Vec::new();
        let bounds = intervals.bounds(point);
        for (quantile, bound) in intervals.quantiles().into_iter().zip(bounds) {
            let mut identity = point_identity.clone();
            identity["interval"] = json!([intervals, quantile]);
            outputs.push(BoostedOutput {
                quantile: Some(quantile),
                objective: Objective::Quantile(quantile),
                bound: Some(bound),
                features: None,
                identity,
            });
        }
        outputs
    }

    /// The quantiles that are predicted in addition to the point forecast, in ascending order.
    pub(super) fn predicted_quantiles(&self) -> Vec<f64> {
        match &self.intervals {
            Some(intervals) => intervals.quantiles(),
            None => self.quantiles.clone(),
        }
    }

    /// Checks the intervals, and whether the other settings let them hold.
    fn check_intervals(&self) -> ConfigResult<()> {
        let Some(intervals) = &self.intervals else {
            return Ok(());
        };
        intervals.check()?;
        if let (Some(scale), Some(dense)) = (&intervals.scale, &self.dense)
            && !dense.iter().any(|name| name == scale || is_pattern(name))
        {
            let message = format!("`scale` names `{scale}`: name it under `dense`, too");
            return Err(ConfigError::at("intervals", message));
        }
        let reason = match self.loss {
            _ if !self.quantiles.is_empty() => {
                "`quantiles` has trees for its columns: leave one of the two out"
            }
            _ if self.is_recursive() => {
                "`strategy: recursive` has errors that grow with the steps, and those on \
                 validation rows are of one step: choose `direct` or `per_step`"
            }
            BoostingLoss::Logistic => {
                "`loss: logistic` predicts a probability, which has no interval"
            }
            BoostingLoss::Softmax => "`loss: softmax` predicts classes, which have no intervals",
            BoostingLoss::Quantile => {
                "`loss: quantile` predicts an end of an interval: choose a loss of a mean or a \
                 median"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::at("intervals", reason))
    }

    pub(super) fn options(&self, objective: Objective) -> BoostingOptions {
        BoostingOptions {
            objective,
            rounds: self.rounds,
            learning_rate: self.learning_rate,
            leaves: self.leaves as usize,
            limits: self.split_limits(),
            patience_rounds: self.patience_rounds,
        }
    }

    /// Limits of the leaves of a tree.
    pub(super) fn split_limits(&self) -> SplitLimits {
        SplitLimits {
            leaf_rows_min: self.min_leaf_rows,
            l2: self.l2,
        }
    }

    /// The columns that must be known for all steps of the horizon: those that name groups, the one that predicts for
    /// groups without a model, and the scale of intervals.
    pub(super) fn whole_columns(&self) -> Vec<&str> {
        let fallback = match &self.fallback {
            GroupFallbackKind::Column(column) => Some(column.as_str()),
            GroupFallbackKind::AllRows | GroupFallbackKind::Parent => None,
        };
        let intervals = self.intervals.as_ref();
        let scale = intervals.and_then(|intervals| intervals.scale.as_deref());
        let columns = self.by.iter().map(String::as_str);
        columns.chain(fallback).chain(scale).collect()
    }

    /// Rows of these that the model over all rows is trained on.
    pub(super) fn sampled_rows(&self, rows: u64) -> u64 {
        match self.sample_rows {
            Some(sample_rows) => rows.min(sample_rows),
            None => rows,
        }
    }

    /// Trees that a training adds to those of an earlier model at most.
    pub(super) fn added_rounds_max(&self) -> u32 {
        self.added_rounds.unwrap_or(self.rounds.div_ceil(10))
    }

    /// True if predictions of a step are values of the label for the next.
    pub(super) fn is_recursive(&self) -> bool {
        self.strategy == ForecastStrategy::Recursive
    }

    /// Checks the settings of trainings that add trees to those of the run before.
    fn check_start(&self) -> ConfigResult<()> {
        if self.start != TrainingStart::Last {
            let settings = [
                ("replay", self.replay.is_some()),
                ("added_rounds", self.added_rounds.is_some()),
            ];
            return match settings.into_iter().find(|(_, is_set)| *is_set) {
                Some((field, _)) => Err(ConfigError::at(
                    field,
                    format!("`{field}` is for `start: last`"),
                )),
                None => Ok(()),
            };
        }
        if !self.by.is_empty() {
            let message = "`start: last` is for one model over all rows: groups whose rows have \
                           not changed keep their models anyway";
            return Err(ConfigError::at("start", message));
        }
        if self.strategy == ForecastStrategy::PerStep {
            let message = "`start: last` is for one model of all steps: choose another `strategy`";
            return Err(ConfigError::at("start", message));
        }
        if self
            .replay
            .is_some_and(|replay| !(0.0..=1.0).contains(&replay))
        {
            return Err(ConfigError::at("replay", "a share is from 0 to 1"));
        }
        Ok(())
    }

    /// Checks that the other settings suit a loss of classes.
    fn check_classes(&self) -> ConfigResult<()> {
        if !self.learns_classes() {
            return Ok(());
        }
        let settings = [
            (
                "quantiles",
                !self.quantiles.is_empty(),
                "predicts classes, which have no quantiles",
            ),
            (
                "by",
                !self.by.is_empty(),
                "has one model over all rows: name the columns under `categorical`, as ids",
            ),
            (
                "strategy",
                !self.strategy.is_default(),
                "predicts known rows, and `strategy` divides a horizon",
            ),
            (
                "start",
                self.start == TrainingStart::Last,
                "grows all trees in each training: leave `start` out",
            ),
        ];
        match settings.into_iter().find(|(_, is_set, _)| *is_set) {
            Some((field, _, reason)) => {
                Err(ConfigError::at(field, format!("`loss: softmax` {reason}")))
            }
            None => Ok(()),
        }
    }

    pub(super) fn group_rows_min(&self) -> u64 {
        self.min_rows.unwrap_or(MIN_ROWS_DEFAULT)
    }

    /// Everything that determines the trees of an output besides its rows, the columns of these,
    /// and the group that it is for.
    pub(super) fn model_identity(&self) -> Result<Value> {
        let same = BoostingConfig {
            path: None,
            strategy: ForecastStrategy::default(),
            by: Vec::new(),
            min_rows: None,
            fallback: GroupFallbackKind::default(),
            intervals: None,
            label: None,
            dense: None,
            categorical: None,
            weight: None,
            validation: None,
            refit: None,
            cache: None,
            mlflow: None,
            ..self.clone()
        };
        let config = serde_json::to_value(same)
            .map_err(|error| Fault::internal("a training").cause(error))?;
        Ok(json!({ "trainer": "boosted trees", "version": super::VERSION, "config": config }))
    }
}

impl ConnectorConfig for BoostingConfig {
    const NAME: &'static str = "train";

    fn check(&self) -> ConfigResult<()> {
        self.mlflow.iter().try_for_each(MlflowTracking::check)?;
        let wrong = |field: &str, message: String| Err(ConfigError::at(field, message));
        let inside = |value: f64, low: f64, high: f64| value > low && value < high;
        match (self.loss == BoostingLoss::Quantile, self.quantile) {
            (true, None) => {
                return wrong(
                    "quantile",
                    "`loss: quantile` needs `quantile`, such as 0.9".to_owned(),
                );
            }
            (false, Some(_)) => {
                return wrong("quantile", "`quantile` is for `loss: quantile`".to_owned());
            }
            (_, Some(value)) if !inside(value, 0.0, 1.0) => {
                return wrong("quantile", format!("{value} is not between 0 and 1"));
            }
            _ => {}
        }
        if let Some(value) = self
            .quantiles
            .iter()
            .find(|value| !inside(**value, 0.0, 1.0))
        {
            return wrong("quantiles", format!("{value} is not between 0 and 1"));
        }
        if !self.quantiles.is_sorted_by(|a, b| a < b) || self.quantiles.len() > QUANTILES_MAX {
            return wrong(
                "quantiles",
                format!("at most {QUANTILES_MAX} in ascending order, each once"),
            );
        }
        if !self.quantiles.is_empty() && self.loss == BoostingLoss::Logistic {
            return wrong(
                "quantiles",
                "`loss: logistic` predicts a probability, which has no quantiles".to_owned(),
            );
        }
        self.check_classes()?;
        self.check_intervals()?;
        self.check_start()?;
        match (self.loss == BoostingLoss::Tweedie, self.tweedie_power) {
            (false, Some(_)) => {
                return wrong(
                    "tweedie_power",
                    "`tweedie_power` is for `loss: tweedie`".to_owned(),
                );
            }
            (_, Some(power)) if !inside(power, 1.0, 2.0) => {
                return wrong("tweedie_power", format!("{power} is not between 1 and 2"));
            }
            _ => {}
        }
        if self.fallback != GroupFallbackKind::AllRows && self.by.is_empty() {
            return wrong("fallback", "`fallback` is for groups: add `by`".to_owned());
        }
        if self.fallback == GroupFallbackKind::Parent && self.by.len() < 2 {
            let message = "`fallback: parent` needs groups above: name several columns under \
                           `by`, the widest first";
            return wrong("fallback", message.to_owned());
        }
        if self.min_rows.is_some() && self.by.is_empty() {
            return wrong("min_rows", "`min_rows` is for groups: add `by`".to_owned());
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return wrong(
                "learning_rate",
                format!("{} is not a number above 0", self.learning_rate),
            );
        }
        if !(self.l2 >= 0.0 && self.l2.is_finite()) {
            return wrong("l2", format!("{} is not a number from 0 on", self.l2));
        }
        if !(2..=LEAVES_MAX).contains(&self.leaves) {
            return wrong(
                "leaves",
                format!("a tree has between 2 and {LEAVES_MAX} leaves"),
            );
        }
        let counts = [
            ("rounds", u64::from(self.rounds)),
            ("min_leaf_rows", u64::from(self.min_leaf_rows)),
            ("patience_rounds", u64::from(self.patience_rounds)),
            ("min_rows", self.min_rows.unwrap_or(1)),
            ("sample_rows", self.sample_rows.unwrap_or(1)),
            ("added_rounds", u64::from(self.added_rounds.unwrap_or(1))),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((field, _)) => wrong(field, "it must be at least 1".to_owned()),
            None => check_refit(self.refit.as_deref()),
        }
    }
}
