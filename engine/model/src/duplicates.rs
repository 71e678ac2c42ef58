//! Rows of a series that have the same time.

use serde::{Deserialize, Serialize};

/// Treatment of rows with the same keys and the same time, where windows over series are computed. Later variants are
/// stricter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateRows {
    /// Rows of one time count in the order in which they are read.
    #[default]
    Allow,
    /// Counts them in a warning.
    Warn,
    /// Refuses them.
    Error,
}

/// Counts of what windows met between the rows of series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesCounts {
    /// Steps that were not of the declared period.
    pub gaps: u64,
    /// Rows with the keys and the time of an earlier row, where a warning was asked for.
    pub duplicates: u64,
}

impl SeriesCounts {
    /// Adds the counts of other rows.
    pub fn add(&mut self, other: SeriesCounts) {
        self.gaps += other.gaps;
        self.duplicates += other.duplicates;
    }
}
