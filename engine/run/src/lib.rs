//! The session and the executor of programs, with intervals, deadlines, training, the leak check and serving.

mod analyzers_of_rows;
mod attempt;
mod backfill;
mod backfill_turn;
mod backtest;
mod binding;
mod bounded_joins;
mod cancellable_source;
mod carried;
mod carried_run;
mod column_origins;
mod day_report;
mod deadline;
mod degradation;
mod executor;
mod expectations;
mod explain;
mod feed;
mod fit_types;
mod function_check;
mod gathered_source;
mod id_features;
mod intermediate_files;
mod inverse;
mod inverse_step;
mod kept_table;
mod label_copies;
mod late_data;
mod leak_check;
mod learning_filters;
mod model_place;
mod null_checks;
mod numbering;
mod output_overlap;
mod pass_interval;
mod portable_artifact;
mod predict;
mod preview;
mod preview_options;
mod previous_artifact;
mod profile;
mod refit;
mod remote_run;
mod report;
mod report_text;
mod row_rules;
mod run;
mod run_mode;
mod run_numbering;
mod run_record;
mod run_recorder;
mod sample;
mod served_columns;
mod served_history;
mod served_rows;
mod serving;
mod serving_inputs;
mod session;
#[cfg(test)]
mod simulation;
mod sink_schema;
mod source_days;
mod source_readiness;
mod spec_check;
mod split_ends;
mod step_rows;
mod tables;
mod task;
mod text_types;
mod training;
mod training_cadence;
mod training_checks;
mod training_inputs;
mod training_labels;
mod training_parts;
mod training_run;
mod training_split;
mod training_start;
mod training_tracker;
mod warnings;
mod worker_server;

pub use backtest::{
    BacktestOptions, BacktestReport, BacktestedForecast, ErrorHistogram, FoldReport,
    ForecastOrigin, ForecastScore, ForecasterScores, GroupScore, IntervalCoverage, IntervalScore,
    QuantileScore, SampledPoint, SampledSeries, ScoreOptions, ScoreRule, StepCoverage, StepScore,
    StepTotal,
};
pub use column_origins::SinkColumns;
pub use day_report::{DayProblem, DayReport};
pub use deadline::{DeadlineSpec, RunCost};
pub use expectations::ExpectationReport;
pub use forebay_cluster::{
    Cluster, ClusterOptions, ClusterSecurity, ClusterSize, ClusterStatus, ClusterToken, EndedTask,
    LocalProcesses, LocalWorkers, RunCredentials, TaskCounts, TaskListener, TaskOutcome, TaskTally,
    TlsFiles, WorkerSet, WorkerStatus, set_worker_program, worker_program,
};
pub use forebay_commit::{
    Artifact, ArtifactFiles, ArtifactOrigin, CollectionReport, CorruptFile, DATA_SUFFIX,
    DegradationReport, IntervalEntry, KindUsage, LearnedFinding, Manifest, OutputFile,
    OutputWriter, RetentionPolicy, ServingManifest, ServingReference, StateDirectory, StepFit,
    TableReferences, VerifyReport, output_root, table_shard_directory, visible_location,
};
pub use forebay_feed::{
    DetailedFeature, FeatureColumn, FeedCache, FeedConfig, FeedOrder, FeedSeries, MixSource,
};
pub use forebay_model::Interval;
pub use forebay_storage::DriftMeasures;
pub use function_check::CheckedFunction;
pub use inverse::InverseColumns;
pub use inverse_step::InverseRequest;
pub use leak_check::{
    CutoffChoice, CutoffReport, LeakReport, LeakedColumn, RowMismatch, ScrambledSource,
    SinkComparison,
};
pub use portable_artifact::{portable_artifact_steps, target_stages};
pub use predict::{
    EnsembleMember, EnsembleReport, ForecastColumns, ForecastExamples, ForecastLayout,
    ForecastPoint, LoadedModel, PredictTransform, ReconcileReport, SeriesExample, SeriesKey,
    SeriesPoint, bounded_predictions,
};
pub use preview::Preview;
pub use preview_options::PreviewOptions;
pub use profile::{
    ColumnDrift, ColumnPair, ColumnProfile, ComparedProfile, DatasetProfile, DriftOptions,
    DriftReport, FrequentValue, HistogramBin, LearnedProfile, LengthProfile, NumericProfile,
    ProfileOptions, SeriesProfile, TimeProfile, compare_profiles,
};
pub use report::{
    ContinuedReport, DeadlineOutcome, ForecastReport, FutureReport, LeftOutReport, ModelReport,
    OriginColumn, OutputColumn, OutputReport, PassReport, RunReport,
};
pub use run_record::{
    RecordedDeadline, RecordedFault, RecordedModel, RecordedOutput, RecordedPass, RecordedRule,
    RunRecord, RunRecordState,
};
pub use sample::RunSample;
pub use served_rows::ServedRows;
pub use serving::{
    AppendReport, ColumnFit, ForecastRequest, ServingModel, StateSummary, UnservedStep,
};
pub use session::{Session, SessionOptions};
pub use step_rows::StepRows;
pub use task::{RowStream, Task};
pub use training_tracker::{TrackedRun, TrackedTrainings, TrainingTracker};
pub use worker_server::WorkerServer;
