//! Runs: attempts, one after the other, each at the level of the ladder that the deadline demands.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_commit::{AttemptFence, StateLease};
use forebay_model::{IdBuilder, Interval, Pipeline, Result, hide_secrets};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{Event, StorageLocation};
use jiff::{Timestamp, Zoned};
use serde_json::{Value, json};

use crate::attempt::RunAttempt;
use crate::deadline::{CostHistory, DeadlineMonitor, DeadlineSpec, RunCost, RunSignals, Webhook};
use crate::report::{DeadlineOutcome, RunReport};
use crate::run_mode::RunMode;
use crate::run_record::{HistoryLimits, RunRecord};
use crate::run_recorder::RecordedRun;
use crate::session::Session;
use crate::training_tracker::{TrackedEvents, TrackedRun};
use crate::warnings::CollectedWarnings;

impl Session {
    /// Costs of the last runs of a pipeline, oldest first: at most 30.
    pub fn run_costs(&self, pipeline: &str) -> Result<Vec<RunCost>> {
        Ok(self.cost_history(pipeline)?.totals())
    }

    /// Runs a pipeline, and records the run in the state directory.
    pub(crate) fn run_with_deadline(
        &self,
        pipeline: &Pipeline,
        mode: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<RunReport> {
        if !self.records_runs {
            return self.run_tracked(pipeline, mode, interval);
        }
        let record = RunRecord {
            pipeline: pipeline.name.clone(),
            mode: mode.name().to_owned(),
            run_id: self.options.run_id.clone(),
            interval: interval.cloned(),
            source_paths: recorded_paths(pipeline),
            page: self.page.clone(),
            memory_limit_bytes: self.options.memory_bytes,
            ..RunRecord::default()
        };
        let limits = HistoryLimits::from_env()?;
        let listener = self.watch.clone();
        let recorded = RecordedRun::begin(&self.io, self.state()?, listener, record, limits);
        let session = self.with_listener(recorded.listener());
        let ended = session.run_tracked(pipeline, mode, interval);
        recorded.finish(&ended, RunReport::describe);
        ended
    }

    /// Runs a pipeline, and reports its trainings to the tracker, if there is one.
    fn run_tracked(
        &self,
        pipeline: &Pipeline,
        mode: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<RunReport> {
        let trains = matches!(mode, RunMode::Run) && !pipeline.trainings.is_empty();
        let tracked_run = TrackedRun {
            pipeline,
            run_id: self.options.run_id.as_deref(),
            io: &self.io,
            watch: &self.watch,
        };
        let tracker = self.tracker.as_ref().filter(|_| trains);
        let Some(trainings) = tracker.and_then(|tracker| tracker.begin(&tracked_run)) else {
            return self.run_attempts(pipeline, mode, interval);
        };
        let session = self.with_listener(Arc::new(TrackedEvents {
            inner: self.watch.clone(),
            trainings: trainings.clone(),
        }));
        let report = session.run_attempts(pipeline, mode, interval);
        trainings.end(report.as_ref());
        report
    }

    /// Runs, and starts again at a lower level of degradation if the deadline requires it:
    /// committed results are not computed again.
    fn run_attempts(
        &self,
        pipeline: &Pipeline,
        mode: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<RunReport> {
        let usage_before = self.io.usage();
        let declared_deadline = declared_deadline(pipeline)?;
        let deadline = self.deadline.or(declared_deadline);
        let fenced = self.fenced(pipeline, mode, interval)?;
        fenced.wait_until_ready(pipeline)?;
        let history = self.cost_location(&pipeline.name)?;
        let monitor = self.deadline_monitor(pipeline, deadline)?;
        let warnings = Arc::new(CollectedWarnings::new(monitor.watch()));
        let session = fenced.monitored(&monitor, warnings.clone());
        let result = session.attempt_until_done(pipeline, mode, interval, &monitor);
        let (on_time, costs) = monitor.finish();
        // The cost of one of several concurrent runs is not recorded, since it is not comparable.
        if let Some(costs) = costs.filter(|_| self.attempt.backfill_turn.is_none()) {
            self.store_costs(&history, &costs);
        }
        let on_time = deadline
            .zip(on_time)
            .map(|(deadline, on_time)| DeadlineOutcome {
                at: format_utc(deadline),
                on_time,
            });
        let usage = self.io.usage().since(usage_before);
        let storage = Some(usage).filter(|usage| usage.requests > 0);
        result.map(|report| RunReport {
            deadline: on_time,
            warnings: warnings.take(),
            storage,
            ..report
        })
    }

    /// The session of a run that other processes respect: with the fence of its id, and a lease on the states that it
    /// uses.
    fn fenced(
        &self,
        pipeline: &Pipeline,
        mode: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<Session> {
        // Some stores make a missing bucket with the first object.
        self.io.require_bucket(&self.state()?)?;
        let io = self.io.for_run(self.interrupt.clone(), self.watch.clone());
        let lease = Arc::new(StateLease::of_run(&io, &self.state()?)?);
        let fence = self.acquire_fence(pipeline, mode, interval)?;
        Ok(self.with_fence(fence, lease))
    }

    /// The monitor of a run that begins now.
    fn deadline_monitor(
        &self,
        pipeline: &Pipeline,
        deadline: Option<Timestamp>,
    ) -> Result<DeadlineMonitor> {
        let url = pipeline
            .deadline
            .as_ref()
            .and_then(|deadline| deadline.webhook.clone());
        let webhook = url.map(|url| Webhook {
            io: self.io.clone(),
            url,
        });
        let costs = self.cost_history(&pipeline.name)?;
        let signals = RunSignals {
            watch: self.watch.clone(),
            interrupt: self.interrupt.clone(),
        };
        let run_id = self.options.run_id.as_deref();
        DeadlineMonitor::new(pipeline, costs, deadline, webhook, run_id, signals)
    }

    /// Carries out attempts until one ends without a reason to try again.
    fn attempt_until_done(
        &self,
        pipeline: &Pipeline,
        mode: RunMode<'_>,
        interval: Option<&Interval>,
        monitor: &DeadlineMonitor,
    ) -> Result<RunReport> {
        let mut pipeline = Cow::Borrowed(pipeline);
        loop {
            let attempt = RunAttempt {
                session: self,
                whole: &pipeline,
                mode,
                interval,
                monitor,
                level: monitor.level(),
            };
            let fault = match attempt.run() {
                Ok(report) => return Ok(report),
                Err(fault) => fault,
            };
            if monitor.should_restart() {
                continue;
            }
            // A join whose rows outgrow the memory is partitioned in the next attempt.
            match self.bound_join_of(&pipeline, &fault)? {
                Some(bounded) if !matches!(mode, RunMode::Apply(_)) => {
                    pipeline = Cow::Owned(bounded);
                }
                _ => return Err(fault),
            }
        }
    }

    /// Costs only serve forecasts: no run fails because they cannot be stored.
    fn store_costs(&self, history: &StorageLocation, costs: &CostHistory) {
        let stored = costs
            .to_json()
            .and_then(|bytes| self.io.put(history, bytes.into()));
        if let Err(fault) = stored {
            self.watch.on_event(Event::Warning {
                message: format!("the costs of the run are not stored: {}", fault.message()),
            });
        }
    }

    /// Takes over the run of this id, if it has one. Runs of one id are those with one mode, interval, sources and
    /// locations of outputs: a scheduler calls several jobs by the name of one run.
    fn acquire_fence(
        &self,
        pipeline: &Pipeline,
        mode: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<Option<Arc<AttemptFence>>> {
        let Some(run_id) = &self.options.run_id else {
            return Ok(None);
        };
        let mode = mode.name();
        let sources: Vec<Value> = pipeline
            .sources
            .iter()
            .map(|source| json!([source.name, source.config]))
            .collect();
        let sinks = pipeline.sinks.iter().chain(&pipeline.trainings);
        let sinks: Vec<Value> = sinks.map(|sink| json!([sink.name, sink.config])).collect();
        let mut id = IdBuilder::new("run");
        id.text(run_id)
            .text(&pipeline.name)
            .json(&json!([mode, interval, sources, sinks]));
        if let Some(from) = &self.served.from {
            id.text(from);
        }
        let fence = AttemptFence::acquire(&self.io, &self.state()?, run_id, id.finish())?;
        if let Some(from) = fence.previous_attempt()? {
            self.watch.on_event(Event::TakenOver {
                run_id: run_id.clone(),
                attempt: fence.number(),
                from,
            });
        }
        Ok(Some(Arc::new(fence)))
    }
}

/// The deadline that a spec declares, for a run that begins now.
fn declared_deadline(pipeline: &Pipeline) -> Result<Option<Timestamp>> {
    let Some(declared) = &pipeline.deadline else {
        return Ok(None);
    };
    let Some(text) = &declared.by else {
        return Ok(None);
    };
    let resolved = DeadlineSpec::parse(text).and_then(|spec| spec.resolve(&Zoned::now()));
    resolved
        .map(Some)
        .map_err(|fault| fault.at(declared.at.as_ref()))
}

/// Paths of the sources that have one without secrets: artifacts do not know where their data lies.
fn recorded_paths(pipeline: &Pipeline) -> BTreeMap<String, String> {
    let mut paths = BTreeMap::new();
    for source in &pipeline.sources {
        let Some(path) = source.path() else {
            continue;
        };
        if hide_secrets(path) == path {
            paths.insert(source.name.clone(), path.to_owned());
        }
    }
    paths
}
