//! Messages between coordinators and workers: JSON, in a column of text of a plan's leaf. Rows of
//! feeds come in a second column.

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

/// Version of the messages, on which coordinators and workers must agree.
pub const PROTOCOL: u32 = 20;

/// Version of both sides: program and protocol.
pub fn protocol_version() -> String {
    format!("forebay {} protocol {PROTOCOL}", env!("CARGO_PKG_VERSION"))
}

/// Request of a probe: whether a worker sees the shared paths of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProbeRequest {
    pub job: RunSpec,
    /// Name and content of the file that the coordinator has written to each shared directory.
    pub mark: MarkId,
}

/// Bytes of the random id of a mark.
pub type MarkId = [u8; 16];

/// A run, as workers need to know it: they compile it themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSpec {
    pub pipeline: Pipeline,
    pub sinks: Vec<usize>,
    pub learns: bool,
    /// The questions that were answered when the coordinator compiled.
    pub known: BTreeSet<AnalyzerId>,
    pub interval: Option<Interval>,
    /// The time from which on rows are written, where an artifact is applied; those before are history.
    pub rows_from: Option<String>,
    /// Artifact that the run continues from, in the state directory.
    pub continues: Option<ContentId>,
    /// Steps that keep the findings of this artifact.
    pub held: BTreeSet<String>,
    /// The ids of tokens that the run continues.
    pub numbering: Option<NumberingSpec>,
    /// Artifact whose findings replace those of the run, in the state directory.
    pub applies: Option<ContentId>,
    /// Findings of an earlier run that a degraded run uses.
    pub reuses: Option<ReusedFindings>,
    /// The directories of the models with which its steps predict.
    pub models: Vec<String>,
    /// The state directory.
    pub state: String,
    /// Directory that relative paths begin at.
    pub base: PathBuf,
    /// Local directories that all workers must see: that of the state, and those of the outputs.
    pub shared: Vec<PathBuf>,
    /// The fingerprints of all sources.
    pub sources: BTreeMap<String, ContentId>,
    pub batch_rows: usize,
}

/// Findings of an earlier artifact that stand in for those that a degraded run does not learn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusedFindings {
    /// The artifact, in the state directory.
    pub artifact: ContentId,
    /// The analyzers whose findings are taken from it.
    pub analyzers: BTreeSet<AnalyzerId>,
}

/// The ids of tokens that a run continues, as the state directory records them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NumberingSpec {
    /// The numbering.
    pub epoch: u64,
    /// Position that the run before has reached, by vocabulary.
    pub bases: BTreeMap<String, VocabularyBase>,
}

/// The tokens that had ids in the run before.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct VocabularyBase {
    /// Number of tokens.
    pub tokens: u64,
    /// The id of their order.
    pub digest: ContentId,
}

/// A feed, as workers need to know it: they plan it themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FeedSpec {
    pub pipeline: Pipeline,
    pub config: FeedConfig,
    /// Artifact in the state directory that is applied; without it, findings of earlier runs are
    /// used.
    pub artifact: Option<ContentId>,
    /// Artifact that its run continues from, in the state directory.
    pub continues: Option<ContentId>,
    /// Steps that keep the findings of this artifact.
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
    /// Configuration of its trainer.
    pub config: Value,
    /// The state directory.
    pub state: String,
    /// Directory that relative paths begin at.
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
    /// The rows that a `dedupe` keeps are chosen and read.
    Dedupe {
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
    /// Index of its pass in the program.
    pub fn pass(self) -> usize {
        match self {
            StageRef::Learn { pass, .. }
            | StageRef::Gather { pass }
            | StageRef::Dedupe { pass }
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

/// Work of a task, with spans numbered as by `SpanTimeline` of `engine/execute`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Parts in order, with the window state before task `from`.
    Parts {
        parts: Vec<WorkUnitRef>,
        from: usize,
        start: WindowInit,
        /// True if the window state after the last of them is kept.
        keeps: bool,
    },
    /// Divide the rows of a run of spans by their keys, for a shuffle.
    Divide { side: usize, run: usize },
    /// Compute over all rows of a part's keys, in a shuffle.
    Compute { part: usize },
    /// Read the rows of a group of spans, and leave those that a shuffle chose.
    Filter { group: usize },
    /// Merge one share of the states of a question whose states are large.
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
    /// Compute the window state before task `to`, and keep it.
    Advance {
        from: usize,
        start: WindowInit,
        to: usize,
    },
    /// Read a block of a feed's dataset.
    Read { dataset: usize, block: u32 },
    /// Trains on the rows of a part, and stores its models with them.
    Train { part: ContentId },
}

impl TaskKind {
    /// Cost class of the task among those of a pass. The coordinator ranks merged vocabularies
    /// while workers read.
    pub fn kind(&self, pass: usize) -> CostClass {
        let name = match self {
            TaskKind::Parts { .. } => "parts",
            TaskKind::Divide { .. } => "divide",
            TaskKind::Compute { .. } => "compute",
            TaskKind::Filter { .. } => "filter",
            TaskKind::Merge { .. } | TaskKind::MergeRuns { .. } => "merge",
            TaskKind::Advance { .. } => "advance",
            TaskKind::Read { .. } => "read",
            TaskKind::Train { .. } => "train",
        };
        CostClass {
            pass,
            what: name,
            first: name == "merge",
        }
    }
}

/// Source of the window state of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowInit {
    /// The output does not depend on earlier rows.
    Fresh,
    /// These spans before it hold all rows that affect its output.
    Halo(Vec<Range<usize>>),
    /// An earlier run kept it under this id.
    Kept(ContentId),
    /// The output depends on all rows before it.
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
    /// Merged from other states, in order; `kept` marks the analyzers whose merged state is
    /// committed.
    Merged {
        tasks: Range<usize>,
        kept: Vec<bool>,
        of: Vec<StateSource>,
    },
}

impl StateSource {
    /// True if its ranges and analyzers are within these counts: the value comes from the network.
    pub fn is_within(&self, tasks: usize, questions: usize) -> bool {
        let among = |range: &Range<usize>| range.start <= range.end && range.end <= tasks;
        match self {
            StateSource::Kept(range) | StateSource::Read(range) => among(range),
            StateSource::Merged {
                tasks: range,
                kept: kept_by_analyzer,
                of,
            } => {
                among(range)
                    && kept_by_analyzer.len() >= questions
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

/// Input of a plan's leaf.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerRequest {
    /// Requests the description of the worker.
    Hello,
    /// Requests to check that the worker sees the paths of a run.
    Probe(Box<ProbeRequest>),
    /// Do this.
    Task(Box<TaskRequest>),
    /// Give these rows.
    Rows(Box<RowsRequest>),
    /// Train on these rows.
    Train(Box<TrainRequest>),
}

/// Kind of a [`WorkerRequest`], which the begin of its text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Hello,
    Probe,
    Task,
    Rows,
    Train,
}

impl RequestKind {
    /// The kinds of requests with contents. A text with another begin counts as a greeting.
    const WITH_CONTENTS: [RequestKind; 4] = [
        RequestKind::Probe,
        RequestKind::Task,
        RequestKind::Rows,
        RequestKind::Train,
    ];

    /// Begin of the text of such a request, as coordinators write it.
    fn begin(self) -> &'static [u8] {
        match self {
            RequestKind::Hello => b"\"hello\"",
            RequestKind::Probe => b"{\"probe\":",
            RequestKind::Task => b"{\"task\":",
            RequestKind::Rows => b"{\"rows\":",
            RequestKind::Train => b"{\"train\":",
        }
    }

    /// The kind of a text that is not parsed yet. One that begins as no coordinator writes it is taken for a greeting,
    /// and may be as long as one.
    pub fn of_text(text: &[u8]) -> RequestKind {
        let mut kinds = RequestKind::WITH_CONTENTS.into_iter();
        let kind = kinds.find(|kind| text.starts_with(kind.begin()));
        kind.unwrap_or(RequestKind::Hello)
    }

    /// Bytes of the text at most: a greeting says nothing, a feed and a training come with a pipeline, and a task also
    /// with its parts.
    pub fn bytes_max(self) -> usize {
        match self {
            RequestKind::Hello => 1 << 10,
            RequestKind::Probe | RequestKind::Rows | RequestKind::Train => 16 << 20,
            RequestKind::Task => 32 << 20,
        }
    }
}

impl WorkerRequest {
    /// Kind of the request.
    pub fn request_kind(&self) -> RequestKind {
        match self {
            WorkerRequest::Hello => RequestKind::Hello,
            WorkerRequest::Probe(_) => RequestKind::Probe,
            WorkerRequest::Task(_) => RequestKind::Task,
            WorkerRequest::Rows(_) => RequestKind::Rows,
            WorkerRequest::Train(_) => RequestKind::Train,
        }
    }

    /// Name of the kind of request in messages of the coordinator.
    pub fn kind(&self) -> &'static str {
        match self {
            WorkerRequest::Hello => "hello",
            WorkerRequest::Probe(_) => "probe",
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
    /// Order in which rows reach each window.
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    /// Shuffles in which workers sorted rows; for a task of a shuffle, the last one is its own.
    pub shuffles: Vec<ShufflePlan>,
    pub what: TaskKind,
    /// Maximum time between messages, in milliseconds.
    pub beat_ms: u64,
}

/// Rows of a batch, and parts of a shuffle, at most: a request decides how much memory they take.
const BATCH_ROWS_MAX: usize = 1 << 24;
const SHUFFLE_PARTS_MAX: usize = 1 << 16;

impl TaskRequest {
    /// Refuses numbers that no coordinator of this version sends. Everything that a request names is looked up where
    /// it is used; this is about order and size.
    pub fn check(&self) -> Result<()> {
        let run_spec = &self.job;
        let sinks = run_spec
            .sinks
            .iter()
            .all(|sink| *sink < run_spec.pipeline.sinks.len());
        let rows = (1..=BATCH_ROWS_MAX).contains(&run_spec.batch_rows);
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
            | TaskKind::Filter { .. }
            | TaskKind::Merge { .. }
            | TaskKind::MergeRuns { .. }
            | TaskKind::Read { .. }
            | TaskKind::Train { .. } => true,
        };
        if sinks && rows && shuffles && tasks {
            Ok(())
        } else {
            Err(bad_request())
        }
    }
}

impl RowsRequest {
    /// Checks a request for a block of rows.
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

/// Request for a block of a feed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowsRequest {
    pub job: FeedSpec,
    pub dataset: usize,
    pub block: u32,
    /// Maximum time between messages, in milliseconds.
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
    /// Index among the inputs of the gather.
    pub input: usize,
    /// Order in which rows reach each window.
    pub row_orders: Vec<(OpId, WindowRowOrder)>,
    /// Shuffles in which workers sorted rows.
    pub shuffles: Vec<ShufflePlan>,
    /// Id of the rows that the coordinator found.
    pub rows: ContentId,
    /// The exchange in which workers leave the numbers of rows that they read.
    pub counts: ContentId,
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

/// Request for the training of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrainRequest {
    pub job: TrainSpec,
    /// Id of the rows, under which the models are stored too.
    pub part: ContentId,
    /// Maximum time between messages, in milliseconds.
    pub beat_ms: u64,
}

/// Description of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHello {
    pub protocol: u32,
    pub version: String,
    pub slots: usize,
    pub memory_bytes: u64,
    pub leaves: bool,
}

/// Output of a plan's leaf.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerMessage {
    Hello(WorkerHello),
    /// The worker sees the paths of a run, or has this fault.
    Probed(Option<Box<WireFault>>),
    /// Heartbeat; counts are since the beginning of the task.
    Beat(TaskProgress),
    /// A part is committed; `first` is the first of its tasks.
    Part {
        first: usize,
        made: Value,
    },
    /// The task is done. `counts`: gaps up to the last task, and duplicates of a shuffle.
    Done {
        counts: SeriesCounts,
        progress: TaskProgress,
    },
    /// The worker leaves: the rest of its task is for other workers.
    HandedBack,
    /// The task failed. `order_failure`: the window whose assumed row order was wrong, and the code
    /// of its fault.
    Failed {
        fault: Box<WireFault>,
        order_failure: Option<OpId>,
    },
}

/// Progress of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskProgress {
    pub rows: u64,
    pub bytes: u64,
    pub spilled_bytes: u64,
    /// CPU seconds of the worker's threads for this task.
    pub cpu_seconds: f64,
}
