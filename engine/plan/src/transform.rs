//! The public trait of transforms, built-in and custom.

use std::fmt::Debug;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{DuplicateRows, Fault, Result, type_words};
use serde_json::Value;

use crate::column_selector::unknown_column;
use crate::{ColumnSelector, CompiledExpression, FutureFlow, PlanOp, SqlCompiler};

/// A kind of step. Its value is its configuration; [`Transform::bind`] translates it into operations over given
/// columns. One operation per output column allows unneeded columns to be skipped.
pub trait Transform: Debug + Send + Sync {
    /// Checks the columns and returns the operations, in order.
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>>;

    /// The rows of another step or source that the step holds in memory although it does not have to.
    fn held_rows(&self) -> Option<HeldRows> {
        None
    }
}

/// Rows of another step or source that a step holds in memory.
#[derive(Debug, Clone)]
pub struct HeldRows {
    /// The other step or source.
    pub other: String,
    /// Its columns that are held; `None` means all.
    pub columns: Option<ColumnSelector>,
    /// The configuration of a step with the same results that holds no rows.
    pub spilling: Value,
}

/// Event time and keys of a flow, from the source's declaration. A step that rewrites or drops one of these columns
/// makes it unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesColumns {
    /// The event-time column.
    pub time: Option<String>,
    /// Columns that identify a series.
    pub keys: Option<Vec<String>>,
    /// Treatment of rows with the same keys and the same time, where the source declares it.
    pub duplicates: Option<DuplicateRows>,
}

impl SeriesColumns {
    /// Updates the columns after an operation.
    pub(crate) fn follow(&mut self, op: &PlanOp) {
        let after = |name: &String| match op {
            PlanOp::Map(map) => {
                (!map.writes.iter().any(|field| field.name() == name)).then(|| name.clone())
            }
            PlanOp::Expand(expand) => {
                (!expand.writes.iter().any(|field| field.name() == name)).then(|| name.clone())
            }
            PlanOp::Window(window) => {
                (!window.writes.iter().any(|field| field.name() == name)).then(|| name.clone())
            }
            PlanOp::Join(join) => (!join.is_written(name)).then(|| name.clone()),
            PlanOp::Project(columns) => columns
                .iter()
                .find(|(from, _)| from == name)
                .map(|(_, to)| to.clone()),
            PlanOp::Keep(_) | PlanOp::Gather(_) => Some(name.clone()),
        };
        self.time = self.time.as_ref().and_then(after);
        self.keys = self
            .keys
            .as_ref()
            .and_then(|keys| keys.iter().map(after).collect());
    }

    /// The columns of the rows of both; none where they differ.
    pub(crate) fn of_both(&self, other: &SeriesColumns) -> SeriesColumns {
        if (&self.time, &self.keys) != (&other.time, &other.keys) {
            return SeriesColumns::default();
        }
        let declared = self.duplicates.zip(other.duplicates);
        SeriesColumns {
            duplicates: declared.map(|(first, second)| first.max(second)),
            ..self.clone()
        }
    }

    /// Restricts the columns to those of a schema.
    pub(crate) fn still_in(&self, schema: &Schema) -> SeriesColumns {
        let there = |name: &String| schema.field_with_name(name).is_ok();
        SeriesColumns {
            time: self.time.clone().filter(there),
            keys: self.keys.clone().filter(|keys| keys.iter().all(there)),
            duplicates: self.duplicates,
        }
    }
}

/// Input of [`Transform::bind`].
pub struct BindScope<'a> {
    /// Event time and keys of the rows, as declared by their source.
    pub series: &'a SeriesColumns,
    /// Columns before the step, with logical types.
    pub schema: &'a Schema,
    /// The rows of the future of the flow, if it has any.
    pub future: Option<&'a FutureFlow>,
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

    /// Selected columns that must satisfy `accepts`; `wanted` completes the message "is ..., not ...".
    pub fn typed_columns(
        &self,
        columns: &ColumnSelector,
        wanted: &str,
        accepts: impl Fn(&Field) -> bool,
    ) -> Result<Vec<&'a Field>> {
        let (fields, mut faults) = columns.matches(self.schema);
        faults.extend(fields.iter().filter(|field| !accepts(field)).map(|field| {
            let message = format!(
                "`{}` is {}, not {wanted}",
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
