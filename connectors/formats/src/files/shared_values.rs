//! Rows of a file in which columns stand for more bytes than they hold: each row gets a copy of a shared value when the
//! column is put into the dataset's type.

use arrow::array::RecordBatch;
use forebay_model::plain_bytes;

/// Most bytes of columns with a value for each row, unless they have one row.
const COPIED_BYTES_MAX: usize = 16 << 20;

/// Copies of shared values of at least these bytes are reserved before they are made.
pub(crate) const LARGE_COPY_BYTES: u64 = 4 << 20;

/// Rows of a batch that are put into the dataset's types together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopiedRows {
    pub(crate) rows: usize,
    /// Bytes of the columns with a value for each row.
    pub(crate) bytes: u64,
}

impl CopiedRows {
    /// The first rows of a batch whose values fit into `bytes_max` bytes, and one row at least. `columns` are those that
    /// share values.
    pub(crate) fn first_of(batch: &RecordBatch, columns: &[usize], bytes_max: u64) -> CopiedRows {
        let bytes_max = bytes_max.min(COPIED_BYTES_MAX as u64);
        let mut rows = batch.num_rows();
        loop {
            let mut bytes = 0;
            for column in columns {
                bytes += plain_bytes(&batch.column(*column).slice(0, rows)) as u64;
            }
            if rows < 2 || bytes <= bytes_max {
                return CopiedRows { rows, bytes };
            }
            rows /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, LargeBinaryArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn few_rows_share_a_long_value() {
        let value = vec![0u8; 1 << 20];
        let values: ArrayRef = Arc::new(LargeBinaryArray::from(vec![&value[..]]));
        let keys = vec![0i32; 1_000];
        let coded = DictionaryArray::<Int32Type>::new(keys.into(), values);
        let numbers: Int64Array = (0..1_000).collect();
        let columns: [(&str, ArrayRef); 2] = [("b", Arc::new(coded)), ("n", Arc::new(numbers))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        for (bytes_max, rows) in [(u64::MAX, 15), (3 << 20, 1), (1, 1)] {
            let copied = CopiedRows::first_of(&batch, &[0], bytes_max);
            assert_eq!(copied.rows, rows, "{bytes_max}");
        }
        assert_eq!(CopiedRows::first_of(&batch, &[1], u64::MAX).rows, 1_000);
        let none = batch.slice(0, 0);
        let copied = CopiedRows::first_of(&none, &[0], 1);
        assert_eq!(copied.rows, 0);
    }
}
