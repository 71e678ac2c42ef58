//! Dependence between pairs of columns.

use forebay_commit::LearnedFinding;
use forebay_model::Result;
use serde::{Deserialize, Serialize};

/// Two columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnPair {
    /// The first column.
    pub first: String,
    /// The second column.
    pub second: String,
    /// Rows where neither is missing.
    pub rows: u64,
    /// Pearson's correlation, of two columns of numbers; none where one of them is constant or has infinities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// Cramér's V, of two columns of categories; none where one of them has fewer than two values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cramers_v: Option<f64>,
}

impl ColumnPair {
    /// Reads the finding of an analyzer of pairs; `None` for other analyzers.
    pub(super) fn read(learned: &LearnedFinding) -> Result<Option<ColumnPair>> {
        if !matches!(learned.analyzer.as_str(), "correlation" | "association") {
            return Ok(None);
        }
        let [first, second] = learned.columns.as_slice() else {
            return Ok(None);
        };
        let number = |name: &str| {
            if learned.finding.column(name).is_ok() {
                learned.finding.number(name)
            } else {
                Ok(None)
            }
        };
        Ok(Some(ColumnPair {
            first: first.clone(),
            second: second.clone(),
            rows: number("count")?.unwrap_or(0.0) as u64,
            correlation: number("correlation")?,
            cramers_v: number("cramers_v")?,
        }))
    }

    /// Strength of the dependence: 0 to 1.
    pub fn strength(&self) -> f64 {
        self.correlation
            .map(f64::abs)
            .into_iter()
            .chain(self.cramers_v)
            .fold(0.0, f64::max)
    }
}
