//! Facts that the log of a table adds to its Parquet files.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Schema;
use forebay_model::{Fault, NameIndex, Result};
use forebay_storage::StorageClient;

/// Gives the name of a column in a file; `None` where the file does not have it.
pub type StoredNames<'f> = Box<dyn Fn(&str) -> Option<String> + 'f>;

/// A table whose log names its files and describes them. A file is never written twice.
pub trait TableFiles: Debug + Send + Sync {
    /// The bytes of a file; `None` for a file that the log does not name.
    fn size(&self, path: &str) -> Option<u64>;

    /// The fault for a file that the log names and that has `stored_bytes` bytes, or is missing.
    fn unlike_log_fault(&self, path: &str, stored_bytes: Option<u64>) -> Fault;

    /// The names of columns in a file of this schema.
    fn stored_names<'f>(&'f self, file: &'f Schema) -> StoredNames<'f>;

    /// The values of a nested column of a file, with the names that their fields have in the table.
    fn with_table_names(&self, column: &str, values: &ArrayRef) -> Result<ArrayRef>;

    /// The rows of a file that the table still has; `None` means all.
    fn kept_rows(&self, io: &StorageClient, path: &str) -> Result<Option<Arc<KeptRows>>>;
}

/// The name of a column in a file of this schema, of this table if it belongs to one.
pub(super) fn stored_column(
    table: Option<&dyn TableFiles>,
    file: &Schema,
    column: &str,
) -> Option<String> {
    match table {
        Some(table) => table.stored_names(file)(column),
        None => file
            .fields()
            .find(column)
            .map(|(_, field)| field.name().clone()),
    }
}

/// The names of columns in a file of this schema; see [`stored_column`].
pub(super) fn stored_columns<'n>(
    table: Option<&dyn TableFiles>,
    file: &Schema,
    columns: impl Iterator<Item = &'n str>,
) -> HashMap<&'n str, String> {
    let index = NameIndex::of_fields(file.fields());
    let plain_name = move |column: &str| index.contains(column).then(|| column.to_owned());
    let stored_name: StoredNames<'_> = match table {
        Some(table) => table.stored_names(file),
        None => Box::new(plain_name),
    };
    columns
        .filter_map(|column| Some((column, stored_name(column)?)))
        .collect()
}

/// The rows of a file that were not deleted.
#[derive(Debug)]
pub struct KeptRows {
    /// Bit for each row by position in the file. Rows beyond the last bit are kept.
    bits: BooleanBuffer,
}

impl KeptRows {
    /// Creates the rows from one bit for each row up to the last deleted one.
    pub fn new(bits: BooleanBuffer) -> KeptRows {
        KeptRows { bits }
    }

    /// Number of rows of a range that are kept.
    pub fn count(&self, from: u64, rows: u64) -> u64 {
        let (from, to) = self.known(from, rows);
        rows - (to - from) as u64 + self.bits.slice(from, to - from).count_set_bits() as u64
    }

    /// Mask of the kept rows of a range; `None` means all.
    pub(crate) fn mask(&self, from: u64, rows: usize) -> Option<BooleanArray> {
        let (start, end) = self.known(from, rows as u64);
        let bits = self.bits.slice(start, end - start);
        if bits.count_set_bits() == bits.len() {
            return None;
        }
        let beyond = std::iter::repeat_n(true, rows - bits.len());
        Some(BooleanArray::new(bits.iter().chain(beyond).collect(), None))
    }

    /// The part of a range that has bits.
    fn known(&self, from: u64, rows: u64) -> (usize, usize) {
        let within = |row: u64| row.min(self.bits.len() as u64) as usize;
        (within(from), within(from.saturating_add(rows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_last_deleted_one_are_kept() {
        let kept = KeptRows::new([true, false, true, false].into_iter().collect());
        for (from, rows, expected) in [
            (0, 4, 2),
            (1, 1, 0),
            (2, 1, 1),
            (3, 5, 4),
            (4, 3, 3),
            (0, 0, 0),
            (9, 2, 2),
        ] {
            assert_eq!(kept.count(from, rows), expected, "{from} {rows}");
            let mask = kept.mask(from, rows as usize);
            assert_eq!(
                mask.as_ref().map_or(rows, |mask| mask.true_count() as u64),
                expected,
                "{from} {rows}"
            );
            assert!(mask.is_none_or(|mask| mask.len() == rows as usize));
        }
    }
}
