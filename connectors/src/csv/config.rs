//! What a spec says about CSV.

use std::sync::Arc;

use arrow::datatypes::Fields;
use forebay_model::{ConfigError, ConfigResult, Result};
use forebay_setters::Setters;
use forebay_storage::{Sink, Source, StorageClient};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::list::{FileMarks, ListedFile};
use crate::files::records::RecordSyntax;
use crate::files::rows::{BatchIterator, InputFile, RowFormat, RowSource};
use crate::files::{
    AddedColumnPolicy, ColumnType, ColumnTypes, MissingColumnPolicy, PartitionPolicy,
};
use crate::format::{ConnectorConfig, SinkConfig, SourceConfig, all_paths, check_paths};
use crate::parquet::{file_bytes_target, group_rows_max};

use super::sink::CsvEncoder;
use super::{infer, reader};

/// CSV files to read, also packed (`.gz`, `.zst`). Several threads read a large one that is not packed. A record may
/// have 16 MiB. Numbers are read as
/// integers or floats where these hold all of their digits, else as strings.
///
/// ```yaml
/// sources:
///   sales: { csv: { path: "data/csv/*.csv", nulls: ["", "n/a"] }, time: date, keys: [store, item] }
/// ```
///
/// ```
/// use forebay_connectors::{ColumnType, CsvSource};
/// let source = CsvSource::at("trips/*.csv.gz").column("fare", ColumnType::Float64);
/// assert_eq!(source.delimiter, ",");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct CsvSource {
    /// A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in
    /// `[*]`, these characters stand for themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub path: Option<String>,
    /// Several of them, instead of `path`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The columns to read, and their types. When left out, all columns are read, with types
    /// taken from the first rows. Without a header these are all columns, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub columns: Option<ColumnTypes>,
    /// What stands between fields; one ASCII character.
    pub delimiter: String,
    /// Whether the first record of each file names the columns.
    pub header: bool,
    /// Fields that stand for null.
    pub nulls: Vec<String>,
    /// Rows to look at for the types of columns.
    pub infer_rows: usize,
    /// What to do about a column that a file lacks.
    pub missing: MissingColumnPolicy,
    /// What to do about a column that only later files have.
    pub added: AddedColumnPolicy,
    /// Whether folders named `column=value` give columns.
    pub partitions: PartitionPolicy,
}

impl Default for CsvSource {
    fn default() -> Self {
        CsvSource {
            path: None,
            paths: Vec::new(),
            columns: None,
            delimiter: ",".to_owned(),
            header: true,
            nulls: vec![String::new()],
            infer_rows: 10_000,
            missing: MissingColumnPolicy::default(),
            added: AddedColumnPolicy::default(),
            partitions: PartitionPolicy::default(),
        }
    }
}

impl CsvSource {
    /// The files of a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        CsvSource {
            path: Some(path.into()),
            ..CsvSource::default()
        }
    }

    /// Declares one more column; what is not declared is then not read.
    pub fn column(mut self, name: impl Into<String>, of: ColumnType) -> Self {
        self.columns
            .get_or_insert_default()
            .0
            .push((name.into(), of));
        self
    }

    pub(super) fn delimiter_byte(&self) -> u8 {
        self.delimiter.as_bytes().first().copied().unwrap_or(b',')
    }
}

impl ConnectorConfig for CsvSource {
    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)?;
        if self.delimiter.len() != 1
            || !self.delimiter.is_ascii()
            || "\n\r\"".contains(&self.delimiter)
        {
            return Err(ConfigError::at(
                "delimiter",
                format!(
                    "`{}` is not a delimiter; give one ASCII character",
                    self.delimiter.escape_default()
                ),
            ));
        }
        if self.infer_rows == 0 {
            return Err(ConfigError::at(
                "infer_rows",
                "`infer_rows` must be at least 1",
            ));
        }
        match self.columns.as_ref().and_then(ColumnTypes::first_duplicate) {
            Some(name) => Err(ConfigError::at(
                "columns",
                format!("the column `{name}` is declared twice"),
            )),
            None => Ok(()),
        }
    }
}

impl SourceConfig for CsvSource {
    fn source(self) -> Arc<dyn Source> {
        Arc::new(RowSource::new(self))
    }
}

impl RowFormat for CsvSource {
    fn paths(&self) -> Vec<&str> {
        all_paths(&self.path, &self.paths)
    }

    fn marks(&self) -> FileMarks {
        FileMarks {
            endings: &[".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst"],
            magic: b"",
        }
    }

    fn partitions(&self) -> PartitionPolicy {
        self.partitions
    }

    fn syntax(&self) -> Option<RecordSyntax> {
        Some(RecordSyntax::Csv {
            delimiter: self.delimiter_byte(),
        })
    }

    fn header_records(&self) -> u64 {
        u64::from(self.header)
    }

    fn fingerprint_salt(&self) -> Option<String> {
        // Without a header, the order in which columns are declared gives them their content.
        let columns = self.columns.as_ref().filter(|_| !self.header)?;
        Some(
            columns
                .0
                .iter()
                .map(|(name, _)| format!("{name:?},"))
                .collect(),
        )
    }

    fn fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields> {
        infer::fields(self, io, files)
    }

    fn open_rows(
        &self,
        file: &InputFile,
        wanted: &[arrow::datatypes::FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)> {
        reader::rows(self, file, wanted, batch_rows)
    }
}

/// CSV files to write: a header, fields in quotes where they need them, null as an empty field, dates and times in ISO
/// 8601. Lists are refused. Numbers have as many digits as tell all their bits.
///
/// ```yaml
/// sinks:
///   table: { from: features, csv: { path: out/features } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct CsvSink {
    /// The folder or URL that the output goes to.
    #[setters(skip)]
    pub path: String,
    /// Columns that become folders named `column=value` and are left out of the files.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// A file is closed when it has reached this size.
    #[serde(default = "file_bytes_target")]
    pub file_bytes_target: u64,
    /// Rows that are encoded together at most.
    #[serde(default = "group_rows_max")]
    pub group_rows_max: usize,
}

impl CsvSink {
    /// Files below a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        CsvSink {
            path: path.into(),
            partition_by: Vec::new(),
            file_bytes_target: file_bytes_target(),
            group_rows_max: group_rows_max(),
        }
    }
}

impl ConnectorConfig for CsvSink {
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

impl SinkConfig for CsvSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(CsvEncoder::new(self))
    }
}
