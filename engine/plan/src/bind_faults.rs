//! Faults of binding: every one of them, without those that only follow from others.

use std::collections::BTreeSet;

use forebay_model::{Fault, Result, SpecLocation, Step, codes};
use serde_json::Value;

/// Why something was not bound.
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
}

impl ColumnDoubt {
    /// Whether all steps were bound.
    pub fn is_empty(&self) -> bool {
        !self.any && self.words.is_empty()
    }

    /// Adds the columns of a step that failed.
    pub fn add_step(&mut self, step: &Step) {
        self.any |= step.config.get("with").is_some();
        collect_words(&step.config, &mut self.words);
    }

    /// Adds a column that is missing, which is reported.
    pub fn add_column(&mut self, name: &str) {
        self.words.insert(name.to_owned());
    }

    pub fn merge(&mut self, other: &ColumnDoubt) {
        self.any |= other.any;
        self.words.extend(other.words.iter().cloned());
    }

    /// Whether a fault may follow from the steps that failed.
    pub fn covers(&self, fault: &Fault) -> bool {
        if self.is_empty() {
            return false;
        }
        match (fault.code(), &fault.site().column) {
            (code, Some(column))
                if [codes::UNKNOWN_COLUMN, codes::COLUMN_TYPE, codes::COLUMN_CLASH].contains(&code) =>
            {
                let derived = |word: &String| {
                    column.strip_prefix(word.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
                };
                self.any || self.words.iter().any(derived)
            }
            (code, _) => code == codes::UNKNOWN_COLUMN || (self.any && code == codes::EXPRESSION),
        }
    }
}

/// The names in a configuration, those inside SQL and patterns too.
fn collect_words(value: &Value, words: &mut BTreeSet<String>) {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let add = |text: &str, words: &mut BTreeSet<String>| {
        let parts = text.split(|letter| !is_part(letter)).map(|word| word.trim_matches('_'));
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

/// The location of a field of what is at `at`; the spec's reader finds its line.
pub(crate) fn field_location(at: Option<&SpecLocation>, field: &str) -> Option<SpecLocation> {
    at.map(|at| SpecLocation { path: format!("{}.{field}", at.path), ..at.clone() })
}

/// The location of a section of the spec, in the file of another place.
pub(crate) fn section_location(other: Option<&SpecLocation>, section: &str) -> Option<SpecLocation> {
    other.map(|at| SpecLocation { line: 1, column: 1, width: 1, path: section.to_owned(), file: at.file.clone() })
}
