//! Metrics of a feed.

use forebay_feed::{FeedBatch, FeedStats};
use forebay_model::Result;
use forebay_storage::{CacheStats, Event};
use prometheus::{Counter, IntCounter, IntGauge};

use super::MetricSet;
use super::registry::{MetricRegistry, raise};

/// Metrics of a feed.
pub(crate) struct FeedMetrics {
    batches: IntCounter,
    rows: IntCounter,
    bytes: IntCounter,
    starved: IntCounter,
    wait_seconds: Counter,
    cache_hit_bytes: IntCounter,
    cache_missed_bytes: IntCounter,
    filled: IntCounter,
    duplicates: IntCounter,
    workers: IntGauge,
}

impl MetricSet for FeedMetrics {
    fn register(new: &MetricRegistry) -> Result<FeedMetrics> {
        Ok(FeedMetrics {
            batches: new.counter("feed_batches_total", "Batches delivered.")?,
            rows: new.counter("feed_rows_total", "Rows delivered, padding not counted.")?,
            bytes: new.counter("feed_bytes_total", "Bytes of the delivered batches.")?,
            starved: new.counter(
                "feed_starved_batches_total",
                "Batches that were not there when they were asked for.",
            )?,
            wait_seconds: new.seconds_counter(
                "feed_wait_seconds_total",
                "Seconds that the consumer waited for batches.",
            )?,
            cache_hit_bytes: new.counter(
                "feed_cache_hit_bytes_total",
                "Bytes that came from the disk cache instead of a store.",
            )?,
            cache_missed_bytes: new.counter(
                "feed_cache_missed_bytes_total",
                "Bytes that the disk cache did not have.",
            )?,
            filled: new.counter(
                "feed_filled_values_total",
                "Missing values that were filled, in the rows that were read.",
            )?,
            duplicates: new.counter(
                "feed_duplicate_rows_total",
                "Rows of sequences with the keys and the time of a row before them, \
                 among those that were read.",
            )?,
            workers: new.int_gauge("workers", "Workers that read rows of this feed.")?,
        })
    }

    fn count(&self, event: &Event) {
        match event {
            Event::WorkerJoined { .. } => self.workers.inc(),
            Event::WorkerLost { .. } => self.workers.dec(),
            _ => {}
        }
    }
}

impl FeedMetrics {
    /// Counts a batch that was delivered.
    pub fn count_batch(&self, batch: &FeedBatch, was_ready: bool) {
        self.batches.inc();
        self.rows.inc_by(batch.rows() as u64);
        self.bytes.inc_by(batch.bytes() as u64);
        self.starved.inc_by(u64::from(!was_ready));
    }

    /// Counts the result of an epoch.
    pub fn count_epoch(&self, stats: &FeedStats, cache: Option<CacheStats>) {
        self.wait_seconds.inc_by(stats.consumer_wait.as_secs_f64());
        self.filled.inc_by(stats.times.found.filled);
        self.duplicates.inc_by(stats.times.found.duplicates);
        if let Some(cache) = cache {
            raise(&self.cache_hit_bytes, cache.hit_bytes);
            raise(&self.cache_missed_bytes, cache.missed_bytes);
        }
    }
}
