//! Result of a run.

use std::collections::BTreeMap;

use forebay_commit::DegradationReport;
use forebay_contract::{BaselineReport, OutputSum, TrainingReport};
use forebay_model::{Dataset, Interval, LeftOutFiles, RowLedger};
use forebay_plan::{ColumnLineage, NodeFlow, Pass, PassWork, RowCounts, StepRefit};
use forebay_storage::StorageUsage;
use serde::Serialize;

use crate::day_report::DayReport;
use crate::expectations::ExpectationReport;
use crate::predict::{EnsembleReport, ForecastLayout, ReconcileReport};
use crate::run_record::{
    LISTED_MAX, RecordedDeadline, RecordedModel, RecordedOutput, RecordedRule, RunRecord,
    RunRecordState,
};

/// Result of a run: printed as the summary, and as the last line of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// The pipeline.
    pub pipeline: String,
    /// The artifact's id.
    pub artifact: Option<String>,
    /// Directory of the artifact.
    pub artifact_path: Option<String>,
    /// Per source whose folders hold files that are not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutReport>,
    /// Per source and kind: days that are late, duplicate or empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<DayReport>,
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
    /// Differences of each vocabulary that continues that of the run before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub continued: Vec<ContinuedReport>,
    /// Decisions about the steps that are not fitted in each run.
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
    /// The time from which on rows of new data were written; earlier rows are history, and count as filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_from: Option<String>,
    /// Intervals before it that were done again, because the lookback reaches them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Interval>,
    /// True if all results were known already.
    pub nothing_new: bool,
    /// Outcome of the deadline, if the run had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DeadlineOutcome>,
    /// Degradation of the run, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<DegradationReport>,
    /// Problems that the user should know of and that did not stop the run, in order of notice: at
    /// most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Bytes spilled to disk.
    pub spilled_bytes: u64,
    /// Requests of this process to object stores during the run, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageUsage>,
}

impl RunReport {
    /// Describes the end of the run in its record. Times and memory are left as they are.
    pub fn describe(&self, record: &mut RunRecord) {
        record.state = match (&self.ladder, self.nothing_new) {
            (Some(_), _) => RunRecordState::Degraded,
            (None, true) => RunRecordState::NothingNew,
            (None, false) => RunRecordState::Complete,
        };
        record.artifact = self.artifact.clone();
        record.data_until = self.data_until();
        record.outputs = self.recorded_outputs();
        record.models = self.models.iter().map(ModelReport::recorded).collect();
        record.rules = self.expectations.len();
        let failed = self.expectations.iter().filter(|rule| !rule.holds);
        record.failed_rules = failed.take(LISTED_MAX).map(recorded_rule).collect();
        record.deadline = self.deadline.as_ref().map(|deadline| RecordedDeadline {
            at: deadline.at.clone(),
            on_time: deadline.on_time,
        });
        if let Some(ladder) = &self.ladder {
            record.levels = ladder.rungs.clone();
        }
        record.spilled_bytes = self.spilled_bytes;
        let warnings = self.warnings.iter().take(LISTED_MAX);
        record.warnings = warnings.cloned().collect();
    }

    /// The last time of the data that the run knew: the end of its interval, or the time from which forecasts go on.
    fn data_until(&self) -> Option<String> {
        let interval = self.interval.iter().map(|interval| &interval.to);
        let forecasts = self.forecasts.iter();
        let forecasts = forecasts.filter_map(|forecast| forecast.known_until.as_ref());
        let future = self.future.iter();
        let future = future.filter_map(|future| future.known_until.as_ref());
        interval.chain(forecasts).chain(future).next().cloned()
    }

    fn recorded_outputs(&self) -> Vec<RecordedOutput> {
        let outputs = self.outputs.iter().map(|output| RecordedOutput {
            sink: output.sink.clone(),
            is_forecast: false,
            rows_in: output.sum.rows_in,
            rows: output.rows,
            files: output.files as u64,
            bytes: output.bytes,
        });
        let forecasts = self.forecasts.iter().map(|forecast| RecordedOutput {
            sink: forecast.sink.clone(),
            is_forecast: true,
            rows_in: forecast.sum.rows_in,
            rows: forecast.rows,
            files: 0,
            bytes: 0,
        });
        outputs.chain(forecasts).collect()
    }
}

fn recorded_rule(rule: &ExpectationReport) -> RecordedRule {
    RecordedRule {
        step: rule.step.clone(),
        rule: rule.rule.clone(),
        rows: rule.rows,
        violations: rule.violations,
        finding: rule.found.clone(),
    }
}

/// The files of a source's folders that are not read.
#[derive(Debug, Clone, Serialize)]
pub struct LeftOutReport {
    /// The source.
    pub source: String,
    /// Number of the files and their first names.
    #[serde(flatten)]
    pub left_out: LeftOutFiles,
}

impl LeftOutReport {
    /// The sources that leave files out.
    pub(crate) fn of_datasets(datasets: &BTreeMap<String, Dataset>) -> Vec<LeftOutReport> {
        let leaving = datasets
            .iter()
            .filter(|(_, dataset)| !dataset.left_out.is_empty());
        let reports = leaving.map(|(source, dataset)| LeftOutReport {
            source: source.clone(),
            left_out: dataset.left_out.clone(),
        });
        reports.collect()
    }
}

/// A deadline, and whether it was kept.
#[derive(Debug, Clone, Serialize)]
pub struct DeadlineOutcome {
    /// The instant, in UTC.
    pub at: String,
    /// True if the run ended before the deadline.
    pub on_time: bool,
}

/// A committed output.
#[derive(Debug, Clone, Serialize)]
pub struct OutputReport {
    /// The sink.
    pub sink: String,
    /// The output directory.
    pub path: String,
    /// True if it is a table, which a reader opens by its log.
    pub table: bool,
    /// The directory of its files.
    pub data: String,
    /// Rows written.
    pub rows: u64,
    /// The sum of its rows, from the sources on.
    #[serde(flatten)]
    pub sum: OutputSum,
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
    /// Rows for which a window found no earlier value.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows_without_history: u64,
    /// Rows with the keys and the time of an earlier row of their series, where windows warn of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Columns of the output, in order.
    pub columns: Vec<OutputColumn>,
    /// True if the output differs from the one that readers saw before, or is the first.
    #[serde(skip)]
    pub is_new: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A trained model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// The sink.
    pub sink: String,
    /// The directory that it is published in.
    pub path: String,
    /// The directory of its files.
    pub data: String,
    /// Id of everything that determines it.
    pub id: String,
    /// True if an earlier run had trained it.
    pub reused: bool,
    /// The model that is in force, where the training is not done in each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refit: Option<StepRefit>,
    /// Course and result of the training.
    #[serde(flatten)]
    pub learned: TrainingReport,
    /// True if the model differs from the one that readers saw before, or is the first.
    #[serde(skip)]
    pub is_new: bool,
}

impl ModelReport {
    fn recorded(&self) -> RecordedModel {
        let baseline = self.learned.baseline.as_ref();
        RecordedModel {
            sink: self.sink.clone(),
            reused: self.reused,
            loss: baseline
                .map(|baseline| baseline.loss)
                .filter(|loss| loss.is_finite()),
            baseline: baseline
                .map(BaselineReport::least)
                .filter(|loss| loss.is_finite()),
        }
    }
}

/// A published forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastReport {
    /// The sink.
    pub sink: String,
    /// The directory that it is published in.
    pub path: String,
    /// The directory of its files.
    pub data: String,
    /// Number of rows: series times steps.
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
    /// The id of the artifact that its features are made with. The naive forecast has none.
    pub artifact: Option<String>,
    /// Rows of which a prediction was moved to a bound.
    pub clipped: u64,
    /// Rows whose quantiles crossed, and were sorted.
    pub crossed: u64,
    /// The sum of its rows, from the sources on.
    #[serde(flatten)]
    pub sum: OutputSum,
    /// Rows for which a window found no earlier value.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows_without_history: u64,
    /// Learned weights of its ensemble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleReport>,
    /// The hierarchy that its forecasts add up in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<ReconcileReport>,
    /// Meaning of the columns.
    #[serde(skip)]
    pub layout: ForecastLayout,
    /// True if the forecast differs from the one that readers saw before, or is the first.
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
    /// Columns of the analyzer.
    pub columns: Vec<String>,
    /// The artifact whose vocabulary it continues; without an earlier run, none.
    pub artifact: Option<String>,
    /// Tokens of the vocabulary.
    pub tokens: u64,
    /// Number of new tokens.
    pub added: u64,
    /// Number of tokens that are no longer seen.
    pub absent: u64,
}

/// A column of an output, and where it comes from.
#[derive(Debug, Clone, Serialize)]
pub struct OutputColumn {
    /// Name of the column.
    pub name: String,
    /// Type of the column.
    #[serde(rename = "type")]
    pub data_type: String,
    /// The columns of sources that its values, and the statistics in them, depend on.
    pub from: Vec<OriginColumn>,
}

impl OutputColumn {
    /// A column of a flow with its origins.
    pub(crate) fn traced(
        lineage: &mut ColumnLineage<'_>,
        flow: &NodeFlow,
        name: &str,
        data_type: String,
    ) -> OutputColumn {
        let mut from = Vec::new();
        for origin in lineage.origins(flow, name) {
            from.push(OriginColumn {
                source: origin.source,
                column: origin.column,
            });
        }
        OutputColumn {
            name: name.to_owned(),
            data_type,
            from,
        }
    }
}

/// A column of a source.
#[derive(Debug, Clone, Serialize)]
pub struct OriginColumn {
    /// The source.
    pub source: String,
    /// Name of the source's column.
    pub column: String,
}

/// Report of a pass.
#[derive(Debug, Clone, Serialize)]
pub struct PassReport {
    /// The pass's id.
    pub id: String,
    /// `learn`, `gather`, `write` or `train`.
    pub work: &'static str,
    /// True if a committed result made it unnecessary.
    pub reused: bool,
    /// Rows that went in.
    pub rows_in: u64,
    /// Input rows that were not read again, because results of an earlier run for them are reused.
    pub rows_kept: u64,
    /// Input rows that a learn pass did not read, because the source left them out: rows of row
    /// groups that cannot match, and of the time after an interval. They count as filtered, too.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows_skipped: u64,
    /// Rows that filters removed.
    pub rows_filtered: u64,
    /// Rows that expansions added.
    pub rows_expanded: i64,
    /// Rows that came out (writes and gathers).
    pub rows_out: u64,
    /// The steps of the pass that removed and added rows, and that changed values, with their reasons.
    #[serde(skip_serializing_if = "RowLedger::is_empty")]
    pub changes: RowLedger,
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
            changes: RowLedger::default(),
        }
    }

    /// Rows that were read: the input rows without those that were reused or left out.
    pub fn rows_read(&self) -> u64 {
        self.rows_in
            .saturating_sub(self.rows_kept + self.rows_skipped)
    }

    pub(crate) fn count(&mut self, counts: &RowCounts) {
        self.rows_in = counts.input;
        self.rows_skipped = counts.skipped;
        self.rows_filtered = counts.filtered;
        self.rows_expanded = counts.expanded;
        self.changes = counts.changes.clone();
    }
}
