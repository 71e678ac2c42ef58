//! Batches of rows for the window engine.

use arrow::array::ArrayRef;

/// Rows to push: columns of the plan's logical types in any layout (dictionaries, views).
pub struct InputRows<'a> {
    /// The key columns.
    pub keys: &'a [ArrayRef],
    /// The time column.
    pub time: &'a ArrayRef,
    /// The input columns, in the plan's order.
    pub inputs: &'a [ArrayRef],
    /// Number of rows.
    pub rows: usize,
}
