//! Memory of a training of boosted trees.

use forebay_model::{Fault, Result, codes};

use super::partitions::{GroupRows, RowShape};
use crate::train::group_names::{GroupName, group_text};

/// Bytes of a row while trees are grown over it, besides its features: sum of its results, two
/// derivatives, two row numbers, label and weight.
const ROW_STATE_BYTES: u64 = 8 + 16 + 8 + 8;

/// Bytes that training one model takes, rows included.
pub fn training_bytes(shape: RowShape, learn: u64, validate: u64) -> u64 {
    let row = shape.bytes();
    let bins = (shape.numbers + 2 * shape.ids) as u64;
    // Bins are made of one column at a time, of two bytes each.
    learn * (row + bins + ROW_STATE_BYTES) + validate * (row + 8)
}

/// Fails where `needed` bytes are more than `limit`. The subject and the group are named in the fault.
pub fn check_memory(needed: u64, limit: u64, subject: &str, group: &str) -> Result<()> {
    if needed <= limit {
        return Ok(());
    }
    let message = format!(
        "{subject}{group} would hold {} MiB, and may hold {}",
        needed.div_ceil(1 << 20),
        limit >> 20
    );
    Err(Fault::new(codes::MEMORY, message).hint(
        "let it learn from fewer rows (`sample_rows`), name fewer columns, or raise --memory",
    ))
}

/// Fails where training a group takes more memory than this.
pub fn check_group_memory(
    shape: RowShape,
    rows: &GroupRows,
    limit: u64,
    name: &GroupName,
) -> Result<()> {
    let needed = training_bytes(shape, rows.learn.rows() as u64, rows.validate.rows() as u64);
    check_memory(needed, limit, "the group ", &group_text(name))
}
