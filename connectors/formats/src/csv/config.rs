//! Configuration of CSV files in a spec.

use std::collections::BTreeMap;

use forebay_contract::ConnectorConfig;
use forebay_model::{ConfigError, ConfigResult, NumberMarks, TextRules, TimeFormat};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_checks::{check_paths, check_text_sink};
use crate::files::encoding::TextEncoding;
use crate::files::packed::TextCompression;
use crate::files::texts::{check_declared_formats, parse_formats};
use crate::files::{
    AddedColumnPolicy, ColumnType, ColumnTypes, MissingColumnPolicy, OnReadError, PartitionPolicy,
};
use crate::parquet::{file_bytes_target, group_rows_max};

use super::records::{EscapeRule, FieldSyntax};

/// CSV files to read, also packed (`.gz`, `.zst`). Several threads read a large one that is not packed. A record may
/// have 16 MiB.
///
/// Without `columns`, the first rows give the types: numbers are integers or floats where these hold all of their
/// digits, else strings, as `007` is; `true` and `false` are booleans; dates and times are those of ISO 8601, in
/// nanoseconds where they have more than six digits of a fraction, and in UTC where all of them have an offset. A later
/// value that does not fit the type is a fault, or null with `on_error: missing`, which the summary counts.
///
/// In a column of texts an empty field is null, and `""` is an empty text, as DuckDB, Polars, PostgreSQL and Spark write
/// them. Writers that put quotes around all fields write `""` where there is no value: `quoted_nulls: true` reads it as
/// null. In columns of other types both are null.
///
/// Blank lines are no rows. In files of one column they are rows without a value, as DuckDB, Polars and pyarrow write
/// null: a blank line at the end of the file is one, too. `dialect: pandas` reads no rows from blank lines.
///
/// A field in quotes ends with a quote; quotes elsewhere in a field are faults (`stray_quotes`), and so is text behind the
/// quote that ends one. Other ways of quoting have a `dialect`.
///
/// ```yaml
/// sources:
///   sales: { csv: { path: "data/csv/*.csv", nulls: ["", "n/a"] }, time: date, keys: [store, item] }
/// ```
///
/// ```
/// use forebay_formats::{ColumnType, CsvSource};
/// let source = CsvSource::at("trips/*.csv.gz").column("fare", ColumnType::Float64);
/// assert_eq!(source.infer_rows, 10_000);
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
    /// The program whose way of writing CSV the files follow.
    #[serde(skip_serializing_if = "CsvDialect::is_default")]
    pub dialect: CsvDialect,
    /// The character between fields, of ASCII. Where left out, that of the dialect; a header of a single name
    /// in which another delimiter stands is a fault then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<String>,
    /// The character around fields in which delimiters, line ends and, doubled, it itself may stand; `none` where there
    /// is no such character. Where left out, that of the dialect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// The character before a quote that belongs to a quoted field, where quotes are not doubled for that. Before other
    /// characters it is a letter. Without quotes, and as the dialects `mysql` and `pandas` have it, it may stand before any
    /// character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escape: Option<String>,
    /// Treatment of quotes where none may be: in a field that does not begin with one, and behind the one that ends a
    /// field. A quote that opens a field and is not closed is always a fault.
    #[serde(skip_serializing_if = "StrayQuotes::is_default")]
    pub stray_quotes: StrayQuotes,
    /// The character at the beginning of lines that are no records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Lines before the header of each file, such as a title, that are not read.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_lines: u32,
    /// The encoding of the files.
    #[serde(skip_serializing_if = "TextEncoding::is_default")]
    pub encoding: TextEncoding,
    /// The character between the whole and the fraction of a number.
    #[serde(skip_serializing_if = "is_point")]
    pub decimal: String,
    /// The character between groups of three digits of numbers that are written in groups: a point, an apostrophe, or one
    /// of the spaces, such as the narrow one (`"\u202f"`) of Excel in France. `0.123` is not written in groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands: Option<String>,
    /// Columns of dates and times that are not written as in ISO 8601, with the way in which they are: `%d.%m.%Y`. The
    /// directives are those of `strftime`. With a time of day they are timestamps, with an offset (`%z`) in UTC. Where
    /// directives stand side by side, as in `%Y%m%d`, each has all of its digits. A column may be declared as what it
    /// becomes, or as the texts or whole numbers that it is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, String>,
    /// True if the first record of each file names the columns. Where several columns have no name, these are called
    /// `column_3` and so on by their places.
    pub header: bool,
    /// Treatment of columns of one name.
    #[serde(skip_serializing_if = "SameNamePolicy::is_default")]
    pub same_names: SameNamePolicy,
    /// Fields that stand for null. Where left out, those of the dialect: in most, the empty field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nulls: Option<Vec<String>>,
    /// True if a field in quotes may stand for null, false if it is a text: `""` is then an empty one, and null in columns
    /// of other types. Where left out, as the dialect has it: in most, `""` is an empty text, and other `nulls` stand for
    /// null in quotes, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quoted_nulls: Option<bool>,
    /// Treatment of a value that is not of its column's type: for all columns, or for some.
    #[serde(skip_serializing_if = "OnReadError::is_default")]
    pub on_error: OnReadError,
    /// Rows to look at for the types of columns.
    pub infer_rows: usize,
    /// Treatment of a column that a file lacks.
    pub missing: MissingColumnPolicy,
    /// Treatment of a column that only later files have.
    pub added: AddedColumnPolicy,
    /// Use of folders named `column=value` as columns.
    pub partitions: PartitionPolicy,
    /// True if `columns` are the types that the files of the fit were found to have: values are read as strictly as
    /// where types are found. Only `apply` sets it.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(skip)]
    #[setters(skip)]
    pub found_types: bool,
}

const DOUBLE_QUOTE: &str = "\"";

/// The word for no quote.
const NO_QUOTE: &str = "none";

const POINT: &str = ".";

fn is_point(decimal: &str) -> bool {
    decimal == POINT
}

fn is_zero(lines: &u32) -> bool {
    *lines == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A program that writes CSV in a way of its own.
///
/// | dialect | delimiter | quote | escape | null |
/// |---|---|---|---|---|
/// | `standard` | `,` | `"`, doubled in fields | none | an empty field without quotes; `""` is an empty text |
/// | `excel` | that of a first line `sep=;`, else `;` | `"`, doubled in fields | none | an empty field, also in quotes |
/// | `mysql` | a tab | none | `\` before any character; `\n`, `\t`, `\r`, `\0`, `\b` and `\Z` are line ends and the like | `\N` |
/// | `pandas` | `,` | `"`, doubled in fields | none; where set, before any character | an empty field, also in quotes |
/// | `spark` | `,` | `"` | `\` before `"` and itself, in quotes | an empty field without quotes; `""` is an empty text |
///
/// PostgreSQL's `COPY` in its text format is `mysql`, in its CSV format `standard`. An empty text is one in columns of
/// texts alone: in others `""` is null in all dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CsvDialect {
    /// As RFC 4180 says.
    #[default]
    Standard,
    /// Excel.
    Excel,
    /// MySQL's `SELECT ... INTO OUTFILE` and `mysqldump --tab`.
    Mysql,
    /// pandas and Python's `csv` module.
    Pandas,
    /// Spark.
    Spark,
}

impl CsvDialect {
    fn is_default(&self) -> bool {
        *self == CsvDialect::default()
    }

    fn delimiter(self) -> &'static str {
        match self {
            CsvDialect::Standard | CsvDialect::Pandas | CsvDialect::Spark => ",",
            CsvDialect::Excel => ";",
            CsvDialect::Mysql => "\t",
        }
    }

    fn quote(self) -> &'static str {
        match self {
            CsvDialect::Mysql => NO_QUOTE,
            _ => DOUBLE_QUOTE,
        }
    }

    /// True if an empty line in a file of one column is a row.
    pub(super) fn keeps_empty_lines(self) -> bool {
        self != CsvDialect::Pandas
    }

    fn escape(self) -> Option<&'static str> {
        match self {
            CsvDialect::Mysql | CsvDialect::Spark => Some("\\"),
            CsvDialect::Standard | CsvDialect::Excel | CsvDialect::Pandas => None,
        }
    }

    fn escape_rule(self, has_quote: bool) -> EscapeRule {
        match self {
            CsvDialect::Mysql => EscapeRule::Letters,
            CsvDialect::Pandas => EscapeRule::Anywhere,
            _ if !has_quote => EscapeRule::Anywhere,
            _ => EscapeRule::Quotes,
        }
    }

    fn nulls(self) -> &'static [&'static str] {
        match self {
            CsvDialect::Mysql => &[],
            _ => &[""],
        }
    }
}

/// The fields in quotes that may stand for null in a column of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotedNulls {
    All,
    /// All but the empty one.
    Words,
    None,
}

/// Treatment of quotes where none may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrayQuotes {
    /// They are faults, with line and column.
    #[default]
    Fault,
    /// They are letters, and so is what follows the quote that ends a field.
    Text,
}

impl StrayQuotes {
    fn is_default(&self) -> bool {
        *self == StrayQuotes::default()
    }
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
            dialect: CsvDialect::default(),
            delimiter: None,
            quote: None,
            escape: None,
            stray_quotes: StrayQuotes::default(),
            comment: None,
            skip_lines: 0,
            encoding: TextEncoding::default(),
            decimal: POINT.to_owned(),
            thousands: None,
            formats: BTreeMap::new(),
            header: true,
            same_names: SameNamePolicy::default(),
            nulls: None,
            quoted_nulls: None,
            on_error: OnReadError::default(),
            infer_rows: 10_000,
            missing: MissingColumnPolicy::default(),
            added: AddedColumnPolicy::default(),
            partitions: PartitionPolicy::default(),
            found_types: false,
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

    pub(super) fn delimiter_text(&self) -> &str {
        let delimiter = self.delimiter.as_deref();
        delimiter.unwrap_or_else(|| self.dialect.delimiter())
    }

    fn quote_text(&self) -> &str {
        self.quote
            .as_deref()
            .unwrap_or_else(|| self.dialect.quote())
    }

    fn escape_text(&self) -> Option<&str> {
        self.escape.as_deref().or_else(|| self.dialect.escape())
    }

    /// The characters that divide its files into fields.
    pub(super) fn field_syntax(&self) -> FieldSyntax {
        let quote = Some(self.quote_text()).filter(|quote| *quote != NO_QUOTE);
        let rule = self.dialect.escape_rule(quote.is_some());
        FieldSyntax {
            delimiter: first_byte(Some(self.delimiter_text())).unwrap_or(b','),
            quote: first_byte(quote),
            escape: first_byte(self.escape_text()).map(|escape| (escape, rule)),
            comment: first_byte(self.comment.as_deref()),
            lines_before: self.skip_lines,
            takes_stray_quotes: self.stray_quotes == StrayQuotes::Text,
            has_delimiter_line: self.dialect == CsvDialect::Excel && self.delimiter.is_none(),
        }
    }

    /// The fields that stand for null.
    pub(super) fn null_texts(&self) -> Vec<String> {
        match &self.nulls {
            Some(nulls) => nulls.clone(),
            None => self
                .dialect
                .nulls()
                .iter()
                .map(|&null| null.to_owned())
                .collect(),
        }
    }

    /// The fields in quotes that may stand for null in a column of texts.
    pub(super) fn quoted_null_fields(&self) -> QuotedNulls {
        match (self.quoted_nulls, self.dialect) {
            (Some(true), _) => QuotedNulls::All,
            (Some(false), _) => QuotedNulls::None,
            (None, CsvDialect::Standard | CsvDialect::Spark) => QuotedNulls::Words,
            (None, CsvDialect::Excel | CsvDialect::Mysql | CsvDialect::Pandas) => QuotedNulls::All,
        }
    }

    /// The rules by which fields are read as values.
    pub(super) fn text_rules(&self) -> TextRules {
        TextRules {
            is_inferred: self.columns.is_none() || self.found_types,
            marks: NumberMarks {
                decimal: first_byte(Some(&self.decimal)).unwrap_or(b'.'),
                thousands: self
                    .thousands
                    .as_deref()
                    .and_then(|mark| mark.chars().next()),
            },
        }
    }

    /// The formats of its dates and times.
    pub(super) fn time_formats(&self) -> ConfigResult<BTreeMap<String, TimeFormat>> {
        parse_formats(&self.formats)
    }

    /// True if records end as they do in most files, so that large ones can be divided.
    pub(super) fn has_plain_records(&self) -> bool {
        self.quote_text() == DOUBLE_QUOTE
            && self.escape_text().is_none()
            && self.comment.is_none()
            && self.skip_lines == 0
            && self.encoding.is_default()
            && self.dialect != CsvDialect::Excel
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
        check("decimal", &self.decimal)?;
        let quote = self.quote.clone().filter(|quote| quote != NO_QUOTE);
        for (field, text) in [
            ("quote", &quote),
            ("escape", &self.escape),
            ("comment", &self.comment),
        ] {
            if let Some(text) = text {
                check(field, text)?;
            }
        }
        if let Some(mark) = &self.thousands {
            let mut characters = mark.chars();
            let is_mark = |mark: char| !mark.is_alphanumeric() && !"-+\n\r".contains(mark);
            if !characters.next().is_some_and(is_mark) || characters.next().is_some() {
                let message = format!(
                    "`{}` is no mark between digits; give one character, such as a point",
                    mark.escape_default()
                );
                return Err(ConfigError::at("thousands", message));
            }
        }
        let delimiter = self.delimiter_text();
        if delimiter.len() != 1 || !delimiter.is_ascii() || "\n\r".contains(delimiter) {
            let message = format!(
                "`{}` is not a delimiter; give one ASCII character",
                delimiter.escape_default()
            );
            return Err(ConfigError::at("delimiter", message));
        }
        if delimiter == self.quote_text() {
            let message = "`delimiter` and `quote` are the same character";
            return Err(ConfigError::at("delimiter", message));
        }
        if self.escape_text() == Some(delimiter) {
            let message = "`delimiter` and `escape` are the same character";
            return Err(ConfigError::at("escape", message));
        }
        if self.escape_text() == Some(self.quote_text()) {
            let message =
                "`quote` and `escape` are the same character; a doubled quote needs no `escape`";
            return Err(ConfigError::at("escape", message));
        }
        if let Some(comment) = self.comment.as_deref()
            && [delimiter, self.quote_text()].contains(&comment)
        {
            let message = "rows can begin with the character that `comment` is";
            return Err(ConfigError::at("comment", message));
        }
        if self.thousands.as_ref() == Some(&self.decimal) {
            let message = "`thousands` and `decimal` are the same character";
            return Err(ConfigError::at("thousands", message));
        }
        Ok(())
    }

    fn check_formats(&self) -> ConfigResult<()> {
        let formats = self.time_formats()?;
        match &self.columns {
            Some(columns) => check_declared_formats(&formats, columns),
            None => Ok(()),
        }
    }
}

fn first_byte(text: Option<&str>) -> Option<u8> {
    text.and_then(|text| text.as_bytes().first().copied())
}

impl ConnectorConfig for CsvSource {
    const NAME: &'static str = "csv";

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

/// CSV files to write: a header, fields in quotes where they need them, null as `null_text`, dates and times in ISO
/// 8601, decimals with all of their digits. Numbers have as many digits as tell all their bits.
///
/// A value is written so that a CSV source reads it back equal where its column is declared, or where it is declared
/// `string` and then `cast`. An empty text is `""`, and null an empty field without quotes, or the `null_text`, which the
/// source that reads the files names in its `nulls`. In files of one column that field is a blank line, which pandas and
/// Spark skip. Others are refused: lists, objects, bytes and lengths of time, years beyond 0 to 9999, and a text that is
/// the `null_text`.
///
/// ```yaml
/// sinks:
///   table: { from: features, csv: { path: out/features } }
///   packed: { from: features, csv: { path: out/packed, compression: zstd, null_text: NA } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct CsvSink {
    /// The folder or URL that the output goes to.
    #[setters(skip)]
    pub path: String,
    /// Columns that become folders named `column=value` and are left out of the files. They hold no lists, structs, bytes
    /// or durations, which are not read back from names.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// A file is closed when it has reached this size.
    #[serde(default = "file_bytes_target")]
    pub file_bytes_target: u64,
    /// Rows that are encoded together at most.
    #[serde(default = "group_rows_max")]
    pub group_rows_max: usize,
    /// The text that is written for null. Name it in the `nulls` of the source that reads the files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub null_text: String,
    /// Compression of the files.
    #[serde(default, skip_serializing_if = "TextCompression::is_none")]
    pub compression: TextCompression,
}

impl CsvSink {
    /// Files below a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        CsvSink {
            path: path.into(),
            partition_by: Vec::new(),
            file_bytes_target: file_bytes_target(),
            group_rows_max: group_rows_max(),
            null_text: String::new(),
            compression: TextCompression::default(),
        }
    }
}

impl ConnectorConfig for CsvSink {
    const NAME: &'static str = "csv";

    fn check(&self) -> ConfigResult<()> {
        check_text_sink(&self.path, self.file_bytes_target, self.group_rows_max)?;
        let null = &self.null_text;
        // Numbers, dates and the like are never taken for null.
        if null.bytes().any(|byte| byte.is_ascii_digit())
            || null.parse::<f64>().is_ok()
            || null.eq_ignore_ascii_case("true")
            || null.eq_ignore_ascii_case("false")
        {
            let message = format!("`{null}` can be a value; choose a text that is none");
            return Err(ConfigError::at("null_text", message));
        }
        Ok(())
    }
}
