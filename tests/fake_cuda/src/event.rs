//! Events: how far a stream has come.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How often an event was recorded, and how many of these records the streams have reached.
#[derive(Debug, Default)]
struct EventCounts {
    recorded: u64,
    reached: u64,
}

/// An event. A wait is for the last record before the wait; without one there is nothing to wait for.
#[derive(Debug, Default)]
pub struct FakeEvent {
    counts: Mutex<EventCounts>,
    changed: Condvar,
}

impl FakeEvent {
    fn lock(&self) -> MutexGuard<'_, EventCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a record; its number goes into the stream's queue.
    pub fn record(&self) -> u64 {
        let mut counts = self.lock();
        counts.recorded += 1;
        counts.recorded
    }

    /// The last record so far: what a wait is for.
    pub fn last(&self) -> u64 {
        self.lock().recorded
    }

    /// A stream came to a record.
    pub fn reach(&self, record: u64) {
        let mut counts = self.lock();
        counts.reached = counts.reached.max(record);
        self.changed.notify_all();
    }

    /// Whether a record was reached.
    pub fn is_reached(&self, record: u64) -> bool {
        self.lock().reached >= record
    }

    /// Waits until a record is reached.
    pub fn wait(&self, record: u64) {
        let mut counts = self.lock();
        while counts.reached < record {
            counts = self
                .changed
                .wait(counts)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
