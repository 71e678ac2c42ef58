//! The public trait of transforms, built-in and custom.

use std::fmt::Debug;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{Fault, Result};

use crate::columns::unknown_column;
use crate::{Columns, Expression, Op, Sql};

/// A kind of step. Its value is its configuration; [`Transform::bind`] translates it into operations over given
/// columns. One operation per output column allows unneeded columns to be skipped.
pub trait Transform: Debug + Send + Sync {
    /// Checks the columns and returns the operations, in order.
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>>;
}

/// Event time and keys of a flow, from the source's declaration. A step that rewrites or drops one of these columns
/// makes it unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// The event-time column.
    pub time: Option<String>,
    /// Columns that identify a series.
    pub keys: Option<Vec<String>>,
}

impl Series {
    /// Updates the columns after an operation.
    pub(crate) fn follow(&mut self, op: &Op) {
        let after = |name: &String| match op {
            Op::Map(map) => (!map.writes.iter().any(|field| field.name() == name)).then(|| name.clone()),
            Op::Expand(expand) => (!expand.writes.iter().any(|field| field.name() == name)).then(|| name.clone()),
            Op::Window(window) => (!window.writes.iter().any(|field| field.name() == name)).then(|| name.clone()),
            Op::AsOf(join) => (!join.columns.iter().any(|(_, field)| field.name() == name)).then(|| name.clone()),
            Op::Project(columns) => columns.iter().find(|(from, _)| from == name).map(|(_, to)| to.clone()),
            Op::Keep(_) | Op::Gather(_) => Some(name.clone()),
        };
        self.time = self.time.as_ref().and_then(after);
        self.keys = self.keys.as_ref().and_then(|keys| keys.iter().map(after).collect());
    }

    /// Restricts the columns to those of a schema.
    pub(crate) fn still_in(&self, schema: &Schema) -> Series {
        let there = |name: &String| schema.field_with_name(name).is_ok();
        Series { time: self.time.clone().filter(there), keys: self.keys.clone().filter(|keys| keys.iter().all(there)) }
    }
}

/// Input of [`Transform::bind`].
pub struct Scope<'a> {
    /// Event time and keys of the rows, as declared by their source.
    pub series: &'a Series,
    /// Columns before the step, with logical types.
    pub schema: &'a Schema,
    /// Compiles SQL expressions.
    pub sql: &'a Sql,
    /// Returns the columns of another step or source by name.
    pub other: &'a dyn Fn(&str) -> Result<SchemaRef>,
}

impl<'a> Scope<'a> {
    /// The selected columns.
    pub fn columns(&self, columns: &Columns) -> Result<Vec<&'a Field>> {
        columns.resolve(self.schema)
    }

    /// One column by its exact name.
    pub fn field(&self, name: &str) -> Result<&'a Field> {
        self.schema.field_with_name(name).map_err(|_| unknown_column(name, self.schema))
    }

    /// Compiles a SQL expression over the columns before the step.
    pub fn expression(&self, text: &str) -> Result<Expression> {
        self.sql.expression(text, self.schema)
    }

    /// Selected columns that must be numeric.
    pub fn numeric_columns(&self, columns: &Columns) -> Result<Vec<&'a Field>> {
        self.typed_columns(columns, "a number", |field| field.data_type().is_numeric())
    }

    /// Selected columns that must satisfy `accepts`; `wanted` completes the message "is ..., not ...".
    pub fn typed_columns(
        &self,
        columns: &Columns,
        wanted: &str,
        accepts: impl Fn(&Field) -> bool,
    ) -> Result<Vec<&'a Field>> {
        let fields = self.columns(columns)?;
        let faults = fields.iter().filter(|field| !accepts(field)).map(|field| {
            let message = format!("`{}` is {}, not {wanted}", field.name(), field.data_type());
            Fault::new(forebay_model::codes::COLUMN_TYPE, message)
                .column(field.name())
                .hint("`cast` or `derive` it before this step, or leave it out")
        });
        Fault::all(faults.collect()).map_or(Ok(fields), Err)
    }
}
