//! Work sharing between threads that own ranges of input and idle threads. Idle threads prefetch chunks, run parts of
//! computations in parallel, and take over work that the owners of ranges spawn, piece by piece.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use forebay_model::{Fault, Result, catch_panic};

use crate::parallel::{join_thread, lock, poisoned_lock, spawned};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// Chunks prefetched for a range at most, if memory allows.
const PREFETCH_MAX: usize = 16;

/// Below this count of prefetched chunks a range may soon wait: reading has priority.
const PREFETCH_MIN: usize = 2;

/// Spawned tasks that may wait in the queue. A thread that spawns more runs some of them itself.
const SPAWNED_MAX: usize = 1;

/// The types of what ranges read.
pub trait ReadTypes: 'static {
    /// Names a unit that is read in one go.
    type Task: Copy + PartialEq + Send;
    /// A chunk of a task.
    type Chunk: Send;
    /// The chunks of a task, in order.
    type Chunks: Iterator<Item = Result<Self::Chunk>> + Send;

    /// Memory of a chunk in bytes.
    fn bytes(chunk: &Self::Chunk) -> usize;
}

/// Opens a task for reading.
pub type OpenChunks<'f, R> =
    &'f (dyn Fn(<R as ReadTypes>::Task) -> Result<<R as ReadTypes>::Chunks> + Sync);

/// Runs numbered pieces of work, each once, on any threads; returns when all are done.
pub type PieceExecutor = dyn Fn(usize, Arc<dyn Fn(usize) + Send + Sync>) + Send + Sync;

/// Runs one piece of a spawned task.
pub type PieceFn<'f, T> = &'f (dyn Fn(&T, usize) -> Result<()> + Sync);

/// Queues of work for threads without a range. Ranges read chunks of `R`; `T` is a task that their owners spawn.
pub struct WorkSharingPool<'a, T, R: ReadTypes> {
    open: OpenChunks<'a, R>,
    work: PieceFn<'a, T>,
    /// Bytes of prefetched chunks for each range at most.
    bytes_max: usize,
    /// Spawned tasks by number.
    left: Mutex<BTreeMap<u64, Arc<T>>>,
    board: Arc<SharedQueues<R>>,
}

/// The shared queues and the condition variable that reports changes.
struct SharedQueues<R: ReadTypes> {
    state: Mutex<QueueState<R>>,
    moved: Condvar,
}

struct QueueState<R: ReadTypes> {
    queues: Vec<ReadQueue<R>>,
    /// Numbers of spawned tasks, each with its pieces that no thread has started.
    left: VecDeque<(u64, Range<usize>)>,
    /// The number of tasks spawned so far: the next task's number.
    numbered: u64,
    /// Work whose owner waits for its pieces.
    beside: Vec<SharedWork>,
    /// Whether a thread with ranges has started, or none ever will.
    is_begun: bool,
    /// Threads that may still spawn work.
    leaving: usize,
    /// Threads that take work from the queues.
    helping: usize,
}

/// Work whose pieces several threads share while its owner waits.
struct SharedWork {
    work: Arc<dyn Fn(usize) + Send + Sync>,
    /// Pieces that no thread has started.
    pieces: Range<usize>,
    /// Pieces that other threads are running.
    begun: usize,
}

/// The read queue of one range, in order.
struct ReadQueue<R: ReadTypes> {
    tasks: Vec<R::Task>,
    /// The tasks that may still be read: all of them, or those up to the first one that failed. Reads behind a failure
    /// may be open; no thread goes on with them.
    wanted: usize,
    /// Tasks that the range has started to take.
    taken: usize,
    /// Tasks of which the range has taken all chunks.
    done: usize,
    /// Open reads of the tasks that follow the finished ones.
    readings: VecDeque<OpenRead<R>>,
    /// Prefetched chunks, and chunks that are being read.
    chunks: usize,
    bytes: usize,
}

/// An open read of a task; one thread reads at a time.
struct OpenRead<R: ReadTypes> {
    open: Option<R::Chunks>,
    is_reading: bool,
    is_done: bool,
    ready: VecDeque<Result<R::Chunk>>,
}

impl<R: ReadTypes> ReadQueue<R> {
    /// The open read to continue if at most `chunks` chunks may be prefetched; `None` if there is nothing to read.
    fn next(&self, chunks: usize, bytes_max: usize) -> Option<usize> {
        let is_free = |reading: &OpenRead<R>| !reading.is_reading && !reading.is_done;
        // The range waits for this read.
        let wanted = self.wanted.saturating_sub(self.done);
        if wanted > 0
            && self
                .readings
                .front()
                .is_some_and(|first| is_free(first) && first.ready.is_empty())
        {
            return Some(0);
        }
        if self.chunks > 0 && (self.chunks >= chunks || self.bytes >= bytes_max) {
            return None;
        }
        let new = || Some(self.readings.len()).filter(|place| *place < wanted);
        let mut open = self.readings.iter().take(wanted);
        open.position(is_free).or_else(new)
    }

    /// Marks a read as in progress; returns the task's number and its chunk iterator if it is open.
    fn begin(&mut self, place: usize) -> (usize, Option<R::Chunks>) {
        if place == self.readings.len() {
            self.readings.push_back(OpenRead {
                open: None,
                is_reading: false,
                is_done: false,
                ready: VecDeque::new(),
            });
        }
        self.chunks += 1;
        self.readings[place].is_reading = true;
        (self.done + place, self.readings[place].open.take())
    }

    fn put(&mut self, number: usize, open: Option<R::Chunks>, chunk: Option<Result<R::Chunk>>) {
        let reading = &mut self.readings[number - self.done];
        (reading.open, reading.is_reading, reading.is_done) =
            (open, false, !matches!(chunk, Some(Ok(_))));
        match &chunk {
            Some(Ok(chunk)) => self.bytes += R::bytes(chunk),
            // Chunks behind a failure are not requested.
            Some(Err(_)) => self.wanted = self.wanted.min(number + 1),
            None => self.chunks -= 1,
        }
        reading.ready.extend(chunk);
    }

    /// The next chunk, if it is ready; `Some(None)` ends a task.
    fn take(&mut self) -> Option<Option<Result<R::Chunk>>> {
        let reading = self.readings.front_mut()?;
        match reading.ready.pop_front() {
            Some(chunk) => {
                self.chunks -= 1;
                self.bytes -= chunk.as_ref().map_or(0, R::bytes);
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

impl<R: ReadTypes> SharedQueues<R> {
    /// Runs pieces of work together with idle threads; returns when all are done.
    fn together(&self, pieces: usize, work: Arc<dyn Fn(usize) + Send + Sync>) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        if state.helping == 0 {
            drop(state);
            return (0..pieces).for_each(|piece| work(piece));
        }
        state.beside.push(SharedWork {
            work: work.clone(),
            pieces: 0..pieces,
            begun: 0,
        });
        self.moved.notify_all();
        loop {
            let place = state
                .beside
                .iter()
                .position(|beside| Arc::ptr_eq(&beside.work, &work));
            let Some(place) = place else { return };
            let beside = &mut state.beside[place];
            match beside.pieces.next() {
                Some(piece) => {
                    drop(state);
                    work(piece);
                    let Ok(again) = self.state.lock() else { return };
                    state = again;
                }
                None if beside.begun == 0 => {
                    state.beside.remove(place);
                    return;
                }
                None => {
                    let Ok(again) = self.moved.wait(state) else {
                        return;
                    };
                    state = again;
                }
            }
        }
    }
}

impl<'a, T, R: ReadTypes> WorkSharingPool<'a, T, R> {
    /// For ranges that read these tasks, each in order, with at most `bytes_max` bytes of prefetched chunks for each.
    pub fn new(
        open: OpenChunks<'a, R>,
        work: PieceFn<'a, T>,
        ranges: Vec<Vec<R::Task>>,
        bytes_max: usize,
    ) -> Self {
        let queue = |tasks: Vec<R::Task>| ReadQueue {
            wanted: tasks.len(),
            tasks,
            taken: 0,
            done: 0,
            readings: VecDeque::new(),
            chunks: 0,
            bytes: 0,
        };
        let state = QueueState {
            queues: ranges.into_iter().map(queue).collect(),
            left: VecDeque::new(),
            numbered: 0,
            beside: Vec::new(),
            is_begun: false,
            leaving: 0,
            helping: 0,
        };
        let board = Arc::new(SharedQueues {
            state: Mutex::new(state),
            moved: Condvar::new(),
        });
        WorkSharingPool {
            open,
            work,
            bytes_max,
            left: Mutex::new(BTreeMap::new()),
            board,
        }
    }

    /// The reader of a range.
    pub fn reader(&self, range: usize) -> PrefetchReader<'_, 'a, T, R> {
        PrefetchReader {
            helpers: self,
            range,
        }
    }

    /// A function that runs pieces of work on idle threads and on its caller.
    pub fn parallel_for(&self) -> Arc<PieceExecutor> {
        let board = self.board.clone();
        Arc::new(move |pieces, work| board.together(pieces, work))
    }

    /// Runs `ranges` while `idle` threads take work from the queues. The idle threads end once `ranges` ends, also by a
    /// fault or a panic.
    pub fn run_scoped<V>(&self, idle: usize, ranges: impl FnOnce() -> Result<V>) -> Result<V>
    where
        T: Send + Sync,
    {
        thread::scope(|scope| {
            let over = RangesEndedGuard(&self.board);
            let others: Vec<_> = (0..idle)
                .map_while(|_| spawned(scope, || catch_panic(|| self.run_worker())))
                .collect();
            let done = catch_panic(ranges);
            drop(over);
            others
                .into_iter()
                .map(join_thread)
                .fold(Ok(()), Result::and)
                .and(done)
        })
    }

    /// Spawns a task of `pieces` pieces for idle threads. The caller runs all pieces itself if there is no idle thread,
    /// and some of them if the queue is full.
    pub fn spawn(&self, work: T, pieces: usize) -> Result<()> {
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
        while state.left.len() > SPAWNED_MAX {
            state = self.run_spawned_piece(state)?;
        }
        Ok(())
    }

    /// Runs a thread's own work, then takes work from the queues.
    pub fn run_then_work(&self, own: &dyn Fn() -> Result<()>) -> Result<()> {
        let leaving = SpawnerGuard::new(&self.board)?;
        let done = own();
        drop(leaving);
        done?;
        self.run_worker()
    }

    /// Takes work from the queues until every thread that could spawn more has ended.
    pub fn run_worker(&self) -> Result<()> {
        let mut state = lock(&self.board.state)?;
        state.helping += 1;
        loop {
            let open = state.leaving > 0 || !state.is_begun;
            let wanting = |chunks| {
                let queues = state.queues.iter().enumerate().filter(|_| open);
                let wanting = queues.filter_map(|(range, queue)| {
                    let place = queue.next(chunks, self.bytes_max)?;
                    Some((queue.chunks, (range, place)))
                });
                wanting
                    .min_by_key(|(waiting, _)| *waiting)
                    .map(|(_, place)| place)
            };
            let (soon, later) = (wanting(PREFETCH_MIN), wanting(PREFETCH_MAX));
            state = if let Some(beside) = state
                .beside
                .iter()
                .position(|beside| !beside.pieces.is_empty())
            {
                self.run_shared_piece(state, beside)?
            } else if let Some((range, place)) = soon {
                self.read_chunk(state, range, place)?
            } else if !state.left.is_empty() {
                self.run_spawned_piece(state)?
            } else if let Some((range, place)) = later {
                self.read_chunk(state, range, place)?
            } else if !open {
                return Ok(());
            } else {
                self.board.moved.wait(state).map_err(|_| poisoned_lock())?
            };
        }
    }

    /// Runs one piece of work whose owner waits.
    fn run_shared_piece<'s>(
        &'s self,
        mut state: MutexGuard<'s, QueueState<R>>,
        place: usize,
    ) -> Result<MutexGuard<'s, QueueState<R>>> {
        let beside = &mut state.beside[place];
        let (work, piece) = (beside.work.clone(), beside.pieces.next());
        beside.begun += 1;
        drop(state);
        let done = catch_panic(|| {
            piece.into_iter().for_each(|piece| work(piece));
            Ok(())
        });
        let mut state = lock(&self.board.state)?;
        if let Some(beside) = state
            .beside
            .iter_mut()
            .find(|beside| Arc::ptr_eq(&beside.work, &work))
        {
            beside.begun -= 1;
        }
        // Dropped before the notification: the waiting owner unwraps the only reference.
        drop(work);
        self.board.moved.notify_all();
        done.map(|()| state)
    }

    /// Runs the next piece of the first spawned task.
    fn run_spawned_piece<'s>(
        &'s self,
        mut state: MutexGuard<'s, QueueState<R>>,
    ) -> Result<MutexGuard<'s, QueueState<R>>> {
        let Some((number, pieces)) = state.left.front_mut() else {
            return Ok(state);
        };
        let (number, piece) = (*number, pieces.next());
        let is_last = pieces.start == pieces.end;
        let mut left = lock(&self.left)?;
        let work = if is_last {
            left.remove(&number)
        } else {
            left.get(&number).cloned()
        };
        drop(left);
        if is_last {
            state.left.pop_front();
        }
        drop(state);
        let work = work.ok_or_else(|| Fault::internal("shared work that is not in the queue"))?;
        piece.map_or(Ok(()), |piece| (self.work)(&work, piece))?;
        // Releases what the task holds with its last piece.
        drop(work);
        lock(&self.board.state)
    }

    /// Reads one chunk of a range.
    fn read_chunk<'s>(
        &'s self,
        mut state: MutexGuard<'s, QueueState<R>>,
        range: usize,
        place: usize,
    ) -> Result<MutexGuard<'s, QueueState<R>>> {
        let queue = &mut state.queues[range];
        let (number, open) = queue.begin(place);
        let task = queue.tasks[number];
        drop(state);
        let read = catch_panic(|| {
            let mut chunks = open.map_or_else(|| (self.open)(task), Ok)?;
            let next = chunks.next();
            Ok((next.is_some().then_some(chunks), next))
        });
        // A fault or panic reaches the range in place of the chunk.
        let (open, chunk) = read.unwrap_or_else(|fault| (None, Some(Err(fault))));
        let mut state = lock(&self.board.state)?;
        state.queues[range].put(number, open, chunk);
        self.board.moved.notify_all();
        Ok(state)
    }
}

/// Counts a thread that may spawn work. Dropping the guard, also on a panic, tells waiting threads.
struct SpawnerGuard<'b, R: ReadTypes>(&'b SharedQueues<R>);

impl<'b, R: ReadTypes> SpawnerGuard<'b, R> {
    fn new(board: &'b SharedQueues<R>) -> Result<Self> {
        let mut state = lock(&board.state)?;
        state.is_begun = true;
        state.leaving += 1;
        Ok(SpawnerGuard(board))
    }
}

impl<R: ReadTypes> Drop for SpawnerGuard<'_, R> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.leaving -= 1;
        }
        self.0.moved.notify_all();
    }
}

/// Dropped when the ranges have ended: marks the queues as started so that idle threads do not wait for a range.
struct RangesEndedGuard<'b, R: ReadTypes>(&'b SharedQueues<R>);

impl<R: ReadTypes> Drop for RangesEndedGuard<'_, R> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.is_begun = true;
        }
        self.0.moved.notify_all();
    }
}

/// The chunks of a range, some of them prefetched by other threads.
pub struct PrefetchReader<'b, 'a, T, R: ReadTypes> {
    helpers: &'b WorkSharingPool<'a, T, R>,
    range: usize,
}

impl<T, R: ReadTypes> PrefetchReader<'_, '_, T, R> {
    /// The chunks of a task.
    pub fn chunks(&self, task: R::Task) -> Result<Box<dyn Iterator<Item = Result<R::Chunk>> + '_>> {
        let mut state = lock(&self.helpers.board.state)?;
        let queue = &mut state.queues[self.range];
        let is_announced = queue.taken < queue.wanted && queue.tasks[queue.taken] == task;
        if !is_announced {
            // Nothing was prefetched.
            drop(state);
            return Ok(Box::new((self.helpers.open)(task)?));
        }
        queue.taken += 1;
        Ok(Box::new(std::iter::from_fn(|| {
            self.next().unwrap_or_else(|fault| Some(Err(fault)))
        })))
    }

    fn next(&self) -> Result<Option<Result<R::Chunk>>> {
        let board = &self.helpers.board;
        let mut state = lock(&board.state)?;
        loop {
            if let Some(next) = state.queues[self.range].take() {
                board.moved.notify_all();
                return Ok(next);
            }
            // Reads itself if no other thread is reading the next chunk.
            let queue = &state.queues[self.range];
            state = match queue.next(PREFETCH_MAX, self.helpers.bytes_max) {
                Some(place) => self.helpers.read_chunk(state, self.range, place)?,
                None if queue.chunks > 0 => board.moved.wait(state).map_err(|_| poisoned_lock())?,
                None => return Err(Fault::internal("rows are read that are not wanted")),
            };
        }
    }
}
