//! Everything that can happen during a run, as data. The terminal and `--json` both read this.

use std::collections::BTreeMap;
use std::fmt;

use forebay_model::TraceContext;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::timestamp::format_utc;

/// Something happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Sources were listed and their schemas compared.
    Discovered {
        /// The source.
        source: String,
        /// Its spans.
        spans: usize,
        /// Rows, where known without reading.
        rows: Option<u64>,
        /// Stored bytes.
        bytes: u64,
        /// The folder that holds all its files, if there are files.
        #[serde(skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
    },
    /// A run of this id began before, and may still be at work; this one takes over.
    TakenOver {
        /// The run.
        run_id: String,
        /// Which attempt this is.
        attempt: u64,
        /// Who began the one before.
        from: AttemptOrigin,
    },
    /// The run waits for a source.
    Waiting {
        /// The source.
        source: String,
        /// What it must be.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// A pass begins.
    PassStarted {
        /// From 1.
        number: usize,
        /// Passes of the program.
        total: usize,
        /// What it is, for people.
        label: String,
        /// The pass's id.
        id: String,
        /// Stored bytes to read, where known.
        bytes: Option<u64>,
    },
    /// A pass has looked at what earlier runs left, and has so much to read of what it looked at. May
    /// come several times; counts are differences.
    PassReads {
        /// Stored bytes.
        bytes: u64,
        /// Stored bytes of everything that it looked at.
        of: u64,
    },
    /// When the run will end, by what earlier runs cost and how this one goes. Comes every second.
    Eta {
        /// The instant, in UTC.
        end: String,
        /// How long until then.
        seconds_left: f64,
        /// Whether that is before the deadline, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        on_time: Option<bool>,
    },
    /// The deadline is at risk.
    AtRisk {
        /// The instant, in UTC.
        deadline: String,
        /// When the run would end, if that can be foretold.
        end: Option<String>,
        /// The rung of the ladder that is taken; `none` where nothing helps, `stop` where the run ends.
        action: &'static str,
    },
    /// A pass moved on. Comes often; counts are differences.
    Progress {
        /// Rows read since the last one, summed over lanes.
        rows: u64,
        /// Stored bytes read since the last one.
        bytes: u64,
    },
    /// Spilled to disk since the last one.
    Spilled {
        /// Bytes.
        bytes: u64,
    },
    /// A worker takes tasks of this run.
    WorkerJoined {
        /// Its address.
        worker: String,
        /// How many tasks it does at a time.
        slots: usize,
        /// The memory that it may use.
        memory_bytes: u64,
    },
    /// A worker is gone, or cannot be had; what it was doing goes to others.
    WorkerLost {
        /// Its address.
        worker: String,
        /// What is known of it.
        why: String,
    },
    /// A worker moved on. Comes often; counts are differences.
    WorkerMoved {
        /// Its address.
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
        /// Tells it from all others of this process.
        task: u64,
        /// The worker's address.
        worker: String,
        /// What is done, such as `parts` or `merge`.
        kind: &'static str,
    },
    /// A task of a worker ended.
    TaskEnded {
        /// As at its start.
        task: u64,
        /// How: `done`, `failed`, `handed_back` where the worker leaves, `cancelled` where its result is no longer
        /// wanted, or `lost` with its worker.
        outcome: &'static str,
        /// Rows that it read.
        rows: u64,
    },
    /// A pass ended.
    PassDone {
        /// From 1.
        number: usize,
        /// Whether a committed record made it unnecessary.
        reused: bool,
        /// Rows read by the widest lane.
        rows: u64,
        /// Rows that filters removed.
        filtered: u64,
    },
    /// Runs for so many intervals begin, so many at a time. Of their passes nothing is told.
    Beside {
        /// Intervals.
        intervals: usize,
        /// How many are at work at a time.
        beside: usize,
    },
    /// An interval is published.
    IntervalDone {
        /// How many are.
        done: usize,
        /// Of how many.
        intervals: usize,
    },
    /// A rule of an `expect` step was judged.
    ExpectationJudged {
        /// The step.
        step: String,
        /// The rule, such as `not_null: qty`.
        rule: String,
        /// Whether it holds.
        holds: bool,
        /// Rows that were looked at.
        rows: u64,
        /// Rows that violate it.
        violations: u64,
        /// Those of them that were taken out.
        quarantined: u64,
        /// What was found, for people; empty where it holds.
        found: String,
        /// The measures of a rule about a distribution.
        #[serde(skip_serializing_if = "Option::is_none")]
        drift: Option<Box<DriftMeasures>>,
    },
    /// A training goes on from its checkpoint.
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
        /// What is counted.
        unit: TrainingUnit,
    },
    /// A training has seen all its rows once more.
    TrainingEpoch {
        /// The sink.
        sink: String,
        /// What the epoch came to.
        #[serde(flatten)]
        epoch: EpochReport,
        /// How long it took, validation included.
        seconds: f64,
        /// How long the training waited for batches.
        wait_seconds: f64,
        /// Steps whose batch was not there yet.
        starved_steps: u64,
        /// What it waited for: `disk`, `cpu` or, where it hardly waited, `trainer`.
        bottleneck: &'static str,
        /// Values that were not finite, and became zero.
        non_finite: u64,
        /// Rows that were left out for it.
        skipped_rows: u64,
    },
    /// Something that the user should know and that stops nothing.
    Warning {
        /// One sentence.
        message: String,
    },
}

/// Who began an attempt, for people.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptOrigin {
    /// The machine, as it calls itself.
    pub host: String,
    /// The process there.
    pub process: u32,
    /// When, by the clock of that machine.
    pub began: String,
}

impl AttemptOrigin {
    /// This process, now.
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

/// How the distribution of a column differs from what a rule compares it with, and the limits. A measure is `None` where
/// it does not apply to the column or where there is nothing to compare with.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DriftMeasures {
    /// The column.
    pub column: String,
    /// What it is compared with: a part of the split, `last_run` or `trailing_week`.
    pub against: String,
    /// How many earlier runs it is compared with; `None` for a part of the split.
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

/// What an epoch of a training came to.
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
    /// What the validation rows gave, by name: `loss`, `rmse`, `mae` and `wmape`, or `log_loss` and `auc`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub validation: BTreeMap<String, f64>,
}

/// Receiver of a run's events. Called from many threads; must not block.
pub trait EventListener: Send + Sync {
    /// Handles one event.
    fn on_event(&self, event: Event);

    /// The span of a task that has started, if there is a trace: what its worker tells of it belongs to that.
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
