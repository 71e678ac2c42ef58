//! What a run came to.

use forebay_commit::DegradationReport;
use forebay_model::Interval;
use forebay_plan::{Pass, PassWork, RowCounts, StepRefit};
use forebay_storage::{EpochReport, StorageUsage};
use serde::{Deserialize, Serialize};

use crate::expectations::ExpectationReport;
use crate::predict::ForecastLayout;

/// What a run came to: printed as the summary, and as the last line of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// The pipeline.
    pub pipeline: String,
    /// The artifact's id.
    pub artifact: Option<String>,
    /// Where the artifact is.
    pub artifact_path: Option<String>,
    /// Per sink.
    pub outputs: Vec<OutputReport>,
    /// Per training.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelReport>,
    /// Per `predict` sink.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forecasts: Vec<ForecastReport>,
    /// Per step that adds rows of the future.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub future: Vec<FutureReport>,
    /// Per vocabulary that continues that of the run before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub continued: Vec<ContinuedReport>,
    /// What is in force of steps that do not learn anew in each run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refits: Vec<StepRefit>,
    /// Per rule of `expect` steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<ExpectationReport>,
    /// Per pass.
    pub passes: Vec<PassReport>,
    /// The interval that was written, if not everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Intervals before it that were done again, because the lookback reaches them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Interval>,
    /// Whether everything was known already.
    pub nothing_new: bool,
    /// How the run stood to its deadline, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DeadlineOutcome>,
    /// What was done to be on time, if anything was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<DegradationReport>,
    /// Bytes spilled to disk.
    pub spilled_bytes: u64,
    /// What this process asked of object stores meanwhile, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageUsage>,
}

/// A deadline, and whether it was kept.
#[derive(Debug, Clone, Serialize)]
pub struct DeadlineOutcome {
    /// The instant, in UTC.
    pub at: String,
    /// Whether the run ended before it.
    pub on_time: bool,
}

/// One committed output.
#[derive(Debug, Clone, Serialize)]
pub struct OutputReport {
    /// The sink.
    pub sink: String,
    /// The output directory.
    pub path: String,
    /// Whether it is a table, which a reader opens by its log.
    pub table: bool,
    /// The directory of its files.
    pub data: String,
    /// Rows written.
    pub rows: u64,
    /// Rows of a table outside of the interval that were written again: they shared files with rows of the interval.
    pub rows_copied: u64,
    /// Files written.
    pub files: usize,
    /// Bytes written.
    pub bytes: u64,
    /// Rows of which a prediction was moved to a bound.
    #[serde(skip_serializing_if = "is_zero")]
    pub clipped: u64,
    /// Rows whose predicted quantiles crossed, and were sorted.
    #[serde(skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// Rows with the keys and the time of an earlier row of their series, where windows warn of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Its columns, in order.
    pub columns: Vec<OutputColumn>,
    /// Whether readers saw something else before, or nothing.
    #[serde(skip)]
    pub is_new: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One trained model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// The sink.
    pub sink: String,
    /// The directory that it is published in.
    pub path: String,
    /// The directory of its files.
    pub data: String,
    /// Names everything that determines it.
    pub id: String,
    /// Whether an earlier run had trained it.
    pub reused: bool,
    /// How the training went.
    #[serde(flatten)]
    pub learned: TrainingReport,
    /// Whether readers saw something else before, or nothing.
    #[serde(skip)]
    pub is_new: bool,
}

/// How a training went: the same for the same model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingReport {
    /// Rows of an epoch.
    pub rows: u64,
    /// Rows that it was validated on.
    pub validation_rows: u64,
    /// Numbers that were learned.
    pub parameters: u64,
    /// Each epoch.
    pub epochs: Vec<EpochReport>,
    /// The epoch whose model it is, from 0.
    pub best_epoch: u64,
    /// The mean loss of some steps, and the last of them: at most 200 points.
    pub curve: Vec<(u64, f64)>,
    /// What it began with, where it could go on from an earlier model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TrainingStartReport>,
    /// How many models there are for the steps of the horizon: steps with the same columns share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_models: Option<u64>,
    /// The models of groups, where there is one for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupTrainingReport>,
}

/// What a training began with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingStartReport {
    /// The training that it went on from; `None` where it began with nothing.
    pub from: Option<String>,
    /// Why it began with nothing.
    pub reason: Option<String>,
    /// Rows that the earlier training did not have.
    pub new_rows: u64,
    /// Rows of the earlier training that were learned from again.
    pub replayed_rows: u64,
    /// All rows that there are.
    pub all_rows: u64,
}

/// The models of groups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupTrainingReport {
    /// Groups with rows to learn from.
    pub groups: u64,
    /// Models that this run trained.
    pub trained: u64,
    /// Models that stand from an earlier run: neither their rows nor their configuration has changed.
    pub reused: u64,
    /// Models of groups above others, which predict for groups that have no model of their own.
    #[serde(default)]
    pub parents: u64,
    /// Groups that have no model of their own.
    pub fallbacks: u64,
    /// Some of these, with the reason: at most 100.
    pub fallback_reasons: Vec<GroupFallback>,
}

/// A group without a model of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupFallback {
    /// The values that name it.
    pub group: Vec<Option<String>>,
    /// Its rows to learn from.
    pub rows: u64,
    /// Why it has no model.
    pub reason: String,
    /// What predicts for it.
    #[serde(default)]
    pub predicted_by: String,
}

/// One published forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForecastReport {
    /// The sink.
    pub sink: String,
    /// The directory that it is published in.
    pub path: String,
    /// The directory of its files.
    pub data: String,
    /// Its rows: series times steps.
    pub rows: u64,
    /// Series that are predicted.
    pub series: u64,
    /// Steps of each of them.
    pub steps: u64,
    /// Series that ended too long ago to be predicted.
    pub ended: u64,
    /// The last time of the data.
    pub known_until: Option<String>,
    /// The id of the model's training.
    pub model: String,
    /// The id of the artifact that its features are made with.
    pub artifact: String,
    /// Rows of which a prediction was moved to a bound.
    pub clipped: u64,
    /// Rows whose quantiles crossed, and were sorted.
    pub crossed: u64,
    /// What its columns are.
    #[serde(skip)]
    pub layout: ForecastLayout,
    /// Whether readers saw something else before, or nothing.
    #[serde(skip)]
    pub is_new: bool,
}

/// The rows of the future that a step added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FutureReport {
    /// The step.
    pub step: String,
    /// Series that go on.
    pub series: u64,
    /// Rows of each of them.
    pub steps: u64,
    /// Series that ended too long ago.
    pub ended: u64,
    /// The last time of the data; without data, none.
    pub known_until: Option<String>,
}

/// A vocabulary whose ids hold still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContinuedReport {
    /// The step.
    pub step: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// The artifact whose vocabulary it continues; without an earlier run, none.
    pub artifact: Option<String>,
    /// Tokens of the vocabulary.
    pub tokens: u64,
    /// Those of them that are new.
    pub added: u64,
    /// Those of them that are no longer seen.
    pub absent: u64,
}

/// A column of an output, and where it comes from.
#[derive(Debug, Clone, Serialize)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub data_type: String,
    /// The columns of sources that its values, and the statistics in them, are made of.
    pub from: Vec<OriginColumn>,
}

/// A column of a source.
#[derive(Debug, Clone, Serialize)]
pub struct OriginColumn {
    /// The source.
    pub source: String,
    /// Its column.
    pub column: String,
}

/// One pass as it went.
#[derive(Debug, Clone, Serialize)]
pub struct PassReport {
    /// The pass's id.
    pub id: String,
    /// `learn`, `gather`, `write` or `train`.
    pub work: &'static str,
    /// Whether a committed result made it unnecessary.
    pub reused: bool,
    /// Rows that went in.
    pub rows_in: u64,
    /// Those of them that were not read again, because what an earlier run made of them stands.
    pub rows_kept: u64,
    /// Those of them that a learn pass did not read, because the source left them out: rows of row groups that cannot
    /// match, and of the time after an interval. They count as filtered, too.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows_skipped: u64,
    /// Rows that filters removed.
    pub rows_filtered: u64,
    /// Rows that expansions added.
    pub rows_expanded: i64,
    /// Rows that came out (writes and gathers).
    pub rows_out: u64,
}

impl PassReport {
    /// The report of a pass that has not begun.
    pub(crate) fn new(pass: &Pass) -> Self {
        let work = match &pass.work {
            PassWork::Learn(_) => "learn",
            PassWork::Gather(_) => "gather",
            PassWork::Write(_) => "write",
        };
        PassReport {
            id: pass.id.to_string(),
            work,
            reused: false,
            rows_in: 0,
            rows_kept: 0,
            rows_skipped: 0,
            rows_filtered: 0,
            rows_expanded: 0,
            rows_out: 0,
        }
    }

    /// Rows that were read: those that went in, without what was reused or left out.
    pub fn rows_read(&self) -> u64 {
        self.rows_in
            .saturating_sub(self.rows_kept + self.rows_skipped)
    }

    pub(crate) fn count(&mut self, counts: RowCounts) {
        self.rows_in = counts.input;
        self.rows_skipped = counts.skipped;
        self.rows_filtered = counts.filtered;
        self.rows_expanded = counts.expanded;
    }
}
