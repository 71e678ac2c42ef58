//! What a source says about folders and about files that differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether folders named `column=value` give columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartitionPolicy {
    /// They do: as integers or dates where all values are written as such, else as strings. `007` is a string.
    #[default]
    Auto,
    /// They are plain folders.
    None,
}

/// A column of the first file that a later one does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingColumnPolicy {
    /// Refuse the source.
    #[default]
    Fault,
    /// Read it as nulls.
    Null,
}

/// A column that the first file does not have, or a field that the first rows do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddedColumnPolicy {
    /// Refuse the source.
    #[default]
    Fault,
    /// Leave it out.
    Ignore,
    /// Take it in; files without it give nulls.
    #[serde(alias = "null")]
    Include,
}

impl AddedColumnPolicy {
    pub(crate) fn is_default(&self) -> bool {
        *self == AddedColumnPolicy::default()
    }
}

/// How much the files of one source may differ. The first file, in order of paths, sets the
/// columns and their types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaPolicy {
    /// Accept types of one column that have a wider one in common and read all of them as that: numbers and decimals of
    /// several widths, dates beside times, structs of which some lack fields, vectors beside lists. A value that would be
    /// changed by that is a fault. Units of times, names of UTC and elements that may be null need no word.
    pub widening: bool,
    /// Accept a column that may be null in some files and not in others.
    pub nullable: bool,
    /// What to do about a column that a file lacks.
    pub missing: MissingColumnPolicy,
    /// What to do about a column that only later files have.
    pub added: AddedColumnPolicy,
}

impl Default for SchemaPolicy {
    fn default() -> Self {
        SchemaPolicy {
            widening: false,
            nullable: true,
            missing: MissingColumnPolicy::Fault,
            added: AddedColumnPolicy::Fault,
        }
    }
}
