//! The pipeline as the user wrote it: immutable, and identical for YAML and the builder.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{DataSplit, DayRules, DuplicateRows, SpecLocation};

/// The DAG of steps. No later stage can tell whether it came from YAML or from Rust.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Name of the pipeline and its artifact.
    pub name: String,
    /// Input datasets.
    pub sources: Vec<PipelineSource>,
    /// Named lists of steps, in the order of the spec; the order has no meaning.
    pub nodes: Vec<PipelineNode>,
    /// Partition of rows into training, validation and other parts.
    pub split: Option<DataSplit>,
    /// The predicted column and its horizon, which bound what features may use.
    pub label: Option<PredictionLabel>,
    /// Written outputs.
    pub sinks: Vec<PipelineSink>,
    /// Sinks that train a model; their formats are trainers.
    pub trainings: Vec<PipelineSink>,
    /// Sinks that predict with the models of trainings.
    #[serde(default)]
    pub predictions: Vec<PipelineSink>,
    /// Mini-batch configuration, if the spec has one.
    pub feed: Option<PipelineFeed>,
    /// Completion deadline and permitted degradations.
    pub deadline: Option<PipelineDeadline>,
    /// The step whose rows are served one by one, with what its windows need of the rows before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<PipelineServing>,
}

/// The step whose rows are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineServing {
    /// Name of the step.
    pub from: String,
    /// Treatment of facts that are not later than the newest of their series.
    #[serde(default, skip_serializing_if = "LateFacts::is_refuse")]
    pub late: LateFacts,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// Treatment of appended facts that are not later than the newest of their series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateFacts {
    /// Refuse them.
    #[default]
    Refuse,
    /// Replay the facts since the run in order of time. Facts that are not later than the rows of the run are refused.
    Replay,
}

impl LateFacts {
    /// True for the usual treatment, which need not be written.
    pub fn is_refuse(&self) -> bool {
        *self == LateFacts::Refuse
    }
}

/// A named dataset to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineSource {
    /// Name by which steps refer to it.
    pub name: String,
    /// A registered format, such as `parquet`.
    pub format: String,
    /// The format's configuration in canonical JSON, defaults filled in.
    pub config: Value,
    /// The event-time column.
    pub time: Option<String>,
    /// Columns that identify a series.
    pub keys: Vec<String>,
    /// Treatment of rows with the same keys and the same time; `None` where the spec leaves it to the windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<DuplicateRows>,
    /// Conditions for which a run waits before it reads.
    pub ready: Option<ReadinessCondition>,
    /// Period before an interval in which rows may still change, such as `3d`. Intervals within it are recomputed.
    pub lookback: Option<String>,
    /// Treatment of days that have not come, have come twice, or have a column without values.
    #[serde(default, skip_serializing_if = "DayRules::is_default")]
    pub days: DayRules,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// Conditions under which a source is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessCondition {
    /// Path or URL of a marker file whose presence means completeness.
    pub marker: Option<String>,
    /// Minimum number of files.
    pub files: Option<u64>,
    /// Minimum age of the newest file.
    pub min_age: Option<Duration>,
    /// Longest wait.
    pub timeout: Duration,
}

/// A named list of steps over one input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineNode {
    /// Name by which other nodes and sinks refer to it.
    pub name: String,
    /// Its input.
    pub input: NodeInput,
    /// Part of the split that its analyzers read; `None` means all rows.
    pub fit_on: Option<String>,
    /// True if its analyzers may learn from no rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_empty: bool,
    /// When its statistics are learned anew; `None` means in each run.
    #[serde(default)]
    pub refit: Option<RefitPolicy>,
    /// Ages of columns of the query: their data ends so long before the row, a duration such as `7d` or a number of rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data_age: BTreeMap<String, String>,
    /// Steps in execution order.
    pub steps: Vec<Step>,
    /// True if a run that would miss its deadline may skip it.
    pub optional: bool,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

impl PipelineNode {
    /// A node that learns from all rows, in each run, and that every run makes.
    pub fn new(name: impl Into<String>, input: NodeInput, steps: Vec<Step>) -> PipelineNode {
        PipelineNode {
            name: name.into(),
            input,
            fit_on: None,
            allow_empty: false,
            refit: None,
            data_age: BTreeMap::new(),
            steps,
            optional: false,
            at: None,
        }
    }
}

/// When a step learns its statistics anew. Without any condition, it keeps those that it has learned once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RefitPolicy {
    /// Once the time of the data has moved on by so much: a duration such as `7d`, or a whole number where times are
    /// numbers.
    pub after: Option<String>,
    /// Once the statistics have drifted further than this: a Jensen-Shannon divergence in bits, 0 to 1.
    pub drift_above: Option<f64>,
}

impl Display for RefitPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match (&self.after, self.drift_above) {
            (None, None) => f.write_str("never"),
            (Some(after), None) => f.write_str(after),
            (None, Some(drift)) => write!(f, "drift above {drift}"),
            (Some(after), Some(drift)) => write!(f, "{after} or drift above {drift}"),
        }
    }
}

/// Input of a node.
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
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// A written output, or a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineSink {
    /// Name of the output in summaries.
    pub name: String,
    /// The node or source to write.
    pub from: String,
    /// A registered format, such as `parquet`.
    pub format: String,
    /// The format's configuration in canonical JSON, defaults filled in.
    pub config: Value,
    /// Part of the split that is written; `None` means all rows.
    pub split: Option<String>,
    /// True if a run that would miss its deadline may skip it.
    pub optional: bool,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// Mini-batch configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineFeed {
    /// Rows, columns and their order, in canonical JSON; parsed by the feed's own configuration type.
    pub config: Value,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// Completion deadline of a run and its permitted degradations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineDeadline {
    /// Time of day, instant or duration, if the spec gives one.
    pub by: Option<String>,
    /// Degradations to apply when the deadline is at risk, in order; each level includes those before it.
    pub ladder: Vec<DegradationLevel>,
    /// Stops a run with a fault when the deadline passes; otherwise the run warns and continues.
    pub fail: bool,
    /// URL that receives notifications as a POST of JSON.
    pub webhook: Option<String>,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

/// A degradation that shortens a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DegradationLevel {
    /// Skip optional steps and sinks.
    SkipOptional,
    /// Take missing findings from the newest artifact.
    ReuseStates,
    /// Learn nothing: apply the newest artifact as it is, and predict with the newest models.
    LastModel,
    /// Publish seasonal naive forecasts and nothing else.
    Naive,
}

impl DegradationLevel {
    /// Name used in specs and summaries.
    pub fn word(self) -> &'static str {
        match self {
            DegradationLevel::SkipOptional => "skip_optional",
            DegradationLevel::ReuseStates => "reuse_states",
            DegradationLevel::LastModel => "last_model",
            DegradationLevel::Naive => "naive",
        }
    }
}

/// The predicted column and its horizon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictionLabel {
    /// The column.
    pub column: String,
    /// Time between prediction and the row's time: a duration such as `1d`, or a number of rows. Without it, ages of
    /// features are not checked.
    #[serde(default)]
    pub horizon: Option<String>,
    /// Columns known at prediction time although they describe the row's time, such as planned prices and
    /// promotions or forecast weather.
    pub known: Vec<String>,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

impl Pipeline {
    /// The source of this name.
    pub fn source(&self, name: &str) -> Option<&PipelineSource> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// The pipeline without optional nodes and sinks, and the names of those removed.
    pub fn without_optional(&self) -> (Pipeline, Vec<String>) {
        let mut pipeline = self.clone();
        pipeline.nodes.retain(|node| !node.optional);
        pipeline.sinks.retain(|sink| !sink.optional);
        pipeline.trainings.retain(|training| !training.optional);
        pipeline
            .predictions
            .retain(|prediction| !prediction.optional);
        let mut removed = Vec::new();
        for node in &self.nodes {
            if node.optional {
                removed.push(node.name.clone());
            }
        }
        let sinks = self.sinks.iter().chain(&self.trainings);
        for sink in sinks.chain(&self.predictions) {
            if sink.optional {
                removed.push(sink.name.clone());
            }
        }
        (pipeline, removed)
    }

    /// The pipeline whose steps learn their statistics again in each run, and whose models are trained in each run.
    pub fn learning_anew(&self) -> Pipeline {
        let mut pipeline = self.clone();
        for node in &mut pipeline.nodes {
            node.refit = None;
        }
        for training in &mut pipeline.trainings {
            if let Some(config) = training.config.as_object_mut() {
                config.remove("refit");
            }
        }
        pipeline
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&PipelineNode> {
        self.nodes.iter().find(|node| node.name == name)
    }
}
