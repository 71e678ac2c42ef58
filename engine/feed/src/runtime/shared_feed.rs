//! State that workers and consumer share.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use forebay_model::{Fault, Result, codes};
use forebay_threads::sync::atomic::{AtomicBool, Ordering};
use forebay_threads::sync::{Condvar, Mutex, MutexGuard};

use super::block_source::BlockSource;
use super::chunk_stream::ChunkStream;
use super::schedule::{BatchJob, BatchSchedule};
use super::stats::{LoadCounts, ReportDuplicates, WorkerTimes};
use super::tile_pool::TilePool;
use crate::slot::{SeriesPacker, SlotAllocator, SlotMemory, TilePacker};
use crate::{DeliveryDigest, RowSequence};

/// State that workers and consumer share.
pub(super) struct SharedFeed {
    pub sources: Vec<Arc<dyn BlockSource>>,
    pub sequence: RowSequence,
    pub schedule: BatchSchedule,
    /// The columns that are read.
    pub columns: Vec<String>,
    pub packer: TilePacker,
    pub series: Option<SeriesPacker>,
    /// Fills slots straight from columns, without records.
    pub straight: bool,
    pub receipts: bool,
    /// Hears of the first rows with the keys and the time of a row before them.
    pub on_duplicates: Option<ReportDuplicates>,
    /// The epoch that the feed began with.
    pub first_epoch: u64,
    pub pool: Arc<TilePool>,
    pub allocator: Arc<dyn SlotAllocator>,
    /// Slots that are filled ahead.
    pub slots: usize,
    /// Slots at most, those included that a consumer holds.
    pub slots_max: usize,
    pub state: Mutex<FeedState>,
    /// Notified when there is a task for workers.
    pub workers: Condvar,
    /// Notified when there is a batch or a fault for the consumer.
    pub consumer: Condvar,
    pub over: AtomicBool,
}

/// The part of the state that changes, behind a lock.
pub(super) struct FeedState {
    pub streams: Vec<ChunkStream>,
    /// The batch that is filled next.
    pub next: u64,
    pub free: Vec<Box<dyn SlotMemory>>,
    /// All slots.
    pub slots: usize,
    /// Slots that are being filled.
    pub filling: usize,
    pub ready: BTreeMap<u64, FilledBatch>,
    pub fault: Option<Fault>,
    pub times: WorkerTimes,
    /// Changed values of all rows that were read.
    pub counts: LoadCounts,
    /// Changed values of the rows of the first epoch.
    pub first_counts: LoadCounts,
}

/// A batch that waits for the consumer.
pub(super) struct FilledBatch {
    pub job: BatchJob,
    pub slot: Box<dyn SlotMemory>,
    pub receipt: DeliveryDigest,
}

impl SharedFeed {
    pub fn lock(&self) -> MutexGuard<'_, FeedState> {
        // A worker that panicked has left a fault, and the state is only counts and queues.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the changed values of a unit that was read whole.
    pub fn add_counts(&self, epoch: u64, counts: &LoadCounts) {
        let mut state = self.lock();
        let is_first = state.counts.values.duplicates == 0 && counts.values.duplicates > 0;
        state.counts.add(counts);
        if epoch == self.first_epoch {
            state.first_counts.add(counts);
        }
        drop(state);
        if is_first && let Some(report) = &self.on_duplicates {
            report(counts.values.duplicates);
        }
    }

    /// True once the feed has ended: no further batches are needed.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the feed: workers stop at the next opportunity.
    pub fn stop(&self) {
        let _state = self.lock();
        self.over.store(true, Ordering::Relaxed);
        self.workers.notify_all();
        self.consumer.notify_all();
    }

    /// Ends the feed with a fault; the first one counts.
    pub fn fail(&self, state: &mut FeedState, fault: Fault) {
        state.fault.get_or_insert(fault);
        self.workers.notify_all();
        self.consumer.notify_all();
    }

    /// Takes a slot back from the consumer.
    pub fn give_back(&self, slot: Box<dyn SlotMemory>) {
        let mut state = self.lock();
        if state.slots > self.slots {
            // One more was made while the consumer held all: now it is one too many.
            state.slots -= 1;
            return;
        }
        state.free.push(slot);
        self.workers.notify_one();
    }

    /// Adds a slot for a consumer that holds all of them.
    pub fn add_slot(&self, state: &mut FeedState) -> Result<()> {
        if state.slots >= self.slots_max {
            let message = format!("all {} batches are held by the consumer", state.slots);
            return Err(Fault::new(codes::MEMORY, message).hint(
                "drop each batch, or copy what you keep, before the next ones; \
                 or raise `slots_max`",
            ));
        }
        let slot = self.allocator.allocate(self.packer.layout.bytes)?;
        state.free.push(slot);
        state.slots += 1;
        self.workers.notify_all();
        Ok(())
    }
}
