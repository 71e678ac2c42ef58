//! Metrics of every process: memory, and requests to object stores.

use forebay_model::Result;
use forebay_storage::{StorageClient, resident_bytes};
use prometheus::{Counter, IntCounter, IntGauge};

use super::registry::{MetricRegistry, raise, raise_seconds};

/// Metrics of a process.
pub(super) struct ProcessMetrics {
    pub memory_limit: IntGauge,
    resident_memory: IntGauge,
    requests: IntCounter,
    retries: IntCounter,
    read_bytes: IntCounter,
    written_bytes: IntCounter,
    wait_seconds: Counter,
}

impl ProcessMetrics {
    pub fn register(new: &MetricRegistry) -> Result<ProcessMetrics> {
        Ok(ProcessMetrics {
            memory_limit: new.int_gauge(
                "memory_limit_bytes",
                "The limit of the process's memory (--memory).",
            )?,
            // Not `process_resident_memory_bytes`: node_exporter has one of its own.
            resident_memory: new
                .int_gauge("resident_memory_bytes", "Resident memory of the process.")?,
            requests: new.counter("storage_requests_total", "Requests to object stores.")?,
            retries: new.counter(
                "storage_retries_total",
                "Requests to object stores that failed and were repeated.",
            )?,
            read_bytes: new
                .counter("storage_read_bytes_total", "Bytes read from object stores.")?,
            written_bytes: new.counter(
                "storage_written_bytes_total",
                "Bytes written to object stores.",
            )?,
            wait_seconds: new.seconds_counter(
                "storage_wait_seconds_total",
                "Seconds that threads waited for object stores.",
            )?,
        })
    }

    /// Updates the metrics to present values.
    pub fn refresh(&self, io: Option<&StorageClient>) {
        self.resident_memory
            .set(resident_bytes().unwrap_or(0) as i64);
        let Some(usage) = io.map(StorageClient::usage) else {
            return;
        };
        raise(&self.requests, usage.requests);
        raise(&self.retries, usage.retries);
        raise(&self.read_bytes, usage.bytes_read);
        raise(&self.written_bytes, usage.bytes_written);
        raise_seconds(&self.wait_seconds, usage.wait_seconds);
    }
}
