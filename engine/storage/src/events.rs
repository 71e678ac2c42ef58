//! Events of a run, as data. The terminal and `--json` both read this.

use std::collections::BTreeMap;
use std::fmt;

use forebay_model::TraceContext;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::timestamp::format_utc;

/// Event of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Sources were listed and their schemas compared.
    Discovered {
        /// The source.
        source: String,
        /// Number of spans.
        spans: usize,
        /// Rows, where known without reading.
        rows: Option<u64>,
        /// Stored bytes.
        bytes: u64,
        /// Folder that holds all its files, if there are files.
        #[serde(skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
    },
    /// An earlier attempt of this run may still be running; this one takes over.
    TakenOver {
        /// The run.
        run_id: String,
        /// Number of this attempt.
        attempt: u64,
        /// Origin of the attempt before.
        from: AttemptOrigin,
    },
    /// The run waits for a source.
    Waiting {
        /// The source.
        source: String,
        /// Condition that the source must meet.
        wanted: String,
        /// Current state of the source.
        found: String,
    },
    /// A pass begins.
    PassStarted {
        /// Number of the pass, from 1.
        number: usize,
        /// Passes of the program.
        total: usize,
        /// Name of the pass, for people.
        label: String,
        /// The pass's id.
        id: String,
        /// Stored bytes to read, where known.
        bytes: Option<u64>,
    },
    /// A pass has looked up results of earlier runs, and has to read `bytes` of the `of` bytes that it
    /// looked up. May come several times; counts are differences.
    PassReads {
        /// Stored bytes.
        bytes: u64,
        /// Stored bytes of everything that was looked up.
        of: u64,
    },
    /// Expected end of the run, from the costs of earlier runs and the pace of this one. Sent every
    /// second.
    Eta {
        /// The instant, in UTC.
        end: String,
        /// Seconds until then.
        seconds_left: f64,
        /// True if that is before the deadline; `None` without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        on_time: Option<bool>,
    },
    /// The deadline is at risk.
    AtRisk {
        /// The instant, in UTC.
        deadline: String,
        /// Expected end of the run, if it can be forecast.
        end: Option<String>,
        /// Level of degradation that is applied; `none` if no level helps, `stop` if the run ends.
        action: &'static str,
    },
    /// A pass moved on. Comes often; counts are differences.
    Progress {
        /// Rows read since the last one, summed over lanes.
        rows: u64,
        /// Stored bytes read since the last one.
        bytes: u64,
    },
    /// A pass did work beside reading: it sorted, joined, computed or published. Comes often; counts are differences.
    Worked {
        /// Rows that went through a step of this work since the last one; files, where outputs are published.
        done: u64,
        /// Work that is to do and was not counted before.
        planned: u64,
    },
    /// Spilled to disk since the last one.
    Spilled {
        /// Bytes.
        bytes: u64,
    },
    /// A worker takes tasks of this run.
    WorkerJoined {
        /// Address of the worker.
        worker: String,
        /// Number of tasks that it runs at a time.
        slots: usize,
        /// The memory that it may use.
        memory_bytes: u64,
    },
    /// A worker was lost or cannot be reached; its tasks go to others.
    WorkerLost {
        /// Address of the worker.
        worker: String,
        /// Reason of the loss, as far as it is known.
        why: String,
    },
    /// A worker moved on. Comes often; counts are differences.
    WorkerMoved {
        /// Address of the worker.
        worker: String,
        /// Rows read since the last one.
        rows: u64,
        /// Stored bytes read since the last one.
        bytes: u64,
        /// Bytes spilled since the last one.
        spilled_bytes: u64,
        /// CPU seconds since the last one.
        cpu_seconds: f64,
    },
    /// A worker was given a task. A task that another worker is given again is another task here.
    TaskStarted {
        /// Number of the task, unique in this process.
        task: u64,
        /// The worker's address.
        worker: String,
        /// Kind of the task, such as `parts` or `merge`.
        kind: &'static str,
    },
    /// A task of a worker ended.
    TaskEnded {
        /// Number of the task, as at its start.
        task: u64,
        /// Outcome: `done`, `failed`, `handed_back` where the worker leaves, `cancelled` where its
        /// result is no longer needed, or `lost` with its worker.
        outcome: &'static str,
        /// Rows that it read.
        rows: u64,
    },
    /// A pass ended.
    PassDone {
        /// Number of the pass, from 1.
        number: usize,
        /// True if a committed record made it unnecessary.
        reused: bool,
        /// Rows read by the widest lane.
        rows: u64,
        /// Rows that filters removed.
        filtered: u64,
    },
    /// Concurrent runs for intervals begin. Their passes send no events.
    Beside {
        /// Intervals.
        intervals: usize,
        /// Number of intervals that run at a time.
        beside: usize,
    },
    /// An interval is published.
    IntervalDone {
        /// Number of published intervals.
        done: usize,
        /// Number of all intervals.
        intervals: usize,
    },
    /// A rule of an `expect` step was judged.
    ExpectationJudged {
        /// The step.
        step: String,
        /// The rule, such as `not_null: qty`.
        rule: String,
        /// True if the rule holds.
        holds: bool,
        /// Number of checked rows.
        rows: u64,
        /// Rows that violate it.
        violations: u64,
        /// Violating rows that were taken out.
        quarantined: u64,
        /// The measured violation, for people; empty where the rule holds.
        found: String,
        /// The measures of a rule about a distribution.
        #[serde(skip_serializing_if = "Option::is_none")]
        drift: Option<Box<DriftMeasures>>,
    },
    /// A training continues from its checkpoint.
    TrainingResumed {
        /// The sink.
        sink: String,
        /// Steps done.
        step: u64,
        /// Steps of all epochs.
        steps: u64,
    },
    /// A training moved on. Comes about once a second.
    TrainingStep {
        /// The sink.
        sink: String,
        /// The epoch, from 0.
        epoch: u64,
        /// Steps done.
        step: u64,
        /// Steps of all epochs.
        steps: u64,
        /// The mean loss since the last one.
        loss: f64,
        /// The learning rate of the last step.
        learning_rate: f64,
        /// Unit of the counts.
        unit: TrainingUnit,
    },
    /// A training has seen all its rows once more.
    TrainingEpoch {
        /// The sink.
        sink: String,
        /// Report of the epoch.
        #[serde(flatten)]
        epoch: EpochReport,
        /// Seconds that it took, validation included.
        seconds: f64,
        /// Seconds that the training waited for batches.
        wait_seconds: f64,
        /// Steps whose batch was not there yet.
        starved_steps: u64,
        /// The resource that it waited for: `disk`, `cpu` or, where it hardly waited, `trainer`; `training` where it
        /// read all rows before it began.
        bottleneck: &'static str,
        /// Values that were not finite, and became zero.
        non_finite: u64,
        /// Rows that were left out for it.
        skipped_rows: u64,
    },
    /// A message for the user that stops nothing.
    Warning {
        /// The message, in one sentence.
        message: String,
    },
}

/// Origin of an attempt, for people.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptOrigin {
    /// The machine, as it calls itself.
    pub host: String,
    /// The process there.
    pub process: u32,
    /// Start of the attempt, by the clock of that machine.
    pub began: String,
}

impl AttemptOrigin {
    /// Origin of an attempt of this process that starts now.
    pub fn current_process() -> AttemptOrigin {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or(std::env::var("HOSTNAME").ok());
        let host = host.map_or_else(
            || "an unnamed host".to_owned(),
            |host| host.trim().to_owned(),
        );
        AttemptOrigin {
            host,
            process: std::process::id(),
            began: format_utc(Timestamp::now()),
        }
    }
}

impl fmt::Display for AttemptOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} on {}, begun at {}",
            self.process, self.host, self.began
        )
    }
}

/// Difference between the distribution of a column and the baseline of a rule, and the limits. A
/// measure is `None` where it does not apply to the column or where there is no baseline.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DriftMeasures {
    /// The column.
    pub column: String,
    /// Baseline: a part of the split, `last_run` or `trailing_week`.
    pub against: String,
    /// Number of earlier runs in the baseline; `None` for a part of the split.
    pub baseline_runs: Option<u64>,
    /// Rows that it is compared with.
    pub baseline_rows: Option<u64>,
    /// The Jensen-Shannon divergence, in bits: 0 to 1.
    pub js: Option<f64>,
    /// The greatest divergence at which the rule holds: its threshold, or that of chance, where that is greater.
    pub js_limit: Option<f64>,
    /// The share of rows without a value, before and now.
    pub missing: Option<[f64; 2]>,
    /// The greatest change of that share at which the rule holds: its threshold, or that of chance.
    pub missing_limit: Option<f64>,
    /// The greatest difference of the shares of a value: texts and booleans.
    pub l_infinity: Option<f64>,
    /// The greatest difference of the cumulative distributions: numbers.
    pub ks: Option<f64>,
    /// The population stability index: numbers.
    pub psi: Option<f64>,
    /// The share of rows whose value is new.
    pub new_values: Option<f64>,
}

/// The parts of a training that its progress counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainingUnit {
    /// Batches of rows.
    #[default]
    Step,
    /// Trees of a model.
    Round,
    /// Models of groups.
    Group,
}

/// Result of an epoch of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Steps done since the training began.
    pub step: u64,
    /// The mean loss of the epoch's batches.
    pub loss: f64,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Rounds of boosting, of a training that has no epochs: the most of any of its models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Measures on the validation rows, by name: `loss`, `rmse`, `mae` and `wmape`; `log_loss` and
    /// `auc` of a probability; `log_loss` and `accuracy` of classes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub validation: BTreeMap<String, f64>,
}

/// Receiver of a run's events. Called from many threads; must not block.
pub trait EventListener: Send + Sync {
    /// Handles one event.
    fn on_event(&self, event: Event);

    /// Context of a started task's span, if there is a trace: the spans of its worker belong to it.
    fn task_context(&self, _task: u64) -> Option<TraceContext> {
        None
    }
}

/// A listener that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct IgnoreEvents;

impl EventListener for IgnoreEvents {
    fn on_event(&self, _event: Event) {}
}
