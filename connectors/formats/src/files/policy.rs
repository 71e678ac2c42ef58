//! Settings of a source for folders and for files that differ.

use std::collections::BTreeMap;

use arrow::datatypes::Fields;
use forebay_model::{Fault, codes};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Use of folders named `column=value` as columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartitionPolicy {
    /// Folders give columns: integers or dates where all values are written as such, else strings.
    /// `007` is a string.
    #[default]
    Auto,
    /// Folders give no columns.
    None,
}

/// A column of the first file that a later one does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingColumnPolicy {
    /// Refuse the source.
    #[default]
    Fault,
    /// Read it as nulls.
    Null,
}

/// A column that the first file does not have, or a field that the first rows do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddedColumnPolicy {
    /// Refuse the source.
    #[default]
    Fault,
    /// Leave it out.
    Ignore,
    /// Take it in; files without it give nulls.
    Include,
    /// Take it in, as `include` does.
    Null,
}

impl AddedColumnPolicy {
    pub(crate) fn is_default(&self) -> bool {
        *self == AddedColumnPolicy::default()
    }

    /// True if such columns are taken in.
    pub(crate) fn includes(self) -> bool {
        matches!(self, AddedColumnPolicy::Include | AddedColumnPolicy::Null)
    }
}

/// A word; in YAML, `null` is none without quotes, and means the word all the same.
fn policy_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.unwrap_or_else(|| "null".to_owned()))
}

impl<'de> Deserialize<'de> for MissingColumnPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match policy_word(deserializer)?.as_str() {
            "fault" => Ok(MissingColumnPolicy::Fault),
            "null" => Ok(MissingColumnPolicy::Null),
            other => Err(Error::unknown_variant(other, &["fault", "null"])),
        }
    }
}

impl<'de> Deserialize<'de> for AddedColumnPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match policy_word(deserializer)?.as_str() {
            "fault" => Ok(AddedColumnPolicy::Fault),
            "ignore" => Ok(AddedColumnPolicy::Ignore),
            "include" => Ok(AddedColumnPolicy::Include),
            "null" => Ok(AddedColumnPolicy::Null),
            other => Err(Error::unknown_variant(
                other,
                &["fault", "ignore", "include", "null"],
            )),
        }
    }
}

/// The unit in which times of several units are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnitPolicy {
    /// The finest unit of the files. A time that it does not hold is a fault: nanoseconds end in the year 2262.
    #[default]
    Finest,
    /// Microseconds at most, for all years. A time with finer digits is a fault.
    Microseconds,
}

/// The reading of times that have no zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LocalTimePolicy {
    /// As times without a zone. Files that have a zone for the column are refused beside them.
    #[default]
    Keep,
    /// As instants in UTC: programs such as Spark, whose INT96 names no zone, mean these.
    Utc,
}

impl LocalTimePolicy {
    fn is_default(&self) -> bool {
        *self == LocalTimePolicy::default()
    }
}

/// Permitted differences between the files of one source. The first file, in order of paths, sets
/// the columns and their types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaPolicy {
    /// Accept types of one column that have a wider one in common and read all of them as that:
    /// numbers and decimals of several widths, dates and times, structs of which some lack fields,
    /// vectors and lists, bytes and texts. A value that would be changed by that is a fault. Units of times, names
    /// of UTC and elements that may be null are always accepted.
    pub widening: bool,
    /// The unit in which times of several units are read.
    pub times: TimeUnitPolicy,
    /// The reading of times that have no zone.
    #[serde(skip_serializing_if = "LocalTimePolicy::is_default")]
    pub local_times: LocalTimePolicy,
    /// Accept a column that may be null in some files and not in others.
    pub nullable: bool,
    /// Treatment of a column that a file lacks.
    pub missing: MissingColumnPolicy,
    /// Treatment of a column that only later files have.
    pub added: AddedColumnPolicy,
}

impl Default for SchemaPolicy {
    fn default() -> Self {
        SchemaPolicy {
            widening: false,
            times: TimeUnitPolicy::default(),
            local_times: LocalTimePolicy::default(),
            nullable: true,
            missing: MissingColumnPolicy::Fault,
            added: AddedColumnPolicy::Fault,
        }
    }
}

/// Treatment of a value that is not of its column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadErrorPolicy {
    /// The run stops and names the value.
    #[default]
    Error,
    /// It becomes null. The summary counts such values for each column and shows the first of them.
    Missing,
}

/// Treatment of values that are not of their column's type: of all columns, or of some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OnReadError {
    /// For all columns.
    All(ReadErrorPolicy),
    /// By column; in others the run stops.
    Columns(BTreeMap<String, ReadErrorPolicy>),
}

impl Default for OnReadError {
    fn default() -> Self {
        OnReadError::All(ReadErrorPolicy::default())
    }
}

impl From<ReadErrorPolicy> for OnReadError {
    fn from(policy: ReadErrorPolicy) -> Self {
        OnReadError::All(policy)
    }
}

impl OnReadError {
    /// True if a spec need not name it.
    pub fn is_default(&self) -> bool {
        *self == OnReadError::default()
    }

    /// True if such values of a column become null.
    pub(crate) fn makes_null(&self, column: &str) -> bool {
        let policy = match self {
            OnReadError::All(policy) => Some(policy),
            OnReadError::Columns(columns) => columns.get(column),
        };
        policy == Some(&ReadErrorPolicy::Missing)
    }

    /// Refuses names that no column has.
    pub(crate) fn check_columns(&self, fields: &Fields) -> forebay_model::Result<()> {
        let OnReadError::Columns(columns) = self else {
            return Ok(());
        };
        match columns.keys().find(|name| fields.find(name).is_none()) {
            None => Ok(()),
            Some(name) => {
                let message =
                    format!("`on_error` names `{name}`, which is no column of the source");
                let fault = Fault::new(codes::UNKNOWN_COLUMN, message).column(name);
                let names = fields.iter().map(|field| field.name().as_str());
                Err(fault.suggest(name, names, "its columns are"))
            }
        }
    }
}
