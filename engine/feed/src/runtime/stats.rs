//! Statistics of a feed: times by activity.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::slot::ValueCounts;

/// Times and counts of the workers; times are sums over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerTimes {
    /// Waiting for storage.
    pub disk: Duration,
    /// Decoding what was read.
    pub decoding: Duration,
    /// Casting and packing rows.
    pub packing: Duration,
    /// Filling slots.
    pub filling: Duration,
    /// Waiting because all slots were full or held by the consumer.
    pub producer_wait: Duration,
    /// Stored bytes that were read.
    pub stored: u64,
    /// Counts of changed values, in all rows that were read: those of a halo count with each block.
    pub found: ValueCounts,
}

impl AddAssign for WorkerTimes {
    fn add_assign(&mut self, other: WorkerTimes) {
        self.disk += other.disk;
        self.decoding += other.decoding;
        self.packing += other.packing;
        self.filling += other.filling;
        self.producer_wait += other.producer_wait;
        self.stored += other.stored;
        self.found += other.found;
    }
}

/// Counts of changed values in the rows that a feed has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Missing values that were filled, for each feature in the order of [`crate::BatchFeatures::columns`].
    pub filled: Vec<u64>,
    /// Counts over all columns.
    pub values: ValueCounts,
}

impl LoadCounts {
    /// Adds the filled values of other rows.
    pub fn add_filled(&mut self, filled: &[u64]) {
        if self.filled.len() < filled.len() {
            self.filled.resize(filled.len(), 0);
        }
        for (sum, count) in self.filled.iter_mut().zip(filled) {
            *sum += count;
        }
    }

    /// Adds the counts of other rows.
    pub fn add(&mut self, other: &LoadCounts) {
        self.add_filled(&other.filled);
        self.values += other.values;
    }
}

/// Is called once, with the number of rows that have the keys and the time of a row before them, when the first are met.
pub type ReportDuplicates = Arc<dyn Fn(u64) + Send + Sync>;

/// The resource that a training waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedBottleneck {
    /// Storage.
    Disk,
    /// Decoding, packing and filling.
    Cpu,
    /// The consumer itself: the feed waits for it.
    Trainer,
}

impl FeedBottleneck {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            FeedBottleneck::Disk => "disk",
            FeedBottleneck::Cpu => "cpu",
            FeedBottleneck::Trainer => "trainer",
        }
    }
}

/// Statistics of a feed since they were taken last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FeedStats {
    /// Batches delivered.
    pub steps: u64,
    /// Rows delivered, padding not counted.
    pub rows: u64,
    /// Bytes of the batches.
    pub bytes: u64,
    /// From the first to the last moment.
    pub wall: Duration,
    /// Time for which the consumer waited for batches.
    pub consumer_wait: Duration,
    /// Batches that were not ready when the consumer asked.
    pub starved_steps: u64,
    /// Times and counts of the workers.
    pub times: WorkerTimes,
}

impl FeedStats {
    /// The resource that the training waits for: the consumer itself where it waited less than a twentieth of
    /// the time for batches, else the one that the workers spent most time on.
    pub fn bottleneck(&self) -> FeedBottleneck {
        let cpu = self.times.decoding + self.times.packing + self.times.filling;
        if self.consumer_wait * 20 < self.wall {
            FeedBottleneck::Trainer
        } else if self.times.disk > cpu {
            FeedBottleneck::Disk
        } else {
            FeedBottleneck::Cpu
        }
    }

    /// Bytes of batches per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}
