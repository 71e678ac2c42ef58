//! Metrics of a run, for Prometheus: served while it is at work, or written to a file when it ends.
//!
//! Names and units follow the conventions of Prometheus. A run is one process, so what it counts begins at 0.

mod listener;
mod server;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use forebay_model::{Fault, Result};
use forebay_run::{RunReport, Session};
use forebay_storage::{EventListener, StorageClient, resident_bytes};
use prometheus::{
    Encoder, Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use self::listener::MeasuringListener;
use self::server::MetricsServer;
use crate::replace_file::replace_file;

/// The metrics of a run.
pub(crate) struct RunMetrics {
    gauges: Arc<MetricSet>,
    server: Option<String>,
    file: Option<PathBuf>,
    /// Answers requests until the run has ended.
    serving: Option<MetricsServer>,
    began: Instant,
}

/// Every metric, by name.
pub(crate) struct MetricSet {
    registry: Registry,
    /// Where storage was asked, once the session is there.
    io: Mutex<Option<StorageClient>>,
    rows_read: IntCounter,
    bytes_read: IntCounter,
    spilled_bytes: IntCounter,
    passes_done: IntCounterVec,
    pass: IntGauge,
    passes: IntGauge,
    warnings: IntCounter,
    workers: IntGauge,
    workers_lost: IntCounter,
    worker_cpu_seconds: prometheus::Counter,
    eta: Gauge,
    deadline: Gauge,
    on_time: IntGauge,
    training_step: IntGaugeVec,
    training_steps: IntGaugeVec,
    training_loss: GaugeVec,
    starved_steps: IntCounterVec,
    memory_limit: IntGauge,
    resident_memory: IntGauge,
    storage_requests: IntGauge,
    storage_retries: IntGauge,
    storage_read_bytes: IntGauge,
    storage_written_bytes: IntGauge,
    storage_wait_seconds: Gauge,
    start: Gauge,
    end: Gauge,
    duration: Gauge,
    success: IntGauge,
    nothing_new: IntGauge,
    degraded: IntGauge,
    output_rows: IntGaugeVec,
    expectation_holds: IntGaugeVec,
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn broken(error: prometheus::Error) -> Fault {
    Fault::internal("a metric that cannot be registered").cause(error)
}

/// Makes and registers metrics.
struct MetricRegistry(Registry);

impl MetricRegistry {
    fn add<M: prometheus::core::Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> Result<M> {
        let metric = metric.map_err(broken)?;
        self.0.register(Box::new(metric.clone())).map_err(broken)?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.add(IntCounter::new(format!("forebay_{name}"), help))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<Gauge> {
        self.add(Gauge::new(format!("forebay_{name}"), help))
    }

    fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        self.add(IntGauge::new(format!("forebay_{name}"), help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(format!("forebay_{name}"), help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(format!("forebay_{name}"), help), labels))
    }

    fn int_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(format!("forebay_{name}"), help), labels))
    }
}

impl MetricSet {
    fn new() -> Result<MetricSet> {
        let new = MetricRegistry(Registry::new());
        let process = |name: &str, help: &str| new.add(IntGauge::new(name, help));
        Ok(MetricSet {
            io: Mutex::default(),
            rows_read: new.counter("rows_read_total", "Rows that passes read, summed over the reads of one pass.")?,
            bytes_read: new.counter("bytes_read_total", "Stored bytes that passes read.")?,
            spilled_bytes: new.counter("spilled_bytes_total", "Bytes that were spilled to disk.")?,
            passes_done: new.counters(
                "passes_done_total",
                "Passes that ended, by whether they were reused.",
                &["reused"],
            )?,
            pass: new.int_gauge("pass", "The number of the pass at work, from 1.")?,
            passes: new.int_gauge("passes", "Passes of the run.")?,
            warnings: new.counter("warnings_total", "Warnings.")?,
            workers: new.int_gauge("workers", "Workers that take tasks of this run.")?,
            workers_lost: new.counter("workers_lost_total", "Workers that were lost.")?,
            worker_cpu_seconds: new.add(prometheus::Counter::new(
                "forebay_worker_cpu_seconds_total",
                "Processor seconds of workers for this run.",
            ))?,
            eta: new.gauge("eta_timestamp_seconds", "When the run is expected to end, in Unix time.")?,
            deadline: new.gauge("deadline_timestamp_seconds", "The deadline at risk, in Unix time.")?,
            on_time: new
                .int_gauge("on_time", "1 while the run is expected to keep its deadline, 0 when it is late.")?,
            training_step: new.int_gauges("training_step", "Steps that a training has done.", &["sink"])?,
            training_steps: new.int_gauges("training_steps", "Steps of all epochs of a training.", &["sink"])?,
            training_loss: new.gauges("training_loss", "Mean loss of the last steps of a training.", &["sink"])?,
            starved_steps: new.counters(
                "training_starved_steps_total",
                "Steps of a training whose batch was not there yet.",
                &["sink"],
            )?,
            memory_limit: new.int_gauge("memory_limit_bytes", "The limit of the process's memory (--memory).")?,
            resident_memory: process("process_resident_memory_bytes", "Resident memory of the process.")?,
            storage_requests: new.int_gauge("storage_requests", "Requests to object stores.")?,
            storage_retries: new
                .int_gauge("storage_retries", "Requests to object stores that failed and were repeated.")?,
            storage_read_bytes: new.int_gauge("storage_read_bytes", "Bytes read from object stores.")?,
            storage_written_bytes: new.int_gauge("storage_written_bytes", "Bytes written to object stores.")?,
            storage_wait_seconds: new
                .gauge("storage_wait_seconds", "Seconds that threads waited for object stores.")?,
            start: new.gauge("run_start_timestamp_seconds", "When the run began, in Unix time.")?,
            end: new.gauge("run_end_timestamp_seconds", "When the run ended, in Unix time; 0 while it is at work.")?,
            duration: new.gauge("run_duration_seconds", "How long the run took; 0 while it is at work.")?,
            success: new.int_gauge("run_success", "1 when the run ended well, 0 when it failed or is at work.")?,
            nothing_new: new.int_gauge("run_nothing_new", "1 when the run found everything known already.")?,
            degraded: new.int_gauge("run_degraded", "1 when the run did less than its spec says, to be on time.")?,
            output_rows: new.int_gauges("output_rows", "Rows of an output or forecast.", &["sink"])?,
            expectation_holds: new.int_gauges(
                "expectation_holds",
                "1 where a rule of an `expect` step holds, 0 where it does not.",
                &["step", "rule"],
            )?,
            registry: new.0,
        })
    }

    /// Everything in the text format of Prometheus.
    fn text(&self) -> Result<String> {
        self.resident_memory.set(resident_bytes().unwrap_or(0) as i64);
        let io = self.io.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(usage) = io.map(|io| io.usage()) {
            self.storage_requests.set(usage.requests as i64);
            self.storage_retries.set(usage.retries as i64);
            self.storage_read_bytes.set(usage.bytes_read as i64);
            self.storage_written_bytes.set(usage.bytes_written as i64);
            self.storage_wait_seconds.set(usage.wait_seconds);
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(broken)?;
        String::from_utf8(text).map_err(|error| Fault::internal("metrics that are no text").cause(error))
    }
}

impl RunMetrics {
    /// Metrics that are served at an address, written to a file, or both.
    pub fn new(server: Option<String>, file: Option<PathBuf>) -> Result<RunMetrics> {
        let gauges = Arc::new(MetricSet::new()?);
        gauges.start.set(seconds_since_1970());
        Ok(RunMetrics { gauges, server, file, serving: None, began: Instant::now() })
    }

    /// A listener that counts what it hears, and passes it on.
    pub fn watch(&self, inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
        match (&self.server, &self.file) {
            (None, None) => inner,
            _ => Arc::new(MeasuringListener { inner, gauges: self.gauges.clone() }),
        }
    }

    /// Begins to answer requests, where that was asked for.
    pub fn serve(&mut self, session: &Session) -> Result<()> {
        *self.gauges.io.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.io().clone());
        self.gauges.memory_limit.set(session.memory_bytes() as i64);
        if let Some(address) = &self.server {
            let server = MetricsServer::start(address, self.gauges.clone(), &session.io().runtime_handle()?)?;
            // Standard output is for the summary.
            let _ = writeln!(anstream::stderr(), "metrics at http://{}/metrics", server.address);
            self.serving = Some(server);
        }
        Ok(())
    }

    /// Tells how the run ended, and writes the file.
    pub fn finish(self, done: Result<RunReport>) -> Result<RunReport> {
        let gauges = &self.gauges;
        gauges.end.set(seconds_since_1970());
        gauges.duration.set(self.began.elapsed().as_secs_f64());
        if let Ok(report) = &done {
            gauges.success.set(1);
            gauges.nothing_new.set(i64::from(report.nothing_new));
            gauges.degraded.set(i64::from(report.ladder.is_some()));
            if let Some(deadline) = &report.deadline {
                gauges.on_time.set(i64::from(deadline.on_time));
            }
            for output in &report.outputs {
                gauges.output_rows.with_label_values(&[&output.sink]).set(output.rows as i64);
            }
            for forecast in &report.forecasts {
                gauges.output_rows.with_label_values(&[&forecast.sink]).set(forecast.rows as i64);
            }
            for rule in &report.expectations {
                let holds = gauges.expectation_holds.with_label_values(&[&rule.step, &rule.rule]);
                holds.set(i64::from(rule.holds));
            }
        }
        let written = match &self.file {
            Some(path) => {
                gauges.text().and_then(|text| replace_file(path, &text, "the file of metrics cannot be written"))
            }
            None => Ok(()),
        };
        // A fault of the run is the one to tell.
        let report = done?;
        written.map(|()| report)
    }
}
