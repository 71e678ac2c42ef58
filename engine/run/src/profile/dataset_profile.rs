//! Profile of a dataset.

use serde::{Deserialize, Serialize};

use super::column::ColumnProfile;
use super::pairs::ColumnPair;
use super::series::SeriesProfile;

/// Profile of the columns of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetProfile {
    /// The version of its fields.
    pub format: u32,
    /// The step or source whose rows were profiled.
    pub of: String,
    /// The part of the split, if not all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Number of rows.
    pub rows: u64,
    /// Columns in the order of the dataset.
    pub columns: Vec<ColumnProfile>,
    /// Profile of the series, where the rows have a time and keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesProfile>,
    /// Pairs of columns, where they were requested: the strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<ColumnPair>,
}
