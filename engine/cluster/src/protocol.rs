//! What coordinators and workers say to each other: JSON, in a column of text that a plan's leaf
//! gives. Rows of feeds come in a column beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use forebay_feed::FeedConfig;
use forebay_model::{ContentId, Fault, Interval, Pipeline, Result, SeriesCounts, WireFault, codes};
use forebay_plan::{AnalyzerId, OpId, WindowRowOrder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::scheduler::CostClass;
use crate::shuffle_plan::ShufflePlan;

/// What both sides must agree on.
pub const PROTOCOL: u32 = 14;

/// A run, as workers need to know it: they compile it themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSpec {
    pub pipeline: Pipeline,
    pub sinks: Vec<usize>,
    pub learns: bool,
    /// The questions that were answered when the coordinator compiled.
    pub known: BTreeSet<AnalyzerId>,
    pub interval: Option<Interval>,
    /// The artifact that the run goes on from, in the state directory.
    pub continues: Option<ContentId>,
    /// Steps that hold what this artifact learned.
    pub held: BTreeSet<String>,
    /// The ids of tokens that the run continues.
    pub numbering: Option<NumberingSpec>,
    /// The artifact whose findings stand for those of the run, in the state directory.
    pub applies: Option<ContentId>,
    /// The directories of the models with which its steps predict.
    pub models: Vec<String>,
    /// The state directory.
    pub state: String,
    /// Where relative paths begin.
    pub base: PathBuf,
    /// The fingerprints of all sources.
    pub sources: BTreeMap<String, ContentId>,
    pub batch_rows: usize,
}

/// The ids of tokens that a run continues, as the state directory records them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NumberingSpec {
    /// The numbering.
    pub epoch: u64,
    /// By vocabulary: where the run before has come.
    pub bases: BTreeMap<String, VocabularyBase>,
}

/// The tokens that had ids in the run before.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct VocabularyBase {
    /// Their number.
    pub tokens: u64,
    /// The id of their order.
    pub digest: ContentId,
}

/// A feed, as workers need to know it: they plan it themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FeedSpec {
    pub pipeline: Pipeline,
    pub config: FeedConfig,
    /// What is applied on the way; it lies in the state directory. Else what runs have learned.
    pub artifact: Option<ContentId>,
    /// The artifact that its run goes on from, in the state directory.
    pub continues: Option<ContentId>,
    /// Steps that hold what this artifact learned.
    pub held: BTreeSet<String>,
    /// The ids of tokens that the run continues.
    pub numbering: Option<NumberingSpec>,
    pub interval: Option<Interval>,
    pub state: String,
    pub base: PathBuf,
    pub batch_rows: usize,
    /// The fingerprints of its datasets.
    pub datasets: Vec<ContentId>,
}

/// A training whose parts workers train.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrainSpec {
    /// The pipeline's name, for people.
    pub pipeline: String,
    /// The training, under whose id rows and models travel.
    pub id: ContentId,
    /// The format of its sink.
    pub format: String,
    /// What its trainer is told.
    pub config: Value,
    /// The state directory.
    pub state: String,
    /// Where relative paths begin.
    pub base: PathBuf,
}

/// The part of a pass that a task belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageRef {
    Learn {
        pass: usize,
        lane: usize,
    },
    /// The groups of an aggregate are learned.
    Gather {
        pass: usize,
    },
    Write {
        pass: usize,
    },
    /// Rows that windows stand on are sorted first.
    Sort {
        pass: usize,
        stand: OpId,
    },
}

impl StageRef {
    /// Its pass, by its place in the program.
    pub fn pass(self) -> usize {
        match self {
            StageRef::Learn { pass, .. }
            | StageRef::Gather { pass }
            | StageRef::Write { pass }
            | StageRef::Sort { pass, .. } => pass,
        }
    }

    /// The stage that it belongs to: lanes of a pass share one.
    pub fn stage(self) -> StageRef {
        match self {
            StageRef::Learn { pass, .. } => StageRef::Learn { pass, lane: 0 },
            work => work,
        }
    }
}

/// What to do, with the numbers of tasks as `SpanTimeline` of `engine/execute` has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Parts in order, with what windows remember at task `from`.
    Parts {
        parts: Vec<WorkUnitRef>,
        from: usize,
        start: WindowInit,
        /// Whether what windows remember after the last of them is kept.
        keeps: bool,
    },
    /// Divide the rows of a run of spans by their keys, for a shuffle.
    Divide { side: usize, run: usize },
    /// Compute over all rows of a part's keys, in a shuffle.
    Compute { part: usize },
    /// Merge one share of what is known of a question, which is large.
    Merge {
        question: usize,
        share: usize,
        pieces: Vec<StateSource>,
    },
    /// Merge the states of the runs that a source consists of, for all questions but those of `without`. The merged
    /// states of the questions of `divide` are stored in shares.
    MergeRuns {
        source: StateSource,
        without: BTreeSet<usize>,
        divide: BTreeSet<usize>,
    },
    /// Find out what windows remember at task `to`, and keep it.
    Advance {
        from: usize,
        start: WindowInit,
        to: usize,
    },
    /// Read a block of a feed's dataset.
    Read { dataset: usize, block: u32 },
    /// Train on the rows of a part, and leave its models beside them.
    Train { part: ContentId },
}

impl TaskKind {
    /// Its cost class among the tasks of a pass. The coordinator ranks merged vocabularies while workers read.
    pub fn kind(&self, pass: usize) -> CostClass {
        let what = match self {
            TaskKind::Parts { .. } => "parts",
            TaskKind::Divide { .. } => "divide",
            TaskKind::Compute { .. } => "compute",
            TaskKind::Merge { .. } | TaskKind::MergeRuns { .. } => "merge",
            TaskKind::Advance { .. } => "advance",
            TaskKind::Read { .. } => "read",
            TaskKind::Train { .. } => "train",
        };
        CostClass {
            pass,
            what,
            first: what == "merge",
        }
    }
}

/// Where a range gets what its windows remember.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowInit {
    /// Nothing that lies before it matters.
    Fresh,
    /// These tasks before it hold all that decides what comes out of its rows.
    Halo(Vec<Range<usize>>),
    /// An earlier run kept it under this id.
    Kept(ContentId),
    /// Everything before it counts.
    Carried,
}

/// The source of the state of a run of spans.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateSource {
    /// An earlier run committed it.
    Kept(Range<usize>),
    /// The rows of the run are read.
    Read(Range<usize>),
    /// It is merged of others, in order; `kept` marks the analyzers whose merged state is committed.
    Merged {
        tasks: Range<usize>,
        kept: Vec<bool>,
        of: Vec<StateSource>,
    },
}

impl StateSource {
    /// Whether its ranges and analyzers are within these counts: the value comes from the network.
    pub fn is_within(&self, tasks: usize, questions: usize) -> bool {
        let among = |range: &Range<usize>| range.start <= range.end && range.end <= tasks;
        match self {
            StateSource::Kept(range) | StateSource::Read(range) => among(range),
            StateSource::Merged {
                tasks: range,
                kept,
                of,
            } => {
                among(range)
                    && kept.len() >= questions
                    && of.iter().all(|piece| piece.is_within(tasks, questions))
            }
        }
    }
}

/// A part by its tasks, and the name that both sides must give it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnitRef {
    pub tasks: Range<usize>,
    pub id: ContentId,
}

/// What a plan's leaf takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerRequest {
    /// Who are you?
    Hello,
    /// Do this.
    Task(Box<TaskRequest>),
    /// Give these rows.
    Rows(Box<RowsRequest>),
    /// Train on these rows.
    Train(Box<TrainRequest>),
}

impl WorkerRequest {
    /// What is asked for, as coordinators tell of it.
    pub fn kind(&self) -> &'static str {
        match self {
            WorkerRequest::Hello => "hello",
            WorkerRequest::Task(task) => task.what.kind(0).what,
            WorkerRequest::Rows(_) => "read",
            WorkerRequest::Train(_) => "train",
        }
    }
}

/// A task for a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskRequest {
    pub job: RunSpec,
    pub work: StageRef,
    /// How rows reach each window.
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    /// Where workers sorted rows; of sorting, the last one is at hand.
    pub shuffles: Vec<ShufflePlan>,
    pub what: TaskKind,
    /// How often to say something at least.
    pub beat_ms: u64,
}

/// Rows of a batch, and parts of a shuffle, at most: a request decides how much memory they take.
const BATCH_ROWS_MAX: usize = 1 << 24;
const SHUFFLE_PARTS_MAX: usize = 1 << 16;

impl TaskRequest {
    /// Refuses numbers that no coordinator of this version sends. Everything that a request names is looked up where
    /// it is used; this is about order and size.
    pub fn check(&self) -> Result<()> {
        let job = &self.job;
        let sinks = job
            .sinks
            .iter()
            .all(|sink| *sink < job.pipeline.sinks.len());
        let rows = (1..=BATCH_ROWS_MAX).contains(&job.batch_rows);
        let shuffles = self
            .shuffles
            .iter()
            .all(|shuffle| shuffle.parts <= SHUFFLE_PARTS_MAX);
        let tasks = match &self.what {
            TaskKind::Parts { parts, from, .. } => {
                let starts = std::iter::once(*from).chain(parts.iter().map(|part| part.tasks.end));
                parts
                    .iter()
                    .zip(starts)
                    .all(|(part, at)| at <= part.tasks.start && part.tasks.start <= part.tasks.end)
            }
            TaskKind::Advance { from, to, .. } => from <= to,
            TaskKind::Divide { .. }
            | TaskKind::Compute { .. }
            | TaskKind::Merge { .. }
            | TaskKind::MergeRuns { .. }
            | TaskKind::Read { .. }
            | TaskKind::Train { .. } => true,
        };
        match sinks && rows && shuffles && tasks {
            true => Ok(()),
            false => Err(bad_request()),
        }
    }
}

impl RowsRequest {
    /// The same for a block of rows.
    pub fn check(&self) -> Result<()> {
        (1..=BATCH_ROWS_MAX)
            .contains(&self.job.batch_rows)
            .then_some(())
            .ok_or_else(bad_request)
    }
}

/// A fault for a request that the coordinator of a run does not send.
pub fn bad_request() -> Fault {
    Fault::new(codes::STRANGER, "a request names what there is not")
}

/// A block of a feed that is wanted from a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowsRequest {
    pub job: FeedSpec,
    pub dataset: usize,
    pub block: u32,
    /// How often to say something at least.
    pub beat_ms: u64,
}

/// A table of a query, as workers read it: the rows of an input of a gather.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TableSpec {
    /// The input's name in the query.
    pub name: String,
    pub job: RunSpec,
    /// The pass of the gather, by its place in the program.
    pub pass: usize,
    /// Its place among the inputs of the gather.
    pub input: usize,
    /// How rows reach each window.
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    /// Where workers sorted rows.
    pub shuffles: Vec<ShufflePlan>,
    /// What the coordinator found to read.
    pub rows: ContentId,
}

impl TableSpec {
    /// Refuses numbers that no coordinator of this version sends.
    pub fn check(&self) -> Result<()> {
        let shuffles = self
            .shuffles
            .iter()
            .all(|shuffle| shuffle.parts <= SHUFFLE_PARTS_MAX);
        let sinks = self
            .job
            .sinks
            .iter()
            .all(|sink| *sink < self.job.pipeline.sinks.len());
        let rows = (1..=BATCH_ROWS_MAX).contains(&self.job.batch_rows);
        (shuffles && sinks && rows)
            .then_some(())
            .ok_or_else(bad_request)
    }
}

/// A part of a training that is wanted from a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrainRequest {
    pub job: TrainSpec,
    /// Names the rows and, beside them, the models.
    pub part: ContentId,
    /// How often to say something at least.
    pub beat_ms: u64,
}

/// What a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHello {
    pub protocol: u32,
    pub version: String,
    pub slots: usize,
    pub memory_bytes: u64,
    pub leaves: bool,
}

/// What a plan's leaf gives.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerMessage {
    Hello(WorkerHello),
    /// It is alive; counts are since the beginning of the task.
    Beat(TaskProgress),
    /// A part is committed; `first` is the first of its tasks.
    Part {
        first: usize,
        made: Value,
    },
    /// All is done. `counts`: gaps up to the last task, and duplicates of a shuffle.
    Done {
        counts: SeriesCounts,
        progress: TaskProgress,
    },
    /// The worker leaves: what is not done is for others.
    HandedBack,
    /// It did not work. `order_failure`: the window whose way was wrong, and the code of its fault.
    Failed {
        fault: Box<WireFault>,
        order_failure: Option<OpId>,
    },
}

/// How far a task is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskProgress {
    pub rows: u64,
    pub bytes: u64,
    pub spilled_bytes: u64,
    /// CPU seconds of the worker's threads for this task.
    pub cpu_seconds: f64,
}
