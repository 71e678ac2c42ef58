//! The session and the executor of programs, with intervals, deadlines, training, the leak check and serving.

mod attempt;
mod backfill;
mod backtest;
mod bounded_joins;
mod cancellable_source;
mod carried;
mod connector_registry;
mod deadline;
mod degradation;
mod executor;
mod expectations;
mod feed;
mod gathered_source;
mod late_data;
mod leak_check;
mod numbering;
mod output_overlap;
mod predict;
mod preview;
mod profile;
mod refit;
mod remote_run;
mod report;
mod run;
mod sample;
mod serving;
mod session;
#[cfg(test)]
mod simulation;
mod source_readiness;
mod spec_check;
mod step_rows;
mod tables;
mod task;
mod training;
mod training_checks;
mod training_inputs;
mod training_parts;
mod training_start;
mod training_tracker;
mod worker_server;

pub use backtest::{
    BacktestOptions, BacktestReport, BacktestedForecast, FoldReport, ForecastOrigin, ForecastScore,
    ForecasterScores, GroupScore, IntervalScore, QuantileScore, StepScore,
};
pub use connector_registry::{ConnectorRegistry, ReadModelFile};
pub use deadline::{DeadlineSpec, RunCost, parse_duration};
pub use expectations::ExpectationReport;
pub use feed::{FeedOrigin, FeedSource};
pub use forebay_cluster::{
    Cluster, ClusterOptions, ClusterSecurity, ClusterSize, ClusterStatus, ClusterToken, EndedTask,
    LocalWorkers, TaskCounts, TaskListener, TaskOutcome, TaskTally, TlsFiles, WorkerStatus,
    set_worker_program,
};
pub use forebay_commit::{
    Artifact, ArtifactFiles, CollectionReport, CorruptFile, DATA_SUFFIX, DegradationReport,
    IntervalEntry, KindUsage, LearnedFinding, Manifest, OutputFile, OutputWriter, RetentionPolicy,
    StateDirectory, StepFit, TableReferences, VerifyReport, output_root, table_shard_directory,
    visible_location,
};
pub use forebay_feed::{
    DetailedFeature, FeatureColumn, FeedCache, FeedConfig, FeedOrder, FeedSeries, MixSource,
};
pub use forebay_model::Interval;
pub use forebay_plan::{HORIZON_STEP, StepColumns};
pub use forebay_storage::DriftMeasures;
pub use leak_check::{
    CutoffChoice, CutoffReport, LeakReport, LeakedColumn, RowMismatch, ScrambledSource,
    SinkComparison,
};
pub use predict::{
    ForecastColumns, ForecastExamples, ForecastFormat, ForecastLayout, ForecastPoint, LoadedModel,
    ModelPredictor, PredictConfig, PredictTransform, PredictedRows, Predictions, SeriesExample,
    SeriesKey, SeriesPoint, quantile_column,
};
pub use preview::{Preview, PreviewOptions};
pub use profile::{
    ColumnDrift, ColumnPair, ColumnProfile, ComparedProfile, DatasetProfile, DriftOptions,
    DriftReport, FrequentValue, HistogramBin, LearnedProfile, LengthProfile, NumericProfile,
    ProfileOptions, SeriesProfile, TimeProfile, compare_profiles,
};
pub use refit::parse_refit;
pub use report::{
    ContinuedReport, DeadlineOutcome, ForecastReport, FutureReport, GroupFallback,
    GroupTrainingReport, ModelReport, OriginColumn, OutputColumn, OutputReport, PassReport,
    RunReport, TrainingReport, TrainingStartReport,
};
pub use sample::RunSample;
pub use serving::ServingModel;
pub use session::{Session, SessionOptions};
pub use step_rows::StepRows;
pub use task::{RowStream, Task};
pub use training::{Trainer, TrainingContext, TrainingOutput};
pub use training_parts::{PartContext, TakePartFn};
pub use training_start::WarmStart;
pub use training_tracker::{TrackedRun, TrackedTrainings, TrainingTracker};
pub use worker_server::WorkerServer;
