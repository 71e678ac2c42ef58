//! How far a run is and when it will end: pure, of what it is told and of the time that it is told
//! with. The machine around it is in `keeper`.

use std::collections::{BTreeSet, VecDeque};

use forebay_model::DegradationLevel;

use crate::deadline::cost::{CostHistory, PassCost, PassEstimate, PlannedPass};
use crate::deadline::decide::{DeadlineAction, decide};
use crate::deadline::progress_curve::ProgressSamples;

/// The end is foretold by the pace of the last part of the work, this large, as if this much had
/// been done at the expected pace beside it.
const USUAL: (f64, f64) = (0.25, 0.01);

/// Whether that is too late is judged sooner: by the pace of the last moments too, where it is slower.
const LATELY: (f64, f64) = (0.05, 0.02);

/// Without an earlier run, nothing is foretold before this part of the work.
const BLIND: f64 = 0.02;

/// Seconds for which a run must look late before it takes a rung, where it is not by what earlier runs cost: a pass that
/// begins has nothing to show at first.
const STEADY_SECONDS: f64 = 0.9;

/// A pass is never done before it says so, whatever its progress.
const PROGRESS_MAX: f64 = 0.98;

/// A pass that has told of this part of the rows that are expected may tell of no more: another night's are never quite
/// as many.
const TOLD_MIN: f64 = 0.98;

/// Moments that are remembered of the window.
const MOMENTS_MAX: usize = 512;

/// A way to go on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlanOption {
    /// How far down the ladder; `None` for everything that the spec says.
    pub rung: Option<DegradationLevel>,
    /// Its passes in order.
    pub passes: Vec<PlannedPass>,
}

/// What is to be seen at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunEstimate {
    /// Seconds that are left, where they can be foretold.
    pub left: Option<f64>,
    /// What to do about the deadline.
    pub verdict: DeadlineAction,
}

/// The pass that is under way.
#[derive(Debug, Clone)]
struct CurrentPass {
    pass: String,
    since: f64,
    bytes: u64,
    /// When it had told of how many rows.
    moments: ProgressSamples,
    /// Bytes that have to be read, of so many that were looked at.
    read: u64,
    looked_at: u64,
}

/// A run on its way through its passes. Times are in seconds since it began.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunForecast {
    costs: CostHistory,
    /// When it was looked at last.
    now: f64,
    /// The moment, if there is one.
    deadline: Option<f64>,
    fail: bool,
    /// The one that the run is on, then those further down the ladder.
    options: Vec<PlanOption>,
    current: Option<CurrentPass>,
    /// Work that is done, in expected seconds.
    done: f64,
    /// Passes that are done, and stay so on other ways, unless nothing that was learned is used.
    finished: BTreeSet<String>,
    /// How much work was done when: expected seconds, and the moment at which they were done.
    trail: VecDeque<(f64, f64)>,
    /// Since when the run looks late.
    late_since: Option<f64>,
    spent: Vec<PassCost>,
}

impl RunForecast {
    /// Knows what earlier runs cost, and the deadline.
    pub fn new(costs: CostHistory, deadline: Option<f64>, fail: bool) -> Self {
        RunForecast { costs, deadline, fail, ..RunForecast::default() }
    }

    /// The deadline, if there is one.
    pub fn deadline(&self) -> Option<f64> {
        self.deadline
    }

    /// The ways that are open from here, and the passes of the first that are done already.
    pub fn plan<'p>(&mut self, now: f64, mut options: Vec<PlanOption>, done: impl Iterator<Item = &'p str>) {
        // What was done for a way that was left took its time all the same.
        self.done = self.trail.back().map_or(0.0, |(worked, _)| *worked);
        let done: BTreeSet<String> = done.map(str::to_owned).collect();
        if let Some(option) = options.first_mut() {
            option.passes.retain(|pass| !done.contains(&pass.pass));
        }
        self.finished.extend(done);
        self.options = options;
        self.current = None;
        // It was another way that looked late.
        self.late_since = None;
        self.record_progress(now);
    }

    /// A pass begins.
    pub fn begin(&mut self, now: f64, pass: &str) {
        let (pass, moments) = (pass.to_owned(), ProgressSamples::default());
        self.current = Some(CurrentPass { pass, since: now, bytes: 0, moments, read: 0, looked_at: 0 });
        self.record_progress(now);
    }

    /// The pass has to read `bytes` of `total` that it looked at.
    pub fn set_reads(&mut self, bytes: u64, total: u64) {
        if let Some(current) = &mut self.current {
            current.read += bytes;
            current.looked_at += total;
        }
    }

    /// The pass moved on.
    pub fn advance(&mut self, now: f64, rows: u64, bytes: u64) {
        if let Some(current) = &mut self.current {
            current.bytes += bytes;
            current.moments.push(rows, now - current.since);
        }
    }

    /// The pass ended.
    pub fn end(&mut self, now: f64, reused: bool) {
        let Some(current) = self.current.take() else { return };
        let Some(ahead) = self.current_plan(&current) else { return };
        if !reused {
            self.done += self.expected(0, &ahead).seconds;
            let (read, seconds) = (ahead.read.unwrap_or(ahead.total), now - current.since);
            let (rows, course) = (current.moments.rows(), current.moments.course(seconds));
            self.spent.push(PassCost { pass: ahead.pass.clone(), total: ahead.total, read, rows, seconds, course });
        }
        if let Some(option) = self.options.first_mut() {
            option.passes.retain(|pass| pass.pass != ahead.pass);
        }
        self.finished.insert(ahead.pass);
        self.record_progress(now);
    }

    /// What the passes of this run cost, beside those of earlier runs; `None` where it did none.
    pub fn into_costs(mut self) -> Option<CostHistory> {
        let did_some = !self.spent.is_empty();
        self.costs.push(self.spent);
        did_some.then_some(self.costs)
    }

    /// What is to be seen now.
    pub fn estimate(&mut self, now: f64) -> RunEstimate {
        self.record_progress(now);
        let here = self.remaining_seconds(0);
        let work = self.done_seconds() + here;
        let known = self.costs.is_known() || self.done_seconds() > BLIND * work;
        let usual = self.slowdown(now, work, USUAL);
        let pace = usual.max(self.slowdown(now, work, LATELY));
        let left = known.then_some(here * usual);
        // What is done cannot be done sooner.
        let Some(deadline) = self.deadline.filter(|_| here > 0.0) else {
            self.late_since = None;
            return RunEstimate { left, verdict: DeadlineAction::OnTime };
        };
        let by = |pace: f64| {
            let options: Vec<Option<f64>> =
                (0..self.options.len()).map(|option| Some(self.remaining_seconds(option) * pace)).collect();
            decide(now, deadline, &options, known, self.fail)
        };
        let verdict = by(pace);
        let is_sure = now >= deadline || self.costs.is_known() && by(1.0) != DeadlineAction::OnTime;
        self.late_since = self.late_since.or(Some(now)).filter(|_| verdict != DeadlineAction::OnTime);
        let is_steady = self.late_since.is_some_and(|since| now - since >= STEADY_SECONDS);
        let verdict = match verdict {
            DeadlineAction::Take(_) if !is_sure && !is_steady => DeadlineAction::OnTime,
            verdict => verdict,
        };
        RunEstimate { left, verdict }
    }

    /// How many passes are done.
    pub fn finished_passes(&self) -> usize {
        self.finished.len()
    }

    /// The way down the ladder that [`DeadlineAction::Take`] names.
    pub fn level_of(&self, option: usize) -> Option<DegradationLevel> {
        self.options.get(option)?.rung
    }

    /// The pass that is under way, as far as it is known by now.
    fn current_plan(&self, current: &CurrentPass) -> Option<PlannedPass> {
        let pass = self.options.first()?.passes.iter().find(|pass| pass.pass == current.pass)?;
        let read = (current.looked_at > 0).then(|| {
            // What was not looked at yet is like what was.
            let share = current.read as f64 / current.looked_at as f64;
            current.read + (pass.total.saturating_sub(current.looked_at) as f64 * share) as u64
        });
        Some(PlannedPass { read: read.or(pass.read), ..pass.clone() })
    }

    /// Whether nothing stands on a way of what was done of a pass.
    fn starts_over(&self, option: usize, ahead: &PlannedPass) -> bool {
        ahead.learned && self.options.get(option).is_some_and(|option| option.rung == Some(DegradationLevel::LastModel))
    }

    fn expected(&self, option: usize, ahead: &PlannedPass) -> PassEstimate<'_> {
        match self.finished.contains(&ahead.pass) && !self.starts_over(option, ahead) {
            true => PassEstimate { seconds: 0.0, rows: None },
            false => self.costs.estimate(ahead),
        }
    }

    /// Expected seconds of the pass under way: those done, and all.
    fn current_seconds(&self) -> (f64, f64) {
        let Some((current, ahead)) = self.current.as_ref().and_then(|now| Some((now, self.current_plan(now)?))) else {
            return (0.0, 0.0);
        };
        let expected = self.expected(0, &ahead);
        let done = match expected.rows {
            Some((rows, course)) => {
                let told = current.moments.rows() as f64 / rows;
                let (begun, last) = (self.now - current.since, current.moments.last());
                // What comes after the rows goes on as they did.
                let on = if told >= TOLD_MIN && last > 0.0 { (begun / last).max(1.0) } else { 1.0 };
                course.at(told) * on
            }
            None => current.bytes as f64 / ahead.read.unwrap_or(ahead.total).max(1) as f64,
        };
        (expected.seconds * done.min(PROGRESS_MAX), expected.seconds)
    }

    /// Work that is done, in expected seconds.
    fn done_seconds(&self) -> f64 {
        self.done + self.current_seconds().0
    }

    /// Work that is left on a way, in expected seconds.
    fn remaining_seconds(&self, option: usize) -> f64 {
        let passes = self.options.get(option).map(|option| option.passes.as_slice()).unwrap_or_default();
        let current = self.current.as_ref().and_then(|current| self.current_plan(current));
        let (done, all) = self.current_seconds();
        let left = |pass: &PlannedPass| match current.as_ref().filter(|current| current.pass == pass.pass) {
            Some(_) if option == 0 || pass.keeps && !self.starts_over(option, pass) => all - done,
            _ => self.expected(option, pass).seconds,
        };
        passes.iter().map(left).sum()
    }

    /// Remembers how much work is done by now.
    fn record_progress(&mut self, now: f64) {
        self.now = now;
        let worked = self.done_seconds();
        if self.trail.back().is_none_or(|(before, _)| worked > *before) {
            self.trail.push_back((worked, now));
        }
        if self.trail.len() > MOMENTS_MAX {
            self.trail.pop_front();
        }
    }

    /// Real seconds per expected second, in the last part of the work.
    fn slowdown(&self, now: f64, work: f64, (window, prior): (f64, f64)) -> f64 {
        let known = self.costs.is_known();
        let (window, prior) = if known { (window * work, prior * work) } else { (f64::INFINITY, 0.0) };
        let worked = self.done_seconds();
        let from = self.trail.iter().find(|(then, _)| worked - then <= window);
        let (real, expected) = from.map_or((0.0, 0.0), |(then, at)| (now - at, worked - then));
        if expected + prior > 0.0 { (real + prior) / (expected + prior) } else { 1.0 }
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
        SimulatedPass { pass: "learn 1", seconds: 0.4 * HOUR },
        SimulatedPass { pass: "learn 2", seconds: 0.2 * HOUR },
        SimulatedPass { pass: "gather joined", seconds: 0.1 * HOUR },
        SimulatedPass { pass: "write extra", seconds: 0.2 * HOUR },
        SimulatedPass { pass: "write table", seconds: 0.4 * HOUR },
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
            ("write table", Some(DegradationLevel::LastModel)) => SimulatedPass { seconds: work.seconds * NEW, ..work },
            _ => work,
        };
        SPEC.into_iter().filter(stays).map(new).collect()
    }

    fn bytes(work: SimulatedPass) -> u64 {
        (work.seconds * 1e6) as u64
    }

    fn plan_option(rung: Option<DegradationLevel>) -> PlanOption {
        let whole = |work: &SimulatedPass| SPEC.iter().find(|spec| spec.pass == work.pass).copied().unwrap();
        let ahead = |work: SimulatedPass| PlannedPass {
            pass: work.pass.into(),
            learned: work.pass.starts_with("write"),
            total: bytes(whole(&work)),
            read: (rung == Some(DegradationLevel::LastModel)).then(|| bytes(work)),
            keeps: work.pass.starts_with("write"),
        };
        PlanOption { rung, passes: passes_on(rung).into_iter().map(ahead).collect() }
    }

    impl SimulatedMachine {
        /// Does everything that is left to do; tells when it was done, the rungs that were taken, and
        /// what was foretold at which moments.
        fn run(&mut self, forecast: &mut RunForecast) -> (f64, Vec<DegradationLevel>, Vec<(f64, f64)>) {
            let (mut rungs, mut foretold, mut done) = (Vec::new(), Vec::new(), BTreeSet::new());
            let mut written = BTreeMap::new();
            'ladder: loop {
                let rung = rungs.last().copied();
                let at = ladder().iter().position(|known| *known == rung).unwrap();
                forecast.plan(self.now, ladder()[at..].iter().map(|rung| plan_option(*rung)).collect(), [].into_iter());
                for work in passes_on(rung) {
                    let again = rung == Some(DegradationLevel::LastModel) && work.pass.starts_with("write");
                    if done.contains(work.pass) && !again {
                        continue;
                    }
                    forecast.begin(self.now, work.pass);
                    let mut anew = work.seconds;
                    let keeps = work.pass.starts_with("write") && !again;
                    let left = if keeps { written.entry(work.pass).or_insert(work.seconds) } else { &mut anew };
                    forecast.set_reads(
                        bytes(work),
                        plan_option(None).passes.iter().find(|p| p.pass == work.pass).unwrap().total,
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
        let (end, rungs, _) = SimulatedMachine { slow: Box::new(slow), tells: 1.0, now: 0.0 }.run(&mut forecast);
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
        for (slow, tells) in [1.0, 1.3, 0.7].into_iter().flat_map(|slow| [(slow, 1.0), (slow, 0.5)]) {
            let mut forecast = RunForecast::default();
            SimulatedMachine { slow: Box::new(|_| 1.0), tells, now: 0.0 }.run(&mut forecast);
            let mut forecast = RunForecast::new(forecast.into_costs().unwrap(), None, false);
            let (end, _, foretold) =
                SimulatedMachine { slow: Box::new(move |_| slow), tells, now: 0.0 }.run(&mut forecast);
            for (now, foretold) in foretold.into_iter().filter(|(now, _)| *now >= end / 4.0) {
                let wrong = (foretold - end).abs() / end;
                assert!(wrong <= 0.15, "at {now:.0} of {end:.0} s it foretold {foretold:.0} s");
            }
        }
    }

    #[test]
    fn without_an_earlier_run_nothing_is_foretold_at_once() {
        let mut forecast = RunForecast::new(CostHistory::default(), Some(10.0), false);
        forecast.plan(0.0, vec![plan_option(None)], [].into_iter());
        assert_eq!(forecast.estimate(0.0), RunEstimate { left: None, verdict: DeadlineAction::OnTime });
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
            let (since, slow) = (random(seed, 0) * usual_end, 1.2 + random(seed, 1).powi(2) * 4.8);
            let deadline = (1.15 + 0.5 * random(seed, 2)) * usual_end;
            let (end, rungs, _) = run(costs.clone(), Some(deadline), move |now| if now < since { 1.0 } else { slow });
            let context =
                format!("seed {seed}: {slow:.1} times slower since {since:.0}: {rungs:?}, {end:.0} of {deadline:.0}");
            assert!(end <= deadline, "{context}");
            assert!(rungs.is_sorted() && rungs.windows(2).all(|pair| pair[0] < pair[1]), "{context}");
            let alone = usual_end - since;
            assert!(!rungs.is_empty() || since + alone * slow <= deadline, "{context}");
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
        let hung = (0..).map(f64::from).find(|now| forecast.estimate(*now).verdict != DeadlineAction::OnTime).unwrap();
        assert!(hung < usual_end, "noticed at {hung}");
    }
}
