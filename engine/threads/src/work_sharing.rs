//! Work sharing between threads that own ranges of input and idle threads. Idle threads prefetch chunks, run parts of
//! computations in parallel, and take over work that the owners of ranges spawn, piece by piece. `rayon` has no order
//! between reading and computing.

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
    spawned: Mutex<BTreeMap<u64, Arc<T>>>,
    shared: Arc<SharedQueues<R>>,
}

/// The shared queues and the condition variable that reports changes.
struct SharedQueues<R: ReadTypes> {
    state: Mutex<QueueState<R>>,
    moved: Condvar,
}

struct QueueState<R: ReadTypes> {
    queues: Vec<ReadQueue<R>>,
    /// Numbers of spawned tasks, each with its pieces that no thread has started.
    spawned: VecDeque<(u64, Range<usize>)>,
    /// The number of tasks spawned so far: the next task's number.
    spawned_count: u64,
    /// Work whose owner waits for its pieces.
    shared_works: Vec<SharedWork>,
    /// Set once a thread with ranges has started, or when none will start.
    is_begun: bool,
    /// Threads that may still spawn work.
    spawner_count: usize,
    /// Threads that take work from the queues.
    worker_count: usize,
}

/// Work whose pieces several threads share while its owner waits.
struct SharedWork {
    work: Arc<dyn Fn(usize) + Send + Sync>,
    /// Pieces that no thread has started.
    pieces: Range<usize>,
    /// Pieces that other threads are running.
    running_pieces: usize,
}

/// The read queue of one range, in order.
struct ReadQueue<R: ReadTypes> {
    tasks: Vec<R::Task>,
    /// The tasks that may still be read: all of them, or those up to the first one that failed. Reads behind a failure
    /// may be open; no thread goes on with them.
    task_limit: usize,
    /// Tasks that the range has started to take.
    taken_count: usize,
    /// Tasks of which the range has taken all chunks.
    finished_count: usize,
    /// Open reads of the tasks that follow the finished ones.
    open_reads: VecDeque<OpenRead<R>>,
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

impl<R: ReadTypes> OpenRead<R> {
    /// No thread reads it, and chunks may follow.
    fn is_free(&self) -> bool {
        !self.is_reading && !self.is_done
    }
}

impl<R: ReadTypes> ReadQueue<R> {
    fn new(tasks: Vec<R::Task>) -> Self {
        ReadQueue {
            task_limit: tasks.len(),
            tasks,
            taken_count: 0,
            finished_count: 0,
            open_reads: VecDeque::new(),
            chunks: 0,
            bytes: 0,
        }
    }

    /// The open read to continue if at most `chunks` chunks may be prefetched; `None` if there is nothing to read.
    fn next(&self, chunks: usize, bytes_max: usize) -> Option<usize> {
        let unfinished = self.task_limit.saturating_sub(self.finished_count);
        // The range waits for its first read: it comes before all others, and no limit holds it back.
        if unfinished > 0
            && let Some(first) = self.open_reads.front()
            && first.is_free()
            && first.ready.is_empty()
        {
            return Some(0);
        }
        let is_full = self.chunks >= chunks || self.bytes >= bytes_max;
        if self.chunks > 0 && is_full {
            return None;
        }
        let mut open_reads = self.open_reads.iter().take(unfinished);
        if let Some(index) = open_reads.position(OpenRead::is_free) {
            return Some(index);
        }
        // All open reads are busy or done: the next task is opened if there is one.
        let new_index = self.open_reads.len();
        (new_index < unfinished).then_some(new_index)
    }

    /// Marks a read as in progress; returns the task's number and its chunk iterator if it is open.
    fn begin(&mut self, index: usize) -> (usize, Option<R::Chunks>) {
        if index == self.open_reads.len() {
            self.open_reads.push_back(OpenRead {
                open: None,
                is_reading: false,
                is_done: false,
                ready: VecDeque::new(),
            });
        }
        // The chunk that is being read counts as prefetched, so that the limits hold.
        self.chunks += 1;
        let open_read = &mut self.open_reads[index];
        open_read.is_reading = true;
        (self.finished_count + index, open_read.open.take())
    }

    /// Adds the result of a read: a chunk, a failure, or the end of the task.
    fn put(&mut self, number: usize, open: Option<R::Chunks>, chunk: Option<Result<R::Chunk>>) {
        let open_read = &mut self.open_reads[number - self.finished_count];
        open_read.open = open;
        open_read.is_reading = false;
        open_read.is_done = !matches!(chunk, Some(Ok(_)));
        match &chunk {
            Some(Ok(chunk)) => self.bytes += R::bytes(chunk),
            // Chunks behind a failure are not requested.
            Some(Err(_)) => self.task_limit = self.task_limit.min(number + 1),
            None => self.chunks -= 1,
        }
        open_read.ready.extend(chunk);
    }

    /// The next chunk, if it is ready; `Some(None)` ends a task.
    fn take(&mut self) -> Option<Option<Result<R::Chunk>>> {
        let open_read = self.open_reads.front_mut()?;
        match open_read.ready.pop_front() {
            Some(chunk) => {
                self.chunks -= 1;
                self.bytes -= chunk.as_ref().map_or(0, R::bytes);
                Some(Some(chunk))
            }
            None if open_read.is_done => {
                self.open_reads.pop_front();
                self.finished_count += 1;
                Some(None)
            }
            None => None,
        }
    }
}

impl<R: ReadTypes> SharedQueues<R> {
    /// Runs pieces of work on idle threads and on the calling one; returns when all are done.
    fn run_shared(&self, pieces: usize, work: Arc<dyn Fn(usize) + Send + Sync>) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        if state.worker_count == 0 {
            drop(state);
            for piece in 0..pieces {
                work(piece);
            }
            return;
        }
        state.shared_works.push(SharedWork {
            work: work.clone(),
            pieces: 0..pieces,
            running_pieces: 0,
        });
        self.moved.notify_all();
        loop {
            // Other entries come and go while the lock is released, so the index is looked up again.
            let index = state
                .shared_works
                .iter()
                .position(|shared| Arc::ptr_eq(&shared.work, &work));
            let Some(index) = index else { return };
            let shared_work = &mut state.shared_works[index];
            match shared_work.pieces.next() {
                Some(piece) => {
                    drop(state);
                    work(piece);
                    let Ok(relocked) = self.state.lock() else {
                        return;
                    };
                    state = relocked;
                }
                None if shared_work.running_pieces == 0 => {
                    state.shared_works.remove(index);
                    return;
                }
                // Another thread still runs a piece and notifies when it ends.
                None => {
                    let Ok(relocked) = self.moved.wait(state) else {
                        return;
                    };
                    state = relocked;
                }
            }
        }
    }
}

impl<R: ReadTypes> QueueState<R> {
    /// The range with the fewest prefetched chunks, fewer than `chunks`, and the open read to continue there.
    fn neediest_read(&self, chunks: usize, bytes_max: usize) -> Option<(usize, usize)> {
        let mut fewest = usize::MAX;
        let mut neediest = None;
        for (range, queue) in self.queues.iter().enumerate() {
            if let Some(index) = queue.next(chunks, bytes_max)
                && queue.chunks < fewest
            {
                fewest = queue.chunks;
                neediest = Some((range, index));
            }
        }
        neediest
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
        let state = QueueState {
            queues: ranges.into_iter().map(ReadQueue::new).collect(),
            spawned: VecDeque::new(),
            spawned_count: 0,
            shared_works: Vec::new(),
            is_begun: false,
            spawner_count: 0,
            worker_count: 0,
        };
        let shared = Arc::new(SharedQueues {
            state: Mutex::new(state),
            moved: Condvar::new(),
        });
        WorkSharingPool {
            open,
            work,
            bytes_max,
            spawned: Mutex::new(BTreeMap::new()),
            shared,
        }
    }

    /// The reader of a range.
    pub fn reader(&self, range: usize) -> PrefetchReader<'_, 'a, T, R> {
        PrefetchReader { pool: self, range }
    }

    /// A function that runs pieces of work on idle threads and on its caller.
    pub fn parallel_for(&self) -> Arc<PieceExecutor> {
        let shared = self.shared.clone();
        Arc::new(move |pieces, work| shared.run_shared(pieces, work))
    }

    /// Runs `ranges` while `idle` threads take work from the queues. The idle threads end once `ranges` ends, also by a
    /// fault or a panic.
    pub fn run_scoped<V>(&self, idle: usize, ranges: impl FnOnce() -> Result<V>) -> Result<V>
    where
        T: Send + Sync,
    {
        thread::scope(|scope| {
            let ended_guard = RangesEndedGuard(&self.shared);
            let mut workers = Vec::with_capacity(idle);
            while workers.len() < idle {
                let Some(thread) = spawned(scope, || catch_panic(|| self.run_worker())) else {
                    break;
                };
                workers.push(thread);
            }
            let result = catch_panic(ranges);
            drop(ended_guard);
            let mut outcome = Ok(());
            for thread in workers {
                let joined = join_thread(thread);
                outcome = outcome.and(joined);
            }
            outcome.and(result)
        })
    }

    /// Spawns a task of `pieces` pieces for idle threads. The caller runs all pieces itself if there is no idle thread,
    /// and some of them if the queue is full.
    pub fn spawn(&self, work: T, pieces: usize) -> Result<()> {
        let mut state = lock(&self.shared.state)?;
        if state.worker_count == 0 {
            drop(state);
            for piece in 0..pieces {
                (self.work)(&work, piece)?;
            }
            return Ok(());
        }
        let number = state.spawned_count;
        state.spawned_count += 1;
        lock(&self.spawned)?.insert(number, Arc::new(work));
        state.spawned.push_back((number, 0..pieces));
        self.shared.moved.notify_all();
        while state.spawned.len() > SPAWNED_MAX {
            state = self.run_spawned_piece(state)?;
        }
        Ok(())
    }

    /// Runs a thread's own work, then takes work from the queues.
    pub fn run_then_work(&self, first: &dyn Fn() -> Result<()>) -> Result<()> {
        let spawner_guard = SpawnerGuard::new(&self.shared)?;
        let result = first();
        // From here on this thread spawns nothing: the workers must not wait for it.
        drop(spawner_guard);
        result?;
        self.run_worker()
    }

    /// Takes work from the queues until every thread that could spawn more has ended.
    pub fn run_worker(&self) -> Result<()> {
        let mut state = lock(&self.shared.state)?;
        state.worker_count += 1;
        loop {
            let open = state.spawner_count > 0 || !state.is_begun;
            let shared_work = state
                .shared_works
                .iter()
                .position(|shared| !shared.pieces.is_empty());
            let mut urgent_read = None;
            let mut read = None;
            if open {
                urgent_read = state.neediest_read(PREFETCH_MIN, self.bytes_max);
                read = state.neediest_read(PREFETCH_MAX, self.bytes_max);
            }
            // First work whose owner waits, then reads that a range may soon wait for. Spawned work comes before
            // further reads: its results hold memory.
            state = if let Some(index) = shared_work {
                self.run_shared_piece(state, index)?
            } else if let Some((range, index)) = urgent_read {
                self.read_chunk(state, range, index)?
            } else if !state.spawned.is_empty() {
                self.run_spawned_piece(state)?
            } else if let Some((range, index)) = read {
                self.read_chunk(state, range, index)?
            } else if !open {
                return Ok(());
            } else {
                self.shared.moved.wait(state).map_err(|_| poisoned_lock())?
            };
        }
    }

    /// Runs one piece of work whose owner waits.
    fn run_shared_piece<'s>(
        &'s self,
        mut state: MutexGuard<'s, QueueState<R>>,
        index: usize,
    ) -> Result<MutexGuard<'s, QueueState<R>>> {
        let shared_work = &mut state.shared_works[index];
        let work = shared_work.work.clone();
        let piece = shared_work.pieces.next();
        // While it is counted, the owner keeps the entry and waits.
        shared_work.running_pieces += 1;
        drop(state);
        let result = catch_panic(|| {
            if let Some(piece) = piece {
                work(piece);
            }
            Ok(())
        });
        let mut state = lock(&self.shared.state)?;
        let shared_work = state
            .shared_works
            .iter_mut()
            .find(|shared| Arc::ptr_eq(&shared.work, &work));
        if let Some(shared_work) = shared_work {
            shared_work.running_pieces -= 1;
        }
        // Dropped before the notification: the waiting owner unwraps the only reference.
        drop(work);
        self.shared.moved.notify_all();
        result.map(|()| state)
    }

    /// Runs the next piece of the first spawned task.
    fn run_spawned_piece<'s>(
        &'s self,
        mut state: MutexGuard<'s, QueueState<R>>,
    ) -> Result<MutexGuard<'s, QueueState<R>>> {
        let Some((number, pieces)) = state.spawned.front_mut() else {
            return Ok(state);
        };
        let number = *number;
        let piece = pieces.next();
        let is_last = pieces.start == pieces.end;
        let mut spawned = lock(&self.spawned)?;
        let work = if is_last {
            spawned.remove(&number)
        } else {
            spawned.get(&number).cloned()
        };
        drop(spawned);
        if is_last {
            state.spawned.pop_front();
        }
        drop(state);
        let work = work.ok_or_else(|| Fault::internal("shared work that is not in the queue"))?;
        if let Some(piece) = piece {
            (self.work)(&work, piece)?;
        }
        // Releases what the task holds with its last piece.
        drop(work);
        lock(&self.shared.state)
    }

    /// Reads one chunk of a range.
    fn read_chunk<'s>(
        &'s self,
        mut state: MutexGuard<'s, QueueState<R>>,
        range: usize,
        index: usize,
    ) -> Result<MutexGuard<'s, QueueState<R>>> {
        let queue = &mut state.queues[range];
        let (number, open) = queue.begin(index);
        let task = queue.tasks[number];
        drop(state);
        let read = catch_panic(|| {
            let mut chunks = match open {
                Some(chunks) => chunks,
                None => (self.open)(task)?,
            };
            let chunk = chunks.next();
            // An iterator that has ended is dropped at once: it may hold a file open.
            let open = chunk.is_some().then_some(chunks);
            Ok((open, chunk))
        });
        let (open, chunk) = match read {
            Ok(read) => read,
            // A fault or panic reaches the range in place of the chunk.
            Err(fault) => (None, Some(Err(fault))),
        };
        let mut state = lock(&self.shared.state)?;
        state.queues[range].put(number, open, chunk);
        self.shared.moved.notify_all();
        Ok(state)
    }
}

/// Counts a thread that may spawn work. Dropping the guard, also on a panic, notifies waiting threads.
struct SpawnerGuard<'b, R: ReadTypes>(&'b SharedQueues<R>);

impl<'b, R: ReadTypes> SpawnerGuard<'b, R> {
    fn new(shared: &'b SharedQueues<R>) -> Result<Self> {
        let mut state = lock(&shared.state)?;
        state.is_begun = true;
        state.spawner_count += 1;
        Ok(SpawnerGuard(shared))
    }
}

impl<R: ReadTypes> Drop for SpawnerGuard<'_, R> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.spawner_count -= 1;
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
    pool: &'b WorkSharingPool<'a, T, R>,
    range: usize,
}

impl<T, R: ReadTypes> PrefetchReader<'_, '_, T, R> {
    /// The chunks of a task.
    pub fn chunks(&self, task: R::Task) -> Result<Box<dyn Iterator<Item = Result<R::Chunk>> + '_>> {
        let mut state = lock(&self.pool.shared.state)?;
        let queue = &mut state.queues[self.range];
        let has_tasks = queue.taken_count < queue.task_limit;
        let is_announced = has_tasks && queue.tasks[queue.taken_count] == task;
        if !is_announced {
            // Nothing was prefetched.
            drop(state);
            return Ok(Box::new((self.pool.open)(task)?));
        }
        queue.taken_count += 1;
        Ok(Box::new(std::iter::from_fn(|| {
            self.next().unwrap_or_else(|fault| Some(Err(fault)))
        })))
    }

    fn next(&self) -> Result<Option<Result<R::Chunk>>> {
        let shared = &self.pool.shared;
        let mut state = lock(&shared.state)?;
        loop {
            if let Some(next) = state.queues[self.range].take() {
                shared.moved.notify_all();
                return Ok(next);
            }
            // Reads itself if no other thread is reading the next chunk.
            let queue = &state.queues[self.range];
            state = match queue.next(PREFETCH_MAX, self.pool.bytes_max) {
                Some(index) => self.pool.read_chunk(state, self.range, index)?,
                None if queue.chunks > 0 => {
                    shared.moved.wait(state).map_err(|_| poisoned_lock())?
                }
                None => return Err(Fault::internal("rows are read that are not wanted")),
            };
        }
    }
}
