//! Keeps a run on time: listens to its events, looks at the clock, and says what to do.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_model::{DegradationLevel, Fault, Pipeline, Result, codes};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{CancellationToken, Event, EventListener};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::deadline::cost::CostHistory;
use crate::deadline::decide::DeadlineAction;
use crate::deadline::forecast::{PlanOption, RunEstimate, RunForecast};
use crate::deadline::notify::Webhook;

/// Between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A run's clock and conscience. Its thread ends with it.
pub(crate) struct DeadlineMonitor {
    shared: Arc<MonitorInner>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the run share.
struct MonitorInner {
    began: Instant,
    began_at: Timestamp,
    deadline: Option<Timestamp>,
    /// What is told beside each message.
    about: Value,
    webhook: Option<Webhook>,
    watch: Arc<dyn EventListener>,
    interrupt: CancellationToken,
    state: Mutex<MonitorState>,
    /// Rings when there is something to tell, or the run is over.
    bell: Condvar,
}

#[derive(Default)]
struct MonitorState {
    forecast: RunForecast,
    /// How far down the ladder the run is.
    rung: Option<DegradationLevel>,
    /// How far down it has to go, and how many passes were done when that was decided.
    next: Option<(DegradationLevel, usize)>,
    /// Whether it was said that nothing helps.
    said_late: bool,
    /// What the webhook does not know yet.
    to_tell: Vec<Value>,
    over: bool,
}

impl DeadlineMonitor {
    /// Begins to keep a run. `run_id` and the pipeline's name go into messages.
    pub fn new(
        pipeline: &Pipeline,
        costs: CostHistory,
        deadline: Option<Timestamp>,
        webhook: Option<Webhook>,
        run_id: Option<&str>,
        (watch, interrupt): (Arc<dyn EventListener>, &CancellationToken),
    ) -> Result<DeadlineMonitor> {
        let (began, began_at) = (Instant::now(), Timestamp::now());
        let seconds = deadline.map(|deadline| deadline.duration_since(began_at).as_secs_f64());
        let fail = pipeline.deadline.as_ref().is_some_and(|deadline| deadline.fail);
        let state = MonitorState { forecast: RunForecast::new(costs, seconds, fail), ..MonitorState::default() };
        let shared = Arc::new(MonitorInner {
            began,
            began_at,
            deadline,
            about: json!({ "pipeline": pipeline.name, "run_id": run_id }),
            webhook,
            watch,
            interrupt: interrupt.with_own_deadline(),
            state: Mutex::new(state),
            bell: Condvar::new(),
        });
        let looker = shared.clone();
        let thread = std::thread::Builder::new().name("forebay-monitor".into()).spawn(move || looker.live());
        let thread = thread.map_err(|error| Fault::new(codes::LIMIT, "a thread cannot be started").cause(error))?;
        Ok(DeadlineMonitor { shared, thread: Some(thread) })
    }

    /// Who listens to the run from now on.
    pub fn watch(&self) -> Arc<dyn EventListener> {
        self.shared.clone()
    }

    /// What stops the run: the user, or the monitor.
    pub fn interrupt(&self) -> CancellationToken {
        self.shared.interrupt.clone()
    }

    /// The deadline.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.shared.deadline
    }

    /// How far down the ladder the run is.
    pub fn level(&self) -> Option<DegradationLevel> {
        self.shared.state().rung
    }

    /// The ways that are open from here, and the passes that are done already; decides at once.
    pub fn plan<'p>(&self, options: Vec<PlanOption>, done: impl Iterator<Item = &'p str>) {
        let now = self.shared.now();
        self.shared.state().forecast.plan(now, options, done);
        self.shared.look();
    }

    /// The pass of the plan that begins.
    pub fn begin(&self, pass: &str) {
        let now = self.shared.now();
        self.shared.state().forecast.begin(now, pass);
        self.shared.look();
    }

    /// The pass that began last has ended.
    pub fn end(&self, reused: bool) {
        let now = self.shared.now();
        self.shared.state().forecast.end(now, reused);
        self.shared.look();
    }

    /// Whether a run that failed has to be begun again further down the ladder.
    pub fn should_restart(&self) -> bool {
        let now = self.shared.now();
        let mut state = self.shared.state();
        let Some((next, finished)) = state.next.take() else { return false };
        let (mut rung, mut warning) = (Some(next), None);
        // What was done before the run stopped is not left to do: less may be enough.
        if state.forecast.finished_passes() > finished {
            let RunEstimate { left, verdict } = state.forecast.estimate(now);
            let enough = match verdict {
                DeadlineAction::OnTime => state.rung,
                DeadlineAction::Take(option) => state.forecast.level_of(option),
                DeadlineAction::Late | DeadlineAction::Stop => rung,
            };
            rung = rung.min(enough);
            if rung > state.rung && rung < Some(next) {
                let end = left.map(|left| self.shared.at(now + left));
                warning = self.shared.at_risk(&mut state, end, rung.map_or("none", DegradationLevel::word));
            }
        }
        state.rung = rung;
        self.shared.interrupt.set_degrade_requested(false);
        drop(state);
        warning.into_iter().for_each(|event| self.shared.watch.on_event(event));
        true
    }

    /// Whether the run is in time at its end, and what its passes cost beside those of earlier runs.
    pub fn finish(mut self) -> (Option<bool>, Option<CostHistory>) {
        self.stop();
        let forecast = std::mem::take(&mut self.shared.state().forecast);
        (self.shared.deadline.map(|deadline| Timestamp::now() <= deadline), forecast.into_costs())
    }

    fn stop(&mut self) {
        self.shared.state().over = true;
        self.shared.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // It never panics; if it did, the run is none the worse for it.
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
    /// Nothing that holds the lock can fail half-way.
    fn state(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the run began.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Looks at the clock and tells the webhook, until the run is over and everything is told.
    fn live(&self) {
        let mut answers = true;
        loop {
            let (told, over) = {
                let mut state = self.state();
                if state.to_tell.is_empty() && !state.over {
                    state = self.bell.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
                }
                (std::mem::take(&mut state.to_tell), state.over)
            };
            for body in &told {
                let Some(webhook) = self.webhook.as_ref().filter(|_| answers) else { break };
                if let Err(fault) = webhook.post(body) {
                    // After a failure the webhook is not called again: the run must not wait for it twice.
                    answers = false;
                    self.watch.on_event(Event::Warning { message: fault.message().to_owned() });
                }
            }
            if over && self.state().to_tell.is_empty() {
                return;
            }
            self.look();
        }
    }

    /// Says when the run will end, and what is done about it.
    fn look(&self) {
        let now = self.now();
        let mut state = self.state();
        if state.over {
            return;
        }
        let RunEstimate { left, verdict } = state.forecast.estimate(now);
        let end = left.map(|left| self.at(now + left));
        let mut events = Vec::new();
        if let (Some(left), Some(end)) = (left, &end) {
            let in_time = |deadline: f64| verdict == DeadlineAction::OnTime && now + left <= deadline;
            let on_time = state.forecast.deadline().map(in_time);
            events.push(Event::Eta { end: end.clone(), seconds_left: left.round(), on_time });
        }
        let settled = state.next.is_some() || self.interrupt.is_deadline_passed();
        if self.deadline.is_some() && !settled {
            let action = match verdict {
                DeadlineAction::Take(option) => state.forecast.level_of(option).map(DegradationLevel::word),
                DeadlineAction::Late if !state.said_late => Some("none"),
                DeadlineAction::Stop => Some("stop"),
                DeadlineAction::OnTime | DeadlineAction::Late => None,
            };
            if let Some(action) = action {
                events.extend(self.at_risk(&mut state, end, action));
            }
            match verdict {
                DeadlineAction::Take(option) => {
                    state.next = state.forecast.level_of(option).map(|rung| (rung, state.forecast.finished_passes()));
                    self.interrupt.set_degrade_requested(true);
                }
                DeadlineAction::Stop => self.interrupt.set_deadline_passed(),
                DeadlineAction::Late => state.said_late = true,
                DeadlineAction::OnTime => {}
            }
        }
        drop(state);
        events.into_iter().for_each(|event| self.watch.on_event(event));
    }

    /// What says that the deadline is at risk, and what is done about it; the webhook is told.
    fn at_risk(&self, state: &mut MonitorState, end: Option<String>, action: &'static str) -> Option<Event> {
        let deadline = format_utc(self.deadline?);
        if self.webhook.is_some() {
            let mut body = json!({ "event": "at_risk", "deadline": deadline, "end": end, "action": action });
            if let (Some(body), Some(about)) = (body.as_object_mut(), self.about.as_object()) {
                body.extend(about.clone());
            }
            state.to_tell.push(body);
            self.bell.notify_all();
        }
        Some(Event::AtRisk { deadline, end, action })
    }

    /// A moment of the run, for people.
    fn at(&self, seconds: f64) -> String {
        let since = SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::MAX);
        self.began_at.checked_add(since).map_or_else(|_| "never".to_owned(), format_utc)
    }
}

impl EventListener for MonitorInner {
    fn on_event(&self, event: Event) {
        match event {
            Event::Progress { rows, bytes } => {
                let now = self.now();
                self.state().forecast.advance(now, rows, bytes);
            }
            Event::PassReads { bytes, of } => self.state().forecast.set_reads(bytes, of),
            _ => {}
        }
        self.watch.on_event(event);
    }
}
