//! Metrics of a run, or of the runs of a backfill.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use forebay_contract::OutputSum;
use forebay_model::Result;
use forebay_run::RunReport;
use forebay_storage::Event;
use jiff::Timestamp;
use prometheus::{Counter, Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::MetricSet;
use super::registry::MetricRegistry;

/// Metrics of a run.
pub(crate) struct RunMetrics {
    began: Instant,
    progress: ProgressMetrics,
    workers: WorkerMetrics,
    deadline: DeadlineMetrics,
    trainings: TrainingMetrics,
    outcome: OutcomeMetrics,
    outputs: OutputMetrics,
}

/// Reads, passes and intervals.
struct ProgressMetrics {
    rows_read: IntCounter,
    bytes_read: IntCounter,
    spilled_bytes: IntCounter,
    passes_done: IntCounterVec,
    pass: IntGauge,
    passes: IntGauge,
    intervals: IntGauge,
    intervals_done: IntCounter,
    warnings: IntCounter,
}

/// Workers of the run, and their tasks.
struct WorkerMetrics {
    workers: IntGauge,
    workers_lost: IntCounter,
    worker_cpu_seconds: Counter,
    tasks_running: IntGauge,
    tasks: IntCounterVec,
}

/// The expected end, and the deadline.
struct DeadlineMetrics {
    eta: Gauge,
    deadline: Gauge,
    on_time: IntGauge,
}

/// Trainings, by sink.
struct TrainingMetrics {
    training_step: IntGaugeVec,
    training_steps: IntGaugeVec,
    training_loss: GaugeVec,
    starved_steps: IntCounterVec,
}

/// Times and success of the run.
struct OutcomeMetrics {
    start: Gauge,
    end: Gauge,
    duration: Gauge,
    success: IntGauge,
    nothing_new: IntGauge,
    degraded: IntGauge,
}

/// Rows of outputs, and rules about them.
struct OutputMetrics {
    output_rows: IntGaugeVec,
    row_changes: IntGaugeVec,
    expectation_holds: IntGaugeVec,
    source_days: IntGaugeVec,
}

fn seconds_since_1970() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// Unix time of an instant in the form of events.
fn unix_seconds(instant: &str) -> Option<f64> {
    let instant: Timestamp = instant.parse().ok()?;
    Some(instant.as_millisecond() as f64 / 1e3)
}

impl ProgressMetrics {
    fn register(new: &MetricRegistry) -> Result<ProgressMetrics> {
        Ok(ProgressMetrics {
            rows_read: new.counter(
                "rows_read_total",
                "Rows that passes read, summed over the reads of one pass.",
            )?,
            bytes_read: new.counter("bytes_read_total", "Stored bytes that passes read.")?,
            spilled_bytes: new
                .counter("spilled_bytes_total", "Bytes that were spilled to disk.")?,
            passes_done: new.counters(
                "passes_done_total",
                "Passes that ended, by whether they were reused.",
                &["reused"],
            )?,
            pass: new.int_gauge("pass", "The number of the pass at work, from 1.")?,
            passes: new.int_gauge("passes", "Passes of the run.")?,
            intervals: new.int_gauge(
                "intervals",
                "Intervals that a backfill runs; 0 for a single run.",
            )?,
            intervals_done: new.counter(
                "intervals_done_total",
                "Intervals that a backfill has published.",
            )?,
            warnings: new.counter("warnings_total", "Warnings.")?,
        })
    }

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
                let label = if *reused { "true" } else { "false" };
                self.passes_done.with_label_values(&[label]).inc();
            }
            Event::IntervalDone { .. } => self.intervals_done.inc(),
            Event::Warning { .. } => self.warnings.inc(),
            _ => {}
        }
    }
}

impl WorkerMetrics {
    fn register(new: &MetricRegistry) -> Result<WorkerMetrics> {
        Ok(WorkerMetrics {
            workers: new.int_gauge("workers", "Workers that take tasks of this run.")?,
            workers_lost: new.counter("workers_lost_total", "Workers that were lost.")?,
            worker_cpu_seconds: new.seconds_counter(
                "worker_cpu_seconds_total",
                "Processor seconds of workers for this run.",
            )?,
            tasks_running: new
                .int_gauge("tasks_running", "Tasks of this run that workers are doing.")?,
            tasks: new.counters(
                "tasks_total",
                "Tasks that workers have ended, by how.",
                &["outcome"],
            )?,
        })
    }

    fn count(&self, event: &Event) {
        match event {
            Event::WorkerJoined { .. } => self.workers.inc(),
            Event::WorkerLost { .. } => {
                self.workers_lost.inc();
                self.workers.dec();
            }
            Event::WorkerMoved { cpu_seconds, .. } => {
                self.worker_cpu_seconds.inc_by(cpu_seconds.max(0.0));
            }
            Event::TaskStarted { .. } => self.tasks_running.inc(),
            Event::TaskEnded { outcome, .. } => {
                self.tasks_running.dec();
                self.tasks.with_label_values(&[outcome]).inc();
            }
            _ => {}
        }
    }
}

impl DeadlineMetrics {
    fn register(new: &MetricRegistry) -> Result<DeadlineMetrics> {
        Ok(DeadlineMetrics {
            eta: new.gauge(
                "eta_timestamp_seconds",
                "When the run is expected to end, in Unix time.",
            )?,
            deadline: new.gauge(
                "deadline_timestamp_seconds",
                "The deadline, once it is at risk or the run has ended, in Unix time.",
            )?,
            on_time: new.int_gauge(
                "on_time",
                "1 while the run is expected to keep its deadline, 0 when it is late.",
            )?,
        })
    }

    fn count(&self, event: &Event) {
        match event {
            Event::Eta { end, on_time, .. } => {
                if let Some(end) = unix_seconds(end) {
                    self.eta.set(end);
                }
                if let Some(on_time) = on_time {
                    self.on_time.set(i64::from(*on_time));
                }
            }
            Event::AtRisk { deadline, .. } => self.set_deadline(deadline),
            _ => {}
        }
    }

    fn set_deadline(&self, instant: &str) {
        if let Some(deadline) = unix_seconds(instant) {
            self.deadline.set(deadline);
        }
    }
}

impl TrainingMetrics {
    fn register(new: &MetricRegistry) -> Result<TrainingMetrics> {
        Ok(TrainingMetrics {
            training_step: new.int_gauges(
                "training_step",
                "Steps that a training has done.",
                &["sink"],
            )?,
            training_steps: new.int_gauges(
                "training_steps",
                "Steps of all epochs of a training.",
                &["sink"],
            )?,
            training_loss: new.gauges(
                "training_loss",
                "Mean loss of the last steps of a training.",
                &["sink"],
            )?,
            starved_steps: new.counters(
                "training_starved_steps_total",
                "Steps of a training whose batch was not there yet.",
                &["sink"],
            )?,
        })
    }

    fn count(&self, event: &Event) {
        match event {
            Event::TrainingStep {
                sink,
                step,
                steps,
                loss,
                ..
            } => {
                self.training_step
                    .with_label_values(&[sink])
                    .set(*step as i64);
                self.training_steps
                    .with_label_values(&[sink])
                    .set(*steps as i64);
                self.training_loss.with_label_values(&[sink]).set(*loss);
            }
            Event::TrainingEpoch {
                sink,
                starved_steps,
                ..
            } => {
                self.starved_steps
                    .with_label_values(&[sink])
                    .inc_by(*starved_steps);
            }
            _ => {}
        }
    }
}

impl OutcomeMetrics {
    fn register(new: &MetricRegistry) -> Result<OutcomeMetrics> {
        Ok(OutcomeMetrics {
            start: new.gauge(
                "run_start_timestamp_seconds",
                "When the run began, in Unix time.",
            )?,
            end: new.gauge(
                "run_end_timestamp_seconds",
                "When the run ended, in Unix time; 0 while it is at work.",
            )?,
            duration: new.gauge(
                "run_duration_seconds",
                "How long the run took; 0 while it is at work.",
            )?,
            success: new.int_gauge(
                "run_success",
                "1 when the run ended well, 0 when it failed or is at work.",
            )?,
            nothing_new: new.int_gauge(
                "run_nothing_new",
                "1 when the run found everything known already.",
            )?,
            degraded: new.int_gauge(
                "run_degraded",
                "1 when the run did less than its spec says, to be on time.",
            )?,
        })
    }
}

impl OutputMetrics {
    fn register(new: &MetricRegistry) -> Result<OutputMetrics> {
        Ok(OutputMetrics {
            output_rows: new.int_gauges(
                "output_rows",
                "Rows of an output or forecast.",
                &["sink"],
            )?,
            row_changes: new.int_gauges(
                "output_row_changes",
                "Rows that a step removed from or added to an output or training, \
                 or values that it changed, by reason. \
                 Reasons `in` and `out` are the rows before and after all steps; \
                 those of a training's validation have `.validation` after its name.",
                &["sink", "step", "reason"],
            )?,
            expectation_holds: new.int_gauges(
                "expectation_holds",
                "1 where a rule of an `expect` step holds, 0 where it does not.",
                &["step", "rule"],
            )?,
            source_days: new.int_gauges(
                "source_days",
                "Days of a source that are late, duplicate or empty.",
                &["source", "kind"],
            )?,
        })
    }

    fn set_rows(&self, sink: &str, rows: u64) {
        self.output_rows.with_label_values(&[sink]).set(rows as i64);
    }

    fn set_rule(&self, step: &str, rule: &str, holds: bool) {
        self.expectation_holds
            .with_label_values(&[step, rule])
            .set(i64::from(holds));
    }

    fn set_row_sum(&self, sink: &str, sum: &OutputSum) {
        // The columns of a step are one count: names of columns are too many for labels.
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        counts.insert(("", "in"), sum.rows_in);
        counts.insert(("", "out"), sum.rows_out);
        for entry in sum.changes.entries() {
            let labels = (entry.step.as_str(), entry.change.name());
            *counts.entry(labels).or_default() += entry.count;
        }
        for ((step, reason), count) in counts {
            self.row_changes
                .with_label_values(&[sink, step, reason])
                .set(count as i64);
        }
    }
}

impl MetricSet for RunMetrics {
    fn register(new: &MetricRegistry) -> Result<RunMetrics> {
        let metrics = RunMetrics {
            began: Instant::now(),
            progress: ProgressMetrics::register(new)?,
            workers: WorkerMetrics::register(new)?,
            deadline: DeadlineMetrics::register(new)?,
            trainings: TrainingMetrics::register(new)?,
            outcome: OutcomeMetrics::register(new)?,
            outputs: OutputMetrics::register(new)?,
        };
        metrics.outcome.start.set(seconds_since_1970());
        Ok(metrics)
    }

    fn count(&self, event: &Event) {
        match event {
            Event::Progress { .. }
            | Event::Spilled { .. }
            | Event::PassStarted { .. }
            | Event::PassDone { .. }
            | Event::IntervalDone { .. }
            | Event::Warning { .. } => self.progress.count(event),
            Event::WorkerJoined { .. }
            | Event::WorkerLost { .. }
            | Event::WorkerMoved { .. }
            | Event::TaskStarted { .. }
            | Event::TaskEnded { .. } => self.workers.count(event),
            Event::Eta { .. } | Event::AtRisk { .. } => self.deadline.count(event),
            Event::TrainingStep { .. } | Event::TrainingEpoch { .. } => self.trainings.count(event),
            Event::ExpectationJudged {
                step, rule, holds, ..
            } => self.outputs.set_rule(step, rule, *holds),
            Event::Discovered { .. }
            | Event::TakenOver { .. }
            | Event::Waiting { .. }
            | Event::Worked { .. }
            | Event::PassReads { .. }
            | Event::Beside { .. }
            | Event::TrainingResumed { .. } => {}
        }
    }
}

impl RunMetrics {
    /// Sets the number of intervals.
    pub fn set_intervals(&self, intervals: usize) {
        self.progress.intervals.set(intervals as i64);
    }

    /// Sets the metrics of a run's result.
    pub fn set_report(&self, report: &RunReport) {
        let outcome = &self.outcome;
        outcome.nothing_new.set(i64::from(report.nothing_new));
        outcome.degraded.set(i64::from(report.ladder.is_some()));
        if let Some(deadline) = &report.deadline {
            self.deadline.on_time.set(i64::from(deadline.on_time));
            self.deadline.set_deadline(&deadline.at);
        }
        let outputs = &self.outputs;
        for days in &report.days {
            outputs
                .source_days
                .with_label_values(&[days.source.as_str(), days.kind.name()])
                .set(days.days as i64);
        }
        for output in &report.outputs {
            outputs.set_rows(&output.sink, output.rows);
            outputs.set_row_sum(&output.sink, &output.sum);
        }
        for model in &report.models {
            let learned = &model.learned;
            if let Ok(sum) = learned.row_sum() {
                outputs.set_row_sum(&model.sink, &sum);
            }
            if learned.validation_rows > 0
                && let Ok(sum) = learned.validation_sum()
            {
                outputs.set_row_sum(&format!("{}.validation", model.sink), &sum);
            }
        }
        for forecast in &report.forecasts {
            outputs.set_rows(&forecast.sink, forecast.rows);
            outputs.set_row_sum(&forecast.sink, &forecast.sum);
        }
        // Concurrent intervals send no events.
        for rule in &report.expectations {
            outputs.set_rule(&rule.step, &rule.rule, rule.holds);
        }
    }

    /// Records the end of the command, and whether it succeeded.
    pub fn set_end(&self, success: bool) {
        let outcome = &self.outcome;
        outcome.end.set(seconds_since_1970());
        outcome.duration.set(self.began.elapsed().as_secs_f64());
        outcome.success.set(i64::from(success));
    }
}
