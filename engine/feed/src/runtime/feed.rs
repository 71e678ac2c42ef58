//! The feed: the consumer's side.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use forebay_threads::sync::atomic::AtomicBool;
use forebay_threads::sync::thread::{self, JoinHandle};
use forebay_threads::sync::{Condvar, Mutex};

use super::batch::FeedBatch;
use super::chunk_stream::ChunkStream;
use super::options::{FeedOptions, InspectBatch};
use super::schedule::BatchSchedule;
use super::shared_feed::{FeedState, SharedFeed};
use super::stats::{FeedStats, LoadCounts};
use crate::slot::{BatchLayout, SeriesPacker, TilePacker};
use crate::{BatchPlan, FeedCursor, OrderMode, RemainderPolicy, RowSequence};

/// A stream of batches. Threads read ahead and fill slots while the consumer works; dropping the
/// feed stops them.
pub struct Feed {
    work: Arc<SharedFeed>,
    threads: Vec<JoinHandle<()>>,
    /// The position of the feed after the last batch that the consumer got.
    cursor: FeedCursor,
    /// The next batch.
    next: u64,
    failed: bool,
    /// True once the consumer has begun to wait for the next batch.
    starving: bool,
    stats: FeedStats,
    since: Instant,
    memory_bytes: u64,
    /// Looks at the first batch.
    on_first_batch: Option<InspectBatch>,
}

impl Feed {
    /// Starts a feed; a fault if the options cannot be satisfied.
    pub fn start(options: FeedOptions) -> Result<Feed> {
        BatchPlan::check(options.batch_rows, options.rank, options.world)?;
        if options.threads == 0 || options.slots == 0 || options.sources.is_empty() {
            return Err(Fault::new(
                codes::BAD_VALUE,
                "a feed needs a source, a thread and a slot",
            ));
        }
        let layout = BatchLayout::new(&options.features, options.batch_rows as usize)?;
        let sequence = options.sequence()?;
        let cursor = match &options.cursor {
            Some(cursor) => cursor.clone(),
            None => FeedCursor::start(&sequence).at(options.first_epoch, 0),
        };
        cursor.check(&sequence)?;
        let rows = sequence.epoch_rows();
        let epoch = BatchPlan {
            rows,
            batch: options.batch_rows,
            world: options.world,
            last: options.last,
        };
        let schedule = BatchSchedule::new(&cursor, epoch, options.rank, options.epochs);
        let series = SeriesPacker::new(&options.features);
        let window_rows = match sequence.order().mode {
            OrderMode::Shuffled { window_rows } => window_rows,
            OrderMode::Sequential | OrderMode::Time => 0,
        };
        // Rows of one source in their order need no tiles: slots are filled from columns.
        let straight = window_rows == 0 && series.is_none() && options.sources.len() == 1;
        let memory_bytes = options.memory_bytes(&layout, window_rows.min(rows));
        if let Some(memory_max) = options.memory_max
            && memory_bytes > memory_max
        {
            return Err(too_large(memory_bytes, memory_max));
        }
        let streams = chunk_streams(&sequence, &schedule, window_rows, options.ahead());
        let mut free = Vec::with_capacity(options.slots);
        for _ in 0..options.slots {
            free.push(options.allocator.allocate(layout.bytes)?);
        }
        let state = FeedState {
            streams,
            next: 0,
            slots: free.len(),
            free,
            filling: 0,
            ready: Default::default(),
            fault: None,
            times: Default::default(),
            counts: LoadCounts::default(),
            first_counts: LoadCounts::default(),
        };
        let work = Arc::new(SharedFeed {
            sources: options.sources,
            sequence,
            schedule,
            columns: options.features.columns(),
            packer: TilePacker::new(options.features, layout),
            series,
            straight,
            receipts: options.receipts,
            on_duplicates: options.on_duplicates,
            first_epoch: cursor.epoch,
            pool: Arc::default(),
            allocator: options.allocator,
            slots: options.slots,
            slots_max: options.slots_max.max(options.slots),
            state: Mutex::new(state),
            workers: Condvar::new(),
            consumer: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let mut feed = Feed {
            work: work.clone(),
            threads: Vec::new(),
            cursor,
            next: 0,
            failed: false,
            starving: false,
            stats: FeedStats::default(),
            since: Instant::now(),
            memory_bytes,
            on_first_batch: options.on_first_batch,
        };
        for number in 0..options.threads {
            let work = work.clone();
            let thread = thread::Builder::new()
                .name(format!("feed-{number}"))
                .spawn(move || work.run());
            // A fault drops the feed, which ends the threads that were started.
            match thread {
                Ok(thread) => feed.threads.push(thread),
                Err(error) => return Err(Fault::refused_thread(error)),
            }
        }
        Ok(feed)
    }

    /// The position of the feed after the last batch that was handed over.
    pub fn cursor(&self) -> &FeedCursor {
        &self.cursor
    }

    /// The order that the feed delivers.
    pub fn sequence(&self) -> &RowSequence {
        &self.work.sequence
    }

    /// The layout of the parts of a batch.
    pub fn layout(&self) -> &BatchLayout {
        &self.work.packer.layout
    }

    /// Number of batches of an epoch that this feed delivers.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.work.schedule.steps(epoch)
    }

    /// Bytes of rows that the feed holds at most, slots included, without the memory for reading blocks.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Statistics since the last call: one call per epoch gives those of each epoch.
    pub fn take_stats(&mut self) -> FeedStats {
        let times = std::mem::take(&mut self.work.lock().times);
        let wall = std::mem::replace(&mut self.since, Instant::now()).elapsed();
        FeedStats {
            times,
            wall,
            ..std::mem::take(&mut self.stats)
        }
    }

    /// Changed values of all rows that were read so far, those of later batches among them.
    pub fn load_counts(&self) -> LoadCounts {
        self.work.lock().counts.clone()
    }

    /// Number of missing values that were filled so far, for each column that had some.
    pub fn filled_values(&self) -> Vec<(String, u64)> {
        self.work
            .packer
            .features
            .named_counts(&self.load_counts().filled)
    }

    /// Treatment of rows that do not fill a last step.
    pub fn last(&self) -> RemainderPolicy {
        self.work.schedule.last()
    }

    /// Changed values of the rows of the epoch that the feed began with: all of them once its last batch is delivered,
    /// if the feed began with its first.
    pub fn first_epoch_counts(&self) -> LoadCounts {
        self.work.lock().first_counts.clone()
    }

    /// True if the next batch is ready: taking it then neither waits nor counts as starving.
    pub fn is_ready(&self) -> bool {
        self.work.lock().ready.contains_key(&self.next)
    }

    /// The next batch, waiting no longer than this; `Ok(None)` where it is not there yet. For callers
    /// that have to look at other things meanwhile. `None` and faults are those of the iterator.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Option<FeedBatch>>> {
        if self.failed {
            return None;
        }
        let batch = self.wait(Some(timeout));
        self.failed = batch.is_err();
        match batch {
            Ok(WaitOutcome::Batch(batch)) => Some(Ok(Some(batch))),
            Ok(WaitOutcome::Later) => Some(Ok(None)),
            Ok(WaitOutcome::End) => None,
            Err(fault) => Some(Err(fault)),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<WaitOutcome> {
        let Some(job) = self.work.schedule.job(self.next) else {
            return Ok(WaitOutcome::End);
        };
        let mut state = self.work.lock();
        let begin = Instant::now();
        let mut waited = false;
        let filled = loop {
            if let Some(filled) = state.ready.remove(&self.next) {
                break filled;
            }
            // Batches that are being filled may be the next one: a fault comes after them.
            if state.filling == 0
                && let Some(fault) = state.fault.take()
            {
                return Err(fault);
            }
            // The consumer holds all slots: without another one it would wait for itself.
            if state.free.is_empty() && state.filling == 0 && state.ready.is_empty() {
                self.work.add_slot(&mut state)?;
            }
            waited = true;
            // A step starves once, in however many calls the consumer waits for it.
            if !self.starving {
                self.starving = true;
                self.stats.starved_steps += 1;
            }
            let Some(timeout) = timeout else {
                state = self
                    .work
                    .consumer
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(remaining) = timeout.checked_sub(begin.elapsed()) else {
                self.stats.consumer_wait += begin.elapsed();
                return Ok(WaitOutcome::Later);
            };
            (state, _) = self
                .work
                .consumer
                .wait_timeout(state, remaining)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        self.starving = false;
        let batch = FeedBatch::new(self.work.clone(), filled);
        if let Some(inspect) = self.on_first_batch.take() {
            inspect(&batch);
        }
        self.next += 1;
        let (epoch, position) = job.next;
        self.cursor = self.cursor.at(epoch, position);
        self.stats.steps += 1;
        self.stats.rows += batch.rows() as u64;
        self.stats.bytes += batch.bytes() as u64;
        if waited {
            self.stats.consumer_wait += begin.elapsed();
        }
        Ok(WaitOutcome::Batch(batch))
    }
}

/// Outcome of waiting for a batch.
enum WaitOutcome {
    Batch(FeedBatch),
    Later,
    End,
}

fn chunk_streams(
    sequence: &RowSequence,
    schedule: &BatchSchedule,
    window_rows: u64,
    ahead: u64,
) -> Vec<ChunkStream> {
    let mut streams = Vec::new();
    for (number, dataset) in (0..).zip(sequence.datasets()) {
        let block_rows = (0..dataset.blocks() as u32).map(|block| dataset.block_rows(block));
        let widest = block_rows.max().unwrap_or(0);
        let capacity = window_rows + ahead * widest;
        let turns = sequence.turns_of(number, schedule.places());
        streams.push(ChunkStream::new(sequence, number, turns, capacity));
    }
    streams
}

fn too_large(memory_bytes: u64, memory_max: u64) -> Fault {
    let needed = memory_bytes.div_ceil(1 << 20);
    let allowed = memory_max.div_ceil(1 << 20);
    let message = format!("the feed would hold {needed} MiB of rows, and may hold {allowed}");
    Fault::new(codes::MEMORY, message).hint(
        "lower `window_rows` (which changes the order of rows) or `batch_rows`, \
         or raise the memory",
    )
}

impl Iterator for Feed {
    type Item = Result<FeedBatch>;

    /// The next batch; after a fault, nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.wait(None) {
            Ok(WaitOutcome::Batch(batch)) => Some(Ok(batch)),
            Ok(WaitOutcome::Later | WaitOutcome::End) => None,
            Err(fault) => {
                self.failed = true;
                Some(Err(fault))
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.work.stop();
        for thread in self.threads.drain(..) {
            // A panic has become a fault already.
            let _ = thread.join();
        }
    }
}
