//! Values that `try_cast` turns to null, counted while an expression is evaluated.
//!
//! A `try_cast` may lie in a function, or in the branch of a `CASE`: only its evaluation sees the values that it gets.
//! The query engine evaluates an expression on the thread of its operation, which reads the count when it returns.

use std::cell::Cell;

use arrow::array::Array;

thread_local! {
    /// Values that `try_cast` turned to null on this thread.
    static TRIED: Cell<u64> = const { Cell::new(0) };
}

/// Counts values that a `try_cast` of this thread turned to null.
pub(crate) fn add_tried(values: u64) {
    TRIED.set(TRIED.get() + values);
}

/// Counts the nulls of a `try_cast` that its input does not have.
pub(crate) fn add_tried_nulls(input: &dyn Array, output: &dyn Array) {
    let nulls = output.logical_null_count();
    add_tried(nulls.saturating_sub(input.logical_null_count()) as u64);
}

/// Calls `work`; also returns the number of values that `try_cast` turned to null in it.
pub(crate) fn count_tried<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let count_before = TRIED.replace(0);
    let result = work();
    (result, TRIED.replace(count_before))
}
