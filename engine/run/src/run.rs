//! Runs: attempts, one after the other, each at the level of the ladder that the deadline demands.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_commit::{Artifact, AttemptFence, StateLease};
use forebay_model::{IdBuilder, Interval, Pipeline, Result};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{Event, EventListener};
use jiff::Zoned;
use serde_json::{Value, json};

use crate::attempt::RunAttempt;
use crate::deadline::{DeadlineMonitor, DeadlineSpec, RunCost, RunSignals, Webhook};
use crate::report::{DeadlineOutcome, RunReport};
use crate::session::Session;
use crate::training_tracker::{TrackedEvents, TrackedRun};
use crate::warnings::CollectedWarnings;

/// What a run is for.
#[derive(Clone, Copy)]
pub(crate) enum RunMode<'a> {
    /// The artifact.
    Fit,
    /// The artifact, outputs and models.
    Run,
    /// Outputs, with what this artifact learned.
    Apply(&'a Artifact),
}

impl Session {
    /// What the last runs of a pipeline cost, oldest first: at most 30.
    pub fn run_costs(&self, pipeline: &str) -> Result<Vec<RunCost>> {
        Ok(self.cost_history(pipeline)?.totals())
    }

    /// Runs, and tells of trainings where they are tracked.
    pub(crate) fn run_with_deadline(
        &self,
        pipeline: &Pipeline,
        goal: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<RunReport> {
        let tracker = self
            .tracker
            .as_ref()
            .filter(|_| matches!(goal, RunMode::Run) && !pipeline.trainings.is_empty());
        let trainings = tracker.and_then(|tracker| {
            let (run_id, io, watch) = (self.options.run_id.as_deref(), &self.io, &self.watch);
            tracker.begin(&TrackedRun {
                pipeline,
                run_id,
                io,
                watch,
            })
        });
        let Some(trainings) = trainings else {
            return self.run_attempts(pipeline, goal, interval);
        };
        let watch = Arc::new(TrackedEvents {
            inner: self.watch.clone(),
            trainings: trainings.clone(),
        });
        let done = Session {
            watch,
            ..self.clone()
        }
        .run_attempts(pipeline, goal, interval);
        trainings.end(done.as_ref());
        done
    }

    /// Runs, and begins again further down the ladder where the deadline demands it: what is committed
    /// by then is not done again.
    fn run_attempts(
        &self,
        pipeline: &Pipeline,
        goal: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<RunReport> {
        let before = self.io.usage();
        let spec = pipeline.deadline.as_ref();
        let by = spec.and_then(|spec| Some((spec, spec.by.as_deref()?)));
        let resolve = |text: &str| DeadlineSpec::parse(text)?.resolve(&Zoned::now());
        let by = by
            .map(|(spec, text)| resolve(text).map_err(|fault| fault.at(spec.at.as_ref())))
            .transpose()?;
        let deadline = self.deadline.or(by);
        // Some stores make a missing bucket with the first object.
        self.io.require_bucket(&self.state()?)?;
        let io = self.io.for_run(self.interrupt.clone(), self.watch.clone());
        let lease = Some(Arc::new(StateLease::of_run(&io, &self.state()?)?));
        let claimed = Session {
            claim: self.acquire_fence(pipeline, goal, interval)?,
            lease,
            ..self.clone()
        };
        claimed.wait_until_ready(pipeline)?;
        let webhook = spec
            .and_then(|spec| spec.webhook.clone())
            .map(|url| Webhook {
                io: self.io.clone(),
                url,
            });
        let (history, costs) = (
            self.cost_location(&pipeline.name)?,
            self.cost_history(&pipeline.name)?,
        );
        let signals = RunSignals {
            watch: self.watch.clone(),
            interrupt: self.interrupt.clone(),
        };
        let run_id = self.options.run_id.as_deref();
        let monitor = DeadlineMonitor::new(pipeline, costs, deadline, webhook, run_id, signals)?;
        let interrupt = monitor.interrupt();
        let warnings = Arc::new(CollectedWarnings::new(monitor.watch()));
        let watch: Arc<dyn EventListener> = warnings.clone();
        let session = Session {
            io: self
                .io
                .with_read_cache(self.memory().recent_bytes())
                .for_run(interrupt.clone(), watch.clone()),
            watch,
            interrupt,
            ..claimed
        };
        let mut pipeline = Cow::Borrowed(pipeline);
        let done = loop {
            let (whole, level) = (&*pipeline, monitor.level());
            let attempt = RunAttempt {
                session: &session,
                whole,
                mode: goal,
                interval,
                monitor: &monitor,
                level,
            };
            match attempt.run() {
                Err(_) if monitor.should_restart() => {}
                Err(fault) => match session.bound_join_of(&pipeline, &fault)? {
                    Some(bounded) if !matches!(goal, RunMode::Apply(_)) => {
                        pipeline = Cow::Owned(bounded)
                    }
                    _ => break Err(fault),
                },
                done => break done,
            }
        };
        let (on_time, costs) = monitor.finish();
        // Forecasts are a courtesy: no run fails because of them. What a run costs beside others tells nothing.
        if let Some(costs) = costs.filter(|_| self.turn.is_none())
            && let Err(fault) = costs
                .to_json()
                .and_then(|bytes| self.io.put(&history, bytes.into()))
        {
            self.watch.on_event(Event::Warning {
                message: format!("what the run cost is not kept: {}", fault.message()),
            });
        }
        let on_time = deadline
            .zip(on_time)
            .map(|(deadline, on_time)| DeadlineOutcome {
                at: format_utc(deadline),
                on_time,
            });
        let storage = Some(self.io.usage().since(before)).filter(|usage| usage.requests > 0);
        done.map(|report| RunReport {
            deadline: on_time,
            warnings: warnings.take(),
            storage,
            ..report
        })
    }

    /// Takes over the run of this id, if it has one. Runs of one id are those with the same goal, interval, sources
    /// and places: a scheduler calls several jobs by the name of one run.
    fn acquire_fence(
        &self,
        pipeline: &Pipeline,
        goal: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<Option<Arc<AttemptFence>>> {
        let Some(run_id) = &self.options.run_id else {
            return Ok(None);
        };
        let goal = match goal {
            RunMode::Fit => "fit",
            RunMode::Run => "run",
            RunMode::Apply(_) => "apply",
        };
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
            .json(&json!([goal, interval, sources, sinks]));
        if let Some(from) = &self.served.from {
            id.text(from);
        }
        let claim = AttemptFence::acquire(&self.io, &self.state()?, run_id, id.finish())?;
        if let Some(from) = claim.previous_attempt()? {
            self.watch.on_event(Event::TakenOver {
                run_id: run_id.clone(),
                attempt: claim.number(),
                from,
            });
        }
        Ok(Some(Arc::new(claim)))
    }
}
