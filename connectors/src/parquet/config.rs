//! What a spec says about Parquet.

use std::sync::Arc;

use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use forebay_storage::{Sink, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::{PartitionPolicy, SchemaPolicy};
use crate::format::{ConnectorConfig, SinkConfig, SourceConfig, all_paths, check_paths};

use super::sink::ParquetEncoder;
use super::source::ParquetReader;

/// Parquet files to read.
///
/// ```yaml
/// sources:
///   sales: { parquet: { path: "data/sales/*.parquet" }, time: date, keys: [store, item] }
/// ```
///
/// ```
/// use forebay_connectors::ParquetSource;
/// let source = ParquetSource::at("data/demand/day=*/*.parquet").columns(["store", "qty"]);
/// assert_eq!(source.path.as_deref(), Some("data/demand/day=*/*.parquet"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct ParquetSource {
    /// A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in
    /// `[*]`, these characters stand for themselves. Folders are read whole, without names that begin
    /// with `_` or `.`. A link that leads to nothing is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub path: Option<String>,
    /// Several of them, instead of `path`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The columns to read, in this order; all when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// How much the files may differ.
    pub schema: SchemaPolicy,
    /// Whether folders named `column=value` give columns.
    pub partitions: PartitionPolicy,
}

impl ParquetSource {
    /// The files of a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        ParquetSource {
            path: Some(path.into()),
            ..ParquetSource::default()
        }
    }

    pub(super) fn all_paths(&self) -> Vec<&str> {
        all_paths(&self.path, &self.paths)
    }
}

impl ConnectorConfig for ParquetSource {
    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)
    }
}

impl SourceConfig for ParquetSource {
    fn source(self) -> Arc<dyn Source> {
        Arc::new(ParquetReader::new(self))
    }
}

/// How pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParquetCompression {
    /// Fast, and smaller by a third or so.
    #[default]
    Snappy,
    /// Smaller, and slower to write.
    Zstd,
    /// The fastest to read.
    Lz4,
    /// Not at all.
    None,
}

/// Parquet files to write. Their pages and their footers have checksums.
///
/// ```yaml
/// sinks:
///   table: { from: features, parquet: { path: out/features, partition_by: [store] } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct ParquetSink {
    /// The folder or URL that the output goes to.
    #[setters(skip)]
    pub path: String,
    /// Columns that become folders named `column=value` and are left out of the files.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// Columns by which rows are sorted inside each file.
    #[serde(default)]
    pub sort_by: Vec<String>,
    /// A file is closed when it has reached this size.
    #[serde(default = "file_bytes_target")]
    pub file_bytes_target: u64,
    /// Rows per row group at most.
    #[serde(default = "group_rows_max")]
    pub group_rows_max: usize,
    /// How pages are compressed.
    #[serde(default)]
    pub compression: ParquetCompression,
}

/// Large enough for few requests per byte, small enough to be spread over threads and workers.
pub(crate) fn file_bytes_target() -> u64 {
    128 << 20
}

/// Large enough for statistics and pages to cost nothing, small enough that one thread holds a
/// row group in memory.
pub(crate) fn group_rows_max() -> usize {
    122_880
}

impl ParquetSink {
    /// Files below a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        ParquetSink {
            path: path.into(),
            partition_by: Vec::new(),
            sort_by: Vec::new(),
            file_bytes_target: file_bytes_target(),
            group_rows_max: group_rows_max(),
            compression: ParquetCompression::default(),
        }
    }
}

impl ConnectorConfig for ParquetSink {
    fn check(&self) -> ConfigResult<()> {
        let positive = |ok: bool, field: &str| match ok {
            true => Ok(()),
            false => Err(ConfigError::at(
                field,
                format!("`{field}` must be at least 1"),
            )),
        };
        positive(self.file_bytes_target > 0, "file_bytes_target")?;
        positive(self.group_rows_max > 0, "group_rows_max")?;
        match self.path.is_empty() {
            true => Err(ConfigError::at("path", "the path is empty")),
            false => Ok(()),
        }
    }
}

impl SinkConfig for ParquetSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(ParquetEncoder::new(self))
    }
}
