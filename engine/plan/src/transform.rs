//! The public trait behind every transform, ours and the user's.

use std::fmt::Debug;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_model::{Fault, Result};

use crate::columns::unknown_column;
use crate::{Columns, Expression, Op, Sql};

/// A kind of step. Its value is its configuration; [`Transform::bind`] says what it comes to
/// over given columns. One operation per output column lets unneeded columns be skipped.
pub trait Transform: Debug + Send + Sync {
    /// Checks the columns and gives the operations, in order.
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>>;
}

/// What a transform sees while it binds.
pub struct Scope<'a> {
    /// The columns that reach the step, with logical types.
    pub schema: &'a Schema,
    /// Compiles SQL expressions.
    pub sql: &'a Sql,
    /// The columns of another step or source by name.
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

    /// A SQL expression over the columns that reach the step.
    pub fn expression(&self, text: &str) -> Result<Expression> {
        self.sql.expression(text, self.schema)
    }

    /// Selected columns that must be numeric.
    pub fn numeric_columns(&self, columns: &Columns) -> Result<Vec<&'a Field>> {
        self.typed_columns(columns, "a number", |field| field.data_type().is_numeric())
    }

    /// Selected columns that must satisfy `accepts`; `wanted` completes "is ..., not ...".
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
