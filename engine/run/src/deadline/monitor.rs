//! The monitor of a run's deadline: it listens to events, checks the clock, and requests that the
//! run degrade or stop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_model::{DegradationLevel, Fault, Pipeline, Result};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{CancellationToken, Event, EventListener};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::deadline::cost::CostHistory;
use crate::deadline::decide::{DeadlineAction, check_seconds};
use crate::deadline::forecast::{PlanOption, RunEstimate, RunForecast};
use crate::deadline::notify::Webhook;

/// The time between two checks of the clock without a deadline.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Monitors the deadline of a run on a thread of its own, which ends when the monitor is dropped.
pub(crate) struct DeadlineMonitor {
    shared: Arc<MonitorInner>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread and the run share.
struct MonitorInner {
    began: Instant,
    began_at: Timestamp,
    deadline: Option<Timestamp>,
    /// The time between two checks of the clock.
    check_every: Duration,
    /// The fields that each message to the webhook has.
    about: Value,
    webhook: Option<Webhook>,
    watch: Arc<dyn EventListener>,
    interrupt: CancellationToken,
    state: Mutex<MonitorState>,
    /// Notified when a message is queued, and when the run is over.
    changed: Condvar,
}

#[derive(Default)]
struct MonitorState {
    forecast: RunForecast,
    /// The degradation of the run.
    level: Option<DegradationLevel>,
    /// The requested degradation.
    next: Option<RequestedLevel>,
    /// True from the start at another level until its plan is known: until then the forecast is that of the plan before.
    lacks_plan: bool,
    /// True once the warning was sent that no plan is on time.
    said_late: bool,
    /// Messages that the webhook has not received yet.
    queued: Vec<Value>,
    over: bool,
}

/// A requested degradation of the run.
struct RequestedLevel {
    level: DegradationLevel,
    /// The number of finished passes at that time.
    finished_passes: usize,
}

/// The listener and the cancellation token of a run.
pub(crate) struct RunSignals {
    pub watch: Arc<dyn EventListener>,
    pub interrupt: CancellationToken,
}

impl DeadlineMonitor {
    /// Starts monitoring a run. `run_id` and the pipeline's name go into messages.
    pub fn new(
        pipeline: &Pipeline,
        costs: CostHistory,
        deadline: Option<Timestamp>,
        webhook: Option<Webhook>,
        run_id: Option<&str>,
        signals: RunSignals,
    ) -> Result<DeadlineMonitor> {
        let began = Instant::now();
        let began_at = Timestamp::now();
        let seconds = deadline.map(|deadline| deadline.duration_since(began_at).as_secs_f64());
        let fail = pipeline
            .deadline
            .as_ref()
            .is_some_and(|deadline| deadline.fail);
        let state = MonitorState {
            forecast: RunForecast::new(costs, seconds, fail),
            ..MonitorState::default()
        };
        let shared = Arc::new(MonitorInner {
            began,
            began_at,
            deadline,
            check_every: seconds.map_or(CHECK_EVERY, |seconds| {
                Duration::from_secs_f64(check_seconds(seconds.max(0.0)))
            }),
            about: json!({ "pipeline": pipeline.name, "run_id": run_id }),
            webhook,
            watch: signals.watch,
            interrupt: signals.interrupt.with_own_deadline(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let monitored = shared.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-monitor".into())
            .spawn(move || monitored.run());
        let thread = thread.map_err(Fault::refused_thread)?;
        Ok(DeadlineMonitor {
            shared,
            thread: Some(thread),
        })
    }

    /// The listener for the run's events. It passes them on.
    pub fn watch(&self) -> Arc<dyn EventListener> {
        self.shared.clone()
    }

    /// The token by which the user or the monitor stops the run.
    pub fn interrupt(&self) -> CancellationToken {
        self.shared.interrupt.clone()
    }

    /// The deadline.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.shared.deadline
    }

    /// The degradation of the run.
    pub fn level(&self) -> Option<DegradationLevel> {
        self.shared.state().level
    }

    /// Sets the open plans, and the passes that need no work. Decides at once.
    pub fn plan<'p>(&self, options: Vec<PlanOption>, done: impl Iterator<Item = &'p str>) {
        let now = self.shared.now();
        let mut state = self.shared.state();
        state.forecast.plan(now, options, done);
        state.lacks_plan = false;
        drop(state);
        self.shared.check();
    }

    /// Records that a pass begins.
    pub fn begin(&self, pass: &str) {
        let now = self.shared.now();
        self.shared.state().forecast.begin(now, pass);
        self.shared.check();
    }

    /// Records that the current pass has ended.
    pub fn end(&self, reused: bool) {
        let now = self.shared.now();
        self.shared.state().forecast.end(now, reused);
        self.shared.check();
    }

    /// True if a stopped run has to start again at a lower level.
    pub fn should_restart(&self) -> bool {
        let now = self.shared.now();
        let mut state = self.shared.state();
        let Some(RequestedLevel {
            level: next,
            finished_passes,
        }) = state.next.take()
        else {
            return false;
        };
        let mut level = Some(next);
        let mut warning = None;
        // Passes that finished before the run stopped need not run again: a smaller step may be enough.
        if state.forecast.finished_passes() > finished_passes {
            let RunEstimate { remaining, verdict } = state.forecast.estimate(now);
            let enough = match verdict {
                DeadlineAction::OnTime => state.level,
                DeadlineAction::Take(option) => state.forecast.level_of(option),
                DeadlineAction::Late | DeadlineAction::Stop => level,
            };
            level = level.min(enough);
            if level > state.level && level < Some(next) {
                let end = remaining.map(|remaining| self.shared.at(now + remaining));
                warning = self.shared.at_risk(
                    &mut state,
                    end,
                    level.map_or("none", DegradationLevel::word),
                );
            }
        }
        state.level = level;
        state.lacks_plan = true;
        self.shared.interrupt.set_degrade_requested(false);
        drop(state);
        warning
            .into_iter()
            .for_each(|event| self.shared.watch.on_event(event));
        true
    }

    /// Stops the monitor. Returns true if the run ended before its deadline (`None` without one),
    /// and the costs of its passes and of earlier runs.
    pub fn finish(mut self) -> (Option<bool>, Option<CostHistory>) {
        self.stop();
        let forecast = std::mem::take(&mut self.shared.state().forecast);
        (
            self.shared
                .deadline
                .map(|deadline| Timestamp::now() <= deadline),
            forecast.into_costs(),
        )
    }

    fn stop(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the monitor does not affect the run.
            let _ = thread.join();
        }
    }
}

impl Drop for DeadlineMonitor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl MonitorInner {
    /// A poisoned lock still holds a consistent state: no holder fails between two changes.
    fn state(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the run began.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Checks the clock and sends messages until the run is over and all messages are sent.
    fn run(&self) {
        let mut answers = true;
        loop {
            let (messages, over) = {
                let mut state = self.state();
                if state.queued.is_empty() && !state.over {
                    state = self
                        .changed
                        .wait_timeout(state, self.check_every)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
                (std::mem::take(&mut state.queued), state.over)
            };
            for body in &messages {
                let Some(webhook) = self.webhook.as_ref().filter(|_| answers) else {
                    break;
                };
                if let Err(fault) = webhook.post(body) {
                    // After a failure the webhook is not called again: the run must not wait for it twice.
                    answers = false;
                    self.watch.on_event(Event::Warning {
                        message: fault.message().to_owned(),
                    });
                }
            }
            if over && self.state().queued.is_empty() {
                return;
            }
            self.check();
        }
    }

    /// Reports when the run will end, and acts on it.
    fn check(&self) {
        let now = self.now();
        let mut state = self.state();
        if state.over {
            return;
        }
        let RunEstimate {
            remaining,
            mut verdict,
        } = state.forecast.estimate(now);
        if state.lacks_plan && matches!(verdict, DeadlineAction::Take(_)) {
            verdict = DeadlineAction::OnTime;
        }
        let end = remaining.map(|remaining| self.at(now + remaining));
        let mut events = Vec::new();
        if let (Some(remaining), Some(end)) = (remaining, &end) {
            let in_time =
                |deadline: f64| verdict == DeadlineAction::OnTime && now + remaining <= deadline;
            let on_time = state.forecast.deadline().map(in_time);
            events.push(Event::Eta {
                end: end.clone(),
                // No negative zero.
                seconds_left: remaining.round() + 0.0,
                on_time,
            });
        }
        let settled = state.next.is_some() || self.interrupt.is_deadline_passed();
        if self.deadline.is_some() && !settled {
            let action = match verdict {
                DeadlineAction::Take(option) => {
                    state.forecast.level_of(option).map(DegradationLevel::word)
                }
                DeadlineAction::Late if !state.said_late => Some("none"),
                DeadlineAction::Stop => Some("stop"),
                DeadlineAction::OnTime | DeadlineAction::Late => None,
            };
            if let Some(action) = action {
                events.extend(self.at_risk(&mut state, end, action));
            }
            match verdict {
                DeadlineAction::Take(option) => {
                    let finished_passes = state.forecast.finished_passes();
                    let level = state.forecast.level_of(option);
                    state.next = level.map(|level| RequestedLevel {
                        level,
                        finished_passes,
                    });
                    self.interrupt.set_degrade_requested(true);
                }
                DeadlineAction::Stop => self.interrupt.set_deadline_passed(),
                DeadlineAction::Late => state.said_late = true,
                DeadlineAction::OnTime => {}
            }
        }
        drop(state);
        events
            .into_iter()
            .for_each(|event| self.watch.on_event(event));
    }

    /// The event that the deadline is at risk, with the action. Queues the message for the webhook.
    fn at_risk(
        &self,
        state: &mut MonitorState,
        end: Option<String>,
        action: &'static str,
    ) -> Option<Event> {
        let deadline = format_utc(self.deadline?);
        if self.webhook.is_some() {
            let mut body =
                json!({ "event": "at_risk", "deadline": deadline, "end": end, "action": action });
            if let (Some(body), Some(about)) = (body.as_object_mut(), self.about.as_object()) {
                body.extend(about.clone());
            }
            state.queued.push(body);
            self.changed.notify_all();
        }
        Some(Event::AtRisk {
            deadline,
            end,
            action,
        })
    }

    /// A time of the run, as text.
    fn at(&self, seconds: f64) -> String {
        let since = SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::MAX);
        self.began_at
            .checked_add(since)
            .map_or_else(|_| "never".to_owned(), format_utc)
    }
}

impl EventListener for MonitorInner {
    fn on_event(&self, event: Event) {
        match event {
            Event::Progress { rows, bytes } => {
                let now = self.now();
                self.state().forecast.advance(now, rows, bytes);
            }
            Event::Worked { done, planned } => {
                let now = self.now();
                self.state().forecast.work(now, done, planned);
            }
            Event::PassReads { bytes, of } => self.state().forecast.set_reads(bytes, of),
            Event::TrainingStep { step, steps, .. } => {
                let now = self.now();
                self.state().forecast.set_steps(now, step, steps);
            }
            _ => {}
        }
        self.watch.on_event(event);
    }
}
