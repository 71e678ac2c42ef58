//! What workers and consumer share, and who does what next.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use forebay_model::{Fault, Result, caught, codes};
use forebay_threads::sync::atomic::{AtomicBool, Ordering};
use forebay_threads::sync::{Condvar, Mutex, MutexGuard};

use super::blocks::Blocks;
use super::fill::{Scratch, fill};
use super::held::{Held, Pool};
use super::load::{Load, load};
use super::schedule::{Job, Schedule};
use super::stats::Times;
use super::stream::{Ready, Stream};
use crate::slot::{Packer, SeriesPacker, SlotAllocator, SlotMemory};
use crate::{Receipt, Sequence};

/// What workers and consumer share.
pub(super) struct Work {
    pub sources: Vec<Arc<dyn Blocks>>,
    pub sequence: Sequence,
    pub schedule: Schedule,
    /// The columns that are read.
    pub columns: Vec<String>,
    pub packer: Packer,
    pub series: Option<SeriesPacker>,
    /// Whether slots are filled straight from columns, without records.
    pub straight: bool,
    pub receipts: bool,
    pub pool: Arc<Pool>,
    pub allocator: Arc<dyn SlotAllocator>,
    /// Slots that are filled ahead.
    pub slots: usize,
    /// Slots at most, those included that a consumer holds.
    pub slots_max: usize,
    pub state: Mutex<State>,
    /// Something to do for workers.
    pub workers: Condvar,
    /// Something new for the consumer.
    pub consumer: Condvar,
    pub over: AtomicBool,
}

/// What changes.
pub(super) struct State {
    pub streams: Vec<Stream>,
    /// The batch that is filled next.
    pub next: u64,
    pub free: Vec<Box<dyn SlotMemory>>,
    /// All slots.
    pub slots: usize,
    /// Slots that are being filled.
    pub filling: usize,
    pub ready: BTreeMap<u64, Filled>,
    pub fault: Option<Fault>,
    pub times: Times,
}

/// A batch that waits for the consumer.
pub(super) struct Filled {
    pub job: Job,
    pub slot: Box<dyn SlotMemory>,
    pub receipt: Receipt,
}

/// What a worker does next.
enum Task {
    Fill(Job, Vec<Vec<Arc<Ready>>>, Box<dyn SlotMemory>),
    Load(Load),
}

/// What a worker has done.
enum Done {
    Filled(Filled),
    /// The fault leaves the slot behind.
    Unfilled(Box<dyn SlotMemory>, Fault),
    Loaded(Load, Vec<Held>),
    Failed(Fault),
    Over,
}

impl Work {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panicked has left a fault, and the state is only counts and queues.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody wants further batches.
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
        let _guard = Guard(self);
        let mut scratch = Scratch::default();
        let mut state = self.lock();
        loop {
            if self.is_over() || state.fault.is_some() {
                return;
            }
            let Some(task) = self.next(&mut state) else {
                let full = state.free.is_empty();
                let begin = Instant::now();
                state = self.workers.wait(state).unwrap_or_else(PoisonError::into_inner);
                if full {
                    state.times.producer_wait += begin.elapsed();
                }
                continue;
            };
            drop(state);
            let mut times = Times::default();
            let done = self.perform(task, &mut scratch, &mut times);
            state = self.lock();
            state.times += times;
            self.finish(&mut state, done);
        }
    }

    fn next(&self, state: &mut State) -> Option<Task> {
        let job = self.schedule.job(state.next)?;
        if !state.free.is_empty()
            && let Some(chunks) = self.chunks(state, &job)
            && let Some(slot) = state.free.pop()
        {
            state.next += 1;
            state.filling += 1;
            return Some(Task::Fill(job, chunks, slot));
        }
        state.streams.iter_mut().enumerate().find_map(|(dataset, stream)| {
            let wanted = self.sequence.turns_of(dataset as u32, job.places.clone()).end;
            stream.next_load(&self.sequence, wanted).map(Task::Load)
        })
    }

    fn chunks(&self, state: &mut State, job: &Job) -> Option<Vec<Vec<Arc<Ready>>>> {
        let streams = state.streams.iter_mut().enumerate();
        streams
            .map(|(dataset, stream)| {
                stream.take(&self.sequence, self.sequence.turns_of(dataset as u32, job.places.clone()))
            })
            .collect()
    }

    fn perform(&self, task: Task, scratch: &mut Scratch, times: &mut Times) -> Done {
        match task {
            Task::Load(task) => match caught(|| load(self, &task, times)) {
                Ok(Some(held)) => Done::Loaded(task, held),
                Ok(None) => Done::Over,
                Err(fault) => Done::Failed(fault),
            },
            Task::Fill(job, chunks, mut slot) => {
                let begin = Instant::now();
                let filled = caught(|| fill(self, &job, &chunks, slot.bytes_mut()?, scratch));
                times.filling += begin.elapsed();
                match filled {
                    Ok(receipt) => Done::Filled(Filled { job, slot, receipt }),
                    Err(fault) => Done::Unfilled(slot, fault),
                }
            }
        }
    }

    fn finish(&self, state: &mut State, done: Done) {
        match done {
            Done::Filled(filled) => {
                state.filling -= 1;
                state.ready.insert(filled.job.number, filled);
                self.consumer.notify_all();
            }
            Done::Unfilled(slot, fault) => {
                state.filling -= 1;
                state.free.push(slot);
                self.fail(state, fault);
            }
            Done::Loaded(load, held) => {
                if let Some(stream) = state.streams.get_mut(load.dataset as usize) {
                    stream.loaded(&load, held);
                }
            }
            Done::Failed(fault) => self.fail(state, fault),
            Done::Over => {}
        }
        self.workers.notify_all();
    }

    fn fail(&self, state: &mut State, fault: Fault) {
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
    pub fn add_slot(&self, state: &mut State) -> Result<()> {
        if state.slots >= self.slots_max {
            return Err(Fault::new(codes::MEMORY, format!("all {} batches are held by the consumer", state.slots))
                .hint("drop each batch, or copy what you keep, before the next ones; or raise `slots_max`"));
        }
        state.free.push(self.allocator.allocate(self.packer.layout.bytes)?);
        state.slots += 1;
        self.workers.notify_all();
        Ok(())
    }
}

/// Tells the consumer of a worker that panics beside its tasks: those that are being filled may be its own.
struct Guard<'a>(&'a Work);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.filling = 0;
            self.0.fail(&mut state, Fault::internal("a thread of the feed panicked"));
        }
    }
}
