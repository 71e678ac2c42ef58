//! Runs of learning passes: lanes with committed states of units first, on workers or here, then the others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_model::{Result, catch_panic};
use forebay_plan::AnalyzerLane;
use forebay_storage::Event;
use forebay_threads::{CountingSemaphore, parallel_map, poisoned_lock, run_on_all};

use crate::cluster_handle::ClusterHandle;
use crate::fused_coverage::{FinalizeLanesFn, FusedCoverage};
use crate::incremental_learn::IncrementalLane;
use crate::learn_pass::{LaneExecution, LearnPass, LearnResult, SPILLING_STATE_BYTES_MIN};

/// Lanes that workers learn concurrently, for each task slot: while some are merged, others are read.
const LANES_PER_SLOT: usize = 4;

/// Learns what it can of some lanes, then finalizes the lanes.
pub type FusedLearnFn<'a> =
    &'a mut dyn FnMut(&[&IncrementalLane<'_>], FinalizeLanesFn<'_>) -> Result<()>;

impl LearnPass<'_> {
    /// Learns the lanes. `fused_learn` first learns the units that it can fuse with writing.
    pub fn run(
        &self,
        lanes: &[AnalyzerLane],
        fused_learn: Option<FusedLearnFn<'_>>,
    ) -> Result<LearnResult> {
        // Other runs may have committed states since this one was planned.
        self.store.refresh()?;
        let result = self.answers(lanes, fused_learn);
        // A pass that fails keeps what it has learned.
        let synced = self.store.sync();
        let result = result?;
        synced?;
        Ok(result)
    }

    fn answers(
        &self,
        lanes: &[AnalyzerLane],
        fused_learn: Option<FusedLearnFn<'_>>,
    ) -> Result<LearnResult> {
        let threads = self.concurrent_lanes(lanes);
        let runs = self.executions(lanes, threads)?;
        let answers: Mutex<LearnResult> = Mutex::default();
        let turns = CountingSemaphore::new(threads);
        let mut runs = match self.cluster {
            Some(cluster) => self.by_workers(runs, cluster, &turns, &answers)?,
            None => self.by_units(runs, fused_learn, &turns, &answers)?,
        };
        let bytes = runs.iter().map(|run| self.lane_bytes(run.lane)).sum();
        if bytes > 0 {
            self.watch.on_event(Event::PassReads { bytes, of: bytes });
        }
        self.plan_reads(&mut runs, threads)?;
        let stop = AtomicBool::new(false);
        let outcomes = run_on_all(threads, &|| self.learn_lanes(&runs, &stop, &answers));
        for outcome in outcomes {
            outcome?;
        }
        answers.into_inner().map_err(|_| poisoned_lock())
    }

    /// As many threads as have memory for the states of the lane with the largest ones.
    fn concurrent_lanes(&self, lanes: &[AnalyzerLane]) -> usize {
        let mut bytes_max = 1;
        for lane in lanes {
            let (fixed, spilling) = self.need(lane);
            bytes_max = bytes_max.max(fixed + spilling * SPILLING_STATE_BYTES_MIN);
        }
        let fitting = self.context.memory.states_bytes() / bytes_max;
        self.context.threads.min(fitting).max(1)
    }

    /// The lanes with an equal share of memory for each thread, large ones first, so that threads finish together.
    fn executions<'l>(
        &self,
        lanes: &'l [AnalyzerLane],
        threads: usize,
    ) -> Result<Vec<LaneExecution<'l>>> {
        let budget = self.context.memory.states_bytes() / threads;
        let mut runs = Vec::with_capacity(lanes.len());
        for lane in lanes {
            runs.push(self.prepare(lane, budget)?);
        }
        runs.sort_by_key(|run| std::cmp::Reverse(run.lane.bytes));
        Ok(runs)
    }

    /// Learns the lanes whose spans are divided into units with committed states; returns the others.
    fn by_units<'l>(
        &self,
        runs: Vec<LaneExecution<'l>>,
        fused_learn: Option<FusedLearnFn<'_>>,
        turns: &CountingSemaphore,
        answers: &Mutex<LearnResult>,
    ) -> Result<Vec<LaneExecution<'l>>> {
        let mut incremental_lanes = Vec::with_capacity(runs.len());
        for run in &runs {
            incremental_lanes.push(IncrementalLane::new(self, run, turns)?);
        }
        let divided: Vec<&IncrementalLane<'_>> = incremental_lanes.iter().flatten().collect();
        match fused_learn {
            Some(fused_learn) => fused_learn(&divided, &|coverage| {
                run_incrementally(&divided, answers, &coverage)
            })?,
            None => run_incrementally(&divided, answers, &FusedCoverage::default())?,
        }
        let is_learned: Vec<bool> = incremental_lanes.iter().map(Option::is_some).collect();
        Ok(unlearned(runs, is_learned))
    }

    /// Reads lanes until every span is read. The first fault stops all threads.
    fn learn_lanes(
        &self,
        runs: &[LaneExecution<'_>],
        stop: &AtomicBool,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let has_read = catch_panic(|| self.learn_next_lane(runs, stop, answers));
            if has_read.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            if !has_read? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the lane that needs a thread most; false if none does.
    fn learn_next_lane(
        &self,
        runs: &[LaneExecution<'_>],
        stop: &AtomicBool,
        answers: &Mutex<LearnResult>,
    ) -> Result<bool> {
        let Some(run) = self.pick(runs)? else {
            return Ok(false);
        };
        self.participate(run, stop, answers)?;
        Ok(true)
    }

    /// Learns all lanes on workers, enough lanes concurrently to keep the workers busy; returns the lanes that cannot
    /// be divided.
    fn by_workers<'l>(
        &self,
        runs: Vec<LaneExecution<'l>>,
        cluster: ClusterHandle<'_>,
        turns: &CountingSemaphore,
        answers: &Mutex<LearnResult>,
    ) -> Result<Vec<LaneExecution<'l>>> {
        let lanes_at_once = cluster.cluster.wait_for_slots(cluster.interrupt)? * LANES_PER_SLOT;
        let is_learned = parallel_map(lanes_at_once, runs.len(), &|lane| {
            let Some(incremental_lane) = IncrementalLane::new(self, &runs[lane], turns)? else {
                return Ok(false);
            };
            incremental_lane.run(answers, &FusedCoverage::default())?;
            Ok(true)
        })?;
        Ok(unlearned(runs, is_learned))
    }

    /// Number of spans to read in the lane with the most unread spans, and of all its spans.
    pub fn to_read(&self, lanes: &[AnalyzerLane]) -> Result<(usize, usize)> {
        let mut most = (0, 0);
        for lane in lanes {
            let run = self.prepare(lane, self.context.memory.states_bytes())?;
            let turns = CountingSemaphore::new(1);
            let spans = match IncrementalLane::new(self, &run, &turns)? {
                Some(incremental_lane) => incremental_lane.spans_to_read()?,
                None => (run.tasks.len(), run.tasks.len()),
            };
            most = most.max(spans);
        }
        Ok(most)
    }
}

/// Learns divided lanes, one after the other.
fn run_incrementally(
    lanes: &[&IncrementalLane<'_>],
    answers: &Mutex<LearnResult>,
    fused: &FusedCoverage,
) -> Result<()> {
    for lane in lanes {
        lane.run(answers, fused)?;
    }
    Ok(())
}

/// The lanes that are not learned yet.
fn unlearned(runs: Vec<LaneExecution<'_>>, is_learned: Vec<bool>) -> Vec<LaneExecution<'_>> {
    let mut remaining = Vec::new();
    for (run, is_learned) in runs.into_iter().zip(is_learned) {
        if !is_learned {
            remaining.push(run);
        }
    }
    remaining
}
