//! Memory of a training of boosted trees.

use forebay_model::{Fault, Result, codes};

use super::partitions::{GroupRows, RowShape};
use crate::group_names::{GroupName, group_text};

/// Blocks of features that a training on disk holds at once, about: one of rows or its bins, one that is read ahead, and
/// the derivatives of its rows.
const BLOCKS_HELD: u64 = 4;

/// Share of the process's memory that a block of features takes.
const BLOCK_SHARE: u64 = 64;

/// Bytes of a block of features.
const BLOCK_BYTES_MIN: u64 = 64 << 10;
const BLOCK_BYTES_MAX: u64 = 8 << 20;

/// Bytes of a row while trees are grown over it, besides its features: sum of its results, two
/// derivatives, two row numbers, label and weight.
const ROW_STATE_BYTES: u64 = 8 + 16 + 8 + 8;

/// Bytes that training one model takes, rows included.
pub fn training_bytes(shape: RowShape, learn: u64, validate: u64) -> u64 {
    let row = shape.bytes();
    let bins = (shape.numbers + 2 * shape.ids) as u64;
    // Ids may have more than 256 bins.
    learn * (row + bins + ROW_STATE_BYTES) + validate * (row + 8)
}

/// Bytes of a block of features where they lie on disk.
pub fn feature_block_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / BLOCK_SHARE).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

/// Memory of the training of one model.
#[derive(Debug, Clone, Copy)]
pub struct TrainingMemory {
    pub bytes: u64,
    /// True if the features of the rows to learn from, and their bins, lie on disk.
    pub on_disk: bool,
}

impl TrainingMemory {
    /// Memory of a training whose rows hold `row_bytes` bytes of their own: on disk if it does not fit into `limit`
    /// bytes else. Fails if it does not fit then, either.
    pub fn within(
        limit: u64,
        shape: RowShape,
        (learn, validate): (u64, u64),
        row_bytes: u64,
        memory_bytes: u64,
    ) -> Result<TrainingMemory> {
        let bytes = training_bytes(shape, learn, validate) + row_bytes;
        if bytes <= limit {
            return Ok(TrainingMemory {
                bytes,
                on_disk: false,
            });
        }
        let blocks = BLOCKS_HELD * feature_block_bytes(memory_bytes);
        let validation = validate * (shape.bytes() + 8);
        let bytes = learn * ROW_STATE_BYTES + validation + row_bytes + blocks;
        check_memory(bytes, limit, "the model over all rows", "")?;
        Ok(TrainingMemory {
            bytes,
            on_disk: true,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_on_disk_where_they_do_not_fit() {
        let shape = RowShape {
            numbers: 100,
            ids: 0,
            weighted: false,
        };
        let memory_bytes = 1 << 30;
        let within = |learn: u64, validate: u64, row_bytes: u64| {
            let rows = (learn, validate);
            TrainingMemory::within(memory_bytes / 2, shape, rows, row_bytes, memory_bytes)
        };
        // Of 544 bytes each.
        let held = within(900_000, 0, 0).unwrap();
        assert_eq!((held.bytes, held.on_disk), (900_000 * 544, false));
        let spilled = within(1_000_000, 0, 0).unwrap();
        let blocks = 4 * (8 << 20);
        assert_eq!(
            (spilled.bytes, spilled.on_disk),
            (40_000_000 + blocks, true)
        );
        assert!(within(900_000, 0, 100 << 20).unwrap().on_disk);
        assert!(within(900_000, 200_000, 0).unwrap().on_disk);
        for (learn, validate) in [(13_000_000, 0), (1_000_000, 1_200_000)] {
            let fault = within(learn, validate, 0).unwrap_err();
            assert_eq!(fault.code(), codes::MEMORY);
        }
    }
}
