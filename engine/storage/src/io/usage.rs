//! Counts of requests to object stores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;

use super::requests::RequestListener;

/// Counts of a process.
#[derive(Debug, Default)]
pub struct UsageCounters {
    requests: AtomicU64,
    failures: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    wait_nanos: AtomicU64,
    /// Receives each request, where one is set.
    pub listener: OnceLock<Arc<dyn RequestListener>>,
}

/// Counts of requests to object stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StorageUsage {
    /// Requests, the repeated ones among them.
    pub requests: u64,
    /// Bytes of the answers' bodies.
    pub bytes_read: u64,
    /// Bytes of the requests' bodies.
    pub bytes_written: u64,
    /// Requests that failed in a way that is worth another try.
    pub retries: u64,
    /// Seconds that threads waited for answers, over all threads.
    pub wait_seconds: f64,
}

impl UsageCounters {
    pub fn count_request(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn count_wait(&self, wait: Duration) {
        self.wait_nanos
            .fetch_add(wait.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn usage(&self) -> StorageUsage {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StorageUsage {
            requests: of(&self.requests),
            bytes_read: of(&self.bytes_read),
            bytes_written: of(&self.bytes_written),
            retries: of(&self.failures),
            wait_seconds: Duration::from_nanos(of(&self.wait_nanos)).as_secs_f64(),
        }
    }
}

impl StorageUsage {
    /// Counts since an earlier moment.
    pub fn since(self, earlier: StorageUsage) -> StorageUsage {
        StorageUsage {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            retries: self.retries.saturating_sub(earlier.retries),
            wait_seconds: (self.wait_seconds - earlier.wait_seconds).max(0.0),
        }
    }
}
