//! What a backtest found.

use serde::Serialize;

use super::scores::ForecastScore;

/// A backtest.
#[derive(Debug, Clone, Serialize)]
pub struct BacktestReport {
    /// The predicted column.
    pub label: String,
    /// The folds, in order of time.
    pub folds: Vec<FoldReport>,
    /// Per `predict` sink.
    pub forecasts: Vec<BacktestedForecast>,
}

/// One fold: a run with the data as they were at one time.
#[derive(Debug, Clone, Serialize)]
pub struct FoldReport {
    /// Rows at or after this time were not known.
    pub known_before: String,
    /// Seconds that the run took, with training and forecasts.
    pub seconds: f64,
}

/// The forecasts of one sink, and those that are compared with it.
#[derive(Debug, Clone, Serialize)]
pub struct BacktestedForecast {
    /// The sink.
    pub sink: String,
    /// The columns by which groups are scored.
    pub by: Vec<String>,
    /// The model first.
    pub forecasters: Vec<ForecasterScores>,
}

/// The scores of one way to forecast.
#[derive(Debug, Clone, Serialize)]
pub struct ForecasterScores {
    /// The model's sink, `seasonal_naive` or `last_value`.
    pub forecaster: String,
    /// Over all folds.
    pub overall: ForecastScore,
    /// Forecasts whose value did not come: the history has no such row, or no value in it.
    pub missing: u64,
    /// Per fold, in the order of the folds.
    pub folds: Vec<ForecastScore>,
    /// Per step of the horizon, from 1.
    pub steps: Vec<StepScore>,
    /// Per group, in order of its values.
    pub groups: Vec<GroupScore>,
}

/// The score of a step of the horizon.
#[derive(Debug, Clone, Serialize)]
pub struct StepScore {
    /// The step, from 1.
    pub step: u64,
    /// Its score.
    #[serde(flatten)]
    pub score: ForecastScore,
}

/// The score of a group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupScore {
    /// The values that name it.
    pub group: Vec<Option<String>>,
    /// Its score.
    #[serde(flatten)]
    pub score: ForecastScore,
}
