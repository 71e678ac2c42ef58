//! Configuration of Delta tables to write, in a spec.

use forebay_contract::ConnectorConfig;
use forebay_formats::{ParquetCompression, ParquetSink, file_bytes_target, group_rows_max};
use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Treatment of the rows that a table already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeltaMode {
    /// Replaces them: all of them, or with `--interval` those of the interval. Other rows in the same files are written
    /// again, to files of their own.
    #[default]
    Overwrite,
    /// Keeps them, and adds its own. A repeated run with the same rows adds nothing.
    Append,
}

/// Reaction to columns of a run that the table lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddedTableColumns {
    /// The run fails before it computes anything.
    #[default]
    Refuse,
    /// The table gets them; they are null in the rows that it has.
    Add,
}

/// A Delta table to write. Each run is one commit: readers see the table before it or after it. A table that is not
/// there is made.
///
/// ```yaml
/// sinks:
///   table: { from: features, delta: { path: out/table, partition_by: [store] } }
/// ```
///
/// ```
/// use forebay_delta::{DeltaMode, DeltaSink};
/// let sink = DeltaSink::at("s3://lake/features").mode(DeltaMode::Append).partition_by(["day"]);
/// assert_eq!(sink.partition_by, ["day"]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct DeltaSink {
    /// The directory of the table, local or a URL.
    #[setters(skip)]
    pub path: String,
    /// Treatment of the rows that the table already has.
    #[serde(default)]
    pub mode: DeltaMode,
    /// Columns by whose values the files of the table are divided. A table keeps those that it was made with.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// Reaction to columns of a run that the table lacks.
    #[serde(default)]
    pub added_columns: AddedTableColumns,
    /// Columns by which rows are sorted inside each file.
    #[serde(default)]
    pub sort_by: Vec<String>,
    /// A file is closed when it has reached this size.
    #[serde(default = "file_bytes_target")]
    pub file_bytes_target: u64,
    /// Size in bytes below which the files of a partition are merged into one after each run. This
    /// is for tables that runs append to, or whose partitions are those of intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_below_bytes: Option<u64>,
    /// Rows per row group at most.
    #[serde(default = "group_rows_max")]
    pub group_rows_max: usize,
    /// Compression of pages.
    #[serde(default)]
    pub compression: ParquetCompression,
}

impl DeltaSink {
    /// The table at a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        DeltaSink {
            path: path.into(),
            mode: DeltaMode::default(),
            partition_by: Vec::new(),
            added_columns: AddedTableColumns::default(),
            sort_by: Vec::new(),
            file_bytes_target: file_bytes_target(),
            compact_below_bytes: None,
            group_rows_max: group_rows_max(),
            compression: ParquetCompression::default(),
        }
    }

    /// Settings of its Parquet files.
    pub(super) fn files(&self) -> ParquetSink {
        ParquetSink {
            path: self.path.clone(),
            partition_by: self.partition_by.clone(),
            sort_by: self.sort_by.clone(),
            file_bytes_target: self.file_bytes_target,
            group_rows_max: self.group_rows_max,
            compression: self.compression,
            keeps_seconds: false,
            widens_decimals: false,
        }
    }
}

impl ConnectorConfig for DeltaSink {
    const NAME: &'static str = "delta";

    fn check(&self) -> ConfigResult<()> {
        self.files().check()?;
        if self.compact_below_bytes.is_some() && !self.sort_by.is_empty() {
            let message = "files that are sorted inside cannot be put together".to_owned();
            return Err(ConfigError::at("compact_below_bytes", message));
        }
        Ok(())
    }
}
