//! Operations on a target as a spec names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::LengthSpec;

/// One operation on a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetOperation {
    /// `ln(1 + x)`.
    Log1p,
    /// `x^exponent`, for an exponent above 0.
    Power(f64),
    /// The transformation of Box and Cox with an exponent.
    BoxCox(BoxCoxExponent),
    /// The value less an earlier one, once for each length: rows (`1`) or time (`7d`).
    Difference(DifferenceLengths),
    /// The value less the one of the season before.
    SeasonalDifference(SeasonalLength),
    /// `(x - centre) / scale` of each series.
    Scale(SeriesScale),
}

impl TargetOperation {
    /// True if it needs an earlier value.
    pub(super) fn is_difference(&self) -> bool {
        matches!(
            self,
            TargetOperation::Difference(_) | TargetOperation::SeasonalDifference(_)
        )
    }
}

/// Lengths of differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a length (`1`, `7d`), a list of lengths, `auto`, or `auto: 2` with the most \
                 differences"
)]
pub enum DifferenceLengths {
    /// A difference from row to row for each series that is not stationary.
    Auto(AutoWord),
    /// As many differences from row to row as each series needs to be stationary.
    UpTo {
        /// Most differences.
        auto: u8,
    },
    /// One difference.
    One(LengthSpec),
    /// One difference after the other.
    Each(Vec<LengthSpec>),
}

/// A choice that the values of each series make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AutoWord {
    /// `auto`.
    Auto,
}

/// Length of a season.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a length (`12`, `7d`), or `auto: 12`")]
pub enum SeasonalLength {
    /// A difference by so many rows for each series whose season is strong.
    Auto {
        /// Rows of a season.
        auto: u32,
    },
    /// A difference for all series.
    Length(LengthSpec),
}

/// Exponent of the transformation of Box and Cox.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a number, `likelihood`, or `guerrero: 12` with the rows of a season"
)]
pub enum BoxCoxExponent {
    /// One exponent for all series.
    Number(f64),
    /// An exponent of each series.
    Fitted(BoxCoxFit),
}

/// A way to choose an exponent for each series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoxCoxFit {
    /// The most likely exponent from 0 to 2.
    Likelihood,
    /// The exponent that makes seasons of so many rows vary alike (Guerrero, 1993).
    Guerrero(u32),
}

/// The centre and scale of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesScale {
    /// Mean and standard deviation (ddof 0).
    Standard,
    /// Least value, and the distance of the greatest from it.
    MinMax,
    /// Median, and the distance of the quartiles.
    Robust,
}
