//! Functions that are given whole series.

use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::BindScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;
use crate::time::time_column;

/// The rows that a function receives at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`series`, or a list of columns")]
pub enum FunctionBy {
    /// The rows of a series of the source.
    Series(SeriesWord),
    /// The rows with equal values of these columns.
    Keys(Vec<String>),
}

/// The series that a source declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesWord {
    /// `series`.
    Series,
}

impl From<SeriesWord> for FunctionBy {
    fn from(word: SeriesWord) -> FunctionBy {
        FunctionBy::Series(word)
    }
}

impl<const N: usize> From<[&str; N]> for FunctionBy {
    fn from(keys: [&str; N]) -> FunctionBy {
        FunctionBy::Keys(keys.into_iter().map(str::to_owned).collect())
    }
}

/// The rows of a series that a value is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LookAhead {
    /// Rows up to its own.
    None,
    /// All rows of the series.
    Series,
}

/// Series that a function is given as a whole.
pub(super) struct WholeSeries {
    /// The column by which their rows are ordered.
    pub time: Option<String>,
    /// Columns that identify a series.
    pub keys: Vec<String>,
    /// True if a value may be computed from rows behind its own.
    pub looks_ahead: bool,
}

impl WholeSeries {
    /// The series of a step; `None` for a function that is row-wise.
    pub fn of_step(
        scope: &BindScope<'_>,
        step: &str,
        by: Option<&FunctionBy>,
        look_ahead: Option<LookAhead>,
    ) -> Result<Option<WholeSeries>> {
        let Some(by) = by else {
            if look_ahead.is_some() {
                let fault = bad_value("`looks_ahead` is said of whole series (`by`)");
                return Err(fault
                    .field("looks_ahead")
                    .hint("leave it out: a function without `by` sees the row alone"));
            }
            return Ok(None);
        };
        let keys = match (by, &scope.series.keys) {
            (FunctionBy::Keys(keys), _) => keys.clone(),
            (FunctionBy::Series(_), Some(keys)) => keys.clone(),
            (FunctionBy::Series(_), None) => {
                let message = format!("`{step}` needs the columns that tell series apart");
                let fault = Fault::new(codes::MISSING_FIELD, message);
                return Err(fault.hint("declare `keys` at the source, or name them: `by: [store]`"));
            }
        };
        for name in &keys {
            let field = scope.field(name)?;
            if field.data_type().is_nested() {
                let message = format!(
                    "`{name}` is {}, which cannot tell series apart",
                    type_words(field.data_type())
                );
                return Err(Fault::new(codes::COLUMN_TYPE, message)
                    .column(name)
                    .hint("name columns of numbers, texts, dates or times under `by`"));
            }
        }
        let time = match (by, &scope.series.time) {
            (_, Some(_)) => Some(time_column(scope, step, &None)?.name),
            // Groups of rows without a time keep their order.
            (FunctionBy::Keys(_), None) => None,
            (FunctionBy::Series(_), None) => {
                let message = format!("`{step}` needs the event-time column");
                let fault = Fault::new(codes::MISSING_FIELD, message);
                return Err(
                    fault.hint("declare `time` at the source, or group rows: `by: [store]`")
                );
            }
        };
        Ok(Some(WholeSeries {
            time,
            keys,
            looks_ahead: look_ahead != Some(LookAhead::None),
        }))
    }

    /// Refuses columns that replace the time or a key.
    pub fn refuse_replaced<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Result<()> {
        for name in names {
            if self.keys.contains(name) || self.time.as_ref() == Some(name) {
                let message = format!("the function returns `{name}`, which forms the series");
                let fault = Fault::new(codes::COLUMN_CLASH, message).column(name);
                return Err(fault.hint("give the returned column another name"));
            }
        }
        Ok(())
    }
}
