//! Counts events.

use std::sync::Arc;

use forebay_storage::{Event, EventListener};
use jiff::Timestamp;

use super::MetricSet;

/// Counts what it hears, and passes it on.
pub(super) struct MeasuringListener {
    pub inner: Arc<dyn EventListener>,
    pub gauges: Arc<MetricSet>,
}

impl EventListener for MeasuringListener {
    fn on_event(&self, event: Event) {
        self.gauges.count(&event);
        self.inner.on_event(event);
    }
}

/// An instant as it is written in events, in Unix time.
fn unix_seconds(instant: &str) -> Option<f64> {
    let instant: Timestamp = instant.parse().ok()?;
    Some(instant.as_millisecond() as f64 / 1e3)
}

impl MetricSet {
    fn count(&self, event: &Event) {
        match event {
            Event::Progress { rows, bytes } => {
                self.rows_read.inc_by(*rows);
                self.bytes_read.inc_by(*bytes);
            }
            Event::Spilled { bytes } => self.spilled_bytes.inc_by(*bytes),
            Event::PassStarted { number, total, .. } => {
                self.pass.set(*number as i64);
                self.passes.set(*total as i64);
            }
            Event::PassDone { reused, .. } => {
                self.passes_done.with_label_values(&[if *reused { "true" } else { "false" }]).inc();
            }
            Event::Eta { end, on_time, .. } => {
                if let Some(end) = unix_seconds(end) {
                    self.eta.set(end);
                }
                if let Some(on_time) = on_time {
                    self.on_time.set(i64::from(*on_time));
                }
            }
            Event::AtRisk { deadline, .. } => {
                if let Some(deadline) = unix_seconds(deadline) {
                    self.deadline.set(deadline);
                }
            }
            Event::WorkerJoined { .. } => self.workers.inc(),
            Event::WorkerLost { .. } => {
                self.workers_lost.inc();
                self.workers.dec();
            }
            Event::WorkerMoved { cpu_seconds, .. } => self.worker_cpu_seconds.inc_by(cpu_seconds.max(0.0)),
            Event::TrainingStep { sink, step, steps, loss, .. } => {
                self.training_step.with_label_values(&[sink]).set(*step as i64);
                self.training_steps.with_label_values(&[sink]).set(*steps as i64);
                self.training_loss.with_label_values(&[sink]).set(*loss);
            }
            Event::TrainingEpoch { sink, starved_steps, .. } => {
                self.starved_steps.with_label_values(&[sink]).inc_by(*starved_steps);
            }
            Event::Warning { .. } => self.warnings.inc(),
            Event::Discovered { .. }
            | Event::TakenOver { .. }
            | Event::Waiting { .. }
            | Event::PassReads { .. }
            | Event::Beside { .. }
            | Event::IntervalDone { .. }
            | Event::TrainingResumed { .. } => {}
        }
    }
}
