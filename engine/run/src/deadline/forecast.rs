//! The forecast of a run's end. Pure: events and their times go in, estimates come out. `monitor.rs` connects it to the
//! clock.

use std::collections::{BTreeSet, VecDeque};

use forebay_model::DegradationLevel;

use crate::deadline::cost::{CostHistory, PassCost, PassEstimate, PassKind, PlannedPass};
use crate::deadline::decide::{DeadlineAction, Evidence, decide};
use crate::deadline::progress_curve::{PARTS, ProgressSamples};

/// How the pace of a run is measured, in shares of its work.
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

/// Seconds that are added to each pace at the expected pace: how long a second takes says nothing of a run.
const DAMPING_SECONDS: f64 = 2.0;

/// Seconds for which a pass may tell of nothing, and be on time all the same.
const SILENCE_SECONDS: f64 = 1.5;

/// Without an earlier run, there is no forecast before this share of a pass.
const BLIND: f64 = 0.02;

/// Without an earlier run, a pass is sure to be late only after this share of it.
const SURE_MIN: f64 = 0.1;

/// The share by which the rest of a pass may be shorter than its progress says.
const PROGRESS_SPREAD: f64 = 0.3;

/// Seconds for which a run must look late before it degrades, unless the costs of earlier runs say so: a pass reports no
/// progress at first.
const STEADY_SECONDS: f64 = 0.9;

/// The progress of a pass that has not ended, at most.
const PROGRESS_MAX: f64 = 0.98;

/// A pass that has reported this share of the expected rows may report no more: the rows of nights differ.
const TOLD_MIN: f64 = 0.98;

/// Progress points that are kept.
const PROGRESS_POINTS_MAX: usize = 512;

/// A plan for the rest of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlanOption {
    /// Its degradation; `None` for everything that the spec says.
    pub rung: Option<DegradationLevel>,
    /// Its passes in order.
    pub passes: Vec<PlannedPass>,
}

/// The estimate at a point in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunEstimate {
    /// Remaining seconds, where there is a forecast.
    pub left: Option<f64>,
    /// What to do about the deadline.
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
    /// The bytes that it has to read, among the bytes that it has compared with earlier runs.
    read: u64,
    inspected: u64,
}

/// Expected seconds of the current pass.
#[derive(Debug, Clone, Copy, Default)]
struct PassWorkload {
    /// Work that the pass has told of.
    done: f64,
    /// Work that it may have done since: passes are silent at times, and some until they end.
    silent: f64,
    total: f64,
}

impl PassWorkload {
    /// Work of a pass that has told of `done`, and of nothing for some seconds, of which it may be silent for a while.
    fn new(done: f64, total: f64, silent_seconds: f64, silence_max: f64) -> PassWorkload {
        let most = total * PROGRESS_MAX;
        let done = done.min(most);
        PassWorkload {
            done,
            silent: silent_seconds.min(silence_max).clamp(0.0, most - done),
            total,
        }
    }

    fn left(&self) -> f64 {
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
        let (pass, samples) = (pass.to_owned(), ProgressSamples::default());
        self.current = Some(CurrentPass {
            pass,
            since: now,
            bytes: 0,
            samples,
            steps: None,
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
            if current.steps.is_none() {
                current.samples.push(rows, now - current.since);
            }
        }
    }

    /// Records that the pass has done so many of its steps. Its rows count no more.
    pub fn set_steps(&mut self, now: f64, done: u64, steps: u64) {
        if let Some(current) = &mut self.current {
            if current.steps.replace(steps).is_none() {
                current.samples = ProgressSamples::default();
            }
            let more = done.saturating_sub(current.samples.rows());
            current.samples.push(more, now - current.since);
        }
    }

    /// Records that the pass has ended.
    pub fn end(&mut self, now: f64, reused: bool) {
        let Some(current) = self.current.take() else {
            return;
        };
        let Some(ahead) = self.current_plan(&current) else {
            return;
        };
        if !reused {
            let (read, seconds) = (ahead.read.unwrap_or(ahead.total), now - current.since);
            let expected = self.expected(0, &ahead);
            let is_guess = self.costs.is_known() && expected.spread.is_none();
            self.done += if is_guess { seconds } else { expected.seconds };
            let (rows, course) = (current.samples.rows(), current.samples.course(seconds));
            self.spent.push(PassCost {
                pass: ahead.pass.clone(),
                total: ahead.total,
                read,
                rows,
                is_steps: current.steps.is_some(),
                seconds,
                course,
            });
        }
        if let Some(option) = self.options.first_mut() {
            option.passes.retain(|pass| pass.pass != ahead.pass);
        }
        self.finished.insert(ahead.pass);
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
        let usual = self.slowdown(now, work, USUAL);
        let pace = usual.max(self.slowdown(now, work, RECENT));
        let left = if !self.costs.is_known() {
            self.left_without_history(now)
        } else if self.is_measured() {
            Some(here * usual)
        } else {
            None
        };
        // A finished run cannot be late.
        let Some(deadline) = self.deadline.filter(|_| here > 0.0) else {
            self.late_since = None;
            return RunEstimate {
                left,
                verdict: DeadlineAction::OnTime,
            };
        };
        let options: Vec<Option<f64>> = (0..self.options.len())
            .map(|option| Some(self.remaining_seconds(option) * pace))
            .collect();
        let evidence = self.evidence(now, deadline, pace);
        let verdict = decide(now, deadline, &options, evidence, self.fail);
        RunEstimate { left, verdict }
    }

    /// What is known of a run's end.
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

    /// The shortest time in which the current plan may end. Passes of which nothing is known take no time.
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
            Some(spread) => expected.seconds * (1.0 - spread).max(0.0),
            None => 0.0,
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
        if let Some(spread) = expected.spread {
            return self.current_work().left() * (1.0 - spread).max(0.0);
        }
        let share = self.progress_share(current, pass);
        let rest = share
            .filter(|share| *share >= SURE_MIN)
            .and_then(|share| self.rest_by_progress(now, current, share));
        rest.unwrap_or(0.0) * (1.0 - PROGRESS_SPREAD)
    }

    /// The rest of the current pass, if it goes on as it went so far. A training reads its rows before its first step.
    fn rest_by_progress(&self, now: f64, current: &CurrentPass, share: f64) -> Option<f64> {
        let Some(steps) = current.steps else {
            return Some((now - current.since) * (1.0 - share) / share);
        };
        let left = steps.saturating_sub(current.samples.rows());
        Some(left as f64 * current.samples.seconds_per_row()?)
    }

    /// The share of the current pass that is done, as far as it tells without an earlier run.
    fn progress_share(&self, current: &CurrentPass, pass: &PlannedPass) -> Option<f64> {
        let share = match current.steps {
            Some(steps) => current.samples.rows() as f64 / steps.max(1) as f64,
            None => {
                let planned = self.current_plan(current);
                let planned = planned.as_ref().unwrap_or(pass);
                current.bytes as f64 / planned.read.unwrap_or(planned.total).max(1) as f64
            }
        };
        Some(share.min(1.0)).filter(|share| *share > 0.0)
    }

    /// True if each pass of the plan was measured by an earlier run, is measured by its own progress, or costs by what
    /// it reads.
    fn is_measured(&self) -> bool {
        let mut passes = self.passes().iter();
        passes.all(|pass| self.is_pass_measured(pass))
    }

    fn is_pass_measured(&self, pass: &PlannedPass) -> bool {
        if pass.kind != PassKind::Unmeasured || self.expected(0, pass).spread.is_some() {
            return true;
        }
        let current = self.current_of(pass);
        let rest = current.and_then(|current| {
            let share = self.progress_share(current, pass);
            self.rest_by_progress(self.now, current, share.filter(|share| *share >= BLIND)?)
        });
        rest.is_some()
    }

    /// The remaining time of the first run: the current pass goes on as it went so far, and passes that read cost by
    /// their bytes. `None` while a pass is ahead whose cost nothing tells.
    fn left_without_history(&self, now: f64) -> Option<f64> {
        let passes = self.passes();
        let scanned = self.spent.iter().filter(|cost| cost.read > 0);
        let (mut seconds, mut bytes) = scanned.fold((0.0, 0.0), |(seconds, bytes), cost| {
            (seconds + cost.seconds, bytes + cost.read as f64)
        });
        let mut left = 0.0;
        if let Some(current) = &self.current {
            let pass = passes.iter().find(|pass| pass.pass == current.pass)?;
            if pass.kind != PassKind::Small {
                let share = self.progress_share(current, pass)?;
                if share < BLIND {
                    return None;
                }
                left += self.rest_by_progress(now, current, share)?;
                if current.bytes > 0 {
                    seconds += now - current.since;
                    bytes += current.bytes as f64;
                }
            }
        }
        let current = self.current.as_ref().map(|current| current.pass.as_str());
        for pass in passes
            .iter()
            .filter(|pass| Some(pass.pass.as_str()) != current)
        {
            match pass.kind {
                PassKind::Scan if bytes > 0.0 => left += pass.total as f64 * seconds / bytes,
                PassKind::Scan | PassKind::Unmeasured => return None,
                PassKind::Small => {}
            }
        }
        Some(left)
    }

    /// The number of finished passes.
    pub fn finished_passes(&self) -> usize {
        self.finished.len()
    }

    /// The degradation of the plan that [`DeadlineAction::Take`] names.
    pub fn level_of(&self, option: usize) -> Option<DegradationLevel> {
        self.options.get(option)?.rung
    }

    /// The plan of the current pass, with what it has found out so far.
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

    /// Whether a plan cannot reuse the finished part of a pass.
    fn starts_over(&self, option: usize, ahead: &PlannedPass) -> bool {
        ahead.learned
            && self
                .options
                .get(option)
                .is_some_and(|option| option.rung == Some(DegradationLevel::LastModel))
    }

    fn expected(&self, option: usize, ahead: &PlannedPass) -> PassEstimate<'_> {
        match self.finished.contains(&ahead.pass) && !self.starts_over(option, ahead) {
            true => PassEstimate {
                seconds: 0.0,
                spread: Some(0.0),
                rows: None,
            },
            false => self.costs.estimate(ahead),
        }
    }

    /// The expected seconds of the current pass.
    fn current_work(&self) -> PassWorkload {
        let Some((current, ahead)) = self
            .current
            .as_ref()
            .and_then(|now| Some((now, self.current_plan(now)?)))
        else {
            return PassWorkload::default();
        };
        let expected = self.expected(0, &ahead);
        let elapsed = self.now - current.since;
        let share = self.progress_share(current, &ahead);
        let rest = share.and_then(|share| self.rest_by_progress(self.now, current, share));
        if self.costs.is_known()
            && let (None, Some(_), Some(rest)) = (expected.spread, current.steps, rest)
        {
            // No earlier run tells what it costs, but its own steps do.
            return PassWorkload::new(elapsed, elapsed + rest, 0.0, 0.0);
        }
        let seconds = expected.seconds;
        match (expected.rows, expected.spread) {
            (Some((rows, course)), _) => {
                let told = current.samples.rows() as f64 / rows;
                let last = current.samples.last();
                let done = course.at(told);
                if told >= TOLD_MIN && last > 0.0 {
                    // The work after the last rows continues at their pace.
                    let done = done * (elapsed / last).max(1.0);
                    return PassWorkload::new(done * seconds, seconds, 0.0, 0.0);
                }
                let until_next = course.at(told + 1.0 / PARTS as f64) - done;
                let silence_max = (until_next * seconds).max(SILENCE_SECONDS);
                PassWorkload::new(done * seconds, seconds, elapsed - last, silence_max)
            }
            (None, Some(_)) => PassWorkload::new(0.0, seconds, elapsed, seconds),
            (None, None) => PassWorkload::new(share.unwrap_or(0.0) * seconds, seconds, 0.0, 0.0),
        }
    }

    /// Finished work that was told of, in expected seconds.
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
        let own = self.current_work();
        let left = |pass: &PlannedPass| match current
            .as_ref()
            .filter(|current| current.pass == pass.pass)
        {
            Some(_) if option == 0 || pass.keeps && !self.starts_over(option, pass) => own.left(),
            _ => self.expected(option, pass).seconds,
        };
        passes.iter().map(left).sum()
    }

    /// Records how much work is finished at `now`.
    fn record_progress(&mut self, now: f64) {
        self.now = now;
        let worked = self.done_seconds();
        if self.trail.back().is_none_or(|(before, _)| worked > *before) {
            self.trail.push_back((worked, now));
        }
        if self.trail.len() > PROGRESS_POINTS_MAX {
            self.trail.pop_front();
        }
    }

    /// Real seconds per expected second in the last part of the work. Without earlier runs, in all of it.
    fn slowdown(&self, now: f64, work: f64, pace: PaceWindow) -> f64 {
        let known = self.costs.is_known();
        let (window, prior) = if known {
            (pace.window * work, pace.prior * work + DAMPING_SECONDS)
        } else {
            (f64::INFINITY, 0.0)
        };
        let worked = self.done_seconds();
        let from = self.trail.iter().find(|(then, _)| worked - then <= window);
        // Time in which the pass may be silent says nothing of its pace.
        let told = now - self.current_work().silent;
        let (real, expected) = from.map_or((0.0, 0.0), |(then, at)| {
            ((told - at).max(0.0), worked - then)
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
        /// How many real seconds a second of work takes at a moment.
        slow: Box<dyn Fn(f64) -> f64>,
        /// In which part of its time a pass tells of its rows.
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

    /// Of the table, only so much is new where the last model stands.
    const NEW: f64 = 0.05;

    fn ladder() -> [Option<DegradationLevel>; 4] {
        [
            None,
            Some(DegradationLevel::SkipOptional),
            Some(DegradationLevel::ReuseStates),
            Some(DegradationLevel::LastModel),
        ]
    }

    fn passes_on(rung: Option<DegradationLevel>) -> Vec<SimulatedPass> {
        let stays = |work: &SimulatedPass| match work.pass {
            "write extra" => rung.is_none(),
            pass if pass.starts_with("learn") => rung < Some(DegradationLevel::ReuseStates),
            _ => true,
        };
        let new = |work: SimulatedPass| match (work.pass, rung) {
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

    fn plan_option(rung: Option<DegradationLevel>) -> PlanOption {
        let whole = |work: &SimulatedPass| {
            SPEC.iter()
                .find(|spec| spec.pass == work.pass)
                .copied()
                .unwrap()
        };
        let ahead = |work: SimulatedPass| PlannedPass {
            pass: work.pass.into(),
            learned: work.pass.starts_with("write"),
            total: bytes(whole(&work)),
            read: (rung == Some(DegradationLevel::LastModel)).then(|| bytes(work)),
            keeps: work.pass.starts_with("write"),
            kind: PassKind::Scan,
        };
        PlanOption {
            rung,
            passes: passes_on(rung).into_iter().map(ahead).collect(),
        }
    }

    impl SimulatedMachine {
        /// Does everything that is left to do; tells when it was done, the rungs that were taken, and
        /// what was foretold at which moments.
        fn run(
            &mut self,
            forecast: &mut RunForecast,
        ) -> (f64, Vec<DegradationLevel>, Vec<(f64, f64)>) {
            let (mut rungs, mut foretold, mut done) = (Vec::new(), Vec::new(), BTreeSet::new());
            let mut written = BTreeMap::new();
            'ladder: loop {
                let rung = rungs.last().copied();
                let at = ladder().iter().position(|known| *known == rung).unwrap();
                forecast.plan(
                    self.now,
                    ladder()[at..]
                        .iter()
                        .map(|rung| plan_option(*rung))
                        .collect(),
                    [].into_iter(),
                );
                for work in passes_on(rung) {
                    let again =
                        rung == Some(DegradationLevel::LastModel) && work.pass.starts_with("write");
                    if done.contains(work.pass) && !again {
                        continue;
                    }
                    forecast.begin(self.now, work.pass);
                    let mut anew = work.seconds;
                    let keeps = work.pass.starts_with("write") && !again;
                    let left = if keeps {
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
                    while *left > 0.0 {
                        let step = (1.0 / (self.slow)(self.now)).min(*left);
                        *left -= step;
                        self.now += 1.0;
                        if *left >= (1.0 - self.tells) * work.seconds {
                            forecast.advance(self.now, (step * 1e4) as u64, (step * 1e6) as u64);
                        }
                        let outlook = forecast.estimate(self.now);
                        foretold.extend(outlook.left.map(|left| (self.now, self.now + left)));
                        if let DeadlineAction::Take(option) = outlook.verdict {
                            rungs.push(forecast.level_of(option).unwrap());
                            continue 'ladder;
                        }
                    }
                    forecast.end(self.now, false);
                    done.insert(work.pass);
                }
                return (self.now, rungs, foretold);
            }
        }
    }

    fn run(
        costs: CostHistory,
        deadline: Option<f64>,
        slow: impl Fn(f64) -> f64 + 'static,
    ) -> (f64, Vec<DegradationLevel>, RunForecast) {
        let mut forecast = RunForecast::new(costs, deadline, false);
        let (end, rungs, _) = SimulatedMachine {
            slow: Box::new(slow),
            tells: 1.0,
            now: 0.0,
        }
        .run(&mut forecast);
        (end, rungs, forecast)
    }

    /// What a run at the usual pace leaves.
    fn usual() -> (f64, CostHistory) {
        let (end, rungs, forecast) = run(CostHistory::default(), None, |_| 1.0);
        assert!(rungs.is_empty());
        (end, forecast.into_costs().unwrap())
    }

    #[test]
    fn the_end_is_foretold_within_15_percent_from_a_quarter_on() {
        // A second run of the same cost, however unlike its passes are, and one on a busier machine; passes tell of
        // rows until they end, or do something else for half of their time.
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
                left: None,
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
            let (since, slow) = (
                random(seed, 0) * usual_end,
                1.2 + random(seed, 1).powi(2) * 4.8,
            );
            let deadline = (1.15 + 0.5 * random(seed, 2)) * usual_end;
            let (end, rungs, _) = run(costs.clone(), Some(deadline), move |now| {
                if now < since { 1.0 } else { slow }
            });
            let context = format!(
                "seed {seed}: {slow:.1} times slower since {since:.0}: {rungs:?}, {end:.0} of {deadline:.0}"
            );
            assert!(end <= deadline, "{context}");
            assert!(
                rungs.is_sorted() && rungs.windows(2).all(|pair| pair[0] < pair[1]),
                "{context}"
            );
            let alone = usual_end - since;
            assert!(
                !rungs.is_empty() || since + alone * slow <= deadline,
                "{context}"
            );
            taken.extend(rungs);
        }
        assert_eq!(taken.len(), 3, "every rung is taken by some run: {taken:?}");
    }

    #[test]
    fn a_run_in_time_takes_no_rung_and_a_pass_that_hangs_does() {
        let (usual_end, costs) = usual();
        let (end, rungs, _) = run(costs.clone(), Some(1.2 * usual_end), |_| 1.0);
        assert!(rungs.is_empty() && end == usual_end);
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
            rung: Some(DegradationLevel::Naive),
            passes: vec![PlannedPass {
                total: 0,
                ..planned("naive", PassKind::Unmeasured)
            }],
        };
        vec![PlanOption { rung: None, passes }, naive]
    }

    /// A night of seconds whose training tells of steps and whose forecast tells of nothing, at a pace; the estimates
    /// by time, and the rungs that it would take.
    fn run_short_night(forecast: &mut RunForecast, slow: f64) -> (Vec<(f64, f64)>, Vec<f64>, f64) {
        let (mut now, mut foretold, mut degraded) = (0.0, Vec::new(), Vec::new());
        forecast.plan(now, short_night(), [].into_iter());
        for (pass, tenths) in [("write table", 10), ("train net", 40), ("forecast", 20)] {
            forecast.begin(now, pass);
            for tenth in 1..=tenths {
                now += 0.1 * slow;
                match pass {
                    "write table" => forecast.advance(now, 100, 100),
                    // A trainer tells of its steps once a second, and reads its rows before.
                    "train net" if tenth % 10 == 0 => forecast.set_steps(now, tenth, tenths),
                    _ => {}
                }
                let estimate = forecast.estimate(now);
                foretold.extend(estimate.left.map(|left| (now, now + left)));
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
        // The next night is foretold, also on a machine of another speed.
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

    #[test]
    fn a_night_that_cannot_be_in_time_degrades_at_the_last_moment() {
        let mut forecast = RunForecast::default();
        run_short_night(&mut forecast, 1.0);
        let costs = forecast.into_costs().unwrap();
        // It takes seven seconds, give or take a third.
        for (deadline, between) in [(5.5, 1.9..3.6), (3.0, 0.0..1.1)] {
            let mut forecast = RunForecast::new(costs.clone(), Some(deadline), false);
            let (_, degraded, _) = run_short_night(&mut forecast, 1.0);
            let first = degraded.first().copied().unwrap_or(f64::INFINITY);
            assert!(between.contains(&first), "{deadline}: {first}");
        }
    }

    #[test]
    fn a_first_training_is_foretold_by_its_steps() {
        let mut forecast = RunForecast::default();
        let passes = vec![planned("train net", PassKind::Unmeasured)];
        let options = vec![PlanOption { rung: None, passes }];
        forecast.plan(0.0, options, [].into_iter());
        forecast.begin(0.0, "train net");
        // It reads its rows for ten seconds; then each of fifty steps takes one.
        assert_eq!(forecast.estimate(10.0).left, None);
        for step in 1..=50 {
            let now = 10.0 + step as f64;
            forecast.set_steps(now, step, 50);
            let left = forecast.estimate(now).left;
            assert_eq!(left, (step > 1).then_some(50.0 - step as f64), "{step}");
        }
    }
}
