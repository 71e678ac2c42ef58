//! The feed: the consumer's side.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use forebay_threads::sync::atomic::AtomicBool;
use forebay_threads::sync::thread::{self, JoinHandle};
use forebay_threads::sync::{Condvar, Mutex};

use super::batch::FeedBatch;
use super::chunk_stream::ChunkStream;
use super::options::FeedOptions;
use super::schedule::BatchSchedule;
use super::stats::FeedStats;
use super::worker::{FeedState, SharedFeed};
use crate::slot::{BatchLayout, SeriesPacker, TilePacker};
use crate::{BatchPlan, BlockDataset, FeedCursor, OrderMode, RowSequence};

/// A stream of batches. Threads read ahead and fill slots while the consumer works; dropping the
/// feed stops them.
pub struct Feed {
    work: Arc<SharedFeed>,
    threads: Vec<JoinHandle<()>>,
    /// Where the feed stands after the last batch that the consumer got.
    cursor: FeedCursor,
    /// The next batch.
    next: u64,
    failed: bool,
    /// Whether the consumer has begun to wait for the next batch.
    starving: bool,
    stats: FeedStats,
    since: Instant,
    memory_bytes: u64,
}

impl Feed {
    /// Starts a feed; a fault where what is asked for cannot be.
    pub fn start(config: FeedOptions) -> Result<Feed> {
        BatchPlan::check(config.batch_rows, config.rank, config.world)?;
        if config.threads == 0 || config.slots == 0 || config.sources.is_empty() {
            return Err(Fault::new(
                codes::BAD_VALUE,
                "a feed needs a source, a thread and a slot",
            ));
        }
        let layout = BatchLayout::new(&config.features, config.batch_rows as usize)?;
        let datasets: Vec<BlockDataset> = config
            .sources
            .iter()
            .map(|source| source.dataset())
            .collect();
        let order = config
            .cursor
            .as_ref()
            .map_or(&config.order, |cursor| &cursor.order);
        let sequence = order.bind(datasets)?;
        let cursor = config
            .cursor
            .clone()
            .unwrap_or_else(|| FeedCursor::start(&sequence).at(config.first_epoch, 0));
        cursor.check(&sequence)?;
        let rows = sequence.epoch_rows();
        let epoch = BatchPlan {
            rows,
            batch: config.batch_rows,
            world: config.world,
            last: config.last,
        };
        let schedule = BatchSchedule::new(&cursor, epoch, config.rank, config.epochs);
        let series = SeriesPacker::new(&config.features);
        let window_rows = match sequence.order().mode {
            OrderMode::Shuffled { window_rows } => window_rows,
            OrderMode::Sequential | OrderMode::Time => 0,
        };
        let straight = window_rows == 0 && series.is_none() && config.sources.len() == 1;
        let memory_bytes = config.memory_bytes(&layout, window_rows.min(rows));
        if let Some(most) = config.memory_max.filter(|most| memory_bytes > *most) {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let message = format!(
                "the feed would hold {} MiB of rows, and may hold {}",
                mib(memory_bytes),
                mib(most)
            );
            let hint = "lower `window_rows` (which changes the order of rows) or `batch_rows`, or raise the memory";
            return Err(Fault::new(codes::MEMORY, message).hint(hint));
        }
        let streams = chunk_streams(&sequence, &schedule, window_rows, config.ahead());
        let free = (0..config.slots)
            .map(|_| config.allocator.allocate(layout.bytes))
            .collect::<Result<Vec<_>>>()?;
        let state = FeedState {
            streams,
            next: 0,
            slots: free.len(),
            free,
            filling: 0,
            ready: Default::default(),
            fault: None,
            times: Default::default(),
        };
        let work = Arc::new(SharedFeed {
            sources: config.sources,
            sequence,
            schedule,
            columns: config.features.columns(),
            packer: TilePacker::new(config.features, layout),
            series,
            straight,
            receipts: config.receipts,
            pool: Arc::default(),
            allocator: config.allocator,
            slots: config.slots,
            slots_max: config.slots_max.max(config.slots),
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
        };
        for number in 0..config.threads {
            let work = work.clone();
            let thread = thread::Builder::new()
                .name(format!("feed-{number}"))
                .spawn(move || work.run());
            feed.threads.push(
                thread.map_err(|error| {
                    Fault::disk("a thread of the feed cannot be started", error)
                })?,
            );
        }
        Ok(feed)
    }

    /// Where the feed stands after the last batch that was handed over.
    pub fn cursor(&self) -> &FeedCursor {
        &self.cursor
    }

    /// The order that the feed delivers.
    pub fn sequence(&self) -> &RowSequence {
        &self.work.sequence
    }

    /// Where the parts of a batch lie.
    pub fn layout(&self) -> &BatchLayout {
        &self.work.packer.layout
    }

    /// How many batches of an epoch this feed delivers.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.work.schedule.steps(epoch)
    }

    /// Bytes of rows that the feed holds at most, slots included, beside what reading blocks takes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// What the feed did since this was asked last: once an epoch tells each epoch's.
    pub fn take_stats(&mut self) -> FeedStats {
        let times = std::mem::take(&mut self.work.lock().times);
        let wall = std::mem::replace(&mut self.since, Instant::now()).elapsed();
        FeedStats {
            times,
            wall,
            ..std::mem::take(&mut self.stats)
        }
    }

    /// Whether the next batch is there: asking for it then neither waits nor counts as starving.
    pub fn is_ready(&self) -> bool {
        self.work.lock().ready.contains_key(&self.next)
    }

    /// The next batch, waiting no longer than this; `Ok(None)` where it is not there yet. For callers
    /// that have to look at other things meanwhile. `None` and faults are those of the iterator.
    pub fn next_within(&mut self, patience: Duration) -> Option<Result<Option<FeedBatch>>> {
        if self.failed {
            return None;
        }
        let batch = self.wait(Some(patience));
        self.failed = batch.is_err();
        match batch {
            Ok(WaitOutcome::Batch(batch)) => Some(Ok(Some(batch))),
            Ok(WaitOutcome::Later) => Some(Ok(None)),
            Ok(WaitOutcome::End) => None,
            Err(fault) => Some(Err(fault)),
        }
    }

    fn wait(&mut self, patience: Option<Duration>) -> Result<WaitOutcome> {
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
            if state.filling == 0
                && let Some(fault) = state.fault.take()
            {
                return Err(fault);
            }
            if state.free.is_empty() && state.filling == 0 && state.ready.is_empty() {
                self.work.add_slot(&mut state)?;
            }
            if !std::mem::replace(&mut waited, true) && !std::mem::replace(&mut self.starving, true)
            {
                self.stats.starved_steps += 1;
            }
            let Some(patience) = patience else {
                state = self
                    .work
                    .consumer
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(left) = patience.checked_sub(begin.elapsed()) else {
                self.stats.consumer_wait += begin.elapsed();
                return Ok(WaitOutcome::Later);
            };
            (state, _) = self
                .work
                .consumer
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        self.starving = false;
        let batch = FeedBatch::new(self.work.clone(), filled);
        self.next += 1;
        self.cursor = self.cursor.at(job.next.0, job.next.1);
        self.stats.steps += 1;
        self.stats.rows += batch.rows() as u64;
        self.stats.bytes += batch.bytes() as u64;
        self.stats.consumer_wait += if waited {
            begin.elapsed()
        } else {
            Duration::ZERO
        };
        Ok(WaitOutcome::Batch(batch))
    }
}

/// What waiting for a batch came to.
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
    let datasets = sequence.datasets().iter().zip(0..);
    datasets
        .map(|(data, number)| {
            let widest = (0..data.blocks() as u32)
                .map(|block| data.block_rows(block))
                .max()
                .unwrap_or(0);
            let capacity = window_rows + ahead * widest;
            ChunkStream::new(
                sequence,
                number,
                sequence.turns_of(number, schedule.places()),
                capacity,
            )
        })
        .collect()
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
