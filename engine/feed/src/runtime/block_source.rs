//! Sources of rows.

use std::ops::ControlFlow;
use std::time::Duration;

use arrow::array::RecordBatch;
use forebay_model::{ContentId, Fault, Result};

use crate::BlockDataset;

/// A dataset that can be read block by block, by several threads at once.
pub trait BlockSource: Send + Sync {
    /// Its blocks and fingerprint: the same for the life of the feed.
    fn dataset(&self) -> BlockDataset;

    /// Reads the columns of a block, in the order asked for, and hands its rows over in order and
    /// in batches of any size; short ones that fit the cache are best. Stops when told to. Returns
    /// how long it waited for storage.
    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration>;

    /// Announces blocks that are read next, in about this order, after those announced before. A source that waits for
    /// storage can ask for them. Must not block.
    fn announce(&self, blocks: &[u32]) {
        let _ = blocks;
    }

    /// An id of the stored rows that a block is made of, whatever the other blocks are; `None` if the source has none.
    fn block_id(&self, _block: u32) -> Option<ContentId> {
        None
    }

    /// Adds the block's position to a fault whose rows count from the first that was read.
    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        fault.note(format!("block {block} of the feed's source"))
    }
}
