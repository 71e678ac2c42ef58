//! Where the time went.

use std::ops::AddAssign;
use std::time::Duration;

use crate::slot::NonFiniteCounts;

/// What the workers did; times are sums over threads.
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
    /// Values that are not finite.
    pub found: NonFiniteCounts,
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

/// What a training waits for.
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

/// What a feed did since its statistics were taken last.
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
    /// How long the consumer waited for batches.
    pub consumer_wait: Duration,
    /// Batches that were not there when the consumer asked.
    pub starved_steps: u64,
    /// What the workers did.
    pub times: WorkerTimes,
}

impl FeedStats {
    /// What the training waits for: the consumer itself where it waited less than a twentieth of
    /// the time for batches, else what the workers spent most on.
    pub fn bottleneck(&self) -> FeedBottleneck {
        let cpu = self.times.decoding + self.times.packing + self.times.filling;
        match () {
            () if self.consumer_wait * 20 < self.wall => FeedBottleneck::Trainer,
            () if self.times.disk > cpu => FeedBottleneck::Disk,
            () => FeedBottleneck::Cpu,
        }
    }

    /// Bytes of batches per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}
