//! Options of a feed.

use std::sync::Arc;

use forebay_model::{BATCH_ROWS_DEFAULT, Fault, Result, codes};

use super::batch::FeedBatch;
use super::block_source::BlockSource;
use super::stats::ReportDuplicates;
use crate::slot::{BatchFeatures, BatchLayout, HostMemory, SlotAllocator};
use crate::{BatchPlan, FeedCursor, OrderMode, RemainderPolicy, RowSequence, SampleOrder};

/// Looks at a batch before it is delivered.
pub type InspectBatch = Arc<dyn Fn(&FeedBatch) + Send + Sync>;

/// Options of a feed: the rows, their order, and the form of batches.
#[derive(Clone)]
pub struct FeedOptions {
    /// One dataset, or several that the order mixes.
    pub sources: Vec<Arc<dyn BlockSource>>,
    /// The parts of a batch.
    pub features: BatchFeatures,
    /// The order of rows.
    pub order: SampleOrder,
    /// The position to resume from; its order takes the place of `order`.
    pub cursor: Option<FeedCursor>,
    /// The first epoch that is delivered, where there is no cursor.
    pub first_epoch: u64,
    /// Epochs are delivered up to this one.
    pub epochs: u64,
    /// Rows of a batch.
    pub batch_rows: u32,
    /// Treatment of rows that do not fill a last step.
    pub last: RemainderPolicy,
    /// The number of this consumer, from 0.
    pub rank: u32,
    /// Number of consumers that share the rows. Rows of every block belong to every one of them, so that
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
    /// The allocator of slots.
    pub allocator: Arc<dyn SlotAllocator>,
    /// Computes a receipt for each batch.
    pub receipts: bool,
    /// Most bytes of the rows that the feed holds.
    pub memory_max: Option<u64>,
    /// Looks at the first batch that is delivered.
    pub on_first_batch: Option<InspectBatch>,
    /// Hears of rows of sequences with the keys and the time of a row before them.
    pub on_duplicates: Option<ReportDuplicates>,
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
            on_first_batch: None,
            on_duplicates: None,
        }
    }

    /// Shuffles through the largest window with which the feed stays within so much memory.
    pub fn fit_window(&mut self, memory_bytes: u64) -> Result<()> {
        let layout = BatchLayout::new(&self.features, self.batch_rows as usize)?;
        let fixed = self.memory_bytes(&layout, 0);
        let row = layout.window_row_bytes(&self.features) as u64 * self.sources.len() as u64;
        let window_rows = memory_bytes.saturating_sub(fixed) / row.max(1);
        if window_rows == 0 {
            let message = format!(
                "{memory_bytes} bytes of memory leave no room to shuffle: \
                 the feed needs {fixed} without it"
            );
            return Err(Fault::new(codes::MEMORY, message).hint(
                "raise the memory, lower `batch_rows` or `slots`, \
                 or write the data in smaller row groups",
            ));
        }
        self.order.mode = OrderMode::Shuffled { window_rows };
        Ok(())
    }

    /// Bytes of rows that the feed would hold at most, without the memory for reading blocks.
    pub fn held_bytes(&self) -> Result<u64> {
        let order = self.effective_order();
        let window_rows = match order.mode {
            OrderMode::Shuffled { window_rows } => window_rows,
            OrderMode::Sequential | OrderMode::Time => 0,
        };
        let rows = self.sequence()?.epoch_rows();
        let layout = BatchLayout::new(&self.features, self.batch_rows as usize)?;
        Ok(self.memory_bytes(&layout, window_rows.min(rows)))
    }

    /// Refuses an epoch without a batch.
    pub fn require_batches(&self) -> Result<()> {
        let epoch = BatchPlan {
            rows: self.sequence()?.epoch_rows(),
            batch: self.batch_rows,
            world: self.world,
            last: self.last,
        };
        epoch.require_steps()
    }

    /// The first position of a feed with these options, without starting it.
    pub fn beginning(&self) -> Result<FeedCursor> {
        let start = FeedCursor::start(&self.sequence()?);
        match &self.cursor {
            Some(cursor) => Ok(cursor.clone()),
            None => Ok(start.at(self.first_epoch, 0)),
        }
    }

    /// The order of the cursor, or `order` without one.
    fn effective_order(&self) -> &SampleOrder {
        match &self.cursor {
            Some(cursor) => &cursor.order,
            None => &self.order,
        }
    }

    /// The rows in the order that a feed with these options delivers.
    pub fn sequence(&self) -> Result<RowSequence> {
        let datasets = self.sources.iter().map(|source| source.dataset());
        self.effective_order().bind(datasets.collect())
    }

    /// Units beyond the window that memory is reserved for: besides those that are ahead, each thread may be reading one.
    /// Otherwise, threads would wait for each other.
    pub(super) fn ahead(&self) -> u64 {
        u64::from(self.read_ahead) + self.threads as u64
    }

    pub(super) fn memory_bytes(&self, layout: &BatchLayout, window_rows: u64) -> u64 {
        // One more unit is being delivered.
        let units_ahead = self.ahead() + 1;
        let unit_row_bytes = layout.held_bytes as u64;
        let window_row_bytes = layout.window_row_bytes(&self.features) as u64;
        let mut bytes = 0;
        for source in &self.sources {
            let dataset = source.dataset();
            let mut read_rows = 0;
            let mut widest = 0;
            for number in 0..dataset.blocks() as u32 {
                // The halo of a block is held with its rows.
                let block = dataset.block(number);
                let rows = block.rows + block.halo;
                read_rows += rows;
                widest = widest.max(rows);
            }
            // The window counts delivered rows; the halos come on top in proportion.
            let read_per_row = read_rows as f64 / dataset.rows().max(1) as f64;
            let held_rows = (window_rows as f64 * read_per_row).ceil() as u64;
            bytes += held_rows * window_row_bytes + units_ahead * widest * unit_row_bytes;
        }
        bytes + (self.slots * layout.bytes) as u64
    }
}
