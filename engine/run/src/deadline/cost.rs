//! The costs of the passes of earlier runs: a few small records in the state directory.

use forebay_model::{Fault, Result};
use serde::{Deserialize, Serialize};

use crate::deadline::progress_curve::ProgressCurve;

/// The version of these records. Other versions are ignored.
const FORMAT: u32 = 1;

/// Number of runs that are kept: a month of daily runs.
const RUNS_MAX: usize = 30;

/// The number of passes of a run that are kept.
const PASSES_MAX: usize = 200;

/// The runs whose costs are compared for one pass.
const SIMILAR_MAX: usize = 5;

/// Runs are similar where one of them read at most this many times as much as the other.
const SIMILAR_RATIO: f64 = 1.5;

/// The share by which a pass may differ from an estimate that one run gave.
const SPREAD_OF_ONE: f64 = 0.3;

/// The share by which a pass may differ from its estimate even if earlier runs were equal.
const SPREAD_MIN: f64 = 0.1;

/// The cost of a pass of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PassCost {
    /// The name of the pass, the same in every run.
    pub pass: String,
    /// Stored bytes of all its inputs.
    pub total: u64,
    /// Stored bytes that it had to read.
    pub read: u64,
    /// Rows of progress that it reported, or steps, if it reported those.
    pub rows: u64,
    /// True if `rows` are the steps of a training.
    #[serde(default)]
    pub is_steps: bool,
    /// Duration of the pass in seconds.
    pub seconds: f64,
    /// Share of the time by share of the rows.
    #[serde(default, rename = "course")]
    pub curve: ProgressCurve,
}

/// The cost of an earlier run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCost {
    /// Seconds of its passes.
    pub seconds: f64,
    /// Stored bytes that they read.
    pub read_bytes: u64,
    /// The pass that took longest, and its seconds.
    pub longest: Option<(String, f64)>,
}

/// A pass of a plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedPass {
    /// See [`PassCost::pass`].
    pub pass: String,
    /// See [`PassCost::total`].
    pub total: u64,
    /// See [`PassCost::read`]; known once the pass has compared its inputs with earlier runs.
    pub read: Option<u64>,
    /// True if its result depends on findings of this run.
    pub learned: bool,
    /// True if its finished part is kept when the pass starts again.
    pub keeps: bool,
    /// Basis of the cost where no earlier run has measured it.
    pub kind: PassKind,
}

/// Basis of the cost of a pass that no earlier run has executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassKind {
    /// The bytes that it reads.
    Scan,
    /// The bytes that it reads. It reports the rows that it has read, but not their bytes.
    Gather,
    /// Nothing: a training or a forecast.
    Unmeasured,
    /// The pass takes next to no time.
    Small,
}

/// The expected cost of a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PassEstimate<'c> {
    pub seconds: f64,
    /// The share by which the pass may differ from that; `None` if no earlier run executed the pass.
    pub spread: Option<f64>,
    /// Rows of progress and the time by them, if an earlier run executed the pass.
    pub rows: Option<(f64, &'c ProgressCurve)>,
    /// True if the last run executed the pass. A run that degraded did not: an older cost stands until a run measures
    /// the pass again, and says nothing for sure, or one slow night would degrade all nights behind it.
    pub is_recent: bool,
}

/// Earlier runs of a pipeline, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CostHistory {
    format: u32,
    runs: Vec<Vec<PassCost>>,
}

impl Default for CostHistory {
    fn default() -> Self {
        CostHistory {
            format: FORMAT,
            runs: Vec::new(),
        }
    }
}

impl CostHistory {
    /// Reads records. Unreadable records are ignored.
    pub fn from_json(bytes: &[u8]) -> CostHistory {
        let read: Option<CostHistory> = serde_json::from_slice(bytes).ok();
        read.filter(|costs| costs.format == FORMAT)
            .unwrap_or_default()
    }

    /// The bytes that [`CostHistory::from_json`] reads.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Fault::internal("what a run cost cannot be written").cause(error))
    }

    /// Cost of each run, oldest first.
    pub fn totals(&self) -> Vec<RunCost> {
        let mut totals = Vec::with_capacity(self.runs.len());
        for passes in &self.runs {
            totals.push(total_cost(passes));
        }
        totals
    }

    /// True if the cost of at least one run is recorded.
    pub fn is_known(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Remembers one more run.
    pub fn push(&mut self, mut passes: Vec<PassCost>) {
        passes.truncate(PASSES_MAX);
        if !passes.is_empty() {
            self.runs.push(passes);
        }
        let forgotten = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..forgotten);
    }

    /// Expected cost of a pass: that of the last run, or, once the bytes to read are known, that of
    /// the run that read the most similar number of bytes, in proportion. Where several runs read
    /// about as much, the median counts, since single runs are slow for unrelated reasons.
    pub fn estimate(&self, planned: &PlannedPass) -> PassEstimate<'_> {
        let costs = self.costs_of(&planned.pass);
        let Some(like) = most_alike(&costs, planned.read) else {
            return self.unmeasured_estimate(planned);
        };
        let Some(scale) = planned.scale(like) else {
            return self.unmeasured_estimate(planned);
        };
        let mut seconds = Vec::new();
        let similar = costs
            .iter()
            .filter(|cost| log_ratio(cost.read, like.read) <= SIMILAR_RATIO.ln());
        for cost in similar.take(SIMILAR_MAX) {
            if let Some(scale) = planned.scale(cost) {
                seconds.push(cost.seconds * scale);
            }
        }
        seconds.sort_by(f64::total_cmp);
        let median = median_of(&seconds).unwrap_or(like.seconds * scale);
        let rows = if like.is_steps {
            like.rows as f64
        } else {
            like.rows as f64 * scale
        };
        PassEstimate {
            seconds: median,
            spread: Some(spread_of(&seconds, median)),
            rows: (rows > 0.0).then_some((rows, &like.curve)),
            is_recent: self.last_run_executed(&planned.pass),
        }
    }

    /// Costs of a pass in earlier runs, the latest first.
    fn costs_of(&self, pass: &str) -> Vec<&PassCost> {
        let mut costs = Vec::new();
        for run in self.runs.iter().rev() {
            for cost in run {
                if cost.pass == pass {
                    costs.push(cost);
                }
            }
        }
        costs
    }

    /// Estimate of a pass that no earlier run tells the cost of: by its bytes.
    fn unmeasured_estimate(&self, planned: &PlannedPass) -> PassEstimate<'_> {
        let bytes = planned.read.unwrap_or(planned.total);
        PassEstimate {
            seconds: bytes as f64 * self.seconds_per_byte(),
            spread: None,
            rows: None,
            is_recent: false,
        }
    }

    fn last_run_executed(&self, pass: &str) -> bool {
        match self.runs.last() {
            Some(last_run) => last_run.iter().any(|cost| cost.pass == pass),
            None => false,
        }
    }

    /// Seconds per byte of the last run; an arbitrary constant if no run is recorded.
    fn seconds_per_byte(&self) -> f64 {
        let mut seconds = 0.0;
        let mut bytes = 0.0;
        for cost in self.runs.last().into_iter().flatten() {
            if cost.read > 0 {
                seconds += cost.seconds;
                bytes += cost.read as f64;
            }
        }
        if bytes > 0.0 && seconds > 0.0 {
            seconds / bytes
        } else {
            1e-8
        }
    }
}

impl PlannedPass {
    /// Bytes that the pass has to read if it reads `spans` of `all_spans` spans.
    pub fn bytes_of_spans(&self, spans: usize, all_spans: usize) -> u64 {
        (self.total as f64 * spans as f64 / all_spans.max(1) as f64) as u64
    }

    /// Ratio of the cost of this pass to that of a pass of an earlier run; `None` where no ratio
    /// can be derived.
    fn scale(&self, like: &PassCost) -> Option<f64> {
        match self.read {
            Some(0) if like.read == 0 => Some(1.0),
            Some(_) if like.read == 0 => None,
            Some(read) => Some(read as f64 / like.read as f64),
            None if like.total == 0 => Some(1.0),
            None => Some(self.total as f64 / like.total as f64),
        }
    }
}

fn total_cost(passes: &[PassCost]) -> RunCost {
    let longest = passes.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    RunCost {
        seconds: passes.iter().map(|pass| pass.seconds).sum(),
        read_bytes: passes.iter().map(|pass| pass.read).sum(),
        longest: longest.map(|pass| (pass.pass.clone(), pass.seconds)),
    }
}

/// The cost of the run that read the most similar number of bytes; the first one where the bytes to
/// read are unknown.
fn most_alike<'c>(costs: &[&'c PassCost], read: Option<u64>) -> Option<&'c PassCost> {
    let Some(read) = read else {
        return costs.first().copied();
    };
    let costs = costs.iter().copied();
    costs.min_by(|a, b| log_ratio(a.read, read).total_cmp(&log_ratio(b.read, read)))
}

/// The median of sorted numbers; `None` without any.
fn median_of(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let above = *sorted.get(half)?;
    if sorted.len() % 2 == 1 {
        return Some(above);
    }
    Some((sorted[half - 1] + above) / 2.0)
}

/// The share by which a pass may differ from the middle one of some durations.
fn spread_of(seconds: &[f64], middle: f64) -> f64 {
    if seconds.len() < 2 {
        return SPREAD_OF_ONE;
    }
    let distance = |seconds: &f64| (seconds - middle).abs() / middle.max(f64::MIN_POSITIVE);
    let farthest = seconds.iter().map(distance).fold(0.0, f64::max);
    farthest.clamp(SPREAD_MIN, 1.0)
}

/// Distance between two sizes: the absolute logarithm of their ratio.
fn log_ratio(a: u64, b: u64) -> f64 {
    ((a as f64 + 1.0) / (b as f64 + 1.0)).ln().abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(pass: &str, total: u64, read: u64, seconds: f64) -> PassCost {
        PassCost {
            pass: pass.into(),
            total,
            read,
            rows: read * 10,
            is_steps: false,
            seconds,
            curve: ProgressCurve::default(),
        }
    }

    fn planned_pass(pass: &str, total: u64, read: Option<u64>) -> PlannedPass {
        PlannedPass {
            pass: pass.into(),
            total,
            read,
            learned: false,
            keeps: false,
            kind: PassKind::Scan,
        }
    }

    #[test]
    fn costs_are_estimated_from_the_most_similar_run() {
        let mut costs = CostHistory::default();
        costs.push(vec![cost("write table", 1000, 1000, 100.0)]);
        costs.push(vec![cost("write table", 1010, 10, 2.0)]);
        assert_eq!(
            costs
                .estimate(&planned_pass("write table", 1010, None))
                .seconds,
            2.0
        );
        let curve = ProgressCurve::default();
        let expected = PassEstimate {
            seconds: 2.0,
            spread: Some(SPREAD_OF_ONE),
            rows: Some((100.0, &curve)),
            is_recent: true,
        };
        assert_eq!(
            costs.estimate(&planned_pass("write table", 1020, Some(10))),
            expected
        );
        assert_eq!(
            costs
                .estimate(&planned_pass("write table", 1020, Some(20)))
                .seconds,
            4.0
        );
        assert_eq!(
            costs
                .estimate(&planned_pass("write table", 1020, Some(1020)))
                .seconds,
            102.0
        );
        // A pass without recorded costs is estimated by its bytes.
        assert_eq!(
            costs.estimate(&planned_pass("write other", 100, None)),
            PassEstimate {
                seconds: 20.0,
                spread: None,
                rows: None,
                is_recent: false,
            }
        );
    }

    #[test]
    fn the_middle_one_of_similar_runs_counts() {
        let mut costs = CostHistory::default();
        for seconds in [9.0, 10.0, 30.0, 11.0, 10.0, 10.5] {
            costs.push(vec![cost("train net", 1000, 1000, seconds)]);
        }
        costs.push(vec![cost("train net", 1000, 10, 0.1)]);
        let estimate = costs.estimate(&planned_pass("train net", 1000, Some(1000)));
        assert_eq!((estimate.seconds, estimate.spread), (10.5, Some(1.0)));
        let mut alike = CostHistory::default();
        for seconds in [10.0, 10.4, 9.8] {
            alike.push(vec![cost("train net", 1000, 1000, seconds)]);
        }
        let estimate = alike.estimate(&planned_pass("train net", 1000, None));
        assert_eq!(
            (estimate.seconds, estimate.spread),
            (10.0, Some(SPREAD_MIN))
        );
    }

    #[test]
    fn history_is_bounded_and_unreadable_records_are_dropped() {
        let mut costs = CostHistory::default();
        for run in 0..50 {
            costs.push(
                (0..1000)
                    .map(|pass| cost(&format!("learn {pass}"), run, run, 1.0))
                    .collect(),
            );
        }
        costs.push(Vec::new());
        assert_eq!(
            (
                costs.runs.len(),
                costs.runs[29].len(),
                costs.runs[0][0].total
            ),
            (30, 200, 20)
        );
        let text = costs.to_json().unwrap();
        assert_eq!(CostHistory::from_json(&text), costs);
        assert_eq!(
            CostHistory::from_json(b"{\"format\": 7, \"runs\": []}"),
            CostHistory::default()
        );
        assert_eq!(CostHistory::from_json(&text[1..]), CostHistory::default());
    }
}
