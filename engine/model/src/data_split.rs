//! Partition of rows into parts.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::TimeLength;

/// Prefix of a boundary that is counted back from the newest time of the data.
const LAST: &str = "last ";

/// Shares of a hash split are in parts of this.
const SHARES: u32 = 1_000_000;

/// Partition of rows into parts named by the user (`train`, `validation`, ...).
///
/// ```
/// use forebay_model::DataSplit;
///
/// let by_condition = DataSplit::from([("train", "date < DATE '2016-04-25'"), ("validation", "date >= DATE '2016-04-25'")]);
/// let by_time = DataSplit::by_time("date", ["train", "validation"], ["2016-04-25"]);
/// let by_hash = DataSplit::by_hash(["user_id"], [("train", 0.9), ("validation", 0.1)]);
/// assert!([by_condition, by_time, by_hash].iter().all(|split| split.parts() == ["train", "validation"]));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DataSplit {
    /// One SQL condition per part.
    Expressions(Vec<(String, String)>),
    /// Consecutive half-open time ranges. Part `i` ends before `ends[i]`; the last part has no end. Rows within
    /// `embargo` before a boundary belong to no part.
    Time {
        /// The time column.
        column: String,
        /// Part names in time order.
        parts: Vec<String>,
        /// Boundaries, one fewer than parts: the text of SQL date or timestamp literals, or `last 28d` for the begin of
        /// the last 28 days of the data.
        ends: Vec<String>,
        /// Length excluded before each boundary, such as `7d`.
        embargo: Option<String>,
    },
    /// Parts by a hash of key columns: a key keeps its part as the data grows.
    Hash {
        /// The key columns.
        keys: Vec<String>,
        /// Names and shares in parts per million; the shares sum to 1,000,000.
        parts: Vec<(String, u32)>,
        /// Seed of the hash.
        seed: u64,
    },
}

impl<N: Into<String>, C: Into<String>, const PARTS: usize> From<[(N, C); PARTS]> for DataSplit {
    fn from(conditions: [(N, C); PARTS]) -> Self {
        DataSplit::Expressions(
            conditions
                .into_iter()
                .map(|(name, sql)| (name.into(), sql.into()))
                .collect(),
        )
    }
}

impl DataSplit {
    /// Consecutive time ranges; each part but the last ends before one of `ends`.
    pub fn by_time(
        column: impl Into<String>,
        parts: impl IntoIterator<Item = impl Into<String>>,
        ends: impl IntoIterator<Item = impl Into<String>>,
    ) -> DataSplit {
        let parts = parts.into_iter().map(Into::into).collect();
        let ends = ends.into_iter().map(Into::into).collect();
        DataSplit::Time {
            column: column.into(),
            parts,
            ends,
            embargo: None,
        }
    }

    /// Parts by a hash of key columns, with their shares of the keys, which sum to 1.
    pub fn by_hash(
        keys: impl IntoIterator<Item = impl Into<String>>,
        parts: impl IntoIterator<Item = (impl Into<String>, f64)>,
    ) -> DataSplit {
        let parts: Vec<(String, f64)> = parts
            .into_iter()
            .map(|(name, share)| (name.into(), share))
            .collect();
        let total: f64 = parts.iter().map(|(_, share)| share).sum();
        let millionths = |share: f64| (share * f64::from(SHARES)).round() as u32;
        let mut parts: Vec<(String, u32)> = parts
            .into_iter()
            .map(|(name, share)| (name, millionths(share)))
            .collect();
        if (total - 1.0).abs() <= 1e-6
            && let Some(((_, last), others)) = parts.split_last_mut()
        {
            // The last part takes what rounding has left over.
            *last = SHARES.saturating_sub(others.iter().map(|(_, share)| share).sum());
        }
        DataSplit::Hash {
            keys: keys.into_iter().map(Into::into).collect(),
            parts,
            seed: 0,
        }
    }

    /// Part names in order.
    pub fn parts(&self) -> Vec<&str> {
        match self {
            DataSplit::Expressions(parts) => parts.iter().map(|(name, _)| name.as_str()).collect(),
            DataSplit::Time { parts, .. } => parts.iter().map(String::as_str).collect(),
            DataSplit::Hash { parts, .. } => parts.iter().map(|(name, _)| name.as_str()).collect(),
        }
    }

    /// True if a boundary is counted from the newest time of the data, which each run finds.
    pub fn is_relative(&self) -> bool {
        let DataSplit::Time { ends, .. } = self else {
            return false;
        };
        ends.iter().any(|end| last_length(end).is_some())
    }

    /// The sum of the shares of a split by hash; it has to be 1.
    pub fn shares_total(&self) -> Option<f64> {
        let DataSplit::Hash { parts, .. } = self else {
            return None;
        };
        Some(
            parts
                .iter()
                .map(|(_, share)| f64::from(*share))
                .sum::<f64>()
                / f64::from(SHARES),
        )
    }

    /// The canonical configuration, for ids and artifacts.
    pub fn config(&self) -> Value {
        match self {
            DataSplit::Expressions(parts) => json!({ "expressions": parts }),
            DataSplit::Time {
                column,
                parts,
                ends,
                embargo,
            } => {
                json!({
                    "time": { "column": column, "parts": parts, "ends": ends, "embargo": embargo },
                })
            }
            DataSplit::Hash { keys, parts, seed } => {
                json!({ "hash": { "keys": keys, "parts": parts, "seed": seed } })
            }
        }
    }
}

/// The length of a boundary such as `last 28d`; `None` for other boundaries. An error tells why the length cannot be
/// read.
///
/// ```
/// use forebay_model::{TimeLength, last_length};
///
/// assert_eq!(last_length("last 28d"), Some("28d".parse::<TimeLength>()));
/// assert_eq!(last_length("2016-04-25"), None);
/// ```
pub fn last_length(end: &str) -> Option<Result<TimeLength, String>> {
    let length = end.trim().strip_prefix(LAST)?;
    Some(length.trim().parse())
}
