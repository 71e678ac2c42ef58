//! Metrics of `serve`.

use forebay_model::Result;
use forebay_storage::Event;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};

use super::MetricSet;
use super::registry::MetricRegistry;

/// Bounds of the histogram of durations, in seconds.
const SECONDS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Bounds of the histogram of requests in a batch.
const BATCH_REQUESTS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Metrics of a server of features and predictions.
pub(crate) struct ServeMetrics {
    pub requests: IntCounterVec,
    pub seconds: HistogramVec,
    pub rows: IntCounter,
    pub missing_keys: IntCounter,
    pub queue_rows: IntGauge,
    pub batch_requests: Histogram,
    pub in_flight: IntGauge,
    pub connections: IntGauge,
    pub facts: IntCounter,
    pub state_age_seconds: Gauge,
    pub state_bytes: IntGauge,
    pub drift: GaugeVec,
    pub drift_missing: GaugeVec,
    pub version: IntGaugeVec,
    pub switches: IntCounterVec,
    pub split_rows: IntCounter,
    pub shadow_rows: IntCounter,
    pub shadow_differences: IntCounter,
    pub log_rows: IntCounter,
    pub log_dropped: IntCounter,
}

impl MetricSet for ServeMetrics {
    fn register(new: &MetricRegistry) -> Result<ServeMetrics> {
        Ok(ServeMetrics {
            requests: new.counters(
                "serve_requests_total",
                "Requests that have been answered, by protocol and status.",
                &["protocol", "status"],
            )?,
            seconds: new.histograms(
                "serve_request_seconds",
                "Time from the first byte of a request's body to its answer.",
                &SECONDS,
                &["protocol"],
            )?,
            rows: new.counter("serve_rows_total", "Rows that have been answered.")?,
            missing_keys: new.counter(
                "serve_missing_keys_total",
                "Rows that lack a value of the source's keys.",
            )?,
            queue_rows: new.int_gauge("serve_queue_rows", "Rows that wait for a thread.")?,
            batch_requests: new.histogram(
                "serve_batch_requests",
                "Requests that were computed as one batch.",
                &BATCH_REQUESTS,
            )?,
            in_flight: new.int_gauge(
                "serve_in_flight_requests",
                "Requests that are being answered.",
            )?,
            connections: new.int_gauge("serve_connections", "Open connections.")?,
            facts: new.counter(
                "serve_facts_total",
                "Rows of facts that have been added to the state.",
            )?,
            state_age_seconds: new.gauge(
                "serve_state_age_seconds",
                "Time between the state's newest row and now; 0 without a state.",
            )?,
            state_bytes: new.int_gauge("serve_state_bytes", "Bytes of the state.")?,
            drift: new.gauges(
                "serve_drift",
                "Mean of the last rows less that of the fit, in standard deviations of the fit.",
                &["column"],
            )?,
            drift_missing: new.gauges(
                "serve_drift_missing",
                "Share of missing values of a column in the last rows less that of the fit.",
                &["column"],
            )?,
            version: new.int_gauges(
                "serve_version",
                "1 for the version that answers.",
                &["version"],
            )?,
            switches: new.counters(
                "serve_switches_total",
                "Newer versions, by outcome: switched, refused, rolled_back.",
                &["outcome"],
            )?,
            split_rows: new.counter(
                "serve_split_rows_total",
                "Rows that the second version has answered.",
            )?,
            shadow_rows: new.counter(
                "serve_shadow_rows_total",
                "Rows whose answers of both versions have been compared.",
            )?,
            shadow_differences: new.counter(
                "serve_shadow_differences_total",
                "Values in which the answers of both versions differ.",
            )?,
            log_rows: new.counter("serve_log_rows_total", "Rows that have been logged.")?,
            log_dropped: new.counter(
                "serve_log_dropped_total",
                "Requests of the sample that could not be logged.",
            )?,
        })
    }

    fn count(&self, _event: &Event) {}
}
