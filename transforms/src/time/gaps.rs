//! Meaning of missing periods of a series.

use forebay_model::Result;
use forebay_window as window;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpec, TimeColumn};
use crate::shared::bad_value;

/// Meaning of the missing periods of a series for a step that counts rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GapPolicy {
    /// Rows are counted, whatever their times.
    CountRows,
    /// A missing period is a fault.
    Error(SeriesPeriod),
    /// Missing periods are counted and reported; otherwise rows are counted.
    Warn(SeriesPeriod),
    /// Missing periods count as rows. No row comes out for them.
    Complete(GapCompletion),
}

/// How often a series has a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesPeriod {
    /// The time from one row to the next.
    pub every: LengthSpec,
}

/// How often a series has a row, and what stands for those that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GapCompletion {
    /// The time from one row to the next; a step that is no multiple of it is a fault.
    pub every: LengthSpec,
    /// The value of a missing period: a missing value (`null`, the default), `zero` (values that are no numbers stay missing), or
    /// the one before it (`forward`).
    #[serde(default)]
    pub fill: Option<GapFill>,
}

/// What stands for a missing period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GapFill {
    /// Zero.
    Zero,
    /// The value before.
    Forward,
}

impl GapPolicy {
    /// A missing period is a fault.
    pub fn error(every: impl Into<LengthSpec>) -> GapPolicy {
        GapPolicy::Error(SeriesPeriod {
            every: every.into(),
        })
    }

    /// Missing periods are reported; otherwise rows are counted.
    pub fn warn(every: impl Into<LengthSpec>) -> GapPolicy {
        GapPolicy::Warn(SeriesPeriod {
            every: every.into(),
        })
    }

    /// Missing periods count as rows with a missing value.
    pub fn complete(every: impl Into<LengthSpec>) -> GapPolicy {
        GapPolicy::Complete(GapCompletion {
            every: every.into(),
            fill: None,
        })
    }

    /// Missing periods count as rows with a value.
    pub fn complete_with(every: impl Into<LengthSpec>, fill: GapFill) -> GapPolicy {
        GapPolicy::Complete(GapCompletion {
            every: every.into(),
            fill: Some(fill),
        })
    }

    /// The declared period.
    pub(super) fn every(&self) -> Option<LengthSpec> {
        match self {
            GapPolicy::CountRows => None,
            GapPolicy::Error(period) | GapPolicy::Warn(period) => Some(period.every),
            GapPolicy::Complete(complete) => Some(complete.every),
        }
    }

    /// As the windows' plan has it.
    pub(super) fn to_window_gaps(&self, time: &TimeColumn) -> Result<window::GapHandling> {
        let every = match self.every() {
            None => return Ok(window::GapHandling::CountRows),
            Some(every) if every.is_zero() => return Err(bad_value("`every` of `gaps` is zero")),
            Some(every) => every.distance(time)?,
        };
        Ok(match self {
            GapPolicy::CountRows => window::GapHandling::CountRows,
            GapPolicy::Error(_) => window::GapHandling::Error { every },
            GapPolicy::Warn(_) => window::GapHandling::Warn { every },
            GapPolicy::Complete(complete) => {
                let fill = match complete.fill {
                    None => window::PeriodFill::Null,
                    Some(GapFill::Zero) => window::PeriodFill::Zero,
                    Some(GapFill::Forward) => window::PeriodFill::Forward,
                };
                window::GapHandling::Complete { every, fill }
            }
        })
    }
}
