//! Configuration of JSON files in a spec.

use std::collections::BTreeMap;

use forebay_contract::ConnectorConfig;
use forebay_model::{ConfigError, ConfigResult, TextRules};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_checks::{check_paths, check_text_sink};
use crate::files::packed::TextCompression;
use crate::files::texts::{check_declared_formats, parse_formats};
use crate::files::{AddedColumnPolicy, ColumnType, ColumnTypes, OnReadError, PartitionPolicy};
use crate::parquet::{file_bytes_target, group_rows_max};

/// JSON files to read: one object per line, also packed (`.gz`, `.zst`). A field that an object
/// lacks is null; one that it has twice is a fault. A line may have 16 MiB.
///
/// Without `columns`, the first rows give the fields and their types. Numbers are read as integers or floats where these
/// hold all of their digits, else as strings; fields that are always null or `{}` are strings, those that are always
/// `[]` lists of strings. A later value that does not fit the type is a fault, or null with `on_error: missing`, which
/// the summary counts: `"1"` is a string and `1.0` a float, unless the column is declared as integers. A column of strings
/// takes numbers, booleans and `{}` as they are written.
///
/// ```yaml
/// sources:
///   sales: { json: { path: data/json }, time: date, keys: [store, item] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct JsonSource {
    /// A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in
    /// `[*]`, these characters stand for themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub path: Option<String>,
    /// Several of them, instead of `path`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The fields to read, and their types; taken from the first rows when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub columns: Option<ColumnTypes>,
    /// Rows to look at for the types of columns.
    pub infer_rows: usize,
    /// Treatment of a field, also of an object inside, that the first rows do not have. `include` looks at all rows
    /// of all files before any is read. Fields that `columns` does not name are left out.
    #[serde(skip_serializing_if = "AddedColumnPolicy::is_default")]
    pub added: AddedColumnPolicy,
    /// Columns of texts or whole numbers that are dates or times, with the way in which they are written: `%Y%m%d`. The
    /// directives are those of `strftime`. With a time of day they are timestamps, with an offset (`%z`) in UTC. Where
    /// directives stand side by side, each has all of its digits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, String>,
    /// Treatment of a value that is not of its column's type: for all columns, or for some.
    #[serde(skip_serializing_if = "OnReadError::is_default")]
    pub on_error: OnReadError,
    /// Use of folders named `column=value` as columns.
    pub partitions: PartitionPolicy,
    /// True if `columns` are the types that the files of the fit were found to have: values are read as strictly as
    /// where types are found. Only `apply` sets it.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(skip)]
    #[setters(skip)]
    pub found_types: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for JsonSource {
    fn default() -> Self {
        JsonSource {
            path: None,
            paths: Vec::new(),
            columns: None,
            infer_rows: 10_000,
            added: AddedColumnPolicy::default(),
            formats: BTreeMap::new(),
            on_error: OnReadError::default(),
            partitions: PartitionPolicy::default(),
            found_types: false,
        }
    }
}

impl JsonSource {
    /// The files of a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        JsonSource {
            path: Some(path.into()),
            ..JsonSource::default()
        }
    }

    /// Declares one more field; what is not declared is then not read.
    pub fn column(mut self, name: impl Into<String>, of: ColumnType) -> Self {
        self.columns
            .get_or_insert_default()
            .0
            .push((name.into(), of));
        self
    }
}

impl JsonSource {
    /// The source that reads columns with formats as they are in the files.
    pub(super) fn into_written(mut self) -> JsonSource {
        for (name, of) in self.columns.iter_mut().flat_map(|columns| &mut columns.0) {
            if self.formats.contains_key(name) && !of.data_type().is_integer() {
                *of = ColumnType::String;
            }
        }
        self
    }

    pub(super) fn text_rules(&self) -> TextRules {
        match self.columns {
            Some(_) if !self.found_types => TextRules::declared(),
            _ => TextRules::inferred(),
        }
    }

    /// True if integers may be written with a point, as `1.0`: where types are found by the first rows, that is a
    /// float.
    pub(super) fn takes_fractions(&self) -> bool {
        self.columns.is_some()
    }
}

impl ConnectorConfig for JsonSource {
    const NAME: &'static str = "json";

    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)?;
        if self.infer_rows == 0 {
            return Err(ConfigError::at(
                "infer_rows",
                "`infer_rows` must be at least 1",
            ));
        }
        let formats = parse_formats(&self.formats)?;
        if let Some(columns) = &self.columns {
            check_declared_formats(&formats, columns)?;
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

/// JSON lines to write: an object for each row, with all of its fields, null where there is no value. Numbers have as
/// many digits as tell all their bits; dates and times are texts in ISO 8601.
///
/// A value is written so that a JSON source reads it back equal where its column is declared, or where it is a text
/// that is then `cast`. What JSON has no form for is written by one rule: floats that are no numbers are the texts
/// `"NaN"`, `"Infinity"` and `"-Infinity"`, decimals of more than 15 digits or of a negative scale are texts, and a map is
/// a list of objects with `key` and `value`. Bytes, lengths of time, objects without fields and years beyond 0 to 9999 are
/// refused.
///
/// A file without rows names no columns: declare them where it is read.
///
/// ```yaml
/// sinks:
///   lines: { from: features, json: { path: out/lines } }
///   packed: { from: features, json: { path: out/packed, compression: gzip } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct JsonSink {
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
    /// Compression of the files.
    #[serde(default)]
    pub compression: TextCompression,
}

impl JsonSink {
    /// Files below a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        JsonSink {
            path: path.into(),
            partition_by: Vec::new(),
            sort_by: Vec::new(),
            file_bytes_target: file_bytes_target(),
            group_rows_max: group_rows_max(),
            compression: TextCompression::default(),
        }
    }
}

impl ConnectorConfig for JsonSink {
    const NAME: &'static str = "json";

    fn check(&self) -> ConfigResult<()> {
        check_text_sink(&self.path, self.file_bytes_target, self.group_rows_max)
    }
}
