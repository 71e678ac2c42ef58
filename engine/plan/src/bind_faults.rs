//! Faults of binding: every one of them, without those that only follow from others.

use std::collections::BTreeSet;

use forebay_model::{Fault, Result, SpecLocation, Step, codes};
use serde_json::Value;

/// Reason why something was not bound.
pub(crate) enum BindStop {
    /// Its input failed, and that is reported already.
    Reported,
    Fault(Fault),
}

impl From<Fault> for BindStop {
    fn from(fault: Fault) -> Self {
        BindStop::Fault(fault)
    }
}

pub(crate) type BindResult<T> = Result<T, BindStop>;

/// Columns of a flow that may be missing or of another type only because an earlier step failed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnDoubt {
    /// The failed steps bring columns of other steps, so that no name is certain.
    any: bool,
    /// Names in the configurations of the failed steps: outputs are named after these.
    words: BTreeSet<String>,
    /// Names that are reported as missing, and that no step makes.
    missing: BTreeSet<String>,
    /// Columns made from reported ones: their types are guesses.
    types: BTreeSet<String>,
    /// Time and keys of a source that are reported as missing. Steps read them without naming them.
    series: BTreeSet<String>,
}

impl ColumnDoubt {
    /// True if all steps were bound.
    pub fn is_empty(&self) -> bool {
        !self.any && self.words.is_empty() && self.types.is_empty() && self.series.is_empty()
    }

    /// Adds the columns of a step that failed with these faults.
    pub fn add_step(&mut self, step: &Step, faults: &[Fault]) {
        self.any |= step.config.get("with").is_some();
        collect_words(&step.config, &mut self.words);
        let missing = faults
            .iter()
            .filter(|fault| fault.code() == codes::UNKNOWN_COLUMN);
        self.missing
            .extend(missing.filter_map(|fault| fault.site().column.clone()));
    }

    /// Adds the time or a key of a source that is missing, which is reported.
    pub fn add_series_column(&mut self, name: &str) {
        self.series.insert(name.to_owned());
    }

    /// Columns whose types are guesses.
    pub fn types(&self) -> &BTreeSet<String> {
        &self.types
    }

    /// Adds columns whose types are guesses.
    pub fn add_types(&mut self, types: impl IntoIterator<Item = String>) {
        self.types.extend(types);
    }

    pub fn merge(&mut self, other: &ColumnDoubt) {
        self.any |= other.any;
        self.words.extend(other.words.iter().cloned());
        self.missing.extend(other.missing.iter().cloned());
        self.types.extend(other.types.iter().cloned());
        self.series.extend(other.series.iter().cloned());
    }

    /// True if a fault may follow from the steps that failed. `config` is the configuration of the
    /// faulty step.
    pub fn covers(&self, fault: &Fault, config: Option<&Value>) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut named = BTreeSet::new();
        config
            .into_iter()
            .for_each(|config| collect_words(config, &mut named));
        match &fault.site().column {
            Some(column) if is_of_column(fault) => {
                let derived = |word: &String| {
                    column
                        .strip_prefix(word.as_str())
                        .is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('_'))
                };
                let is_missing = fault.code() == codes::UNKNOWN_COLUMN;
                if is_missing && self.missing.contains(column) {
                    false
                } else {
                    self.any
                        || self.words.iter().any(derived)
                        || (!is_missing && self.types.contains(column))
                        || (self.series.contains(column) && !named.contains(column))
                }
            }
            _ if fault.code() == codes::EXPRESSION => {
                self.any
                    || self
                        .types
                        .iter()
                        .any(|column| has_word(fault.message(), column))
            }
            _ => fault.code() == codes::UNKNOWN_COLUMN,
        }
    }
}

/// True if a fault is about one column.
pub(crate) fn is_of_column(fault: &Fault) -> bool {
    fault.site().column.is_some()
        && [
            codes::UNKNOWN_COLUMN,
            codes::COLUMN_TYPE,
            codes::COLUMN_CLASH,
        ]
        .contains(&fault.code())
}

fn is_name_part(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// True if a text holds a name as a word of its own.
pub(crate) fn has_word(text: &str, name: &str) -> bool {
    text.split(|letter| !is_name_part(letter))
        .any(|word| word == name)
}

/// The names in a configuration, those inside patterns too. SQL makes no columns.
fn collect_words(value: &Value, words: &mut BTreeSet<String>) {
    let is_sql = |text: &str| {
        text.contains(|letter: char| letter.is_whitespace() || "()+/<>='".contains(letter))
    };
    let add = |text: &str, words: &mut BTreeSet<String>| {
        if is_sql(text) {
            words.insert(text.to_owned());
            return;
        }
        let parts = text
            .split(|letter| !is_name_part(letter))
            .map(|word| word.trim_matches('_'));
        words.extend(parts.filter(|word| !word.is_empty()).map(str::to_owned));
    };
    match value {
        Value::String(text) => add(text, words),
        Value::Array(items) => items.iter().for_each(|item| collect_words(item, words)),
        Value::Object(fields) => {
            for (key, value) in fields {
                add(key, words);
                collect_words(value, words);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Location of a field of the part of the spec at `at`; the spec's reader finds its line.
pub(crate) fn field_location(at: Option<&SpecLocation>, field: &str) -> Option<SpecLocation> {
    at.map(|at| SpecLocation {
        path: format!("{}.{field}", at.path),
        ..at.clone()
    })
}

/// The location of a section of the spec, in the file of another place.
pub fn section_location(other: Option<&SpecLocation>, section: &str) -> Option<SpecLocation> {
    other.map(|at| SpecLocation {
        line: 1,
        column: 1,
        width: 1,
        path: section.to_owned(),
        file: at.file.clone(),
    })
}
