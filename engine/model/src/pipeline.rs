//! The pipeline as the user wrote it: immutable, the same from YAML and from the builder.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Location;

/// The DAG of steps. Nothing downstream can tell whether it came from YAML or from Rust.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Names the artifact.
    pub name: String,
    /// Where data comes from.
    pub sources: Vec<Source>,
    /// Named steps, in the order of the spec; the order carries no meaning.
    pub nodes: Vec<Node>,
    /// How rows are divided into training, validation and so on.
    pub split: Option<Split>,
    /// What is predicted, and how long before: features must not know more.
    pub label: Option<Label>,
    /// Where output is committed.
    pub sinks: Vec<Sink>,
    /// Sinks that train a model on the rows; their formats are those of trainers.
    pub trainings: Vec<Sink>,
    /// What mini-batches are made of, where the spec says so.
    pub feed: Option<Feed>,
    /// When a run should be done, and what it may do to be.
    pub deadline: Option<Deadline>,
}

/// A named dataset to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// What steps call it.
    pub name: String,
    /// A registered format, such as `parquet`.
    pub format: String,
    /// The format's configuration in canonical JSON, defaults filled in.
    pub config: Value,
    /// The event-time column.
    pub time: Option<String>,
    /// The columns that tell series apart.
    pub keys: Vec<String>,
    /// What a run waits for before it reads.
    pub ready: Option<Ready>,
    /// How long before an interval rows may still change, such as `3d`: intervals in there are done
    /// again with it.
    pub lookback: Option<String>,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// When a source is there as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// A file that says so by being there: a path or URL.
    pub marker: Option<String>,
    /// Files at least.
    pub files: Option<u64>,
    /// How long ago the youngest file was written at least.
    pub min_age: Option<Duration>,
    /// How long to wait.
    pub timeout: Duration,
}

/// A named list of steps over one input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What other nodes and sinks call it.
    pub name: String,
    /// What it reads.
    pub input: NodeInput,
    /// The part of the split that its analyzers see; `None` means all rows.
    pub fit_on: Option<String>,
    /// In order.
    pub steps: Vec<Step>,
    /// Whether a run that would be late may leave it out.
    pub optional: bool,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// What a node reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum NodeInput {
    /// Another node or a source.
    From(String),
    /// The rows of several nodes or sources with equal columns, in this order.
    Union(Vec<String>),
    /// A SQL query over nodes and sources by name.
    Sql(String),
}

/// One use of a transform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// A registered transform, such as `standardize`.
    pub kind: String,
    /// Its configuration in canonical JSON, defaults filled in.
    pub config: Value,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// Where output is committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// Names the output in summaries.
    pub name: String,
    /// The node or source to write.
    pub from: String,
    /// A registered format, such as `parquet`.
    pub format: String,
    /// The format's configuration in canonical JSON, defaults filled in.
    pub config: Value,
    /// Writes the rows of this part only.
    pub split: Option<String>,
    /// Whether a run that would be late may leave it out.
    pub optional: bool,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// What mini-batches are made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Feed {
    /// Rows, columns and their order, in canonical JSON: what the feed's own configuration reads.
    pub config: Value,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// When a run should be done, and what it may do to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// A time of day, an instant or a length of time, where the spec tells.
    pub by: Option<String>,
    /// What is done when the deadline is at risk, in order; a later rung includes those before it.
    pub ladder: Vec<Rung>,
    /// Whether a run stops when the deadline passes; others warn and go on.
    pub fail: bool,
    /// Whom to tell: the URL takes a POST of JSON.
    pub webhook: Option<String>,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// Something that makes a run shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rung {
    /// Leave out steps and sinks that are optional.
    SkipOptional,
    /// What is not learned yet is taken from the newest artifact.
    ReuseStates,
    /// Nothing is learned: the newest artifact is applied as it is.
    LastModel,
}

impl Rung {
    /// As specs and summaries have it.
    pub fn word(self) -> &'static str {
        match self {
            Rung::SkipOptional => "skip_optional",
            Rung::ReuseStates => "reuse_states",
            Rung::LastModel => "last_model",
        }
    }
}

/// What is predicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// The column.
    pub column: String,
    /// How long before its row's time it is predicted: a length such as `1d`, or a number of rows.
    pub horizon: String,
    /// Columns that are known by then although they tell of the row's time: prices and promotions
    /// that are planned, weather that is forecast.
    pub known: Vec<String>,
    /// Where it stands in the spec.
    pub at: Option<Location>,
}

/// How rows are divided. Parts are named by the user (`train`, `validation`, ...).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Split {
    /// One SQL condition per part.
    Expressions(Vec<(String, String)>),
    /// Consecutive parts of half-open time ranges. Part `i` ends before `ends[i]`; the last part
    /// has no end. Rows within `embargo` before a boundary belong to no part.
    Time {
        /// The time column.
        column: String,
        /// Names in time order.
        parts: Vec<String>,
        /// One boundary fewer than parts, as SQL date or timestamp literals' text.
        ends: Vec<String>,
        /// Length before each boundary that is left out, such as `7d`.
        embargo: Option<String>,
    },
    /// Parts by a hash of key columns: a key stays in its part as data grows.
    Hash {
        /// The key columns.
        keys: Vec<String>,
        /// Names and shares in parts per million; the shares sum to 1,000,000.
        parts: Vec<(String, u32)>,
        /// Changes which keys go where.
        seed: u64,
    },
}

impl Split {
    /// The parts' names in order.
    pub fn parts(&self) -> Vec<&str> {
        match self {
            Split::Expressions(parts) => parts.iter().map(|(name, _)| name.as_str()).collect(),
            Split::Time { parts, .. } => parts.iter().map(String::as_str).collect(),
            Split::Hash { parts, .. } => parts.iter().map(|(name, _)| name.as_str()).collect(),
        }
    }

    /// The canonical configuration, for ids and artifacts.
    pub fn config(&self) -> Value {
        match self {
            Split::Expressions(parts) => json!({ "expressions": parts }),
            Split::Time { column, parts, ends, embargo } => {
                json!({ "time": { "column": column, "parts": parts, "ends": ends, "embargo": embargo } })
            }
            Split::Hash { keys, parts, seed } => json!({ "hash": { "keys": keys, "parts": parts, "seed": seed } }),
        }
    }
}

impl Pipeline {
    /// The source of this name.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// The pipeline without what is optional, and the names of the steps and sinks that went.
    pub fn without_optional(&self) -> (Pipeline, Vec<String>) {
        let mut kept = self.clone();
        kept.nodes.retain(|node| !node.optional);
        kept.sinks.retain(|sink| !sink.optional);
        kept.trainings.retain(|training| !training.optional);
        let nodes = self.nodes.iter().filter(|node| node.optional).map(|node| node.name.clone());
        let sinks = self.sinks.iter().chain(&self.trainings);
        let sinks = sinks.filter(|sink| sink.optional).map(|sink| sink.name.clone());
        let skipped = nodes.chain(sinks).collect();
        (kept, skipped)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}
