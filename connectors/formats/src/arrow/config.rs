//! Configuration of Arrow files in a spec.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Fields, SchemaRef};
use forebay_contract::{ConnectorConfig, Source, SourceFormat};
use forebay_model::{ConfigError, ConfigResult, Result};
use forebay_setters::Setters;
use forebay_storage::StorageClient;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_checks::{all_paths, check_paths};
use crate::files::drift::{FileSchemas, SchemaInterner, logical_fields};
use crate::files::formatted::with_formats;
use crate::files::input_file::InputFile;
use crate::files::list::{FileMarks, ListedFile};
use crate::files::rows::{self, BatchIterator, RowFormat, RowSource};
use crate::files::survey::inspect_parallel;
use crate::files::texts::check_formats;
use crate::files::{OnReadError, PartitionPolicy, SchemaPolicy};
use crate::parquet::{file_bytes_target, group_rows_max};

use super::reader;

/// Arrow files to read: the file format or the stream format, distinguished by their first bytes.
///
/// ```yaml
/// sources:
///   sales: { arrow: { path: "data/arrow/*.arrow" }, time: date, keys: [store, item] }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct ArrowSource {
    /// A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in
    /// `[*]`, these characters stand for themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub path: Option<String>,
    /// Several of them, instead of `path`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Permitted differences between the files.
    pub schema: SchemaPolicy,
    /// Use of folders named `column=value` as columns.
    pub partitions: PartitionPolicy,
    /// Columns of texts or whole numbers that are dates or times, with the way in which they are written: `%Y%m%d`. The
    /// directives are those of `strftime`. With a time of day they are timestamps, with an offset (`%z`) in UTC. Where
    /// directives stand side by side, each has all of its digits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, String>,
    /// Treatment of a value that is not written as its column's format says: for all columns, or for some.
    #[serde(skip_serializing_if = "OnReadError::is_default")]
    pub on_error: OnReadError,
}

impl ArrowSource {
    /// The files of a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        ArrowSource {
            path: Some(path.into()),
            ..ArrowSource::default()
        }
    }
}

impl ConnectorConfig for ArrowSource {
    const NAME: &'static str = "arrow";

    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)?;
        check_formats(&self.formats, &self.on_error)
    }
}

impl SourceFormat for ArrowSource {
    const ENDINGS: &'static [&'static str] = &["arrow", "arrows", "ipc", "feather"];

    fn source(self) -> Arc<dyn Source> {
        let formats = self.formats.clone();
        let on_error = self.on_error.clone();
        with_formats(Arc::new(RowSource::new(self)), &formats, on_error)
    }
}

impl RowFormat for ArrowSource {
    fn paths(&self) -> Vec<&str> {
        all_paths(&self.path, &self.paths)
    }

    fn marks(&self) -> FileMarks {
        FileMarks {
            endings: &[".arrow", ".arrows", ".ipc", ".feather"],
            magic: b"ARROW1",
        }
    }

    fn partitions(&self) -> PartitionPolicy {
        self.partitions
    }

    fn fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields> {
        let interner = SchemaInterner::default();
        let file_fields = inspect_parallel(files, |file| {
            let schema = reader::schema(&rows::open(io, file)?)?;
            Ok(interner.one(logical_fields(schema.fields())))
        })?;
        let mut schemas = FileSchemas::default();
        for (file, fields) in files.iter().zip(file_fields) {
            schemas.add(&file.path, fields);
        }
        schemas.refuse_duplicate_columns(|_| true)?;
        schemas.merge(&self.schema)
    }

    fn open_rows(
        &self,
        file: &InputFile,
        _schema: &SchemaRef,
        selected: &[FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)> {
        reader::rows(file, selected, batch_rows)
    }
}

/// Compression of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrowCompression {
    /// No compression: readers can map the file.
    #[default]
    None,
    /// Fast.
    Lz4,
    /// Small.
    Zstd,
}

/// Arrow files to write, in the file format.
///
/// ```yaml
/// sinks:
///   table: { from: features, arrow: { path: out/features, compression: zstd } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct ArrowSink {
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
    /// Rows that are encoded together at most.
    #[serde(default = "group_rows_max")]
    pub group_rows_max: usize,
    /// Compression of buffers.
    #[serde(default)]
    pub compression: ArrowCompression,
}

impl ArrowSink {
    /// Files below a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        ArrowSink {
            path: path.into(),
            partition_by: Vec::new(),
            sort_by: Vec::new(),
            file_bytes_target: file_bytes_target(),
            group_rows_max: group_rows_max(),
            compression: ArrowCompression::default(),
        }
    }
}

impl ConnectorConfig for ArrowSink {
    const NAME: &'static str = "arrow";

    fn check(&self) -> ConfigResult<()> {
        match (
            self.path.is_empty(),
            self.file_bytes_target,
            self.group_rows_max,
        ) {
            (true, ..) => Err(ConfigError::at("path", "the path is empty")),
            (_, 0, _) => Err(ConfigError::at(
                "file_bytes_target",
                "`file_bytes_target` must be at least 1",
            )),
            (_, _, 0) => Err(ConfigError::at(
                "group_rows_max",
                "`group_rows_max` must be at least 1",
            )),
            _ => Ok(()),
        }
    }
}
