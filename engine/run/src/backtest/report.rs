//! Result of a backtest.

use arrow::datatypes::Field;
use forebay_contract::ForecastExpectation;
use forebay_model::{Fault, codes};
use serde::Serialize;

use super::scores::ForecastScore;
use crate::leak_check::time_text;
use crate::predict::SeriesKey;

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

/// Report of a fold: a run with the data as of one time.
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
    /// The model beside the naive forecast, in a sentence; `None` without a naive forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Coverage of the model's intervals beside their level, the widest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coverage: Vec<IntervalCoverage>,
    /// Rules of the sink about its scores, judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ScoreRule>,
    /// The columns by which groups are scored.
    pub by: Vec<String>,
    /// The model first.
    pub forecasters: Vec<ForecasterScores>,
    /// Errors of the model by size; `None` where no value came, or all errors are zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residuals: Option<ErrorHistogram>,
    /// The column of times.
    #[serde(skip)]
    pub time: Field,
    /// Up to eight series with what the model predicted, the same in every run; none where no value came.
    pub series: Vec<SampledSeries>,
}

/// Errors by size, forecast less value, in bins that all folds share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorHistogram {
    /// The ends of the bins in ascending order, one more than there are bins. The first and the last bin have the errors
    /// beyond them, too.
    pub ends: Vec<f64>,
    /// Per fold, the number of errors in each bin.
    pub folds: Vec<Vec<u64>>,
}

/// A series of a backtest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SampledSeries {
    /// Values of the columns that identify the series.
    pub keys: Vec<SeriesKey>,
    /// Rows that the model predicted, by fold and time: the first 200 steps of the latest eight folds.
    pub points: Vec<SampledPoint>,
}

/// A prediction of a series, and the value that came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SampledPoint {
    /// The number of the fold, from 0.
    pub fold: usize,
    /// The step of the horizon, from 1.
    pub step: u64,
    /// The time.
    pub time: String,
    /// The time in ticks of its column.
    #[serde(skip)]
    pub tick: i64,
    /// The value; `None` if none came.
    pub actual: Option<f64>,
    /// The prediction of the model; `None` if it has none.
    pub predicted: Option<f64>,
}

impl BacktestedForecast {
    /// A time as people write it.
    pub fn time_text(&self, tick: i64) -> String {
        time_text(tick, &self.time).unwrap_or_else(|_| tick.to_string())
    }
}

/// A rule about the scores of a forecast.
#[derive(Debug, Clone, Serialize)]
pub struct ScoreRule {
    /// The measure, `skill` or `wmape`.
    pub measure: &'static str,
    /// The limit: the least skill, or the greatest wMAPE.
    pub limit: f64,
    /// The measure over all folds; `None` if no value came, or if there is no naive forecast to compare with.
    pub value: Option<f64>,
    /// True if the rule holds; `None` without a value.
    pub holds: Option<bool>,
}

/// The rules of a forecast, judged by the overall scores of the model, the first of the forecasters.
pub(super) fn judge_rules(
    expect: &ForecastExpectation,
    forecasters: &[ForecasterScores],
) -> Vec<ScoreRule> {
    let overall = forecasters.first().map(|model| &model.overall);
    let skill = overall.and_then(|score| score.skill);
    let wmape = overall.and_then(|score| score.wmape);
    let mut rules = Vec::new();
    if let Some(limit) = expect.skill {
        rules.push(ScoreRule {
            measure: "skill",
            limit,
            value: skill,
            holds: skill.map(|skill| skill >= limit),
        });
    }
    if let Some(limit) = expect.wmape {
        rules.push(ScoreRule {
            measure: "wmape",
            limit,
            value: wmape,
            holds: wmape.map(|wmape| wmape <= limit),
        });
    }
    rules
}

impl BacktestReport {
    /// A fault that names the rules that do not hold; `None` if all of them hold.
    pub fn broken_rules(&self) -> Option<Fault> {
        let mut broken = Vec::new();
        for forecast in &self.forecasts {
            for rule in &forecast.rules {
                if rule.holds != Some(false) {
                    continue;
                }
                let value = rule.value.unwrap_or_default();
                let bound = if rule.measure == "skill" {
                    "least"
                } else {
                    "greatest"
                };
                broken.push(format!(
                    "the {} of `{}` is {value:.4}, and {} is the {bound} that it expects",
                    rule.measure, forecast.sink, rule.limit
                ));
            }
        }
        if broken.is_empty() {
            return None;
        }
        let message = broken.join("; ");
        let hint =
            "look at the scores by fold, step and group, or change `expect` of the `predict` sink";
        Some(Fault::new(codes::EXPECTATION, message).hint(hint))
    }
}

/// Coverage of the intervals of one level, over all folds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IntervalCoverage {
    /// The share of values that should lie inside.
    pub level: f64,
    /// The share of values that did, its ends included; `None` if no value came.
    pub coverage: Option<f64>,
    /// True if both are within 0.03 of each other; `None` if no value came.
    pub holds: Option<bool>,
    /// The judgement, in a sentence.
    pub summary: String,
    /// Per step of the horizon, in ascending order.
    pub steps: Vec<StepCoverage>,
}

/// Coverage of the intervals of one level at a step of the horizon.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepCoverage {
    /// The step, from 1.
    pub step: u64,
    /// Rows that were forecast and whose value came.
    pub rows: u64,
    /// The share of values inside.
    pub coverage: Option<f64>,
    /// True if it is within 0.03 of the level.
    pub holds: Option<bool>,
}

/// The scores of one way to forecast.
#[derive(Debug, Clone, Serialize)]
pub struct ForecasterScores {
    /// The model's sink, `seasonal_naive` or `last_value`.
    pub forecaster: String,
    /// Scores over all folds.
    pub overall: ForecastScore,
    /// Forecasts whose value did not come: the history has no such row, or no value in it.
    pub missing: u64,
    /// Per fold, in the order of the folds.
    pub folds: Vec<ForecastScore>,
    /// Per step of the horizon, from 1.
    pub steps: Vec<StepScore>,
    /// Per group, in order of its values.
    pub groups: Vec<GroupScore>,
    /// Per fold, in the order of the folds, and within it per step of the horizon: values beside forecasts.
    pub totals: Vec<Vec<StepTotal>>,
}

/// Values that came beside their forecasts, summed up over all series at a step of the horizon.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTotal {
    /// The step, from 1.
    pub step: u64,
    /// Rows that were forecast and whose value came.
    pub rows: u64,
    /// Sum of the values of these rows.
    pub actual: f64,
    /// Sum of the forecasts of these rows.
    pub predicted: f64,
}

/// The score of a step of the horizon.
#[derive(Debug, Clone, Serialize)]
pub struct StepScore {
    /// The step, from 1.
    pub step: u64,
    /// Score of the forecasts of this step.
    #[serde(flatten)]
    pub score: ForecastScore,
}

/// The score of a group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupScore {
    /// The values that name it.
    pub group: Vec<Option<String>>,
    /// Score of the forecasts of this group.
    #[serde(flatten)]
    pub score: ForecastScore,
}
