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
        for fault in faults {
            if fault.code() == codes::UNKNOWN_COLUMN {
                self.missing.extend(fault.site().column.clone());
            }
        }
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
        match &fault.site().column {
            Some(column) if is_of_column(fault) => self.covers_column(fault, column, config),
            _ if fault.code() == codes::EXPRESSION => {
                let mut types = self.types.iter();
                self.any || types.any(|column| has_word(fault.message(), column))
            }
            _ => fault.code() == codes::UNKNOWN_COLUMN,
        }
    }

    /// True if a fault about a column may follow from the steps that failed.
    fn covers_column(&self, fault: &Fault, column: &str, config: Option<&Value>) -> bool {
        let is_missing = fault.code() == codes::UNKNOWN_COLUMN;
        if is_missing && self.missing.contains(column) {
            return false;
        }
        if self.any || self.words.iter().any(|word| is_derived(column, word)) {
            return true;
        }
        if !is_missing && self.types.contains(column) {
            return true;
        }
        self.series.contains(column) && !is_named(config, column)
    }
}

/// True if a column is called as a word, or as the word and a suffix.
fn is_derived(column: &str, word: &str) -> bool {
    match column.strip_prefix(word) {
        Some(suffix) => suffix.is_empty() || suffix.starts_with('_'),
        None => false,
    }
}

/// True if a configuration names a column.
fn is_named(config: Option<&Value>, column: &str) -> bool {
    let mut names = BTreeSet::new();
    if let Some(config) = config {
        collect_words(config, &mut names);
    }
    names.contains(column)
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
    match value {
        Value::String(text) => add_words(text, words),
        Value::Array(items) => items.iter().for_each(|item| collect_words(item, words)),
        Value::Object(fields) => {
            for (key, value) in fields {
                add_words(key, words);
                collect_words(value, words);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the names in a text; SQL is added as a whole.
fn add_words(text: &str, words: &mut BTreeSet<String>) {
    if text.contains(is_sql_letter) {
        words.insert(text.to_owned());
        return;
    }
    for word in text.split(|letter| !is_name_part(letter)) {
        let word = word.trim_matches('_');
        if !word.is_empty() {
            words.insert(word.to_owned());
        }
    }
}

/// True for a letter that stands in SQL, and in no name or pattern.
fn is_sql_letter(letter: char) -> bool {
    letter.is_whitespace() || "()+/<>='".contains(letter)
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
