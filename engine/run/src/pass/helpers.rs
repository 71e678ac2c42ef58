//! Helpers: threads that have no range of their own. They read rows ahead for those that have one, and finish what
//! those computed.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use forebay_model::{Chunk, Fault, Result};

use super::order::{Columns, Sequence, Task};
use super::{lock, poisoned};
use crate::Chunks;

/// Chunks that wait for a range at most, as far as memory allows as many.
const AHEAD_MAX: usize = 16;

/// With fewer, a range may soon have to wait: reading comes first.
const AHEAD_MIN: usize = 2;

/// Computed work that waits at most: what comes then is finished by whoever computed it.
const COMPUTED_MAX: usize = 1;

/// Chunks of a task in row order.
pub(crate) type Rows<'r> = Box<dyn Iterator<Item = Result<Chunk>> + 'r>;

/// Where a range gets its rows.
pub(crate) trait Reads {
    /// The chunks of a task.
    fn chunks(&self, task: Task, columns: Columns) -> Result<Rows<'_>>;
}

/// Gives each range where it gets its rows.
pub(super) type ReadsOf<'f, 'r> = &'f (dyn Fn(usize) -> Box<dyn Reads + 'r> + Sync);

/// What there is to do for threads without a range; `T` is what was computed.
pub(super) struct Helpers<'a, T> {
    sequence: &'a Sequence<'a>,
    /// Computed work that waits at most: none where nobody would come for it.
    computed_max: usize,
    /// Bytes of chunks that wait for a range at most.
    bytes_max: usize,
    state: Mutex<State<T>>,
    moved: Condvar,
}

struct State<T> {
    queues: Vec<Queue>,
    computed: VecDeque<T>,
    /// Nothing is computed any more.
    is_over: bool,
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
    /// For ranges that read these tasks, each in order, and so many threads without one.
    pub fn new(
        sequence: &'a Sequence<'a>,
        ranges: Vec<Vec<(Task, Columns)>>,
        (threads, bytes_max): (usize, usize),
    ) -> Self {
        let queues = ranges.into_iter().map(|readings| Queue { readings, ..Queue::default() }).collect();
        let state = State { queues, computed: VecDeque::new(), is_over: false, is_broken: false };
        let computed_max = threads.min(COMPUTED_MAX);
        Helpers { sequence, computed_max, bytes_max, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Where a range gets its rows.
    pub fn reads(&self, range: usize) -> Ahead<'_, 'a, T> {
        Ahead { helpers: self, range }
    }

    /// Leaves something to be finished; gives it back where too much of that waits.
    pub fn leave(&self, computed: T) -> Result<Option<T>> {
        let mut state = lock(&self.state)?;
        if state.computed.len() >= self.computed_max {
            return Ok(Some(computed));
        }
        state.computed.push_back(computed);
        self.moved.notify_all();
        Ok(None)
    }

    /// Says that nothing is computed any more.
    pub fn end(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.is_over = true;
        }
        self.moved.notify_all();
    }

    /// Does what there is to do, until the end.
    pub fn help(&self, mut finish: impl FnMut(T) -> Result<()>) -> Result<()> {
        let mut state = lock(&self.state)?;
        loop {
            let open = !state.is_over;
            let wanting = |chunks| {
                let queues = state.queues.iter().enumerate();
                let wanting = queues.filter(|(_, queue)| open && queue.wants(chunks, self.bytes_max));
                wanting.min_by_key(|(_, queue)| queue.ready.len()).map(|(range, _)| range)
            };
            let (soon, later) = (wanting(AHEAD_MIN), wanting(AHEAD_MAX));
            state = if let Some(range) = soon {
                self.read(state, range)?
            } else if let Some(computed) = state.computed.pop_front() {
                drop(state);
                finish(computed)?;
                lock(&self.state)?
            } else if let Some(range) = later {
                self.read(state, range)?
            } else if state.is_over {
                return Ok(());
            } else {
                self.moved.wait(state).map_err(|_| poisoned())?
            };
        }
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
