//! What missing periods of a series mean.

use forebay_model::Result;
use forebay_window as window;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{Length, TimeColumn};
use crate::shared::bad_value;

/// What missing periods of a series mean to a step that counts rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    /// Rows are counted, whatever their times.
    CountRows,
    /// A missing period is a fault.
    Error(Period),
    /// Missing periods are counted and reported; otherwise rows are counted.
    Warn(Period),
    /// Missing periods count as rows. No row comes out for them.
    Complete(Complete),
}

/// How often a series has a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// The time from one row to the next.
    pub every: Length,
}

/// How often a series has a row, and what stands for those that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Complete {
    /// The time from one row to the next; a step that is no multiple of it is a fault.
    pub every: Length,
    /// The value of a missing period: a missing value (`null`, the default), `zero`, or the one
    /// before it (`forward`).
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

impl Gaps {
    /// The declared period.
    pub(super) fn every(&self) -> Option<Length> {
        match self {
            Gaps::CountRows => None,
            Gaps::Error(period) | Gaps::Warn(period) => Some(period.every),
            Gaps::Complete(complete) => Some(complete.every),
        }
    }

    /// As the windows' plan has it.
    pub(super) fn of(&self, time: &TimeColumn) -> Result<window::Gaps> {
        let every = match self.every() {
            None => return Ok(window::Gaps::CountRows),
            Some(every) if every.is_zero() => return Err(bad_value("`every` of `gaps` is zero")),
            Some(every) => every.ticks(time)?,
        };
        Ok(match self {
            Gaps::CountRows => window::Gaps::CountRows,
            Gaps::Error(_) => window::Gaps::Error { every },
            Gaps::Warn(_) => window::Gaps::Warn { every },
            Gaps::Complete(complete) => {
                let fill = match complete.fill {
                    None => window::Fill::Null,
                    Some(GapFill::Zero) => window::Fill::Zero,
                    Some(GapFill::Forward) => window::Fill::Forward,
                };
                window::Gaps::Complete { every, fill }
            }
        })
    }
}
