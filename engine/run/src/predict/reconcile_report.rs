//! Report about forecasts of a hierarchy that were made to add up.

use serde::Serialize;

/// Forecasts of a hierarchy that were made to add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReconcileReport {
    /// The method.
    pub method: String,
    /// The `predict` sinks: those of upper levels, then that of the lowest one.
    pub levels: Vec<String>,
    /// Series of upper levels.
    pub upper_series: u64,
    /// Series of the lowest level.
    pub bottom_series: u64,
    /// Times of folds at which all series have an error, from which the covariance was learned.
    pub errors: u64,
}
