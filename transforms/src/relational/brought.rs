//! The columns that joins bring from the other side.

use arrow::datatypes::Field;
use forebay_model::{Fault, Result, codes, is_unsized_vector};
use forebay_plan::BindScope;

/// A column of the other side, and the field that it becomes.
pub(super) type BroughtColumn = (String, Field);

/// The table that columns come from, and the prefix and suffix of their names.
pub(super) struct ColumnNaming<'j> {
    pub with: &'j str,
    pub prefix: &'j str,
    pub suffix: &'j str,
}

impl ColumnNaming<'_> {
    /// Brings columns, nullable, under names that are free.
    pub fn bring(&self, scope: &BindScope<'_>, fields: Vec<&Field>) -> Result<Vec<BroughtColumn>> {
        let mut brought: Vec<BroughtColumn> = Vec::new();
        for field in fields {
            let name = format!("{}{}{}", self.prefix, field.name(), self.suffix);
            let is_taken = scope.schema.field_with_name(&name).is_ok();
            if is_taken || brought.iter().any(|(_, field)| *field.name() == name) {
                let message = format!("`{name}` is here already and in `{}` too", self.with);
                return Err(Fault::new(codes::COLUMN_CLASH, message)
                    .column(&name)
                    .hint("set `prefix` or `suffix`, or list the `columns` to bring"));
            }
            brought.push((
                field.name().clone(),
                field.clone().with_name(name).with_nullable(true),
            ));
        }
        Ok(brought)
    }

    /// Refuses vectors whose width is not known when rows are partitioned or sorted.
    pub fn refuse_unsized(&self, brought: &[BroughtColumn]) -> Result<()> {
        let Some((from, _)) = brought
            .iter()
            .find(|(_, field)| is_unsized_vector(field.data_type()))
        else {
            return Ok(());
        };
        let message = format!(
            "`{from}` in `{}` is a vector whose width is learned",
            self.with
        );
        Err(Fault::new(codes::UNSUPPORTED, message)
            .column(from)
            .hint("list its `categories`, leave it out of `columns`, or make it after the join"))
    }
}
