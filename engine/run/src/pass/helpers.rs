//! Helpers: threads that have no range, or none any more. They read rows ahead for those that have one, compute parts
//! of the series beside them, and do the work that those leave, piece by piece.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use forebay_model::{Chunk, Fault, Result};
use forebay_plan::Budget;

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
    /// Work that is left, by its number.
    left: Mutex<BTreeMap<u64, Arc<T>>>,
    board: Arc<Board>,
}

/// What there is to do, and who does it.
struct Board {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    queues: Vec<Queue>,
    /// Numbers of work that is left, with the pieces that nobody has begun.
    left: VecDeque<(u64, Range<usize>)>,
    /// How much work was left ever.
    numbered: u64,
    /// What somebody waits for.
    beside: Vec<Beside>,
    /// Threads that may leave work.
    leaving: usize,
    /// Threads that do what there is to do.
    helping: usize,
    /// Somebody will never say what came of what they did.
    is_broken: bool,
}

/// Work that somebody does beside others.
struct Beside {
    work: Arc<dyn Fn(usize) + Send + Sync>,
    /// Pieces that nobody has begun.
    pieces: Range<usize>,
    /// Pieces that others are doing.
    begun: usize,
}

/// What a range reads, in order.
#[derive(Default)]
struct Queue {
    tasks: Vec<(Task, Columns)>,
    /// How many of them the range began with.
    taken: usize,
    /// How many of them it has all chunks of.
    done: usize,
    /// Those after them that somebody has begun to read.
    readings: VecDeque<Reading>,
    /// Chunks that wait for the range, and those that are being read.
    chunks: usize,
    bytes: usize,
}

/// A task that is read by one thread at a time.
#[derive(Default)]
struct Reading {
    open: Option<Chunks>,
    is_reading: bool,
    is_done: bool,
    ready: VecDeque<Result<Chunk>>,
}

impl Queue {
    /// Where there is something to read, if so many chunks may wait.
    fn next(&self, chunks: usize, bytes_max: usize) -> Option<usize> {
        let is_free = |reading: &Reading| !reading.is_reading && !reading.is_done;
        // Whatever waits, it waits for this.
        if self.readings.front().is_some_and(|first| is_free(first) && first.ready.is_empty()) {
            return Some(0);
        }
        if self.chunks > 0 && (self.chunks >= chunks || self.bytes >= bytes_max) {
            return None;
        }
        let new = || Some(self.readings.len()).filter(|place| self.done + place < self.tasks.len());
        self.readings.iter().position(is_free).or_else(new)
    }

    /// Begins to read there; gives the number of the task, and what is open of it.
    fn begin(&mut self, place: usize) -> (usize, Option<Chunks>) {
        if place == self.readings.len() {
            self.readings.push_back(Reading::default());
        }
        self.chunks += 1;
        self.readings[place].is_reading = true;
        (self.done + place, self.readings[place].open.take())
    }

    fn put(&mut self, number: usize, open: Option<Chunks>, chunk: Option<Result<Chunk>>) {
        let reading = &mut self.readings[number - self.done];
        (reading.open, reading.is_reading, reading.is_done) = (open, false, !matches!(chunk, Some(Ok(_))));
        match &chunk {
            Some(Ok(chunk)) => self.bytes += bytes_of(chunk),
            // Nobody asks for what comes after a failure.
            Some(Err(_)) => self.tasks.truncate(number + 1),
            None => self.chunks -= 1,
        }
        reading.ready.extend(chunk);
    }

    /// The next chunk, if it is there; `None` ends those of a task.
    fn take(&mut self) -> Option<Option<Result<Chunk>>> {
        let reading = self.readings.front_mut()?;
        match reading.ready.pop_front() {
            Some(chunk) => {
                self.chunks -= 1;
                self.bytes -= chunk.as_ref().map_or(0, bytes_of);
                Some(Some(chunk))
            }
            None if reading.is_done => {
                self.readings.pop_front();
                self.done += 1;
                Some(None)
            }
            None => None,
        }
    }
}

fn bytes_of(chunk: &Chunk) -> usize {
    chunk.batch.get_array_memory_size()
}

impl Board {
    /// Does pieces of work together with whoever helps; comes back when all are done.
    fn together(&self, pieces: usize, work: Arc<dyn Fn(usize) + Send + Sync>) {
        let Ok(mut state) = self.state.lock() else { return };
        if state.helping == 0 {
            drop(state);
            return (0..pieces).for_each(|piece| work(piece));
        }
        state.beside.push(Beside { work: work.clone(), pieces: 0..pieces, begun: 0 });
        self.moved.notify_all();
        loop {
            let place = state.beside.iter().position(|beside| Arc::ptr_eq(&beside.work, &work));
            let Some(place) = place else { return };
            let beside = &mut state.beside[place];
            match beside.pieces.next() {
                Some(piece) => {
                    drop(state);
                    work(piece);
                    let Ok(again) = self.state.lock() else { return };
                    state = again;
                }
                None if beside.begun == 0 || state.is_broken => {
                    state.beside.remove(place);
                    return;
                }
                None => {
                    let Ok(again) = self.moved.wait(state) else { return };
                    state = again;
                }
            }
        }
    }
}

impl<'a, T> Helpers<'a, T> {
    /// For ranges that read these tasks, each in order, done by so many threads.
    pub fn new(
        sequence: &'a Sequence<'a>,
        work: Work<'a, T>,
        ranges: Vec<Vec<(Task, Columns)>>,
        (threads, bytes_max): (usize, usize),
    ) -> Self {
        let queues = ranges.into_iter().map(|tasks| Queue { tasks, ..Queue::default() }).collect();
        let state = State {
            queues,
            left: VecDeque::new(),
            numbered: 0,
            beside: Vec::new(),
            leaving: threads,
            helping: 0,
            is_broken: false,
        };
        let board = Arc::new(Board { state: Mutex::new(state), moved: Condvar::new() });
        Helpers { sequence, work, bytes_max, left: Mutex::default(), board }
    }

    /// Where a range gets its rows.
    pub fn reads(&self, range: usize) -> Ahead<'_, 'a, T> {
        Ahead { helpers: self, range }
    }

    /// Lets so many idle threads compute parts of the series beside those that have so many ranges.
    pub fn beside(&self, budget: Budget, idle: usize, ranges: usize) -> Budget {
        let parts = 1 + idle / ranges.max(1);
        let board = self.board.clone();
        budget.with_beside(parts, Arc::new(move |pieces, work| board.together(pieces, work)))
    }

    /// Leaves work of so many pieces to others, as far as they come to it.
    pub fn leave(&self, work: T, pieces: usize) -> Result<()> {
        let mut state = lock(&self.board.state)?;
        if state.helping == 0 {
            drop(state);
            return (0..pieces).try_for_each(|piece| (self.work)(&work, piece));
        }
        let number = state.numbered;
        state.numbered += 1;
        lock(&self.left)?.insert(number, Arc::new(work));
        state.left.push_back((number, 0..pieces));
        self.board.moved.notify_all();
        while state.left.len() > LEFT_MAX {
            state = self.work(state)?;
        }
        Ok(())
    }

    /// Does what a thread has to do itself, and then helps others.
    pub fn help_after(&self, own: &dyn Fn() -> Result<()>) -> Result<()> {
        let leaving = Leaving(&self.board);
        let done = own();
        drop(leaving);
        done?;
        self.help()
    }

    /// Does what there is to do, until nobody leaves anything any more.
    pub fn help(&self) -> Result<()> {
        let mut state = lock(&self.board.state)?;
        state.helping += 1;
        loop {
            let open = state.leaving > 0;
            let wanting = |chunks| {
                let queues = state.queues.iter().enumerate().filter(|_| open);
                let wanting = queues.filter_map(|(range, queue)| {
                    let place = queue.next(chunks, self.bytes_max)?;
                    Some((queue.chunks, (range, place)))
                });
                wanting.min_by_key(|(waiting, _)| *waiting).map(|(_, place)| place)
            };
            let (soon, later) = (wanting(AHEAD_MIN), wanting(AHEAD_MAX));
            state = if let Some(beside) = state.beside.iter().position(|beside| !beside.pieces.is_empty()) {
                self.do_beside(state, beside)?
            } else if let Some(place) = soon {
                self.read(state, place)?
            } else if !state.left.is_empty() {
                self.work(state)?
            } else if let Some(place) = later {
                self.read(state, place)?
            } else if !open {
                return Ok(());
            } else {
                self.board.moved.wait(state).map_err(|_| poisoned())?
            };
        }
    }

    /// Does a piece of what somebody waits for.
    fn do_beside<'s>(&'s self, mut state: MutexGuard<'s, State>, place: usize) -> Result<MutexGuard<'s, State>> {
        let beside = &mut state.beside[place];
        let (work, piece) = (beside.work.clone(), beside.pieces.next());
        beside.begun += 1;
        drop(state);
        let broken = Broken(&self.board);
        piece.into_iter().for_each(|piece| work(piece));
        std::mem::forget(broken);
        let mut state = lock(&self.board.state)?;
        if let Some(beside) = state.beside.iter_mut().find(|beside| Arc::ptr_eq(&beside.work, &work)) {
            beside.begun -= 1;
        }
        // Who waits wants to be the only one that has it.
        drop(work);
        self.board.moved.notify_all();
        Ok(state)
    }

    /// Does the next piece of the work that waits.
    fn work<'s>(&'s self, mut state: MutexGuard<'s, State>) -> Result<MutexGuard<'s, State>> {
        let Some((number, pieces)) = state.left.front_mut() else { return Ok(state) };
        let (number, piece) = (*number, pieces.next());
        let is_last = pieces.start == pieces.end;
        let mut left = lock(&self.left)?;
        let work = if is_last { left.remove(&number) } else { left.get(&number).cloned() };
        drop(left);
        if is_last {
            state.left.pop_front();
        }
        drop(state);
        let work = work.ok_or_else(|| Fault::internal("work that nobody left"))?;
        piece.map_or(Ok(()), |piece| (self.work)(&work, piece))?;
        // What it held goes with the last piece.
        drop(work);
        lock(&self.board.state)
    }

    /// Reads a chunk of a range.
    fn read<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        (range, place): (usize, usize),
    ) -> Result<MutexGuard<'s, State>> {
        let queue = &mut state.queues[range];
        let (number, open) = queue.begin(place);
        let (task, columns) = queue.tasks[number];
        drop(state);
        let broken = Broken(&self.board);
        let opened = open.map_or_else(|| self.sequence.open(task, columns), Ok);
        let (open, chunk) = match opened {
            Err(fault) => (None, Some(Err(fault))),
            Ok(mut chunks) => {
                let next = chunks.next();
                (next.is_some().then_some(chunks), next)
            }
        };
        std::mem::forget(broken);
        let mut state = lock(&self.board.state)?;
        state.queues[range].put(number, open, chunk);
        self.board.moved.notify_all();
        Ok(state)
    }
}

/// Tells those who wait that a thread leaves nothing any more, however it ended.
struct Leaving<'b>(&'b Board);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.leaving -= 1;
        }
        self.0.moved.notify_all();
    }
}

/// Tells those who wait, if a thread ends while it reads or computes.
struct Broken<'b>(&'b Board);

impl Drop for Broken<'_> {
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
        let mut state = lock(&self.helpers.board.state)?;
        let queue = &mut state.queues[self.range];
        if queue.tasks.get(queue.taken) != Some(&(task, columns)) {
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
        let board = &self.helpers.board;
        let mut state = lock(&board.state)?;
        loop {
            if let Some(next) = state.queues[self.range].take() {
                board.moved.notify_all();
                return Ok(next);
            }
            if state.is_broken {
                return Err(poisoned());
            }
            // Others have more to do, or are reading what comes next: then this one goes ahead of them.
            let queue = &state.queues[self.range];
            state = match queue.next(AHEAD_MAX, self.helpers.bytes_max) {
                Some(place) => self.helpers.read(state, (self.range, place))?,
                None if queue.chunks > 0 => board.moved.wait(state).map_err(|_| poisoned())?,
                None => return Err(Fault::internal("rows are read that nobody wants")),
            };
        }
    }
}
