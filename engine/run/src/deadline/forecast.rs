//! The forecast of a run's end. It is pure: events and their times go in, estimates come out. `monitor.rs` connects it to the
//! clock.

use std::collections::{BTreeSet, VecDeque};

use forebay_model::DegradationLevel;

use crate::deadline::cost::{CostHistory, PassCost, PassEstimate, PassKind, PlannedPass};
use crate::deadline::decide::{DeadlineAction, Evidence, decide};
use crate::deadline::progress_curve::{PARTS, ProgressSamples};

/// Parameters of the measurement of a run's pace, in shares of its work.
struct PaceWindow {
    /// The last part of the work, whose pace counts.
    window: f64,
    /// The work that is added to it at the expected pace.
    prior: f64,
}

/// The pace by which the end is forecast.
const USUAL: PaceWindow = PaceWindow {
    window: 0.25,
    prior: 0.01,
};

/// The recent pace. It counts where it is slower, so that a late run is noticed sooner.
const RECENT: PaceWindow = PaceWindow {
    window: 0.05,
    prior: 0.02,
};

/// The share of a run's work that is added at the expected pace to the pace by which passes that have not begun are
/// foretold: the pace of a read says little of that of a training.
const OTHER_PASSES_PRIOR: f64 = 0.25;

/// Seconds that are added to each pace at the expected pace: the duration of the first second does
/// not predict that of a run.
const DAMPING_SECONDS: f64 = 2.0;

/// Seconds for which a pass may report no progress and still be on time.
const SILENCE_SECONDS: f64 = 1.5;

/// Share of a pass before which there is no forecast without an earlier run.
const BLIND: f64 = 0.02;

/// Share of a pass before which it cannot be surely late without an earlier run.
const SURE_MIN: f64 = 0.1;

/// The share by which the rest of a pass may be shorter than its progress suggests.
const PROGRESS_SPREAD: f64 = 0.3;

/// Seconds for which a run must look late before it degrades, unless the costs of earlier runs
/// confirm it: a pass reports no progress at first.
const STEADY_SECONDS: f64 = 0.9;

/// The share of a pass that sorts or joins before it reads: each row is read for that, sorted, and put back in order.
const WORK_SHARE: f64 = 0.75;

/// The progress of a pass that has not ended, at most.
const PROGRESS_MAX: f64 = 0.98;

/// Share of the expected rows after which a pass may report no more: the rows of runs differ.
const REPORTED_MIN: f64 = 0.98;

/// Progress points that are kept.
const PROGRESS_POINTS_MAX: usize = 512;

/// A plan for the remainder of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlanOption {
    /// Degradation of the plan; `None` for the whole spec.
    pub level: Option<DegradationLevel>,
    /// The passes of the plan in order.
    pub passes: Vec<PlannedPass>,
}

/// The estimate at a point in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunEstimate {
    /// Remaining seconds, where there is a forecast.
    pub remaining: Option<f64>,
    /// Action to take about the deadline.
    pub verdict: DeadlineAction,
}

/// The current pass.
#[derive(Debug, Clone)]
struct CurrentPass {
    pass: String,
    since: f64,
    bytes: u64,
    /// The rows that it has reported, or the steps, with their times.
    samples: ProgressSamples,
    /// The steps of the pass, if it counts its work in steps.
    steps: Option<u64>,
    /// Work beside the reading of its inputs: sorting, joining, computing, publishing.
    worked: u64,
    /// The work that is known to be to do.
    planned_work: u64,
    /// The bytes that it has to read, among the bytes that it has compared with earlier runs.
    read: u64,
    inspected: u64,
}

impl CurrentPass {
    /// The share of the pass that is done, given that of the bytes that it reads.
    fn share_with_work(&self, of_bytes: f64, kind: PassKind) -> f64 {
        if self.planned_work == 0 {
            return of_bytes;
        }
        let of_work = (self.worked as f64 / self.planned_work as f64).min(1.0);
        match kind {
            PassKind::Gather => of_work,
            _ => WORK_SHARE * of_work + (1.0 - WORK_SHARE) * of_bytes,
        }
    }
}

/// Expected seconds of the current pass.
#[derive(Debug, Clone, Copy, Default)]
struct PassWorkload {
    /// Work that the pass has reported.
    done: f64,
    /// Work that it may have done since: passes are silent at times, and some until they end.
    silent: f64,
    total: f64,
}

impl PassWorkload {
    /// Work of a pass that has reported `done` and then no progress for `silent_seconds`, of which
    /// at most `silence_max` count as work.
    fn new(done: f64, total: f64, silent_seconds: f64, silence_max: f64) -> PassWorkload {
        let most = total * PROGRESS_MAX;
        let done = done.min(most);
        PassWorkload {
            done,
            silent: silent_seconds.min(silence_max).clamp(0.0, most - done),
            total,
        }
    }

    fn remaining(&self) -> f64 {
        self.total - self.done - self.silent
    }
}

/// The progress of a run through its passes. Times are in seconds since the run began.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunForecast {
    costs: CostHistory,
    /// The time of the last event.
    now: f64,
    /// The deadline, if there is one.
    deadline: Option<f64>,
    fail: bool,
    /// The current plan, then the plans of lower levels.
    options: Vec<PlanOption>,
    current: Option<CurrentPass>,
    /// Finished work, in expected seconds.
    done: f64,
    /// Finished passes. Other plans reuse them, unless they use no findings of this run.
    finished: BTreeSet<String>,
    /// Finished work in expected seconds, and the times at which it was finished.
    trail: VecDeque<(f64, f64)>,
    /// The time since which the run looks late.
    late_since: Option<f64>,
    spent: Vec<PassCost>,
}

impl RunForecast {
    /// A forecast from the costs of earlier runs.
    pub fn new(costs: CostHistory, deadline: Option<f64>, fail: bool) -> Self {
        RunForecast {
            costs,
            deadline,
            fail,
            ..RunForecast::default()
        }
    }

    /// The deadline, if there is one.
    pub fn deadline(&self) -> Option<f64> {
        self.deadline
    }

    /// Sets the open plans, and the passes of the first plan that need no work.
    pub fn plan<'p>(
        &mut self,
        now: f64,
        mut options: Vec<PlanOption>,
        done: impl Iterator<Item = &'p str>,
    ) {
        // Work for an abandoned plan took time all the same.
        self.done = self.trail.back().map_or(0.0, |(worked, _)| *worked);
        let done: BTreeSet<String> = done.map(str::to_owned).collect();
        if let Some(option) = options.first_mut() {
            option.passes.retain(|pass| !done.contains(&pass.pass));
        }
        self.finished.extend(done);
        self.options = options;
        self.current = None;
        // Another plan looked late.
        self.late_since = None;
        self.record_progress(now);
    }

    /// Records that a pass begins.
    pub fn begin(&mut self, now: f64, pass: &str) {
        self.current = Some(CurrentPass {
            pass: pass.to_owned(),
            since: now,
            bytes: 0,
            samples: ProgressSamples::default(),
            steps: None,
            worked: 0,
            planned_work: 0,
            read: 0,
            inspected: 0,
        });
        self.record_progress(now);
    }

    /// Records that the pass has to read `bytes` of `total` inspected bytes.
    pub fn set_reads(&mut self, bytes: u64, total: u64) {
        if let Some(current) = &mut self.current {
            current.read += bytes;
            current.inspected += total;
        }
    }

    /// Records progress of the pass.
    pub fn advance(&mut self, now: f64, rows: u64, bytes: u64) {
        if let Some(current) = &mut self.current {
            current.bytes += bytes;
            if bytes == 0 {
                // Rows that are read to be sorted, joined or queried.
                current.worked += rows;
            }
            if current.steps.is_none() {
                current.samples.push(rows, now - current.since);
            }
        }
    }

    /// Records work beside reading, and work of that kind that is to do.
    pub fn work(&mut self, now: f64, done: u64, planned: u64) {
        if let Some(current) = &mut self.current {
            current.worked += done;
            current.planned_work += planned;
            if current.steps.is_none() && done > 0 {
                current.samples.push(done, now - current.since);
            }
        }
    }

    /// Records that the pass has done so many of its steps. Its rows count no more.
    pub fn set_steps(&mut self, now: f64, done: u64, steps: u64) {
        if let Some(current) = &mut self.current {
            if current.steps.replace(steps).is_none() {
                current.samples = ProgressSamples::default();
            }
            let new_steps = done.saturating_sub(current.samples.rows());
            current.samples.push(new_steps, now - current.since);
        }
    }

    /// Records that the pass has ended.
    pub fn end(&mut self, now: f64, reused: bool) {
        let Some(current) = self.current.take() else {
            return;
        };
        let Some(planned) = self.current_plan(&current) else {
            return;
        };
        if !reused {
            let read = planned.read.unwrap_or(planned.total);
            let seconds = now - current.since;
            let expected = self.expected(0, &planned);
            let is_guess = self.costs.is_known() && expected.spread.is_none();
            self.done += if is_guess { seconds } else { expected.seconds };
            let rows = current.samples.rows();
            let curve = current.samples.curve(seconds);
            self.spent.push(PassCost {
                pass: planned.pass.clone(),
                total: planned.total,
                read,
                rows,
                is_steps: current.steps.is_some(),
                seconds,
                curve,
            });
        }
        if let Some(option) = self.options.first_mut() {
            option.passes.retain(|pass| pass.pass != planned.pass);
        }
        self.finished.insert(planned.pass);
        self.record_progress(now);
    }

    /// The costs of this run and of earlier runs; `None` if this run executed no pass.
    pub fn into_costs(mut self) -> Option<CostHistory> {
        let did_some = !self.spent.is_empty();
        self.costs.push(self.spent);
        did_some.then_some(self.costs)
    }

    /// The estimate at `now`.
    pub fn estimate(&mut self, now: f64) -> RunEstimate {
        self.record_progress(now);
        let here = self.remaining_seconds(0);
        let work = self.done_seconds() + self.current_work().silent + here;
        let usual_pace = self.slowdown(now, work, USUAL);
        let recent_pace = self.slowdown(now, work, RECENT);
        // A run that has become slow is noticed by its recent pace.
        let pace = usual_pace.max(recent_pace);
        let remaining = if !self.costs.is_known() {
            self.remaining_without_history(now)
        } else if self.is_measured() {
            Some(self.remaining_at_paces(now, here, work))
        } else {
            None
        };
        // A finished run cannot be late.
        let Some(deadline) = self.deadline.filter(|_| here > 0.0) else {
            self.late_since = None;
            return RunEstimate {
                remaining,
                verdict: DeadlineAction::OnTime,
            };
        };
        let options: Vec<Option<f64>> = (0..self.options.len())
            .map(|option| Some(self.remaining_seconds(option) * pace))
            .collect();
        let evidence = self.evidence(now, deadline, pace);
        let verdict = decide(now, deadline, &options, evidence, self.fail);
        RunEstimate { remaining, verdict }
    }

    /// Seconds until the end: the current pass goes on at its own pace, and passes that have not begun run at that of the
    /// whole run. `here` is the work that is left of `work`.
    fn remaining_at_paces(&self, now: f64, here: f64, work: f64) -> f64 {
        let current = self.current_work();
        let of_current = current.remaining().min(here);
        let run_pace = self.pace_of_run(work);
        let Some(pass) = &self.current else {
            return here * run_pace;
        };
        let worked = self.done_seconds();
        let window = USUAL.window * work;
        let in_pass = |(then, _): &&(f64, f64)| *then >= self.done && worked - *then <= window;
        let (real, expected) = match self.trail.iter().find(in_pass) {
            Some((then, at)) => {
                let reported = now - current.silent;
                ((reported - at.max(pass.since)).max(0.0), worked - then)
            }
            None => (0.0, 0.0),
        };
        let prior = USUAL.prior * work + DAMPING_SECONDS;
        let pass_pace = if expected > 0.0 {
            (real + prior * run_pace) / (expected + prior)
        } else {
            // Nothing is known of a pass that is silent longer than it should be, but that it is late.
            self.slowdown(now, work, USUAL)
        };
        of_current * pass_pace + (here - of_current) * run_pace
    }

    /// Real seconds per expected second in all of the run, up to its last report: a silent pass says nothing of others.
    fn pace_of_run(&self, work: f64) -> f64 {
        let (expected, real) = self.trail.back().copied().unwrap_or_default();
        let prior = OTHER_PASSES_PRIOR * work + DAMPING_SECONDS;
        (real + prior) / (expected + prior)
    }

    /// Reliability of the estimate of a run's end.
    fn evidence(&mut self, now: f64, deadline: f64, pace: f64) -> Evidence {
        let least = self.least_seconds(now);
        let pace = if self.costs.is_known() { pace } else { 1.0 };
        let is_late = now + least * pace > deadline;
        self.late_since = self.late_since.or(Some(now)).filter(|_| is_late);
        let is_steady = self
            .late_since
            .is_some_and(|since| now - since >= STEADY_SECONDS);
        if now + least > deadline || is_steady {
            Evidence::Sure
        } else if self.costs.is_known() && self.is_measured() {
            Evidence::Likely
        } else {
            Evidence::None
        }
    }

    /// The passes of the current plan that are left.
    fn passes(&self) -> &[PlannedPass] {
        match self.options.first() {
            Some(option) => &option.passes,
            None => &[],
        }
    }

    /// The shortest time in which the current plan may end. Passes whose cost is not known, or was not measured by the
    /// last run, take no time.
    fn least_seconds(&self, now: f64) -> f64 {
        let passes = self.passes().iter();
        passes.map(|pass| self.least_of_pass(now, pass)).sum()
    }

    fn least_of_pass(&self, now: f64, pass: &PlannedPass) -> f64 {
        if let Some(current) = self.current_of(pass) {
            return self.least_of_current(now, current, pass);
        }
        let expected = self.expected(0, pass);
        match expected.spread {
            Some(spread) if expected.is_recent => expected.seconds * (1.0 - spread).max(0.0),
            _ => 0.0,
        }
    }

    /// The current pass, if it is this one.
    fn current_of(&self, pass: &PlannedPass) -> Option<&CurrentPass> {
        let current = self.current.as_ref();
        current.filter(|current| current.pass == pass.pass)
    }

    fn least_of_current(&self, now: f64, current: &CurrentPass, pass: &PlannedPass) -> f64 {
        let planned = self.current_plan(current);
        let expected = self.expected(0, planned.as_ref().unwrap_or(pass));
        if let Some(spread) = expected.spread.filter(|_| expected.is_recent) {
            return self.current_work().remaining() * (1.0 - spread).max(0.0);
        }
        let share = self.progress_share(current, pass);
        let seconds = share
            .filter(|share| *share >= SURE_MIN)
            .and_then(|share| self.remaining_by_progress(now, current, share));
        seconds.unwrap_or(0.0) * (1.0 - PROGRESS_SPREAD)
    }

    /// The remaining time of the current pass at its pace so far. A training reads its rows before
    /// its first step.
    fn remaining_by_progress(&self, now: f64, current: &CurrentPass, share: f64) -> Option<f64> {
        let Some(steps) = current.steps else {
            return Some((now - current.since) * (1.0 - share) / share);
        };
        let remaining = steps.saturating_sub(current.samples.rows());
        Some(remaining as f64 * current.samples.seconds_per_row()?)
    }

    /// Share of the current pass that is done, as far as it can be computed without an earlier run.
    fn progress_share(&self, current: &CurrentPass, pass: &PlannedPass) -> Option<f64> {
        let share = match current.steps {
            Some(steps) => current.samples.rows() as f64 / steps.max(1) as f64,
            None => {
                let planned = self.current_plan(current);
                let planned = planned.as_ref().unwrap_or(pass);
                let of_bytes =
                    current.bytes as f64 / planned.read.unwrap_or(planned.total).max(1) as f64;
                current.share_with_work(of_bytes.min(1.0), pass.kind)
            }
        };
        Some(share.min(1.0)).filter(|share| *share > 0.0)
    }

    /// True if each pass of the plan was measured by an earlier run, is measured by its own
    /// progress, or costs by the bytes that it reads.
    fn is_measured(&self) -> bool {
        let mut passes = self.passes().iter();
        passes.all(|pass| self.is_pass_measured(pass))
    }

    fn is_pass_measured(&self, pass: &PlannedPass) -> bool {
        if pass.kind != PassKind::Unmeasured || self.expected(0, pass).spread.is_some() {
            return true;
        }
        let Some(current) = self.current_of(pass) else {
            return false;
        };
        let share = self.progress_share(current, pass);
        let Some(share) = share.filter(|share| *share >= BLIND) else {
            return false;
        };
        self.remaining_by_progress(self.now, current, share)
            .is_some()
    }

    /// The remaining time of the first run: the current pass continues at its pace so far, and
    /// passes that read cost by their bytes. `None` while a pass of unknown cost is ahead.
    fn remaining_without_history(&self, now: f64) -> Option<f64> {
        let passes = self.passes();
        let scanned = self.spent.iter().filter(|cost| cost.read > 0);
        let (mut seconds, mut bytes) = scanned.fold((0.0, 0.0), |(seconds, bytes), cost| {
            (seconds + cost.seconds, bytes + cost.read as f64)
        });
        let mut remaining = 0.0;
        if let Some(current) = &self.current {
            let pass = passes.iter().find(|pass| pass.pass == current.pass)?;
            if pass.kind != PassKind::Small {
                let share = self.progress_share(current, pass)?;
                if share < BLIND {
                    return None;
                }
                remaining += self.remaining_by_progress(now, current, share)?;
                if current.bytes > 0 {
                    seconds += now - current.since;
                    bytes += current.bytes as f64;
                }
            }
        }
        for pass in passes {
            if self.current_of(pass).is_some() {
                continue;
            }
            match pass.kind {
                PassKind::Scan | PassKind::Gather if bytes > 0.0 => {
                    remaining += pass.total as f64 * seconds / bytes;
                }
                PassKind::Scan | PassKind::Gather | PassKind::Unmeasured => return None,
                PassKind::Small => {}
            }
        }
        Some(remaining)
    }

    /// The number of finished passes.
    pub fn finished_passes(&self) -> usize {
        self.finished.len()
    }

    /// The degradation of the plan that [`DeadlineAction::Take`] names.
    pub fn level_of(&self, option: usize) -> Option<DegradationLevel> {
        self.options.get(option)?.level
    }

    /// The plan of the current pass, with the facts that it has reported so far.
    fn current_plan(&self, current: &CurrentPass) -> Option<PlannedPass> {
        let pass = self
            .options
            .first()?
            .passes
            .iter()
            .find(|pass| pass.pass == current.pass)?;
        let read = (current.inspected > 0).then(|| {
            // The rest is assumed to be like the inspected bytes.
            let share = current.read as f64 / current.inspected as f64;
            current.read + (pass.total.saturating_sub(current.inspected) as f64 * share) as u64
        });
        Some(PlannedPass {
            read: read.or(pass.read),
            ..pass.clone()
        })
    }

    /// True if a plan cannot reuse the finished part of a pass.
    fn starts_over(&self, option: usize, planned: &PlannedPass) -> bool {
        planned.learned
            && self
                .options
                .get(option)
                .is_some_and(|option| option.level == Some(DegradationLevel::LastModel))
    }

    fn expected(&self, option: usize, planned: &PlannedPass) -> PassEstimate<'_> {
        if self.finished.contains(&planned.pass) && !self.starts_over(option, planned) {
            PassEstimate {
                seconds: 0.0,
                spread: Some(0.0),
                rows: None,
                is_recent: true,
            }
        } else {
            self.costs.estimate(planned)
        }
    }

    /// The expected seconds of the current pass.
    fn current_work(&self) -> PassWorkload {
        let Some((current, planned)) = self
            .current
            .as_ref()
            .and_then(|current| Some((current, self.current_plan(current)?)))
        else {
            return PassWorkload::default();
        };
        let expected = self.expected(0, &planned);
        let elapsed = self.now - current.since;
        let share = self.progress_share(current, &planned);
        let remaining =
            share.and_then(|share| self.remaining_by_progress(self.now, current, share));
        if self.costs.is_known()
            && let (None, Some(_), Some(remaining)) = (expected.spread, current.steps, remaining)
        {
            // No earlier run has recorded its cost, but its own steps measure it.
            return PassWorkload::new(elapsed, elapsed + remaining, 0.0, 0.0);
        }
        let seconds = expected.seconds;
        match (expected.rows, expected.spread) {
            (Some((rows, curve)), _) => {
                let reported = current.samples.rows() as f64 / rows;
                let last = current.samples.last();
                let done = curve.at(reported);
                if reported >= REPORTED_MIN && last > 0.0 {
                    // The work after the last rows continues at their pace.
                    let done = done * (elapsed / last).max(1.0);
                    return PassWorkload::new(done * seconds, seconds, 0.0, 0.0);
                }
                let until_next = curve.at(reported + 1.0 / PARTS as f64) - done;
                let silence_max = (until_next * seconds).max(SILENCE_SECONDS);
                PassWorkload::new(done * seconds, seconds, elapsed - last, silence_max)
            }
            (None, Some(_)) => PassWorkload::new(0.0, seconds, elapsed, seconds),
            (None, None) => PassWorkload::new(share.unwrap_or(0.0) * seconds, seconds, 0.0, 0.0),
        }
    }

    /// Finished work that was reported, in expected seconds.
    fn done_seconds(&self) -> f64 {
        self.done + self.current_work().done
    }

    /// Remaining work of a plan, in expected seconds.
    fn remaining_seconds(&self, option: usize) -> f64 {
        let passes = self
            .options
            .get(option)
            .map(|option| option.passes.as_slice())
            .unwrap_or_default();
        let current = self
            .current
            .as_ref()
            .and_then(|current| self.current_plan(current));
        let current_seconds = self.current_work().remaining();
        let mut seconds = 0.0;
        for pass in passes {
            let is_current = current
                .as_ref()
                .is_some_and(|current| current.pass == pass.pass);
            // A lower level goes on with the current pass where the finished part is kept.
            let goes_on = option == 0 || pass.keeps && !self.starts_over(option, pass);
            seconds += if is_current && goes_on {
                current_seconds
            } else {
                self.expected(option, pass).seconds
            };
        }
        seconds
    }

    /// Records how much work is finished at `now`.
    fn record_progress(&mut self, now: f64) {
        self.now = now;
        let worked = self.done_seconds();
        let recorded = self.trail.back().map(|(worked, _)| *worked);
        if recorded.is_none_or(|recorded| worked > recorded) {
            self.trail.push_back((worked, now));
        }
        if self.trail.len() > PROGRESS_POINTS_MAX {
            self.trail.pop_front();
        }
    }

    /// Real seconds per expected second in the last part of the work. Without earlier runs, in all of it.
    fn slowdown(&self, now: f64, work: f64, pace: PaceWindow) -> f64 {
        let (window, prior) = if self.costs.is_known() {
            (pace.window * work, pace.prior * work + DAMPING_SECONDS)
        } else {
            (f64::INFINITY, 0.0)
        };
        let worked = self.done_seconds();
        let from = self.trail.iter().find(|(then, _)| worked - then <= window);
        // Time in which the pass may be silent says nothing of its pace.
        let reported = now - self.current_work().silent;
        let (real, expected) = from.map_or((0.0, 0.0), |(then, at)| {
            ((reported - at).max(0.0), worked - then)
        });
        if expected + prior > 0.0 {
            (real + prior) / (expected + prior)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const HOUR: f64 = 3600.0;

    /// A machine that does passes at a pace that changes, as time goes by a second at a time.
    struct SimulatedMachine {
        /// Real seconds that a second of work takes at a moment.
        slow: Box<dyn Fn(f64) -> f64>,
        /// Share of its time in which a pass reports rows.
        tells: f64,
        now: f64,
    }

    /// A pass of a spec: its work in seconds, and whether it is optional or learns.
    #[derive(Clone, Copy)]
    struct SimulatedPass {
        pass: &'static str,
        seconds: f64,
    }

    const SPEC: [SimulatedPass; 5] = [
        SimulatedPass {
            pass: "learn 1",
            seconds: 0.4 * HOUR,
        },
        SimulatedPass {
            pass: "learn 2",
            seconds: 0.2 * HOUR,
        },
        SimulatedPass {
            pass: "gather joined",
            seconds: 0.1 * HOUR,
        },
        SimulatedPass {
            pass: "write extra",
            seconds: 0.2 * HOUR,
        },
        SimulatedPass {
            pass: "write table",
            seconds: 0.4 * HOUR,
        },
    ];

    /// Share of the table that is new where the last model stays in use.
    const NEW: f64 = 0.05;

    fn ladder() -> [Option<DegradationLevel>; 4] {
        [
            None,
            Some(DegradationLevel::SkipOptional),
            Some(DegradationLevel::ReuseStates),
            Some(DegradationLevel::LastModel),
        ]
    }

    fn passes_on(level: Option<DegradationLevel>) -> Vec<SimulatedPass> {
        let stays = |work: &SimulatedPass| match work.pass {
            "write extra" => level.is_none(),
            pass if pass.starts_with("learn") => level < Some(DegradationLevel::ReuseStates),
            _ => true,
        };
        let new = |work: SimulatedPass| match (work.pass, level) {
            ("write table", Some(DegradationLevel::LastModel)) => SimulatedPass {
                seconds: work.seconds * NEW,
                ..work
            },
            _ => work,
        };
        SPEC.into_iter().filter(stays).map(new).collect()
    }

    fn bytes(work: SimulatedPass) -> u64 {
        (work.seconds * 1e6) as u64
    }

    fn plan_option(level: Option<DegradationLevel>) -> PlanOption {
        let whole = |work: &SimulatedPass| {
            SPEC.iter()
                .find(|spec| spec.pass == work.pass)
                .copied()
                .unwrap()
        };
        let planned = |work: SimulatedPass| PlannedPass {
            pass: work.pass.into(),
            learned: work.pass.starts_with("write"),
            total: bytes(whole(&work)),
            read: (level == Some(DegradationLevel::LastModel)).then(|| bytes(work)),
            keeps: work.pass.starts_with("write"),
            kind: PassKind::Scan,
        };
        PlanOption {
            level,
            passes: passes_on(level).into_iter().map(planned).collect(),
        }
    }

    impl SimulatedMachine {
        /// Does all remaining work; returns the time of its end, the levels that were taken, and
        /// the forecasts with the moments at which they were made.
        fn run(
            &mut self,
            forecast: &mut RunForecast,
        ) -> (f64, Vec<DegradationLevel>, Vec<(f64, f64)>) {
            let mut levels = Vec::new();
            let mut foretold = Vec::new();
            let mut done = BTreeSet::new();
            let mut written = BTreeMap::new();
            'ladder: loop {
                let level = levels.last().copied();
                let at = ladder().iter().position(|known| *known == level).unwrap();
                forecast.plan(
                    self.now,
                    ladder()[at..]
                        .iter()
                        .map(|level| plan_option(*level))
                        .collect(),
                    [].into_iter(),
                );
                for work in passes_on(level) {
                    let again = level == Some(DegradationLevel::LastModel)
                        && work.pass.starts_with("write");
                    if done.contains(work.pass) && !again {
                        continue;
                    }
                    forecast.begin(self.now, work.pass);
                    let mut anew = work.seconds;
                    let keeps = work.pass.starts_with("write") && !again;
                    let remaining = if keeps {
                        written.entry(work.pass).or_insert(work.seconds)
                    } else {
                        &mut anew
                    };
                    forecast.set_reads(
                        bytes(work),
                        plan_option(None)
                            .passes
                            .iter()
                            .find(|p| p.pass == work.pass)
                            .unwrap()
                            .total,
                    );
                    while *remaining > 0.0 {
                        let step = (1.0 / (self.slow)(self.now)).min(*remaining);
                        *remaining -= step;
                        self.now += 1.0;
                        if *remaining >= (1.0 - self.tells) * work.seconds {
                            forecast.advance(self.now, (step * 1e4) as u64, (step * 1e6) as u64);
                        }
                        let outlook = forecast.estimate(self.now);
                        foretold.extend(
                            outlook
                                .remaining
                                .map(|remaining| (self.now, self.now + remaining)),
                        );
                        if let DeadlineAction::Take(option) = outlook.verdict {
                            levels.push(forecast.level_of(option).unwrap());
                            continue 'ladder;
                        }
                    }
                    forecast.end(self.now, false);
                    done.insert(work.pass);
                }
                return (self.now, levels, foretold);
            }
        }
    }

    fn run(
        costs: CostHistory,
        deadline: Option<f64>,
        slow: impl Fn(f64) -> f64 + 'static,
    ) -> (f64, Vec<DegradationLevel>, RunForecast) {
        let mut forecast = RunForecast::new(costs, deadline, false);
        let (end, levels, _) = SimulatedMachine {
            slow: Box::new(slow),
            tells: 1.0,
            now: 0.0,
        }
        .run(&mut forecast);
        (end, levels, forecast)
    }

    /// End time and costs of a run at the usual pace.
    fn usual() -> (f64, CostHistory) {
        let (end, levels, forecast) = run(CostHistory::default(), None, |_| 1.0);
        assert!(levels.is_empty());
        (end, forecast.into_costs().unwrap())
    }

    #[test]
    fn the_end_is_foretold_within_15_percent_from_a_quarter_on() {
        // A second run of the same cost, with unequal passes, on a machine of the same or another
        // speed; passes report rows until they end, or do other work for half of their time.
        for (slow, tells) in [1.0, 1.3, 0.7]
            .into_iter()
            .flat_map(|slow| [(slow, 1.0), (slow, 0.5)])
        {
            let mut forecast = RunForecast::default();
            SimulatedMachine {
                slow: Box::new(|_| 1.0),
                tells,
                now: 0.0,
            }
            .run(&mut forecast);
            let mut forecast = RunForecast::new(forecast.into_costs().unwrap(), None, false);
            let (end, _, foretold) = SimulatedMachine {
                slow: Box::new(move |_| slow),
                tells,
                now: 0.0,
            }
            .run(&mut forecast);
            for (now, foretold) in foretold.into_iter().filter(|(now, _)| *now >= end / 4.0) {
                let wrong = (foretold - end).abs() / end;
                assert!(
                    wrong <= 0.15,
                    "at {now:.0} of {end:.0} s it foretold {foretold:.0} s"
                );
            }
        }
    }

    #[test]
    fn without_an_earlier_run_nothing_is_foretold_at_once() {
        let mut forecast = RunForecast::new(CostHistory::default(), Some(10.0), false);
        forecast.plan(0.0, vec![plan_option(None)], [].into_iter());
        assert_eq!(
            forecast.estimate(0.0),
            RunEstimate {
                remaining: None,
                verdict: DeadlineAction::OnTime
            }
        );
        assert_eq!(forecast.estimate(11.0).verdict, DeadlineAction::Late);
    }

    fn random(seed: u64, draw: u64) -> f64 {
        let x = (seed * 1000 + draw + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn twenty_slow_downs_end_in_time() {
        let (usual_end, costs) = usual();
        let mut taken = BTreeSet::new();
        for seed in 0..20 {
            // From some moment on, the machine is up to 6 times as slow; the deadline leaves 15 to 65 % to spare.
            let since = random(seed, 0) * usual_end;
            let slow = 1.2 + random(seed, 1).powi(2) * 4.8;
            let deadline = (1.15 + 0.5 * random(seed, 2)) * usual_end;
            let (end, levels, _) = run(costs.clone(), Some(deadline), move |now| {
                if now < since { 1.0 } else { slow }
            });
            let context = format!(
                "seed {seed}: {slow:.1} times slower since {since:.0}: {levels:?}, {end:.0} of \
                 {deadline:.0}"
            );
            assert!(end <= deadline, "{context}");
            assert!(
                levels.is_sorted() && levels.windows(2).all(|pair| pair[0] < pair[1]),
                "{context}"
            );
            let alone = usual_end - since;
            assert!(
                !levels.is_empty() || since + alone * slow <= deadline,
                "{context}"
            );
            taken.extend(levels);
        }
        assert_eq!(
            taken.len(),
            3,
            "every level is taken by some run: {taken:?}"
        );
    }

    #[test]
    fn a_run_in_time_takes_no_rung_and_a_pass_that_hangs_does() {
        let (usual_end, costs) = usual();
        let (end, levels, _) = run(costs.clone(), Some(1.2 * usual_end), |_| 1.0);
        assert!(levels.is_empty() && end == usual_end);
        let mut forecast = RunForecast::new(costs, Some(1.2 * usual_end), false);
        forecast.plan(0.0, ladder().map(plan_option).to_vec(), [].into_iter());
        forecast.begin(0.0, "learn 1");
        let hung = (0..)
            .map(f64::from)
            .find(|now| forecast.estimate(*now).verdict != DeadlineAction::OnTime)
            .unwrap();
        assert!(hung < usual_end, "noticed at {hung}");
    }

    fn planned(pass: &str, kind: PassKind) -> PlannedPass {
        PlannedPass {
            pass: pass.into(),
            total: 1000,
            read: None,
            learned: false,
            keeps: false,
            kind,
        }
    }

    fn short_night() -> Vec<PlanOption> {
        let passes = vec![
            planned("write table", PassKind::Scan),
            planned("train net", PassKind::Unmeasured),
            planned("forecast", PassKind::Unmeasured),
        ];
        let naive = PlanOption {
            level: Some(DegradationLevel::Naive),
            passes: vec![PlannedPass {
                total: 0,
                ..planned("naive", PassKind::Unmeasured)
            }],
        };
        vec![
            PlanOption {
                level: None,
                passes,
            },
            naive,
        ]
    }

    /// The passes of a short night, with their tenths of a second.
    const SHORT_NIGHT: [(&str, u64); 3] =
        [("write table", 10), ("train net", 40), ("forecast", 20)];

    /// Reports that a tenth of a second's work of a pass is done.
    fn report_tenth(forecast: &mut RunForecast, now: f64, pass: &str, tenth: u64, tenths: u64) {
        match pass {
            "write table" => forecast.advance(now, 100, 100),
            // A trainer reports its steps once a second, and reads its rows before.
            "train net" if tenth.is_multiple_of(10) => forecast.set_steps(now, tenth, tenths),
            _ => {}
        }
    }

    /// A run of a few seconds whose training reports steps and whose forecast reports nothing, at a
    /// pace; the estimates by time, and the levels that it would take.
    fn run_short_night(forecast: &mut RunForecast, slow: f64) -> (Vec<(f64, f64)>, Vec<f64>, f64) {
        let mut now = 0.0;
        let mut foretold = Vec::new();
        let mut degraded = Vec::new();
        forecast.plan(now, short_night(), [].into_iter());
        for (pass, tenths) in SHORT_NIGHT {
            forecast.begin(now, pass);
            for tenth in 1..=tenths {
                now += 0.1 * slow;
                report_tenth(forecast, now, pass, tenth, tenths);
                let estimate = forecast.estimate(now);
                foretold.extend(estimate.remaining.map(|remaining| (now, now + remaining)));
                if let DeadlineAction::Take(_) = estimate.verdict {
                    degraded.push(now);
                }
            }
            forecast.end(now, false);
        }
        (foretold, degraded, now)
    }

    #[test]
    fn nothing_is_foretold_of_a_training_that_no_run_has_measured() {
        let mut forecast = RunForecast::new(CostHistory::default(), Some(20.0), false);
        let (foretold, degraded, end) = run_short_night(&mut forecast, 1.0);
        assert_eq!((foretold, degraded), (Vec::new(), Vec::new()));
        // The costs of the next run are estimated, also on a machine of another speed.
        let costs = forecast.into_costs().unwrap();
        for slow in [0.8, 1.0, 1.25] {
            let mut forecast = RunForecast::new(costs.clone(), Some(1.3 * slow * end), false);
            let (foretold, degraded, end) = run_short_night(&mut forecast, slow);
            assert!(degraded.is_empty(), "{slow}: {degraded:?}");
            for (now, foretold) in foretold.iter().filter(|(now, _)| *now >= end / 3.0) {
                let wrong = (foretold - end).abs() / end;
                assert!(wrong <= 0.3, "{slow}: {foretold} of {end} at {now}");
            }
        }
    }

    /// A run whose passes each have a pace of their own, as passes that read, compute and write have on a busy machine: the
    /// estimates by time, and the end. A pass has its parts, each of `seconds` at the expected pace.
    fn run_at_paces(
        forecast: &mut RunForecast,
        parts: [u64; 3],
        seconds: f64,
        paces: [f64; 3],
    ) -> (Vec<(f64, f64)>, f64) {
        let mut now = 0.0;
        let mut foretold = Vec::new();
        forecast.plan(now, short_night(), [].into_iter());
        for (number, pass) in ["write table", "train net", "forecast"]
            .into_iter()
            .enumerate()
        {
            forecast.begin(now, pass);
            for part in 1..=parts[number] {
                now += seconds * paces[number];
                match pass {
                    "write table" => forecast.advance(now, 100, 100),
                    "train net" => forecast.set_steps(now, part, parts[number]),
                    _ => {}
                }
                let remaining = forecast.estimate(now).remaining;
                foretold.extend(remaining.map(|remaining| (now, now + remaining)));
            }
            forecast.end(now, false);
        }
        (foretold, now)
    }

    #[test]
    fn the_pace_of_a_pass_says_little_of_others() {
        // Runs of seconds and of minutes; the errors of the middle one of 200 runs and of the tenth worst.
        for (parts, seconds, middle_max, late_max) in [
            ([10, 40, 20], 0.1, 0.11, 0.19),
            ([30, 10, 30], 2.0, 0.13, 0.25),
        ] {
            let mut first = RunForecast::default();
            run_at_paces(&mut first, parts, seconds, [1.0; 3]);
            let costs = first.into_costs().unwrap();
            let mut worst = Vec::new();
            for seed in 0..200 {
                let paces = [0, 1, 2].map(|pass| 0.7_f64.powf(1.0 - 2.0 * random(seed, pass)));
                let mut forecast = RunForecast::new(costs.clone(), None, false);
                let (foretold, end) = run_at_paces(&mut forecast, parts, seconds, paces);
                let late = foretold.iter().filter(|(now, _)| *now >= end / 3.0);
                let wrong = late.map(|(_, foretold)| (foretold - end).abs() / end);
                worst.push(wrong.fold(0.0, f64::max));
            }
            worst.sort_by(f64::total_cmp);
            let middle = worst[100];
            let late = worst[190];
            assert!(
                middle <= middle_max && late <= late_max,
                "{parts:?}: {middle:.3}, {late:.3}"
            );
        }
    }

    #[test]
    fn a_night_that_cannot_be_in_time_degrades_at_the_last_moment() {
        let mut forecast = RunForecast::default();
        run_short_night(&mut forecast, 1.0);
        let costs = forecast.into_costs().unwrap();
        // It takes seven seconds, give or take a third.
        for (deadline, between) in [(5.5, 1.9..5.2), (3.0, 0.0..1.1)] {
            let mut forecast = RunForecast::new(costs.clone(), Some(deadline), false);
            let (_, degraded, _) = run_short_night(&mut forecast, 1.0);
            let first = degraded.first().copied().unwrap_or(f64::INFINITY);
            assert!(between.contains(&first), "{deadline}: {first}");
        }
    }

    /// A night that takes the naive forecast when it is asked to; true if it was. It records the passes that it finished.
    fn run_night_on_ladder(forecast: &mut RunForecast, slow: f64) -> bool {
        let mut now = 0.0;
        forecast.plan(now, short_night(), [].into_iter());
        for (pass, tenths) in SHORT_NIGHT {
            forecast.begin(now, pass);
            for tenth in 1..=tenths {
                now += 0.1 * slow;
                report_tenth(forecast, now, pass, tenth, tenths);
                if let DeadlineAction::Take(_) = forecast.estimate(now).verdict {
                    forecast.plan(now, short_night().split_off(1), [].into_iter());
                    forecast.begin(now, "naive");
                    forecast.end(now + 0.3, false);
                    return true;
                }
            }
            forecast.end(now, false);
        }
        false
    }

    /// Nights of 7 seconds with a deadline of 1.3 times that, behind some on a machine that was slower. A degraded night
    /// does not measure the passes that it left out: their old costs must not degrade the next ones for ever.
    #[test]
    fn slow_nights_do_not_degrade_all_nights_behind_them() {
        for (slow, slow_nights) in [(1.5, 1), (1.5, 5), (2.0, 5), (4.0, 5), (4.0, 30)] {
            let mut costs = CostHistory::default();
            for _ in 0..slow_nights {
                let mut forecast = RunForecast::new(costs, None, false);
                run_short_night(&mut forecast, slow);
                costs = forecast.into_costs().unwrap();
            }
            let mut degraded = Vec::new();
            for _ in 0..20 {
                let mut forecast = RunForecast::new(costs, Some(1.3 * 7.0), false);
                degraded.push(run_night_on_ladder(&mut forecast, 1.0));
                costs = forecast.into_costs().unwrap();
            }
            let count = degraded.iter().filter(|night| **night).count();
            assert!(
                count <= 4 && !degraded[10..].contains(&true),
                "{slow_nights} nights {slow} times as slow: {degraded:?}"
            );
        }
    }

    #[test]
    fn a_first_training_is_foretold_by_its_steps() {
        let mut forecast = RunForecast::default();
        let passes = vec![planned("train net", PassKind::Unmeasured)];
        let options = vec![PlanOption {
            level: None,
            passes,
        }];
        forecast.plan(0.0, options, [].into_iter());
        forecast.begin(0.0, "train net");
        // It reads its rows for ten seconds; then each of fifty steps takes one.
        assert_eq!(forecast.estimate(10.0).remaining, None);
        for step in 1..=50 {
            let now = 10.0 + step as f64;
            forecast.set_steps(now, step, 50);
            let remaining = forecast.estimate(now).remaining;
            assert_eq!(
                remaining,
                (step > 1).then_some(50.0 - step as f64),
                "{step}"
            );
        }
    }

    #[test]
    fn work_beside_reading_is_foretold() {
        let night = |forecast: &mut RunForecast, slow: f64| -> (Vec<(f64, f64)>, f64) {
            let passes = vec![planned("write table", PassKind::Scan)];
            let options = vec![PlanOption {
                level: None,
                passes,
            }];
            forecast.plan(0.0, options, [].into_iter());
            forecast.begin(0.0, "write table");
            forecast.work(0.0, 0, 30_000);
            let mut now = 0.0;
            let mut foretold = Vec::new();
            // Rows are read for a sort, sorted and put back for 30 seconds, and then read for 10.
            for tenth in 1..=400 {
                now += 0.1 * slow;
                match tenth {
                    ..=100 => forecast.advance(now, 100, 0),
                    101..=300 => forecast.work(now, 100, 0),
                    _ => forecast.advance(now, 100, 10),
                }
                let remaining = forecast.estimate(now).remaining;
                foretold.extend(remaining.map(|remaining| (now, now + remaining)));
            }
            forecast.end(now, false);
            (foretold, now)
        };
        let check = |foretold: &[(f64, f64)], end: f64| {
            let late: Vec<_> = foretold
                .iter()
                .filter(|(now, _)| *now >= end / 3.0)
                .collect();
            assert!(late.len() > 200, "{} estimates", late.len());
            for (now, foretold) in late {
                let wrong = (foretold - end).abs() / end;
                assert!(wrong <= 0.3, "{foretold} of {end} at {now}");
            }
        };
        let mut first = RunForecast::default();
        let (foretold, end) = night(&mut first, 1.0);
        check(&foretold, end);
        let costs = first.into_costs().unwrap();
        for slow in [0.8, 1.0, 1.25] {
            let mut next = RunForecast::new(costs.clone(), None, false);
            let (foretold, end) = night(&mut next, slow);
            check(&foretold, end);
        }
    }
}
