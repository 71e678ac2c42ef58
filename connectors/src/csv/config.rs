//! What a spec says about CSV.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Fields, SchemaRef};
use forebay_model::{ConfigError, ConfigResult, NumberMarks, Result, TextRules};
use forebay_setters::Setters;
use forebay_storage::{Sink, Source, StorageClient};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::encoding::TextEncoding;
use crate::files::list::{FileMarks, ListedFile};
use crate::files::records::RecordSyntax;
use crate::files::rows::{BatchIterator, InputFile, RowFormat, RowSource};
use crate::files::texts::{TimeFormat, format_type_problem, parse_formats};
use crate::files::{
    AddedColumnPolicy, ColumnType, ColumnTypes, MissingColumnPolicy, PartitionPolicy,
};
use crate::format::{ConnectorConfig, SinkConfig, SourceConfig, all_paths, check_paths};
use crate::parquet::{file_bytes_target, group_rows_max};

use super::sink::CsvEncoder;
use super::{infer, reader};

/// CSV files to read, also packed (`.gz`, `.zst`). Several threads read a large one that is not packed. A record may
/// have 16 MiB.
///
/// Without `columns`, the first rows give the types: numbers are integers or floats where these hold all of their
/// digits, else strings, as `007` is; `true` and `false` are booleans; dates and times are those of ISO 8601, in
/// nanoseconds where they have more than six digits of a fraction, and in UTC where all of them have an offset. A later
/// value that does not fit the type is a fault.
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
    /// The character around fields in which delimiters, line ends and, doubled, it itself may stand.
    #[serde(skip_serializing_if = "is_double_quote")]
    pub quote: String,
    /// The character before a quote that belongs to a quoted field, where quotes are not doubled for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escape: Option<String>,
    /// The character at the beginning of lines that are no records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The encoding of the files.
    #[serde(skip_serializing_if = "TextEncoding::is_default")]
    pub encoding: TextEncoding,
    /// The character between the whole and the fraction of a number.
    #[serde(skip_serializing_if = "is_point")]
    pub decimal: String,
    /// The character between groups of three digits of numbers that are written in groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands: Option<String>,
    /// Columns of dates and times that are not written as in ISO 8601, with the way in which they are: `%d.%m.%Y`. The
    /// directives are those of `strftime`. With a time of day they are timestamps, with an offset (`%z`) in UTC.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, String>,
    /// True if the first record of each file names the columns. Where several columns have no name, these are called
    /// `column_3` and so on by their places.
    pub header: bool,
    /// Treatment of columns of one name.
    #[serde(skip_serializing_if = "SameNamePolicy::is_default")]
    pub same_names: SameNamePolicy,
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

const DOUBLE_QUOTE: &str = "\"";

const POINT: &str = ".";

fn is_double_quote(quote: &str) -> bool {
    quote == DOUBLE_QUOTE
}

fn is_point(decimal: &str) -> bool {
    decimal == POINT
}

/// Treatment of columns of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SameNamePolicy {
    /// Refuse the source where it reads one of them.
    #[default]
    Fault,
    /// Read them as `name`, `name_2` and so on.
    Number,
}

impl SameNamePolicy {
    fn is_default(&self) -> bool {
        *self == SameNamePolicy::default()
    }
}

impl Default for CsvSource {
    fn default() -> Self {
        CsvSource {
            path: None,
            paths: Vec::new(),
            columns: None,
            delimiter: ",".to_owned(),
            quote: DOUBLE_QUOTE.to_owned(),
            escape: None,
            comment: None,
            encoding: TextEncoding::default(),
            decimal: POINT.to_owned(),
            thousands: None,
            formats: BTreeMap::new(),
            header: true,
            same_names: SameNamePolicy::default(),
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

    pub(super) fn quote_byte(&self) -> u8 {
        self.quote.as_bytes().first().copied().unwrap_or(b'"')
    }

    pub(super) fn escape_byte(&self) -> Option<u8> {
        first_byte(self.escape.as_deref())
    }

    pub(super) fn comment_byte(&self) -> Option<u8> {
        first_byte(self.comment.as_deref())
    }

    /// The rules by which fields are read as values.
    pub(super) fn text_rules(&self) -> TextRules {
        TextRules {
            is_inferred: self.columns.is_none(),
            marks: NumberMarks {
                decimal: first_byte(Some(&self.decimal)).unwrap_or(b'.'),
                thousands: first_byte(self.thousands.as_deref()),
            },
        }
    }

    /// The formats of its dates and times.
    pub(super) fn time_formats(&self) -> ConfigResult<BTreeMap<String, TimeFormat>> {
        parse_formats(&self.formats)
    }

    /// True if records end as they do in most files, so that large ones can be divided.
    fn has_plain_records(&self) -> bool {
        is_double_quote(&self.quote)
            && self.escape.is_none()
            && self.comment.is_none()
            && self.encoding.is_default()
    }

    fn check_characters(&self) -> ConfigResult<()> {
        let check = |field: &str, text: &str| {
            if text.len() == 1 && text.is_ascii() && !"\n\r".contains(text) {
                return Ok(());
            }
            let message = format!(
                "`{}` is not a {field}; give one ASCII character",
                text.escape_default()
            );
            Err(ConfigError::at(field, message))
        };
        check("quote", &self.quote)?;
        check("decimal", &self.decimal)?;
        for (field, text) in [
            ("escape", &self.escape),
            ("comment", &self.comment),
            ("thousands", &self.thousands),
        ] {
            if let Some(text) = text {
                check(field, text)?;
            }
        }
        if self.delimiter.len() != 1
            || !self.delimiter.is_ascii()
            || "\n\r".contains(&self.delimiter)
        {
            let message = format!(
                "`{}` is not a delimiter; give one ASCII character",
                self.delimiter.escape_default()
            );
            return Err(ConfigError::at("delimiter", message));
        }
        if self.delimiter == self.quote {
            let message = "`delimiter` and `quote` are the same character";
            return Err(ConfigError::at("delimiter", message));
        }
        if self.thousands.as_ref() == Some(&self.decimal) {
            let message = "`thousands` and `decimal` are the same character";
            return Err(ConfigError::at("thousands", message));
        }
        Ok(())
    }

    fn check_formats(&self) -> ConfigResult<()> {
        let formats = self.time_formats()?;
        let Some(columns) = &self.columns else {
            return Ok(());
        };
        for (name, format) in &formats {
            let declared = columns.0.iter().find(|(column, _)| column == name);
            let message = match declared {
                None => format!("`columns` has no `{name}`"),
                Some((_, of)) if of.data_type() != format.data_type() => {
                    format_type_problem(name, format, &of.data_type())
                }
                Some(_) => continue,
            };
            return Err(ConfigError::at(format!("formats.{name}"), message));
        }
        Ok(())
    }
}

fn first_byte(text: Option<&str>) -> Option<u8> {
    text.and_then(|text| text.as_bytes().first().copied())
}

impl ConnectorConfig for CsvSource {
    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)?;
        self.check_characters()?;
        self.check_formats()?;
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
        self.has_plain_records().then(|| RecordSyntax::Csv {
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
        _schema: &SchemaRef,
        wanted: &[FieldRef],
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
