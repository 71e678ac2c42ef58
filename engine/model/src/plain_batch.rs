//! Batches in the types of a schema.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;

use crate::Result;

/// The columns of a batch cast to the types of a schema, by their positions.
pub fn plain_batch(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        columns.push(cast(column, field.data_type())?);
    }
    batch_of_rows(schema.clone(), columns, batch.num_rows())
}

/// A batch with a number of rows, also where it has no columns.
pub fn batch_of_rows(
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
    Ok(batch)
}
