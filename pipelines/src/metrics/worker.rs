//! Metrics of a worker.

use std::sync::{Arc, OnceLock};

use forebay_model::Result;
use forebay_run::TaskTally;
use forebay_storage::Event;
use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge};

use super::MetricSet;
use super::registry::{MetricRegistry, raise, raise_seconds};

/// Metrics of a worker's tasks, for all coordinators.
pub(crate) struct WorkerMetrics {
    tally: OnceLock<Arc<TaskTally>>,
    slots: IntGauge,
    running: IntGauge,
    tasks: IntCounterVec,
    rows_read: IntCounter,
    bytes_read: IntCounter,
    spilled_bytes: IntCounter,
    cpu_seconds: Counter,
}

impl MetricSet for WorkerMetrics {
    fn register(new: &MetricRegistry) -> Result<WorkerMetrics> {
        Ok(WorkerMetrics {
            tally: OnceLock::new(),
            slots: new.int_gauge(
                "worker_slots",
                "Tasks that the worker does at a time at most.",
            )?,
            running: new.int_gauge("worker_tasks_running", "Tasks that the worker is doing.")?,
            tasks: new.counters(
                "worker_tasks_total",
                "Tasks that the worker has ended, by how.",
                &["outcome"],
            )?,
            rows_read: new.counter("worker_rows_read_total", "Rows that ended tasks have read.")?,
            bytes_read: new.counter(
                "worker_bytes_read_total",
                "Stored bytes that ended tasks have read.",
            )?,
            spilled_bytes: new.counter(
                "worker_spilled_bytes_total",
                "Bytes that ended tasks have spilled to disk.",
            )?,
            cpu_seconds: new.seconds_counter(
                "worker_task_cpu_seconds_total",
                "Processor seconds of ended tasks.",
            )?,
        })
    }

    fn count(&self, _event: &Event) {}

    fn refresh(&self) {
        let Some(counts) = self.tally.get().map(|tally| tally.counts()) else {
            return;
        };
        self.running.set(counts.running as i64);
        let of = |outcome| self.tasks.with_label_values(&[outcome]);
        raise(&of("done"), counts.done);
        raise(&of("handed_back"), counts.handed_back);
        raise(&of("failed"), counts.failed);
        raise(&of("stopped"), counts.stopped);
        raise(&self.rows_read, counts.rows);
        raise(&self.bytes_read, counts.bytes);
        raise(&self.spilled_bytes, counts.spilled_bytes);
        raise_seconds(&self.cpu_seconds, counts.cpu_seconds);
    }
}

impl WorkerMetrics {
    /// Counts the tasks of a worker.
    pub fn observe(&self, slots: usize, tally: Arc<TaskTally>) {
        self.slots.set(slots as i64);
        // A process is one worker.
        let _ = self.tally.set(tally);
    }
}
