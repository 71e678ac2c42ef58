//! Selecting rows of columns of any type.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::DataType;

use crate::Result;

/// The rows of a column at some positions, as [`take`]. Arrow derives the length of a vector column from its
/// values, of which vectors of width 0 (a one-hot vector without any category) have none.
pub fn take_rows(column: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    let DataType::FixedSizeList(item, 0) = column.data_type() else { return Ok(take(column, rows, None)?) };
    let vectors = column.as_fixed_size_list();
    let nulls = vectors.nulls().map(|nulls| rows.values().iter().map(|row| nulls.is_valid(*row as usize)).collect());
    let values = vectors.values().slice(0, 0);
    let taken =
        FixedSizeListArray::try_new_with_length(item.clone(), 0, values, nulls.map(NullBuffer::new), rows.len());
    Ok(Arc::new(taken?))
}

/// The rows of a batch at some positions.
pub fn take_batch(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| take_rows(column, rows)).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}
