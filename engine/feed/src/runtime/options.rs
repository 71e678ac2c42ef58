//! What a feed is asked for.

use std::sync::Arc;

use forebay_model::{BATCH_ROWS_DEFAULT, Fault, Result, codes};

use super::block_source::BlockSource;
use crate::slot::{BatchFeatures, BatchLayout, HostMemory, SlotAllocator};
use crate::{FeedCursor, OrderMode, RemainderPolicy, RowSequence, SampleOrder};

/// What a feed is asked for: which rows in which order, and how they are delivered.
#[derive(Clone)]
pub struct FeedOptions {
    /// One dataset, or several that the order mixes.
    pub sources: Vec<Arc<dyn BlockSource>>,
    /// What a batch consists of.
    pub features: BatchFeatures,
    /// The order of rows.
    pub order: SampleOrder,
    /// Where to go on; its order takes the place of `order`.
    pub cursor: Option<FeedCursor>,
    /// The first epoch that is delivered, where there is no cursor.
    pub first_epoch: u64,
    /// Epochs are delivered up to this one.
    pub epochs: u64,
    /// Rows of a batch.
    pub batch_rows: u32,
    /// What becomes of rows that do not fill a last step.
    pub last: RemainderPolicy,
    /// Which of the consumers this is.
    pub rank: u32,
    /// How many consumers share the rows. Rows of every block belong to every one of them, so that
    /// each reads all blocks.
    pub world: u32,
    /// Threads that read, pack and fill.
    pub threads: usize,
    /// Batches that are filled ahead.
    pub slots: usize,
    /// Batches at most, those included that the consumer holds on to.
    pub slots_max: usize,
    /// Units that are read ahead of the window.
    pub read_ahead: u32,
    /// Where slots come from.
    pub allocator: Arc<dyn SlotAllocator>,
    /// Whether batches carry receipts.
    pub receipts: bool,
    /// Bytes that the rows which the feed holds may take at most.
    pub memory_max: Option<u64>,
}

impl FeedOptions {
    /// One epoch of these sources in this order, for one consumer.
    pub fn new(
        sources: Vec<Arc<dyn BlockSource>>,
        features: BatchFeatures,
        order: SampleOrder,
    ) -> FeedOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        FeedOptions {
            sources,
            features,
            order,
            cursor: None,
            first_epoch: 0,
            epochs: 1,
            batch_rows: BATCH_ROWS_DEFAULT as u32,
            last: RemainderPolicy::Drop,
            rank: 0,
            world: 1,
            threads,
            slots: 6,
            slots_max: 64,
            read_ahead: threads as u32,
            allocator: Arc::new(HostMemory),
            receipts: false,
            memory_max: None,
        }
    }

    /// Shuffles through the largest window with which the feed stays within so much memory.
    pub fn fit_window(&mut self, memory_bytes: u64) -> Result<()> {
        let layout = BatchLayout::new(&self.features, self.batch_rows as usize)?;
        let fixed = self.memory_bytes(&layout, 0);
        let row = layout.window_row_bytes(&self.features) as u64 * self.sources.len() as u64;
        let window_rows = memory_bytes.saturating_sub(fixed) / row.max(1);
        if window_rows == 0 {
            return Err(Fault::new(
                codes::MEMORY,
                format!("{memory_bytes} bytes of memory leave no room to shuffle: the feed needs {fixed} without it"),
            )
            .hint("raise the memory, lower `batch_rows` or `slots`, or write the data in smaller row groups"));
        }
        self.order.mode = OrderMode::Shuffled { window_rows };
        Ok(())
    }

    /// Bytes of rows that the feed would hold at most, beside what reading a block takes.
    pub fn held_bytes(&self) -> Result<u64> {
        let order = self
            .cursor
            .as_ref()
            .map_or(&self.order, |cursor| &cursor.order);
        let window_rows = match order.mode {
            OrderMode::Shuffled { window_rows } => window_rows,
            OrderMode::Sequential | OrderMode::Time => 0,
        };
        let rows = self.sequence()?.epoch_rows();
        let layout = BatchLayout::new(&self.features, self.batch_rows as usize)?;
        Ok(self.memory_bytes(&layout, window_rows.min(rows)))
    }

    /// Where a feed of this begins, without starting it.
    pub fn beginning(&self) -> Result<FeedCursor> {
        Ok(self
            .cursor
            .clone()
            .unwrap_or(FeedCursor::start(&self.sequence()?).at(self.first_epoch, 0)))
    }

    /// The rows in the order that a feed of this delivers.
    pub fn sequence(&self) -> Result<RowSequence> {
        let order = self
            .cursor
            .as_ref()
            .map_or(&self.order, |cursor| &cursor.order);
        order.bind(self.sources.iter().map(|source| source.dataset()).collect())
    }

    /// Units beyond the window that there is room for: beside those that are ahead, each thread may be reading one.
    /// Otherwise, threads would wait for each other.
    pub(super) fn ahead(&self) -> u64 {
        u64::from(self.read_ahead) + self.threads as u64
    }

    pub(super) fn memory_bytes(&self, layout: &BatchLayout, window_rows: u64) -> u64 {
        let blocks = self.sources.iter().flat_map(|source| {
            let dataset = source.dataset();
            let blocks = (0..dataset.blocks() as u32).map(|block| dataset.block(block).clone());
            // What comes with the rows of a block is held with them.
            let all: u64 = blocks.clone().map(|block| block.rows + block.halo).sum();
            let window = window_rows as f64 * all as f64 / dataset.rows().max(1) as f64;
            Some((
                window.ceil() as u64,
                blocks.map(|block| block.rows + block.halo).max()?,
            ))
        });
        // And the one that is being delivered.
        let ahead = self.ahead() + 1;
        let (held, window) = (
            layout.held_bytes as u64,
            layout.window_row_bytes(&self.features) as u64,
        );
        let rows: u64 = blocks
            .map(|(rows, widest)| rows * window + ahead * widest * held)
            .sum();
        rows + (self.slots * layout.bytes) as u64
    }
}
