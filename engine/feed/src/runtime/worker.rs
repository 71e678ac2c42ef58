//! Work of a thread of the feed: the choice of its next task, and the task.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use forebay_model::{Fault, catch_panic};

use super::chunk_load::load_unit;
use super::chunk_stream::ReadyChunk;
use super::schedule::BatchJob;
use super::shared_feed::{FeedState, FilledBatch, SharedFeed};
use super::slot_fill::{FillBuffers, fill_slot};
use super::stats::WorkerTimes;
use super::tile_pool::PartRows;
use super::unit_load::UnitLoad;
use crate::slot::SlotMemory;

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
