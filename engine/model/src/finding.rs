//! Findings: what an analyzer's state comes to, as a table that people can read.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use arrow::ipc::writer::StreamWriter;

use crate::{Fault, Id, Result};

/// A small typed table: one row of numbers, or one row per boundary, key or token.
#[derive(Debug, Clone)]
pub struct Finding {
    table: RecordBatch,
    /// What follows from the table, and makes it quick to look something up.
    index: Option<Buffer>,
}

impl PartialEq for Finding {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}

impl Finding {
    /// Wraps a table.
    pub fn new(table: RecordBatch) -> Self {
        Finding { table, index: None }
    }

    /// A table of named columns of equal length; all may hold nulls.
    pub fn of<'a>(columns: impl IntoIterator<Item = (&'a str, ArrayRef)>) -> Result<Self> {
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        Ok(Finding::new(RecordBatch::try_from_iter_with_nullable(columns)?))
    }

    /// The same with what its analyzer's [`crate::Analyzer::index`] gave.
    pub fn with_index(self, index: Buffer) -> Self {
        Finding { index: Some(index), ..self }
    }

    /// The table.
    pub fn table(&self) -> &RecordBatch {
        &self.table
    }

    /// What makes it quick to look something up, where somebody has made it.
    pub fn index(&self) -> Option<&Buffer> {
        self.index.as_ref()
    }

    /// The id of its content, whatever it was learned from.
    pub fn digest(&self) -> Result<Id> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, self.table.schema_ref())?;
        writer.write(&self.table)?;
        writer.finish()?;
        Ok(Id::of(&bytes))
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.table.num_rows()
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Result<&ArrayRef> {
        self.table.column_by_name(name).ok_or_else(|| Fault::internal(format!("a finding has no column `{name}`")))
    }

    /// A number of the first row; `None` where it is null. Integers are converted.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        let column = self.column(name)?;
        if column.is_empty() || column.is_null(0) {
            return Ok(None);
        }
        Ok(Some(match column.data_type() {
            DataType::Float64 => column.as_primitive::<Float64Type>().value(0),
            DataType::Int64 => column.as_primitive::<Int64Type>().value(0) as f64,
            DataType::UInt64 => column.as_primitive::<UInt64Type>().value(0) as f64,
            other => return Err(Fault::internal(format!("finding column `{name}` is {other}, not a number"))),
        }))
    }

    /// The `f64` values of a column without nulls.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let column = self.column(name)?;
        let column = column
            .as_primitive_opt::<Float64Type>()
            .ok_or_else(|| Fault::internal(format!("finding column `{name}` is not Float64")))?;
        Ok(column.values().to_vec())
    }
}
