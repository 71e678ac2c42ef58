//! Helpers: threads that have no range, or none any more. They read rows ahead for those that have one, and do the
//! work that those leave, piece by piece.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use forebay_model::{Chunk, Fault, Result};

use super::order::{Columns, Sequence, Task};
use super::{lock, poisoned};
use crate::Chunks;

/// Chunks that wait for a range at most, as far as memory allows as many.
const AHEAD_MAX: usize = 16;

/// With fewer, a range may soon have to wait: reading comes first.
const AHEAD_MIN: usize = 2;

/// Work that is left for others and waits at most: who leaves more does some of it.
const LEFT_MAX: usize = 1;

/// Chunks of a task in row order.
pub(crate) type Rows<'r> = Box<dyn Iterator<Item = Result<Chunk>> + 'r>;

/// Where a range gets its rows.
pub(crate) trait Reads {
    /// The chunks of a task.
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>>;
}

/// Gives each range where it gets its rows.
pub(super) type ReadsOf<'f, 'r> = &'f (dyn Fn(usize) -> Box<dyn Reads + 'r> + Sync);

/// Does a piece of work.
pub(super) type Work<'f, T> = &'f (dyn Fn(&T, usize) -> Result<()> + Sync);

/// What there is to do for threads without a range; `T` is work that those with one leave.
pub(super) struct Helpers<'a, T> {
    sequence: &'a Sequence<'a>,
    work: Work<'a, T>,
    /// Bytes of chunks that wait for a range at most.
    bytes_max: usize,
    state: Mutex<State<T>>,
    moved: Condvar,
}

struct State<T> {
    queues: Vec<Queue>,
    /// Work with the pieces that nobody has begun.
    left: VecDeque<(Arc<T>, Range<usize>)>,
    /// Threads that may leave work.
    leaving: usize,
    /// Threads that do what there is to do.
    helping: usize,
    /// Somebody who read will never say what came.
    is_broken: bool,
}

/// What a range reads, in order.
#[derive(Default)]
struct Queue {
    readings: Vec<(Task, Columns)>,
    /// How many of them are read.
    read: usize,
    /// How many of them the range began with.
    taken: usize,
    open: Option<Chunks>,
    is_reading: bool,
    /// Chunks; `None` ends those of a task.
    ready: VecDeque<Option<Result<Chunk>>>,
    bytes: usize,
}

impl Queue {
    fn wants(&self, chunks: usize, bytes_max: usize) -> bool {
        let has_room = self.ready.is_empty() || (self.ready.len() < chunks && self.bytes < bytes_max);
        !self.is_reading && self.read < self.readings.len() && has_room
    }

    fn put(&mut self, open: Option<Chunks>, chunk: Option<Result<Chunk>>) {
        (self.open, self.is_reading) = (open, false);
        match &chunk {
            Some(Ok(chunk)) => self.bytes += bytes_of(chunk),
            // Nobody asks for what comes after a failure.
            Some(Err(_)) => self.read = self.readings.len(),
            None => self.read += 1,
        }
        self.ready.push_back(chunk);
    }

    fn take(&mut self) -> Option<Option<Result<Chunk>>> {
        let next = self.ready.pop_front()?;
        if let Some(Ok(chunk)) = &next {
            self.bytes -= bytes_of(chunk);
        }
        Some(next)
    }
}

fn bytes_of(chunk: &Chunk) -> usize {
    chunk.batch.get_array_memory_size()
}

impl<'a, T> Helpers<'a, T> {
    /// For ranges that read these tasks, each in order, done by so many threads.
    pub fn new(
        sequence: &'a Sequence<'a>,
        work: Work<'a, T>,
        ranges: Vec<Vec<(Task, Columns)>>,
        (threads, bytes_max): (usize, usize),
    ) -> Self {
        let queues = ranges.into_iter().map(|readings| Queue { readings, ..Queue::default() }).collect();
        let state = State { queues, left: VecDeque::new(), leaving: threads, helping: 0, is_broken: false };
        Helpers { sequence, work, bytes_max, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Where a range gets its rows.
    pub fn reads(&self, range: usize) -> Ahead<'_, 'a, T> {
        Ahead { helpers: self, range }
    }

    /// Leaves work of so many pieces to others, as far as they come to it.
    pub fn leave(&self, work: T, pieces: usize) -> Result<()> {
        let mut state = lock(&self.state)?;
        if state.helping == 0 {
            drop(state);
            return (0..pieces).try_for_each(|piece| (self.work)(&work, piece));
        }
        state.left.push_back((Arc::new(work), 0..pieces));
        self.moved.notify_all();
        while state.left.len() > LEFT_MAX {
            state = self.work(state)?;
        }
        Ok(())
    }

    /// Does what a thread has to do itself, and then helps others.
    pub fn help_after(&self, own: &dyn Fn() -> Result<()>) -> Result<()> {
        let leaving = Leaving(self);
        let done = own();
        drop(leaving);
        done?;
        self.help()
    }

    /// Does what there is to do, until nobody leaves anything any more.
    pub fn help(&self) -> Result<()> {
        let mut state = lock(&self.state)?;
        state.helping += 1;
        loop {
            let open = state.leaving > 0;
            let wanting = |chunks| {
                let queues = state.queues.iter().enumerate();
                let wanting = queues.filter(|(_, queue)| open && queue.wants(chunks, self.bytes_max));
                wanting.min_by_key(|(_, queue)| queue.ready.len()).map(|(range, _)| range)
            };
            let (soon, later) = (wanting(AHEAD_MIN), wanting(AHEAD_MAX));
            state = if let Some(range) = soon {
                self.read(state, range)?
            } else if !state.left.is_empty() {
                self.work(state)?
            } else if let Some(range) = later {
                self.read(state, range)?
            } else if !open {
                return Ok(());
            } else {
                self.moved.wait(state).map_err(|_| poisoned())?
            };
        }
    }

    /// Does the next piece of the work that waits.
    fn work<'s>(&'s self, mut state: MutexGuard<'s, State<T>>) -> Result<MutexGuard<'s, State<T>>> {
        let Some((work, pieces)) = state.left.front_mut() else { return Ok(state) };
        let (work, piece) = (work.clone(), pieces.next());
        if pieces.start == pieces.end {
            state.left.pop_front();
        }
        drop(state);
        piece.map_or(Ok(()), |piece| (self.work)(&work, piece))?;
        // What it held goes with the last piece.
        drop(work);
        lock(&self.state)
    }

    /// Reads the next chunk of a range.
    fn read<'s>(&'s self, mut state: MutexGuard<'s, State<T>>, range: usize) -> Result<MutexGuard<'s, State<T>>> {
        let reading = &mut state.queues[range];
        reading.is_reading = true;
        let (open, (task, columns)) = (reading.open.take(), reading.readings[reading.read]);
        drop(state);
        let broken = Broken(self);
        let opened = open.map_or_else(|| self.sequence.open(task, columns), Ok);
        let (open, chunk) = match opened {
            Err(fault) => (None, Some(Err(fault))),
            Ok(mut chunks) => {
                let next = chunks.next();
                (next.is_some().then_some(chunks), next)
            }
        };
        std::mem::forget(broken);
        let mut state = lock(&self.state)?;
        state.queues[range].put(open, chunk);
        self.moved.notify_all();
        Ok(state)
    }
}

/// Tells those who wait that a thread leaves nothing any more, however it ended.
struct Leaving<'b, 'a, T>(&'b Helpers<'a, T>);

impl<T> Drop for Leaving<'_, '_, T> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.leaving -= 1;
        }
        self.0.moved.notify_all();
    }
}

/// Tells those who wait, if a thread ends while it reads.
struct Broken<'b, 'a, T>(&'b Helpers<'a, T>);

impl<T> Drop for Broken<'_, '_, T> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.is_broken = true;
        }
        self.0.moved.notify_all();
    }
}

/// The rows of a range, of which others read some ahead.
pub(super) struct Ahead<'b, 'a, T> {
    helpers: &'b Helpers<'a, T>,
    range: usize,
}

impl<T> Reads for Ahead<'_, '_, T> {
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>> {
        let mut state = lock(&self.helpers.state)?;
        let queue = &mut state.queues[self.range];
        if queue.readings.get(queue.taken) != Some(&(task, columns)) {
            // Nobody knew that this would be read.
            drop(state);
            return Ok(self.helpers.sequence.open(task, columns)?);
        }
        queue.taken += 1;
        Ok(Box::new(std::iter::from_fn(|| self.next().unwrap_or_else(|fault| Some(Err(fault))))))
    }
}

impl<T> Ahead<'_, '_, T> {
    fn next(&self) -> Result<Option<Result<Chunk>>> {
        let mut state = lock(&self.helpers.state)?;
        loop {
            if let Some(next) = state.queues[self.range].take() {
                self.helpers.moved.notify_all();
                return Ok(next);
            }
            state = match (state.is_broken, state.queues[self.range].is_reading) {
                (true, _) => return Err(poisoned()),
                (false, true) => self.helpers.moved.wait(state).map_err(|_| poisoned())?,
                // Others have more to do.
                (false, false) if state.queues[self.range].wants(1, usize::MAX) => {
                    self.helpers.read(state, self.range)?
                }
                (false, false) => return Err(Fault::internal("rows are read that nobody wants")),
            };
        }
    }
}
