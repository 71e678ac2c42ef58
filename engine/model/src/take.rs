//! Selecting rows of columns of any type.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeListArray, Int32Array, RecordBatch,
    RecordBatchOptions, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Int32Type};

use crate::{Result, taken_bytes};

/// Copies of texts of at least these bytes are not made: rows get the text of a dictionary.
const COPIED_TEXT_BYTES_MAX: usize = 16 << 20;

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
    let vectors =
        FixedSizeListArray::try_new_with_length(item.clone(), 0, values, Some(nulls), rows.len())?;
    Ok(Arc::new(vectors))
}

/// Values of a table for rows that look them up, as [`take_rows`]. Long texts that many rows get are not copied: the rows
/// are a dictionary of the table's texts then.
pub fn look_up_rows(values: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    let is_text = *values.data_type() == DataType::Utf8;
    if !is_text || taken_bytes(values, rows) < COPIED_TEXT_BYTES_MAX {
        return take_rows(values, rows);
    }
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows {
        let row = row.filter(|row| values.is_valid(*row as usize));
        keys.push(row.and_then(|row| i32::try_from(row).ok()));
    }
    let keyed = DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), values.clone())?;
    Ok(Arc::new(keyed))
}

/// The rows of a batch at some positions.
pub fn take_batch(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for column in batch.columns() {
        columns.push(take_rows(column, rows)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, StringArray, new_empty_array};
    use arrow::compute::cast;
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

    #[test]
    fn long_texts_are_looked_up_without_copies() -> Result<()> {
        let long = "x".repeat(1 << 20);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some(long.as_str()),
            None,
            Some("y"),
        ]));
        let few = UInt32Array::from(vec![Some(0), None, Some(1), Some(2)]);
        assert_eq!(look_up_rows(&texts, &few)?.data_type(), &DataType::Utf8);
        let mut many = vec![Some(0); 20];
        many.extend([None, Some(1), Some(2)]);
        let many = UInt32Array::from(many);
        let keyed = look_up_rows(&texts, &many)?;
        assert!(keyed.as_any_dictionary_opt().is_some());
        assert_eq!(keyed.null_count(), 2);
        let plain = cast(&keyed, &DataType::Utf8)?;
        assert_eq!(&plain, &take_rows(&texts, &many)?);
        Ok(())
    }
}
