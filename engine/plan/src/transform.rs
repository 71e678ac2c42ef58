//! The public trait of transforms, built-in and custom.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_contract::TargetChain;
use forebay_model::{Fault, Result, type_words};
use serde_json::Value;

use crate::column_selector::unknown_column;
use crate::{ColumnSelector, CompiledExpression, FutureFlow, PlanOp, SeriesColumns, SqlCompiler};

/// A kind of step. Its value is its configuration; [`Transform::bind`] translates it into operations over given
/// columns. One operation per output column allows unneeded columns to be skipped.
pub trait Transform: Debug + Send + Sync {
    /// Checks the columns and returns the operations, in order.
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>>;

    /// The rows of another step or source that the step holds in memory although it does not have to.
    fn held_rows(&self) -> Option<HeldRows> {
        None
    }

    /// Facts of its configuration that readers besides the transform need.
    fn facts(&self) -> StepFacts {
        StepFacts::default()
    }

    /// Makes a change to the configuration of its step, where the change concerns such a step. Settings that the change
    /// does not need stay as they are written, and with them the ids that depend on them.
    fn change(&self, _config: &mut Value, _change: &StepChange<'_>) {}
}

/// Facts of a step's configuration that checks, forecasts and samples need. Its transform alone
/// reads the configuration itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepFacts {
    /// The step or source that it reads in addition to its own rows.
    pub other_input: Option<String>,
    /// Rows of the future that it adds.
    pub future_rows: Option<FutureRowsFacts>,
    /// True if the ids that it gives stay in force in later runs.
    pub has_stable_ids: bool,
    /// Rows to learn from that it takes out; `None` for a step that treats rows that are scored in the same way.
    pub learning_filter: Option<LearningFilter>,
    /// True if it calls a function of the user for batches of rows that the engine chooses.
    pub calls_function: bool,
}

/// Treatment of rows by a step that takes out rows to learn from. Rows that are scored pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearningFilter {
    /// It takes out rows and does nothing else.
    RowsOnly,
    /// It also writes columns, which rows that are scored have, too.
    WithColumns,
}

/// Change of a step that a reader of a pipeline needs.
#[derive(Debug, Clone, Copy)]
pub enum StepChange<'a> {
    /// Rows that are scored pass a step that takes out rows to learn from.
    PassScoredRows {
        /// The time from which on rows are scored; all are if `None`.
        from: Option<&'a str>,
    },
    /// Rows that are scored pass rules that take rows out.
    PassRules {
        /// Names of the rules.
        rules: &'a BTreeSet<String>,
        /// The time from which on rows are scored; all are if `None`.
        from: Option<&'a str>,
    },
    /// Rules that stop a run only warn.
    WarnOnly,
    /// A function is called for batches of at most this number of rows.
    BatchRows(usize),
}

/// Rows of the future that a step adds, as the spec declares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FutureRowsFacts {
    /// Length of time from the last known row to the last one of the future, such as `28d`; `None`
    /// for a number of rows.
    pub horizon: Option<String>,
    /// Length of time between rows of a series, such as `1d`; `None` for a number of rows.
    pub every: Option<String>,
    /// The declared column of times.
    pub time: Option<String>,
    /// The declared columns that tell series apart.
    pub keys: Option<Vec<String>>,
}

/// Rows of another step or source that a step holds in memory.
#[derive(Debug, Clone)]
pub struct HeldRows {
    /// The other step or source.
    pub other: String,
    /// Columns that are held; `None` means all.
    pub columns: Option<ColumnSelector>,
    /// The configuration of a step with the same results that holds no rows.
    pub spilling: Value,
}

/// Input of [`Transform::bind`].
pub struct BindScope<'a> {
    /// Event time and keys of the rows, as declared by their source.
    pub series: &'a SeriesColumns,
    /// Columns before the step, with logical types.
    pub schema: &'a Schema,
    /// The rows of the future of the flow, if it has any.
    pub future: Option<&'a FutureFlow>,
    /// The transformation of the target of the flow, which predictions undo.
    pub target: Option<&'a Arc<TargetChain>>,
    /// Compiles SQL expressions.
    pub sql: &'a SqlCompiler,
    /// Returns the columns of another step or source by name.
    pub other: &'a dyn Fn(&str) -> Result<SchemaRef>,
    /// Returns event time and keys of another step or source by name; none before its columns are known.
    pub other_series: &'a dyn Fn(&str) -> SeriesColumns,
}

impl<'a> BindScope<'a> {
    /// The selected columns.
    pub fn columns(&self, columns: &ColumnSelector) -> Result<Vec<&'a Field>> {
        columns.resolve(self.schema)
    }

    /// One column by its exact name.
    pub fn field(&self, name: &str) -> Result<&'a Field> {
        self.schema
            .field_with_name(name)
            .map_err(|_| unknown_column(name, self.schema))
    }

    /// Compiles a SQL expression over the columns before the step.
    pub fn expression(&self, text: &str) -> Result<CompiledExpression> {
        self.sql.expression(text, self.schema)
    }

    /// Selected columns that must be numeric.
    pub fn numeric_columns(&self, columns: &ColumnSelector) -> Result<Vec<&'a Field>> {
        self.typed_columns(columns, "a number", |field| field.data_type().is_numeric())
    }

    /// Selected columns that must satisfy `accepts`; `expected` completes the message "is ..., not ...".
    pub fn typed_columns(
        &self,
        columns: &ColumnSelector,
        expected: &str,
        accepts: impl Fn(&Field) -> bool,
    ) -> Result<Vec<&'a Field>> {
        let (fields, mut faults) = columns.matches(self.schema);
        faults.extend(fields.iter().filter(|field| !accepts(field)).map(|field| {
            let message = format!(
                "`{}` is {}, not {expected}",
                field.name(),
                type_words(field.data_type())
            );
            Fault::new(forebay_model::codes::COLUMN_TYPE, message)
                .column(field.name())
                .hint("`cast` or `derive` it before this step, or leave it out")
        }));
        Fault::combine(faults).map_or(Ok(fields), Err)
    }
}
