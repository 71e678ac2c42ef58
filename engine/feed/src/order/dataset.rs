//! Blocks of a dataset, as the order needs them.

use std::sync::Arc;

use forebay_model::{ContentId, Fault, Result, codes};

/// The piece of a dataset that is read at once: a row group, or a part of one. The smaller the
/// blocks, the more of them a window of the same memory mixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetBlock {
    /// Number of rows that it delivers.
    pub rows: u64,
    /// Number of rows that are read with these and not delivered: earlier rows of their series. They
    /// come first, unless a column marks them; then this is the most there can be.
    pub halo: u64,
    /// Stored bytes, for rates.
    pub bytes: u64,
    /// First and last time of its rows, if the source has them.
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
        let mut starts = Vec::with_capacity(blocks.len() + 1);
        starts.push(0);
        for block in blocks.iter() {
            rows += block.rows;
            starts.push(rows);
        }
        BlockDataset {
            fingerprint,
            starts: starts.into(),
            blocks,
        }
    }

    /// A hash that changes when a row changes.
    pub fn fingerprint(&self) -> ContentId {
        self.fingerprint
    }

    /// Number of blocks.
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
        for (number, block) in self.blocks.iter().enumerate() {
            if block.rows == 0 {
                continue;
            }
            let Some((first, last)) = block.time else {
                let message = format!("block {number} does not tell the times of its rows");
                return Err(Fault::new(codes::UNSUPPORTED, message).hint(
                    "order the rows as `sequential`, \
                     or write the data with statistics of its time column",
                ));
            };
            times.push((first, last, number as u32));
        }
        times.sort_unstable();
        for pair in times.windows(2) {
            let (_, end, block) = pair[0];
            let (start, _, next_block) = pair[1];
            if end > start {
                let message =
                    format!("blocks {block} and {next_block} overlap in time: {start} to {end}");
                let fault = Fault::new(codes::OUT_OF_ORDER, message);
                return Err(
                    fault.hint("write the data sorted by time, or order the rows as `sequential`")
                );
            }
        }
        Ok(times.into_iter().map(|(_, _, block)| block).collect())
    }
}
