//! Selecting rows of columns of any type.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::DataType;

use crate::Result;

/// The rows of a column at some positions, as [`take`]: a null position gives null. Arrow derives the length of a vector column from its
/// values, of which vectors of width 0 (a one-hot vector without any category) have none.
pub fn take_rows(column: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    let DataType::FixedSizeList(item, 0) = column.data_type() else {
        return Ok(take(column, rows, None)?);
    };
    let vectors = column.as_fixed_size_list();
    let is_valid = |row: Option<u32>| row.is_some_and(|row| vectors.is_valid(row as usize));
    let nulls: NullBuffer = rows.iter().map(is_valid).collect();
    let values = vectors.values().slice(0, 0);
    let taken =
        FixedSizeListArray::try_new_with_length(item.clone(), 0, values, Some(nulls), rows.len());
    Ok(Arc::new(taken?))
}

/// The rows of a batch at some positions.
pub fn take_batch(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .map(|column| take_rows(column, rows))
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns,
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, new_empty_array};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn vectors_without_elements_keep_their_rows() -> Result<()> {
        let rows = UInt32Array::from(vec![Some(1), None, Some(0), Some(1)]);
        for width in [0, 1] {
            let item = Arc::new(Field::new("item", DataType::Float32, true));
            let values = match width {
                0 => new_empty_array(&DataType::Float32),
                _ => Arc::new(Float32Array::from(vec![1.0, 2.0])),
            };
            let nulls = Some(NullBuffer::from(vec![true, false]));
            let vectors: ArrayRef = Arc::new(FixedSizeListArray::try_new_with_length(
                item, width, values, nulls, 2,
            )?);
            let taken = take_rows(&vectors, &rows)?;
            let valid: Vec<bool> = (0..taken.len()).map(|row| taken.is_valid(row)).collect();
            assert_eq!(valid, [false, false, true, false], "width {width}");
        }
        Ok(())
    }
}
