//! What workers and consumer share, and who does what next.

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
use super::stats::WorkerTimes;
use super::tile_pool::{PartRows, TilePool};
use crate::slot::{SeriesPacker, SlotAllocator, SlotMemory, TilePacker};
use crate::{DeliveryDigest, RowSequence};

/// What workers and consumer share.
pub(super) struct SharedFeed {
    pub sources: Vec<Arc<dyn BlockSource>>,
    pub sequence: RowSequence,
    pub schedule: BatchSchedule,
    /// The columns that are read.
    pub columns: Vec<String>,
    pub packer: TilePacker,
    pub series: Option<SeriesPacker>,
    /// Whether slots are filled straight from columns, without records.
    pub straight: bool,
    pub receipts: bool,
    pub pool: Arc<TilePool>,
    pub allocator: Arc<dyn SlotAllocator>,
    /// Slots that are filled ahead.
    pub slots: usize,
    /// Slots at most, those included that a consumer holds.
    pub slots_max: usize,
    pub state: Mutex<FeedState>,
    /// Something to do for workers.
    pub workers: Condvar,
    /// Something new for the consumer.
    pub consumer: Condvar,
    pub over: AtomicBool,
}

/// What changes.
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
}

/// A batch that waits for the consumer.
pub(super) struct FilledBatch {
    pub job: BatchJob,
    pub slot: Box<dyn SlotMemory>,
    pub receipt: DeliveryDigest,
}

/// What a worker does next.
enum FeedTask {
    Fill(BatchJob, Vec<Vec<Arc<ReadyChunk>>>, Box<dyn SlotMemory>),
    Load(UnitLoad),
}

/// What a worker has done.
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

    /// Whether the feed has ended: no further batches are wanted.
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
        let mut scratch = FillBuffers::default();
        let mut state = self.lock();
        loop {
            if self.is_over() || state.fault.is_some() {
                return;
            }
            let Some(task) = self.next(&mut state) else {
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
            let done = self.perform(task, &mut scratch, &mut times);
            state = self.lock();
            state.times += times;
            self.finish(&mut state, done);
        }
    }

    fn next(&self, state: &mut FeedState) -> Option<FeedTask> {
        let job = self.schedule.job(state.next)?;
        if !state.free.is_empty()
            && let Some(chunks) = self.chunks(state, &job)
            && let Some(slot) = state.free.pop()
        {
            state.next += 1;
            state.filling += 1;
            return Some(FeedTask::Fill(job, chunks, slot));
        }
        state
            .streams
            .iter_mut()
            .enumerate()
            .find_map(|(dataset, stream)| {
                let wanted = self
                    .sequence
                    .turns_of(dataset as u32, job.places.clone())
                    .end;
                let load = stream.next_load(&self.sequence, wanted)?;
                // Before another thread can take one of these blocks.
                let ahead = stream.blocks_ahead(&self.sequence, &load);
                self.sources[dataset].announce(&ahead);
                Some(FeedTask::Load(load))
            })
    }

    fn chunks(&self, state: &mut FeedState, job: &BatchJob) -> Option<Vec<Vec<Arc<ReadyChunk>>>> {
        let streams = state.streams.iter_mut().enumerate();
        streams
            .map(|(dataset, stream)| {
                stream.take(
                    &self.sequence,
                    self.sequence.turns_of(dataset as u32, job.places.clone()),
                )
            })
            .collect()
    }

    fn perform(
        &self,
        task: FeedTask,
        scratch: &mut FillBuffers,
        times: &mut WorkerTimes,
    ) -> FeedTaskOutcome {
        match task {
            FeedTask::Load(task) => match catch_panic(|| load_unit(self, &task, times)) {
                Ok(Some(held)) => FeedTaskOutcome::Loaded(task, held),
                Ok(None) => FeedTaskOutcome::Over,
                Err(fault) => FeedTaskOutcome::Failed(fault),
            },
            FeedTask::Fill(job, chunks, mut slot) => {
                let begin = Instant::now();
                let filled =
                    catch_panic(|| fill_slot(self, &job, &chunks, slot.bytes_mut()?, scratch));
                times.filling += begin.elapsed();
                match filled {
                    Ok(receipt) => FeedTaskOutcome::Filled(FilledBatch { job, slot, receipt }),
                    Err(fault) => FeedTaskOutcome::Unfilled(slot, fault),
                }
            }
        }
    }

    fn finish(&self, state: &mut FeedState, done: FeedTaskOutcome) {
        match done {
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
            FeedTaskOutcome::Loaded(load, held) => {
                if let Some(stream) = state.streams.get_mut(load.dataset as usize) {
                    stream.loaded(&load, held);
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

    /// A slot comes back from the consumer.
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

    /// A further slot for a consumer that holds all of them.
    pub fn add_slot(&self, state: &mut FeedState) -> Result<()> {
        if state.slots >= self.slots_max {
            return Err(Fault::new(codes::MEMORY, format!("all {} batches are held by the consumer", state.slots))
                .hint("drop each batch, or copy what you keep, before the next ones; or raise `slots_max`"));
        }
        state
            .free
            .push(self.allocator.allocate(self.packer.layout.bytes)?);
        state.slots += 1;
        self.workers.notify_all();
        Ok(())
    }
}

/// Tells the consumer of a worker that panics beside its tasks: those that are being filled may be its own.
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
