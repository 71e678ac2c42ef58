//! Configuration of Parquet files in a spec.

use std::collections::BTreeMap;

use forebay_contract::ConnectorConfig;
use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_checks::{all_paths, check_paths};
use crate::files::texts::check_formats;
use crate::files::{OnReadError, PartitionPolicy, SchemaPolicy};

/// Parquet files to read.
///
/// ```yaml
/// sources:
///   sales: { parquet: { path: "data/sales/*.parquet" }, time: date, keys: [store, item] }
/// ```
///
/// ```
/// use forebay_formats::ParquetSource;
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
    /// Permitted differences between the files.
    pub schema: SchemaPolicy,
    /// Use of folders named `column=value` as columns.
    pub partitions: PartitionPolicy,
    /// The unit of times of type INT96, which Spark, Hive and Impala write.
    #[serde(skip_serializing_if = "Int96Unit::is_default")]
    pub int96: Int96Unit,
    /// Columns of texts or whole numbers that are dates or times, with the way in which they are written: `%Y%m%d`. The
    /// directives are those of `strftime`. With a time of day they are timestamps, with an offset (`%z`) in UTC. Where
    /// directives stand side by side, each has all of its digits. A format that goes from the year down lets filters and
    /// intervals skip row groups by their statistics; others do not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, String>,
    /// Treatment of a value that is not written as its column's format says: for all columns, or for some.
    #[serde(skip_serializing_if = "OnReadError::is_default")]
    pub on_error: OnReadError,
}

/// The unit of times of type INT96. A time that it does not hold is a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Int96Unit {
    /// For all years; finer digits are faults.
    #[default]
    Microseconds,
    /// From 1677 to 2262.
    Nanoseconds,
}

impl Int96Unit {
    fn is_default(&self) -> bool {
        *self == Int96Unit::default()
    }
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
    const NAME: &'static str = "parquet";

    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)?;
        check_formats(&self.formats, &self.on_error)
    }
}

/// Compression of pages.
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
    /// No compression.
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
    /// Columns that become folders named `column=value` and are left out of the files. They hold no lists, structs, bytes
    /// or durations, which are not read back from names.
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
    /// Compression of pages.
    #[serde(default)]
    pub compression: ParquetCompression,
    /// True if times of seconds stay in their unit, which Arrow's metadata alone names. Only files that no other program
    /// reads have it.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    #[setters(skip)]
    pub keeps_seconds: bool,
    /// True if decimals of a negative scale, which Parquet does not have, are stored as decimals of scale 0. Only rows that
    /// are shown have it, beside `keeps_seconds`.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    #[setters(skip)]
    pub widens_decimals: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Large enough for few requests per byte, small enough to be spread over threads and workers.
pub fn file_bytes_target() -> u64 {
    128 << 20
}

/// Maximum number of rows of a row group: large enough for statistics and pages to cost nothing,
/// small enough that one thread holds a row group in memory.
pub fn group_rows_max() -> usize {
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
            keeps_seconds: false,
            widens_decimals: false,
        }
    }
}

impl ConnectorConfig for ParquetSink {
    const NAME: &'static str = "parquet";

    fn check(&self) -> ConfigResult<()> {
        let positive = |ok: bool, field: &str| {
            if ok {
                Ok(())
            } else {
                Err(ConfigError::at(
                    field,
                    format!("`{field}` must be at least 1"),
                ))
            }
        };
        positive(self.file_bytes_target > 0, "file_bytes_target")?;
        positive(self.group_rows_max > 0, "group_rows_max")?;
        if self.path.is_empty() {
            Err(ConfigError::at("path", "the path is empty"))
        } else {
            Ok(())
        }
    }
}
