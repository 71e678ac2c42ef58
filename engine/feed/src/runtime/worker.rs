//! State that workers and consumer share, and the choice of the next task.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use forebay_model::{Fault, Result, catch_panic, codes};
use forebay_threads::sync::atomic::{AtomicBool, Ordering};
use forebay_threads::sync::{Condvar, Mutex, MutexGuard};

use super::block_source::BlockSource;
use super::chunk_load::{UnitLoad, load_unit};
use super::chunk_stream::{ChunkStream, ReadyChunk};
use super::schedule::{BatchJob, BatchSchedule};
use super::slot_fill::{FillBuffers, fill_slot};
use super::stats::{LoadCounts, ReportDuplicates, WorkerTimes};
use super::tile_pool::{PartRows, TilePool};
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

/// A task of a worker.
enum FeedTask {
    Fill(BatchJob, Vec<Vec<Arc<ReadyChunk>>>, Box<dyn SlotMemory>),
    Load(UnitLoad),
}

/// The outcome of a worker's task.
enum FeedTaskOutcome {
    Filled(FilledBatch),
    /// The fault leaves the slot behind.
    Unfilled(Box<dyn SlotMemory>, Fault),
    Loaded(UnitLoad, Vec<PartRows>),
    Failed(Fault),
    Over,
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

    /// Works until the feed is over.
    pub fn run(&self) {
        let _guard = PanicGuard(self);
        let mut buffers = FillBuffers::default();
        let mut state = self.lock();
        loop {
            if self.is_over() || state.fault.is_some() {
                return;
            }
            let Some(task) = self.next(&mut state) else {
                // Without a free slot the consumer is the slow part.
                let full = state.free.is_empty();
                let begin = Instant::now();
                state = self
                    .workers
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                if full {
                    state.times.producer_wait += begin.elapsed();
                }
                continue;
            };
            drop(state);
            let mut times = WorkerTimes::default();
            let outcome = self.perform(task, &mut buffers, &mut times);
            state = self.lock();
            state.times += times;
            self.finish(&mut state, outcome);
        }
    }

    fn next(&self, state: &mut FeedState) -> Option<FeedTask> {
        let job = self.schedule.job(state.next)?;
        // Filling a batch comes before reading ahead: the consumer may be waiting for it.
        if !state.free.is_empty()
            && let Some(chunks) = self.chunks(state, &job)
            && let Some(slot) = state.free.pop()
        {
            state.next += 1;
            state.filling += 1;
            return Some(FeedTask::Fill(job, chunks, slot));
        }
        for (dataset, stream) in state.streams.iter_mut().enumerate() {
            let turns = self.sequence.turns_of(dataset as u32, job.places.clone());
            if let Some(load) = stream.next_load(&self.sequence, turns.end) {
                // Before another thread can take one of these blocks.
                let blocks = stream.blocks_ahead(&self.sequence, &load);
                self.sources[dataset].announce(&blocks);
                return Some(FeedTask::Load(load));
            }
        }
        None
    }

    /// The chunks of each dataset that a batch needs, if all of them are ready.
    fn chunks(&self, state: &mut FeedState, job: &BatchJob) -> Option<Vec<Vec<Arc<ReadyChunk>>>> {
        let mut chunks = Vec::with_capacity(state.streams.len());
        for (dataset, stream) in state.streams.iter_mut().enumerate() {
            let turns = self.sequence.turns_of(dataset as u32, job.places.clone());
            chunks.push(stream.take(&self.sequence, turns)?);
        }
        Some(chunks)
    }

    fn perform(
        &self,
        task: FeedTask,
        buffers: &mut FillBuffers,
        times: &mut WorkerTimes,
    ) -> FeedTaskOutcome {
        match task {
            FeedTask::Load(task) => match catch_panic(|| load_unit(self, &task, times)) {
                Ok(Some(parts)) => FeedTaskOutcome::Loaded(task, parts),
                Ok(None) => FeedTaskOutcome::Over,
                Err(fault) => FeedTaskOutcome::Failed(fault),
            },
            FeedTask::Fill(job, chunks, mut slot) => {
                let begin = Instant::now();
                let filled =
                    catch_panic(|| fill_slot(self, &job, &chunks, slot.bytes_mut()?, buffers));
                times.filling += begin.elapsed();
                match filled {
                    Ok(receipt) => FeedTaskOutcome::Filled(FilledBatch { job, slot, receipt }),
                    Err(fault) => FeedTaskOutcome::Unfilled(slot, fault),
                }
            }
        }
    }

    fn finish(&self, state: &mut FeedState, outcome: FeedTaskOutcome) {
        match outcome {
            FeedTaskOutcome::Filled(filled) => {
                state.filling -= 1;
                state.ready.insert(filled.job.number, filled);
                self.consumer.notify_all();
            }
            FeedTaskOutcome::Unfilled(slot, fault) => {
                state.filling -= 1;
                state.free.push(slot);
                self.fail(state, fault);
            }
            FeedTaskOutcome::Loaded(load, parts) => {
                if let Some(stream) = state.streams.get_mut(load.dataset as usize) {
                    stream.loaded(&load, parts);
                }
            }
            FeedTaskOutcome::Failed(fault) => self.fail(state, fault),
            FeedTaskOutcome::Over => {}
        }
        self.workers.notify_all();
    }

    fn fail(&self, state: &mut FeedState, fault: Fault) {
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

/// Reports a worker that panics outside its tasks to the consumer: the batches that are being filled may be its own.
struct PanicGuard<'a>(&'a SharedFeed);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.filling = 0;
            self.0
                .fail(&mut state, Fault::internal("a thread of the feed panicked"));
        }
    }
}
