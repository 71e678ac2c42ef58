//! What the order must know of a dataset: its blocks.

use std::sync::Arc;

use forebay_model::{ContentId, Fault, Result, codes};

/// The piece of a dataset that is read at once: a row group, or a part of one. The smaller the
/// blocks, the more of them a window of the same memory mixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetBlock {
    /// How many rows it delivers.
    pub rows: u64,
    /// How many rows that are not delivered come with these when it is read: what series had before. They
    /// come first, unless a column tells which they are; then it is so many at most.
    pub halo: u64,
    /// Stored bytes, for rates.
    pub bytes: u64,
    /// First and last time of its rows, where known.
    pub time: Option<(i64, i64)>,
}

/// The blocks of a dataset and its fingerprint.
#[derive(Debug, Clone)]
pub struct BlockDataset {
    fingerprint: ContentId,
    blocks: Arc<[DatasetBlock]>,
    /// Rows before each block, and all rows.
    starts: Arc<[u64]>,
}

impl BlockDataset {
    /// A dataset of these blocks.
    pub fn new(fingerprint: ContentId, blocks: impl Into<Arc<[DatasetBlock]>>) -> BlockDataset {
        let blocks = blocks.into();
        let mut rows = 0;
        let starts = std::iter::once(0).chain(blocks.iter().map(|block| {
            rows += block.rows;
            rows
        }));
        BlockDataset {
            fingerprint,
            starts: starts.collect(),
            blocks,
        }
    }

    /// What changes when a row changes.
    pub fn fingerprint(&self) -> ContentId {
        self.fingerprint
    }

    /// How many blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// One block.
    pub fn block(&self, block: u32) -> &DatasetBlock {
        &self.blocks[block as usize]
    }

    /// Rows of a block.
    pub fn block_rows(&self, block: u32) -> u64 {
        self.blocks[block as usize].rows
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.starts[self.blocks.len()]
    }

    /// The number of a row in the dataset as it lies.
    pub fn row(&self, block: u32, row: u64) -> u64 {
        self.starts[block as usize] + row
    }

    /// The blocks in order of time.
    pub(super) fn blocks_by_time(&self) -> Result<Vec<u32>> {
        let mut times = Vec::with_capacity(self.blocks.len());
        for (block, meta) in self
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, meta)| meta.rows > 0)
        {
            let Some((first, last)) = meta.time else {
                return Err(Fault::new(
                    codes::UNSUPPORTED,
                    format!("block {block} does not tell the times of its rows"),
                )
                .hint("order the rows as `sequential`, or write the data with statistics of its time column"));
            };
            times.push((first, last, block as u32));
        }
        times.sort_unstable();
        match times.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(Fault::new(
                codes::OUT_OF_ORDER,
                format!(
                    "blocks {} and {} overlap in time: {} to {}",
                    pair[0].2, pair[1].2, pair[1].0, pair[0].1
                ),
            )
            .hint("write the data sorted by time, or order the rows as `sequential`")),
            None => Ok(times.into_iter().map(|(_, _, block)| block).collect()),
        }
    }
}
