//! Some of the blocks of a feed: those that are new since an earlier one, and a sample of the others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use forebay_contract::FeedSource;
use forebay_feed::{BlockDataset, BlockSource};
use forebay_model::{ContentId, Fault, IdBuilder, Result};

/// Selection of the blocks of a feed.
pub(crate) struct BlockSelection<'a> {
    /// The blocks that the earlier feed had, with the rows that it had of each.
    pub seen: &'a BTreeMap<String, u64>,
    /// The share of the rows of these that is chosen.
    pub replay: f64,
    /// Decides which.
    pub seed: ContentId,
}

/// Numbers of selected rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SelectedRows {
    pub new: u64,
    pub replayed: u64,
    pub all: u64,
}

/// A block that the earlier feed had.
struct OldBlock {
    id: ContentId,
    block: u32,
    rows: u64,
}

/// Chosen blocks of a dataset.
struct SelectedBlocks {
    inner: Arc<dyn BlockSource>,
    chosen: Vec<u32>,
    dataset: BlockDataset,
}

/// The rows of each block with rows, by the name of the block; `None` where a block has no id.
pub(crate) fn rows_of_blocks(feed: &FeedSource) -> Option<BTreeMap<String, u64>> {
    let mut rows = BTreeMap::new();
    for blocks in &feed.blocks {
        let dataset = blocks.dataset();
        for block in (0..dataset.blocks() as u32).filter(|block| dataset.block_rows(*block) > 0) {
            let name = block_name(blocks.block_id(block)?);
            rows.insert(name, dataset.block_rows(block));
        }
    }
    Some(rows)
}

/// The blocks of a feed that are new, and a sample of the others; `None` where blocks have no names.
pub(crate) fn select_blocks(
    feed: &FeedSource,
    selection: &BlockSelection<'_>,
) -> Option<(FeedSource, SelectedRows)> {
    let mut rows = SelectedRows::default();
    let mut selected = feed.clone();
    for blocks in &mut selected.blocks {
        *blocks = Arc::new(SelectedBlocks::new(blocks.clone(), selection, &mut rows)?);
    }
    Some((selected, rows))
}

/// Name of the content of a block. The name is short, and a block whose name collides with another is taken for old.
fn block_name(id: ContentId) -> String {
    let mut name = IdBuilder::new("fed block");
    name.id(id);
    name.finish().to_string().chars().take(16).collect()
}

impl SelectedBlocks {
    fn new(
        inner: Arc<dyn BlockSource>,
        selection: &BlockSelection<'_>,
        rows: &mut SelectedRows,
    ) -> Option<SelectedBlocks> {
        let inner_dataset = inner.dataset();
        let mut chosen = Vec::new();
        let mut old = Vec::new();
        for block in 0..inner_dataset.blocks() as u32 {
            let block_rows = inner_dataset.block_rows(block);
            if block_rows == 0 {
                continue;
            }
            let id = inner.block_id(block)?;
            rows.all += block_rows;
            let seen = selection.seen.get(&block_name(id));
            let seen_rows = seen.copied().unwrap_or(0);
            if seen_rows >= block_rows {
                old.push(OldBlock {
                    id,
                    block,
                    rows: block_rows,
                });
            } else {
                // A split that moves gives more of the same stored rows: the others of the block are learned again.
                rows.new += block_rows - seen_rows;
                rows.replayed += seen_rows;
                chosen.push(block);
            }
        }
        // One of each group of neighbours, so that the sample spreads over the whole time.
        let groups = (selection.replay * old.len() as f64).ceil() as usize;
        for group in 0..groups {
            let neighbours = &old[group * old.len() / groups..(group + 1) * old.len() / groups];
            let lot = |old: &&OldBlock| {
                let mut lot = IdBuilder::new("replayed block");
                lot.id(selection.seed).id(old.id);
                lot.finish()
            };
            if let Some(old) = neighbours.iter().min_by_key(lot) {
                rows.replayed += old.rows;
                chosen.push(old.block);
            }
        }
        chosen.sort_unstable();
        let mut fingerprint = IdBuilder::new("selected blocks");
        fingerprint.id(inner_dataset.fingerprint());
        for block in &chosen {
            fingerprint.bytes(&block.to_le_bytes());
        }
        let blocks: Vec<_> = chosen
            .iter()
            .map(|block| inner_dataset.block(*block).clone())
            .collect();
        let dataset = BlockDataset::new(fingerprint.finish(), blocks);
        Some(SelectedBlocks {
            inner,
            chosen,
            dataset,
        })
    }
}

impl BlockSource for SelectedBlocks {
    fn dataset(&self) -> BlockDataset {
        self.dataset.clone()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        self.inner.read(self.chosen[block as usize], columns, rows)
    }

    fn announce(&self, blocks: &[u32]) {
        let blocks: Vec<u32> = blocks
            .iter()
            .map(|block| self.chosen[*block as usize])
            .collect();
        self.inner.announce(&blocks);
    }

    fn block_id(&self, block: u32) -> Option<ContentId> {
        self.inner.block_id(self.chosen[block as usize])
    }

    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        self.inner.locate_fault(self.chosen[block as usize], fault)
    }
}
