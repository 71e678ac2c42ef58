//! Methods of forecasting a series from its own values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A method that an ensemble combines with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesMethod {
    /// The theta method, in the variant of the configuration.
    Theta,
    /// Exponential smoothing.
    Ets,
    /// The value of one season before; the last value without a season.
    SeasonalNaive,
}

impl SeriesMethod {
    /// Steps of a series at least: shorter ones have no model.
    pub(super) fn steps_min(self) -> usize {
        match self {
            SeriesMethod::Theta => 4,
            SeriesMethod::Ets => 5,
            SeriesMethod::SeasonalNaive => 1,
        }
    }

    /// True if slopes of its forecasts may shrink from step to step.
    pub(super) fn has_damping(self) -> bool {
        self == SeriesMethod::Ets
    }

    /// The name in a spec.
    pub(super) fn name(self) -> &'static str {
        match self {
            SeriesMethod::Theta => "theta",
            SeriesMethod::Ets => "ets",
            SeriesMethod::SeasonalNaive => "seasonal_naive",
        }
    }
}
