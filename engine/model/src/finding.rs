//! Findings: results of analyzers as readable tables.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use arrow::ipc::writer::StreamWriter;

use crate::{ContentId, Fault, Result};

/// A small typed table: one row of numbers, or one row per boundary, key or token.
#[derive(Debug, Clone)]
pub struct Finding {
    table: RecordBatch,
    /// Lookup index derived from the table.
    index: Option<Buffer>,
}

fn missing_column(name: &str) -> Fault {
    Fault::internal(format!("a finding has no column `{name}`"))
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

    /// Builds a table of named columns of equal length; all columns are nullable.
    pub fn of<'a>(columns: impl IntoIterator<Item = (&'a str, ArrayRef)>) -> Result<Self> {
        let columns = columns
            .into_iter()
            .map(|(name, column)| (name, column, true));
        Ok(Finding::new(RecordBatch::try_from_iter_with_nullable(
            columns,
        )?))
    }

    /// Attaches the index built by [`crate::Analyzer::index`].
    pub fn with_index(self, index: Buffer) -> Self {
        Finding {
            index: Some(index),
            ..self
        }
    }

    /// The table.
    pub fn table(&self) -> &RecordBatch {
        &self.table
    }

    /// The lookup index, if one is attached.
    pub fn index(&self) -> Option<&Buffer> {
        self.index.as_ref()
    }

    /// Some columns of the table, in this order, with the same index.
    pub fn with_columns(&self, names: &[String]) -> Result<Finding> {
        let schema = self.table.schema_ref();
        let mut positions = Vec::with_capacity(names.len());
        for name in names {
            let position = schema.index_of(name);
            positions.push(position.map_err(|_| missing_column(name))?);
        }
        Ok(Finding {
            table: self.table.project(&positions)?,
            index: self.index.clone(),
        })
    }

    /// Id of the content, independent of the data it was computed from.
    pub fn digest(&self) -> Result<ContentId> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, self.table.schema_ref())?;
        writer.write(&self.table)?;
        writer.finish()?;
        Ok(ContentId::of(&bytes))
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.table.num_rows()
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Result<&ArrayRef> {
        self.table
            .column_by_name(name)
            .ok_or_else(|| missing_column(name))
    }

    /// The number in the first row; `None` if null or if there is no row. Integers are converted.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        let column = self.column(name)?;
        if column.is_empty() || column.is_null(0) {
            return Ok(None);
        }
        Ok(Some(match column.data_type() {
            DataType::Float64 => column.as_primitive::<Float64Type>().value(0),
            DataType::Int64 => column.as_primitive::<Int64Type>().value(0) as f64,
            DataType::UInt64 => column.as_primitive::<UInt64Type>().value(0) as f64,
            other => {
                return Err(Fault::internal(format!(
                    "finding column `{name}` is {other}, not a number"
                )));
            }
        }))
    }

    /// The first value of a column of `i64`; `None` where there is none.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        let column = self.column(name)?;
        let column = column
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| Fault::internal(format!("finding column `{name}` is not Int64")))?;
        Ok(column.iter().next().flatten())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{StringArray, UInt64Array};

    use super::*;

    fn vocabulary(tokens: &[&str], counts: &[u64]) -> Finding {
        let tokens: ArrayRef = Arc::new(StringArray::from(tokens.to_vec()));
        let counts: ArrayRef = Arc::new(UInt64Array::from(counts.to_vec()));
        Finding::of([("token", tokens), ("count", counts)]).unwrap()
    }

    #[test]
    fn columns_have_a_digest_of_their_own() {
        let columns = ["token".to_owned()];
        let digest = |finding: &Finding| finding.with_columns(&columns).unwrap().digest().unwrap();
        let finding = vocabulary(&["a", "b"], &[3, 2]);
        let recounted = vocabulary(&["a", "b"], &[4, 2]);
        assert_ne!(finding.digest().unwrap(), recounted.digest().unwrap());
        assert_eq!(digest(&finding), digest(&recounted));
        assert_ne!(digest(&finding), digest(&vocabulary(&["b", "a"], &[3, 2])));
        assert_ne!(
            digest(&finding),
            digest(&vocabulary(&["a", "b", "c"], &[3, 2, 1]))
        );
        // All columns are the finding itself.
        let all = ["token".to_owned(), "count".to_owned()];
        assert_eq!(
            finding.with_columns(&all).unwrap().digest().unwrap(),
            finding.digest().unwrap()
        );
        assert!(finding.with_columns(&["mean".to_owned()]).is_err());
    }
}
