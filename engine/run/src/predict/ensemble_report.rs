//! Learned weights of an ensemble.

use serde::{Deserialize, Serialize};

/// Learned weights of an ensemble, and the errors that they were learned from. Errors are roots of mean squares, each
/// error in units of the seasonal differences of its series before the first fold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnsembleReport {
    /// The members, that of `model` first.
    pub members: Vec<EnsembleMember>,
    /// Error of the weighted mean on the folds.
    pub error: f64,
    /// Per fold, the time from which on rows were not known.
    pub folds: Vec<String>,
    /// Forecasts whose values came, each by all members.
    pub rows: u64,
    /// Forecasts that do not count: no value came, or a member has no forecast.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_incomplete: u64,
    /// Forecasts that do not count: their series has no seasonal differences before the first fold.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_unscaled: u64,
}

/// A member of an ensemble.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnsembleMember {
    /// The name of its training.
    pub model: String,
    /// Its weight, from 0 to 1.
    pub weight: f64,
    /// Its error on the folds.
    pub error: f64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl EnsembleReport {
    /// True if these are weights of members with these names.
    pub(crate) fn is_of(&self, names: &[String]) -> bool {
        let members = self.members.iter().map(|member| &member.model);
        members.eq(names)
    }

    /// The weights, in the order of the members.
    pub(crate) fn weights(&self) -> Vec<f64> {
        self.members.iter().map(|member| member.weight).collect()
    }
}
